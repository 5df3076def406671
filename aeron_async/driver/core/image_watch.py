"""The end of an image that cannot continue: a permanent gap, a contradiction, a forged SETUP.

Invariant: while its source is heard, an image progresses, or its source says that it has sent no
more, or the image ends within the gap timeout with a reason. It never waits without limit.

Two periods do not count towards the gap timeout:

- while the source is silent, because it cannot answer a NAK. Silence has a timeout of its own, and
  a partition that heals within that timeout is repaired;
- while the source itself says that it has sent no more, because then only a forged frame or
  heartbeat claims a gap.

`GapTimer` times the first gap, `TermsQuestion` finds out from the source whether the SETUP was
forged, `OverRunJudge` finds the source out of reach, and `ImageWatch` ends the image.

Source: Aeron has none; there a gap that is never filled holds a stream up for as long as its source
is heard.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.context import HEARTBEAT_INTERVAL_NS
from aeron_async.driver.core.image_connection import NEVER_HEARD_NS
from aeron_async.driver.core.image_state import ImageEnd, ImageEndReason
from aeron_async.driver.core.losses import OVER_RUN
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.logbuffer.position import compute_position

if TYPE_CHECKING:
    from aeron_async.driver.core.context import DriverContext
    from aeron_async.driver.core.image_doubts import ImageDoubts
    from aeron_async.driver.core.image_gaps import ImageGaps
    from aeron_async.driver.core.image_state import ImageLife
    from aeron_async.driver.core.losses import Losses
    from aeron_async.driver.core.outbox import Address
    from aeron_async.driver.core.status_message_sender import StatusMessageSender
    from aeron_async.driver.core.system_counters import SystemCounters
    from aeron_async.logbuffer.late_frames import LateFrames
    from aeron_async.logbuffer.log_buffers import LogBuffers

__all__ = [
    "GapTimer",
    "ImageWatch",
    "WatchedImage",
]

# The first gap.

HEARD_NS: Final = 1_000_000_000
"""A source heard within this time counts as heard: ten heartbeats may be lost."""
LOOK_NS: Final = 250_000_000
"""The longest time between two checks of a gap."""
WIDER_STEPS: Final = 8
"""How many times within the timeout a wider range than the gap is requested."""


class GapTimer:
    """Times the first gap of one image; it may last `timeout_ns`."""

    __slots__ = ("_looked_ns", "_since_ns", "_step_ns", "_wider_ns", "start", "timeout_ns")

    def __init__(self, timeout_ns: int) -> None:
        self.timeout_ns: int = timeout_ns
        self._step_ns = max(1, timeout_ns // WIDER_STEPS)
        # Where the gap begins, in bytes; -1 if there is none.
        self.start: int = -1
        self._since_ns = 0
        self._looked_ns = 0
        self._wider_ns = 0

    @property
    def deadline_ns(self) -> int:
        """Return the latest time of the next check."""
        return NEVER_NS if self.start < 0 else self._looked_ns + LOOK_NS

    def stop(self) -> None:
        """Record that nothing is missing."""
        self.start = -1

    def look(self, start: int, *, last_packet_ns: int, now_ns: int) -> bool:
        """Return whether the first gap, which begins at `start`, has lasted for too long."""
        if start != self.start:
            self.restart(now_ns)
            self.start = start
        else:
            passed_ns = now_ns - self._looked_ns
            is_heard = now_ns - last_packet_ns <= HEARD_NS
            # If the last check was long ago, the source may have been silent for most of that time.
            # Move the start forward by the time in which the source was silent.
            self._since_ns += passed_ns - (min(passed_ns, 2 * LOOK_NS) if is_heard else 0)
        self._looked_ns = now_ns
        return now_ns - self._since_ns >= self.timeout_ns

    def restart(self, now_ns: int) -> None:
        """Restart the timeout."""
        self._since_ns = self._looked_ns = now_ns
        self._wider_ns = self._step_ns

    def try_ask_wider(self, now_ns: int) -> bool:
        """Return whether to request a wider range now; if so, set the time of the next one."""
        if now_ns - self._since_ns < self._wider_ns:
            return False
        self._wider_ns = now_ns - self._since_ns + self._step_ns
        return True


# Forged SETUPs.

FOREIGN_SETUPS_MAX: Final = 3
"""This many SETUPs with other terms, from the source of the image, prove its own SETUP forged:
before any of its data has come, or after the image has asked its source."""
FOREIGN_SETUPS_NS: Final = 30 * HEARTBEAT_INTERVAL_NS
"""Once data of the image has come, nothing but such SETUPs must be heard for this long."""
FOREIGN_SETUP_SILENCE_NS: Final = 5 * HEARTBEAT_INTERVAL_NS
"""How long the source must be otherwise silent: a publisher of the image sends heartbeats."""
TERMS_ASK_NS: Final = 5 * HEARTBEAT_INTERVAL_NS
"""How long an image waits between two questions to its source about the true terms."""
TERMS_ANSWER_NS: Final = 2 * HEARTBEAT_INTERVAL_NS
"""How long to wait, after one answer, for another one that contradicts it."""
TERMS_QUESTIONS: Final = 6
"""How many times the image asks. The source of an honest image answers with the image's terms."""
TERMS_REST_NS: Final = 300 * HEARTBEAT_INTERVAL_NS
"""How long the image does not ask again after such an answer: in a group each question may hold
the stream up, and anyone who can forge a SETUP can cause one."""
TERMS_HEARD_NS: Final = 10 * HEARTBEAT_INTERVAL_NS
"""A source silent for longer than this is not asked: it could not answer."""
AHEAD_NS: Final = 5 * HEARTBEAT_INTERVAL_NS
"""How long, after a heartbeat shows that more was sent, one that shows less restarts no timer."""


