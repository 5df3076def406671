"""Clients and a driver that ring each other, over one Aeron directory.

In these tests nobody looks again without having been rung, for an hour: a ring that is missing is
a test that does not end in time.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast

import pytest

import aeron_async as aa
from aeron_async import doorbell
from aeron_async.client.attachment import Attachment
from aeron_async.doorbell import BELL_KEY, BELL_TYPE_ID, mode_place
from aeron_async.protocol.control_protocol import RemoveCounter
from tests.client.local import IPC, STREAM_ID, until
from tests.drivers import SHARING, embedded_only
from tests.twins import needs_compiled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aeron_async.client.attached_driver import AttachedDriver
    from aeron_async.watcher import Watcher

pytestmark = needs_compiled

HOUR_NS = 3_600 * 10**9
QUIET_TURNS = 200
BELL = {doorbell.AWAKE, doorbell.ASLEEP, doorbell.RESTING}


@pytest.fixture(autouse=True)
def no_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doorbell, "DOZE_NS", HOUR_NS)


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
        count = 1_000

        async def send() -> None:
            for number in range(count):
                await publication.offer(b"%d" % number + bytes(900), timeout=10)

        sending = asyncio.ensure_future(send())
        held_count = 0
        for number in range(count):
            if number % 50 == 0:
                await until(lambda: sending.done() or watcher_of(publisher).is_dozing)
                held_count += not sending.done()
            message = await anext(subscription)
            assert message.data.rstrip(b"\0") == b"%d" % number
        await sending
        assert held_count > 1


async def test_a_refused_offer_rings_those_that_make_room(
    driver: aa.MediaDriver, medium: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A publisher that tries again without an await lets no ring happen that is owed."""
    async with attached(driver) as aeron:
        publication = await aeron.add_publication(medium, STREAM_ID)
        await aeron.add_subscription(medium, STREAM_ID)
        await publication.wait_connected(timeout=5)
        while isinstance(publication.try_offer(bytes(900)), int):
            pass
        rings: list[None] = []
        monkeypatch.setattr(publication, "_wake_sender", lambda: rings.append(None))
        assert publication.try_offer(b"no room") is aa.OfferOutcome.BACK_PRESSURED
        assert publication.try_claim(7) is aa.OfferOutcome.BACK_PRESSURED
        assert len(rings) == 2


async def test_a_publisher_in_the_process_of_the_driver_waits_for_no_room_that_is_there(
    driver: aa.MediaDriver,
) -> None:
    """Room that a reader elsewhere has made just now is found, though nothing moves afterwards."""
    async with aa.Aeron.connect(driver) as embedded, attached(driver) as elsewhere:
        publication = await embedded.add_publication(IPC, STREAM_ID)
        subscription = await elsewhere.add_subscription(IPC, STREAM_ID)
        await publication.wait_connected(timeout=5)
        await subscription.wait_connected(timeout=5)
        (image,) = subscription.images
        for _ in range(5):
            for _ in range(2):
                while isinstance(publication.try_offer(bytes(900)), int):
                    pass
                # The driver has had its turns, and is quiet.
                for _ in range(QUIET_TURNS):
                    await asyncio.sleep(0)
            while image.poll(lambda _payload, _header: None, 1_000):
                pass
            await publication.offer(b"there is room", timeout=5)


async def test_who_waits_for_nothing_is_not_rung(driver: aa.MediaDriver, medium: str) -> None:
    """A stream wakes those who read it, and no other client."""
    async with attached(driver) as one, attached(driver) as two, attached(driver) as other:
        idle = await other.add_subscription(medium, STREAM_ID + 1)
        waiting = asyncio.ensure_future(anext(idle))
        publication = await one.add_publication(medium, STREAM_ID)
        subscription = await two.add_subscription(medium, STREAM_ID)
        await publication.wait_connected(timeout=5)
        woken = []
        for _ in range(5):
            await asleep(watcher_of(other))
            before = watcher_of(other).counts.fires
            for _ in range(50):
                await publication.offer(b"not for it", timeout=5)
                await anext(subscription)
            woken.append(watcher_of(other).counts.fires - before)
        # What the driver says at the beginning reaches all clients.
        assert sum(woken) < 10
        assert woken[-1] == 0
        waiting.cancel()


async def test_who_joins_while_the_publisher_may_not_look_is_rung_afterwards(
    driver: aa.MediaDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doorbell, "REFRESH_INTERVAL_NS", 200_000_000)
    async with attached(driver) as publisher, attached(driver) as reader:
        publication = await publisher.add_publication(IPC, STREAM_ID)
        for number in range(3):
            subscription = await reader.add_subscription(IPC, STREAM_ID)
            await publication.wait_connected(timeout=5)
            await subscription.wait_connected(timeout=5)
            waiting = asyncio.ensure_future(anext(subscription))
            await asleep(watcher_of(reader))
            # The only one for a long time.
            await publication.offer(b"%d" % number, timeout=5)
            async with asyncio.timeout(5):
                await waiting


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


@embedded_only(SHARING)
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
        # Neither another type nor another key is a bell, and a client has one.
        for type_id, key in (
            (BELL_TYPE_ID, b"other"),
            (BELL_TYPE_ID + 1, BELL_KEY),
            (BELL_TYPE_ID, BELL_KEY),
        ):
            async with aeron.add_counter(type_id, "no bell", key):
                assert not is_polling(driver)
        await aeron.driver.conductor.catch_up(aeron.client_id)
        assert not is_polling(driver)
        proxy = cast("AttachedDriver", aeron.driver)._proxy()
        adapter = driver.conductor.adapter
        assert adapter is not None
        bell_id = adapter._clients[proxy.client_id].bell_id
        assert bell_id is not None
        proxy.undo(RemoveCounter, bell_id)
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
            assert doorbell.driver_bell(other.counters) == own != forged.id
            assert mode_place(own) % 8 == 4


async def test_a_counter_of_that_type_without_the_key_is_nobodys_bell(
    driver: aa.MediaDriver,
) -> None:
    async with attached(driver) as publisher, attached(driver) as reader:
        other = await reader.add_counter(BELL_TYPE_ID, "mine", b"key")
        other.set(doorbell.ASLEEP)
        publication = await publisher.add_publication(IPC, STREAM_ID)
        subscription = await reader.add_subscription(IPC, STREAM_ID)
        waiting = asyncio.ensure_future(anext(subscription))
        await asleep(watcher_of(reader))
        await publication.offer(b"woken by the bell", timeout=5)
        async with asyncio.timeout(5):
            assert (await waiting).data == b"woken by the bell"
        assert other.get() == doorbell.ASLEEP


async def test_what_a_client_writes_into_the_bell_of_the_driver_lasts_until_the_next_timer(
    driver: aa.MediaDriver,
) -> None:
    own = doorbell.driver_bell(driver.counters)
    assert own is not None
    async with attached(driver) as aeron:
        await until(lambda: not is_polling(driver))
        with aeron.counters.word(own) as word:
            mode = word[0] >> 32
            for forged in (-1, 7, 1 << 32, 2**63 - 1, -(2**63)):
                word[0] = forged
                # The next timer is a second away: who looks at every turn uses up a core.
                async with asyncio.timeout(5):
                    while word[0] >> 32 != mode or word[0] & 0xFFFF_FFFF not in BELL:
                        await asyncio.sleep(0.001)
        subscription = await aeron.add_subscription(IPC, STREAM_ID)
        publication = await aeron.add_publication(IPC, STREAM_ID)
        await publication.offer(b"as before", timeout=5)
        assert (await anext(subscription)).data == b"as before"
