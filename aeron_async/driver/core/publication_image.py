"""A stream as its receiver sees it: rebuild it, ask for what is missing, say how far it got.

Invariant: nothing is placed more than half a term beyond the last status message sent, so nothing
the readers have yet to take is overwritten. The received position only passes frames that are all
there.

The image decides; its outbox carries bytes and its listener hears what changed.

Source: Aeron `PublicationImage`, `aeron_publication_image.c`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from aeron_async.driver.core.congestion_control.base import TrackRebuild
from aeron_async.driver.core.congestion_control.static import StaticWindowCongestionControl
from aeron_async.driver.core.held_failure import held, held_at
from aeron_async.driver.core.image_connection import ImageConnections
from aeron_async.driver.core.image_consumption import ImageConsumption
from aeron_async.driver.core.image_feedback import ImageFeedback
from aeron_async.driver.core.image_gaps import ImageGaps
from aeron_async.driver.core.image_intake import ImageIntake
from aeron_async.driver.core.image_life import ImageLife
from aeron_async.driver.core.image_state import OUT_OF_SIGHT, ImageState
from aeron_async.driver.core.image_watch import ImageWatch
from aeron_async.driver.core.loss_detector import NEVER_NS
from aeron_async.driver.core.nak_budget import NakBudget
from aeron_async.driver.core.reply_limiter import ReplyLimiter
from aeron_async.driver.core.subscriber_positions import SubscriberPositions
from aeron_async.driver.core.untethered import UntetheredCheck
from aeron_async.kernel import Doorbell

if TYPE_CHECKING:
    from aeron_async.driver.core.congestion_control.base import CongestionControl
    from aeron_async.driver.core.context import DriverContext
    from aeron_async.driver.core.delay import FeedbackDelay
    from aeron_async.driver.core.image_counters import ImageCounters
    from aeron_async.driver.core.image_end import ImageEnd
    from aeron_async.driver.core.outbox import Address, ReceiveDestination
    from aeron_async.driver.core.subscriber_positions import (
        SubscribableListener,
        SubscriberPosition,
    )
    from aeron_async.driver.core.system_counters import SystemCounters
    from aeron_async.logbuffer.term_log import LogBuffers

__all__ = ["PublicationImage"]


class PublicationImage:
    """One stream on its way in.

    Args:
        registration_id: Names the image within its driver.
        log: The terms it is rebuilt in.
        join_position: Where it starts, in bytes.
        source: Where its SETUP came from.
        destination: By which way that came, and by which it is answered.
        context: The driver's settings.
        congestion_control: Chooses the window.
        feedback_delay: Says when to ask for lost data.
        is_reliable: Whether lost data is asked for; if not, gaps become padding.
        counters: Its own counters.
        system_counters: The driver's.
        receiver_id: Names our end to the sender.
        group_tag: Carried by its status messages, or None.
        listener: Hears of changes.
        now_ns: The time now.

    Attributes:
        rebuild_position: Up to where every byte is there, in bytes.
        consumption_trigger: A reader that passes this position should let the image be polled.
        rtt_replies: Says which round-trip measurements are answered.
        connections: Its sources, by the way they are heard.
        is_response_requested: Whether its source wants to be answered on a stream of its own.
        is_following: Whether it is a response, whose readers follow the session that answers.
        failure: What the next poll raises.
    """

    failure: Exception | None = None

    def __init__(
        self,
        *,
        registration_id: int,
        log: LogBuffers,
        join_position: int,
        source: Address,
        destination: ReceiveDestination,
        context: DriverContext,
        congestion_control: CongestionControl,
        feedback_delay: FeedbackDelay,
        is_reliable: bool,
        counters: ImageCounters,
        system_counters: SystemCounters,
        receiver_id: int,
        group_tag: int | None,
        listener: SubscribableListener,
        now_ns: int,
    ) -> None:
        self.registration_id, self.log, self.source = registration_id, log, source
        self.session_id, self.stream_id = log.session_id, log.stream_id
        self.is_response_requested = self.is_following = False
        self.counters = counters
        self.rebuild_position = join_position
        self.subscribers = SubscriberPositions()
        self.doorbell = Doorbell()
        self._listener = listener
        self._untethered = UntetheredCheck(self, listener)
        self._congestion_control = congestion_control
        self._life = ImageLife(log, source, context, now_ns, system_counters.log_budget)
        self.connections = ImageConnections(destination, source, now_ns=now_ns)
        self._feedback = ImageFeedback(
            log,
            position=join_position,
            window_length=congestion_control.initial_window_length(),
            timeout_ns=context.status_message_timeout_ns,
            liveness_timeout_ns=context.image_liveness_timeout_ns,
            nak_budget=NakBudget(context.max_naks_per_second),
            receiver_id=receiver_id,
            group_tag=group_tag,
            connections=self.connections,
            counters=counters,
            system_counters=system_counters,
            now_ns=now_ns,
        )
        parts = log, self._feedback, source, context, system_counters
        self._watch = ImageWatch(*parts, is_reliable=is_reliable, on_doubt=self._on_doubt)
        self._intake = self._make_intake(system_counters, now_ns)
        self._gaps = ImageGaps(
            log, self._feedback, feedback_delay, system_counters, is_reliable=is_reliable
        )
        self._consumption = ImageConsumption(log, self.subscribers, self._feedback, join_position)
        self._calm_until_ns = 0
        self._bind()
        self.rtt_replies = ReplyLimiter.of(context)
        counters.receiver_position.set(join_position)
        self.consumption_trigger = self._feedback.consumption_trigger

    def _bind(self) -> None:
        """Let the parts be called directly: not by way of methods that only pass things on."""
        self.on_data, self.on_run = self._intake.on_data, self._intake.on_run
        self.on_setup = partial(self._watch.on_setup, self.connections, self._intake, self._life)

    def _make_intake(self, system_counters: SystemCounters, now_ns: int) -> ImageIntake:
        return ImageIntake(
            self.log,
            self._watch.late_frames,
            self._watch.doubts,
            self.connections,
            self._feedback,
            max_window_length=self._congestion_control.max_window_length(),
            hwm=self.counters.receiver_hwm,
            on_end=self._on_end,
            on_over_run=lambda: self._life.on_over_run(self.rebuild_position),
            on_misfit=self._watch.on_misfit,
            system_counters=system_counters,
            position=self.rebuild_position,
            now_ns=now_ns,
        )

    # What arrives.

    @held
    def on_rttm(self, *, rtt_ns: int, now_ns: int) -> None:
        """Take the result of a round-trip measurement of ours."""
        self._congestion_control.on_rttm(rtt_ns=rtt_ns, now_ns=now_ns)

    def remove_destination(self, destination: ReceiveDestination) -> None:
        """Forget a source whose destination was taken away; the others may have ended by now."""
        self.connections.remove(destination)
        self._intake.check_end_of_stream()

    def reject(self, reason: str) -> None:
        """Take nothing more, and tell its sources why, until they are silent; up to 1023 bytes."""
        self._intake.reject()
        self._feedback.reject(reason)

    # Who reads.

    @property
    def state(self) -> ImageState:
        """Return where the image is in its life."""
        return self._life.state

    @property
    def ended_ns(self) -> int:
        """Return when it ceased to be active; means nothing while it is."""
        return self._life.ended_ns

    @property
    def ended(self) -> ImageEnd | None:
        """Return why and where it ended; None where it has not."""
        return self._life.ended

    @property
    def join_position(self) -> int:
        """Where a reader that comes now would start, in bytes."""
        return self.subscribers.join_position(self.rebuild_position)

    @property
    def hwm_position(self) -> int:
        """The end of the furthest frame or heartbeat seen, in bytes."""
        return self._intake.hwm_position

    @property
    def is_end_of_stream(self) -> bool:
        """Return whether every source has ended the stream."""
        return self._intake.is_end_of_stream

    @property
    def is_accepting_subscriptions(self) -> bool:
        """Return whether a reader that comes now would still get something."""
        return self.subscribers.has_working and (
            self.state is ImageState.ACTIVE
            or (self.state is ImageState.DRAINING and not self._is_drained())
        )

    def add_subscriber(self, subscriber: SubscriberPosition) -> None:
        """Let one more subscription read; the slowest sets the pace."""
        self.subscribers.add(subscriber)

    def remove_subscriber(self, subscription_id: int) -> SubscriberPosition | None:
        """Return the position of a subscription that reads no more; None if it never did."""
        return self.subscribers.remove(subscription_id)

    def answer_with(self, session_id: int | None) -> None:
        """Tell the source which session its responses will have; None: it need not know more."""
        self._feedback.respond_with(session_id)

    # What is due.

    def poll(self, now_ns: int) -> int:
        """Rebuild, ask, report and move on as far as is due; return the next deadline.

        Raises:
            Exception: Whatever its congestion control raised, now or since the last time.
        """
        self.doorbell.is_rung = False
        self._calm_until_ns = 0
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
        if self.state not in OUT_OF_SIGHT:
            self._rebuild(now_ns)
        deadline_ns = min(self._advance(now_ns), self._report(now_ns))
        if self.state is ImageState.ACTIVE and not (
            self._congestion_control.follows_rebuild
            or self.subscribers.untethered
            or self._watch.is_holding
        ):
            self._calm_until_ns = deadline_ns
        return deadline_ns

    @held_at
    def try_show(self, now_ns: int) -> bool:
        """Show readers what came in order; False where `poll` is to look, for far more work."""
        if now_ns >= self._calm_until_ns or self.failure is not None or self.doorbell.is_rung:
            return False
        position = self._intake.whole_position()
        if position > self.rebuild_position:
            self._show(position)
        return position >= 0

    @held_at
    def try_report(self, now_ns: int) -> bool:
        """Tell the sources what readers have taken, where that is all there is to it.

        Return False where `poll` is to look instead: the image ends, a strategy has a say, or some
        readers may be left behind by the others.
        """
        is_calm = now_ns < self._calm_until_ns and self.failure is None
        if self.subscribers.untethered or not (is_calm and self._consumption.report(now_ns)):
            return False
        self.consumption_trigger = self._feedback.consumption_trigger
        self.doorbell.is_rung = False
        return True

    def fail(self, now_ns: int) -> None:
        """Drain, since `poll` has raised; or where it did so before, come one step further.

        What has arrived may still be read, under a window that is no strategy's any more.
        """
        self._congestion_control = StaticWindowCongestionControl(
            window_length=self._feedback.window_length
        )
        self._feedback.say_goodbye()
        self._life.fail(now_ns, self.rebuild_position)

    def forgive_silence(self, late_ns: int, now_ns: int) -> None:
        """Let nothing time out for the time in which this driver was not running.

        Args:
            late_ns: How long that was.
            now_ns: The time now; nothing is remembered as later than this.
        """
        intake = self._intake
        intake.last_packet_ns = min(intake.last_packet_ns + late_ns, now_ns)
        self.connections.forgive(late_ns, now_ns)
        self._life.forgive(late_ns, now_ns)
        self._untethered.forgive(late_ns, now_ns)
        self._watch.forgive(late_ns, now_ns)

    def disable_status_messages(self) -> None:
        """Say no more: a newer image of the same session speaks for this end."""
        if self.state is not ImageState.ACTIVE:
            self._feedback.is_enabled = False

    def supersede(self, now_ns: int) -> None:
        """Drain, and say no more: another response stream takes the place of this one."""
        self._feedback.is_enabled = False
        self._life.supersede(now_ns, self.rebuild_position)

    def _rebuild(self, now_ns: int) -> None:
        if not self.subscribers.has_working or self._intake.is_revoked:
            # Nobody would read what is missing.
            self._gaps.forget()
            self._watch.stop()
            return
        self._track_rebuild(now_ns)
        if self._gaps.repair(now_ns):
            self._track_rebuild(now_ns)
        was_holding = self._watch.is_holding
        self._watch.look(
            self._gaps, self._intake, now_ns, is_active=self.state is ImageState.ACTIVE
        )
        if was_holding and not self._watch.is_holding and self._watch.broken is None:
            self._track_rebuild(now_ns)

    def _report(self, now_ns: int) -> int:
        """Send what is due to the sources, and return when there is more to send."""
        if self.state in OUT_OF_SIGHT:
            return NEVER_NS
        deadline_ns = self._feedback.poll(now_ns)
        self.consumption_trigger = (
            self._feedback.consumption_trigger if self.state is ImageState.ACTIVE else 0
        )
        if self.connections.live_count(now_ns):
            deadline_ns = min(deadline_ns, self._gaps.deadline_ns, self._watch.deadline_ns)
        if self._congestion_control.should_measure_rtt(now_ns):
            self._feedback.send_rttm(now_ns)
            self._congestion_control.on_rttm_sent(now_ns)
        return min(deadline_ns, self._congestion_control.rtt_deadline_ns())

    def _track_rebuild(self, now_ns: int) -> None:
        consumed = self.subscribers.consumed()
        min_consumed = min(consumed)
        before = max(self.rebuild_position, *consumed)
        hwm_position = self._intake.hwm_position
        after, is_loss_found = self._gaps.scan(before, hwm_position, now_ns)
        if self._watch.is_holding:
            # Not counted as shown: it will be, or the image ends.
            after = max(before, self.rebuild_position)
        elif after > self.rebuild_position:
            self._show(after)
        track = TrackRebuild(
            consumption_position=min_consumed,
            last_sm_position=self._feedback.next_sm_position,
            hwm_position=hwm_position,
            rebuild_position_before=before,
            rebuild_position=after,
            loss_found=is_loss_found,
        )
        window_length, is_forced = self._congestion_control.on_track_rebuild(track, now_ns=now_ns)
        self._consumption.schedule(min_consumed, window_length, is_forced=is_forced)

    def _show(self, position: int) -> None:
        self.rebuild_position = self._intake.floor_position = position
        self.counters.receiver_position.set(position)
        self._listener.on_image_progress(self)

    def _advance(self, now_ns: int) -> int:
        """Move through the states as far as the time, the source and the readers allow."""
        life = self._life
        if not self.is_end_of_stream and life.resume(now_ns, self.rebuild_position):
            self._feedback.stay()
        if life.state is ImageState.ACTIVE:
            untethered_ns = self._untethered.poll_image(now_ns, self._feedback.window_length)
            deadline_ns = life.end(
                now_ns,
                last_packet_ns=self._intake.last_packet_ns,
                has_readers=self.subscribers.has_working,
                is_whole=self.is_end_of_stream and self._is_rebuilt_to_its_end(),
                is_revoked=self._intake.is_revoked,
                broken=self._watch.broken,
                position=self.rebuild_position,
            )
            if deadline_ns:
                return min(deadline_ns, untethered_ns)
            if self._watch.broken is None:
                self._feedback.say_goodbye()
        return life.leave(
            now_ns,
            has_readers=self.subscribers.has_working,
            is_drained=self._is_drained,
            consumed=self.subscribers.consumed,
            heard_ns=0 if self.is_end_of_stream else self._intake.last_packet_ns,
            position=self.rebuild_position,
        )

    def _on_end(self) -> None:
        """Tell readers where the stream ends, or that it goes on after all."""
        self._calm_until_ns = 0
        self._listener.on_image_progress(self)

    def _on_doubt(self) -> None:
        self._calm_until_ns = 0

    def _is_rebuilt_to_its_end(self) -> bool:
        # Differs: Aeron waits for whatever any heartbeat claimed to have been sent. One that was
        # made up would keep an idle stream from ending until its source is silent.
        return self.rebuild_position >= self.log.metadata.end_of_stream_position

    def _is_drained(self) -> bool:
        return self.subscribers.have_consumed(self.rebuild_position)
