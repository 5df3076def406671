"""Whether a service is ready, and what systemd hears of it, by a real socket in virtual time."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from structlog.testing import capture_logs

from aeron_async import Aeron, health
from aeron_async.door import DoorClient
from aeron_async.driver.core.context import DriverContext
from aeron_async.errors import ConfigurationError
from aeron_async.health import SystemdNotifier, not_ready, status_of
from aeron_async.stats import BudgetStats, PublicationStats, Stats, SubscriptionStats, Table
from aeron_async.testing.virtual_clock import run_virtual
from tests.snapshots import DRIVER, PUBLICATION, SUBSCRIPTION, stats

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

CHANNEL = PUBLICATION.channel


def snapshot(
    publications: Sequence[PublicationStats] = (),
    subscriptions: Sequence[SubscriptionStats] = (),
    budgets: tuple[BudgetStats, ...] = (),
) -> Stats:
    return attrs.evolve(
        stats(driver=attrs.evolve(DRIVER, budgets=budgets)),
        publications=Table.of(PublicationStats, publications),
        subscriptions=Table.of(SubscriptionStats, subscriptions),
    )


def publication(stream_id: int, **fields: Any) -> PublicationStats:
    named: dict[str, Any] = {"stream_id": stream_id, "is_connected": False, **fields}
    return attrs.evolve(PUBLICATION, registration_id=stream_id, **named)


def subscription(stream_id: int, image_count: int = 0) -> SubscriptionStats:
    return attrs.evolve(
        SUBSCRIPTION, registration_id=stream_id, stream_id=stream_id, image_count=image_count
    )


# Reasons.


def test_a_service_whose_streams_work_is_ready() -> None:
    assert not_ready(stats()) == []
    assert not_ready(snapshot()) == []
    assert status_of(stats()) == "2 streams, 0 in trouble"


def test_each_stream_that_does_not_work_is_a_reason() -> None:
    found = snapshot([publication(1), publication(2, is_connected=True)], [subscription(3)])
    assert not_ready(found) == [
        f"the publication of stream 1 at {CHANNEL} has no subscriber",
        f"the subscription to stream 3 at {CHANNEL} has no image",
    ]
    assert status_of(found) == "3 streams, 2 in trouble"
    assert status_of(snapshot([publication(1)])) == "1 stream, 1 in trouble"


def test_only_what_is_expected_counts_and_must_be_there() -> None:
    found = snapshot([publication(1)], [subscription(2), subscription(3, 1)])
    assert not_ready(found, expect=[3]) == []
    assert not_ready(found, expect=()) == []
    assert not_ready(found, expect=[2, 4, 4]) == [
        f"the subscription to stream 2 at {CHANNEL} has no image",
        "there is no publication of stream 4, and no subscription to it",
    ]


@pytest.mark.parametrize("state", ["draining", "linger", "done"])
def test_a_publication_that_was_closed_is_no_reason_and_not_there(state: str) -> None:
    found = snapshot([publication(1, state=state)])
    assert not_ready(found) == []
    assert len(not_ready(found, expect=[1])) == 1


def test_what_is_unknown_is_no_reason() -> None:
    assert not_ready(snapshot([publication(1, is_connected=None, state="")])) == []


def test_a_full_budget_is_a_reason_with_its_setting() -> None:
    budgets = (
        BudgetStats("image_log_bytes", 2_000, 2_000),
        BudgetStats("counters_count", 1, 2),
        BudgetStats("other_count", 3, 2),
    )
    assert not_ready(snapshot(budgets=budgets)) == [
        "the budget image_log_bytes is full, 2,000 of 2,000: raise image_log_budget_length",
        "the budget other_count is full, 3 of 2",
    ]
    assert set(DriverContext.settings()) >= {"image_log_budget_length", "counters_buffer_length"}


def test_reasons_are_few_and_harmless() -> None:
    hostile = publication(0, channel="aeron:udp?alias=\x1b[2J")
    found = not_ready(snapshot([hostile, *(publication(each) for each in range(1, 150))]))
    assert "\\x1b[2J" in found[0]
    assert len(found) == 101
    assert found[-1] == "50 more reasons"


@pytest.mark.parametrize(
    ("expect", "text"),
    [("1001", "must be stream ids"), (["1001"], "has '1001'"), ([True], "has True")],
)
def test_what_is_no_stream_id_is_not_expected(expect: Any, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        not_ready(stats(), expect=expect)


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """Return a folder that no other user may write, as a door needs it."""
    tmp_path.chmod(0o700)
    return tmp_path


async def test_the_door_of_a_driver_says_whether_it_is_ready(
    private: Path, unused_udp_port: int
) -> None:
    channel = f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}"
    context = DriverContext(stats_socket=str(private / "door"))
    async with Aeron.connect(context=context) as aeron, DoorClient(private / "door") as door:
        assert list(door.hello.serves) == ["stats", "live", "ready"]
        assert await door.get("live") is True
        assert await door.get("ready") == []
        published = await aeron.add_publication(channel, stream_id=1001)
        assert await door.get("ready") == not_ready(aeron.stats())
        assert len(not_ready(aeron.stats())) == 1
        await aeron.add_subscription(channel, stream_id=1001)
        await published.wait_connected()
        assert await door.get("ready") == []


# Systemd.


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.setblocking(False)
        bound.bind(str(tmp_path / "notify"))
        yield bound


@pytest.fixture
def environ(listener: socket.socket) -> dict[str, str]:
    return {"NOTIFY_SOCKET": listener.getsockname()}


def heard(listener: socket.socket) -> list[str]:
    """Return what has arrived, without the process id."""
    found = []
    while True:
        try:
            found.append(listener.recv(4_096).decode().replace(f"\nMAINPID={os.getpid()}", ""))
        except BlockingIOError:
            return found


def test_systemd_hears_of_each_step(listener: socket.socket, environ: dict[str, str]) -> None:
    async def serve() -> None:
        with SystemdNotifier(environ=environ) as notifier:
            assert notifier.is_active
            notifier.ready("12 streams, 0 in trouble")
            notifier.status("one\nREADY=1")
            assert heard(listener) == [
                "READY=1\nSTATUS=12 streams, 0 in trouble",
                "STATUS=one\\nREADY=1",
            ]
            notifier.stopping()
        assert heard(listener) == ["STOPPING=1"]
        notifier.ready()
        notifier.status("late")
        assert heard(listener) == []
        assert (notifier.sent_count, notifier.failed_count) == (3, 0)

    run_virtual(serve())


def test_the_main_process_is_named(listener: socket.socket, environ: dict[str, str]) -> None:
    async def serve() -> None:
        SystemdNotifier(environ=environ).ready()

    run_virtual(serve())
    assert listener.recv(100) == f"READY=1\nMAINPID={os.getpid()}".encode()


def test_the_watchdog_is_pinged_at_half_of_its_time(
    listener: socket.socket, environ: dict[str, str]
) -> None:
    async def serve() -> None:
        environ["WATCHDOG_USEC"] = "10000000"
        environ["WATCHDOG_PID"] = str(os.getpid())
        with SystemdNotifier(environ=environ) as notifier:
            assert notifier.watchdog_s == 10
            await asyncio.sleep(60)
            assert heard(listener) == []
            notifier.ready()
            assert heard(listener) == ["READY=1", "WATCHDOG=1"]
            await asyncio.sleep(4.9)
            assert heard(listener) == []
            await asyncio.sleep(50.2)
            assert heard(listener) == ["WATCHDOG=1"] * 11
            notifier.ready()
            notifier.stopping()
            # It takes its time to end.
            await asyncio.sleep(20)
            assert heard(listener) == ["READY=1", "STOPPING=1", *["WATCHDOG=1"] * 4]
        await asyncio.sleep(20)
        assert heard(listener) == []

    run_virtual(serve())


def test_a_loop_that_stands_still_sends_no_pings(
    listener: socket.socket, environ: dict[str, str]
) -> None:
    async def serve() -> None:
        environ["WATCHDOG_USEC"] = "20000"
        with SystemdNotifier(environ=environ) as notifier:
            notifier.ready()
            heard(listener)
            blocked = socket.socketpair()
            blocked[0].settimeout(0.1)
            with pytest.raises(TimeoutError):
                blocked[0].recv(1)  # ten times as long as a ping is due
            assert heard(listener) == []
            for each in blocked:
                each.close()

    asyncio.run(serve())


@pytest.mark.parametrize(
    "variables",
    [{}, {"WATCHDOG_USEC": "10000000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "0"}],
)
def test_a_watchdog_of_nobody_or_another_process_is_not_pinged(
    listener: socket.socket, environ: dict[str, str], variables: dict[str, str]
) -> None:
    async def serve() -> None:
        with SystemdNotifier(environ=environ | variables) as notifier:
            assert notifier.watchdog_s == 0
            notifier.ready()
            await asyncio.sleep(60)
            assert heard(listener) == ["READY=1"]

    run_virtual(serve())


def test_the_status_is_said_when_it_changes(
    listener: socket.socket, environ: dict[str, str]
) -> None:
    async def serve() -> None:
        text = "busy"
        with SystemdNotifier(lambda: text, environ=environ) as notifier:
            notifier.ready()
            assert heard(listener) == ["READY=1", "STATUS=busy"]
            await asyncio.sleep(30)
            assert heard(listener) == []
            text = "idle\x1b[2J"
            await asyncio.sleep(10)
            assert heard(listener) == ["STATUS=idle\\x1b[2J"]

    run_virtual(serve())


def test_a_status_that_fails_does_not_end_the_pings(
    listener: socket.socket, environ: dict[str, str]
) -> None:
    async def serve() -> None:
        texts = iter(["good", "", "again", ""])

        def status() -> str:
            if text := next(texts):
                return text
            message = "no statistics"
            raise RuntimeError(message)

        environ["WATCHDOG_USEC"] = "2000000"
        with SystemdNotifier(status, environ=environ) as notifier, capture_logs() as lines:
            notifier.ready()
            await asyncio.sleep(1.5)
            assert heard(listener) == ["READY=1", "WATCHDOG=1\nSTATUS=good", "WATCHDOG=1"]
            await asyncio.sleep(2)
            assert heard(listener) == ["WATCHDOG=1\nSTATUS=again", "WATCHDOG=1"]
        assert [each["event"] for each in lines] == ["systemd_status_failed"] * 2

    run_virtual(serve())


def test_what_nobody_took_is_said_once_somebody_listens(tmp_path: Path) -> None:
    async def serve() -> None:
        path = str(tmp_path / "late")
        with (
            SystemdNotifier(environ={"NOTIFY_SOCKET": path}) as notifier,
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener,
            capture_logs() as lines,
        ):
            notifier.ready("begins")
            notifier.status("works")
            await asyncio.sleep(0.35)
            assert notifier.failed_count == 5
            listener.setblocking(False)
            listener.bind(path)
            await asyncio.sleep(0.1)
            assert heard(listener) == ["READY=1\nSTATUS=works"]
            assert [each["event"] for each in lines] == ["systemd_not_notified"]
            assert notifier.sent_count == 1
            await asyncio.sleep(10)
            assert heard(listener) == []

    run_virtual(serve())


def test_a_ping_that_nobody_took_is_not_sent_again(tmp_path: Path) -> None:
    async def serve() -> None:
        environ = {"NOTIFY_SOCKET": str(tmp_path / "late"), "WATCHDOG_USEC": "10000000"}
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener,
            SystemdNotifier(environ=environ) as notifier,
        ):
            notifier.ready()
            await asyncio.sleep(5.05)
            listener.setblocking(False)
            listener.bind(environ["NOTIFY_SOCKET"])
            await asyncio.sleep(0.2)
            assert heard(listener) == ["READY=1"]
            await asyncio.sleep(5)
            assert heard(listener) == ["WATCHDOG=1"]

    run_virtual(serve())


def test_the_last_word_waits_for_a_service_manager_that_is_busy(
    listener: socket.socket, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "LAST_WORD_S", 60.0)
    with SystemdNotifier(environ=environ) as notifier:
        while not notifier.failed_count:
            notifier.status("busy")
        reading = threading.Thread(target=heard, args=(listener,))
        reading.start()
    reading.join()
    # The thread may have taken it.
    assert notifier.failed_count == 1
    assert set(heard(listener)) <= {"STATUS=busy\nSTOPPING=1"}


def test_nothing_is_tried_again_after_the_end(tmp_path: Path) -> None:
    async def serve() -> None:
        with SystemdNotifier(environ={"NOTIFY_SOCKET": str(tmp_path / "none")}) as notifier:
            notifier.ready()
        failed_count = notifier.failed_count
        await asyncio.sleep(10)
        assert notifier.failed_count == failed_count

    run_virtual(serve())


def test_an_end_without_a_loop_is_said(listener: socket.socket, environ: dict[str, str]) -> None:
    with SystemdNotifier(environ=environ):
        pass
    assert heard(listener) == ["STOPPING=1"]
    listener.close()
    with SystemdNotifier(environ=environ) as notifier:
        pass
    assert notifier.failed_count == 1


def test_a_service_manager_that_is_busy_does_not_hold_up_the_loop(
    listener: socket.socket, environ: dict[str, str]
) -> None:
    async def serve() -> None:
        with SystemdNotifier(environ=environ) as notifier:
            for number in range(2_000):
                notifier.status(f"{number}")
            assert notifier.failed_count > 0
            assert heard(listener)[0] == "STATUS=0"
            await asyncio.sleep(0.2)
            assert heard(listener) == ["STATUS=1999"]

    run_virtual(serve())


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="there are no Unix sockets")
def test_an_abstract_name_is_an_address(tmp_path: Path) -> None:
    async def serve() -> None:
        name = f"aeron-test-{os.getpid()}-{tmp_path.name}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
            listener.setblocking(False)
            listener.bind(f"\0{name}")
            with SystemdNotifier(environ={"NOTIFY_SOCKET": f"@{name}"}) as notifier:
                notifier.ready()
            assert heard(listener) == ["READY=1", "STOPPING=1"]

    run_virtual(serve())


def test_without_systemd_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    async def serve() -> None:
        monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
        monkeypatch.setenv("WATCHDOG_USEC", "1000")
        with SystemdNotifier(lambda: "busy") as notifier:
            notifier.ready("begins")
            notifier.status("works")
            await asyncio.sleep(60)
        assert not notifier.is_active
        assert (notifier.watchdog_s, notifier.sent_count, notifier.failed_count) == (0, 0, 0)

    run_virtual(serve())


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"NOTIFY_SOCKET": "vsock:2:1"}, "NOTIFY_SOCKET=vsock:2:1 is no path"),
        ({"WATCHDOG_USEC": "soon"}, "WATCHDOG_USEC=soon is no number"),
        ({"WATCHDOG_USEC": "-1"}, "WATCHDOG_USEC=-1 is no number"),
        ({"WATCHDOG_USEC": "9" * 400}, "is no number"),
    ],
)
def test_variables_that_cannot_be_meant_are_logged(variables: dict[str, str], text: str) -> None:
    with capture_logs() as lines:
        notifier = SystemdNotifier(environ={"NOTIFY_SOCKET": "/run/none"} | variables)
    (line,) = lines
    assert text in line["error"]
    assert notifier.watchdog_s == 0
