# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Blocks of frames, written to files by a C thread that does not use the Python interpreter.

A Python thread would wait for the interpreter lock before each write and once more after it, up to
5 ms each time while the event loop is busy. This thread never takes that lock: it takes blocks from
a ring, writes them in order, and reports progress with a byte in a pipe.

The system caches what was written in memory. On some machines new memory is expensive: on a virtual
machine whose host must provide it first, that takes many times as long as the copying. There the
writer drops the cached pages that lie far behind the last block, and the system uses them again for
the next blocks.

A block counts as written when the length of its first frame is in the file, so that length is
written last. The twin `archive.disk.recording_writer` does the same.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport EINTR, EIO, errno
from libc.stdint cimport INT64_MAX, int64_t
from libc.string cimport memset

from os import strerror

cdef extern from "<sys/types.h>" nogil:
    ctypedef long ssize_t
    ctypedef long off_t

cdef extern from "<unistd.h>" nogil:
    """
    #if defined(_POSIX_SYNCHRONIZED_IO) && _POSIX_SYNCHRONIZED_IO > 0
    #define AERON_SYNC_DATA(fd) fdatasync(fd)
    #else
    #define AERON_SYNC_DATA(fd) fsync(fd)
    #endif
    """
    ssize_t pwrite(int fd, const void *data, size_t length, off_t offset)
    ssize_t write(int fd, const void *data, size_t length)
    int fsync(int fd)
    int sync_data "AERON_SYNC_DATA"(int fd)
    int close(int fd)
    int getpid()

cdef extern from "<fcntl.h>" nogil:
    """
    #ifdef SYNC_FILE_RANGE_WRITE
    #define AERON_BEGIN_SYNC(fd, at, length) sync_file_range(fd, at, length, SYNC_FILE_RANGE_WRITE)
    #else
    #define AERON_BEGIN_SYNC(fd, at, length) 0
    #endif
    #ifdef POSIX_FADV_DONTNEED
    #define AERON_GIVE_BACK(fd, at, length) posix_fadvise(fd, at, length, POSIX_FADV_DONTNEED)
    #else
    #define AERON_GIVE_BACK(fd, at, length) 0
    #endif
    """
    int fcntl(int fd, int command, ...)
    int F_DUPFD_CLOEXEC
    int begin_sync "AERON_BEGIN_SYNC"(int fd, off_t offset, off_t length)
    int give_back "AERON_GIVE_BACK"(int fd, off_t offset, off_t length)

cdef extern from "<time.h>" nogil:
    struct timespec:
        int64_t tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec *time)
    int CLOCK_THREAD_CPUTIME_ID

cdef extern from "<signal.h>" nogil:
    ctypedef struct sigset_t:
        pass
    int sigfillset(sigset_t *signals)
    int pthread_sigmask(int how, const sigset_t *signals, sigset_t *before)
    int SIG_SETMASK

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_t:
        pass
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    int pthread_create(pthread_t *thread, const void *, void *(*run)(void *) noexcept nogil, void *)
    int pthread_join(pthread_t thread, void **)
    int pthread_mutex_init(pthread_mutex_t *mutex, const void *)
    int pthread_mutex_lock(pthread_mutex_t *mutex)
    int pthread_mutex_unlock(pthread_mutex_t *mutex)
    int pthread_mutex_destroy(pthread_mutex_t *mutex)
    int pthread_cond_init(pthread_cond_t *condition, const void *)
    int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
    int pthread_cond_signal(pthread_cond_t *condition)
    int pthread_cond_destroy(pthread_cond_t *condition)

DEF LENGTH_SIZE = 4
DEF SLOTS = 16
DEF STEP = 4 << 20
"""Bytes written between two measurements of their cost."""
DEF KEPT = 32 << 20
"""Bytes before the last one that stay cached, for readers that follow the recording.

A recording whose files are much shorter than this stays cached as a whole, because the writer drops
only pages of the current file and of the one before it.
"""
DEF REACH = 256 << 20
"""Bytes dropped in one call; most repeat earlier calls, before which the disk did not have them."""
DEF DEAR_NS = 1
"""Processor time per byte, in nanoseconds, above which memory is expensive; a copy takes 0.25."""


cdef struct Order:
    int file
    int sync_level
    char *data
    int64_t length
    int64_t offset


cdef struct Ring:
    pthread_mutex_t mutex
    pthread_cond_t changed
    Order orders[SLOTS]
    int64_t begun
    int64_t done
    int failure
    int bell
    bint is_rung
    bint is_closing


cdef struct Wake:
    int file
    int file_before
    int64_t end
    int64_t end_before
    int64_t count
    int64_t used_ns
    bint gives_back


