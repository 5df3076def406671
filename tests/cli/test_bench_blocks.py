"""What measurements are made of: messages that can be told apart, both ends, and their floors."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from array import array
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.cli import bench_child, bench_processes
from aeron_async.cli.bench_child import (
    ROLES,
    FloodPlan,
    RoundTripPlan,
    StreamPlan,
    drain,
    echo_client,
    echo_server,
    exchange,
    figures_of,
    flood,
    play,
    take_parts,
)
from aeron_async.cli.bench_processes import (
    BenchError,
    Child,
    Patience,
    check_mark,
    free_port,
    make_mark,
    make_messages,
    meet,
    messages_per_datagram,
    role,
)
from aeron_async.client.aeron import Aeron

if TYPE_CHECKING:
    from collections.abc import Iterator

SHORT: dict[str, Any] = {"seconds": 0.03, "warm_up_s": 0.01}
BUSY = Patience(limit_s=300)
"""For a process that a busy machine starts late."""


@pytest.mark.parametrize(("length", "count"), [(8, 1_021), (100, 1_021), (10_000, 251)])
def test_every_message_of_a_round_differs(length: int, count: int) -> None:
    messages = make_messages(length)
    assert len(set(messages)) == len(messages) == count
    assert {len(message) for message in messages} == {length}


def test_messages_have_room_for_their_number() -> None:
    with pytest.raises(BenchError, match="must have 8"):
        make_messages(7)


def test_a_mark_tells_of_messages_that_are_missing_or_came_twice() -> None:
    check_mark(make_mark(7), 7)
    for count in (6, 8):
        with pytest.raises(BenchError, match=f"7 messages were offered and {count} have arrived"):
            check_mark(make_mark(7), count)


@pytest.mark.parametrize("length", [8, 16, 100])
def test_a_message_out_of_order_is_no_mark(length: int) -> None:
    with pytest.raises(BenchError, match="not the one due"):
        check_mark(make_messages(length)[3], 2)


@pytest.mark.parametrize(
    ("length", "mtu", "count"), [(100, 1_408, 8), (96, 1_408, 11), (10_000, 1_408, 1 / 8)]
)
def test_a_datagram_carries_so_many_messages(length: int, mtu: int, count: float) -> None:
    assert messages_per_datagram(length, mtu) == count


async def test_a_stream_in_one_loop_has_the_figures_of_both_ends() -> None:
    async with Aeron.connect() as aeron:
        figures = await exchange(aeron, StreamPlan(channel="aeron:ipc", **SHORT))
    assert figures["messages"] == figures["offered"] > 0
    assert figures["mb_per_s"] == pytest.approx(figures["messages_per_s"] / 10_000)


async def test_a_stream_that_lost_a_message_has_no_figures() -> None:
    async def receive(wanted: Iterator[bytes]) -> int:
        next(wanted)
        check_mark(make_messages(100)[2], 1)
        return 1

    with pytest.raises(BenchError):
        await take_parts(receive, StreamPlan(channel="aeron:ipc"))


async def test_round_trips_of_messages_and_of_bare_datagrams() -> None:
    there, back = (f"aeron:udp?endpoint=127.0.0.1:{free_port()}" for _ in range(2))
    plan = RoundTripPlan(there=there, back=back, rate=1_000, seconds=0.03, warm_up_s=0.01)
    async with Aeron.connect() as near, Aeron.connect() as far, asyncio.TaskGroup() as group:
        ponging = group.create_task(bench_child.pong(far, plan))
        pinging = group.create_task(bench_child.ping(near, plan))
    assert ponging.result()["echoed"] == 40
    assert 0 < ponging.result()["pong_share"] < 1.5
    assert 0 < pinging.result()["p50_us"] <= pinging.result()["p99_9_us"]

    plan = RoundTripPlan(there=str(free_port()), rate=1_000, seconds=0.03, warm_up_s=0.01)
    ready = asyncio.Event()
    serving = asyncio.create_task(echo_server(plan, ready=ready.set))
    await ready.wait()
    assert (await echo_client(plan))["p50_us"] > 0
    serving.cancel()


async def test_bare_datagrams_that_do_not_come_back_are_told_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bench_child, "ANSWER_TIMEOUT_S", 0.01)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        plan = RoundTripPlan(there=str(sock.getsockname()[1]), seconds=0.001, warm_up_s=0)
        with pytest.raises(BenchError, match="11 bare datagrams did not come back"):
            await echo_client(plan)


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM])
def test_a_port_that_somebody_holds_is_not_free(
    kind: int, unused_udp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = unused_udp_port
    with socket.socket(socket.AF_INET, kind) as held:
        held.bind(("127.0.0.1", port))
        monkeypatch.setattr(bench_processes, "PORTS", range(port, port + 1))
        with pytest.raises(
            BenchError, match=f"no free port of 127.0.0.1 in .* from {port} to {port}:"
        ):
            free_port()
    assert free_port() == port


def test_percentiles_are_in_microseconds() -> None:
    figures = figures_of(array("q", range(1_000, 1_001_000, 1_000)))
    assert figures == {"p50_us": 500, "p99_us": 990, "p99_9_us": 999}


@pytest.mark.parametrize("is_batching", [True, False])
def test_the_floor_is_what_arrives_of_a_flood(
    is_batching: bool,  # noqa: FBT001 - a row of the table
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bench_child, "FLOOD_SILENCE_S", 0.05)
    if not is_batching:
        monkeypatch.setattr(bench_child, "offers_segmentation", lambda _sock: False)
    plan = FloodPlan(port=free_port(), seconds=0.02)
    found: dict[str, float] = {}
    thread = Thread(target=lambda: found.update(drain(plan, ready=lambda: found.update(ready=1))))
    thread.start()
    while "ready" not in found:
        thread.join(0.001)
    sent = flood(plan)["datagrams_sent"]
    thread.join()
    assert sent > 0
    assert found["datagrams_per_s"] > 0
    assert found["mb_per_s"] == pytest.approx(found["datagrams_per_s"] * 1_408 / 1e6)


async def test_two_processes_meet() -> None:
    channel = f"aeron:udp?endpoint=127.0.0.1:{free_port()}"
    figures = await meet(
        role("subscribe", channel=channel, **SHORT),
        role("publish", channel=channel, **SHORT),
        patience=BUSY,
    )
    assert figures["messages"] == figures["offered"] > 0


async def test_a_server_that_does_not_end_by_itself_is_ended() -> None:
    plan = {"there": str(free_port()), "rate": 1_000, **SHORT}
    figures = await meet(
        role("echo_server", **plan),
        role("echo_client", **plan),
        waits_for_server=False,
        patience=BUSY,
    )
    assert figures["p50_us"] > 0


async def test_a_process_that_fails_says_why() -> None:
    async with Child(role("publish", channel="aeron:upd"), patience=BUSY) as child:
        with pytest.raises(BenchError, match="publish ended early: error: "):
            await child.wait_for("figures")


async def test_a_process_that_says_nothing_is_remarked_on_and_not_waited_for_for_ever() -> None:
    said: list[str] = []
    patience = Patience(start_s=0.01, limit_s=0.02, hint_s=0.01, say=said.append)
    program = (sys.executable, "-c", "import signal; signal.pause()")
    command = role("silent", program, seconds=0.01, settle_s=0.01)
    async with Child(command, patience=patience) as child:
        with pytest.raises(BenchError, match=r"silent: no ready within 0\.02 s"):
            await child.wait_for("ready")
        # What it has to measure comes on top.
        with pytest.raises(BenchError, match=r"silent: no figures within 0\.05 s"):
            await child.wait_for("figures")
    assert said == [
        "still waiting after 0.01 s: silent says no ready yet; 0.02 s at most",
        "still waiting after 0.04 s: silent says no figures yet; 0.05 s at most",
    ]


async def test_the_failure_of_a_server_ends_the_wait_for_its_client() -> None:
    ready = "import sys; print('{\"ready\": 1}', flush=True); sys.exit('broken')"
    silent = (sys.executable, "-c", "import signal; signal.pause()")
    with pytest.raises(BenchError, match="server ended early: broken"):
        await meet(role("server", (sys.executable, "-c", ready)), role("client", silent))


def test_people_are_told_after_two_seconds_and_a_minute_is_the_limit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    patience = Patience()
    assert (patience.start_s, patience.hint_s, patience.limit_s) == (3, 2, 60)
    patience.say("still waiting")
    assert capsys.readouterr().err == "still waiting\n"


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_role_is_played_on_either_loop(loop: str, capsys: pytest.CaptureFixture[str]) -> None:
    plan = json.dumps({"channel": "aeron:ipc", "loop": loop, **SHORT})
    assert play(ROLES, ["exchange", plan]) == 0
    assert json.loads(capsys.readouterr().out)["figures"]["messages"] > 0


def test_a_role_that_fails_is_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert play(ROLES, ["exchange", json.dumps({"channel": "aeron:ipc", "length": 3})]) == 1
    assert "must have 8" in capsys.readouterr().err
