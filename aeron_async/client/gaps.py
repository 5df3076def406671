"""Messages with the gaps between them: where the stream of a session did not continue, and why.

A `Gap` comes before the first message behind it. It is found in three ways:

- an image ends, and the session is joined again further on, or another session takes its place;
- the driver has filled a hole with padding (`reliable=false`) and marked that padding;
- the application has skipped.

A driver of Aeron's own marks no padding, so there the gaps of `reliable=false` are not found.

Invariant: for one session, messages and gaps touch: each begins where the one before ends, but for
padding of the publisher.

Invariant: sessions come from the network, so only a bounded number is remembered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Generic, Protocol, Self, TypeVar, final

import attrs

from aeron_async.driver.commands import ImageEndReason
from aeron_async.logbuffer.frame import HEADER, TYPE_SHIFT
from aeron_async.logbuffer.message import Message
from aeron_async.logbuffer.position import PARTITION_COUNT
from aeron_async.logbuffer.rebuilder import FILLED
from aeron_async.protocol.header import align_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aeron_async.client.lag import LagLimit, ReadImage
    from aeron_async.driver.commands import ImageEnd
    from aeron_async.logbuffer.log_buffers import LogBuffers
    from aeron_async.logbuffer.message import Batch

__all__ = ["SKIPPED", "Gap", "GapCause", "GapReader"]

MessageT = TypeVar("MessageT", bound=Message)


@final
class GapCause(Enum):
    """Why messages are missing."""

    OVER_RUN = auto()
    """The source sent further ahead than this receiver had room for, and did not wait for it."""
    LEFT_BEHIND = auto()
    """The stream continued without this reader, which was too slow: it has `tether=false`, or did
    not read at all."""
    UNFILLED = auto()
    """Lost data was not resent: by choice (`reliable=false`), or not in time."""
    SKIPPED = auto()
    """The application skipped to the newest data."""
    SILENT = auto()
    """The source was silent for the image liveness timeout; then it was heard again."""
    REVOKED = auto()
    """The publisher revoked the stream: what was not read by then is lost."""
    NEW_SESSION = auto()
    """Another session has come after one that ended without an end of its stream."""
    LATE_JOIN = auto()
    """The stream had begun before it was joined."""
    CONTRADICTED = auto()
    """The publisher says that it sent different data: what was read before is in doubt, too."""
    FAILED = auto()
    """Something failed in this driver."""


CAUSES: Final[Mapping[ImageEndReason, GapCause]] = {
    ImageEndReason.END_OF_STREAM: GapCause.LATE_JOIN,
    ImageEndReason.REVOKED: GapCause.REVOKED,
    ImageEndReason.SOURCE_SILENT: GapCause.SILENT,
    ImageEndReason.GAP_UNFILLED: GapCause.UNFILLED,
    ImageEndReason.OVER_RUN: GapCause.OVER_RUN,
    ImageEndReason.CONTRADICTED: GapCause.CONTRADICTED,
    ImageEndReason.SUPERSEDED: GapCause.NEW_SESSION,
    ImageEndReason.FAILED: GapCause.FAILED,
    ImageEndReason.LEFT_BEHIND: GapCause.LEFT_BEHIND,
    ImageEndReason.CLOSED: GapCause.LEFT_BEHIND,
}
"""The cause of the gap behind an image that has ended, if the same session returns further on."""


@final
@attrs.frozen
class Gap:
    """A part of a stream that was not delivered; positions are in bytes.

    Attributes:
        session_id: Session id of the publication.
        from_position: Where the last message before the gap ends.
        to_position: Where the stream continues; None if that is not a position of this session.
        cause: Why.
    """

    session_id: int
    from_position: int
    to_position: int | None
    cause: GapCause


SESSIONS_MAX: Final = 1024
"""Most sessions that are remembered; the one heard of first is forgotten first."""
SKIPPED: Final = "SKIPPED"
"""The event of an image that was skipped; the others have the names of image events."""
EVENTS_MAX: Final = 1024
"""Most changes of images that wait until the reader asks; the driver has 64 images a stream."""


@attrs.define
class Followed:
    """One session: up to where it was delivered, and how its image has ended, if it has."""

    image_id: int
    position: int
    end: ImageEnd | None = None


class GapReading(Protocol[MessageT]):
    """The part of a subscription that is needed here."""

    _batch: Batch[MessageT]
    _interrupt: Callable[[], bool] | None

    @property
    def images(self) -> tuple[ReadImage, ...]: ...

    @property
    def is_closed(self) -> bool: ...

    def _begin_iteration(self) -> None: ...

    def _hand_back(self, message: MessageT, /) -> bool: ...

    async def _anext_waiting(self) -> MessageT: ...

    async def __anext__(self) -> MessageT: ...


@final
class GapReader(AsyncIterator[MessageT | Gap], Generic[MessageT]):
    """What `Subscription.with_gaps` returns.

    Attributes:
        forgotten_count: How many sessions were forgotten because there were more than 1024; one
            that returns seems to be new.
        missed_count: How many changes of images were dropped because more than 1024 waited.
    """

    def __init__(self, subscription: GapReading[MessageT], limit: LagLimit[MessageT]) -> None:
        self._subscription = subscription
        self._limit = limit
        self._sessions: dict[int, Followed] = {}
        self._events: deque[tuple[str, ReadImage, int]] = deque()
        self._gaps: deque[Gap] = deque()
        self._held: MessageT | None = None
        self.forgotten_count: int = 0
        self.missed_count: int = 0
        for image in subscription.images:
            self._on_available(image, image.position)

    def __aiter__(self) -> Self:
        self._subscription._begin_iteration()
        return self

    async def __anext__(self) -> MessageT | Gap:
        """Wait for the next message or gap and return it.

        Iteration ends when the subscription closes.

        Raises:
            LaggedError: With `on_lag="raise"`, the reader is too far behind.
            BusyError: Another task consumes the subscription.
            ClosedError: The driver failed.
            WrongLoopError: The subscription belongs to another event loop.
        """
        while (item := await self.next_or_change()) is None:
            pass
        return item

    async def next_or_change(self) -> MessageT | Gap | None:
        """Return the next message or gap; None when images have come or gone before it."""
        subscription = self._subscription
        while True:
            if self._gaps:
                return self._gaps.popleft()
            if self._held is not None:
                message, self._held = self._held, None
                return message
            if self._events and not subscription._batch.left:  # noqa: SLF001 - its reader
                self._take_event(*self._events.popleft())
                if not self._gaps:
                    return None
                continue
            following = await self._following()
            if following is None or not self._limit.admits(following):
                continue
            if self._is_next(following):
                return following
            if not subscription._hand_back(following):  # noqa: SLF001 - its reader
                # Its image has closed: it could not be read again.
                self._held = following

    async def _following(self) -> MessageT | None:
        """Return the next message; None if images have changed before it came."""
        subscription = self._subscription
        if subscription._batch.left:  # noqa: SLF001 - its reader
            return await subscription.__anext__()
        subscription._interrupt = self._has_events  # noqa: SLF001 - its reader
        try:
            return await subscription._anext_waiting()  # noqa: SLF001 - its reader
        except StopAsyncIteration:
            if self._events and not subscription.is_closed:
                return None
            raise
        finally:
            subscription._interrupt = None  # noqa: SLF001 - its reader

    def _has_events(self) -> bool:
        return bool(self._events)

    # Images.

    def on_event(self, kind: str, image: ReadImage, position: int) -> None:
        """Note that an image is available, unavailable, or was skipped up to a position."""
        if len(self._events) >= EVENTS_MAX:
            self._events.popleft()
            self.missed_count += 1
        self._events.append((kind, image, position))

    def _take_event(self, kind: str, image: ReadImage, position: int) -> None:
        if kind == "AVAILABLE":
            self._on_available(image, image.join_position)
        elif kind == "UNAVAILABLE":
            self._on_unavailable(image)
        elif kind == SKIPPED:
            self._on_skipped(image, position)

    def _on_available(self, image: ReadImage, position: int) -> None:
        """Follow an image, which is read from `position` on."""
        session_id = image.session_id
        before = self._sessions.pop(session_id, None)
        if before is None:
            self._replace_others()
            if position == image.join_position and position > 0:
                self._gaps.append(Gap(session_id, 0, position, GapCause.LATE_JOIN))
        elif position != before.position:
            cause = GapCause.LEFT_BEHIND if before.end is None else CAUSES[before.end.reason]
            if position < before.position:
                self._gaps.append(Gap(session_id, before.position, None, GapCause.NEW_SESSION))
            else:
                self._gaps.append(Gap(session_id, before.position, position, cause))
        if len(self._sessions) >= SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]
            self.forgotten_count += 1
        self._sessions[session_id] = Followed(image.image_id, position)

    def _replace_others(self) -> None:
        """End the sessions that have not returned before a new one came."""
        for session_id, followed in list(self._sessions.items()):
            end = followed.end
            if end is not None:
                del self._sessions[session_id]
                if end.reason is not ImageEndReason.END_OF_STREAM:
                    gap = Gap(session_id, followed.position, None, GapCause.NEW_SESSION)
                    self._gaps.append(gap)

    def _on_unavailable(self, image: ReadImage) -> None:
        followed = self._followed(image)
        if followed is None:
            return
        end = followed.end = image.end
        assert end is not None, "an image that has gone has ended"
        session_id, position = image.session_id, followed.position
        if end.reason is ImageEndReason.REVOKED:
            del self._sessions[session_id]
            self._gaps.append(Gap(session_id, position, None, GapCause.REVOKED))
        elif end.reason is ImageEndReason.CLOSED:
            del self._sessions[session_id]
        elif end.reason is ImageEndReason.END_OF_STREAM and position < end.position:
            followed.position = end.position
            if not self._is_padding(image, position, end.position):
                gap = Gap(session_id, position, end.position, GapCause.LEFT_BEHIND)
                self._gaps.append(gap)

    def _is_padding(self, image: ReadImage, start: int, end: int) -> bool:
        """Return whether the application has taken all there was: padding is not delivered."""
        return image.position >= end > start

    def _on_skipped(self, image: ReadImage, position: int) -> None:
        followed = self._followed(image)
        if followed is not None and position > followed.position:
            gap = Gap(image.session_id, followed.position, position, GapCause.SKIPPED)
            self._gaps.append(gap)
            followed.position = position

    def _followed(self, image: ReadImage) -> Followed | None:
        followed = self._sessions.get(image.session_id)
        return None if followed is None or followed.image_id != image.image_id else followed

    # Holes.

    def _is_next(self, message: MessageT) -> bool:
        """Return whether a message follows without a gap; if not, note the gap."""
        image: ReadImage = message.image
        followed = self._followed(image)
        if followed is None:
            return True
        start = message.position - log_length(len(message.data), image.mtu_length)
        before, followed.position = followed.position, message.position
        if start <= before or not self._is_filled(image, before, start):
            return True
        followed.position = start
        self._gaps.append(Gap(image.session_id, before, start, GapCause.UNFILLED))
        return False

    def _is_filled(self, image: ReadImage, start: int, end: int) -> bool:
        """Return whether the driver has laid padding over lost data in a range."""
        if image._is_reliable:  # noqa: SLF001 - its reader
            return False
        if image.is_closed:
            # Its log is gone. A publisher's own padding ends with the term, but for aborted claims.
            return end % image.term_length != 0
        return has_filling(image._log, start, end)  # noqa: SLF001 - its reader


def log_length(length: int, mtu_length: int) -> int:
    """Return how many bytes of the log a message takes, headers and alignment included.

    Args:
        length: Length of the payload.
        mtu_length: Length of the longest frame of the publication.
    """
    count, rest = divmod(length, mtu_length - HEADER)
    return count * mtu_length + (align_frame(rest + HEADER) if rest or not count else 0)


def has_filling(log: LogBuffers, position: int, end: int) -> bool:
    """Return whether a driver has filled a gap between two positions where frames start."""
    while position < end:
        index = (position >> log.position_bits) % PARTITION_COUNT
        offset = position & (log.term_length - 1)
        words = log.term_words[index]
        length = words[offset >> 2]
        if length <= 0:
            return True
        is_padding = not words[(offset >> 2) + 1] >> TYPE_SHIFT
        if is_padding and log.term_longs[index][(offset >> 3) + 3] == FILLED:
            return True
        position += align_frame(length)
    return False
