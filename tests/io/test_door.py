"""The door, and attacks on it: what its clients see, what is refused, and that nothing is left."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async import door as door_module
from aeron_async import door_connection, door_socket
from aeron_async.door import (
    CLIENTS_MAX,
    INTERVAL_MAX_MS,
    INTERVAL_MIN_MS,
    DoorClient,
    DoorHello,
    StatsDoor,
)
from aeron_async.door_connection import REQUEST_MAX
from aeron_async.door_socket import PATH_MAX
from aeron_async.errors import (
    AeronError,
    AeronTimeoutError,
    BusyError,
    ClosedError,
    ConfigurationError,
    DoorInUseError,
    DriverError,
    ProtocolError,
)
from tests.logs import captured_logs
from tests.snapshots import stats, stats_of_many

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from aeron_async.stats import Stats

PATIENCE_S = 60


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """The path of a door; nobody who has tested one leaves it behind."""
    tmp_path.chmod(0o700)
    place = tmp_path / "door"
    yield place
    assert not place.is_socket()


@pytest.fixture(autouse=True)
async def _nothing_is_left() -> AsyncIterator[None]:
    before = descriptors()
    yield
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})
    # Whoever lists them has one more.
    await until(lambda: len(descriptors() - before) <= 1)


def door_at(path: Path, take: Callable[[], Stats] = stats, **options: Any) -> StatsDoor:
    return StatsDoor(path, take, version="1.2.3", pid=42, **options)


def is_there(path: Path) -> bool:
    return os.path.lexists(path)


def descriptors() -> set[str]:
    return {each.name for each in Path("/proc/self/fd").iterdir()}


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0)


class Taking:
    """Takes snapshots, whose times are their numbers."""

    def __init__(self, make: Callable[[int], Stats] = lambda at_ns: stats(at_ns=at_ns)) -> None:
        self.count = 0
        self._make = make

    def __call__(self) -> Stats:
        self.count += 1
        return self._make(self.count)


class Raw:
    """A client that sends what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def line(self) -> Any:
        async with asyncio.timeout(PATIENCE_S):
            return json.loads(await self.reader.readuntil())

    async def end(self) -> bytes:
        """Return what comes until the door closes the connection."""
        async with asyncio.timeout(PATIENCE_S):
            found = b""
            with suppress(ConnectionError):
                while data := await self.reader.read(1 << 16):
                    found += data
            return found

    async def ask(self, request: object) -> Any:
        self.writer.write(json.dumps(request).encode() + b"\n")
        return await self.line()


@asynccontextmanager
async def raw(path: Path) -> AsyncIterator[Raw]:
    reader, writer = await asyncio.open_unix_connection(path, limit=1 << 24)
    try:
        yield Raw(reader, writer)
    finally:
        writer.transport.abort()


class Served:
    """A door of our own making, which answers with what a test says."""

    def __init__(self, *lines: bytes, is_greeting: bool = True) -> None:
        hello = b'{"hello":1,"pid":1,"version":"1","serves":["stats"]}\n'
        self.lines = [hello, *lines] if is_greeting else list(lines)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            for number, line in enumerate(self.lines):
                if number:
                    await reader.readline()
                writer.write(line)
                await writer.drain()
            await reader.read()
        writer.transport.abort()


@asynccontextmanager
async def served(path: Path, *lines: bytes, is_greeting: bool = True) -> AsyncIterator[None]:
    fake = Served(*lines, is_greeting=is_greeting)
    server = await asyncio.start_unix_server(fake.serve, path)
    try:
        yield
    finally:
        server.close()
        with suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108 - it takes no time


# What a client sees.


async def test_a_client_is_greeted_and_answered(path: Path) -> None:
    extra = {"metrics": lambda: 'a\n"b"' * 50_000, "ready": lambda: ["no subscriber"]}
    async with door_at(path, extra=extra), DoorClient(path) as client:
        assert client.hello == DoorHello(42, "1.2.3", ("stats", "metrics", "ready"))
        assert await client.get_stats() == stats()
        assert await client.get("metrics") == 'a\n"b"' * 50_000
        assert await client.get("ready") == ["no subscriber"]


