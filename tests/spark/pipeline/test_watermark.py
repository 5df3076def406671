"""What may be purged: only what every consumer has read, and whole files of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import attrs
import pytest

from aeron_async.archive.disk.descriptor import RecordingDescriptor
from aeron_async.errors import ConfigurationError
from aeron_async.spark.offsets import IdRanges, Offsets, RecordingOffset
from aeron_async.spark.pipeline.query import Lag, QueryStopper, follow, lag_of
from aeron_async.spark.pipeline.watermark import (
    Watermark,
    committed_offsets,
    last_committed,
    watermarks,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TERM = 65_536
RECORDING = RecordingDescriptor(
    recording_id=3,
    start_position=1_024,
    start_timestamp_ms=1_700_000_000_000,
    initial_term_id=7,
    term_length=TERM,
    segment_length=2 * TERM,
    mtu_length=1_408,
    session_id=1,
    stream_id=1001,
    stripped_channel="aeron:ipc",
    original_channel="aeron:ipc",
    source_identity="aeron:ipc",
)


def read_up_to(position: int, began: int = RECORDING.start_timestamp_ms) -> Offsets:
    return Offsets(
        {3: RecordingOffset.of(attrs.evolve(RECORDING, start_timestamp_ms=began), position)}
    )


@pytest.mark.parametrize(
    ("consumers", "grace", "expected"),
    [
        ([read_up_to(5 * TERM)], 0, Watermark(3, 5 * TERM, 4 * TERM, 2)),
        ([read_up_to(5 * TERM), read_up_to(3 * TERM)], 0, Watermark(3, 3 * TERM, 2 * TERM, 1)),
        ([read_up_to(5 * TERM)], 2 * TERM, Watermark(3, 5 * TERM, 2 * TERM, 1)),
        # The last byte that was read lies in the second file, and no third may be there yet.
        ([read_up_to(4 * TERM)], 0, Watermark(3, 4 * TERM, 2 * TERM, 1)),
        ([read_up_to(TERM)], 0, None),
        ([read_up_to(5 * TERM)], 1 << 40, None),
        ([read_up_to(5 * TERM), Offsets()], 0, None),
        # Another recording that had the same id.
        ([read_up_to(5 * TERM, began=1)], 0, None),
    ],
)
def test_whole_files_that_all_have_read_may_go(
    consumers: list[Offsets], grace: int, expected: Watermark | None
) -> None:
    assert watermarks({3: RECORDING}, consumers, grace) == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("offsets", "stop", "expected"),
    [
        # Read to its end some time ago, waiting for its turn, not known, and of another archive.
        (Offsets(met=IdRanges((0, 9)), newest_ms=1 << 60), 5 * TERM, 5 * TERM),
        (Offsets(met=IdRanges((0, 9)), new=IdRanges((3, 4)), newest_ms=1 << 60), 5 * TERM, 1_024),
        (Offsets(met=IdRanges((0, 3)), newest_ms=1 << 60), 5 * TERM, 1_024),
        (Offsets(met=IdRanges((0, 9)), newest_ms=5), 5 * TERM, 1_024),
        # It is being extended: until where it was read is not known.
        (Offsets(met=IdRanges((0, 9)), newest_ms=1 << 60), -1, 1_024),
    ],
)
def test_what_is_not_listed_was_read_to_its_end_or_not_at_all(
    offsets: Offsets, stop: int, expected: int
) -> None:
    assert offsets.position_in(attrs.evolve(RECORDING, stop_position=stop)) == expected


def test_nothing_may_go_of_what_was_recorded_behind_an_end_that_is_not_known() -> None:
    """It was read to its end, then extended, and has stopped once more."""
    extended = attrs.evolve(RECORDING, stop_position=5 * TERM, correlation_id=7)
    offsets = Offsets(met=IdRanges((0, 9)), newest_ms=1 << 60)
    assert offsets.position_in(extended) == extended.start_position
    assert watermarks({3: extended}, [offsets], 0) == []


def checkpoint(folder: Path, batches: Mapping[int, object], commits: list[int]) -> Path:
    (folder / "offsets").mkdir(parents=True)
    (folder / "commits").mkdir()
    (folder / "metadata").write_text('{"id":"x"}')
    for batch_id, offset in batches.items():
        text = "\n".join(["v1", '{"batchWatermarkMs":0}', json.dumps(offset)])
        (folder / "offsets" / str(batch_id)).write_text(text)
    for batch_id in commits:
        (folder / "commits" / str(batch_id)).touch()
        (folder / "commits" / f".{batch_id}.crc").touch()
    return folder


def test_only_committed_batches_count(tmp_path: Path) -> None:
    batches = {batch_id: read_up_to(batch_id * 32).to_json() for batch_id in (9, 10, 11)}
    folder = checkpoint(tmp_path / "query", batches, [9, 10])
    assert last_committed(folder) == 10
    assert committed_offsets(folder) == read_up_to(320)


def test_a_query_that_has_committed_nothing_has_read_nothing(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "query", {0: read_up_to(64).to_json()}, [])
    assert committed_offsets(folder) == Offsets()
    (folder / "commits").rmdir()
    assert last_committed(folder) is None


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no checkpoint"):
        committed_offsets(tmp_path)
    folder = checkpoint(tmp_path / "query", {0: {"topic": {"0": 1}}}, [0])
    with pytest.raises(ConfigurationError, match="reads no recordings"):
        committed_offsets(folder)


def test_a_lag_is_what_was_reported_less_what_was_read() -> None:
    new = RecordingOffset(512, 7, 128)
    latest = Offsets({**read_up_to(4_096).recordings, 4: new})
    source = {
        "endOffset": json.dumps(read_up_to(2_048).to_json()),
        "latestOffset": latest.to_json(),
    }
    assert lag_of({"batchId": 5, "sources": [source]}) == Lag(5, {3: 2_048, 4: 384})


@pytest.mark.parametrize(
    "progress",
    [
        None,
        {"sources": []},
        {"batchId": 1, "sources": [{"endOffset": None, "latestOffset": None}]},
        {"batchId": 1, "sources": [{"endOffset": "{}", "latestOffset": "null"}]},
        {"batchId": 1, "sources": [{"endOffset": "no json", "latestOffset": "[1]"}]},
        {"batchId": 1, "sources": [{"endOffset": {"recs": 7}, "latestOffset": {"v": 99}}]},
    ],
)
def test_where_spark_says_nothing_there_is_no_lag(progress: object) -> None:
    assert lag_of(progress) is None


class FakeQuery:
    """A query that is never idle: one batch after the other."""

    def __init__(self, *, active: bool) -> None:
        self.lastProgress: dict[str, object] | None = None
        self.status = {"isTriggerActive": active}
        self.isActive = True
        self.looks = 0

    def awaitTermination(self, _seconds: int) -> None:  # noqa: N802 - Spark's name
        self.looks += 1
        self.lastProgress = {"batchId": self.looks // 3, "sources": []}

    def stop(self) -> None:
        self.isActive = False

    def exception(self) -> None:
        return None


@pytest.mark.parametrize(("active", "looks"), [(False, 0), (True, 1)])
def test_a_query_is_stopped_after_the_batch_that_is_under_way(*, active: bool, looks: int) -> None:
    query = FakeQuery(active=active)
    follow(query, lambda _: None, QueryStopper(lambda: True))  # type: ignore[arg-type] # a fake
    assert not query.isActive
    assert query.looks == looks
