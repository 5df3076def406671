"""Every scenario of ours once, in short, in the processes it is run in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from benchmarks import profiling, scenarios, scenarios_archive
from benchmarks.scenarios import Settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("_warm_children")

SHORT = Settings(seconds=0.05, settle_s=0.05)


@pytest.mark.parametrize(
    "measure",
    [
        lambda: scenarios.stream(SHORT, 1_000, 8_192),
        lambda: scenarios.same_loop(SHORT, scenarios.PURE),
        lambda: scenarios.fan_out(SHORT, 2),
        lambda: scenarios.lossy(SHORT, 0.01),
        lambda: scenarios.flood(SHORT, 100, 1_408),
    ],
    ids=["stream", "same_loop", "fan_out", "lossy", "flood"],
)
async def test_a_stream_has_a_rate(measure: Callable[[], Awaitable[dict[str, float]]]) -> None:
    figures = await measure()
    assert figures["messages_per_s"] > 0
    assert figures["mb_per_s"] > 0


@pytest.mark.parametrize("measure", [scenarios.round_trip, scenarios.echo])
async def test_a_round_trip_has_percentiles(measure: Any) -> None:
    figures = await measure(SHORT)
    assert 0 < figures["p50_us"] <= figures["p99_us"] <= figures["p99_9_us"]


async def test_silent_streams_have_a_share_of_a_core_on_each_side() -> None:
    figures = await scenarios.idle(SHORT, 3)
    assert figures.keys() == {
        f"{side}_{what}"
        for side in ("publisher", "subscriber")
        for what in ("percent", "resident_mb")
    }


@pytest.mark.parametrize(("is_read", "is_recorded"), [(False, True), (True, False)])
async def test_a_recorded_stream_has_a_rate_and_a_lag(
    tmp_path: Path, *, is_read: bool, is_recorded: bool
) -> None:
    figures = await scenarios_archive.recorded(
        SHORT, 1_000, str(tmp_path), is_read=is_read, is_recorded=is_recorded
    )
    assert figures["messages_per_s"] > 0
    assert figures["lag_p99_ms"] <= figures["lag_max_ms"]
    assert ("file_mb_per_s" in figures) == is_recorded


@pytest.mark.parametrize("part", ["replay", "replays"])
async def test_replays_have_a_rate_and_a_lag(tmp_path: Path, part: str) -> None:
    figures = await scenarios_archive.replayed(SHORT, str(tmp_path), part)
    assert figures["mb_per_s"] > 0
    assert figures["work_p99_ms"] > 0
    assert figures["lag_p99_ms"] <= figures["lag_max_ms"]


@pytest.mark.parametrize("is_read", [False, True])
async def test_a_plain_file_has_a_rate(tmp_path: Path, *, is_read: bool) -> None:
    figures = await scenarios_archive.plain_file(SHORT, str(tmp_path), is_read=is_read)
    assert figures["file_mb_per_s"] > 0


def test_nothing_is_recorded_where_there_is_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "no directory" in scenarios_archive.why_absent(str(tmp_path / "none"))
    monkeypatch.setattr(scenarios_archive, "ROOM", 1)
    assert not scenarios_archive.why_absent(str(tmp_path))
    monkeypatch.setattr(scenarios_archive, "ROOM", 1 << 60)
    assert "may be needed" in scenarios_archive.why_absent(str(tmp_path))


@pytest.mark.parametrize("kind", ["", "_asyncio"])
async def test_pyzmq_moves_the_same_messages(kind: str) -> None:
    pytest.importorskip("zmq", reason="pip install 'aeron-async[bench]'")
    assert (await scenarios.zmq_stream(SHORT, 100, kind))["messages_per_s"] > 0


@pytest.mark.parametrize("length", [100, 10_000])
async def test_zenoh_moves_the_same_messages(length: int) -> None:
    pytest.importorskip("zenoh", reason="pip install 'aeron-async[bench]'")
    assert (await scenarios.zenoh_stream(SHORT, length))["messages_per_s"] > 0


@pytest.mark.parametrize("what", ["--ipc", "--length=50"])
def test_a_profile_names_what_took_the_longest(
    what: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.profiling.shutil.which", lambda _name: None)
    assert profiling.main([what, "--seconds", "0.05", "--top", "5"]) == 0
    shown = capsys.readouterr().out
    assert "by cProfile" in shown
    assert "tottime" in shown
    assert "perf is not on PATH" in shown
