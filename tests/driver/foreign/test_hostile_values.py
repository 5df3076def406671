"""What a hostile client writes to logs and counters, and that it changes nothing."""

from __future__ import annotations

import asyncio

import pytest

import aeron_async as aa
from aeron_async.concurrent.ring_buffer import CORRELATION_ID_OFFSET
from aeron_async.driver.core.shared_logs import CheckedPosition
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.logbuffer.metadata import ACTIVE_TERM_COUNT_INDEX
from aeron_async.logbuffer.position import pack_tail
from aeron_async.protocol.control_protocol import (
    AddPublication,
    RemovePublication,
    UnavailableImage,
)
from tests.driver.fakes import Counts
from tests.driver.foreign.client import IPC, STREAM_ID, UDP, Directory, in_directory
from tests.logbuffer.logs import TERM_LENGTH

FORGED = [-1, -(2**63), 2**63 - 1, 1, 33, 2**40, 2**40 + 1]
CHANNELS = pytest.mark.parametrize("channel", [IPC, UDP])


# Positions.


@pytest.mark.parametrize("value", [*FORGED, 992, 1_056])
def test_a_position_that_no_reader_writes_counts_as_no_move(value: int) -> None:
    counter = Counts().new(992)
    furthest = [1_024]
    forged: list[int] = []
    position = CheckedPosition(counter, lambda: furthest[0], forged.append)
    counter.set(1_024)
    assert position.get() == 1_024
    for _ in range(3):
        counter.set(value)
        assert position.read() == (1_024, value)
    assert forged == [value]
    furthest[0] = 2_048
    counter.set(2_048)
    assert position.get() == position.read()[1] == 2_048
    counter.set(-5)
    # Only the first one is told of.
    assert position.get() == 2_048
    assert forged == [value]
    # The driver itself may move it anywhere.
    position.set(64)
    assert (position.get(), counter.get()) == (64, 64)
    position.close()
    assert (position.is_closed, counter.is_closed) == (True, True)


@CHANNELS
@pytest.mark.parametrize("value", FORGED)
@in_directory
async def test_a_forged_position_is_recorded_once_and_changes_nothing(
    directory: Directory, channel: str, value: int
) -> None:
    client, other = directory.client(), directory.client()
    await other.add_subscription(channel)
    publisher = await client.add_publication(channel)
    await directory.pass_time(1, client, other)
    (reader,) = await other.images()
    limit = publisher.limit
    for _ in range(3):
        reader.position = value
        publisher.offer(b"x")
        await directory.pass_time(2, client, other)
    # The window of a network stream follows its receivers; theirs follow the readers.
    assert publisher.limit == limit or channel == UDP
    assert len(client.errors()) == 1
    assert f"position {value}" in client.errors()[0]
    assert directory.driver.counters.value(SystemCounterId.ERRORS) == 1
    # An honest reader goes on where it was.
    assert await reader.take(3) == [b"x"] * 3
    await publisher.offer_all([b"y"] * 3)
    assert await reader.take(3) == [b"y"] * 3


@in_directory
async def test_a_forged_position_does_not_wake_the_driver_again_and_again(
    directory: Directory,
) -> None:
    client = directory.client()
    publisher = await client.add_publication()
    _, (reader,) = await client.add_subscription()
    await publisher.offer_all([b"x"])
    reader.position = 2**62
    # Three looks: the word has fired, is armed with what is there, and stays silent.
    for _ in range(3):
        directory.watcher.look()
    fired = []
    (word,) = [each for each in directory.watcher.words if each.callback.__qualname__ == WATCH]
    word.callback = lambda: fired.append(1)
    for _ in range(10):
        directory.watcher.look()
    assert fired == []
    assert word.is_armed


WATCH = "ReaderWatch.act"


# Tails.


TAILS = [0, -1, 2**63 - 1, -(2**63), pack_tail(7, 64), 2**40]


