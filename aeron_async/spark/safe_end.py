"""Up to where recordings may be read, and who says so.

A recording that has stopped ends where the catalog says. Of one that has not, most is known by the
archive that makes it, then by its driver's counters; where nobody can be asked, its files tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from aeron_async.archive.disk.mark_file import read_mark_file
from aeron_async.clock import SystemClock
from aeron_async.errors import ArchiveError, ConfigurationError, DataLossError
from aeron_async.logs import get_logger
from aeron_async.spark.driver_counters import recorded_positions
from aeron_async.spark.growth import Growing
from aeron_async.spark.recorded_end import is_alive, last_message_end, scanned_end
from aeron_async.spark.replayed.access import ArchiveAccess

if TYPE_CHECKING:
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import Directory
    from aeron_async.archive.disk.mark_file import MarkFileHeader
    from aeron_async.clock import Clock
    from aeron_async.spark.options import ArchiveOptions

__all__ = ["SafeEnds"]

log = get_logger(__name__)


@final
class SafeEnds:
    """Knows up to where each recording may be read.

    What was found stays until `look` is called again; then files are walked from there on only, so
    a query that asks often does not read the same frames often.

    Args:
        directory: Of the archive.
        options: For `positionSource`, `safetyLagBytes` and what they need.
        clock: Tells whether an archive is alive.
    """

    def __init__(
        self, directory: Directory, options: ArchiveOptions, *, clock: Clock | None = None
    ) -> None:
        self._directory = directory
        self._options = options
        self._clock = clock or SystemClock()
        self._known: dict[int, tuple[int, int]] = {}
        self._recorded: dict[int, int] | None = None
        self._names: list[str] | None = None
        self._is_alive = False

    def look(self) -> None:
        """Forget what files and counters there were, for there may be more now."""
        self._recorded = None
        self._names = None

    def of(self, descriptor: RecordingDescriptor) -> int:
        """Return up to where a recording may be read, in bytes.

        Raises:
            ConfigurationError: Nobody is there who could say it, of those who were to be asked.
            DataLossError: The frames at its end are damaged, and that is not to be skipped.
        """
        if not descriptor.is_active:
            return descriptor.stop_position
        end = self._end_where_there_are_files(descriptor)
        # Never back: what may have been read stays read.
        end = max(end, self._known_end(descriptor) or descriptor.start_position)
        self._known[descriptor.recording_id] = descriptor.session_id, end
        return end

    def _known_end(self, descriptor: RecordingDescriptor) -> int | None:
        """Return what was found before; who extends a recording may have cut it first."""
        session_id, end = self._known.get(descriptor.recording_id, (None, None))
        return end if session_id == descriptor.session_id else None

    def _end_where_there_are_files(self, descriptor: RecordingDescriptor) -> int:
        """Return where a recording ends; where it began to be looked at if its file has gone."""
        try:
            return self._active_end(descriptor)
        except FileNotFoundError as error:
            position = self._known_end(descriptor) or descriptor.start_position
            message = f"its file {error.filename} is not there"
            if self._options.fail_on_data_loss:
                hint = "; failOnDataLoss=false goes on with what was known before"
                raise DataLossError(
                    message + hint, recording_id=descriptor.recording_id, position=position
                ) from error
            log.warning(
                "recording_end_unknown", recording_id=descriptor.recording_id, problem=message
            )
            return position

    def _active_end(self, descriptor: RecordingDescriptor) -> int:
        source = self._options.position_source
        if source == "catalog":
            return descriptor.start_position
        recorded: int | None = None
        if isinstance(self._directory, Growing):
            recorded = self._directory.recorded(descriptor)
        elif source == "control" or (source == "auto" and self._options.archive_control_channel):
            recorded = self._asked(descriptor)
        elif source in {"auto", "counter"}:
            recorded = self._counted().get(descriptor.recording_id)
            if recorded is None and source == "counter":
                message = (
                    f"no counter shows recording {descriptor.recording_id}: its archive is not at "
                    "work, or its driver is not in aeron.dir; set aeron.dir or positionSource=scan"
                )
                raise ConfigurationError(message)
        if recorded is None:
            return self._scanned(descriptor)
        return self._held_back(descriptor, recorded)

    def _held_back(self, descriptor: RecordingDescriptor, recorded: int) -> int:
        """Return a position that is far enough from the one that was recorded."""
        lag = self._options.safety_lag_bytes
        if not lag:
            return recorded
        limit = max(recorded - lag, descriptor.start_position)
        return last_message_end(self._directory, descriptor, limit)

    def _asked(self, descriptor: RecordingDescriptor) -> int:
        if self._recorded is None:
            self._recorded = {}
        known = self._recorded.get(descriptor.recording_id)
        if known is None:
            known = asked_position(self._options, descriptor.recording_id)
            self._recorded[descriptor.recording_id] = known
        return known

    def _counted(self) -> dict[int, int]:
        """Return what the driver's counters say; nothing where there is no driver."""
        if self._recorded is None:
            mark = self._mark()
            # One that was killed leaves its counters; its files are what counts then.
            is_asked = self._options.position_source == "counter"
            is_asked = is_asked or is_alive(self._directory, self._clock.epoch_ms())
            where = mark.identity.aeron_directory if mark and is_asked else ""
            where = self._options.aeron_directory or where
            # Dead or not: a driver may have counters of other archives, with the same ids.
            archive_id = mark.identity.archive_id if mark else None
            found = recorded_positions(where, archive_id=archive_id) if where else {}
            self._recorded = found
        return self._recorded

    def _mark(self) -> MarkFileHeader | None:
        try:
            return read_mark_file(self._directory)
        except (ArchiveError, FileNotFoundError):
            return None

    def _scanned(self, descriptor: RecordingDescriptor) -> int:
        if self._names is None:
            self._names = self._directory.names()
            self._is_alive = is_alive(self._directory, self._clock.epoch_ms())
        return scanned_end(
            self._directory,
            descriptor,
            self._options,
            names=self._names,
            alive=self._is_alive,
            known=self._known_end(descriptor),
        )


def asked_position(options: ArchiveOptions, recording_id: int) -> int:
    """Return up to where a recording has been made, as its archive says.

    Raises:
        ConfigurationError: It does not answer.
        UnknownRecordingError: It has no such recording.
    """
    # Here, for it takes a driver, and hardly any query asks.
    from aeron_async.spark.replayed.link import ArchiveLink  # noqa: PLC0415

    return ArchiveLink(ArchiveAccess.of(options)).position(recording_id)
