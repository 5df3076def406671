"""Conflicts in one image: two different headers for one place. The publisher decides.

If readers have not been shown the place, it was cleared, and is requested like any gap. If they
have, the data cannot be taken back, so the image asks the publisher for the place several times:

- the publisher resends what was shown: a stranger sent the other header, and the stream continues;
- every answer contradicts what was shown, or no answer comes: the image ends with that reason, and
  a new image joins the stream.

One lost answer decides nothing. Only data that the publisher can still resend is in doubt:
otherwise a forged frame could never be refuted.

Invariant: only duplicates cause work here, and an image acts on at most `CONFLICTS_PER_SECOND` of
them a second, however many a stranger sends.

Source: Aeron has none; it keeps what comes first and drops the rest without a trace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.budgets import ReplyLimiter
from aeron_async.driver.core.image_state import ImageEnd, ImageEndReason
from aeron_async.driver.core.system_counters import DRIVER_COUNTER_LABELS, DriverCounterId
from aeron_async.logbuffer.late_frames import shown_cover, shown_start
from aeron_async.logbuffer.position import (
    framed_length,
    max_message_length,
    partition_index,
    term_id_at,
)
from aeron_async.logs import get_logger, within
from aeron_async.protocol.header import DATA_HEADER_LENGTH, align_frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.driver.core.outbox import Address
    from aeron_async.driver.core.status_message_sender import StatusMessageSender
    from aeron_async.driver.core.system_counters import SystemCounters
    from aeron_async.logbuffer.late_frames import Conflict
    from aeron_async.logbuffer.log_buffers import LogBuffers

__all__ = ["CONFLICTS_PER_SECOND", "ImageDoubts"]

CONFLICTS_PER_SECOND: Final = 250
"""Conflicts of one image that are acted on; in further ones the first frame stays."""
DOUBTS_MAX: Final = 32
"""Most places in doubt at once: no more than a publisher answers beside its other resends, and
enough that a stranger's places do not keep the true one out."""
DOUBTS_FEW: Final = 4
"""With this many, a publisher answers soon if it can; with more, its budget may be used up."""
WAITS_NS: Final = tuple(each * 1_000_000 for each in (20, 40, 80, 160, 300, 600, 1_200, 2_000))
"""How long to wait for an answer after each question: on a bad path most answers are lost, and a
fast stream soon moves beyond what its publisher can resend."""
QUESTIONS_ENOUGH: Final = 4
"""If one datagram in a hundred is lost, all four go unanswered once in six million times."""
QUESTIONS_MIN: Final = 2
"""With fewer questions, because the stream moved on too fast, missing answers prove nothing."""
REFUTED_RATIO: Final = 3
"""This many contradicting answers outweigh one that agrees with what was shown."""
TRIES_MAX: Final = 16
"""How often a question may be tried where the NAK budget of the image is used up."""
FAR_DIVISOR: Final = 8
"""A conflict an eighth of a term behind what was shown is soon too old for a resend."""
UNSETTLED_NS: Final = 6_000_000_000
"""How long an unfilled place is remembered; by then its gap has ended the image."""
SILENCE_NS: Final = 1_000_000_000
"""A source silent for longer than this is not asked: it could not answer."""
LOG_INTERVAL_NS: Final = 1_000_000_000
BEHIND_COUNT: Final = 15
"""Heartbeats, a tenth of a second apart, that prove a publisher to be behind what was shown."""
BEHIND_INTERVAL_NS: Final = 50_000_000
"""Heartbeats within this interval count once: an honest one could arrive between any two."""
REMEDY: Final = (
    "a stranger sends frames under this publisher's address, or two publishers share address and "
    "session: let only trusted hosts send to this port (private network, firewall)"
)

log: Final = get_logger(__name__)


