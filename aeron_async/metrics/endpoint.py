"""A small HTTP server for `/metrics`, `/live` and `/ready`, in the event loop of the driver.

It answers one request a connection. `/live` says that the loop turns, for it is the loop that
answers; `/ready` says whether the service does its work, and why not.

Invariant: whatever a client sends, and however slowly it sends or reads, it takes one of a few
places, for a bounded time, and a bounded amount of memory; what was refused is counted by reason.
A page is written metric by metric, and the loop turns in between.

Source: RFC 9110, RFC 9112.
"""

from __future__ import annotations

import asyncio
import errno
import os
import platform
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from inspect import isawaitable
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, cast, final

import attrs

from aeron_async.clock import SystemClock
from aeron_async.errors import ConfigurationError
from aeron_async.logs import get_logger
from aeron_async.metrics.latest import TAKEN, loop_name
from aeron_async.metrics.series import MetricSeries
from aeron_async.metrics.text import CONTENT_TYPE, write_metrics
from aeron_async.protocol.arguments import check_function, check_number, shown
from aeron_async.stats import Stats, check_stats
from aeron_async.tasks import TaskOwner, Turns
from aeron_async.text import SHORT, printable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

__all__ = ["MetricsServer", "ServerLimits", "serve_metrics", "why_not_listening"]

PLAIN: Final = "text/plain; charset=utf-8"
PORT_MAX: Final = 65_535
PATHS: Final = ("/metrics", "/live", "/ready")
METHODS: Final = ("GET", "HEAD")
REASONS_MAX: Final = 100
"""Most reasons that `/ready` names."""
LEFTOVER_MAX: Final = 65_536
"""Most bytes that are read and dropped after an answer, so that it is not lost with them."""
BACKLOG: Final = 16
PORT_ERRORS: Final = (errno.EADDRINUSE, errno.EACCES, errno.EPERM)
"""Errors of listening for which another port may help."""
REQUEST_LINE: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([!-~]+) HTTP/1\.([01])")
TOKEN: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
HOST: Final = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::[0-9]{1,5})?"
)
_log: Final = get_logger(__name__)


@attrs.frozen(kw_only=True)
class ServerLimits:
    """What a client may take.

    Attributes:
        request_bytes: Longest request line with headers.
        request_s: Longest time to send them, in seconds.
        answer_s: Longest time to read the answer, in seconds.
        leftover_s: How long the server waits for the client to close afterwards, in seconds.
        connections: Most connections at once.

    Raises:
        ConfigurationError: A limit is not above 0.
    """

    request_bytes: int = 8_192
    request_s: float = 5.0
    answer_s: float = 10.0
    leftover_s: float = 1.0
    connections: int = 8

    def __attrs_post_init__(self) -> None:
        for name, value in attrs.asdict(self).items():
            if not value > 0:
                message = f"{name}={value} must be above 0"
                raise ConfigurationError(message)


