"""Images: one publication as a subscription receives it, its messages, and when images come and go.

Invariant: the position of an `Image` moves after the application has taken a message, never before,
so that flow control follows what was processed and not what was delivered.

The log reader creates each `Message` and knows no images; for type checkers this module defines a
`Message` whose `image` is an `Image`.

Invariant: the messages of a `MessageBatch` lie in the log until it is taken, and nothing is copied
before it is asked for.

Source: Aeron `Header`, `FragmentHandler`, `Image`, `AvailableImageHandler`,
`UnavailableImageHandler`.
"""

from __future__ import annotations

import asyncio
from array import array
from asyncio import iscoroutine
from collections import deque
from collections.abc import Sequence
from enum import Enum, auto
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    NamedTuple,
    Self,
    SupportsIndex,
    cast,
    final,
    overload,
)

from aeron_async.client.arguments import check_limit
from aeron_async.client.client_conductor import check_process
from aeron_async.client.lag import Skipping
from aeron_async.client.waiters import Notify, Wait
from aeron_async.driver.commands import ImageEnd, ImageEndReason
from aeron_async.errors import ClosedError, ConfigurationError
from aeron_async.logbuffer.message import Batch, columns_of
from aeron_async.logbuffer.message import Message as LogMessage
from aeron_async.logbuffer.metadata import END_OF_STREAM_UNKNOWN, LastSaid
from aeron_async.logbuffer.position import PARTITION_COUNT
from aeron_async.logbuffer.reader import TermReader
from aeron_async.logbuffer.scanner import scan_for_send
from aeron_async.protocol.arguments import awaited_by_nobody, check_function
from aeron_async.protocol.header import DataFlags

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from weakref import WeakSet

    from aeron_async.client.arrow import Capsules, RecordBatch
    from aeron_async.client.subscription import Subscription, SubscriptionBase
    from aeron_async.driver.commands import ImageReady

__all__ = [
    "FragmentHeader",
    "Image",
    "ImageEvent",
    "ImageEventKind",
    "ImageEvents",
    "Message",
    "MessageBatch",
]


@final
class FragmentHeader:
    """Header of one fragment; an image uses one object for all, so copy values that you keep.

    Attributes:
        position: Where the fragment ends in its stream, in bytes, alignment included.
        flags: `DataFlags`, which say whether the fragment begins or ends a message.
        reserved_value: The publisher's own 64 bits; 0 by default.
        image: The image it came from.
    """

    __slots__ = ("flags", "image", "position", "reserved_value")

    def __init__(self, image: Image) -> None:
        self.image: Image = image
        self.position: int = 0
        self.flags: int = 0
        self.reserved_value: int = 0

    @property
    def is_begin(self) -> bool:
        """Return whether a message begins with this fragment."""
        return bool(self.flags & DataFlags.BEGIN_FRAGMENT)

    @property
    def is_end(self) -> bool:
        """Return whether a message ends with this fragment."""
        return bool(self.flags & DataFlags.END_FRAGMENT)


if TYPE_CHECKING:

    @final
    class Message(LogMessage):
        """One message, reassembled; `bytes(message)` is its payload.

        Attributes:
            data: The payload, a copy.
            position: Where the message ends in its stream, in bytes.
            reserved_value: The publisher's own 64 bits; 0 by default.
            image: The image it came from.
        """

        image: Image

    FragmentHandler = Callable[[memoryview, FragmentHeader], object]
else:
    Message = LogMessage


TELLING_SHIFT: Final = 6
"""A driver whose trigger is always passed is notified after every 64th of a term."""


READ_AHEAD_LENGTH: Final = 256 * 1024
"""Most bytes read at once, except for one longer message: copying blocks the event loop."""


NO_BLOCK: Final = memoryview(b"")
NOTHING_MORE: Final[Batch[Any]] = Batch([], None)


class ImageClosedByHandlerError(Exception):
    """Ends a poll whose handler has closed the image; never leaves this module."""