async def test_statistics_of_many_streams_come_whole(path: Path) -> None:
    many = stats_of_many(1_000)
    async with door_at(path, lambda: many), DoorClient(path) as client:
        assert await client.get_stats() == many


async def test_the_lines_are_those_of_the_reference(path: Path) -> None:
    async with door_at(path, extra={"live": lambda: True}), raw(path) as client:
        assert await client.line() == {
            "hello": 1,
            "pid": 42,
            "version": "1.2.3",
            "serves": ["stats", "live"],
        }
        assert await client.ask({"get": "live"}) == {"get": "live", "value": True}
        assert await client.ask({"get": "stats"}) == {"get": "stats", "value": stats().to_dict()}
        pushed = await client.ask({"watch": 50})
        assert pushed == {"watch": 50, "value": stats().to_dict()}
        assert await client.line() == pushed


async def test_a_watcher_sees_the_newest(path: Path) -> None:
    take = Taking()
    async with door_at(path, take) as door, DoorClient(path) as client:
        seen = []
        async for each in client.watch(0.05):
            seen.append(each.monotonic_ns)
            if len(seen) == 3:
                break
        assert seen == sorted(set(seen))
        await until(lambda: not door._watches)
        # A new watch is another one, and an old answer is none of it.
        async for each in client.watch(0.06):
            assert each.monotonic_ns >= seen[-1]
            break


async def test_watchers_of_an_interval_share_a_snapshot(path: Path) -> None:
    take = Taking()
    async with door_at(path, take), raw(path) as one, raw(path) as two, raw(path) as three:
        for each in (one, two, three):
            await each.line()
        first = await one.ask({"watch": INTERVAL_MAX_MS})
        assert await two.ask({"watch": INTERVAL_MAX_MS}) == first
        assert await three.ask({"watch": INTERVAL_MAX_MS}) == first
        assert take.count == 1


async def test_who_asks_at_about_the_same_time_shares_a_snapshot(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door_module, "FRESH_NS", 10**15)
    take = Taking()
    async with door_at(path, take) as door:
        async with DoorClient(path) as one, DoorClient(path) as two:
            first, second = await asyncio.gather(one.get_stats(), two.get_stats())
            assert first == second == await one.get_stats()
            assert take.count == 1
        await until(lambda: door.client_count == 0)
        assert door._state == []
        monkeypatch.setattr(door_module, "FRESH_NS", 0)
        async with DoorClient(path) as client:
            assert (await client.get_stats()).monotonic_ns == 2
            assert (await client.get_stats()).monotonic_ns == 3


async def test_nothing_runs_without_a_client(path: Path) -> None:
    take = Taking()
    async with door_at(path, take) as door:
        async with DoorClient(path) as client:
            async for _ in client.watch(0.05):
                break
        await until(lambda: door.client_count == 0)
        await until(lambda: len(door._tasks) == 0)
        assert not door._watches
        assert take.count == 1


async def test_a_client_asks_while_it_watches(path: Path) -> None:
    async with door_at(path, extra={"live": lambda: True}), DoorClient(path) as client:
        async for each in client.watch(0.05):
            assert each == stats()
            live, now = await asyncio.gather(client.get("live"), client.get_stats())
            assert live is True
            assert now == stats()
            break


async def test_a_second_watch_ends_the_first(path: Path) -> None:
    async with door_at(path), DoorClient(path) as client:
        first, second = client.watch(60), client.watch(60)
        await anext(first)
        waiting = asyncio.ensure_future(anext(first))
        await asyncio.sleep(0)
        assert await anext(second) == stats()
        with pytest.raises(BusyError, match="another watch"):
            await waiting
        await second.aclose()


async def test_an_answer_that_nobody_waits_for_is_not_that_of_the_next(path: Path) -> None:
    async with door_at(path, extra={"live": lambda: True}), DoorClient(path) as client:
        asking = asyncio.ensure_future(client.get_stats())
        await until(lambda: client._reply is not None)
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking
        assert await client.get("live") is True


