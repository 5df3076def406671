# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""What silent streams cost: twins of `driver.schedule` and of `driver.core.silent_streams`.

Each of thousands of silent streams sends or gets a heartbeat ten times a second, and a status message
five times. Nearly all of those say what the one before has said. The classes here take or send one
such frame after another, and stop at the first that is not of this kind: that stream goes its usual
way, which has the same effect, and the next one continues here. The objects that they change are
those of the driver, which has no copy of their state here.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.object cimport PyObject
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from aeron_async._speedups.frames cimport HEADER, peek_32
from aeron_async._speedups.lanes cimport Rebuilding, Reporting, add, put
from aeron_async._speedups.paths cimport Cell, WakeFlag

from collections import deque
from heapq import heappop, heappush
from itertools import islice

cdef extern from *:
    """
    /* The sum of two times; what is beyond the end of time is its end. */
    static inline int64_t aeron_later(int64_t time, int64_t by) {
        int64_t sum;
        if (__builtin_add_overflow(time, by, &sum))
            return by < 0 ? INT64_MIN : INT64_MAX;
        return sum;
    }
    """
    int64_t later "aeron_later"(int64_t time, int64_t by) noexcept

cdef extern from "Python.h":
    PyObject *Py_TYPE(object instance) noexcept

DEF QUEUE_SPAN_NS = 300_000_000
DEF PLAIN_DATA = 0x0001C000
"""Version, flags and type of data that is a whole message, as the word of a frame."""
DEF PLAIN_REPORT = 0x00030000
"""The same of a status message without flags."""
DEF REPORT_LENGTH = 36
DEF UNFRAGMENTED = 0xC0
DEF ALIGNMENT = 32
DEF PARTITION_COUNT = 3
DEF ACTIVE_TERM_COUNT = 6
"""Where the metadata of a log has that number, in words."""

cdef object NEVER = INT64_MAX


cdef int check_unmade(part) except -1:
    """Raise an error for what is made a second time: a call may be using what that would replace.

    What is looked at before may run code, so this comes after it, and nothing does behind this.
    """
    if part is not None:
        raise ValueError("what sends or takes for silent streams is made once")
    return 0


cdef inline bint is_of(object instance, object kind) noexcept:
    """Return whether an object is of exactly this class: a derived one may do more."""
    return Py_TYPE(instance) is <PyObject *>kind


