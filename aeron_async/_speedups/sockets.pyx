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

from aeron_async._speedups.frames cimport peek_32
from aeron_async._speedups.lanes cimport ReceiveLane

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

cdef extern from "<sys/ioctl.h>" nogil:
    int ioctl(int fd, unsigned long request, void *argument)
    unsigned long TIOCOUTQ

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
    /* Room for a segment length with its header. */
    typedef union { struct cmsghdr first; char room[CMSG_SPACE(sizeof(unsigned short))]; } aeron_cut;
    #ifdef __linux__
    typedef struct mmsghdr aeron_mmsghdr;
    #define aeron_sendmmsg sendmmsg
    #else
    typedef struct { struct msghdr msg_hdr; unsigned int msg_len; } aeron_mmsghdr;
    static int aeron_sendmmsg(int fd, aeron_mmsghdr *messages, unsigned int count, int flags) {
        unsigned int sent = 0;
        while (sent < count && sendmsg(fd, &messages[sent].msg_hdr, flags) >= 0) ++sent;
        return sent || !count ? (int)sent : -1;
    }
    #endif
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
    ctypedef struct aeron_cut:
        char room[1]
    ctypedef struct aeron_mmsghdr:
        msghdr msg_hdr
        unsigned int msg_len
    ssize_t sendmsg(int fd, const msghdr *message, int flags)
    int aeron_sendmmsg(int fd, aeron_mmsghdr *messages, unsigned int count, int flags)
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
DEF MESSAGES_MAX = 64
"""Most slices that one system call sends: so many headers lie on the stack."""
DEF MESSAGE_OVERHEAD = 2_048
"""Bytes that a message takes in a send buffer beyond its data, at most, on a device of our time."""
DEF IPV4_LENGTH = 16
"""Bytes of a `sockaddr_in`; a `sockaddr_in6` has `ADDRESS_LENGTH`."""
DEF TRUSTED_COUNT = 4
"""Lone datagrams that are taken without a look for more behind them, after one had none."""
DEF DATAGRAMS_PER_COUNT = 8
DEF LENGTH_PER_COUNT = 16_384


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
        ValueError: `memory` or `segments` is too short, or `segments` at no multiple of 4.
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
    # What `read_alone` has received, which the next `read` returns first.
    cdef bint is_primed
    cdef int64_t used
    cdef int64_t told_dropped
    # How many more lone datagrams `LoneReading` takes without a look for more.
    cdef int trusted_count

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
        if <size_t>self.segments.buf & 3:
            raise ValueError("segments at an address that is no multiple of 4")
        self.data_view = memory
        self.segments_view = segments
        self.decode = decode
        self.addresses = {}
        self.groups = []
        self.dropped = self.epoch_ns = self.told_dropped = -1

    def __dealloc__(self):
        if self.is_holding:
            PyBuffer_Release(&self.memory)
            PyBuffer_Release(&self.segments)

    def read_alone(self, sock, take, int64_t count_left):
        """Receive datagrams as long as `take` takes each; return whether the socket is empty then.

        If not, the next `read` returns first what was received and not taken.

        Args:
            take: Called with a datagram and its address; returns whether it took the datagram. What
                it raises reaches the caller, and the next `read` returns the datagram.
            count_left: Most datagrams to receive.
        """
        if self.decode is None:
            raise ValueError("a reader without memory")
        self.trusted_count = 0
        return self.take_alone(sock.fileno(), take, count_left)

    cdef bint take_alone(self, int fd, take, int64_t count_left) except -1:
        """Do what `read_alone` does; `take` may be a lane.

        After a lone datagram a look for more mostly finds nothing, and costs a system call before
        its reader is woken. So it is left out a few times; what may lie behind keeps the socket
        readable.
        """
        cdef ReceiveLane lane = <ReceiveLane>take if type(take) is ReceiveLane else None
        cdef int64_t left = count_left
        cdef bint is_taken
        while not self.is_primed and left > 0:
            self.used = self.receive(fd, 1)
            if self.failure == EAGAIN:
                self.trusted_count = TRUSTED_COUNT if left == count_left - 1 else 0
                return True
            left -= 1
            self.is_primed = True
            if (self.failure or self.epoch_ns >= 0 or self.dropped != self.told_dropped
                    or peek_32(<char *>self.segments.buf + 4) != self.filled):
                self.told_dropped = self.dropped
                break
            address = self.address_of(&self.sources[0])
            if lane is None:
                is_taken = take(self.data_view[:self.filled], address)
            else:
                is_taken = lane.take_frame(<const char *>self.memory.buf, self.filled, address)
            if not is_taken:
                break
            self.is_primed = False
            if self.trusted_count > 0:
                self.trusted_count -= 1
                return True
        self.trusted_count = 0
        return False

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
        cdef int64_t used = self.used if self.is_primed else 0
        if self.is_primed:
            self.is_primed = False
            if self.failure:
                return used
        else:
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


