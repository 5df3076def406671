"""What arrives for one image: data to be placed, heartbeats, and the end of the stream.

Invariant: nothing is placed more than half a term beyond the last status message sent, so nothing
the readers have yet to take is overwritten.

Source: Aeron `PublicationImage.insertPacket`, `aeron_publication_image_insert_packet`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.driver.core.context import HEARTBEAT_INTERVAL_NS
from aeron_async.driver.core.image_connection import NEVER_HEARD_NS
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.kernel import place_runs, skip_whole
from aeron_async.logbuffer.late_frames import BEYOND_BUDGET
from aeron_async.logbuffer.metadata import END_OF_STREAM_UNKNOWN
from aeron_async.logbuffer.position import PARTITION_COUNT, compute_position, partition_index
from aeron_async.logbuffer.rebuilder import insert
from aeron_async.protocol.datagram import HEARTBEAT, INVALID, check_data
from aeron_async.protocol.header import DataFlags, wrap_int32

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.counters import Counter
    from aeron_async.driver.core.image_connection import ImageConnection, ImageConnections
    from aeron_async.driver.core.image_doubts import ImageDoubts
    from aeron_async.driver.core.image_feedback import ImageFeedback
    from aeron_async.driver.core.outbox import Address
    from aeron_async.driver.core.system_counters import SystemCounters
    from aeron_async.kernel.placing import Cuts
    from aeron_async.logbuffer.late_frames import LateFrames
    from aeron_async.logbuffer.term_log import LogBuffers

__all__ = ["EOS_FLAGS_OFFSET", "ImageIntake"]

EOS_FLAGS_OFFSET = 5
# Plain integers: to combine members of an enum takes as long as all else that a heartbeat does.
END_OF_STREAM: Final = int(DataFlags.END_OF_STREAM)
REVOKED: Final = int(DataFlags.REVOKED)
OVER_RUN_STILL_NS: Final = 5 * HEARTBEAT_INTERVAL_NS
"""A source that sends beyond the window for so long, while nothing moves, may have other terms."""
HEARTBEATS_AFTER_THE_END: Final = 2
"""So many that say nothing of an end, or name another, take it back: one may have been held up."""


class ImageIntake:
    """The receiving end of one image.

    Args:
        log: Where datagrams are placed.
        late_frames: Places what does not come in order; None where gaps are filled.
        doubts: Hears of what contradicts what is there.
        connections: Where they come from.
        feedback: Knows what the sources have been told.
        max_window_length: The most they are ever told to send ahead, in bytes.
        hwm: Shows how far they have come.
        on_end: Called when the stream has ended, or goes on after all.
        on_over_run: Called when something begins beyond what may be placed, the first time.
        on_misfit: Called when a source sends what the terms of the image have no place for; told
            where it came from, the floor, whether no stream of these terms has it, and the time.
        system_counters: The driver's.
        position: Where the image joined, in bytes.
        now_ns: The time now.

    Attributes:
        floor_position: Up to where every byte is there, in bytes; what lies before is not wanted.
        hwm_position: The end of the furthest frame or heartbeat seen, in bytes.
        last_packet_ns: When something was last accepted.
        is_end_of_stream: Whether every source has ended.
        is_revoked: Whether its publisher took the stream back.
        is_rejected: Whether nothing is taken any more.
        idle_position: What the latest heartbeat said, in bytes; -1 where that has been looked at.
        ahead_ns: When one came last that said more was sent than is there.
        idle_ns: When one came last that said no more was sent than readers were shown.
        misfit_ns: When something came last that the terms of the image have no place for.
    """

    def __init__(
        self,
        log: LogBuffers,
        late_frames: LateFrames | None,
        doubts: ImageDoubts,
        connections: ImageConnections,
        feedback: ImageFeedback,
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
        self.hwm_position = position
        self.last_packet_ns = now_ns
        self.is_end_of_stream = False
        self.is_revoked = False
        self.is_rejected = False
        self.idle_position = -1
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
        """Place a datagram of data, padding or heartbeat; return False if it is none.

        What is valid but cannot be placed here and now is only counted.

        Args:
            datagram: Whole, as it came off the wire; not kept.
            connection: One of `connections`, whose datagram it is.
            term_id: From its first frame.
            term_offset: From its first frame.
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
        """Take what was already consumed, at least by the account the sender has of it."""
        feedback = self._feedback
        self._under_runs.increment()
        if end >= feedback.last_sm_position - self._max_window_length:
            connection.last_activity_ns = now_ns
        # What readers were shown stays in the log for a term more.
        oldest_position = feedback.next_sm_position - self._log.term_length // 2
        if position >= max(self._join_position, oldest_position):
            self._take_late(datagram, position, connection, now_ns)

    def _take_late(
        self, datagram: memoryview, position: int, connection: ImageConnection, now_ns: int
    ) -> bool:
        """Take a datagram for a place where something may lie already; return whether it fits."""
        late_frames, floor_position = self._late_frames, self.floor_position
        if late_frames is None:
            # Padding lies where gaps were filled, and what it covers contradicts it in all honesty.
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
            # As if it were lost: it comes again, and where it is the first that is missing, it
            # needs no budget.
            self._late_dropped.increment()
            return False
        if not conflict.is_shown and doubts.may_act(now_ns):
            late_frames.clear(conflict, hwm_position=self.hwm_position)
        doubts.on_conflict(conflict, connection.source, now_ns, shown=floor_position)
        return False

    def on_run(
        self,
        data: memoryview,
        cuts: Cuts,
        connection: ImageConnection,
        index: int,
        start: int,
        term_id: int,
        term_offset: int,
        now_ns: int,
    ) -> int:
        """Place what can be placed at once of runs of datagrams; return how many bytes that was.

        What is left, from its first datagram on, is for `on_data` to take.

        Args:
            data: Datagrams as they came off the wire, one behind the other; not kept.
            cuts: Where they are to be cut; see `DataPacketDispatcher.on_runs`.
            connection: One of `connections`, whose datagrams they are.
            index: Of the run to begin with, in `cuts`.
            start: Of the datagram to begin with, in `data`.
            term_id: From the first frame.
            term_offset: From the first frame.
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
            wanted_length = cuts[len(cuts) - 2] - start
            room = self._room_at(late_frames, position, wanted_length, now_ns)
            if not room:
                return 0
            limit = min(limit, room)
        partition = term_count % PARTITION_COUNT
        placed = place_runs(
            data,
            cuts,
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
        """Return how many bytes of a run fit between what is there."""
        late_frames.fill_budgets(now_ns)
        return late_frames.room_at(
            position,
            floor_position=self.floor_position,
            hwm_position=self.hwm_position,
            wanted_length=wanted_length,
        )

    @property
    def is_begun(self) -> bool:
        """Return whether any of the stream has come."""
        return self.hwm_position > self._join_position

    def whole_position(self) -> int:
        """Return how far the stream has come if nothing of it is missing, and -1 if in doubt.

        There is doubt also where it has come into another term, or has ended.
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
        # What begins within bounds may be padding of a sender that keeps to its limit; it comes
        # again, and is no reason to worry.
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
            self._doubts.on_not_behind()
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
        """Take nothing more."""
        self.is_rejected = self._is_short_way_closed = True

    def _on_end_told(self, position: int, connection: ImageConnection, *, is_revoked: bool) -> None:
        # Differs: Aeron believes an end up to a term behind what was reported. The stream has been
        # further on than that, so no publisher of it says so.
        if position < max(self.floor_position, self._feedback.last_sm_position):
            self._ends_ignored.increment()
        elif not self.is_end_of_stream:
            connection.is_end_of_stream = True
            connection.eos_position = position
            self.check_end_of_stream(is_revoked=is_revoked)
        elif position != connection.eos_position:
            # Of two ends one was forged. The publisher goes on saying where the true one is.
            self._doubt_end()

    def _doubt_end(self) -> None:
        """Take note of a heartbeat that contradicts the end of the stream."""
        self._heartbeats_after_end += 1
        if self._heartbeats_after_end >= HEARTBEATS_AFTER_THE_END:
            self._withdraw_end()

    def check_end_of_stream(self, *, is_revoked: bool = False) -> None:
        """End the stream when every source has ended it, and revoke it if the last took it back."""
        eos_position = self._connections.eos_position
        if eos_position is None or self.is_end_of_stream:
            return
        self.is_end_of_stream = True
        self.is_revoked = is_revoked
        if is_revoked:
            self._log.metadata.is_publication_revoked = True
            self._images_revoked.increment()
        self._log.metadata.end_of_stream_position = eos_position
        # What comes now is looked at one by one: it may show that there was no end.
        self._is_short_way_closed = True
        self._heartbeats_after_end = 0
        self._on_end()

    def _withdraw_end(self) -> None:
        """Take the end of the stream back: its publisher goes on."""
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
