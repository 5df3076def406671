"""What a reader is given: parts of recordings, and what to make of them.

All of it travels to the executors, which need no catalog then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import attrs

from aeron_async.spark.options import REPLAY, ArchiveAccess

if TYPE_CHECKING:
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.spark.columns import Projection
    from aeron_async.spark.option_values import TimestampFrom
    from aeron_async.spark.options import ArchiveOptions

__all__ = ["RecordingRange", "ScanSettings"]


@final
@attrs.frozen
class RecordingRange:
    """A part of a recording.

    Attributes:
        descriptor: Of the recording, as the catalog had it when this was planned.
        start: Where a frame begins, in bytes.
        end: Behind the last frame, in bytes.
        has_checksums: Whether data frames have a checksum in place of their session.
        is_replayed: Whether they have the session of a replay there.
    """

    descriptor: RecordingDescriptor
    start: int
    end: int
    has_checksums: bool = False
    is_replayed: bool = False

    @property
    def length(self) -> int:
        """Return how much it is, in bytes."""
        return self.end - self.start


@final
@attrs.frozen(kw_only=True)
class ScanSettings:
    """What to make of frames.

    Attributes:
        path: Directory of the archive; "" where it is elsewhere.
        projection: Columns to build.
        by_message: A row for each message; for each frame otherwise.
        include_padding: Padding is a row as well.
        rows_per_batch: Most rows of a batch.
        bytes_per_batch: Most payload of one; a single message may be more.
        fail_on_data_loss: Raise at damage; skip it otherwise.
        checksum: Name of the one that every data frame is checked with; None to check none.
        timestamp_from: Where messages say when they were made; None for nowhere.
        decoder: What makes other columns of these, as `module:callable`; None for nothing.
        decoded: Arrow schema of what it makes.
        archive: Where it is asked to replay; None where its files are read.
    """

    path: str
    projection: Projection
    by_message: bool = True
    include_padding: bool = False
    rows_per_batch: int
    bytes_per_batch: int
    fail_on_data_loss: bool = True
    checksum: str | None = None
    timestamp_from: TimestampFrom | None = None
    decoder: str | None = None
    decoded: Any = None
    archive: ArchiveAccess | None = None

    @classmethod
    def of(
        cls, options: ArchiveOptions, projection: Projection, *, decoded: Any = None
    ) -> ScanSettings:
        """Return what the options of a query say."""
        return cls(
            path=options.path,
            projection=projection,
            by_message=options.fragment_mode == "message",
            include_padding=options.include_padding,
            rows_per_batch=options.rows_per_batch,
            bytes_per_batch=options.bytes_per_batch,
            fail_on_data_loss=options.fail_on_data_loss,
            checksum=options.verify_checksum,
            timestamp_from=options.timestamp_from,
            decoder=options.decoder,
            decoded=decoded,
            archive=ArchiveAccess.of(options) if options.access == REPLAY else None,
        )
