"""The life of an image: its states, its timeouts, and why it ended.

An image is ACTIVE while its source sends and a subscriber reads it. In DRAINING it sends goodbyes
to the source and waits until its readers have read what arrived. In LINGER the receiver has dropped
it, while clients may still hold its log. Then it is DONE.

`TRANSITIONS` lists which state may follow which; `ImageLife` decides when; `ImageEnd` records why
it ended.

Invariant: the silence of a source counts only while this driver was running. A stall of its own
event loop ends no image.

Source: Aeron `PublicationImage.State`, `PublicationImage.onTimeEvent`. `ImageEnd` has no
counterpart: images of Aeron end without a reason.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final, final

import attrs

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.context import EOS_STATUS_MESSAGE_COUNT
from aeron_async.driver.core.rare_changes import RARE_CHANGES
from aeron_async.driver.core.system_counters import SYSTEM_COUNTER_LABELS, SystemCounterId
from aeron_async.logs import get_logger, within

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aeron_async.driver.core.context import DriverContext
    from aeron_async.driver.core.outbox import Address
    from aeron_async.logbuffer.log_buffers import LogBuffers
    from aeron_async.logs import LogBudget

__all__ = [
    "OUT_OF_SIGHT",
    "TRANSITIONS",
    "ImageEnd",
    "ImageEndReason",
    "ImageLife",
    "ImageState",
    "ImageStateEvent",
    "next_state",
]


# The table of states.


@final
class ImageState(Enum):
    """The states of an image."""

    ACTIVE = auto()
    DRAINING = auto()
    LINGER = auto()
    DONE = auto()


OUT_OF_SIGHT: Final = frozenset({ImageState.LINGER, ImageState.DONE})
"""States in which the image neither receives nor is read."""


@final
class ImageStateEvent(Enum):
    """The events that change the state of an image."""

    STREAM_ENDED = auto()
    """The source ended the stream, and all data up to its end has arrived."""
    REVOKED = auto()
    """The source revoked the stream."""
    SOURCE_SILENT = auto()
    """The source was silent for the image liveness timeout."""
    ABANDONED = auto()
    """The last subscription left it."""
    SUPERSEDED = auto()
    """A new response stream of the same server replaces it."""
    DRAINED = auto()
    """The readers have read all that arrived, and the goodbye phase is over."""
    UNREAD = auto()
    """The readers read nothing for the image liveness timeout, and another stream waits."""
    LINGERED = auto()
    """No subscription holds it, or the image liveness timeout has passed again."""
    GAP_UNFILLED = auto()
    """Missing data did not come in time, although the source was heard."""
    CONTRADICTED = auto()
    """The source says that it sent different data from what readers were shown."""
    OVER_RUN = auto()
    """The source is so far ahead that it can no longer resend what is missing."""
    WENT_ON = auto()
    """The source continues to send behind a supposed end of the stream."""
    FAILED = auto()
    """Something failed that belongs to this image only, such as its congestion control."""


TRANSITIONS: Final[Mapping[tuple[ImageState, ImageStateEvent], ImageState]] = {
    (ImageState.ACTIVE, ImageStateEvent.STREAM_ENDED): ImageState.DRAINING,
    (ImageState.ACTIVE, ImageStateEvent.REVOKED): ImageState.DRAINING,
    (ImageState.ACTIVE, ImageStateEvent.SOURCE_SILENT): ImageState.DRAINING,
    (ImageState.ACTIVE, ImageStateEvent.ABANDONED): ImageState.DRAINING,
    (ImageState.ACTIVE, ImageStateEvent.SUPERSEDED): ImageState.DRAINING,
    (ImageState.ACTIVE, ImageStateEvent.GAP_UNFILLED): ImageState.DRAINING,
    (ImageState.ACTIVE, ImageStateEvent.CONTRADICTED): ImageState.DRAINING,
    (ImageState.ACTIVE, ImageStateEvent.OVER_RUN): ImageState.DRAINING,
    (ImageState.DRAINING, ImageStateEvent.WENT_ON): ImageState.ACTIVE,
    (ImageState.DRAINING, ImageStateEvent.DRAINED): ImageState.LINGER,
    (ImageState.DRAINING, ImageStateEvent.UNREAD): ImageState.LINGER,
    (ImageState.LINGER, ImageStateEvent.LINGERED): ImageState.DONE,
    (ImageState.ACTIVE, ImageStateEvent.FAILED): ImageState.DRAINING,
    (ImageState.DRAINING, ImageStateEvent.FAILED): ImageState.LINGER,
    (ImageState.LINGER, ImageStateEvent.FAILED): ImageState.DONE,
}


def next_state(state: ImageState, event: ImageStateEvent) -> ImageState:
    """Return the state after `event`.

    Raises:
        KeyError: The table has no such transition; only a bug of ours can cause that.
    """
    return TRANSITIONS[state, event]


# Why an image ended.


@final
class ImageEndReason(Enum):
    """Why an image ended."""

    END_OF_STREAM = auto()
    """The publisher ended the stream, and all of it arrived."""
    REVOKED = auto()
    """The publisher revoked the stream."""
    SOURCE_SILENT = auto()
    """The publisher was silent for the image liveness timeout."""
    GAP_UNFILLED = auto()
    """Missing data did not come for the image gap timeout, although the publisher was heard."""
    CONTRADICTED = auto()
    """The publisher says that it sent different data from what readers were shown."""
    OVER_RUN = auto()
    """The publisher sent further ahead than it can resend, and `over_run_rejoin_interval_ns` is
    set: what was not read is dropped, and a new image joins at once."""
    SUPERSEDED = auto()
    """Another stream replaced it: the one on which a server now answers."""
    FAILED = auto()
    """Something failed in this driver, such as the congestion control of the image."""
    LEFT_BEHIND = auto()
    """The stream moved on without this subscription, which has `tether=false`."""
    CLOSED = auto()
    """The subscription, its client or the driver was closed."""


@attrs.frozen(kw_only=True)
class ImageEnd:
    """Why an image ended, and where; positions are in bytes."""

    reason: ImageEndReason
    position: int
    """Up to where the stream was complete."""
    start_position: int
    """Where the missing or contradicted data begins; otherwise `position`."""
    end_position: int
    """Where that data ends, as far as known."""

    @classmethod
    def at(cls, reason: ImageEndReason, position: int) -> ImageEnd:
        """Return the end of an image that was complete up to `position`."""
        return cls(reason=reason, position=position, start_position=position, end_position=position)


# When the state changes.

REVOKED_DRAIN_NS: Final = 1_000_000_000
"""How long a revoked stream may still be read: until Aeron's conductor would check it."""
RUN_OVER_REMEDY: Final = (
    "read faster, or let the publisher wait for this receiver with fc=min or fc=tagged; if it "
    "stays out of reach, the image ends after image_liveness_timeout_ns, and a new one joins "
    "where the stream is then"
)

