"""Streams between clients of both kinds on one driver, over IPC and UDP, in both directions."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

import aeron_async as aa
from aeron_async.driver.core.shared_logs import CheckedStreamSender
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.driver.foreign_streams import PublicationWatch, reading_step
from aeron_async.errors import ErrorCode
from aeron_async.logbuffer.appender import AppendResult
from aeron_async.protocol.control_protocol import (
    AddExclusivePublication,
    AddPublication,
    ClientClose,
    ExclusivePublicationBuffersReady,
    ImageBuffersReady,
    PublicationBuffersReady,
    PublicationErrorResponse,
    RemovePublication,
    RemoveSubscription,
    UnavailableImage,
)
from tests.driver.foreign.client import (
    IPC,
    STREAM_ID,
    UDP,
    Directory,
    Reader,
    committed_between_looks,
    in_directory,
)
from tests.logbuffer.logs import make_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.driver.foreign.client import Publisher

CHANNELS = pytest.mark.parametrize("channel", [IPC, UDP])
KINDS = pytest.mark.parametrize("is_exclusive", [False, True])
MESSAGES = [b"%d" % number * (number % 300) for number in range(3_000)]
"""More than three terms of 64 KiB."""


@CHANNELS
@KINDS
@in_directory
async def test_between_two_foreign_clients(
    directory: Directory, channel: str, *, is_exclusive: bool
) -> None:
    client, other = directory.client(), directory.client()
    await other.add_subscription(channel)
    publisher = await client.add_publication(channel, is_exclusive=is_exclusive)
    await directory.pass_time(1, client, other)
    (reader,) = await other.images()
    taken: list[bytes] = []
    for start in range(0, len(MESSAGES), 20):
        await publisher.offer_all(MESSAGES[start : start + 20])
        taken += await reader.take(20)
    assert taken == MESSAGES


@pytest.mark.parametrize("channel", [IPC, f"aeron-spy:{UDP}"])
@KINDS
@in_directory
async def test_a_publication_is_ready_before_its_images_are(
    directory: Directory, channel: str, *, is_exclusive: bool
) -> None:
    """In one process, too: its publisher hears first of what it has asked for."""
    client = directory.client()
    for _ in range(2):
        await client.add_subscription(channel)
    adding = AddExclusivePublication if is_exclusive else AddPublication
    sent_to = channel.removeprefix("aeron-spy:")
    answers = await client.ask(adding, stream_id=STREAM_ID, channel=sent_to)
    kinds = [type(each) for each in answers]
    ready = ExclusivePublicationBuffersReady if is_exclusive else PublicationBuffersReady
    assert [each for each in kinds if each in {ready, ImageBuffersReady}] == [
        ready,
        ImageBuffersReady,
        ImageBuffersReady,
    ]


@CHANNELS
@KINDS
@in_directory
async def test_from_a_foreign_client_to_an_embedded_one(
    directory: Directory, channel: str, *, is_exclusive: bool
) -> None:
    client = directory.client()
    async with aa.Aeron.connect(directory.driver) as aeron:
        subscription = await aeron.add_subscription(channel, STREAM_ID)
        publisher = await client.add_publication(channel, is_exclusive=is_exclusive)
        await directory.pass_time(1, client)

        async def read_all() -> list[bytes]:
            return [(await anext(subscription)).data for _ in MESSAGES]

        reading = asyncio.create_task(read_all())
        await publisher.offer_all(MESSAGES)
        await directory.settle()
        assert await asyncio.wait_for(reading, 1) == MESSAGES


@CHANNELS
@in_directory
async def test_a_lone_message_wakes_an_embedded_reader(directory: Directory, channel: str) -> None:
    client = directory.client()
    async with aa.Aeron.connect(directory.driver) as aeron:
        subscription = await aeron.add_subscription(channel, STREAM_ID)
        publisher = await client.add_publication(channel)
        await directory.pass_time(1, client)
        for number in range(10):
            reading = asyncio.ensure_future(anext(subscription))
            await directory.settle()
            assert not reading.done()
            assert publisher.offer(b"%d" % number) > 0
            await directory.settle()
            assert (await asyncio.wait_for(reading, 0.5)).data == b"%d" % number


def remove_hold(publisher: Publisher) -> None:
    publisher.client.send(RemovePublication, registration_id=publisher.id)


def close_client(publisher: Publisher) -> None:
    publisher.client.send(ClientClose)


@CHANNELS
@in_directory
async def test_a_claim_of_a_dead_publisher_becomes_padding(
    directory: Directory, channel: str
) -> None:
    dying, living, reading = (directory.client() for _ in range(3))
    clients = (dying, living, reading)
    _, images = await reading.add_subscription(channel)
    dead, alive = await dying.add_publication(channel), await living.add_publication(channel)
    await directory.pass_time(1, *clients)
    (reader,) = images + await reading.images()
    await alive.offer_all([b"before"])
    assert await reader.take(1) == [b"before"]
    # Nothing is due any more.
    await directory.pass_time(20, *clients)
    # It adds to the tail, and dies before it writes anything.
    assert dead.appender._reserve(64, 32, dead.limit) > 0
    assert alive.offer(b"behind") > 0
    timeout_s = directory.driver.context.publication_unblock_timeout_ns / 1e9
    await directory.pass_time(timeout_s - 1, living, reading)
    assert reader.read() == []
    # Aeron's conductor, too, looks once a second.
    await directory.pass_time(2.1, living, reading)
    assert await reader.take(1) == [b"behind"]
    assert directory.driver.counters.value(SystemCounterId.UNBLOCKED_PUBLICATIONS) == 1


@CHANNELS
@pytest.mark.parametrize("leave", [remove_hold, close_client])
@pytest.mark.parametrize("is_last_unseen", [False, True])
@in_directory
async def test_a_shared_log_is_watched_as_long_as_any_client_holds_it(
    directory: Directory,
    channel: str,
    leave: Callable[[Publisher], None],
    *,
    is_last_unseen: bool,
) -> None:
    clients = [directory.client() for _ in range(3)]
    async with aa.Aeron.connect(directory.driver) as aeron:
        subscription = await aeron.add_subscription(channel, STREAM_ID)
        holds = [await each.add_publication(channel) for each in clients]
        assert len({each.ready.registration_id for each in holds}) == 1
        await directory.pass_time(1, *clients)
        for leaver, other in pairwise(holds):
            reading = asyncio.ensure_future(anext(subscription))
            await directory.settle()
            leave(leaver)
            if is_last_unseen:
                # The driver takes the command before it sees this frame.
                conductor = directory.driver.conductor
                assert other.offer(b"x") > 0
                conductor.wake()
                for _ in range(20):
                    await asyncio.sleep(0)
            else:
                await directory.settle()
                assert other.offer(b"x") > 0
            # No time passes, so no timer can find what is not watched.
            await directory.settle()
            assert reading.done()
            assert (await reading).data == b"x"


@CHANNELS
@in_directory
async def test_from_an_embedded_client_to_a_foreign_one(directory: Directory, channel: str) -> None:
    client = directory.client()
    await client.add_subscription(channel)
    async with aa.Aeron.connect(directory.driver) as aeron:
        publication = await aeron.add_publication(channel, STREAM_ID)
        await directory.pass_time(1, client)
        (reader,) = await client.images()
        offering = asyncio.create_task(publication.offer_many(MESSAGES))
        assert await reader.take(len(MESSAGES)) == MESSAGES
        await asyncio.wait_for(offering, 1)


@in_directory
async def test_publishers_of_both_kinds_share_a_publication(directory: Directory) -> None:
    client = directory.client()
    async with aa.Aeron.connect(directory.driver) as aeron:
        subscription = await aeron.add_subscription(IPC, STREAM_ID)
        publication = await aeron.add_publication(IPC, STREAM_ID)
        publisher = await client.add_publication()
        assert publisher.ready.session_id == publication.session_id
        expected = []
        for number in range(1_500):
            message = b"%d" % number * 40
            if number % 2:
                await publisher.offer_all([message])
            else:
                await publication.offer(message, timeout=1)
            expected.append(message)
            assert (await asyncio.wait_for(anext(subscription), 1)).data == message
        assert publisher.appender.position > 3 * 64 * 1024
        assert publisher.appender.position == publication.position


@in_directory
async def test_readers_of_both_kinds_hold_one_stream_up(directory: Directory) -> None:
    client, other = directory.client(), directory.client()
    async with aa.Aeron.connect(directory.driver) as aeron:
        subscription = await aeron.add_subscription(IPC, STREAM_ID)
        await other.add_subscription()
        publisher = await client.add_publication(is_exclusive=True)
        (reader,) = await other.images()
        sent = 0
        while publisher.offer(bytes(992)) > 0:
            sent += 1
        # One has read everything, the other nothing.
        for _ in range(sent):
            await asyncio.wait_for(anext(subscription), 1)
        subscription._begin_poll()
        await directory.pass_time(1, client, other)
        assert publisher.offer(bytes(992)) == -2
        assert len(await reader.take(sent)) == sent
        assert publisher.offer(bytes(992)) > 0


@in_directory
async def test_a_reader_that_leaves_lets_the_stream_go_on(directory: Directory) -> None:
    client, other = directory.client(), directory.client()
    publisher = await client.add_publication(is_exclusive=True)
    _, (reader,) = await client.add_subscription()
    ready, (_idle,) = await other.add_subscription()
    sent = 0
    while publisher.offer(bytes(992)) > 0:
        sent += 1
    assert len(await reader.take(sent)) == sent
    assert publisher.offer(bytes(992)) == -2
    await other.ask(RemoveSubscription, registration_id=ready.correlation_id)
    assert publisher.offer(bytes(992)) > 0


@in_directory
async def test_a_spy_of_another_process_reads_what_an_embedded_client_sends(
    directory: Directory,
) -> None:
    client = directory.client()
    spied = f"aeron-spy:{UDP.split('|')[0]}"
    ready, _ = await client.add_subscription(spied)
    assert ready.channel_status_id == -1
    async with aa.Aeron.connect(directory.driver) as aeron:
        await aeron.add_subscription(UDP, STREAM_ID)
        publication = await aeron.add_publication(UDP, STREAM_ID)
        await publication.wait_connected(timeout=5)
        (reader,) = await client.images()
        await publication.offer(b"seen", timeout=1)
        assert await reader.take(1) == [b"seen"]


@in_directory
async def test_an_untethered_reader_loses_its_image_and_gets_it_again(
    directory: Directory,
) -> None:
    client, other = directory.client(), directory.client()
    publisher = await client.add_publication(is_exclusive=True)
    _, (reader,) = await client.add_subscription()
    _, (idle,) = await other.add_subscription(f"{IPC}|tether=false")
    other.received()
    while publisher.offer(bytes(992)) > 0:
        pass
    reader.read()
    gone: list[UnavailableImage] = []
    back: list[ImageBuffersReady] = []
    for _ in range(60):
        await directory.pass_time(1, client, other)
        while publisher.offer(bytes(992)) > 0:
            pass
        reader.read()
        messages = other.received()
        gone += [each for each in messages if isinstance(each, UnavailableImage)]
        back += [each for each in messages if isinstance(each, ImageBuffersReady)]
        if back:
            break
    assert [each.image_id for each in gone] == [idle.ready.image_id]
    assert [each.image_id for each in back] == [idle.ready.image_id]
    assert Reader(other, back[0]).position > 0


@in_directory
async def test_a_publication_that_fails_has_no_room_and_says_why_once(directory: Directory) -> None:
    first, second, other = (directory.client() for _ in range(3))
    await other.add_subscription(UDP)
    publishers = [await each.add_publication(UDP) for each in (first, second)]
    await directory.pass_time(1, first, second, other)
    publisher = publishers[0]
    assert publisher.log.metadata.is_connected
    assert publisher.offer(b"honest") > 0
    await directory.settle()
    other.received()
    # Of another session, so that the driver cannot send it.
    assert publisher.offer(b"forged") > 0
    publisher.log.term_words[0][(64 >> 2) + 3] ^= 1
    await directory.settle()
    errors = [each for each in other.received() if isinstance(each, PublicationErrorResponse)]
    (error,) = errors
    assert (error.code, error.registration_id) == (
        ErrorCode.GENERIC,
        publisher.ready.registration_id,
    )
    assert b"another process has written it" in error.message
    assert not publisher.log.metadata.is_connected
    for each in publishers:
        assert each.offer(b"nobody would read it") == AppendResult.NOT_CONNECTED


@in_directory
async def test_a_frame_that_is_committed_after_the_look_is_seen(directory: Directory) -> None:
    """The driver looks, the publisher commits, and the driver begins to wait."""
    client, other = directory.client(), directory.client()
    await other.add_subscription(UDP)
    publisher = await client.add_publication(UDP)
    await directory.pass_time(1, client, other)
    (reader,) = await other.images()
    is_committed = PublicationWatch._is_committed
    late = [b"late"]

    def commit_after(watch: PublicationWatch, publication: Any, length: int) -> bool:
        found = is_committed(watch, publication, length)
        if not found and late:
            assert publisher.offer(late.pop()) > 0
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PublicationWatch, "_is_committed", commit_after)
        publisher.offer(b"first")
        assert await reader.take(2) == [b"first", b"late"]


@in_directory
async def test_a_frame_that_is_committed_between_two_looks_is_sent_at_once(
    directory: Directory,
) -> None:
    """The word says that a frame is claimed, and the frame is committed before it is watched."""
    client, other = directory.client(), directory.client()
    await other.add_subscription(UDP)
    publisher = await client.add_publication(UDP)
    await directory.pass_time(1.5, client, other)
    (reader,) = await other.images()
    with committed_between_looks():
        assert publisher.offer(b"alone") > 0
        # No time passes, so nothing but the watched word can say it.
        assert await reader.take(1) == [b"alone"]


@pytest.mark.parametrize(
    ("publication_window", "receiver_window", "step"),
    [
        (0, 0, 1_024),
        (65_536, 0, 1_024),
        (2_048, 0, 256),
        (0, 4_096, 512),
        (8, 0, 32),
        (-1, 0, 1_024),
    ],
)
def test_a_reader_is_looked_at_again_within_its_window(
    publication_window: int, receiver_window: int, step: int
) -> None:
    log = make_log()
    log.metadata.publication_window_length = publication_window
    log.metadata.receiver_window_length = receiver_window
    assert reading_step(log) == step


@pytest.mark.parametrize("way", ["send_data_fast", "send_data"])
@in_directory
async def test_a_frame_that_is_committed_after_the_scan_is_sent_at_once(
    directory: Directory, way: str
) -> None:
    """The sender has looked at the log for the last time, and the driver has not yet."""
    client, other = directory.client(), directory.client()
    await other.add_subscription(UDP)
    publisher = await client.add_publication(UDP)
    # Once a second the sender polls, and may not act without a poll just then.
    await directory.pass_time(1.5, client, other)
    (reader,) = await other.images()
    send = getattr(CheckedStreamSender, way)
    late = [b"late"]

    def commit_after(sender: CheckedStreamSender, now_ns: int) -> Any:
        before = sender.position
        found = send(sender, now_ns)
        if late and sender.position > before:
            assert publisher.offer(late.pop()) > 0
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CheckedStreamSender, "send_data_fast", lambda *_: False)
        patch.setattr(CheckedStreamSender, way, commit_after)
        assert publisher.offer(b"first") > 0
        # No time passes, so nothing but the watched word can say it.
        assert await reader.take(2) == [b"first", b"late"]
