"""The target for logs: whatever lies in a term, walking it ends, and ends within the term.

A log may be a file that another process writes, and an image holds what strangers sent. The script
lays frames and stray bytes into the three terms, sets tails, and then calls whoever walks a term.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from aeron_async.logbuffer.log_buffers import clean_to
from aeron_async.logbuffer.position import max_message_length, pack_tail
from aeron_async.logbuffer.reader import TermReader
from aeron_async.logbuffer.rebuilder import UnblockResult, fill_gap, insert, scan_for_gap, unblock
from aeron_async.logbuffer.scanner import scan_block, scan_for_send
from tests.fuzz.script import Script
from tests.logbuffer.logs import INITIAL_TERM_ID, MTU_LENGTH, TERM_LENGTH, make_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.logbuffer.reader import ReadMessage

SLOT: Final = 32
SLOT_COUNT: Final = TERM_LENGTH // SLOT
RECORD_LIMIT: Final = 64
STEP_LIMIT: Final = 16
FRAME_START: Final = Struct("<iBBH")
LONGEST_MESSAGE: Final = max_message_length(TERM_LENGTH)

LOG: Final = make_log()
CLEAN_METADATA: Final = bytes(LOG.metadata.block)
ZEROS: Final = bytes(TERM_LENGTH)


def log(data: bytes) -> None:
    """Fill a log as the script says, then walk it as the script says."""
    script = Script(data)
    try:
        for _ in range(script.byte() % RECORD_LIMIT):
            write(script)
        set_tails(script)
        for _ in range(STEP_LIMIT):
            if script.is_over:
                break
            WALKS[script.byte() % len(WALKS)](script)
    finally:
        for term in LOG.terms:
            term[:] = ZEROS
        LOG.metadata.block[:] = CLEAN_METADATA


def write(script: Script) -> None:
    """Lay a run of frames, each behind the one before, or stray bytes."""
    choice = script.byte()
    term = LOG.terms[choice % 3]
    offset = place(script)
    if choice & 0x80:
        stray = script.take(script.byte() % 64)[: TERM_LENGTH - offset]
        term[offset : offset + len(stray)] = stray
        return
    frame_length = script.int32() if choice & 0x40 else script.byte() * 8
    flags, kind = script.byte(), script.byte() & 1
    for _ in range(1 + (choice >> 2 & 7)):
        if offset >= TERM_LENGTH:
            return
        FRAME_START.pack_into(term, offset, frame_length, 0, flags, kind)
        offset += max(SLOT, (frame_length + SLOT - 1) & -SLOT)


def place(script: Script) -> int:
    """Return an offset near the start of a term, near its end, or anywhere."""
    choice = script.byte()
    if choice < 0x60:
        return choice * SLOT
    if choice < 0xC0:
        return TERM_LENGTH - (choice - 0x5F) * SLOT
    return script.short() % SLOT_COUNT * SLOT


def set_tails(script: Script) -> None:
    metadata = LOG.metadata
    choice = script.byte()
    if choice & 1:
        return
    metadata.active_term_count = script.signed()
    for index in range(3):
        term_id = INITIAL_TERM_ID + script.signed()
        metadata.set_tail(index, pack_tail(term_id, script.int32() & 0xFFFF_FFFF))


def scan_to_send(script: Script) -> None:
    index, offset = script.byte() % 3, place(script)
    limit = script.short()
    available, padding = scan_for_send(
        LOG.terms[index], LOG.term_words[index], offset, limit=min(limit, MTU_LENGTH)
    )
    assert 0 <= available <= min(limit, MTU_LENGTH)
    assert padding >= 0
    assert offset + available + padding <= TERM_LENGTH


def scan_a_block(script: Script) -> None:
    index, offset = script.byte() % 3, place(script)
    end = scan_block(LOG.term_words[index], offset, limit=min(script.short(), TERM_LENGTH))
    assert offset <= end <= TERM_LENGTH


def find_gap(script: Script) -> None:
    index, offset = script.byte() % 3, place(script)
    limit = place(script)
    start, length = scan_for_gap(LOG.term_words[index], offset, limit=limit)
    assert offset <= start <= TERM_LENGTH
    assert length >= 0
    assert start + length <= TERM_LENGTH
    if length and script.byte() & 1:
        fill_gap(LOG, term_id=INITIAL_TERM_ID + index, offset=start, length=length)
        assert LOG.term_words[index][start >> 2] != 0


def place_datagram(script: Script) -> None:
    index, offset = script.byte() % 3, place(script) + (script.byte() & 3)
    before = LOG.term_words[index][offset >> 2]
    packet = memoryview(script.take(SLOT * (1 + script.byte() % 8)))
    if insert(LOG.terms[index], LOG.term_words[index], offset, packet):
        assert before == 0
        assert LOG.terms[index][offset : offset + len(packet)] == packet


def read(script: Script) -> None:
    """Read messages until there are none, or a whole log has been passed."""
    start = script.byte() % 3 * TERM_LENGTH + place(script)
    limit_position = start + script.short() * SLOT if script.byte() & 1 else None
    reader = TermReader(LOG, start)
    limit = 1 + script.byte() % 8
    while True:
        before = reader.position
        found: list[ReadMessage] = []
        count = reader.read_messages(found, limit=limit, limit_position=limit_position)
        assert count == len(found) <= limit
        check_progress(before, reader.position)
        for message, position, _ in found:
            assert before < position <= reader.position
            assert len(message) <= max(LONGEST_MESSAGE, TERM_LENGTH - SLOT)
        if reader.position == before or reader.position >= start + 3 * TERM_LENGTH:
            break
    assert reader.discarded_fragments >= 0


def poll(script: Script) -> None:
    """Deliver raw frames, by as many calls as a term has slots at most."""
    start = script.byte() % 3 * TERM_LENGTH + place(script)
    limit_position = start + script.short() * SLOT if script.byte() & 1 else None
    reader = TermReader(LOG, start)
    seen = [start]

    def handler(payload: memoryview, position: int, flags: int, reserved_value: int) -> None:
        del flags, reserved_value
        assert seen[-1] + len(payload) <= position
        assert position > seen[-1]
        seen.append(position)

    limit = 1 + script.byte() % 8
    while True:
        before = reader.position
        assert reader.poll(handler, fragment_limit=limit, limit_position=limit_position) <= limit
        check_progress(before, reader.position)
        if reader.position == before or reader.position >= start + 3 * TERM_LENGTH:
            break


def check_progress(before: int, after: int) -> None:
    assert before <= after <= (before & -TERM_LENGTH) + TERM_LENGTH
    assert after % SLOT == 0


def take_over(script: Script) -> None:
    """Unblock where a publisher may have stopped."""
    position = script.byte() % 3 * TERM_LENGTH + place(script)
    words = LOG.term_words[position // TERM_LENGTH]
    offset = position % TERM_LENGTH
    before = words[offset >> 2]
    active = LOG.metadata.active_term_count
    result = unblock(LOG, position)
    if before > 0:
        assert result is UnblockResult.NO_ACTION or LOG.metadata.active_term_count != active
    frame_length = words[offset >> 2]
    if result is not UnblockResult.NO_ACTION and frame_length != before:
        assert 0 < frame_length <= TERM_LENGTH - offset


def clean(script: Script) -> None:
    start = script.byte() % 3 * TERM_LENGTH + place(script)
    end = start + script.signed() * SLOT
    cleaned = clean_to(LOG, clean_position=start, position=end)
    check_progress(start, cleaned)
    assert cleaned <= max(start, end)
    index, offset = start // TERM_LENGTH, start % TERM_LENGTH
    assert not any(LOG.terms[index][offset : offset + cleaned - start])


WALKS: Final[tuple[Callable[[Script], None], ...]] = (
    read,
    poll,
    scan_to_send,
    scan_a_block,
    find_gap,
    place_datagram,
    take_over,
    clean,
)
