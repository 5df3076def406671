"""One stream as this driver receives it: datagrams in, positions and feedback out.

`PublicationImage` decides; its outbox carries the bytes, and its listener is called when something
changed. `ImageIntake` places datagrams in the log, and `ImageConsumption` makes room behind the
slowest reader.

Invariant: `ImageIntake` places nothing more than half a term beyond the last status message sent,
so it never overwrites what a reader has yet to read. The receiver position moves only over
complete frames.

Source: Aeron `PublicationImage`, `PublicationImage.insertPacket`, `PublicationImage.trackRebuild`,
`aeron_publication_image.c`, `aeron_publication_image_insert_packet`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from aeron_async.driver.core.budgets import NakBudget, ReplyLimiter
from aeron_async.driver.core.congestion_control.base import TrackRebuild
from aeron_async.driver.core.congestion_control.windows import StaticWindowCongestionControl
from aeron_async.driver.core.context import HEARTBEAT_INTERVAL_NS
from aeron_async.driver.core.image_connection import NEVER_HEARD_NS, ImageConnections
from aeron_async.driver.core.image_gaps import ImageGaps
from aeron_async.driver.core.image_state import OUT_OF_SIGHT, ImageLife, ImageState
from aeron_async.driver.core.image_watch import ImageWatch
from aeron_async.driver.core.loss_detector import NEVER_NS
from aeron_async.driver.core.status_message_sender import StatusMessageSender
from aeron_async.driver.core.strategies import defer_exception, defer_exception_at
from aeron_async.driver.core.subscriber_position import SubscriberPositions, UntetheredCheck
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.logbuffer.late_frames import BEYOND_BUDGET
from aeron_async.logbuffer.log_buffers import clean_to
from aeron_async.logbuffer.metadata import END_OF_STREAM_UNKNOWN
from aeron_async.logbuffer.placing import place_runs, skip_whole
from aeron_async.logbuffer.position import PARTITION_COUNT, compute_position, partition_index
from aeron_async.logbuffer.rebuilder import insert
from aeron_async.logbuffer.wake_flag import WakeFlag
from aeron_async.protocol.datagram import HEARTBEAT, INVALID, check_data
from aeron_async.protocol.header import DataFlags, wrap_int32

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.counters import Counter
    from aeron_async.driver.core.congestion_control.base import CongestionControl
    from aeron_async.driver.core.context import DriverContext
    from aeron_async.driver.core.feedback_delay import FeedbackDelay
    from aeron_async.driver.core.image_connection import ImageConnection
    from aeron_async.driver.core.image_doubts import ImageDoubts
    from aeron_async.driver.core.image_state import ImageEnd
    from aeron_async.driver.core.outbox import Address, ReceiveDestination
    from aeron_async.driver.core.stream_counters import ImageCounters
    from aeron_async.driver.core.subscriber_position import SubscribableListener, SubscriberPosition
    from aeron_async.driver.core.system_counters import SystemCounters
    from aeron_async.logbuffer.late_frames import LateFrames
    from aeron_async.logbuffer.log_buffers import LogBuffers
    from aeron_async.logbuffer.placing import SegmentTable

__all__ = [
    "EOS_FLAGS_OFFSET",
    "ImageConsumption",
    "ImageIntake",
    "PublicationImage",
]

# Intake.

EOS_FLAGS_OFFSET = 5
# Plain integers: combining enum members takes as long as all other work for a heartbeat.
END_OF_STREAM: Final = int(DataFlags.END_OF_STREAM)
REVOKED: Final = int(DataFlags.REVOKED)
OVER_RUN_STILL_NS: Final = 5 * HEARTBEAT_INTERVAL_NS
"""A source that sends beyond the window this long, while nothing moves, may use other terms."""
HEARTBEATS_AFTER_THE_END: Final = 2
"""This many heartbeats without an end, or with another one, withdraw it: one may be delayed."""


class ImageIntake:
    """The receiving end of one image.

    Args:
        log: Where datagrams are placed.
        late_frames: Places what arrives out of order; None where gaps are filled with padding.
        doubts: Records datagrams that contradict what is in the log.
        connections: The sources of the image.
        feedback: Sends status messages, and gives the positions last sent.
        max_window_length: The largest window ever given to the sources, in bytes.
        hwm: The counter that shows `hwm_position`.
        on_end: Called when the stream has ended, or continues after a false end.
        on_over_run: Called the first time a datagram begins beyond the window.
        on_misfit: Called when a source sends what does not fit the terms of the image; gets the
            source address, the floor position, whether it is invalid for any stream with these
            terms, and the time.
        system_counters: The driver's counters.
        position: Where the image joined, in bytes.
        now_ns: The time now.

    Attributes:
        floor_position: Every byte before this position is there; in bytes.
        hwm_position: The end of the furthest frame or heartbeat seen, in bytes.
        last_packet_ns: When a datagram was last accepted.
        is_end_of_stream: Whether every source has ended the stream.
        is_revoked: Whether the publisher revoked the stream.
        is_rejected: Whether all further datagrams are ignored.
        idle_position: The position in the latest heartbeat, in bytes; -1 once it was examined.
        ahead_ns: When a heartbeat last showed that more was sent than has arrived.
        idle_ns: When a heartbeat last showed that readers have been shown everything sent.
        misfit_ns: When a datagram last did not fit the terms of the image.
    """

    misfit_ns: int
    ahead_ns: int
    idle_ns: int

    def __init__(
        self,
        log: LogBuffers,
        late_frames: LateFrames | None,
        doubts: ImageDoubts,
        connections: ImageConnections,
        feedback: StatusMessageSender,
        *,
        max_window_length: int,
        hwm: Counter,
        on_end: Callable[[], None],
        on_over_run: Callable[[], None],
        on_misfit: Callable[[Address, int, bool, int], None],
        system_counters: SystemCounters,
        position: int,
        now_ns: int,
    ) -> None:
        self.floor_position = position
        self.hwm_position: int = position
        self.last_packet_ns: int = now_ns
        self.is_end_of_stream: bool = False
        self.is_revoked: bool = False
        self.is_rejected: bool = False
        self.idle_position: int = -1
        self.ahead_ns = self.idle_ns = self.misfit_ns = NEVER_HEARD_NS
        self._over_run_floor = -1
        self._over_run_ns = 0
        self._is_short_way_closed = False
        self._heartbeats_after_end = 0
        self._join_position = position
        self._log = log
        self._late_frames = late_frames
        self._doubts = doubts
        self._bits = log.position_bits
        self._connections = connections
        self._feedback = feedback
        self._max_window_length = max_window_length
        self._hwm = hwm
        self._on_end = on_end
        self._on_over_run: Callable[[], None] | None = on_over_run
        self._on_misfit = on_misfit
        self._invalid_packets = system_counters[SystemCounterId.INVALID_PACKETS]
        self._over_runs = system_counters[SystemCounterId.FLOW_CONTROL_OVER_RUNS]
        self._under_runs = system_counters[SystemCounterId.FLOW_CONTROL_UNDER_RUNS]
        self._heartbeats_received = system_counters[SystemCounterId.HEARTBEATS_RECEIVED]
        self._images_revoked = system_counters[SystemCounterId.PUBLICATION_IMAGES_REVOKED]
        self._old_terms = system_counters[DriverCounterId.OLD_TERM_PACKETS]
        self._late_dropped = system_counters[DriverCounterId.LATE_PACKETS_DROPPED]
        self._ends_ignored = system_counters[DriverCounterId.STREAM_ENDS_IGNORED]
        self._ends_withdrawn = system_counters[DriverCounterId.STREAM_ENDS_WITHDRAWN]
        hwm.set(position)

    def on_data(
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

        Args:
            datagram: The whole datagram as received; not kept.
            connection: The one of `connections` that it came from.
            term_id: Term id of its first frame.
            term_offset: Term offset of its first frame, in bytes.
            now_ns: The time now.
        """
        if self.is_rejected:
            return True
        log = self._log
        length = check_data(
            datagram, initial_term_id=log.initial_term_id, term_length=log.term_length
        )
        if length < 0:
            if length == INVALID:
                self._invalid_packets.increment()
                self._note_misfit(connection, now_ns, is_invalid=True)
                return False
            # Differs: Aeron drops these without counting them.
            self._old_terms.increment()
            self._note_misfit(connection, now_ns)
            return True
        position = compute_position(
            term_id, term_offset, initial_term_id=log.initial_term_id, bits=self._bits
        )
        end = position + length
        feedback = self._feedback
        if end > feedback.overrun_threshold:
            self._note_over_run(position, connection, now_ns)
        elif length == HEARTBEAT:
            self._on_heartbeat(position, datagram[EOS_FLAGS_OFFSET], connection, now_ns)
        elif position < feedback.last_sm_position:
            self._on_under_run(datagram, position, end, connection, now_ns)
        else:
            connection.last_activity_ns = now_ns
            self.last_packet_ns = now_ns
            if position >= self.hwm_position:
                index = partition_index(position, bits=self._bits)
                insert(log.terms[index], log.term_words[index], term_offset, datagram)
                self._on_placed(end)
            elif self._take_late(datagram, position, connection, now_ns):
                self._on_placed(end)
        return True

    def _on_placed(self, end: int) -> None:
        if end > self.hwm_position:
            self._set_hwm(end)
        if self.is_end_of_stream and end > self._log.metadata.end_of_stream_position:
            self._withdraw_end()

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
        self._under_runs.increment()
        if end >= feedback.last_sm_position - self._max_window_length:
            connection.last_activity_ns = now_ns
        # The log keeps what readers were shown for another term.
        oldest_position = feedback.next_sm_position - self._log.term_length // 2
        if position >= max(self._join_position, oldest_position):
            self._take_late(datagram, position, connection, now_ns)

    def _take_late(
        self, datagram: memoryview, position: int, connection: ImageConnection, now_ns: int
    ) -> bool:
        """Place a datagram where something may already lie; return whether it agrees with that."""
        late_frames, floor_position = self._late_frames, self.floor_position
        if late_frames is None:
            # Where gaps were filled with padding, honest data contradicts what is in the log.
            if position >= floor_position:
                log, index = self._log, partition_index(position, bits=self._bits)
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
            self._late_dropped.increment()
            return False
        if not conflict.is_shown and doubts.may_act(now_ns):
            late_frames.clear(conflict, hwm_position=self.hwm_position)
        doubts.on_conflict(conflict, connection.source, now_ns, shown=floor_position)
        return False

    def on_run(
        self,
        data: memoryview,
        segments: SegmentTable,
        connection: ImageConnection,
        index: int,
        start: int,
        term_id: int,
        term_offset: int,
        now_ns: int,
    ) -> int:
        """Place as much as possible of runs of datagrams; return the bytes placed.

        The caller passes the rest, datagram by datagram, to `on_data`.

        Args:
            data: Datagrams as received, one after the other; not kept.
            segments: Where they are to be cut; see `DataPacketDispatcher.on_runs`.
            connection: The one of `connections` that they came from.
            index: Index in `segments` of the first run.
            start: Offset in `data` of the first datagram.
            term_id: Term id of the first frame.
            term_offset: Term offset of the first frame, in bytes.
            now_ns: The time now.
        """
        log = self._log
        term_count = wrap_int32(term_id - log.initial_term_id)
        if term_count < 0 or self._is_short_way_closed or not 0 <= term_offset < log.term_length:
            return 0
        position = (term_count << self._bits) + term_offset
        feedback = self._feedback
        if position < self.floor_position or position < feedback.last_sm_position:
            return 0
        limit = feedback.overrun_threshold - position
        late_frames = self._late_frames if position < self.hwm_position else None
        if late_frames is not None:
            wanted_length = segments[len(segments) - 2] - start
            room = self._room_at(late_frames, position, wanted_length, now_ns)
            if not room:
                return 0
            limit = min(limit, room)
        partition = term_count % PARTITION_COUNT
        placed = place_runs(
            data,
            segments,
            index,
            start,
            log.terms[partition],
            log.term_words[partition],
            term_offset,
            limit=limit,
        )
        if placed:
            connection.last_activity_ns = self.last_packet_ns = now_ns
            if late_frames is not None:
                late_frames.on_placed(position, position + placed)
            if position + placed > self.hwm_position:
                self._set_hwm(position + placed)
        return placed

    def _room_at(
        self, late_frames: LateFrames, position: int, wanted_length: int, now_ns: int
    ) -> int:
        """Return how many bytes of a run fit into the gap at `position`."""
        late_frames.fill_budgets(now_ns)
        return late_frames.room_at(
            position,
            floor_position=self.floor_position,
            hwm_position=self.hwm_position,
            wanted_length=wanted_length,
        )

    @property
    def is_begun(self) -> bool:
        """Return whether any data of the stream has arrived."""
        return self.hwm_position > self._join_position

    def whole_position(self) -> int:
        """Return how far the stream has arrived without gaps, or -1 if a gap is possible.

        Also -1 where the data crosses into another term, or the stream has ended.
        """
        position, hwm_position = self.floor_position, self.hwm_position
        if self.is_end_of_stream:
            return -1
        if position != hwm_position:
            words = self._log.term_words[partition_index(position, bits=self._bits)]
            offset = position & (self._log.term_length - 1)
            end = offset + hwm_position - position
            if skip_whole(words, offset, end) != end:
                return -1
        return hwm_position

    def _note_over_run(self, position: int, connection: ImageConnection, now_ns: int) -> None:
        self._over_runs.increment()
        self.misfit_ns = now_ns
        if self._over_run_floor != self.floor_position:
            self._over_run_floor, self._over_run_ns = self.floor_position, now_ns
        elif now_ns >= self._over_run_ns + OVER_RUN_STILL_NS:
            self._note_misfit(connection, now_ns)
        # A datagram that begins within the window may be padding of a sender that keeps to its
        # limit; it is resent later, so it needs no warning.
        if self._on_over_run is not None and position >= self._feedback.overrun_threshold:
            on_over_run, self._on_over_run = self._on_over_run, None
            on_over_run()

    def _note_misfit(
        self, connection: ImageConnection, now_ns: int, *, is_invalid: bool = False
    ) -> None:
        self.misfit_ns = now_ns
        self._on_misfit(connection.source, self.floor_position, is_invalid, now_ns)

    def _on_heartbeat(
        self, position: int, flags: int, connection: ImageConnection, now_ns: int
    ) -> None:
        if position < max(0, self._feedback.last_sm_position - self._log.term_length):
            self._under_runs.increment()
            return
        connection.last_activity_ns = now_ns
        if position >= self.floor_position:
            self._doubts.behind_ns = -1
        elif len(self._connections) == 1:
            self._doubts.on_behind(
                position,
                now_ns=now_ns,
                last_packet_ns=self.last_packet_ns,
                shown=self.floor_position,
            )
        self.last_packet_ns = now_ns
        self.idle_position = position
        if position > self.floor_position:
            self.ahead_ns = now_ns
        elif position == self.floor_position:
            self.idle_ns = now_ns
        if flags & END_OF_STREAM:
            self._on_end_told(position, connection, is_revoked=bool(flags & REVOKED))
        elif self.is_end_of_stream:
            self._doubt_end()
        if position > self.hwm_position:
            self._set_hwm(position)
        self._heartbeats_received.increment()

    def reject(self) -> None:
        """Ignore all further datagrams."""
        self.is_rejected = self._is_short_way_closed = True

    def _on_end_told(self, position: int, connection: ImageConnection, *, is_revoked: bool) -> None:
        # Differs: Aeron accepts an end up to a term behind what was reported. The stream has been
        # beyond that position already, so no honest publisher says so.
        if position < max(self.floor_position, self._feedback.last_sm_position):
            self._ends_ignored.increment()
        elif not self.is_end_of_stream:
            connection.is_end_of_stream = True
            connection.eos_position = position
            self.check_end_of_stream(is_revoked=is_revoked)
        elif position != connection.eos_position:
            # One of the two ends was forged. The publisher will repeat the true one.
            self._doubt_end()

    def _doubt_end(self) -> None:
        """Count a heartbeat that contradicts the end of the stream."""
        self._heartbeats_after_end += 1
        if self._heartbeats_after_end >= HEARTBEATS_AFTER_THE_END:
            self._withdraw_end()

    def check_end_of_stream(self, *, is_revoked: bool = False) -> None:
        """End the stream once every source has ended it; mark it revoked if `is_revoked`."""
        eos_position = self._connections.eos_position
        if eos_position is None or self.is_end_of_stream:
            return
        self.is_end_of_stream = True
        self.is_revoked = is_revoked
        if is_revoked:
            self._log.metadata.is_publication_revoked = True
            self._images_revoked.increment()
        self._log.metadata.end_of_stream_position = eos_position
        # From now on each datagram goes through `on_data`: it may show that the end was false.
        self._is_short_way_closed = True
        self._heartbeats_after_end = 0
        self._on_end()

    def _withdraw_end(self) -> None:
        """Withdraw a false end of the stream: its publisher is still sending."""
        self._ends_withdrawn.increment()
        self.is_end_of_stream = self.is_revoked = False
        self._is_short_way_closed = self.is_rejected
        metadata = self._log.metadata
        metadata.end_of_stream_position = END_OF_STREAM_UNKNOWN
        metadata.is_publication_revoked = False
        for connection in self._connections:
            connection.is_end_of_stream = False
        self._on_end()

    def _set_hwm(self, position: int) -> None:
        self.hwm_position = position
        self._hwm.set(position)


