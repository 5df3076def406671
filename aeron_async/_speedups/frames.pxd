"""What the compiled modules know of a frame: its header, its words, and where it may lie.

Lengths, tails and positions are stored with release and loaded with acquire semantics, so that a reader on another
processor never sees one before what it stands for.
"""

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #include <stdint.h>
    #define AERON_STORE_RELEASE(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
    #define AERON_LOAD_ACQUIRE(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
    /* Three cache lines, which is a short frame, eight such frames ahead; of long frames it fetches what nobody
       needs, and they are few. The address may be beyond the memory: fetching is no access, and never fails. */
    #define AERON_AHEAD(p, n) __builtin_prefetch((const void *)((uintptr_t)(p) + (n)))
    #define AERON_PREFETCH(p) (AERON_AHEAD(p, 1024), AERON_AHEAD(p, 1088), AERON_AHEAD(p, 1152))
    /* Most frames are as long as the one before. A processor that may guess so looks at the next one before it
       has loaded this length; the empty statement keeps compilers from making a calculation of the branch. */
    static inline int64_t aeron_step(int32_t length, int32_t *usual, int64_t *step) {
        if (__builtin_expect(length != *usual, 0)) {
            *usual = length;
            *step = ((int64_t)length + 31) & ~(int64_t)31;
            __asm__ volatile("");
        }
        return *step;
    }
    """
    void store_release_32 "AERON_STORE_RELEASE"(int32_t *place, int32_t value) noexcept nogil
    int32_t load_acquire_32 "AERON_LOAD_ACQUIRE"(int32_t *place) noexcept nogil
    void store_release_64 "AERON_STORE_RELEASE"(int64_t *place, int64_t value) noexcept nogil
    int64_t load_acquire_64 "AERON_LOAD_ACQUIRE"(int64_t *place) noexcept nogil
    void prefetch "AERON_PREFETCH"(const char *place) noexcept nogil
    int64_t step_of "aeron_step"(int32_t length, int32_t *usual, int64_t *step) noexcept nogil

cdef enum:
    HEADER = 32
    FLAGS_BITS = 0xC000
    BEGIN_BIT = 0x8000
    END_BIT = 0x4000


cdef inline int64_t align(int64_t length) noexcept nogil:
    return (length + 31) & ~(<int64_t>31)


cdef inline int32_t peek_32(const char *place) noexcept nogil:
    """Return a 32-bit word of a peer's data, at any address, aligned or not."""
    cdef int32_t value
    memcpy(&value, place, 4)
    return value


cdef inline bint is_slot(Py_buffer *view, int64_t offset) noexcept nogil:
    """Return whether an offset is aligned and in the view, or at its end."""
    return 0 <= offset <= view.len and not offset & 31 and not <size_t>view.buf & 7
