# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Messages that are read from a log, and batches of them; twins of `logbuffer.message`.

A message of a batch is created when it is asked for: then it uses memory that is still in the
processor's cache, because the message before it has just been freed. A thousand messages created at
once do not fit there.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport (PyByteArray_AS_STRING, PyByteArray_FromStringAndSize,
                                PyByteArray_GET_SIZE, PyByteArray_Resize)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.list cimport PyList_GET_SIZE, PyList_New
from cpython.object cimport PyObject, PyObject_GenericSetAttr
from cpython.ref cimport Py_INCREF
from libc.stdint cimport INT64_MAX, int32_t, int64_t
from libc.string cimport memcpy, memset

from aeron_async._speedups.frames cimport (BEGIN_BIT, END_BIT, FLAGS_BITS, HEADER, align, is_slot,
                                           load_acquire_32, prefetch, step_of)

cdef extern from "Python.h":
    void set_slot "PyList_SET_ITEM"(object found, Py_ssize_t index, PyObject *item) noexcept
    int cut_slots "PyList_SetSlice"(object found, Py_ssize_t low, Py_ssize_t high,
                                    PyObject *new) except -1

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
@cython.auto_pickle(False)
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

    def __reduce__(self):
        return Message, (self.data, self.position, self.reserved_value, self.image)

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
    PyObject_GetBuffer(term, &view, PyBUF_SIMPLE)
    try:
        end = min(end, view.len & ~31)
        if not is_slot(&view, offset) or begin_position > INT64_MAX - view.len:
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


