# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Compiled twins of what a client does for every message: `offer`, `__anext__`, and what they use.

The twins in Python are in `client` and `logbuffer`.

Creating a coroutine costs more than an offer that finds space, and more than delivering a message
that has arrived. So `offer` and `__anext__` return a `Step`, which does the work when it is
awaited, and runs the twin's coroutine only if it must wait. A step has the methods of a coroutine
and, like a coroutine, does nothing before it is awaited.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_WarnEx
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_REFCNT
from libc.stdint cimport int64_t, uint64_t

from aeron_async._speedups.appending cimport FrameWriter
from aeron_async._speedups.deliveries cimport Delivering
from aeron_async._speedups.frames cimport load_acquire_64, store_release_64
from aeron_async._speedups.messages cimport Batch, Message, lay_open

import os
from collections.abc import Coroutine

from aeron_async.errors import ClosedError
from aeron_async.protocol.arguments import check_timeout

cdef extern from *:
    """
    /* Called by `await` from Python 3.12 on. Tasks, and `await` before 3.12, call `am_send`. */
    static PyObject *aeron_next(PyObject *self) {
        PyObject *result = NULL, *stop;
        if (Py_TYPE(self)->tp_as_async->am_send(self, Py_None, &result) != PYGEN_RETURN)
            return result;
        stop = PyObject_CallOneArg(PyExc_StopIteration, result);
        Py_DECREF(result);
        if (stop != NULL) {
            PyErr_SetObject(PyExc_StopIteration, stop);
            Py_DECREF(stop);
        }
        return NULL;
    }
    /* Cython cannot fill the first slot, without which every result is raised as an exception. Its
       own function for the second slot adds a traceback, which costs more than an offer. */
    static void aeron_set_send(void *type, sendfunc send) {
        ((PyTypeObject *)type)->tp_as_async->am_send = send;
        ((PyTypeObject *)type)->tp_iternext = aeron_next;
        PyType_Modified((PyTypeObject *)type);
    }

    /* A Python class that inherits `__anext__` from a compiled class calls it by name; this puts
       the compiled function into the slot of the Python class. */
    static void aeron_inherit_next(void *from, PyObject *to) {
        if (((PyTypeObject *)to)->tp_as_async != NULL)
            ((PyTypeObject *)to)->tp_as_async->am_anext =
                ((PyTypeObject *)from)->tp_as_async->am_anext;
    }
    """
    ctypedef PySendResult (*sendfunc)(PyObject *, PyObject *, PyObject **)
    void set_send "aeron_set_send"(void *kind, sendfunc send)
    void inherit_next "aeron_inherit_next"(void *kind, object inheritor)

cdef extern from "Python.h":
    ctypedef enum PySendResult:
        PYGEN_RETURN
        PYGEN_ERROR
        PYGEN_NEXT

    PySendResult PyIter_Send(object iterator, object value, PyObject **result) except PYGEN_ERROR

cdef extern from "pythread.h":
    unsigned long PyThread_get_thread_ident() noexcept nogil

DEF LISTED_PER_CALL = 16
"""Messages of a list that take about as long as one that is offered or read alone."""
DEF BYTES_PER_CALL = 2_048
"""Bytes of a list that take about as long to copy as that."""


