# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""The short ways of calls: the compiled twins of `rpc.short_ways`.

Handlers, futures and streams are Python objects, and may run any code while they are called: whatever is used
after such a call is held or looked at again.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MAX, int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from aeron_async._speedups.messages cimport Message

cdef extern from *:
    """
    /* A call as its class would make it, but without parsing of arguments: its constructor stores them only. */
    #define AERON_NEW(type, nothing) (((PyTypeObject *)(type))->tp_new((PyTypeObject *)(type), (nothing), NULL))
    """
    object new_of "AERON_NEW"(type made, tuple nothing)

cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        pass
    bint PyType_IsSubtype(PyTypeObject *one, PyTypeObject *other)

from heapq import heapify

DEF HEAD_LENGTH = 32
DEF TEMPLATE_AT = 2
DEF BLOCK_LENGTH = 24
DEF SCHEMA_ID = 0x4152
DEF VERSION = 1
DEF LAST = 1
DEF SLACK = 64

cdef uint64_t CALL_KIND = BLOCK_LENGTH | <uint64_t>3 << 16 | <uint64_t>SCHEMA_ID << 32 | <uint64_t>VERSION << 48
cdef uint64_t REPLY_KIND = BLOCK_LENGTH | <uint64_t>4 << 16 | <uint64_t>SCHEMA_ID << 32 | <uint64_t>VERSION << 48

cdef struct Head:
    uint64_t kind
    uint64_t call_id
    uint64_t amount
    uint32_t number
    uint16_t flags
    uint16_t ext_length


cdef inline bytes framed(uint64_t kind, uint64_t call_id, uint64_t amount, uint32_t number, uint16_t flags,
                         bytes body):
    """Return a message without extensions."""
    cdef Head head
    cdef Py_ssize_t length = PyBytes_GET_SIZE(body)
    cdef bytes frame = PyBytes_FromStringAndSize(NULL, HEAD_LENGTH + length)
    head.kind = kind
    head.call_id = call_id
    head.amount = amount
    head.number = number
    head.flags = flags
    head.ext_length = 0
    memcpy(PyBytes_AS_STRING(frame), &head, HEAD_LENGTH)
    memcpy(PyBytes_AS_STRING(frame) + HEAD_LENGTH, PyBytes_AS_STRING(body), length)
    return frame


cdef inline bytes body_of(bytes data):
    return PyBytes_FromStringAndSize(PyBytes_AS_STRING(data) + HEAD_LENGTH, PyBytes_GET_SIZE(data) - HEAD_LENGTH)


cdef inline bint read_head(bytes data, Head *head) noexcept:
    """Read the head of a message; return False if it is shorter."""
    if PyBytes_GET_SIZE(data) < HEAD_LENGTH:
        return False
    memcpy(head, PyBytes_AS_STRING(data), HEAD_LENGTH)
    return True


cdef inline bytes data_of(message):
    return (<Message>message).data if type(message) is Message else message.data


cdef inline object image_of(message):
    return (<Message>message).image if type(message) is Message else message.image


cdef inline bint offered(outbox, bytes frame) except -1:
    """Send a frame past an outbox in which nothing waits; return whether that was done."""
    cdef ShortOutbox short = <ShortOutbox?>outbox
    return not short.frames and short.offer_fast(frame, 0) >= 0


@cython.auto_pickle(False)
cdef class ShortOutbox:
    """The compiled part of an outbox: whether something waits in it."""

    cdef public object frames
    cdef public object offer_fast


@cython.auto_pickle(False)
cdef class ShortCall:
    """The compiled part of a client's call."""

    cdef public object method
    cdef public object request
    cdef public object answer
    cdef public object link
    cdef public object outflow
    cdef public object inflow
    cdef public object parts
    cdef public int64_t deadline_ns
    cdef public uint64_t call_id
    cdef public int64_t attempts
    cdef public uint32_t number
    cdef public uint16_t flags

    def __init__(self, method, uint32_t number, request, uint16_t flags, int64_t deadline_ns, answer):
        self.set_up(method, number, request, flags, deadline_ns, answer)

    cdef inline void set_up(self, method, uint32_t number, request, uint16_t flags, int64_t deadline_ns, answer):
        self.method = method
        self.number = number
        self.request = request
        self.flags = flags
        self.deadline_ns = deadline_ns
        self.answer = answer

    @property
    def is_over(self):
        """Return whether it was answered, has failed, or was cancelled."""
        return self.answer.done()

    def let_go(self, ended):
        """Keep no payload: its deadline is remembered for longer."""
        self.request = b""
        self.answer = ended
        self.parts = None


cdef inline bint is_over(entry, Py_ssize_t place) except -1:
    """Return whether a call has ended that is at a place in a tuple."""
    cdef tuple parts = <tuple?>entry
    if len(parts) <= place:
        raise ValueError("a deadline without a call")
    call = parts[place]
    if isinstance(call, ShortCall):
        return (<ShortCall>call).answer.done()
    return call.is_over