@CHANNELS
@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("term_count", [None, -1, -(2**31), 2**31 - 1, 5])
@in_directory
async def test_forged_tails_move_no_producer(
    directory: Directory, channel: str, tail: int, term_count: int | None
) -> None:
    client = directory.client()
    await client.add_subscription(channel)
    publisher = await client.add_publication(channel)
    await directory.pass_time(1, client)
    await client.images()
    await publisher.offer_all([b"x", b"y"])
    conductor = directory.driver.conductor
    (core,) = conductor._table
    assert core.producer_position == core.rebuild_position == 128
    metadata = publisher.log.metadata
    before = [metadata.longs[0], metadata.longs[1], metadata.longs[2], metadata.active_term_count]
    for index in range(3):
        metadata.longs[index] = tail
    if term_count is not None:
        metadata.words[ACTIVE_TERM_COUNT_INDEX] = term_count
    await directory.pass_time(3, client)
    assert core.producer_position == 128
    metadata.longs[0], metadata.longs[1], metadata.longs[2] = before[:3]
    metadata.words[ACTIVE_TERM_COUNT_INDEX] = before[3]
    await publisher.offer_all([b"z"])
    assert core.producer_position == 192


@in_directory
async def test_tails_of_a_stream_that_goes_round_are_right(directory: Directory) -> None:
    client = directory.client()
    publisher = await client.add_publication()
    _, (reader,) = await client.add_subscription()
    (core,) = directory.driver.conductor.ipc_publications
    for number in range(1_000):
        await publisher.offer_all([bytes(990)])
        assert core.producer_position == publisher.appender.position
        assert await reader.take(1) == [bytes(990)], number
    assert core.producer_position > 12 * TERM_LENGTH
    # The tail of an old term, and one far ahead of the limit.
    metadata, initial = publisher.log.metadata, publisher.log.initial_term_id
    before = core.producer_position
    metadata.words[ACTIVE_TERM_COUNT_INDEX] = 999
    metadata.longs[0] = pack_tail(initial + 999, 64)
    assert core.producer_position == before


# What the driver keeps a copy of.


@in_directory
async def test_the_metadata_of_a_log_is_not_read_back(directory: Directory) -> None:
    client = directory.client()
    tagged = f"{UDP}|tags=3,4"
    async with aa.Aeron.connect(directory.driver) as aeron:
        subscription = await aeron.add_subscription(UDP, STREAM_ID)
        publisher = await client.add_publication(tagged)
        await directory.pass_time(1, client)
        metadata = publisher.log.metadata
        before = metadata.block[256:512].tobytes()
        metadata.block[256:497] = bytes([0xEE]) * 241
        await client.add_publication("aeron:udp?endpoint=127.0.0.1:20125|session-id=tag:4")
        metadata.block[256:512] = before
        metadata.is_publication_revoked = True
        metadata.end_of_stream_position = 0
        await publisher.offer_all([b"a"])
        await directory.pass_time(5, client)
        assert (await anext(subscription)).data == b"a"
        (image,) = subscription.images
        assert not image.is_closed
        (core,) = directory.driver.conductor.publication_images
        assert not core.is_end_of_stream


@in_directory
async def test_a_reader_does_not_end_the_stream_of_another(directory: Directory) -> None:
    client = directory.client()
    await client.add_subscription(UDP)
    async with aa.Aeron.connect(directory.driver) as aeron:
        subscription = await aeron.add_subscription(UDP, STREAM_ID)
        publication = await aeron.add_publication(UDP, STREAM_ID)
        await directory.pass_time(1, client)
        (reader,) = await client.images()
        client.received()
        reader.log.metadata.end_of_stream_position = 0
        reader.log.metadata.is_publication_revoked = True
        await publication.offer(b"a", timeout=1)
        await directory.pass_time(5, client)
        assert (await anext(subscription)).data == b"a"
        assert not any(isinstance(each, UnavailableImage) for each in client.received())