UNREAD_CHECK_NS: Final = 1_000_000_000
"""How often to check an image whose readers have not read for longer than the timeout."""
UNREAD_REMEDY: Final = (
    "read more, or close the subscription: its image blocks new streams of the session"
)
LEFT_REMEDY: Final = (
    "a new image joins where the stream is now; what was not read is lost to this reader. Read "
    "faster, raise rcv-wnd, or let the publisher wait for this receiver with fc=min or fc=tagged"
)
BROKEN_REMEDY: Final = (
    "a new image joins where the stream is now; data sent until then is lost to this reader. "
    "Look for forged frames, for two publishers of one session and address, and at the "
    "publisher's log for refused NAKs"
)
REASONS: Final = {
    ImageStateEvent.STREAM_ENDED: ImageEndReason.END_OF_STREAM,
    ImageStateEvent.REVOKED: ImageEndReason.REVOKED,
    ImageStateEvent.SOURCE_SILENT: ImageEndReason.SOURCE_SILENT,
    ImageStateEvent.ABANDONED: ImageEndReason.CLOSED,
    ImageStateEvent.SUPERSEDED: ImageEndReason.SUPERSEDED,
    ImageStateEvent.GAP_UNFILLED: ImageEndReason.GAP_UNFILLED,
    ImageStateEvent.CONTRADICTED: ImageEndReason.CONTRADICTED,
    ImageStateEvent.OVER_RUN: ImageEndReason.OVER_RUN,
    ImageStateEvent.FAILED: ImageEndReason.FAILED,
}
BROKEN: Final = {
    ImageEndReason.GAP_UNFILLED: ImageStateEvent.GAP_UNFILLED,
    ImageEndReason.CONTRADICTED: ImageStateEvent.CONTRADICTED,
    ImageEndReason.OVER_RUN: ImageStateEvent.OVER_RUN,
}
RESUMABLE: Final = frozenset({ImageEndReason.END_OF_STREAM, ImageEndReason.REVOKED})

