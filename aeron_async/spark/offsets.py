"""Stream offsets: what Spark writes into its checkpoint.

Spark compares offsets as text, so equal offsets must always be the same text: recordings in the
order of their ids, keys in one order, integers only, and nothing that changes over time.

    {"v": 1, "recs": {"3": {"pos": 4096, "from": 0, "began": 1700000000000, "term": 7}}, "cut": [9]}

Each recording has its position and the position from which it was first read, so that the range of
a new recording follows from its offsets alone. Start timestamp and initial term id tell a recording
from one that got the same id later, in an archive that was created again. Recordings that ended
stay, with `"done": true`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self, final

import attrs

from aeron_async.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from aeron_async.archive.disk.descriptor import RecordingDescriptor

__all__ = ["VERSION", "Cut", "Offsets", "RecordingOffset"]

VERSION: Final = 1
LARGEST: Final = (1 << 63) - 1


@final
@attrs.frozen
class RecordingOffset:
    """How far one recording has been read.

    Attributes:
        position: Everything before it has been read, in bytes.
        first: Where reading began, in bytes.
        start_timestamp_ms: When the recording began, in milliseconds since 1970.
        initial_term_id: First term of the recorded stream.
        is_done: The recording had ended and was read to its end.
        session_id: Session of the catalog entry when the position was read; None in offsets of
            older versions.
    """

    position: int
    first: int
    start_timestamp_ms: int
    initial_term_id: int
    is_done: bool = False
    session_id: int | None = None

    @classmethod
    def begun(cls, descriptor: RecordingDescriptor, position: int) -> Self:
        """Return the offset of a recording that is read from a position on."""
        return cls(
            position,
            position,
            descriptor.start_timestamp_ms,
            descriptor.initial_term_id,
            session_id=descriptor.session_id,
        )

    def is_of(self, descriptor: RecordingDescriptor) -> bool:
        """Return whether this is the offset of that recording, not of another with the same id."""
        return (self.start_timestamp_ms, self.initial_term_id) == (
            descriptor.start_timestamp_ms,
            descriptor.initial_term_id,
        )


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


FIELDS: Final = (
    ("pos", "position"),
    ("from", "first"),
    ("began", "start_timestamp_ms"),
    ("term", "initial_term_id"),
)


@final
@attrs.frozen
class Offsets:
    """How far each recording has been read.

    Attributes:
        recordings: Offsets by recording id.
        cut: How the batch that ends here was cut; None if the checkpoint does not say.
        gone: Highest id among the removed recordings that are left out, because nothing of them
            will be read again, and when that recording began, in milliseconds since 1970; None if
            there are none.
    """

    recordings: Mapping[int, RecordingOffset] = attrs.field(factory=dict)
    cut: Cut | None = None
    gone: tuple[int, int] | None = None

    def without_gone(self, present: Container[int]) -> Offsets:
        """Return these offsets without recordings that were read to their ends and then removed.

        Args:
            present: Ids of the recordings in the catalog.
        """
        left_out = {
            key: each
            for key, each in self.recordings.items()
            if each.is_done and key not in present
        }
        if not left_out:
            return self
        kept = {key: each for key, each in self.recordings.items() if key not in left_out}
        last = max(left_out)
        found = (last, left_out[last].start_timestamp_ms)
        return attrs.evolve(self, recordings=kept, gone=max(self.gone or found, found))

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Self:
        """Parse a checkpoint.

        Raises:
            ConfigurationError: Another version wrote it, or it holds no offsets of this source.
        """
        version = given.get("v")
        if version != VERSION:
            message = (
                f"the checkpoint's offsets are of version {version!r}, and this aeron_async knows "
                f"version {VERSION}: use the one that wrote them, or change checkpointLocation"
            )
            raise ConfigurationError(message)
        try:
            found = {int(key): parsed(each) for key, each in given["recs"].items()}
            cut = Cut.from_json(given["cut"]) if "cut" in given else None
            gone = pair(given["gone"]) if "gone" in given else None
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            message = (
                f"the checkpoint holds {str(given)[:200]!r}, which are no offsets of recordings: "
                "change checkpointLocation"
            )
            raise ConfigurationError(message) from error
        return cls(found, cut, gone)

    def to_json(self) -> dict[str, Any]:
        """Return the object that Spark writes, with its keys in the fixed order."""
        found: dict[str, Any] = {}
        for recording_id in sorted(self.recordings):
            each = self.recordings[recording_id]
            said: dict[str, Any] = {key: getattr(each, name) for key, name in FIELDS}
            if each.session_id is not None:
                said["session"] = each.session_id
            if each.is_done:
                said["done"] = True
            found[str(recording_id)] = said
        everything: dict[str, Any] = {"v": VERSION, "recs": found}
        if self.cut is not None:
            everything["cut"] = self.cut.to_json()
        if self.gone is not None:
            everything["gone"] = list(self.gone)
        return everything


def parsed(given: Mapping[str, Any]) -> RecordingOffset:
    """Parse the offset of one recording; raise any error if it is malformed."""
    numbers = {name: whole(given[key], -LARGEST) for key, name in FIELDS}
    session_id = whole(given["session"], -LARGEST) if "session" in given else None
    is_done = given.get("done", False) is True
    return RecordingOffset(**numbers, is_done=is_done, session_id=session_id)


def whole(given: Any, least: int) -> int:
    """Return a 64-bit integer that is at least `least`; raise an error if it is not one."""
    if not isinstance(given, int) or isinstance(given, bool) or not least <= given <= LARGEST:
        raise TypeError(given)
    return given


def pair(given: Any) -> tuple[int, int]:
    """Return a recording id and a timestamp; raise any error if they are malformed."""
    recording_id, began_ms = given
    return whole(recording_id, 0), whole(began_ms, -LARGEST)
