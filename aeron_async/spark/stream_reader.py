"""What Spark calls to follow recordings: where a batch ends, and what is in it.

One object of this lives as long as its query, in a process of its own on the driver's host; a
second one is made in another process only to be sent to those that read. So making one does no I/O,
and what one knows does not travel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import attrs
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from aeron_async.errors import ConfigurationError
from aeron_async.logs import get_logger
from aeron_async.spark.batch_reader import ArchivePartition, SentToWorkers, read_partition
from aeron_async.spark.offsets import Cut, Offsets
from aeron_async.spark.option_values import LATEST, Positions
from aeron_async.spark.planning import partitions_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.datasource import InputPartition

    from aeron_async.spark.admission import Limit
    from aeron_async.spark.follower import Follower
    from aeron_async.spark.options import ArchiveOptions
    from aeron_async.spark.ranges import ScanSettings

__all__ = ["StreamReader"]

EVERYTHING: Final = (1 << 63) - 1
log: Final = get_logger(__name__)


@final
class StreamReader(SentToWorkers, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows recordings.

    Args:
        options: Of the query.
        settings: What to make of frames.

    Raises:
        ConfigurationError: An option says where a query ends, which this one does not.
    """

    def __init__(self, options: ArchiveOptions, settings: ScanSettings) -> None:
        check_endless(options)
        self.options = options
        self.settings = settings
        self._follower: Follower | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_follower": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where a new query begins."""
        return self._following().initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit of the options; Spark hands it back, or another for some triggers."""
        if self.options.max_rows_per_trigger is not None:
            return ReadMaxRows(self.options.max_rows_per_trigger)
        if self.options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self.options.max_bytes_per_trigger)
        if self.options.min_bytes_per_trigger is not None:
            # Not the one that means everything at once, for a minimum may have to be waited for.
            return ReadMaxBytes(EVERYTHING)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where the next batch ends; just the start if there is nothing to read."""
        before = Offsets.from_json(start)
        after = self._following().latest(before, limit_of(limit))
        if after is before:
            return start
        cut = Cut(self.options.max_bytes_per_partition, self.options.min_partitions)
        return attrs.evolve(after, cut=cut).to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Let what is there now be all that this query reads."""
        self._following().freeze()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return what there is to be read, for who watches the query; looks at nothing."""
        found = self._following().reported()
        return None if found is None else found.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return what each worker reads: a function of both offsets, whatever else is new."""
        before, after = Offsets.from_json(start), Offsets.from_json(end)
        # A batch that is done again has the partitions it had, with other options by now.
        cut = after.cut or Cut(self.options.max_bytes_per_partition, self.options.min_partitions)
        groups = partitions_of(
            self._following().ranges(before, after),
            max_bytes=cut.max_bytes,
            min_partitions=cut.min_partitions,
        )
        return [ArchivePartition(parts) for parts in groups]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield Arrow batches."""
        return read_partition(self.settings, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Log up to where nothing will be asked for again: a hint for who purges, and no promise.

        Spark says so when the next batch begins, and of the last one never.
        """
        positions = {key: each["pos"] for key, each in end["recs"].items()}
        log.info("stream_committed", positions=positions)

    def _following(self) -> Follower:
        if self._follower is None:
            # Here, for it takes numpy, and who only sends this to others needs none.
            from aeron_async.spark.follower import Follower  # noqa: PLC0415

            self._follower = Follower(self.options)
        return self._follower


def check_endless(options: ArchiveOptions) -> None:
    """Refuse options that say where a query ends.

    Raises:
        ConfigurationError: One does.
    """
    given = [
        name
        for name, is_given in (
            ("endingPositions", options.ending_positions != Positions(LATEST)),
            ("endingTimestamp", options.ending_timestamp is not None),
        )
        if is_given
    ]
    if given:
        message = (
            f"{' and '.join(given)} end a batch, and a stream has no end: leave it out, or read "
            "with spark.read"
        )
        raise ConfigurationError(message)


def limit_of(limit: ReadLimit) -> Limit | None:
    """Return what Spark's limit says; None for everything.

    Raises:
        ConfigurationError: It counts what recordings do not have.
    """
    from aeron_async.spark.admission import Limit  # noqa: PLC0415 - as above

    match limit:
        case ReadAllAvailable():
            return None
        case ReadMaxBytes():
            return Limit(max_bytes=limit.max_bytes)
        case ReadMaxRows():
            return Limit(max_rows=limit.max_rows)
        case _:
            message = f"recordings are limited by bytes or rows, and not by {limit}"
            raise ConfigurationError(message)
