# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""The newest values that wait for a slow reader: the compiled part of `client.newest_values`.

If a slice of the payload is the key, and nothing is merged, the messages of a batch are not made: what is newest of a
key is copied from the log into the memory of that key, which a table of pointers finds. A reader gets a message of it.

Keys, and the functions of a program, may run any code, which may take or add values meanwhile: what waits is held
while it is used. No code of anybody runs between two looks at the table: what is replaced is let go of at the end.

Invariant: an entry of the table waits, or what was skipped of its key is counted; so there are at most twice as many
as keys may wait.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItemWithError
from cpython.list cimport PyList_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy

from aeron_async._speedups.frames cimport HEADER, align
from aeron_async._speedups.messages cimport Batch, Message

from collections import deque
from os import urandom

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #define AERON_FETCH(p) __builtin_prefetch((const void *)(p))
    #define AERON_TURNED(x, b) (((x) << (b)) | ((x) >> (64 - (b))))
    #define AERON_ROUND                                                                       \\
        (a += b, b = AERON_TURNED(b, 13), b ^= a, a = AERON_TURNED(a, 32), c += d,            \\
         d = AERON_TURNED(d, 16), d ^= c, a += d, d = AERON_TURNED(d, 21), d ^= a, c += b,    \\
         b = AERON_TURNED(b, 17), b ^= c, c = AERON_TURNED(c, 32))
    /* SipHash-1-3. Peers choose the keys: without the seed they cannot choose keys that collide. */
    static inline uint64_t aeron_hash(const uint64_t *seed, const char *data, int64_t length) {
        uint64_t a = seed[0] ^ 0x736f6d6570736575ULL, b = seed[1] ^ 0x646f72616e646f6dULL;
        uint64_t c = seed[0] ^ 0x6c7967656e657261ULL, d = seed[1] ^ 0x7465646279746573ULL;
        uint64_t word, last = (uint64_t)length << 56;
        for (; length >= 8; data += 8, length -= 8) {
            memcpy(&word, data, 8);
            d ^= word;
            AERON_ROUND;
            a ^= word;
        }
        word = 0;
        if (length == 4)
            memcpy(&word, data, 4);
        else
            memcpy(&word, data, (size_t)length);
        last |= word;
        d ^= last;
        AERON_ROUND;
        a ^= last;
        c ^= 0xff;
        AERON_ROUND;
        AERON_ROUND;
        AERON_ROUND;
        return a ^ b ^ c ^ d;
    }
    """
    void fetch "AERON_FETCH"(const void *place) noexcept nogil
    uint64_t hash_of "aeron_hash"(const uint64_t *seed, const char *data, int64_t length) noexcept nogil
    void set_slot "PyList_SET_ITEM"(object found, Py_ssize_t index, PyObject *item) noexcept
    PyObject *get_slot "PyList_GET_ITEM"(object found, Py_ssize_t index) noexcept
    void hold "Py_INCREF"(PyObject *item) noexcept
    void let_go_of "Py_DECREF"(PyObject *item) noexcept

DEF AT_ONCE = 64
"""Frames of which the places in the table are fetched before the first of them is looked up."""
DEF KEPT_LENGTH = 1024
"""Most bytes that are kept for the next message of a key of which none waits."""
DEF FIRST_SLOTS = 64
DEF LONGEST_KEY = 0x7FFFFFFF


cdef struct Entry:
    # What only a change of the table or of the line needs.
    uint64_t hashed
    Entry *following
    Entry *previous
    # Where its owner is: the source of the message, or the value itself.
    Py_ssize_t index
    # What every message needs; the key follows, and behind it the payload.
    PyObject *owner
    int64_t position
    int64_t reserved_value
    # -1 if it is not counted by key.
    int64_t skipped
    int64_t room
    uint32_t key_length
    uint32_t length
    bint waits
    bint is_object


cdef struct Slot:
    uint64_t hashed
    Entry *entry


cdef struct Table:
    uint64_t seed[2]
    Slot *slots
    size_t mask
    size_t used
    Entry *first
    Entry *last
    int64_t waiting


cdef inline char *data_of(Entry *entry) noexcept nogil:
    return <char *>entry + sizeof(Entry)


cdef inline Entry *look_up(Table *table, uint64_t hashed, const char *key, int64_t length) noexcept nogil:
    """Return the entry of a key; NULL if there is none."""
    cdef size_t at = hashed & table.mask
    cdef Entry *entry
    if table.slots is NULL:
        return NULL
    while table.slots[at].entry is not NULL:
        entry = table.slots[at].entry
        if (table.slots[at].hashed == hashed and entry.key_length == length
                and not memcmp(data_of(entry), key, length)):
            return entry
        at = (at + 1) & table.mask
    return NULL


cdef size_t slot_of(Table *table, Entry *entry) noexcept nogil:
    """Return where the table has an entry that it has."""
    cdef size_t at = entry.hashed & table.mask
    while table.slots[at].entry is not entry:
        at = (at + 1) & table.mask
    return at


cdef bint grow(Table *table) noexcept nogil:
    """Double the table; return whether there was memory."""
    cdef size_t size = 2 * (table.mask + 1) if table.slots is not NULL else FIRST_SLOTS
    cdef Slot *slots = <Slot *>calloc(size, sizeof(Slot))
    cdef size_t each, at
    if slots is NULL:
        return False
    if table.slots is not NULL:
        for each in range(table.mask + 1):
            if table.slots[each].entry is NULL:
                continue
            at = table.slots[each].hashed & (size - 1)
            while slots[at].entry is not NULL:
                at = (at + 1) & (size - 1)
            slots[at] = table.slots[each]
    free(table.slots)
    table.slots = slots
    table.mask = size - 1
    return True


cdef Entry *add(Table *table, uint64_t hashed, const char *key, int64_t length, int64_t room) noexcept nogil:
    """Return a new entry of a key that has none; NULL without memory."""
    cdef Entry *entry
    cdef size_t at
    if (table.slots is NULL or (table.used + 1) * 4 > (table.mask + 1) * 3) and not grow(table):
        return NULL
    entry = <Entry *>calloc(1, sizeof(Entry) + room)
    if entry is NULL:
        return NULL
    entry.hashed = hashed
    entry.skipped = -1
    entry.room = room
    entry.key_length = <uint32_t>length
    memcpy(data_of(entry), key, length)
    at = hashed & table.mask
    while table.slots[at].entry is not NULL:
        at = (at + 1) & table.mask
    table.slots[at].hashed = hashed
    table.slots[at].entry = entry
    table.used += 1
    return entry


cdef void remove(Table *table, Entry *entry) noexcept nogil:
    """Free an entry that does not wait, and let those behind it move up."""
    cdef size_t hole = slot_of(table, entry)
    cdef size_t at = hole
    cdef size_t home
    while True:
        at = (at + 1) & table.mask
        if table.slots[at].entry is NULL:
            break
        home = table.slots[at].hashed & table.mask
        if ((at - home) & table.mask) >= ((at - hole) & table.mask):
            table.slots[hole] = table.slots[at]
            hole = at
    table.slots[hole].entry = NULL
    table.used -= 1
    free(entry)


cdef Entry *resize(Table *table, Entry *entry, int64_t room) noexcept nogil:
    """Give an entry room for so many bytes; return where it is now, or NULL without memory."""
    cdef size_t at = slot_of(table, entry)
    entry = <Entry *>realloc(entry, sizeof(Entry) + room)
    if entry is NULL:
        return NULL
    entry.room = room
    table.slots[at].entry = entry
    if entry.waits:
        if entry.previous is NULL:
            table.first = entry
        else:
            entry.previous.following = entry
        if entry.following is NULL:
            table.last = entry
        else:
            entry.following.previous = entry
    return entry


cdef inline void join_line(Table *table, Entry *entry) noexcept nogil:
    entry.waits = True
    entry.following = NULL
    entry.previous = table.last
    if table.last is NULL:
        table.first = entry
    else:
        table.last.following = entry
    table.last = entry
    table.waiting += 1


cdef inline void leave_line(Table *table) noexcept nogil:
    """Take the first one out of the line."""
    cdef Entry *entry = table.first
    table.first = entry.following
    if table.first is NULL:
        table.last = NULL
    else:
        table.first.previous = NULL
    entry.waits = False
    entry.owner = NULL
    table.waiting -= 1


cdef inline int64_t room_for(int64_t length) noexcept nogil:
    """Return room for a length, a little more, so that few other lengths need another."""
    return (length + 15) & ~(<int64_t>15)


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
    cdef bint is_set_up
    cdef object key
    # Where the key lies in the payload; the end is negative if a function tells the key.
    cdef Py_ssize_t key_begin
    cdef Py_ssize_t key_end
    cdef object merge
    # What waits, unless it is in the table.
    cdef object line
    cdef dict entries
    cdef dict counts
    # The table has no reference to an object that the garbage collector would not see: the list has
    # them, and the garbage collector may empty it.
    cdef bint uses_table
    cdef Table table
    cdef list owners
    cdef Py_ssize_t *spare
    cdef Py_ssize_t spare_count
    cdef Py_ssize_t spare_room
    cdef int64_t counted

    def __cinit__(self, *_, **__):
        cdef bytes seed = urandom(sizeof(self.table.seed))
        memcpy(self.table.seed, PyBytes_AS_STRING(seed), sizeof(self.table.seed))
        self.entries = {}
        self.counts = {}
        self.line = deque()
        self.owners = []

    def __init__(self, key, merge, *, int64_t max_keys, bint drops_oldest):
        cdef Py_ssize_t begin = 0
        cdef Py_ssize_t end = -1
        if isinstance(key, slice):
            begin, end = key.start, key.stop
            if not 0 <= begin <= end <= LONGEST_KEY:
                raise ValueError("the key's place does not begin in the payload")
        if self.is_set_up:
            raise ValueError("what keeps values is set up once")
        self.is_set_up = True
        self.key = key
        self.key_begin, self.key_end = begin, end
        self.merge = merge
        self._max_keys = max_keys
        self.drops_oldest = drops_oldest
        self.uses_table = end >= 0 and merge is None

    def __dealloc__(self):
        cdef size_t each
        if self.table.slots is not NULL:
            for each in range(self.table.mask + 1):
                free(self.table.slots[each].entry)
        free(self.table.slots)
        free(self.spare)

    @property
    def waiting(self):
        """Return how many keys have a value that waits."""
        return self.table.waiting if self.uses_table else len(self.entries)

    def put_all(self, values):
        """Keep the newest value of each key; see the twin."""
        cdef KeptValue entry
        cdef dict entries = self.entries
        cdef Py_ssize_t begin = self.key_begin, end = self.key_end
        key_of, merge = self.key, self.merge
        for value in values:
            key = key_of(value) if end < 0 else cut(value, begin, end)
            if self.uses_table:
                self.put_value(<bytes?>key, value)
                continue
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

    def put_batch(self, Batch batch not None):
        """Keep the newest message of each key of those that are left of a batch; see the twin."""
        cdef list let_go
        if self.uses_table and batch.is_open:
            # Making a list may run the garbage collector, and so any code; nothing after it does.
            let_go = []
            if batch.is_open:
                self.put_frames(batch, let_go)
                return
        self.put_all(batch.again().rest())

    def take_first(self):
        """Return the value that has waited for the longest, and forget it."""
        cdef KeptValue entry
        cdef Message message
        if self.uses_table:
            message = Message.__new__(Message)
            return self.take_out(message)
        entry = <KeptValue?>self.line.popleft()
        del self.entries[entry.key]
        self.let_go(entry)
        return entry.value

    def take(self, int64_t limit):
        """Return the values that have waited for the longest, and forget them; see the twin."""
        cdef list found = []
        cdef Message message
        if not self.uses_table:
            while limit > 0 and self.line:
                found.append(self.take_first())
                limit -= 1
            return found
        # More may come by what making a message runs.
        limit = min(limit, self.table.waiting)
        while limit > 0:
            message = Message.__new__(Message)
            if self.table.first is NULL:
                break
            if self.table.first.following is not NULL:
                fetch(self.table.first.following.following)
            found.append(self.take_out(message))
            limit -= 1
        return found

    def take_all(self):
        """Return all values, in the order in which their keys first changed, and forget them."""
        if self.uses_table:
            return self.take(self.table.waiting)
        found = [(<KeptValue?>entry).value for entry in self.line]
        self.clear()
        return found

    def clear(self):
        """Forget the values that wait."""
        cdef list let_go
        if self.uses_table:
            let_go = []
            while self.table.first is not NULL:
                self.leave(let_go)
            return
        for entry in self.line:
            self.let_go(<KeptValue?>entry)
        self.line.clear()
        self.entries.clear()

    def skipped_of(self, key):
        """Return how many values of a key were skipped; None if they are not counted by key."""
        cdef KeptValue entry
        cdef Entry *known
        if self.uses_table:
            known = self.known_as(key)
            if known is not NULL and known.skipped >= 0:
                return known.skipped
            return 0 if self.counted < self._max_keys else None
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

    # With the table.

    cdef int put_frames(self, Batch batch, list let_go) except -1:
        """Keep the newest of the messages that lie in the log, as it is done with values."""
        cdef int64_t offsets[AT_ONCE]
        cdef int64_t lengths[AT_ONCE]
        cdef uint64_t hashes[AT_ONCE]
        cdef int64_t left = batch.left
        cdef int64_t offset = batch.offset
        cdef int64_t length, wanted, count, each, key_length
        cdef const char *payload
        cdef Entry *entry
        while left > 0:
            wanted = min(left, AT_ONCE)
            count = 0
            while count < wanted:
                length = batch.find(&offset)
                if length < 0:
                    # Other processes have changed frames: there is nothing, nor beyond.
                    left = count
                    break
                offsets[count] = offset
                lengths[count] = length
                payload = <const char *>batch.view.buf + offset + HEADER
                key_length = self.key_length_of(length)
                hashes[count] = hash_of(self.table.seed, payload + min(length, self.key_begin), key_length)
                if self.table.slots is not NULL:
                    fetch(self.table.slots + (hashes[count] & self.table.mask))
                offset += align(HEADER + length)
                count += 1
            left -= count
            for each in range(count if self.table.slots is not NULL else 0):
                # Most keys are where they belong; if not, nothing is lost.
                entry = self.table.slots[hashes[each] & self.table.mask].entry
                if entry is not NULL:
                    fetch(&entry.owner)
                    fetch(data_of(entry))
            for each in range(count):
                payload = <const char *>batch.view.buf + offsets[each] + HEADER
                length = lengths[each]
                entry = self.place_for(hashes[each], payload + min(length, self.key_begin),
                                       self.key_length_of(length), length, let_go)
                memcpy(data_of(entry) + entry.key_length, payload, length)
                entry.length = <uint32_t>length
                entry.position = batch.begin_position + offsets[each] + align(HEADER + length)
                entry.reserved_value = (<const int64_t *>(payload - HEADER))[3]
                if entry.is_object or entry.owner is not <PyObject *>batch.image:
                    entry.is_object = False
                    self.own(entry, batch.image, let_go)
        return 0

    cdef int put_value(self, bytes key, value) except -1:
        """Keep a value that is an object."""
        cdef list let_go = []
        cdef int64_t length = PyBytes_GET_SIZE(key)
        cdef uint64_t hashed = hash_of(self.table.seed, PyBytes_AS_STRING(key), length)
        cdef Entry *entry = self.place_for(hashed, PyBytes_AS_STRING(key), length, 0, let_go)
        entry.is_object = True
        return self.own(entry, value, let_go)

    cdef inline int64_t key_length_of(self, int64_t length) noexcept:
        """Return how many bytes of a payload are the key."""
        return max(0, min(length, self.key_end) - self.key_begin)

    cdef Entry *place_for(self, uint64_t hashed, const char *key, int64_t key_length, int64_t length,
                          list let_go) except NULL:
        """Return the entry of a key, in the line, with room for a payload; what it has is skipped."""
        cdef Entry *entry = look_up(&self.table, hashed, key, key_length)
        cdef int64_t room = key_length + length
        if entry is not NULL and entry.waits:
            if entry.room < room:
                entry = resize(&self.table, entry, room_for(room))
                if entry is NULL:
                    raise MemoryError
            self.skip(entry)
            return entry
        if self.table.waiting >= self._max_keys:
            if not self.drops_oldest:
                self._refuse(PyBytes_FromStringAndSize(key, key_length))
                raise ValueError("a key that was refused was not to be kept")
            if self.table.first is NULL:
                raise IndexError("pop from an empty deque")
            self.dropped += 1
            self.skip(self.table.first)
            self.leave(let_go)
        if entry is NULL:
            entry = self.make_entry(hashed, key, key_length, room_for(room))
        elif entry.room < room:
            entry = resize(&self.table, entry, room_for(room))
            if entry is NULL:
                raise MemoryError
        join_line(&self.table, entry)
        return entry

    cdef Entry *make_entry(self, uint64_t hashed, const char *key, int64_t key_length, int64_t room) except NULL:
        cdef Entry *entry
        cdef Py_ssize_t *spare
        cdef Py_ssize_t index = PyList_GET_SIZE(self.owners_there())
        if not self.spare_count:
            # One place more, also of those that are to spare when all entries are gone.
            if index >= self.spare_room:
                spare = <Py_ssize_t *>realloc(self.spare, (2 * index + 64) * sizeof(Py_ssize_t))
                if spare is NULL:
                    raise MemoryError
                self.spare = spare
                self.spare_room = 2 * index + 64
            self.owners.append(None)
            self.spare[0] = index
            self.spare_count = 1
        entry = add(&self.table, hashed, key, key_length, room)
        if entry is NULL:
            raise MemoryError
        self.spare_count -= 1
        entry.index = self.spare[self.spare_count]
        return entry

    cdef inline int skip(self, Entry *entry) except -1:
        """Count what an entry has as skipped."""
        self.skipped += 1
        if entry.skipped >= 0:
            entry.skipped += 1
        elif self.counted < self._max_keys:
            self.counted += 1
            entry.skipped = 1
        return 0

    cdef inline list owners_there(self):
        if self.owners is None:
            raise ReferenceError("what waited was given up with all that had it")
        return self.owners

    cdef inline int own(self, Entry *entry, owner, list let_go) except -1:
        """Let an entry have an owner instead of the one it had, which is let go of at the end."""
        cdef list owners = self.owners_there()
        if entry.index >= PyList_GET_SIZE(owners):
            raise ReferenceError("what waited was given up with all that had it")
        if get_slot(owners, entry.index) is not <PyObject *>None:
            let_go.append(<object>get_slot(owners, entry.index))
        put_slot(owners, entry.index, owner)
        entry.owner = <PyObject *>owner
        return 0

    cdef int leave(self, list let_go) except -1:
        """Take the first one out of the line."""
        cdef Entry *entry = self.table.first
        self.own(entry, None, let_go)
        leave_line(&self.table)
        self.settle(entry)
        return 0

    cdef int settle(self, Entry *entry) noexcept:
        """Keep an entry that waits no more only for what is counted, and with little memory."""
        if entry.skipped < 0:
            # There is room, but if the garbage collector has emptied the list: then places are given twice.
            if self.spare_count < self.spare_room:
                self.spare[self.spare_count] = entry.index
                self.spare_count += 1
            remove(&self.table, entry)
        elif entry.room - entry.key_length > KEPT_LENGTH:
            # Without memory it stays as it is.
            resize(&self.table, entry, entry.key_length)
        return 0

    cdef object take_out(self, Message message):
        """Take the first one out of the line; return its value, or the message that was made for it."""
        cdef Entry *entry = self.table.first
        cdef list owners = self.owners_there()
        if entry is NULL:
            raise IndexError("pop from an empty deque")
        if entry.index >= PyList_GET_SIZE(owners):
            raise ReferenceError("what waited was given up with all that had it")
        owner = <object>get_slot(owners, entry.index)
        if not entry.is_object:
            message.data = PyBytes_FromStringAndSize(data_of(entry) + entry.key_length, entry.length)
            message.position = entry.position
            message.reserved_value = entry.reserved_value
            message.image = owner
            owner = message
        put_slot(owners, entry.index, None)
        leave_line(&self.table)
        self.settle(entry)
        return owner

    cdef Entry *known_as(self, key) except? NULL:
        """Return the entry of a key that a program asks for; NULL if there is none."""
        # It is refused if nothing could be found by it, as in a dictionary.
        hash(key)
        if isinstance(key, memoryview):
            key = bytes(key)
        if not isinstance(key, bytes):
            return NULL
        return look_up(&self.table, hash_of(self.table.seed, PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)),
                       PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))


cdef inline void put_slot(list owners, Py_ssize_t index, owner) noexcept:
    """Replace what somebody else holds as well, so that nothing is freed."""
    cdef PyObject *before = get_slot(owners, index)
    hold(<PyObject *>owner)
    set_slot(owners, index, <PyObject *>owner)
    let_go_of(before)


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
