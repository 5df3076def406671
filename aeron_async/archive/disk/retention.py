"""What of a recording may go: by age, by how much there is, or by position.

Only whole segments go, the oldest first; never the one that holds the end, and never one that
something still replays. `changes.purge_segments` lets them go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from aeron_async.archive.disk.changes import base_of
from aeron_async.archive.disk.segments import segment_bases, segment_name, term_base
from aeron_async.errors import ConfigurationError

if TYPE_CHECKING:
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import Directory

__all__ = ["Expired", "Retention", "expired_segments"]


@attrs.frozen(kw_only=True)
class Retention:
    """What is kept; a segment goes when any of these lets it go.

    Attributes:
        max_age_ms: Segments that were last written to longer ago may go.
        max_bytes: So many bytes of a recording are kept, and what shares a segment with them.
        before_position: What lies before it may go, in bytes.

    Raises:
        ConfigurationError: A limit is negative.
    """

    max_age_ms: int | None = None
    max_bytes: int | None = None
    before_position: int | None = None

    def __attrs_post_init__(self) -> None:
        for name in ("max_age_ms", "max_bytes", "before_position"):
            value = getattr(self, name)
            if value is not None and value < 0:
                message = f"{name} {value} is negative: change it, or leave it out for no limit"
                raise ConfigurationError(message)


@attrs.frozen
class Expired:
    """What may go of a recording.

    Attributes:
        new_start_position: Where it would begin, in bytes.
        bases: Where the files begin that would go.
    """

    new_start_position: int
    bases: tuple[int, ...]


def expired_segments(
    directory: Directory | None,
    descriptor: RecordingDescriptor,
    retention: Retention,
    *,
    now_ms: int,
    end: int,
    lowest_replay: int | None = None,
) -> Expired | None:
    """Return what of a recording may go; None if nothing may.

    Args:
        directory: Of the archive; None where its files are elsewhere: then all that the recording
            has are taken to be there, and none is too old.
        descriptor: Of the recording.
        retention: What is kept.
        now_ms: The time, in milliseconds since 1970.
        end: Where the recording has stopped, or up to where it has been written, in bytes.
        lowest_replay: The lowest position that something replays, in bytes; None where nothing is.
    """
    first = term_base(descriptor.start_position, descriptor.term_length)
    highest = base_of(descriptor, end)
    if lowest_replay is not None:
        highest = min(highest, base_of(descriptor, max(lowest_replay, first)))
    length = descriptor.segment_length
    bases = list(range(first, highest, length))
    if directory is not None:
        there = segment_bases(directory.names(), descriptor.recording_id)
        bases = [each for each in there if first <= each < highest]
    start = first
    for base in bases:
        behind = base + length
        name = segment_name(descriptor.recording_id, base)
        if base != start or not may_go(directory, name, behind, retention, now_ms=now_ms, end=end):
            break
        start = behind
    if start == first:
        return None
    return Expired(start, tuple(each for each in bases if each < start))


def may_go(
    directory: Directory | None,
    name: str,
    behind: int,
    retention: Retention,
    *,
    now_ms: int,
    end: int,
) -> bool:
    """Return whether a file, behind which a position lies, may go."""
    if retention.before_position is not None and behind <= retention.before_position:
        return True
    if retention.max_bytes is not None and end - behind >= retention.max_bytes:
        return True
    if retention.max_age_ms is None or directory is None:
        return False
    return now_ms - directory.modified_ms(name) > retention.max_age_ms