cdef inline int64_t calls_of(int64_t count, int64_t length) noexcept:
    """Return how many messages alone would take about as long as a list does."""
    return max(1, max(count // LISTED_PER_CALL, length // BYTES_PER_CALL))


cdef inline int64_t one_less(int64_t calls) noexcept:
    """Return a number of calls without one; code that ran since it was looked at may have set it."""
    return <int64_t>(<uint64_t>calls - 1)


DEF PARTITION_COUNT = 3
DEF TERM_LENGTH_MAX = 1 << 30
DEF BATCH_MESSAGES = 1_024
DEF BATCH_LENGTH = 262_144
"""Most messages and bytes that are read at once; see `client.subscription`, `client.image`."""

cdef enum:
    # First, so that a step that was not set up is a closed one.
    CLOSED
    CREATED
    RUNNING
    SUSPENDED


# The garbage collector would clear the owner of the buffer without releasing the buffer.
@cython.no_gc
@cython.final
cdef class Cell:
    """The one 64-bit word of a counter, for as long as the counter is open."""

    def __init__(self, words, Py_ssize_t index=0):
        if self.place is not NULL:
            raise ValueError("a cell has its word already")
        PyObject_GetBuffer(words, &self.view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        if not 0 <= index < self.view.len // 8 or <size_t>self.view.buf & 7:
            PyBuffer_Release(&self.view)
            raise ValueError("a cell is one word of 64 bits, at a multiple of 8")
        self.place = <int64_t *>self.view.buf + index

    def __dealloc__(self):
        self.let_go()

    cdef void let_go(self) noexcept:
        if self.place is not NULL:
            self.place = NULL
            PyBuffer_Release(&self.view)

    def release(self, why):
        """Stop using the word, which may belong to another counter by now."""
        self.why = why
        self.let_go()

    def __getitem__(self, index):
        if self.place is NULL:
            raise ClosedError(self.why)
        return load_acquire_64(self.place)

    def __setitem__(self, index, int64_t value):
        if self.place is NULL:
            raise ClosedError(self.why)
        store_release_64(self.place, value)


cdef int64_t forks = 0


def note_fork():
    """Count one fork; called in the child."""
    global forks
    forks += 1


os.register_at_fork(after_in_child=note_fork)


@cython.final
@cython.auto_pickle(False)
cdef class HomeLoop:
    """The event loop that an object belongs to; checked for every message."""

    cdef readonly object loop
    cdef object is_running
    cdef unsigned long thread_id
    cdef int64_t forks

    def __init__(self, loop):
        self.loop = loop
        self.is_running = loop.is_running
        self.thread_id = PyThread_get_thread_ident()
        self.forks = forks

    cdef inline bint is_this_thread(self) noexcept:
        return PyThread_get_thread_ident() == self.thread_id and forks == self.forks

    cdef bint is_running_here(self) except -1:
        """Return whether the loop runs here; may run Python code, which may change anything."""
        # This is called for every offer. If it were called once a turn, an offer just after the end
        # of the loop would pass. `asyncio._get_running_loop` takes ten times as long where it asks
        # the system for the process id (Python 3.11).
        if not self.is_this_thread():
            return False
        return self.is_running()

    def is_here(self):
        """Return whether the loop runs here: in this thread of this process."""
        return self.is_running_here()


@cython.auto_pickle(False)
cdef class WakeFlag:
    """Wakes an agent once when there is something to do, until the agent has cleared the flag."""

    def __init__(self):
        self.callback = None

    cpdef set(self):
        """Wake the agent, unless it was woken already and has not yet looked."""
        if not self.is_set:
            self.is_set = True
            if self.callback is not None:
                self.callback()


cdef object NO_VALUE = 0
"""The reserved value of nearly every message: a step stores another one only if it differs."""


cdef bint is_seconds(object timeout) except -1:
    """Return whether a timeout is certainly valid; `check_timeout` examines all others."""
    if type(timeout) is float:
        return 0 <= <double>timeout <= 1e9
    return type(timeout) is int and 0 <= timeout <= 1_000_000_000


# A step cannot end its wait by itself when it is freed: Python finalizes an object once, and the free
# list gives out the same ones again. The collector finalizes this before it clears anything, so that its owner
# is whole when it is called.
@cython.final
@cython.no_gc_clear
@cython.auto_pickle(False)
cdef class Waiting:
    """A wait for a message, which ends with its step at the latest."""

    cdef object owner
    cdef object waiter

    def __del__(self):
        if self.waiter is not None:
            # Nothing can be raised here, and `_end_wait` raises nothing.
            self.end()

    cdef int end(self) except -1:
        waiter, self.waiter = self.waiter, None
        self.owner._end_wait(waiter)
        return 0


# Creating a step for every message, freeing it, and registering it with the garbage collector would
# cost more than an offer. So the owner keeps the last step that was done at once, and uses it for
# the next message unless the caller still holds it; the free list is for steps that exist at the
# same time. Only the caller holds a step that is not done: if the caller drops it, Python warns, or
# collects the step with the task that its coroutine refers to, as for a coroutine.
@cython.final
@cython.freelist(16)
@cython.auto_pickle(False)
cdef class Step:
    """An awaitable offer, or an awaitable next message; the work is done when it is awaited."""

    cdef int state
    cdef bint is_offer
    cdef object owner
    cdef object data
    cdef object reserved_value
    cdef object timeout
    # The coroutine of the twin, or the iterator of the future of a wait; None until it is needed.
    cdef object coroutine
    # A wait that needs no coroutine.
    cdef Waiting wait

    def __init__(self):
        raise TypeError("steps are made by offering and by iterating")

    def __dealloc__(self):
        # If there is a coroutine, Python warns of that.
        if self.state == CREATED and self.coroutine is None:
            warn_never_awaited(self.is_offer)

    cdef object try_at_once(self):
        """Return the result; None if the twin's coroutine must do it."""
        cdef int64_t position
        if not self.is_offer:
            return (<Reading>self.owner).try_at_once()
        if self.timeout is not None and not is_seconds(self.timeout):
            self.timeout = check_timeout(self.timeout)
        position = (<Offering>self.owner).try_at_once(self.data, self.reserved_value)
        return None if position < 0 else position

    cdef object delegate(self):
        """Return the twin's coroutine, created on the first call."""
        if self.coroutine is None:
            if self.is_offer:
                self.coroutine = self.owner._offer_waiting(
                    self.data, self.reserved_value, self.timeout)
            else:
                self.coroutine = self.owner._anext_waiting()
        return self.coroutine

    cdef int begin(self) except -1:
        """Raise the error that a coroutine would raise if it cannot run."""
        if self.state == RUNNING:
            raise ValueError("coroutine already executing")
        # The owner is None if the garbage collector has cleared a cycle that contained this step.
        if self.state == CLOSED or self.owner is None:
            raise RuntimeError("cannot reuse already awaited coroutine")
        return 0

    cdef void hand_back(self) noexcept:
        """Return this step to its owner for the next message; hold no references until then."""
        if self.is_offer:
            (<Offering>self.owner).spare = self
            self.data = None
            # Comparing costs less than counting references.
            if self.reserved_value is not NO_VALUE:
                self.reserved_value = NO_VALUE
            if self.timeout is not None:
                self.timeout = None
        else:
            (<Reading>self.owner).spare = self
        self.owner = None

    cdef void close_for_good(self) noexcept:
        self.state = CLOSED
        self.coroutine = None

    cdef bint begin_wait(self) except -1:
        """Begin to wait without the twin's coroutine; return False if there is no need, or no way."""
        waiter = self.owner._begin_wait()
        if waiter is None:
            return False
        self.wait = Waiting.__new__(Waiting)
        self.wait.owner = self.owner
        self.wait.waiter = waiter
        self.coroutine = waiter.__await__()
        return True

    cdef int end_wait(self) except -1:
        """End the wait, if there is one."""
        cdef Waiting wait = self.wait
        if wait is not None:
            self.wait = None
            self.coroutine = None
            wait.end()
        return 0

    def __await__(self):
        if self.state == SUSPENDED:
            raise RuntimeError("coroutine is being awaited already")
        return self

    def __iter__(self):
        return self

    def __next__(self):
        # Makes Cython create the slot into which `aeron_next` goes.
        return self.send(None)

    def send(self, value):
        """Run until the step must wait."""
        cdef PyObject *result = NULL
        cdef PySendResult outcome = send_step(self, value, &result)
        found = <object>result
        Py_DECREF(found)
        if outcome == PYGEN_RETURN:
            raise StopIteration(found)
        return found

    def throw(self, *error):
        """Raise an error in the coroutine, where it waits."""
        self.begin()
        coroutine = self.delegate()
        self.state = RUNNING
        try:
            found = coroutine.throw(*error)
        except BaseException:
            self.end_wait()
            self.close_for_good()
            raise
        self.state = SUSPENDED
        return found

    def close(self):
        """Close the step, and its coroutine if there is one."""
        if self.state == RUNNING:
            raise ValueError("coroutine already executing")
        if self.wait is not None:
            self.end_wait()
            self.close_for_good()
        elif self.coroutine is not None:
            try:
                self.coroutine.close()
            finally:
                # A coroutine that yields instead of ending is not closed.
                if self.coroutine.cr_frame is None:
                    self.close_for_good()
        else:
            self.close_for_good()

    @property
    def __qualname__(self):
        return "Publication.offer" if self.is_offer else "Subscription.__anext__"

    @property
    def __name__(self):
        return "offer" if self.is_offer else "__anext__"

    # Attributes of coroutines, read from the twin's coroutine.

    @property
    def cr_running(self):
        return self.state == RUNNING

    @property
    def cr_suspended(self):
        return self.state == SUSPENDED

    @property
    def cr_frame(self):
        return self.seen("cr_frame")

    @property
    def cr_code(self):
        return self.seen("cr_code")

    @property
    def cr_await(self):
        return self.seen("cr_await") if self.wait is None else self.coroutine

    cdef object seen(self, str name):
        if self.state == CREATED:
            self.delegate()
        return getattr(self.coroutine, name, None)


cdef PySendResult hand_out(Step self, object found, PyObject **result) noexcept:
    """Return the result of a step that is done, and the step to its owner."""
    self.hand_back()
    Py_INCREF(found)
    result[0] = <PyObject *>found
    return PYGEN_RETURN


cdef PySendResult send_step(Step self, object value, PyObject **result) except PYGEN_ERROR:
    """Run until the step must wait; the function in the slot `am_send`."""
    cdef PySendResult outcome
    # Callers read the result after an error, too.
    result[0] = NULL
    self.begin()
    if self.state == CREATED:
        if value is not None:
            raise TypeError("can't send non-None value to a just-started coroutine")
        if self.coroutine is None:
            self.state = RUNNING
            try:
                found = self.try_at_once()
                if found is None and not self.is_offer and not self.begin_wait():
                    found = self.try_at_once()
            except BaseException:
                self.end_wait()
                self.close_for_good()
                raise
            self.state = CLOSED
            if found is not None:
                return hand_out(self, found, result)
    coroutine = self.delegate()
    self.state = RUNNING
    try:
        outcome = PyIter_Send(coroutine, value, result)
        if self.wait is not None and outcome == PYGEN_RETURN:
            Py_DECREF(<object>result[0])
            result[0] = NULL
            self.end_wait()
            found = (<Reading>self.owner).try_woken()
            if found is not None:
                self.state = CLOSED
                return hand_out(self, found, result)
            outcome = PyIter_Send(self.delegate(), None, result)
    except BaseException:
        self.end_wait()
        self.close_for_good()
        raise
    if outcome == PYGEN_RETURN:
        self.close_for_good()
    else:
        self.state = SUSPENDED
    return outcome


cdef void warn_never_awaited(bint is_offer) noexcept:
    """Warn as for a coroutine that was never awaited."""
    name = "Publication.offer" if is_offer else "Subscription.__anext__"
    PyErr_WarnEx(RuntimeWarning, f"coroutine '{name}' was never awaited".encode(), 1)


cdef inline bint is_held(Step spare) noexcept:
    """Return whether a task or a variable still refers to a step that was handed back."""
    return Py_REFCNT(spare) > 1


@cython.auto_pickle(False)
cdef class Offering:
    """The compiled part of a publication; twin of `client.publication.Offering`."""

    cdef FrameWriter writer
    cdef Cell limit
    cdef Step spare
    cdef public WakeFlag _wake_flag
    cdef public int64_t _calls_until_check
    cdef public bint _is_closed
    cdef public HomeLoop _home

    def __cinit__(self):
        self._calls_until_check = 0

    def _attach(self, FrameWriter writer, Cell limit, WakeFlag wake_flag):
        self.writer = writer
        self.limit = limit
        self._wake_flag = wake_flag

    def _detach(self):
        self.writer = None
        self.limit = None

    # A call costs more if the method is bound as a Python function is.
    @cython.binding(False)
    def offer(self, data, *, reserved_value=0, timeout=None):
        """offer($self, data, *, reserved_value=0, timeout=None)\n--\n\nAppend one message, waiting for a subscriber and for window space; return its position.

        Waiting offers are served in the order in which they came.

        Args:
            data: The message, up to `max_message_length` bytes: bytes, another buffer, or a list or
                tuple of buffers.
            reserved_value: 64 bits for the application, sent with the message.
            timeout: Most seconds to wait; None sets no limit.

        Raises:
            OfferTimeoutError: The timeout passed; nothing was appended.
            ConfigurationError: The timeout is not a number of seconds, even if there is no wait.
            ClosedError: The publication was closed, before or during the call.
            DriverTimeoutError: The driver was lost during the call, and the client reconnects.
            NotConnectedError: No subscriber is connected, and `on_disconnected` is "raise".
            MessageTooLongError: The message is longer than `max_message_length`.
            MaxPositionExceededError: The stream is at its last position.
        """
        cdef Step offer = self.spare
        self.spare = None
        if offer is None or is_held(offer):
            offer = Step.__new__(Step)
            offer.is_offer = True
            offer.reserved_value = NO_VALUE
        offer.state = CREATED
        offer.owner = self
        offer.data = data
        if reserved_value is not NO_VALUE:
            offer.reserved_value = reserved_value
        if timeout is not None:
            offer.timeout = timeout
        return offer

    cdef int64_t try_at_once(self, object data, object reserved_value) except? -1:
        cdef int64_t position
        if not self.may_write():
            return -1
        position = self.append(data, reserved_value)
        if position < 0:
            return -1
        self._calls_until_check = one_less(self._calls_until_check)
        self.wake()
        return position

    def _offer_fast(self, data, reserved_value):
        """Append if that is all there is to do; see the twin."""
        cdef int64_t position
        if not self.is_usable():
            return -1
        position = self.append(data, reserved_value)
        if position >= 0:
            self.wake()
        return position

    @cython.final
    cdef inline int wake(self) except -1:
        # Getting the buffer of what was appended may have run Python code.
        if self._wake_flag is not None:
            self._wake_flag.set()
        return 0

    @cython.final
    cdef inline int64_t append(self, object data, object reserved_value) except? -1:
        """Append one message; return its position, or a negative number."""
        cdef int64_t reserved = 0
        cdef FrameWriter writer
        if reserved_value is not NO_VALUE:
            if type(reserved_value) is not int:
                return -1
            try:
                reserved = reserved_value
            except OverflowError:
                return -1
        # Getting the buffer of an object may run Python code, too.
        writer = self.writer
        return writer.write_object(data, load_acquire_64(self.limit.place), reserved)

    @cython.final
    cdef bint may_write(self) except -1:
        """Return whether the compiled code may append now, and the loop need not run before."""
        return self._calls_until_check > 0 and self.is_usable()

    @cython.final
    cdef bint is_usable(self) except -1:
        """Return whether the compiled code may append now."""
        if self._home is None:
            return False
        # This may run Python code, which may change anything: check all that is used after it.
        if not self._home.is_running_here():
            return False
        if self._is_closed or self.writer is None or self._wake_flag is None:
            return False
        return self.limit is not None and self.limit.place is not NULL

    @cython.final
    cdef void note(self, Py_ssize_t count) except *:
        """Count what was appended as that many calls, and wake the sender."""
        if count:
            self._calls_until_check = (
                max(0, self._calls_until_check) - calls_of(count, self.writer.listed_length))
            self._wake_flag.set()

    def _offer_list(self, list messages not None, Py_ssize_t first):
        """Append messages of a list from one on; return how many, and the position behind them."""
        cdef int64_t position = 0
        cdef Py_ssize_t count = 0
        if first >= 0 and self.may_write():
            count = self.writer.write_list(
                messages, first, load_acquire_64(self.limit.place), &position)
            self.note(count)
        return count, position

    def _offer_column(self, bounds, data, int width, Py_ssize_t first):
        """Append messages of a column from one on; return how many, and the position behind them."""
        cdef int64_t position = 0
        cdef Py_ssize_t count = 0
        cdef FrameWriter writer
        if self.may_write():
            # Getting the buffers may run Python code, which may close the publication.
            writer = self.writer
            count = writer.write_column(
                bounds, data, width, first, load_acquire_64(self.limit.place), &position)
            if self.writer is writer and self._wake_flag is not None:
                self.note(count)
        return count, position


cdef int check_log(tuple terms, int bits) except -1:
    """Raise an error for terms among which no position has a place."""
    if terms is None or len(terms) != PARTITION_COUNT or not 5 <= bits <= 30:
        raise ValueError(f"no log: {terms if terms is None else len(terms)} terms, of {bits} bits")
    return 0


cdef object term_at(log, int64_t position, int64_t *begin):
    """Return the term of a position, which is not negative, and the position where it begins."""
    cdef int bits = log.position_bits
    cdef tuple terms = log.terms
    check_log(terms, bits)
    begin[0] = position >> bits << bits
    return terms[(position >> bits) % PARTITION_COUNT]


@cython.auto_pickle(False)
cdef class Taking:
    """The compiled part of an image; twin of `client.reading.Taking`."""

    def _attach(self, Cell cell, WakeFlag wake_flag):
        self._cell = cell
        self._wake_flag = wake_flag

    cpdef _take(self, int64_t position):
        """Move the position: the application has taken everything before it."""
        cdef WakeFlag wake_flag
        if position <= self._position or self._is_closed:
            return
        self._position = position
        self._cell[0] = position
        if position > self._trigger:
            wake_flag = self._wake_flag
            if wake_flag is not None and not wake_flag.is_set:
                wake_flag.set()
                if not wake_flag.is_set:
                    # The driver has answered at once, and has moved its trigger.
                    self._move_trigger()

    cpdef Batch _read_fast(self, int64_t limit, int64_t max_bytes):
        """Return the next messages of one frame each; None where `_read` must do more than that.

        The batch is empty if nothing can be read.
        """
        cdef int64_t position = self._position
        cdef int64_t begin, end, readable, trigger
        cdef Batch batch
        port, reader = self._port, self._reader
        trigger = port.consumption_trigger
        if (self._is_closed or position < 0 or trigger < position
                or <int64_t>reader._position != position):
            return None
        readable = port.readable_position(position)
        if self._is_closed:
            return None
        if readable <= position or max_bytes <= 0:
            self._trigger = trigger
            return NO_BATCH
        term = term_at(self._log, position, &begin)
        end = position - begin + min(readable - position, max_bytes, TERM_LENGTH_MAX)
        batch = lay_open(term, position - begin, end, begin, limit, self)
        if batch.left == 0:
            return None
        self._trigger = trigger
        self._message_count = <int64_t>(<uint64_t>self._message_count + <uint64_t>batch.left)
        reader._position = begin + batch.end
        return batch


cdef Batch NO_BATCH = Batch([], None)
NOTHING = NO_BATCH


@cython.auto_pickle(False)
cdef class Counted:
    """What a subscription has counted, or will; the base of `Reading`."""



@cython.auto_pickle(False)
cdef class Reading(Counted):
    """The compiled part of a subscription; twin of `client.reading.Reading`."""

    cdef Step spare
    cdef public Message _taken
    cdef public int64_t _calls_until_check
    cdef public bint _is_closed
    cdef public HomeLoop _home
    cdef public list _turn

    def __cinit__(self):
        self._batch = NOTHING

    def __anext__(self):
        """Wait for the next message and return it; iteration ends when the subscription closes."""
        cdef Step following = self.spare
        self.spare = None
        if following is None or is_held(following):
            following = Step.__new__(Step)
        following.state = CREATED
        following.owner = self
        return following

    def _begin_wait(self):
        """Return None: `_anext_waiting` does all; see `client.subscription.Subscription`."""

    cdef Message try_woken(self):
        """Return the next message after a wait; None if `_anext_waiting` must look for it."""
        cdef Message message
        cdef Batch batch
        cdef Taking source
        if self._is_closed or self._turn is None or len(self._turn) != 1:
            return None
        source = self._turn[0]
        batch = None if source is None else source._read_fast(BATCH_MESSAGES, BATCH_LENGTH)
        if batch is None or batch.left == 0:
            return None
        self._batch = batch
        message = batch.hand_out()
        if message is not None:
            self._calls_until_check = max(0, self._calls_until_check) - 1
            self._taken = message
        return message

    cdef Message try_at_once(self):
        cdef Message message
        cdef Message taken = self._taken
        cdef Batch batch
        cdef Taking source
        cdef int64_t position
        if self._home is None or not self._home.is_this_thread():
            return None
        if self._batch is None or self._batch.left <= 0:
            return None
        if self._calls_until_check <= 0 or self._is_closed:
            return None
        if taken is not None:
            if not isinstance(taken.image, Taking):
                return None
            source = <Taking>taken.image
            position = taken.position
            # The usual case of `_take`; cases that are rare, or may raise, are left to `_take`.
            if (source._cell is not None and source._cell.place is not NULL
                    and position <= source._trigger):
                if position > source._position and not source._is_closed:
                    source._position = position
                    store_release_64(source._cell.place, position)
            else:
                source._take(position)
                if position > source._trigger:
                    # The driver has work to do, and can do it only when the loop runs other tasks.
                    self._calls_until_check = 0
        # Taking may have set the wake flag, and what the driver then did may have closed the
        # subscription.
        if self._batch is None or self._is_closed:
            return None
        batch = self._batch
        message = batch.hand_out()
        if message is None:
            return None
        self._calls_until_check = one_less(self._calls_until_check)
        self._taken = message
        return message

    def _read_list_fast(self, int64_t limit, int64_t max_bytes):
        """Return messages that have arrived, in the plain case; None leaves it to `_next_batch`."""
        cdef Batch batch
        cdef Taking source
        cdef list turn
        cdef Py_ssize_t index, count
        if self._home is None or not self._home.is_this_thread() or self._is_closed:
            return None
        if self._calls_until_check <= 0 or self._taken is not None or self._turn is None:
            return None
        if self._batch is None or self._batch.left > 0:
            return None
        turn = self._turn
        count = len(turn)
        for index in range(1, count + 1):
            # As after `_rotate`, which the long way calls itself: if both did, one image would
            # always be passed over.
            source = turn[index % count]
            batch = None if source is None else source._read_fast(limit, max_bytes)
            if batch is None or self._is_closed or len(turn) != count:
                return None
            if batch.left > 0:
                if count > 1:
                    turn.append(turn.pop(0))
                return batch
        return None

    def _count_list(self, int64_t count, int64_t length):
        """Count a list that is delivered as messages towards the next check of the turn."""
        self._calls_until_check = max(0, max(0, self._calls_until_check) - calls_of(count, length))

    def _hand_out_fast(self, call, Py_ssize_t left):
        """Call a function with the messages of the only image; see the twin."""
        cdef Batch batch
        cdef Message message
        cdef Taking source
        # Which leaves out a call of Python.
        cdef Delivering delivery = <Delivering>call if isinstance(call, Delivering) else None
        if self._check_served is not None:
            # A driver of another process is checked before each message.
            return ~left
        while left > 0 and not self._is_closed:
            batch = self._batch
            if batch is None:
                break
            if batch.left <= 0:
                if self._turn is None or len(self._turn) != 1:
                    break
                source = self._turn[0]
                batch = None if source is None else source._read_fast(left, BATCH_LENGTH)
                if batch is None:
                    break
                if batch.left == 0:
                    return left
                self._batch = batch
            message = batch.hand_out()
            if message is None or not isinstance(message.image, Taking):
                break
            (<Taking>message.image)._take(message.position)
            left -= 1
            if delivery is None:
                if call(message):
                    break
            elif delivery.call(message):
                break
        return ~left


def inheriting(kind):
    """Return a subclass of `Reading`, whose `__anext__` is from now on called without its name."""
    if not isinstance(kind, type) or not issubclass(kind, Reading):
        raise TypeError(f"{kind!r} is no subclass of Reading")
    if kind.__anext__ is Reading.__anext__:
        inherit_next(<void *>Reading, kind)
    return kind


set_send(<void *>Step, <sendfunc>send_step)
Coroutine.register(Step)
