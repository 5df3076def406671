"""A dump of a driver without a directory says what its counters, errors and losses are."""

from __future__ import annotations

import asyncio
import stat
from typing import TYPE_CHECKING

import pytest

import aeron_async as aa
from aeron_async._speedups import WHY_PURE
from aeron_async.aeron_directory import AeronDirectory
from aeron_async.errors import DriverError, ErrorCode
from aeron_async.testing.fates import Conditions
from aeron_async.testing.world import simulate
from tests.drivers import embedded

if TYPE_CHECKING:
    from pathlib import Path

    from aeron_async.driver.media_driver import MediaDriver
    from aeron_async.testing.world import World

pytestmark = pytest.mark.skipif(WHY_PURE is not None, reason="only compiled code maps such files")
CHANNEL = "aeron:udp?endpoint=bob:20121|term-length=64k"
STREAM_ID = 1001


def written(driver: MediaDriver, directory: Path) -> None:
    # The world has no threads.
    driver.conductor.dump().write(directory)


def test_a_dump_holds_every_counter_error_and_loss(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        alice, bob = world.host("alice"), world.host("bob")
        async with alice.aeron() as sending, bob.aeron() as receiving:
            subscription = await receiving.add_subscription(CHANNEL, STREAM_ID)
            publication = await sending.add_publication(CHANNEL, STREAM_ID)
            await publication.wait_connected()
            world.set_conditions(Conditions(loss=0.3), alice, bob)
            publishing = asyncio.ensure_future(publication.offer_many([bytes(1_000)] * 100))
            for _ in range(100):
                await anext(subscription)
            await publishing
            driver = embedded(receiving)
            driver.conductor._resources.system_counters.note_error(ErrorCode.GENERIC, "a test")
            written(driver, tmp_path / "dump")

            with AeronDirectory.open(tmp_path / "dump") as dump:
                there = {each.counter_id: each for each in dump.counter_records()}
                assert there == {each.counter_id: each for each in receiving.counters}
                assert [each.text for each in dump.errors()] == [
                    "(-11) generic error, see message\na test"
                ]
                (loss,) = dump.losses()
                stats = receiving.stats()
                (image,) = stats.images
                assert (loss.session_id, loss.stream_id) == (image.session_id, STREAM_ID)
                gaps = sum(each.bytes for each in image.losses if each.cause == "gap")
                assert loss.total_bytes_lost == gaps
                # No client takes it for a driver.
                why = dump.why_not_active(world.now_ns // 1_000_000, 10_000)
                assert why is not None

    simulate(story, seed=5)


async def test_a_dump_is_a_new_directory_that_nobody_else_reads(tmp_path: Path) -> None:
    async with aa.MediaDriver.launch() as driver:
        place = tmp_path / "new" / "dump"
        await driver.dump(place)
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
        assert {each.name for each in place.iterdir()} == {"cnc.dat", "loss-report.dat"}
        assert all(stat.S_IMODE(each.stat().st_mode) == 0o600 for each in place.iterdir())
        # Most of it is a hole.
        assert (place / "cnc.dat").stat().st_blocks * 512 < 1 << 20
        with pytest.raises(DriverError, match="not empty"):
            await driver.dump(place)
        with pytest.raises(DriverError, match="no dump can be written"):
            await driver.dump(place / "cnc.dat")
    with pytest.raises(aa.ClosedError):
        await driver.dump(tmp_path / "late")
