"""Whatever is killed, the database has each record of the log once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from aeron_async.testing.world import World, simulate
from tests.archive.durable.durable_world import DurableWorld

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
