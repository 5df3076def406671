# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Datagrams received and sent in C: many system calls for one call from Python.

The reader receives into memory that its caller provides; lengths that the system reports are
checked against that memory before they are used.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t
from libc.string cimport memcmp, memcpy, memset

from os import strerror

cdef extern from "<sys/types.h>" nogil:
    ctypedef long ssize_t

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void *iov_base
        size_t iov_len

cdef extern from "<time.h>" nogil:
    struct timespec:
        int64_t tv_sec
        long tv_nsec

cdef extern from "<sys/socket.h>" nogil:
    """
    /* Values of the Linux headers: not every C library defines them, and no other system uses
       these numbers for anything else. */
    #define AERON_SOL_UDP 17
    #define AERON_UDP_SEGMENT 103
    #define AERON_UDP_GRO 104
    #define AERON_SO_RXQ_OVFL 40
    #define AERON_SO_TIMESTAMPNS 35
    /* Room for a timestamp, a segment length and a drop count, with headers of any machine. */
    typedef union { struct cmsghdr first; char room[128]; } aeron_notes;
    typedef union { struct sockaddr_storage storage; } aeron_address;
    """
    struct cmsghdr:
        size_t cmsg_len
        int cmsg_level
        int cmsg_type
    struct msghdr:
        void *msg_name
        unsigned int msg_namelen
        iovec *msg_iov
        size_t msg_iovlen
        void *msg_control
        size_t msg_controllen
        int msg_flags
    ctypedef struct aeron_notes:
        char room[128]
    ctypedef struct aeron_address:
        pass
    ssize_t sendmsg(int fd, const msghdr *message, int flags)
    ssize_t recvmsg(int fd, msghdr *message, int flags)
    cmsghdr *CMSG_FIRSTHDR(msghdr *message)
    cmsghdr *CMSG_NXTHDR(msghdr *message, cmsghdr *note)
    unsigned char *CMSG_DATA(cmsghdr *note)
    size_t CMSG_LEN(size_t length)
    size_t CMSG_SPACE(size_t length)
    int SOL_SOCKET
    int MSG_CTRUNC
    int MSG_DONTWAIT
    int SOL_UDP "AERON_SOL_UDP"
    int UDP_SEGMENT "AERON_UDP_SEGMENT"
    int UDP_GRO "AERON_UDP_GRO"
    int SO_RXQ_OVFL "AERON_SO_RXQ_OVFL"
    int SO_TIMESTAMPNS "AERON_SO_TIMESTAMPNS"

DEF BATCHES_MAX = 64
"""Most batches that one call receives."""
DEF ADDRESS_LENGTH = 28
"""Bytes of an address that are compared: the length of an IPv6 address, the longest for UDP."""
DEF ADDRESSES_MAX = 256
"""Most addresses in the cache; with more sources, each address may have to be decoded again."""
DEF DATAGRAM_LENGTH_MAX = 65_536
DEF BATCH_LENGTH_MAX = 65_507
"""Longest payload of one datagram over IPv4, in bytes; IPv6 would allow 20 more."""
DEF SEGMENT_COUNT_MAX = 64
"""Most datagrams in one batch that every Linux accepts; Linux 6.9 and later accept 128."""
DEF DATAGRAMS_PER_COUNT = 4
DEF LENGTH_PER_COUNT = 8_192


cdef struct Source:
    char address[ADDRESS_LENGTH]
    int32_t length
    int32_t first_batch
    int64_t start


