"""What was asked to be recorded, and the entries that its images get in the catalog.

Source: Aeron `ArchiveConductor`, its part of recordings.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import attrs

from aeron_async.archive.disk.descriptor import RecordingDescriptor
from aeron_async.archive.extending import extending_channel
from aeron_async.errors import ArchiveError, ArchiveErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.client.image import Image
    from aeron_async.client.subscription import Subscription

__all__ = ["RecordingRequest", "check_extension", "new_recording", "pass_over"]


@attrs.define(eq=False, kw_only=True)
class RecordingRequest:
    """A subscription that records.

    Attributes:
        key: What another request for the same stream would have too.
        original_channel: As the request had it.
        stripped_channel: What is left of that in the catalog.
        recording_id: That is extended; None where each image gets a recording of its own.
        auto_stop: Whether it ends with its first image.
        correlation_id: Of the request.
        control_session_id: Of who asked for an extension.
        subscription: That records; None until the driver has made it.
        tasks: One for each image that it has had.
        active_count: How many of them record, or are about to.
        is_lacking: Whether one of them was not, or not whole.
        is_stopping: Whether only what is there by now is still recorded.
        error: Why it recorded less than was asked for.
        on_failed: Called with each such reason.
    """

    key: str
    stream_id: int
    original_channel: str
    stripped_channel: str
    recording_id: int | None
    auto_stop: bool
    correlation_id: int
    control_session_id: int
    subscription: Subscription | None = None
    tasks: list[asyncio.Task[None]] = attrs.field(factory=list)
    active_count: int = 0
    is_lacking: bool = False
    is_stopping: bool = False
    error: ArchiveError | None = None
    on_failed: Callable[[ArchiveError], object] | None = None

    def fail(self, error: ArchiveError | None) -> None:
        """Remember why less was recorded than was asked for, and tell whoever asked."""
        if error is None:
            return
        self.error = self.error or error
        if self.on_failed is not None:
            self.on_failed(error)

    @property
    def subscription_id(self) -> int:
        """Return the id by which it is stopped; -1 before there is one."""
        return -1 if self.subscription is None else self.subscription.registration_id

    def add(self, task: asyncio.Task[None]) -> None:
        """Count one more image, which a task records."""
        self.tasks.append(task)
        self.active_count += 1
        if not self.auto_stop:
            task.add_done_callback(self.tasks.remove)


def new_recording(
    request: RecordingRequest, image: Image, *, segment_length: int, now_ms: int
) -> RecordingDescriptor:
    """Return the entry of a recording that begins, without its id.

    Args:
        request: That asked for it.
        image: That is to be recorded.
        segment_length: As the settings have it, in bytes; a term may be longer.
        now_ms: The time, in milliseconds since 1970.
    """
    return RecordingDescriptor(
        recording_id=0,
        start_position=image.join_position,
        start_timestamp_ms=now_ms,
        initial_term_id=image.initial_term_id,
        term_length=image.term_length,
        segment_length=max(segment_length, image.term_length),
        mtu_length=image.mtu_length,
        session_id=image.session_id,
        stream_id=image.stream_id,
        stripped_channel=request.stripped_channel,
        original_channel=request.original_channel,
        source_identity=image.source_identity,
    )


def check_extension(descriptor: RecordingDescriptor, image: Image) -> None:
    """Refuse an image that does not go on where a recording has stopped.

    Raises:
        ArchiveError: It begins elsewhere, or its terms or datagrams are others.
    """
    for name, found, wanted in (
        ("joinPosition", image.join_position, descriptor.stop_position),
        ("initialTermId", image.initial_term_id, descriptor.initial_term_id),
        ("termBufferLength", image.term_length, descriptor.term_length),
        ("mtuLength", image.mtu_length, descriptor.mtu_length),
    ):
        if found != wanted:
            message = (
                f"cannot extend recording {descriptor.recording_id} image.{name}={found} not "
                f"equal to the recording's {wanted}: publish with `extending_publication`, or on "
                f"{extending_channel(descriptor, descriptor.original_channel)}"
            )
            raise ArchiveError(message, code=ArchiveErrorCode.INVALID_EXTENSION)


async def pass_over(image: Image, request: RecordingRequest) -> None:
    """Take what an image brings and record none of it: its publisher is not held up.

    Differs: Aeron takes nothing, and the publisher of such an image stands still.
    """
    progress = image.subscription.progress
    while not (request.is_stopping or image.is_closed or image.is_end_of_stream):
        block, padding = image.peek_block(image.position, image.term_length)
        if len(block):
            image.take(image.position + len(block) + padding)
            await asyncio.sleep(0)
        else:
            await progress.wait()
