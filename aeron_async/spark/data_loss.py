"""What to do when a query cannot read what it should: fail, or go on and say what was lost.

An archive that was made anew is an error in any case: positions of other recordings say nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from aeron_async.errors import DataLossError
from aeron_async.logs import get_logger

if TYPE_CHECKING:
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.spark.offsets import RecordingOffset

__all__ = ["LossPolicy", "refuse_other", "refuse_reborn"]

log = get_logger(__name__)


@final
class LossPolicy:
    """Fails on data loss, or logs it once.

    Args:
        fails: The option `failOnDataLoss`.

    Attributes:
        lost_bytes: What is known to be lost so far.
    """

    def __init__(self, *, fails: bool) -> None:
        self._fails = fails
        self._told: set[tuple[int, str, int]] = set()
        self.lost_bytes = 0

    def purged(self, recording_id: int, position: int, start: int) -> int:
        """Return where to go on when a recording begins later than it was read to.

        Raises:
            DataLossError: It is not to be skipped.
        """
        what = f"purged: it begins at {start} by now, so {start - position} bytes are gone"
        self._tell(recording_id, position, what, "begins there", start - position)
        return start

    def rolled_back(self, recording_id: int, position: int, end: int) -> int:
        """Return where to go on when a recording ends before what was read of it.

        Raises:
            DataLossError: It is not to be taken for granted.
        """
        what = (
            f"rolled back: it ends at {end} by now, for it was truncated, or its host lost what "
            "was not on the disk"
        )
        self._tell(recording_id, position, what, "goes on from that end", 0)
        return end

    def rewritten(self, recording_id: int, position: int, start: int) -> int:
        """Return where to go on when what was read of a recording has been recorded anew.

        Raises:
            DataLossError: It is not to be taken for granted.
        """
        what = (
            f"rolled back: it was cut at {start} or before, and another session has recorded what "
            "follows"
        )
        self._tell(recording_id, position, what, "reads that too", 0)
        return start

    def removed(self, recording_id: int, position: int) -> None:
        """Let a recording go that was not read to its end.

        Raises:
            DataLossError: It is not to be let go.
        """
        what = "removed: the catalog does not have it any more, and it was not read to its end"
        self._tell(recording_id, position, what, "goes on without it", 0)

    def _tell(
        self, recording_id: int, position: int, what: str, otherwise: str, lost_bytes: int
    ) -> None:
        if self._fails:
            message = f"{what}; failOnDataLoss=false {otherwise}"
            raise DataLossError(message, recording_id=recording_id, position=position)
        key = (recording_id, what, position)
        if key in self._told:
            return
        self._told.add(key)
        self.lost_bytes += lost_bytes
        log.warning(
            "data_lost",
            recording_id=recording_id,
            position=position,
            problem=what,
            lost_bytes=lost_bytes,
        )


def refuse_other(offset: RecordingOffset, descriptor: RecordingDescriptor) -> None:
    """Refuse a recording that has the id of another one.

    Raises:
        DataLossError: It is another.
    """
    if offset.is_of(descriptor):
        return
    message = (
        f"another recording has this id: it began at {descriptor.start_timestamp_ms} ms with term "
        f"{descriptor.initial_term_id}, and the one that was read at {offset.start_timestamp_ms} "
        f"ms with term {offset.initial_term_id}; the archive was made anew, so change "
        "checkpointLocation"
    )
    raise DataLossError(message, recording_id=descriptor.recording_id, position=offset.position)


def refuse_reborn(gone: tuple[int, int] | None, descriptor: RecordingDescriptor) -> None:
    """Refuse a recording whose id is too low for one that began so late: ids are never used again.

    Args:
        gone: The highest id of those that were read and removed, and when that recording began.
        descriptor: Of a recording that was not met before.

    Raises:
        DataLossError: It is one of another archive.
    """
    if gone is None or descriptor.recording_id > gone[0]:
        return
    if descriptor.start_timestamp_ms <= gone[1]:
        return
    message = (
        f"it began at {descriptor.start_timestamp_ms} ms, after recording {gone[0]} did at "
        f"{gone[1]} ms, which was read and removed; the archive was made anew, so change "
        "checkpointLocation"
    )
    raise DataLossError(
        message, recording_id=descriptor.recording_id, position=descriptor.start_position
    )
