"""Lag: how far a reader is behind the newest data that is here, and how to skip to that.

Inside an image a reader may move its position forward to where the log is complete, which is the
start of a frame. What it passes is never delivered. That gains one receiver window at most: what is
newer has not arrived, because the window was full. With an over-run the image ends, and the stream
is joined again; see `over_run_rejoin_interval_ns`.

Source: Aeron `Image.position(long)`, which releases after 1.52 no longer have.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Protocol, Self, TypeVar, final

from aeron_async.client.arguments import check_limit
from aeron_async.client.reading import Taking
from aeron_async.errors import ConfigurationError, LaggedError
from aeron_async.logbuffer.message import Message
from aeron_async.logbuffer.position import PARTITION_COUNT
from aeron_async.logbuffer.scanner import scan_for_send

if TYPE_CHECKING:
    from aeron_async.driver.commands import ImageEnd, ImagePort
    from aeron_async.logbuffer.log_buffers import LogBuffers
    from aeron_async.logbuffer.reader import TermReader

__all__ = ["LagLimit", "LagReader", "LagReading", "OnLag", "Skipping"]

MessageT = TypeVar("MessageT", bound=Message)

OnLag = Literal["wait", "skip", "raise"]
"""What a reader does that is too far behind: read on, skip to the newest data, or raise."""
ON_LAG: Final = ("wait", "skip", "raise")
MAX_LAG_BYTES: Final = 64 * 1024
"""How far a reader may be behind by default: half of Aeron's default receiver window."""


class Skipping(Taking):
    """The part of an image that looks and moves ahead of what was read."""

    subscription: Any
    _port: ImagePort
    _log: LogBuffers
    _reader: TermReader
    _begun: Any
    skipped_bytes: int = 0
    """How much of the stream was skipped on demand, in bytes."""

    @property
    def lag_bytes(self) -> int:
        """Return how many bytes are here that the application has not taken, headers included."""
        return 0 if self._is_closed else max(0, self._newest_position() - self._position)

    def skip_to_newest(self) -> int:
        """Skip what has arrived and was not taken; return how many bytes of the stream that was.

        The message delivered last is taken. A message of which only a part has arrived is dropped
        as a whole, and its fragments count in `discarded_fragments`.

        Raises:
            BusyError: Another task consumes the subscription.
            WrongLoopError: The subscription belongs to another event loop.
        """
        self.subscription._begin_poll()
        return self._skip()

    def _skip(self) -> int:
        """Do what `skip_to_newest` does, after `_begin_poll`."""
        if self._is_closed:
            return 0
        before, position = self._position, self._newest_position()
        if position <= before:
            return 0
        self._begun = None
        self._reader.drop_begun()
        self._read_again(position)
        # Taking may notify the driver, and what it then does may close the image.
        self.skipped_bytes += position - before
        self.subscription._note_skip(self, position)  # noqa: SLF001 - two halves of one reader
        self._take(position)
        return position - before

    def _read_again(self, position: int) -> None:
        """Move the reader to a position where a frame starts."""
        raise NotImplementedError

    def _newest_position(self) -> int:
        """Return up to where the log is complete, in bytes."""
        if not self.subscription._is_watched:
            return self._port.readable_position(self._position)
        # A driver in another process does not say; the frames do.
        log, position = self._log, self._position
        while (limit := self._port.readable_position(position)) > position:
            index = (position >> log.position_bits) % PARTITION_COUNT
            offset = position & (log.term_length - 1)
            available, padding = scan_for_send(
                log.terms[index], log.term_words[index], offset, limit=limit - position
            )
            if not available:
                break
            position += available + padding
        return position


class ReadImage(Protocol):
    """The part of an image that is needed by a reader of its subscription.

    It names neither images nor subscriptions: no three modules are to need each other.
    """

    session_id: int
    image_id: int
    join_position: int
    mtu_length: int
    term_length: int
    _log: LogBuffers

    @property
    def _is_reliable(self) -> bool: ...

    @property
    def position(self) -> int: ...

    @property
    def is_closed(self) -> bool: ...

    @property
    def end(self) -> ImageEnd | None: ...

    def _newest_position(self) -> int: ...

    def _rewind(self, left: int, /) -> None: ...

    def _skip(self) -> int: ...


class LagReading(Protocol[MessageT]):
    """The part of a subscription that a reader with a limit needs."""

    channel: str
    stream_id: int

    def _begin_iteration(self) -> None: ...

    def _begin_poll(self) -> None: ...

    def _hand_back(self, message: MessageT, /) -> bool: ...

    async def __anext__(self) -> MessageT: ...


@final
class LagLimit(Generic[MessageT]):
    """How far a reader may be behind, and what it does then.

    Raises:
        ConfigurationError: An argument is not valid.
    """

    __slots__ = ("_max_lag_bytes", "_on_lag", "_subscription")

    def __init__(
        self, subscription: LagReading[MessageT], on_lag: OnLag, max_lag_bytes: int
    ) -> None:
        if on_lag not in ON_LAG:
            message = f'on_lag is {on_lag!r:.100}: "wait", "skip" or "raise" is valid'
            raise ConfigurationError(message)
        self._subscription = subscription
        self._on_lag = on_lag
        self._max_lag_bytes = check_limit(max_lag_bytes, "max_lag_bytes")

    def admits(self, message: MessageT) -> bool:
        """Return whether to deliver a message; if not, it was skipped with all that is here.

        Raises:
            LaggedError: The reader is too far behind; the message comes again.
        """
        if self._on_lag == "wait":
            return True
        image: ReadImage = message.image
        limit = self._max_lag_bytes
        if image.is_closed:
            return True
        lag_bytes = image._newest_position() - message.position  # noqa: SLF001 - its reader
        if lag_bytes <= limit:
            return True
        subscription = self._subscription
        if self._on_lag == "skip":
            if not subscription._hand_back(message):  # noqa: SLF001 - its reader
                return True
            image._skip()  # noqa: SLF001 - its reader
            return False
        subscription._hand_back(message)  # noqa: SLF001 - its reader
        text = (
            f"the reader of stream {subscription.stream_id} on {subscription.channel}, session "
            f"{image.session_id}, is {lag_bytes} bytes behind, and may be {limit}: read faster, "
            "raise max_lag_bytes, or call skip_to_newest() and read on"
        )
        raise LaggedError(text, lag_bytes=lag_bytes, max_lag_bytes=limit)


@final
class LagReader(AsyncIterator[MessageT], Generic[MessageT]):
    """What `Subscription.reading` returns: single messages, as long as the reader keeps up."""

    def __init__(self, subscription: LagReading[MessageT], limit: LagLimit[MessageT]) -> None:
        self._subscription = subscription
        self._limit = limit

    def __aiter__(self) -> Self:
        self._subscription._begin_iteration()
        return self

    async def __anext__(self) -> MessageT:
        """Wait for the next message and return it; iteration ends when the subscription closes.

        Raises:
            LaggedError: With `on_lag="raise"`, the reader is too far behind; call
                `skip_to_newest`, or go on reading with another iterator.
            BusyError: Another task consumes the subscription.
            ClosedError: The driver failed.
            WrongLoopError: The subscription belongs to another event loop.
        """
        while True:
            message = await self._subscription.__anext__()
            if self._limit.admits(message):
                return message
