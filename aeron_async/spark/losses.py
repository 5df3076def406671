"""Lost data of a stream: what is refused in any case, and what is an error or logged.

An archive that was deleted and created again is an error in any case, also with
`failOnDataLoss=false`: positions in the old recordings mean nothing in the new ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from aeron_async.errors import DataLossError
from aeron_async.logs import get_logger

if TYPE_CHECKING:
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.spark.offsets import Offsets, RecordingOffset

__all__ = ["LossPolicy", "is_extended", "refuse_other", "refuse_recreated_archive"]

log: Final = get_logger(__name__)


@final
class LossPolicy:
    """Raises an error on data loss, or logs each loss once.

    Attributes:
        lost_bytes: Bytes known to be lost so far.
    """

    def __init__(self, *, fails: bool) -> None:
        self._fails = fails
        self._logged: set[tuple[int, str, int]] = set()
        self.lost_bytes: int = 0

    def continue_after_purge(self, recording_id: int, position: int, start: int) -> int:
        """Return where to continue if a recording now begins after the position read so far.

        Raises:
            DataLossError: `failOnDataLoss` is set.
        """
        what = f"purged: it now begins at {start}, so {start - position} bytes are gone"
        self._raise_or_log(recording_id, position, what, "begins there", start - position)
        return start

    def continue_after_rollback(self, recording_id: int, position: int, end: int) -> int:
        """Return where to continue if a recording now ends before the position read so far.

        Raises:
            DataLossError: `failOnDataLoss` is set.
        """
        what = (
            f"rolled back: it now ends at {end}; it was truncated, or its host lost data that was "
            "not on the disk"
        )
        self._raise_or_log(recording_id, position, what, "continues from that end", 0)
        return end

    def continue_after_rewrite(self, recording_id: int, position: int, start: int) -> int:
        """Return where to continue if part of what was read has been cut off and recorded again.

        Raises:
            DataLossError: `failOnDataLoss` is set.
        """
        what = (
            f"rolled back: it was cut at {start} or before, and another session has recorded what "
            "follows"
        )
        self._raise_or_log(recording_id, position, what, "reads that too", 0)
        return start

    def continue_after_extension(self, recording_id: int, position: int, end: int) -> int:
        """Return where to continue in a recording that goes on somewhere behind its old end.

        Raises:
            DataLossError: `failOnDataLoss` is set.
        """
        what = (
            f"extended: it was read to its end before, it goes on to {end} by now, and its frames "
            "do not show since where, for they have checksums or all the same session"
        )
        self._raise_or_log(recording_id, position, what, "continues from its present end", 0)
        return end

    def report_removal(self, recording_id: int, position: int) -> None:
        """Report a recording that was removed before it was read to its end.

        Raises:
            DataLossError: `failOnDataLoss` is set.
        """
        what = "removed: the catalog does not have it any more, and it was not read to its end"
        self._raise_or_log(recording_id, position, what, "continues without it", 0)

    def _raise_or_log(
        self, recording_id: int, position: int, what: str, otherwise: str, lost_bytes: int
    ) -> None:
        """Raise an error if the query does not tolerate loss; else log each loss once."""
        if self._fails:
            message = f"{what}; failOnDataLoss=false {otherwise}"
            raise DataLossError(message, recording_id=recording_id, position=position)
        key = (recording_id, what, position)
        if key in self._logged:
            return
        self._logged.add(key)
        self.lost_bytes += lost_bytes
        log.warning(
            "data_lost",
            recording_id=recording_id,
            position=position,
            problem=what,
            lost_bytes=lost_bytes,
        )


def refuse_other(offset: RecordingOffset, descriptor: RecordingDescriptor) -> None:
    """Refuse a recording that has the id of the one read before, but is a different recording.

    Raises:
        DataLossError: The start timestamp or the initial term id differs.
    """
    if offset.is_of(descriptor):
        return
    message = (
        f"another recording has this id, which began at {descriptor.start_timestamp_ms} ms with "
        f"term {descriptor.initial_term_id}, and is not the one that was read; the archive was "
        "created again, so change checkpointLocation, or begin another LAKE"
    )
    raise DataLossError(message, recording_id=descriptor.recording_id, position=offset.position)


def refuse_recreated_archive(start: Offsets, descriptor: RecordingDescriptor) -> None:
    """Refuse a recording with a low id that began late: an archive never uses an id twice.

    Raises:
        DataLossError: The recording belongs to another archive.
    """
    recording_id = descriptor.recording_id
    if recording_id >= start.met.end or descriptor.start_timestamp_ms <= start.newest_ms:
        return
    message = (
        f"another recording has this id, which began at {descriptor.start_timestamp_ms} ms, after "
        f"the last of those that were read, up to recording {start.met.end - 1} at "
        f"{start.newest_ms} ms; the archive was created again, so change checkpointLocation, "
        "or begin another LAKE"
    )
    raise DataLossError(message, recording_id=recording_id, position=descriptor.start_position)


def is_extended(descriptor: RecordingDescriptor) -> bool:
    """Return whether a recording goes on, or has gone on, behind a stop."""
    each = descriptor
    return each.is_active or each.control_session_id != 0 or each.correlation_id != 0