class RefusedError(Exception):
    """A request that gets an error: a status, and the reason by which it is counted."""

    def __init__(self, status: HTTPStatus, reason: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason
        self.text = text


@attrs.frozen
class Answer:
    """What is sent: a body in pieces, which a request with HEAD does not get."""

    status: HTTPStatus
    pieces: Sequence[bytes]
    content_type: str = PLAIN

    def head(self, *, with_length: bool) -> bytes:
        """Return the status line and the headers."""
        lines = [
            f"HTTP/1.1 {self.status.value} {self.status.phrase}",
            f"Content-Type: {self.content_type}",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            "Connection: close",
        ]
        if with_length:
            lines.append(f"Content-Length: {sum(map(len, self.pieces))}")
        if self.status is HTTPStatus.METHOD_NOT_ALLOWED:
            lines.append(f"Allow: {', '.join(METHODS)}")
        return "\r\n".join([*lines, "", ""]).encode("ascii")


@final
class MetricsServer:
    """The server; `serve_metrics` starts and closes it.

    Attributes:
        port: The port at which it listens.
        refused: What was refused, by reason.
    """

    def __init__(
        self,
        take: Callable[[], Stats | Awaitable[Stats]],
        *,
        ready: Callable[[], Sequence[str]],
        max_series: int,
        limits: ServerLimits,
        label_recordings: bool,
    ) -> None:
        self._take = take
        self._ready = ready
        self._limits = limits
        info = {"kernel": platform.release(), "loop": loop_name()}
        self._series = MetricSeries(max_series, info, label_recordings=label_recordings)
        self._writing = asyncio.Lock()
        self._tasks = TaskOwner()
        self._checks_host = True
        self._is_closed = False
        self._is_failing = False
        self.port = 0
        self.refused: Counter[str] = Counter()

    async def start(self, host: str, port: int) -> asyncio.Server:
        """Listen; the caller closes the server that is returned.

        Raises:
            OSError: The address cannot be listened at.
        """
        try:
            server = await asyncio.start_server(
                self._on_client, host, port, limit=self._limits.request_bytes, backlog=BACKLOG
            )
        except OSError as error:
            why = why_not_listening(
                error, host, port, address_setting="`host`", port_setting="`port`"
            )
            raise (OSError(why) if error.errno is None else OSError(error.errno, why)) from None
        addresses = [each.getsockname() for each in server.sockets]
        self.port = addresses[0][1]
        self._checks_host = all(is_loopback(each[0]) for each in addresses)
        return server

    async def aclose(self) -> None:
        """End all connections, also those that the loop has accepted and not handed over yet."""
        self._is_closed = True
        await self._tasks.aclose()

    def _on_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Give a client a place, or refuse it; no task is made for what is refused."""
        if self._is_closed:
            writer.transport.abort()
            return
        if len(self._tasks) >= self._limits.connections:
            self.refused["busy"] += 1
            text = f"all {self._limits.connections} connections are in use\n".encode("ascii")
            answer = Answer(HTTPStatus.SERVICE_UNAVAILABLE, [text])
            writer.write(answer.head(with_length=True) + text)
            writer.close()
            return
        task = self._tasks.start(self._serve(reader, writer), "metrics-client")
        # Not at the end of the task itself, which may be cancelled before it has begun.
        task.add_done_callback(lambda _: writer.transport.abort())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, and end the connection."""
        try:
            is_head = False
            try:
                method, path = await self._request(reader)
                is_head = method == "HEAD"
                answer = await self._answer(method, path)
            except RefusedError as refused:
                self.refused[refused.reason] += 1
                answer = Answer(refused.status, [f"{printable(refused.text)}\n".encode()])
            await self._send(writer, answer, is_head=is_head)
            await self._let_go(reader, writer)
        except TimeoutError:
            self.refused["slow_reader"] += 1
        except (OSError, EOFError):
            self.refused["gone"] += 1

    async def _request(self, reader: asyncio.StreamReader) -> tuple[str, str]:
        """Return the method and the path of a request."""
        limits = self._limits
        try:
            async with asyncio.timeout(limits.request_s):
                head = await reader.readuntil(b"\r\n\r\n")
        except TimeoutError:
            text = f"the request took longer than {limits.request_s} s"
            raise RefusedError(HTTPStatus.REQUEST_TIMEOUT, "slow_request", text) from None
        except asyncio.LimitOverrunError:
            text = f"the request line and headers are longer than {limits.request_bytes} bytes"
            raise RefusedError(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "long_request", text
            ) from None
        return parsed(head, checks_host=self._checks_host)

    async def _answer(self, method: str, path: str) -> Answer:
        if path not in PATHS:
            text = f"there is no {printable(path, SHORT)}, only {', '.join(PATHS)}"
            raise RefusedError(HTTPStatus.NOT_FOUND, "path", text)
        if method not in METHODS:
            text = f"{printable(method, SHORT)} is not allowed, only {' and '.join(METHODS)}"
            raise RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, "method", text)
        if path == "/live":
            return Answer(HTTPStatus.OK, [b"live\n"])
        try:
            if path == "/ready":
                return ready_answer(self._ready())
            if method == "HEAD":
                return Answer(HTTPStatus.OK, [], CONTENT_TYPE)
            pieces = await self._page()
        except Exception as error:
            # `take` and `ready` are the caller's: a driver may be closed, a check may fail.
            why = f"{type(error).__name__}: {printable(str(error))}"
            if not self._is_failing:
                _log.error("metrics_not_served", path=path, error=why, exc_info=error)
            self._is_failing = True
            text = f"{path} failed: {why}"
            raise RefusedError(HTTPStatus.INTERNAL_SERVER_ERROR, "failed", text) from error
        self._is_failing = False
        return Answer(HTTPStatus.OK, pieces, CONTENT_TYPE)

    async def _page(self) -> list[bytes]:
        """Write the page, one at a time, with turns of the loop in between."""
        pieces: list[bytes] = []
        async with self._writing:
            taken = self._take()
            stats = check_stats(await taken if isawaitable(taken) else taken, TAKEN)
            now_ns, turns = SystemClock.now_ns(), Turns(SystemClock.now_ns)
            for piece in write_metrics(stats, self._series, now_ns=now_ns, refused=self.refused):
                pieces.append(piece.encode())
                await turns.step()
        return pieces

    async def _send(self, writer: asyncio.StreamWriter, answer: Answer, *, is_head: bool) -> None:
        """Send all of an answer to a client that reads.

        Raises:
            TimeoutError: It does not, or not fast enough.
        """
        is_whole = is_head and not answer.pieces
        writer.transport.set_write_buffer_limits(0)
        async with asyncio.timeout(self._limits.answer_s):
            writer.write(answer.head(with_length=not is_whole))
            for piece in () if is_head else answer.pieces:
                writer.write(piece)
                await writer.drain()
            await writer.drain()

    async def _let_go(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """End our side, and wait for the other: closing on unread bytes would reset the answer."""
        if writer.can_write_eof():
            writer.write_eof()
        left = LEFTOVER_MAX
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.leftover_s):
                while left > 0 and (dropped := await reader.read(left)):
                    left -= len(dropped)


