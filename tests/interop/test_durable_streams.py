"""A durable stream in an official archive, over its restarts."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Final

import pytest

from aeron_async.archive import DurableStream, FileCursorStore
from aeron_async.archive.api import SourceLocation
from aeron_async.errors import DataLossError, FencedError
from tests.interop.official_archive import official_archive
from tests.interop.ours import our_client

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import aeron_async as aa
    from aeron_async.archive import Consumer, Record
    from tests.interop.official_archive import OfficialArchive

STREAM_ID: Final = 2001
LOG: Final = uuid.UUID("12345678-1234-4234-9234-123456789abc")
TIMEOUT_S: Final = 30.0


def log_of(archive: OfficialArchive, aeron: aa.Aeron, channel: str) -> DurableStream:
    return DurableStream(
        lambda: archive.connect(aeron),
        aeron,
        channel,
        STREAM_ID,
        source_location=SourceLocation.REMOTE,
        log_id=LOG,
    )


async def append(log: DurableStream, count: int, name: str = "one") -> None:
    async with asyncio.timeout(TIMEOUT_S), log.produce(name) as producer:
        for _ in range(count):
            await producer.append(b"%d" % (producer.last_sequence + 1) * 100)
        await producer.flush()


async def fence(log: DurableStream, last_sequence: int) -> None:
    """Append by a second producer, and then by the first one."""
    async with log.produce("one") as first:
        assert first.last_sequence == last_sequence
        async with log.produce("two") as second:
            await second.append(b"from the second", durable=True)
            await first.append(b"too late", durable=True)


async def read(consumer: Consumer, count: int) -> list[Record]:
    async with asyncio.timeout(TIMEOUT_S):
        return [await anext(consumer) for _ in range(count)]


async def test_a_log_goes_on_over_restarts_of_an_official_archive(
    tmp_path: Path, unused_udp_port_factory: Callable[[], int], channel: str
) -> None:
    found: list[int | None] = []
    directory = tmp_path / "archive"
    directory.mkdir()
    for life in range(3):
        async with (
            official_archive(directory, unused_udp_port_factory) as archive,
            our_client() as aeron,
            log_of(archive, aeron, channel) as log,
            FileCursorStore(tmp_path / "cursor") as store,
        ):
            with pytest.raises(FencedError):
                await fence(log, 200 * life)
            await append(log, 199)
            async with log.consume(cursor=store) as consumer:
                found += [each.sequence for each in await read(consumer, 150)]
                await consumer.commit()
                # What was not committed comes again.
                await read(consumer, 10)
    assert found == list(range(1, 451))


async def test_a_place_that_was_written_again_in_an_official_archive_is_an_error(
    tmp_path: Path, unused_udp_port_factory: Callable[[], int], channel: str
) -> None:
    async with (
        official_archive(tmp_path, unused_udp_port_factory) as archive,
        our_client() as aeron,
        log_of(archive, aeron, channel) as log,
    ):
        await append(log, 10)
        async with log.consume() as consumer:
            cursors = [each.cursor for each in await read(consumer, 10)]
        async with archive.connect(aeron) as remote:
            recording_id = cursors[0].recording_id
            async with asyncio.timeout(TIMEOUT_S):
                while await remote.stop_position(recording_id) is None:
                    await asyncio.sleep(0.05)
            await remote.truncate(recording_id, cursors[4].position)
        await append(log, 20)
        with pytest.raises(DataLossError, match="written again"):
            async with log.consume(start=cursors[-1]) as consumer:
                await read(consumer, 1)
        async with log.consume(start=cursors[4]) as consumer:
            assert [each.sequence for each in await read(consumer, 20)] == list(range(6, 26))
