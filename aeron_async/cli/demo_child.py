"""Phases of the demonstration, and the code that its two processes share.

Message layout, little endian: time int64 (monotonic nanoseconds), sequence int64, kind uint8, then
padding up to the chosen size. The kind is the number of the phase, so the subscriber knows the
phase from the message alone.

Each process reports `ready` with its address, receives the configuration with the other's address,
and then sends reports until it is done. If the parent process goes away, standard input ends, and
the process closes everything.
"""

from __future__ import annotations

import asyncio
import json
import sys
from array import array
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from aeron_async.cli.figures import LatencySummary
from aeron_async.cli.options import RunOptions
from aeron_async.cli.output import remark
from aeron_async.cli.runner import ExitCode, run
from aeron_async.errors import AeronError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

__all__ = [
    "ECHO",
    "END",
    "FAST",
    "HEADER",
    "PHASES",
    "SLOW",
    "SLOW_NS_PER_MESSAGE",
    "Configuration",
    "Latencies",
    "Parent",
    "Phase",
    "Sampler",
    "run_child",
]

HEADER: Final = Struct("<qqB")
SLOW_NS_PER_MESSAGE: Final = 50_000
END: Final = 255
"""Kind of the last message; its echo shows that everything before it has arrived."""


@attrs.frozen(kw_only=True)
class Phase:
    """One phase of the demonstration.

    Attributes:
        kind: Kind of its messages.
        key: Name in JSON.
        title: Name on the screen.
        lesson: What to look at, and why it is so.
        share: Share of the whole duration.
    """

    kind: int
    key: str
    title: str
    lesson: str
    share: float


FAST: Final = Phase(
    kind=0,
    key="fast",
    title="as fast as it goes",
    lesson=(
        "The publisher offers list after list and never pauses. The messages travel many to a "
        "datagram, as fast as the slower process can: when the publisher is ahead, its room runs "
        "out, and its offers wait."
    ),
    share=0.4,
)
SLOW: Final = Phase(
    kind=1,
    key="slow",
    title="a slow subscriber",
    lesson=(
        f"The subscriber now takes {SLOW_NS_PER_MESSAGE // 1_000} μs over each message. Its window "
        "fills, the publisher's room runs out, and offers wait: nothing is dropped."
    ),
    share=0.3,
)
ECHO: Final = Phase(
    kind=2,
    key="echo",
    title="one at a time",
    lesson=(
        "Each message comes back before the next one leaves: nothing waits in a queue, and the "
        "latency is that of the way there and back, through two event loops."
    ),
    share=0.3,
)
PHASES: Final = (FAST, SLOW, ECHO)


LOOPBACK: Final = "127.0.0.1:0"


@attrs.frozen(kw_only=True)
class Configuration:
    """Configuration that the parent sends to a process of the demonstration.

    Attributes:
        peer: Address of the other process, as `host:port`.
        duration_s: Duration of all phases together.
        size: Length of a message, in bytes.
        interval_s: Time between two reports.
    """

    peer: str
    duration_s: float
    size: int
    interval_s: float


@final
class Parent(asyncio.Protocol):
    """Connection to the parent process: reads the configuration, and writes reports.

    Args:
        task: Cancelled when the parent goes away.
    """

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task
        self._received = b""
        self._configuration: asyncio.Future[Configuration] = (
            asyncio.get_running_loop().create_future()
        )

    def data_received(self, data: bytes) -> None:
        """Parse the configuration, one line of JSON."""
        self._received += data
        if self._received.endswith(b"\n"):
            self._configuration.set_result(Configuration(**json.loads(self._received)))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Cancel the task: the parent is gone."""
        self._task.cancel()

    async def configuration(self) -> Configuration:
        """Wait for the configuration and return it."""
        return await self._configuration

    def report(self, event: str, **fields: object) -> None:
        """Write one report, as a line of JSON."""
        sys.stdout.write(json.dumps({"event": event} | fields) + "\n")
        sys.stdout.flush()


@final
class Sampler:
    """Calls a function at an interval, until it is stopped."""

    def __init__(self, interval_s: float, function: Callable[[], None]) -> None:
        self._interval_s = interval_s
        self._function = function
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(interval_s, self._on_timer)

    def _on_timer(self) -> None:
        self._function()
        self._timer = self._loop.call_later(self._interval_s, self._on_timer)

    def restart(self) -> None:
        """Call the function now, and again after each interval from now on."""
        self._timer.cancel()
        self._on_timer()

    def stop(self) -> None:
        """Stop calling the function."""
        self._timer.cancel()


@final
class Latencies:
    """Latencies of one phase in nanoseconds, and which of them were already reported."""

    def __init__(self) -> None:
        self.all: array[int] = array("q")
        self._reported_count = 0

    def take_recent(self) -> dict[str, object] | None:
        """Return the summary of latencies since the last call; None if there are none."""
        recent = self.all[self._reported_count :]
        self._reported_count = len(self.all)
        summary = LatencySummary.of(recent)
        return None if summary is None else summary.to_json()

    def summary(self) -> dict[str, object] | None:
        """Return the summary of all latencies; None if there are none."""
        summary = LatencySummary.of(self.all)
        return None if summary is None else summary.to_json()


def run_child(main: Callable[[Parent], Coroutine[object, object, None]]) -> int:
    """Run one process of the demonstration, on the event loop that its first argument names."""
    options = RunOptions(loop="asyncio" if sys.argv[1:] == ["asyncio"] else None)
    try:
        return run(_with_parent(main), options)
    except AeronError as error:
        remark(f"error: {error}")
        return ExitCode.FAILURE


async def _with_parent(main: Callable[[Parent], Coroutine[object, object, None]]) -> int:
    task = asyncio.current_task()
    assert task is not None
    parent = Parent(task)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: parent, sys.stdin)
    try:
        await main(parent)
    except asyncio.CancelledError:
        return ExitCode.FAILURE
    finally:
        transport.close()
    return ExitCode.SUCCESS
