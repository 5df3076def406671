"""Declarations of what other compiled modules use or extend."""

from libc.stdint cimport int64_t

from aeron_async._speedups.messages cimport Batch


cdef class Cell:
    cdef Py_buffer view
    cdef int64_t *place
    cdef object why

    cdef void let_go(self) noexcept


cdef int check_log(tuple terms, int bits) except -1
cdef object term_at(log, int64_t position, int64_t *begin)


cdef class WakeFlag:
    cdef public bint is_set
    cdef public object callback

    cpdef set(self)


cdef class Taking:
    cdef public int64_t _position
    cdef public int64_t _trigger
    cdef public int64_t _message_count
    cdef public bint _is_closed
    cdef public Cell _cell
    cdef public WakeFlag _wake_flag
    cdef public object _port
    cdef public object _reader
    cdef public object _log

    cpdef _take(self, int64_t position)
    cpdef Batch _read_fast(self, int64_t limit, int64_t max_bytes)


cdef class Counted:
    cdef public Batch _batch
    cdef public object _lent
    cdef public object _images
    cdef public object _listener