@cython.final
@cython.auto_pickle(False)
cdef class LoneReading:
    """What a loop calls when a socket is readable: the short way of datagrams that arrive alone.

    Args:
        reader: The socket's reader.
        sock: The socket.
        take: Called with a datagram and its address; returns whether it took the datagram.
        taken: Called when datagrams were taken, before any others are received.
        count: Most datagrams to receive this way.
        fail: Called with what `take` or `taken` has raised.
        go_on: Called unless the socket was found empty, or is likely to be.
    """

    cdef BatchReader reader
    cdef object sock
    cdef object take
    cdef object taken
    cdef int64_t count
    cdef object fail
    cdef object go_on

    def __init__(self, BatchReader reader not None, sock, take, taken, int64_t count, fail, go_on):
        if self.reader is not None:
            raise ValueError("a reading is made once")
        lane = getattr(take, "__self__", None)
        # What belongs to a lane is called without a call of Python.
        if type(lane) is ReceiveLane and (<ReceiveLane>lane).streams is not None and take == lane.take:
            take = lane
        self.reader = reader
        self.sock = sock
        self.take = take
        self.taken = taken
        self.count = count
        self.fail = fail
        self.go_on = go_on

    def __call__(self):
        """Take what has arrived alone; leave the rest to `go_on`."""
        cdef bint is_over = True
        # `__init__` was called once, so that all of it stays.
        if self.reader is None or self.reader.decode is None or self.go_on is None:
            raise ValueError("a reading without a reader")
        try:
            is_over = self.reader.take_alone(self.sock.fileno(), self.take, self.count)
        except Exception as error:
            self.fail(error)
        finally:
            # In any case: who was shown a datagram waits for this.
            self.tell_taken()
        if not is_over:
            self.go_on()

    cdef int tell_taken(self) except -1:
        try:
            self.taken()
        except Exception as error:
            self.fail(error)
        return 0


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


cdef struct Turn:
    int64_t index
    int64_t start
    int64_t stop
    int64_t which


cdef struct Post:
    aeron_mmsghdr messages[MESSAGES_MAX]
    iovec pieces[MESSAGES_MAX]
    aeron_cut cuts[MESSAGES_MAX]
    Turn turns[MESSAGES_MAX]


