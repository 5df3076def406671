"""A recording that grows when it is told to, message by message, each with its number."""

from __future__ import annotations

import random
from struct import Struct
from typing import TYPE_CHECKING, Final

from aeron_async.archive.disk.catalog import Catalog
from aeron_async.archive.disk.files import OsDirectory
from aeron_async.archive.disk.recording_writer import RecordingWriter
from tests.archive.disk.streams import described, frame

if TYPE_CHECKING:
    from pathlib import Path

    from aeron_async.archive.disk.checksums import Checksum
    from aeron_async.archive.disk.descriptor import RecordingDescriptor

__all__ = ["NUMBER", "GrowingArchive", "GrowingRecording"]

NUMBER: Final = Struct("<q")
LARGEST_PAYLOAD: Final = 1_376
SIZES: Final = (8, 8, 24, 100, 100, 100, 500, 1_376, 1_377, 4_000)


class GrowingArchive:
    """An archive in a folder, without a mark file, so nobody is held to be at work in it.

    Args:
        path: Of the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.directory = OsDirectory(path)
        self.catalog = Catalog.open(self.directory, capacity=4_096)

    def record(self, checksum: Checksum | None = None, **changes: int | str) -> GrowingRecording:
        """Return a new recording."""
        descriptor = self.catalog.add(described(**changes))
        return GrowingRecording(self, descriptor, checksum)


class GrowingRecording:
    """One recording.

    Args:
        archive: Of which it is.
        descriptor: In its catalog.
        checksum: In place of sessions; None for none.
    """

    def __init__(
        self,
        archive: GrowingArchive,
        descriptor: RecordingDescriptor,
        checksum: Checksum | None = None,
    ) -> None:
        self.archive = archive
        self.recording_id = descriptor.recording_id
        self.count = 0
        self.starts: list[int] = []
        self.ends: list[int] = []
        self._descriptor = descriptor
        self._random = random.Random(descriptor.recording_id)
        self._writer = RecordingWriter(
            archive.directory, descriptor, position=descriptor.start_position, checksum=checksum
        )

    @property
    def position(self) -> int:
        """Return up to where it was written, in bytes."""
        return self._writer.position

    def write(self, count: int, size: int | None = None) -> None:
        """Append messages, in fragments where they are long."""
        for _ in range(count):
            length = self._random.choice(SIZES) if size is None else size
            self.write_payload((NUMBER.pack(self.count) * (length // 8 + 1))[: max(length, 8)])
            self.count += 1

    def write_payload(self, payload: bytes) -> None:
        """Append one message."""
        frames = fragments(payload)
        total = sum((32 + len(part) + 31) & -32 for part, _ in frames)
        self.pad_unless(total)
        out, position = b"", self.position
        self.starts.append(position)
        for part, flags in frames:
            out += frame(self._descriptor, position + len(out), part, flags=flags)
        self._writer.write([(memoryview(out), 0)])
        self.ends.append(self.position)

    def write_first_half(self, payload: bytes) -> None:
        """Append all fragments of a message but the last one."""
        parts = fragments(payload)
        assert len(parts) > 1
        self.pad_unless(len(parts) * 1_408)
        self.starts.append(self.position)
        for part, flags in parts[:-1]:
            out = frame(self._descriptor, self.position, part, flags=flags)
            self._writer.write([(memoryview(out), 0)])

    def write_second_half(self, payload: bytes) -> None:
        """Append the last fragment of a message."""
        part, flags = fragments(payload)[-1]
        self._writer.write(
            [(memoryview(frame(self._descriptor, self.position, part, flags=flags)), 0)]
        )
        self.ends.append(self.position)

    def pad_unless(self, length: int) -> None:
        """Fill up the term if so much does not fit."""
        left = -self.position % self._descriptor.term_length or self._descriptor.term_length
        if length > left:
            padding = frame(self._descriptor, self.position, b"", kind=0, length=left)
            self._writer.write([(memoryview(padding), left - 32)])

    def stop(self) -> None:
        """Let the catalog know where it ends."""
        self._writer.close()
        self.archive.catalog.update(
            self.recording_id, stop_position=self.position, stop_timestamp_ms=9
        )


def fragments(payload: bytes) -> list[tuple[bytes, int]]:
    """Return the parts of a message with their flags."""
    parts = [
        payload[at : at + LARGEST_PAYLOAD] for at in range(0, max(len(payload), 1), LARGEST_PAYLOAD)
    ]
    flags = [0] * len(parts)
    flags[0] |= 0x80
    flags[-1] |= 0x40
    return list(zip(parts, flags, strict=True))
