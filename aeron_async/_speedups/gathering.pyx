# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, freethreading_compatible=True
"""Fields of fixed width, gathered from many messages; twins of functions of `codecs.columns`.

Every place is checked against the data, and nothing is kept from one call to the next.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memchr, memcpy, memset

DEF LONGEST = (1 << 31) - 1
DEF MOST_BYTES = 1 << 46


cdef inline int64_t gather(const char *data, int64_t last, const char *places, int64_t count,
                           const char *absent, char *to, int64_t width) noexcept nogil:
    """Copy bytes from each place; return the index of the first place that is none, or `count`."""
    cdef int64_t each, place
    for each in range(count):
        if absent is not NULL and absent[each]:
            memset(to, 0, width)
        else:
            # The array of places may lie at an odd address.
            memcpy(&place, places + 8 * each, 8)
            if place < 0 or place > last:
                return each
            memcpy(to, data + place, width)
        to += width
    return count


def gathered(data, places, int64_t width, absent):
    """Return bytes from each place, one behind the other; twin of `codecs.columns.gathered`."""
    cdef Py_buffer source, where, flags
    PyObject_GetBuffer(data, &source, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(places, &where, PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(absent, &flags, PyBUF_SIMPLE)
            try:
                return copied(&source, &where, &flags, width)
            finally:
                PyBuffer_Release(&flags)
        finally:
            PyBuffer_Release(&where)
    finally:
        PyBuffer_Release(&source)


cdef bytes copied(Py_buffer *source, Py_buffer *where, Py_buffer *flags, int64_t width):
    cdef const char *data = <const char *>source.buf
    cdef const char *places = <const char *>where.buf
    cdef const char *absent = <const char *>flags.buf
    cdef int64_t count = where.len // 8
    cdef int64_t last = source.len - width
    cdef int64_t done
    cdef char *to
    cdef bytes found
    if flags.len != count:
        raise ValueError(f"{flags.len} flags are not one for each of {count} places")
    if width < 1 or count > MOST_BYTES // width:
        raise ValueError(f"{width} bytes cannot be taken from {count} places")
    if count == 0 or memchr(absent, 1, count) is NULL:
        absent = NULL
    if last < 0 and absent is NULL and count:
        raise IndexError(f"{width} bytes are more than there are")
    found = PyBytes_FromStringAndSize(NULL, count * width)
    to = PyBytes_AS_STRING(found)
    # Copies of a width that the compiler knows need no call.
    if width == 8:
        done = gather(data, last, places, count, absent, to, 8)
    elif width == 4:
        done = gather(data, last, places, count, absent, to, 4)
    elif width == 2:
        done = gather(data, last, places, count, absent, to, 2)
    elif width == 1:
        done = gather(data, last, places, count, absent, to, 1)
    else:
        done = gather(data, last, places, count, absent, to, width)
    if done < count:
        raise IndexError(f"place {done} is not in {source.len} bytes")
    return found


def until_zero(rows, int64_t width):
    """Return the bounds and bytes of texts up to zeros; twin of `codecs.columns.until_zero`."""
    cdef Py_buffer source
    PyObject_GetBuffer(rows, &source, PyBUF_SIMPLE)
    try:
        if width < 1 or source.len % width or source.len > LONGEST:
            raise ValueError(f"{source.len} bytes are no texts of {width} bytes")
        return shortened(<const char *>source.buf, source.len // width, width)
    finally:
        PyBuffer_Release(&source)


cdef tuple shortened(const char *rows, int64_t count, int64_t width):
    cdef bytes bounds = PyBytes_FromStringAndSize(NULL, 4 * (count + 1))
    cdef int32_t *edges = <int32_t *>PyBytes_AS_STRING(bounds)
    cdef const char *zero
    cdef int64_t total = 0
    cdef int64_t each
    cdef char *to
    cdef bytes data
    edges[0] = 0
    for each in range(count):
        zero = <const char *>memchr(rows + each * width, 0, width)
        total += width if zero is NULL else zero - (rows + each * width)
        edges[each + 1] = <int32_t>total
    data = PyBytes_FromStringAndSize(NULL, total)
    to = PyBytes_AS_STRING(data)
    for each in range(count):
        memcpy(to + edges[each], rows + each * width, edges[each + 1] - edges[each])
    return bounds, data
