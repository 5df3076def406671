"""Images: one source of a subscription, what it delivers, and when it comes and goes.

Invariant: the position of an `Image` moves after the application has taken a message, never before,
so that flow control follows what was processed and not what was delivered.

The reader of a log makes a `Message`, and knows no images: only the types say here what it carries.

Source: Aeron `Header`, `FragmentHandler`, `Image`, `AvailableImageHandler`,
`UnavailableImageHandler`.
"""

from __future__ import annotations

import asyncio
from asyncio import iscoroutine
from collections import deque
from enum import Enum, auto
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    NamedTuple,
    Self,
    final,
)

from aeron_async._speedups import WHY_PURE
from aeron_async.client.arguments import check_limit
from aeron_async.client.waiters import Signal, Wait
from aeron_async.driver.commands import ImageEnd, ImageEndReason
from aeron_async.errors import ConfigurationError
from aeron_async.logbuffer.message import Batch
from aeron_async.logbuffer.message import Message as LogMessage
from aeron_async.logbuffer.metadata import END_OF_STREAM_UNKNOWN
from aeron_async.logbuffer.position import PARTITION_COUNT
from aeron_async.logbuffer.reader import TermReader
from aeron_async.logbuffer.scanner import scan_for_send
from aeron_async.protocol.arguments import awaited_by_nobody, check_function
from aeron_async.protocol.header import DataFlags

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from weakref import WeakSet

    from aeron_async.client.subscription import Subscription, SubscriptionBase
    from aeron_async.driver.commands import ImageReady
    from aeron_async.logbuffer.wake_flag import Doorbell

__all__ = [
    "FragmentHeader",
    "Image",
    "ImageEvent",
    "ImageEventKind",
    "ImageEvents",
    "Message",
    "Taking",
]


class Taking:
    """How far the application has taken a source.

    Attributes:
        _position: Up to where, in bytes.
        _trigger: Beyond this position the driver wants to know at once, in bytes.
        _is_closed: Whether the source is over, and its position no longer ours to move.
    """

    _position: int
    _trigger: int
    _is_closed: bool

    def _attach(self, cell: Any, doorbell: Doorbell) -> None:
        """Take where the position is shown, and whom to wake."""
        self._cell = cell
        self._doorbell = doorbell

    def _take(self, position: int) -> None:
        """Move the position: the application has taken everything before it."""
        if position <= self._position or self._is_closed:
            return
        self._position = position
        self._cell[0] = position
        if position > self._trigger:
            self._doorbell.ring()
            if not self._doorbell.is_rung:
                # Answered at once: the driver has said what was to be said, and waits for the next.
                self._move_trigger()

    def _move_trigger(self) -> None:
        """Ask where the driver wants to hear of progress next."""
        raise NotImplementedError


if not TYPE_CHECKING and WHY_PURE is None:
    from aeron_async._speedups.paths import Taking


@final
class FragmentHeader:
    """What is known of one fragment; the same object every time, so copy what is to be kept.

    Attributes:
        position: Where the fragment ends in its stream, in bytes, alignment included.
        flags: Whether it begins or ends a message.
        reserved_value: What the publisher put beside it.
        image: The source it came from.
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
            data: The payload, a copy of its own.
            position: Where the message ends in its stream, in bytes.
            reserved_value: What the publisher put beside it; 0 by default.
            image: The source it came from.
        """

        image: Image

    FragmentHandler = Callable[[memoryview, FragmentHeader], object]
else:
    Message = LogMessage


TELLING_SHIFT: Final = 6
"""A driver that wants to hear of any progress hears of every 64th of a term."""


READ_AHEAD_LENGTH: Final = 256 * 1024
"""Bytes that are read at once, but for a message that is longer: copying holds the loop up."""


NO_BLOCK: Final = memoryview(b"")


class ImageClosedByHandlerError(Exception):
    """Ends a poll whose handler has closed what it reads; never leaves this module."""


