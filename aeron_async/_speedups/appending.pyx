# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Frames that are appended to a log; the fast path of `Appender.offer` in `logbuffer.appender`.

Every function checks its arguments before it accesses memory: what another process has written into
the log can make it return early, and can do nothing else.
"""

cimport cython
from cpython.buffer cimport (PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_CheckBuffer,
                             PyObject_GetBuffer)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove

from aeron_async._speedups.frames cimport (HEADER, align, load_acquire_32, load_acquire_64, peek_32,
                                           store_release_32, store_release_64)

cdef extern from *:
    """
    #define AERON_FETCH_ADD(p, v) __atomic_fetch_add((p), (v), __ATOMIC_SEQ_CST)
    """
    # Unsigned, so that a tail of another process that wraps is defined.
    uint64_t fetch_add_64 "AERON_FETCH_ADD"(uint64_t *place, uint64_t value) noexcept nogil

cdef extern from "Python.h":
    # Borrowed: no reference is counted for each message.
    PyObject *PyList_GET_ITEM(object items, Py_ssize_t index) noexcept

# The second word of a header: version 0, flags, type.
DEF UNFRAGMENTED_WORD = 0x0001_C000
DEF BEGIN_WORD = 0x0001_8000
DEF MIDDLE_WORD = 0x0001_0000
DEF END_WORD = 0x0001_4000
DEF PADDING_WORD = 0x0000_C000
DEF ACTIVE_TERM_COUNT_INDEX = 6
DEF METADATA_LENGTH = 4096
DEF SHARED_CLAIM_MAX = 65_536
"""Bytes of a list that are claimed at once, or an eighth of a term if that is less.

