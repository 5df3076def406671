# cython: language_level=3, boundscheck=False, wraparound=False
# cython: initializedcheck=False
"""Memory that other processes share: files mapped into memory, and atomic access to their words.

A process that truncates such a file kills, with SIGBUS, every process that touches what is gone: no
code here or elsewhere can help that. Only the permissions of the directory can.

A child process that is forked does not inherit the memory, and the system may give the child other
memory at the same address. So nothing here touches it in a child, not even to unmap it.
"""

import os

cimport cython
from cpython.buffer cimport (
    PyBUF_FORMAT, PyBUF_ND, PyBUF_SIMPLE, PyBUF_STRIDES, PyBUF_WRITABLE, PyBuffer_Release,
    PyObject_GetBuffer)
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_SetFromErrno
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memmove, memset

cdef extern from *:
    """
    #include <sys/mman.h>
    #ifndef MAP_POPULATE
    #define MAP_POPULATE 0
    #endif
    #define AERON_LOAD(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
    #define AERON_STORE(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
    #define AERON_ADD(p, v) __atomic_fetch_add((p), (v), __ATOMIC_SEQ_CST)
    #define AERON_EXCHANGE(p, v) __atomic_exchange_n((p), (v), __ATOMIC_SEQ_CST)
    #define AERON_SWAP(p, e, v) \\
        __atomic_compare_exchange_n((p), (e), (v), 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)
    #define AERON_FENCE() __atomic_thread_fence(__ATOMIC_SEQ_CST)
    #define AERON_ACQUIRE_FENCE() __atomic_thread_fence(__ATOMIC_ACQUIRE)
    #define AERON_RELEASE_FENCE() __atomic_thread_fence(__ATOMIC_RELEASE)
    /* A child of fork must not write here: its parent alone keeps the protocol's promises. */
    static int aeron_map(void **place, size_t length, int fd, long long offset,
                         int writable, int populate) {
        int protection = PROT_READ | (writable ? PROT_WRITE : 0);
        int flags = MAP_SHARED | (populate ? MAP_POPULATE : 0);
        void *found = mmap(NULL, length, protection, flags, fd, (off_t)offset);
        if (found == MAP_FAILED) return -1;
    #ifdef MADV_DONTFORK
        if (madvise(found, length, MADV_DONTFORK) != 0) {
            munmap(found, length);
            return -1;
        }
    #endif
        *place = found;
        return 0;
    }
    """
    int32_t load_32 "AERON_LOAD"(int32_t *place) noexcept nogil
    int64_t load_64 "AERON_LOAD"(int64_t *place) noexcept nogil
    void store_32 "AERON_STORE"(int32_t *place, int32_t value) noexcept nogil
    void store_64 "AERON_STORE"(int64_t *place, int64_t value) noexcept nogil
    # Unsigned, because only unsigned integers wrap around in C.
    uint32_t add_32 "AERON_ADD"(uint32_t *place, uint32_t value) noexcept nogil
    uint64_t add_64 "AERON_ADD"(uint64_t *place, uint64_t value) noexcept nogil
    int32_t exchange_32 "AERON_EXCHANGE"(int32_t *place, int32_t value) noexcept nogil
    int64_t exchange_64 "AERON_EXCHANGE"(int64_t *place, int64_t value) noexcept nogil
    bint swap_32 "AERON_SWAP"(int32_t *place, int32_t *expected, int32_t value) noexcept nogil
    bint swap_64 "AERON_SWAP"(int64_t *place, int64_t *expected, int64_t value) noexcept nogil
    void fence "AERON_FENCE"() noexcept nogil
    void acquire "AERON_ACQUIRE_FENCE"() noexcept nogil
    void release "AERON_RELEASE_FENCE"() noexcept nogil
    int aeron_map(void **place, size_t length, int fd, long long offset,
                  int writable, int populate) noexcept nogil

cdef extern from "<sys/mman.h>" nogil:
    int munmap(void *place, size_t length)


cdef int64_t forks = 0
cdef char *BYTES = b"B"


def note_fork():
    """Count one fork; called in the child."""
    global forks
    forks += 1


os.register_at_fork(after_in_child=note_fork)