@cython.no_gc
@cython.final
cdef class BatchReader:
    """Receives segment batches; does what `driver.media.socket_transport.BatchReader` does.

    Args:
        memory: Receives the datagrams; has space for at least one of the greatest length.
        segments: Receives the end of each batch and the length of its datagrams: 32-bit words, two
            for each of 64 batches.
        decode: Returns the host and port of an address in the system's format.

    Raises:
        ValueError: `memory` or `segments` is too short.
    """

    cdef readonly list groups
    cdef readonly bint is_drained
    cdef readonly object error
    cdef readonly int64_t dropped
    cdef readonly int64_t epoch_ns
    cdef object data_view
    cdef object segments_view
    cdef object decode
    cdef dict addresses
    cdef Py_buffer memory
    cdef Py_buffer segments
    cdef bint is_holding
    cdef Source sources[BATCHES_MAX]
    cdef int source_count
    cdef int batch_count
    cdef int64_t filled
    cdef int failure

    def __init__(self, memory not None, segments not None, decode not None):
        if self.is_holding:
            raise ValueError("a reader is made once")
        PyObject_GetBuffer(memory, &self.memory, PyBUF_SIMPLE | PyBUF_WRITABLE)
        try:
            PyObject_GetBuffer(segments, &self.segments, PyBUF_SIMPLE | PyBUF_WRITABLE)
        except BaseException:
            PyBuffer_Release(&self.memory)
            raise
        self.is_holding = True
        if self.memory.len < DATAGRAM_LENGTH_MAX or self.segments.len < 8 * BATCHES_MAX:
            raise ValueError(f"memory of {self.memory.len} bytes and segments of {self.segments.len} are "
                             f"too short: at least {DATAGRAM_LENGTH_MAX} and {8 * BATCHES_MAX}")
        self.data_view = memory
        self.segments_view = segments
        self.decode = decode
        self.addresses = {}
        self.groups = []
        self.dropped = self.epoch_ns = -1

    def __dealloc__(self):
        if self.is_holding:
            PyBuffer_Release(&self.memory)
            PyBuffer_Release(&self.segments)

    def read(self, sock, int64_t count_left):
        """Receive what is there, as far as count and memory allow; return how much count that used.

        See `driver.media.socket_transport.BatchReader.read` for what a batch counts.
        """
        cdef int64_t count
        cdef int fd
        if self.decode is None:
            raise ValueError("a reader without memory")
        fd = sock.fileno()
        with nogil:
            count = self.receive(fd, count_left)
        self.is_drained = self.failure == EAGAIN
        self.error = None
        if self.failure and not self.is_drained:
            self.error = OSError(self.failure, strerror(self.failure))
        self.groups = self.group()
        return count

    cdef list group(self):
        """Return for each source its data, the segments of its batches, and its address."""
        cdef list groups = []
        cdef Source *source
        cdef int index, end_batch
        cdef int64_t end
        for index in range(self.source_count):
            source = &self.sources[index]
            if index + 1 < self.source_count:
                end, end_batch = source[1].start, source[1].first_batch
            else:
                end, end_batch = self.filled, self.batch_count
            groups.append((self.data_view[source.start:end],
                           self.segments_view[2 * source.first_batch:2 * end_batch],
                           self.address_of(source)))
        return groups

    cdef object address_of(self, Source *source):
        cdef bytes raw = PyBytes_FromStringAndSize(source.address, source.length)
        address = self.addresses.get(raw)
        if address is None:
            if len(self.addresses) >= ADDRESSES_MAX:
                self.addresses.clear()
            address = self.addresses[raw] = self.decode(raw)
        return address

    cdef int64_t receive(self, int fd, int64_t count_left) noexcept nogil:
        cdef aeron_notes notes
        cdef aeron_address address
        cdef iovec piece
        cdef msghdr message
        cdef ssize_t length
        cdef int32_t segment
        cdef int64_t used = 0
        self.batch_count = self.source_count = self.failure = 0
        self.filled = 0
        self.dropped = self.epoch_ns = -1
        # A timestamp belongs to a single datagram: stop after a datagram that has one.
        while (used < count_left and self.batch_count < BATCHES_MAX and self.epoch_ns < 0
                and self.filled + DATAGRAM_LENGTH_MAX <= self.memory.len):
            memset(&message, 0, sizeof(message))
            piece.iov_base = <char *>self.memory.buf + self.filled
            piece.iov_len = DATAGRAM_LENGTH_MAX
            message.msg_name = &address
            message.msg_namelen = sizeof(address)
            message.msg_iov = &piece
            message.msg_iovlen = 1
            message.msg_control = &notes
            message.msg_controllen = sizeof(notes)
            length = recvmsg(fd, &message, MSG_DONTWAIT)
            if length < 0:
                if errno == EINTR:
                    continue
                self.failure = errno
                if self.failure != EAGAIN:
                    used += 1
                break
            segment = self.heed(&message)
            used += self.note(&address, message.msg_namelen, length, segment)
        return used

    cdef int32_t heed(self, msghdr *message) noexcept nogil:
        """Read the control messages of a datagram; return the segment length, 0 for none."""
        cdef cmsghdr *note = CMSG_FIRSTHDR(message)
        cdef int32_t segment = 0
        cdef uint32_t dropped
        cdef timespec time
        while note is not NULL:
            if note.cmsg_level == SOL_UDP and note.cmsg_type == UDP_GRO:
                if note.cmsg_len == CMSG_LEN(sizeof(segment)):
                    memcpy(&segment, CMSG_DATA(note), sizeof(segment))
            elif note.cmsg_level == SOL_SOCKET and note.cmsg_type == SO_RXQ_OVFL:
                if note.cmsg_len == CMSG_LEN(sizeof(dropped)):
                    memcpy(&dropped, CMSG_DATA(note), sizeof(dropped))
                    # Two processors may queue datagrams in another order than they read the count,
                    # so keep the highest.
                    if self.dropped < 0 or <int32_t>(dropped - <uint32_t>self.dropped) > 0:
                        self.dropped = dropped
            elif note.cmsg_level == SOL_SOCKET and note.cmsg_type == SO_TIMESTAMPNS:
                if note.cmsg_len == CMSG_LEN(sizeof(time)):
                    memcpy(&time, CMSG_DATA(note), sizeof(time))
                    self.epoch_ns = time.tv_sec * 1_000_000_000 + time.tv_nsec
            note = CMSG_NXTHDR(message, note)
        # Without a certain segment length, treat the batch as one datagram; resends repair it.
        return 0 if message.msg_flags & MSG_CTRUNC else segment

    cdef int64_t note(self, aeron_address *address, unsigned int address_length, int64_t length,
                      int32_t segment) noexcept nogil:
        """Add a batch behind the others; return what it counts."""
        cdef Source *source = &self.sources[max(0, self.source_count - 1)]
        cdef int32_t *cut = <int32_t *>self.segments.buf + 2 * self.batch_count
        cdef int64_t long_count = max(1, length // LENGTH_PER_COUNT)
        if address_length > ADDRESS_LENGTH:
            address_length = ADDRESS_LENGTH
        if (self.source_count == 0 or source.length != <int32_t>address_length
                or memcmp(source.address, address, address_length)):
            source = &self.sources[self.source_count]
            self.source_count += 1
            memcpy(source.address, address, address_length)
            source.length = address_length
            source.first_batch = self.batch_count
            source.start = self.filled
        self.batch_count += 1
        self.filled += length
        cut[0] = <int32_t>(self.filled - source.start)
        if 0 < segment < length:
            cut[1] = segment
            return max(long_count, length // (<int64_t>segment * DATAGRAMS_PER_COUNT))
        cut[1] = <int32_t>length
        return long_count


cdef int32_t word_at(const char *words, int64_t index) noexcept nogil:
    cdef int32_t value
    memcpy(&value, words + 4 * index, 4)
    return value


cdef int send_batch(int fd, char *data, int64_t length, int64_t segment) noexcept nogil:
    """Send a batch in one system call; return 0, or the error number."""
    cdef aeron_notes notes
    cdef iovec piece
    cdef msghdr message
    cdef cmsghdr *note
    cdef uint16_t cut = <uint16_t>segment
    memset(&message, 0, sizeof(message))
    piece.iov_base = data
    piece.iov_len = length
    message.msg_iov = &piece
    message.msg_iovlen = 1
    if segment < length:
        memset(&notes, 0, sizeof(notes))
        message.msg_control = &notes
        message.msg_controllen = CMSG_SPACE(sizeof(cut))
        note = CMSG_FIRSTHDR(&message)
        note.cmsg_level = SOL_UDP
        note.cmsg_type = UDP_SEGMENT
        note.cmsg_len = CMSG_LEN(sizeof(cut))
        memcpy(CMSG_DATA(note), &cut, sizeof(cut))
    while sendmsg(fd, &message, MSG_DONTWAIT) < 0:
        if errno != EINTR:
            return errno
    return 0


def send_segmented(sock, data, segments, int64_t index, int64_t start):
    """Send batches to the peer of a connected socket; stop at a batch that must be sent otherwise.

    That is a batch that is too long or malformed for one system call, or that the system refused.

    Args:
        sock: A connected, non-blocking socket of a system that segments batches into datagrams.
        data: The datagrams, one after the other.
        segments: For each batch, its end in `data` and the length of its datagrams, in bytes; only
            the last datagram of a batch may be shorter.
        index: Index in `segments` of the first batch; even.
        start: Offset in `data` of that batch.

    Returns:
        Offset in `data` of the first batch that was not sent, its index in `segments`, and the
        error number that the system gave for it; 0 if there was no attempt.
    """
    cdef Py_buffer view
    cdef Py_buffer ends
    cdef int64_t end, segment
    cdef int failure = 0
    cdef int fd = sock.fileno()
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(segments, &ends, PyBUF_SIMPLE)
        try:
            with nogil:
                while 0 <= index < ends.len // 4 - 1 and start >= 0:
                    end = word_at(<const char *>ends.buf, index)
                    segment = word_at(<const char *>ends.buf, index + 1)
                    if (end <= start or end > view.len or end - start > BATCH_LENGTH_MAX
                            or segment < 1 or segment > 0xFFFF
                            or end - start > segment * SEGMENT_COUNT_MAX
                            or (segment < end - start and segment > BATCH_LENGTH_MAX // 2)):
                        break
                    failure = send_batch(fd, <char *>view.buf + start, end - start, segment)
                    if failure:
                        break
                    start = end
                    index += 2
            return start, index, failure
        finally:
            PyBuffer_Release(&ends)
    finally:
        PyBuffer_Release(&view)
