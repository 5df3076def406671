# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""The newest values that wait for a slow reader: the compiled part of `client.newest_values`.

Keys, and the functions of a program, may run any code, which may take or add values meanwhile: what waits is held
while it is used.
"""

cimport cython
from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t

from aeron_async._speedups.messages cimport Message

from collections import deque


@cython.final
@cython.freelist(256)
@cython.auto_pickle(False)
cdef class KeptValue:
    """A value that waits, and what was skipped of its key since it does."""

    cdef object key
    cdef object value
    cdef int64_t count
    cdef bint is_counted


@cython.auto_pickle(False)
cdef class KeepingNewest:
    """The compiled part of the values that wait; twin of `client.newest_values.KeepingNewest`."""

    cdef readonly int64_t skipped
    cdef readonly int64_t merged
    cdef readonly int64_t dropped
    cdef readonly int64_t _max_keys
    cdef bint drops_oldest
    cdef object key
    # Where the key lies in the payload; the end is negative if a function tells the key.
    cdef Py_ssize_t key_begin
    cdef Py_ssize_t key_end
    cdef object merge
    cdef object line
    cdef dict entries
    cdef dict counts

    def __cinit__(self, *_, **__):
        self.entries = {}
        self.counts = {}
        self.line = deque()

    def __init__(self, key, merge, *, int64_t max_keys, bint drops_oldest):
        self.key = key
        self.key_begin, self.key_end = (key.start, key.stop) if isinstance(key, slice) else (0, -1)
        if isinstance(key, slice) and not 0 <= self.key_begin <= self.key_end:
            raise ValueError("the key's place does not begin in the payload")
        self.merge = merge
        self._max_keys = max_keys
        self.drops_oldest = drops_oldest

    @property
    def waiting(self):
        """Return how many keys have a value that waits."""
        return len(self.entries)

    def put_all(self, values):
        """Keep the newest value of each key; see the twin."""
        cdef KeptValue entry
        cdef dict entries = self.entries
        cdef Py_ssize_t begin = self.key_begin, end = self.key_end
        key_of, merge = self.key, self.merge
        for value in values:
            key = key_of(value) if end < 0 else cut(value, begin, end)
            entry = find(entries, key)
            if entry is None:
                if len(entries) >= self._max_keys:
                    self.make_room(key)
                entry = KeptValue.__new__(KeptValue)
                entry.key = key
                entry.value = value
                entries[key] = entry
                self.line.append(entry)
                continue
            if merge is None:
                entry.value = value
            else:
                entry.value = merge(entry.value, value)
                self.merged += 1
            self.count(entry)

    def take_first(self):
        """Return the value that has waited for the longest, and forget it."""
        cdef KeptValue entry = <KeptValue?>self.line.popleft()
        del self.entries[entry.key]
        self.let_go(entry)
        return entry.value

    def take_all(self):
        """Return all values, in the order in which their keys first changed, and forget them."""
        found = [(<KeptValue?>entry).value for entry in self.line]
        self.clear()
        return found

    def clear(self):
        """Forget the values that wait."""
        for entry in self.line:
            self.let_go(<KeptValue?>entry)
        self.line.clear()
        self.entries.clear()

    def skipped_of(self, key):
        """Return how many values of a key were skipped; None if they are not counted by key."""
        cdef KeptValue entry
        count = self.counts.get(key)
        if count is None:
            return 0 if len(self.counts) < self._max_keys else None
        entry = find(self.entries, key)
        return count if entry is None else count + entry.count

    cdef int make_room(self, key) except -1:
        cdef KeptValue oldest
        if not self.drops_oldest:
            self._refuse(key)
        oldest = <KeptValue?>self.line.popleft()
        del self.entries[oldest.key]
        self.dropped += 1
        self.count(oldest)
        self.let_go(oldest)
        return 0

    cdef inline int count(self, KeptValue entry) except -1:
        self.skipped += 1
        if not entry.count:
            entry.is_counted = entry.key in self.counts or len(self.counts) < self._max_keys
            if entry.is_counted:
                self.counts.setdefault(entry.key, 0)
        entry.count += 1
        return 0

    cdef inline int let_go(self, KeptValue entry) except -1:
        if entry.is_counted:
            self.counts[entry.key] += entry.count
        return 0


cdef inline bytes cut(value, Py_ssize_t begin, Py_ssize_t end):
    """Return the bytes of a payload from one place to another, as far as it has them."""
    cdef bytes data
    data = (<Message>value).data if type(value) is Message else None
    if data is None:
        return bytes(value.data[begin:end])
    end = min(end, PyBytes_GET_SIZE(data))
    if begin >= end:
        return b""
    return PyBytes_FromStringAndSize(PyBytes_AS_STRING(data) + begin, end - begin)


cdef inline KeptValue find(dict entries, key):
    """Return the entry of a key; None if it does not wait."""
    cdef PyObject *found = PyDict_GetItemWithError(entries, key)
    return None if found is NULL else <KeptValue>found