@asynccontextmanager
async def serve_metrics(
    take: Callable[[], Stats | Awaitable[Stats]],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    ready: Callable[[], Sequence[str]] = tuple,
    max_series: int = 500,
    limits: ServerLimits | None = None,
    label_recordings: bool = False,
) -> AsyncGenerator[MetricsServer]:
    """Serve metrics over HTTP for as long as the block runs.

    At a loopback address, requests must name this machine as their `Host`, so that no web page can
    read them by a name of its own (DNS rebinding). At another address everybody who reaches it can
    read all: there is no password.

    Args:
        take: Takes a snapshot, or returns what to await for one, such as `aeron.gather_stats`;
            called in this event loop.
        host: The address at which to listen; other than loopback only if you say so here.
        port: The port; 0 for any, which `server.port` names.
        ready: Returns why the service is not ready, as texts; none if it is.
        max_series: Most series of a metric; see `MetricsText`.
        limits: What a client may take.
        label_recordings: Whether each active recording of an archive has series of its own.

    Raises:
        ConfigurationError: An argument is not valid.
        OSError: The address cannot be listened at.
    """
    if not callable(cast("object", take)):
        message = (
            f"take={shown_or_type(take)} must be a function that returns a snapshot, or what to "
            "await for one: name it, such as `aeron.gather_stats`, and do not call it"
        )
        raise ConfigurationError(message)
    check_function(ready, "ready")
    check_number(port, "port", minimum=0, maximum=PORT_MAX)
    if not host:
        message = "host='' would listen at all addresses: say 0.0.0.0 or :: if you mean that"
        raise ConfigurationError(message)
    server = MetricsServer(
        take,
        ready=ready,
        max_series=max_series,
        limits=limits or ServerLimits(),
        label_recordings=label_recordings,
    )
    listening = await server.start(host, port)
    try:
        yield server
    finally:
        listening.close()
        await server.aclose()


