"""Declarations of `Message` and `Batch`, for the compiled part of a subscription."""

from libc.stdint cimport int64_t


cdef class Message:
    cdef bytes data
    cdef public int64_t position
    cdef public int64_t reserved_value
    cdef object image


cdef class Batch:
    cdef Py_buffer view
    cdef bint is_open
    cdef int64_t offset
    cdef int64_t end
    cdef int64_t begin_position
    cdef list messages
    cdef readonly object image
    cdef readonly Py_ssize_t left
    # Where the messages begin that are left, once one behind the first was asked for by its index.
    cdef object starts
    cdef int64_t starts_offset

    cdef Message hand_out(self)
    cdef int fill(self, Message message, int64_t offset, int64_t length) except -1
    cdef int64_t start_of(self, Py_ssize_t index) except? -1
    cdef int64_t find(self, int64_t *offset) noexcept
    cdef int64_t room(self) noexcept
    cdef Py_ssize_t lay_out(self, Py_ssize_t left, int64_t room, int64_t *starts, char *data,
                            int64_t *total) noexcept
    cdef list listed(self)
    cdef void let_go(self) noexcept


cdef Batch lay_open(term, int64_t offset, int64_t end, int64_t begin_position, int64_t limit, image)