class Doubt:
    """One frame that was shown to readers, and that the publisher is asked about."""

    __slots__ = (
        "agreed_count",
        "asked_count",
        "deadline_ns",
        "denied_count",
        "end",
        "is_agreed",
        "is_contradicted",
        "is_denied",
        "is_weak",
        "mixed_count",
        "shown_end",
        "tries",
    )

    end: int
    """Where the range in question ends, in bytes."""
    shown_end: int
    """Where the shown frame ends, in bytes."""
    is_weak: bool
    """Whether the publisher may have reasons not to answer: there are too many doubts, or the
    stream was far ahead when the conflict came. Then silence proves nothing."""
    is_contradicted: bool
    """Whether something other than what was shown has come already. If not, only an answer can end
    the image, not silence."""
    asked_count: int
    """Questions sent."""
    tries: int
    """Questions sent or put off."""
    is_agreed: bool
    """Whether what was shown came again since the last question."""
    is_denied: bool
    """Whether something else came since the last question."""
    agreed_count: int
    """Questions after which what was shown came."""
    denied_count: int
    """Questions after which only something else came."""
    mixed_count: int
    """Those of `agreed_count` after which something else came as well."""
    deadline_ns: int
    """When to count the answers and to ask again."""

    def __init__(
        self, end: int, shown_end: int, now_ns: int, *, is_weak: bool, is_contradicted: bool
    ) -> None:
        self.end, self.shown_end = end, shown_end
        self.is_weak, self.is_contradicted = is_weak, is_contradicted
        self.asked_count = self.tries = 0
        self.agreed_count = self.denied_count = self.mixed_count = 0
        self.is_agreed = self.is_denied = False
        self.deadline_ns = now_ns

    def count_answers(self) -> None:
        """Count everything that came since the last question as one answer.

        A stranger may repeat its frame, and may contradict a genuine one, but the publisher's
        answer arrives as well.
        """
        self.agreed_count += self.is_agreed
        self.mixed_count += self.is_agreed and self.is_denied
        self.denied_count += self.is_denied and not self.is_agreed
        self.is_agreed = self.is_denied = False

    @property
    def is_settled(self) -> bool:
        """Return whether the publisher sends what was shown."""
        return self.agreed_count - self.mixed_count > self.denied_count

    @property
    def is_refuted(self) -> bool:
        """Return whether the publisher sends something other than what was shown."""
        return self.denied_count > 0 and self.denied_count >= REFUTED_RATIO * self.agreed_count


