# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Compiled twins of the loops that touch every frame; the twins in Python are in `logbuffer`.

Every function checks its arguments before it accesses memory: what a peer sent can make it return
early, and can do nothing else. Frame lengths are stored with release and loaded with acquire
semantics, so that a reader on another processor never sees a length before the rest of the frame.
"""

cimport cython
from cpython.buffer cimport (PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_CheckBuffer,
                             PyObject_GetBuffer)
from cpython.bytes cimport (PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize,
                            PyBytes_GET_SIZE)
from cpython.list cimport PyList_GET_SIZE
from cpython.object cimport PyObject, PyObject_GenericSetAttr
from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint64_t, uint8_t
from libc.string cimport memcpy, memset

cdef extern from *:
    """
    #define AERON_STORE_RELEASE(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
    #define AERON_LOAD_ACQUIRE(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
    #define AERON_STORE_RELAXED(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
    #define AERON_FETCH_ADD(p, v) __atomic_fetch_add((p), (v), __ATOMIC_SEQ_CST)
    """
    void store_release_32 "AERON_STORE_RELEASE"(int32_t *place, int32_t value) noexcept nogil
    void store_release_64 "AERON_STORE_RELEASE"(int64_t *place, int64_t value) noexcept nogil
    int32_t load_acquire_32 "AERON_LOAD_ACQUIRE"(int32_t *place) noexcept nogil
    int64_t load_acquire_64 "AERON_LOAD_ACQUIRE"(int64_t *place) noexcept nogil
    # Unsigned, so that a tail of another process that wraps is defined.
    uint64_t fetch_add_64 "AERON_FETCH_ADD"(uint64_t *place, uint64_t value) noexcept nogil

DEF HEADER = 32
# The second word of a header: version 0, flags, type.
DEF UNFRAGMENTED_WORD = 0x0001_C000
DEF BEGIN_WORD = 0x0001_8000
DEF MIDDLE_WORD = 0x0001_0000
DEF END_WORD = 0x0001_4000
DEF PADDING_WORD = 0x0000_C000
DEF FLAGS_BITS = 0xC000
DEF BEGIN_BIT = 0x8000
DEF END_BIT = 0x4000
DEF ACTIVE_TERM_COUNT_INDEX = 6
DEF METADATA_LENGTH = 4096
DEF LIST_LENGTH_MAX = 65_536
"""Bytes of a list that are claimed at once, or an eighth of a term if that is less.

A claim may begin just before the limit, so publishers of one log pass it by that much each.
"""

cdef extern from "Python.h":
    # Borrowed: no reference is counted for each message.
    PyObject *PyList_GET_ITEM(object items, Py_ssize_t index) noexcept

cdef int64_t REFUSED = -100
"""The fast path cannot append: the caller uses the appender, which finds and reports the reason."""


cdef inline int64_t align(int64_t length) noexcept nogil:
    return (length + 31) & ~(<int64_t>31)


cdef inline int32_t peek_32(const char *place) noexcept nogil:
    """Return a 32-bit word of a peer's data, at any address, aligned or not."""
    cdef int32_t value
    memcpy(&value, place, 4)
    return value


cdef inline void put_32(char *place, int32_t value) noexcept nogil:
    memcpy(place, &value, 4)


