"""Purge watermarks: what every consumer of a recording has read, minus a grace.

Consumers are queries, identified by their checkpoints. Data stays unless all consumers are known to
have read it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, final

import attrs

from aeron_async.errors import ConfigurationError
from aeron_async.spark.offsets import Offsets

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from aeron_async.archive.disk.descriptor import RecordingDescriptor

__all__ = ["Watermark", "committed_offsets", "last_committed", "watermarks"]


@final
@attrs.frozen
class Watermark:
    """What may be purged of one recording.

    Attributes:
        recording_id: The recording.
        read_position: Position that all consumers have read, in bytes.
        purge_position: Where the first remaining file begins, in bytes.
        files: Number of files to purge.
    """

    recording_id: int
    read_position: int
    purge_position: int
    files: int


def committed_offsets(checkpoint: Path) -> Offsets:
    """Return the committed offsets of a query; empty if it has committed no batch.

    Args:
        checkpoint: Checkpoint of a query with one source.

    Raises:
        ConfigurationError: The folder is no checkpoint of a query on recordings.
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
        if isinstance(given, dict) and "v" in given:
            return Offsets.from_json(given)
    message = f"consumer {str(checkpoint)!r} reads no recordings: change --consumer"
    raise ConfigurationError(message)


def last_committed(checkpoint: Path) -> int | None:
    """Return the last batch that a query has committed; None if there is none."""
    commits = checkpoint / "commits"
    names = [each.name for each in commits.iterdir()] if commits.is_dir() else []
    return max((int(name) for name in names if name.isdigit()), default=None)


def watermarks(
    recordings: Mapping[int, RecordingDescriptor], consumers: Sequence[Offsets], grace: int
) -> list[Watermark]:
    """Return a watermark for every recording that has files to purge.

    Args:
        recordings: Catalog entries by recording id.
        consumers: Offsets of each consumer; at least one.
        grace: Bytes to keep before the position that all consumers have read.
    """
    found = []
    for descriptor in recordings.values():
        position = min(each.position_in(descriptor) for each in consumers)
        kept = position - grace
        if kept <= descriptor.start_position:
            continue
        # The file that holds the last byte stays, because no next file may exist yet.
        base = descriptor.segment_base(kept - 1)
        files = -(-(base - descriptor.start_position) // descriptor.segment_length)
        if files > 0:
            found.append(Watermark(descriptor.recording_id, position, base, files))
    return found
