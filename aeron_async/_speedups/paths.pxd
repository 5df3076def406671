"""Declarations of what other compiled modules use or extend."""

from libc.stdint cimport int64_t


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
