"""Every scenario of clients that share a driver once, in short, in the processes it is run in."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

import aeron_async as aa
from aeron_async.cli.bench_processes import BenchError
from benchmarks import drivers, official_programs, scenarios_shared, usage
from benchmarks.drivers import aeron_directory, our_driver
from benchmarks.roles_shared import SharedPlan, messages_of, taker
from benchmarks.scenarios import Settings
from tests.twins import needs_compiled

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

pytestmark = pytest.mark.usefixtures("_warm_children")

SHORT = Settings(seconds=0.05, settle_s=0.05, term_length="1m")

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="/proc is of Linux")


@needs_compiled
@pytest.mark.parametrize(
    "measure",
    [
        lambda: scenarios_shared.stream(SHORT, is_exclusive=False, is_checked=True),
        lambda: scenarios_shared.stream(SHORT, list_length=1_000, is_read=False),
        lambda: scenarios_shared.stream(SHORT, list_length=1_000, is_checked=True),
        lambda: scenarios_shared.udp_stream(SHORT, driver_count=2),
    ],
    ids=["checked", "unread lists", "checked lists", "two drivers"],
)
async def test_a_stream_has_a_rate_and_costs(
    measure: Callable[[], Awaitable[dict[str, float]]],
) -> None:
    figures = await measure()
    assert figures["messages"] == figures["offered"] > 0
    assert figures["messages_per_s"] > 0
    assert all(figures[f"{side}_ns"] > 0 for side in ("publisher", "subscriber", "driver"))


@needs_compiled
async def test_a_stream_of_arrays_has_a_rate_and_costs() -> None:
    pytest.importorskip("pyarrow", reason="pip install 'aeron-async[arrow]'")
    figures = await scenarios_shared.stream(
        SHORT, list_length=1_000, is_arrow=True, is_checked=True
    )
    assert figures["messages"] == figures["offered"] > 0
    assert figures["messages_per_list"] > 1


@pytest.mark.parametrize("is_arrow", [False, True])
async def test_a_list_that_is_not_what_comes_next_has_no_rate(is_arrow: bool) -> None:  # noqa: FBT001 - of a table
    pytest.importorskip("pyarrow", reason="pip install 'aeron-async[arrow]'")
    plan = SharedPlan(channel="aeron:ipc", list_length=10, is_checked=True, is_arrow=is_arrow)
    take = taker(plan)
    messages = messages_of(plan)
    right = [*messages[7:], *messages[:3], b"mark"]
    wrong = [*right[:5], bytes(plan.length), b"mark"]
    async with aa.Aeron.connect() as aeron:
        subscription = await aeron.add_subscription(plan.channel, 1)
        publication = await aeron.add_publication(plan.channel, 1)
        batches = subscription.batches(len(right))
        await publication.offer_many([*right, *wrong])
        assert take(await anext(batches), 17) == b"mark"
        batch = await anext(batches)
        with pytest.raises(BenchError, match="a list after 17 messages is not what was published"):
            take(batch, 17)


async def test_embedded_drivers_have_no_costs_of_their_own() -> None:
    figures = await scenarios_shared.udp_stream(SHORT, driver_count=0)
    assert figures["messages_per_s"] > 0
    assert "driver_ns" not in figures


@needs_compiled
@pytest.mark.parametrize("more", [{"idle_strategy": "spin"}, {"pause_s": 0.001}])
async def test_a_round_trip_has_percentiles(more: dict[str, Any]) -> None:
    figures = await scenarios_shared.round_trip(SHORT, **more)
    assert 0 < figures["p50_us"] <= figures["p99_us"]


@needs_compiled
async def test_silence_and_memory_have_figures() -> None:
    silence = await scenarios_shared.idle(SHORT)
    assert silence.keys() == {"driver_percent", "client_percent"}
    memory = await scenarios_shared.memory(SHORT, our_driver)
    assert 0 < memory["pss_mb"] <= memory["rss_mb"]


async def test_iceoryx_moves_the_same_messages() -> None:
    pytest.importorskip("iceoryx2", reason="pip install iceoryx2")
    figures = await scenarios_shared.iceoryx_stream(SHORT)
    assert figures["messages"] == figures["offered"] > 0


def test_what_is_missing_is_a_reason_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(official_programs, "find", lambda _name: None)
    monkeypatch.setattr(scenarios_shared, "find_spec", lambda _name: None)
    monkeypatch.setattr(drivers, "WHY_PURE", "it was not built")
    found = [each for one in scenarios_shared.shared(SHORT) for each in one.contenders]
    reasons = {each.name: each.why_absent for each in found}
    assert reasons["ours, shared"].endswith(": it was not built")
    assert reasons["ours, embedded"] == ""
    assert reasons["aeronmd"] == "not found: aeronmd"
    assert reasons["iceoryx2, Python, polling"] == "iceoryx2 is not installed"
    monkeypatch.setattr(drivers, "WHY_PURE", None)
    found = [each for one in scenarios_shared.shared(SHORT) for each in one.contenders]
    reasons = {each.name: each.why_absent for each in found}
    beside = reasons["ours, beside an official subscriber"]
    assert beside == (
        "not found: basic_subscriber" if sys.platform == "linux" else "shared memory needs Linux"
    )


async def test_a_driver_that_does_not_start_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AERON_TERM_BUFFER_LENGTH", "three")
    with pytest.raises(BenchError, match=r"no cnc\.dat.*three"):
        async with our_driver():
            pass


def test_the_directory_goes_with_its_block() -> None:
    with aeron_directory() as directory:
        directory.mkdir()
        (directory / "cnc.dat").touch()
    assert not directory.parent.exists()


@linux_only
async def test_a_process_that_works_uses_a_core() -> None:
    working = "while True: pass"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", working)
    try:
        found = await usage.shares_of({"busy": process.pid, "idle": os.getpid()}, 0.3)
    finally:
        process.kill()
        await process.wait()
    assert found["busy"] > 1
    assert found["idle"] < found["busy"]
    with pytest.raises(BenchError, match="has ended"):
        usage.cpu_s(process.pid)
    with pytest.raises(BenchError, match="cannot be read"):
        usage.memory_mb(process.pid)
