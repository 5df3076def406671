"""One stream as this driver receives it: datagrams in, positions and feedback out.

`PublicationImage` has these kinds of methods, in this order:

- intake, which the dispatcher calls for each datagram: `insert_packet` places data in the log, and
  heartbeats show where the stream is and where it ends;
- other input: SETUPs, round-trip measurements, removed destinations, a rejection;
- due work: `poll` does all that is due and returns the next deadline;
- rebuild, which shows readers what is complete and handles gaps;
- consumption, which makes room behind the slowest reader and reports its position to the sources;
- subscribers, which join and leave;
- life, which changes the state of the image.

A fast way stands directly above the long way that it shortens. It has the same effect, or it
returns 0 or False and has changed nothing that a poll would not. Then the caller takes the long
way: `insert_packet` for each datagram that `insert_packets_fast` has not placed, and `poll` in
place of the others.

Four parts have invariants of their own: `StatusMessageSender` sends, `ImageGaps` finds and
requests what is missing, `ImageWatch` decides whether the image can continue, and `ImageLife` is
the table of its states.

Invariant: nothing is placed more than half a term beyond the last status message sent, so what a
reader has yet to read is never overwritten. The rebuild position moves only over complete frames.

Source: Aeron `PublicationImage`, `PublicationImage.insertPacket`, `PublicationImage.trackRebuild`,
`PublicationImage.sendPendingStatusMessage`, `PublicationImage.initiateAnyRttMeasurements`,
`aeron_publication_image.c`, `aeron_publication_image_insert_packet`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.budgets import ReplyLimiter
from aeron_async.driver.core.congestion_control import windows
from aeron_async.driver.core.congestion_control.base import TrackRebuild
from aeron_async.driver.core.image_connection import NEVER_HEARD_NS, ImageConnections
from aeron_async.driver.core.image_doubts import ImageDoubts
from aeron_async.driver.core.image_gaps import ImageGaps
from aeron_async.driver.core.image_state import OUT_OF_SIGHT, ImageLife, ImageState
from aeron_async.driver.core.image_watch import ImageWatch
from aeron_async.driver.core.lanes import Rebuilding
from aeron_async.driver.core.losses import FORGED, MALFORMED, REFUSED, Arrivals, Losses
from aeron_async.driver.core.rare_changes import RARE_CHANGES
from aeron_async.driver.core.status_message_sender import StatusMessageSender
from aeron_async.driver.core.strategies import defer_exception, defer_exception_at
from aeron_async.driver.core.subscriber_position import SubscriberPositions, UntetheredCheck
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.logbuffer.late_frames import BEYOND_BUDGET, LateFrames
from aeron_async.logbuffer.log_buffers import clean_to
from aeron_async.logbuffer.metadata import END_OF_STREAM_UNKNOWN
from aeron_async.logbuffer.placing import place_batches, skip_whole
from aeron_async.logbuffer.position import PARTITION_COUNT, compute_position, partition_index
from aeron_async.logbuffer.rebuilder import insert
from aeron_async.logbuffer.wake_flag import WakeFlag
from aeron_async.protocol.datagram import HEARTBEAT, INVALID, check_data
from aeron_async.protocol.header import DataFlags, wrap_int32

if TYPE_CHECKING:
    from aeron_async.driver.core.congestion_control.base import CongestionControl
    from aeron_async.driver.core.context import DriverContext
    from aeron_async.driver.core.feedback_delay import FeedbackDelay
    from aeron_async.driver.core.image_connection import ImageConnection
    from aeron_async.driver.core.outbox import Address, ReceiveDestination, ReportBatch
    from aeron_async.driver.core.stream_counters import ImageCounters
    from aeron_async.driver.core.subscriber_position import SubscribableListener, SubscriberPosition
    from aeron_async.driver.core.system_counters import SystemCounters
    from aeron_async.logbuffer.log_buffers import LogBuffers
    from aeron_async.logbuffer.placing import SegmentTable

__all__ = ["PublicationImage"]

EOS_FLAGS_OFFSET: Final = 5
# Plain integers: combining enum members takes as long as all other work for a heartbeat.
END_OF_STREAM: Final = int(DataFlags.END_OF_STREAM)
REVOKED: Final = int(DataFlags.REVOKED)
HEARTBEATS_AFTER_THE_END: Final = 2
"""This many heartbeats without an end, or with another one, withdraw it: one may be delayed."""


class PublicationImage(Rebuilding):
    """One stream that this driver receives.

    `join_position` is where it starts, and `source` is the address its SETUP came from. Feedback
    goes out by `destination`, which received the SETUP. If the image is not reliable, gaps become
    padding. All positions are in bytes. `losses` counts what is lost.
    """

    _feedback: StatusMessageSender
    connections: ImageConnections
    subscribers: SubscriberPositions

    # CPython reads slots fastest: without them an object has quick access to 30 attributes.
    __slots__ = (
        "__weakref__",
        "_clean_position",
        "_congestion_control",
        "_doubts",
        "_end_position",
        "_gaps",
        "_heartbeats_after_end",
        "_heartbeats_received",
        "_is_revoked",
        "_is_window_static",
        "_join_position",
        "_late_frames",
        "_max_window_length",
        "_report_until_ns",
        "_system_counters",
        "_untethered",
        "_watch",
        "_whole_position",
        "ahead_ns",
        "consumption_trigger",
        "counters",
        "idle_ns",
        "is_following",
        "is_rejected",
        "is_response_requested",
        "life",
        "log",
        "losses",
        "misfit_ns",
        "registration_id",
        "rtt_replies",
        "session_id",
        "source",
        "stream_id",
    )

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
        losses: Losses | None = None,
    ) -> None:
        self.registration_id: int = registration_id
        self.log: LogBuffers = log
        self.source: Address = source
        self.session_id: int = log.session_id
        self.stream_id: int = log.stream_id
        self.counters: ImageCounters = counters
        self._system_counters = system_counters
        self._heartbeats_received = system_counters[SystemCounterId.HEARTBEATS_RECEIVED]
        self.connections = ImageConnections(destination, source, now_ns=now_ns)
        self.rtt_replies: ReplyLimiter = ReplyLimiter.of(context)
        self._untethered = UntetheredCheck(self, listener)
        self._congestion_control = congestion_control
        self._max_window_length = congestion_control.max_window_length()
        self._feedback = StatusMessageSender(
            log,
            position=join_position,
            window_length=congestion_control.initial_window_length(),
            context=context,
            receiver_id=receiver_id,
            group_tag=group_tag,
            connections=self.connections,
            counters=counters,
            system_counters=system_counters,
            now_ns=now_ns,
        )
        self.losses: Losses = Losses() if losses is None else losses
        self._late_frames = LateFrames(log) if is_reliable else None
        self._doubts = ImageDoubts(log, self._feedback, source, system_counters, self.on_doubt)
        # The first gap, and those behind it.
        self._gaps = ImageGaps(
            log, self._feedback, feedback_delay, system_counters, self._late_frames, self.losses
        )
        parts = self._feedback, self._gaps, self._doubts, self._late_frames
        self._watch = ImageWatch(self, *parts, context, system_counters, now_ns)
        self.life: ImageLife = ImageLife(log, source, context, now_ns, system_counters.log_budget)
        self._set_up_state(join_position, now_ns)

    def _set_up_state(self, join_position: int, now_ns: int) -> None:
        self.subscribers = SubscriberPositions()
        self.wake_flag = WakeFlag()
        control = type(self._congestion_control)
        self._is_window_static = control is windows.StaticWindowCongestionControl
        # Whether the source asks for answers on a response stream.
        self.is_response_requested: bool = False
        # Whether this is a response image, whose readers follow the session that answers.
        self.is_following: bool = False
        self.failure = None
        self._calm_until_ns = self._report_until_ns = 0
        self._join_position = self._clean_position = join_position
        self.rebuild_position = self.hwm_position = join_position
        # From the rebuild position up to here, whole frames were placed one behind the other.
        self._whole_position = join_position
        # A copy of what the log says, which readers in other processes can change.
        self._end_position = END_OF_STREAM_UNKNOWN
        self.counters.receiver_position.set(join_position)
        self.counters.receiver_hwm.set(join_position)
        self._attach(self.log, self.counters)
        # A reader that passes this position must set the wake flag.
        self.consumption_trigger: int = self._feedback.consumption_trigger
        self.last_packet_ns = now_ns
        self.idle_position = -1
        # When a heartbeat last showed that more was sent than has arrived.
        self.ahead_ns: int = NEVER_HEARD_NS
        # When a heartbeat last showed that readers have been shown everything sent.
        self.idle_ns: int = NEVER_HEARD_NS
        # When a datagram last did not fit the terms of the image.
        self.misfit_ns: int = NEVER_HEARD_NS
        self.is_rejected: bool = False
        self.arrivals = Arrivals(self.log.term_length)
        self._mark_position = self._mark_ns = 0
        self.is_end_of_stream = False
        self._is_revoked = False
        self._heartbeats_after_end = 0
        self._is_fast_way_closed = False

    # Intake.

    def insert_alone_fast(
        self,
        frame: memoryview,
        segments: SegmentTable,
        connection: ImageConnection,
        term_id: int,
        term_offset: int,
        now_ns: int,
    ) -> bool:
        """Place one frame that is next in order, and show it to readers; return whether it could.

        If a reader could not be notified, `failure` says why, and `poll` must follow. The segment
        table is that of a single datagram.
        """
        if not self._is_next(term_id, term_offset, now_ns):
            return False
        placed = self.insert_packets_fast(
            frame, segments, 0, 0, connection, term_id, term_offset, now_ns
        )
        if not placed:
            return False
        self.advance_rebuild_position_fast(now_ns)
        return True

    def on_heartbeat_fast(
        self, term_id: int, term_offset: int, connection: ImageConnection, now_ns: int
    ) -> bool:
        """Take a heartbeat without flags from where the stream is; return whether that was all."""
        if self.is_rejected or not self._is_next(term_id, term_offset, now_ns):
            return False
        connection.last_activity_ns = self.last_packet_ns = self.idle_ns = now_ns
        self.idle_position = self._doubts.behind_ns = -1
        self._heartbeats_received.increment()
        return True

    def _is_next(self, term_id: int, term_offset: int, now_ns: int) -> bool:
        """Return whether a calm image has all up to this place, and nothing beyond."""
        log, position = self.log, self.rebuild_position
        return not (
            now_ns >= self._calm_until_ns
            or position != self.hwm_position
            or self.failure is not None
            or self.wake_flag.is_set
            or self.is_end_of_stream
            or term_offset != position & (log.term_length - 1)
            or wrap_int32(term_id - log.initial_term_id) != position >> log.position_bits
        )

    def insert_packets_fast(
        self,
        data: memoryview,
        segments: SegmentTable,
        index: int,
        start: int,
        connection: ImageConnection,
        term_id: int,
        term_offset: int,
        now_ns: int,
    ) -> int:
        """Place as much of a segment batch as is plain data in a hole; return the bytes placed.

        `index` is that of the first batch in `segments`, `start` the offset of its first datagram
        in `data`; term id and term offset are those of its first frame.
        """
        log = self.log
        term_count = wrap_int32(term_id - log.initial_term_id)
        if term_count < 0 or self._is_fast_way_closed or not 0 <= term_offset < log.term_length:
            return 0
        position = (term_count << log.position_bits) + term_offset
        feedback = self._feedback
        if position < self.rebuild_position or position < feedback.last_sm_position:
            return 0
        limit = feedback.overrun_threshold - position
        late_frames = self._late_frames if position < self.hwm_position else None
        if late_frames is not None:
            late_frames.fill_budgets(now_ns)
            room = late_frames.room_at(
                position,
                floor_position=self.rebuild_position,
                hwm_position=self.hwm_position,
                wanted_length=segments[len(segments) - 2] - start,
            )
            limit = min(limit, room)
        partition = term_count % PARTITION_COUNT
        where = log.terms[partition], log.term_words[partition], term_offset
        placed = place_batches(data, segments, index, start, *where, limit=limit)
        if placed:
            connection.last_activity_ns = self.last_packet_ns = now_ns
            if late_frames is not None:
                late_frames.on_placed(position, position + placed)
            if position + placed > self.hwm_position:
                self._set_hwm(position + placed)
            if position in (self._whole_position, self.rebuild_position):
                self._whole_position = position + placed
            if self._late_frames is not None and start + placed < segments[len(segments) - 2]:
                behind = index, start, placed, position
                known = self.rebuild_position, self.hwm_position, feedback.overrun_threshold
                more, hwm = self._late_frames.place_apart(data, segments, behind, known, now_ns)
                placed += more
                if hwm > self.hwm_position:
                    self._set_hwm(hwm)
        return placed

    def insert_packet(
        self,
        datagram: memoryview,
        connection: ImageConnection,
        *,
        term_id: int,
        term_offset: int,
        now_ns: int,
    ) -> bool:
        """Place a datagram of data, padding or heartbeat; return False if it is invalid.

        A valid datagram that cannot be placed now is only counted.
        """
        if self.is_rejected:
            return True
        log = self.log
        length = check_data(
            datagram, initial_term_id=log.initial_term_id, term_length=log.term_length
        )
        if length < 0:
            self.losses.note(MALFORMED if length == INVALID else FORGED, len(datagram))
            if length == INVALID:
                self._system_counters[SystemCounterId.INVALID_PACKETS].increment()
                self._on_misfit(connection, now_ns, is_invalid=True)
                return False
            # Differs: Aeron drops these without counting them.
            self._system_counters[DriverCounterId.OLD_TERM_PACKETS].increment()
            self._on_misfit(connection, now_ns)
            return True
        position = compute_position(
            term_id, term_offset, initial_term_id=log.initial_term_id, bits=log.position_bits
        )
        end = position + length
        feedback = self._feedback
        if end > feedback.overrun_threshold:
            self._watch.on_over_run(position, end, connection.source, now_ns)
        elif length == HEARTBEAT:
            self._on_heartbeat(position, datagram[EOS_FLAGS_OFFSET], connection, now_ns)
        elif position < feedback.last_sm_position:
            self._on_under_run(datagram, position, end, connection, now_ns)
        else:
            connection.last_activity_ns = now_ns
            self.last_packet_ns = now_ns
            if position >= self.hwm_position:
                index = partition_index(position, bits=log.position_bits)
                insert(log.terms[index], log.term_words[index], term_offset, datagram)
                self._on_placed(end)
            elif self._insert_late(datagram, position, connection, now_ns):
                self._on_placed(end)
        return True

    def _on_placed(self, end: int) -> None:
        if end > self.hwm_position:
            self._set_hwm(end)
        if self.is_end_of_stream and end > self._end_position:
            self._withdraw_end()

    def _set_hwm(self, position: int) -> None:
        self.hwm_position = position
        self.counters.receiver_hwm.set(position)

    def _insert_late(
        self, datagram: memoryview, position: int, connection: ImageConnection, now_ns: int
    ) -> bool:
        """Place a datagram where something may already lie; return whether it agrees with that."""
        late_frames, floor_position = self._late_frames, self.rebuild_position
        if late_frames is None:
            # Where gaps were filled with padding, honest data contradicts what is in the log.
            if position >= floor_position:
                log = self.log
                index = partition_index(position, bits=log.position_bits)
                offset = position & (log.term_length - 1)
                insert(log.terms[index], log.term_words[index], offset, datagram)
            return True
        late_frames.fill_budgets(now_ns)
        conflict = late_frames.place(
            datagram, position, floor_position=floor_position, hwm_position=self.hwm_position
        )
        doubts = self._doubts
        if conflict is None:
            doubts.on_agreement(position, position + len(datagram))
            return True
        if conflict is BEYOND_BUDGET:
            # Treat it as lost. It will be resent, and the first missing frame needs no budget.
            self._system_counters[DriverCounterId.LATE_PACKETS_DROPPED].increment()
            self.losses.note(REFUSED, len(datagram))
            return False
        if not conflict.is_shown and doubts.try_spend_conflict(now_ns):
            late_frames.clear(conflict, hwm_position=self.hwm_position)
            self._whole_position = floor_position
        self.losses.note(FORGED, len(datagram))
        doubts.on_conflict(conflict, connection.source, now_ns, shown=floor_position)
        return False

    def _on_under_run(
        self,
        datagram: memoryview,
        position: int,
        end: int,
        connection: ImageConnection,
        now_ns: int,
    ) -> None:
        """Take a datagram behind the consumption position that the sender was last given."""
        feedback = self._feedback
        self._system_counters[SystemCounterId.FLOW_CONTROL_UNDER_RUNS].increment()
        if end >= feedback.last_sm_position - self._max_window_length:
            connection.last_activity_ns = now_ns
        # The log keeps what readers were shown for another term.
        oldest_position = feedback.next_sm_position - self.log.term_length // 2
        if position >= max(self._join_position, oldest_position):
            self._insert_late(datagram, position, connection, now_ns)

    def _on_misfit(
        self, connection: ImageConnection, now_ns: int, *, is_invalid: bool = False
    ) -> None:
        """Note a datagram that does not fit the terms of the image."""
        self.misfit_ns = now_ns
        self._watch.on_misfit(connection.source, now_ns, is_invalid=is_invalid)

    def _on_heartbeat(
        self, position: int, flags: int, connection: ImageConnection, now_ns: int
    ) -> None:
        if position < self._feedback.last_sm_position - self.log.term_length:
            self._system_counters[SystemCounterId.FLOW_CONTROL_UNDER_RUNS].increment()
            return
        connection.last_activity_ns = now_ns
        if position >= self.rebuild_position:
            self._doubts.behind_ns = -1
        elif len(self.connections) == 1:
            self._doubts.on_behind(
                position,
                now_ns=now_ns,
                last_packet_ns=self.last_packet_ns,
                shown=self.rebuild_position,
            )
        self.last_packet_ns = now_ns
        self.idle_position = position
        if position > self.rebuild_position:
            self.ahead_ns = now_ns
        elif position == self.rebuild_position:
            self.idle_ns = now_ns
        if flags & END_OF_STREAM:
            self._on_end_told(position, connection, is_revoked=bool(flags & REVOKED))
        elif self.is_end_of_stream and position >= self.rebuild_position:
            # One from further back is old, as the network may have doubled or delayed it.
            self._doubt_end()
        if position > self.hwm_position:
            self._set_hwm(position)
        self._heartbeats_received.increment()

    def _on_end_told(self, position: int, connection: ImageConnection, *, is_revoked: bool) -> None:
        # Of several sources one may have sent less than another, and ends there.
        if len(self.connections) == 1 and self._is_passed(position):
            self._system_counters[DriverCounterId.STREAM_ENDS_IGNORED].increment()
        elif not self.is_end_of_stream:
            connection.is_end_of_stream = True
            connection.eos_position = position
            self._check_end_of_stream(is_revoked=is_revoked)
        elif position != connection.eos_position:
            # One of the two ends was forged. The publisher will repeat the true one.
            self._doubt_end()

    def _is_passed(self, position: int) -> bool:
        """Return whether the stream has been beyond a position, so that it cannot end there.

        Differs: Aeron accepts an end up to a term behind what was reported.
        """
        return position < max(self.rebuild_position, self._feedback.last_sm_position)

    def _check_end_of_stream(self, *, is_revoked: bool = False) -> None:
        """End the stream once every source has ended it."""
        eos_position = self.connections.eos_position
        if eos_position is None or self.is_end_of_stream:
            return
        if self._is_passed(eos_position):
            self._system_counters[DriverCounterId.STREAM_ENDS_IGNORED].increment()
            return
        self.is_end_of_stream = True
        RARE_CHANGES.note()
        self._is_revoked = is_revoked
        if is_revoked:
            self.log.metadata.is_publication_revoked = True
            self._system_counters[SystemCounterId.PUBLICATION_IMAGES_REVOKED].increment()
        self._end_position = eos_position
        self.log.metadata.end_of_stream_position = eos_position
        # From now on each datagram takes the long way: it may show that the end was false.
        self._is_fast_way_closed = True
        self._heartbeats_after_end = 0
        self._on_end_changed()

    def _doubt_end(self) -> None:
        """Count a heartbeat that contradicts the end of the stream."""
        self._heartbeats_after_end += 1
        if self._heartbeats_after_end >= HEARTBEATS_AFTER_THE_END:
            self._withdraw_end()

    def _withdraw_end(self) -> None:
        """Withdraw a false end of the stream: its publisher is still sending."""
        self._system_counters[DriverCounterId.STREAM_ENDS_WITHDRAWN].increment()
        self.is_end_of_stream = self._is_revoked = False
        RARE_CHANGES.note()
        self._is_fast_way_closed = self.is_rejected
        metadata = self.log.metadata
        self._end_position = metadata.end_of_stream_position = END_OF_STREAM_UNKNOWN
        metadata.is_publication_revoked = False
        for connection in self.connections:
            connection.is_end_of_stream = False
        self._on_end_changed()

    def _on_end_changed(self) -> None:
        """Notify readers that the stream has ended, or continues after a false end."""
        self._calm_until_ns = 0
        self.subscribers.on_progress()

    # Other input.

    def on_setup(
        self,
        terms: tuple[int, int, int],
        place: tuple[int, int],
        *,
        destination: ReceiveDestination,
        source: Address,
        now_ns: int,
    ) -> bool:
        """Take a SETUP as a sign of life; return False if it belongs to another stream.

        `terms` are its initial term id, term length and MTU, `place` its active term id and offset.
        """
        connection = None
        if self._watch.accepts_setup(terms, place, source, now_ns):
            connection = self.connections.find(destination, source, now_ns)
        if connection is None:
            self.life.is_awaited = True
            return False
        self._watch.on_own_setup(now_ns)
        connection.last_activity_ns = now_ns
        if connection.is_new:
            self.connections.keep(connection)
        return True

    @defer_exception
    def on_rttm(self, *, rtt_ns: int, now_ns: int) -> None:
        """Take the result of a round-trip measurement."""
        self._congestion_control.on_rttm(rtt_ns=rtt_ns, now_ns=now_ns)

    def remove_destination(self, destination: ReceiveDestination) -> None:
        """Remove the sources of a removed destination; the others may all have ended by now."""
        self.connections.remove(destination)
        self._check_end_of_stream()

    def reject(self, reason: str) -> None:
        """Ignore further data, and send the reason (up to 1023 bytes) until the source stops."""
        self.is_rejected = self._is_fast_way_closed = True
        self._feedback.reject(reason)

    def answer_with(self, session_id: int | None) -> None:
        """Set the session of the response stream to announce to the source; None to stop."""
        self._feedback.respond_with(session_id)

    def on_doubt(self) -> None:
        """Take no fast way before the next poll: something needs to be checked."""
        self._calm_until_ns = 0

    # Due work.

    def poll(self, now_ns: int) -> int:
        """Rebuild, send NAKs and status messages, change the state; return the next deadline.

        Raises:
            Exception: What the congestion control raised, in this poll or since the last one.
        """
        self.wake_flag.is_set = False
        self._calm_until_ns = 0
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
        # Not `self.state`: an idle image is polled for each status message.
        if self.life.state not in OUT_OF_SIGHT:
            self._rebuild(now_ns)
        deadline_ns, report_ns = self._change_state(now_ns), NEVER_NS
        if self.life.state not in OUT_OF_SIGHT:
            report_ns = self._send_pending_status_message(now_ns)
            if self.connections.live_count(now_ns):
                deadline_ns = min(deadline_ns, self._gaps.deadline_ns, self._watch.deadline_ns)
            deadline_ns = min(deadline_ns, self._initiate_any_rttm(now_ns))
        is_plain = type(self._congestion_control) in windows.PLAIN_WINDOWS
        self._report_until_ns = deadline_ns if is_plain else 0
        deadline_ns = min(deadline_ns, report_ns)
        if self.life.state is ImageState.ACTIVE and not (
            self._congestion_control.follows_rebuild
            or self.subscribers.untethered
            or self._gaps.detector.length
            or self._watch.is_holding
        ):
            self._calm_until_ns = deadline_ns
        return deadline_ns

    def _initiate_any_rttm(self, now_ns: int) -> int:
        """Measure the round trip if the congestion control wants that; return when it next may."""
        control = self._congestion_control
        if control.should_measure_rtt(now_ns):
            self._feedback.send_rttm(now_ns)
            control.on_rttm_sent(now_ns)
        return control.rtt_deadline_ns()

    # Rebuild.

    def _rebuild(self, now_ns: int) -> None:
        """Show readers what is complete, request or pad what is missing, check what contradicts."""
        if not self.subscribers.has_working or self._is_revoked:
            # No reader needs what is missing.
            self._gaps.forget()
            if self.subscribers.has_working:
                self._watch.pause()
            else:
                self._watch.stop()
            return
        is_held = self._advance_rebuild_position(now_ns)
        if self._gaps.repair(now_ns):
            is_held = self._advance_rebuild_position(now_ns)
        self._watch.look(now_ns, is_active=self.life.state is ImageState.ACTIVE)
        if is_held and not self._watch.is_holding:
            self._advance_rebuild_position(now_ns)

    @defer_exception_at
    def advance_rebuild_position_fast(self, now_ns: int) -> bool:
        """Show readers what arrived in order; return False where `poll` must do the work.

        That is where anything is due, where a gap is possible or the data crosses into another
        term, and where the stream has ended.
        """
        position, hwm_position = self.rebuild_position, self.hwm_position
        if (
            now_ns >= self._calm_until_ns
            or self.failure is not None
            or self.wake_flag.is_set
            or self.is_end_of_stream
        ):
            return False
        if position != hwm_position:
            log = self.log
            offset = position & (log.term_length - 1)
            end = offset + hwm_position - position
            if end > log.term_length:
                return False
            # Without late frames a datagram may have been written over a header.
            if self._whole_position != hwm_position or self._late_frames is None:
                words = log.term_words[partition_index(position, bits=log.position_bits)]
                if skip_whole(words, offset, end) != end:
                    return False
            self._set_rebuild_position(hwm_position)
        # As a poll would: without a gap there is nothing to learn from a heartbeat.
        self.idle_position = -1
        return True

    def _advance_rebuild_position(self, now_ns: int) -> bool:
        """Show complete data, schedule status messages; return whether data is held back."""
        consumed = self.subscribers.consumed()
        min_consumed = min(consumed)
        before = max(self.rebuild_position, *consumed)
        hwm_position = self.hwm_position
        after, is_loss_found = self._gaps.scan(before, hwm_position, now_ns)
        is_held = after > self.rebuild_position and self._watch.is_holding
        if is_held:
            # Not counted as shown: either it will be shown later, or the image ends.
            after = max(before, self.rebuild_position)
        elif after > self.rebuild_position:
            self._set_rebuild_position(after)
        window_length, is_forced = self._next_window(
            min_consumed, before, after, now_ns, is_loss_found=is_loss_found
        )
        self._schedule_status_message(min_consumed, window_length, is_forced=is_forced)
        return is_held

    def _next_window(
        self, consumed: int, before: int, after: int, now_ns: int, *, is_loss_found: bool = False
    ) -> tuple[int, bool]:
        """Ask the congestion control for the window, and whether it must be reported at once."""
        track = TrackRebuild(
            consumption_position=consumed,
            last_sm_position=self._feedback.next_sm_position,
            hwm_position=self.hwm_position,
            rebuild_position_before=before,
            rebuild_position=after,
            loss_found=is_loss_found,
        )
        return self._congestion_control.on_track_rebuild(track, now_ns=now_ns)

    def _set_rebuild_position(self, position: int) -> None:
        before, self.rebuild_position, now_ns = self.rebuild_position, position, self.last_packet_ns
        if position >= self._mark_position or now_ns >= self._mark_ns:
            self._mark_position, self._mark_ns = self.arrivals.mark(before, position, now_ns)
        self.counters.receiver_position.set(position)
        for subscriber in self.subscribers.active:
            subscriber.on_progress()

    # Consumption.

    @defer_exception_at
    def send_pending_status_message_fast(self, now_ns: int) -> bool:
        """Send a status message for what readers have read, if nothing else is due.

        Return False where `poll` must do it: the image ends, the congestion control must be asked,
        or an untethered reader may fall behind.
        """
        if now_ns >= self._calm_until_ns or self.failure is not None or self.subscribers.untethered:
            return False
        if not self._note_consumed(now_ns):
            return False
        self._feedback.poll(now_ns)
        self.consumption_trigger = self._feedback.consumption_trigger
        self.wake_flag.is_set = False
        return True

    def _note_consumed(self, now_ns: int) -> bool:
        """Schedule a status message if readers have read enough; return False without readers."""
        consumed = self.subscribers.consumed()
        if not consumed:
            return False
        position, window_length, is_forced = min(consumed), self._feedback.window_length, False
        if position == self._feedback.next_sm_position and self._report_until_ns:
            return True  # A plain window changes only with what was read.
        if not self._is_window_static:
            before = max(self.rebuild_position, *consumed)
            window_length, is_forced = self._next_window(position, before, before, now_ns)
        self._schedule_status_message(position, window_length, is_forced=is_forced)
        return True

    @defer_exception
    def report_fast(self, now_ns: int, due_ns: int, batch: ReportBatch) -> int:
        """Let a due status message leave with a batch; return the next deadline, 0 for `poll`."""
        # What arrives can move these two.
        until_ns = min(self._report_until_ns, self._gaps.deadline_ns, self._watch.deadline_ns)
        if (
            now_ns >= until_ns
            or not self._calm_until_ns
            or self.failure is not None
            or self.wake_flag.is_set
            or self.rebuild_position != self.hwm_position
            or not self._note_consumed(now_ns)
        ):
            return 0
        self._calm_until_ns = min(until_ns, self._feedback.report(now_ns, due_ns, batch))
        self.consumption_trigger = self._feedback.consumption_trigger
        return self._calm_until_ns

    def _send_pending_status_message(self, now_ns: int) -> int:
        """Send the status message that is due, or was scheduled; return the next deadline."""
        feedback = self._feedback
        deadline_ns = feedback.poll(now_ns)
        is_active = self.life.state is ImageState.ACTIVE
        self.consumption_trigger = feedback.consumption_trigger if is_active else 0
        return deadline_ns

    def _schedule_status_message(
        self, position: int, window_length: int, *, is_forced: bool
    ) -> None:
        """Schedule a status message if the slowest reader, at `position`, has moved far enough.

        The log is cleaned a term behind what is reported.
        """
        if self._feedback.schedule(position, window_length, is_forced=is_forced):
            log = self.log
            self._clean_position = clean_to(
                log, clean_position=self._clean_position, position=position - log.term_length
            )

    # Subscribers.

    @property
    def state(self) -> ImageState:
        """Return the state of the image."""
        return self.life.state

    @property
    def is_begun(self) -> bool:
        """Return whether any data of the stream has arrived."""
        return self.hwm_position > self._join_position

    @property
    def join_position(self) -> int:
        """Where a reader that joins now starts, in bytes."""
        return self.subscribers.join_position(self.rebuild_position)

    @property
    def is_accepting_subscriptions(self) -> bool:
        """Return whether a reader that joins now can still read something."""
        return self.subscribers.has_working and (
            self.state is ImageState.ACTIVE
            or (self.state is ImageState.DRAINING and not self._is_drained())
        )

    def add_subscriber(self, subscriber: SubscriberPosition) -> None:
        """Add a subscription as a reader; the slowest reader limits the window."""
        self._calm_until_ns = 0
        self.subscribers.add(subscriber)

    def remove_subscriber(self, subscription_id: int) -> SubscriberPosition | None:
        """Remove a subscription and return its position; None if it was no reader."""
        self._calm_until_ns = 0
        return self.subscribers.remove(subscription_id)

    # Life.

    def _change_state(self, now_ns: int) -> int:
        """Change the state as far as the time, the source and the readers allow."""
        life = self.life
        if (
            life.state is ImageState.DRAINING
            and not self.is_end_of_stream
            and life.resume(now_ns, self.rebuild_position)
        ):
            self._feedback.withdraw_eos()
        if life.state is ImageState.ACTIVE:
            untethered_ns = self._untethered.poll_image(now_ns, self._feedback.window_length)
            deadline_ns = life.end(
                now_ns,
                last_packet_ns=self.last_packet_ns,
                has_readers=self.subscribers.has_working,
                is_whole=self.is_end_of_stream and self._is_rebuilt_to_its_end(),
                is_revoked=self._is_revoked,
                broken=self._watch.broken,
                position=self.rebuild_position,
            )
            if deadline_ns:
                return min(deadline_ns, untethered_ns)
            if self._watch.broken is None:
                self._feedback.send_eos_status_messages()
        return life.leave(
            now_ns,
            has_readers=self.subscribers.has_working,
            is_drained=self._is_drained,
            consumed=self.subscribers.consumed,
            heard_ns=0 if self.is_end_of_stream else self.last_packet_ns,
            position=self.rebuild_position,
        )

    def _is_rebuilt_to_its_end(self) -> bool:
        # Differs: Aeron waits for the furthest position that any heartbeat claimed. A forged
        # heartbeat would keep an idle stream from ending until its source is silent.
        return self.rebuild_position >= self._end_position

    def _is_drained(self) -> bool:
        return self.subscribers.have_consumed(self.rebuild_position)

    def fail(self, now_ns: int) -> None:
        """Start to drain after `poll` raised; on later failures move to the next state.

        Readers can still read what has arrived; a static window replaces the congestion control.
        """
        self._congestion_control = windows.StaticWindowCongestionControl(
            window_length=self._feedback.window_length
        )
        self._is_window_static = True
        self._feedback.send_eos_status_messages()
        self.life.fail(now_ns, self.rebuild_position)

    def disable_status_messages(self) -> None:
        """Send no more status messages: a newer image of the session replaces this one."""
        if self.state is not ImageState.ACTIVE:
            self._feedback.is_enabled = False

    def supersede(self, now_ns: int) -> None:
        """Drain without status messages: another response stream replaces this one."""
        self._feedback.is_enabled = False
        self.life.supersede(now_ns, self.rebuild_position)
