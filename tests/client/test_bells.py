"""Clients and a driver that ring each other, over one Aeron directory.

In these tests nobody looks again without having been rung, for an hour: a ring that is missing is
a test that does not end in time.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast

import attrs
import pytest

import aeron_async as aa
from aeron_async import doorbell
from aeron_async.client.attachment import Attachment
from aeron_async.doorbell import BELL_KEY, BELL_TYPE_ID, mode_place
from tests.client.local import IPC, STREAM_ID, until
from tests.twins import needs_compiled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aeron_async.client.attached_driver import AttachedDriver
    from aeron_async.watcher import Watcher

pytestmark = needs_compiled

HOUR_NS = 3_600 * 10**9


@pytest.fixture(autouse=True)
def no_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doorbell, "DOZE_NS", HOUR_NS)


@pytest.fixture
def context(context: aa.DriverContext, tmp_path: Path) -> aa.DriverContext:
    return attrs.evolve(
        context, aeron_directory=str(tmp_path / "aeron"), counters_buffer_length=1 << 20
    )


@pytest.fixture(params=["ipc", "udp"])
def medium(request: pytest.FixtureRequest, channel: str) -> str:
    return IPC if request.param == "ipc" else channel


@asynccontextmanager
async def attached(driver: aa.MediaDriver) -> AsyncIterator[aa.Aeron]:
    async with aa.Aeron.connect(directory=driver.context.aeron_directory) as aeron:
        yield aeron


def watcher_of(aeron: aa.Aeron) -> Watcher:
    return cast("AttachedDriver", aeron.driver)._attachment().watcher


def driver_watcher(driver: aa.MediaDriver) -> Watcher:
    assert driver._watcher is not None
    return driver._watcher


def is_polling(driver: aa.MediaDriver) -> bool:
    """Return whether the driver says that all must look."""
    own = doorbell.driver_bell(driver.counters)
    assert own is not None
    return bool(driver.counters.value(own) >> 32 & 1)


async def asleep(*watchers: Watcher) -> None:
    """Wait until all sleep until they are rung."""
    await until(lambda: all(each.is_dozing for each in watchers))


async def test_all_sleep_and_each_message_wakes_its_reader(
    driver: aa.MediaDriver, medium: str
) -> None:
    async with attached(driver) as publisher, attached(driver) as reader:
        publication = await publisher.add_publication(medium, STREAM_ID)
        subscription = await reader.add_subscription(medium, STREAM_ID)
        await publication.wait_connected(timeout=5)
        for number in range(20):
            waiting = asyncio.ensure_future(anext(subscription))
            await asleep(watcher_of(reader), driver_watcher(driver))
            await publication.offer(b"%d" % number, timeout=5)
            async with asyncio.timeout(5):
                assert (await waiting).data == b"%d" % number


async def test_a_publisher_that_is_held_back_is_woken_by_its_reader(
    driver: aa.MediaDriver, medium: str
) -> None:
    async with attached(driver) as publisher, attached(driver) as reader:
        publication = await publisher.add_exclusive_publication(medium, STREAM_ID)
        subscription = await reader.add_subscription(medium, STREAM_ID)
        await publication.wait_connected(timeout=5)
        for _ in range(5):
            held = asyncio.ensure_future(publication.offer(b"last", timeout=10))
            await until(lambda: held.done() or watcher_of(publisher).is_dozing)  # noqa: B023
            while held.done():
                # What the receiver has taken makes room, up to the end of its window.
                while isinstance(publication.try_offer(bytes(1_000)), int):
                    await asyncio.sleep(0)
                held = asyncio.ensure_future(publication.offer(b"last", timeout=10))
                await until(lambda: held.done() or watcher_of(publisher).is_dozing)  # noqa: B023
            await asleep(watcher_of(publisher), driver_watcher(driver))
            async with asyncio.timeout(5):
                while not held.done():
                    await anext(subscription)
            await held


async def test_who_waits_for_nothing_is_not_rung(driver: aa.MediaDriver, medium: str) -> None:
    """A stream wakes those who read it, and no other client."""
    async with attached(driver) as one, attached(driver) as two, attached(driver) as other:
        idle = await other.add_subscription(medium, STREAM_ID + 1)
        waiting = asyncio.ensure_future(anext(idle))
        publication = await one.add_publication(medium, STREAM_ID)
        subscription = await two.add_subscription(medium, STREAM_ID)
        await publication.wait_connected(timeout=5)
        await asleep(watcher_of(other))
        before = watcher_of(other).counts
        for _ in range(50):
            await publication.offer(b"not for it", timeout=5)
            await anext(subscription)
        assert watcher_of(other).counts == before
        waiting.cancel()


async def test_all_look_while_a_client_has_no_bell(
    driver: aa.MediaDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_polling(driver)
    async with attached(driver) as first:
        await until(lambda: not is_polling(driver))
        subscription = await first.add_subscription(IPC, STREAM_ID)
        waiting = asyncio.ensure_future(anext(subscription))
        await asleep(watcher_of(first))

        async def no_bell(_: Attachment) -> None:
            """As a client of another program."""

        with monkeypatch.context() as patch:
            patch.setattr(Attachment, "add_bell", no_bell)
            async with attached(driver) as second:
                publication = await second.add_publication(IPC, STREAM_ID)
                await until(lambda: is_polling(driver))
                await until(lambda: not watcher_of(first).is_dozing)
                await publication.offer(b"polled for", timeout=5)
                assert (await waiting).data == b"polled for"
                waiting = asyncio.ensure_future(anext(subscription))
        await until(lambda: not is_polling(driver))
        await asleep(watcher_of(first), driver_watcher(driver))
        waiting.cancel()


async def test_all_look_while_a_client_shares_the_drivers_process(
    driver: aa.MediaDriver,
) -> None:
    async with attached(driver) as reader:
        subscription = await reader.add_subscription(IPC, STREAM_ID)
        async with aa.Aeron.connect(driver) as embedded:
            publication = await embedded.add_publication(IPC, STREAM_ID)
            await until(lambda: is_polling(driver))
            await publication.offer(b"from within", timeout=5)
            assert (await anext(subscription)).data == b"from within"
        await until(lambda: not is_polling(driver))


async def test_a_bell_that_is_removed_is_missed(driver: aa.MediaDriver) -> None:
    async with attached(driver) as aeron:
        # Neither another type nor another key is a bell, and a second bell takes the place of one.
        for type_id, key in ((BELL_TYPE_ID, b"other"), (BELL_TYPE_ID + 1, BELL_KEY)):
            await aeron.add_counter(type_id, "no bell", key)
        second = await aeron.add_counter(BELL_TYPE_ID, "bell", BELL_KEY)
        assert not is_polling(driver)
        await second.aclose()
        await until(lambda: is_polling(driver))


async def test_a_client_finds_the_bell_of_the_driver_and_no_forged_one(
    driver: aa.MediaDriver,
) -> None:
    own = doorbell.driver_bell(driver.counters)
    assert own is not None
    async with attached(driver) as aeron:
        await aeron.add_counter(BELL_TYPE_ID, "forged", BELL_KEY)
        forged = await aeron.add_static_counter(BELL_TYPE_ID, "forged", BELL_KEY, registration_id=7)
        async with attached(driver) as other:
            assert doorbell.driver_bell(other.counters) == own < forged.id
            assert mode_place(own) % 8 == 4
