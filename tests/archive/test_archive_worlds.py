"""Whatever becomes of an archive, what it replays is what was published."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from aeron_async.testing.world import World, simulate
from tests.archive.archive_world import ArchiveWorld

if TYPE_CHECKING:
    from collections.abc import Iterator

# `make long` takes more of them.
SEEDS = range(int(os.environ.get("AERON_ASYNC_ARCHIVE_WORLDS", "10")))


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    # Thousands of failures are told, and each would be painted.
    with capture_logs():
        yield


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_replayed_is_what_was_published(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> int:
        it = ArchiveWorld(world, monkeypatch)
        await it.play()
        return it.ledger.message_count

    assert simulate(story, seed=seed, limit_s=600) > 0
