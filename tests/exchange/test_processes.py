"""The exchange as processes: what was acknowledged outlives the engine, and nothing is left."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("fastapi", reason="pip install 'aeron-async[exchange]'")
pytest.importorskip("websockets", reason="pip install 'aeron-async[exchange]'")
pytest.importorskip("httpx2", reason="pip install httpx2")

import attrs
import httpx2

from examples.exchange import __main__ as supervisor
from examples.exchange.desk import DEPTH
from examples.exchange.wiring import Wiring, free_ports
from tests.exchange.offline import recorded
from tests.exchange.programs import END_S, ROOT, is_running, running
from tests.tracing import untraced_environment

if TYPE_CHECKING:
    from pathlib import Path

    from examples.exchange.messages import Side

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
]

PARTS = ("archive", "engine", "market", "gateway")
KILLS = int(os.environ.get("AERON_ASYNC_EXCHANGE_KILLS", "0"))
PATIENCE_S = 90
ORDERS = 70
"""More than the commands between two checkpoints."""


def order(number: int) -> dict[str, Any]:
    return {
        "account": "ann",
        "client_order_id": number,
        "symbol": "AERN",
        "side": "SELL" if number % 3 == 0 else "BUY",
        "price": 9_000 + number % 10,
        "quantity": number,
    }


async def until_agreed(client: httpx2.AsyncClient, command: int) -> dict[str, Any]:
    """Wait until both replicas have had a command and agree, and the book shows that."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            status = (await client.get("/api/status")).json()
            assert status["differing"] == 0
            if status["agreed"] >= command:
                return (await client.get("/api/book/AERN")).json()  # type: ignore[no-any-return]
            await asyncio.sleep(0.05)


async def test_what_was_acknowledged_outlives_the_engine(tmp_path: Path) -> None:
    with running(tmp_path, "--no-traders", "--no-multicast") as program:
        pids = {part: program.pid(part) for part in PARTS}
        async with httpx2.AsyncClient(base_url=program.address, timeout=PATIENCE_S) as client:

            async def place(number: int) -> dict[str, Any]:
                # On a busy machine the gateway may give up first: then as it says, once more.
                while (answer := await client.post("/api/orders", json=order(number))).is_error:
                    assert answer.status_code == 503, answer.text
                return answer.json()  # type: ignore[no-any-return]

            first = await asyncio.gather(*map(place, range(1, ORDERS + 1)))
            await until_agreed(client, 64)

            # Killed while orders are under way: each is done once, and answered.
            under_way = [
                asyncio.create_task(place(number)) for number in range(ORDERS + 1, 2 * ORDERS + 1)
            ]
            await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            program.kill("engine")
            # The new one goes on where this one was.
            program.kill("market")
            second = await asyncio.gather(*under_way)

            # One that is sent again has its answer again, from before the engine was killed.
            again = await place(1)
            assert again["is_repeated"] == 1
            assert same(again) == same(first[0])

            # The new engine and the new replica have the same state.
            book = await until_agreed(client, 128)
            status = (await client.get("/api/status")).json()
            assert status["engine"] is True
            assert status["losses"] >= 1
        assert program.pid("engine") != pids["engine"]
        printed = program.interrupt()
        assert program.process.returncode == 0, printed
        assert "engine | was ended by SIGKILL; it starts again" in printed
        assert "closed" in printed
        pids["new engine"] = program.pid("engine")
        assert [part for part, pid in pids.items() if is_running(pid)] == []
        assert program.doors() == []
        # What is recorded is what was acknowledged, and what the page showed.
        found = await recorded(tmp_path)
        found.check()
        answers = [*first, *second]
        assert [same(each) for each in answers] == [
            same(found.acks["ann", number]._asdict()) for number in range(1, 2 * ORDERS + 1)
        ]
        assert {each["status"] for each in answers} == {"RESTING", "FILLED"}
        full = found.exchange.books["AERN"]
        sides: dict[Side, str] = {"BUY": "bids", "SELL": "asks"}
        for side, name in sides.items():
            levels = [[each.price, each.quantity] for each in full.sides[side]][:DEPTH]
            assert [each[:2] for each in book[name]] == levels


def same(ack: dict[str, Any]) -> list[Any]:
    """Return what an answer has whenever it is given."""
    return [ack[name] for name in ("order_id", "sequence", "status", "filled", "remaining")]


@pytest.mark.slow
@pytest.mark.skipif(not KILLS, reason="set AERON_ASYNC_EXCHANGE_KILLS to a number above 0")
async def test_any_part_may_be_killed_at_any_time(tmp_path: Path) -> None:
    chance = random.Random(KILLS)
    with running(tmp_path) as program:
        async with httpx2.AsyncClient(base_url=program.address, timeout=PATIENCE_S) as client:
            for _ in range(KILLS):
                part = chance.choice([*PARTS, "traders"])
                program.kill(part)
                await asyncio.sleep(chance.uniform(0, 3))
            # Everything goes on.
            async with asyncio.timeout(PATIENCE_S):
                before = await agreed(client)
                while await agreed(client) <= before:
                    await asyncio.sleep(0.2)
        printed = program.interrupt()
        assert program.process.returncode == 0, printed
    found = await recorded(tmp_path)
    found.check()
    assert found.exchange.trade_count > 0


