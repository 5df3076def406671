# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Compiled twins of the loops over frames that are sent and received; the twins in Python are in
`logbuffer`: `scanner`, `placing`, and `zero` of `log_buffers`.

Every function checks its arguments before it accesses memory: what a peer sent can make it return
early, and can do nothing else.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memmove, memset

from aeron_async._speedups.frames cimport (HEADER, align, is_slot, load_acquire_32, peek_32, prefetch,
                                           step_of, store_release_32)


cdef int64_t GAP_LENGTH_LIMIT = 1024 * 1024
# So far from the last number that no sum here overflows; no log has such a position.
cdef int64_t POSITION_MAX = INT64_MAX - (<int64_t>1 << 33)


cdef inline void put_32(char *place, int32_t value) noexcept nogil:
    memcpy(place, &value, 4)


cdef inline Py_buffer *take(object data, Py_buffer *view) except NULL:
    PyObject_GetBuffer(data, view, PyBUF_SIMPLE)
    return view


cdef int64_t scan(char *term, int64_t length, int64_t offset, int64_t limit,
                  int64_t *padding) noexcept nogil:
    cdef int64_t available = 0
    cdef int64_t following
    cdef int64_t step = 0
    cdef int32_t usual = 0
    cdef int32_t frame_length
    padding[0] = 0
    limit = min(limit, length - offset)
    while available + HEADER <= limit:
        # What is sent was written a while ago, and may have left the nearest cache.
        prefetch(term + offset + available)
        frame_length = load_acquire_32(<int32_t *>(term + offset + available))
        if frame_length <= 0:
            break
        if (<int32_t *>(term + offset + available))[1] >> 16 == 0:
            padding[0] = align(frame_length) - HEADER
            available += HEADER
            padding[0] = max(0, min(padding[0], length - offset - available))
            if padding[0]:
                break
            continue
        following = available + step_of(frame_length, &usual, &step)
        if following > limit:
            break
        available = following
    return available


def scan_for_send(object term, words, int64_t offset, *, int64_t limit):
    """Return how many bytes one datagram may hold; twin of `logbuffer.scanner.scan_for_send`."""
    cdef Py_buffer view
    cdef int64_t available, padding
    take(term, &view)
    try:
        if not is_slot(&view, offset):
            return 0, 0
        available = scan(<char *>view.buf, view.len, offset, limit, &padding)
    finally:
        PyBuffer_Release(&view)
    return available, padding


DEF BATCH_SLOTS = 2048
"""Places where a frame of a batch can start: 64 KiB in units of 32 bytes."""
DEF BLOCK_BITS = 12
DEF LOOK_COUNT = 3
DEF MORE = 21
DEF MORE_OF = 20
DEF CALL_COST = 5
"""Cost of a system call, in datagrams of average length."""


cdef int64_t mark_ends(char *start, uint8_t *is_end, int64_t slot, int64_t slots) noexcept nogil:
    """Mark the ends of whole data frames, from the start of a frame on; return the last end."""
    cdef int64_t each
    for each in range(slot + 1, slots + 1):
        is_end[each] = 0
    while slot < slots:
        each = load_acquire_32(<int32_t *>(start + (slot << 5)))
        if (<int32_t *>(start + (slot << 5)))[1] >> 16 == 0:
            break
        if each <= 0 or slot + (align(each) >> 5) > slots:
            break
        slot += align(each) >> 5
        is_end[slot] = 1
    return slot


cdef int64_t find_full(uint8_t *is_end, int64_t slots, int64_t most, int16_t *full_ends) noexcept nogil:
    """Write the ends of the datagrams into which the next frame would not fit; return how many."""
    cdef int64_t begin = 0
    cdef int64_t end = 0
    cdef int64_t count = 0
    cdef int64_t each
    for each in range(1, slots + 1):
        if not is_end[each]:
            continue
        if each - begin > most:
            if end == begin:
                break
            full_ends[count] = <int16_t>end
            count += 1
            begin = end
        end = each
    return count