cdef inline bint is_slot(Py_buffer *view, int64_t offset) noexcept nogil:
    """Return whether an offset is aligned and in the view, or at its end."""
    return 0 <= offset <= view.len and not offset & 31 and not <size_t>view.buf & 7


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
    memcpy(frame + HEADER, data, length)
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
        return place.position + size

    cdef Py_ssize_t write_list(self, list items, Py_ssize_t first, int64_t limit,
                               int64_t *end) noexcept:
        """Append messages of a list that fit a frame each; return how many, and where they end.

        Only exact `bytes` are appended: no Python code runs here that could change the list, or
        see a claim that is not filled.
        """
        cdef Py_ssize_t each
        cdef Py_ssize_t count = PyList_GET_SIZE(items)
        cdef int64_t most = min(LIST_LENGTH_MAX, self._term_length >> 3)
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
            size = PyBytes_GET_SIZE(<object>item)
            if size > self._max_payload_length:
                break
            size = align(size + HEADER)
            if place.offset + total + size > self._term_length:
                break
            if total + size > most and total:
                break
            total += size
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
        cdef int64_t most = min(LIST_LENGTH_MAX, self._term_length >> 3)
        cdef int64_t total = 0
        cdef int64_t offset, size, start
        cdef char *term
        cdef Place place
        if first < 0 or not self.find(&place):
            return 0
        while each < column.count and place.position + total < limit:
            size = piece(column, each, &start)
            if size < 0 or size > self._max_payload_length:
                break
            size = align(size + HEADER)
            if place.offset + total + size > self._term_length:
                break
            if total + size > most and total:
                break
            total += size
            each += 1
        if each == first or not self.reserve(&place, total):
            return 0
        offset = place.offset
        term = self._terms[place.index]
        self.listed_length = total
        end[0] = place.position + total
        for each in range(first, each):
            # A library's thread may write the numbers meanwhile: what was claimed is filled anyway.
            size = min(max(piece(column, each, &start), 0), total - HEADER)
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
        return count

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


cdef extern from *:
    """
    #include <structmember.h>
    /* What Cython makes for a public attribute costs 13 ns more for each look: only members of
       this kind are looked up once for each place in the code (Python 3.11 and later). */
    static PyMemberDef aeron_members[] = {
        {"data", T_OBJECT_EX, 0, READONLY, "The payload, a copy."},
        {"image", T_OBJECT_EX, 0, READONLY, "The source it came from."},
    };
    #define AERON_PLACE(message, field) ((char *)&(message)->field - (char *)(message))
    #define AERON_PLACE_OF_DATA(message) AERON_PLACE(message, data)
    #define AERON_PLACE_OF_IMAGE(message) AERON_PLACE(message, image)
    static int aeron_add_member(void *type, int index, Py_ssize_t offset) {
        PyMemberDef *member = aeron_members + index;
        PyObject *found;
        int failed = -1;
        member->offset = offset;
        found = PyDescr_NewMember((PyTypeObject *)type, member);
        if (found != NULL) {
            failed = PyDict_SetItemString(((PyTypeObject *)type)->tp_dict, member->name, found);
            Py_DECREF(found);
        }
        PyType_Modified((PyTypeObject *)type);
        return failed;
    }
    """
    Py_ssize_t place_of_data "AERON_PLACE_OF_DATA"(Message message) noexcept
    Py_ssize_t place_of_image "AERON_PLACE_OF_IMAGE"(Message message) noexcept
    int add_member "aeron_add_member"(void *kind, int index, Py_ssize_t offset) except -1


@cython.final
@cython.freelist(512)
cdef class Message:
    """One complete message; twin of `logbuffer.message.Message`."""

    def __setattr__(self, str name, value):
        # A member of C could be deleted, which no code here expects.
        if name == "data":
            self.data = <bytes?>value
        elif name == "image":
            self.image = value
        else:
            PyObject_GenericSetAttr(self, name, value)

    def __init__(self, bytes data not None, int64_t position, int64_t reserved_value, image):
        self.data = data
        self.position = position
        self.reserved_value = reserved_value
        self.image = image

    @property
    def session_id(self):
        """Return the session id of the publication it came from."""
        return self.image.session_id

    @property
    def stream_id(self):
        """Return the stream id it came on."""
        return self.image.stream_id

    def __bytes__(self):
        return self.data

    def __len__(self):
        return len(self.data)

    def __repr__(self):
        return (
            f"<Message of {len(self.data)} bytes at position {self.position}, "
            f"session {self.session_id}, stream {self.stream_id}>"
        )


cdef int add_members() except -1:
    cdef Message message = Message.__new__(Message)
    add_member(<void *>Message, 0, place_of_data(message))
    return add_member(<void *>Message, 1, place_of_image(message))


add_members()


cdef inline Py_buffer *take(object data, Py_buffer *view) except NULL:
    PyObject_GetBuffer(data, view, PyBUF_SIMPLE)
    return view