# The garbage collector would clear the owner of the buffer without releasing the buffer.
@cython.no_gc
@cython.final
cdef class Batch:
    """Messages of one source, in order; twin of `logbuffer.message.Batch`.

    The messages stay in the log, which is held as a buffer, until they are handed out or until
    `keep`; only a batch made from a list holds messages.
    """

    def __init__(self, list messages not None, image):
        if self.messages is not None or self.is_open:
            raise ValueError("a batch is filled once")
        self.messages = messages
        self.image = image
        self.left = len(messages)

    def __dealloc__(self):
        self.let_go()

    cdef void let_go(self) noexcept:
        if self.is_open:
            self.is_open = False
            PyBuffer_Release(&self.view)

    cdef Message hand_out(self):
        cdef int64_t length, offset
        cdef Message message
        if self.left <= 0:
            return None
        if self.messages is not None:
            if self.left > len(self.messages):
                self.left = 0
                return None
            message = <Message?>self.messages[len(self.messages) - self.left]
            self.left -= 1
            return message
        # Before all else, because this may run the garbage collector, and so any code: that may
        # close the image, which calls `keep`.
        message = Message.__new__(Message)
        if self.messages is not None:
            return self.hand_out()
        length = self.find(&self.offset)
        if length < 0:
            self.left = 0
            self.let_go()
            return None
        offset = self.offset
        self.offset = align(offset + HEADER + length)
        self.fill(message, offset, length)
        self.left -= 1
        if self.left == 0:
            self.let_go()
        return message

    cdef int fill(self, Message message, int64_t offset, int64_t length) except -1:
        """Make a new message of the frame at an offset."""
        cdef char *frame = <char *>self.view.buf + offset
        message.data = PyBytes_FromStringAndSize(frame + HEADER, length)
        message.position = self.begin_position + align(offset + HEADER + length)
        message.reserved_value = (<int64_t *>frame)[3]
        message.image = self.image
        return 0

    def at(self, Py_ssize_t index):
        """Return the message at an index of those that are left; None if there is none. It stays.

        The first one behind index 0 that is asked for costs a walk over the headers, the others
        nothing but themselves.
        """
        cdef int64_t length
        # Both before all else, as in `hand_out`: what is there is looked at afterwards.
        cdef Message message = Message.__new__(Message)
        cdef int64_t offset = self.start_of(index)
        if index < 0 or index >= self.left:
            return None
        if self.messages is not None:
            index += len(self.messages) - self.left
            return <Message?>self.messages[index] if 0 <= index < len(self.messages) else None
        length = self.find(&offset)
        if length < 0:
            return None
        self.fill(message, offset, length)
        return message

    cdef int64_t start_of(self, Py_ssize_t index) except? -1:
        """Return where to look for the message at an index in the log; the end if there is none."""
        cdef int64_t offset, length
        cdef int64_t step = 0
        cdef int32_t usual = 0
        cdef Py_ssize_t count
        cdef int64_t *starts
        if index <= 0 or not self.is_open:
            return self.offset
        if (self.starts is None or self.starts_offset != self.offset
                or PyByteArray_GET_SIZE(self.starts) != 8 * self.left):
            self.starts = PyByteArray_FromStringAndSize(NULL, 8 * self.left)
            starts = <int64_t *>PyByteArray_AS_STRING(self.starts)
            offset = self.starts_offset = self.offset
            for count in range(PyByteArray_GET_SIZE(self.starts) // 8):
                length = self.find(&offset)
                if length < 0:
                    # Other processes have changed frames: there is nothing, nor beyond.
                    offset = self.end
                starts[count] = offset
                if length >= 0:
                    offset += step_of(<int32_t>(HEADER + length), &usual, &step)
        if index >= PyByteArray_GET_SIZE(self.starts) // 8:
            return self.end
        return (<int64_t *>PyByteArray_AS_STRING(self.starts))[index]

    def following(self):
        """Return the next message; None if there is none left."""
        return self.hand_out()

    def rest(self):
        """Return all messages that are left, and empty the batch."""
        cdef list found = []
        cdef Message message = self.hand_out()
        while message is not None:
            found.append(message)
            message = self.hand_out()
        return found

    def again(self):
        """Return another batch of what is left; this one hands out nothing by it."""
        cdef Batch other = Batch.__new__(Batch)
        if self.is_open:
            PyObject_GetBuffer(<object>self.view.obj, &other.view, PyBUF_SIMPLE)
            other.is_open = True
        other.messages = self.messages
        other.image = self.image
        other.left = self.left
        other.offset = self.offset
        other.end = self.end
        other.begin_position = self.begin_position
        return other

    cdef int64_t find(self, int64_t *offset) noexcept:
        """Move to the next message in the log; return its length, or -1 if there is none.

        `open_batch` has checked these frames. They are checked again: they may have changed since
        if the memory is shared with other processes.
        """
        cdef char *frame
        cdef int32_t frame_length, word
        cdef int64_t following
        while self.is_open and offset[0] < self.end:
            frame = <char *>self.view.buf + offset[0]
            frame_length = load_acquire_32(<int32_t *>frame)
            following = align(offset[0] + frame_length)
            if frame_length <= 0 or following > self.end:
                break
            word = (<int32_t *>frame)[1]
            if word >> 16:
                if word & FLAGS_BITS != FLAGS_BITS:
                    break
                return max(0, frame_length - HEADER)
            offset[0] = following
        return -1

    def payloads(self):
        """Return copies of the payloads that are left, as a list of bytes."""
        cdef int64_t offset
        cdef int64_t step = 0
        cdef int64_t length
        cdef int32_t usual = 0
        cdef Py_ssize_t count = 0
        cdef list found = PyList_New(self.left if self.is_open else 0)
        cdef object data
        # Last, because making a list may run the garbage collector, and so any code: that may close
        # the image, or hand out messages.
        if not self.is_open:
            return [(<Message?>message).data for message in self.listed()]
        # The list has empty slots until it is full, which nobody sees: no Python code runs from here
        # on, and making bytes does not run the garbage collector.
        offset = self.offset
        while count < PyList_GET_SIZE(found):
            length = self.find(&offset)
            if length < 0:
                break
            data = PyBytes_FromStringAndSize(<char *>self.view.buf + offset + HEADER, length)
            Py_INCREF(data)
            set_slot(found, count, <PyObject *>data)
            count += 1
            offset += step_of(<int32_t>(HEADER + length), &usual, &step)
        cut_slots(found, count, PyList_GET_SIZE(found), NULL)
        return found

    def places(self):
        """Return offset and length of each payload in the term, in bytes.

        None if the messages are not in the log.
        """
        cdef int64_t offset = self.offset
        cdef int64_t length
        cdef list found = []
        if not self.is_open:
            return None
        while len(found) < self.left:
            length = self.find(&offset)
            if length < 0:
                break
            # This may run the garbage collector, and so any code: that may close the image.
            found.append((offset + HEADER, length))
            offset = align(offset + HEADER + length)
        return found if self.is_open else None

    def columns(self, bint with_payloads=True):
        """Return what is left as columns of 64-bit words, with all payloads behind each other.

        Returns:
            The number of messages; where each payload begins, and the last one ends; positions;
            reserved values; payloads, unless they are left out. None if the messages are not in the
            log.
        """
        cdef int64_t total = 0
        cdef Py_ssize_t left = max(0, self.left)
        cdef Py_ssize_t count
        cdef int64_t room = self.room()
        numbers = bytearray(8 * (3 * left + 1))
        data = PyByteArray_FromStringAndSize(NULL, room if with_payloads else 0)
        # Last, because allocating may run the garbage collector, and so any code: that may close
        # the image.
        count = self.lay_out(left, room, <int64_t *>PyByteArray_AS_STRING(numbers),
                             PyByteArray_AS_STRING(data) if with_payloads else NULL, &total)
        if count < 0:
            return None
        if with_payloads:
            PyByteArray_Resize(data, total)
        view = memoryview(numbers)
        ends = 8 * (left + 1)
        return (count, view[:ends], view[ends:ends + 8 * left], view[ends + 8 * left:], data)

    cdef int64_t room(self) noexcept:
        """Return the most bytes that the payloads that are left may have."""
        return max(0, self.end - self.offset - HEADER * max(0, self.left))

    cdef Py_ssize_t lay_out(self, Py_ssize_t left, int64_t room, int64_t *starts, char *data,
                            int64_t *total) noexcept:
        """Write bounds, positions and reserved values of messages behind each other, and payloads.

        Returns:
            The number of messages; -1 if that many are no longer left in the log. Payloads are left
            out if there is no place for them.
        """
        cdef int64_t offset = self.offset
        cdef int64_t *positions = starts + left + 1
        cdef int64_t *reserved = positions + left
        cdef int64_t step = 0
        cdef int64_t length
        cdef int32_t usual = 0
        cdef Py_ssize_t count = 0
        total[0] = 0
        if not self.is_open or left != self.left:
            return -1
        starts[0] = 0
        while count < left:
            length = self.find(&offset)
            # Other processes may have made frames shorter, so that there are more than before.
            if length < 0 or length > room - total[0]:
                break
            if data is not NULL:
                memcpy(data + total[0], <char *>self.view.buf + offset + HEADER, length)
            reserved[count] = (<int64_t *>(<char *>self.view.buf + offset))[3]
            total[0] += length
            offset += step_of(<int32_t>(HEADER + length), &usual, &step)
            positions[count] = self.begin_position + offset
            count += 1
            starts[count] = total[0]
        return count

    def extend(self, Batch other not None):
        """Add what follows in the same term, or was made before; return whether that was possible.

        The other batch must not be used afterwards.
        """
        if self.is_open and other.is_open:
            if (self.view.buf != other.view.buf or self.end != other.offset
                    or self.begin_position != other.begin_position):
                return False
            self.end = other.end
        elif self.messages is not None and other.messages is not None:
            self.messages = self.listed() + other.listed()
        else:
            return False
        self.left += other.left
        return True

    cdef list listed(self):
        """Return the messages that are left of a batch that holds them."""
        if self.messages is None or self.left <= 0:
            return []
        return self.messages[max(0, len(self.messages) - self.left):]

    def keep(self):
        """Copy what is still in the log, which is about to be freed."""
        if self.is_open:
            self.messages = self.rest()
            self.left = len(self.messages)


def open_batch(term, words, longs, int64_t offset, int64_t end, int64_t begin_position,
               int64_t limit, image not None):
    """Return the unfragmented messages that are there, and the offset behind them.

    Twin of `logbuffer.message.open_batch`.
    """
    cdef Batch batch = lay_open(term, offset, end, begin_position, limit, image)
    return batch, batch.end


cdef Batch lay_open(term, int64_t offset, int64_t end, int64_t begin_position, int64_t limit, image):
    cdef Batch batch = Batch.__new__(Batch)
    cdef char *frame
    cdef int32_t frame_length, word
    cdef int32_t usual = 0
    cdef int64_t step = 0
    cdef int64_t following
    PyObject_GetBuffer(term, &batch.view, PyBUF_SIMPLE)
    batch.is_open = True
    end = min(end, batch.view.len & ~31)
    if not is_slot(&batch.view, offset) or begin_position > INT64_MAX - batch.view.len:
        limit = 0
    batch.image = image
    batch.offset = offset
    batch.begin_position = begin_position
    while batch.left < limit and offset < end:
        frame = <char *>batch.view.buf + offset
        # Another processor may have written it, and only its length says where the next one begins.
        prefetch(frame)
        frame_length = load_acquire_32(<int32_t *>frame)
        if frame_length <= 0:
            break
        following = offset + step_of(frame_length, &usual, &step)
        if following > end:
            break
        word = (<int32_t *>frame)[1]
        if word >> 16:
            if word & FLAGS_BITS != FLAGS_BITS:
                break
            batch.left += 1
        offset = following
    batch.end = offset
    if batch.left == 0:
        batch.let_go()
    return batch