async def agreed(client: httpx2.AsyncClient) -> int:
    """Return up to which command the replicas agree; 0 while the gateway is away."""
    try:
        status = (await client.get("/api/status")).json()
    except httpx2.TransportError:
        return 0
    assert status["differing"] == 0
    return int(status["agreed"])


def test_a_part_ends_with_its_supervisor(tmp_path: Path) -> None:
    """Also if the supervisor was killed: the part's standard input ends then."""
    Wiring.new(tmp_path, is_multicast=False)
    part = subprocess.Popen(
        [sys.executable, "-m", "examples.exchange.archive", str(tmp_path)],
        cwd=ROOT,
        env=untraced_environment() | {"PYTHONPATH": str(ROOT), "EXCHANGE_SUPERVISED": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert part.stdout is not None
    assert part.stdout.readline() == "ready\n"
    part.communicate(timeout=END_S)
    assert part.returncode == 0


async def test_whoever_asks_twice_does_not_wait_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second Ctrl-C kills what is still ending, and the end is waited for all the same."""

    class Stubborn(supervisor.Part):
        """A part that the first signal does not end."""

        def send(self, number: signal.Signals) -> None:
            if number == signal.SIGTERM:
                os.kill(os.getpid(), signal.SIGINT)
            else:
                super().send(number)

    monkeypatch.setattr(supervisor, "Part", Stubborn)
    monkeypatch.setattr(supervisor, "END_S", PATIENCE_S)
    exchange = asyncio.create_task(
        supervisor.run(tmp_path, ["archive", "engine"], 0, is_multicast=False)
    )
    pids = [await pid_of(tmp_path, part) for part in ("archive", "engine")]
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(PATIENCE_S / 2):
            await exchange
    assert [pid for pid in pids if is_running(pid)] == []


async def pid_of(folder: Path, part: str) -> int:
    """Wait until a part was started."""
    async with asyncio.timeout(PATIENCE_S):
        while not (found := folder / f"{part}.pid").exists() or not found.read_text():
            await asyncio.sleep(0.05)
    return int(found.read_text())


async def test_the_page_may_move_and_the_logs_stay_where_they_are(tmp_path: Path) -> None:
    before = Wiring.new(tmp_path, is_multicast=False)
    exchange = asyncio.create_task(supervisor.run(tmp_path, [], 4_321, is_multicast=False))
    while (after := Wiring.read(tmp_path)) == before:
        await asyncio.sleep(0)
    exchange.cancel()
    with pytest.raises(asyncio.CancelledError):
        await exchange
    assert after == attrs.evolve(before, web_port=4_321)


async def test_a_page_whose_port_is_taken_gets_another_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = Wiring.new(tmp_path, is_multicast=False)
    with socket.socket() as other:
        other.bind(("127.0.0.1", before.web_port))
        other.listen()
        with pytest.raises(supervisor.GivenUpError, match=f"port {before.web_port} is taken"):
            await supervisor.wired(tmp_path, before.web_port, is_multicast=False)
        after = await supervisor.wired(tmp_path, 0, is_multicast=False)
    assert after.web_port != before.web_port
    assert f"now it has {after.web_port}" in capsys.readouterr().out
    assert Wiring.read(tmp_path) == after == attrs.evolve(before, web_port=after.web_port)
    # When nothing is in its way, it stays where it is.
    assert await supervisor.wired(tmp_path, 0, is_multicast=False) == after


async def test_recordings_whose_port_is_taken_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wiring = Wiring.new(tmp_path, is_multicast=False)
    assert len(set(wiring.udp_ports)) == 5
    monkeypatch.setattr(supervisor, "END_S", 0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", wiring.udp_ports[1]))
        with pytest.raises(supervisor.GivenUpError, match=f"UDP ports {wiring.udp_ports[1]}, "):
            await supervisor.wired(tmp_path, 0, is_multicast=False)
    assert await supervisor.wired(tmp_path, 0, is_multicast=False) == wiring


async def test_a_line_that_is_too_long_ends_nothing() -> None:
    output = asyncio.StreamReader(limit=64)
    output.feed_data(b"one\n" + b"x" * 200 + b"\n\xfftwo\nthree")
    output.feed_eof()
    found = [each async for each in supervisor.lines_of(output)]
    assert found == ["one", "a line is left out, for it is too long", "\ufffdtwo", "three"]


async def test_a_part_that_always_dies_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(supervisor, "DEATHS_MOST", 2)
    monkeypatch.setattr(supervisor, "FIRST_PAUSE_S", 0)
    part = supervisor.Part("nothing", tmp_path)
    with pytest.raises(supervisor.GivenUpError, match="nothing has ended 2 times"):
        await part.run()
    assert part.start_count == 2
    assert "No module named examples.exchange.nothing" in capsys.readouterr().out


def test_a_wiring_is_read_as_it_was_written(tmp_path: Path) -> None:
    for is_multicast in (True, False):
        wiring = Wiring.new(tmp_path, is_multicast=is_multicast)
        assert Wiring.read(tmp_path) == wiring
        assert wiring.is_multicast is is_multicast
        assert ("control-mode=dynamic" in wiring.market_reader) is not is_multicast
    wiring = Wiring.read(tmp_path)
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    assert Wiring.read(moved) == attrs.evolve(wiring, folder=str(moved))
    assert len(set(free_ports(20, socket.SOCK_STREAM))) == 20