class HandlerNotAwaitedError(Exception):
    """Ends a poll whose handler has returned a coroutine; never leaves this module."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


@final
class Image(Skipping):
    """One publication as a subscription receives it.

    Attributes:
        session_id: Session id of the publication.
        stream_id: Stream id of the subscription.
        join_position: Position from which this subscription receives, in bytes.
        source_identity: Where the stream comes from, as `host:port`; `aeron:ipc` for a publication
            of the same driver.
        subscription: The subscription that reads it.
        image_id: Identifies the image within its driver.
        initial_term_id: Id of the first term of the stream.
        term_length: Length of a term, in bytes.
        mtu_length: Longest datagram payload of the publication, in bytes.
    """

    def __init__(self, subscription: Subscription, ready: ImageReady) -> None:
        self.subscription: Subscription = subscription
        self.image_id: int = ready.image_id
        self.session_id: int = ready.session_id
        self.stream_id: int = ready.stream_id
        self.join_position: int = ready.join_position
        self.source_identity: str = ready.source_identity
        self.initial_term_id: int = ready.log.initial_term_id
        self.term_length: int = ready.log.term_length
        self._term_mask = ready.log.term_length - 1
        self.mtu_length: int = ready.log.mtu_length
        self._metadata = ready.log.metadata
        self._port = ready.port
        self._hold, self._left_count = ready.hold, ready.hold.left_count
        self._log = ready.log
        self._reader = TermReader(ready.log, ready.join_position)
        # The message that was read last the long way, until it is taken. Its beginning may be
        # taken before its end comes.
        self._begun: Message | None = None
        self._discarded_before = 0
        self._header = FragmentHeader(self)
        self._position = ready.join_position
        # The first read sets the trigger.
        self._trigger = self._told_position = -1
        self._attach(ready.position.cell, ready.wake_flag)
        self._is_closed = False
        self._end: ImageEnd | None = None
        self._last = LastSaid()

    @property
    def position(self) -> int:
        """Return the position up to which the application has taken the stream, in bytes."""
        return self._position

    @property
    def is_closed(self) -> bool:
        """Return whether the image is closed: ended, lost, or its subscription closed."""
        return self._is_closed

    @property
    def end_of_stream_position(self) -> int | None:
        """Return the position at which the stream ends, in bytes; None until that is known."""
        source = self._last if self._is_closed else self._metadata
        end = source.end_of_stream_position
        return None if end == END_OF_STREAM_UNKNOWN else end

    @property
    def is_end_of_stream(self) -> bool:
        """Return whether the stream has ended and all of it was taken."""
        end = self.end_of_stream_position
        return end is not None and self._position >= end

    @property
    def end(self) -> ImageEnd | None:
        """Return why and where the image ended; None while more may arrive.

        An image has ended when the stream has, and all of it was taken, or when the driver has
        closed the image.
        """
        if self._end is None and self.is_end_of_stream:
            # The driver lingers for late receivers, and closes the image up to a second later.
            reason = (
                ImageEndReason.REVOKED
                if self.is_publication_revoked
                else ImageEndReason.END_OF_STREAM
            )
            return ImageEnd.at(reason, self._position)
        return self._end

    @property
    def is_publication_revoked(self) -> bool:
        """Return whether the publisher revoked the stream: what was not read yet is lost."""
        source = self._last if self._is_closed else self._metadata
        return source.is_publication_revoked

    @property
    def _is_reliable(self) -> bool:
        """Whether lost data is asked for again."""
        return (self._last if self._is_closed else self._metadata).reliable

    @property
    def discarded_fragments(self) -> int:
        """Return how many fragments belonged to no complete message, or to one too long."""
        return self._discarded_before + self._reader.discarded_fragments

    @property
    def is_let_go(self) -> bool:
        """Return whether the stream has continued without this image.

        Bytes of the log that were not copied by then may have been overwritten. This happens only
        to images with `tether=false`, some time after they were closed.
        """
        return self._hold.left_count != self._left_count

    def poll(self, handler: FragmentHandler, fragment_limit: int = 10) -> int:
        """Call a handler with each available fragment, without waiting; return how many.

        An exception of the handler reaches the caller; the position has then passed its fragment.
        The handler may close the subscription; it is then not called again.

        Args:
            handler: Called with the payload, a read-only view until the handler returns, and a
                header, which is the same object for all fragments.
            fragment_limit: Most fragments to deliver; 1 or more.

        Raises:
            ConfigurationError: The handler cannot be called or is an `async def`, or the limit is
                no whole number of 1 or more; the refused call of the handler took no fragment.
            BusyError: Another task consumes the subscription.
            WrongLoopError: The subscription belongs to another event loop.
        """
        if type(fragment_limit) is not int or fragment_limit < 1:
            fragment_limit = check_limit(fragment_limit, "fragment_limit")
        check_function(handler, "handler")
        return self._poll(handler, fragment_limit)

    def _poll(self, handler: FragmentHandler, fragment_limit: int) -> int:
        """Do what `poll` does, with arguments that were checked."""
        if self._is_closed:
            check_process(self.subscription._closed, self)  # noqa: SLF001 - why it is closed
            return 0
        self.subscription._begin_poll()
        self._look_up_trigger()
        if self.is_closed:
            return 0
        self._forget_begun()
        header = self._header
        count = 0

        def deliver(payload: memoryview, position: int, flags: int, reserved_value: int) -> None:
            header.position = position
            header.flags = flags
            header.reserved_value = reserved_value
            nonlocal count
            count += 1
            result = handler(payload, header)
            if result is not None and iscoroutine(result):
                result.close()
                # The fragment is not taken: the coroutine that should take it was not awaited.
                raise HandlerNotAwaitedError(position - (len(payload) + 63 & -32))
            if self._is_closed:
                # The log is about to be freed, and the reader would look at the next frame.
                raise ImageClosedByHandlerError

        try:
            self._reader.poll(
                deliver,
                fragment_limit=fragment_limit,
                limit_position=self._port.readable_position(self._reader.position),
            )
        except ImageClosedByHandlerError:
            pass
        except HandlerNotAwaitedError as error:
            self._take(error.position)
            if not self._is_closed:
                self._rewind()
            raise ConfigurationError(awaited_by_nobody("handler")) from None
        finally:
            check_served = self.subscription._check_served  # noqa: SLF001 - two halves of one reader
            if check_served is not None:
                check_served()
            self._take(self._reader.position)
        return count

    def _read(self, limit: int, max_bytes: int = READ_AHEAD_LENGTH) -> Batch[Message] | None:
        """Return available complete messages; the caller takes their positions.

        Args:
            limit: Most messages.
            max_bytes: Most bytes of the log; a single message may be longer.
        """
        if self._is_closed:
            return None
        batch = self._read_fast(limit, max_bytes)
        if batch is None:
            return self._read_any(limit, max_bytes)
        return batch if batch.left else None

    def _read_any(self, limit: int, max_bytes: int) -> Batch[Message] | None:
        """Do what `_read` does, whatever comes next."""
        self._look_up_trigger()
        reader, port = self._reader, self._port
        position = reader.position
        # Notifying the driver may have closed the image: that may be all it was waiting for.
        # Differs: Aeron reads wherever it finds a frame, as a client of another process does here.
        # Beyond the rebuild position, a damaged or forged datagram may have left some.
        if (
            self._has_closed()
            or (limit_position := port.readable_position(position)) <= position == self._position
        ):
            return None
        begun = self._begun
        if begun is not None and self._position < begun.position == position:
            return self._counted(Batch([begun], self))
        self._begun = None
        end_position = min(limit_position, position + max_bytes)
        batch = reader.open_batch(limit=limit, limit_position=end_position, image=self)
        if batch.left:
            return self._counted(batch)
        found: list[Message] = []
        if max_bytes < READ_AHEAD_LENGTH:
            # Fragments may make a message that is longer: one alone, then.
            limit = 1
        end_position = min(limit_position, reader.position + READ_AHEAD_LENGTH)
        while not reader.read_messages(found, limit=limit, limit_position=end_position, image=self):
            # There may be only padding, or fragments of an incomplete message: move past them.
            position = reader.position
            has_moved = position != self._position
            self._take(position)
            if not self._has_closed() and end_position < limit_position:
                # The rest of a message is longer than the bytes read at once.
                end_position = min(limit_position, end_position + READ_AHEAD_LENGTH)
                continue
            if self._has_closed():
                return None
            # One read never leaves its term. The next term may hold all that the window allows;
            # then nothing more arrives, and nothing would wake the reader.
            limit_position = port.readable_position(position)
            if not has_moved or limit_position <= position:
                return None
            end_position = min(limit_position, position + READ_AHEAD_LENGTH)
        self._begun = found[0]
        return self._counted(Batch(found, self))

    def _counted(self, batch: Batch[Message]) -> Batch[Message]:
        self._message_count += batch.left
        return batch

    def _peek_block(self, position: int, limit: int) -> tuple[memoryview, int]:
        """Return whole frames as they lie in the log, and the length of the padding behind them.

        Nothing is taken: the caller moves the position with `_take` when it has used the block. A
        padding frame ends the block: the block includes its header, and the second value is the
        rest of its length.

        Args:
            position: Where to begin: at the image's own position, or at the end of another block.
            limit: Most bytes; a block never leaves its term.

        Source: Aeron `Image.blockPoll`, `Image.rawPoll`.
        """
        if self._is_closed:
            return NO_BLOCK, 0
        self._look_up_trigger()
        if self.is_closed:
            return NO_BLOCK, 0
        log = self._log
        index = (position >> log.position_bits) % PARTITION_COUNT
        offset = position & self._term_mask
        available, padding = scan_for_send(
            log.terms[index],
            log.term_words[index],
            offset,
            limit=min(limit, self._port.readable_position(position) - position),
        )
        return log.terms[index][offset : offset + available], padding

    def _look_up_trigger(self) -> None:
        """Read the driver's trigger; notify the driver if the position is beyond it already."""
        position = self._position
        # Once for a position: a driver that waits for another reader would answer by waking this
        # one, which would notify it again, and so on without end.
        if position > self._port.consumption_trigger and position != self._told_position:
            self._told_position = position
            self._wake_flag.set()
        self._move_trigger()

    def _move_trigger(self) -> None:
        """Read the driver's next trigger, after the driver was notified."""
        self._trigger = self._port.consumption_trigger
        if self._begun is not None and self._begun.position <= self._position:
            self._begun = None
        if self._position > self._trigger:
            # The trigger may be passed at any position: do not notify the driver of every message.
            self._trigger = self._position + (self.term_length >> TELLING_SHIFT)

    def _has_closed(self) -> bool:
        """Return whether the image is closed by now: the driver may have waited only for a take."""
        return self._is_closed

    def _read_on(self, limit: int, end_position: int) -> Batch[Message] | None:
        """Return whole frames behind what was read and not taken; None if nothing is there.

        The batch is empty if something else follows: the end of the term, or a fragment. Nothing is
        taken, so that this is not passed.
        """
        reader = self._reader
        position = reader.position
        limit_position = min(self._port.readable_position(position), end_position)
        if limit_position <= position:
            return None if position < end_position else NOTHING_MORE
        batch = reader.open_batch(limit=limit, limit_position=limit_position, image=self)
        if not batch.left:
            self._read_again(position)
        return batch

    @property
    def _read_position(self) -> int:
        """Return the position behind what was read, whether it was taken or not, in bytes."""
        return self._reader.position

    def _rewind(self, left: int = 0) -> None:
        """Move the reader back to the position, so that what lies beyond it is read again.

        `left` messages of that had been counted.
        """
        if self._is_closed:
            # Its subscription has its count by now, and nobody reads these messages any more.
            self.subscription._listener.gone_count -= left  # noqa: SLF001 - two halves of one reader
            return
        self._message_count -= left
        begun = self._begun
        is_left = begun is not None and begun.position > self._position
        self._read_again(begun.position if begun is not None and is_left else self._position)

    def _forget_begun(self) -> None:
        if self._begun is not None:
            self._begun = None
            self._rewind()

    def _read_again(self, position: int) -> None:
        """Move the reader back to a position: the start of a message that was read."""
        self._discarded_before += self._reader.discarded_fragments
        self._reader = TermReader(self._log, position)

    def _term_at(self, position: int) -> memoryview:
        """Return the term of what ends at a position."""
        log = self._log
        return log.terms[((position - 1) >> log.position_bits) % PARTITION_COUNT]

    def _mark_closed(self, end: ImageEnd | None = None) -> None:
        """Close the image and stop using its log, which is about to be freed.

        Args:
            end: Why and where it ended, if the driver knows.
        """
        if not self._is_closed:
            # Closing the subscription does not change why a stream ended that was taken whole.
            end = self.end if end is None else end
            self._last = LastSaid.of(self._metadata)
            self._is_closed = True
            self._begun = None
            self._end = ImageEnd.at(self._end_reason(), self._position) if end is None else end

    def _on_forked(self) -> None:
        """Close the image in a child process, which must not touch its log."""
        self._is_closed = True
        if self._end is None:
            self._end = ImageEnd.at(ImageEndReason.CLOSED, self._position)

    def _end_reason(self) -> ImageEndReason:
        """Return why the image ended, as far as the image itself can tell."""
        if self.subscription.is_closed:
            return ImageEndReason.CLOSED
        if self._last.is_publication_revoked:
            return ImageEndReason.REVOKED
        if self._last.end_of_stream_position != END_OF_STREAM_UNKNOWN:
            return ImageEndReason.END_OF_STREAM
        return ImageEndReason.LEFT_BEHIND

    async def reject(self, reason: str) -> None:
        """Receive nothing more of this stream, and send its publisher the reason.

        The publication reports the reason, and no longer counts this receiver. After the image
        liveness timeout the image ends. A new image may follow with `rejoin=true`, or when the
        publisher sends again after it was silent.

        Args:
            reason: Up to 1023 bytes of UTF-8.

        Raises:
            ConfigurationError: The reason is no text, or too long.
            RegistrationError: The driver no longer has the image.
            ClosedError: The subscription was closed, before or during the call.
        """
        await self.subscription._reject_image(self, reason)

    @property
    def correlation_id(self) -> int:
        """Return the id that a response publication gives as its `response-correlation-id`."""
        return self.image_id

    def __aiter__(self) -> Self:
        self.subscription._begin_iteration()
        return self

    async def __anext__(self) -> Message:
        """Return the next message of this image; the iteration ends with the stream."""
        return await self.subscription._next_of(self)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "open"
        return (
            f"<Image of session {self.session_id}, stream {self.stream_id} from "
            f"{self.source_identity} at position {self._position}, {state}>"
        )


