"""What an image does when two headers come for one place: the publisher decides.

Where readers have not been shown the place, it was cleared, and is asked for like any gap. What
they have been shown cannot be taken back. So the publisher is asked for it several times: if it
sends what was shown, a stranger sent the other one, and nothing has happened. If all that comes
contradicts what was shown, the image ends, and says so; the stream is joined again. One answer that
is lost decides nothing, and only what the publisher can still send again is in doubt: a stranger
would have the last word otherwise.

Everything here is on the path of duplicates. A stranger who goes on contradicting gets so many
questions a second out of an image, and no more.

Source: Aeron has none; whatever comes first is taken, and the rest is dropped without a word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.driver.core.image_end import ImageEnd, ImageEndReason
from aeron_async.driver.core.loss_detector import NEVER_NS
from aeron_async.driver.core.reply_limiter import ReplyLimiter
from aeron_async.driver.core.system_counters import (
    DRIVER_COUNTER_LABELS,
    DriverCounterId,
)
from aeron_async.logbuffer.late_frames import shown_start
from aeron_async.logbuffer.position import max_message_length, term_id_at
from aeron_async.logs import get_logger, within

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.driver.core.image_feedback import ImageFeedback
    from aeron_async.driver.core.outbox import Address
    from aeron_async.driver.core.system_counters import SystemCounters
    from aeron_async.logbuffer.late_frames import Conflict
    from aeron_async.logbuffer.term_log import LogBuffers

__all__ = ["CONFLICTS_PER_SECOND", "ImageDoubts"]

CONFLICTS_PER_SECOND: Final = 250
"""Conflicts of one image that are acted on; of further ones what came first stays."""
QUESTIONS_MAX: Final = 4
"""If one datagram in a hundred is lost, all four go unanswered once in six million times."""
TRIES_MAX: Final = 16
"""How often a question may be put off where the NAKs of the image are used up."""
ANSWER_NS: Final = 250_000_000
"""How long an answer is waited for."""
LOG_INTERVAL_NS: Final = 1_000_000_000
BEHIND_COUNT: Final = 15
"""Heartbeats, a tenth of a second apart, that prove a publisher not to have come as far as we."""
BEHIND_INTERVAL_NS: Final = 50_000_000
"""Those that come faster count once: an honest one has time to come between any two."""
REMEDY: Final = (
    "somebody sends frames under this publisher's address, or two publishers share address and "
    "session: let only friends send to this port (private network, firewall)"
)

log = get_logger(__name__)


class ImageDoubts:
    """What is in doubt of one image: at most one place at a time.

    Args:
        log_buffers: Of the image.
        feedback: Asks the publisher.
        source: Of the image; for the log.
        system_counters: The driver's.
        on_doubt: Called when the image should be polled.

    Attributes:
        end: How the image ends, once what readers were shown has been contradicted.
        deadline_ns: When to poll.
    """

    __slots__ = (
        "_asked_count",
        "_behind_count",
        "_behind_ns",
        "_behind_shown",
        "_conflicts",
        "_counted_ns",
        "_end",
        "_feedback",
        "_is_denied",
        "_limiter",
        "_log",
        "_logged_ns",
        "_on_doubt",
        "_peer_log",
        "_source",
        "_start",
        "_tries",
        "_unlogged_count",
        "deadline_ns",
        "end",
    )

    def __init__(
        self,
        log_buffers: LogBuffers,
        feedback: ImageFeedback,
        source: Address,
        system_counters: SystemCounters,
        on_doubt: Callable[[], None],
    ) -> None:
        self.end: ImageEnd | None = None
        self.deadline_ns = NEVER_NS
        self._log = log_buffers
        self._peer_log = within(system_counters.log_budget, log)
        self._feedback = feedback
        self._source = source
        self._conflicts = system_counters[DriverCounterId.FRAME_CONFLICTS]
        self._on_doubt = on_doubt
        self._limiter = ReplyLimiter(
            limit=CONFLICTS_PER_SECOND, limit_per_asker=CONFLICTS_PER_SECOND
        )
        self._start = -1
        self._end = -1
        self._asked_count = self._tries = 0
        self._is_denied = False
        self._behind_count = 0
        self._behind_ns = self._behind_shown = -1
        self._counted_ns = 0
        self._logged_ns = -LOG_INTERVAL_NS
        self._unlogged_count = 0

    def may_act(self, now_ns: int) -> bool:
        """Return whether one more conflict may be acted on now, and take note that it is."""
        return self._limiter.try_take(None, now_ns)

    def on_conflict(self, conflict: Conflict, source: Address, now_ns: int) -> None:
        """Take note of a place for which two headers came, the second from `source`."""
        self._conflicts.increment()
        self._unlogged_count += 1
        if now_ns >= self._logged_ns + LOG_INTERVAL_NS:
            self._tell(conflict, source)
            self._logged_ns = now_ns
            self._unlogged_count = 0
        if not conflict.is_shown:
            self._on_doubt()
        elif conflict.start == self._start:
            self._is_denied = self._is_denied or self._asked_count > 0
        elif self._start < 0 and self.end is None and self.may_act(now_ns):
            self._doubt(conflict, now_ns)

    def _doubt(self, conflict: Conflict, now_ns: int) -> None:
        """Ask for the frame that was shown at a place, if the publisher can still send it."""
        log, feedback = self._log, self._feedback
        sent_position = max(
            feedback.last_sm_position + feedback.window_length, feedback.next_sm_position
        )
        start = shown_start(log, conflict.start)
        if start < sent_position - log.term_length // 2 - max_message_length(log.term_length):
            return
        self._start, self._end = start, conflict.end
        self._asked_count = self._tries = 0
        self._is_denied = False
        self.deadline_ns = now_ns
        self._on_doubt()

    def on_agreement(self, start: int, end: int) -> None:
        """Take note that what came for a range is what was shown there, as far as it was."""
        if start <= self._start < end and self._asked_count:
            self._forget()

    def on_behind(self, position: int, *, now_ns: int, last_packet_ns: int, shown: int) -> None:
        """Take note of a heartbeat that says the publisher has not come as far as was shown.

        Args:
            position: What it says, in bytes.
            now_ns: The time now.
            last_packet_ns: When something was last accepted.
            shown: Up to where readers were shown the stream.
        """
        # Whatever else came in between says otherwise; one that was held up proves nothing.
        is_alone = last_packet_ns == self._behind_ns and shown == self._behind_shown
        self._behind_ns, self._behind_shown = now_ns, shown
        if not is_alone:
            self._behind_count, self._counted_ns = 1, now_ns
        elif now_ns >= self._counted_ns + BEHIND_INTERVAL_NS:
            self._behind_count += 1
            self._counted_ns = now_ns
        if self._behind_count >= BEHIND_COUNT:
            self.prove(position, shown, shown)

    def prove(self, start: int, end: int, shown: int) -> None:
        """End the image: the publisher has contradicted what was shown.

        Args:
            start: Where that begins, in bytes.
            end: Where it ends.
            shown: Up to where readers were shown the stream.
        """
        if self.end is None:
            self.end = ImageEnd(
                reason=ImageEndReason.CONTRADICTED,
                position=shown,
                start_position=start,
                end_position=end,
            )
            self._on_doubt()

    def poll(self, now_ns: int, shown: int) -> None:
        """Ask the publisher if it is time to, or take its word.

        Args:
            now_ns: The time now.
            shown: Up to where readers were shown the stream, in bytes.
        """
        if now_ns < self.deadline_ns:
            return
        if self._asked_count >= QUESTIONS_MAX or self._tries >= TRIES_MAX:
            # Without a word, no frame of the publisher begins there: nobody to believe.
            if self._is_denied and self._asked_count >= QUESTIONS_MAX:
                self.prove(self._start, self._end, shown)
            self._forget()
        else:
            self._tries += 1
            self._asked_count += self.ask(self._start, self._end, now_ns)
            self.deadline_ns = now_ns + ANSWER_NS

    def ask(self, start: int, end: int, now_ns: int) -> bool:
        """Ask for a range, and in any case for a whole datagram, as far as its term goes.

        Returns False where the image has no NAK left for that.
        """
        log_buffers = self._log
        offset = start & (log_buffers.term_length - 1)
        length = max(end - start, log_buffers.mtu_length)
        return not self._feedback.send_nak(
            term_id=term_id_at(
                start,
                initial_term_id=log_buffers.initial_term_id,
                bits=log_buffers.position_bits,
            ),
            term_offset=offset,
            length=min(length, log_buffers.term_length - offset),
            now_ns=now_ns,
        )

    def _forget(self) -> None:
        self._start = self._end = -1
        self._asked_count = self._tries = 0
        self._is_denied = False
        self.deadline_ns = NEVER_NS

    def _tell(self, conflict: Conflict, source: Address) -> None:
        self._peer_log.warning(
            "frame_conflict",
            source=self._source,
            datagram_source=source,
            session_id=self._log.session_id,
            stream_id=self._log.stream_id,
            position=conflict.start,
            end_position=conflict.end,
            was_shown=conflict.is_shown,
            count=self._unlogged_count,
            counter=DRIVER_COUNTER_LABELS[DriverCounterId.FRAME_CONFLICTS],
            remedy=REMEDY,
        )
