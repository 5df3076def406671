from __future__ import annotations

import asyncio
import json
import time
from array import array
from functools import partialmethod
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from aeron_async.cli import ping as ping_module
from aeron_async.cli import pong as pong_module
from aeron_async.cli.main import main
from aeron_async.cli.pauses import Pauses
from aeron_async.cli.ping import START_PONG, TIMESTAMP, Pinger, sleep_until
from aeron_async.cli.runner import ADVICE
from aeron_async.client.aeron import Aeron
from aeron_async.client.publication import PublicationBase
from aeron_async.client.subscription import SubscriptionBase
from aeron_async.errors import AeronTimeoutError
from tests.cli.conftest import PATIENCE_S
from tests.logs import without_lines_of_the_machine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from aeron_async.client.exclusive_publication import ExclusivePublication
    from aeron_async.client.subscription import Subscription
    from tests.cli.conftest import Running

    Start = Callable[..., Running]


@pytest.fixture
def channels(unused_udp_port_factory: Callable[[], int]) -> tuple[str, ...]:
    there, back = unused_udp_port_factory(), unused_udp_port_factory()
    return (
        "--ping-channel",
        f"aeron:udp?endpoint=127.0.0.1:{there}|linger=100ms",
        "--pong-channel",
        f"aeron:udp?endpoint=127.0.0.1:{back}|linger=100ms",
    )


@pytest.fixture
def _patient_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `--timeout` be of answers alone: two processes connect when the machine lets them."""
    for kind in (PublicationBase, SubscriptionBase):
        monkeypatch.setattr(kind, "wait_connected", partialmethod(wait_long, kind.wait_connected))


async def wait_long(
    stream: object, wait_connected: Callable[..., Awaitable[None]], timeout: float
) -> None:
    await wait_connected(stream, PATIENCE_S)


def test_round_trips_are_measured_one_by_one_and_at_a_rate(
    start: Start, channels: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    pong = start("pong", *channels, "--count", "480", "--json")
    pong.process.stderr.readline()  # type: ignore[union-attr]
    assert main(["ping", *channels, "--count", "300", "--warmup", "50"]) == 0
    captured = capsys.readouterr()
    assert "300 round trips of 32 bytes" in captured.out
    assert all(f" {name} " in captured.out for name in ("50", "99.99", "max", "mean"))
    assert "50 round trips to warm up, 300 to measure" in captured.err
    arguments = ["--count", "120", "--warmup", "10", "--rate", "2000", "--size", "64"]
    assert main(["ping", *channels, *arguments, "--json", "--quiet"]) == 0
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert without_lines_of_the_machine(captured.err) == ""
    assert (report["count"], report["size"], report["foreign"]) == (120, 64, 0)
    assert report["seconds"] >= 119 / 2_000
    values = list(report["percentiles_us"].values())
    assert values == sorted(values)
    assert report["min_us"] <= values[0] <= values[-1] <= report["max_us"]
    code, out, _ = pong.finish()
    assert (code, json.loads(out)) == (0, {"echoed": 480, "dropped": 0})


def test_ctrl_c_ends_a_pong_which_says_what_it_did(start: Start, channels: tuple[str, ...]) -> None:
    pong = start("pong", *channels)
    pong.remark("echoing")
    assert main(["ping", *channels, "--count", "5", "--warmup", "0", "--quiet"]) == 0
    code, out, err = pong.interrupt()
    assert (code, out) == (130, "")
    assert "echoed 5 pings, dropped 0" in err


def test_a_quiet_pong_says_nothing(start: Start, channels: tuple[str, ...]) -> None:
    pong = start("pong", *channels, "--quiet", "--count", "5")
    assert main(["ping", *channels, "--count", "5", "--warmup", "0", "--quiet"]) == 0
    assert pong.finish() == (0, "", "")


def test_without_a_pong_ping_gives_up(
    channels: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ping", *channels, "--timeout", "0.05"]) == 1
    assert "no subscriber" in capsys.readouterr().err


@pytest.mark.usefixtures("_patient_at_first")
def test_a_pong_that_falls_silent_is_told(
    start: Start, channels: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    pong = start("pong", *channels, "--count", "3")
    pong.remark("echoing")
    assert main(["ping", *channels, "--timeout", "0.5", "--warmup", "0"]) == 1
    assert "no pong from" in capsys.readouterr().err


@pytest.mark.usefixtures("_patient_at_first")
def test_a_pong_that_has_answered_need_not_be_started(
    start: Start, channels: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits for long before says so, and what waits later did, too."""
    said: list[list[str]] = []

    async def wait(stream: object, timeout: float) -> None:
        said.append(list(ADVICE))
        await wait_long(stream, patient, timeout)

    async def measure(*_: object, **_also: object) -> array[int]:
        said.append(list(ADVICE))
        return array("q", [1])

    patient = PublicationBase.wait_connected
    monkeypatch.setattr(PublicationBase, "wait_connected", wait)
    monkeypatch.setattr(Pinger, "measure", measure)
    pong = start("pong", *channels)
    pong.remark("echoing")
    assert main(["ping", *channels]) == 0
    assert said == [[START_PONG], [], []]