MAX_EVENTS: Final = 1024
"""Most events that one iterator keeps until its consumer asks for them."""


TAKEN: Final = (
    "the batch was taken when the next one was asked for: keep payloads() or list(batch), and not "
    "the batch"
)
NOT_IN_CHILD: Final = "the batch lies in a log that a forked child process does not have"


@final
class MessageBatch(Sequence["Message"]):
    """Messages of one image, in order, which are made when they are asked for.

    `payloads()` is the fastest way to take all. The batch is taken when the next one is asked for:
    it then refuses everything but its length. Keep `payloads()` or `list(batch)`, not the batch.

    Attributes:
        image: The image that they came from.
    """

    __slots__ = ("_batch", "_count", "_end_position", "_gone", "_handed", "_made", "image")

    def __init__(self, batch: Batch[Message]) -> None:
        self.image: Image = batch.image
        self._batch: Batch[Message] | None = batch
        self._count = batch.left
        self._made: dict[int, Message] = {}
        self._handed: list[Batch[Message]] = []
        self._gone = TAKEN
        self._end_position: int = self.image._read_position

    @property
    def session_id(self) -> int:
        """Return the session id of the publication they came from."""
        return self.image.session_id

    @property
    def stream_id(self) -> int:
        """Return the stream id they came on."""
        return self.image.stream_id

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: SupportsIndex) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...

    def __getitem__(self, index: SupportsIndex | slice) -> Message | list[Message]:
        batch, made = self._lying(), self._made
        if type(index) is not int or not 0 <= index < self._count:
            place = range(self._count)[index]
            if isinstance(place, range):
                if not made and len(place) == self._count:
                    made.update(enumerate(batch.again().rest()))
                return [made[each] if each in made else self[each] for each in place]
            index = place
        if (message := made.get(index)) is None:
            if (message := batch.at(index)) is None:
                raise IndexError(index)
            made[index] = message
        return message

    def __iter__(self) -> Iterator[Message]:
        batch = self._lying().again()
        self._handed.append(batch)
        made, messages = self._made, iter(batch.following, None)
        try:
            for message in map(made.get, range(self._count), messages) if made else messages:
                yield message
                self._lying()
        finally:
            self._handed.remove(batch)

    def payloads(self) -> list[bytes]:
        """Return a copy of each payload.

        Raises:
            ClosedError: The batch was taken.
        """
        return self._lying().payloads()

    def views(self) -> list[memoryview]:
        """Return a read-only view of each payload where it lies.

        The views are valid until the batch is taken, or its image closes. Nothing enforces that:
        later the publisher may overwrite what a view shows, and in a forked child process there may
        be no memory. A message that was put together from fragments has a view of a copy.

        Raises:
            ClosedError: The batch was taken.
        """
        batch = self._lying()
        places = batch.places()
        if places is None:
            return [memoryview(payload) for payload in batch.payloads()]
        # The log has other readers, and may be that of the publisher.
        term = self.image._term_at(self._end_position).toreadonly()
        return [term[start : start + length] for start, length in places]

    def positions(self) -> array[int]:
        """Return where each message ends in its stream, in bytes.

        Raises:
            ClosedError: The batch was taken.
        """
        return self._numbers(1)

    def sessions(self) -> array[int]:
        """Return the session id of each message: that of the image, which they all have in common.

        Raises:
            ClosedError: The batch was taken.
        """
        self._lying()
        return array("i", [self.session_id]) * self._count

    def reserved_values(self) -> array[int]:
        """Return the publisher's own 64 bits of each message.

        Raises:
            ClosedError: The batch was taken.
        """
        return self._numbers(2)

    def to_arrow(self) -> RecordBatch:
        """Return a copy as a `pyarrow.RecordBatch`.

        Its columns are position (int64), session_id and stream_id (int32), reserved_value (int64)
        and payload (large_binary).

        Raises:
            ClosedError: The batch was taken.
            ConfigurationError: pyarrow is not installed.
        """
        from aeron_async.client import arrow  # noqa: PLC0415 - needs an extra

        ids = self.session_id, self.stream_id
        capsules = arrow.exported(self._lying(), *ids)
        if capsules is None:
            return arrow.record_batch(columns_of(self._lying()), *ids)
        return arrow.imported(capsules)

    def __arrow_c_array__(self, requested_schema: object = None) -> Capsules:
        """Return a copy for a library that takes arrays over: `nanoarrow.Array(batch)`.

        Raises:
            ClosedError: The batch was taken.
            ConfigurationError: pyarrow is needed and not installed: without compiled code, for a
                message of several fragments, for an image that has closed, or for another schema.
        """
        from aeron_async.client import arrow  # noqa: PLC0415 - used by few

        if requested_schema is None:
            capsules = arrow.exported(self._lying(), self.session_id, self.stream_id)
            if capsules is not None:
                return capsules
        return cast("Capsules", self.to_arrow().__arrow_c_array__(requested_schema))

    def __repr__(self) -> str:
        state = "taken" if self._batch is None else f"session {self.session_id}"
        return f"<MessageBatch of {self._count} messages, {state}>"

    def _lying(self) -> Batch[Message]:
        """Return the messages as they lie in the log."""
        if self._batch is None:
            raise ClosedError(self._gone)
        return self._batch

    def _numbers(self, column: int) -> array[int]:
        count, *columns = columns_of(self._lying(), with_payloads=False)
        return array("q", memoryview(columns[column]).cast("B")[: 8 * count].tobytes())

    # For the subscription.

    def _extend(self, more: Batch[Message]) -> bool:
        """Add what was read on, before anybody has the batch; return whether that was possible."""
        batch = self._lying()
        if not more.left:
            return False
        if not batch.extend(more):
            self.image._read_again(self._end_position)
            return False
        self.image._message_count += batch.left - self._count  # noqa: SLF001 - a part of its image
        self._count = batch.left
        self._end_position = self.image._read_position
        return True

    def _keep(self) -> None:
        """Copy what is still in the log, which is about to be freed."""
        if self._batch is not None:
            for batch in (self._batch, *self._handed):
                batch.keep()
            self._count = self._batch.left

    def _on_forked(self) -> None:
        """Let go of the log, which a child process does not have."""
        self._batch, self._gone = None, NOT_IN_CHILD

    def _length(self) -> int:
        """Return how many bytes of the log taking the batch frees."""
        return self._end_position - self.image.position

    def _take(self) -> bool:
        """Move the image's position behind the batch, and let go of the log.

        Returns:
            Whether the driver was woken, and has not answered yet.
        """
        self._batch = None
        image = self.image
        image._take(self._end_position)
        return image.position > image._trigger  # noqa: SLF001 - a batch is a part of its image

    def _put_back(self) -> None:
        """Let go of the log, and leave the messages to the next reader."""
        self._batch = None
        self.image._rewind(self._count)