# What is refused.


@pytest.mark.parametrize(
    "request_",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 4_000,
        b"GET / HTTP/1.1",
        b"7",
        b"[]",
        b"null",
        b"{}",
        b'{"get": 7}',
        b'{"get": "stats", "more": 1}',
        b'{"get": "nothing"}',
        b'{"watch": true}',
        b'{"watch": 1e3}',
        b'{"watch": "1000"}',
        b'{"watch": 1000, "get": "stats"}',
    ],
)
async def test_what_is_no_request_is_answered_and_the_client_stays(
    path: Path, request_: bytes
) -> None:
    async with door_at(path) as door, raw(path) as client:
        await client.line()
        client.writer.write(request_ + b"\n")
        answer = await client.line()
        assert answer.keys() == {"error"}
        assert "is no request" in answer["error"]
        assert answer["error"].isprintable()
        assert door.failed_request_count == 1
        assert (await client.ask({"get": "stats"}))["get"] == "stats"


@pytest.mark.parametrize("interval_ms", [0, -1, INTERVAL_MIN_MS - 1, INTERVAL_MAX_MS + 1, 10**40])
async def test_an_interval_has_limits(path: Path, interval_ms: int) -> None:
    async with door_at(path) as door, raw(path) as client:
        await client.line()
        answer = await client.ask({"watch": interval_ms})
        assert "is not between 50 and 60000 ms" in answer["error"]
        assert not door._watches
        assert (await client.ask({"watch": INTERVAL_MIN_MS}))["watch"] == INTERVAL_MIN_MS


@pytest.mark.parametrize("seconds", [0, -1, 0.049, 60.1, float("inf"), float("nan")])
async def test_an_interval_is_refused_before_it_is_sent(path: Path, seconds: float) -> None:
    async with door_at(path), DoorClient(path) as client:
        with pytest.raises(ConfigurationError, match=r"not between 0\.05 and 60 s"):
            await anext(client.watch(seconds))


async def test_what_is_not_served_is_an_error_with_what_is(path: Path) -> None:
    async with door_at(path, extra={"live": lambda: True}), DoorClient(path) as client:
        with pytest.raises(DriverError, match="one of stats, live"):
            await client.get("colour")


@pytest.mark.parametrize("end", [b"\n", b""])
async def test_a_long_line_ends_the_connection(path: Path, end: bytes) -> None:
    async with door_at(path), raw(path) as client:
        await client.line()
        client.writer.write(b"a" * (1 << 20) + end)
        error = json.loads((await client.end()).splitlines()[0])
        assert f"more than the {REQUEST_MAX:,} bytes" in error["error"]


async def test_half_a_line_is_no_request(path: Path) -> None:
    async with door_at(path) as door:
        async with raw(path) as client:
            await client.line()
            client.writer.write(b'{"get": ')
            await asyncio.sleep(0)
            client.writer.write(b'"stats"}\n{"get": "st')
            assert (await client.line())["get"] == "stats"
            client.writer.write_eof()
            assert await client.end() == b""
        await until(lambda: door.client_count == 0)
        assert door.failed_request_count == 0


async def test_many_requests_at_once_are_answered_in_order(path: Path) -> None:
    async with door_at(path, extra={"live": lambda: 1}), raw(path) as client:
        await client.line()
        client.writer.write(b'{"get": "live"}\n{"get": "stats"}\n' * 500)
        for _ in range(500):
            assert (await client.line())["get"] == "live"
            assert (await client.line())["get"] == "stats"


async def test_one_client_too_many_is_told_so(path: Path) -> None:
    async with door_at(path) as door:
        with captured_logs() as lines:
            clients = [DoorClient(path) for _ in range(CLIENTS_MAX)]
            for each in clients:
                await each.__aenter__()
            for _ in range(20):
                with pytest.raises(DriverError, match="serves 8 clients at once"):
                    await DoorClient(path).__aenter__()
            assert (door.client_count, door.refused_client_count) == (8, 20)
            # One line for each second and not for each client.
            refused = [each for each in lines if each["event"] == "door_client_refused"]
            assert 0 < len(refused) < 20
        assert await clients[0].get_stats() == stats()
        for each in clients:
            await each.aclose()
        await until(lambda: door.client_count == 0)
        async with DoorClient(path) as client:
            assert await client.get_stats() == stats()


