"""The driver of a client, embedded or reached through an Aeron directory, for tests of either.

`AERON_ASYNC_TEST_DRIVER=attached` makes every client of `tests/client` an attached one. Its driver
serves an Aeron directory from the same event loop, where a test can still look into it. Without the
variable so does a second run of the tests that are marked `both_drivers`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import attrs
import pytest

import aeron_async as aa
from aeron_async.client.attached_driver import AttachedDriver
from aeron_async.doorbell import BELL_TYPE_ID
from aeron_async.driver.core.stream_counters import CLIENT_HEARTBEAT_TYPE_ID

if TYPE_CHECKING:
    from pathlib import Path

EMBEDDED: Final = "embedded"
ATTACHED: Final = "attached"
KIND: Final = os.environ.get("AERON_ASYNC_TEST_DRIVER", EMBEDDED)
SMALL_TABLE: Final = 1 << 20
OF_CLIENTS: Final = (CLIENT_HEARTBEAT_TYPE_ID, BELL_TYPE_ID)

# Why a test says nothing of an attached client.
CLOCK: Final = "its time is virtual, and that of an attached client is the machine's"
ERROR: Final = "an error reaches an attached client as a code and a text"
LOOP: Final = "an attached client warns if its event loop ends before it is closed"
MEMORY: Final = "an attached client maps the same memory at another place"
REASON: Final = "only an embedded driver can be asked why a stream waits"
SHARING: Final = "the client of a process of its own shares no process with the driver"
STARTING: Final = "an attached client waits until its driver runs"
STRATEGY: Final = "a strategy that is an object cannot be passed through a directory"
TURNS: Final = "a request reaches an embedded driver in a turn of the loop that is known"
WATCHING: Final = "an attached client sees by itself what the driver stores"

both_drivers: Final = pytest.mark.both_drivers
embedded_only: Final = pytest.mark.embedded_only


class ServedDriver(AttachedDriver):
    """A driver of this event loop, which its client reaches through a directory.

    Args:
        serving: The driver.
        is_owned: Whether it starts and closes with its client.
    """

    def __init__(self, serving: aa.MediaDriver, *, is_owned: bool) -> None:
        assert serving.context.aeron_directory is not None
        super().__init__(serving.context.aeron_directory, serving.context)
        self.serving = serving
        self._is_owned = is_owned

    async def start(self) -> None:
        if self._is_owned:
            await self.serving.start()
        await super().start()

    async def aclose(self) -> None:
        await super().aclose()
        if self._is_owned:
            await self.serving.aclose()


def embedded(aeron: aa.Aeron) -> aa.MediaDriver:
    """Return the driver of a client, which is of this process."""
    if isinstance(aeron.driver, ServedDriver):
        return aeron.driver.serving
    assert isinstance(aeron.driver, aa.MediaDriver)
    return aeron.driver


async def caught_up(aeron: aa.Aeron) -> None:
    """Let a driver act on what its client has told it, and the client hear of that."""
    if isinstance(aeron.driver, ServedDriver):
        await aeron.driver.catch_up(aeron.client_id)


def contradiction(aeron: aa.Aeron) -> type[aa.AeronError]:
    """Return how a client hears that a channel contradicts what its driver has already."""
    is_attached = isinstance(aeron.driver, ServedDriver)
    return aa.RegistrationError if is_attached else aa.ConfigurationError


def endpoint_error(aeron: aa.Aeron) -> aa.ErrorCode:
    """Return the code of a socket that cannot be had, by which a driver would tell all clients."""
    is_attached = isinstance(aeron.driver, ServedDriver)
    return aa.ErrorCode.GENERIC if is_attached else aa.ErrorCode.CHANNEL_ENDPOINT_ERROR


def stream_counter_count(driver: aa.MediaDriver) -> int:
    """Return how many counters there are, without those of attached clients themselves."""
    return len([each for each in driver.counters if each.type_id not in OF_CLIENTS])


def attach_clients(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Let every driver serve a directory, and every client attach to it."""
    launch, abort, connect = aa.MediaDriver.launch, aa.MediaDriver._abort, aa.Aeron.connect
    serving_clients: list[ServedDriver] = []
    table_length = aa.DriverContext().counters_buffer_length
    numbers = iter(range(100))

    def launch_serving(context: aa.DriverContext | None = None, **more: Any) -> aa.MediaDriver:
        context = aa.DriverContext.from_environment() if context is None else context
        if context.aeron_directory is None:
            length = context.counters_buffer_length
            context = attrs.evolve(
                context,
                aeron_directory=str(path / f"aeron-{next(numbers)}"),
                counters_buffer_length=SMALL_TABLE if length == table_length else length,
            )
        driver: aa.MediaDriver = launch(context, **more)
        return driver

    def connect_attached(driver: aa.MediaDriver | None = None, **more: Any) -> aa.Aeron:
        aeron = connect(driver, **more)
        serving = aeron.driver
        if not isinstance(serving, aa.MediaDriver) or serving.context.aeron_directory is None:
            return aeron
        served = ServedDriver(serving, is_owned=driver is None)
        serving_clients.append(served)
        return aa.Aeron(served, is_driver_owned=True)

    def abort_and_tell(driver: aa.MediaDriver) -> None:
        abort(driver)
        # They would notice within half a second.
        for each in [each for each in serving_clients if each.serving is driver]:
            if each.is_attached:
                each._keep_alive()

    monkeypatch.setattr(aa.MediaDriver, "launch", launch_serving)
    monkeypatch.setattr(aa.MediaDriver, "_abort", abort_and_tell)
    monkeypatch.setattr(aa.Aeron, "connect", connect_attached)