cdef int64_t measure(char *term, int64_t offset, int64_t end, int64_t longest,
                     int64_t *length) noexcept nogil:
    """Return the offset behind the message whose fragments begin here; 0 if it is not complete."""
    cdef int32_t frame_length, word
    cdef int32_t expected = BEGIN_BIT
    cdef int64_t following
    length[0] = 0
    while offset < end:
        frame_length = load_acquire_32(<int32_t *>(term + offset))
        word = (<int32_t *>(term + offset))[1]
        following = align(offset + frame_length)
        length[0] += <int64_t>frame_length - HEADER
        if (
            frame_length < HEADER
            or following > end
            or word & BEGIN_BIT != expected
            or word >> 16 == 0
            or length[0] > longest
        ):
            return 0
        if word & END_BIT:
            return following
        offset = following
        expected = 0
    return 0


cdef void gather(const char *term, int64_t offset, int64_t end, char *to, int64_t length) noexcept nogil:
    """Copy the payloads of the frames that `measure` has counted."""
    cdef int64_t piece
    while length > 0 and offset < end:
        # Other processes may write the log: the length may have changed since.
        piece = <int64_t>(<int32_t *>(term + offset))[0] - HEADER
        if piece < 0:
            break
        piece = min(piece, length, end - offset - HEADER)
        memcpy(to, term + offset + HEADER, piece)
        to += piece
        length -= piece
        offset = align(offset + HEADER + piece)
    memset(to, 0, length)


def read_whole(object term, words, longs, int64_t offset, int64_t end, int64_t begin_position,
               int64_t limit, list out not None, image=None, int64_t longest=0):
    """Read complete messages; twin of `logbuffer.message.read_whole`."""
    cdef Py_buffer view
    cdef char *frame
    cdef int32_t frame_length, word
    cdef int64_t following, length
    cdef Message message
    cdef bytes data
    take(term, &view)
    try:
        end = min(end, view.len & ~31)
        if not is_slot(&view, offset):
            return offset
        while limit > 0 and offset < end:
            frame = <char *>view.buf + offset
            frame_length = load_acquire_32(<int32_t *>frame)
            if frame_length <= 0:
                break
            following = align(offset + frame_length)
            if following > end:
                break
            word = (<int32_t *>frame)[1]
            if word >> 16:
                if word & FLAGS_BITS == FLAGS_BITS:
                    # A length below that of a header is damaged: treat the payload as empty.
                    data = PyBytes_FromStringAndSize(frame + HEADER, max(0, frame_length - HEADER))
                else:
                    following = measure(<char *>view.buf, offset, end, longest, &length)
                    if not following:
                        break
                    data = PyBytes_FromStringAndSize(NULL, length)
                    # All empty bytes are one shared object, which must not be written to.
                    if length:
                        gather(<char *>view.buf, offset, following, PyBytes_AS_STRING(data), length)
                if image is None:
                    out.append((data, begin_position + following, (<int64_t *>frame)[3]))
                else:
                    message = Message.__new__(Message)
                    message.data = data
                    message.position = begin_position + following
                    message.reserved_value = (<int64_t *>frame)[3]
                    message.image = image
                    out.append(message)
                limit -= 1
            offset = following
        return offset
    finally:
        PyBuffer_Release(&view)


cdef int64_t scan(char *term, int64_t length, int64_t offset, int64_t limit,
                  int64_t *padding) noexcept nogil:
    cdef int64_t available = 0
    cdef int64_t following
    cdef int32_t frame_length
    padding[0] = 0
    limit = min(limit, length - offset)
    while available + HEADER <= limit:
        frame_length = load_acquire_32(<int32_t *>(term + offset + available))
        if frame_length <= 0:
            break
        if (<int32_t *>(term + offset + available))[1] >> 16 == 0:
            padding[0] = align(frame_length) - HEADER
            available += HEADER
            padding[0] = max(0, min(padding[0], length - offset - available))
            if padding[0]:
                break
            continue
        following = available + align(frame_length)
        if following > limit:
            break
        available = following
    return available


def scan_for_send(object term, words, int64_t offset, *, int64_t limit):
    """Return how many bytes one datagram may hold; twin of `logbuffer.scanner.scan_for_send`."""
    cdef Py_buffer view
    cdef int64_t available, padding
    take(term, &view)
    try:
        if not is_slot(&view, offset):
            return 0, 0
        available = scan(<char *>view.buf, view.len, offset, limit, &padding)
    finally:
        PyBuffer_Release(&view)
    return available, padding


