"""Frames to be recorded: whatever a publication could have left in its log."""

from __future__ import annotations

import random
from struct import Struct
from typing import TYPE_CHECKING, Final

from aeron_async.archive.disk.descriptor import RecordingDescriptor
from aeron_async.archive.disk.recording_reader import RecordingReader
from aeron_async.archive.disk.segment_scan import ScanBuffer

if TYPE_CHECKING:
    from aeron_async.archive.disk.checksums import Checksum
    from aeron_async.archive.disk.files import Directory

__all__ = ["FrameSource", "described", "frame", "read_all"]

HEADER: Final = Struct("<iBBHiiiiq")
MTU: Final = 1_408
TERM: Final = 65_536


def described(**changes: int | str) -> RecordingDescriptor:
    """Return a recording with small terms and segments of two of them."""
    values: dict[str, int | str] = {
        "recording_id": 0,
        "start_position": 0,
        "start_timestamp_ms": 1,
        "initial_term_id": 7,
        "term_length": TERM,
        "segment_length": 2 * TERM,
        "mtu_length": MTU,
        "session_id": -5,
        "stream_id": 10,
        "stripped_channel": "aeron:ipc",
        "original_channel": "aeron:ipc",
        "source_identity": "aeron:ipc",
    }
    return RecordingDescriptor(**{**values, **changes})  # type: ignore[arg-type]


def frame(
    descriptor: RecordingDescriptor,
    position: int,
    payload: bytes,
    *,
    kind: int = 1,
    flags: int = 0xC0,
    length: int | None = None,
) -> bytes:
    """Return a frame that belongs at a position, filled up to 32 bytes."""
    term_id = descriptor.initial_term_id + position // descriptor.term_length
    length = 32 + len(payload) if length is None else length
    header = HEADER.pack(
        length,
        0,
        flags,
        kind,
        position % descriptor.term_length,
        descriptor.session_id,
        descriptor.stream_id,
        (term_id + (1 << 31)) % (1 << 32) - (1 << 31),
        position,
    )
    return header + payload + bytes(-len(payload) % 32)


class FrameSource:
    """Gives block after block of a stream, none twice the same."""

    def __init__(
        self, descriptor: RecordingDescriptor, seed: int, position: int | None = None
    ) -> None:
        self.descriptor = descriptor
        self.random = random.Random(seed)
        self.position = descriptor.start_position if position is None else position

    def block(self, most: int = 12_000) -> tuple[memoryview, int]:
        """Return whole frames of one term, and how far the last one goes on if it is padding."""
        out = bytearray()
        term_length = self.descriptor.term_length
        wanted = self.random.randrange(1, most)
        while len(out) < wanted:
            left = term_length - self.position % term_length
            size = self.random.choice((0, 1, 31, 32, 33, 100, 100, 700, MTU - 32))
            aligned = (32 + size + 31) & -32
            if aligned > left or self.random.random() < 1 / 50:
                length = left if aligned > left else min(left, 32 * self.random.randrange(1, 40))
                out += frame(self.descriptor, self.position, b"", kind=0, length=length)
                self.position += length
                return memoryview(bytes(out)), length - 32
            payload = self.random.randbytes(size)
            out += frame(self.descriptor, self.position, payload)
            self.position += aligned
            if self.position % term_length == 0:
                break
        return memoryview(bytes(out)), 0


def read_all(
    directory: Directory,
    descriptor: RecordingDescriptor,
    start: int,
    end: int,
    *,
    checksum: Checksum | None = None,
    buffer_length: int = 1 << 16,
) -> bytes:
    """Return the frames of a recording, with zeros for what padding goes on for."""
    reader = RecordingReader(directory, descriptor, start, checksum=checksum)
    buffer, out = ScanBuffer(buffer_length), bytearray()
    try:
        while (block := reader.read(buffer, recorded=end)) is not None:
            out += block.frames
            out += bytes(block.padding)
    finally:
        reader.close()
    return bytes(out)
