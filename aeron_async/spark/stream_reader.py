"""Spark stream reader of recordings: the offsets of a micro-batch, and the rows in it.

One `StreamReader` lives as long as its query, in a process of its own on the driver's host. Spark
makes a second one in another process, only to send it to the workers. Therefore the constructor
does no I/O, and the state of the follower is not pickled.
"""

from __future__ import annotations

import pickle
from collections import deque
from typing import TYPE_CHECKING, Any, Final, final

import attrs
import pyarrow as pa
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
from aeron_async.spark.admission import Limit
from aeron_async.spark.batch_reader import ArchivePartition, SentToWorkers, read_partition
from aeron_async.spark.few_lines import few_lines
from aeron_async.spark.follower import Follower
from aeron_async.spark.offsets import Cut, Offsets
from aeron_async.spark.option_values import LATEST, Positions
from aeron_async.spark.planning import partitions_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.datasource import InputPartition

    from aeron_async.spark.options import ArchiveOptions
    from aeron_async.spark.ranges import ScanSettings

__all__ = ["PlanReader", "RefusingReader", "StreamReader"]

EVERYTHING: Final = (1 << 63) - 1
LARGE: Final = 64 << 10
"""Length of offsets at which to warn, in characters: some 5,000 recordings that are open."""
LARGE_COUNT: Final = 2
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
        # The last offsets as text and parsed, for Spark passes them back; and those reported last.
        self._known: deque[tuple[dict[str, Any], Offsets]] = deque(maxlen=2)
        self._reported: tuple[Offsets | None, dict[str, Any] | None] = None, None
        self._large_count = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_follower": None, "_known": deque(), "_reported": (None, None)}

    @few_lines()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offsets at which a new query begins."""
        return self._written(self._following().initial(), None)

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

    @few_lines()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offsets at which the next batch ends; `start` if there is nothing to read."""
        before = self._parsed(start)
        after = self._following().latest(before, limit_of(limit))
        if after is before:
            return start
        cut = Cut(self.options.max_bytes_per_partition, self.options.min_partitions)
        return self._written(after, cut)

    @few_lines()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Make the data that is available now the end of this query."""
        self._following().freeze()

    @few_lines()
    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return the latest available offsets for query progress, without reading anything."""
        found = self._following().reported()
        if found is not self._reported[0]:
            self._reported = found, None if found is None else found.to_json()
        return self._reported[1]

    @few_lines()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the partitions of a batch; they depend on its two offsets only."""
        before, after = self._parsed(start), self._parsed(end)
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

    @few_lines()
    def commit(self, end: dict[str, Any]) -> None:
        """Log the positions that Spark will not request again, as a hint for purging.

        Spark calls this when the next batch begins, so the last batch is never reported.
        """
        listed = self._parsed(end).recordings
        positions = {str(key): each.position for key, each in listed.items()}
        log.info("stream_committed", positions=positions)

    def _written(self, offsets: Offsets, cut: Cut | None) -> dict[str, Any]:
        """Return offsets as Spark writes them."""
        found = attrs.evolve(offsets, cut=cut).to_json()
        self._known.append((found, offsets))
        length = sum(len(each) for each in found.values() if isinstance(each, str))
        self._large_count = self._large_count + 1 if length > LARGE else 0
        # Once may be a batch in which thousands of recordings end.
        if self._large_count == LARGE_COUNT:
            log.warning(
                "offsets_large",
                length=length,
                recordings=len(offsets.recordings),
                hint="each query should follow fewer recordings: set streamIds or channelPattern",
            )
        return found

    def _parsed(self, given: dict[str, Any]) -> Offsets:
        for text, offsets in self._known:
            if text == given:
                return offsets
        self._known.append((given, Offsets.from_json(given)))
        return self._known[-1][1]

    def _following(self) -> Follower:
        if self._follower is None:
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
        if isinstance(partition, ArchivePartition):
            plans = pa.array([pickle.dumps(partition.parts)], pa.binary())
            schema = pa.schema([pa.field("plan", pa.binary(), nullable=False)])
            yield pa.RecordBatch.from_arrays([plans], schema=schema)


@final
class RefusingReader(DataSourceStreamReader):
    """Stands for a reader that could not be made, and says why as soon as it is used.

    What the constructor of a reader raises, Spark replaces by an error of its own.

    Args:
        problem: Why the reader could not be made.
    """

    def __init__(self, problem: str) -> None:
        self._problem = problem

    @few_lines()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Raise a `ConfigurationError`."""
        raise ConfigurationError(self._problem)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Raise a `ConfigurationError`."""
        del start, limit
        return self.initialOffset()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Raise a `ConfigurationError`."""
        del start, end
        self.initialOffset()
        return []

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Raise a `ConfigurationError`."""
        del partition
        self.initialOffset()
        return iter(())


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
