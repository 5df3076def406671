"""Finds where in a recording a time is, when its messages say when they were made.

Times are taken to rise with positions. One message of each term that a binary search comes by is
looked at, and then the messages of one term.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np

from aeron_async.archive.disk.segments import term_base
from aeron_async.spark.columns import project
from aeron_async.spark.ranges import ScanSettings
from aeron_async.spark.scan import Scanner

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aeron_async.archive.disk.files import Directory
    from aeron_async.spark.options import ArchiveOptions
    from aeron_async.spark.ranges import RecordingRange

__all__ = ["first_not_older"]

PROBE_LENGTH: Final = 64 << 10
"""Read of a term to see the time of its first message, in bytes."""
NS_PER_MS: Final = 1_000_000


def first_not_older(
    directory: Directory, part: RecordingRange, options: ArchiveOptions, timestamp_ms: int
) -> int | None:
    """Return where the first message begins that is not older than a time; None if all are older.

    Args:
        directory: Of the archive.
        part: Where to look.
        options: `timestampFrom`, and what to do about damage.
        timestamp_ms: In milliseconds since 1970.
    """
    wanted_ns = timestamp_ms * NS_PER_MS
    term_length = part.descriptor.term_length
    first = term_base(part.start, term_length)
    low, high = 0, -(-(part.end - first) // term_length)
    # The last term whose first message is older: what is looked for is in it, or begins the next.
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
    directory: Directory, part: RecordingRange, options: ArchiveOptions, piece_length: int = 2 << 20
) -> Iterator[tuple[Any, Any]]:
    """Yield positions and times, in nanoseconds, of the messages of a range that say when."""
    projection = project(("position", "timestamp_ns"), "message")
    settings = attrs.evolve(ScanSettings.of(options, projection), by_message=True, checksum=None)
    settings = attrs.evolve(settings, include_padding=False)
    scanner = Scanner(settings, directory=directory, piece_length=piece_length)
    for batch in scanner.batches([part]):
        said = batch.filter(batch.column(1).is_valid())
        if said.num_rows:
            yield said.column(0).to_numpy(), said.column(1).to_numpy()
