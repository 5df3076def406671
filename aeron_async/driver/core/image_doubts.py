"""What an image does when two headers come for one place: the publisher decides.

If readers have not been shown the place, it has been cleared, and is asked for like any gap. If
they have, that cannot be taken back, so the image asks the publisher for the place several times:

- the publisher sends what was shown: a stranger sent the other header, and the stream continues;
- every answer contradicts what was shown, or none comes: the image ends and says so, and the
  stream is joined again.

One lost answer decides nothing. Only what the publisher can still send again is in doubt;
otherwise a stranger would have the last word.

Invariant: only duplicates cause work here, and an image acts on at most `CONFLICTS_PER_SECOND` of
them a second, however many a stranger sends.

Source: Aeron has none; whatever comes first is taken, and the rest is dropped without a word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.driver.core.budgets import ReplyLimiter
from aeron_async.driver.core.image_state import ImageEnd, ImageEndReason
from aeron_async.driver.core.loss_detector import NEVER_NS
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
    from aeron_async.driver.core.status_message_sender import ImageFeedback
    from aeron_async.driver.core.system_counters import SystemCounters
    from aeron_async.logbuffer.late_frames import Conflict
    from aeron_async.logbuffer.log_buffers import LogBuffers

__all__ = ["CONFLICTS_PER_SECOND", "ImageDoubts"]

CONFLICTS_PER_SECOND: Final = 250
"""Conflicts of one image that are acted on; of further ones what came first stays."""
DOUBTS_MAX: Final = 32
"""Places that are asked about at once: no more than a publisher answers, whatever else it resends,
and enough that a stranger's do not keep the true one out."""
DOUBTS_FEW: Final = 4
"""With so many a publisher has answered soon, if it can; with more, its budget may be used up."""
WAITS_NS: Final = tuple(each * 1_000_000 for each in (20, 40, 80, 160, 300, 600, 1_200, 2_000))
"""How long an answer is waited for, after each question: on a bad way most are lost, and a fast
stream soon leaves behind what its publisher can send again."""
QUESTIONS_ENOUGH: Final = 4
"""If one datagram in a hundred is lost, all four go unanswered once in six million times."""
QUESTIONS_MIN: Final = 2
"""Fewer without any answer, because the stream has moved on too fast, prove nothing."""
REFUTED_RATIO: Final = 3
"""So many answers that are something else stand against one that is what was shown."""
TRIES_MAX: Final = 16
"""How often a question may be put off where the NAKs of the image are used up."""
FAR_DIVISOR: Final = 8
"""A conflict so much of a term behind is soon out of what its publisher can send again."""
UNSETTLED_NS: Final = 6_000_000_000
"""How long a place is remembered that nothing fills; by then its gap has ended the image."""
SILENCE_NS: Final = 1_000_000_000
"""A source that was heard so long ago is not asked: it could not answer."""
LOG_INTERVAL_NS: Final = 1_000_000_000
BEHIND_COUNT: Final = 15
"""Heartbeats, a tenth of a second apart, that prove a publisher not to have come as far as we."""
BEHIND_INTERVAL_NS: Final = 50_000_000
"""Those that come faster count once: an honest one has time to come between any two."""
REMEDY: Final = (
    "somebody sends frames under this publisher's address, or two publishers share address and "
    "session: let only friends send to this port (private network, firewall)"
)

log: Final = get_logger(__name__)


class Doubt:
    """One frame that was shown, and that the publisher is asked about.

    Args:
        end: Where what is in question ends, in bytes.
        shown_end: Where the frame ends that was shown.
        now_ns: The time now.
        is_weak: Whether the publisher may have reasons not to answer: too much is in doubt beside
            it, or the stream was far on when the conflict came. Then silence proves nothing.
        is_contradicted: Whether something else has come already than what was shown. If not, it
            takes the publisher's word, and not its silence, to end the image.

    Attributes:
        asked_count: Questions that have left.
        tries: Those, and the ones that were put off.
        is_agreed: Whether what was shown came again since the last question.
        is_denied: Whether something else did.
        agreed_count: Questions after which what was shown came.
        denied_count: Questions after which something else did, and nothing but that.
        mixed_count: Of `agreed_count`, those after which something else came as well.
        deadline_ns: When to ask again, or to take what came for an answer.
    """

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

    agreed_count: int
    asked_count: int
    denied_count: int
    is_agreed: bool
    is_denied: bool
    mixed_count: int
    tries: int

    def __init__(
        self, end: int, shown_end: int, now_ns: int, *, is_weak: bool, is_contradicted: bool
    ) -> None:
        self.end: int = end
        self.shown_end: int = shown_end
        self.is_weak: bool = is_weak
        self.is_contradicted: bool = is_contradicted
        self.asked_count = self.tries = 0
        self.agreed_count = self.denied_count = self.mixed_count = 0
        self.is_agreed = self.is_denied = False
        self.deadline_ns: int = now_ns

    def count_answers(self) -> None:
        """Count what has come since the last question as one answer, whatever else came with it.

        A stranger may repeat its frame, and may contradict a genuine one, but the publisher answers
        as well.
        """
        self.agreed_count += self.is_agreed
        self.mixed_count += self.is_agreed and self.is_denied
        self.denied_count += self.is_denied and not self.is_agreed
        self.is_agreed = self.is_denied = False

    @property
    def is_settled(self) -> bool:
        """Return whether what was shown is what the publisher sends."""
        return self.agreed_count - self.mixed_count > self.denied_count

    @property
    def is_refuted(self) -> bool:
        """Return whether the publisher sends something else."""
        return self.denied_count > 0 and self.denied_count >= REFUTED_RATIO * self.agreed_count


