"""Declarations of a delivery, for what reads the messages that it gives away."""


cdef class Delivering:
    cdef public object _context
    cdef public object _events
    cdef public object _hand_out_fast
    cdef public object _handler
    cdef public object _loop
    cdef public object _subject
    cdef public object _unwatch
    cdef public bint _is_calling
    cdef public bint _is_due
    cdef public bint _is_over
    cdef public bint _is_scheduled

    cdef int schedule(self) except -1
    cdef bint has_nothing_to_do(self) except -1
    cdef bint call(self, message) except -1