A claim may begin just before the limit, so publishers of one log pass it by that much each.
"""
DEF LONE_CLAIM_MAX = 262_144
"""The same where nobody else claims, so that no message begins beyond the limit; a quarter of a term."""

cdef int64_t REFUSED = -100
"""The fast path cannot append: the caller uses the appender, which finds and reports the reason."""


cdef inline void write_frame(char *frame, int32_t word, int32_t offset, int32_t session_id,
                             int32_t stream_id, int32_t term_id, int64_t reserved_value,
                             const char *data, int32_t length) noexcept nogil:
    cdef int32_t *words = <int32_t *>frame
    # Negative while the frame is being filled, so that a reader stops here.
    store_release_32(words, -(length + HEADER))
    words[1] = word
    words[2] = offset
    words[3] = session_id
    words[4] = stream_id
    words[5] = term_id
    (<int64_t *>frame)[3] = reserved_value
    # The data may be a part of the same log.
    memmove(frame + HEADER, data, length)
    store_release_32(words, length + HEADER)


cdef inline void write_padding(char *frame, int32_t offset, int32_t session_id, int32_t stream_id,
                               int32_t term_id, int32_t frame_length) noexcept nogil:
    """Write the header of a frame that readers skip, whatever lies behind it."""
    cdef int32_t *words = <int32_t *>frame
    store_release_32(words, -frame_length)
    words[1] = PADDING_WORD
    words[2] = offset
    words[3] = session_id
    words[4] = stream_id
    words[5] = term_id
    store_release_32(words, frame_length)


cdef inline int64_t piece(Column *column, Py_ssize_t index, int64_t *start) noexcept nogil:
    """Return the length of one message of a column, and where it starts; -1 if it is not there."""
    cdef const char *place = column.bounds + index * column.width
    cdef int64_t end
    if column.width == 4:
        start[0] = peek_32(place)
        end = peek_32(place + 4)
    else:
        memcpy(start, place, 8)
        memcpy(&end, place + 8, 8)
    if not 0 <= start[0] <= end <= column.length:
        start[0] = 0
        return -1
    return end - start[0]


# The garbage collector would clear the owners of the buffers without releasing the buffers.
@cython.no_gc
@cython.final
cdef class FrameWriter:
    """Appends messages that fit the active term; the fast path of `Appender.offer`.

    Holds the memory of the log until `detach`: an exported view keeps it mapped.

    Args:
        log: The `LogBuffers` of a publication.
        max_payload_length: Longest message that fits one frame, in bytes.
        max_message_length: Longest message that can be offered, in bytes.
        is_shared: Whether other processes append to the log, too: room is claimed atomically then.

    Raises:
        ValueError: The log or a length is invalid, or `__init__` was called before.
    """

    def __cinit__(self):
        self._view_count = 0

    def __init__(self, log, *, int64_t max_payload_length, int64_t max_message_length,
                 bint is_shared=False):
        cdef int64_t term_length = log.term_length
        cdef int64_t initial_term_id = log.initial_term_id
        cdef int bits = log.position_bits
        cdef int32_t session_id = log.session_id
        cdef int32_t stream_id = log.stream_id
        if self._is_made:
            raise ValueError("a writer is made once: make another for another log")
        self._is_made = True
        if max_payload_length < 1 or max_message_length < 0:
            raise ValueError(f"no lengths of messages: max_payload_length={max_payload_length}, "
                             f"max_message_length={max_message_length}")
        if not 5 <= bits <= 30 or term_length != <int64_t>1 << bits:
            raise ValueError(f"terms of {term_length} bytes, but positions of {bits} bits")
        try:
            self.hold((*log.terms, log.metadata.block), term_length)
        except BaseException:
            self.release()
            raise
        self._term_length = term_length
        self._bits = bits
        self._initial_term_id = initial_term_id
        self._session_id = session_id
        self._stream_id = stream_id
        self._max_payload_length = max_payload_length
        self._max_message_length = max_message_length
        self._is_shared = is_shared
        self._claim_length = min(LONE_CLAIM_MAX, term_length >> 2)
        if is_shared:
            self._claim_length = min(SHARED_CLAIM_MAX, term_length >> 3)
        # Last, because `write` refuses while this is NULL.
        self._words = <int32_t *>self._views[3].buf
        self._tails = <int64_t *>self._views[3].buf

    cdef int hold(self, tuple views, int64_t term_length) except -1:
        cdef int index
        cdef int64_t wanted
        if len(views) != 4:
            raise ValueError(f"a log of {len(views) - 1} terms, not of 3")
        for index in range(4):
            PyObject_GetBuffer(views[index], &self._views[index], PyBUF_SIMPLE | PyBUF_WRITABLE)
            self._view_count = index + 1
            wanted = METADATA_LENGTH if index == 3 else term_length
            if self._views[index].len != wanted:
                raise ValueError("a log whose terms have another length than it says: "
                                 f"{self._views[index].len} bytes, not {wanted}")
            if <size_t>self._views[index].buf & 7:
                raise ValueError("a log at an address that is no multiple of 8")
            if index < 3:
                self._terms[index] = <char *>self._views[index].buf
        return 0

    def __dealloc__(self):
        self.release()

    def detach(self):
        """Release the memory of the log; offers are refused from now on."""
        self.release()

    cdef void release(self) noexcept:
        cdef int index
        cdef int count = self._view_count
        self._view_count = 0
        self._tails = NULL
        for index in range(count):
            PyBuffer_Release(&self._views[index])

    def offer(self, data, int64_t limit, reserved_value):
        """Append one message; return its end position, or a negative number for the slow path."""
        if type(reserved_value) is not int:
            # The conversion to C would accept it, and make 1 of 1.5, and of True.
            return REFUSED
        try:
            return self.write_object(data, limit, reserved_value)
        except OverflowError:
            return REFUSED

    def offer_list(self, list messages not None, Py_ssize_t first, int64_t limit):
        """Append messages of a list from one on; return how many, and the position behind them."""
        cdef int64_t position = 0
        cdef Py_ssize_t count = 0
        if first >= 0:
            count = self.write_list(messages, first, limit, &position)
        return count, position

    cdef int64_t write_object(self, object data, int64_t limit, int64_t reserved_value):
        cdef Py_buffer view
        cdef int64_t position
        if type(data) is bytes:
            return self.write(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), limit,
                              reserved_value)
        if not PyObject_CheckBuffer(data):
            return REFUSED
        try:
            PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        except (BufferError, ValueError):
            # The buffer is not contiguous; numpy raises `ValueError` then.
            return REFUSED
        position = self.write(<const char *>view.buf, view.len, limit, reserved_value)
        PyBuffer_Release(&view)
        return position

    cdef int64_t write(self, const char *data, Py_ssize_t length, int64_t limit,
                       int64_t reserved_value) noexcept:
        cdef int64_t offset, size, rest, stride
        cdef int64_t payload = self._max_payload_length
        cdef int32_t word
        cdef char *frame
        cdef Place place
        if length > self._max_message_length or not self.find(&place):
            return REFUSED
        stride = 0
        if length <= payload:
            size = align(length + HEADER)
        else:
            stride = align(payload + HEADER)
            rest = length % payload
            size = length // payload * stride + (align(rest + HEADER) if rest else 0)
        if place.position >= limit or place.offset + size > self._term_length:
            return REFUSED
        if not self.reserve(&place, size):
            return REFUSED
        offset = place.offset
        frame = self._terms[place.index] + offset
        word = UNFRAGMENTED_WORD if length <= payload else BEGIN_WORD
        rest = length
        while rest > payload:
            write_frame(frame, word, <int32_t>offset, self._session_id, self._stream_id,
                        place.term_id, reserved_value, data, <int32_t>payload)
            frame += stride
            offset += stride
            data += payload
            rest -= payload
            word = MIDDLE_WORD if rest > payload else END_WORD
        write_frame(frame, word, <int32_t>offset, self._session_id, self._stream_id,
                    place.term_id, reserved_value, data, <int32_t>rest)
        self.message_count += 1
        return place.position + size

    cdef Py_ssize_t write_list(self, list items, Py_ssize_t first, int64_t limit,
                               int64_t *end) noexcept:
        """Append messages of a list that fit a frame each; return how many, and where they end.

        Only exact `bytes` are appended: no Python code runs here that could change the list, or
        see a claim that is not filled.
        """
        cdef Py_ssize_t each
        cdef Py_ssize_t count = PyList_GET_SIZE(items)
        cdef int64_t total = 0
        cdef int64_t offset, size
        cdef PyObject *item
        cdef char *term
        cdef Place place
        if not self.find(&place):
            return 0
        each = first
        while each < count and place.position + total < limit:
            item = PyList_GET_ITEM(items, each)
            if not PyBytes_CheckExact(<object>item):
                break
            if not self.add(&place, PyBytes_GET_SIZE(<object>item), &total):
                break
            each += 1
        if each <= first or not self.reserve(&place, total):
            return 0
        count, each = each, first
        offset = place.offset
        term = self._terms[place.index]
        while each < count:
            item = PyList_GET_ITEM(items, each)
            size = PyBytes_GET_SIZE(<object>item)
            write_frame(term + offset, UNFRAGMENTED_WORD, <int32_t>offset, self._session_id,
                        self._stream_id, place.term_id, 0, PyBytes_AS_STRING(<object>item),
                        <int32_t>size)
            offset += align(size + HEADER)
            each += 1
        self.listed_length = total
        end[0] = place.position + total
        self.message_count += count - first
        return count - first

    def offer_column(self, bounds not None, data not None, int width, Py_ssize_t first,
                     int64_t limit):
        """Append messages of a column from one on; see `write_column`."""
        cdef int64_t position = 0
        cdef Py_ssize_t count = self.write_column(bounds, data, width, first, limit, &position)
        return count, position

    cdef Py_ssize_t write_column(self, object bounds, object data, int width, Py_ssize_t first,
                                 int64_t limit, int64_t *end) except -1:
        """Append messages that lie behind each other; return how many, and where they end.

        Message `i` lies from number `i` to the next one of `bounds`; these have 4 or 8 bytes.
        """
        cdef Py_buffer places
        cdef Py_buffer source
        cdef Column column
        PyObject_GetBuffer(bounds, &places, PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(data, &source, PyBUF_SIMPLE)
            try:
                if width != 4 and width != 8:
                    raise ValueError(f"numbers of {width} bytes, not of 4 or 8")
                column.bounds = <const char *>places.buf
                column.count = places.len // width - 1
                column.data = <const char *>source.buf
                column.length = source.len
                column.width = width
                return self.write_pieces(&column, first, limit, end)
            finally:
                PyBuffer_Release(&source)
        finally:
            PyBuffer_Release(&places)

    cdef Py_ssize_t write_pieces(self, Column *column, Py_ssize_t first, int64_t limit,
                                 int64_t *end) noexcept:
        cdef Py_ssize_t each = first
        cdef Py_ssize_t count = 0
        cdef int64_t total = 0
        cdef int64_t offset, size, start
        cdef char *term
        cdef Place place
        if first < 0 or not self.find(&place):
            return 0
        while each < column.count and place.position + total < limit:
            if not self.add(&place, piece(column, each, &start), &total):
                break
            each += 1
        if each == first or not self.reserve(&place, total):
            return 0
        offset = place.offset
        term = self._terms[place.index]
        self.listed_length = total
        end[0] = place.position + total
        for each in range(first, each):
            # A library's thread may write the numbers meanwhile: what was claimed is filled anyway.
            # A frame longer than a datagram would never be sent, nor what is behind it.
            size = min(max(piece(column, each, &start), 0), self._max_payload_length, total - HEADER)
            write_frame(term + offset, UNFRAGMENTED_WORD, <int32_t>offset, self._session_id,
                        self._stream_id, place.term_id, 0, column.data + start, <int32_t>size)
            offset += align(size + HEADER)
            total -= align(size + HEADER)
            count += 1
            if total < HEADER:
                break
        if total:
            write_padding(term + offset, <int32_t>offset, self._session_id, self._stream_id,
                          place.term_id, <int32_t>total)
        self.message_count += count
        return count

    cdef bint add(self, Place *place, int64_t length, int64_t *total) noexcept:
        """Add the frame of one message more to a claim; return whether it fits there."""
        cdef int64_t size = total[0] + align(length + HEADER)
        if not 0 <= length <= self._max_payload_length:
            return False
        if place.offset + size > self._term_length:
            return False
        if size > self._claim_length and total[0]:
            return False
        total[0] = size
        return True

    cdef bint find(self, Place *place) noexcept:
        """Find the end of the log; return False if the fast path cannot append there."""
        cdef int64_t count
        if self._tails is NULL:
            return False
        count = load_acquire_32(self._words + ACTIVE_TERM_COUNT_INDEX)
        place.index = <int>(<uint32_t>count % 3)
        place.tail = load_acquire_64(self._tails + place.index)
        place.term_id = <int32_t>(place.tail >> 32)
        if <uint32_t>(place.term_id - self._initial_term_id - count) != 0:
            return False
        place.offset = <uint32_t>place.tail
        # Other processes may write the tail; one beyond the term is refused later, with the size.
        if count < 0 or place.offset & 31:
            return False
        place.position = (count << self._bits) + place.offset
        return True

    cdef bint reserve(self, Place *place, int64_t size) noexcept:
        """Take room at the end of the log; return whether it lies within the term."""
        cdef int64_t count
        if not self._is_shared:
            store_release_64(self._tails + place.index, place.tail + size)
            return True
        if not self.claim(place.index, size, &place.tail):
            return False
        # Other processes may have claimed room, and even filled terms, since the look.
        place.term_id = <int32_t>(place.tail >> 32)
        place.offset = <uint32_t>place.tail
        count = <uint32_t>(place.term_id - self._initial_term_id)
        place.position = (count << self._bits) + place.offset
        return True

    cdef bint claim(self, int index, int64_t size, int64_t *tail) noexcept:
        """Claim room beside other processes; return whether it lies within the term.

        The one that crosses the end of the term pads it. The next offer finds the tail beyond the
        end, and the appender rotates.
        """
        cdef int64_t claimed = <int64_t>fetch_add_64(<uint64_t *>self._tails + index, <uint64_t>size)
        cdef int64_t offset = <uint32_t>claimed
        cdef int32_t term_id = <int32_t>(claimed >> 32)
        tail[0] = claimed
        # A tail that no client library writes leads nowhere, whatever is in it.
        if offset & 31 or offset >= self._term_length:
            return False
        if <uint32_t>(term_id - self._initial_term_id) % 3 != <uint32_t>index:
            return False
        if offset + size <= self._term_length:
            return True
        write_padding(self._terms[index] + offset, <int32_t>offset, self._session_id,
                      self._stream_id, term_id, <int32_t>(self._term_length - offset))
        return False
