"""A query that follows an archive whose files are elsewhere: each message once, as with files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aeron_async.errors import ConfigurationError, DataLossError
from aeron_async.spark.admission import Limit
from tests.spark.queries import ALL, MS, Query
from tests.spark.replayed.live import STREAM_ID, LiveArchive, live_archive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TERM = 65_536


@pytest.fixture
def live(tmp_path: Path, unused_udp_port_factory: Callable[[], int]) -> Iterator[LiveArchive]:
    channel = f"aeron:udp?endpoint=localhost:{unused_udp_port_factory()}"
    with live_archive(tmp_path / "archive", channel) as archive:
        yield archive


def later(query: Query) -> None:
    """Let so much time go by that the archive is asked again for what it has."""
    query.clock.ns += 1_000 * MS


def test_what_is_recorded_is_read_once_and_an_idle_query_reads_nothing(live: LiveArchive) -> None:
    live.record()
    query = Query(None, **live.options)
    assert query.batch() == -1
    live.write(300)
    assert query.batch() == 300
    assert query.batch() == -1
    # Longer than a packet, and one that goes on in the next term.
    live.write(20, length=5_000)
    assert query.batch() == 20
    live.stop()
    later(query)
    # That it has ended is news, and nothing to be read.
    assert query.batch() == 0
    assert query.batch() == -1
    assert query.numbers == {0: list(range(320))}


@pytest.mark.parametrize(
    "limit", [Limit(max_bytes=1), Limit(max_bytes=10_000), Limit(max_bytes=3 * TERM), Limit(7)]
)
def test_limited_batches_are_the_same_rows_whatever_the_limit(
    live: LiveArchive, limit: Limit
) -> None:
    live.record()
    query = Query(None, **live.options)
    live.write(40, length=3_000)
    while query.batch(limit) != -1:
        query.restart()
    assert query.numbers == {0: list(range(40))}


def test_recordings_that_are_new_join_and_those_that_are_extended_go_on(live: LiveArchive) -> None:
    query = Query(None, **live.options)
    live.record()
    live.write(10)
    live.stop()
    assert query.batch() == -1
    later(query)
    assert query.batch() == 10
    live.extend()
    live.write(5)
    later(query)
    assert query.batch() == 5
    live.record(STREAM_ID + 1)
    live.write(3)
    later(query)
    assert query.batch() == 3
    assert query.numbers == {0: list(range(15)), 1: [15, 16, 17]}


def test_what_is_available_now_is_all_that_is_read(live: LiveArchive) -> None:
    live.record()
    live.write(10)
    query = Query(None, **live.options)
    query.follower.freeze()
    live.write(10)
    assert query.batch() == 10
    assert query.batch() == -1


@pytest.mark.parametrize("fails", [True, False])
def test_what_was_truncated_is_missed(live: LiveArchive, *, fails: bool) -> None:
    live.record()
    live.write(100)
    query = Query(None, failOnDataLoss=str(fails).lower(), **live.options)
    assert query.batch() == 100
    live.stop()
    # Frames of 160 bytes each.
    live.call("truncate", 0, 160 * 60)
    later(query)
    if fails:
        with pytest.raises(DataLossError, match="rolled back: it now ends at 9600"):
            query.batch()
        return
    assert query.batch() == 0
    live.extend()
    live.write(7)
    later(query)
    assert query.batch() == 7
    assert query.numbers[0][100:] == list(range(100, 107))


@pytest.mark.parametrize("fails", [True, False])
def test_what_was_purged_is_missed(live: LiveArchive, *, fails: bool) -> None:
    live.record()
    live.write(30)
    query = Query(None, failOnDataLoss=str(fails).lower(), **live.options)
    assert query.batch() == 30
    live.write(17_000)
    live.call("purge_segments", 0, 2 << 20)
    later(query)
    if fails:
        with pytest.raises(DataLossError, match="purged: it now begins at 2097152"):
            query.batch()
        return
    assert query.batch() > 0
    assert query.numbers[0][-1] == 17_029
    assert query.numbers[0][30:] == list(range(query.numbers[0][30], 17_030))
    assert query.follower.lost_bytes == (2 << 20) - 30 * 160


def test_an_archive_that_is_started_again_is_asked_again(live: LiveArchive) -> None:
    live.record()
    live.write(10)
    query = Query(None, **live.options | {"archive.timeoutMs": "2000"})
    assert query.batch() == 10
    live.stop()
    live.close()
    later(query)
    with pytest.raises(ConfigurationError, match="does not say which recordings it has"):
        query.batch(ALL)
    live.open()
    assert query.batch() == 0
    live.extend()
    live.write(5)
    later(query)
    assert query.batch() == 5
    assert query.numbers == {0: list(range(15))}
