# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""What a client does for every message, compiled; `kernel/paths.py` says what each is the twin of.

A coroutine costs more than all that an offer does when there is room, and more than handing out a
message that is there. So `offer` and `__anext__` return objects that do it when they are awaited,
and become the coroutine of the twin when it cannot be done at once. To a task, to anyio and to a
debugger they are coroutines all along.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_WarnEx, PyErr_WriteUnraisable
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from libc.stdint cimport int64_t

from aeron_async.kernel._batches cimport Batch
from aeron_async.kernel._frames cimport FrameWriter, Message

import os
from collections.abc import Coroutine

from aeron_async.errors import ClosedError
from aeron_async.kernel.paths import check_timeout

cdef extern from *:
    """
    #define AERON_PATH_LOAD(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
    #define AERON_PATH_STORE(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)

    typedef PyObject *(*aeron_step)(PyObject *, PyObject *, int *);
    static aeron_step aeron_take_step;

    static PySendResult aeron_send(PyObject *self, PyObject *value, PyObject **result) {
        int is_done = 0;
        *result = aeron_take_step(self, value, &is_done);
        return *result == NULL ? PYGEN_ERROR : is_done ? PYGEN_RETURN : PYGEN_NEXT;
    }
    /* Cython has no name for this slot: without it every result travels as an exception. */
    static void aeron_set_send(void *type, aeron_step step) {
        aeron_take_step = step;
        ((PyTypeObject *)type)->tp_as_async->am_send = aeron_send;
        PyType_Modified((PyTypeObject *)type);
    }

    /* Steps come and go with every message. What making and freeing an object of a collected kind
       costs is more than all that most of them do: so a few are kept, ready made, and a step is
       known to the collector only once it waits, for before it is in no circle that lasts. */
    #define AERON_SPARE_STEPS 16
    static PyObject *aeron_spare_steps[AERON_SPARE_STEPS];
    static int aeron_spare_count = 0;
    static destructor aeron_free_step;
    static void (*aeron_empty_step)(PyObject *);

    static PyObject *aeron_spare_step(void) {
        PyObject *self;
        if (aeron_spare_count == 0) return NULL;
        self = aeron_spare_steps[--aeron_spare_count];
        _Py_NewReference(self);
        return self;
    }
    static void aeron_dealloc_step(PyObject *self) {
        if (PyObject_GC_IsTracked(self)) PyObject_GC_UnTrack(self);
        Py_SET_REFCNT(self, 1);
        aeron_empty_step(self);
        Py_SET_REFCNT(self, 0);
        if (aeron_spare_count >= AERON_SPARE_STEPS) aeron_free_step(self);
        else aeron_spare_steps[aeron_spare_count++] = self;
    }
    /* An error that is on its way stays on its way. */
    static void aeron_aside(void (*what)(int), int argument) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        what(argument);
        PyErr_Restore(type, value, traceback);
    }
    static void aeron_keep_spare(void *type, void (*empty)(PyObject *)) {
        aeron_empty_step = empty;
        aeron_free_step = ((PyTypeObject *)type)->tp_dealloc;
        ((PyTypeObject *)type)->tp_dealloc = aeron_dealloc_step;
    }
    static void aeron_untrack(PyObject *self) {
        if (PyObject_GC_IsTracked(self)) PyObject_GC_UnTrack(self);
    }
    static void aeron_track(PyObject *self) {
        if (!PyObject_GC_IsTracked(self)) PyObject_GC_Track(self);
    }

    /* A class in Python that inherits a method of a compiled one calls it by name; this lets it
       have the function. */
    static void aeron_inherit_next(void *from, PyObject *to) {
        if (((PyTypeObject *)to)->tp_as_async != NULL)
            ((PyTypeObject *)to)->tp_as_async->am_anext =
                ((PyTypeObject *)from)->tp_as_async->am_anext;
    }
    /* What asyncio keeps for this thread while a loop runs. Borrowed, or NULL.
       Python 3.11: a holder, another one with every run. 3.12 and 3.13: the loop itself, and None
       between runs. From 3.14 on it is a private field of the thread's state, out of our reach. */
    static PyObject *aeron_running(PyObject *key) {
        PyObject *state = PyThreadState_GetDict();
        PyObject *found = state == NULL ? NULL : PyDict_GetItemWithError(state, key);
        if (found == NULL && PyErr_Occurred()) PyErr_Clear();
        return found;
    }
    static PyObject *aeron_send_on(PyObject *coroutine, PyObject *value, int *is_done) {
        PyObject *result = NULL;
        PySendResult outcome = PyIter_Send(coroutine, value, &result);
        *is_done = outcome == PYGEN_RETURN;
        return outcome == PYGEN_ERROR ? NULL : result;
    }
    """
    int64_t load_acquire "AERON_PATH_LOAD"(int64_t *place) noexcept nogil
    void store_release "AERON_PATH_STORE"(int64_t *place, int64_t value) noexcept nogil
    object send_on "aeron_send_on"(object coroutine, object value, int *is_done)
    void set_send "aeron_set_send"(void *kind, object (*step)(object, object, int *))
    void keep_spare "aeron_keep_spare"(void *kind, void (*empty)(PyObject *) noexcept)
    PyObject *spare_step "aeron_spare_step"() noexcept
    void aside "aeron_aside"(void (*what)(int) noexcept, int argument)
    void track "aeron_track"(object step) noexcept
    void untrack "aeron_untrack"(object step) noexcept
    void inherit_next "aeron_inherit_next"(void *kind, object inheritor)
    PyObject *running "aeron_running"(object key) noexcept