class ImageDoubts:
    """What is in doubt of one image.

    Args:
        log_buffers: Of the image.
        feedback: Asks the publisher.
        source: Of the image; for the log.
        system_counters: The driver's.
        on_doubt: Called when the image should be polled.

    Attributes:
        end: How the image ends, once what readers were shown has been contradicted.
        deadline_ns: When to poll.
        behind_ns: When the last heartbeat came, of those in a row that say the publisher has not
            come as far as was shown; to be set to -1 by one that says it has. What is read in one
            batch has one time: the times alone do not tell what came in between.
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

    behind_ns: int

    def __init__(
        self,
        log_buffers: LogBuffers,
        feedback: ImageFeedback,
        source: Address,
        system_counters: SystemCounters,
        on_doubt: Callable[[], None],
    ) -> None:
        self.end: ImageEnd | None = None
        self.deadline_ns: int = NEVER_NS
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
        # Conflicts about what was not shown: where each begins, where it ends, and since when.
        self._unsettled: dict[int, tuple[int, int]] = {}
        self._behind_count = 0
        self.behind_ns = self._behind_shown = -1
        self._counted_ns = 0
        self._logged_ns = -LOG_INTERVAL_NS
        self._unlogged_count = 0

    def may_act(self, now_ns: int) -> bool:
        """Return whether one more conflict may be acted on now, and take note that it is."""
        return self._limiter.try_take(None, now_ns)

    def on_conflict(self, conflict: Conflict, source: Address, now_ns: int, *, shown: int) -> None:
        """Take note of a place for which two headers came, the second from `source`.

        Args:
            conflict: The place.
            source: Where the second came from.
            now_ns: The time now.
            shown: Up to where readers were shown the stream, in bytes.
        """
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
        """Hold what has come for a place against what was shown there."""
        for start, doubt in self._doubts.items():
            if start <= conflict.start < doubt.shown_end:
                doubt.is_denied = doubt.is_denied or doubt.asked_count > 0
                doubt.is_contradicted = True
                return
        self._doubt(conflict.start, conflict.end, now_ns, shown, is_contradicted=True)

    def _settle(self, now_ns: int, shown: int) -> None:
        """Ask for what was shown in the end of places for which two headers had come.

        Which of the two was the publisher's is not known, and what has filled the place since may
        be neither.
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
        """Ask for the frame that was shown at a place, if the publisher can still send it."""
        log, feedback = self._log, self._feedback
        sent_position = max(
            feedback.last_sm_position + feedback.window_length, feedback.next_sm_position
        )
        # Before the search: behind a frame of 64 KiB it takes a third of a millisecond.
        if len(self._doubts) >= DOUBTS_MAX or not self.may_act(now_ns):
            return
        start = shown_start(log, position)
        if start < 0:
            start = shown_cover(log, feedback.oldest_boundary, position)
        if start < 0:
            return
        # Padding that was forged may reach far.
        words = log.term_words[partition_index(start, bits=log.position_bits)]
        length = align_frame(words[(start & (log.term_length - 1)) >> 2])
        end = max(end, start + length)
        longest = max_message_length(log.term_length)
        lowest = sent_position - log.term_length // 2 - longest
        if end < lowest:
            return
        # Nor is honest padding longer than a message. Behind a longer one the publisher is not as
        # far on as it was told it may be.
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
        """Take note that what came for a range is what was shown there, as far as it was."""
        for position in [each for each in self._doubts if start <= each < end]:
            doubt = self._doubts[position]
            if doubt.asked_count:
                doubt.is_agreed = True
                if not (doubt.is_denied or doubt.denied_count):
                    del self._doubts[position]

    def on_behind(self, position: int, *, now_ns: int, last_packet_ns: int, shown: int) -> None:
        """Take note of a heartbeat that says the publisher has not come as far as was shown.

        Args:
            position: What it says, in bytes.
            now_ns: The time now.
            last_packet_ns: When something was last accepted.
            shown: Up to where readers were shown the stream.
        """
        # Whatever else came in between says otherwise; one that was held up proves nothing.
        is_alone = last_packet_ns == self.behind_ns and shown == self._behind_shown
        self.behind_ns, self._behind_shown = now_ns, shown
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

    def stop(self) -> None:
        """Ask nothing more: no subscriber is left who could be told otherwise."""
        self._doubts.clear()
        self._unsettled.clear()
        self.deadline_ns = NEVER_NS

    def pause(self) -> None:
        """Ask nothing until `resume`; what is in doubt stays so."""
        self.deadline_ns = NEVER_NS

    def resume(self, now_ns: int) -> None:
        """Ask again what was in doubt."""
        if self._doubts or self._unsettled:
            self.deadline_ns = now_ns

    def poll(self, now_ns: int, *, last_packet_ns: int, shown: int) -> None:
        """Ask the publisher if it is time to, or take its word.

        Args:
            now_ns: The time now.
            last_packet_ns: When it was last heard; while it is silent it is not asked.
            shown: Up to where readers were shown the stream, in bytes.
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
        """Ask for one frame, or take the publisher's word, or its silence, for an answer."""
        doubt.count_answers()
        if doubt.is_settled:
            del self._doubts[start]
            return
        # Beyond that no publisher sends again: what it had to say has come by now.
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
            # A frame of the publisher would have come again by now.
            least = 1 if is_soon else QUESTIONS_MIN
            is_proven = doubt.asked_count >= (least if is_left else QUESTIONS_ENOUGH)
            is_proven = is_proven and (doubt.is_refuted or not doubt.agreed_count)
        if is_proven and doubt.is_contradicted:
            self.prove(start, doubt.end, shown)

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