async def test_a_ping_whose_sender_listens_to_nothing_is_dropped(
    channels: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pong_module, "ECHO_TIMEOUT_S", 0.01)
    there, back = channels[1], channels[3]
    async with Aeron.connect() as aeron:
        publication = await aeron.add_exclusive_publication(there, 1)
        echo = asyncio.ensure_future(
            pong_module._pong(None, (there, 1), (back, 2), count=1, is_json=True, is_quiet=True)
        )
        await publication.offer(b"12345678")
        assert await echo == 0
    assert json.loads(capsys.readouterr().out) == {"echoed": 0, "dropped": 1}


class Messages:
    """A subscription of messages that are there, and then an end."""

    channel, stream_id = "aeron:udp?endpoint=h:1", 1

    def __init__(self) -> None:
        self.waiting: list[bytes] = []

    async def __aiter__(self) -> AsyncIterator[SimpleNamespace]:
        while self.waiting:
            yield SimpleNamespace(data=self.waiting.pop(0))


async def test_messages_of_others_are_passed_over() -> None:
    messages = Messages()

    class Echo:
        async def offer(self, data: bytearray) -> None:
            (sent_ns,) = TIMESTAMP.unpack_from(data)
            other = TIMESTAMP.pack(sent_ns + 1) + bytes(len(data) - 8)
            messages.waiting += [b"short", other, bytes(data)]

    pinger = Pinger(
        cast("ExclusivePublication", Echo()),
        cast("Subscription", messages),
        size=16,
        timeout=5,
    )
    latencies = await pinger.measure(2, rate=None)
    assert (len(latencies), pinger.foreign_count) == (2, 4)
    assert all(latency >= 0 for latency in latencies)


async def test_a_subscription_that_ends_ends_the_measurement() -> None:
    class Nobody:
        async def offer(self, data: bytearray) -> None:
            """Let it be lost."""

    pinger = Pinger(
        cast("ExclusivePublication", Nobody()),
        cast("Subscription", Messages()),
        size=8,
        timeout=5,
    )
    with pytest.raises(AeronTimeoutError, match="was closed"):
        await pinger.measure(1, rate=None)


async def test_a_moment_is_waited_for_exactly() -> None:
    due_ns = time.monotonic_ns() + 8_000_000
    await sleep_until(due_ns)
    assert time.monotonic_ns() >= due_ns
    await sleep_until(due_ns)


def test_foreign_messages_are_remarked_on(capsys: pytest.CaptureFixture[str]) -> None:
    report = ping_module.PingReport(is_json=False, is_quiet=False)
    report.finish(
        array("q", [1_000]), 1_000_000, size=32, foreign_count=2, pauses=Pauses(3, 412_000_000)
    )
    captured = capsys.readouterr()
    assert "2 messages came back that did not leave here" in captured.err
    assert "1 round trip of 32 bytes" in captured.out
    assert "stood still 3 times, for 412 ms at most" in " ".join(captured.out.split())
