"""A query on an archive that is at work: it is asked up to where it has recorded."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aeron_async import Aeron, DriverContext
from aeron_async.archive import ArchiveContext, ControlServer, ControlSettings, LocalArchive
from aeron_async.errors import ConfigurationError
from aeron_async.spark.planning import plan_batch
from tests.spark.recordings import RecordingMaker, options_for, scanned

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STREAM_ID = 7
MESSAGES = [bytes([number]) * number * 20 for number in range(100)]


async def test_an_archive_at_work_says_up_to_where_it_has_recorded(
    tmp_path: Path, unused_udp_port_factory: Callable[[], int]
) -> None:
    control = f"aeron:udp?endpoint=localhost:{unused_udp_port_factory()}"
    context = ArchiveContext(
        directory=str(tmp_path),
        segment_length=65_536,
        low_storage_threshold=0,
        control_channel=control,
    )
    driver = DriverContext(ipc_term_buffer_length=65_536)
    async with (
        Aeron.connect(context=driver) as aeron,
        await LocalArchive.open(aeron, context) as archive,
        ControlServer(archive, aeron, ControlSettings.of(context)),
    ):
        await archive.start_recording("aeron:ipc", STREAM_ID)
        async with await aeron.add_exclusive_publication("aeron:ipc", STREAM_ID) as publication:
            position = 0
            for each in MESSAGES:
                position = await publication.offer(each)
            async with asyncio.timeout(20):
                while await archive.recording_position(0) != position:
                    await asyncio.sleep(0)
            asked = options_for(tmp_path, **{"archive.control.channel": control})
            (part,) = await asyncio.to_thread(plan_batch, asked)
            assert part.descriptor.is_active
            assert part.end == position
            found, _ = scanned(asked, [part])
            assert found["payload"] == MESSAGES
            # From afar it is told from its files, and what was written last is left alone.
            (near, *_), far = (
                plan_batch(options_for(tmp_path, positionSource="scan", safetyLagBytes=lag))
                for lag in ("0", "1g")
            )
            assert (near.end, far) == (position, [])
    nobody = options_for(
        tmp_path,
        **{
            "archive.control.channel": f"aeron:udp?endpoint=localhost:{unused_udp_port_factory()}",
            "archive.timeoutMs": "100",
            "archive.retries": "0",
            "positionSource": "control",
        },
    )
    # It has stopped by now, so nobody has to be asked.
    assert [each.end for each in plan_batch(nobody)] == [position]


async def test_an_archive_that_nobody_serves_does_not_answer(
    tmp_path: Path, unused_udp_port_factory: Callable[[], int]
) -> None:
    maker = RecordingMaker(tmp_path)
    maker.message(b"one")
    maker.close()
    nobody = options_for(
        tmp_path,
        **{
            "archive.control.channel": f"aeron:udp?endpoint=localhost:{unused_udp_port_factory()}",
            "archive.timeoutMs": "100",
            "archive.retries": "0",
        },
    )
    with pytest.raises(ConfigurationError, match="does not say where recording 0 ends"):
        await asyncio.to_thread(plan_batch, nobody)