class TermsQuestion:
    """Finds out from the answers of the source whether the SETUP of an image was forged.

    The SETUPs that arrive before the next question are the answers to this one. A SETUP with the
    terms of the image settles the question. One with other terms counts against the image. If both
    arrive, one of them is from a stranger: an image that progresses, or is complete and idle, is
    taken as genuine; one that is stuck, or holds data back, is not.

    Positions are those up to which readers were shown the stream, in bytes.
    """

    __slots__ = (
        "_asked_count",
        "_asked_ns",
        "_begin_position",
        "_contrary_count",
        "_has_foreign",
        "_has_own",
        "_is_confirmed",
        "_is_paused",
        "_misfits_rest_until_ns",
        "_rest_until_ns",
        "begin_ns",
        "deadline_ns",
        "is_holding",
    )

    begin_ns: int
    """When the first question was asked, or is to be asked."""
    deadline_ns: int
    """When to ask or to judge the answers; `NEVER_NS` while no question is open."""
    is_holding: bool
    """Whether data is held back from readers: it may belong to no stream with the image's terms,
    and then what is placed beside it is not the whole stream."""

    def __init__(self) -> None:
        self.deadline_ns = NEVER_NS
        self.is_holding = self._is_paused = False
        self._rest_until_ns = self._misfits_rest_until_ns = 0
        self._reset(0, position=-1)

    def _reset(self, now_ns: int, *, position: int) -> None:
        self.begin_ns = self._asked_ns = now_ns
        self._asked_count = self._contrary_count = 0
        self._has_own = self._has_foreign = self._is_confirmed = False
        self._begin_position = position

    @property
    def is_open(self) -> bool:
        """Return whether the source is being asked."""
        return self.deadline_ns != NEVER_NS

    def on_misfit(self, now_ns: int, position: int, *, is_holding: bool) -> bool:
        """Open a question, unless one was settled recently; return whether anything changed."""
        if self.is_open:
            is_new = is_holding and not self.is_holding
        else:
            is_new = now_ns >= self._misfits_rest_until_ns and self._begin(now_ns, position)
        self.is_holding = self.is_holding or (is_new and is_holding)
        return is_new

    def on_foreign_setup(self, now_ns: int, position: int) -> bool:
        """Record a SETUP with other terms than the image; return whether to ask now."""
        if self.is_open:
            self._has_foreign = True
            return False
        return self._begin(now_ns, position)

    def _begin(self, now_ns: int, position: int) -> bool:
        if now_ns < self._rest_until_ns:
            return False
        self._reset(now_ns, position=position)
        self.deadline_ns = now_ns
        return True

    def on_own_setup(self, now_ns: int) -> None:
        """Record a SETUP with the terms of the image."""
        if self.is_open and self._asked_count:
            self._has_own = self._is_confirmed = True
            self.deadline_ns = min(self.deadline_ns, now_ns + TERMS_ANSWER_NS)

    def stop(self) -> None:
        """Close the question: the answer no longer matters."""
        self.deadline_ns = NEVER_NS
        self.is_holding = False

    def pause(self) -> None:
        """Ask nothing until `resume`; data held back stays held back."""
        self._is_paused = self._is_paused or self.is_open
        self.deadline_ns = NEVER_NS

    def resume(self, now_ns: int) -> None:
        """Ask again, if a question was paused."""
        if self._is_paused:
            self._is_paused = False
            self.deadline_ns = now_ns

    def judge(self, now_ns: int, position: int, *, is_idle: bool) -> bool:
        """Judge the answers to the last question; return whether to ask another one.

        The source of an idle image says that it has sent no more than `position`.
        """
        if not self._asked_count:
            return True
        has_own, has_foreign = self._has_own, self._has_foreign
        is_stuck = position == self._begin_position and not is_idle
        if has_own and not (has_foreign and is_stuck):
            self.rest(now_ns)
            return False
        next_ns = self._asked_ns + TERMS_ASK_NS
        if now_ns < next_ns:
            # Both kinds of answers: the image may yet progress.
            self.deadline_ns = next_ns
            return False
        self._contrary_count += has_foreign
        self._has_own = self._has_foreign = False
        return True

    def try_ask(self, now_ns: int, *, heard_ns: int) -> bool:
        """Return whether to ask now, and count it. A source that is silent is not asked."""
        self._asked_ns = now_ns
        self.deadline_ns = now_ns + TERMS_ASK_NS
        if now_ns - heard_ns > TERMS_HEARD_NS:
            return False
        self._asked_count += 1
        return True

    def rest(self, now_ns: int) -> None:
        """Close the question and rest for a while: the source has the terms of the image."""
        self._rest_until_ns = now_ns + TERMS_REST_NS
        self.stop()

    def give_up(self, now_ns: int) -> None:
        """Close the question without an answer; only another contradicting SETUP opens one soon."""
        self._misfits_rest_until_ns = now_ns + TERMS_REST_NS
        self.stop()

    @property
    def is_over(self) -> bool:
        """Return whether all questions were asked."""
        return self._asked_count >= TERMS_QUESTIONS

    @property
    def is_contradicted(self) -> bool:
        """Return whether the source has answered with other terms, and never with the image's."""
        return (self._contrary_count > 0 or self._has_foreign) and not self._is_confirmed

    @property
    def is_disproved(self) -> bool:
        """Return whether the source has answered with other terms often enough."""
        return self._contrary_count >= FOREIGN_SETUPS_MAX


