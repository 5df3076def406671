"""Input of a reader: parts of recordings, and how their frames become rows.

All of it travels to the executors, which therefore need no catalog.
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
@attrs.frozen(kw_only=True)
class ScanSettings:
    """How frames become rows.

    Attributes:
        path: Directory of the archive; "" with `access=replay`.
        projection: Columns to build.
        by_message: One row for each message; for each frame otherwise.
        include_padding: Whether padding is a row as well.
        rows_per_batch: Upper limit on the rows of a batch.
        bytes_per_batch: Upper limit on its payload; a single message may exceed it.
        fail_on_data_loss: Raise at damage; skip it otherwise.
        checksum: Name of the checksum to verify on every data frame; None to verify none.
        timestamp_from: Where messages hold their timestamp; None if they have none.
        decoder: Decoder that replaces the columns; None for none.
        decoded: Arrow schema of the decoder's result.
        archive: Archive that replays the recordings; None if their files are read.
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
        """Return the settings that the options of a query describe."""
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