DEF BATCH_SLOTS = 2048
"""Places where a frame of a batch can start: 64 KiB in units of 32 bytes."""
DEF BLOCK_BITS = 12
DEF LOOK_COUNT = 3
DEF MORE = 21
DEF MORE_OF = 20
DEF CALL_COST = 5
"""Cost of a system call, in datagrams of average length."""


cdef int64_t mark_ends(char *start, uint8_t *is_end, int64_t slot, int64_t slots) noexcept nogil:
    """Mark the ends of whole data frames, from the start of a frame on; return the last end."""
    cdef int64_t each
    for each in range(slot + 1, slots + 1):
        is_end[each] = 0
    while slot < slots:
        each = load_acquire_32(<int32_t *>(start + (slot << 5)))
        if (<int32_t *>(start + (slot << 5)))[1] >> 16 == 0:
            break
        if each <= 0 or slot + (align(each) >> 5) > slots:
            break
        slot += align(each) >> 5
        is_end[slot] = 1
    return slot


cdef int64_t find_full(uint8_t *is_end, int64_t slots, int64_t most, int16_t *full_ends) noexcept nogil:
    """Write the ends of the datagrams into which the next frame would not fit; return how many."""
    cdef int64_t begin = 0
    cdef int64_t end = 0
    cdef int64_t count = 0
    cdef int64_t each
    for each in range(1, slots + 1):
        if not is_end[each]:
            continue
        if each - begin > most:
            if end == begin:
                break
            full_ends[count] = <int16_t>end
            count += 1
            begin = end
        end = each
    return count


cdef int64_t longer_batch(char *start, int64_t reach, int64_t segment, int64_t total, int64_t count,
                        int64_t mtu_length, int64_t max_count, int64_t *found_count) noexcept nogil:
    """Return a datagram length that gives mixed frames a longer batch; see `logbuffer.scanner`."""
    cdef uint8_t is_end[BATCH_SLOTS + 1]
    cdef int16_t full_ends[BATCH_SLOTS + 1]
    cdef int64_t slots = min(reach >> 5, BATCH_SLOTS)
    cdef int64_t near = min(slots, LOOK_COUNT * mtu_length >> 5)
    cdef int64_t shortest = mtu_length >> 6
    cdef int64_t full_count = -1
    cdef int64_t best = 0
    cdef int64_t end, length, found, full, each
    found_count[0] = 0
    end = mark_ends(start, is_end, 0, near)
    for length in range(max(1, shortest), (segment >> 5) + 1):
        if LOOK_COUNT * length > near:
            break
        if not (is_end[length] and is_end[2 * length] and is_end[LOOK_COUNT * length]):
            continue
        if full_count < 0:
            mark_ends(start, is_end, end, slots)
            full_count = find_full(is_end, slots, mtu_length >> 5, full_ends)
        found = full = each = 0
        while each < max_count and (each + 1) * length <= slots and is_end[(each + 1) * length]:
            each += 1
            while full < full_count and full_ends[full] <= each * length:
                full += 1
            if MORE_OF * each <= MORE * full:
                found = each
        # Bytes for each unit of cost: total / (CALL_COST + count), cross-multiplied.
        if (found * length << 5) * (CALL_COST + count) > total * (CALL_COST + found):
            best = length
            found_count[0] = found
            total = found * length << 5
            count = found
    return best << 5


cdef int64_t scan_batch(char *base, int64_t length, int64_t offset, int64_t limit,
                      int64_t batch_length, int64_t mtu_length, int64_t max_count, int64_t *cut,
                      int64_t *padding) noexcept nogil:
    """Return the bytes of one batch; twin of `logbuffer.scanner.scan_batch`."""
    cdef int64_t total, following, count, behind, better
    cdef int64_t segment = scan(base, length, offset, min(limit, batch_length, mtu_length), padding)
    cut[0] = segment
    if segment == 0 or padding[0]:
        return segment
    limit = min(limit, length - offset)
    total = segment
    count = 1
    while count < max_count:
        following = scan(base, length, offset + total, min(limit - total, mtu_length), &behind)
        if following <= 0 or following > segment or following > batch_length - total:
            break
        total += following
        padding[0] = behind
        count += 1
        if following != segment or behind:
            break
    if count <= 2 < max_count and limit >> 2 >= mtu_length and not padding[0]:
        better = longer_batch(base + offset, min(limit, batch_length, max_count * mtu_length), segment,
                            total, count, mtu_length, max_count, &following)
        if better:
            cut[0] = better
            return better * following
    return total


