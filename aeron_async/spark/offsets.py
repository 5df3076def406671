"""Stream offsets: what Spark writes into its checkpoint.

Spark compares offsets as text, so equal offsets must always be the same text: recordings in the
order of their ids, keys in one order, and nothing that changes over time.

    {"v": 2, "met": "AAQ=", "new": "AgA=", "open": "AQ==", "at": "gAQ=", "who": "6cQBnw==", ...}

`met` names the recordings that the query knows, as ranges of ids. `new` names those of them of
which nothing was read, and that begin at position 0. `open` lists others one by one: those that are
not read to their ends, and those whose end was read in the last batch. All else in `met` was read
to its end. So the text grows with what is open, by some 12 characters for each recording.

`at` has the positions of the open ones, and `who` a checksum of each recording and its session,
which tell a recording from one that got the same id in an archive that was created again. `first`
has the positions from which recordings are read that the previous offsets do not list, so that the
ranges of a batch follow from its offsets alone. `newest` is when the last of all these recordings
began, in milliseconds since 1970: one that began later cannot be one of them.

Numbers are unsigned, 7 bits in a byte, the last byte below 128; bytes are in base64. Offsets of
version 1 listed all recordings one by one, as objects; they are read, and never written.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from bisect import bisect_left, bisect_right
from itertools import pairwise
from struct import error as StructError  # noqa: N812 - it is one
from struct import pack
from typing import TYPE_CHECKING, Any, Final, Self, final
from zlib import crc32

import attrs
import numpy as np

from aeron_async.errors import ConfigurationError
from aeron_async.spark.losses import is_extended

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from aeron_async.archive.disk.descriptor import RecordingDescriptor

__all__ = ["VERSION", "Cut", "IdRanges", "Offsets", "RecordingOffset"]

VERSION: Final = 2
LARGEST: Final = (1 << 63) - 1
ALIGNMENT_BITS: Final = 5
"""Frames begin at multiples of 32 bytes."""
DONE: Final = 1
HAS_FIRST: Final = 2
FLAG_BITS: Final = 2
LONGEST_NUMBER: Final = 9
SHIFTS: Final = np.arange(LONGEST_NUMBER, dtype=np.int64) * 7
MASK: Final = 0xFFFF
MALFORMED: Final = (
    *(AttributeError, KeyError, OverflowError, StopIteration, StructError),
    *(TypeError, ValueError),
)


def check_of(start_timestamp_ms: int, initial_term_id: int, session_id: int | None) -> int:
    """Return the checksum of a recording, and above it that of its session, 0 if unknown."""
    recording = crc32(pack("<qi", start_timestamp_ms, initial_term_id)) & MASK
    session = 0 if session_id is None else crc32(pack("<i", session_id)) % MASK + 1
    return session << 16 | recording


@final
@attrs.frozen
class RecordingOffset:
    """How far one recording has been read.

    Attributes:
        position: Everything before it has been read, in bytes.
        who: Checksums of the recording and of its session, see `check_of`.
        first: Where the batch begins to read it, in bytes, if the previous offsets do not list it.
        is_done: The recording had ended and was read to its end.
    """

    position: int
    who: int
    first: int | None = None
    is_done: bool = False

    @classmethod
    def of(
        cls,
        descriptor: RecordingDescriptor,
        position: int,
        *,
        first: int | None = None,
        is_done: bool = False,
    ) -> Self:
        """Return the offset of a recording."""
        each = descriptor
        who = check_of(each.start_timestamp_ms, each.initial_term_id, each.session_id)
        return cls(position, who, first, is_done)

    def stays(self, *, is_done: bool) -> Self:
        """Return the offset behind a batch that reads nothing of the recording."""
        if self.first is None and self.is_done == is_done:
            return self
        return attrs.evolve(self, first=None, is_done=is_done)

    def is_of(self, descriptor: RecordingDescriptor) -> bool:
        """Return whether this is the offset of that recording, not of another with the same id."""
        who = check_of(descriptor.start_timestamp_ms, descriptor.initial_term_id, None)
        return self.who & MASK == who

    def is_of_session(self, session_id: int) -> bool:
        """Return whether the catalog had that session when this was read, as far as is known."""
        return self.who >> 16 in {0, check_of(0, 0, session_id) >> 16}


@final
@attrs.frozen
class IdRanges:
    """A set of recording ids.

    Attributes:
        bounds: Where each range begins and where it ends, by turns, rising.
    """

    bounds: tuple[int, ...] = ()

    def __contains__(self, recording_id: int) -> bool:
        return bisect_right(self.bounds, recording_id) % 2 == 1

    def __iter__(self) -> Iterator[int]:
        for begin, end in self._spans():
            yield from range(begin, end)

    @property
    def end(self) -> int:
        """Return the id behind the last one; 0 if there is none."""
        return self.bounds[-1] if self.bounds else 0

    def with_spans(self, spans: Iterable[tuple[int, int]]) -> IdRanges:
        """Return these ids and those of other ranges, each from its begin to before its end."""
        found: list[int] = []
        for begin, end in sorted([*self._spans(), *spans]):
            if found and begin <= found[-1]:
                found[-1] = max(found[-1], end)
            else:
                found += (begin, end)
        return IdRanges(tuple(found))

    def without(self, ids: Iterable[int]) -> IdRanges:
        """Return these ids without some."""
        left_out = sorted(ids)
        found: list[int] = []
        for begin, end in self._spans():
            start = begin
            for each in left_out[bisect_left(left_out, begin) : bisect_left(left_out, end)]:
                found += (start, each) if start < each else ()
                start = each + 1
            found += (start, end) if start < end else ()
        return IdRanges(tuple(found))

    def _spans(self) -> Iterator[tuple[int, int]]:
        return zip(self.bounds[::2], self.bounds[1::2], strict=True)


@final
@attrs.frozen
class Cut:
    """How a batch is cut into partitions.

    Attributes:
        max_bytes: Limit of a partition.
        min_partitions: Lower limit on the number of partitions; None for none.
    """

    max_bytes: int
    min_partitions: int | None = None

    @classmethod
    def from_json(cls, given: Any) -> Self:
        """Parse a checkpoint; raise any error if it is malformed."""
        max_bytes, *more = given
        return cls(whole(max_bytes, 1), whole(more[0], 1) if more else None)

    def to_json(self) -> list[int]:
        """Return the list that Spark writes."""
        return [self.max_bytes, *([] if self.min_partitions is None else [self.min_partitions])]


@final
@attrs.frozen
class Offsets:
    """How far each recording has been read.

    Attributes:
        recordings: Offsets of those that are listed one by one, by recording id.
        cut: How the batch that ends here was cut; None if the checkpoint does not say.
        met: All recordings that the query knows.
        new: Those of them that begin at position 0 and of which nothing was read.
        newest_ms: When the last of all these recordings began, in milliseconds since 1970.
    """

    recordings: Mapping[int, RecordingOffset] = attrs.field(factory=dict)
    cut: Cut | None = None
    met: IdRanges = IdRanges()
    new: IdRanges = IdRanges()
    newest_ms: int = -LARGEST

    def is_done(self, recording_id: int) -> bool:
        """Return whether a recording was read to its end; it may have been extended since."""
        each = self.recordings.get(recording_id)
        if each is not None:
            return each.is_done
        return recording_id in self.met and recording_id not in self.new

    def position_in(self, descriptor: RecordingDescriptor) -> int:
        """Return up to where a recording was read, in bytes; its start if nothing was.

        Of a recording that was read to its end and has been extended since, that end is not known:
        its start is returned.
        """
        each = self.recordings.get(descriptor.recording_id)
        if each is not None:
            return each.position if each.is_of(descriptor) else descriptor.start_position
        is_same = descriptor.start_timestamp_ms <= self.newest_ms
        is_read = is_same and self.is_done(descriptor.recording_id) and not is_extended(descriptor)
        return descriptor.stop_position if is_read else descriptor.start_position

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Self:
        """Parse a checkpoint.

        Raises:
            ConfigurationError: Another version wrote it, or it holds no offsets of this source.
        """
        version = given.get("v")
        if not isinstance(version, int) or isinstance(version, bool) or version not in {1, VERSION}:
            message = (
                f"the checkpoint's offsets are of version {version!r}, and this aeron_async knows "
                f"versions 1 and {VERSION}: use the one that wrote them, or change "
                "checkpointLocation"
            )
            raise ConfigurationError(message)
        try:
            cut = Cut.from_json(given["cut"]) if "cut" in given else None
            parse = of_version_1 if version == 1 else of_version_2
            return cls(cut=cut, **parse(given))
        except MALFORMED as error:
            message = (
                f"the checkpoint holds {str(given)[:200]!r}, which are no offsets of recordings: "
                "change checkpointLocation"
            )
            raise ConfigurationError(message) from error

    def to_json(self) -> dict[str, Any]:
        """Return the object that Spark writes, with its keys in the fixed order."""
        ids = sorted(self.recordings)
        listed = [self.recordings[each] for each in ids]
        firsts = [each.first for each in listed if each.first is not None]
        found: dict[str, Any] = {
            "v": VERSION,
            "met": packed(gaps(self.met.bounds)),
            "new": packed(gaps(self.new.bounds)),
            "open": packed(gaps(ids)),
            "at": packed(map(numbered, listed)),
            "who": text_of(np.array([each.who for each in listed], "<u4").tobytes()),
            "first": packed(each >> ALIGNMENT_BITS for each in firsts),
            "newest": self.newest_ms,
        }
        if self.cut is not None:
            found["cut"] = self.cut.to_json()
        return found


def numbered(each: RecordingOffset) -> int:
    """Return the position of an offset, and its flags in the two lowest bits."""
    flags = DONE * each.is_done | HAS_FIRST * (each.first is not None)
    return each.position >> ALIGNMENT_BITS << FLAG_BITS | flags


def of_version_2(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of offsets of version 2; raise any error if they are malformed."""
    numbers = unpacked(given["at"])
    who = np.frombuffer(b64decode(given["who"], validate=True), "<u4").tolist()
    firsts = iter([each << ALIGNMENT_BITS for each in unpacked(given["first"])])
    listed = {
        recording_id: RecordingOffset(
            number >> FLAG_BITS << ALIGNMENT_BITS,
            each,
            next(firsts) if number & HAS_FIRST else None,
            bool(number & DONE),
        )
        for recording_id, number, each in zip(summed(given["open"]), numbers, who, strict=True)
    }
    met, new = (IdRanges(bounds_of(summed(given[key]))) for key in ("met", "new"))
    return {
        "recordings": listed,
        "met": met,
        "new": new,
        "newest_ms": whole(given["newest"], -LARGEST),
    }


