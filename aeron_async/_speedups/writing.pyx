# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Blocks of frames written to files in a thread that the interpreter knows nothing of.

A thread of the interpreter would wait for its turn before it writes and once more afterwards, up to
5 ms each time while the event loop is busy. This one never has a turn: it takes blocks out of a
ring, writes them in their order, and says so by a byte in a pipe.

The system keeps what was written in memory, and where that is dear, as on a virtual machine whose
host has it to find first, fetching memory takes many times what copying takes. There the memory of
what lies well behind is given back, and used again for what comes.

A block is believed when the length of its first frame is there, so that is written last, as
`archive.disk.recording_writer` does it, which is the twin of this.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport EINTR, EIO, errno
from libc.stdint cimport int64_t
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
"""Bytes between two looks at what they cost."""
DEF KEPT = 32 << 20
"""Bytes behind the last that stay in memory: whoever follows reads them there.

All of a recording whose files are much shorter than this stays there: two of them are looked at.
"""
DEF REACH = 256 << 20
"""Bytes before those that are asked for again: the disk may not have had them the first time."""
DEF DEAR_NS = 1
"""Processor time of a byte, in nanoseconds, from which memory is dear: copying takes a quarter."""


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
    """Return how much processor time this thread has had."""
    cdef timespec time
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
    return time.tv_sec * 1_000_000_000 + time.tv_nsec


cdef void give_back_before(int file, int64_t offset) noexcept nogil:
    cdef int64_t length = min(offset, REACH)
    if file >= 0 and length > 0:
        give_back(file, offset - length, length)


cdef void heed(Wake *wake, Order *order) noexcept nogil:
    """Look now and then at what writing costs, and give memory back where it is dear."""
    cdef int64_t used_ns, before
    if wake.file < 0 or order.offset < wake.end:
        # The next file; the one before is closed elsewhere, and not yet done with here.
        if wake.file_before >= 0:
            close(wake.file_before)
        wake.file_before, wake.end_before = wake.file, wake.end
        # Whatever program this process starts must not hold a file that was removed.
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
        # It may have been removed, and would take room on the disk while it is open.
        close(wake.file_before)
        wake.file_before = -1
    wake.count = 0


cdef int put(int file, const char *data, int64_t length, int64_t offset) noexcept nogil:
    """Write all of it, however often that takes; return 0, or why not."""
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
    """Return when what was written is there, if that is wanted; 0, or why it is not."""
    cdef int result = 0
    if order.sync_level > 1:
        result = fsync(order.file)
    elif order.sync_level:
        result = sync_data(order.file)
    return errno if result else 0


cdef int carry_out(Order *order) noexcept nogil:
    """Write a block: first all behind the first length, and then that; return 0, or why not."""
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
    """Carry orders out until one fails, or there are no more and none will come."""
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
            # A bell that is full has been rung.
            write(ring.bell, b"!", 1)
            pthread_mutex_lock(&ring.mutex)
    pthread_mutex_unlock(&ring.mutex)
    if wake.file >= 0:
        close(wake.file)
    if wake.file_before >= 0:
        close(wake.file_before)
    return NULL


# The collector would clear the owner of a buffer and forget to release it.
@cython.no_gc
@cython.final
cdef class BlockWriter:
    """Writes blocks in a thread of its own, one after the other; see the module.

    Args:
        bell: Where a byte is written when something was done, a descriptor that never blocks.

    Raises:
        OSError: No thread can be had.
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
        # Signals are the interpreter's; its handlers belong to its threads.
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
            # In a forked one somebody would wait there for ever, and be waited for.
            pthread_cond_destroy(&self.ring.changed)
            pthread_mutex_destroy(&self.ring.mutex)

    @property
    def in_flight(self):
        """Return how many blocks have been begun and not collected."""
        return self.ring.begun - self.collected

    def begin(self, int file, block not None, int64_t offset, int sync_level):
        """Let a block be written; its memory is held until it is collected.

        Args:
            file: A descriptor, open until the block is collected.
            block: Whole frames.
            offset: In the file.
            sync_level: 0, 1 or 2: whether the disk is waited for, before and after the first length.

        Raises:
            ValueError: There is no room, see `in_flight`; the block is shorter than a length; the
                thread has ended, or is another process's.
        """
        cdef Order *order
        cdef Py_buffer *view
        if not self.has_thread() or self.ring.begun - self.collected >= SLOTS:
            raise ValueError(f"at most {SLOTS} blocks are written at once, and none when closed")
        view = &self.views[self.ring.begun % SLOTS]
        PyObject_GetBuffer(block, view, PyBUF_SIMPLE)
        if view.len < LENGTH_SIZE or offset < 0:
            PyBuffer_Release(view)
            raise ValueError("a block has a length at least, and lies in its file")
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
        """Return how many more blocks have been written, and why the next will never be.

        The second is the number of an error, 0 while there is none. Memory of blocks that have been
        written is held no more. A process that was forked hears of nothing.
        """
        cdef int64_t done
        cdef int failure
        if self.process != getpid():
            return 0, 0
        pthread_mutex_lock(&self.ring.mutex)
        self.ring.is_rung = False
        done = self.ring.done
        failure = self.ring.failure
        pthread_mutex_unlock(&self.ring.mutex)
        count = done - self.collected
        while self.collected < done:
            PyBuffer_Release(&self.views[self.collected % SLOTS])
            self.collected += 1
        return count, failure

    def close(self):
        """Wait until all that was begun is done or has failed; closing twice is closing once.

        What was done meanwhile is still to be collected. Memory of what failed is held no more.
        """
        self.stop()
        while self.held > self.ring.done:
            self.held -= 1
            PyBuffer_Release(&self.views[self.held % SLOTS])

    cdef bint has_thread(self) noexcept:
        # A process that was forked has the memory, and none of the threads.
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
        """Hold no memory any more."""
        self.stop()
        while self.collected < self.held:
            PyBuffer_Release(&self.views[self.collected % SLOTS])
            self.collected += 1