def scan_batches(object term, words, int64_t offset, segments, *, int64_t limit, int64_t mtu_length,
              int64_t batch_length, int64_t max_count, int64_t cost):
    """Divide what may be sent into segment batches; twin of `logbuffer.scanner.scan_batches`."""
    cdef Py_buffer view
    cdef Py_buffer ends
    cdef int64_t length, segment
    cdef int64_t total = 0
    cdef int64_t padding = 0
    cdef int64_t used = 0
    cdef int64_t count = 0
    take(term, &view)
    try:
        PyObject_GetBuffer(segments, &ends, PyBUF_SIMPLE | PyBUF_WRITABLE)
        try:
            while (used < cost and count < ends.len // 8 and not padding
                    and is_slot(&view, offset + total)):
                length = scan_batch(<char *>view.buf, view.len, offset + total,
                                  limit - total, batch_length, mtu_length, max_count, &segment,
                                  &padding)
                if length <= 0:
                    break
                total += length
                put_32(<char *>ends.buf + 8 * count, <int32_t>total)
                put_32(<char *>ends.buf + 8 * count + 4, <int32_t>segment)
                used += CALL_COST + length // segment
                count += 1
            return total, count, padding, used
        finally:
            PyBuffer_Release(&ends)
    finally:
        PyBuffer_Release(&view)