# Counters.


@in_directory
async def test_counters_at_their_end_do_not_end_the_driver(directory: Directory) -> None:
    client = directory.client()
    for counter_id in range(SystemCounterId.ERRORS, 46):
        client.set_value(counter_id, 2**63 - 1)
    assert client.ring.write(99, b"")
    publisher = await client.add_publication(UDP)
    _, _ = await client.add_subscription(UDP)
    await directory.pass_time(1, client)
    (reader,) = await client.images()
    for counter_id in range(46):
        client.set_value(counter_id, 2**63 - 1)
    await publisher.offer_all([b"x"])
    await directory.pass_time(1, client)
    assert await reader.take(1) == [b"x"]
    await client.ask(RemovePublication, registration_id=publisher.id)
    await directory.pass_time(3, client)
    assert await client.refused(AddPublication, channel="?", stream_id=1)
    assert not directory.driver.is_closed


@pytest.mark.parametrize("forged", [0, 1, -5, 2**62, 2**63 - 1, -(2**63)])
@in_directory
async def test_a_forged_counter_of_ids_gives_no_id_twice(directory: Directory, forged: int) -> None:
    client = directory.client()
    at = client.ring.capacity + CORRELATION_ID_OFFSET
    async with aa.Aeron.connect(directory.driver) as aeron:
        publications = [await aeron.add_publication(IPC, 1)]
        # The next ids are those of another client already.
        for _ in range(5):
            await client.add_publication(IPC, 2)
        for _ in range(10):
            client.ring_buffer.store_release_64(at, forged)
            publications.append(await aeron.add_exclusive_publication(IPC, 1))
            client.ring_buffer.store_release_64(at, forged)
            async with aa.Aeron.connect(directory.driver) as second:
                await second.add_subscription(IPC, 3)
        cores = directory.driver.conductor.ipc_publications
        ids = {each.registration_id for each in cores}
        assert len(ids) == len(cores) == len(publications) + 1
        subscription = await aeron.add_subscription(IPC, 1)
        for publication in publications:
            await publication.offer(b"x", timeout=1)
        for _ in publications:
            assert (await asyncio.wait_for(anext(subscription), 1)).data == b"x"
        assert all(0 < each < 2**40 for each in ids)


# Frames on their way to the network.

BEGIN = 0
FRAMES = [
    ("length", BEGIN, 31),
    ("length", BEGIN, 1),
    ("length of more than a datagram", BEGIN, 1_440),
    ("length beyond the term", BEGIN, 2**30),
    ("version and type", BEGIN + 1, 0x0001_C001),
    ("type", BEGIN + 1, 0x0005_C000),
    ("offset", BEGIN + 2, 64),
    ("session", BEGIN + 3, 77),
    ("stream", BEGIN + 4, 77),
    ("term", BEGIN + 5, 77),
]


@pytest.mark.parametrize(("what", "word", "value"), FRAMES, ids=[each[0] for each in FRAMES])
@in_directory
async def test_a_frame_of_another_stream_is_not_sent(
    directory: Directory, what: str, word: int, value: int
) -> None:
    client = directory.client()
    async with aa.Aeron.connect(directory.driver) as aeron:
        subscription = await aeron.add_subscription(UDP, STREAM_ID)
        publisher = await client.add_publication(UDP, is_exclusive=True)
        honest = await client.add_publication(UDP, is_exclusive=True)
        await directory.pass_time(1, client)
        core, _ = directory.driver.conductor.network_publications
        assert publisher.offer(b"x") > 0
        publisher.log.term_words[0][word] = value
        await directory.pass_time(1, client)
        assert core.sender_position == 0, what
        assert core not in directory.driver.conductor.network_publications
        assert any("frame" in each for each in client.errors())
        await honest.offer_all([b"good"])
        await directory.settle()
        assert (await anext(subscription)).data == b"good"
