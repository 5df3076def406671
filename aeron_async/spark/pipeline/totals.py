"""What the tasks of a batch have found together, added up task by task in the driver.

How many sums and gaps there are is up to whoever publishes, and how many tasks there are to how
much was recorded. So the driver keeps an upper limit of each for a batch: times of sums are rounded
down to longer steps, and gaps are only counted. What that concerns is in the report of the batch.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final, final

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from aeron_async.spark.pipeline.gold import RUNS, SUMMED, Sums, stitched, table_of
from aeron_async.spark.pipeline.runs import Run

if TYPE_CHECKING:
    from aeron_async.spark.lake.files import DataFile
    from aeron_async.spark.pipeline.runs import RecordedGap
    from aeron_async.spark.pipeline.task import TaskResult

__all__ = ["BatchSums", "BatchTotals"]

MOST_OF_A_BATCH: Final = 1 << 20
"""Upper limit on the rows of sums that a batch makes of a table."""
GAPS_OF_A_BATCH: Final = 64 << 10
"""Upper limit on the gaps that a batch lists; more are only counted."""


@final
@attrs.frozen
class BatchSums:
    """Runs and gaps of a batch.

    Attributes:
        runs: Runs of positions and numbers; their gaps are all that were found.
        gaps: Gaps that are listed, those to the batch before among them.
        all_runs: These runs, and the last ones before.
    """

    runs: list[Run]
    gaps: list[RecordedGap]
    all_runs: pa.Table

    @property
    def found_gaps(self) -> int:
        """Return the number of all gaps."""
        return sum(each.gaps for each in self.runs)

    @property
    def unlisted_gaps(self) -> int:
        """Return the number of gaps that are not listed."""
        return self.found_gaps - len(self.gaps)


@final
class BatchTotals:
    """Results of tasks, added up.

    Attributes:
        files: Files that were written, by table.
        counts: Rows of each table.
        sums: Sums by table of gold.
    """

    def __init__(self) -> None:
        self.files: defaultdict[str, list[DataFile]] = defaultdict(list)
        self.counts: Counter[str] = Counter()
        self.sums = {name: Sums(schema, MOST_OF_A_BATCH) for name, schema in SUMMED.items()}
        self._steps: Counter[str] = Counter()
        self._runs: list[Run] = []
        self._gaps: list[RecordedGap] = []
        self._term_lengths: dict[int, int] = {}

    def add(self, result: TaskResult) -> None:
        """Add the result of a task."""
        for table, files in result.files.items():
            self.files[table] += files
        self.counts.update(result.counts)
        for table, rows in result.sums.items():
            self.sums[table].add_table(rows)
        self._steps |= Counter(result.steps)
        self._term_lengths |= result.term_lengths
        self._runs += result.runs
        self._gaps += result.gaps[: GAPS_OF_A_BATCH - len(self._gaps)]

    def tables(self) -> dict[str, pa.Table]:
        """Return the sums of each table."""
        return {table: each.table() for table, each in self.sums.items()}

    def rounded(self) -> dict[str, int]:
        """Return by table the longest step in its own unit, of tables whose times were rounded."""
        steps = self._steps | Counter({table: each.step for table, each in self.sums.items()})
        return {table: step for table, step in sorted(steps.items()) if step > 1}

    def summed_up(self, earlier: pa.Table) -> BatchSums:
        """Return the runs and gaps of all tasks, and what they leave to a batch after them.

        Args:
            earlier: The last runs before this batch.
        """
        ids = pa.array(list(self._term_lengths), pa.int64())
        before = earlier.filter(pc.is_in(earlier.column("recording_id"), ids))
        known = (Run(**row) for row in before.to_pylist())
        runs, between = stitched(self._runs, known, self._term_lengths)
        gaps = [*self._gaps, *between][:GAPS_OF_A_BATCH]
        return BatchSums(runs, gaps, pa.concat_tables([earlier, table_of(runs, RUNS)]))