cdef int64_t processor_ns() noexcept nogil:
    """Return the processor time of this thread, in nanoseconds."""
    cdef timespec time
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
    return time.tv_sec * 1_000_000_000 + time.tv_nsec


cdef void give_back_before(int file, int64_t offset) noexcept nogil:
    cdef int64_t length = min(offset, REACH)
    if file >= 0 and length > 0:
        give_back(file, offset - length, length)


cdef void heed(Wake *wake, Order *order) noexcept nogil:
    """Measure from time to time what writing costs; drop cached pages if memory is expensive."""
    cdef int64_t used_ns, before
    if wake.file < 0 or order.offset < wake.end:
        # A new file. The caller closes the previous one, of which pages may still be dropped here.
        if wake.file_before >= 0:
            close(wake.file_before)
        wake.file_before, wake.end_before = wake.file, wake.end
        # A program that this process starts must not keep a removed file open.
        wake.file = fcntl(order.file, F_DUPFD_CLOEXEC, 0)
    wake.end = order.offset + order.length
    wake.count += order.length
    if wake.count < STEP:
        return
    used_ns = processor_ns()
    if used_ns - wake.used_ns > DEAR_NS * wake.count:
        wake.gives_back = True
    wake.used_ns = used_ns
    if wake.gives_back:
        if wake.file >= 0:
            begin_sync(wake.file, max(0, wake.end - wake.count), wake.count)
        give_back_before(wake.file, wake.end - KEPT)
        give_back_before(wake.file_before, wake.end_before - max(0, KEPT - wake.end))
    if wake.file_before >= 0 and wake.end >= 2 * KEPT:
        # The file may have been removed, and takes up disk space while it is open.
        close(wake.file_before)
        wake.file_before = -1
    wake.count = 0


cdef int put(int file, const char *data, int64_t length, int64_t offset) noexcept nogil:
    """Write all bytes, with as many calls as needed; return 0, or the error number."""
    cdef ssize_t written
    while length > 0:
        written = pwrite(file, data, length, offset)
        if written < 0:
            if errno != EINTR:
                return errno
        elif written == 0:
            return EIO
        else:
            data += written
            length -= written
            offset += written
    return 0


cdef int wait_for_disk(Order *order) noexcept nogil:
    """Wait until the disk has what was written, unless `sync_level` is 0; return 0 or the error."""
    cdef int result = 0
    if order.sync_level > 1:
        result = fsync(order.file)
    elif order.sync_level:
        result = sync_data(order.file)
    return errno if result else 0


cdef int carry_out(Order *order) noexcept nogil:
    """Write a block: first all behind the first length, then that length; return 0 or the error."""
    cdef int failure = put(order.file, order.data + LENGTH_SIZE, order.length - LENGTH_SIZE,
                           order.offset + LENGTH_SIZE)
    if failure == 0:
        failure = wait_for_disk(order)
    if failure == 0:
        failure = put(order.file, order.data, LENGTH_SIZE, order.offset)
    if failure == 0:
        failure = wait_for_disk(order)
    return failure


cdef void *serve(void *given) noexcept nogil:
    """Carry out orders until one fails, or until the ring is empty and closing."""
    cdef Ring *ring = <Ring *>given
    cdef Order order
    cdef int failure
    cdef bint rings
    cdef Wake wake
    memset(&wake, 0, sizeof(wake))
    wake.file = wake.file_before = -1
    wake.used_ns = processor_ns()
    pthread_mutex_lock(&ring.mutex)
    while ring.failure == 0:
        if ring.begun == ring.done:
            if ring.is_closing:
                break
            pthread_cond_wait(&ring.changed, &ring.mutex)
            continue
        order = ring.orders[ring.done % SLOTS]
        pthread_mutex_unlock(&ring.mutex)
        failure = carry_out(&order)
        if failure == 0:
            heed(&wake, &order)
        pthread_mutex_lock(&ring.mutex)
        if failure:
            ring.failure = failure
        else:
            ring.done += 1
        rings = not ring.is_rung
        ring.is_rung = True
        if rings:
            pthread_mutex_unlock(&ring.mutex)
            # If the pipe is full, its reader will wake in any case.
            write(ring.bell, b"!", 1)
            pthread_mutex_lock(&ring.mutex)
    pthread_mutex_unlock(&ring.mutex)
    if wake.file >= 0:
        close(wake.file)
    if wake.file_before >= 0:
        close(wake.file_before)
    return NULL


