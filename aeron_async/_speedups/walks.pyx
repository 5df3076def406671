# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Walks over the objects of many streams, for statistics; twins of those in `driver.stream_blocks`, and of
`client.reading.message_counts`.

Each walk does one thing to all of many objects, so that the processor loads several of them from memory at once:
that takes longer than all else, since nobody else looks at these objects in one go.
"""

from cpython cimport array
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from aeron_async._speedups.frames cimport load_acquire_64
from aeron_async._speedups.lanes cimport Rebuilding
from aeron_async._speedups.paths cimport Counted, Taking

cdef extern from *:
    """
    #include <structmember.h>
    #define AERON_FETCH(p) __builtin_prefetch((const void *)(p))
    /* The head of an object, and where most have what they hold. */
    #define AERON_FETCH_OBJECT(p) (AERON_FETCH(p), AERON_FETCH((const char *)(p) + 64))
    /* The keys of a small dictionary lie with its entries in one piece. */
    #define AERON_FETCH_KEYS(p) do { \
        const char *keys = (const char *)((PyDictObject *)(p))->ma_keys; \
        AERON_FETCH(keys); AERON_FETCH(keys + 64); AERON_FETCH(((PyDictObject *)(p))->ma_values); } while (0)
    /* Where an attribute lies in the objects of a type, if it is a slot of Python's; -1 for any other. */
    static Py_ssize_t aeron_slot_of(PyTypeObject *type, PyObject *name) {
        PyObject *found;
        PyMemberDef *member;
        Py_ssize_t offset = -1;
        if (type->tp_getattro != PyObject_GenericGetAttr)
            return -1;
        found = PyObject_GetAttr((PyObject *)type, name);
        if (found == NULL) {
            PyErr_Clear();
            return -1;
        }
        if (Py_TYPE(found) == &PyMemberDescr_Type && PyType_IsSubtype(type, ((PyDescrObject *)found)->d_type)) {
            member = ((PyMemberDescrObject *)found)->d_member;
            offset = member->type == T_OBJECT_EX ? member->offset : -1;
        }
        Py_DECREF(found);
        return offset;
    }
    #define AERON_TYPE(object) ((PyObject *)Py_TYPE(object))
    #define AERON_SLOT_OF(type, name) aeron_slot_of((PyTypeObject *)(type), (name))
    #define AERON_SLOT(object, offset) (*(PyObject **)((char *)(object) + (offset)))
    """
    void fetch "AERON_FETCH"(const void *place) noexcept nogil
    void fetch_object "AERON_FETCH_OBJECT"(const void *place) noexcept nogil
    void fetch_keys "AERON_FETCH_KEYS"(const void *mapping) noexcept
    PyObject *type_of "AERON_TYPE"(PyObject *object) noexcept
    Py_ssize_t slot_of "AERON_SLOT_OF"(PyObject *type, object name) noexcept
    PyObject *slot "AERON_SLOT"(PyObject *object, Py_ssize_t offset) noexcept

cdef extern from "Python.h":
    PyObject *PyTuple_GET_ITEM(object values, Py_ssize_t index) noexcept
    PyObject *PyDict_GetItemWithError(object mapping, object key) except? NULL
    int PyDict_Next(object mapping, Py_ssize_t *place, PyObject **key, PyObject **value) noexcept

# How many objects ahead something is loaded: first they, then what they refer to.
DEF FAR = 16
DEF NEAR = 8


def fields_of(objects, str name not None):
    """Return one attribute of each object; twin of `driver.stream_blocks.fields_of`."""
    # Nobody can change it while an attribute is a property that runs Python code.
    cdef tuple held = tuple(objects)
    cdef Py_ssize_t count = len(held)
    cdef Py_ssize_t index, offset = -1
    cdef PyObject *each
    cdef PyObject *value
    cdef PyObject *kind = NULL
    cdef list found = []
    for index in range(count):
        if index + FAR < count:
            each = PyTuple_GET_ITEM(held, index + FAR)
            fetch(each)
            fetch(<char *>each + (64 if offset < 0 else offset))
        if offset >= 0 and index + NEAR < count:
            each = PyTuple_GET_ITEM(held, index + NEAR)
            if type_of(each) is kind:
                fetch(slot(each, offset))
        each = PyTuple_GET_ITEM(held, index)
        if type_of(each) is not kind:
            kind = type_of(each)
            offset = slot_of(kind, name)
        value = NULL if offset < 0 else slot(each, offset)
        if value is not NULL:
            found.append(<object>value)
        else:
            found.append(getattr(<object>each, name))
            # It may be a property, and have changed the class.
            kind = NULL if offset >= 0 else kind
    return found


def values_at(words, places):
    """Return some of many words of 64 bits; twin of `driver.stream_blocks.values_at`."""
    cdef Py_buffer memory, wanted
    cdef int64_t *begin
    cdef int64_t *places_of
    cdef int64_t *found
    cdef int64_t count, index
    cdef Py_ssize_t number
    PyObject_GetBuffer(words, &memory, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(places, &wanted, PyBUF_SIMPLE)
        try:
            if not wanted.len:
                return b""
            # What is empty may be anywhere.
            if (<size_t>wanted.buf | <size_t>wanted.len | (<size_t>memory.buf if memory.len else 0)) & 7:
                raise ValueError("words and places are numbers of 64 bits, at multiples of 8")
            begin, places_of = <int64_t *>memory.buf, <int64_t *>wanted.buf
            count, number = memory.len // 8, wanted.len // 8
            values = PyBytes_FromStringAndSize(NULL, number * 8)
            found = <int64_t *>PyBytes_AS_STRING(values)
            for index in range(number):
                if index + FAR < number:
                    # To load what is not there does no harm.
                    fetch(begin + places_of[index + FAR])
                if not 0 <= places_of[index] < count:
                    raise IndexError("a place is not in the words")
                found[index] = load_acquire_64(begin + places_of[index])
            return values
        finally:
            PyBuffer_Release(&wanted)
    finally:
        PyBuffer_Release(&memory)


cdef inline void fetch_ahead(tuple mappings, Py_ssize_t index) noexcept:
    """Load dictionaries that come later, and what is in those that come sooner."""
    if index + FAR < len(mappings):
        fetch_object(PyTuple_GET_ITEM(mappings, index + FAR))
    if index + NEAR < len(mappings) and type(<object>PyTuple_GET_ITEM(mappings, index + NEAR)) is dict:
        fetch_keys(PyTuple_GET_ITEM(mappings, index + NEAR))


def firsts_of(mappings):
    """Return the first key of each dictionary, and its value; twin of `driver.stream_blocks.firsts_of`."""
    cdef list keys = [], values = []
    cdef PyObject *key
    cdef PyObject *value
    cdef Py_ssize_t place, index
    cdef dict each
    cdef tuple held = tuple(mappings)
    for index in range(len(held)):
        fetch_ahead(held, index)
        each = held[index]
        place = 0
        if each is None or not PyDict_Next(each, &place, &key, &value):
            raise ValueError("a dictionary is empty")
        keys.append(<object>key)
        values.append(<object>value)
    return keys, values


def entries_of(mappings, keys):
    """Return what each dictionary has for its key; twin of `driver.stream_blocks.entries_of`."""
    cdef tuple held = tuple(mappings), sought = tuple(keys)
    cdef Py_ssize_t index
    cdef PyObject *value
    cdef dict each
    cdef list found = []
    if len(held) != len(sought):
        raise ValueError("there are not as many keys as dictionaries")
    for index in range(len(held)):
        fetch_ahead(held, index)
        each = held[index]
        value = NULL if each is None else PyDict_GetItemWithError(each, sought[index])
        found.append(None if value is NULL else <object>value)
    return found


def intake_of(images):
    """Return two numbers of each image; twin of `driver.stream_blocks.intake_of`."""
    cdef tuple held = tuple(images)
    cdef Py_ssize_t index, count = len(held)
    cdef Rebuilding image
    cdef PyObject *ahead
    cdef int64_t *numbers
    values = PyBytes_FromStringAndSize(NULL, count * 16)
    numbers = <int64_t *>PyBytes_AS_STRING(values)
    for index in range(count):
        if index + FAR < count:
            ahead = PyTuple_GET_ITEM(held, index + FAR)
            fetch_object(ahead)
        if index + NEAR < count and isinstance(<object>PyTuple_GET_ITEM(held, index + NEAR), Rebuilding):
            fetch_object(<PyObject *>(<Rebuilding>PyTuple_GET_ITEM(held, index + NEAR))._feedback)
        image = <Rebuilding?>held[index]
        if image._feedback is None:
            raise ValueError("an image without feedback")
        numbers[index] = image.last_packet_ns
        numbers[count + index] = image._feedback.sent_count
    return values[:count * 8], values[count * 8:]


def oldest_of(positions, consumed, arrivals):
    """Return since when each has waited; twin of `driver.stream_blocks.oldest_of`."""
    cdef const int64_t[::1] at = positions, slowest = consumed
    cdef Py_ssize_t index, count = len(at)
    cdef tuple held = tuple(arrivals)
    cdef list found = []
    if not count == len(slowest) == len(held):
        raise ValueError("there are not as many of one as of the others")
    for index in range(count):
        if slowest[index] >= at[index]:
            found.append(0)
        else:
            found.append(arrived(held[index], slowest[index]))
    return found


cdef object arrived(arrivals, int64_t position):
    """Return by when a byte had come; as `Arrivals.arrived_ns`."""
    cdef array.array positions = arrivals._positions
    cdef array.array times = arrivals._times_ns
    cdef Py_ssize_t count, index
    if positions is None or times is None or positions.ob_descr.typecode != c"q" or times.ob_descr.typecode != c"q":
        return arrivals.arrived_ns(position)
    count = index = len(positions)
    # Most readers are not far behind.
    while index and positions.data.as_longlongs[index - 1] > position:
        index -= 1
    if index == count or index >= len(times):
        return arrivals.arrived_ns(position)
    return times.data.as_longlongs[index]


def message_counts(list readings not None):
    """Return how many messages each subscription has handed out; twin of `client.reading.message_counts`."""
    cdef tuple held = tuple(readings)
    cdef Py_ssize_t index, count = len(held)
    cdef Counted reading
    cdef PyObject *ahead
    cdef int64_t messages
    cdef list found = []
    for index in range(count):
        if index + FAR < count:
            ahead = PyTuple_GET_ITEM(held, index + FAR)
            fetch(ahead)
            fetch(<char *>ahead + 64)
        if index + NEAR < count and isinstance(<object>PyTuple_GET_ITEM(held, index + NEAR), Counted):
            reading = <Counted>PyTuple_GET_ITEM(held, index + NEAR)
            fetch(<PyObject *>reading._batch)
            fetch(<PyObject *>reading._images)
            fetch(<PyObject *>reading._listener)
            fetch(<char *><PyObject *>reading._listener + 64)
        reading = <Counted?>held[index]
        messages = <int64_t>reading._listener.gone_count
        if reading._batch is not None:
            messages -= reading._batch.left
        if reading._lent is not None:
            messages -= len(reading._lent)
        for image in (<dict?>reading._images).values():
            messages += (<Taking?>image)._message_count
        found.append(messages)
    return found
