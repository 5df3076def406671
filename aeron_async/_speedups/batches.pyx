# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Messages of one source, created when they are handed out; twin of `Batch` in `logbuffer.message`.

A message that is created when it is asked for uses memory that is still in the processor's cache,
because the message before it has just been freed. A thousand messages created at once do not fit
there.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t

from aeron_async._speedups.frames cimport Message

cdef extern from *:
    """
    #define AERON_BATCH_LOAD(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
    """
    int32_t load_acquire_32 "AERON_BATCH_LOAD"(int32_t *place) noexcept nogil

DEF HEADER = 32
DEF FLAGS_BITS = 0xC000


cdef inline int64_t align(int64_t length) noexcept nogil:
    return (length + 31) & ~(<int64_t>31)


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
        cdef char *frame
        cdef int32_t frame_length, word
        cdef int64_t following
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
        # `open_batch` has checked these frames. Check them again: they may have changed since if
        # the memory is shared with other processes.
        while self.is_open and self.offset < self.end:
            frame = <char *>self.view.buf + self.offset
            frame_length = load_acquire_32(<int32_t *>frame)
            if frame_length <= 0:
                break
            following = align(self.offset + frame_length)
            if following > self.end:
                break
            self.offset = following
            word = (<int32_t *>frame)[1]
            if not word >> 16:
                continue
            if word & FLAGS_BITS != FLAGS_BITS:
                break
            message.data = PyBytes_FromStringAndSize(frame + HEADER, max(0, frame_length - HEADER))
            message.position = self.begin_position + following
            message.reserved_value = (<int64_t *>frame)[3]
            message.image = self.image
            self.left -= 1
            if self.left == 0:
                self.let_go()
            return message
        self.left = 0
        self.let_go()
        return None

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
    cdef Batch batch = Batch.__new__(Batch)
    cdef char *frame
    cdef int32_t frame_length, word
    cdef int64_t following
    PyObject_GetBuffer(term, &batch.view, PyBUF_SIMPLE)
    batch.is_open = True
    end = min(end, batch.view.len & ~31)
    if not 0 <= offset <= batch.view.len or offset & 31 or <size_t>batch.view.buf & 7:
        limit = 0
    batch.image = image
    batch.offset = offset
    batch.begin_position = begin_position
    while batch.left < limit and offset < end:
        frame = <char *>batch.view.buf + offset
        frame_length = load_acquire_32(<int32_t *>frame)
        if frame_length <= 0:
            break
        following = align(offset + frame_length)
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
    return batch, offset
