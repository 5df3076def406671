"""A recording to read fast: messages of many lengths, written by our own writer."""

from __future__ import annotations

import random
from struct import Struct
from typing import TYPE_CHECKING, Final

from aeron_async.archive.disk.catalog import Catalog
from aeron_async.archive.disk.descriptor import RecordingDescriptor
from aeron_async.archive.disk.files import OsDirectory
from aeron_async.archive.disk.recording_writer import RecordingWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["TERM_LENGTH", "make_sample"]

TERM_LENGTH: Final = 16 << 20
SEGMENT_LENGTH: Final = 128 << 20
INITIAL_TERM_ID: Final = 7
SESSION_ID: Final = 5
STREAM_ID: Final = 1001
HEADER: Final = Struct("<iBBHiiiiq")
BEGIN: Final = 0x80
END: Final = 0x40
MTU: Final = 1_408
BODY_LENGTH: Final = 1 << 16
SHARE_OF_LONG_ONES: Final = 0.1


def mostly_short(chance: random.Random) -> int:
    """Return the length of a message, mostly 24 to 180 bytes."""
    is_long = chance.random() < SHARE_OF_LONG_ONES
    return chance.randrange(180, 1_200) if is_long else chance.randrange(24, 180)


def make_sample(
    path: Path, length: int, length_of: Callable[[random.Random], int] = mostly_short
) -> int:
    """Record messages up to a length; return how many.

    Args:
        path: Of a new archive.
        length: In bytes; a multiple of the term's 16 MiB.
        length_of: Returns the length of a message, in bytes.
    """
    directory = OsDirectory(path)
    catalog = Catalog.open(directory)
    descriptor = catalog.add(
        RecordingDescriptor(
            recording_id=0,
            start_position=0,
            start_timestamp_ms=1,
            initial_term_id=INITIAL_TERM_ID,
            term_length=TERM_LENGTH,
            segment_length=SEGMENT_LENGTH,
            mtu_length=MTU,
            session_id=SESSION_ID,
            stream_id=STREAM_ID,
            stripped_channel="aeron:ipc",
            original_channel="aeron:ipc",
            source_identity="aeron:ipc",
        )
    )
    writer = RecordingWriter(directory, descriptor, position=0)
    chance = random.Random(1)
    # Letters, for texts are read out of messages, too.
    body = bytes(chance.choices(range(65, 91), k=2 * BODY_LENGTH))
    count = 0
    while writer.position < length:
        block, padding, made = term(writer.position, chance, body, length_of)
        writer.write([(block, padding)])
        count += made
    catalog.update(0, stop_position=writer.position, stop_timestamp_ms=2)
    writer.close()
    catalog.close()
    return count


def term(
    position: int, chance: random.Random, body: bytes, length_of: Callable[[random.Random], int]
) -> tuple[memoryview, int, int]:
    """Return a term of frames, how long the padding behind them is, and how many messages."""
    block = bytearray(TERM_LENGTH)
    term_id = INITIAL_TERM_ID + position // TERM_LENGTH
    offset = count = 0
    while True:
        length = length_of(chance)
        left = TERM_LENGTH - offset
        if offset + room_of(length) > TERM_LENGTH:
            break
        at = chance.randrange(BODY_LENGTH)
        flags = BEGIN
        while flags & END == 0:
            part = min(length, MTU - HEADER.size)
            length -= part
            flags |= 0 if length else END
            fields = (offset, SESSION_ID, STREAM_ID, term_id, position + offset)
            HEADER.pack_into(block, offset, part + HEADER.size, 0, flags, 1, *fields)
            block[offset + HEADER.size : offset + HEADER.size + part] = body[at : at + part]
            offset += (part + HEADER.size + 31) & -32
            at += part
            flags &= END
        count += 1
    if not left:
        return memoryview(block), 0, count
    fields = (offset, SESSION_ID, STREAM_ID, term_id, 0)
    HEADER.pack_into(block, offset, left, 0, BEGIN | END, 0, *fields)
    return memoryview(block)[: offset + HEADER.size], left - HEADER.size, count


def room_of(length: int) -> int:
    """Return the bytes that the frames of a message take."""
    whole, rest = divmod(length, MTU - HEADER.size)
    return whole * MTU + ((rest + HEADER.size + 31) & -32 if rest or not whole else 0)
