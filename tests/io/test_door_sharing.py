"""A watch at a door shows what others have taken, if that is new; who asks once gets a new one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import attrs
import pytest

import aeron_async as aa
from aeron_async.clock import NS_PER_MS
from aeron_async.door import DoorClient, StatsDoor
from aeron_async.driver.core.context import DriverContext
from tests.snapshots import stats

if TYPE_CHECKING:
    from pathlib import Path

    from aeron_async.stats import Stats

DAY_NS = 86_400_000_000_000


class Taking:
    """Takes snapshots that are told from those of others by their source."""

    def __init__(self, age_ns: int) -> None:
        self.count = 0
        made = stats(at_ns=time.monotonic_ns() - age_ns)
        self.latest: Stats | None = attrs.evolve(made, source="counters")

    def __call__(self) -> Stats:
        self.count += 1
        return stats(at_ns=time.monotonic_ns())


def door_of(path: Path, taking: Taking) -> StatsDoor:
    return StatsDoor(path, taking, version="1", pid=1, recent=lambda: taking.latest)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path / "door"


async def test_a_watch_shows_once_what_others_have_just_taken(path: Path) -> None:
    # Of the future: however slow the machine is, it is new.
    taking = Taking(-DAY_NS)
    async with door_of(path, taking), DoorClient(path) as client:
        states = client.watch(0.05)
        assert (await anext(states)).source == "counters"
        assert taking.count == 0
        assert (await anext(states)).source == "driver"
        await states.aclose()


@pytest.mark.parametrize("age_ns", [751 * NS_PER_MS, DAY_NS])
async def test_a_watch_does_not_show_what_is_old(path: Path, age_ns: int) -> None:
    taking = Taking(age_ns)
    async with door_of(path, taking), DoorClient(path) as client:
        states = client.watch(60)
        assert (await anext(states)).source == "driver"
        await states.aclose()


async def test_who_asks_once_gets_what_is_taken_for_him(path: Path) -> None:
    taking = Taking(-DAY_NS)
    async with door_of(path, taking), DoorClient(path) as client:
        assert (await client.get_stats()).source == "driver"
    assert taking.count == 1


async def test_the_door_of_a_driver_shows_what_its_owner_has_taken(path: Path) -> None:
    context = DriverContext(stats_socket=str(path))
    async with aa.Aeron.connect(context=context) as aeron, DoorClient(path) as client:
        before = await aeron.gather_stats()
        states = client.watch(60)
        shown = await anext(states)
        await states.aclose()
    age_ns = shown.monotonic_ns - before.monotonic_ns
    # A machine that takes so long for a few lines of Python shows its own.
    assert age_ns == 0 or age_ns > 700 * NS_PER_MS