@cython.auto_pickle(False)
cdef class Schedule:
    """What an agent has to do, and when; twin of `driver.schedule.Schedule`."""

    cdef dict ready_items
    cdef dict deadlines
    cdef dict armed
    cdef list heap
    cdef object queue
    cdef object pop_left
    cdef object push_right
    cdef object queue_limit_ns
    cdef object last_queued_ns
    cdef int64_t sequence

    def __cinit__(self):
        # Never replaced: comparing items may run code that would do so under a look-up.
        self.ready_items = {}
        self.deadlines = {}
        self.armed = {}
        self.heap = []
        self.queue = deque()
        self.pop_left = self.queue.popleft
        self.push_right = self.queue.append
        self.queue_limit_ns = 0
        self.last_queued_ns = 0
        self.sequence = 0

    def __init__(self):
        """All is done already; this refuses arguments."""

    @property
    def _heap(self):
        """Return a copy: what is taken out of the heap must be what was put there."""
        return self.heap[:]

    @property
    def _queue(self):
        """Return a copy, as of the heap."""
        return self.queue.copy()

    def __len__(self):
        return len(self.ready_items.keys() | self.deadlines.keys())

    def __iter__(self):
        return iter({**self.ready_items, **self.deadlines})

    @property
    def has_ready(self):
        """Return whether any item must be polled now."""
        return len(self.ready_items) > 0

    def ready(self, item):
        """Let the item be polled as soon as possible."""
        self.ready_items[item] = None

    def at(self, item, deadline_ns):
        """Let the item be polled at a time, unless it becomes ready before."""
        self.set_deadline(item, deadline_ns)

    cdef int set_deadline(self, item, deadline_ns) except -1:
        self.deadlines[item] = deadline_ns
        if deadline_ns == NEVER:
            return 0
        armed_ns = self.armed.get(item)
        if armed_ns is None or deadline_ns < armed_ns:
            self.armed[item] = deadline_ns
            entry = (deadline_ns, self.sequence, item)
            self.sequence += 1
            if deadline_ns <= self.queue_limit_ns and (
                    not self.queue or deadline_ns >= self.last_queued_ns):
                self.last_queued_ns = deadline_ns
                self.push_right(entry)
            else:
                heappush(self.heap, entry)
        return 0

    def remove(self, item):
        """Remove the item."""
        self.ready_items.pop(item, None)
        self.deadlines.pop(item, None)
        self.armed.pop(item, None)

    cdef tuple first(self):
        """Return the first entry; None if there is none."""
        cdef list heap = self.heap
        if self.queue:
            entry = self.queue[0]
            if not heap or not heap[0] < entry:
                return entry
        return heap[0] if heap else None

    cdef object pop(self, tuple entry):
        """Remove the first entry, and return its item if that is due with it; else None."""
        if self.queue and entry is self.queue[0]:
            self.pop_left()
        else:
            heappop(self.heap)
        armed_ns = entry[0]
        item = entry[2]
        its_ns = self.armed.get(item)
        if its_ns is None or its_ns != armed_ns:
            return None
        del self.armed[item]
        return item

    def expired(self, now_ns, Py_ssize_t limit):
        """Return only items whose deadline has come; the caller must put back each."""
        cdef list expired = []
        cdef tuple entry
        self.queue_limit_ns = now_ns + QUEUE_SPAN_NS
        while len(expired) < limit:
            entry = self.first()
            if entry is None or entry[0] > now_ns:
                break
            item = self.pop(entry)
            if item is None:
                continue
            deadline_ns = self.deadlines[item]
            if deadline_ns > now_ns:
                self.set_deadline(item, deadline_ns)
            elif item not in self.ready_items:
                expired.append(item)
        return expired

    def settle(self, item, deadline_ns, now_ns):
        """Put back an item that `expired` has returned, with what its fast way has answered."""
        if deadline_ns > now_ns:
            self.set_deadline(item, deadline_ns)
        elif self.deadlines[item] <= now_ns:
            self.ready_items[item] = None
        else:
            self.set_deadline(item, self.deadlines[item])

    def due(self, now_ns, limit=None):
        """Return, once each, the items that are ready or whose deadline has come."""
        cdef tuple entry
        self.queue_limit_ns = now_ns + QUEUE_SPAN_NS
        while True:
            entry = self.first()
            if entry is None or entry[0] > now_ns:
                break
            item = self.pop(entry)
            if item is not None:
                deadline_ns = self.deadlines[item]
                if deadline_ns > now_ns:
                    self.set_deadline(item, deadline_ns)
                else:
                    self.ready_items[item] = None
        return self.take(limit)

    def take(self, limit=None):
        """Return only the items that are ready; those beyond `limit` stay ready."""
        cdef list due
        if not self.ready_items:
            return []
        due = list(self.ready_items) if limit is None else list(islice(self.ready_items, limit))
        if len(due) == len(self.ready_items):
            self.ready_items.clear()
        else:
            for item in due:
                del self.ready_items[item]
        return due

    def next_deadline_ns(self):
        """Return the next deadline; 0 if an item is ready already."""
        cdef tuple entry
        if self.ready_items:
            return 0
        entry = self.first()
        return NEVER if entry is None else entry[0]


# Sending.