# The end of the image.

OVER_RUN_STILL_NS: Final = 5 * HEARTBEAT_INTERVAL_NS
"""A source that sends beyond the window this long, while nothing moves, may use other terms."""


OVER_RUN_WAIT_NS: Final = 5 * HEARTBEAT_INTERVAL_NS // 2
OVER_RUN_DATAGRAMS: Final = 3
"""At least this many datagrams must show that the source is out of reach: one may be forged."""


class OverRunJudge:
    """Decides whether a source is too far ahead to resend what is missing.

    Its log reaches half a term back, so it cannot once it sends more than that beyond what was
    rebuilt. It must do so for two NAK delays, and for longer than a source is silent between two
    heartbeats, while nothing arrives that fits the window: one who forges such datagrams cannot end
    an image whose own data or heartbeats arrive. An image is left only when it has some age, so
    that forged datagrams cost one new image in that time at most.

    Differs: Aeron leaves such an image to its liveness timeout of ten seconds.
    """

    __slots__ = ("_allowed_ns", "_count", "_heard_ns", "_reach_length", "_since_ns", "_wait_ns")

    def __init__(self, context: DriverContext, term_length: int, now_ns: int) -> None:
        interval_ns = context.over_run_rejoin_interval_ns
        self._allowed_ns = now_ns + interval_ns if interval_ns else NEVER_NS
        self._wait_ns = max(2 * context.nak_multicast_max_backoff_ns, OVER_RUN_WAIT_NS)
        self._reach_length = term_length // 2
        self._heard_ns = NEVER_HEARD_NS
        self._since_ns = self._count = 0

    def is_lost(self, lead_length: int, *, heard_ns: int, now_ns: int) -> bool:
        """Return whether the image must be left.

        Args:
            lead_length: How far beyond the rebuild position a datagram begins, in bytes.
            heard_ns: When something last arrived that fits the window.
            now_ns: The time now.
        """
        if now_ns < self._allowed_ns or lead_length <= self._reach_length:
            return False
        if heard_ns != self._heard_ns or not self._count:
            self._heard_ns, self._since_ns, self._count = heard_ns, now_ns, 0
        self._count += 1
        return self._count >= OVER_RUN_DATAGRAMS and now_ns - self._since_ns >= self._wait_ns