def shown_or_type(value: object) -> str:
    """Return a wrong argument for an error; of a snapshot, which is long, its type."""
    return type(value).__name__ if isinstance(value, Stats) else shown(value)


def why_not_listening(
    error: OSError, address: str, port: int, *, address_setting: str, port_setting: str
) -> str:
    """Return why nobody can listen at an address, and which setting to change.

    Args:
        error: What the system said.
        address: An address, or a name.
        port: A port.
        address_setting: How the caller has chosen the address.
        port_setting: How the caller has chosen the port.
    """
    code = error.errno or 0
    said = os.strerror(code) if code > 0 else error.strerror or str(error)
    remedy = (
        f"choose another {port_setting}, or 0 for one that is free"
        if code in PORT_ERRORS
        else f"{address_setting} must be an address of this machine, such as 127.0.0.1"
    )
    return f"{printable(address, SHORT)} port {port} cannot be listened at: {said}; {remedy}"


def ready_answer(reasons: object) -> Answer:
    """Return 200, or 503 with the reasons, a line each.

    Raises:
        ConfigurationError: These are no reasons. False, say, must not count as none.
    """
    if isinstance(reasons, str):
        reasons = [reasons]
    if not isinstance(reasons, Sequence) or isinstance(reasons, bytes):
        message = (
            f"`ready` has returned {shown_or_type(reasons)}, and must return a list of texts: why "
            "the service is not ready, and no text if it is"
        )
        raise ConfigurationError(message)
    if not reasons:
        return Answer(HTTPStatus.OK, [b"ready\n"])
    lines = [printable(each) for each in reasons[:REASONS_MAX]]
    if len(reasons) > REASONS_MAX:
        lines.append(f"... and {len(reasons) - REASONS_MAX} more reasons")
    return Answer(HTTPStatus.SERVICE_UNAVAILABLE, ["\n".join([*lines, ""]).encode()])


def parsed(head: bytes, *, checks_host: bool) -> tuple[str, str]:
    """Return the method and the path of a request line with headers.

    Raises:
        RefusedError: It is no request, or for another host.
    """
    first, *lines = head[: -len(b"\r\n\r\n")].split(b"\r\n")
    request = REQUEST_LINE.fullmatch(first)
    headers = [line.partition(b":") for line in lines]
    # No pattern for a whole header: one with several places for blanks is slow on 8 KiB of them.
    if request is None or not all(
        colon and TOKEN.fullmatch(name) and not CONTROL.search(value)
        for name, colon, value in headers
    ):
        raise RefusedError(HTTPStatus.BAD_REQUEST, "malformed", "this is no HTTP/1.1 request")
    method, target, minor = (each.decode("ascii") for each in request.groups())
    hosts = [
        value.strip(b" \t").decode("latin-1")
        for name, _, value in headers
        if name.lower() == b"host"
    ]
    if len(hosts) > 1 or (not hosts and minor == "1"):
        text = f"a request needs one Host header, and this one has {len(hosts)}"
        raise RefusedError(HTTPStatus.BAD_REQUEST, "malformed", text)
    if checks_host and hosts and not is_this_machine(hosts[0]):
        text = f"Host {printable(hosts[0], SHORT)!r} is not this machine: use localhost"
        raise RefusedError(HTTPStatus.MISDIRECTED_REQUEST, "host", text)
    return method, target.partition("?")[0]


def is_this_machine(host: str) -> bool:
    """Return whether a `Host` header names a loopback address; the port may be a forwarded one."""
    found = HOST.fullmatch(host)
    if found is None:
        return False
    return (found["name"] or "").lower() == "localhost" or is_loopback(found["v6"] or found["name"])


def is_loopback(address: str) -> bool:
    """Return whether this is a literal loopback address."""
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False