@cython.final
@cython.auto_pickle(False)
cdef class HeartbeatsOut:
    """Lets heartbeats leave; twin of `driver.core.silent_streams.HeartbeatsOut`."""

    cdef object kind
    cdef Schedule schedule
    cdef object batch
    cdef Cell heartbeats_sent
    cdef Cell bytes_sent
    cdef object active
    cdef int64_t interval_ns
    cdef int64_t rest_ns

    def __init__(self, kind, Schedule schedule not None, batch, heartbeats_sent,
                 bytes_sent, active, int64_t interval_ns, int64_t rest_ns):
        cdef Cell heartbeats_cell = <Cell?>heartbeats_sent.cell
        cdef Cell bytes_cell = <Cell?>bytes_sent.cell
        check_unmade(self.schedule)
        self.kind = kind
        self.schedule = schedule
        self.batch = batch
        self.heartbeats_sent = heartbeats_cell
        self.bytes_sent = bytes_cell
        self.active = active
        self.interval_ns = interval_ns
        self.rest_ns = rest_ns

    def send(self, list publications not None, Py_ssize_t index, now_ns, int64_t due_ns):
        """Let heartbeats leave from an index on; return that of the first that is to be asked."""
        cdef int64_t now = now_ns, deadline_ns, sent_count = 0
        if index < 0:
            raise IndexError(index)
        while index < len(publications):
            publication = publications[index]
            if not is_of(publication, self.kind):
                break
            try:
                deadline_ns = self.beat(publication, now_ns, now, max(now, due_ns), &sent_count)
            except Exception:
                # Its own way meets the same, and ends it.
                break
            if not deadline_ns:
                break
            self.schedule.set_deadline(publication, deadline_ns)
            index += 1
        if sent_count:
            add(self.heartbeats_sent, sent_count)
            add(self.bytes_sent, sent_count * HEADER)
        return index

    @cython.boundscheck(True)
    cdef int64_t beat(self, publication, now_ns, int64_t now, int64_t due_ns,
                      int64_t *sent_count) except? -1:
        """Do what `heartbeat_fast` does, if the same was said before; else return 0."""
        cdef int64_t until_ns, deadline_ns
        cdef tuple said
        if (<WakeFlag?>publication.wake_flag).is_set:
            return 0
        sender = publication._sender
        deadline_ns = later(sender._last_sent_ns, self.interval_ns)
        until_ns = publication._fast_until_ns
        if now >= until_ns:
            # One that is early waits for its time, as it does for a poll.
            if now < deadline_ns or not self.rest(publication, now):
                return 0
            # A poll answers with no other time either.
            until_ns = INT64_MAX
        if due_ns >= deadline_ns:
            said = sender._said
            if (sender.is_revoked or said is None or <int64_t>said[0] != <int64_t>sender.position
                    or <int64_t>said[1] != UNFRAGMENTED):
                return 0
            frames = (<dict?>self.batch._frames).get(sender._outbox)
            if frames is None:
                self.batch.add(sender._outbox, sender._heartbeat)
            else:
                frames += <bytes?>sender._heartbeat
            sender._last_sent_ns = now_ns
            sent_count[0] += 1
            deadline_ns = later(now, self.interval_ns)
        return min(deadline_ns, until_ns)

    @cython.boundscheck(True)
    cdef bint rest(self, publication, int64_t now) except -1:
        """Do what the regular poll does if nothing has happened since the last one; else return False.

        Nothing has if all that was claimed was sent, no receiver is gone, and there is room.
        """
        cdef int64_t position, limit, length, until_ns, term_count, tail
        if (publication.state is not self.active or publication.failure is not None
                or not publication.is_connected or publication._plain_flow_control is None
                or publication._is_setup_elicited or not publication._has_initial_connection
                or publication.is_sending or publication.has_sent_burst
                or publication.params.is_response_requested
                or <dict?>publication.subscribers._all
                or <list?>publication._retransmit_handler._actions
                or publication._blocked_check._was_behind):
            return False
        sender, window = publication._sender, publication._window
        position, limit, length = sender.position, window.limit, window._window_length
        if (position < 0 or length < 0
                or position >= <int64_t>sender.limit or <int64_t>publication._told_position != position
                or limit < later(position, length)
                or <int64_t>publication._fast_position != limit - length + (length >> 3)):
            return False
        log = publication.log
        metadata = log.metadata
        term_count = position >> (<int>log.position_bits & 63)
        tail = metadata.longs[term_count % PARTITION_COUNT]
        if (<int64_t>metadata.words[ACTIVE_TERM_COUNT] != term_count
                or tail >> 32 != <int32_t>(<uint32_t>(<int32_t>log.initial_term_id) + <uint32_t>term_count)
                or tail & 0xFFFFFFFF != position & <int64_t>(<uint64_t><int64_t>log.term_length - 1)):
            return False
        until_ns = 0
        receivers = publication._receivers
        for heard_ns in (<dict?>receivers._last_heard_ns).values():
            # The first is the longest silent one.
            until_ns = later(later(heard_ns, receivers._timeout_ns), 1)
            until_ns = min(until_ns, later(now, self.rest_ns))
            break
        if until_ns <= now:
            return False
        put(<Cell?>publication.counters.publisher_position.cell, position)
        publication._fast_until_ns = until_ns
        return True


