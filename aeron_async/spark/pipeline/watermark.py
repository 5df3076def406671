"""Up to where recordings may be purged: what every consumer has read, less what is to be kept.

Consumers are queries, known by their checkpoints. What is not sure to be read by all stays.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, final

import attrs

from aeron_async.archive.disk.segments import segment_base
from aeron_async.errors import ConfigurationError
from aeron_async.spark.offsets import Offsets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from aeron_async.archive.disk.descriptor import RecordingDescriptor

__all__ = ["Watermark", "committed_offsets", "last_committed", "watermarks"]


@final
@attrs.frozen
class Watermark:
    """What may go of one recording.

    Attributes:
        recording_id: Of the recording.
        read_position: Up to where all consumers have read, in bytes.
        purge_position: Where its first file may begin, in bytes.
        files: How many may go.
    """

    recording_id: int
    read_position: int
    purge_position: int
    files: int


def committed_offsets(checkpoint: Path) -> Offsets:
    """Return how far a query has read for good; nothing where it has committed no batch.

    Args:
        checkpoint: Its checkpoint, of one source.

    Raises:
        ConfigurationError: It is no checkpoint of a query on recordings.
    """
    if not (checkpoint / "metadata").exists():
        message = f"consumer {str(checkpoint)!r} is no checkpoint of a query: change --consumer"
        raise ConfigurationError(message)
    batch_id = last_committed(checkpoint)
    if batch_id is None:
        return Offsets()
    lines = (checkpoint / "offsets" / str(batch_id)).read_text().splitlines()
    for line in lines:
        given = json.loads(line) if line.startswith("{") else {}
        if isinstance(given, dict) and "recs" in given:
            return Offsets.from_json(given)
    message = f"consumer {str(checkpoint)!r} reads no recordings: change --consumer"
    raise ConfigurationError(message)


def last_committed(checkpoint: Path) -> int | None:
    """Return the last batch that a query has done for good; None where there is none."""
    commits = checkpoint / "commits"
    names = [each.name for each in commits.iterdir()] if commits.is_dir() else []
    return max((int(name) for name in names if name.isdigit()), default=None)


def watermarks(
    recordings: Mapping[int, RecordingDescriptor], consumers: Sequence[Offsets], grace: int
) -> list[Watermark]:
    """Return what may go of every recording that has something to go.

    Args:
        recordings: As the catalog knows them.
        consumers: How far each has read; at least one.
        grace: Bytes that stay in any case, behind what was read.
    """
    found = []
    for descriptor in recordings.values():
        position = min(read_positions(descriptor, consumers))
        kept = position - grace
        if kept <= descriptor.start_position:
            continue
        # The file that holds the last byte stays: no other may begin behind it yet.
        base = segment_base(
            kept - 1,
            start_position=descriptor.start_position,
            term_length=descriptor.term_length,
            segment_length=descriptor.segment_length,
        )
        files = -(-(base - descriptor.start_position) // descriptor.segment_length)
        if files > 0:
            found.append(Watermark(descriptor.recording_id, position, base, files))
    return found


def read_positions(descriptor: RecordingDescriptor, consumers: Iterable[Offsets]) -> Iterable[int]:
    """Yield how far each consumer has read a recording; its start where that is not known."""
    for offsets in consumers:
        offset = offsets.recordings.get(descriptor.recording_id)
        is_known = offset is not None and offset.is_of(descriptor)
        yield offset.position if offset is not None and is_known else descriptor.start_position
