"""Attempts that take turns on a recording, and what a reader makes of it in the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from aeron_async.archive import ArchiveContext, LocalArchive
from aeron_async.errors import AeronTimeoutError, ArchiveError
from aeron_async.spark.sink import CommittedRows, Identity
from aeron_async.spark.sink.archives import archive_directory, remote_archive
from aeron_async.spark.sink.effectively_once import OnceWriting, RecordedStream
from aeron_async.spark.sink.options import SinkOptions
from aeron_async.spark.sink.task import Task, close_written, write_task
from aeron_async.spark.worker import close_connection, worker_connection
from tests.ports import unused_udp_ports
from tests.spark.sink.neighbours import (
    batches_of,
    neighbour,
    recorded,
    recorded_on,
    rows_of,
    served_archive,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from aeron_async.spark.sink.identity import TaskEnd

PORTS = unused_udp_ports()
QUERY = "b54e9ad7-query"


def rows_of_batch(batch: int, count: int = 500) -> list[bytes]:
    return [b"%d.%d" % (batch, index) + b"." * (index % 200) for index in range(count)]


class Place:
    """Where a query is recorded, and how a test looks at it."""

    def __init__(self, options: SinkOptions, read: Any, cut: Any) -> None:
        self.options = options
        self._read = read
        self.cut = cut

    def write(self, batch: int, payloads: list[bytes], partition: int = 1) -> TaskEnd:
        task = Task(query=QUERY, batch=batch, partition=partition)
        return write_task(self.options, task, batches_of(payloads, 100))

    def close(self, *ends: TaskEnd) -> None:
        close_written(self.options, ends)

    def recorded(self, partition: int = 1) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = self._read(partition)
        return found

    def identities(self) -> list[Identity]:
        return [Identity.of(value) for value, _ in self.recorded()]

    def committed(self) -> list[bytes]:
        reader = CommittedRows()
        return [row for message in self.recorded() for row in reader.feed(*message)]


@pytest.fixture(params=["path", "served"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    given: dict[str, Any] = {
        "stream_id": 7,
        "delivery": "effectively-once",
        "publish_timeout_ms": 120_000,
        "archive_timeout_ms": 120_000,
        "channel": f"aeron:udp?endpoint=127.0.0.1:{next(PORTS)}|term-length=64k",
    }
    if request.param == "path":

        def read_directory(partition: int) -> list[tuple[int, bytes]]:
            directory = archive_directory(str(tmp_path), QUERY, partition)
            with neighbour() as reader:
                return reader.call(recorded_on, reader, directory)

        def cut_directory(length: int) -> None:
            directory = archive_directory(str(tmp_path), QUERY, 1)
            with neighbour() as other:
                other.call(cut_in, other, directory, length)

        options = SinkOptions(archive_path=str(tmp_path), **given)
        yield Place(options, read_directory, cut_directory)
        close_connection()
        return
    control = f"aeron:udp?endpoint=127.0.0.1:{next(PORTS)}"
    with served_archive(tmp_path, control) as server:
        archive = server.kept["archive"]

        def read_archive(partition: int) -> list[tuple[int, bytes]]:
            found = server.call(recorded, archive)
            return [each for each in found if Identity.of(each[0]).partition == partition]

        def cut_archive(length: int) -> None:
            server.call(cut, archive, length)

        options = SinkOptions(archive_control_channel=control, **given)
        yield Place(options, read_archive, cut_archive)
        close_connection()


def test_rows_are_recorded_in_order_with_their_identities(place: Place) -> None:
    end = place.write(3, rows_of_batch(3))
    assert place.recorded() == [
        (Identity(3, 1, index).reserved_value, row) for index, row in enumerate(rows_of_batch(3))
    ]
    assert (end.query, end.batch, end.partition, end.row_count) == (QUERY, 3, 1, 500)
    assert place.committed() == []


def test_a_commit_closes_the_batch_and_a_second_one_changes_nothing(place: Place) -> None:
    end = place.write(0, rows_of_batch(0))
    place.close(end)
    place.close(end)
    assert place.committed() == rows_of_batch(0)
    assert [each.is_marker for each in place.identities()].count(True) == 1


def test_a_batch_that_is_written_again_after_its_commit_is_there_once(place: Place) -> None:
    place.close(place.write(0, rows_of_batch(0)))
    place.close(place.write(1, rows_of_batch(1)))
    close_connection()
    with capture_logs() as logs:
        for batch in (1, 0):
            end = place.write(batch, rows_of_batch(batch))
            assert (end.row_count, end.streams[0].session_id) == (500, 0)
            place.close(end)
    passed = [each for each in logs if each["event"] == "sink_batch_passed"]
    assert [(each["batch"], each["recorded_batch"]) for each in passed] == [(0, 1)]
    assert place.committed() == rows_of_batch(0) + rows_of_batch(1)
    assert len(place.recorded()) == 1_002


def test_the_next_attempt_goes_on_behind_the_last_row(place: Place) -> None:
    def failing() -> Iterator[Any]:
        yield rows_of(rows_of_batch(0)[:150])
        message = "a row upstream"
        raise RuntimeError(message)

    with pytest.raises(RuntimeError, match="upstream"):
        write_task(place.options, Task(query=QUERY, batch=0, partition=1), failing())
    end = place.write(0, rows_of_batch(0))
    place.close(end)
    assert place.identities() == [
        *(Identity(0, 1, index) for index in range(500)),
        Identity.marker(0, 1),
    ]
    assert place.committed() == rows_of_batch(0)


def test_the_marker_names_the_session_that_won(place: Place) -> None:
    place.write(0, rows_of_batch(0)[:100])
    end = place.write(0, rows_of_batch(0))
    place.close(end)
    (_, payload), *_ = place.recorded()[::-1]
    assert b'"session_id": %d' % end.streams[0].session_id in payload
    assert b'"rows": 500' in payload


def test_batches_follow_one_another_over_many_terms(place: Place) -> None:
    for batch in range(4):
        place.close(place.write(batch, rows_of_batch(batch)))
        if batch == 1:
            # Another worker, that remembers nothing.
            close_connection()
    assert place.committed() == [row for batch in range(4) for row in rows_of_batch(batch)]


def test_messages_of_many_frames_are_one_row(place: Place) -> None:
    payloads = [bytes([number]) * 6_000 for number in range(40)]
    place.close(place.write(0, payloads[:20]))
    place.close(place.write(0, payloads[:20]), place.write(1, payloads))
    assert place.committed() == payloads[:20] + payloads


def test_partitions_have_recordings_of_their_own(place: Place) -> None:
    one, twelve = place.write(0, rows_of_batch(0), 1), place.write(0, rows_of_batch(5), 12)
    place.close(one, twelve)
    assert [row for _, row in place.recorded(1)[:-1]] == rows_of_batch(0)
    assert [row for _, row in place.recorded(12)[:-1]] == rows_of_batch(5)


def test_a_partition_without_rows_leaves_nothing(place: Place) -> None:
    end = place.write(0, [])
    place.close(end)
    assert (end.row_count, end.streams) == (0, ())


def test_a_recording_that_ends_otherwise_is_not_closed(place: Place) -> None:
    place.write(0, rows_of_batch(0)[:10])
    end = place.write(0, rows_of_batch(0)[:10])
    place.write(0, rows_of_batch(0)[:20])
    with pytest.raises(ArchiveError, match="another query writes there"):
        place.close(end)


def served(place: Place) -> bool:
    return place.options.archive_path is None


def test_an_attempt_that_is_still_alive_is_stopped_or_waited_for(place: Place) -> None:
    with worker_connection(60_000) as connection:
        zombie = OnceWriting(connection.aeron, place.options, QUERY, 0, 1)
        connection.call(zombie.publish, rows_of(rows_of_batch(0)[:150]))
        if not served(place):
            # It has the lock.
            short = SinkOptions(
                channel=place.options.channel,
                stream_id=7,
                delivery="effectively-once",
                archive_path=place.options.archive_path,
                publish_timeout_ms=200,
            )
            task = Task(query=QUERY, batch=0, partition=1)
            with pytest.raises(AeronTimeoutError, match="held by another attempt"):
                write_task(short, task, batches_of(rows_of_batch(0), 100))
            connection.call(zombie.aclose)
        end = place.write(0, rows_of_batch(0))
        if served(place):
            with pytest.raises(ArchiveError, match="another attempt has taken over"):
                connection.call(zombie.finish)
            connection.call(zombie.aclose)
        place.close(end)
    assert place.committed() == rows_of_batch(0)
    assert len(place.identities()) == 501


# A path is locked: by one attempt at a time.
@pytest.mark.parametrize("place", ["served"], indirect=True)
def test_an_attempt_that_wakes_up_behind_another_writes_nothing(place: Place) -> None:
    place.write(0, rows_of_batch(0)[:100])
    with worker_connection(60_000) as connection:
        archive = remote_archive(connection.aeron, place.options)
        connection.call(archive.__aenter__)
        zombie = RecordedStream(connection.aeron, archive, place.options, QUERY, 1)
        connection.call(zombie.open)
        end = place.write(0, rows_of_batch(0))
        with pytest.raises(ArchiveError, match="another attempt has taken over"):
            connection.call(zombie.offer, b"late", Identity(0, 1, 100).reserved_value)
        connection.call(archive.aclose)
    assert len(place.identities()) == 500
    place.close(end)
    assert place.committed() == rows_of_batch(0)


@pytest.mark.parametrize("place", ["served"], indirect=True)
def test_an_attempt_says_that_another_has_taken_over_when_its_request_has_ended(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write(0, rows_of_batch(0)[:100])
    with worker_connection(60_000) as connection:
        archive = remote_archive(connection.aeron, place.options)
        connection.call(archive.__aenter__)
        zombie = RecordedStream(connection.aeron, archive, place.options, QUERY, 1)
        connection.call(zombie.open)
        place.write(0, rows_of_batch(0))
        stop_recording = archive.stop_recording

        async def stop_twice(channel: str, stream_id: int) -> None:
            await stop_recording(channel, stream_id)
            await stop_recording(channel, stream_id)

        monkeypatch.setattr(archive, "stop_recording", stop_twice)
        with pytest.raises(ArchiveError, match="another attempt has taken over"):
            connection.call(zombie.offer, b"late", Identity(0, 1, 100).reserved_value)
        connection.call(archive.aclose)


async def cut(archive: Any, length: int) -> None:
    """Take the last bytes of the recording, as if a process had died in the middle of them."""
    await archive.truncate(0, await archive.stop_position(0) - length)


async def cut_in(connection: Any, directory: Path, length: int) -> None:
    context = ArchiveContext(directory=str(directory), low_storage_threshold=0)
    async with await LocalArchive.open(connection.aeron, context) as archive:
        await cut(archive, length)


@pytest.mark.parametrize("frames", [1, 3])
def test_a_message_that_is_not_whole_is_cut_off(place: Place, frames: int) -> None:
    payloads = [bytes([number]) * 5_000 for number in range(20)]
    mtu, last = 1_408, 32 + 5_000 - 3 * 1_376
    place.write(0, payloads[:7])
    close_connection()
    place.cut(last + 32 - last % 32 + mtu * (frames - 1))
    place.close(place.write(0, payloads))
    assert place.committed() == payloads
    assert len(place.identities()) == 21
