# cython: language_level=3, boundscheck=False, wraparound=False
# cython: initializedcheck=False, freethreading_compatible=True
"""Atomic loads and stores on shared memory, in C; twins of the functions in `logbuffer.atomics`."""

cimport cython
from cpython.buffer cimport PyBUF_FORMAT, PyBUF_ND, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

cdef extern from *:
    """
    #define AERON_LOAD(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
    #define AERON_STORE(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
    #define AERON_ADD(p, v) __atomic_fetch_add((p), (v), __ATOMIC_SEQ_CST)
    #define AERON_SWAP(p, e, v) \\
        __atomic_compare_exchange_n((p), (e), (v), 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)
    """
    int32_t load_32 "AERON_LOAD"(int32_t *place) noexcept nogil
    int64_t load_64 "AERON_LOAD"(int64_t *place) noexcept nogil
    void store_32 "AERON_STORE"(int32_t *place, int32_t value) noexcept nogil
    void store_64 "AERON_STORE"(int64_t *place, int64_t value) noexcept nogil
    # Unsigned, because only unsigned integers wrap around in C.
    uint32_t add_32 "AERON_ADD"(uint32_t *place, uint32_t value) noexcept nogil
    uint64_t add_64 "AERON_ADD"(uint64_t *place, uint64_t value) noexcept nogil
    bint swap_32 "AERON_SWAP"(int32_t *place, int32_t *expected, int32_t value) noexcept nogil
    bint swap_64 "AERON_SWAP"(int64_t *place, int64_t *expected, int64_t value) noexcept nogil

IS_ATOMIC = True


@cython.no_gc
@cython.final
cdef class Word:
    """One word of a view; holds the view's buffer while the word is accessed."""

    cdef Py_buffer view
    cdef bint is_held
    cdef void *place

    def __cinit__(self, object view, Py_ssize_t index, int size, int flags):
        try:
            PyObject_GetBuffer(view, &self.view, PyBUF_ND | PyBUF_FORMAT | flags)
        except BufferError as error:
            raise TypeError(str(error)) from None
        self.is_held = True
        if self.view.itemsize != size:
            raise TypeError(
                f"a view of items of {size} bytes is wanted, not of {self.view.itemsize}")
        if not 0 <= index < self.view.len // size:
            raise IndexError(f"no word {index} in a view of {self.view.len // size}")
        self.place = <char *>self.view.buf + index * size
        # Not every processor loads or stores such a word in one piece; the twin cannot check this.
        if <size_t>self.place % <size_t>size:
            raise ValueError(f"a word of {size} bytes at an address that is no multiple of {size}")

    def __dealloc__(self):
        if self.is_held:
            PyBuffer_Release(&self.view)


def load_acquire_32(view, Py_ssize_t index):
    """Return a 32-bit word; later loads are not moved before this one."""
    cdef Word word = Word(view, index, 4, 0)
    return load_32(<int32_t *>word.place)


def load_acquire_64(view, Py_ssize_t index):
    """Return a 64-bit word; see `load_acquire_32`."""
    cdef Word word = Word(view, index, 8, 0)
    return load_64(<int64_t *>word.place)


def store_release_32(view, Py_ssize_t index, int32_t value):
    """Store a 32-bit word; a reader that sees it also sees all earlier stores."""
    cdef Word word = Word(view, index, 4, PyBUF_WRITABLE)
    store_32(<int32_t *>word.place, value)


def store_release_64(view, Py_ssize_t index, int64_t value):
    """Store a 64-bit word; see `store_release_32`."""
    cdef Word word = Word(view, index, 8, PyBUF_WRITABLE)
    store_64(<int64_t *>word.place, value)


def fetch_add_32(view, Py_ssize_t index, int64_t delta):
    """Add to a 32-bit word, with wrap-around; return its old value."""
    cdef Word word = Word(view, index, 4, PyBUF_WRITABLE)
    return <int32_t>add_32(<uint32_t *>word.place, <uint32_t>delta)


def fetch_add_64(view, Py_ssize_t index, int64_t delta):
    """Add to a 64-bit word, with wrap-around; return its old value."""
    cdef Word word = Word(view, index, 8, PyBUF_WRITABLE)
    return <int64_t>add_64(<uint64_t *>word.place, <uint64_t>delta)


def compare_and_swap_32(view, Py_ssize_t index, int32_t expected, int32_t value):
    """Store a 32-bit word if its value is `expected`; return whether it was."""
    cdef Word word = Word(view, index, 4, PyBUF_WRITABLE)
    return swap_32(<int32_t *>word.place, &expected, value)


def compare_and_swap_64(view, Py_ssize_t index, int64_t expected, int64_t value):
    """Store a 64-bit word if its value is `expected`; return whether it was."""
    cdef Word word = Word(view, index, 8, PyBUF_WRITABLE)
    return swap_64(<int64_t *>word.place, &expected, value)
