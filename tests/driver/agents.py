"""Agents by hand: a clock that is set, and streams that note when they are polled."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.publication import PublicationState
from aeron_async.driver.sender import QUIET_NS, Sender
from aeron_async.driver.stall_clock import StallClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aeron_async.clock import Clock
    from aeron_async.driver.agent import Agent
    from aeron_async.driver.core.image_state import ImageState
    from aeron_async.driver.core.outbox import DataOutbox, HeartbeatBatch, ReportBatch

SECOND = 1_000_000_000


class SetClock:
    """A clock that stands where it was set."""

    def __init__(self) -> None:
        self.ns = SECOND

    def now_ns(self) -> int:
        return self.ns

    def epoch_ms(self) -> int:
        return 0

    def epoch_ns(self) -> int:
        return 0


def driver_clock(clock: Clock) -> StallClock:
    """Return what the agents of a driver are given, of a clock of the test's."""
    return StallClock(clock, threshold_ns=SECOND // 10)


class Stream:
    """A publication or an image that is polled, and then sleeps."""

    def __init__(self, state: PublicationState | ImageState, sleep_ns: int = SECOND // 10) -> None:
        self.state = state
        self.sleep_ns = sleep_ns
        self.polled_ns = 0
        self.has_sent_burst = False
        self.times_ns: list[int] = []
        self.on_poll: Any = None
        self.is_calm = False
        self.calm_times_ns: list[int] = []
        self.beat_times_ns: list[int] = []
        self.outbox: DataOutbox | None = None
        self.beat = bytes(32)
        self.channel, self.session_id, self.stream_id = "aeron:udp", 1, 2
        self.failure: Exception | None = None

    def send_data_fast(self, now_ns: int) -> bool:
        if self.failure is not None:
            raise self.failure
        if self.is_calm:
            self.calm_times_ns.append(now_ns)
        return self.is_calm

    advance_rebuild_position_fast = send_pending_status_message_fast = send_data_fast

    def heartbeat_fast(
        self, now_ns: int, due_ns: int = 0, batch: HeartbeatBatch | None = None
    ) -> int:
        del due_ns
        if self.failure is not None:
            raise self.failure
        if self.is_calm:
            self.beat_times_ns.append(now_ns)
            if batch is not None and self.outbox is not None:
                batch.add(self.outbox, self.beat)
        return now_ns + self.sleep_ns if self.is_calm else 0

    def report_fast(self, now_ns: int, due_ns: int, batch: ReportBatch) -> int:
        del now_ns, due_ns, batch
        return 0

    def fail(self, error: Exception) -> None:
        assert error is self.failure
        self.failure = None
        self.state = PublicationState.DONE
        self.sleep_ns = NEVER_NS

    def poll(self, now_ns: int) -> int:
        self.times_ns.append(now_ns)
        if self.on_poll is not None:
            self.on_poll()
        return min(now_ns + self.sleep_ns, NEVER_NS)


class Nobody:
    def on_image_drained(self, image: Any) -> None:
        raise AssertionError(image)

    def on_image_resumed(self, image: Any) -> None:
        raise AssertionError(image)

    def on_image_done(self, image: Any) -> None:
        raise AssertionError(image)


@asynccontextmanager
async def running(agent: Agent) -> AsyncIterator[None]:
    """Let an agent run, and wait until it sleeps."""
    task = asyncio.create_task(agent.run())
    for _ in range(3):
        await asyncio.sleep(0)
    yield
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def asleep(clock: SetClock, sender: Sender, stream: Any) -> None:
    """Let a publication be polled once by the agent, and some quiet follow."""
    sender.on_activity(stream)
    for _ in range(3):
        await asyncio.sleep(0)
    assert stream.times_ns == [clock.ns]
    clock.ns += QUIET_NS
