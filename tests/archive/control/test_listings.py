"""Listings of a served archive: what is told, and how it ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from aeron_async.archive.api import RecordingSubscription
from aeron_async.archive.control.client import descriptor_of
from aeron_async.archive.control.handlers import encode_descriptor
from aeron_async.archive.control.messages import (
    CODEC,
    ListRecordingsForUriRequest,
    ListRecordingsRequest,
    ListRecordingSubscriptionsRequest,
    RecordingDescriptorMessage,
)
from aeron_async.errors import ArchiveError, ArchiveErrorCode, UnknownRecordingError
from tests.archive.golden import facts

if TYPE_CHECKING:
    from aeron_async.archive.control.client import RemoteArchive
    from tests.archive.control.fake_archive import FakeArchive


async def until(condition: Any) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)


@pytest.mark.parametrize(("count", "ids", "end"), [(2, [0, 1], None), (3, [0, 1, 2], None)])
async def test_a_listing_that_is_full_has_no_end(
    remote: RemoteArchive, count: int, ids: list[int], end: None
) -> None:
    pieces, last = await remote.connection.list_pieces(
        ListRecordingsRequest, count=count, from_recording_id=0, record_count=count
    )
    assert [piece.recording_id for piece in pieces] == ids  # type: ignore[attr-defined]
    assert last is end


@pytest.mark.parametrize(
    ("first", "count", "ids", "end"),
    [
        (0, 4, [0, 1, 2], 3),
        (2, 9, [2], 3),
        (5, 1, [], 5),
        (0, 0, [], 0),
    ],
)
async def test_a_listing_that_is_not_full_ends_with_the_next_id(
    remote: RemoteArchive, first: int, count: int, ids: list[int], end: int
) -> None:
    pieces, last = await remote.connection.list_pieces(
        ListRecordingsRequest, count=count, from_recording_id=first, record_count=count
    )
    assert [piece.recording_id for piece in pieces] == ids  # type: ignore[attr-defined]
    assert last is not None
    assert (last.code, last.relevant_id) == (2, end)


async def test_recordings_are_listed_by_stream_and_channel(
    remote: RemoteArchive, archive: FakeArchive
) -> None:
    archive.all[1] = attrs.evolve(archive.all[1], original_channel="aeron:ipc")
    assert [each async for each in remote.recordings()] == list(archive.all.values())
    assert [each.recording_id async for each in remote.recordings(stream_id=1001)] == [0, 2]
    assert [each.recording_id async for each in remote.recordings(1, stream_id=1001)] == [2]
    assert [each.recording_id async for each in remote.recordings(channel="ipc")] == [1]
    pieces, last = await remote.connection.list_pieces(
        ListRecordingsForUriRequest,
        count=1,
        from_recording_id=0,
        record_count=1,
        stream_id=1002,
        channel="ipc",
    )
    assert len(pieces) == 1
    assert last is None


async def test_more_recordings_than_are_asked_for_at_once_are_all_listed(
    remote: RemoteArchive, archive: FakeArchive
) -> None:
    archive.all |= {
        number: attrs.evolve(archive.all[0], recording_id=number) for number in range(200)
    }
    assert [each.recording_id async for each in remote.recordings()] == list(range(200))


async def test_one_recording_is_described_or_unknown(
    remote: RemoteArchive, archive: FakeArchive
) -> None:
    assert await remote.describe(2) == archive.all[2]
    with pytest.raises(UnknownRecordingError):
        await remote.describe(9)


async def test_a_second_listing_at_once_is_refused(
    remote: RemoteArchive, archive: FakeArchive
) -> None:
    archive.held.clear()
    first = asyncio.create_task(remote.describe(1))
    await until(remote.connection._listing.locked)
    # Our client would wait; what it does is done here by hand.
    remote.connection._listing = asyncio.Lock()
    with pytest.raises(ArchiveError, match="active listing already in progress") as caught:
        await remote.describe(2)
    assert caught.value.code is ArchiveErrorCode.ACTIVE_LISTING
    archive.held.set()
    assert (await first).recording_id == 1


@pytest.mark.parametrize(
    ("index", "count", "is_applied", "fragment", "ids", "has_end"),
    [
        (0, 2, 0, "", [1, 2], False),
        (0, 9, 0, "", [1, 2], True),
        (1, 9, 0, "", [2], True),
        (0, 9, 1, "", [2], True),
        (0, 9, 0, "first", [1], True),
        (-1, 9, 0, "", [], True),
        (5, 9, 0, "", [], True),
        (0, 0, 0, "", [], True),
    ],
)
async def test_what_records_is_listed(
    remote: RemoteArchive,
    archive: FakeArchive,
    index: int,
    count: int,
    is_applied: int,
    fragment: str,
    ids: list[int],
    *,
    has_end: bool,
) -> None:
    archive.subscriptions = [
        RecordingSubscription(1, 10, "aeron:ipc?alias=first"),
        RecordingSubscription(2, 20, "aeron:ipc"),
    ]
    pieces, last = await remote.connection.list_pieces(
        ListRecordingSubscriptionsRequest,
        count=count,
        pseudo_index=index,
        subscription_count=count,
        apply_stream_id=is_applied,
        stream_id=20,
        channel=fragment,
    )
    assert [piece.subscription_id for piece in pieces] == ids  # type: ignore[attr-defined]
    assert (last is not None and (last.code, last.relevant_id) == (3, 0)) is has_end


def test_a_descriptor_is_sent_as_the_official_archive_sends_it() -> None:
    golden = [
        bytes.fromhex(each["hex"])
        for each in facts().get("20-archive-control", {}).get("control_messages", [])
        if each["template_id"] == RecordingDescriptorMessage.TEMPLATE
    ]
    for data in golden:
        message = CODEC.decode(data)
        assert isinstance(message, RecordingDescriptorMessage)
        sent = encode_descriptor(
            descriptor_of(message),
            control_session_id=message.control_session_id,
            correlation_id=message.correlation_id,
        )
        assert sent == data
