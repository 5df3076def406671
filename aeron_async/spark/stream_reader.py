"""Spark stream reader of recordings: the offsets of a micro-batch, and the rows in it.

One `StreamReader` lives as long as its query, in a process of its own on the driver's host. Spark
makes a second one in another process, only to send it to the workers. Therefore the constructor
does no I/O, and the state of the follower is not pickled.
"""

from __future__ import annotations

import pickle
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

__all__ = ["PlanReader", "StreamReader"]

EVERYTHING: Final = (1 << 63) - 1
log: Final = get_logger(__name__)


class StreamReader(SentToWorkers, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows recordings as a stream.

    Args:
        options: Options of the query.
        settings: How frames become rows.

    Raises:
        ConfigurationError: An option sets an end, which a stream does not have.
    """

    def __init__(self, options: ArchiveOptions, settings: ScanSettings) -> None:
        check_endless(options)
        self.options = options
        self.settings = settings
        self._follower: Follower | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_follower": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offsets at which a new query begins."""
        return self._following().initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit that the options set; some triggers replace it by their own."""
        if self.options.max_rows_per_trigger is not None:
            return ReadMaxRows(self.options.max_rows_per_trigger)
        if self.options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self.options.max_bytes_per_trigger)
        if self.options.min_bytes_per_trigger is not None:
            # Not `ReadAllAvailable`: that ignores the minimum, which the query may have to wait
            # for.
            return ReadMaxBytes(EVERYTHING)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offsets at which the next batch ends; `start` if there is nothing to read."""
        before = Offsets.from_json(start)
        after = self._following().latest(before, limit_of(limit))
        if after is before:
            return start
        cut = Cut(self.options.max_bytes_per_partition, self.options.min_partitions)
        return attrs.evolve(after, cut=cut).to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Make the data that is available now the end of this query."""
        self._following().freeze()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return the latest available offsets for query progress, without reading anything."""
        found = self._following().reported()
        return None if found is None else found.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the partitions of a batch; they depend on its two offsets only."""
        before, after = Offsets.from_json(start), Offsets.from_json(end)
        # A batch that Spark repeats after a restart keeps its partitions even if the options have
        # changed.
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
        """Log the positions that Spark will not request again, as a hint for purging.

        Spark calls this when the next batch begins, so the last batch is never reported.
        """
        positions = {key: each["pos"] for key, each in end["recs"].items()}
        log.info("stream_committed", positions=positions)

    def _following(self) -> Follower:
        if self._follower is None:
            # Imported here because it needs numpy, which the process that only pickles this object
            # may lack.
            from aeron_async.spark.follower import Follower  # noqa: PLC0415

            self._follower = Follower(self.options)
        return self._follower


@final
class PlanReader(StreamReader):
    """Follows recordings, and has a row for what each task shall read, not for what it has read.

    A plan is one partition. So Spark keeps offsets, limits, triggers and retries, and moves no
    message.
    """

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the plan that a partition is, as one row."""
        import pyarrow as pa  # noqa: PLC0415 - planning does not need it

        if isinstance(partition, ArchivePartition):
            plans = pa.array([pickle.dumps(partition.parts)], pa.binary())
            schema = pa.schema([pa.field("plan", pa.binary(), nullable=False)])
            yield pa.RecordBatch.from_arrays([plans], schema=schema)


def check_endless(options: ArchiveOptions) -> None:
    """Refuse options that set an end.

    Raises:
        ConfigurationError: An option sets an end.
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
    """Return the limit that Spark asks for; None for no limit.

    Raises:
        ConfigurationError: The limit counts something that recordings do not have, such as files.
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
