# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Words of shared memory, watched by a C thread that does not use the Python interpreter.

Other processes store into these words and signal nothing. The thread looks at the armed words, and
when the condition of one holds, it disarms the word and writes to an eventfd, which wakes the event
loop. A word is armed for one fire, and with the value that the caller has seen: a store between
the caller's look and the arming fires too, so there is no moment at which a store can be missed.

The thread owns nothing that Python frees, and takes no lock. What it shares with Python are these
words; every access that the reasoning below rests on is sequentially consistent:

- `sequence` is odd while the thread looks at the slots. To disarm, Python clears `is_armed` and, if
  the sequence is odd, waits until it changes. Either the thread sees the cleared flag, or Python
  sees the odd sequence. Afterwards the thread touches neither the slot nor the memory of its word.
- `is_armed` is taken by exchange, so that a word is either fired or disarmed, never both.
- `gate` is increased after a word was armed, and after `is_stopping` was set. The thread reads it
  before it looks at the slots, and sleeps only while it has that value (a futex).
- `is_rung` is set before the eventfd is written, and cleared before Python looks for fired words.

Python's own part of the state is guarded by the interpreter lock, which is never released between
reading and changing it: every call but `close` and `dispatch` may be made by any Python thread.

A process of this package need not be looked for: it rings. A thread with a bell says in a word of
shared memory that it is asleep, and whoever stores into memory that it may watch looks at that word
afterwards; see `aeron_async.doorbell`. Both sides store, fence, and then load what the other side
has stored, so at least one of them sees the other. The word is a futex, which the ringer wakes.
Arming a word leaves such a thread asleep, unless the word has changed already: a fence lies between
the arming and that look. After a ring for nothing it stays awake for a moment, and does not look.

