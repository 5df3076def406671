"""Declarations of what another compiled module uses: the compiled parts of streams, a lane, and counters."""

from libc.stdint cimport INT64_MAX, int32_t, int64_t

from aeron_async._speedups.frames cimport load_acquire_64, store_release_64
from aeron_async._speedups.paths cimport Cell, WakeFlag


cdef inline int put(Cell cell, int64_t value) except -1:
    if cell.place is NULL:
        cell[0] = value
    else:
        store_release_64(cell.place, value)
    return 0


cdef inline int add(Cell cell, int64_t amount) except -1:
    """Add to a counter; one that another process has filled begins again, as `Counter.increment`."""
    cdef int64_t value = 0 if cell.place is NULL else load_acquire_64(cell.place)
    return put(cell, amount if value > INT64_MAX - amount else value + amount)


cdef class Reporting:
    cdef public int64_t last_sm_position
    cdef public int64_t overrun_threshold
    cdef public int64_t sent_count


cdef class Rebuilding:
    cdef public int64_t rebuild_position
    cdef public int64_t hwm_position
    cdef public int64_t last_packet_ns
    cdef public int64_t idle_position
    cdef public int64_t _mark_position
    cdef public int64_t _mark_ns
    cdef public object arrivals
    cdef public int64_t _calm_until_ns
    cdef public bint is_end_of_stream
    cdef public bint _is_fast_way_closed
    cdef public object failure
    cdef public WakeFlag wake_flag
    cdef public Reporting _feedback
    cdef public object connections
    cdef public object subscribers
    cdef tuple terms
    cdef Cell hwm
    cdef Cell receiver_position
    cdef int64_t term_length
    cdef int32_t initial_term_id
    cdef int bits

    cdef bint is_ready(self, int64_t position, int64_t end, int64_t now_ns) noexcept
    cdef int advance(self, int64_t position, int64_t now_ns) except -1


cdef class Sleeping:
    cdef public object _waiter
    cdef public object _sleeps_until_ns
    cdef public bint _is_awake
    cdef public bint _is_polling

    cdef bint is_asleep(self, now_ns) except -1


cdef class Streaming:
    cdef public int64_t position
    cdef public int64_t limit
    cdef public int64_t _last_sent_ns
    cdef public bint _is_tracking_limit
    cdef public object _frame_starts
    cdef public object round_trip
    cdef Cell sender_position
    cdef Cell bytes_sent

    cdef int note_sent(self, int64_t length, int64_t now_ns) except -1


cdef class OfferSending:
    cdef public int64_t polled_ns
    cdef public int64_t _fast_until_ns
    cdef public int64_t _fast_position
    cdef public bint has_sent_burst
    cdef public bint is_sending
    cdef public WakeFlag wake_flag
    cdef public Streaming _sender
    cdef public list window_listeners
    cdef Cell publisher_position

    cdef int note_all_sent(self) except -1


cdef class ReceiveLane:
    cdef object destination
    cdef dict streams
    cdef object listener
    cdef object now_ns
    cdef Cell bytes_received
    cdef list expecting

    cdef int expect(self, tuple subscribers) except -1
    cdef bint take_frame(self, const char *frame, Py_ssize_t length, source) except -1