class WatchedImage(Protocol):
    """What `ImageWatch` reads of its image."""

    log: LogBuffers
    source: Address
    rebuild_position: int
    last_packet_ns: int
    idle_position: int
    ahead_ns: int
    idle_ns: int
    misfit_ns: int
    is_rejected: bool
    is_end_of_stream: bool
    life: ImageLife
    losses: Losses

    @property
    def is_begun(self) -> bool:
        """Return whether any data of the stream has arrived."""
        ...

    def on_doubt(self) -> None:
        """The image must be polled."""
        ...


class ImageWatch:
    """Decides whether one image can continue.

    `late_frames` is None for `reliable=false`: no gap lasts there.
    """

    def __init__(
        self,
        image: WatchedImage,
        feedback: StatusMessageSender,
        gaps: ImageGaps,
        doubts: ImageDoubts,
        late_frames: LateFrames | None,
        context: DriverContext,
        system_counters: SystemCounters,
        now_ns: int,
    ) -> None:
        # How the image ends, once it cannot continue.
        self.broken: ImageEnd | None = None
        self._image = image
        self._feedback = feedback
        self._gaps = gaps
        self._doubts = doubts
        self._late_frames = late_frames
        self._gap_timer = GapTimer(context.image_gap_timeout_ns)
        self._doubted_ns = min(AHEAD_NS, context.image_gap_timeout_ns // 2)
        self._images_broken = system_counters[DriverCounterId.IMAGES_BROKEN]
        # The rebuild position, and where it was before it last advanced: a frame begins there, and
        # the search for the last frame before a gap starts from there.
        self._shown_position = self._shown_from = -1
        self._foreign_setup_count = 0
        self._foreign_setup_ns = 0
        self._heard_before_ns = NEVER_HEARD_NS
        self._terms = TermsQuestion()
        self._is_paused = False
        self._over_runs = system_counters[SystemCounterId.FLOW_CONTROL_OVER_RUNS]
        self._over_run_judge = OverRunJudge(context, image.log.term_length, now_ns)
        self._over_run_floor = -1
        self._over_run_ns = 0
        self._has_warned_of_over_run = False

    @property
    def deadline_ns(self) -> int:
        """Return when to call `look` again."""
        deadline_ns = min(self._doubts.deadline_ns, self._terms.deadline_ns)
        gap_timer = self._gap_timer
        return deadline_ns if gap_timer.start < 0 else min(deadline_ns, gap_timer.deadline_ns)

    def accepts_setup(
        self, terms: tuple[int, int, int], place: tuple[int, int], source: Address, now_ns: int
    ) -> bool:
        """Return whether a SETUP belongs to the image; count it against the image if not.

        Differs: Aeron takes any SETUP of the session for a sign of life. A SETUP that begins
        elsewhere or has other terms comes from a publisher whose data this image can never take. If
        nothing else is heard from the image's own address, the image's SETUP was forged. If data is
        heard too, the image asks its source.
        """
        log = self._image.log
        if terms == (log.initial_term_id, log.term_length, log.mtu_length) and not (
            self._is_elsewhere(place, now_ns)
        ):
            return True
        if source == self._image.source:
            self._on_foreign_setup(now_ns)
        return False

    def on_own_setup(self, now_ns: int) -> None:
        """Record a SETUP of the image from one of its sources."""
        self._foreign_setup_count = 0
        self._terms.on_own_setup(now_ns)

    def _is_elsewhere(self, place: tuple[int, int], now_ns: int) -> bool:
        """Return whether a SETUP shows that the image joined at a position outside its stream.

        A publisher never goes back, and one further ahead than a window allows never got a status
        message of this image. Checked only before any data has come; later there are other signs.
        """
        image = self._image
        if image.is_begun or now_ns < image.last_packet_ns + FOREIGN_SETUP_SILENCE_NS:
            return False
        log = image.log
        position = compute_position(
            *place, initial_term_id=log.initial_term_id, bits=log.position_bits
        )
        return not 0 <= position - image.rebuild_position <= log.term_length // 2

    def _on_foreign_setup(self, now_ns: int) -> None:
        """Count a SETUP from the image's address with other terms, or open a question.

        While nothing else is heard from that address, enough of them prove the image's SETUP
        forged.
        """
        image = self._image
        if now_ns >= image.last_packet_ns + FOREIGN_SETUP_SILENCE_NS:
            if self._heard_before_ns != image.last_packet_ns:
                self._heard_before_ns = image.last_packet_ns
                self._foreign_setup_count, self._foreign_setup_ns = 0, now_ns
            self._foreign_setup_count += 1
            is_long = now_ns >= self._foreign_setup_ns + FOREIGN_SETUPS_NS
            if self._foreign_setup_count >= FOREIGN_SETUPS_MAX and (
                not image.is_begun or (is_long and not image.is_end_of_stream)
            ):
                self._prove_forged_setup()
            if not image.is_begun:
                return
        is_wanted = not image.is_end_of_stream
        if is_wanted and self._terms.on_foreign_setup(now_ns, image.rebuild_position):
            image.on_doubt()

    def on_misfit(self, source: Address, now_ns: int, *, is_invalid: bool) -> None:
        """Open a question because a source sends data that does not fit the image's terms.

        Invalid data fits no stream with such terms. Data behind it would follow without a gap, so
        readers are shown nothing until the source has answered.
        """
        image = self._image
        if source == image.source and (
            self._terms.on_misfit(now_ns, image.rebuild_position, is_holding=is_invalid)
        ):
            image.on_doubt()

    def on_over_run(self, position: int, end: int, source: Address, now_ns: int) -> None:
        """Count a datagram that begins at `position` and ends, at `end`, beyond the window.

        The first one is logged. Many, while nothing moves, are a sign of other terms.
        """
        self._over_runs.increment()
        image = self._image
        image.losses.note(OVER_RUN, end - position)
        image.misfit_ns = now_ns
        if self._over_run_floor != image.rebuild_position:
            self._over_run_floor, self._over_run_ns = image.rebuild_position, now_ns
        elif now_ns >= self._over_run_ns + OVER_RUN_STILL_NS:
            self.on_misfit(source, now_ns, is_invalid=False)
        # A datagram that begins within the window may be padding of a sender that keeps to its
        # limit; it is resent later, so it needs no warning.
        if not self._has_warned_of_over_run and position >= self._feedback.overrun_threshold:
            self._has_warned_of_over_run = True
            image.life.on_over_run(image.rebuild_position)
        if source == image.source:
            self._judge_over_run(position, now_ns)

    def _judge_over_run(self, position: int, now_ns: int) -> None:
        """End the image if its source can no longer resend what is missing."""
        image = self._image
        rebuilt_position = image.rebuild_position
        is_lost = self._over_run_judge.is_lost(
            position - rebuilt_position, heard_ns=image.last_packet_ns, now_ns=now_ns
        )
        if is_lost and not image.is_end_of_stream:
            self._break(
                ImageEnd(
                    reason=ImageEndReason.OVER_RUN,
                    position=rebuilt_position,
                    start_position=rebuilt_position,
                    end_position=position,
                )
            )
            image.on_doubt()

    @property
    def is_holding(self) -> bool:
        """Return whether readers are shown nothing more, until an answer or until the end."""
        return self._terms.is_holding or self._doubts.end is not None or self.broken is not None

    def look(self, now_ns: int, *, is_active: bool) -> None:
        """Check whether the image, whose gaps were just scanned, can continue.

        `is_active`: whether more data is expected.
        """
        image = self._image
        if self._is_paused:
            self._is_paused = False
            self._doubts.resume(now_ns)
            self._terms.resume(now_ns)
        position = image.rebuild_position
        if position != self._shown_position:
            self._shown_from, self._shown_position = self._shown_position, position
        # Checked here to save a call: idle images are checked as well.
        if now_ns >= self._doubts.deadline_ns:
            self._doubts.poll(now_ns, last_packet_ns=image.last_packet_ns, shown=position)
        if self._late_frames is not None and self._gaps.detector.length:
            self._look_at_gap(self._gaps.end, now_ns)
        elif self._gap_timer.start >= 0:
            self._gap_timer.stop()
        image.idle_position = -1
        if now_ns >= self._terms.deadline_ns:
            self._ask_for_terms(now_ns, is_active=is_active)
        if self._doubts.end is not None:
            self._break(self._doubts.end)

    def _look_at_gap(self, end: int, now_ns: int) -> None:
        """Time the first gap; request a wider range or end the image if that is due."""
        image = self._image
        position = image.rebuild_position
        if image.idle_position == position and now_ns >= image.ahead_ns + self._doubted_ns:
            # The publisher says that it has sent no more, and no heartbeat contradicts that.
            self._gap_timer.restart(now_ns)
        elif self._gap_timer.look(position, last_packet_ns=image.last_packet_ns, now_ns=now_ns):
            self._break(
                ImageEnd(
                    reason=ImageEndReason.GAP_UNFILLED,
                    position=position,
                    start_position=position,
                    end_position=end,
                )
            )
        elif self._gap_timer.try_ask_wider(now_ns):
            self._ask_wider(position, end, now_ns)

    def pause(self) -> None:
        """Ask nothing until the next `look`: the stream was, or seems to be, revoked.

        `pause` keeps the doubts, `stop` drops them. A revocation may be withdrawn; then what
        readers were shown is in doubt as before.
        """
        self._gap_timer.stop()
        self._doubts.pause()
        self._terms.pause()
        self._is_paused = True

    def stop(self) -> None:
        """Drop the doubts and questions: no reader needs what is missing."""
        self._gap_timer.stop()
        self._doubts.stop()
        self._terms.stop()

    def _ask_for_terms(self, now_ns: int, *, is_active: bool) -> None:
        """Ask the source for the terms of its stream, or judge by its answers so far.

        Differs: in Aeron a SETUP with other terms changes nothing, and an image whose own SETUP was
        forged is stuck for as long as its source is heard.
        """
        image, terms = self._image, self._terms
        # A publisher that has ended its stream sends no SETUP.
        if not is_active or image.is_rejected or image.is_end_of_stream:
            if terms.is_holding and terms.is_contradicted:
                # The data held back was sent in other terms, and some of it fits nowhere.
                self._prove_forged_setup()
            terms.stop()
            return
        is_idle = image.misfit_ns < terms.begin_ns <= image.idle_ns
        if not terms.judge(now_ns, image.rebuild_position, is_idle=is_idle):
            return
        if not terms.is_over:
            if terms.try_ask(now_ns, heard_ns=max(image.last_packet_ns, image.misfit_ns)):
                self._feedback.send_setup_request(now_ns)
        elif terms.is_disproved:
            terms.stop()
            self._prove_forged_setup()
        else:
            terms.give_up(now_ns)

    def _prove_forged_setup(self) -> None:
        self._doubts.prove_forged_setup(self._image.rebuild_position)

    def _ask_wider(self, position: int, end: int, now_ns: int) -> None:
        """Request the frame before a gap and a datagram behind it along with the gap.

        If a forged frame was shorter or longer than the genuine one, the gap begins or ends where
        no frame of the publisher does, and no resend fills it.
        """
        start = position
        if self._late_frames is not None and 0 <= self._shown_from < position:
            start = self._late_frames.last_frame(position, from_position=self._shown_from)
        self._doubts.ask(start, end + self._image.log.mtu_length, now_ns)

    def _break(self, end: ImageEnd) -> None:
        if self.broken is None:
            self.broken = end
            self._images_broken.increment()