@cython.final
@cython.auto_pickle(False)
cdef class ReportsOut:
    """Lets status messages leave; twin of `driver.core.silent_streams.ReportsOut`."""

    cdef object kind
    cdef Schedule schedule
    cdef object batch
    cdef int64_t alive_ns
    # Where the last one went: those of one source are many, and a look-up takes a while.
    cdef object destination
    cdef object address
    cdef Py_ssize_t length
    cdef object frames

    def __init__(self, kind, Schedule schedule not None, batch, int64_t alive_ns):
        if not issubclass(kind, Rebuilding):
            raise TypeError("only images send status messages")
        check_unmade(self.schedule)
        self.kind = kind
        self.schedule = schedule
        self.batch = batch
        self.alive_ns = alive_ns

    def send(self, list images not None, Py_ssize_t index, now_ns, int64_t due_ns):
        """Let status messages leave from an index on; return that of the first that is to be asked."""
        cdef int64_t now = now_ns, deadline_ns
        if index < 0:
            raise IndexError(index)
        try:
            while index < len(images):
                image = images[index]
                if not is_of(image, self.kind):
                    break
                try:
                    deadline_ns = self.report(image, now, due_ns)
                except Exception:
                    # Its own way meets the same, and keeps it for its poll.
                    break
                if not deadline_ns:
                    break
                self.schedule.set_deadline(image, deadline_ns)
                index += 1
        finally:
            self.destination = self.address = self.frames = None
        return index

    cdef int64_t report(self, Rebuilding image, int64_t now, int64_t due_ns) except? -1:
        """Do what `report_fast` does, if the same was said before; else return 0."""
        cdef int64_t until_ns, deadline_ns, position, heard_ns
        cdef Reporting feedback = image._feedback
        watch = image._watch
        if (not image._calm_until_ns or image.failure is not None or image.wake_flag is None
                or image.wake_flag.is_set or image.rebuild_position != image.hwm_position
                or image._gaps.detector.length or <int64_t>watch._gap_timer.start >= 0):
            return 0
        until_ns = min(<int64_t>image._report_until_ns, <int64_t>watch._doubts.deadline_ns)
        until_ns = min(until_ns, <int64_t>watch._terms.deadline_ns)
        if (now >= until_ns or not feedback.is_enabled or feedback._rejection is not None
                or feedback._response_session_id is not None or feedback._is_pending):
            return 0
        position = feedback.next_sm_position
        if position != consumed(<list?>image.subscribers._working):
            return 0
        deadline_ns = feedback._deadline_ns
        if due_ns >= deadline_ns:
            frame = feedback._same_again
            connections = <dict?>image.connections._connections
            # Those attributes may run code that takes the feedback away.
            if (frame is None or feedback.last_sm_position != position
                    or len(<dict>connections) != 1 or feedback._transport_count != 1):
                return 0
            for connection in (<dict>connections).values():
                heard_ns = connection.last_activity_ns
                if (now >= later(heard_ns, self.alive_ns)
                        or now >= later(heard_ns, feedback._liveness_timeout_ns)):
                    return 0
                destination = connection.destination
                self.gather(destination, destination.control_address or connection.source, frame)
            deadline_ns = later(now, feedback._timeout_ns)
            feedback._deadline_ns = deadline_ns
            feedback.sent_count = <int64_t>(<uint64_t>feedback.sent_count + 1)
        image._calm_until_ns = min(until_ns, deadline_ns)
        return image._calm_until_ns

    cdef int gather(self, destination, address, bytes frame) except -1:
        """Let a frame leave with the others, as `ReportBatch.add`."""
        # Held here: comparing and adding may run code that replaces them.
        frames, its_address, batch = self.frames, self.address, self.batch
        if (frames is None or destination is not self.destination
                or len(frame) != self.length or address != its_address):
            self.frames = None
            batch.add(destination, address, frame)
            self.destination, self.address, self.length = destination, address, len(frame)
            self.frames = batch._frames[destination, address, len(frame)]
        else:
            frames += frame
        return 0


