"""What a bell is: its words, and how processes look at them, change them and wake each other."""

from libc.stdint cimport int64_t, uint32_t

cdef extern from *:
    """
    #include <linux/futex.h>
    #include <stdint.h>
    #include <sys/syscall.h>
    #include <time.h>
    #include <unistd.h>
    #define AERON_GET(p) __atomic_load_n((p), __ATOMIC_SEQ_CST)
    #define AERON_FENCE() __atomic_thread_fence(__ATOMIC_SEQ_CST)
    static inline int aeron_swap(uint32_t *word, uint32_t before, uint32_t after) {
        return __atomic_compare_exchange_n(word, &before, after, 0, __ATOMIC_SEQ_CST,
                                           __ATOMIC_SEQ_CST);
    }
    /* Wake who sleeps on a word in memory that processes share. */
    static inline void aeron_futex_ring(uint32_t *word) {
        syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
    }
    static inline int64_t aeron_monotonic_ns(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    }
    """
    uint32_t get "AERON_GET"(uint32_t *place) noexcept nogil
    void fence "AERON_FENCE"() noexcept nogil
    bint swap "aeron_swap"(uint32_t *place, uint32_t before, uint32_t after) noexcept nogil
    void futex_ring "aeron_futex_ring"(uint32_t *word) noexcept nogil
    int64_t monotonic_ns "aeron_monotonic_ns"() noexcept nogil

# What the word of a bell holds: values that no other counter has, whose place may once have been
# that of a bell. And the bit of the driver's word that says that all must look.
cdef enum:
    POLLING = 1
    AWAKE = 0x6C6C6562
    ASLEEP = 0x6C6C6563
    RESTING = 0x6C6C6564

cdef uint32_t *word_of(Py_buffer *view, Py_ssize_t at) except NULL
