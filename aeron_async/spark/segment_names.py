"""Segment files of an archive, by the names in its directory.

An archive may have a million files. Their names are parsed at once, by NumPy: the digits of all
names are summed up place by place. Only names that the archive could have given count, as in
`parse_segment_name`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from aeron_async.archive.disk.segments import parse_segment_name, segment_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from aeron_async.archive.disk.files import ReadableDirectory
    from aeron_async.spark.ranges import RecordingRange

    Longs = NDArray[np.int64]

__all__ = ["SegmentNames", "is_there", "missing_segments"]

SUFFIX: Final = np.frombuffer(b".rec\0", np.uint8)
ODD_BYTES: Final = len(SUFFIX) + 1
"""Bytes in a name that are no digits: the suffix, and the dash."""
MOST_DIGITS: Final = 18
"""All numbers of so many digits have 63 bits; some of 19 have, too."""
FEW: Final = 100_000
"""Files to look up one by one, in half a second, rather than to list a directory of a million."""
PIECE: Final = 1 << 16
"""Names to parse at once, which takes some ten megabytes."""
NONE: Final = np.zeros(0, np.int64)


@final
class SegmentNames:
    """The segment files that a directory has.

    Args:
        names: Names of its files, in any order.
    """

    def __init__(self, names: Iterable[str]) -> None:
        given = list(names)
        pieces = [parsed(given[at : at + PIECE]) for at in range(0, len(given), PIECE)]
        ids, bases = map(np.concatenate, zip((NONE, NONE), *pieces, strict=True))
        order = np.lexsort((bases, ids))
        self._ids: Longs = ids[order]
        self._bases: Longs = bases[order]

    def bases(self, recording_id: int) -> Longs:
        """Return where the segments of a recording begin, in order."""
        begin, end = np.searchsorted(self._ids, (recording_id, recording_id + 1))
        return self._bases[begin:end]

    def missing(self, part: RecordingRange) -> Iterable[int]:
        """Return where the segments begin that a range needs and that are not there."""
        wanted, bases = bases_of(part), self.bases(part.descriptor.recording_id)
        begin = np.searchsorted(bases, wanted.start)
        found = bases[begin : begin + len(wanted)]
        # Nearly always all are there, one behind the other.
        if np.array_equal(found, np.arange(wanted.start, wanted.stop, wanted.step)):
            return ()
        return sorted(set(wanted) - set(bases.tolist()))


def bases_of(part: RecordingRange) -> range:
    """Return where the segments begin that hold a range."""
    descriptor = part.descriptor
    return range(descriptor.segment_base(part.start), part.end, descriptor.segment_length)


def missing_segments(
    directory: ReadableDirectory, parts: Sequence[RecordingRange]
) -> Iterator[tuple[RecordingRange, int, str]]:
    """Yield the range, the position and the name of each file that is not there."""
    names = None
    if sum(len(bases_of(part)) for part in parts) > FEW:
        names = SegmentNames(directory.names())
    for part in parts:
        recording_id = part.descriptor.recording_id
        for base in bases_of(part) if names is None else names.missing(part):
            name = segment_name(recording_id, base)
            if names is not None or not is_there(directory, name):
                yield part, max(base, part.start), name


def is_there(directory: ReadableDirectory, name: str) -> bool:
    """Return whether a directory has a file."""
    try:
        directory.modified_ms(name)
    except FileNotFoundError:
        return False
    return True


def parsed(names: list[str]) -> tuple[Longs, Longs]:
    """Return the recording id and the base position in each name that is a segment's."""
    # No name has a NUL.
    text = ("\0".join(names) + "\0").encode(errors="surrogateescape") if names else b""
    data = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(data == 0)
    starts = np.concatenate(([0], ends[:-1] + 1)).astype(np.int64) if len(ends) else ends
    odd = np.cumsum((data < ord("0")) | (data > ord("9")), dtype=np.int32)[ends]
    dashes = np.flatnonzero(data == ord("-"))
    if not len(dashes):
        return NONE, NONE
    dash = dashes[np.minimum(np.searchsorted(dashes, starts), len(dashes) - 1)]
    dots = ends - len(SUFFIX) + 1
    first, second = dash - starts, dots - dash - 1
    # One dash, the suffix, and else digits: the NUL behind a name is counted with its suffix.
    fits = (first > 0) & (second > 0) & (np.diff(odd, prepend=0) == ODD_BYTES)
    for place, each in enumerate(SUFFIX.tolist()):
        fits &= data[np.maximum(dots + place, 0)] == each
    fits &= (first == 1) | (data[starts] != ord("0"))
    fits &= (second == 1) | (data[np.minimum(dash + 1, len(data) - 1)] != ord("0"))
    is_short = (first <= MOST_DIGITS) & (second <= MOST_DIGITS)
    long_ones = [parse_segment_name(names[at]) for at in np.flatnonzero(fits & ~is_short).tolist()]
    more: Any = np.array([each for each in long_ones if each is not None], np.int64).reshape(-1, 2)
    fits &= is_short
    ids = numbers(data, starts[fits], first[fits])
    bases = numbers(data, dash[fits] + 1, second[fits])
    return np.concatenate((ids, more[:, 0])), np.concatenate((bases, more[:, 1]))


def numbers(data: NDArray[np.uint8], starts: Longs, lengths: Longs) -> Longs:
    """Return the numbers that digits make."""
    found = np.zeros(len(starts), np.int64)
    for place in range(int(lengths.max(initial=0))):
        goes_on = np.flatnonzero(lengths > place)
        found[goes_on] = found[goes_on] * 10 + (data[starts[goes_on] + place] - ord("0"))
    return found