@cython.auto_pickle(False)
cdef class ShortDeadlines:
    """The compiled part of `Deadlines`: what each call does."""

    cdef public list _new
    cdef public list _heap
    cdef public int64_t _due_ns
    cdef public int64_t _sweep_at

    def __cinit__(self):
        self._new = []
        self._heap = []
        self._due_ns = INT64_MAX
        self._sweep_at = SLACK

    def add(self, int64_t deadline_ns, call):
        """Call the function at that time, unless the call is over by then."""
        self.put(deadline_ns, call)

    cdef int put(self, int64_t deadline_ns, call) except -1:
        cdef list new = self._new
        if new is None or self._heap is None:
            raise ValueError("deadlines without lists")
        if len(new) + len(self._heap) >= self._sweep_at:
            self._sweep()
        new.append((deadline_ns, call))
        if deadline_ns < self._due_ns:
            self._set_timer(deadline_ns)
        return 0

    def _sweep(self):
        cdef list new = self._new
        cdef list heap = self._heap
        if new is None or heap is None:
            raise ValueError("deadlines without lists")
        new[:] = [each for each in new if not is_over(each, 1)]
        heap[:] = [each for each in heap if not is_over(each, 2)]
        heapify(heap)
        self._sweep_at = 2 * (len(new) + len(heap)) + SLACK


@cython.auto_pickle(False)
cdef class ShortLink:
    """The compiled part of a client's link: a call leaves, and an answer comes."""

    cdef public dict calls
    cdef public int64_t calls_limit
    cdef public int64_t malformed_count
    cdef public object queue
    cdef public int64_t _heard_ns
    cdef public object _image
    cdef public bint _is_up
    cdef public int64_t _longest
    cdef public uint64_t _next_id
    cdef public object _now_ns
    cdef public object _outbox
    cdef public object _owner
    cdef public object _post
    cdef public int64_t _reply_kind

    def send_fast(self, call, int64_t left_ns):
        """Send a call that is sent for the first time, if there is room; `send` is the long way."""
        return self.send_now(<ShortCall?>call, left_ns)

    cdef bint send_now(self, ShortCall call, int64_t left_ns) except -1:
        cdef dict calls = self.calls
        cdef uint64_t call_id = self._next_id
        cdef bytes frame
        if calls is None:
            raise ValueError("a link without calls")
        if not self._is_up or len(calls) >= self.calls_limit:
            return False
        frame = framed(CALL_KIND, call_id, left_ns, call.number, call.flags, <bytes?>call.request)
        if not offered(self._outbox, frame) and not self._post(frame, call):
            return False
        self._next_id = call_id + 1
        call.call_id = call_id
        call.link = self
        call.attempts = 1
        calls[call_id] = call
        return True

    def _on_message(self, message):
        cdef Head head
        cdef bytes data = data_of(message)
        image = image_of(message)
        if data is None or not read_head(data, &head):
            self.malformed_count += 1
            return
        if image is not self._image:
            self._on_other_image(image, <unsigned char>PyBytes_AS_STRING(data)[TEMPLATE_AT])
        self._heard_ns = self._now_ns()
        if (head.ext_length or self._reply_kind < 0 or head.kind != <uint64_t>self._reply_kind
                or PyBytes_GET_SIZE(data) > self._longest or not self.take_reply(head.call_id, data)):
            self._on_long_message(data, head.call_id)

    def _take_reply(self, uint64_t call_id, bytes data not None):
        """Take the whole answer of a call that does not stream; return whether it was that."""
        if PyBytes_GET_SIZE(data) < HEAD_LENGTH:
            return False
        return self.take_reply(call_id, data)

    cdef bint take_reply(self, uint64_t call_id, bytes data) except -1:
        cdef dict calls = self.calls
        cdef ShortCall call
        if calls is None:
            raise ValueError("a link without calls")
        key = call_id
        found = calls.get(key)
        if found is None:
            return False
        call = <ShortCall?>found
        if call.parts is not None or call.outflow is not None or call.inflow is not None:
            return False
        del calls[key]
        answer = call.answer
        if not answer.done():
            answer.set_result(body_of(data))
        if self.queue:
            self._owner.on_room(self)
        return True


