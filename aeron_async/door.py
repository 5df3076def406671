"""The door: a Unix socket at which a process shows its statistics to tools of its own user.

One JSON object a line, in both directions; `docs/reference/stats-door.md` has the protocol. The
door belongs to the event loop of its driver, so it must not hold that up: a snapshot is taken and
encoded once for all who look at the same interval, in pieces, with a turn of the loop after each.
Where others take snapshots too, such as an endpoint of metrics, a watch shows theirs if it is new.

Who may come in: a process of the same user or of root. The socket has mode 0600 before it has a
name, its folder may be written by nobody else, and the system says whose process each client is.

Invariant: without a client nothing runs. Clients, request lines, intervals, states that wait, and
the time that a client does not read have limits, and what reaches one is counted.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from contextlib import suppress
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, Self, final
from weakref import WeakSet

import attrs

from aeron_async.clock import NS_PER_MS, NS_PER_SECOND, SystemClock
from aeron_async.door_connection import REQUEST_MAX, DoorConnection, DoorWatch, Line
from aeron_async.door_socket import (
    DoorSocket,
    check_path,
    close_in_child,
    is_own,
    peer_uid,
    refusal_of,
)
from aeron_async.errors import (
    AeronError,
    AeronTimeoutError,
    BusyError,
    ClosedError,
    ConfigurationError,
    DriverError,
    ProtocolError,
)
from aeron_async.logs import LogBudget, get_logger
from aeron_async.stats import Stats
from aeron_async.stats_json import Kept, decode_json, encode_json, json_pieces
from aeron_async.tasks import TaskOwner, Turns
from aeron_async.text import SHORT, printable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
    from types import TracebackType

__all__ = ["DoorClient", "DoorHello", "StatsDoor"]

PROTOCOL: Final = 1
"""What a greeting says; a client refuses any other."""
STATS: Final = "stats"
CLIENTS_MAX: Final = 8
REPLY_MAX: Final = 64 * 1024 * 1024
"""Longest line of a door, in bytes."""
GREETING_MAX: Final = 64 * 1024
"""Longest greeting that a client takes, in bytes."""
CHUNK: Final = 64 * 1024
"""Bytes that are written in one turn of the loop."""
INTERVAL_MIN_MS: Final = 50
INTERVAL_MAX_MS: Final = 60_000
FRESH_NS: Final = 20 * NS_PER_MS
"""How old a snapshot may be that answers one more request: less than the shortest interval."""
RECENT_PERCENT: Final = 75
RECENT_MAX_NS: Final = 750 * NS_PER_MS
"""How old a snapshot that others took may be for a watch: a part of its interval, and so much."""
ACCEPT_PAUSE_S: Final = 1.0
"""How long the door waits after an error such as too many open files."""
CLIENT_TIMEOUT_S: Final = 5.0
MS_PER_SECOND: Final = 1_000
NO_UID: Final = -1
"""User of the other end of a socket that is not connected."""


# The lines.


def line_of(**members: object) -> bytes:
    """Return a short line."""
    return encode_json(members) + b"\n"


def text_of(error: BaseException) -> str:
    """Return the text of an error for a client."""
    return printable(str(error) or type(error).__name__)


async def chunks_of(value: object, kept: Kept | None = None) -> list[bytes]:
    """Return the JSON of a value in chunks; the loop turns while it is made.

    Args:
        value: What is served.
        kept: See `json_pieces`.

    Raises:
        TypeError: JSON has nothing for a part of it.
        ValueError: It is longer than a line may be.
    """
    chunks: list[bytes] = []
    pieces: list[bytes] = []
    length = total = 0
    turns = Turns(SystemClock.now_ns)
    for piece in json_pieces(value, kept):
        pieces.append(piece)
        length += len(piece)
        if length >= CHUNK:
            chunks.append(b"".join(pieces))
            total += length
            pieces, length = [], 0
            if total > REPLY_MAX:
                message = f"it is longer than the {REPLY_MAX:,} bytes that a line may have"
                raise ValueError(message)
        await turns.step()
    chunks.append(b"".join(pieces))
    return chunks


# The server.


@final
class StatsDoor:
    """Serves statistics to tools at a Unix socket.

    `start` opens it and `aclose` closes it; `async with` does both.

    Args:
        path: Where the socket is made; others must not be able to write its folder.
        take: Takes a snapshot, or returns what to await for one; called in the event loop, and only
            while a client asks.
        version: Version of the program, for the greeting.
        pid: Process id, for the greeting.
        recent: Returns the snapshot that was taken last, whoever has asked for it; None if none.
        extra: What is served beside the statistics, by name: each is called in the event loop, and
            returns a text or anything else that JSON takes, or what to await for one. Texts and
            lists are encoded in pieces.
        max_clients: Most clients at once; the next one is told so.

    Attributes:
        client_count: Clients that are connected.
        refused_client_count: Clients that came when there were too many.
        foreign_client_count: Clients of another user.
        slow_client_count: Clients that were dropped because they did not read.
        replaced_state_count: States that a client did not get because a newer one came.
        failed_request_count: Requests that no answer was made for.

    Raises:
        ConfigurationError: The path, a name or the limit is not valid.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        take: Callable[[], Stats | Awaitable[Stats]],
        *,
        version: str,
        pid: int,
        recent: Callable[[], Stats | None] | None = None,
        extra: Mapping[str, Callable[[], object]] | None = None,
        max_clients: int = CLIENTS_MAX,
    ) -> None:
        self.path: Final = check_path(path)
        self._take = take
        self._recent = recent
        self._extra = dict(extra or {})
        if STATS in self._extra or "" in self._extra:
            message = f"a door serves {STATS!r} itself, and nothing without a name: rename `extra`"
            raise ConfigurationError(message)
        if max_clients < 1:
            message = f"max_clients is {max_clients}, and at least 1 is needed"
            raise ConfigurationError(message)
        self._max_clients = max_clients
        self._serves = [STATS, *self._extra]
        self._hello = line_of(hello=PROTOCOL, pid=pid, version=version, serves=self._serves)
        self._socket: DoorSocket | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._tasks = TaskOwner(self._on_failed)
        self._connections: set[DoorConnection] = set()
        self._watches: dict[int, DoorWatch] = {}
        self._encoding = asyncio.Lock()
        self._state: list[bytes] = []
        # Of the state, as long as there is one.
        self._kept: Kept = {}
        self._state_ns = 0
        self._shown_ns = 0
        self._clock = SystemClock()
        self._budget = LogBudget(self._clock.now_ns)
        self._peers_log = self._budget.on(_log)
        self.client_count = 0
        self.refused_client_count = 0
        self.foreign_client_count = 0
        self.slow_client_count = 0
        self.replaced_state_count = 0
        self.failed_request_count = 0

    async def start(self) -> None:
        """Open the door.

        Raises:
            ConfigurationError: Others may write the folder, or what is at the path is no socket.
            DoorInUseError: A process listens at the path.
            BusyError: It is open.
            ClosedError: It was closed.
        """
        if self._is_closed:
            message = f"the door {self.path} was closed: make another one"
            raise ClosedError(message)
        if self._socket is not None:
            message = f"the door {self.path} is open already"
            raise BusyError(message)
        # Nothing here waits, so that a task that is cancelled leaves nothing behind.
        self._socket = DoorSocket(self.path)
        OPEN.add(self)
        self._listen()
        _log.info("door_opened", path=self.path)

    async def aclose(self) -> None:
        """Close the door, and every connection at once; a second call does nothing."""
        self.close()
        await self._tasks.aclose()

    def close(self) -> None:
        """Close the door; `aclose` also waits until every connection is closed."""
        self._is_closed = True
        opened, self._socket = self._socket, None
        if opened is not None:
            if self._pause is None:
                asyncio.get_running_loop().remove_reader(opened.listener)
            else:
                self._pause.cancel()
            opened.close()
            self._budget.close()
            _log.info("door_closed", path=self.path)
        self._tasks.cancel()

    def on_forked(self) -> None:
        """Leave the door to the parent; called in a child process.

        The event loop is not touched: what it waits for is shared with the parent.
        """
        self._is_closed = True
        opened, self._socket = self._socket, None
        if opened is not None:
            opened.on_forked()
        for each in self._connections:
            each.on_forked()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def _on_failed(self, task: asyncio.Task[Any]) -> None:
        _log.error("door_task_failed", task=task.get_name(), exc_info=task.exception())

    # Who comes in. Not by `sock_accept`: a task that is cancelled may lose a client that has just
    # been accepted.

    def _listen(self) -> None:
        self._pause = None
        if self._socket is not None:
            asyncio.get_running_loop().add_reader(self._socket.listener, self._accept)

    def _accept(self) -> None:
        """Let one client in; the loop calls again while more wait."""
        if self._socket is None:
            return
        listener = self._socket.listener
        try:
            sock, _ = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            self._peers_log.warning("door_accepts_nobody", path=self.path, error=str(error))
            loop = asyncio.get_running_loop()
            loop.remove_reader(listener)
            self._pause = loop.call_later(ACCEPT_PAUSE_S, self._listen)
            return
        self._admit(sock)

    def _admit(self, sock: socket.socket) -> None:
        """Serve a client, or refuse it."""
        sock.setblocking(False)
        uid = peer_uid(sock)
        if not is_own(uid):
            self.foreign_client_count += 1
            self._peers_log.warning("door_client_foreign", path=self.path, uid=uid)
            sock.close()
        elif self.client_count >= self._max_clients:
            self.refused_client_count += 1
            self._peers_log.warning("door_client_refused", path=self.path, limit=self._max_clients)
            text = f"the door serves {self._max_clients} clients at once: close one, or wait"
            with suppress(OSError):
                sock.send(line_of(error=text))
            sock.close()
        else:
            self.client_count += 1
            connection = DoorConnection(sock)
            self._connections.add(connection)
            task = self._tasks.start(self._serve(connection), "door client")
            # Not at the end of the task: one that is cancelled early never begins.
            task.add_done_callback(lambda _: self._on_gone(connection))

    def _on_gone(self, connection: DoorConnection) -> None:
        self.client_count -= 1
        self._connections.discard(connection)
        self._stop_watching(connection)
        connection.close()
        if connection.is_slow:
            self.slow_client_count += 1
            self._peers_log.warning("door_client_too_slow", path=self.path)
        if self.client_count == 0:
            self._state = []
            self._kept.clear()

    async def _serve(self, connection: DoorConnection) -> None:
        """Answer a client until it is gone."""
        with suppress(OSError, asyncio.IncompleteReadError):
            reader = await connection.open()
            await connection.send([self._hello])
            while True:
                try:
                    line = await reader.readuntil()
                except asyncio.LimitOverrunError:
                    text = f"a request has more than the {REQUEST_MAX:,} bytes that it may have"
                    await connection.send([line_of(error=text)])
                    return
                await self._answer(connection, line)
                await asyncio.sleep(0)

    # What it is told.

    async def _answer(self, connection: DoorConnection, line: bytes) -> None:
        try:
            request = decode_json(line)
        except ValueError:
            request = None
        match request:
            case {"get": str(name)} if len(request) == 1 and name in self._serves:
                _, answer = await self._line({"get": name}, name)
                await connection.send(answer)
            case {"watch": None} if len(request) == 1:
                self._stop_watching(connection)
            case {"watch": int(interval_ms)} if len(request) == 1 and not isinstance(
                interval_ms, bool
            ):
                await self._watch(connection, interval_ms)
            case _:
                self.failed_request_count += 1
                serves = ", ".join(self._serves)
                text = (
                    f"{printable(line.rstrip(), SHORT)} is no request: one is "
                    f'{{"get": NAME}} with one of {serves}, or {{"watch": MILLISECONDS}}'
                )
                await connection.send([line_of(error=text)])

    async def _line(
        self, head: dict[str, object], name: str, watch: DoorWatch | None = None
    ) -> tuple[bool, Line]:
        """Return whether there is what a client asks for, and the line with it, or with why not."""
        try:
            if name == STATS:
                chunks = await self._current_state(watch)
            else:
                value = self._extra[name]()
                chunks = await chunks_of(await value if isawaitable(value) else value)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client is told
            self.failed_request_count += 1
            self._peers_log.warning("door_request_failed", name=name, error=text_of(error))
            return False, (line_of(**head, error=f"there is no {name} now: {text_of(error)}"),)
        begin = encode_json(head)[:-1] + b',"value":'
        return True, (begin + chunks[0], *chunks[1:], b"}\n")

    async def _current_state(self, watch: DoorWatch | None) -> list[bytes]:
        """Return the JSON of a snapshot: one for all who ask at about the same time."""
        async with self._encoding:
            now_ns = self._clock.now_ns()
            if not self._state or now_ns - self._state_ns >= FRESH_NS:
                self._state = []
                self._state_ns = now_ns
                stats = None if watch is None else self._taken_by_others(watch, now_ns)
                if stats is None:
                    taken = self._take()
                    stats = await taken if isawaitable(taken) else taken
                else:
                    self._state_ns = min(now_ns, stats.monotonic_ns)
                self._shown_ns = stats.monotonic_ns
                self._state = await chunks_of(stats, self._kept)
            if watch is not None:
                watch.shown_ns = self._shown_ns
            return self._state

    def _taken_by_others(self, watch: DoorWatch, now_ns: int) -> Stats | None:
        """Return a snapshot that a watch has not shown and that is new enough for it, or None."""
        stats = None if self._recent is None else self._recent()
        if stats is None or stats.monotonic_ns <= watch.shown_ns:
            return None
        limit_ns = min(watch.interval_ms * NS_PER_MS * RECENT_PERCENT // 100, RECENT_MAX_NS)
        return stats if now_ns - stats.monotonic_ns < limit_ns else None

    # What it watches.

    async def _watch(self, connection: DoorConnection, interval_ms: int) -> None:
        if not INTERVAL_MIN_MS <= interval_ms <= INTERVAL_MAX_MS:
            self.failed_request_count += 1
            text = (
                f"an interval of {interval_ms} ms is not between {INTERVAL_MIN_MS} and "
                f"{INTERVAL_MAX_MS} ms"
            )
            await connection.send([line_of(watch=interval_ms, error=text)])
            return
        self._stop_watching(connection)
        watch = self._watches.get(interval_ms)
        if watch is None:
            watch = self._watches[interval_ms] = DoorWatch(interval_ms)
            watch.task = self._tasks.start(self._run(watch), f"door watch {interval_ms} ms")
        elif watch.latest is not None:
            connection.offer(watch.latest)
        watch.connections[connection] = None
        connection.watch = watch
        if not connection.is_pushing:
            connection.is_pushing = True
            self._tasks.start(connection.push(), "door client watches")

    def _stop_watching(self, connection: DoorConnection) -> None:
        watch, connection.watch = connection.watch, None
        connection.forget()
        if watch is None:
            return
        del watch.connections[connection]
        if not watch.connections:
            self._end(watch)
            assert watch.task is not None
            watch.task.cancel()

    def _end(self, watch: DoorWatch) -> None:
        if self._watches.get(watch.interval_ms) is watch:
            del self._watches[watch.interval_ms]

    async def _run(self, watch: DoorWatch) -> None:
        """Send a state at each interval, as long as somebody watches."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            is_there, line = await self._line({"watch": watch.interval_ms}, STATS, watch)
            watch.latest = line
            for each in watch.connections:
                self.replaced_state_count += each.offer(line)
            if not is_there:
                break
            # A loop that was late does not catch up, and nobody sees one snapshot twice.
            due = max(
                due + watch.interval_ms / MS_PER_SECOND, loop.time() + FRESH_NS / NS_PER_SECOND
            )
            await asyncio.sleep(due - loop.time())
        self._end(watch)
        for each in watch.connections:
            each.watch = None


OPEN: Final[WeakSet[StatsDoor | DoorClient]] = WeakSet()
"""Doors and clients that were opened; a child that is forked has copies of their sockets."""


def release_in_child() -> None:
    """Leave all of these to the parent; called in a child process, before anything else."""
    for each in list(OPEN):
        each.on_forked()


os.register_at_fork(after_in_child=release_in_child)


# The client.


@attrs.frozen
class DoorHello:
    """What a door says first.

    Attributes:
        pid: Process id of the program.
        version: Version of the program.
        serves: What it can be asked for, such as `stats`.
    """

    pid: int
    version: str
    serves: tuple[str, ...]


def value_of(line: bytes) -> Any:
    """Return what a door has answered.

    Raises:
        DriverError: It has answered with an error.
        ProtocolError: It is no answer.
    """
    try:
        answer = decode_json(line)
        if "error" in answer:
            text = printable(answer["error"])
            message = f"the door answers: {text}"
            raise DriverError(message)
        return answer["value"]
    except (ValueError, TypeError, KeyError) as error:
        message = f"the door sent no answer, but {printable(line, SHORT)}: {error!r}"
        raise ProtocolError(message) from None


def stats_of(line: bytes) -> Stats:
    """Return the statistics that a door has sent; raises as `value_of` does."""
    try:
        return Stats.from_dict(value_of(line))
    except ConfigurationError as error:
        raise ProtocolError(*error.args) from None


@final
class DoorClient:
    """A tool's end of a door, for use in an `async with` statement.

    Its tasks may ask at once, and while one of them watches.

    Args:
        path: The door, of a process of the same user or of root.
        timeout: Seconds that each answer may take.

    Attributes:
        hello: What the door said first.
    """

    hello: DoorHello

    def __init__(self, path: str | os.PathLike[str], *, timeout: float = CLIENT_TIMEOUT_S) -> None:
        self.path: Final = check_path(path)
        self._timeout = timeout
        self._tasks = TaskOwner()
        self._socket: socket.socket | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._asking = asyncio.Lock()
        self._reply: asyncio.Future[bytes] | None = None
        # Answers that come after their asker has gone.
        self._abandoned_count = 0
        self._state: bytes | None = None
        self._arrived = asyncio.Event()
        self._watch_number = 0
        self._error: AeronError | None = None

    async def __aenter__(self) -> Self:
        OPEN.add(self)
        try:
            async with asyncio.timeout(self._timeout):
                reader, self._writer = await self._connect()
                self.hello = self._greeted(await self._read_greeting(reader))
        except TimeoutError:
            await self.aclose()
            late = self._too_late("said nothing")
            raise late from None
        except BaseException:
            await self.aclose()
            raise
        self._tasks.start(self._read(reader), "door reader")
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Leave; a second call does nothing."""
        self._fail(ClosedError(f"the client of the door {self.path} was closed"))
        if self._writer is not None:
            self._writer.transport.abort()
        await self._tasks.aclose()

    def on_forked(self) -> None:
        """Leave the connection to the parent; called in a child process.

        The door then sees when the parent leaves, and keeps no place for the child.
        """
        self._error = ClosedError(
            f"this client of the door {self.path} belongs to the parent of this process"
        )
        # A socket that is closed has no number.
        if self._socket is not None and (descriptor := self._socket.fileno()) >= 0:
            close_in_child(descriptor)

    # Asking.

    async def get_stats(self) -> Stats:
        """Return the statistics as they are now, or were up to 20 ms ago.

        Raises:
            DriverError: The door has none, or has closed.
            ProtocolError: The answer is no statistics, or longer than 64 MiB.
            AeronTimeoutError: The answer takes too long.
            ClosedError: This client was closed.
        """
        return stats_of(await self._ask(STATS))

    async def get(self, name: str) -> Any:
        """Return something else that the door serves; see `hello.serves`. Raises as `get_stats`."""
        return value_of(await self._ask(name))

    async def watch(self, seconds: float = 1.0) -> AsyncGenerator[Stats, None]:
        """Yield statistics, at once and then at each interval, the newest if there are several.

        A client has one watch: a second one ends the first.

        Args:
            seconds: The interval, from 0.05 to 60.

        Raises:
            ConfigurationError: The interval is not valid.
            BusyError: Another watch took the place of this one.
            AeronError: As for `get_stats`.
        """
        shortest_s, longest_s = INTERVAL_MIN_MS / MS_PER_SECOND, INTERVAL_MAX_MS // MS_PER_SECOND
        if not shortest_s <= seconds <= longest_s:
            message = f"an interval of {seconds} s is not between {shortest_s} and {longest_s} s"
            raise ConfigurationError(message)
        self._watch_number += 1
        number = self._watch_number
        self._state = None
        # Of the watch before, which looks up now.
        self._arrived.set()
        self._arrived = asyncio.Event()
        self._send({"watch": round(seconds * MS_PER_SECOND)})
        try:
            while True:
                yield stats_of(await self._next_state(number, seconds + self._timeout))
        finally:
            if number == self._watch_number and self._error is None:
                self._send({"watch": None})

    async def _next_state(self, number: int, timeout: float) -> bytes:
        arrived = self._arrived
        if number == self._watch_number and self._state is None and self._error is None:
            try:
                async with asyncio.timeout(timeout):
                    await arrived.wait()
            except TimeoutError:
                late = self._too_late("sent no statistics")
                raise late from None
        if number != self._watch_number:
            message = f"another watch of the door {self.path} took the place of this one"
            raise BusyError(message)
        line, self._state = self._state, None
        arrived.clear()
        if line is None:
            raise self._failure()
        return line

    async def _ask(self, name: str) -> bytes:
        async with self._asking:
            self._send({"get": name})
            reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
            self._reply = reply
            try:
                async with asyncio.timeout(self._timeout):
                    return await reply
            except TimeoutError:
                late = self._too_late(f"did not answer about {name!r}")
                raise late from None
            finally:
                self._reply = None
                self._abandoned_count += reply.cancelled()

    def _send(self, request: dict[str, object]) -> None:
        if self._error is not None:
            raise self._failure()
        assert self._writer is not None, "a client of a door is used in `async with`"
        self._writer.write(encode_json(request) + b"\n")

    def _failure(self) -> AeronError:
        assert self._error is not None
        return type(self._error)(*self._error.args)

    def _too_late(self, what: str) -> AeronTimeoutError:
        return AeronTimeoutError(
            f"the door {self.path} {what} within {self._timeout} s: its process is busy or stopped"
        )

    # Hearing.

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            return await self._open()
        except OSError as error:
            raise DriverError(refusal_of(self.path, error)) from None

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a door of this user or of root: any other could show anything."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            await asyncio.get_running_loop().sock_connect(sock, self.path)
            self._check_owner(sock)
            self._socket = sock
            return await asyncio.open_unix_connection(sock=sock, limit=REPLY_MAX)
        except BaseException:
            sock.close()
            raise

    def _check_owner(self, sock: socket.socket) -> None:
        uid = peer_uid(sock)
        if uid == NO_UID:
            # The loop does not tell a full backlog from a connection that is under way.
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        if not is_own(uid):
            message = (
                f"the door {self.path} is of a process of user {uid}, and this process of user "
                f"{os.geteuid()}: use a door of your own"
            )
            raise DriverError(message)

    async def _read_greeting(self, reader: asyncio.StreamReader) -> bytes:
        """Return the first line: a short one, unlike those that the reader has room for."""
        line = bytearray()
        while not line.endswith(b"\n"):
            if len(line) == GREETING_MAX:
                message = (
                    f"{self.path} is no door: its greeting is longer than {GREETING_MAX:,} bytes"
                )
                raise ProtocolError(message)
            try:
                # Of what has come already; the loop does not turn for it.
                line += await reader.readexactly(1)
            except (asyncio.IncompleteReadError, OSError):
                raise self._gone() from None
        return bytes(line)

    def _gone(self) -> DriverError:
        return DriverError(
            f"the door {self.path} has closed: its process has ended, or this client did not read"
        )

    def _greeted(self, line: bytes) -> DoorHello:
        try:
            hello = decode_json(line)
            if "error" in hello:
                value_of(line)
            if hello["hello"] != PROTOCOL:
                message = (
                    f"the door {self.path} speaks version {printable(hello['hello'], SHORT)} of "
                    f"the protocol, and this client {PROTOCOL}: use tools of the same version"
                )
                raise ProtocolError(message)
            serves = tuple(str(each) for each in hello["serves"])
            return DoorHello(int(hello["pid"]), str(hello["version"]), serves)
        except (ValueError, TypeError, KeyError, OverflowError):
            message = f"{self.path} is no door: it says {printable(line, SHORT)}"
            raise ProtocolError(message) from None

    async def _read_line(self, reader: asyncio.StreamReader) -> bytes:
        try:
            return await reader.readuntil()
        except asyncio.LimitOverrunError:
            message = f"an answer of the door {self.path} is longer than {REPLY_MAX:,} bytes"
            raise ProtocolError(message) from None
        except (asyncio.IncompleteReadError, OSError):
            raise self._gone() from None

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                self._on_line(await self._read_line(reader))
                await asyncio.sleep(0)
        except AeronError as error:
            self._fail(error)

    def _on_line(self, line: bytes) -> None:
        """Give a line to who waits for it: its first member says what it is."""
        is_answer = not line.startswith(b'{"watch":')
        if is_answer and self._abandoned_count:
            self._abandoned_count -= 1
        elif is_answer and self._reply is not None and not self._reply.done():
            self._reply.set_result(line)
        elif not is_answer:
            self._state = line
            self._arrived.set()

    def _fail(self, error: AeronError) -> None:
        """Raise an error for all who wait, and for all who ask later."""
        if self._error is None:
            self._error = error
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(self._failure())
        self._arrived.set()


_log: Final = get_logger(__name__)
