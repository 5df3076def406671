"""What was recorded and what is live, each message once, whatever happens to either."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from aeron_async.archive import PersistentSubscription, RecordingGap, RecordingSignal, subscribe
from aeron_async.archive.persistent_subscription import LiveStream
from aeron_async.errors import (
    ChannelUriError,
    ConfigurationError,
    InvalidPositionError,
    RecordingGapError,
    UnknownRecordingError,
)
from aeron_async.protocol.channel_uri import ChannelUri

if TYPE_CHECKING:
    from aeron_async import Aeron, ExclusivePublication
    from aeron_async.archive import LocalArchive
    from tests.archive.conftest import OpenArchive

CHANNEL = "aeron:ipc"
STREAM = 7


def texts(begin: int, end: int) -> list[bytes]:
    return [b"message %d" % number for number in range(begin, end)]


async def take(messages: PersistentSubscription, count: int) -> list[bytes]:
    found: list[bytes] = []
    async with asyncio.timeout(20):
        while len(found) < count:
            found.append((await anext(messages)).data)
    return found


async def offer(publication: ExclusivePublication, messages: list[bytes]) -> None:
    for each in messages:
        await publication.offer(each, timeout=20)


async def recorded(aeron: Aeron, archive: LocalArchive) -> ExclusivePublication:
    """Return a publication whose recording has begun."""
    signals = archive.signals()
    await archive.start_recording(CHANNEL, STREAM)
    publication = await aeron.add_exclusive_publication(CHANNEL, STREAM)
    async with asyncio.timeout(20):
        assert (await anext(signals)).signal is RecordingSignal.START
    return publication


def is_live(messages: PersistentSubscription) -> bool:
    return messages.is_live


async def test_what_was_recorded_comes_first_and_then_what_is_live(
    open_archive: OpenArchive,
) -> None:
    async with open_archive() as (aeron, archive):
        publication = await recorded(aeron, archive)
        async with publication:
            await offer(publication, texts(0, 500))
            async with subscribe(archive, aeron, 0, CHANNEL, STREAM) as messages:
                assert await take(messages, 500) == texts(0, 500)
                count = 500
                while not is_live(messages):
                    await offer(publication, texts(count, count + 10))
                    assert await take(messages, 10) == texts(count, count + 10)
                    count += 10
                assert (messages.join_count, messages.fallback_count) == (1, 0)
                await offer(publication, texts(count, count + 200))
                assert await take(messages, 200) == texts(count, count + 200)
                assert messages.position == publication.position


async def test_it_goes_on_from_a_position(open_archive: OpenArchive) -> None:
    async with open_archive() as (aeron, archive):
        publication = await recorded(aeron, archive)
        async with publication:
            await offer(publication, texts(0, 100))
            begin = publication.position
            async with asyncio.timeout(20):
                # What was published is there to be replayed when it has been written.
                while await archive.max_recorded_position(0) < begin:
                    await asyncio.sleep(0)
            await offer(publication, texts(100, 200))
            async with subscribe(
                archive, aeron, 0, CHANNEL, STREAM, from_position=begin
            ) as messages:
                assert messages.position == begin
                assert await take(messages, 100) == texts(100, 200)


async def test_a_reader_that_is_left_behind_replays_and_joins_again(
    open_archive: OpenArchive,
) -> None:
    async with open_archive() as (aeron, archive):
        publication = await recorded(aeron, archive)
        async with publication:
            await offer(publication, texts(0, 10))
            async with subscribe(archive, aeron, 0, CHANNEL, STREAM) as messages:
                assert await take(messages, 10) == texts(0, 10)
                count = 10
                while not is_live(messages):
                    await offer(publication, texts(count, count + 10))
                    assert await take(messages, 10) == texts(count, count + 10)
                    count += 10
                live = messages._live
                assert live is not None
                assert live._subscription is not None
                # As the driver does with a reader that is too slow.
                live._subscription._remove_image(live._subscription.images[0].image_id)
                await offer(publication, texts(count, count + 200))
                assert await take(messages, 200) == texts(count, count + 200)
                assert messages.fallback_count == 1
                count += 200
                while not is_live(messages):
                    await offer(publication, texts(count, count + 10))
                    assert await take(messages, 10) == texts(count, count + 10)
                    count += 10
                assert messages.join_count == 2


async def test_a_recording_that_stopped_and_is_extended_goes_on(open_archive: OpenArchive) -> None:
    async with open_archive() as (aeron, archive):
        publication = await recorded(aeron, archive)
        async with publication:
            await offer(publication, texts(0, 50))
            await archive.stop_recording(CHANNEL, STREAM)
        async with subscribe(archive, aeron, 0, CHANNEL, STREAM) as messages:
            assert await take(messages, 50) == texts(0, 50)
            async with await archive.extending_publication(0, CHANNEL, STREAM) as publication:
                await archive.extend_recording(0, CHANNEL, STREAM)
                await publication.wait_connected(5)
                await offer(publication, texts(50, 150))
                assert await take(messages, 100) == texts(50, 150)


async def test_a_call_that_is_cancelled_loses_nothing(open_archive: OpenArchive) -> None:
    async with open_archive() as (aeron, archive):
        publication = await recorded(aeron, archive)
        async with publication:
            await offer(publication, texts(0, 3))
            async with subscribe(archive, aeron, 0, CHANNEL, STREAM) as messages:
                assert await take(messages, 3) == texts(0, 3)
                for number in range(3, 40):
                    waiting = asyncio.ensure_future(anext(messages))
                    for _ in range(number):
                        await asyncio.sleep(0)
                    waiting.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await waiting
                    await offer(publication, texts(number, number + 1))
                    assert await take(messages, 1) == texts(number, number + 1)


async def test_closing_ends_the_iteration(open_archive: OpenArchive) -> None:
    async with open_archive() as (aeron, archive):
        publication = await recorded(aeron, archive)
        async with publication:
            await offer(publication, texts(0, 3))
            messages = subscribe(archive, aeron, 0, CHANNEL, STREAM)
            assert await take(messages, 3) == texts(0, 3)
            await messages.aclose()
            await messages.aclose()
            assert [each async for each in messages] == []


async def test_it_may_be_closed_while_it_looks_how_far_the_recording_is(
    open_archive: OpenArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_archive() as (aeron, archive):
        publication = await recorded(aeron, archive)
        async with publication:
            await offer(publication, texts(0, 3))
            is_looking, may_look = asyncio.Event(), asyncio.Event()
            recording_position = archive.recording_position

            async def slowly(recording_id: int) -> int | None:
                is_looking.set()
                await may_look.wait()
                return await recording_position(recording_id)

            monkeypatch.setattr(archive, "recording_position", slowly)
            messages = subscribe(archive, aeron, 0, CHANNEL, STREAM)
            before = asyncio.all_tasks()
            waiting = asyncio.ensure_future(anext(messages))
            await is_looking.wait()
            await messages.aclose()
            may_look.set()
            with pytest.raises(StopAsyncIteration):
                await waiting
            assert asyncio.all_tasks() == before


async def test_who_is_cancelled_while_the_live_stream_is_left_is_cancelled(
    open_archive: OpenArchive,
) -> None:
    async with open_archive() as (aeron, _):
        live = LiveStream(aeron, ChannelUri.parse(CHANNEL), STREAM, 7)
        for _ in range(20):
            await asyncio.sleep(0)
        leaving = asyncio.ensure_future(live.aclose())
        await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        assert live._subscription is not None
        assert live._subscription.is_closed
        await live.aclose()


class Held:
    """Something to close, which takes until it may end."""

    def __init__(self) -> None:
        self.calls = 0
        self.may_end = asyncio.Event()

    async def aclose(self) -> None:
        self.calls += 1
        await self.may_end.wait()


async def test_a_replay_is_closed_although_the_task_that_closed_it_was_cancelled(
    open_archive: OpenArchive,
) -> None:
    async with open_archive() as (aeron, archive):
        await recorded(aeron, archive)
        messages = subscribe(archive, aeron, 0, CHANNEL, STREAM)
        held: Any = Held()
        messages._finished = held
        reading = asyncio.ensure_future(anext(messages))
        for _ in range(3):
            await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        held.may_end.set()
        await messages.aclose()
        assert held.calls == 2


async def test_a_cancelled_closing_closes_everything(open_archive: OpenArchive) -> None:
    async with open_archive() as (aeron, archive):
        await recorded(aeron, archive)
        messages = subscribe(archive, aeron, 0, CHANNEL, STREAM)
        parts: list[Any] = [Held(), Held(), Held()]
        messages._replay, messages._finished, messages._live = parts
        closing = asyncio.ensure_future(messages.aclose())
        while not parts[0].calls:
            await asyncio.sleep(0)
        for part in parts[1:]:
            part.may_end.set()
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert [part.calls for part in parts] == [1, 1, 1]


async def test_a_live_stream_that_never_came_is_not_waited_for_when_another_extends(
    open_archive: OpenArchive,
) -> None:
    async with open_archive() as (aeron, archive):
        publication = await recorded(aeron, archive)
        async with publication:
            await offer(publication, texts(0, 3))
            gone = ChannelUri.parse(CHANNEL), STREAM, publication.session_id
            await archive.stop_recording(CHANNEL, STREAM)
        async with subscribe(archive, aeron, 0, CHANNEL, STREAM) as messages:
            assert await take(messages, 3) == texts(0, 3)
            messages._live = LiveStream(aeron, *gone)
            async with await archive.extending_publication(0, CHANNEL, STREAM) as publication:
                await archive.extend_recording(0, CHANNEL, STREAM)
                await publication.wait_connected(5)
                count = 3
                async with asyncio.timeout(20):
                    while not is_live(messages):
                        await offer(publication, texts(count, count + 1))
                        assert await take(messages, 1) == texts(count, count + 1)
                        count += 1


async def test_what_cannot_be_meant_is_refused(open_archive: OpenArchive) -> None:
    async with open_archive() as (aeron, archive):
        with pytest.raises(ConfigurationError, match="names a session"):
            subscribe(archive, aeron, 0, "aeron:ipc?session-id=7", STREAM)
        with pytest.raises(ChannelUriError):
            subscribe(archive, aeron, 0, "aeron:tcp", STREAM)
        with pytest.raises(UnknownRecordingError):
            await anext(subscribe(archive, aeron, 99, CHANNEL, STREAM))
        publication = await recorded(aeron, archive)
        async with publication:
            with pytest.raises(ConfigurationError, match="of stream 7, but the live stream is 8"):
                await anext(subscribe(archive, aeron, 0, CHANNEL, STREAM + 1))
            # As the official one: what is yet to come is no place to begin.
            with pytest.raises(InvalidPositionError):
                await anext(subscribe(archive, aeron, 0, CHANNEL, STREAM, from_position=1 << 20))


# Where the recording has stopped.


async def stopped_while_the_stream_goes_on(
    aeron: Aeron, archive: LocalArchive
) -> tuple[ExclusivePublication, int]:
    """Return a publication of which fifty messages were recorded, and fifty more are nowhere."""
    publication = await recorded(aeron, archive)
    await offer(publication, texts(0, 50))
    end = publication.position
    await archive.stop_recording(CHANNEL, STREAM)
    async with await aeron.add_subscription(CHANNEL, STREAM) as other:
        await offer(publication, texts(50, 100))
        for _ in range(50):
            await anext(other)
    return publication, end


async def test_a_stream_that_went_on_without_its_recording_is_an_error(
    open_archive: OpenArchive,
) -> None:
    """It yielded what there was, then waited for ever."""
    async with open_archive() as (aeron, archive):
        publication, end = await stopped_while_the_stream_goes_on(aeron, archive)
        async with publication, subscribe(archive, aeron, 0, CHANNEL, STREAM) as messages:
            assert await take(messages, 50) == texts(0, 50)
            async with asyncio.timeout(20):
                with pytest.raises(RecordingGapError) as caught:
                    await anext(messages)
            error = caught.value
            assert (error.recording_id, error.recorded_position) == (0, end)
            assert end < error.live_position <= publication.position
            assert f"recording 0 ends at {end}, and its stream continues at" in str(error)
            with pytest.raises(StopAsyncIteration):
                await anext(messages)


async def test_a_gap_is_reported_and_the_live_stream_goes_on(open_archive: OpenArchive) -> None:
    """The caller may choose to go on."""
    async with open_archive() as (aeron, archive):
        publication, end = await stopped_while_the_stream_goes_on(aeron, archive)
        with capture_logs() as logs:
            async with (
                publication,
                subscribe(archive, aeron, 0, CHANNEL, STREAM, on_gap="report") as messages,
            ):
                assert await take(messages, 50) == texts(0, 50)
                following = asyncio.create_task(take(messages, 100))
                async with asyncio.timeout(20):
                    while not messages.gaps:
                        await asyncio.sleep(0.01)
                await offer(publication, texts(100, 200))
                (gap,) = messages.gaps
                # Each message takes a frame of 64 bytes.
                first = gap.end_position // 64
                assert 50 < first <= 100
                assert await following == texts(first, first + 100)
                assert gap == RecordingGap(0, end, 64 * first)
                assert messages.is_live
        (line,) = [each for each in logs if each["event"] == "recording_gap"]
        assert (line["start_position"], line["end_position"]) == (end, 64 * first)


async def test_a_stream_that_is_joined_where_its_recording_stopped_has_no_gap(
    open_archive: OpenArchive,
) -> None:
    async with open_archive() as (aeron, archive):
        publication = await recorded(aeron, archive)
        async with publication:
            await offer(publication, texts(0, 50))
            await archive.stop_recording(CHANNEL, STREAM)
            async with subscribe(archive, aeron, 0, CHANNEL, STREAM) as messages:
                assert await take(messages, 50) == texts(0, 50)
                following = asyncio.create_task(take(messages, 50))
                await offer(publication, texts(50, 100))
                assert await following == texts(50, 100)
                assert messages.is_live
                assert not messages.gaps


@pytest.mark.parametrize("on_gap", ["raise", "report"])
async def test_a_live_stream_that_is_lost_behind_the_recording_is_joined_again(
    open_archive: OpenArchive, on_gap: Any
) -> None:
    async with open_archive() as (aeron, archive):
        publication = await recorded(aeron, archive)
        async with publication:
            await offer(publication, texts(0, 10))
            await archive.stop_recording(CHANNEL, STREAM)
            async with subscribe(archive, aeron, 0, CHANNEL, STREAM, on_gap=on_gap) as messages:
                assert await take(messages, 10) == texts(0, 10)
                following = asyncio.create_task(take(messages, 10))
                await offer(publication, texts(10, 20))
                assert await following == texts(10, 20)
                live = messages._live
                assert live is not None
                assert live._subscription is not None
                live._subscription._remove_image(live._subscription.images[0].image_id)
                async with await aeron.add_subscription(CHANNEL, STREAM) as other:
                    await offer(publication, texts(20, 30))
                    for _ in range(10):
                        await anext(other)
                if on_gap == "raise":
                    async with asyncio.timeout(20):
                        with pytest.raises(RecordingGapError):
                            await anext(messages)
                    return
                following = asyncio.create_task(take(messages, 5))
                async with asyncio.timeout(20):
                    while not messages.gaps:
                        await asyncio.sleep(0.01)
                await offer(publication, texts(30, 35))
                first = messages.gaps[0].end_position // 64
                assert 20 < first <= 30
                assert await following == texts(first, first + 5)


async def test_a_way_to_treat_gaps_that_is_none_is_refused(open_archive: OpenArchive) -> None:
    async with open_archive() as (aeron, archive):
        with pytest.raises(ConfigurationError, match="on_gap is 'skip'"):
            subscribe(archive, aeron, 0, CHANNEL, STREAM, on_gap="skip")  # type: ignore[arg-type]
