"""Makes recordings to read: frames by our own writer, in an archive that was never alive."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any

from aeron_async.archive.disk.catalog import Catalog
from aeron_async.archive.disk.checksums import checksum_named
from aeron_async.archive.disk.descriptor import RecordingDescriptor
from aeron_async.archive.disk.files import OsDirectory
from aeron_async.archive.disk.recording_writer import RecordingWriter
from aeron_async.spark.columns import default_columns
from aeron_async.spark.options import ArchiveOptions
from aeron_async.spark.planning import plan_batch
from aeron_async.spark.ranges import ScanSettings
from aeron_async.spark.scan import Scanner

if TYPE_CHECKING:
    from pathlib import Path

    from aeron_async.spark.ranges import RecordingRange
    from aeron_async.spark.scan import ScanCounts

__all__ = ["HEADER", "TERM", "RecordingMaker", "frame", "options_for", "scanned"]

HEADER = Struct("<iBBHiiiiq")
TERM = 65_536
BEGIN, END, WHOLE = 0x80, 0x40, 0xC0


def frame(
    payload: bytes,
    *,
    term_offset: int,
    term_id: int = 7,
    flags: int = WHOLE,
    kind: int = 1,
    session_id: int = 5,
    stream_id: int = 1001,
    reserved: int = 0,
    length: int | None = None,
) -> bytes:
    """Return a frame with all that fills it up to a multiple of 32."""
    head = HEADER.pack(
        32 + len(payload) if length is None else length,
        0,
        flags,
        kind,
        term_offset,
        session_id,
        stream_id,
        term_id,
        reserved,
    )
    return head + payload + bytes(-len(payload) % 32)


class RecordingMaker:
    """Appends messages to a new recording of an archive's directory."""

    def __init__(
        self,
        path: Path,
        *,
        term_length: int = TERM,
        segment_length: int | None = None,
        initial_term_id: int = 7,
        start: int = 0,
        mtu: int = 1408,
        stream_id: int = 1001,
        channel: str = "aeron:ipc",
        checksum: str | None = None,
        session_id: int = 5,
    ) -> None:
        self.directory = OsDirectory(path)
        catalog = Catalog.open(self.directory, capacity=4_096)
        self.descriptor = catalog.add(
            RecordingDescriptor(
                recording_id=0,
                start_position=start,
                start_timestamp_ms=1,
                initial_term_id=initial_term_id,
                term_length=term_length,
                segment_length=segment_length or 2 * term_length,
                mtu_length=mtu,
                session_id=session_id,
                stream_id=stream_id,
                stripped_channel=channel,
                original_channel=channel,
                source_identity="aeron:ipc",
            )
        )
        catalog.close()
        self.session_id = session_id
        self.positions: list[int] = []
        self._checksum = checksum_named(checksum)
        self._writer = RecordingWriter(
            self.directory, self.descriptor, position=start, checksum=self._checksum
        )

    @property
    def recording_id(self) -> int:
        return self.descriptor.recording_id

    @property
    def position(self) -> int:
        return self._writer.position

    def extend(self, descriptor: RecordingDescriptor, position: int) -> None:
        """Go on at a position, as a recording that was cut there."""
        self._writer.close()
        self.descriptor, self.session_id = descriptor, descriptor.session_id
        self._writer = RecordingWriter(
            self.directory, descriptor, position=position, checksum=self._checksum
        )

    def message(self, payload: bytes, *, reserved: int = 0) -> int:
        """Append a message in as many frames as it takes; return where it begins."""
        most = self.descriptor.mtu_length - 32
        parts = [payload[at : at + most] for at in range(0, len(payload), most)] or [b""]
        needed = sum(32 + ((len(part) + 31) & -32) for part in parts)
        left = -self.position % self.descriptor.term_length or self.descriptor.term_length
        if needed > left:
            self.padding(left)
        begin = self.position
        for number, part in enumerate(parts):
            flags = (BEGIN if number == 0 else 0) | (END if number == len(parts) - 1 else 0)
            self.fragment(part, flags=flags, reserved=reserved)
        self.positions.append(begin)
        return begin

    def fragment(self, payload: bytes, *, flags: int, reserved: int = 0) -> None:
        """Append one frame."""
        block = frame(payload, flags=flags, reserved=reserved, **self._place())
        self._writer.write([(memoryview(block), 0)])

    def padding(self, length: int) -> None:
        """Append padding of that many bytes, its header included."""
        block = frame(b"", kind=0, length=length, **self._place())
        self._writer.write([(memoryview(block), length - 32)])

    def _place(self) -> dict[str, int]:
        term, offset = divmod(self.position, self.descriptor.term_length)
        term_id = (self.descriptor.initial_term_id + term + 2**31) % 2**32 - 2**31
        return {
            "term_offset": offset,
            "term_id": term_id,
            "session_id": self.session_id,
            "stream_id": self.descriptor.stream_id,
        }

    def stop(self) -> None:
        """Let the catalog say where it ends."""
        catalog = Catalog.open(self.directory, capacity=4_096)
        catalog.update(self.recording_id, stop_position=self.position, stop_timestamp_ms=2)
        catalog.close()
        self._writer.close()

    def close(self) -> None:
        """Let it be as if its archive had died."""
        self._writer.close()


def options_for(path: Path | str, **given: str) -> ArchiveOptions:
    """Return what a query with those options asks for."""
    return ArchiveOptions.parse({"path": str(path), **given})


def scanned(
    options: ArchiveOptions, parts: list[RecordingRange] | None = None, **more: Any
) -> tuple[dict[str, list[Any]], ScanCounts]:
    """Return columns, and what was counted, of what a query would read."""
    scanner = Scanner(ScanSettings(options, default_columns(options)), **more)
    found: dict[str, list[Any]] = {name: [] for name in scanner.schema.names}
    for batch in scanner.batches(plan_batch(options) if parts is None else parts):
        assert batch.schema == scanner.schema
        batch.validate(full=True)
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            found[name] += column.to_pylist()
    return found, scanner.counts
