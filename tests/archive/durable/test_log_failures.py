"""What a log does when its archive is another one, or does not take its records."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async import Aeron
from aeron_async.archive import ArchiveContext, DurableStream, LocalArchive
from aeron_async.archive.durable.log import LogLink
from aeron_async.errors import (
    ArchiveError,
    FencedError,
    ForeignLogError,
    MaxPositionExceededError,
    MessageTooLongError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aeron_async.archive.durable.producer import Producer

STREAM = 7
TERM = 65_536
CHANNEL = f"aeron:ipc?term-length={TERM}"


class OtherArchives:
    """Opens one archive after the other; each has another log."""

    def __init__(self, count: int) -> None:
        self.ids = [uuid.uuid4() for _ in range(count)]
        self.opened = self.closed = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Any]:
        log_id = self.ids[self.opened]
        self.opened += 1

        async def found() -> uuid.UUID:
            return log_id

        try:
            yield SimpleNamespace(log_id=found)
        finally:
            self.closed += 1


async def test_a_foreign_archive_is_refused_each_time_and_closed() -> None:
    archives = OtherArchives(4)
    aeron: Any = SimpleNamespace(is_closed=False)
    link = LogLink(archives.open, aeron, None)
    archive, log_id = await link.get()
    assert log_id == archives.ids[0]
    await link.lose(archive, OSError("gone"))
    for count in range(2, 5):
        with pytest.raises(ForeignLogError) as caught:
            await link.get()
        assert caught.value.found == archives.ids[count - 1]
        assert archives.closed == archives.opened == count
    await link.aclose()


async def test_an_archive_whose_check_is_cancelled_is_closed() -> None:
    closed: list[bool] = []

    @asynccontextmanager
    async def opened() -> AsyncIterator[Any]:
        async def found() -> None:
            await asyncio.get_running_loop().create_future()

        try:
            yield SimpleNamespace(log_id=found)
        finally:
            closed.append(True)

    aeron: Any = SimpleNamespace(is_closed=False)
    link = LogLink(opened, aeron, None)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await link.get()
    assert closed == [True]


class LostArchive:
    """An archive that is opened again by the log, and can be lost."""

    def __init__(self, aeron: Aeron, path: Path) -> None:
        self.aeron = aeron
        self.path = path
        self.archive: LocalArchive | None = None
        self.opened_count = 0
        self.is_allowed = asyncio.Event()
        self.is_allowed.set()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[LocalArchive]:
        await self.is_allowed.wait()
        self.opened_count += 1
        context = ArchiveContext(directory=str(self.path), low_storage_threshold=0)
        async with LocalArchive.open(self.aeron, context) as self.archive:
            yield self.archive

    async def lose(self, producer: Producer) -> None:
        """Close the archive, and keep it closed until the producer has noticed."""
        self.is_allowed.clear()
        assert self.archive is not None
        await self.archive.aclose()
        async with asyncio.timeout(10):
            while not producer.why.startswith("the archive cannot"):
                await asyncio.sleep(0.01)


async def test_a_record_that_is_too_long_is_refused_also_while_the_archive_is_away(
    tmp_path: Path,
) -> None:
    async with Aeron.connect() as aeron:
        lost = LostArchive(aeron, tmp_path / "archive")
        async with (
            DurableStream(lost.open, aeron, CHANNEL, STREAM) as log,
            log.produce("one") as producer,
        ):
            await producer.append(b"1", durable=True)
            await lost.lose(producer)
            with pytest.raises(MessageTooLongError):
                await producer.append(bytes(60_000))
            assert producer.in_flight_count == 0
            assert await producer.append(b"2") == 2
            lost.is_allowed.set()
            async with asyncio.timeout(10):
                assert await producer.flush() == 2
            assert lost.opened_count == 2


@pytest.mark.parametrize("error", [MaxPositionExceededError("full"), MessageTooLongError("long")])
async def test_an_append_that_raises_appends_nothing(
    open_archive: Any, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail() -> None:
        raise error

    async with open_archive() as (aeron, archive):
        log = DurableStream(archive, aeron, CHANNEL, STREAM)
        async with log.produce("one") as producer:
            await producer.append(b"1", durable=True)
            with monkeypatch.context() as patched:
                patched.setattr(producer, "_send", fail)
                with pytest.raises(type(error)):
                    await producer.append(b"not this")
                assert (producer.last_sequence, producer.in_flight_count) == (1, 0)
            assert await producer.append(b"2", durable=True) == 2


@pytest.mark.parametrize("error", [MaxPositionExceededError("full"), MessageTooLongError("long")])
async def test_a_record_that_can_never_be_sent_ends_the_producer(
    open_archive: Any, error: Exception
) -> None:
    async with open_archive() as (aeron, archive):
        log = DurableStream(archive, aeron, CHANNEL, STREAM)
        with pytest.raises(type(error)):  # noqa: PT012 - the end may raise
            async with log.produce("one") as producer:
                sent = producer._send

                def fail() -> None:
                    if producer._unsent:
                        if asyncio.current_task() is producer._run_task:
                            raise error
                        return
                    sent()

                producer._send = fail  # type: ignore[method-assign]
                await producer.append(b"1", durable=True)
        assert producer.opened_count == 1


async def test_a_block_that_ends_with_unrecorded_records_raises(open_archive: Any) -> None:
    async with open_archive() as (aeron, archive):
        log = DurableStream(archive, aeron, CHANNEL, STREAM)
        with pytest.raises(FencedError):  # noqa: PT012 - the end raises
            async with log.produce("old") as old, log.produce("new") as new:
                assert await old.append(b"lost") == 1
                await new.append(b"1", durable=True)
        assert old.in_flight_count == 1
        # What the block raises is not hidden.
        with pytest.raises(LookupError):  # noqa: PT012 - the end raises
            async with log.produce("old") as old, log.produce("new"):
                await old.append(b"lost")
                raise LookupError


async def test_records_that_are_late_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aeron_async.archive.durable.producer.CLOSE_TIMEOUT_S", 0.01)
    async with Aeron.connect() as aeron:
        lost = LostArchive(aeron, tmp_path / "archive")
        async with DurableStream(lost.open, aeron, CHANNEL, STREAM) as log:
            with pytest.raises(ArchiveError, match="2 records are not known"):  # noqa: PT012 - the end raises  # noqa: PT012 - the end raises
                async with log.produce("one") as producer:
                    await producer.append(b"1", durable=True)
                    await lost.lose(producer)
                    await producer.append(b"2")
                    await producer.append(b"3")
            # Closing again says nothing more.
            await producer.aclose()


async def test_closing_after_an_error_of_the_disk_does_not_raise_it(open_archive: Any) -> None:
    async with open_archive() as (aeron, archive):
        log = DurableStream(archive, aeron, CHANNEL, STREAM)
        producer = await log.produce("one")

        async def fail() -> int:
            raise OSError

        producer.flush = fail  # type: ignore[method-assign]
        await producer.aclose()
