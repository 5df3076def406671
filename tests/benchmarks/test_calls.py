"""The comparison of calls: ours for a moment, and what the table says."""

from __future__ import annotations

import pytest

from benchmarks import calls


def test_a_peer_is_measured_in_processes_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        calls.main(["--runs", "1", "--seconds", "0.2", "--count", "20", "--only", "ours, d"]) == 0
    )
    told = capsys.readouterr().out
    assert "ours, def" in told
    assert "answered" in told
    assert "wrong" not in told


@pytest.mark.parametrize("peer", calls.PEERS)
async def test_each_peer_that_is_here_answers(peer: str) -> None:
    if why := calls.why_absent(peer):
        pytest.skip(why)
    port = calls.pair_of_ports()
    serve, connect = calls.PEERS[peer]
    async with serve(port), connect(port) as call:
        assert await call(calls.REQUEST) == calls.REQUEST


def test_the_table_has_medians_ratios_and_outcomes() -> None:
    def run(p50_us: float, calls_per_s: float) -> dict[str, object]:
        return {
            "p50_us": p50_us,
            "p99_us": 2 * p50_us,
            "calls_per_s": calls_per_s,
            "outcomes": {"answered": 10, "TimeoutError": 1},
        }

    lines = calls.table(
        {
            calls.OURS: [run(50.0, 100.0), run(60.0, 300.0), run(70.0, 200.0)],
            calls.PING: [{"p50_us": 50.0, "p99_us": 60.0}],
            "pyzmq": [run(500.0, 20.0)],
            "nats-py": [],
        }
    )
    assert "30 answered, 3 TimeoutError" in lines[1]
    assert " 60 " in lines[1]
    assert any(line.startswith("1.20 times the latency") for line in lines)
    assert any(line.startswith("10.0 times the calls of pyzmq") for line in lines)
    assert not any("nats" in line for line in lines)