@cython.no_gc
@cython.final
cdef class Mailing:
    """What `send_to_many` sends, and how far it is: the slice at `turn`, to one address."""

    cdef Py_buffer data
    cdef Py_buffer segments
    cdef tuple addresses
    cdef int64_t slice_count
    cdef int64_t sndbuf_length
    cdef int64_t room
    cdef int fd
    cdef int held
    cdef Turn turn

    def __dealloc__(self):
        if self.held > 0:
            PyBuffer_Release(&self.data)
        if self.held > 1:
            PyBuffer_Release(&self.segments)

    cdef check(self):
        """Raise an error for arguments that cannot be meant."""
        if self.segments.len % 8:
            raise ValueError(f"a segment table of {self.segments.len} bytes: it has 8 for each batch")
        if (not 0 <= self.turn.index <= self.segments.len // 4 or self.turn.index % 2
                or not 0 <= self.turn.start <= self.data.len):
            raise ValueError(f"index={self.turn.index} start={self.turn.start}: not within "
                             f"{self.segments.len // 8} batches in {self.data.len} bytes")
        if not 1 <= self.slice_count <= SEGMENT_COUNT_MAX:
            raise ValueError(f"slice_count={self.slice_count} must be from 1 to {SEGMENT_COUNT_MAX}")
        if not self.addresses:
            raise ValueError("there is no address to send to")
        for address in self.addresses:
            if type(address) is not bytes:
                raise TypeError(f"an address must be bytes, not {type(address).__name__}")
            if len(address) != IPV4_LENGTH and len(address) != ADDRESS_LENGTH:
                raise ValueError(f"an address of {len(address)} bytes: it has {IPV4_LENGTH} or "
                                 f"{ADDRESS_LENGTH}")

    cdef void measure(self) noexcept nogil:
        """Find out how much more the socket's send buffer can hold."""
        cdef int queued = 0
        self.room = 0
        if self.sndbuf_length > 0 and ioctl(self.fd, TIOCOUTQ, &queued) == 0:
            self.room = self.sndbuf_length - queued

    cdef bint begin_slice(self, bint is_first) noexcept:
        """Find the end of the next slice; return whether there is one, and may be one now."""
        cdef int64_t end, segment, count, longest, length
        if self.turn.index >= self.segments.len // 4:
            return False
        end = word_at(<const char *>self.segments.buf, self.turn.index)
        segment = word_at(<const char *>self.segments.buf, self.turn.index + 1)
        if end <= self.turn.start or end > self.data.len or segment < 1:
            return False
        longest = max(1, min(SEGMENT_COUNT_MAX, BATCH_LENGTH_MAX // segment))
        longest = min(end - self.turn.start, longest * segment)
        length = min(longest, self.slice_count * segment)
        if length < longest and self.sndbuf_length > 0:
            if is_first:
                self.measure()
            count = (self.room // len(self.addresses) - MESSAGE_OVERHEAD) // segment
            length = min(longest, max(self.slice_count, count) * segment)
            # Once what is written has been sent, there may be room for a longer one.
            if length < longest and not is_first:
                return False
        self.turn.stop = self.turn.start + length
        return True

    cdef int write(self, Post *post) noexcept:
        """Write the messages of the next turns, and go on to the turn behind; return how many."""
        cdef int number = 0
        cdef bytes address
        cdef int64_t segment
        while number < MESSAGES_MAX:
            if self.turn.stop <= self.turn.start and not self.begin_slice(number == 0):
                break
            address = <bytes>self.addresses[self.turn.which]
            segment = word_at(<const char *>self.segments.buf, self.turn.index + 1)
            write_message(post, number, <char *>self.data.buf + self.turn.start,
                          self.turn.stop - self.turn.start, segment,
                          <const char *>address, <unsigned int>len(address))
            post.turns[number] = self.turn
            number += 1
            self.room -= self.turn.stop - self.turn.start + MESSAGE_OVERHEAD
            self.turn.which += 1
            if self.turn.which == len(self.addresses):
                self.turn.which = 0
                self.turn.start = self.turn.stop
                if self.turn.start == word_at(<const char *>self.segments.buf, self.turn.index):
                    self.turn.index += 2
        return number

    cdef int send(self) except -1:
        """Send until the system refuses a message; return the error number, 0 for none."""
        cdef Post post
        cdef int count, sent, failure = 0
        while True:
            count = self.write(&post)
            if count == 0:
                return 0
            with nogil:
                sent = aeron_sendmmsg(self.fd, post.messages, count, MSG_DONTWAIT)
                failure = errno if sent < 0 else 0
            if sent == count:
                continue
            # The system says what is wrong with a message only if that is the first one.
            self.turn = post.turns[max(0, sent)]
            if failure and failure != EINTR:
                return failure


cdef void write_message(Post *post, int number, char *data, int64_t length, int64_t segment,
                        const char *address, unsigned int address_length) noexcept:
    """Write the headers of one message: a slice of a batch for one address."""
    cdef msghdr *message = &post.messages[number].msg_hdr
    cdef aeron_cut *cut = &post.cuts[number]
    cdef cmsghdr *note
    cdef uint16_t short_segment = <uint16_t>segment
    memset(message, 0, sizeof(msghdr))
    post.pieces[number].iov_base = data
    post.pieces[number].iov_len = length
    message.msg_name = <void *>address
    message.msg_namelen = address_length
    message.msg_iov = &post.pieces[number]
    message.msg_iovlen = 1
    if segment < length:
        memset(cut, 0, sizeof(aeron_cut))
        message.msg_control = cut
        message.msg_controllen = CMSG_SPACE(sizeof(short_segment))
        note = CMSG_FIRSTHDR(message)
        note.cmsg_level = SOL_UDP
        note.cmsg_type = UDP_SEGMENT
        note.cmsg_len = CMSG_LEN(sizeof(short_segment))
        memcpy(CMSG_DATA(note), &short_segment, sizeof(short_segment))


def send_to_many(sock, data, segments, int64_t index, int64_t start, tuple addresses not None,
                 int64_t slice_count, int64_t sndbuf_length):
    """Send batches to each of several addresses, in slices by turns; stop at one not sent.

    Each slice goes to all addresses before the next one goes to any. A slice of one datagram is
    sent as such. `driver.media.transport.SLICE_COUNT` says why there are slices.

    Args:
        sock: A non-blocking socket that is not connected. Unless `slice_count` is 1 and
            `sndbuf_length` 0, its system segments batches into datagrams.
        data: The datagrams, one after the other.
        segments: For each batch, its end in `data` and the length of its datagrams, in bytes; only
            the last datagram of a batch may be shorter.
        index: Index in `segments` of the first batch; even.
        start: Offset in `data` of the first slice, in that batch.
        addresses: In the system's format, `sockaddr_in` or `sockaddr_in6`.
        slice_count: Most datagrams in a slice, where the socket has no room for a longer one.
        sndbuf_length: How much the socket's send buffer can hold, in bytes; 0 if no slice may be
            longer than `slice_count`.

    Returns:
        Start and end in `data` of the slice that was not sent, the index of its batch, the index of
        the first address that did not get it, and the error number that the system gave. Without an
        attempt all but the start and the index of the batch are 0: everything was sent, or the
        batch is malformed.

    Raises:
        TypeError: An address is not bytes.
        ValueError: A number is out of bounds, or an address has the wrong length.
    """
    cdef Mailing mailing = Mailing.__new__(Mailing)
    cdef int failure
    mailing.fd = sock.fileno()
    PyObject_GetBuffer(data, &mailing.data, PyBUF_SIMPLE)
    mailing.held = 1
    PyObject_GetBuffer(segments, &mailing.segments, PyBUF_SIMPLE)
    mailing.held = 2
    mailing.addresses = addresses
    mailing.slice_count, mailing.sndbuf_length = slice_count, sndbuf_length
    mailing.turn = Turn(index, start, 0, 0)
    mailing.check()
    failure = mailing.send()
    if not failure:
        return mailing.turn.start, 0, mailing.turn.index, 0, 0
    return (mailing.turn.start, mailing.turn.stop, mailing.turn.index, mailing.turn.which, failure)
