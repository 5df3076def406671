"""A task that publishes on loopback, and a subscriber elsewhere that hears it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.errors import AeronTimeoutError, ConfigurationError
from aeron_async.protocol.status_message import StatusMessage
from aeron_async.spark import worker
from aeron_async.spark.sink.at_least_once import Receivers, wait_consumed
from aeron_async.spark.sink.options import SinkOptions
from aeron_async.spark.sink.rows import Rows
from aeron_async.spark.sink.task import Task, close_written, write_task
from aeron_async.spark.worker import close_connection, worker_connection
from tests.drivers import embedded
from tests.ports import unused_udp_ports
from tests.spark.sink.neighbours import batches_of, listening, rows_of, served_archive

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from aeron_async.spark.sink.identity import TaskEnd

PORTS = unused_udp_ports()
FIRST_WINDOW = 128 * 1024
TASK = Task(query=None, batch=None, partition=2)
PAYLOADS = [b"%05d" % number + b"." * (number % 300) for number in range(3_000)]


def fresh_channel() -> str:
    return f"aeron:udp?endpoint=127.0.0.1:{next(PORTS)}|term-length=1m"


@pytest.fixture
def channel() -> str:
    return fresh_channel()


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    close_connection()


def options(channel: str, **more: object) -> SinkOptions:
    given: dict[str, object] = {
        "channel": channel,
        "stream_id": 7,
        "publish_timeout_ms": 120_000,
        "archive_timeout_ms": 120_000,
    }
    return SinkOptions(**given | more)  # type: ignore[arg-type] # by name


def write(options: SinkOptions, payloads: list[bytes], size: int = 1_000) -> TaskEnd:
    return write_task(options, TASK, batches_of(payloads, size))


def test_rows_were_consumed_in_order_when_the_task_is_done(channel: str) -> None:
    with listening(channel, 7) as listener:
        end = write(options(channel), PAYLOADS)
        assert listener.payloads == PAYLOADS
    assert (end.partition, end.row_count) == (2, len(PAYLOADS))
    (stream,) = end.streams
    assert {session for session, _, _ in listener.heard} == {stream.session_id}


def test_all_subscribers_have_consumed_when_the_task_is_done(channel: str) -> None:
    # Not connected before there are two.
    where = f"aeron:udp?control=127.0.0.1:{next(PORTS)}|control-mode=dynamic|term-length=1m"
    with (
        listening(f"{where}|endpoint=127.0.0.1:0", 7) as one,
        listening(f"{where}|endpoint=127.0.0.1:0", 7) as two,
    ):
        write(options(f"{where}|fc=min,g:/2"), PAYLOADS)
        assert one.payloads == two.payloads == PAYLOADS


def test_columns_say_stream_channel_and_reserved_value() -> None:
    channels = [fresh_channel(), fresh_channel()]
    views = [memoryview(each) for each in PAYLOADS[:10]]
    rows = Rows(
        payloads=views,
        channels=[channels[number % 2] for number in range(10)],
        stream_ids=[number % 2 + 1 for number in range(10)],
        reserved_values=[-number for number in range(10)],
    )
    with listening(channels[0], 1) as even, listening(channels[1], 2) as odd:
        end = write_task(SinkOptions(publish_timeout_ms=120_000), TASK, [rows])
        assert [each[1:] for each in even.heard] == [(-n, PAYLOADS[n]) for n in range(0, 10, 2)]
        assert [each[1:] for each in odd.heard] == [(-n, PAYLOADS[n]) for n in range(1, 10, 2)]
    assert [each.stream_id for each in end.streams] == [1, 2]


def test_a_task_without_rows_publishes_nothing(channel: str) -> None:
    end = write(options(channel), [])
    assert (end.row_count, end.streams) == (0, ())
    close_written(options(channel), [end])


def test_tasks_of_a_worker_share_its_publications(channel: str) -> None:
    with listening(channel, 7) as listener:
        sessions = [write(options(channel), PAYLOADS[:9]).streams[0].session_id for _ in range(3)]
        assert listener.payloads == PAYLOADS[:9] * 3
    assert len(set(sessions)) == 1


def test_after_a_failure_the_next_attempt_has_a_session_of_its_own(channel: str) -> None:
    def failing() -> Iterator[Rows]:
        yield rows_of(PAYLOADS[:5])
        message = "a row upstream"
        raise RuntimeError(message)

    with listening(channel, 7) as listener:
        with pytest.raises(RuntimeError, match="upstream"):
            write_task(options(channel), TASK, failing())
        end = write(options(channel), PAYLOADS[:9])
        assert listener.wait(14)[-9:] == PAYLOADS[:9]
    assert len({session for session, _, _ in listener.heard}) == 2
    assert listener.heard[-1][0] == end.streams[0].session_id


def test_nobody_subscribes(channel: str) -> None:
    with pytest.raises(AeronTimeoutError, match="no subscriber connected"):
        write(options(channel, publish_timeout_ms=50), PAYLOADS[:1])


def test_a_subscriber_that_never_asks_for_the_next_has_not_consumed(channel: str) -> None:
    with listening(channel, 7, patience=5) as listener:
        with pytest.raises(AeronTimeoutError, match=r"not consumed within .*: the slowest"):
            write(options(channel, publish_timeout_ms=2_000), PAYLOADS[:10])
        listener.wait(5)
        # Whoever asks for less is not told.
        end = write(options(channel, wait_for="none"), PAYLOADS[:10])
        assert end.row_count == 10
        assert len(listener.heard) == 5


def test_back_pressure_holds_the_task_and_ends_with_the_timeout(channel: str) -> None:
    with (
        listening(channel, 7, patience=5),
        pytest.raises(AeronTimeoutError, match="back pressure"),
    ):
        write(options(channel, publish_timeout_ms=2_000), [b"." * 1_000] * 5_000)


def test_rows_name_too_many_streams() -> None:
    channels = [fresh_channel() for _ in range(3)]
    rows = Rows(payloads=[memoryview(b"x")] * 3, channels=channels)
    with (
        listening(channels[0], 7),
        listening(channels[1], 7),
        pytest.raises(ConfigurationError, match=r"more than maxStreams=2 streams; the next is"),
    ):
        write_task(SinkOptions(stream_id=7, max_streams=2), TASK, [rows])


def test_no_archive_records_the_stream(channel: str, tmp_path: Path) -> None:
    control = f"aeron:udp?endpoint=127.0.0.1:{next(PORTS)}"
    asks = {"wait_for": "recorded", "archive_control_channel": control}
    with (
        served_archive(tmp_path, control),
        listening(channel, 7),
        pytest.raises(AeronTimeoutError, match="no archive records"),
    ):
        write(options(channel, publish_timeout_ms=2_000, **asks), PAYLOADS[:3])


def test_rows_that_an_archive_elsewhere_records(channel: str, tmp_path: Path) -> None:
    control = f"aeron:udp?endpoint=127.0.0.1:{next(PORTS)}"
    asks = options(channel, wait_for="recorded", archive_control_channel=control)
    with served_archive(tmp_path, control) as server:
        server.call(record_remote, server, channel)
        end = write(asks, PAYLOADS)
        (stream,) = end.streams
        archive = server.kept["archive"]
        assert server.call(archive.max_recorded_position, 0) == stream.position


async def record_remote(server: worker.WorkerConnection, channel: str) -> None:
    from aeron_async.archive import SourceLocation  # noqa: PLC0415 - beside its only use

    archive = server.kept["archive"]
    await archive.start_recording(channel, 7, source_location=SourceLocation.REMOTE)


def test_a_driver_that_nobody_uses_ends() -> None:
    with worker_connection(linger_ms=1) as first:
        pass
    first._thread.join(20)
    assert not first._thread.is_alive()
    with worker_connection(linger_ms=60_000) as second:
        assert second is not first
    with worker_connection(linger_ms=60_000) as third:
        assert third is second


def test_a_driver_that_is_used_stays() -> None:
    with worker_connection(linger_ms=1) as outer:
        with worker_connection(linger_ms=1) as inner:
            assert inner is outer
        assert outer.call(outer_is_open, outer)


async def outer_is_open(connection: worker.WorkerConnection) -> bool:
    return not connection.aeron.is_closed


def test_a_driver_that_failed_is_replaced() -> None:
    with worker_connection(linger_ms=60_000) as first:
        first.call(embedded(first.aeron).abort)
    with worker_connection(linger_ms=60_000) as second:
        assert second is not first
    first.close()


def test_a_child_process_knows_nothing_of_its_parent_s_driver() -> None:
    with worker_connection(linger_ms=60_000) as parent:
        worker.forget_connection()
        with worker_connection(linger_ms=60_000) as child:
            assert child is not parent
    parent.close()


class Growing:
    """A publication whose receiver doubles its window with each push, up to four times."""

    channel, stream_id, max_message_length = "aeron:udp", 7, 1 << 20

    def __init__(self) -> None:
        self.position = 10_000
        self.pushed: list[int] = []
        self.receivers = Receivers()
        self.report(0, FIRST_WINDOW)

    def report(self, position: int, window_length: int) -> None:
        sm = StatusMessage(session_id=1, stream_id=7, receiver_id=3, receiver_window=window_length)
        self.receivers.on_status_message(sm, position, 1)

    async def append_padding(self, length: int) -> None:
        self.pushed.append(length)
        window_length = self.receivers.window_length
        if len(self.pushed) < 4:
            # It reports the longer window, and the rest is less than a quarter of that.
            self.report(self.position - 5_000, 2 * window_length)
        else:
            self.report(self.position, window_length)


def test_a_window_that_grows_with_a_push_is_pushed_again() -> None:
    growing = Growing()
    publication: Any = growing
    asyncio.run(wait_consumed(publication, growing.receivers, timeout_s=10))
    assert growing.pushed == [(FIRST_WINDOW << number) // 4 + 32 for number in range(4)]
    assert growing.receivers.consumed() == growing.position