class HandlerNotAwaitedError(Exception):
    """Ends a poll whose handler has made a coroutine; never leaves this module."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


@final
class Image(Taking):
    """One publication as a subscription receives it.

    Attributes:
        session_id: Of the publication.
        stream_id: Of the subscription.
        join_position: Where this subscription came in, in bytes.
        source_identity: Where the stream comes from, as `host:port`; `aeron:ipc` where that is this
            very driver.
        subscription: Who reads it.
        end: Why and where it ended; None for as long as it is open.
    """

    def __init__(self, subscription: Subscription, ready: ImageReady) -> None:
        self.subscription = subscription
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
        self._discarded_before = 0
        self._header = FragmentHeader(self)
        self._position = ready.join_position
        # Not known before the first read, which looks it up.
        self._trigger = self._rung_position = -1
        self._attach(ready.position.cell, ready.doorbell)
        self._is_closed = self._is_revoked = False
        self.end: ImageEnd | None = None
        self._end_of_stream_position = END_OF_STREAM_UNKNOWN

    @property
    def position(self) -> int:
        """Return up to where the application has taken the stream, in bytes."""
        return self._position

    @property
    def is_closed(self) -> bool:
        """Return whether the image is over: ended, lost, or its subscription closed."""
        return self._is_closed

    @property
    def end_of_stream_position(self) -> int | None:
        """Return where the stream ends, in bytes, once the publisher has said so."""
        end = self._end_of_stream_position
        if not self._is_closed:
            end = self._metadata.end_of_stream_position
        return None if end == END_OF_STREAM_UNKNOWN else end

    @property
    def is_end_of_stream(self) -> bool:
        """Return whether the stream has ended, and everything of it has been taken."""
        end = self.end_of_stream_position
        return end is not None and self._position >= end

    @property
    def is_publication_revoked(self) -> bool:
        """Return whether the publisher took the stream back: what was not read yet is lost."""
        return self._is_revoked if self._is_closed else self._metadata.is_publication_revoked

    @property
    def discarded_fragments(self) -> int:
        """Return how many fragments belonged to no message that was received whole."""
        return self._discarded_before + self._reader.discarded_fragments

    @property
    def is_let_go(self) -> bool:
        """Return whether the stream has gone on without this image.

        What was peeked at and not copied by then may have been written over. Only images with
        `tether=false` are let go, some time after they were closed.
        """
        return self._hold.left_count != self._left_count

    def poll(self, handler: FragmentHandler, fragment_limit: int = 10) -> int:
        """Call a handler with each fragment that is there, without waiting; return how many.

        An exception of the handler reaches the caller; the position has then passed its fragment.
        A handler may close the subscription; it is then not called again.

        Args:
            handler: Called with the payload, a view that is valid until it returns, and a header
                that is the same object every time.
            fragment_limit: Most fragments to deliver; 1 or more.

        Raises:
            ConfigurationError: The handler cannot be called or is an `async def`, or the limit is
                no whole number of 1 or more; no fragment was taken by that.
            BusyError: Another task consumes the subscription.
            WrongLoopError: The subscription belongs to another event loop.
        """
        if type(fragment_limit) is not int or fragment_limit < 1:
            fragment_limit = check_limit(fragment_limit, "fragment_limit")
        check_function(handler, "handler")
        if self._is_closed:
            return 0
        self.subscription._begin_poll()
        self._look_up_trigger()
        if self.is_closed:
            return 0
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
                # It has not been taken: nobody has awaited what was to take it.
                raise HandlerNotAwaitedError(position - (len(payload) + 63 & -32))
            if self._is_closed:
                # The log is about to go, and the reader would look at the next frame.
                raise ImageClosedByHandlerError

        try:
            self._reader.poll(
                deliver,
                fragment_limit=fragment_limit,
                limit_position=self._port.rebuild_position,
            )
        except ImageClosedByHandlerError:
            pass
        except HandlerNotAwaitedError as error:
            self._take(error.position)
            if not self._is_closed:
                self._rewind()
            raise ConfigurationError(awaited_by_nobody("handler")) from None
        finally:
            self._take(self._reader.position)
        return count

    def _read(self, limit: int) -> Batch[Message] | None:
        """Return whole messages that are there; their positions are to be taken by the caller."""
        if self._is_closed:
            return None
        self._look_up_trigger()
        reader, port = self._reader, self._port
        position = reader.position
        # What was told just now may have been all that the driver waited for.
        if self._has_closed() or port.rebuild_position <= position == self._position:
            return None
        # Differs: Aeron reads on wherever there is something. What the receiver has not yet found
        # to follow without a gap may be what a damaged or forged datagram left there.
        limit_position = port.rebuild_position
        end_position = min(limit_position, position + READ_AHEAD_LENGTH)
        batch = reader.open_batch(limit=limit, limit_position=end_position, image=self)
        if batch.left:
            return batch
        found: list[Message] = []
        end_position = min(limit_position, reader.position + READ_AHEAD_LENGTH)
        while not reader.read_messages(found, limit=limit, limit_position=end_position, image=self):
            # Padding, or fragments of a message not yet whole, may be all there was: move past.
            position = reader.position
            is_at_next_term = position != self._position and not position & self._term_mask
            self._take(position)
            if self._has_closed():
                return None
            if end_position < limit_position:
                # A message, or what is left of it, is longer than what is read ahead.
                end_position = min(limit_position, end_position + READ_AHEAD_LENGTH)
            # One read never leaves its term. The next one may hold all that the window allows, and
            # then nothing more arrives that would wake the reader.
            elif not is_at_next_term:
                return None
        return Batch(found, self)

    def _peek_block(self, position: int, limit: int) -> tuple[memoryview, int]:
        """Return whole frames as they lie in the log, and how far padding behind them goes.

        Nothing is taken: `take` moves the position, when the block is needed no more. A padding
        frame is there with its header, ends the block, and the rest of its length is the second
        value.

        Args:
            position: Where to begin: at the image's own position, or behind another block.
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
            limit=min(limit, self._port.rebuild_position - position),
        )
        return log.terms[index][offset : offset + available], padding

    def _look_up_trigger(self) -> None:
        """Ask where the driver wants to hear of progress, and tell it if that is here already."""
        position = self._position
        # Once for a position: a driver that was told of it and waits for another reader would tell
        # this one that there may be more, be told again, and so on without a pause.
        if position > self._port.consumption_trigger and position != self._rung_position:
            self._rung_position = position
            self._doorbell.ring()
        self._move_trigger()

    def _move_trigger(self) -> None:
        """Ask where the driver wants to hear of progress next, having told it of what there was."""
        self._trigger = self._port.consumption_trigger
        if self._position > self._trigger:
            # It may have no place at all, and then it is not told of every message.
            self._trigger = self._position + (self.term_length >> TELLING_SHIFT)

    def _has_closed(self) -> bool:
        """Return whether it has closed meanwhile: taking may be all that the driver waited for."""
        return self._is_closed

    def _rewind(self) -> None:
        """Forget what was read beyond the position, so that it is read again."""
        self._discarded_before += self._reader.discarded_fragments
        self._reader = TermReader(self._log, self._position)

    def _mark_closed(self, end: ImageEnd | None = None) -> None:
        """Touch the log no more: it is about to go.

        Args:
            end: Why, where the driver says so.
        """
        if not self._is_closed:
            self._end_of_stream_position = self._metadata.end_of_stream_position
            self._is_revoked = self._metadata.is_publication_revoked
            self._is_closed = True
            self.end = ImageEnd.at(self._end_reason(), self._position) if end is None else end

    def _end_reason(self) -> ImageEndReason:
        """Return why it is over, as far as that can be told from here."""
        if self.subscription.is_closed:
            return ImageEndReason.CLOSED
        if self._is_revoked:
            return ImageEndReason.REVOKED
        if self._end_of_stream_position != END_OF_STREAM_UNKNOWN:
            return ImageEndReason.END_OF_STREAM
        return ImageEndReason.LEFT_BEHIND

    async def reject(self, reason: str) -> None:
        """Take nothing more of this source, and tell it why; it comes back when it was silent.

        Its publications hear of the reason, and count this receiver no more. After the image
        liveness timeout the image ends; with `rejoin=true` a new one may follow.

        Args:
            reason: Up to 1023 bytes of UTF-8.

        Raises:
            ConfigurationError: The reason is no text, or too long.
            RegistrationError: The image has gone.
            ClosedError: The subscription was closed, before or meanwhile.
        """
        await self.subscription._reject_image(self, reason)

    @property
    def correlation_id(self) -> int:
        """Return the id that a response to this source names it by."""
        return self.image_id

    def __aiter__(self) -> Self:
        self.subscription._begin_iteration()
        return self

    async def __anext__(self) -> Message:
        """Return the next message of this source; the iteration ends with the stream."""
        return await self.subscription._next_of(self)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "open"
        return (
            f"<Image of session {self.session_id}, stream {self.stream_id} from "
            f"{self.source_identity} at position {self._position}, {state}>"
        )