def of_version_1(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of offsets of version 1; raise any error if they are malformed.

    They had removed recordings up to an id in `gone`, with when the last of these had begun.
    """
    found: dict[int, RecordingOffset] = {}
    began = [-LARGEST]
    for key, each in given["recs"].items():
        position, first = (aligned(each[name]) for name in ("pos", "from"))
        began.append(whole(each["began"], -LARGEST))
        session_id = whole(each["session"], -LARGEST) if "session" in each else None
        who = check_of(began[-1], whole(each["term"], -LARGEST), session_id)
        found[whole(int(key), 0)] = RecordingOffset(
            position, who, first, each.get("done", False) is True
        )
    met = sorted(found)
    if "gone" in given:
        recording_id, began_ms = given["gone"]
        met.append(whole(recording_id, 0))
        began.append(whole(began_ms, -LARGEST))
    return {
        "recordings": found,
        "met": IdRanges().with_spans((each, each + 1) for each in met),
        "newest_ms": max(began),
    }


def whole(given: Any, least: int) -> int:
    """Return a 64-bit integer that is at least `least`; raise an error if it is not one."""
    if not isinstance(given, int) or isinstance(given, bool) or not least <= given <= LARGEST:
        raise TypeError(given)
    return given


def aligned(given: Any) -> int:
    """Return a position; raise an error if it is not one."""
    if whole(given, 0) % (1 << ALIGNMENT_BITS):
        raise ValueError(given)
    return int(given)


def bounds_of(given: list[int]) -> tuple[int, ...]:
    """Return the bounds of ranges; raise an error if one does not end."""
    if len(given) % 2:
        raise ValueError(given)
    return tuple(given)


def gaps(rising: Iterable[int]) -> Iterator[int]:
    """Yield the first of rising numbers, and how many are left out before each other one."""
    return (each - last - 1 for last, each in pairwise((-1, *rising)))


def summed(text: str) -> list[int]:
    """Return the rising numbers whose gaps are packed."""
    found: list[int] = (np.cumsum(np.array(unpacked(text), np.int64) + 1) - 1).tolist()
    if any(each >= after for each, after in pairwise((-1, *found))):
        raise ValueError(text)
    return found


def packed(numbers: Iterable[int]) -> str:
    """Return numbers from 0 to 63 bits as text, see the module."""
    given = np.fromiter(numbers, np.int64)
    groups = (given[:, None] >> SHIFTS & 127).astype(np.uint8)
    counts = np.maximum(LONGEST_NUMBER - np.argmax(groups[:, ::-1] != 0, axis=1), 1)
    counts[given == 0] = 1
    places = np.arange(LONGEST_NUMBER)
    groups[places < counts[:, None] - 1] |= 128
    return text_of(groups[places < counts[:, None]].tobytes())


def unpacked(text: Any) -> list[int]:
    """Return packed numbers; raise an error if it is no such text."""
    data = np.frombuffer(b64decode(text, validate=True), np.uint8)
    if not len(data):
        return []
    ends = np.flatnonzero(data < 128)  # noqa: PLR2004 - see the module
    lengths = np.diff(ends, prepend=-1)
    if not len(ends) or ends[-1] != len(data) - 1 or lengths.max() > LONGEST_NUMBER:
        raise ValueError(text)
    starts = ends - lengths + 1
    places = np.arange(len(data)) - np.repeat(starts, lengths)
    parts = (data & 127).astype(np.int64) << SHIFTS[places]
    found: list[int] = np.add.reduceat(parts, starts).tolist()
    return found


def text_of(data: bytes) -> str:
    """Return bytes in base64."""
    return b64encode(data).decode()