cdef extern from "pythread.h":
    unsigned long PyThread_get_thread_ident() noexcept nogil

cdef enum:
    FRESH
    DELEGATED
    DONE


# The collector would clear the owner of a buffer and forget to release it.
@cython.no_gc
@cython.final
cdef class Cell:
    """The one 64-bit word of a counter, for as long as the counter is open."""

    cdef Py_buffer view
    cdef int64_t *place
    cdef object why

    def __init__(self, view):
        if self.place is not NULL:
            raise ValueError("a cell has its word already")
        PyObject_GetBuffer(view, &self.view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        if self.view.len != 8:
            PyBuffer_Release(&self.view)
            raise ValueError("a cell is one word of 64 bits")
        self.place = <int64_t *>self.view.buf

    def __dealloc__(self):
        self.let_go()

    cdef void let_go(self) noexcept:
        if self.place is not NULL:
            self.place = NULL
            PyBuffer_Release(&self.view)

    def release(self, why):
        """Touch the word no more: by now it may be another's."""
        self.why = why
        self.let_go()

    def __getitem__(self, index):
        if self.place is NULL:
            raise ClosedError(self.why)
        return load_acquire(self.place)

    def __setitem__(self, index, int64_t value):
        if self.place is NULL:
            raise ClosedError(self.why)
        store_release(self.place, value)


cdef int64_t forks = 0
cdef str RUNNING_KEY = "__asyncio_running_event_loop__"
# Until a holder was seen: never what asyncio keeps, which may be None (Python 3.12, between runs).
cdef object NO_HOLDER = object()


def note_fork():
    """Count one: called in the child."""
    global forks
    forks += 1


os.register_at_fork(after_in_child=note_fork)


@cython.final
cdef class HomeLoop:
    """The event loop that an object belongs to, told from others for every message."""

    cdef readonly object loop
    cdef object is_running
    cdef object holder
    cdef unsigned long thread_id
    cdef int64_t forks

    def __init__(self, loop):
        self.loop = loop
        self.is_running = loop.is_running
        self.holder = NO_HOLDER
        self.thread_id = PyThread_get_thread_ident()
        self.forks = forks

    cdef inline bint is_this_thread(self) noexcept:
        return PyThread_get_thread_ident() == self.thread_id and forks == self.forks

    cdef bint is_running_here(self) except -1:
        """Return whether the loop runs here; may run Python, and with it anything."""
        cdef PyObject *holder
        if not self.is_this_thread():
            return False
        holder = running(RUNNING_KEY)
        # The holder of a run that has ended is another one, for this one is alive.
        if holder is not NULL and (
            <object>holder is self.holder or <object>holder is self.loop
        ):
            return True
        # With Python 3.14 this is called for every offer: nothing public tells it for less. The
        # loop could be asked only once a turn, but then an offer just after its end would pass.
        if self.is_running() is not True:
            return False
        if holder is not NULL and type(<object>holder).__name__ == "_RunningLoopHolder":
            self.holder = <object>holder
        return True

    def is_here(self):
        """Return whether the loop runs here: in this thread of this process."""
        return self.is_running_here()


@cython.final
cdef class Doorbell:
    """Tells an agent once that there is something to look at, until it has looked."""

    cdef public bint is_rung
    cdef public object answer

    def __init__(self):
        self.answer = None

    cpdef ring(self):
        """Let the agent look, unless it is going to anyhow."""
        if not self.is_rung:
            self.is_rung = True
            if self.answer is not None:
                self.answer()


cdef bint is_seconds(object timeout) except -1:
    """Return whether a timeout is plainly one; what is not is looked at by `check_timeout`."""
    if type(timeout) is float:
        return 0 <= <double>timeout <= 1e9
    return type(timeout) is int and 0 <= timeout <= 1_000_000_000


@cython.final
@cython.auto_pickle(False)
cdef class Step:
    """An offer, or the next message, that was asked for; it is done when it is awaited."""

    cdef int state
    cdef bint is_under_way
    cdef bint is_offer
    cdef object owner
    cdef object data
    cdef object reserved_value
    cdef object timeout
    cdef object coroutine

    cdef object delegate(self):
        """Return the coroutine that does it the long way."""
        if self.state == FRESH:
            if self.is_offer:
                self.coroutine = self.owner._offer_waiting(
                    self.data, self.reserved_value, self.timeout)
            else:
                self.coroutine = self.owner._anext_waiting()
            self.state = DELEGATED
            track(self)
        return self.coroutine

    def __init__(self):
        raise TypeError("steps are made by offering and by iterating")

    cdef object step(self, object value, int *is_done):
        cdef int64_t position
        if self.state == FRESH and value is None and self.owner is not None:
            # Whatever it raises, it has been awaited.
            self.state = DONE
            if self.is_offer:
                if self.timeout is not None and not is_seconds(self.timeout):
                    self.timeout = check_timeout(self.timeout)
                position = (<Offering>self.owner).try_at_once(self.data, self.reserved_value)
                if position >= 0:
                    is_done[0] = 1
                    return position
            else:
                message = (<Reading>self.owner).try_at_once()
                if message is not None:
                    is_done[0] = 1
                    return message
            self.state = FRESH
        if self.state == DONE or self.owner is None:
            raise RuntimeError("cannot reuse already awaited coroutine")
        if self.is_under_way:
            raise ValueError("coroutine already executing")
        coroutine = self.delegate()
        self.is_under_way = True
        try:
            found = send_on(coroutine, value, is_done)
        except BaseException:
            self.finish()
            raise
        finally:
            self.is_under_way = False
        if is_done[0]:
            self.finish()
        return found

    cdef void finish(self):
        self.state = DONE
        self.coroutine = None

    def __await__(self):
        if self.state == DELEGATED and self.coroutine.cr_await is not None:
            raise RuntimeError("coroutine is being awaited already")
        return self

    def __iter__(self):
        return self

    def __next__(self):
        return self.send(None)

    def send(self, value):
        """Run until something has to be waited for."""
        cdef int is_done = 0
        found = self.step(value, &is_done)
        if is_done:
            raise StopIteration(found)
        return found

    def throw(self, *error):
        """Raise an error where it waits."""
        if self.state == DONE:
            raise RuntimeError("cannot reuse already awaited coroutine")
        if self.is_under_way:
            raise ValueError("coroutine already executing")
        coroutine = self.delegate()
        self.is_under_way = True
        try:
            return coroutine.throw(*error)
        except BaseException:
            self.finish()
            raise
        finally:
            self.is_under_way = False

    def close(self):
        """Give up."""
        if self.state == DELEGATED:
            self.coroutine.close()
        self.finish()

    @property
    def __qualname__(self):
        return "Publication.offer" if self.is_offer else "Subscription.__anext__"

    @property
    def __name__(self):
        return "offer" if self.is_offer else "__anext__"

    # Whoever asks for these wants to see a coroutine.

    @property
    def cr_running(self):
        return False if self.state == DONE else self.delegate().cr_running

    @property
    def cr_suspended(self):
        return False if self.state == DONE else self.delegate().cr_suspended

    @property
    def cr_frame(self):
        return None if self.state == DONE else self.delegate().cr_frame

    @property
    def cr_code(self):
        return None if self.state == DONE else self.delegate().cr_code

    @property
    def cr_await(self):
        return None if self.state == DONE else self.delegate().cr_await


cdef Step make_step(object owner, bint is_offer):
    """Return a step of an owner, one used before if there is any."""
    cdef PyObject *spare = spare_step()
    cdef Step step
    if spare is NULL:
        step = Step.__new__(Step)
        untrack(step)
    else:
        step = <Step>spare
        # It was one reference when it came, and is two now.
        Py_DECREF(step)
        step.state = FRESH
    step.is_offer = is_offer
    step.owner = owner
    return step


cdef void empty_step(PyObject *pointer) noexcept:
    """Let go of all that a step holds that nobody holds."""
    step = <Step>pointer
    if step.state == FRESH:
        aside(warn, step.is_offer)
    step.owner = None
    step.data = None
    if step.reserved_value is not 0:
        step.reserved_value = None
    step.timeout = None
    step.coroutine = None


cdef void warn(int is_offer) noexcept:
    name = "Publication.offer" if is_offer else "Subscription.__anext__"
    try:
        PyErr_WarnEx(RuntimeWarning, f"coroutine '{name}' was never awaited".encode(), 1)
    except BaseException:
        PyErr_WriteUnraisable(name)


cdef class Offering:
    """Where messages are offered; see `paths.Offering`."""

    cdef FrameWriter writer
    cdef Cell limit
    cdef public Doorbell _doorbell
    cdef public int64_t _turn_budget
    cdef public bint _is_closed
    cdef public HomeLoop _home

    def __cinit__(self):
        self._turn_budget = 0

    def _attach(self, FrameWriter writer, Cell limit, Doorbell doorbell):
        self.writer = writer
        self.limit = limit
        self._doorbell = doorbell

    def _detach(self):
        self.writer = None
        self.limit = None

    # Bound as a function in Python would be, it costs more to call.
    @cython.binding(False)
    def offer(self, data, *, reserved_value=0, timeout=None):
        """offer($self, data, *, reserved_value=0, timeout=None)\n--\n\nAppend one message, waiting for a subscriber and for room; return its position."""
        cdef Step offer = make_step(self, True)
        offer.data = data
        offer.reserved_value = reserved_value
        offer.timeout = timeout
        return offer

    cdef int64_t try_at_once(self, object data, object reserved_value) except? -1:
        cdef int64_t position
        cdef int64_t reserved = 0
        cdef FrameWriter writer
        if self._turn_budget <= 0 or self._home is None:
            return -1
        # This may run Python, and with it anything: all that is used is looked at after it.
        if not self._home.is_running_here():
            return -1
        if reserved_value is not 0:
            if type(reserved_value) is not int:
                return -1
            try:
                reserved = reserved_value
            except OverflowError:
                return -1
        if self._is_closed or self.writer is None or self._doorbell is None:
            return -1
        if self.limit is None or self.limit.place is NULL:
            return -1
        # Asking an object for its buffer may run Python too.
        writer = self.writer
        position = writer.write_object(data, load_acquire(self.limit.place), reserved)
        if position < 0:
            return -1
        self._turn_budget -= 1
        self._doorbell.ring()
        return position


cdef class Taking:
    """How far a source has been taken; see `paths.Taking`."""

    cdef public int64_t _position
    cdef public int64_t _trigger
    cdef public bint _is_closed
    cdef public Cell _cell
    cdef public Doorbell _doorbell

    def _attach(self, Cell cell, Doorbell doorbell):
        self._cell = cell
        self._doorbell = doorbell

    cpdef take(self, int64_t position):
        """Move the position: the application has taken everything before it."""
        if position <= self._position or self._is_closed:
            return
        self._position = position
        self._cell[0] = position
        if position > self._trigger and not self._doorbell.is_rung:
            self._doorbell.ring()
            if not self._doorbell.is_rung:
                # Answered at once: the driver has said what was to be said, and waits for the next.
                self.move_trigger()


NOTHING = Batch([], None)


cdef class Reading:
    """Where messages are read; see `paths.Reading`."""

    cdef public Batch _batch
    cdef public Message _taken
    cdef public int64_t _turn_budget
    cdef public bint _is_closed
    cdef public HomeLoop _home

    def __cinit__(self):
        self._batch = NOTHING

    def __anext__(self):
        """Return the next message, waiting for it; the iteration ends when this side closes."""
        return make_step(self, False)

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
        if self._turn_budget <= 0 or self._is_closed:
            return None
        if taken is not None:
            if not isinstance(taken.image, Taking):
                return None
            source = <Taking>taken.image
            position = taken.position
            # As `take` does, with all that may raise or is rare left to it.
            if (source._cell is not None and source._cell.place is not NULL
                    and position <= source._trigger):
                if position > source._position and not source._is_closed:
                    source._position = position
                    store_release(source._cell.place, position)
            else:
                source.take(position)
                if position > source._trigger:
                    # The driver has something to say, and cannot before the loop has had its turn.
                    self._turn_budget = 0
        # Taking may have rung a bell, and whoever answered it may have closed the subscription.
        if self._batch is None or self._is_closed:
            return None
        batch = self._batch
        message = batch.hand_out()
        if message is None:
            return None
        self._turn_budget -= 1
        self._taken = message
        return message


def inheriting(kind):
    """Return a class that inherits from `Reading`, for which that costs nothing from now on."""
    if kind.__anext__ is Reading.__anext__:
        inherit_next(<void *>Reading, kind)
    return kind


cdef object take_step(object self, object value, int *is_done):
    return (<Step>self).step(value, is_done)


set_send(<void *>Step, take_step)
keep_spare(<void *>Step, empty_step)
Coroutine.register(Step)