class ImageConsumption:
    """Makes room in the log behind the slowest reader, and reports its position to the sources."""

    __slots__ = ("_clean_position", "_feedback", "_log", "_subscribers")

    def __init__(
        self,
        log: LogBuffers,
        subscribers: SubscriberPositions,
        feedback: StatusMessageSender,
        position: int,
    ) -> None:
        self._log = log
        self._subscribers = subscribers
        self._feedback = feedback
        self._clean_position = position

    def schedule(self, position: int, window_length: int, *, is_forced: bool) -> None:
        """Schedule a status message for the slowest reader, if it has moved far enough.

        Args:
            position: Position of the slowest reader, in bytes.
            window_length: What the sources may send beyond it, in bytes.
            is_forced: Whether to schedule one even if the reader has hardly moved.
        """
        if self._feedback.schedule(position, window_length, is_forced=is_forced):
            self._clean_position = clean_to(
                self._log,
                clean_position=self._clean_position,
                position=position - self._log.term_length,
            )

    def report(self, now_ns: int) -> bool:
        """Send the status message that is due by now; return False if there is no reader."""
        consumed = self._subscribers.consumed()
        if not consumed:
            return False
        feedback = self._feedback
        self.schedule(min(consumed), feedback.window_length, is_forced=False)
        feedback.poll(now_ns)
        return True


