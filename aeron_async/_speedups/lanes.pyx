# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""The short ways of a lone message: from its datagram to the reader, and from its offer to the socket.

Each does what it does in one call, or does nothing and leaves it to the long way, which has the same
effect. The objects that they change are those of the driver, which has no copy of their state here.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memmove

from aeron_async._speedups.frames cimport HEADER, align, is_slot, load_acquire_32, peek_32, store_release_32
from aeron_async._speedups.paths cimport Cell, check_log, term_at

from os import strerror

cdef extern from "<sys/types.h>" nogil:
    ctypedef long ssize_t

cdef extern from "<sys/socket.h>" nogil:
    struct sockaddr:
        pass
    ssize_t send(int fd, const void *data, size_t length, int flags)
    ssize_t sendto(int fd, const void *data, size_t length, int flags, const sockaddr *address,
                   unsigned int address_length)
    int MSG_DONTWAIT

DEF PARTITION_COUNT = 3
DEF WITHOUT_FLAGS = 0xFFFF00FF
DEF DATA_WORD = 0x00010000
"""Version 0 and type DATA: the second word of a frame without its flags."""


cdef bint place_frame(object term, int64_t offset, const char *frame, Py_ssize_t length) except -1:
    """Write a frame into a term where there is none; return whether it fits and that was so."""
    cdef Py_buffer view
    cdef char *slot
    PyObject_GetBuffer(term, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
    try:
        if not is_slot(&view, offset) or offset + length > view.len:
            return False
        slot = <char *>view.buf + offset
        if load_acquire_32(<int32_t *>slot):
            return False
        # The frame may be a part of the same term.
        memmove(slot + 4, frame + 4, length - 4)
        store_release_32(<int32_t *>slot, peek_32(frame))
        return True
    finally:
        PyBuffer_Release(&view)


@cython.auto_pickle(False)
cdef class Reporting:
    """The compiled part of a status message sender; twin of `driver.core.lanes.Reporting`."""


@cython.auto_pickle(False)
cdef class Rebuilding:
    """The compiled part of an image; twin of `driver.core.lanes.Rebuilding`."""

    def _attach(self, log, counters):
        """Take what a lane needs of the log and the counters, which the image keeps."""
        cdef int bits = log.position_bits
        cdef tuple terms = log.terms
        check_log(terms, bits)
        self.hwm = counters.receiver_hwm.cell
        self.receiver_position = counters.receiver_position.cell
        self.initial_term_id = log.initial_term_id
        self.term_length = <int64_t>1 << bits
        self.bits = bits
        self.terms = terms

    def readable_position(self, _position):
        """Return the rebuild position; see `ImagePort`."""
        return self.rebuild_position

    cdef bint is_ready(self, int64_t position, int64_t end, int64_t now_ns) noexcept:
        """Return whether what lies at a position is next, has room, and needs no poll."""
        return (position == self.rebuild_position and position == self.hwm_position
                and now_ns < self._calm_until_ns and self.failure is None
                and not self.is_end_of_stream and not self._is_fast_way_closed
                and self.hwm is not None and self.receiver_position is not None
                and self.wake_flag is not None and not self.wake_flag.is_set
                and self._feedback is not None and position >= self._feedback.last_sm_position
                and end <= self._feedback.overrun_threshold)

    cdef int advance(self, int64_t position, int64_t now_ns) except -1:
        """Move the positions over a frame that was placed, and notify the readers."""
        # Python code may have run since it was ready.
        if self.hwm is None or self.receiver_position is None:
            raise ValueError("an image without counters")
        cdef int64_t before = self.rebuild_position
        self.last_packet_ns = now_ns
        self.hwm_position = self.rebuild_position = position
        # Without a gap there is nothing to learn from a heartbeat.
        self.idle_position = -1
        if position >= self._mark_position or now_ns >= self._mark_ns:
            self._mark_position, self._mark_ns = self.arrivals.mark(before, position, now_ns)
        put(self.hwm, position)
        put(self.receiver_position, position)
        for subscriber in <tuple?>self.subscribers.active:
            subscriber.on_progress()
        return 0


@cython.final
@cython.auto_pickle(False)
cdef class ReceiveLane:
    """Takes datagrams that arrive alone; twin of `driver.core.lanes.ReceiveLane`."""

    def __init__(self, destination, dict streams not None, listener, now_ns, bytes_received):
        cdef Cell cell = bytes_received.cell
        if cell is None:
            raise TypeError("the counter of received bytes has no cell")
        # A look-up in the streams may run code that would replace them.
        if self.streams is not None:
            raise ValueError("a lane is made once")
        self.destination = destination
        self.streams = streams
        self.listener = listener
        self.now_ns = now_ns
        self.bytes_received = cell

    def take(self, datagram, source):
        """Place a datagram and show it to readers; return False if it must go the long way."""
        cdef Py_buffer view
        if self.streams is None:
            raise ValueError("a lane without streams")
        PyObject_GetBuffer(datagram, &view, PyBUF_SIMPLE)
        try:
            return self.take_frame(<const char *>view.buf, view.len, source)
        finally:
            PyBuffer_Release(&view)

    def deliver(self):
        """Hand what was taken to the readers that have a handler."""
        cdef list expecting = self.expecting
        cdef Py_ssize_t count
        if expecting is None:
            return
        self.expecting = None
        for count in range(len(expecting)):
            client = expecting[count]
            client.is_expecting = False
            try:
                deliver = client.deliver
                if deliver is not None:
                    deliver()
            except BaseException:
                # That stops the loop, which delivers to the others if it is run again.
                for each in expecting[count + 1:]:
                    each.is_expecting = False
                    each.on_image_progress()
                raise

    cdef int expect(self, tuple subscribers) except -1:
        """Tell readers that have a handler that `deliver` will call it, so that no loop needs to."""
        for subscriber in subscribers:
            client = subscriber.client
            if client is not None and client.deliver is not None and not client.is_expecting:
                client.is_expecting = True
                if self.expecting is None:
                    self.expecting = []
                self.expecting.append(client)
        return 0

    cdef bint take_frame(self, const char *frame, Py_ssize_t length, source) except -1:
        """Do what `take` does, for a lane that was set up."""
        cdef Rebuilding image
        cdef int64_t position, now_ns
        cdef int32_t term_offset
        cdef uint32_t term_count
        if (length <= HEADER or <uint32_t>peek_32(frame + 4) & WITHOUT_FLAGS != DATA_WORD
                or align(peek_32(frame)) != length):
            return False
        interest = self.streams.get(peek_32(frame + 16))
        if interest is None:
            return False
        found = (<dict?>interest.images).get(peek_32(frame + 12))
        if found is None:
            return False
        image = found
        connection = (<dict?>image.connections._connections).get(self.destination)
        if connection is None or connection.is_new or connection.source != source:
            return False
        term_offset = peek_32(frame + 8)
        term_count = <uint32_t>peek_32(frame + 20) - <uint32_t>image.initial_term_id
        if term_count > 0x7FFFFFFF or not 0 <= term_offset < image.term_length or image.terms is None:
            return False
        now = self.now_ns()
        now_ns = now
        position = (<int64_t>term_count << image.bits) + term_offset
        if not image.is_ready(position, position + length, now_ns):
            return False
        if not place_frame(image.terms[term_count % PARTITION_COUNT], term_offset, frame, length):
            return False
        self.destination.last_activity_ns = now
        connection.last_activity_ns = now
        try:
            self.expect(<tuple?>image.subscribers.active)
            image.advance(position + length, now_ns)
        except Exception as error:
            image.failure = error
            self.listener.on_image_activity(image)
        add(self.bytes_received, length)
        return True


@cython.auto_pickle(False)
cdef class Sleeping:
    """The compiled part of an agent; twin of `driver.core.lanes.Sleeping`."""

    def may_act(self, now_ns):
        """Return whether a callback may do part of the agent's work at once; see the twin."""
        return self.is_asleep(now_ns)

    cdef bint is_asleep(self, now_ns) except -1:
        return (self._waiter is not None and not self._is_awake
                and bool(now_ns <= self._sleeps_until_ns))


@cython.auto_pickle(False)
cdef class Streaming:
    """The compiled part of a stream that is sent; twin of `driver.core.lanes.Streaming`."""

    def _attach(self, sender_position, bytes_sent):
        """Take the counters that each datagram moves."""
        self.sender_position = sender_position.cell
        self.bytes_sent = bytes_sent.cell

    def on_sent_alone(self, int64_t length, int64_t now_ns):
        """Move the position over one datagram that was sent."""
        self.note_sent(length, now_ns)

    cdef int note_sent(self, int64_t length, int64_t now_ns) except -1:
        cdef int64_t position = self.position
        if self._frame_starts.next_position <= position:
            self._frame_starts.mark(position)
        self.position = position + length
        self.round_trip.on_sent(position, now_ns)
        self._last_sent_ns = now_ns
        self._is_tracking_limit = True
        if self.sender_position is None or self.bytes_sent is None:
            raise ValueError("a stream without counters")
        put(self.sender_position, self.position)
        add(self.bytes_sent, length)
        return 0


@cython.auto_pickle(False)
cdef class OfferSending:
    """The compiled part of a publication of a driver; twin of `driver.core.lanes.OfferSending`."""

    def _attach(self, publisher_position):
        """Take the counter that shows how far it was published."""
        self.publisher_position = publisher_position.cell

    def _on_all_sent(self):
        """Take note that all that was offered has been sent."""
        self.note_all_sent()

    cdef int note_all_sent(self) except -1:
        if self.wake_flag is None or self.publisher_position is None or self._sender is None:
            raise ValueError("a publication that was not set up")
        self.wake_flag.is_set = self.is_sending = False
        put(self.publisher_position, self._sender.position)
        if self.window_listeners is not None:
            for listener in self.window_listeners:
                listener.on_window_changed()
        return 0


@cython.final
@cython.auto_pickle(False)
cdef class SendLane:
    """Sends an offer that is all there is to send, in place of `Sender.on_offer`.

    Args:
        publication: A network publication, without timestamps.
        agent: The sender.
        socket: The socket of a publication that sends by one alone; else None.
        quiet_ns: An offer this long after the last poll counts as a single one.
        is_response: Whether it sends to the one receiver that has answered its `ResponseOutbox`.
    """

    cdef OfferSending publication
    cdef Sleeping agent
    cdef Streaming stream
    cdef object log
    cdef object outbox
    cdef object socket
    cdef object now_ns
    cdef object peer
    cdef bytes raw_peer
    cdef int64_t quiet_ns
    cdef bint is_response

    def __init__(self, OfferSending publication not None, Sleeping agent not None, socket, int64_t quiet_ns,
                 bint is_response=False):
        cdef Streaming stream = publication._sender
        if stream is None or self.publication is not None:
            raise ValueError("a lane is made once, for a publication that was set up")
        self.publication = publication
        self.agent = agent
        self.stream = stream
        self.log = publication.log
        self.outbox = stream._outbox
        self.socket = socket
        self.now_ns = agent._clock.now_ns
        self.quiet_ns = quiet_ns
        self.is_response = is_response

    def on_offer(self):
        """Send what was offered; see `Sender.on_offer`."""
        cdef int64_t length, now_ns
        if self.publication is None or self.agent is None or self.stream is None:
            raise ValueError("a lane without a publication")
        now = self.now_ns()
        try:
            now_ns = now
            length = self.try_send(now, now_ns)
            if length:
                self.stream.note_sent(length, now_ns)
                self.publication.polled_ns = now_ns
                self.publication.note_all_sent()
                return
        except Exception as error:
            self.agent.on_offer_failed(self.publication, error, now)
            return
        self.agent.on_offer(self.publication)

    cdef int64_t try_send(self, now, int64_t now_ns) except -1:
        """Send one frame if that is all; return its length, or 0 if the long way must be taken."""
        cdef int64_t position, limit, begin, offset, length, mtu_length
        cdef Py_buffer view
        cdef OfferSending publication = self.publication
        # Times of no clock must not overflow.
        cdef int64_t since_poll_ns = <int64_t>(<uint64_t>now_ns - <uint64_t>publication.polled_ns)
        if (publication.has_sent_burst or since_poll_ns < self.quiet_ns
                or now_ns >= publication._fast_until_ns or self.agent._is_polling
                or not self.agent.is_asleep(now)):
            return 0
        position = self.stream.position
        log = self.log
        mtu_length = log.mtu_length
        if position < 0 or position > publication._fast_position:
            return 0
        limit = self.stream.limit
        if limit <= position or limit - position <= mtu_length:
            return 0
        term = term_at(log, position, &begin)
        offset = position - begin
        PyObject_GetBuffer(term, &view, PyBUF_SIMPLE)
        try:
            length = find_alone(&view, offset, mtu_length)
            if length and not self.send_frame(term, &view, offset, length):
                length = 0
        finally:
            PyBuffer_Release(&view)
        return length

    cdef bint send_frame(self, term, Py_buffer *view, int64_t offset, int64_t length) except -1:
        """Send a frame; return False if it did not leave, so that the long way tries again."""
        cdef object fd = None
        cdef int number
        cdef int descriptor
        cdef ssize_t sent
        cdef bytes raw_peer = None
        if self.socket is not None:
            fd = self.find_peer() if self.is_response else self.socket.sendable_fd
        if fd is None:
            return self.outbox.send(memoryview(term)[offset:offset + length])
        descriptor = fd
        if self.is_response:
            # What is sent to stays, whatever others do to the lane meanwhile.
            raw_peer = self.raw_peer
            if raw_peer is None:
                return False
            sent = sendto(descriptor, <char *>view.buf + offset, length, MSG_DONTWAIT,
                          <const sockaddr *>PyBytes_AS_STRING(raw_peer),
                          <unsigned int>PyBytes_GET_SIZE(raw_peer))
        else:
            sent = send(descriptor, <char *>view.buf + offset, length, MSG_DONTWAIT)
        if sent >= 0:
            return True
        number = errno
        if number != EAGAIN and number != EINTR:
            self.socket.on_send_error(OSError(number, strerror(number)))
        return False

    cdef object find_peer(self):
        """Return the descriptor by which to send to `raw_peer`; None if the outbox must do it."""
        address = self.outbox.answered
        if address is None:
            return None
        fd = self.socket.unconnected_fd
        if fd is not None and (address is not self.peer or self.raw_peer is None):
            self.raw_peer = self.socket.raw_address(address)
            self.peer = address
        return None if self.raw_peer is None else fd


cdef int64_t find_alone(Py_buffer *view, int64_t offset, int64_t mtu_length) noexcept:
    """Return the aligned length of the data frame at an offset; 0 if that is not all there is."""
    cdef int64_t length
    cdef char *frame
    if not is_slot(view, offset) or offset + HEADER > view.len:
        return 0
    frame = <char *>view.buf + offset
    length = align(load_acquire_32(<int32_t *>frame))
    # The word behind it must lie in the term, too.
    if (length < HEADER or length > mtu_length or offset + length > view.len - HEADER
            or peek_32(frame + 4) >> 16 != 1):
        return 0
    # After a full term comes another one, which may hold more data.
    return 0 if load_acquire_32(<int32_t *>(frame + length)) else length