# The garbage collector would clear the owner of the buffer without releasing the buffer.
@cython.no_gc
@cython.final
cdef class BlockWriter:
    """Writes blocks in its own thread, one after the other; see the module.

    Args:
        bell: Non-blocking file descriptor; receives a byte when an order was carried out or failed.

    Raises:
        OSError: The thread cannot be created.
    """

    cdef Ring ring
    cdef pthread_t thread
    cdef bint is_running
    cdef int process
    cdef Py_buffer views[SLOTS]
    cdef int64_t collected
    cdef int64_t held

    def __cinit__(self, int bell):
        cdef sigset_t every, before
        cdef int failure
        pthread_mutex_init(&self.ring.mutex, NULL)
        pthread_cond_init(&self.ring.changed, NULL)
        self.ring.bell = bell
        self.process = getpid()
        # The thread blocks all signals: Python's handlers must run in Python's threads.
        sigfillset(&every)
        pthread_sigmask(SIG_SETMASK, &every, &before)
        failure = pthread_create(&self.thread, NULL, serve, &self.ring)
        pthread_sigmask(SIG_SETMASK, &before, NULL)
        if failure:
            raise OSError(failure, strerror(failure))
        self.is_running = True

    def __dealloc__(self):
        self.end()
        if self.process == getpid():
            # In a forked process, destroying would wait for a thread that does not exist there.
            pthread_cond_destroy(&self.ring.changed)
            pthread_mutex_destroy(&self.ring.mutex)

    @property
    def in_flight(self):
        """Return how many blocks were begun and not yet collected."""
        return self.ring.begun - self.collected

    def begin(self, int file, block not None, int64_t offset, int sync_level):
        """Order a block to be written; its memory is held until the block is collected.

        Args:
            file: File descriptor, which stays open until the block is collected.
            block: Whole frames.
            offset: Offset in the file, in bytes.
            sync_level: 0 does not wait for the disk; 1 waits for the data, and 2 also for the
                metadata, before and after the first length is written.

        Raises:
            ValueError: 16 blocks are in flight; the block is shorter than a length, or the offset
                is negative, or no file is that long; the thread has ended, or belongs to another
                process.
        """
        cdef Order *order
        cdef Py_buffer view
        PyObject_GetBuffer(block, &view, PyBUF_SIMPLE)
        # Afterwards, as getting the buffer may run Python code.
        if not self.has_thread() or self.ring.begun - self.collected >= SLOTS:
            PyBuffer_Release(&view)
            raise ValueError(f"at most {SLOTS} blocks are written at once, and none when closed")
        if view.len < LENGTH_SIZE or not 0 <= offset <= INT64_MAX - view.len:
            PyBuffer_Release(&view)
            raise ValueError("a block has a length at least, and lies in its file")
        self.views[self.ring.begun % SLOTS] = view
        order = &self.ring.orders[self.ring.begun % SLOTS]
        order.file = file
        order.sync_level = sync_level
        order.data = <char *>view.buf
        order.length = view.len
        order.offset = offset
        self.held += 1
        pthread_mutex_lock(&self.ring.mutex)
        self.ring.begun += 1
        pthread_cond_signal(&self.ring.changed)
        pthread_mutex_unlock(&self.ring.mutex)

    def collect(self):
        """Return how many blocks were written since the last call, and the error number or 0.

        After an error no further block is written. The memory of written blocks is released. In a
        forked process both results are 0.
        """
        cdef int64_t done
        cdef int64_t count = 0
        cdef int failure
        if self.process != getpid():
            return 0, 0
        pthread_mutex_lock(&self.ring.mutex)
        self.ring.is_rung = False
        done = self.ring.done
        failure = self.ring.failure
        pthread_mutex_unlock(&self.ring.mutex)
        # One by one, as letting go of one may run Python code, which may collect the others.
        while self.collected < done:
            count += 1
            self.let_go()
        return count, failure

    cdef void let_go(self) noexcept:
        """Release the memory of the next block."""
        cdef Py_buffer view = self.views[self.collected % SLOTS]
        self.collected += 1
        PyBuffer_Release(&view)

    def close(self):
        """Wait until all blocks are written or one has failed. When closed, do nothing.

        Blocks that were written must still be collected. The memory of all others is released.
        """
        self.stop()
        while self.held > self.ring.done:
            self.held -= 1
            PyBuffer_Release(&self.views[self.held % SLOTS])

    cdef bint has_thread(self) noexcept:
        # A forked process has the memory of its parent, but not its threads.
        return self.is_running and self.process == getpid()

    cdef void stop(self) noexcept:
        cdef pthread_t thread = self.thread
        if not self.has_thread():
            return
        self.is_running = False
        with nogil:
            pthread_mutex_lock(&self.ring.mutex)
            self.ring.is_closing = True
            pthread_cond_signal(&self.ring.changed)
            pthread_mutex_unlock(&self.ring.mutex)
            pthread_join(thread, NULL)

    cdef void end(self) noexcept:
        """Stop the thread, and release the memory of all blocks."""
        self.stop()
        while self.collected < self.held:
            self.let_go()