async def test_clients_that_come_and_vanish_leave_nothing(path: Path) -> None:
    async with door_at(path) as door:
        for number in range(100):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(path))
                if number % 3:
                    client.send(b'{"watch": 50}\n{"get": "stats"}\n')
            await asyncio.sleep(0)
        await until(lambda: door.client_count == 0)
        await until(lambda: len(door._tasks) == 0)
        async with DoorClient(path) as client:
            assert await client.get_stats() == stats()


async def test_a_client_of_another_user_is_closed_and_counted(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uid = os.geteuid() + 1
    monkeypatch.setattr(door_module, "peer_uid", lambda _sock: uid)
    async with door_at(path) as door, raw(path) as client:
        assert await client.end() == b""
        assert (door.foreign_client_count, door.client_count) == (1, 0)
        uid = 0
        async with DoorClient(path) as root:
            assert await root.get_stats() == stats()


async def test_the_system_says_whose_process_a_client_is() -> None:
    ends = socket.socketpair(socket.AF_UNIX)
    with ends[0], ends[1]:
        assert door_socket.peer_uid(ends[0]) == os.geteuid()


async def test_a_client_that_does_not_read_is_dropped_and_counted(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = stats_of_many(1_000)
    async with door_at(path, lambda: many) as door, DoorClient(path) as other:
        with socket.socket(socket.AF_UNIX) as client, monkeypatch.context() as patch:
            patch.setattr(door_connection, "READ_TIMEOUT_S", 0.05)
            client.connect(str(path))
            client.send(b'{"watch": 50}\n')
            await until(lambda: door.slow_client_count == 1)
            assert door.client_count == 1
        assert await other.get_stats() == many


async def test_a_client_that_reads_slowly_gets_the_newest_state(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door_connection, "READ_TIMEOUT_S", PATIENCE_S)
    take = Taking(lambda at_ns: stats_of_many(1_000, at_ns=at_ns))
    async with door_at(path, take) as door, raw(path) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        client.writer.write(b'{"watch": 50}\n')
        await until(lambda: door.replaced_state_count > 3)
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        await client.line()
        seen = [(await client.line())["value"]["monotonic_ns"] for _ in range(3)]
        assert seen == sorted(set(seen))
        assert seen[-1] > 4


async def test_what_cannot_be_taken_is_told_and_the_door_stays(path: Path) -> None:
    is_broken = True

    def take() -> Stats:
        if is_broken:
            message = "the driver \x1b[2J has ended"
            raise ClosedError(message)
        return stats()

    extra: dict[str, Callable[[], object]] = {"odd": object, "worse": lambda: 1 // 0}
    async with door_at(path, take, extra=extra) as door, DoorClient(path) as client:
        for asked, text in (("odd", "nothing for a value"), ("worse", "by zero")):
            with pytest.raises(DriverError, match=text):
                await client.get(asked)
        with pytest.raises(DriverError, match=r"no stats now: the driver \\x1b\[2J has ended"):
            await client.get_stats()
        with pytest.raises(DriverError, match="no stats now"):
            await anext(client.watch())
        assert not door._watches
        is_broken = False
        assert await anext(client.watch()) == stats()
        assert door.failed_request_count == 4


async def test_a_fault_of_the_door_ends_one_client_and_is_logged(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with door_at(path) as door, DoorClient(path) as other:
        async with raw(path) as client:
            await client.line()
            with monkeypatch.context() as patch, captured_logs() as lines:
                patch.setattr(StatsDoor, "_answer", lambda *_arguments: 1 // 0)
                client.writer.write(b"{}\n")
                assert await client.end() == b""
        assert [each["event"] for each in lines] == ["door_task_failed"]
        await until(lambda: door.client_count == 1)
        assert await other.get_stats() == stats()


async def test_a_state_that_is_too_long_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door_module, "REPLY_MAX", 100_000)
    async with door_at(path, lambda: stats_of_many(1_000)), raw(path) as client:
        await client.line()
        answer = await client.ask({"get": "stats"})
        assert "longer than the 100,000 bytes" in answer["error"]


@given(data=st.lists(st.binary(max_size=200), max_size=20))
async def test_no_bytes_stop_the_door(tmp_path_factory: Any, data: list[bytes]) -> None:
    path = tmp_path_factory.mktemp("any", numbered=True) / "door"
    async with door_at(path):
        async with raw(path) as client:
            client.writer.write(b"".join(data) + b"\n")
            client.writer.write_eof()
            lines = (await client.end()).splitlines()
            assert all(isinstance(json.loads(line), dict) for line in lines)
        async with DoorClient(path) as client:
            assert await client.get_stats() == stats()


# The path; `tests/test_door_socket.py` has more.


async def test_a_stale_socket_is_replaced(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(path))
    async with door_at(path), DoorClient(path) as client:
        assert await client.get_stats() == stats()


async def test_a_door_that_is_open_is_not_replaced(path: Path) -> None:
    async with door_at(path), DoorClient(path) as client:
        with pytest.raises(DoorInUseError, match="another process has opened"):
            await door_at(path).start()
        assert await client.get_stats() == stats()


async def test_the_longest_path_is_taken(path: Path) -> None:
    longest = Path(str(path).ljust(PATH_MAX, "d"))
    async with door_at(longest), DoorClient(longest) as client:
        assert await client.get_stats() == stats()


async def test_a_path_may_be_relative(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    door = door_at(Path("door"))
    await door.start()
    # The file goes, wherever the process is by then.
    monkeypatch.chdir("/")
    await door.aclose()


async def test_the_file_of_another_door_is_not_removed(path: Path) -> None:
    async with door_at(path):
        os.unlink(path)  # noqa: PTH108 - it takes no time
        other = door_at(path)
        await other.start()
    async with DoorClient(path) as client:
        assert await client.get_stats() == stats()
    await other.aclose()


# Beginning and end.


async def test_a_door_is_opened_once(path: Path) -> None:
    door = door_at(path)
    await door.aclose()
    with pytest.raises(ClosedError, match="was closed"):
        await door.start()
    async with door_at(path) as door:
        with pytest.raises(BusyError, match="open already"):
            await door.start()
    await door.aclose()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_clients": 0}, "max_clients is 0"),
        ({"extra": {"stats": list}}, "serves 'stats' itself"),
        ({"extra": {"": list}}, "nothing without a name"),
    ],
)
def test_a_door_takes_no_nonsense(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        door_at(Path("door"), **options)


async def test_a_start_that_is_cancelled_leaves_nothing(path: Path) -> None:
    for turns in range(4):
        door = door_at(path)
        task = asyncio.ensure_future(door.start())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await door.aclose()
        assert not is_there(path)


async def test_a_door_is_closed_while_a_client_watches(path: Path) -> None:
    many = stats_of_many(1_000)
    async with DoorClientAt(path, lambda: many) as (door, client):
        watching = client.watch(0.05)
        await anext(watching)
        waiting = asyncio.ensure_future(anext(watching))
        await asyncio.sleep(0)
        await door.aclose()
        # What had come before is given first.
        with suppress(DriverError):
            await waiting
        with pytest.raises(DriverError, match="has closed"):
            await client.get_stats()


class DoorClientAt:
    """A door and its client, the client closed first."""

    def __init__(self, path: Path, take: Callable[[], Stats]) -> None:
        self.door = door_at(path, take)
        self.client = DoorClient(path)

    async def __aenter__(self) -> tuple[StatsDoor, DoorClient]:
        await self.door.start()
        await self.client.__aenter__()
        return self.door, self.client

    async def __aexit__(self, *_error: object) -> None:
        await self.client.aclose()
        await self.door.aclose()


@pytest.mark.parametrize("turns", range(0, 60, 7))
async def test_a_door_is_closed_at_any_moment(path: Path, turns: int) -> None:
    door = door_at(path, lambda: stats_of_many(300))
    await door.start()
    with socket.socket(socket.AF_UNIX) as client, socket.socket(socket.AF_UNIX) as other:
        for each, request in ((client, b'{"watch": 50}\n'), (other, b'{"get": "stats"}\n' * 9)):
            each.connect(str(path))
            each.send(request)
        for _ in range(turns):
            await asyncio.sleep(0)
        closing = asyncio.ensure_future(door.aclose())
        await asyncio.sleep(0)
        # Whoever closes may be cancelled too, and close again.
        closing.cancel()
        with suppress(asyncio.CancelledError):
            await closing
        await door.aclose()
    assert not is_there(path)
    assert (door.client_count, len(door._tasks), door._watches) == (0, 0, {})


async def test_a_door_goes_on_when_the_system_has_no_more_files(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door_module, "ACCEPT_PAUSE_S", 0)
    errors = [OSError(24, "Too many open files"), ConnectionAbortedError(), BlockingIOError()]
    door = door_at(path)
    await door.start()
    opened = door._socket
    assert opened is not None
    listener = opened.listener

    class Failing:
        def fileno(self) -> int:
            return listener.fileno()

        def accept(self) -> Any:
            if errors:
                raise errors.pop()
            return listener.accept()

        def close(self) -> None:
            listener.close()

    monkeypatch.setattr(opened, "listener", Failing())
    with captured_logs() as lines:
        async with DoorClient(path) as client:
            assert await client.get_stats() == stats()
    assert not errors
    assert [each["event"] for each in lines] == ["door_accepts_nobody"]
    monkeypatch.undo()
    await door.aclose()


async def test_a_door_is_closed_while_the_system_has_no_more_files(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    door = door_at(path)
    await door.start()
    opened = door._socket
    assert opened is not None

    class Failing:
        def fileno(self) -> int:
            return real.fileno()

        def accept(self) -> Any:
            raise OSError(24, "Too many open files")

    real, opened.listener = opened.listener, Failing()  # type: ignore[assignment]
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        await until(lambda: door._pause is not None)
        opened.listener = real
        await door.aclose()
    assert not is_there(path)


# A client at something that is no door.


async def test_a_client_says_why_there_is_no_door(path: Path) -> None:
    with pytest.raises(DriverError, match="there is no door"):
        await DoorClient(path).__aenter__()
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(path))
    with pytest.raises(DriverError, match="nobody listens at"):
        await DoorClient(path).__aenter__()
    os.unlink(path)  # noqa: PTH108 - it takes no time


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (PermissionError(), "run as the user of its process"),
        (OSError(5, "Input/output error"), "cannot be used: Input/output error"),
    ],
)
async def test_a_client_says_why_the_system_refuses_it(
    path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, text: str
) -> None:
    async def refuse(*_arguments: Any, **_more: Any) -> None:
        raise error

    monkeypatch.setattr(asyncio, "open_unix_connection", refuse)
    async with served(path):
        with pytest.raises(DriverError, match=text):
            await DoorClient(path).__aenter__()


async def test_a_client_refuses_the_door_of_another_user(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uid = os.geteuid() + 1
    async with served(path):
        monkeypatch.setattr(door_module, "peer_uid", lambda _sock: uid)
        with pytest.raises(DriverError, match=f"of a process of user {uid}, and"):
            await DoorClient(path).__aenter__()
        uid = 0
        async with DoorClient(path) as client:
            assert client.hello.pid == 1


async def test_a_client_says_that_too_many_wait(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as door, socket.socket(socket.AF_UNIX) as other:
        door.bind(str(path))
        door.listen(0)
        other.connect(str(path))
        with pytest.raises(DriverError, match="cannot be used: Resource temporarily"):
            await DoorClient(path).__aenter__()
    os.unlink(path)  # noqa: PTH108 - it takes no time


@pytest.mark.parametrize("end", [b"", b"\n"])
async def test_a_client_takes_no_long_greeting(path: Path, end: bytes) -> None:
    async with served(path, b"a" * (1 << 20) + end, is_greeting=False):
        with pytest.raises(ProtocolError, match="greeting is longer than 65,536 bytes"):
            await DoorClient(path, timeout=PATIENCE_S).__aenter__()


@pytest.mark.parametrize(
    ("lines", "error", "text"),
    [
        ([b"SSH-2.0\x1b[2J\n"], ProtocolError, r"is no door: it says SSH-2.0\\x1b"),
        ([b"[]\n"], ProtocolError, "is no door"),
        ([b"7\n"], ProtocolError, "is no door"),
        ([b'{"hello":1}\n'], ProtocolError, "is no door"),
        ([b'{"hello":1,"pid":1e999,"version":"","serves":[]}\n'], ProtocolError, "is no door"),
        ([b'{"hello":2}\n'], ProtocolError, "speaks version 2 of the protocol"),
        ([b'{"error":"no \\u001b room"}\n'], DriverError, r"answers: no \\x1b room"),
    ],
)
async def test_a_client_is_told_what_is_no_door(
    path: Path, lines: list[bytes], error: type[AeronError], text: str
) -> None:
    async with served(path, *lines, is_greeting=False):
        with pytest.raises(error, match=text):
            await DoorClient(path).__aenter__()


@pytest.mark.parametrize(
    "line",
    [
        b"7\n",
        b"x\n",
        b"{}\n",
        b'{"get":"stats"}\n',
        b'{"get":"stats","value":7}\n',
        b'{"get":"stats","value":{"source":1}}\n',
        b"[" * 100_000 + b"\n",
    ],
)
async def test_an_answer_that_is_none_is_an_error(path: Path, line: bytes) -> None:
    async with served(path, line), DoorClient(path) as client:
        with pytest.raises(ProtocolError, match=r"sent no answer|no statistics of a driver"):
            await client.get_stats()


async def test_an_answer_that_is_too_long_ends_the_client(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door_module, "REPLY_MAX", 100_000)
    async with served(path, b"a" * 300_000 + b"\n"), DoorClient(path) as client:
        for _ in range(2):
            with pytest.raises(ProtocolError, match="longer than 100,000 bytes"):
                await client.get_stats()


async def test_a_door_that_says_nothing_is_waited_for_a_time(path: Path) -> None:
    async with served(path, is_greeting=False):
        with pytest.raises(AeronTimeoutError, match=r"said nothing within 0\.01 s"):
            await DoorClient(path, timeout=0.01).__aenter__()
    async with served(path), DoorClient(path) as client:
        client._timeout = 0.01
        with pytest.raises(AeronTimeoutError, match="did not answer about 'stats'"):
            await client.get_stats()
        with pytest.raises(AeronTimeoutError, match="sent no statistics"):
            await anext(client.watch(0.05))


async def test_a_client_that_was_closed_says_so(path: Path) -> None:
    async with door_at(path):
        client = DoorClient(path)
        async with client:
            watching = client.watch(60)
            await anext(watching)
            waiting = asyncio.ensure_future(anext(watching))
            await asyncio.sleep(0)
        with pytest.raises(ClosedError, match="was closed"):
            await waiting
        with pytest.raises(ClosedError, match="was closed"):
            await client.get_stats()
        await client.aclose()


@pytest.mark.parametrize("turns", range(6))
async def test_a_client_that_is_cancelled_while_it_comes_leaves_nothing(
    path: Path, turns: int
) -> None:
    async with door_at(path) as door:
        client = DoorClient(path)
        task = asyncio.ensure_future(client.__aenter__())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await client.aclose()
        await until(lambda: door.client_count == 0)


async def test_errors_are_new_for_each_who_asks(path: Path) -> None:
    async with served(path, b""), DoorClient(path) as client:
        client._fail(DriverError("it has ended"))
        found = await asyncio.gather(client.get("a"), client.get("b"), return_exceptions=True)
        assert found[0] is not found[1]
        assert {str(each) for each in found} == {"it has ended"}


def test_a_greeting_is_a_value() -> None:
    hello = DoorHello(1, "1", ("stats",))
    assert attrs.astuple(hello) == (1, "1", ("stats",))