@cython.no_gc
@cython.final
cdef class Mapping:
    """A file, or a part of it, mapped into memory and shared with all that map it.

    The file's descriptor may be closed at once; unlike `mmap.mmap`, this keeps no copy of it. A
    child process that is forked must not touch a memoryview of it: that cannot be refused.

    Args:
        fd: Descriptor of the file, open for what the mapping is to do.
        length: Bytes to map, at least 1; the file must be that long.
        offset: Where in the file it begins: a multiple of the page size.
        is_writable: Whether the memory may be changed.
        is_populated: Whether every page is brought into memory now, instead of at its first use.

    Attributes:
        length: In bytes; 0 once it is closed.

    Raises:
        OSError: The system refused.
        ValueError: The length is below 1, the offset negative, or the file too short.
    """

    cdef void *place
    cdef readonly Py_ssize_t length
    cdef readonly bint is_writable
    cdef int64_t export_count
    cdef int64_t forks

    def __cinit__(self, int fd, Py_ssize_t length, *, long long offset=0, bint is_writable=True,
                  bint is_populated=False):
        if length < 1 or offset < 0:
            raise ValueError(f"cannot map {length} bytes from offset {offset}")
        # To touch a page behind the end of the file would kill the process.
        file_length = os.fstat(fd).st_size
        if <object>offset + length > file_length:
            raise ValueError(
                f"cannot map {length} bytes from offset {offset} of a file of {file_length}")
        self.forks = forks
        cdef int failed
        with nogil:
            failed = aeron_map(&self.place, length, fd, offset, is_writable, is_populated)
        if failed:
            PyErr_SetFromErrno(OSError)
        self.length = length
        self.is_writable = is_writable

    def close(self):
        """Unmap the memory; a second call does nothing.

        Raises:
            BufferError: Something still holds a view of it; it stays mapped.
        """
        if self.length == 0:
            return
        cdef int64_t count = load_64(&self.export_count)
        if count:
            raise BufferError(f"cannot unmap memory that {count} views hold")
        self.unmap()

    cdef void unmap(self) noexcept:
        cdef Py_ssize_t length = self.length
        # First: other threads run while the system frees the pages, 0.2 ms for each MiB of them.
        self.length = 0
        if length and self.forks == forks:
            with nogil:
                munmap(self.place, length)

    def __len__(self):
        return self.length

    def __getbuffer__(self, Py_buffer *view, int flags):
        if self.length == 0:
            raise BufferError("the mapping is closed")
        if self.forks != forks:
            raise BufferError("the mapping belongs to the parent of this process")
        if flags & PyBUF_WRITABLE and not self.is_writable:
            raise BufferError("the mapping is not writable")
        view.obj = self
        view.buf = self.place
        view.len = self.length
        view.readonly = not self.is_writable
        view.itemsize = 1
        view.format = NULL
        if flags & PyBUF_FORMAT:
            view.format = BYTES
        view.ndim = 1
        view.shape = &view.len if flags & PyBUF_ND else NULL
        view.strides = &view.itemsize if flags & PyBUF_STRIDES == PyBUF_STRIDES else NULL
        view.suboffsets = NULL
        view.internal = NULL
        add_64(<uint64_t *>&self.export_count, 1)

    def __releasebuffer__(self, Py_buffer *view):
        add_64(<uint64_t *>&self.export_count, <uint64_t>-1)

    def __dealloc__(self):
        # Nothing holds a view of it now: a view holds the mapping.
        self.unmap()