# The image.


class PublicationImage:
    """One stream that this driver receives.

    Args:
        registration_id: Identifies the image within its driver.
        log: The terms in which the stream is rebuilt.
        join_position: Where the image starts, in bytes.
        source: The address its SETUP came from.
        destination: The destination that received the SETUP; answers go out by the same one.
        context: The driver's settings.
        congestion_control: Chooses the receiver window.
        feedback_delay: Says when to send a NAK.
        is_reliable: Whether NAKs are sent for lost data; if not, gaps become padding.
        counters: The image's counters.
        system_counters: The driver's counters.
        receiver_id: Identifies this receiver to the sender.
        group_tag: Sent in its status messages; None for none.
        listener: Called when the image changes.
        now_ns: The time now.

    Attributes:
        rebuild_position: Every byte before this position is there; in bytes.
        consumption_trigger: When a reader passes this position the image must be polled.
        rtt_replies: Limits which round-trip measurements are answered.
        connections: Its sources, by the destination that receives them.
        is_response_requested: Whether the source asks for answers on a response stream.
        is_following: Whether this is a response image, whose readers follow the session that
            answers.
        failure: The error that the next poll raises.
    """

    registration_id: int
    log: LogBuffers
    source: Address
    session_id: int
    stream_id: int
    # What comes in goes to the intake without a call between.
    on_data: Callable[..., bool]
    on_run: Callable[..., int]
    on_setup: Callable[..., bool]
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
        self.rebuild_position: int = join_position
        self.subscribers: SubscriberPositions = SubscriberPositions()
        self.wake_flag: WakeFlag = WakeFlag()
        self._listener = listener
        self._untethered = UntetheredCheck(self, listener)
        self._congestion_control = congestion_control
        self._life = ImageLife(log, source, context, now_ns, system_counters.log_budget)
        self.connections: ImageConnections = ImageConnections(destination, source, now_ns=now_ns)
        self._feedback = StatusMessageSender(
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
        self.rtt_replies: ReplyLimiter = ReplyLimiter.of(context)
        counters.receiver_position.set(join_position)
        self.consumption_trigger: int = self._feedback.consumption_trigger

    def _bind(self) -> None:
        """Bind methods of the parts directly, which saves a call for each datagram."""
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

    # Input.

    @defer_exception
    def on_rttm(self, *, rtt_ns: int, now_ns: int) -> None:
        """Take the result of a round-trip measurement."""
        self._congestion_control.on_rttm(rtt_ns=rtt_ns, now_ns=now_ns)

    def remove_destination(self, destination: ReceiveDestination) -> None:
        """Remove the sources of a removed destination; the others may all have ended by now."""
        self.connections.remove(destination)
        self._intake.check_end_of_stream()

    def reject(self, reason: str) -> None:
        """Ignore further data, and send the reason (up to 1023 bytes) until the source stops."""
        self._intake.reject()
        self._feedback.reject(reason)

    # Readers.

    @property
    def state(self) -> ImageState:
        """Return the state of the image."""
        return self._life.state

    @property
    def ended_ns(self) -> int:
        """Return when the image left the state ACTIVE; meaningless before."""
        return self._life.ended_ns

    @property
    def ended(self) -> ImageEnd | None:
        """Return why and where the image ended; None while it has not."""
        return self._life.ended

    @property
    def join_position(self) -> int:
        """Where a reader that joins now starts, in bytes."""
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
        """Return whether a reader that joins now can still read something."""
        return self.subscribers.has_working and (
            self.state is ImageState.ACTIVE
            or (self.state is ImageState.DRAINING and not self._is_drained())
        )

    def add_subscriber(self, subscriber: SubscriberPosition) -> None:
        """Add a subscription as a reader; the slowest reader limits the window."""
        self.subscribers.add(subscriber)

    def remove_subscriber(self, subscription_id: int) -> SubscriberPosition | None:
        """Remove a subscription and return its position; None if it was no reader."""
        return self.subscribers.remove(subscription_id)

    def answer_with(self, session_id: int | None) -> None:
        """Set the session of the response stream to announce to the source; None to stop."""
        self._feedback.respond_with(session_id)

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
        if self._life.state not in OUT_OF_SIGHT:
            self._rebuild(now_ns)
        deadline_ns = min(self._advance(now_ns), self._report(now_ns))
        if self._life.state is ImageState.ACTIVE and not (
            self._congestion_control.follows_rebuild
            or self.subscribers.untethered
            or self._watch.is_holding
        ):
            self._calm_until_ns = deadline_ns
        return deadline_ns

    @defer_exception_at
    def advance_rebuild_position_fast(self, now_ns: int) -> bool:
        """Show readers what arrived in order; return False where `poll` must do the work."""
        if now_ns >= self._calm_until_ns or self.failure is not None or self.wake_flag.is_set:
            return False
        position = self._intake.whole_position()
        if position > self.rebuild_position:
            self._show(position)
        return position >= 0

    @defer_exception_at
    def report_fast(self, now_ns: int) -> bool:
        """Send a status message for what readers have read, if nothing else is due.

        Return False where `poll` must do it: the image ends, the congestion control must be asked,
        or an untethered reader may fall behind.
        """
        is_calm = now_ns < self._calm_until_ns and self.failure is None
        if self.subscribers.untethered or not (is_calm and self._consumption.report(now_ns)):
            return False
        self.consumption_trigger = self._feedback.consumption_trigger
        self.wake_flag.is_set = False
        return True

    def fail(self, now_ns: int) -> None:
        """Start to drain after `poll` raised; on later failures move to the next state.

        Readers can still read what has arrived; a static window replaces the congestion control.
        """
        self._congestion_control = StaticWindowCongestionControl(
            window_length=self._feedback.window_length
        )
        self._feedback.send_eos_status_messages()
        self._life.fail(now_ns, self.rebuild_position)

    def disable_status_messages(self) -> None:
        """Send no more status messages: a newer image of the session replaces this one."""
        if self.state is not ImageState.ACTIVE:
            self._feedback.is_enabled = False

    def supersede(self, now_ns: int) -> None:
        """Drain without status messages: another response stream replaces this one."""
        self._feedback.is_enabled = False
        self._life.supersede(now_ns, self.rebuild_position)

    def _rebuild(self, now_ns: int) -> None:
        if not self.subscribers.has_working or self._intake.is_revoked:
            # No reader needs what is missing.
            self._gaps.forget()
            if self.subscribers.has_working:
                self._watch.pause()
            else:
                self._watch.stop()
            return
        is_held = self._track_rebuild(now_ns)
        if self._gaps.repair(now_ns):
            is_held = self._track_rebuild(now_ns)
        self._watch.look(
            self._gaps, self._intake, now_ns, is_active=self._life.state is ImageState.ACTIVE
        )
        if is_held and not self._watch.is_holding:
            self._track_rebuild(now_ns)

    def _report(self, now_ns: int) -> int:
        """Send the status messages and measurements that are due, and return the next deadline."""
        state = self._life.state
        if state in OUT_OF_SIGHT:
            return NEVER_NS
        deadline_ns = self._feedback.poll(now_ns)
        self.consumption_trigger = (
            self._feedback.consumption_trigger if state is ImageState.ACTIVE else 0
        )
        if self.connections.live_count(now_ns):
            deadline_ns = min(deadline_ns, self._gaps.deadline_ns, self._watch.deadline_ns)
        if self._congestion_control.should_measure_rtt(now_ns):
            self._feedback.send_rttm(now_ns)
            self._congestion_control.on_rttm_sent(now_ns)
        return min(deadline_ns, self._congestion_control.rtt_deadline_ns())

    def _track_rebuild(self, now_ns: int) -> bool:
        """Show complete data, schedule status messages; return whether data is held back."""
        consumed = self.subscribers.consumed()
        min_consumed = min(consumed)
        before = max(self.rebuild_position, *consumed)
        hwm_position = self._intake.hwm_position
        after, is_loss_found = self._gaps.scan(before, hwm_position, now_ns)
        is_held = after > self.rebuild_position and self._watch.is_holding
        if is_held:
            # Not counted as shown: either it will be shown later, or the image ends.
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
        return is_held

    def _show(self, position: int) -> None:
        self.rebuild_position = self._intake.floor_position = position
        self.counters.receiver_position.set(position)
        self.subscribers.on_progress()

    def _advance(self, now_ns: int) -> int:
        """Change the state as far as the time, the source and the readers allow."""
        life = self._life
        if (
            life.state is ImageState.DRAINING
            and not self._intake.is_end_of_stream
            and life.resume(now_ns, self.rebuild_position)
        ):
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
                self._feedback.send_eos_status_messages()
        return life.leave(
            now_ns,
            has_readers=self.subscribers.has_working,
            is_drained=self._is_drained,
            consumed=self.subscribers.consumed,
            heard_ns=0 if self.is_end_of_stream else self._intake.last_packet_ns,
            position=self.rebuild_position,
        )

    def _on_end(self) -> None:
        """Notify readers that the stream has ended, or continues after a false end."""
        self._calm_until_ns = 0
        self.subscribers.on_progress()

    def _on_doubt(self) -> None:
        self._calm_until_ns = 0

    def _is_rebuilt_to_its_end(self) -> bool:
        # Differs: Aeron waits for the furthest position that any heartbeat claimed. A forged
        # heartbeat would keep an idle stream from ending until its source is silent.
        return self.rebuild_position >= self.log.metadata.end_of_stream_position

    def _is_drained(self) -> bool:
        return self.subscribers.have_consumed(self.rebuild_position)
