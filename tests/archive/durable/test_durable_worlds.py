"""Whatever is killed, the database has each record of the log once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from aeron_async.clock import NS_PER_MS
from aeron_async.testing.fates import Conditions
from aeron_async.testing.world import World, simulate
from tests.archive.durable.durable_world import DRIVER, DurableWorld

if TYPE_CHECKING:
    from collections.abc import Iterator

# `make long` takes more of them.
# In 127 a producer that was interrupted extended the log behind records that it had not seen.
SEEDS = sorted({*range(int(os.environ.get("AERON_ASYNC_DURABLE_WORLDS", "20"))), 127})


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with capture_logs():
        yield


@pytest.mark.parametrize("seed", SEEDS)
def test_each_record_is_handed_over_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> int:
        it = DurableWorld(world, monkeypatch)
        await it.play()
        return it.appended

    assert simulate(story, seed=seed, limit_s=600) > 0


def test_a_durable_append_waits_for_the_archive_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> int:
        it = DurableWorld(world, monkeypatch)
        world.host("archive").start(it.serve)
        producer_host = world.host("producer")
        world.set_conditions(Conditions(delay_ns=50 * NS_PER_MS))
        took_ns = []
        async with (
            producer_host.aeron(DRIVER) as aeron,
            it.log_of(producer_host, aeron) as log,
            log.produce("one") as producer,
        ):
            for _ in range(5):
                # The producer is idle: it asks whether the recording is its own.
                await world.sleep(0.3)
                began_ns = world.now_ns
                await producer.append(b"x", durable=True)
                took_ns.append(world.now_ns - began_ns)
        # There and back is 100 ms; a question that overtakes the record is asked again.
        assert min(took_ns) < 110 * NS_PER_MS
        assert max(took_ns) < 210 * NS_PER_MS
        return len(took_ns)

    assert simulate(story, seed=1) == 5