@cython.no_gc
@cython.final
cdef class AtomicBuffer:
    """Words and bytes of a buffer, read and written in the order that other processes rely on.

    Every access is checked: a word lies within the buffer and at a multiple of its size; otherwise
    it raises IndexError, and OverflowError for a number that does not fit. The buffer is held until
    `release`. In a child process that is forked, every access to a `Mapping` raises IndexError.

    Args:
        buffer: Writable memory; a `Mapping`, or any other.
        offset: Where in it this one begins: a multiple of 8, at an address that is one.
        length: Its length in bytes; None for all that follows.

    Attributes:
        length: In bytes; 0 once it is released.

    Raises:
        IndexError: The part does not lie within the buffer.
        TypeError: The buffer is not writable, not contiguous, or a closed mapping.
        ValueError: It begins at no multiple of 8.

    Source: Agrona `AtomicBuffer`, `UnsafeBuffer`.
    """

    cdef Py_buffer view
    cdef bint is_held
    cdef char *place
    cdef readonly Py_ssize_t length
    cdef int64_t forks

    def __cinit__(self, object buffer, Py_ssize_t offset=0, object length=None):
        owner = buffer.obj if isinstance(buffer, memoryview) else buffer
        # Memory of another kind is the child's own.
        self.forks = forks if isinstance(owner, Mapping) else -1
        try:
            PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        except BufferError as error:
            raise TypeError(str(error)) from None
        self.is_held = True
        cdef Py_ssize_t rest = self.view.len - offset if offset >= 0 else -1
        cdef Py_ssize_t wanted = rest if length is None else length
        if wanted < 0 or wanted > rest:
            raise IndexError(
                f"no {wanted} bytes from offset {offset} in a buffer of {self.view.len}")
        self.place = <char *>self.view.buf + offset
        if <size_t>self.place % 8:
            raise ValueError(f"offset {offset} is at an address that is no multiple of 8")
        self.length = wanted

    def __dealloc__(self):
        if self.is_held:
            PyBuffer_Release(&self.view)

    def release(self):
        """Stop using the memory; every later access raises IndexError. A second call does nothing."""
        if self.is_held:
            self.is_held = False
            self.length = 0
            PyBuffer_Release(&self.view)

    def __len__(self):
        return self.length

    cdef int check_usable(self) except -1:
        if not self.is_held:
            raise IndexError("the buffer is released: nothing of it can be accessed")
        if self.forks >= 0 and self.forks != forks:
            raise IndexError("the memory belongs to the parent of this process")
        return 0

    cdef void *word(self, Py_ssize_t offset, Py_ssize_t size) except NULL:
        self.check_usable()
        # One comparison of unsigned numbers refuses a negative offset as well.
        if (<size_t>offset > <size_t>self.length or size > self.length - offset
                or offset & (size - 1)):
            raise IndexError(
                f"no word of {size} bytes at offset {offset} in a buffer of {self.length}")
        return self.place + offset

    cdef char *part(self, Py_ssize_t offset, Py_ssize_t length) except NULL:
        self.check_usable()
        if (<size_t>offset > <size_t>self.length or <size_t>length > <size_t>self.length
                or length > self.length - offset):
            raise IndexError(
                f"no {length} bytes at offset {offset} in a buffer of {self.length}")
        return self.place + offset

    def load_acquire_32(self, Py_ssize_t offset):
        """Return a 32-bit word; later loads are not moved before this one."""
        return load_32(<int32_t *>self.word(offset, 4))

    def load_acquire_64(self, Py_ssize_t offset):
        """Return a 64-bit word; see `load_acquire_32`."""
        return load_64(<int64_t *>self.word(offset, 8))

    def store_release_32(self, Py_ssize_t offset, int32_t value):
        """Store a 32-bit word; a reader that sees it also sees all earlier stores."""
        store_32(<int32_t *>self.word(offset, 4), value)

    def store_release_64(self, Py_ssize_t offset, int64_t value):
        """Store a 64-bit word; see `store_release_32`."""
        store_64(<int64_t *>self.word(offset, 8), value)

    def store_volatile_32(self, Py_ssize_t offset, int32_t value):
        """Store a 32-bit word; no later access is moved before this store."""
        store_32(<int32_t *>self.word(offset, 4), value)
        # A sequentially consistent store alone would let a later plain load pass it on arm64.
        fence()

    def store_volatile_64(self, Py_ssize_t offset, int64_t value):
        """Store a 64-bit word; see `store_volatile_32`."""
        store_64(<int64_t *>self.word(offset, 8), value)
        fence()

    def fetch_add_32(self, Py_ssize_t offset, int32_t delta):
        """Add to a 32-bit word, with wrap-around; return its old value."""
        return <int32_t>add_32(<uint32_t *>self.word(offset, 4), <uint32_t>delta)

    def fetch_add_64(self, Py_ssize_t offset, int64_t delta):
        """Add to a 64-bit word, with wrap-around; return its old value."""
        return <int64_t>add_64(<uint64_t *>self.word(offset, 8), <uint64_t>delta)

    def exchange_32(self, Py_ssize_t offset, int32_t value):
        """Store a 32-bit word; return its old value."""
        return exchange_32(<int32_t *>self.word(offset, 4), value)

    def exchange_64(self, Py_ssize_t offset, int64_t value):
        """Store a 64-bit word; return its old value."""
        return exchange_64(<int64_t *>self.word(offset, 8), value)

    def compare_and_swap_32(self, Py_ssize_t offset, int32_t expected, int32_t value):
        """Store a 32-bit word if its value is `expected`; return whether it was."""
        return swap_32(<int32_t *>self.word(offset, 4), &expected, value)

    def compare_and_swap_64(self, Py_ssize_t offset, int64_t expected, int64_t value):
        """Store a 64-bit word if its value is `expected`; return whether it was."""
        return swap_64(<int64_t *>self.word(offset, 8), &expected, value)

    def get_bytes(self, Py_ssize_t offset, Py_ssize_t length):
        """Return a copy of some bytes, in no particular order to other accesses."""
        return PyBytes_FromStringAndSize(self.part(offset, length), length)

    def put_bytes(self, Py_ssize_t offset, const unsigned char[::1] data not None):
        """Store some bytes, in no particular order to other accesses."""
        cdef char *place = self.part(offset, data.shape[0])
        if data.shape[0]:
            # The data may be a part of the same memory.
            memmove(place, &data[0], data.shape[0])

    def zero(self, Py_ssize_t offset, Py_ssize_t length):
        """Fill some bytes with zeros, in no particular order to other accesses."""
        memset(self.part(offset, length), 0, length)


def full_fence():
    """Let no access, of whatever kind, pass this call in either direction."""
    fence()


def acquire_fence():
    """Let no later load or store be moved before an earlier load."""
    acquire()


def release_fence():
    """Let no earlier load or store be moved behind a later store."""
    release()
