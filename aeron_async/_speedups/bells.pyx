# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Who rings the bells of processes that sleep; `aeron_async.doorbell` has the protocol.

Whoever has stored something that another process may wait for rings afterwards: a full fence, a
look at the word of the bell, and a call to the system only if its owner is asleep.

A publication that the driver sends rings once in a turn of its event loop, and again at the end of
the turn if it must. Otherwise a driver on the same processor, which the system runs as soon as it
is woken, would take the processor from the publisher after each message, do all its work for that
one, and sleep again.

Nothing here touches the memory in a child process that is forked: it is the parent's.
"""

import os
from operator import index as as_number

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport calloc, free, realloc

from aeron_async._speedups.paths cimport WakeFlag

DEF TURN_NS = 500_000
"""After this time a turn counts as over, as it does for a task that never waits: see `YieldBudget`."""

cdef int64_t forks = 0


def note_fork():
    """Count one fork; called in the child."""
    global forks
    forks += 1


os.register_at_fork(after_in_child=note_fork)


cdef uint32_t *word_of(Py_buffer *view, Py_ssize_t at) except NULL:
    """Return a 32-bit word of a buffer."""
    if at < 0 or at > view.len - 4 or (<size_t>view.buf + <size_t>at) & 3:
        raise IndexError(f"no word of 4 bytes at offset {at} in a buffer of {view.len}")
    return <uint32_t *>(<char *>view.buf + at)


cdef inline bint ring_word(uint32_t *asleep) noexcept nogil:
    """Wake the owner of a bell if it is asleep; return whether it was. A fence came before."""
    # A counter that has the place of a bell by now has none of its values, and is left alone.
    if get(asleep) != ASLEEP or not swap(asleep, ASLEEP, AWAKE):
        return False
    futex_ring(asleep)
    return True


cdef inline bint ring_resting(uint32_t *asleep) noexcept nogil:
    """The same, also if it waits for commands and answers alone."""
    if ring_word(asleep):
        return True
    if get(asleep) != RESTING or not swap(asleep, RESTING, AWAKE):
        return False
    futex_ring(asleep)
    return True


# The garbage collector must not clear `refresh` while `set` may be called.
@cython.no_gc_clear
@cython.final
@cython.auto_pickle(False)
cdef class BellFlag(WakeFlag):
    """Wakes the processes that wait for what was stored, each by its bell if it is asleep.

    It is never set: whoever is awake sees by itself what has been stored.

    Args:
        values: Memory that processes share; it is held until `close`.
        mode_at: Where the driver counts the changes of who waits for what; see
            `aeron_async.doorbell`.
        refresh: Called when the count has changed; returns the places of the bells, in bytes, or
            None to be called again by the next `set`. No counter has two bells, so there are no
            more places than counters.
        call_soon: Calls a function in the next turn of the event loop, as `loop.call_soon` does;
            None to ring as often as an owner is asleep.

    Raises:
        IndexError: The word does not lie within the memory.
    """

    # By a pointer: the collector would visit what a field refers to, and clear it while it is held.
    cdef Py_buffer *view
    cdef int64_t forks
    cdef uint32_t *mode
    cdef uint32_t seen
    cdef uint32_t **bells
    cdef Py_ssize_t bell_count
    cdef object refresh
    cdef object call_soon
    cdef int64_t rung_ns
    cdef bint has_rung
    cdef bint owes_ring

    def __init__(self, values, Py_ssize_t mode_at, refresh, call_soon):
        cdef Py_buffer *view
        WakeFlag.__init__(self)
        if self.view is not NULL:
            raise ValueError("a flag is made once: make another")
        view = <Py_buffer *>calloc(1, sizeof(Py_buffer))
        if view is NULL:
            raise MemoryError
        try:
            PyObject_GetBuffer(values, view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        except BaseException:
            free(view)
            raise
        try:
            self.mode = word_of(view, mode_at)
        except BaseException:
            PyBuffer_Release(view)
            free(view)
            raise
        self.view = view
        self.forks = forks
        self.refresh = refresh
        self.call_soon = call_soon
        # No count of the driver's: its lowest bit is that of polling.
        self.seen = POLLING

    def __dealloc__(self):
        self.close()

    cpdef set(self):
        """Ring every bell whose owner is asleep; to be called after something was stored.

        With `call_soon`, and if they were rung in this turn of the loop, they are rung again at its
        end, or with the first call half a millisecond later.
        """
        cdef uint32_t mode
        cdef Py_ssize_t index
        if self.view is NULL or self.forks != forks:
            return
        fence()
        mode = get(self.mode)
        if mode & POLLING:
            return
        if mode != self.seen:
            self.look(mode)
        for index in range(self.bell_count):
            if get(self.bells[index]) == ASLEEP:
                self.ring_or_owe()
                return

    cdef int ring_or_owe(self) except -1:
        cdef int64_t now_ns = monotonic_ns()
        cdef Py_ssize_t index
        if self.has_rung and now_ns - self.rung_ns < TURN_NS:
            self.owes_ring = True
            return 0
        self.owes_ring = False
        self.rung_ns = now_ns
        for index in range(self.bell_count):
            ring_word(self.bells[index])
        if not self.has_rung and self.call_soon is not None:
            try:
                self.call_soon(self.end_turn)
            except RuntimeError:
                # The loop is closed: each call rings.
                return 0
            self.has_rung = True
        return 0

    def end_turn(self):
        """Ring for what was stored since the bells were rung in this turn."""
        self.has_rung = False
        if self.owes_ring:
            self.owes_ring = False
            self.set()

    cdef int look(self, uint32_t mode) except -1:
        """Find out whose bells there are."""
        cdef uint32_t **bells
        cdef Py_ssize_t place
        found = self.refresh()
        if found is None:
            return 0
        # Getting a number may run Python code, too, which may close this.
        cdef list places = [as_number(each) for each in found]
        if self.view is NULL:
            return 0
        self.bell_count = 0
        bells = <uint32_t **>realloc(self.bells, max(1, len(places)) * sizeof(uint32_t *))
        if bells is NULL:
            raise MemoryError
        self.bells = bells
        for place in places:
            self.bells[self.bell_count] = word_of(self.view, place)
            self.bell_count += 1
        self.seen = mode
        return 0

    cpdef close(self):
        """Ring for the last time if a ring is owed, and let go of the memory.

        A second call does nothing.
        """
        cdef Py_buffer *view = self.view
        cdef Py_ssize_t index
        if view is not NULL:
            if self.owes_ring and self.forks == forks:
                for index in range(self.bell_count):
                    ring_word(self.bells[index])
            self.view = NULL
            self.bell_count = 0
            free(self.bells)
            self.bells = NULL
            PyBuffer_Release(view)
            free(view)


@cython.no_gc
@cython.final
cdef class Bells:
    """Rings the bells whose words lie in one memory.

    Args:
        values: Memory that processes share; it is held until `close`.
    """

    cdef Py_buffer view
    cdef bint is_open
    cdef int64_t forks

    def __init__(self, values):
        if self.is_open:
            raise ValueError("they are made once: make others")
        PyObject_GetBuffer(values, &self.view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        self.is_open = True
        self.forks = forks

    def __dealloc__(self):
        self.close()

    def ring(self, Py_ssize_t place, *, bint is_command=False):
        """Wake the owner of the bell at a place, if it is asleep; return whether it was.

        To be called after something was stored for it. An owner that rests is woken only by a
        command or an answer.

        Raises:
            IndexError: The word does not lie within the memory.
        """
        if not self.is_open or self.forks != forks:
            return False
        fence()
        if is_command:
            return ring_resting(word_of(&self.view, place))
        return ring_word(word_of(&self.view, place))

    cpdef close(self):
        """Ring no more, and let go of the memory; a second call does nothing."""
        if self.is_open:
            self.is_open = False
            PyBuffer_Release(&self.view)
