# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, freethreading_compatible=True
"""A scan of frame headers that must follow one another; twin of `logbuffer.scanner.scan_chain`.

The frames come from a disk and may have any content: the scan never leaves their buffer.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy

DEF HEADER = 32
DEF VERSION_BITS = 0xFF
DEF DATA = 1
DEF PADDING = 0


def scan_chain(object words, int64_t limit, *, int64_t term_offset, int64_t term_id,
               int64_t stream_id, int64_t term_length):
    """Return how many bytes of whole frames there are, and the padding behind them.

    Twin of `logbuffer.scanner.scan_chain`.
    """
    cdef Py_buffer view
    cdef int32_t header[6]
    cdef int64_t available = 0
    cdef int64_t aligned
    PyObject_GetBuffer(words, &view, PyBUF_SIMPLE)
    try:
        limit = min(limit, view.len)
        while available + HEADER <= limit:
            memcpy(header, <char *>view.buf + available, sizeof(header))
            if (header[0] < HEADER or header[1] & VERSION_BITS
                    or header[2] != term_offset + available
                    or header[4] != stream_id or header[5] != term_id):
                break
            aligned = (<int64_t>header[0] + 31) & ~(<int64_t>31)
            if aligned + header[2] > term_length:
                break
            if header[1] >> 16 == PADDING:
                return available + HEADER, aligned - HEADER
            if header[1] >> 16 != DATA or aligned > limit - available:
                break
            available += aligned
        return available, 0
    finally:
        PyBuffer_Release(&view)
