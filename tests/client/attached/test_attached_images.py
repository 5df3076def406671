"""The images of a client that is attached to a driver, and what that driver says of them."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import ref

import attrs
import pytest

import aeron_async as aa
from aeron_async.client import attached_driver
from aeron_async.client.attachment import watch_liveness
from aeron_async.client.image import Image
from aeron_async.logbuffer.log_buffers import zero
from aeron_async.protocol.control_protocol import UnavailableImage
from aeron_async.protocol.header import FrameType
from tests.client.attached.attaching import (
    attached,
    attachment_of,
    connected,
    image_ready,
    log_file,
    position_counter,
    say,
)
from tests.client.local import IPC, STREAM_ID, until
from tests.logs import captured_logs
from tests.twins import needs_compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

pytestmark = needs_compiled


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (b"/etc/hostname", "outside"),
        (b"/a\0b", "cannot be used"),
        (b"DIR/cnc.dat", "cannot be used"),
        (b"DIR/images", "no plain file"),
        (b"DIR/images/empty.logbuffer", "cannot be used"),
    ],
)
async def test_a_driver_that_names_no_log_of_its_own_ends_its_client(
    driver: aa.MediaDriver, aeron: aa.Aeron, tmp_path: Path, name: bytes, reason: str
) -> None:
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    directory = str(driver.context.aeron_directory)
    (tmp_path / "aeron" / "images" / "empty.logbuffer").touch()
    file = name.replace(b"DIR", directory.encode())
    position = position_counter(driver, subscription.registration_id)
    say(driver, image_ready(subscription, file, subscriber_position_id=position.id))
    await until(lambda: aeron.is_closed)
    with pytest.raises(aa.ClosedError, match=reason):
        await anext(subscription)


async def test_a_directory_may_have_a_name_that_is_no_text(
    context: aa.DriverContext, tmp_path: Path
) -> None:
    directory = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    named = attrs.evolve(context, aeron_directory=directory)
    async with aa.MediaDriver.launch(named), aa.Aeron.connect(directory=directory) as aeron:
        subscription, publication = await connected(aeron)
        await publication.offer(b"there")
        assert (await anext(subscription)).data == b"there"


async def test_an_image_whose_log_is_gone_already_is_left_out(
    driver: aa.MediaDriver, aeron: aa.Aeron
) -> None:
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    file = f"{driver.context.aeron_directory}/publications/99.logbuffer".encode()
    position = position_counter(driver, subscription.registration_id)
    say(driver, image_ready(subscription, file, subscriber_position_id=position.id))
    say(
        driver,
        UnavailableImage(
            image_id=1,
            subscription_registration_id=subscription.registration_id,
            stream_id=STREAM_ID,
            channel=b"",
        ),
    )
    publication = await aeron.add_publication(IPC, STREAM_ID)
    await publication.offer(b"still here", timeout=5)
    assert (await anext(subscription)).data == b"still here"


@pytest.mark.parametrize("end", ["mapped", "unavailable", "closed", "forged"])
async def test_an_image_whose_log_cannot_be_mapped_now_is_opened_later(
    driver: aa.MediaDriver, aeron: aa.Aeron, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    other = await aeron.add_publication(IPC, STREAM_ID + 1)
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    # It looks again when this test says so.
    monkeypatch.setattr(attached_driver, "KEEPALIVE_INTERVAL_S", 3_600)
    timer = attached(aeron)._timer
    assert timer is not None
    timer.cancel()
    errors = 0

    def fail(*_: object) -> NoReturn:
        nonlocal errors
        errors += 1
        raise OSError(errno.EMFILE, "Too many open files")

    with captured_logs() as lines, monkeypatch.context() as full:
        full.setattr(attachment_of(aeron).logs, "_open", fail)
        async with aa.Aeron.connect(driver) as embedded:
            publication = await embedded.add_publication(IPC, STREAM_ID)
            await until(lambda: errors == 1)
            attached(aeron)._keep_alive()
            assert errors == 2
            assert [line["event"] for line in lines].count("image_not_mapped") == 1
            assert not aeron.is_closed
            assert not other.is_closed
            if end == "mapped":
                full.undo()
                attached(aeron)._keep_alive()
                await publication.offer(b"there", timeout=5)
                assert (await anext(subscription)).data == b"there"
            elif end == "closed":
                await subscription.aclose()
            elif end == "forged":
                full.undo()
                monkeypatch.setattr(type(attachment_of(aeron).logs), "_open", forge)
                attached(aeron)._keep_alive()
                assert aeron.is_closed
        if end == "unavailable":
            await aeron.add_publication(IPC, STREAM_ID + 1)
        if end != "forged":
            attached(aeron)._keep_alive()
            assert errors == 2


def forge(*_: object) -> NoReturn:
    message = "no plain file"
    raise aa.ProtocolError(message)


@pytest.mark.parametrize("is_tethered", [False, True])
async def test_a_stream_may_continue_without_an_image_that_is_not_tethered(
    driver: aa.MediaDriver, aeron: aa.Aeron, *, is_tethered: bool
) -> None:
    """A driver elsewhere does not say when, so what was not copied by then counts as lost."""
    channel = IPC if is_tethered else f"{IPC}?tether=false"
    subscription = await aeron.add_subscription(channel, STREAM_ID)
    publication = await aeron.add_publication(IPC, STREAM_ID)
    await publication.offer(b"any", timeout=5)
    await subscription.wait_connected(timeout=5)
    (image,) = subscription.images
    assert not image.is_let_go
    say(
        driver,
        UnavailableImage(
            image_id=image.image_id,
            subscription_registration_id=subscription.registration_id,
            stream_id=STREAM_ID,
            channel=b"",
        ),
    )
    await until(lambda: image.is_closed)
    assert image.is_let_go is not is_tethered


async def test_a_task_that_waits_no_longer_leaves_the_others_watching(aeron: aa.Aeron) -> None:
    """An archive has a task for each image of one subscription."""
    subscription, publication = await connected(aeron)
    one, other = (asyncio.ensure_future(subscription._wait_for_progress()) for _ in range(2))
    await asyncio.sleep(0)
    one.cancel()
    with pytest.raises(asyncio.CancelledError):
        await one
    await publication.offer(b"for the other", timeout=5)
    async with asyncio.timeout(5):
        await other


async def test_what_one_task_has_seen_wakes_those_that_wait_for_it(aeron: aa.Aeron) -> None:
    """Looking at the log moves what is watched, and the store before that is not seen again."""
    subscription, publication = await connected(aeron)
    waiting = asyncio.ensure_future(subscription._wait_for_progress())
    await asyncio.sleep(0)
    arm, disarm = subscription._ready.arm, subscription._ready.disarm
    assert arm is not None
    assert disarm is not None
    # No turn of the loop in between, in which the watcher could say so.
    publication.try_offer(b"for the other")
    assert arm()
    disarm()
    assert not arm()
    disarm()
    async with asyncio.timeout(5):
        await waiting


def look_by_why(_: aa.Aeron, subscription: aa.Subscription) -> None:
    aa.why(subscription)


def look_as_a_reader(aeron: aa.Aeron, subscription: aa.Subscription) -> None:
    (image,) = attached(aeron).subscriptions[subscription.registration_id].images.values()
    assert image.readable_position(0) > 0


@pytest.mark.parametrize("look", [look_by_why, look_as_a_reader])
async def test_a_look_at_the_log_takes_no_wake_up_from_the_reader(
    aeron: aa.Aeron, look: Callable[[aa.Aeron, aa.Subscription], None]
) -> None:
    subscription, publication = await connected(aeron)
    waiting = asyncio.ensure_future(anext(subscription))
    await asyncio.sleep(0)
    # No turn of the loop in between: the watcher fires after the look.
    assert isinstance(publication.try_offer(b"a frame"), int)
    claim = publication.try_claim(8)
    assert isinstance(claim, aa.BufferClaim)
    look(aeron, subscription)
    assert (await asyncio.wait_for(waiting, 5)).data == b"a frame"
    claim.abort()


async def test_padding_that_is_cleaned_as_soon_as_it_is_read_is_not_watched(
    aeron: aa.Aeron, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscription, publication = await connected(aeron)
    term_length = publication.term_length
    for _ in range(term_length // 1_024 - 1):
        await publication.offer(bytes(992), timeout=5)
        await anext(subscription)
    (await publication.claim(992, timeout=5)).abort()
    take = Image._take

    def take_and_clean(image: Image, position: int) -> None:
        # What the driver does, but at once.
        take(image, position)
        if position == term_length:
            zero(image._log.terms[0], 0, term_length)

    monkeypatch.setattr(Image, "_take", take_and_clean)
    waiting = asyncio.ensure_future(anext(subscription))
    await until(lambda: subscription.images[0].position == term_length)
    await publication.offer(b"next", timeout=5)
    assert (await asyncio.wait_for(waiting, 5)).data == b"next"


@pytest.mark.parametrize("is_polled", [False, True])
async def test_padding_may_be_longer_than_what_is_read_at_once(
    aeron: aa.Aeron, *, is_polled: bool
) -> None:
    channel = f"{IPC}?term-length=4m"
    subscription = await aeron.add_subscription(channel, STREAM_ID)
    publication = await aeron.add_exclusive_publication(channel, STREAM_ID)
    await subscription.wait_connected(timeout=5)
    await publication.append_padding(500_000, timeout=5)
    await publication.offer(b"behind it", timeout=5)
    found: list[bytes] = []
    async with asyncio.timeout(5):
        while is_polled and not found:
            subscription.poll(lambda data, _: found.append(bytes(data)))
            await asyncio.sleep(0)
        if not is_polled:
            found.append((await anext(subscription)).data)
    assert found == [b"behind it"]


@pytest.mark.parametrize("length", [64, 65_536, 65_568, 2**31 - 1])
async def test_padding_of_any_length_leaves_the_loop_to_others(
    aeron: aa.Aeron, length: int
) -> None:
    subscription, publication = await connected(aeron)
    words = publication._ready.log.term_words[0]
    words[1] = FrameType.PAD << 16
    words[0] = length
    waiting = asyncio.ensure_future(anext(subscription))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()


@pytest.mark.parametrize("counter_id", [-1, -2, 1 << 20])
async def test_a_position_that_is_no_counter_ends_the_client(
    driver: aa.MediaDriver, aeron: aa.Aeron, counter_id: int
) -> None:
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    publication = await aeron.add_publication(IPC, STREAM_ID + 1)
    file = log_file(publication)
    say(driver, image_ready(subscription, file, subscriber_position_id=counter_id))
    await until(lambda: aeron.is_closed)
    with pytest.raises(aa.ClosedError, match="names counter"):
        await anext(subscription)


@pytest.mark.parametrize("kind", ["of another type", "of another client", "free"])
async def test_an_image_whose_position_was_given_away_is_left_out(
    driver: aa.MediaDriver, aeron: aa.Aeron, kind: str
) -> None:
    """It was closed, and its counter given to another client, before this one has looked."""
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    publication = await aeron.add_publication(IPC, STREAM_ID + 1)
    if kind == "of another type":
        counter = driver.counters.allocate(1_000, b"", "orders")
    else:
        other = kind == "of another client"
        counter = position_counter(driver, subscription.registration_id + other)
    if kind == "free":
        counter.close()
    file = log_file(publication)
    say(driver, image_ready(subscription, file, subscriber_position_id=counter.id))
    # What the driver says is heard in order.
    await aeron.add_publication(IPC, STREAM_ID + 1)
    assert subscription.images == ()
    assert attached(aeron).subscriptions[subscription.registration_id].images == {}


async def take_one(subscription: aa.Subscription) -> None:
    await anext(subscription)


async def take_some(subscription: aa.Subscription) -> None:
    async for _ in subscription.batches(1):
        pass


async def poll(subscription: aa.Subscription) -> None:
    while True:
        subscription.poll(lambda *_: None)


@pytest.mark.parametrize("read", [take_one, take_some, poll])
async def test_a_reader_that_was_away_for_too_long_stores_no_position(
    aeron: aa.Aeron,
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[[aa.Subscription], Coroutine[Any, Any, None]],
) -> None:
    """Its driver may have given its counters to another client."""
    subscription, publication = await connected(aeron)
    await publication.offer(b"first")
    assert (await anext(subscription)).data == b"first"
    await publication.offer(b"second")
    (image,) = attached(aeron).subscriptions[subscription.registration_id].images.values()
    stored: list[int] = []
    close = image.close

    def note_and_close() -> None:
        stored.append(image.position.get())
        close()

    monkeypatch.setattr(image, "close", note_and_close)
    now_ns = attachment_of(aeron)._now_ns
    monkeypatch.setattr(attachment_of(aeron), "_now_ns", lambda: now_ns() + 10_000_000_000)
    # It has had no turn of the loop, in which the client would have noticed.
    with pytest.raises(aa.ClosedError, match=r"has not run for .* of 10000 ms"):
        await read(subscription)
    assert stored == [0]


async def test_a_reader_that_blocks_the_loop_stores_no_position_of_what_was_read_ahead(
    aeron: aa.Aeron, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscription, publication = await connected(aeron)
    for number in range(10):
        await publication.offer(b"%d" % number)
    assert (await anext(subscription)).data == b"0"
    assert subscription._batch.left
    (image,) = subscription.images
    attachment = attachment_of(aeron)
    wait_s = attachment.look_from_thread()
    assert 9 < wait_s <= 10 + attached_driver.KEEPALIVE_INTERVAL_S
    now_ns = attachment._now_ns
    monkeypatch.setattr(attachment, "_now_ns", lambda: now_ns() + 11_000_000_000)
    # The thread looks while the loop is blocked.
    looking = threading.Thread(target=attachment.look_from_thread)
    looking.start()
    looking.join()
    with pytest.raises(aa.ClosedError, match="has not run for"):
        await anext(subscription)
    assert image.position == 0


def test_the_thread_looks_until_the_client_is_closed_or_collected() -> None:
    ended: SimpleQueue[None] = SimpleQueue()
    looks: list[float] = []

    class Looked:
        def look_from_thread(self) -> float:
            looks.append(0)
            if len(looks) == 3:
                ended.put(None)
            return 0

    looked: Any = Looked()
    watch_liveness(ref(looked), ended, 0)
    assert len(looks) == 3
    collected = ref(looked)
    del looked
    watch_liveness(collected, ended, 0)
    assert len(looks) == 3


async def test_without_a_thread_there_is_no_client(
    driver: aa.MediaDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> NoReturn:
        message = "can't start new thread"
        raise RuntimeError(message)

    monkeypatch.setattr(threading.Thread, "start", fail)
    aeron = aa.Aeron.connect(directory=driver.context.aeron_directory)
    with pytest.raises(OSError, match="no thread"):
        await aeron.start()
    await aeron.aclose()


async def test_a_handler_that_took_too_long_stores_no_position(
    aeron: aa.Aeron, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscription, publication = await connected(aeron)
    await publication.offer(b"any")
    (image,) = subscription.images
    attachment = attachment_of(aeron)
    now_ns = attachment._now_ns

    def handle(*_: object) -> None:
        monkeypatch.setattr(attachment, "_now_ns", lambda: now_ns() + 10_000_000_000)

    assert subscription.poll(handle) == 1
    assert image.position == 0
    assert aeron.is_closed


async def test_a_client_that_did_not_run_for_too_long_ends(
    aeron: aa.Aeron, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = attachment_of(aeron)._now_ns
    monkeypatch.setattr(attachment_of(aeron), "_now_ns", lambda: now_ns() + 10_000_000_000)
    attached(aeron)._keep_alive()
    assert aeron.is_closed
    with pytest.raises(aa.ClosedError, match="client_liveness_timeout_ns"):
        await aeron.add_subscription(IPC, STREAM_ID)


async def test_an_image_that_begins_where_no_frame_can_ends_the_client(
    driver: aa.MediaDriver, aeron: aa.Aeron
) -> None:
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    publication = await aeron.add_publication(IPC, STREAM_ID + 1)
    position = position_counter(driver, subscription.registration_id)
    position.set(33)
    say(
        driver,
        image_ready(subscription, log_file(publication), subscriber_position_id=position.id),
    )
    await until(lambda: aeron.is_closed)
    with pytest.raises(aa.ClosedError, match="begin at 33"):
        await anext(subscription)


async def test_a_length_that_no_frame_has_does_not_keep_the_reader_busy(aeron: aa.Aeron) -> None:
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    publication = await aeron.add_publication(IPC, STREAM_ID)
    await subscription.wait_connected(timeout=5)
    words = publication._ready.log.term_words[0]
    words[1] = FrameType.DATA << 16
    words[0] = 1 << 30
    waiting = asyncio.ensure_future(anext(subscription))
    watcher = attachment_of(aeron).watcher
    for _ in range(20):
        await asyncio.sleep(0)
    before = watcher.counts.wake_ups
    for _ in range(200):
        await asyncio.sleep(0)
    assert watcher.counts.wake_ups == before
    words[0] = words[1] = 0
    await publication.offer(b"a frame", timeout=5)
    assert (await asyncio.wait_for(waiting, 5)).data == b"a frame"