log: Final = get_logger(__name__)


class ImageLife:
    """The states of one image.

    `position` is everywhere the one up to which the image is rebuilt, in bytes.
    """

    __slots__ = (
        "_changed_ns",
        "_drain_limit_ns",
        "_goodbye_ns",
        "_liveness_timeout_ns",
        "_log",
        "_session_id",
        "_source",
        "_still_ns",
        "_stream_id",
        "_taken",
        "_usual_goodbye_ns",
        "ended",
        "ended_ns",
        "is_awaited",
        "state",
    )

    def __init__(
        self,
        log_buffers: LogBuffers,
        source: Address,
        context: DriverContext,
        now_ns: int,
        log_budget: LogBudget | None = None,
    ) -> None:
        self._log = within(log_budget, log)
        self.state: ImageState = ImageState.ACTIVE
        # Why, where and when the image ended; the time means nothing before.
        self.ended: ImageEnd | None = None
        self.ended_ns: int = now_ns
        self._session_id = log_buffers.session_id
        self._stream_id = log_buffers.stream_id
        self._source = source
        self._liveness_timeout_ns = context.image_liveness_timeout_ns
        self._usual_goodbye_ns = self._goodbye_ns = (
            EOS_STATUS_MESSAGE_COUNT * context.status_message_timeout_ns
        )
        self._changed_ns = now_ns
        self._drain_limit_ns = NEVER_NS
        self._taken: list[int] = []
        self._still_ns = now_ns
        # Whether another stream waits to replace this one.
        self.is_awaited: bool = False

    def end(
        self,
        now_ns: int,
        *,
        last_packet_ns: int,
        has_readers: bool,
        is_whole: bool,
        is_revoked: bool,
        broken: ImageEnd | None,
        position: int,
    ) -> int:
        """Let an active image drain if it is over, and return 0; otherwise its silence deadline.

        A stream that has ended is whole once all of it has arrived; a revoked one waits for
        nothing. `broken` says how an image ends that cannot continue although its source is heard.
        """
        silent_at_ns = last_packet_ns + self._liveness_timeout_ns
        if is_revoked:
            self._goodbye_ns = 0
            self._drain_limit_ns = REVOKED_DRAIN_NS
            self._set_state(ImageStateEvent.REVOKED, now_ns, position)
        elif not has_readers:
            self._set_state(ImageStateEvent.ABANDONED, now_ns, position)
        elif broken is not None:
            self._break(broken, now_ns, position)
        elif is_whole:
            self._set_state(ImageStateEvent.STREAM_ENDED, now_ns, position)
        elif now_ns > silent_at_ns:
            self._set_state(ImageStateEvent.SOURCE_SILENT, now_ns, position)
        else:
            return silent_at_ns + 1
        return 0

    def leave(
        self,
        now_ns: int,
        *,
        has_readers: bool,
        is_drained: Callable[[], bool],
        consumed: Callable[[], list[int]],
        heard_ns: int,
        position: int,
    ) -> int:
        """Change the state of an image that has ended, and return the next deadline.

        `consumed` returns the position of each reader. `heard_ns` says when a source was last heard
        that has not ended the stream; it is 0 if all have.
        """
        if self.state is ImageState.DRAINING:
            goodbye_at_ns = self._changed_ns + self._goodbye_ns
            if now_ns < goodbye_at_ns:
                return goodbye_at_ns
            drained_at_ns = min(self._changed_ns + self._drain_limit_ns, NEVER_NS)
            if now_ns < drained_at_ns and not is_drained():
                is_awaited = self.is_awaited or heard_ns > self._changed_ns
                unread_at_ns = self._unread_at(consumed(), now_ns)
                if now_ns < unread_at_ns or not is_awaited:
                    return min(drained_at_ns, max(unread_at_ns, now_ns + UNREAD_CHECK_NS))
                self._give_up(position, now_ns)
            else:
                self._set_state(ImageStateEvent.DRAINED, now_ns, position)
            return now_ns + self._liveness_timeout_ns
        linger_at_ns = self._changed_ns + self._liveness_timeout_ns
        if self.state is ImageState.LINGER and (not has_readers or now_ns >= linger_at_ns):
            self._set_state(ImageStateEvent.LINGERED, now_ns, position)
        return NEVER_NS if self.state is ImageState.DONE else linger_at_ns

    def _unread_at(self, taken: list[int], now_ns: int) -> int:
        """Return when the readers time out if none of them reads anything before."""
        if taken != self._taken:
            self._taken, self._still_ns = taken, now_ns
        return self._still_ns + self._liveness_timeout_ns

    def _give_up(self, position: int, now_ns: int) -> None:
        """End an image whose readers do not read, to make room for another stream.

        Differs: Aeron waits for its readers without limit, and until then no other stream of the
        session can be received.
        """
        self._log.warning(
            "image_left_unread",
            source=self._source,
            session_id=self._session_id,
            stream_id=self._stream_id,
            position=position,
            unread_length=position - min(self._taken, default=position),
            remedy=UNREAD_REMEDY,
        )
        self._set_state(ImageStateEvent.UNREAD, now_ns, position)

    def on_over_run(self, position: int) -> None:
        """Warn that the source sends beyond the window; the caller warns once per image."""
        # Without readers, the source just does not know yet that they are gone.
        if self.state is ImageState.ACTIVE:
            self._log.warning(
                "image_run_over",
                source=self._source,
                session_id=self._session_id,
                stream_id=self._stream_id,
                position=position,
                counter=SYSTEM_COUNTER_LABELS[SystemCounterId.FLOW_CONTROL_OVER_RUNS],
                image_liveness_timeout_ns=self._liveness_timeout_ns,
                remedy=RUN_OVER_REMEDY,
            )

    def supersede(self, now_ns: int, position: int) -> None:
        """Drain without a goodbye: another stream replaces this one."""
        self._goodbye_ns = 0
        if self.state is ImageState.ACTIVE:
            self._set_state(ImageStateEvent.SUPERSEDED, now_ns, position)

    def resume(self, now_ns: int, position: int) -> bool:
        """Return to ACTIVE after a false end of the stream; return whether it did."""
        ended = self.ended
        if self.state is not ImageState.DRAINING or ended is None:
            return False
        if ended.reason not in RESUMABLE:
            return False
        self._goodbye_ns, self._drain_limit_ns = self._usual_goodbye_ns, NEVER_NS
        self._set_state(ImageStateEvent.WENT_ON, now_ns, position)
        self.ended = None
        return True

    def _break(self, broken: ImageEnd, now_ns: int, position: int) -> None:
        """End an image that cannot continue, and log it; no goodbye, since the stream rejoins."""
        self._goodbye_ns = 0
        is_over_run = broken.reason is ImageEndReason.OVER_RUN
        if is_over_run:
            # To read on what is here would only put the newest data further off.
            self._drain_limit_ns = 0
        self._set_state(BROKEN[broken.reason], now_ns, position)
        self.ended = broken
        self._log.warning(
            "image_broken",
            reason=broken.reason.name,
            source=self._source,
            session_id=self._session_id,
            stream_id=self._stream_id,
            position=broken.position,
            start_position=broken.start_position,
            end_position=broken.end_position,
            remedy=LEFT_REMEDY if is_over_run else BROKEN_REMEDY,
        )

    def fail(self, now_ns: int, position: int) -> None:
        """Move to the next state towards DONE."""
        self._set_state(ImageStateEvent.FAILED, now_ns, position)

    def _set_state(self, event: ImageStateEvent, now_ns: int, position: int) -> None:
        before, self.state = self.state, next_state(self.state, event)
        RARE_CHANGES.note()
        self._changed_ns = now_ns
        if before is ImageState.ACTIVE:
            self.ended = ImageEnd.at(REASONS[event], position)
            self.ended_ns = now_ns
        self._log.info(
            "image_state_changed",
            before=before.name,
            after=self.state.name,
            event_name=event.name,
            source=self._source,
            session_id=self._session_id,
            stream_id=self._stream_id,
            position=position,
        )
