# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""A look at words of shared memory for a moment, before a reader sleeps; see `watcher.Spinner`."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT64_MAX, int32_t, int64_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <time.h>
    #if defined(__x86_64__) || defined(__i386__)
    #define AERON_SPIN_PAUSE() __builtin_ia32_pause()
    #elif defined(__aarch64__)
    #define AERON_SPIN_PAUSE() __asm__ volatile("yield")
    #else
    #define AERON_SPIN_PAUSE() ((void)0)
    #endif
    #define AERON_SPIN_GET(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
    static int64_t aeron_spin_clock_ns(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    }
    """
    void pause "AERON_SPIN_PAUSE"() noexcept nogil
    int32_t get "AERON_SPIN_GET"(int32_t *place) noexcept nogil
    int64_t clock_ns "aeron_spin_clock_ns"() noexcept nogil

DEF WORDS_MAX = 16
DEF TURNS_FOR_CLOCK = 16
"""How often the words are looked at before the clock is."""


cdef bint look(int32_t **places, int32_t *expected, int count, int64_t ns) noexcept nogil:
    cdef int64_t now_ns = clock_ns()
    cdef int64_t end_ns = now_ns + min(ns, INT64_MAX - now_ns)
    cdef int turn, index
    while True:
        for turn in range(TURNS_FOR_CLOCK):
            for index in range(count):
                if get(places[index]) != expected[index]:
                    return True
            pause()
        if clock_ns() >= end_ns:
            return False


def spin(list words not None, int64_t ns):
    """Look at words until one of them changes; return whether one has.

    Other threads run in the meantime.

    Args:
        words: Up to 16 of them: memory, the offset of 32 bits in it, and their signed value now.
        ns: For how long, in nanoseconds.

    Raises:
        IndexError: A word does not lie within its memory.
        ValueError: There are more than 16, or an offset is at an address that is no multiple of 4.
    """
    cdef Py_buffer views[WORDS_MAX]
    cdef int32_t *places[WORDS_MAX]
    cdef int32_t expected[WORDS_MAX]
    cdef Py_ssize_t offset
    cdef int count = 0
    cdef int index
    cdef bint has_changed
    if len(words) > WORDS_MAX:
        raise ValueError(f"{len(words)} words, and at most {WORDS_MAX} are looked at")
    try:
        # A copy, as getting a number may run Python code, which may make the list longer.
        for memory, at, value in tuple(words):
            # Held, as another thread may want to unmap it.
            PyObject_GetBuffer(memory, &views[count], PyBUF_SIMPLE)
            count += 1
            offset = at
            if offset < 0 or offset > views[count - 1].len - 4:
                raise IndexError(f"no word of 4 bytes at offset {offset} in a buffer of "
                                 f"{views[count - 1].len}")
            if (<size_t>views[count - 1].buf + <size_t>offset) & 3:
                raise ValueError(f"offset {offset} is at an address that is no multiple of 4")
            places[count - 1] = <int32_t *>(<char *>views[count - 1].buf + offset)
            expected[count - 1] = value
        with nogil:
            has_changed = look(places, expected, count, ns)
        return has_changed
    finally:
        for index in range(count):
            PyBuffer_Release(&views[index])
