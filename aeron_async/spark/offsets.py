"""How far a stream has been read: what Spark writes into its checkpoint.

Spark compares offsets as text, so the same offsets are always the same text: recordings in the
order of their ids, keys in one order, whole numbers only, and nothing that changes by itself.

    {"v": 1, "recs": {"3": {"pos": 4096, "from": 0, "began": 1700000000000, "term": 7}}}

Beside the position stands where the recording was first read from, so that a batch of one that is
new is known from its offsets alone; and what tells it from another that got its id later, in an
archive that was made anew. Recordings that ended stay, with `"done": true`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self, final

import attrs

from aeron_async.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aeron_async.archive.disk.descriptor import RecordingDescriptor

__all__ = ["VERSION", "Offsets", "RecordingOffset"]

VERSION: Final = 1
LARGEST: Final = (1 << 63) - 1


@final
@attrs.frozen
class RecordingOffset:
    """How far one recording has been read.

    Attributes:
        position: Up to where, in bytes.
        first: From where on, in bytes.
        start_timestamp_ms: When it began, in milliseconds since 1970.
        initial_term_id: First term of its stream.
        is_done: It had ended, and was read to its end.
    """

    position: int
    first: int
    start_timestamp_ms: int
    initial_term_id: int
    is_done: bool = False

    @classmethod
    def begun(cls, descriptor: RecordingDescriptor, position: int) -> Self:
        """Return the offset of a recording of which nothing has been read before a position."""
        return cls(position, position, descriptor.start_timestamp_ms, descriptor.initial_term_id)

    def is_of(self, descriptor: RecordingDescriptor) -> bool:
        """Return whether it is of this recording, and not of another with the same id."""
        return (self.start_timestamp_ms, self.initial_term_id) == (
            descriptor.start_timestamp_ms,
            descriptor.initial_term_id,
        )


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
        recordings: By their ids.
    """

    recordings: Mapping[int, RecordingOffset] = attrs.field(factory=dict)

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Self:
        """Return what a checkpoint says.

        Raises:
            ConfigurationError: Another version wrote it, or it is no offset of this source.
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
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            message = (
                f"the checkpoint holds {str(given)[:200]!r}, which are no offsets of recordings: "
                "change checkpointLocation"
            )
            raise ConfigurationError(message) from error
        return cls(found)

    def to_json(self) -> dict[str, Any]:
        """Return what Spark writes, in the one order."""
        found: dict[str, Any] = {}
        for recording_id in sorted(self.recordings):
            each = self.recordings[recording_id]
            said: dict[str, Any] = {key: getattr(each, name) for key, name in FIELDS}
            if each.is_done:
                said["done"] = True
            found[str(recording_id)] = said
        return {"v": VERSION, "recs": found}


def parsed(given: Mapping[str, Any]) -> RecordingOffset:
    """Return what is said of one recording; raise any error where that is nothing."""
    numbers = {name: given[key] for key, name in FIELDS}
    for number in numbers.values():
        if not isinstance(number, int) or isinstance(number, bool) or abs(number) > LARGEST:
            raise TypeError(number)
    return RecordingOffset(**numbers, is_done=given.get("done", False) is True)