In a child process that is forked there is no thread, and the memory and the eventfd are the
parent's. Nothing here touches them there, but to close the child's copy of the descriptor.
"""

import os

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_SetFromErrno
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from aeron_async._speedups.bells cimport (
    ASLEEP, AWAKE, POLLING, RESTING, fence, futex_ring, get, monotonic_ns, swap, word_of)

from aeron_async.errors import ClosedError, ConfigurationError

cdef extern from *:
    """
    #include <linux/futex.h>
    #include <sched.h>
    #include <stdint.h>
    #include <sys/eventfd.h>
    #include <sys/prctl.h>
    #include <sys/syscall.h>
    #include <time.h>
    #include <unistd.h>
    #if defined(__x86_64__) || defined(__i386__)
    #define AERON_PAUSE() __builtin_ia32_pause()
    #elif defined(__aarch64__)
    #define AERON_PAUSE() __asm__ volatile("yield")
    #else
    #define AERON_PAUSE() ((void)0)
    #endif
    #define AERON_SET(p, v) __atomic_store_n((p), (v), __ATOMIC_SEQ_CST)
    #define AERON_TAKE(p, v) __atomic_exchange_n((p), (v), __ATOMIC_SEQ_CST)
    #define AERON_INCREASE(p) __atomic_fetch_add((p), 1, __ATOMIC_SEQ_CST)
    #define AERON_WORD(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
    /* Only the thread writes counts, so it needs no atomic addition. */
    #define AERON_COUNT(p) \\
        __atomic_store_n((p), __atomic_load_n((p), __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED)
    #define AERON_NOTE(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
    #define AERON_COUNTED(p) __atomic_load_n((p), __ATOMIC_RELAXED)
    #define AERON_LOG2(v) (31 - __builtin_clz(v))
    /* Wait at most so long, or without limit if that is negative, while the word has the value. */
    static void aeron_futex_wait(uint32_t *word, uint32_t value, int64_t nap_ns) {
        struct timespec nap = { (time_t)(nap_ns / 1000000000), (long)(nap_ns % 1000000000) };
        syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, nap_ns < 0 ? NULL : &nap, NULL, 0);
    }
    static void aeron_futex_wake(uint32_t *word) {
        syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    }
    /* The same for a word in memory that processes share. */
    static void aeron_futex_doze(uint32_t *word, uint32_t value, int64_t nap_ns) {
        struct timespec nap = { (time_t)(nap_ns / 1000000000), (long)(nap_ns % 1000000000) };
        syscall(SYS_futex, word, FUTEX_WAIT, value, &nap, NULL, 0);
    }
    static void aeron_ring(int bell) {
        uint64_t one = 1;
        /* It cannot be full: one write at most is unread. */
        ssize_t written = write(bell, &one, sizeof one);
        (void)written;
    }
    static void aeron_empty_bell(int bell) {
        uint64_t count;
        ssize_t found = read(bell, &count, sizeof count);
        (void)found;
    }
    static void aeron_prepare_watching(void) {
        prctl(PR_SET_NAME, "aeron-watcher", 0, 0, 0);
        /* Naps end when they are due, and not up to 50 us later. */
        prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    }
    """
    void pause "AERON_PAUSE"() noexcept nogil
    void set "AERON_SET"(uint32_t *place, uint32_t value) noexcept nogil
    uint32_t take "AERON_TAKE"(uint32_t *place, uint32_t value) noexcept nogil
    void increase "AERON_INCREASE"(uint32_t *place) noexcept nogil
    uint32_t *get_place "AERON_GET"(uint32_t **place) noexcept nogil
    void set_place "AERON_SET"(uint32_t **place, uint32_t *value) noexcept nogil
    int32_t word_32 "AERON_WORD"(int32_t *place) noexcept nogil
    int64_t word_64 "AERON_WORD"(int64_t *place) noexcept nogil
    void count "AERON_COUNT"(uint64_t *place) noexcept nogil
    void note "AERON_NOTE"(uint64_t *place, uint64_t value) noexcept nogil
    uint64_t counted "AERON_COUNTED"(uint64_t *place) noexcept nogil
    uint32_t log2 "AERON_LOG2"(uint32_t value) noexcept nogil
    void futex_wait "aeron_futex_wait"(uint32_t *word, uint32_t value, int64_t nap_ns) nogil
    void futex_wake "aeron_futex_wake"(uint32_t *word) nogil
    void futex_doze "aeron_futex_doze"(uint32_t *word, uint32_t value, int64_t nap_ns) nogil
    void ring_bell "aeron_ring"(int bell) noexcept nogil
    void empty_bell "aeron_empty_bell"(int bell) noexcept nogil
    void prepare_watching "aeron_prepare_watching"() noexcept nogil
    int eventfd(unsigned int count, int flags) noexcept nogil
    int EFD_CLOEXEC
    int EFD_NONBLOCK
    int sched_yield() noexcept nogil
    int close_fd "close"(int fd) noexcept nogil

cdef extern from "<signal.h>" nogil:
    ctypedef struct sigset_t:
        pass
    int sigfillset(sigset_t *signals)
    int pthread_sigmask(int how, const sigset_t *signals, sigset_t *before)
    int SIG_SETMASK

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_t:
        pass
    int pthread_create(pthread_t *thread, const void *, void *(*run)(void *) noexcept nogil, void *)
    int pthread_join(pthread_t thread, void **)

DEF FIRST_CHUNK = 64
DEF FIRST_CHUNK_LOG2 = 6
DEF CHUNKS = 26
DEF NO_SLOT = 0xFFFFFFFF
DEF SPINS_FOR_SCAN = 1000
"""How often Python looks whether the thread has finished, before it offers it the processor."""
DEF REST_NS = 50_000
"""How long the thread stays awake, without looking, after it was rung for nothing."""
DEF FIRED = 1
DEF ARMED = 2
DEF DOZED = 4
DEF WAITING = 8
"""A word stays armed that is of a stream: a task waits for it."""
DEF RUNG = 16
"""Someone has ended the sleep, and it was not over."""
DEF RUNNING = 0
DEF NAPPING = 1
DEF PARKED = 2
DEF DOZING = 3
DEF RESTED = 4


cdef struct Slot:
    void *place
    int64_t expected
    # The word, which removes itself here before it is freed; for Python alone.
    void *word
    uint32_t is_armed
    uint32_t has_fired
    uint32_t index
    uint32_t next_free
    uint32_t width
    bint is_at_least
    bint is_command


cdef struct State:
    # Chunks double the number of slots, and never move: the thread reads them without a lock.
    Slot *chunks[CHUNKS]
    uint32_t slot_count
    uint32_t is_stopping
    uint64_t max_spins
    uint64_t max_yields
    int64_t min_nap_ns
    int64_t max_nap_ns
    int64_t silence_ns
    int64_t silent_nap_ns
    bint pauses
    int bell
    # The words of its bell; NULL without one.
    uint32_t *asleep
    uint32_t *mode
    int64_t doze_ns
    uint64_t bell_until_ns
    # Each of these is written often, by one side, and read by the other.
    char before_sequence[64]
    uint32_t sequence
    char before_gate[64]
    uint32_t gate
    uint32_t slept_at_gate
    uint32_t activity
    uint32_t is_rung
    char before_counts[64]
    uint64_t scan_count
    uint64_t nap_count
    uint64_t park_count
    uint64_t fire_count
    uint64_t wake_up_count
    uint64_t last_nap_ns
    uint64_t doze_count


cdef struct Ladder:
    uint64_t spins
    uint64_t yields
    int64_t nap_ns
    int64_t first_nap_at_ns


cdef inline uint32_t chunk_length(int chunk) noexcept nogil:
    return FIRST_CHUNK if chunk == 0 else <uint32_t>FIRST_CHUNK << (chunk - 1)


cdef inline Slot *slot_at(State *state, uint32_t index) noexcept nogil:
    if index < FIRST_CHUNK:
        return &state.chunks[0][index]
    cdef uint32_t power = log2(index)
    return &state.chunks[power - FIRST_CHUNK_LOG2 + 1][index - (<uint32_t>1 << power)]


cdef inline bint holds(Slot *slot) noexcept nogil:
    cdef int64_t value
    if slot.width == 8:
        value = word_64(<int64_t *>slot.place)
    else:
        value = word_32(<int32_t *>slot.place)
    return value >= slot.expected if slot.is_at_least else value != slot.expected


cdef int scan(State *state) noexcept nogil:
    """Fire every armed word whose condition holds; return what has fired, or stays armed."""
    cdef uint32_t left = get(&state.slot_count)
    cdef uint32_t index, length
    cdef int chunk = 0
    cdef int found = 0
    cdef Slot *slot
    while left:
        length = min(left, chunk_length(chunk))
        slot = state.chunks[chunk]
        for index in range(length):
            if get(&slot.is_armed):
                if not holds(slot):
                    found |= ARMED if slot.is_command else ARMED | WAITING
                elif take(&slot.is_armed, 0):
                    # Otherwise it was disarmed in this moment.
                    set(&slot.has_fired, 1)
                    count(&state.fire_count)
                    found |= FIRED
            slot += 1
        left -= length
        chunk += 1
    return found


cdef void sleep_at_gate(State *state, uint32_t gate, uint32_t activity, int64_t ns) noexcept nogil:
    """Sleep until a word is armed, the time is over, or the thread is to stop."""
    set(&state.slept_at_gate, gate)
    set(&state.activity, activity)
    # Who sets `is_stopping` after this sees the activity, and wakes the thread.
    if not get(&state.is_stopping):
        futex_wait(&state.gate, gate, ns)
    set(&state.activity, RUNNING)


cdef bint may_doze(State *state) noexcept nogil:
    """Return whether every process that stores into the words would ring."""
    if get_place(&state.asleep) is NULL or get(state.mode) & POLLING:
        return False
    # Its bell belongs to this process only for as long as its driver knows it.
    return <uint64_t>monotonic_ns() < counted(&state.bell_until_ns)


cdef int doze(State *state, uint32_t gate, bint is_waiting) noexcept nogil:
    """Sleep until another process rings, a word is armed, or it is time to look all the same.

    Returns what a look has found that came after the word said that this thread is asleep, and
    whether another process rang.
    """
    cdef uint32_t *asleep = state.asleep
    # A word that is armed after the look changes the gate, so that this does not sleep then.
    cdef uint32_t bell = ASLEEP if is_waiting else RESTING
    cdef int found = 0
    set(&state.slept_at_gate, gate)
    # Who arms a word after this sees it, and wakes the thread.
    set(&state.activity, DOZING)
    if swap(asleep, AWAKE, bell):
        fence()
        increase(&state.sequence)
        found = scan(state)
        increase(&state.sequence)
        # Who has said in the meantime that all must look has rung nobody who was awake.
        if (not found & FIRED and get(&state.gate) == gate and not get(&state.is_stopping)
                and not get(state.mode) & POLLING):
            count(&state.doze_count)
            futex_doze(asleep, bell, state.doze_ns)
        if not swap(asleep, bell, AWAKE):
            found |= RUNG
    else:
        # Something else has written there. It must not keep this thread busy.
        sleep_at_gate(state, gate, NAPPING, state.max_nap_ns)
    set(&state.activity, RUNNING)
    return found


cdef void climb(State *state, Ladder *ladder, uint32_t gate) noexcept nogil:
    """Idle once: spin, yield, or nap, each time for longer."""
    cdef int64_t limit_ns = state.max_nap_ns
    cdef int64_t now_ns
    if ladder.spins < state.max_spins:
        ladder.spins += 1
        if state.pauses:
            pause()
        return
    if ladder.yields < state.max_yields:
        ladder.yields += 1
        sched_yield()
        return
    if state.silent_nap_ns > limit_ns:
        now_ns = monotonic_ns()
        if ladder.first_nap_at_ns == 0:
            ladder.first_nap_at_ns = now_ns
        if now_ns - ladder.first_nap_at_ns >= state.silence_ns:
            limit_ns = state.silent_nap_ns
    count(&state.nap_count)
    note(&state.last_nap_ns, <uint64_t>ladder.nap_ns)
    sleep_at_gate(state, gate, NAPPING, ladder.nap_ns)
    # Compared before it is doubled, so that it cannot overflow.
    ladder.nap_ns = limit_ns if ladder.nap_ns > limit_ns // 2 else ladder.nap_ns * 2


cdef void ring(State *state) noexcept nogil:
    if not take(&state.is_rung, 1):
        ring_bell(state.bell)


cdef inline bint has_climbed(State *state, Ladder *ladder) noexcept nogil:
    """Return whether nothing is left but to nap."""
    return ladder.spins >= state.max_spins and ladder.yields >= state.max_yields


cdef void *watch(void *given) noexcept nogil:
    """Look at the armed words until the thread is to stop."""
    cdef State *state = <State *>given
    cdef uint32_t gate, seen_gate = 0
    cdef int found
    cdef bint is_idle, is_rung = False
    cdef Ladder ladder
    memset(&ladder, 0, sizeof(ladder))
    ladder.nap_ns = state.min_nap_ns
    prepare_watching()
    while not get(&state.is_stopping):
        gate = get(&state.gate)
        increase(&state.sequence)
        found = scan(state)
        increase(&state.sequence)
        count(&state.scan_count)
        is_idle = not found & FIRED and found & ARMED and gate == seen_gate
        if is_idle and has_climbed(state, &ladder):
            if is_rung and may_doze(state):
                # A busy stream rings, and this process waits for something else. A sleep now would
                # end at once, and cost a call to the system here and there.
                count(&state.nap_count)
                sleep_at_gate(state, gate, RESTED, REST_NS)
            # After the rest, in which the driver may have said that all must look.
            if may_doze(state):
                found |= doze(state, gate, found & WAITING) | DOZED
        is_rung = found & RUNG
        if found & FIRED or gate != seen_gate:
            # Someone works with these words: be quick again.
            seen_gate = gate
            memset(&ladder, 0, sizeof(ladder))
            ladder.nap_ns = state.min_nap_ns
            if found & FIRED and not take(&state.is_rung, 1):
                count(&state.wake_up_count)
                ring_bell(state.bell)
        elif found & DOZED:
            pass
        elif found & ARMED:
            climb(state, &ladder, gate)
        else:
            count(&state.park_count)
            sleep_at_gate(state, gate, PARKED, -1)
    return NULL


cdef inline void open_gate(State *state) noexcept nogil:
    """Let the thread look at its words, and at whether it is to stop."""
    increase(&state.gate)
    wake(state, get(&state.activity))


cdef inline void wake(State *state, uint32_t activity) noexcept nogil:
    """Wake the thread from what it does, after the gate was increased."""
    if activity == DOZING:
        # Also if the word is awake: another process may have written that, and rung nobody.
        if not swap(state.asleep, ASLEEP, AWAKE):
            swap(state.asleep, RESTING, AWAKE)
        futex_ring(state.asleep)
    elif activity != RUNNING:
        futex_wake(&state.gate)


cdef inline void note_armed(State *state, Slot *slot) noexcept nogil:
    """Let the thread look at a word that was armed, unless it will anyway.

    A busy process arms words all the time, and would wake the thread each time.
    """
    cdef uint32_t activity
    increase(&state.gate)
    activity = get(&state.activity)
    if activity == RESTED:
        return
    if activity == DOZING and get(state.asleep) == ASLEEP and not get(state.mode) & POLLING:
        # Who stores into the word from now on rings; what was stored before is seen here.
        fence()
        if not holds(slot):
            return
    wake(state, activity)


cdef void finish_scan(State *state) noexcept nogil:
    """Wait until the thread has finished the scan that it is in, if it is in one."""
    cdef uint32_t sequence = get(&state.sequence)
    cdef int spins = 0
    if sequence & 1:
        while get(&state.sequence) == sequence:
            spins += 1
            if spins < SPINS_FOR_SCAN:
                pause()
            else:
                # It lost the processor in mid scan. It needs no lock that is held here.
                sched_yield()


cdef int64_t forks = 0


def note_fork():
    """Count one fork; called in the child."""
    global forks
    forks += 1


os.register_at_fork(after_in_child=note_fork)


# The garbage collector must not clear the owner, which `__dealloc__` needs.
@cython.no_gc_clear
@cython.final
cdef class WatchedWord:
    """A word of memory that a `WatchThread` looks at while it is armed; made by `add`.

    It holds the memory until it is removed. A word that is not referenced any more is removed.
    """

    cdef WatchThread owner
    cdef Slot *slot
    cdef Py_buffer *view
    cdef object callback
    cdef bint is_waiting

    @property
    def is_armed(self):
        """Whether a callback is still to come."""
        return self.is_waiting

    def arm(self, int64_t expected):
        """Call back once when the word is not `expected`, also if it already is not.

        Pass the very value from which the caller decided to wait: a second read could miss a store
        that came between the two. A word that is armed is armed for this value instead.

        Raises:
            ClosedError: The word is removed, or belongs to the parent of this process.
            OverflowError: The value does not fit into the word.
        """
        self.start(expected, False)

    def arm_at_least(self, int64_t value):
        """Call back once when the word, as a signed number, is at least `value`; see `arm`."""
        self.start(value, True)

    def disarm(self):
        """Let no callback come; return whether one was still to come.

        Raises:
            ClosedError: The word belongs to the parent of this process.
        """
        if self.slot is NULL:
            return False
        if self.owner.forks != forks:
            raise ClosedError("the watcher belongs to the parent of this process")
        if not self.is_waiting:
            return False
        self.stop()
        return True

    def remove(self):
        """Disarm the word and stop holding the memory; a second call does nothing."""
        self.release()

    cdef int start(self, int64_t expected, bint is_at_least) except -1:
        cdef Slot *slot = self.slot
        if slot is NULL:
            raise ClosedError("the word is removed, or its watcher closed")
        self.owner.check_usable()
        if slot.width == 4 and expected != <int32_t>expected:
            raise OverflowError(f"{expected} does not fit into a word of 32 bits")
        if self.is_waiting:
            if (slot.expected == expected and slot.is_at_least == is_at_least
                    and get(&slot.is_armed)):
                # The thread looks for this already, and its naps stay as long as they are.
                return 0
            self.stop()
        slot.expected = expected
        slot.is_at_least = is_at_least
        self.is_waiting = True
        set(&slot.is_armed, 1)
        note_armed(self.owner.state, slot)
        return 0

    cdef void stop(self) noexcept:
        self.is_waiting = False
        take(&self.slot.is_armed, 0)
        finish_scan(self.owner.state)
        set(&self.slot.has_fired, 0)

    cdef void release(self) noexcept:
        cdef Slot *slot = self.slot
        cdef Py_buffer *view = self.view
        if slot is NULL:
            return
        if self.is_waiting and self.owner.forks == forks:
            self.stop()
        self.is_waiting = False
        self.slot = NULL
        self.view = NULL
        self.owner.free_slot(slot)
        # These may call Python, which finds the word removed.
        PyBuffer_Release(view)
        free(view)
        self.callback = None

    def __dealloc__(self):
        self.release()


@cython.no_gc
@cython.final
cdef class WatchThread:
    """The thread, and the slots of its words; see the module.

    Args:
        max_spins: How often it looks before it begins to yield the processor.
        max_yields: How often it yields before it begins to nap.
        min_nap_ns: Its first nap; each one takes twice as long as the one before.
        max_nap_ns: Its longest nap.
        silent_nap_ns: Its longest nap after a time in which no word was armed or has fired; no
            effect unless it is longer than `max_nap_ns`.
        silence_ns: That time.
        pauses: Whether it tells the processor that it spins.
        word_limit: Most words that it has at once.

    Raises:
        OSError: The system gives no thread, or no eventfd.
    """

    cdef State *state
    cdef pthread_t thread
    cdef bint is_open
    cdef int64_t forks
    cdef uint32_t word_limit
    cdef uint32_t free_head
    cdef uint32_t capacity
    cdef Py_buffer bell_view
    cdef bint has_bell
    cdef readonly uint32_t word_count

    def __cinit__(self, *, uint64_t max_spins, uint64_t max_yields, int64_t min_nap_ns,
                  int64_t max_nap_ns, int64_t silent_nap_ns, int64_t silence_ns, bint pauses,
                  uint32_t word_limit):
        cdef sigset_t every, before
        cdef int failure
        if min_nap_ns < 1 or max_nap_ns < min_nap_ns:
            raise ValueError(f"cannot nap for {min_nap_ns} to {max_nap_ns} ns")
        self.forks = forks
        self.free_head = NO_SLOT
        # More than the last chunk ends with.
        self.word_limit = min(word_limit, <uint32_t>FIRST_CHUNK << (CHUNKS - 1))
        self.state = <State *>calloc(1, sizeof(State))
        if self.state is NULL:
            raise MemoryError
        self.state.max_spins = max_spins
        self.state.max_yields = max_yields
        self.state.min_nap_ns = min_nap_ns
        self.state.max_nap_ns = max_nap_ns
        self.state.silent_nap_ns = silent_nap_ns
        self.state.silence_ns = silence_ns
        self.state.pauses = pauses
        self.state.bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
        if self.state.bell < 0:
            PyErr_SetFromErrno(OSError)
        # The thread blocks all signals: Python's handlers must run in Python's threads.
        sigfillset(&every)
        pthread_sigmask(SIG_SETMASK, &every, &before)
        failure = pthread_create(&self.thread, NULL, watch, self.state)
        pthread_sigmask(SIG_SETMASK, &before, NULL)
        if failure:
            close_fd(self.state.bell)
            raise OSError(failure, os.strerror(failure))
        self.is_open = True

    def __dealloc__(self):
        cdef int chunk
        self.end()
        self.drop_bell()
        if self.state is not NULL:
            for chunk in range(CHUNKS):
                free(self.state.chunks[chunk])
            free(self.state)

    def fileno(self):
        """Return the descriptor of the eventfd, which is readable when words have fired."""
        return self.state.bell

    @property
    def is_forked(self):
        """Whether the thread belongs to the parent of this process."""
        return self.forks != forks

    @property
    def is_closed(self):
        return not self.is_open

    @property
    def is_parked(self):
        """Whether the thread sleeps until a word is armed, however long that takes."""
        # A thread that was woken, and has not run yet, is not parked any more.
        return (get(&self.state.activity) == PARKED
                and get(&self.state.slept_at_gate) == get(&self.state.gate))

    @property
    def is_napping(self):
        """Whether the thread sleeps for a short time."""
        return get(&self.state.activity) == NAPPING

    @property
    def scan_count(self):
        return counted(&self.state.scan_count)

    @property
    def nap_count(self):
        return counted(&self.state.nap_count)

    @property
    def park_count(self):
        return counted(&self.state.park_count)

    @property
    def fire_count(self):
        return counted(&self.state.fire_count)

    @property
    def wake_up_count(self):
        return counted(&self.state.wake_up_count)

    @property
    def doze_count(self):
        return counted(&self.state.doze_count)

    @property
    def is_dozing(self):
        """Whether the thread sleeps until another process rings."""
        return get(&self.state.activity) == DOZING

    @property
    def last_nap_ns(self):
        """How long its latest nap was to last; 0 before the first."""
        return counted(&self.state.last_nap_ns)

    def add(self, object buffer, Py_ssize_t offset, int width, object callback not None, *,
            bint is_command=False):
        """Return a word of a buffer, not armed; the buffer is held until it is removed.

        Args:
            buffer: Memory that is contiguous, such as a `Mapping`.
            offset: Where in it the word begins: at an address that is a multiple of its size.
            width: 32 or 64 bits.
            callback: Called without arguments by `dispatch`.
            is_command: Whether who stores into it rings a bell whose owner rests.

        Raises:
            ClosedError: The watcher is closed, or belongs to the parent of this process.
            ConfigurationError: There are as many words as allowed.
            IndexError: The word does not lie within the buffer.
            ValueError: The width is another, or the address no multiple of it.
        """
        cdef WatchedWord word = WatchedWord.__new__(WatchedWord)
        cdef Py_ssize_t size = width // 8
        cdef Py_buffer *view
        cdef Slot *slot
        self.check_usable()
        if width != 32 and width != 64:
            raise ValueError(f"a word has 32 or 64 bits, not {width}")
        view = <Py_buffer *>calloc(1, sizeof(Py_buffer))
        if view is NULL:
            raise MemoryError
        try:
            PyObject_GetBuffer(buffer, view, PyBUF_SIMPLE)
        except BaseException:
            free(view)
            raise
        try:
            if offset < 0 or offset > view.len - size:
                raise IndexError(
                    f"no word of {size} bytes at offset {offset} in a buffer of {view.len}")
            if (<size_t>view.buf + <size_t>offset) % <size_t>size:
                raise ValueError(f"offset {offset} is at an address that is no multiple of {size}")
            # To get the buffer may have called Python, which may have closed the watcher.
            self.check_usable()
            slot = self.take_slot()
        except BaseException:
            PyBuffer_Release(view)
            free(view)
            raise
        slot.place = <char *>view.buf + offset
        slot.width = <uint32_t>size
        slot.is_command = is_command
        slot.word = <void *>word
        word.owner = self
        word.slot = slot
        word.view = view
        word.callback = callback
        self.word_count += 1
        return word

    def use_bell(self, object values, Py_ssize_t asleep_at, Py_ssize_t mode_at, int64_t doze_ns):
        """Sleep until another process rings, where all that store into the words do.

        Args:
            values: Memory that processes share; it is held until the watcher is closed.
            asleep_at: Where the word of the bell is, in bytes.
            mode_at: Where the driver says whether all must look; see `aeron_async.doorbell`.
            doze_ns: Longest sleep.

        Raises:
            ClosedError: The watcher is closed, or belongs to the parent of this process.
            IndexError: A word does not lie within the memory.
            ValueError: It has a bell, or there is no such sleep.
        """
        self.check_usable()
        if self.has_bell or doze_ns < 1:
            raise ValueError(f"the thread has a bell, or cannot sleep for {doze_ns} ns")
        PyObject_GetBuffer(values, &self.bell_view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        self.has_bell = True
        try:
            self.state.mode = word_of(&self.bell_view, mode_at)
            self.state.doze_ns = doze_ns
            set(word_of(&self.bell_view, asleep_at), AWAKE)
            set_place(&self.state.asleep, word_of(&self.bell_view, asleep_at))
        except BaseException:
            self.drop_bell()
            raise

    def keep_bell(self, int64_t ns):
        """Sleep so only for as long as this: afterwards the word may belong to something else."""
        cdef int64_t now_ns = monotonic_ns()
        ns = max(-now_ns, min(ns, INT64_MAX - now_ns))
        note(&self.state.bell_until_ns, <uint64_t>(now_ns + ns))

    cdef void drop_bell(self) noexcept:
        """Let go of the memory; the thread has ended, or has never had it."""
        if self.has_bell:
            self.has_bell = False
            PyBuffer_Release(&self.bell_view)

    def dispatch(self, object on_error):
        """Call back for all words that have fired; to be called when the eventfd is readable.

        Args:
            on_error: Called with every `Exception` of a callback. Anything else ends the call, and
                the callbacks that are left follow in the next one.
        """
        cdef State *state = self.state
        cdef WatchedWord word
        cdef Slot *slot
        cdef uint32_t index = 0
        if not self.has_thread():
            return
        empty_bell(state.bell)
        # Before the look: what fires from now on rings again.
        take(&state.is_rung, 0)
        while self.is_open and index < state.slot_count:
            slot = slot_at(state, index)
            index += 1
            if not get(&slot.has_fired):
                continue
            set(&slot.has_fired, 0)
            word = <WatchedWord>slot.word
            word.is_waiting = False
            try:
                callback = word.callback
                try:
                    callback()
                except Exception as error:
                    on_error(error)
            except BaseException:
                if self.has_thread():
                    ring(state)
                raise

    def close(self):
        """Remove all words, stop the thread, and close the eventfd; a second call does nothing.

        In a child process that is forked, only the child's copy of the descriptor is closed.
        """
        cdef uint32_t index = 0
        cdef WatchedWord word
        self.end()
        self.drop_bell()
        while index < self.capacity:
            slot = slot_at(self.state, index)
            index += 1
            if slot.word is not NULL:
                # Held, as what it lets go of may have been all that held it.
                word = <WatchedWord>slot.word
                word.release()

    cdef bint has_thread(self) noexcept:
        return self.is_open and self.forks == forks

    cdef int check_usable(self) except -1:
        if self.forks != forks:
            raise ClosedError("the watcher belongs to the parent of this process")
        if not self.is_open:
            raise ClosedError("the watcher is closed")
        return 0

    cdef Slot *take_slot(self) except NULL:
        """Return a slot that no word uses, and that is not armed."""
        cdef State *state = self.state
        cdef Slot *slot
        cdef uint32_t length
        cdef int chunk = 0
        if self.word_count >= self.word_limit:
            raise ConfigurationError(
                f"the watcher has all {self.word_limit} words that it may have: "
                "raise its word_limit, or remove words")
        if self.free_head != NO_SLOT:
            slot = slot_at(state, self.free_head)
            self.free_head = slot.next_free
            return slot
        if state.slot_count == self.capacity:
            while state.chunks[chunk] is not NULL:
                chunk += 1
            length = chunk_length(chunk)
            state.chunks[chunk] = <Slot *>calloc(length, sizeof(Slot))
            if state.chunks[chunk] is NULL:
                raise MemoryError
            self.capacity += length
        slot = slot_at(state, state.slot_count)
        slot.index = state.slot_count
        # The thread sees the chunk if it sees the count.
        set(&state.slot_count, state.slot_count + 1)
        return slot

    cdef void free_slot(self, Slot *slot) noexcept:
        slot.word = NULL
        slot.place = NULL
        slot.next_free = self.free_head
        self.free_head = slot.index
        self.word_count -= 1

    cdef void end(self) noexcept:
        """Stop the thread if it is of this process, and close the eventfd."""
        cdef pthread_t thread = self.thread
        cdef bint joins = self.has_thread()
        if not self.is_open:
            return
        self.is_open = False
        if joins:
            set(&self.state.is_stopping, 1)
            open_gate(self.state)
            with nogil:
                pthread_join(thread, NULL)
        close_fd(self.state.bell)