MAX_EVENTS: Final = 1024
"""Events that one iterator keeps for a consumer that does not come for them."""


@final
class ImageEventKind(Enum):
    """Whether an image has come or gone."""

    AVAILABLE = auto()
    UNAVAILABLE = auto()
    UNANSWERED = auto()
    """Of a subscription for responses: its image has ended or fallen silent, and for two seconds
    its server has named no session to follow it. `Subscription.last_error` says so, too."""


class ImageEvent(NamedTuple):
    """An image that has come or gone, or fallen silent."""

    kind: ImageEventKind
    image: Image

    @property
    def end(self) -> ImageEnd | None:
        """Return why and where an image that has gone ended: the reason, and the positions."""
        return self.image.end if self.kind is ImageEventKind.UNAVAILABLE else None

    @property
    def reason(self) -> ImageEndReason | None:
        """Return why an image that has gone ended; None of any other event."""
        end = self.end
        return None if end is None else end.reason


@final
class ImageEvents:
    """An iterator over the images of one subscription; it ends when the subscription closes.

    One that is dropped hears no more; `async with`, or `aclose`, ends it at a place of one's own.

    Args:
        listeners: Where the subscription finds those to tell; this one adds and removes itself.
        subscription: Whose images they are.

    Attributes:
        missed_count: Oldest events given up because more than 1024 waited.
    """

    def __init__(self, listeners: WeakSet[ImageEvents], subscription: SubscriptionBase) -> None:
        self._listeners = listeners
        self._subscription = subscription
        self._queue: deque[ImageEvent] = deque()
        self._signal = Signal()
        self._is_closed = False
        self.missed_count: int = 0
        listeners.add(self)

    def put(self, event: ImageEvent) -> None:
        """Add an event."""
        if len(self._queue) >= MAX_EVENTS:
            self._queue.popleft()
            self.missed_count += 1
        self._queue.append(event)
        self._signal.ring()

    def close(self) -> None:
        """End the iteration after the events that are there."""
        self._is_closed = True
        self._listeners.discard(self)
        self._signal.ring()

    async def aclose(self) -> None:
        """End the iteration now, whatever is still there."""
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
        """Wait for an event, or for the end."""
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
                await self._signal.wait()
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
