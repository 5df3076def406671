"""Declaration of `FrameWriter`, for the compiled part of a publication."""

from libc.stdint cimport int32_t, int64_t, uint64_t

cdef int64_t REFUSED


cdef struct Place:
    int index
    int32_t term_id
    int64_t tail
    int64_t offset
    int64_t position


cdef struct Column:
    const char *bounds
    const char *data
    Py_ssize_t count
    int64_t length
    int width


cdef class FrameWriter:
    cdef Py_buffer _views[4]
    cdef int _view_count
    cdef bint _is_made
    cdef char *_terms[3]
    cdef int64_t *_tails
    cdef int32_t *_words
    cdef int64_t _initial_term_id
    cdef int64_t _term_length
    cdef int64_t _max_payload_length
    cdef int64_t _max_message_length
    cdef int _bits
    cdef int32_t _session_id
    cdef int32_t _stream_id
    cdef bint _is_shared
    cdef int64_t _claim_length
    # Messages that were appended.
    cdef readonly uint64_t message_count
    # Bytes of the log that the last list or column took.
    cdef int64_t listed_length

    cdef void release(self) noexcept
    cdef int hold(self, tuple views, int64_t term_length) except -1
    cdef int64_t write(self, const char *data, Py_ssize_t length, int64_t limit,
                       int64_t reserved_value) noexcept
    cdef Py_ssize_t write_list(self, list items, Py_ssize_t first, int64_t limit,
                               int64_t *end) noexcept
    cdef Py_ssize_t write_column(self, object bounds, object data, int width, Py_ssize_t first,
                                 int64_t limit, int64_t *end) except -1
    cdef Py_ssize_t write_pieces(self, Column *column, Py_ssize_t first, int64_t limit,
                                 int64_t *end) noexcept
    cdef bint add(self, Place *place, int64_t length, int64_t *total) noexcept
    cdef bint find(self, Place *place) noexcept
    cdef bint reserve(self, Place *place, int64_t size) noexcept
    cdef bint claim(self, int index, int64_t size, int64_t *tail) noexcept
    cdef int64_t write_object(self, object data, int64_t limit, int64_t reserved_value)