class ImageDoubts:
    """The doubts of one image.

    `on_doubt` is called when the image must be polled. `shown` is the position up to which readers
    were shown the stream, in bytes.
    """

    __slots__ = (
        "_behind_count",
        "_behind_shown",
        "_conflicts",
        "_counted_ns",
        "_doubts",
        "_feedback",
        "_limiter",
        "_log",
        "_logged_ns",
        "_on_doubt",
        "_peer_log",
        "_source",
        "_unlogged_count",
        "_unsettled",
        "behind_ns",
        "deadline_ns",
        "end",
    )

    end: ImageEnd | None
    """How the image ends, once what readers were shown has been contradicted."""
    deadline_ns: int
    """When to poll."""
    behind_ns: int
    """When the last of a series of heartbeats came that say the publisher is behind what was shown.

    A heartbeat that contradicts them must set it to -1: datagrams read in one batch have the same
    time, so the times alone do not show what came in between."""

    def __init__(
        self,
        log_buffers: LogBuffers,
        feedback: StatusMessageSender,
        source: Address,
        system_counters: SystemCounters,
        on_doubt: Callable[[], None],
    ) -> None:
        self.end = None
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
        self._doubts: dict[int, Doubt] = {}
        # Conflicts about data not shown yet: where each begins, where it ends, and since when.
        self._unsettled: dict[int, tuple[int, int]] = {}
        self._behind_count = 0
        self.behind_ns = self._behind_shown = -1
        self._counted_ns = 0
        self._logged_ns = -LOG_INTERVAL_NS
        self._unlogged_count = 0

    def try_spend_conflict(self, now_ns: int) -> bool:
        """Return whether one more conflict may be acted on now; if so, it is spent."""
        return self._limiter.try_take(None, now_ns)

    def on_conflict(self, conflict: Conflict, source: Address, now_ns: int, *, shown: int) -> None:
        """Record a place for which two different headers came, the second from `source`."""
        self._conflicts.increment()
        self._unlogged_count += 1
        if now_ns >= self._logged_ns + LOG_INTERVAL_NS:
            self._tell(conflict, source)
            self._logged_ns = now_ns
            self._unlogged_count = 0
        if self.end is not None:
            return
        if conflict.is_shown:
            self._contradict(conflict, now_ns, shown)
            return
        if len(self._unsettled) < DOUBTS_MAX:
            self._unsettled[conflict.start] = conflict.end, now_ns
            self.deadline_ns = min(self.deadline_ns, now_ns + WAITS_NS[0])
        self._on_doubt()

    def _contradict(self, conflict: Conflict, now_ns: int, shown: int) -> None:
        """Record that something other than what was shown came for a place."""
        for start, doubt in self._doubts.items():
            if start <= conflict.start < doubt.shown_end:
                doubt.is_denied = doubt.is_denied or doubt.asked_count > 0
                doubt.is_contradicted = True
                return
        self._doubt(conflict.start, conflict.end, now_ns, shown, is_contradicted=True)

    def _settle(self, now_ns: int, shown: int) -> None:
        """Open a doubt for each conflict whose place has been shown to readers since.

        It is not known which of the two headers was the publisher's, and the frame that has filled
        the place may be a third one.
        """
        for start, (end, since_ns) in list(self._unsettled.items()):
            if shown > start:
                del self._unsettled[start]
                if not any(each <= start < it.shown_end for each, it in self._doubts.items()):
                    self._doubt(start, end, now_ns, shown, is_contradicted=False)
            elif now_ns - since_ns > UNSETTLED_NS:
                del self._unsettled[start]

    def _doubt(
        self, position: int, end: int, now_ns: int, shown: int, *, is_contradicted: bool
    ) -> None:
        """Ask for the frame that was shown at a place, if the publisher can still resend it."""
        log, feedback = self._log, self._feedback
        sent_position = max(
            feedback.last_sm_position + feedback.window_length, feedback.next_sm_position
        )
        # Checked before the search, which takes a third of a millisecond behind a 64 KiB frame.
        if len(self._doubts) >= DOUBTS_MAX or not self.try_spend_conflict(now_ns):
            return
        start = shown_start(log, position)
        if start < 0:
            start = shown_cover(log, feedback.oldest_boundary, position)
        if start < 0:
            return
        # Forged padding may be long.
        words = log.term_words[partition_index(start, bits=log.position_bits)]
        length = align_frame(words[(start & (log.term_length - 1)) >> 2])
        end = max(end, start + length)
        longest = max_message_length(log.term_length)
        lowest = sent_position - log.term_length // 2 - longest
        if end < lowest:
            return
        # Honest padding is never longer than a message. If the frame is longer, the publisher is
        # not as far ahead as its window allows.
        payload_length = log.mtu_length - DATA_HEADER_LENGTH
        framed = framed_length(longest, max_payload_length=payload_length)
        is_long_ago = start < lowest and length <= framed
        is_weak = is_long_ago or end < shown - log.term_length // FAR_DIVISOR
        self._doubts[start] = Doubt(
            end, start + length, now_ns, is_weak=is_weak, is_contradicted=is_contradicted
        )
        self.deadline_ns = now_ns
        self._on_doubt()

    def on_agreement(self, start: int, end: int) -> None:
        """Record that data for a range agrees with what was shown there."""
        for position in [each for each in self._doubts if start <= each < end]:
            doubt = self._doubts[position]
            if doubt.asked_count:
                doubt.is_agreed = True
                if not (doubt.is_denied or doubt.denied_count):
                    del self._doubts[position]

    def on_behind(self, position: int, *, now_ns: int, last_packet_ns: int, shown: int) -> None:
        """Record a heartbeat that says the publisher is at `position`, behind what was shown."""
        # Any other datagram in between contradicts it; a single delayed heartbeat proves nothing.
        is_alone = last_packet_ns == self.behind_ns and shown == self._behind_shown
        self.behind_ns, self._behind_shown = now_ns, shown
        if not is_alone:
            self._behind_count, self._counted_ns = 1, now_ns
        elif now_ns >= self._counted_ns + BEHIND_INTERVAL_NS:
            self._behind_count += 1
            self._counted_ns = now_ns
        if self._behind_count >= BEHIND_COUNT:
            self.prove_contradiction(position, shown, shown)

    def prove_contradiction(self, start: int, end: int, shown: int) -> None:
        """End the image: the publisher has contradicted what was shown from `start` to `end`."""
        if self.end is None:
            self.end = ImageEnd(
                reason=ImageEndReason.CONTRADICTED,
                position=shown,
                start_position=start,
                end_position=end,
            )
            self._on_doubt()

    def prove_forged_setup(self, shown: int) -> None:
        """End the image at `shown`: its source has other terms than its SETUP said."""
        self.prove_contradiction(shown, shown, shown)

    def stop(self) -> None:
        """Drop all doubts: no subscriber is left."""
        self._doubts.clear()
        self._unsettled.clear()
        self.deadline_ns = NEVER_NS

    def pause(self) -> None:
        """Ask nothing until `resume`; the doubts stay."""
        self.deadline_ns = NEVER_NS

    def resume(self, now_ns: int) -> None:
        """Ask again about the doubts that are left."""
        if self._doubts or self._unsettled:
            self.deadline_ns = now_ns

    def poll(self, now_ns: int, *, last_packet_ns: int, shown: int) -> None:
        """Ask the publisher, or decide by its answers, as far as is due.

        A publisher that is silent is not asked.
        """
        if now_ns < self.deadline_ns:
            return
        if now_ns - last_packet_ns > SILENCE_NS:
            self.deadline_ns = now_ns + WAITS_NS[0]
            return
        self._settle(now_ns, shown)
        for start, doubt in list(self._doubts.items()):
            if now_ns >= doubt.deadline_ns:
                self._decide(start, doubt, now_ns, shown)
        self.deadline_ns = min(
            (each.deadline_ns for each in self._doubts.values()), default=NEVER_NS
        )
        if self._unsettled:
            self.deadline_ns = min(self.deadline_ns, now_ns + WAITS_NS[0])

    def _decide(self, start: int, doubt: Doubt, now_ns: int, shown: int) -> None:
        """Ask for one frame, or decide by the answers, or their absence, so far."""
        doubt.count_answers()
        if doubt.is_settled:
            del self._doubts[start]
            return
        # The publisher resends nothing before that; all its answers have come by now.
        is_left = start < shown - self._log.term_length // 2
        doubt.is_weak = doubt.is_weak or len(self._doubts) > DOUBTS_FEW
        is_soon = doubt.is_refuted and not doubt.is_weak and not doubt.agreed_count
        enough = QUESTIONS_ENOUGH if is_soon else len(WAITS_NS)
        if not (is_left or doubt.asked_count >= enough or doubt.tries >= TRIES_MAX):
            doubt.deadline_ns = now_ns + WAITS_NS[doubt.asked_count]
            doubt.tries += 1
            doubt.asked_count += self.ask(start, start, now_ns)
            return
        del self._doubts[start]
        if doubt.is_weak:
            is_proven = doubt.is_refuted and doubt.asked_count >= len(WAITS_NS) and not is_left
        else:
            # If the publisher had sent the frame, it would have come again by now.
            least = 1 if is_soon else QUESTIONS_MIN
            is_proven = doubt.asked_count >= (least if is_left else QUESTIONS_ENOUGH)
            is_proven = is_proven and (doubt.is_refuted or not doubt.agreed_count)
        if is_proven and doubt.is_contradicted:
            self.prove_contradiction(start, doubt.end, shown)

    def ask(self, start: int, end: int, now_ns: int) -> bool:
        """Send a NAK for a range, and for a whole datagram at least, up to the end of its term.

        Return False if the NAK budget of the image is used up.
        """
        log_buffers = self._log
        offset = start & (log_buffers.term_length - 1)
        length = max(end - start, log_buffers.mtu_length)
        retry_at_ns = self._feedback.try_gather_nak(
            term_id=term_id_at(
                start,
                initial_term_id=log_buffers.initial_term_id,
                bits=log_buffers.position_bits,
            ),
            term_offset=offset,
            length=min(length, log_buffers.term_length - offset),
            now_ns=now_ns,
        )
        self._feedback.send_gathered_naks()
        return retry_at_ns == 0

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
