# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Messages of a batch as columns that any Arrow library takes over, by its C data interface.

The two capsules own what they hold until somebody takes it over; whoever has it may release it in
any thread, without the interpreter.

Source: Arrow C data interface, https://arrow.apache.org/docs/format/CDataInterface.html, and its
PyCapsule interface.
"""

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memset

from aeron_async._speedups.messages cimport Batch

cdef extern from *:
    """
    #ifndef ARROW_C_DATA_INTERFACE
    #define ARROW_C_DATA_INTERFACE
    struct ArrowSchema {
        const char *format, *name, *metadata;
        int64_t flags, n_children;
        struct ArrowSchema **children, *dictionary;
        void (*release)(struct ArrowSchema *);
        void *private_data;
    };
    struct ArrowArray {
        int64_t length, null_count, offset, n_buffers, n_children;
        const void **buffers;
        struct ArrowArray **children, *dictionary;
        void (*release)(struct ArrowArray *);
        void *private_data;
    };
    #endif
    static const char *const aeron_names[] = {
        "position", "session_id", "stream_id", "reserved_value", "payload"};
    static const char *const aeron_formats[] = {"l", "i", "i", "l", "Z"};
    #define AERON_LET_GO(count) __atomic_sub_fetch(count, 1, __ATOMIC_ACQ_REL)
    """
    ctypedef struct ArrowSchema "struct ArrowSchema":
        const char *format
        const char *name
        const char *metadata
        int64_t flags
        int64_t n_children
        ArrowSchema **children
        ArrowSchema *dictionary
        void (*release)(ArrowSchema *) noexcept nogil
        void *private_data

    ctypedef struct ArrowArray "struct ArrowArray":
        int64_t length
        int64_t null_count
        int64_t offset
        int64_t n_buffers
        int64_t n_children
        const void **buffers
        ArrowArray **children
        ArrowArray *dictionary
        void (*release)(ArrowArray *) noexcept nogil
        void *private_data

    int64_t ARROW_FLAG_NULLABLE "2"
    const char *const *NAMES "aeron_names"
    const char *const *FORMATS "aeron_formats"
    int32_t let_go "AERON_LET_GO"(int32_t *count) noexcept nogil

DEF COLUMNS = 5
DEF HOLDERS = COLUMNS + 1
DEF BUFFERS = 3


# A column may be taken over alone, and then outlives the struct of all: so each has a share in this.
cdef struct Fields:
    int32_t holders
    ArrowSchema fields[COLUMNS]
    ArrowSchema *children[COLUMNS]


cdef struct Columns:
    int32_t holders
    char *memory
    ArrowArray columns[COLUMNS]
    ArrowArray *children[COLUMNS]
    const void *buffers[HOLDERS][BUFFERS]


cdef void release_schema(ArrowSchema *schema) noexcept nogil:
    cdef Fields *held = <Fields *>schema.private_data
    cdef int64_t each
    schema.release = NULL
    for each in range(schema.n_children):
        if schema.children[each].release is not NULL:
            schema.children[each].release(schema.children[each])
    if let_go(&held.holders) == 0:
        free(held)


cdef void release_array(ArrowArray *array) noexcept nogil:
    cdef Columns *held = <Columns *>array.private_data
    cdef int64_t each
    array.release = NULL
    for each in range(array.n_children):
        if array.children[each].release is not NULL:
            array.children[each].release(array.children[each])
    if let_go(&held.holders) == 0:
        free(held.memory)
        free(held)


cdef void drop_schema(object capsule) noexcept:
    cdef ArrowSchema *schema = <ArrowSchema *>PyCapsule_GetPointer(capsule, "arrow_schema")
    if schema.release is not NULL:
        schema.release(schema)
    free(schema)


cdef void drop_array(object capsule) noexcept:
    cdef ArrowArray *array = <ArrowArray *>PyCapsule_GetPointer(capsule, "arrow_array")
    if array.release is not NULL:
        array.release(array)
    free(array)


cdef void name_field(ArrowSchema *schema, Fields *held, const char *name, const char *layout) noexcept:
    schema.name = name
    schema.format = layout
    schema.flags = ARROW_FLAG_NULLABLE
    schema.release = release_schema
    schema.private_data = held


cdef object schema_capsule():
    """Return a capsule with the names and types of the columns."""
    cdef int64_t each
    cdef Fields *held = <Fields *>calloc(1, sizeof(Fields))
    cdef ArrowSchema *schema = <ArrowSchema *>calloc(1, sizeof(ArrowSchema))
    if held is NULL or schema is NULL:
        free(held)
        free(schema)
        raise MemoryError
    held.holders = HOLDERS
    for each in range(COLUMNS):
        name_field(&held.fields[each], held, NAMES[each], FORMATS[each])
        held.children[each] = &held.fields[each]
    name_field(schema, held, "", "+s")
    schema.flags = 0
    schema.n_children = COLUMNS
    schema.children = held.children
    try:
        return PyCapsule_New(schema, "arrow_schema", drop_schema)
    except:
        release_schema(schema)
        free(schema)
        raise


cdef void set_column(ArrowArray *column, Columns *held, int64_t index, int64_t length) noexcept:
    column.length = length
    column.n_buffers = 2
    column.buffers = held.buffers[index]
    column.release = release_array
    column.private_data = held


cdef object array_capsule(Columns *held, int64_t count):
    """Return a capsule with all columns; it owns them from now on, also if it cannot be made."""
    cdef int64_t each
    cdef ArrowArray *array = <ArrowArray *>calloc(1, sizeof(ArrowArray))
    if array is NULL:
        free(held.memory)
        free(held)
        raise MemoryError
    held.holders = HOLDERS
    for each in range(COLUMNS):
        set_column(&held.columns[each], held, each, count)
        held.children[each] = &held.columns[each]
    held.columns[COLUMNS - 1].n_buffers = 3
    set_column(array, held, COLUMNS, count)
    array.n_buffers = 1
    array.n_children = COLUMNS
    array.children = held.children
    try:
        return PyCapsule_New(array, "arrow_array", drop_array)
    except:
        release_array(array)
        free(array)
        raise


cdef void repeat(int32_t *column, int32_t value, int64_t count) noexcept nogil:
    cdef int64_t each
    for each in range(count):
        column[each] = value


def exported(Batch batch not None, int32_t session_id, int32_t stream_id):
    """Return what is left as capsules of a schema and an array; twin of `client.arrow.exported`."""
    cdef Py_ssize_t left = max(0, batch.left)
    cdef int64_t room = batch.room()
    cdef int64_t numbers = 8 * (3 * <int64_t>left + 1)
    cdef int64_t fixed = numbers + 8 * <int64_t>left
    cdef int64_t total = 0
    cdef Py_ssize_t count
    cdef char *memory
    cdef char *shorter
    cdef Columns *held
    if not batch.is_open:
        return None
    schema = schema_capsule()
    memory = <char *>malloc(fixed + room + 1)
    held = <Columns *>calloc(1, sizeof(Columns))
    if memory is NULL or held is NULL:
        free(memory)
        free(held)
        raise MemoryError
    # Making the capsule may have run the garbage collector, and so any code: that may close the image.
    count = batch.lay_out(left, room, <int64_t *>memory, memory + fixed, &total)
    if count < 0:
        free(memory)
        free(held)
        return None
    if total < room >> 1:
        shorter = <char *>realloc(memory, fixed + total + 1)
        if shorter is not NULL:
            memory = shorter
    held.memory = memory
    repeat(<int32_t *>(memory + numbers), session_id, count)
    repeat(<int32_t *>(memory + numbers) + left, stream_id, count)
    # The bounds of payloads come first, then positions and reserved values.
    held.buffers[0][1] = memory + 8 * (<int64_t>left + 1)
    held.buffers[1][1] = memory + numbers
    held.buffers[2][1] = memory + numbers + 4 * <int64_t>left
    held.buffers[3][1] = memory + 8 * (2 * <int64_t>left + 1)
    held.buffers[4][1] = memory
    held.buffers[4][2] = memory + fixed
    return schema, array_capsule(held, count)
