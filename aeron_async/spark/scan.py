"""Scanner of recordings: reads them in pieces into Arrow batches, and searches them for a time.

A piece is read into a buffer that is reused, and never mapped, because mapped memory counts towards
the memory limit of a Python worker. A piece ends at the end of its segment or anywhere before; the
next one begins with the frame or message that was not whole.

Damaged or missing data raises an error with its position. With `failOnDataLoss=false`, the scanner
counts and skips the rest of the term, or of the file, and continues with the next term, which
always begins with a frame.

The search for a time assumes that times rise with positions. A binary search looks at one message
of each term that it visits, and then at the messages of a single term.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import attrs
import numpy as np

from aeron_async.archive.disk.checksums import checksum_named
from aeron_async.archive.disk.files import read_exactly
from aeron_async.archive.disk.segment_scan import HEADER_LENGTH, check_frame
from aeron_async.archive.disk.segments import segment_name, term_base
from aeron_async.clock import NS_PER_MS
from aeron_async.errors import DataLossError
from aeron_async.logs import get_logger
from aeron_async.spark.catalog import open_directory
from aeron_async.spark.columns import project
from aeron_async.spark.frame_finder import has_checksums
from aeron_async.spark.ranges import ScanSettings
from aeron_async.spark.record_batches import BatchBuilder, RowBatch
from aeron_async.spark.rows import RowScan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import ReadableDirectory, ReadableFile
    from aeron_async.spark.decoding import CodecDecoder
    from aeron_async.spark.options import ArchiveOptions
    from aeron_async.spark.ranges import RecordingRange

__all__ = [
    "PIECE_LENGTH",
    "ScanCounts",
    "Scanner",
    "first_not_older",
]

OF_SESSION: Final = frozenset({"session_id", "frame_checksum"})
"""Columns whose place in a frame may hold its checksum."""
PIECE_LENGTH: Final = 2 << 20
LONGEST_PIECE: Final = 64 << 20
"""Holds any message: at most 16 MiB, and with frame headers less than four times as much."""
log: Final = get_logger(__name__)


@final
@attrs.define
class ScanCounts:
    """Counts of one scan.

    Attributes:
        frames: Frames, padding included.
        rows: Rows that were yielded.
        dropped_fragments: Data frames in no row: the message began earlier, or lacks a part.
        broken_messages: Messages that lack a part.
        damaged_places: Places where data was damaged or missing.
        lost_bytes: Bytes skipped there.
        walked_pieces: Pieces whose frames NumPy had to find one by one; 0 with compiled code.
        pieces: All pieces.
    """

    frames: int = 0
    rows: int = 0
    dropped_fragments: int = 0
    broken_messages: int = 0
    damaged_places: int = 0
    lost_bytes: int = 0
    walked_pieces: int = 0
    pieces: int = 0


@final
class Scanner:
    """Reads ranges of one archive, one after the other.

    Args:
        settings: What to read, and how frames become rows.
        directory: Directory of the archive; by default that of the settings.
        piece_length: Length of a read, in bytes; a multiple of 32.
        decoder: Decodes payloads in the same pass, in place of the column of payloads; None for
            that column.

    Attributes:
        counts: Counts so far.
        schema: Arrow schema of every batch.
    """

    def __init__(
        self,
        settings: ScanSettings,
        *,
        directory: ReadableDirectory | None = None,
        piece_length: int = PIECE_LENGTH,
        decoder: CodecDecoder | None = None,
    ) -> None:
        self._settings = settings
        self._directory = directory or open_directory(settings.options)
        self._builder = BatchBuilder(settings, decoder)
        self.schema: Any = self._builder.schema
        self._checksum = checksum_named(settings.options.verify_checksum)
        self._piece_length = piece_length
        self._memory = memoryview(bytearray(piece_length))
        self._file: ReadableFile | None = None
        self.counts: ScanCounts = ScanCounts()

    def batches(self, parts: Iterable[RecordingRange]) -> Iterator[Any]:
        """Yield the rows of all ranges as Arrow batches, in order; see `rows`."""
        return map(self._builder.build, self.rows(parts))

    def rows(self, parts: Iterable[RecordingRange]) -> Iterator[RowBatch]:
        """Yield the rows of all ranges, in order; each batch is valid until the next is taken.

        Raises:
            DataLossError: Data is damaged or missing, and `failOnDataLoss` is set.
            OSError: The disk failed.
        """
        try:
            for part in parts:
                yield from self._range(part)
        finally:
            self._close()
        if self.counts.damaged_places:
            log.warning("recordings_read_in_part", **attrs.asdict(self.counts))
        elif self.counts.dropped_fragments:
            log.info("fragments_dropped", **attrs.asdict(self.counts))

    def _with_checksums(self, part: RecordingRange) -> RecordingRange:
        """Return a range that tells whether its frames have checksums, if a column depends on it.

        The task finds out and not who plans, because only the files tell.
        """
        is_needed = not OF_SESSION.isdisjoint(self._settings.projection.names)
        if part.is_replayed or part.has_checksums is not None or not is_needed:
            return part
        has = self._checksum is not None or has_checksums(
            self._directory, part.descriptor, part.start, part.end
        )
        return attrs.evolve(part, has_checksums=has)

    def _range(self, part: RecordingRange) -> Iterator[RowBatch]:
        options = self._settings.options
        part = self._with_checksums(part)
        rows = RowScan(
            part.descriptor,
            by_message=options.fragment_mode == "message",
            include_padding=options.include_padding,
            checksum=self._checksum,
        )
        position = part.start
        wanted = self._piece_length
        self._close()
        while position < part.end:
            base = part.descriptor.segment_base(position)
            limit = min(part.end, base + part.descriptor.segment_length)
            piece, problem = self._read(part, base, position, min(wanted, limit - position))
            goes_on = problem is None and position + len(piece) < limit
            rows.scan(piece, position, goes_on=goes_on)
            if rows.end:
                self._count(rows)
                yield from self._cut(piece, rows, part)
                position += rows.end
            elif goes_on and rows.problem_at < 0 and wanted < LONGEST_PIECE:
                wanted *= 2
            else:
                found = problem_of(piece, position, rows, part.descriptor)
                problem = found or problem or beyond(piece, limit)
                position = self._skip(part, base, position, problem)

    def _cut(self, piece: memoryview, rows: RowScan, part: RecordingRange) -> Iterator[RowBatch]:
        """Yield the rows of a piece as batches of limited size."""
        settings, options = self._settings, self._settings.options
        end = 0
        while end < rows.count:
            begin = end
            end = rows.cut(begin, options.rows_per_batch, options.bytes_per_batch)
            yield RowBatch(piece, rows, part, settings, begin, end)

    def _count(self, rows: RowScan) -> None:
        counts = self.counts
        counts.pieces += 1
        counts.walked_pieces += rows.is_walked
        counts.frames += rows.frames
        counts.rows += rows.count
        counts.dropped_fragments += rows.dropped
        counts.broken_messages += rows.broken

    def _read(
        self, part: RecordingRange, base: int, position: int, length: int
    ) -> tuple[memoryview, str | None]:
        """Return the bytes at a position, and the reason if there are fewer than requested."""
        name = segment_name(part.descriptor.recording_id, base)
        if self._file is None or self._file.name != name:
            self._close()
            try:
                self._file = self._directory.open_to_read(name)
            except FileNotFoundError:
                return self._memory[:0], "its file is not there"
        if length > len(self._memory):
            self._memory = memoryview(bytearray(length))
        piece = self._memory[:length]
        count = read_exactly(self._file, piece, position - base)
        if count < length:
            missing = f"its file ends {length - count} bytes too early"
            return piece[: count & -HEADER_LENGTH], missing
        return piece, None

    def _skip(self, part: RecordingRange, base: int, position: int, problem: str) -> int:
        """Count damage and return where to continue behind it; raise if `failOnDataLoss` is set."""
        descriptor = part.descriptor
        name = segment_name(descriptor.recording_id, base)
        if self._settings.options.fail_on_data_loss:
            message = (
                f"{problem} ({name}, offset {position - base} in {self._directory.path}); "
                "failOnDataLoss=false continues with the next term"
            )
            raise DataLossError(message, recording_id=descriptor.recording_id, position=position)
        following = term_base(position, descriptor.term_length) + descriptor.term_length
        if self._file is None:
            following = base + descriptor.segment_length
        following = min(following, part.end)
        self.counts.damaged_places += 1
        self.counts.lost_bytes += following - position
        log.warning(
            "recording_damaged",
            recording_id=descriptor.recording_id,
            position=position,
            lost_bytes=following - position,
            problem=problem,
        )
        return following

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


def problem_of(
    piece: memoryview, position: int, rows: RowScan, descriptor: RecordingDescriptor
) -> str | None:
    """Return what is wrong with the first frame that is not valid; None if all are."""
    at = rows.problem_at
    if at < 0:
        return None
    if not rows.is_checksum_wrong:
        return check_frame(piece[at:], descriptor, position=position + at, checksum=None)[0]
    stored = int.from_bytes(piece[at + 12 : at + 16], "little", signed=True)
    return (
        f"a frame whose checksum is not {stored}, as it says: was it recorded with another, or "
        "none? Change verifyChecksum"
    )


def beyond(piece: memoryview, limit: int) -> str:
    """Return the problem text for a frame or a message that does not end where it must."""
    length = int.from_bytes(piece[:4], "little", signed=True)
    return (
        f"a frame of {length} bytes, or its message, extends beyond {limit}, the end of the "
        "recording"
    )


PROBE_LENGTH: Final = 64 << 10
"""Bytes read of a term to find the time of its first message."""


def first_not_older(
    directory: ReadableDirectory, part: RecordingRange, options: ArchiveOptions, timestamp_ms: int
) -> int | None:
    """Return where the first message begins that is not older than a time; None if all are older.

    Args:
        directory: Directory of the archive.
        part: Range to search.
        options: `timestampFrom`, and what to do about damage.
        timestamp_ms: In milliseconds since 1970.
    """
    wanted_ns = timestamp_ms * NS_PER_MS
    term_length = part.descriptor.term_length
    first = term_base(part.start, term_length)
    low, high = 0, -(-(part.end - first) // term_length)
    # Find the last term whose first message is older: the wanted message is in it, or begins the
    # next.
    while high - low > 1:
        middle = (low + high) // 2
        term = attrs.evolve(part, start=first + middle * term_length)
        oldest = next(
            (times[0] for _, times in stamps(directory, term, options, PROBE_LENGTH)), None
        )
        if oldest is None or oldest >= wanted_ns:
            high = middle
        else:
            low = middle
    start = max(first + low * term_length, part.start)
    for positions, times in stamps(directory, attrs.evolve(part, start=start), options):
        found = np.flatnonzero(times >= wanted_ns)
        if len(found):
            return int(positions[found[0]])
    return None


def stamps(
    directory: ReadableDirectory,
    part: RecordingRange,
    options: ArchiveOptions,
    piece_length: int = 2 << 20,
) -> Iterator[tuple[Any, Any]]:
    """Yield positions and times in nanoseconds of those messages in a range that have a time."""
    projection = project(("position", "timestamp_ns"), "message")
    options = attrs.evolve(
        options, fragment_mode="message", include_padding=False, verify_checksum=None
    )
    settings = ScanSettings(options, projection)
    scanner = Scanner(settings, directory=directory, piece_length=piece_length)
    for batch in scanner.batches([part]):
        said = batch.filter(batch.column(1).is_valid())
        if said.num_rows:
            yield said.column(0).to_numpy(), said.column(1).to_numpy()
