# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""The rows of a recording, found in one pass over its bytes; twin of `spark.rows.RowScan`.

The bytes come from a disk and may have any content, and may change while a piece is in use: no
length in them is followed out of the piece, nor out of the memory for the result.
"""

cimport cython
from cpython.buffer cimport PyBuffer_IsContiguous
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromObject, PyMemoryView_GET_BUFFER
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

DEF HEADER = 32
DEF BEGIN = 0x8000
DEF END = 0x4000
DEF DATA = 0x10000
DEF ZERO = 0xFFFE00FF
DEF LONGEST_PIECE = 1 << 29
DEF LONGEST_TERM = 1 << 30
DEF LAST_POSITION = 1 << 62
DEF WIDEST = 16

# Which column; those up to RESERVED have 64 bits, the others 32.
DEF POSITION = 0
DEF END_POSITION = 1
DEF RESERVED = 2
DEF SESSION = 3
DEF TERM_ID = 4
DEF TERM_OFFSET = 5
DEF FLAGS = 6
DEF FRAME_TYPE = 7
DEF FRAGMENTS = 8
DEF LENGTH = 9


# As long as the shortest frame: a piece never has more rows than fit into memory of its own length.
cdef struct Row:
    int64_t reserved
    int32_t start
    int32_t end
    int32_t length
    int32_t fragments
    int32_t kind
    int32_t session


@cython.final
@cython.auto_pickle(False)
cdef class RowScan:
    """Finds the rows of pieces of one recording; twin of `spark.rows.RowScan`."""

    # A view, and no `Py_buffer`, for the garbage collector knows what a view holds.
    cdef object held
    cdef const char *data
    cdef int64_t length
    cdef bint is_busy
    cdef Row *rows
    cdef int64_t room
    cdef int64_t position
    cdef int64_t term_length
    cdef int64_t bits
    cdef int64_t initial_term_id
    cdef int32_t stream_id
    cdef bint by_message
    cdef bint include_padding
    cdef object checksum
    cdef readonly int64_t count
    cdef readonly int64_t frames
    cdef readonly int64_t end
    cdef readonly int64_t dropped
    cdef readonly int64_t broken
    cdef readonly int64_t problem_at
    cdef readonly bint is_checksum_wrong
    cdef readonly bint is_walked

    def __init__(self, descriptor, *, bint by_message, bint include_padding, checksum=None):
        cdef int64_t term_length = descriptor.term_length
        cdef int32_t initial_term_id = descriptor.initial_term_id
        cdef int32_t stream_id = descriptor.stream_id
        cdef int64_t bits = 0
        if not HEADER <= term_length <= LONGEST_TERM or term_length & (term_length - 1):
            raise ValueError(f"a term of {term_length} bytes is none")
        if self.is_busy or self.term_length:
            raise ValueError("it is set up already")
        while term_length >> (bits + 1):
            bits += 1
        self.bits = bits
        self.initial_term_id = initial_term_id
        self.stream_id = stream_id
        self.by_message = by_message
        self.include_padding = include_padding
        self.checksum = checksum
        self.term_length = term_length

    def __dealloc__(self):
        free(self.rows)

    def scan(self, piece, int64_t position, *, bint goes_on):
        """Find the rows of a piece; twin of `spark.rows.RowScan.scan`."""
        cdef Py_buffer *view
        if self.is_busy or self.term_length == 0:
            raise ValueError("it is not set up, or scans already")
        if not 0 <= position <= LAST_POSITION:
            raise ValueError(f"position {position} is not 0 to {LAST_POSITION}")
        self.is_busy = True
        self.count = self.frames = self.end = self.dropped = self.broken = 0
        self.problem_at = -1
        self.is_checksum_wrong = False
        try:
            held = PyMemoryView_FromObject(piece)
            view = PyMemoryView_GET_BUFFER(held)
            if not PyBuffer_IsContiguous(view, b"C"):
                raise BufferError("the bytes of a piece must lie one behind the other")
            if view.len % HEADER or view.len > LONGEST_PIECE:
                raise ValueError(f"a piece of {view.len} bytes is none")
            if view.len > self.room:
                free(self.rows)
                self.room = 0
                self.rows = <Row *>malloc(view.len)
                if self.rows is NULL:
                    raise MemoryError
                self.room = view.len
            # Letting go of the old piece may run any code, which finds no rows.
            self.held = held
            self.data = <const char *>view.buf
            self.length = view.len
            self.position = position
            self.walk(goes_on)
        finally:
            self.is_busy = False

    cdef int walk(self, bint goes_on) except -1:
        cdef const char *data = self.data
        cdef int64_t length = self.length
        cdef int64_t term_length = self.term_length
        cdef int64_t term_offset = self.position & (term_length - 1)
        cdef uint32_t term_id = <uint32_t>(self.initial_term_id + (self.position >> self.bits))
        cdef int64_t offset = 0, frames = 0, dropped = 0, broken = 0, aligned
        cdef int32_t open_frames = 0
        cdef int32_t head[8]
        cdef Row *row = self.rows
        cdef bint by_message = self.by_message
        cdef bint is_checked = self.checksum is not None
        while offset < length:
            memcpy(head, data + offset, HEADER)
            aligned = (<int64_t>head[0] + 31) & ~(<int64_t>31)
            if (head[0] < HEADER or term_offset + aligned > term_length
                    or <uint32_t>head[1] & <uint32_t>ZERO or head[2] != term_offset
                    or head[4] != self.stream_id or <uint32_t>head[5] != term_id):
                self.problem_at = offset
                break
            if head[1] & DATA:
                if offset + aligned > length:
                    break
                if is_checked and self.is_wrong(offset, aligned, head[3]):
                    self.problem_at = offset
                    self.is_checksum_wrong = True
                    break
            frames += 1
            if by_message and head[1] & (DATA | BEGIN | END) != (DATA | BEGIN | END):
                if open_frames and (not head[1] & DATA or head[1] & BEGIN or term_offset == 0):
                    # Padding, another message or another term interrupts a message.
                    broken += 1
                    dropped += open_frames
                    open_frames = 0
                if not head[1] & DATA:
                    pass
                elif head[1] & BEGIN:
                    open_frames = 1
                    begin_row(row, head, offset, offset + aligned)
                elif open_frames:
                    open_frames += 1
                    row.end = <int32_t>(offset + aligned)
                    row.length += head[0] - HEADER
                    row.fragments = open_frames
                    row.kind |= head[1]
                    if head[1] & END:
                        open_frames = 0
                        row += 1
                else:
                    dropped += 1
            elif by_message or head[1] & DATA or self.include_padding:
                if open_frames:
                    broken += 1
                    dropped += open_frames
                    open_frames = 0
                begin_row(row, head, offset, offset + aligned)
                row += 1
            offset += aligned
            term_offset += aligned
            if term_offset == term_length:
                term_offset = 0
                term_id += 1
        if open_frames and goes_on and self.problem_at < 0 and term_offset:
            # The rest of the message is behind the piece: the next one begins with it.
            offset = row.start
            frames -= open_frames
        elif open_frames:
            broken += 1
            dropped += open_frames
        self.end = offset
        self.frames = frames
        self.dropped = dropped
        self.broken = broken
        self.count = row - self.rows
        return 0

    cdef int is_wrong(self, int64_t offset, int64_t aligned, int32_t stored) except -1:
        """Return whether the checksum of a frame is another than that in place of its session."""
        # A copy, for the function may keep it; checksums of short frames cost more than that.
        body = PyBytes_FromStringAndSize(
            self.data + offset + HEADER, aligned - HEADER
        )
        return self.checksum(body) != stored

    cdef int check(self, int64_t begin, int64_t end) except -1:
        if not 0 <= begin <= end <= self.count:
            raise ValueError(f"rows {begin} to {end} are not in the {self.count} there are")
        return 0

    def cut(self, int64_t begin, int64_t most_rows, int64_t most_bytes):
        """Return the end of a batch that begins with a row; twin of `spark.rows.RowScan.cut`."""
        cdef int64_t end = begin
        cdef int64_t total = 0
        self.check(begin, self.count)
        while end < self.count and end - begin < most_rows:
            total += self.rows[end].length
            if total > most_bytes:
                break
            end += 1
        return min(max(end, begin + 1), self.count)

    def column(self, int which, int64_t begin, int64_t end):
        """Return one number of each row; twin of `spark.rows.RowScan.column`."""
        cdef bytes found
        if not 0 <= which <= LENGTH:
            raise ValueError(f"there is no column {which}")
        self.check(begin, end)
        found = PyBytes_FromStringAndSize(NULL, (end - begin) * (8 if which <= RESERVED else 4))
        if which <= RESERVED:
            self.fill_longs(which, begin, end, PyBytes_AS_STRING(found))
        else:
            self.fill_words(which, begin, end, PyBytes_AS_STRING(found))
        return found

    cdef void fill_longs(self, int which, int64_t begin, int64_t end, char *to) noexcept:
        cdef int64_t *out = <int64_t *>to
        cdef Row *row = self.rows + begin
        cdef int64_t count = end - begin
        cdef int64_t position = self.position
        cdef int64_t each
        if which == POSITION:
            for each in range(count):
                out[each] = position + row[each].start
        elif which == END_POSITION:
            for each in range(count):
                out[each] = position + row[each].end
        else:
            for each in range(count):
                out[each] = row[each].reserved

    cdef void fill_words(self, int which, int64_t begin, int64_t end, char *to) noexcept:
        cdef int32_t *out = <int32_t *>to
        cdef Row *row = self.rows + begin
        cdef int64_t count = end - begin
        cdef int64_t position = self.position
        cdef int64_t each
        if which == SESSION:
            for each in range(count):
                out[each] = row[each].session
        elif which == TERM_ID:
            for each in range(count):
                out[each] = <int32_t><uint32_t>(
                    self.initial_term_id + ((position + row[each].start) >> self.bits))
        elif which == TERM_OFFSET:
            for each in range(count):
                out[each] = <int32_t>((position + row[each].start) & (self.term_length - 1))
        elif which == FLAGS:
            for each in range(count):
                out[each] = row[each].kind >> 8 & 0xFF
        elif which == FRAME_TYPE:
            for each in range(count):
                out[each] = row[each].kind >> 16
        elif which == FRAGMENTS:
            for each in range(count):
                out[each] = row[each].fragments
        else:
            for each in range(count):
                out[each] = row[each].length

    def payloads(self, int64_t begin, int64_t end):
        """Return where each payload begins, and all bytes; twin of `spark.rows.RowScan.payloads`."""
        cdef int64_t total = 0
        cdef int64_t each
        cdef int32_t *edges
        cdef char *to
        cdef Row *row
        cdef bytes offsets, data
        self.check(begin, end)
        for each in range(begin, end):
            total += self.rows[each].length
        offsets = PyBytes_FromStringAndSize(NULL, (end - begin + 1) * 4)
        data = PyBytes_FromStringAndSize(NULL, total)
        edges = <int32_t *>PyBytes_AS_STRING(offsets)
        to = PyBytes_AS_STRING(data)
        total = 0
        edges[0] = 0
        for each in range(begin, end):
            row = self.rows + each
            if row.fragments == 1:
                memcpy(to + total, self.data + row.start + HEADER, row.length)
            elif self.join(row, 0, row.length, to + total) < 0:
                raise ValueError("the piece was changed")
            total += row.length
            edges[each - begin + 1] = <int32_t>total
        return offsets, data

    def bounds(self, int64_t begin, int64_t end, int64_t reach):
        """Return where each payload lies, if its beginning does so in one fragment.

        Twin of `spark.rows.RowScan.bounds`.
        """
        cdef int64_t each
        cdef int64_t *to_starts
        cdef int64_t *to_ends
        cdef int32_t length
        cdef Row *row
        cdef bytes starts, ends
        self.check(begin, end)
        starts = PyBytes_FromStringAndSize(NULL, (end - begin) * 8)
        ends = PyBytes_FromStringAndSize(NULL, (end - begin) * 8)
        to_starts = <int64_t *>PyBytes_AS_STRING(starts)
        to_ends = <int64_t *>PyBytes_AS_STRING(ends)
        for each in range(end - begin):
            row = self.rows + begin + each
            if row.fragments > 1:
                memcpy(&length, self.data + row.start, 4)
                if <int64_t>length - HEADER < min(reach, row.length):
                    return None
            to_starts[each] = row.start + HEADER
            to_ends[each] = row.start + HEADER + row.length
        return starts, ends

    def values(self, int64_t offset, int64_t width, int64_t begin, int64_t end):
        """Return some bytes of each payload; twin of `spark.rows.RowScan.values`."""
        cdef int64_t each
        cdef char *to
        cdef char *is_absent
        cdef Row *row
        cdef bytes found, absent
        if not 0 <= offset <= LONGEST_TERM or not 1 <= width <= WIDEST:
            raise ValueError(f"{width} bytes at offset {offset} are not in a message")
        self.check(begin, end)
        found = PyBytes_FromStringAndSize(NULL, (end - begin) * width)
        absent = PyBytes_FromStringAndSize(NULL, end - begin)
        to = PyBytes_AS_STRING(found)
        is_absent = PyBytes_AS_STRING(absent)
        for each in range(end - begin):
            row = self.rows + begin + each
            is_absent[each] = row.length < offset + width
            if is_absent[each]:
                memset(to, 0, width)
            elif row.fragments == 1:
                memcpy(to, self.data + row.start + HEADER + offset, width)
            elif self.join(row, offset, width, to) < 0:
                raise ValueError("the piece was changed")
            to += width
        return found, absent

    cdef int join(self, Row *row, int64_t skipped, int64_t left, char *to) noexcept:
        """Copy bytes out of the fragments of a message; -1 if they are not there any more."""
        cdef const char *data = self.data
        cdef int64_t offset = row.start
        cdef int64_t count
        cdef int32_t length
        while left > 0:
            if offset + HEADER > row.end:
                return -1
            memcpy(&length, data + offset, 4)
            count = <int64_t>length - HEADER
            if count < 0 or offset + HEADER + count > row.end:
                return -1
            if skipped < count:
                memcpy(to, data + offset + HEADER + skipped, min(count - skipped, left))
                to += min(count - skipped, left)
                left -= min(count - skipped, left)
                skipped = 0
            else:
                skipped -= count
            offset += (<int64_t>length + 31) & ~(<int64_t>31)
        return 0


cdef inline void begin_row(Row *row, int32_t *head, int64_t offset, int64_t end) noexcept:
    row.start = <int32_t>offset
    row.end = <int32_t>end
    row.length = head[0] - HEADER if head[1] & DATA else 0
    row.fragments = 1
    row.kind = head[1]
    row.session = head[3]
    memcpy(&row.reserved, head + 6, 8)
