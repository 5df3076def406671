"""The summary names pauses of the event loop, and no line about one follows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from aeron_async.cli.main import main
from aeron_async.cli.pauses import Pauses
from aeron_async.cli.runner import configure_logs
from aeron_async.counters import CountersManager
from aeron_async.driver import media_driver
from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounters
from aeron_async.driver.stall_clock import StallLog

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


def test_pauses_are_counted_and_the_longest_is_named() -> None:
    manager = CountersManager.in_memory(1024 * 1024, free_to_reuse_timeout_ms=0, epoch_ms=int)
    counters = SystemCounters(manager, DriverContext())
    assert str(Pauses.of(manager)) == ""
    counters[DriverCounterId.LOOP_LAG_COUNT].set(1)
    counters[DriverCounterId.LOOP_LAG_MAX_NS].set(412_000_000)
    assert str(Pauses.of(manager)) == "; the event loop stood still 1 time, for 412 ms at most"
    assert Pauses.of(manager).to_json() == {
        "loop_pauses": 1,
        "longest_loop_pause_ns": 412_000_000,
    }
    assert str(Pauses.of(None)) == ""
    assert Pauses.of(None).to_json() == {"loop_pauses": None, "longest_loop_pause_ns": None}


def test_the_summary_of_a_command_names_the_pauses_of_its_driver(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last line of `sub` has what its own driver counted."""

    def paused_once(*arguments: Any, **options: Any) -> StallLog:
        log = StallLog(*arguments, **options)
        log.on_pause(412_000_000, 0, "conductor")
        return log

    # The true pauses of a busy machine must not be counted as well.
    monkeypatch.setenv("AERON_ASYNC_LOOP_LAG_THRESHOLD", "3600s")
    monkeypatch.setattr(media_driver, "StallLog", paused_once)
    nobody = "aeron:udp?endpoint=127.0.0.1:0"
    assert main(["sub", nobody, "--stream", "1", "--timeout", "0.05"]) == 1
    told = "received 0 messages, 0 bytes; the event loop stood still 1 time, for 412 ms at most"
    assert told in capsys.readouterr().err.splitlines()


def test_no_line_about_a_pause_follows_the_results(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(is_verbose=False)
    structlog.get_logger().warning("event_loop_lagged", late_ms=200)
    Pauses.of(None)
    structlog.get_logger().warning("event_loop_lagged", late_ms=300)
    structlog.get_logger().warning("image_refused")
    err = capsys.readouterr().err
    assert "late_ms=200" in err
    assert "late_ms=300" not in err
    assert "image_refused" in err
    configure_logs(is_verbose=False)
    structlog.get_logger().warning("event_loop_lagged", late_ms=400)
    assert "late_ms=400" in capsys.readouterr().err


def test_no_line_about_a_pause_follows_a_failure(
    unused_udp_port_factory: Callable[[], int], capsys: pytest.CaptureFixture[str]
) -> None:
    """What a command imports to say what went wrong held up its own loop, and nothing else."""
    there, back = (f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port_factory()}" for _ in range(2))
    for command in (
        ("pub", there, "--stream", "1", "--count", "1", "--size", "8", "--timeout", "0.05"),
        ("ping", "--ping-channel", there, "--pong-channel", back, "--timeout", "0.05"),
    ):
        assert main(command) == 1
        structlog.get_logger().warning("event_loop_lagged", late_ms=321)
        assert "late_ms=321" not in capsys.readouterr().err


def test_a_ping_that_nobody_answers_says_what_does(
    unused_udp_port_factory: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("AERON_ASYNC_WAITING_HINT", "100ms")
    there, back = (f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port_factory()}" for _ in range(2))
    assert main(["ping", "--ping-channel", there, "--pong-channel", back, "--timeout", "0.5"]) == 1
    lines = capsys.readouterr().err.splitlines()
    for start in ("still waiting", "error: "):
        (line,) = [each for each in lines if each.startswith(start)]
        assert "start `aeron-async pong`" in line
