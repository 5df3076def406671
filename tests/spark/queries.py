"""A streaming query without Spark: what a batch is, and what is read of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from aeron_async.spark.admission import Limit
from aeron_async.spark.columns import project
from aeron_async.spark.follower import Follower
from aeron_async.spark.offsets import Offsets
from aeron_async.spark.options import ArchiveOptions
from aeron_async.spark.ranges import ScanSettings
from aeron_async.spark.scan import Scanner
from tests.spark.growing import NUMBER

if TYPE_CHECKING:
    from pathlib import Path

    from aeron_async.spark.ranges import RecordingRange

__all__ = ["ALL", "MS", "HandClock", "Query"]

MS: Final = 1_000_000
ALL: Final = Limit()


class HandClock:
    """Time that a test sets."""

    def __init__(self) -> None:
        self.ns = 0

    def now_ns(self) -> int:
        return self.ns

    def epoch_ms(self) -> int:
        return 1_800_000_000_000 + self.ns // MS

    def epoch_ns(self) -> int:
        return self.epoch_ms() * MS


class Query:
    """Reads batch after batch, as Spark would."""

    def __init__(self, path: Path | None, **options: str) -> None:
        given = {} if path is None else {"path": str(path)}
        self.options = ArchiveOptions.parse(given | options)
        self.settings = ScanSettings(
            self.options, project(("recording_id", "position", "payload"), "message")
        )
        self.clock = HandClock()
        self.follower = Follower(self.options, clock=self.clock)
        self.at = self.follower.initial()
        self.numbers: dict[int, list[int]] = {}

    def restart(self) -> None:
        self.at = Offsets.from_json(json.loads(json.dumps(self.at.to_json())))
        self.follower = Follower(self.options, clock=self.clock)

    def batch(self, limit: Limit | None = ALL) -> int:
        """Read the next batch; return how many rows it has, or -1 if there is none."""
        end = self.follower.latest(self.at, limit)
        if end == self.at:
            return -1
        rows = self.rows(self.at, end)
        for recording_id, payload in rows:
            (number,) = NUMBER.unpack_from(payload)
            self.numbers.setdefault(recording_id, []).append(number)
        self.at = end
        return len(rows)

    def rows(self, start: Offsets, end: Offsets) -> list[tuple[int, bytes]]:
        return self.read(self.follower.ranges(start, end))

    def read(self, parts: list[RecordingRange]) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        for batch in Scanner(self.settings).batches(parts):
            found += zip(batch.column(0).to_pylist(), batch.column(2).to_pylist(), strict=True)
        return found
