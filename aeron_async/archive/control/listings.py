"""Listings, as an archive answers them: one piece after the other, and an end where they are few.

Source: Aeron `ListRecordingsSession`, `ListRecordingSubscriptionsSession`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from aeron_async.archive.control.catalog_requests import (
    ListRecordingRequest,
    ListRecordingsForUriRequest,
    ListRecordingsRequest,
    ListRecordingSubscriptionsRequest,
)
from aeron_async.archive.control.messages import (
    CODEC,
    PROTOCOL_VERSION,
    SCHEMA_ID,
    SCHEMA_VERSION,
    ControlResponse,
    RecordingDescriptorMessage,
    RecordingSubscriptionDescriptor,
    ResponseCode,
)
from aeron_async.archive.control.sbe import HEADER
from aeron_async.archive.disk.descriptor import BLOCK, ENTRY_HEADER_LENGTH, encode_entry
from aeron_async.errors import UnknownRecordingError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aeron_async.archive.control.requests import Request
    from aeron_async.archive.disk.descriptor import RecordingDescriptor

__all__ = ["LISTINGS", "encode_descriptor", "listing"]

IDS: Final = Struct("<qq")
ALIGNMENT: Final = 64
"""Of entries in a catalog; they are sent with their padding, as they lie there."""

LISTINGS: Final = (
    ListRecordingRequest,
    ListRecordingsRequest,
    ListRecordingsForUriRequest,
    ListRecordingSubscriptionsRequest,
)
"""A session has one of these at a time."""


def encode_descriptor(
    descriptor: RecordingDescriptor, *, control_session_id: int, correlation_id: int
) -> bytes:
    """Return the message that tells of a recording: its entry, but for the first numbers."""
    template = RecordingDescriptorMessage.TEMPLATE
    entry = encode_entry(descriptor, alignment=ALIGNMENT)
    return b"".join(
        (
            HEADER.pack(BLOCK.size, template, SCHEMA_ID, SCHEMA_VERSION),
            IDS.pack(control_session_id, correlation_id),
            entry[ENTRY_HEADER_LENGTH + IDS.size :],
        )
    )


async def listing(archive: Any, request: Request) -> AsyncIterator[bytes]:
    """Iterate over the messages that answer a listing."""
    if isinstance(request, ListRecordingRequest):
        pieces = one_recording(archive, request)
    elif isinstance(request, ListRecordingSubscriptionsRequest):
        pieces = subscriptions(archive, request)
    else:
        pieces = recordings(archive, request)
    async for piece in pieces:
        yield piece


async def one_recording(archive: Any, request: ListRecordingRequest) -> AsyncIterator[bytes]:
    """Iterate over the one message that tells of one recording."""
    try:
        descriptor = await archive.describe(request.recording_id)
    except UnknownRecordingError:
        yield end_of(request, ResponseCode.RECORDING_UNKNOWN, request.recording_id)
        return
    yield piece_of(request, descriptor)


async def recordings(archive: Any, request: Any) -> AsyncIterator[bytes]:
    """Iterate over messages that tell of recordings."""
    is_any = isinstance(request, ListRecordingsRequest)
    sent_count = 0
    next_id = request.from_recording_id
    if request.record_count > 0:
        # Which were looked at, and not only which matched, decides where a listing ends.
        async for descriptor in archive.recordings(request.from_recording_id):
            next_id = descriptor.recording_id + 1
            if is_any or (
                descriptor.stream_id == request.stream_id
                and request.channel in descriptor.original_channel
            ):
                yield piece_of(request, descriptor)
                sent_count += 1
                if sent_count == request.record_count:
                    return
    yield end_of(request, ResponseCode.RECORDING_UNKNOWN, next_id)


async def subscriptions(
    archive: Any, request: ListRecordingSubscriptionsRequest
) -> AsyncIterator[bytes]:
    """Iterate over messages that tell of what records."""
    sent_count = 0
    found = await archive.recording_subscriptions()
    if request.pseudo_index >= 0 and request.subscription_count > 0:
        for each in found[request.pseudo_index :]:
            if (
                request.apply_stream_id and each.stream_id != request.stream_id
            ) or request.channel not in each.channel:
                continue
            yield CODEC.encode(
                RecordingSubscriptionDescriptor(
                    control_session_id=request.control_session_id,
                    correlation_id=request.correlation_id,
                    subscription_id=each.subscription_id,
                    stream_id=each.stream_id,
                    stripped_channel=each.channel,
                )
            )
            sent_count += 1
            if sent_count == request.subscription_count:
                return
    yield end_of(request, ResponseCode.SUBSCRIPTION_UNKNOWN, 0)


def piece_of(request: Request, descriptor: RecordingDescriptor) -> bytes:
    """Return the message that tells of a recording to whoever asked."""
    return encode_descriptor(
        descriptor,
        control_session_id=request.control_session_id,
        correlation_id=request.correlation_id,
    )


def end_of(request: Request, code: ResponseCode, relevant_id: int) -> bytes:
    """Return the message that there are no more."""
    return CODEC.encode(
        ControlResponse(
            control_session_id=request.control_session_id,
            correlation_id=request.correlation_id,
            relevant_id=relevant_id,
            code=code,
            version=PROTOCOL_VERSION,
        )
    )