@final
class ImageEventKind(Enum):
    """Kinds of image events."""

    AVAILABLE = auto()
    UNAVAILABLE = auto()
    UNANSWERED = auto()
    """For a subscription for responses: the image has ended or become silent, and for two seconds
    the server has named no session to follow it. `Subscription.last_error` says why."""


class ImageEvent(NamedTuple):
    """An image that has come, gone, or become silent."""

    kind: ImageEventKind
    image: Image

    @property
    def end(self) -> ImageEnd | None:
        """Return why and where an image that has gone has ended; None for any other event."""
        return self.image.end if self.kind is ImageEventKind.UNAVAILABLE else None

    @property
    def reason(self) -> ImageEndReason | None:
        """Return why an image that has gone has ended; None for any other event."""
        end = self.end
        return None if end is None else end.reason


@final
class ImageEvents:
    """An iterator over the image events of one subscription; ends when the subscription closes.

    An iterator that is no longer referenced gets no more events. To end it earlier, use
    `async with` or `aclose`.

    Args:
        listeners: The iterators of the subscription; this one adds and removes itself.
        subscription: The subscription.

    Attributes:
        missed_count: How many events were dropped, oldest first, because more than 1024 waited.
    """

    def __init__(self, listeners: WeakSet[ImageEvents], subscription: SubscriptionBase) -> None:
        self._listeners = listeners
        self._subscription = subscription
        self._queue: deque[ImageEvent] = deque()
        self._arrived = Notify()
        self._is_closed = False
        self.missed_count: int = 0
        listeners.add(self)

    def put(self, event: ImageEvent) -> None:
        """Add an event."""
        if len(self._queue) >= MAX_EVENTS:
            self._queue.popleft()
            self.missed_count += 1
        self._queue.append(event)
        self._arrived.notify()

    def close(self) -> None:
        """End the iteration after the events that wait already."""
        self._is_closed = True
        self._listeners.discard(self)
        self._arrived.notify()

    async def aclose(self) -> None:
        """End the iteration now, and drop the events that wait."""
        self._queue.clear()
        self.close()
        await asyncio.sleep(0)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ImageEvent:
        """Return the next event, waiting for it; a long wait without any image is logged."""
        if not self._queue and not self._is_closed:
            await self._wait()
        if not self._queue:
            raise StopAsyncIteration
        return self._queue.popleft()

    async def _wait(self) -> None:
        """Wait for an event, or for the end of the iteration."""
        subscription, waits = self._subscription, self._subscription._waits
        started_ns = waits.now_ns()
        wait = Wait(
            subscription,
            "image_events",
            lambda: None if subscription.is_connected else started_ns,
        )
        if subscription.logs_waits and not subscription.is_connected:
            waits.begin(wait)
        try:
            while not self._queue and not self._is_closed:
                await self._arrived.wait()
        finally:
            waits.end(wait)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()
