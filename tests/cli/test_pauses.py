"""Row A11: the summary names pauses of the event loop, and no line about one follows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from aeron_async.cli.pauses import Pauses
from aeron_async.cli.runner import configure_logs
from aeron_async.counters import CountersManager
from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounters

if TYPE_CHECKING:
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
    assert Pauses.of(None) == Pauses()


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