cdef int64_t longer_batch(char *start, int64_t reach, int64_t segment, int64_t total, int64_t count,
                        int64_t mtu_length, int64_t max_count, int64_t *found_count) noexcept nogil:
    """Return a datagram length that gives mixed frames a longer batch; see `logbuffer.scanner`."""
    cdef uint8_t is_end[BATCH_SLOTS + 1]
    cdef int16_t full_ends[BATCH_SLOTS + 1]
    cdef int64_t slots = min(reach >> 5, BATCH_SLOTS)
    cdef int64_t near = min(slots, LOOK_COUNT * mtu_length >> 5)
    cdef int64_t shortest = mtu_length >> 6
    cdef int64_t full_count = -1
    cdef int64_t best = 0
    cdef int64_t end, length, found, full, each
    found_count[0] = 0
    end = mark_ends(start, is_end, 0, near)
    for length in range(max(1, shortest), (segment >> 5) + 1):
        if LOOK_COUNT * length > near:
            break
        if not (is_end[length] and is_end[2 * length] and is_end[LOOK_COUNT * length]):
            continue
        if full_count < 0:
            mark_ends(start, is_end, end, slots)
            full_count = find_full(is_end, slots, mtu_length >> 5, full_ends)
        found = full = each = 0
        while each < max_count and (each + 1) * length <= slots and is_end[(each + 1) * length]:
            each += 1
            while full < full_count and full_ends[full] <= each * length:
                full += 1
            if MORE_OF * each <= MORE * full:
                found = each
        # Bytes for each unit of cost: total / (CALL_COST + count), cross-multiplied.
        if (found * length << 5) * (CALL_COST + count) > total * (CALL_COST + found):
            best = length
            found_count[0] = found
            total = found * length << 5
            count = found
    return best << 5


cdef int64_t scan_batch(char *base, int64_t length, int64_t offset, int64_t limit,
                      int64_t batch_length, int64_t mtu_length, int64_t max_count, int64_t *cut,
                      int64_t *padding) noexcept nogil:
    """Return the bytes of one batch; twin of `logbuffer.scanner.scan_batch`."""
    cdef int64_t total, following, count, behind, better, reach
    cdef int64_t segment = scan(base, length, offset, min(limit, batch_length, mtu_length), padding)
    cut[0] = segment
    if segment == 0 or padding[0]:
        return segment
    limit = min(limit, length - offset)
    total = segment
    count = 1
    while count < max_count:
        following = scan(base, length, offset + total, min(limit - total, mtu_length), &behind)
        if following <= 0 or following > segment or following > batch_length - total:
            break
        total += following
        padding[0] = behind
        count += 1
        if following != segment or behind:
            break
    if count <= 2 < max_count and limit >> 2 >= mtu_length and not padding[0]:
        # More datagrams than there are places to look at make no difference, and cannot overflow.
        reach = min(limit, batch_length, min(max_count, BATCH_SLOTS) * mtu_length)
        better = longer_batch(base + offset, reach, segment, total, count, mtu_length, max_count,
                              &following)
        if better:
            cut[0] = better
            return better * following
    return total


def scan_batches(object term, words, int64_t offset, segments, *, int64_t limit, int64_t mtu_length,
              int64_t batch_length, int64_t max_count, int64_t cost):
    """Divide what may be sent into segment batches; twin of `logbuffer.scanner.scan_batches`."""
    cdef Py_buffer view
    cdef Py_buffer ends
    cdef int64_t length, segment
    cdef int64_t total = 0
    cdef int64_t padding = 0
    cdef int64_t used = 0
    cdef int64_t count = 0
    take(term, &view)
    try:
        PyObject_GetBuffer(segments, &ends, PyBUF_SIMPLE | PyBUF_WRITABLE)
        try:
            while (used < cost and count < ends.len // 8 and not padding
                    and is_slot(&view, offset + total)):
                length = scan_batch(<char *>view.buf, view.len, offset + total,
                                  limit - total, batch_length, mtu_length, max_count, &segment,
                                  &padding)
                if length <= 0:
                    break
                total += length
                put_32(<char *>ends.buf + 8 * count, <int32_t>total)
                put_32(<char *>ends.buf + 8 * count + 4, <int32_t>segment)
                used += CALL_COST + length // segment
                count += 1
            return total, count, padding, used
        finally:
            PyBuffer_Release(&ends)
    finally:
        PyBuffer_Release(&view)


