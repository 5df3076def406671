"""How far a query is behind."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from aeron_async.spark.lag import LagListener, QueryLag, bytes_behind
from aeron_async.spark.offsets import Offsets, RecordingOffset
from tests.logs import captured_logs


def offsets(**positions: int) -> Offsets:
    return Offsets({int(key[1:]): RecordingOffset(each, 1, 0) for key, each in positions.items()})


def event(*sources: tuple[str | None, str | None]) -> Any:
    found = [SimpleNamespace(endOffset=end, latestOffset=latest) for end, latest in sources]
    return SimpleNamespace(progress=SimpleNamespace(id="q", name="n", batchId=4, sources=found))


def text(each: Offsets) -> str:
    return json.dumps(each.to_json())


def test_what_is_behind_is_what_can_be_read_and_was_not() -> None:
    assert bytes_behind(offsets(r0=64, r1=320), offsets(r0=96, r1=320, r2=640)) == {
        0: 32,
        1: 0,
        2: 640,
    }


def test_a_recording_that_was_rolled_back_is_not_behind() -> None:
    assert bytes_behind(offsets(r0=96), offsets(r0=64)) == {0: 0}


def test_each_batch_is_logged_and_told() -> None:
    told: list[QueryLag] = []
    listener = LagListener(told.append)
    with captured_logs() as lines:
        listener.onQueryProgress(event((text(offsets(r0=64)), text(offsets(r0=96, r1=32)))))
    (lag,) = told
    assert (lag.batch_id, lag.positions, lag.bytes_behind) == (4, {0: 64}, {0: 32, 1: 32})
    assert lag.total == 64
    assert [(line["event"], line["total"]) for line in lines] == [("stream_lag_measured", 64)]


@pytest.mark.parametrize("other", [None, "", "7", "no json", '{"topic": {"0": 5}}', '"text"'])
def test_other_sources_are_no_matter(other: str | None) -> None:
    told: list[QueryLag] = []
    listener = LagListener(told.append)
    listener.onQueryProgress(event((other, other), (text(offsets(r0=64)), other)))
    assert told == []


def test_a_listener_without_anybody_to_tell_only_logs() -> None:
    listener = LagListener()
    with captured_logs() as lines:
        listener.onQueryStarted(event())
        listener.onQueryProgress(event((text(offsets(r0=64)), text(offsets(r0=64)))))
        listener.onQueryIdle(event())
        listener.onQueryTerminated(event())
    assert len(lines) == 1