def mark_starts(positions, int64_t following, int64_t position, segments, int64_t length):
    """Record where the first datagram of each block begins; twin of `scanner.mark_starts`."""
    cdef Py_buffer view
    cdef Py_buffer ends
    cdef int64_t *known
    cdef int64_t count, each, end, segment, start
    cdef int64_t begin = position
    PyObject_GetBuffer(positions, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
    try:
        take(segments, &ends)
        try:
            known = <int64_t *>view.buf
            count = view.len // 8
            if count == 0 or <size_t>view.buf & 7 or position < 0 or following < 0:
                return following
            for each in range(ends.len // 8):
                end = position + min(<int64_t>peek_32(<char *>ends.buf + 8 * each), length)
                segment = peek_32(<char *>ends.buf + 8 * each + 4)
                while following < end and segment > 0:
                    start = begin
                    if following > begin:
                        start += (following - begin + segment - 1) // segment * segment
                    if start >= end:
                        break
                    known[(start >> BLOCK_BITS) % count] = start
                    following = ((start >> BLOCK_BITS) + 1) << BLOCK_BITS
                begin = end
            return following
        finally:
            PyBuffer_Release(&ends)
    finally:
        PyBuffer_Release(&view)


cdef struct Ids:
    int32_t session_id
    int32_t stream_id
    int32_t term_id


cdef bint is_next(const char *packet, int64_t length, int64_t offset, Ids *ids) noexcept nogil:
    """Return whether a datagram consists of whole data frames that belong at an offset."""
    cdef int64_t walked = 0
    cdef int32_t frame_length
    if (
        length < HEADER
        or length & 31
        or packet[4] != 0
        or peek_32(packet + 12) != ids.session_id
        or peek_32(packet + 16) != ids.stream_id
        or peek_32(packet + 20) != ids.term_id
    ):
        return False
    while walked < length:
        frame_length = peek_32(packet + walked)
        if (
            frame_length < HEADER
            or peek_32(packet + walked + 4) >> 16 != 1
            or peek_32(packet + walked + 8) != offset + walked
        ):
            return False
        walked += align(frame_length)
    return walked == length


cdef int64_t place(const char *data, int64_t data_length, int64_t start, const char *segments,
                   int64_t cut_count, char *term, int64_t offset, int64_t limit) noexcept nogil:
    """Place consecutive datagrams from `start` on; a batch ends where the data ends, or before."""
    cdef Ids ids
    cdef int64_t placed = 0
    cdef int64_t each, end, segment, length
    data_length -= start
    if data_length < HEADER:
        return 0
    data += start
    ids.session_id = peek_32(data + 12)
    ids.stream_id = peek_32(data + 16)
    ids.term_id = peek_32(data + 20)
    for each in range(cut_count):
        end = min(peek_32(segments + 8 * each) - start, data_length)
        segment = peek_32(segments + 8 * each + 4)
        if segment < HEADER or end <= placed:
            break
        while placed < end:
            length = min(segment, end - placed)
            if (
                placed + length > limit
                or not is_next(data + placed, length, offset + placed, &ids)
                or (<int32_t *>(term + offset + placed))[0] != 0
            ):
                break
            placed += length
        if placed < end:
            break
    if placed:
        memcpy(term + offset + 4, data + 4, placed - 4)
        store_release_32(<int32_t *>(term + offset), peek_32(data))
    return placed

def place_batches(object data, segments, int64_t index, int64_t start, object term, words, int64_t offset,
               *, int64_t limit):
    """Place consecutive segment batches in a hole; twin of `logbuffer.placing.place_batches`."""
    cdef Py_buffer source
    cdef Py_buffer ends
    cdef Py_buffer view
    cdef int64_t count
    take(data, &source)
    try:
        take(segments, &ends)
        try:
            PyObject_GetBuffer(term, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
            try:
                count = ends.len // 8 - index // 2
                if not is_slot(&view, offset) or index < 0 or count <= 0 or start < 0:
                    return 0
                return place(<const char *>source.buf, source.len, start,
                             <const char *>ends.buf + 4 * (index & ~1), count,
                             <char *>view.buf, offset, min(limit, view.len - offset))
            finally:
                PyBuffer_Release(&view)
        finally:
            PyBuffer_Release(&ends)
    finally:
        PyBuffer_Release(&source)


def zero(object term, int64_t start, int64_t end):
    """Fill a range of a term with zeros; twin of `logbuffer.log_buffers.zero`."""
    cdef Py_buffer view
    PyObject_GetBuffer(term, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
    start = max(start, 0)
    end = min(end, view.len)
    if start < end:
        memset(<char *>view.buf + start, 0, end - start)
    PyBuffer_Release(&view)


def skip_whole(object words, int64_t offset, int64_t limit):
    """Return the offset up to which frames are complete; twin of `logbuffer.placing.skip_whole`."""
    cdef Py_buffer view
    cdef int32_t frame_length
    cdef int64_t following
    take(words, &view)
    try:
        limit = min(limit, view.len & ~31)
        if not is_slot(&view, offset):
            return offset
        while offset < limit:
            frame_length = load_acquire_32(<int32_t *>(<char *>view.buf + offset))
            if frame_length <= 0:
                break
            following = align(offset + frame_length)
            if following > limit:
                break
            offset = following
        return offset
    finally:
        PyBuffer_Release(&view)


def skip_own(object words, int64_t offset, int64_t limit, *, int32_t session_id, int32_t stream_id,
             int32_t term_id, int64_t mtu_length):
    """Find the frames of one stream; twin of `logbuffer.scanner.skip_own`."""
    cdef Py_buffer view
    cdef int64_t aligned
    cdef int32_t frame_length, kind
    cdef int32_t *frame
    take(words, &view)
    try:
        limit = min(limit, view.len & ~31)
        if not is_slot(&view, offset):
            return offset, False
        while offset < limit:
            frame = <int32_t *>(<char *>view.buf + offset)
            frame_length = load_acquire_32(frame)
            kind = frame[1]
            aligned = align(frame_length)
            if (frame_length < HEADER or aligned > (view.len & ~31) - offset or kind & 0xFF
                    or kind >> 16 != 0 and (kind >> 16 != 1 or frame_length > mtu_length)
                    or frame[2] != offset or frame[3] != session_id or frame[4] != stream_id
                    or frame[5] != term_id):
                return offset, frame_length > 0
            offset += aligned
        return offset, False
    finally:
        PyBuffer_Release(&view)