def mark_starts(positions, int64_t following, int64_t position, segments, int64_t length):
    """Record where the first datagram of each block begins; twin of `scanner.mark_starts`."""
    cdef Py_buffer view
    cdef Py_buffer ends
    cdef int64_t *known
    cdef int64_t count, each, end, segment, start
    cdef int64_t begin = position
    PyObject_GetBuffer(positions, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
    try:
        take(segments, &ends)
        try:
            known = <int64_t *>view.buf
            count = view.len // 8
            if (count == 0 or <size_t>view.buf & 7 or following < 0
                    or not 0 <= position <= POSITION_MAX):
                return following
            for each in range(ends.len // 8):
                end = position + min(<int64_t>peek_32(<char *>ends.buf + 8 * each), length)
                segment = peek_32(<char *>ends.buf + 8 * each + 4)
                while following < end and segment > 0:
                    start = begin
                    if following > begin:
                        start += (following - begin + segment - 1) // segment * segment
                    if start >= end:
                        break
                    known[(start >> BLOCK_BITS) % count] = start
                    following = ((start >> BLOCK_BITS) + 1) << BLOCK_BITS
                begin = end
            return following
        finally:
            PyBuffer_Release(&ends)
    finally:
        PyBuffer_Release(&view)


cdef struct Ids:
    int32_t session_id
    int32_t stream_id
    int32_t term_id


cdef bint is_next(const char *packet, int64_t length, int64_t offset, Ids *ids) noexcept nogil:
    """Return whether a datagram consists of whole data frames that belong at an offset."""
    cdef int64_t walked = 0
    cdef int64_t step = 0
    cdef int32_t usual = 0
    cdef int32_t frame_length
    if (
        length < HEADER
        or length & 31
        or packet[4] != 0
        or peek_32(packet + 12) != ids.session_id
        or peek_32(packet + 16) != ids.stream_id
        or peek_32(packet + 20) != ids.term_id
    ):
        return False
    while walked < length:
        frame_length = peek_32(packet + walked)
        if (
            frame_length < HEADER
            or peek_32(packet + walked + 4) >> 16 != 1
            or peek_32(packet + walked + 8) != offset + walked
        ):
            return False
        walked += step_of(frame_length, &usual, &step)
    return walked == length


cdef int64_t place(const char *data, int64_t data_length, int64_t start, const char *segments,
                   int64_t cut_count, char *term, int64_t offset, int64_t limit) noexcept nogil:
    """Place consecutive datagrams from `start` on; a batch ends where the data ends, or before."""
    cdef Ids ids
    cdef int64_t placed = 0
    cdef int64_t each, end, segment, length
    data_length -= start
    if data_length < HEADER:
        return 0
    data += start
    ids.session_id = peek_32(data + 12)
    ids.stream_id = peek_32(data + 16)
    ids.term_id = peek_32(data + 20)
    for each in range(cut_count):
        end = min(peek_32(segments + 8 * each) - start, data_length)
        segment = peek_32(segments + 8 * each + 4)
        if segment < HEADER or end <= placed:
            break
        while placed < end:
            length = min(segment, end - placed)
            if (
                placed + length > limit
                or not is_next(data + placed, length, offset + placed, &ids)
                or (<int32_t *>(term + offset + placed))[0] != 0
            ):
                break
            placed += length
        if placed < end:
            break
    if placed:
        # The data may be a part of the same term.
        memmove(term + offset + 4, data + 4, placed - 4)
        store_release_32(<int32_t *>(term + offset), peek_32(data))
    return placed

def place_batches(object data, segments, int64_t index, int64_t start, object term, words, int64_t offset,
               *, int64_t limit):
    """Place consecutive segment batches in a hole; twin of `logbuffer.placing.place_batches`."""
    cdef Py_buffer source
    cdef Py_buffer ends
    cdef Py_buffer view
    cdef int64_t count
    take(data, &source)
    try:
        take(segments, &ends)
        try:
            PyObject_GetBuffer(term, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
            try:
                count = ends.len // 8 - index // 2
                if not is_slot(&view, offset) or index < 0 or count <= 0 or start < 0:
                    return 0
                return place(<const char *>source.buf, source.len, start,
                             <const char *>ends.buf + 4 * (index & ~1), count,
                             <char *>view.buf, offset, min(limit, view.len - offset))
            finally:
                PyBuffer_Release(&view)
        finally:
            PyBuffer_Release(&ends)
    finally:
        PyBuffer_Release(&source)


cdef int64_t hole_end(const char *term, int64_t offset, int64_t limit) noexcept nogil:
    """Return where the first frame behind an offset begins, or the limit; in a gap of 1 MiB its end."""
    cdef int64_t start = offset + HEADER
    limit = max(start, min(limit, offset + GAP_LENGTH_LIMIT))
    while start < limit and not load_acquire_32(<int32_t *>(term + start)):
        start += HEADER
    return min(start, limit)


def place_apart(object data, segments, int64_t index, int64_t start, object term, words, ids, *, int64_t base,
                int64_t first, int64_t hwm, int64_t limit, requested):
    """Place runs of datagrams, each where it belongs; twin of `logbuffer.rebuilder.place_apart`."""
    cdef Py_buffer source
    cdef Py_buffer ends
    cdef Py_buffer view
    cdef Ids wanted
    cdef int64_t count, offset, room, placed, reach, stop, total
    cdef int64_t taken = start
    cdef const char *packet
    cdef const char *cuts
    cdef list late = []
    wanted.session_id, wanted.stream_id, wanted.term_id = ids
    take(data, &source)
    try:
        take(segments, &ends)
        try:
            PyObject_GetBuffer(term, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
            try:
                count = ends.len // 8
                cuts = <const char *>ends.buf
                # Sums of what is bounded do not overflow.
                if (index < 0 or index & 1 or start < 0 or count <= 0 or not is_slot(&view, 0)
                        or not -POSITION_MAX <= first <= POSITION_MAX
                        or not -POSITION_MAX <= hwm <= POSITION_MAX
                        or not -POSITION_MAX <= limit <= POSITION_MAX
                        or not 0 <= base <= POSITION_MAX):
                    return 0, hwm, late
                index >>= 1
                total = min(peek_32(cuts + 8 * (count - 1)), source.len)
                while index < count:
                    stop = min(peek_32(cuts + 8 * index), source.len)
                    if min(peek_32(cuts + 8 * index + 4), stop - taken) < HEADER:
                        break
                    packet = <const char *>source.buf + taken
                    offset = peek_32(packet + 8)
                    if (peek_32(packet + 12) != wanted.session_id or peek_32(packet + 16) != wanted.stream_id
                            or peek_32(packet + 20) != wanted.term_id
                            or not max(0, first) <= offset <= view.len - HEADER or offset & 31):
                        break
                    room = min(limit, view.len) - offset
                    if offset < hwm:
                        if offset != first and base + offset not in requested:
                            break
                        if load_acquire_32(<int32_t *>(<char *>view.buf + offset)):
                            break
                        reach = min(hwm, view.len & ~31)
                        stop = min(reach, (offset + total - taken) & ~31)
                        if stop > offset:
                            stop = hole_end(<const char *>view.buf, offset, stop)
                        else:
                            stop = offset
                        if stop < reach:
                            room = min(room, stop - offset)
                    placed = place(<const char *>source.buf, source.len, taken, cuts + 8 * index, count - index,
                                   <char *>view.buf, offset, room)
                    if placed <= 0:
                        break
                    taken += placed
                    if offset < hwm:
                        late.append(offset)
                        late.append(offset + placed)
                    hwm = max(hwm, offset + placed)
                    while index < count and peek_32(cuts + 8 * index) < taken:
                        index += 1
                    # Only once: an empty datagram also counts as a batch.
                    if index < count and peek_32(cuts + 8 * index) == taken:
                        index += 1
                return taken - start, hwm, late
            finally:
                PyBuffer_Release(&view)
        finally:
            PyBuffer_Release(&ends)
    finally:
        PyBuffer_Release(&source)


def zero(object term, int64_t start, int64_t end):
    """Fill a range of a term with zeros; twin of `logbuffer.log_buffers.zero`."""
    cdef Py_buffer view
    PyObject_GetBuffer(term, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
    start = max(start, 0)
    end = min(end, view.len)
    if start < end:
        memset(<char *>view.buf + start, 0, end - start)
    PyBuffer_Release(&view)


cdef int64_t whole(const char *term, int64_t offset, int64_t limit) noexcept nogil:
    cdef int32_t frame_length
    cdef int32_t usual = 0
    cdef int64_t step = 0
    cdef int64_t following
    while offset < limit:
        frame_length = load_acquire_32(<int32_t *>(term + offset))
        if frame_length <= 0:
            break
        following = offset + step_of(frame_length, &usual, &step)
        if following > limit:
            break
        offset = following
    return offset


def skip_whole(object words, int64_t offset, int64_t limit):
    """Return the offset up to which frames are complete; twin of `logbuffer.placing.skip_whole`."""
    cdef Py_buffer view
    take(words, &view)
    try:
        if not is_slot(&view, offset):
            return offset
        return whole(<const char *>view.buf, offset, min(limit, view.len & ~31))
    finally:
        PyBuffer_Release(&view)


def scan_for_gap(object words, int64_t offset, *, int64_t limit):
    """Find the first gap; twin of `logbuffer.rebuilder.scan_for_gap`."""
    cdef Py_buffer view
    cdef const char *term
    take(words, &view)
    try:
        limit = min(limit, view.len) & ~31
        if not is_slot(&view, offset):
            return offset, 0
        term = <const char *>view.buf
        offset = whole(term, offset, limit)
        if offset >= limit:
            return offset, 0
        if load_acquire_32(<int32_t *>(term + offset)) > 0:
            return offset, limit - offset
        return offset, hole_end(term, offset, limit) - offset
    finally:
        PyBuffer_Release(&view)


def skip_own(object words, int64_t offset, int64_t limit, *, int32_t session_id, int32_t stream_id,
             int32_t term_id, int64_t mtu_length):
    """Find the frames of one stream; twin of `logbuffer.scanner.skip_own`."""
    cdef Py_buffer view
    cdef int64_t aligned
    cdef int32_t frame_length, kind
    cdef int32_t *frame
    take(words, &view)
    try:
        limit = min(limit, view.len & ~31)
        if not is_slot(&view, offset):
            return offset, False
        while offset < limit:
            frame = <int32_t *>(<char *>view.buf + offset)
            # Another processor has written it, and only its length says where the next one begins:
            # without this a driver of its own takes a tenth more time a message (udp-shared).
            prefetch(<char *>frame)
            frame_length = load_acquire_32(frame)
            kind = frame[1]
            aligned = align(frame_length)
            if (frame_length < HEADER or aligned > (view.len & ~31) - offset or kind & 0xFF
                    or kind >> 16 != 0 and (kind >> 16 != 1 or frame_length > mtu_length)
                    or frame[2] != offset or frame[3] != session_id or frame[4] != stream_id
                    or frame[5] != term_id):
                return offset, frame_length > 0
            offset += aligned
        return offset, False
    finally:
        PyBuffer_Release(&view)