@cython.auto_pickle(False)
cdef class ShortBeginning:
    """The compiled part of a client: how a call without options begins."""

    cdef public object _call_type
    cdef public object _deadlines
    cdef public object _home
    cdef public object _now_ns
    cdef public dict _numbers
    cdef public object _only_link
    cdef public object _queue
    cdef public int64_t _timeout_ns
    cdef public int64_t chunk

    def _begin_fast(self, method, request, flags):
        """Return a call that was sent; None if it must go the long way."""
        cdef int64_t timeout_ns = self._timeout_ns
        cdef int64_t deadline_ns = 0
        cdef ShortCall call
        link, home = self._only_link, self._home
        if link is None or home is None or self._numbers is None:
            return None
        number = self._numbers.get(method)
        if (number is None or self._queue or type(request) is not bytes
                or PyBytes_GET_SIZE(request) > self.chunk or not home.is_here()):
            return None
        if timeout_ns:
            deadline_ns = <int64_t>self._now_ns() + timeout_ns
        call_type = <type?>self._call_type
        if not PyType_IsSubtype(<PyTypeObject *>call_type, <PyTypeObject *>ShortCall):
            raise TypeError(f"{call_type!r} is no class of calls")
        call = <ShortCall?>new_of(call_type, ())
        call.set_up(method, number, request, flags, deadline_ns, home.loop.create_future())
        if not (<ShortLink?>link).send_now(call, timeout_ns):
            return None
        if timeout_ns:
            (<ShortDeadlines?>self._deadlines).put(deadline_ns, call)
        return call


@cython.auto_pickle(False)
cdef class ShortMethod:
    """The compiled part of a served method."""

    cdef public object function
    cdef public int64_t answered
    cdef public int64_t handler_ns
    cdef public bint is_plain


@cython.auto_pickle(False)
cdef class ShortSession:
    """The compiled part of a server's client: a short answer leaves."""

    cdef public dict calls
    cdef public object outbox
    cdef public object post
    cdef public int64_t chunk
    cdef public uint64_t highest_id
    cdef public bint is_shared

    def reply_now(self, uint64_t call_id, answer, int64_t elapsed_ns):
        """Send a short answer; return whether there was room. `reply` is the long way."""
        return self.send_now(call_id, answer, elapsed_ns)

    cdef bint send_now(self, uint64_t call_id, answer, int64_t elapsed_ns) except -1:
        cdef bytes body
        cdef bytes frame
        if type(answer) is not bytes:
            answer = bytes(self._checked(answer))
        body = answer
        if self.is_shared or PyBytes_GET_SIZE(body) > self.chunk:
            return False
        frame = framed(REPLY_KIND, call_id, elapsed_ns, 0, LAST, body)
        return offered(self.outbox, frame) or self.post(frame)


@cython.auto_pickle(False)
cdef class ShortServing:
    """The compiled part of a service: a call comes, and is answered at once."""

    cdef public int64_t _call_count
    cdef public int64_t _calls_at_once
    cdef public int64_t _calls_limit
    cdef public int64_t _longest
    cdef public int64_t _under_way
    cdef public uint16_t _kept_flags
    cdef public bint _is_draining
    cdef public object _now_ns
    cdef public dict _sessions
    cdef public dict _simple

    def _on_message(self, message):
        cdef Head head
        cdef ShortSession session
        cdef ShortMethod method
        cdef bytes data = data_of(message)
        image = image_of(message)
        if self._sessions is None:
            raise ValueError("a service without clients")
        found = self._sessions.get(image)
        if found is None:
            found = self._new_session(image)
            if found is None:
                return
        if data is None or not read_head(data, &head):
            self._on_malformed(found, 0, "shorter than an envelope")
            return
        session = <ShortSession?>found
        if (head.kind == CALL_KIND and head.flags & LAST and not head.ext_length
                and not head.flags & self._kept_flags and PyBytes_GET_SIZE(data) <= self._longest
                and head.call_id > session.highest_id
                and self._simple is not None and session.calls is not None):
            found = self._simple.get(head.number)
            if (found is not None and len(session.calls) < self._calls_at_once
                    and self._under_way < self._calls_limit and not self._is_draining):
                session.highest_id = head.call_id
                self._call_count += 1
                method = <ShortMethod?>found
                if method.is_plain:
                    self.answer_now(session, method, &head, body_of(data))
                else:
                    self._begin_simple(session, method, head.call_id, head.amount, body_of(data))
                return
        self._on_any(session, data)

    cdef int answer_now(self, ShortSession session, ShortMethod method, Head *head, bytes body) except -1:
        """Run a plain handler and answer; `_begin` with a plain handler is the long way."""
        cdef int64_t elapsed_ns
        cdef bint is_answered
        cdef int64_t began_ns = self._now_ns()
        try:
            answer = method.function(body)
            elapsed_ns = <int64_t>self._now_ns() - began_ns
            is_answered = session.send_now(head.call_id, answer, elapsed_ns)
        except BaseException as error:
            # Imported here, because whoever scans recordings imports all compiled code, and uses no
            # event loop.
            from asyncio import CancelledError

            if not isinstance(error, (Exception, CancelledError)):
                raise
            self._fail(session, head.call_id, method, error)
            return 0
        if is_answered:
            method.answered += 1
            method.handler_ns += elapsed_ns
        else:
            self._answer_later(session, method, head.call_id, head.amount, answer, elapsed_ns)
        return 0