cdef int64_t consumed(list working) except? -1:
    """Return the position of the slowest of some readers, in bytes; -1 if there are none."""
    cdef int64_t slowest = INT64_MAX, position
    cdef object cell
    for counter in working:
        position = (<Cell?>counter.cell)[0]
        slowest = min(slowest, position)
    return slowest if working else -1


# Receiving.


@cython.final
@cython.auto_pickle(False)
cdef class HeartbeatsIn:
    """Takes heartbeats; twin of `driver.core.silent_streams.HeartbeatsIn`."""

    cdef object kind
    cdef dict streams
    cdef Cell heartbeats_received

    def __init__(self, kind, dict streams not None, heartbeats_received):
        cdef Cell cell
        if not issubclass(kind, Rebuilding):
            raise TypeError("only images get heartbeats")
        cell = <Cell?>heartbeats_received.cell
        check_unmade(self.streams)
        self.kind = kind
        self.streams = streams
        self.heartbeats_received = cell

    def take(self, data, Py_ssize_t start, Py_ssize_t end, source, destination, now_ns):
        """Take heartbeats of one source; return how many bytes they were, from `start` on."""
        cdef Py_buffer view
        cdef Py_ssize_t taken
        if self.streams is None:
            raise ValueError("there are no streams")
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if not 0 <= start <= end <= view.len:
                raise IndexError((start, end))
            taken = start
            try:
                while end - taken >= HEADER and self.take_one(
                        <const char *>view.buf + taken, source, destination, now_ns):
                    taken += HEADER
            except Exception:
                # The usual way raises it once more.
                pass
        finally:
            PyBuffer_Release(&view)
        if taken > start:
            add(self.heartbeats_received, (taken - start) // HEADER)
        return taken - start

    cdef bint take_one(self, const char *frame, source, destination, now_ns) except -1:
        """Do what `on_heartbeat_fast` does; return False if the usual way must be taken."""
        cdef Rebuilding image
        cdef int64_t position, now = now_ns
        cdef uint32_t term_count
        if peek_32(frame) or peek_32(frame + 4) != PLAIN_DATA:
            return False
        interest = self.streams.get(peek_32(frame + 16))
        if interest is None:
            return False
        found = (<dict?>interest.images).get(peek_32(frame + 12))
        if found is None or not is_of(found, self.kind):
            return False
        image = found
        position = image.rebuild_position
        term_count = <uint32_t>peek_32(frame + 20) - <uint32_t>image.initial_term_id
        if (now >= image._calm_until_ns or position != image.hwm_position
                or image.failure is not None or image.is_end_of_stream
                # It is closed where the image was rejected.
                or image._is_fast_way_closed or image.wake_flag is None or image.wake_flag.is_set
                or term_count > 0x7FFFFFFF or term_count != position >> image.bits
                or peek_32(frame + 8) != position & (image.term_length - 1)):
            return False
        connection = (<dict?>image.connections._connections).get(destination)
        if connection is None or connection.is_new or connection.source != source:
            return False
        doubts = image._doubts
        if doubts.behind_ns != -1:
            doubts.behind_ns = -1
        connection.last_activity_ns = image.idle_ns = now_ns
        image.last_packet_ns = now
        image.idle_position = -1
        return True


@cython.final
@cython.auto_pickle(False)
cdef class ReportsIn:
    """Takes status messages; twin of `driver.core.silent_streams.ReportsIn`."""

    cdef object kind
    cdef dict publications
    cdef Cell reports_received

    def __init__(self, kind, dict publications not None, reports_received):
        cdef Cell cell = <Cell?>reports_received.cell
        check_unmade(self.publications)
        self.kind = kind
        self.publications = publications
        self.reports_received = cell

    def take(self, data, Py_ssize_t start, now_ns):
        """Take status messages; return how many bytes they were, from `start` on."""
        cdef Py_buffer view
        cdef Py_ssize_t taken
        if self.publications is None:
            raise ValueError("there are no publications")
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if not 0 <= start <= view.len:
                raise IndexError(start)
            taken = start
            try:
                while view.len - taken >= REPORT_LENGTH and self.take_one(
                        <const char *>view.buf + taken, now_ns):
                    taken += REPORT_LENGTH
            except Exception:
                # The usual way raises it once more.
                pass
        finally:
            PyBuffer_Release(&view)
        if taken > start:
            add(self.reports_received, (taken - start) // REPORT_LENGTH)
        return taken - start

    cdef bint take_one(self, const char *frame, now_ns) except -1:
        """Do what `on_status_message_fast` does; return False where the limit rises, or if it would."""
        cdef int64_t position, sent_position, limit, half_term
        cdef int32_t term_offset, window_length
        cdef int64_t receiver_id
        cdef uint32_t term_count
        cdef dict heard_ns
        cdef tuple report
        if peek_32(frame) != REPORT_LENGTH or peek_32(frame + 4) != PLAIN_REPORT:
            return False
        publication = self.publications.get((peek_32(frame + 8), peek_32(frame + 12)))
        if publication is None or not is_of(publication, self.kind):
            return False
        flow_control = publication._plain_flow_control
        if flow_control is None or not publication.is_connected:
            return False
        log, sender = publication.log, publication._sender
        half_term = <int64_t>log.term_length >> 1
        term_offset, window_length = peek_32(frame + 20), peek_32(frame + 24)
        term_count = <uint32_t>peek_32(frame + 16) - <uint32_t>(<int32_t>log.initial_term_id)
        if (term_count > 0x7FFFFFFF or not 0 <= term_offset < 2 * half_term
                or term_offset % ALIGNMENT or not 0 <= window_length <= half_term):
            return False
        # No log has more than 30 bits, and no sum of these ends beyond 63.
        position = (<int64_t>term_count << (<int>log.position_bits & 31)) + term_offset
        sent_position, limit = sender.position, sender.limit
        if (min(limit, sent_position) > position + half_term or position - half_term > sent_position
                or min(sent_position, position) + window_length > limit):
            return False
        receivers = publication._receivers
        heard_ns = receivers._last_heard_ns
        memcpy(&receiver_id, frame + 28, 8)
        receiver = receiver_id
        if heard_ns is None or len(heard_ns) != 1 or receiver not in heard_ns:
            return False
        # A silent stream's receiver says the same again.
        report = <tuple?>(<dict?>receivers.reports).get(receiver, ())
        if (len(report) != 2 or <int64_t>report[0] != position
                or <int64_t>report[1] != window_length):
            return False
        heard_ns[receiver] = now_ns
        budget = publication._retransmit_handler.budget
        if budget.window_length != window_length:
            budget.window_length = window_length
        if flow_control.receiver_id != receiver:
            flow_control.receiver_id = receiver
        publication.has_new_limit = False
        return True
