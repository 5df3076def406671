"""Input of a reader: parts of recordings, and how their frames become rows.

All of it travels to the executors, which therefore need no catalog.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import attrs

if TYPE_CHECKING:
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.spark.columns import Projection
    from aeron_async.spark.options import ArchiveOptions

__all__ = ["RecordingRange", "ScanSettings"]


@final
@attrs.frozen
class RecordingRange:
    """A part of a recording.

    Attributes:
        descriptor: Catalog entry at the time of planning.
        start: Where a frame begins, in bytes.
        end: End of the last frame, in bytes.
        has_checksums: Whether data frames have a checksum in place of their session; None if that
            is still to be found out, which only the files tell.
        is_replayed: Whether frames have the session of a replay instead of their own.
    """

    descriptor: RecordingDescriptor
    start: int
    end: int
    has_checksums: bool | None = None
    is_replayed: bool = False

    @property
    def length(self) -> int:
        """Return the length in bytes."""
        return self.end - self.start


@final
@attrs.frozen
class ScanSettings:
    """How frames become rows.

    Attributes:
        options: Options of the query.
        projection: Columns to build.
        decoded: Arrow schema of the decoder's result; None without a decoder.
    """

    options: ArchiveOptions
    projection: Projection
    decoded: Any = None
