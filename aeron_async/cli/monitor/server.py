"""The HTTP server of the monitor: what a browser may ask for, and who may ask.

A connection has one request. At a loopback address a request must name this machine as its `Host`,
so that no web page can read the answer by a name of its own (DNS rebinding); at another address it
must also bring the token. Pages of other sites may ask for nothing but the page itself.

Invariant: connections, watching pages, the bytes and the time of a request, and the time that a
client does not read are bounded. No answer is kept by a browser.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import socket
from collections import Counter
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from importlib.resources import files
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, final

import attrs
import uvicorn
from starlette.requests import Request
from starlette.responses import Response
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from aeron_async.errors import ConfigurationError
from aeron_async.metrics.endpoint import HOST, is_this_machine, why_not_listening
from aeron_async.tasks import TaskOwner
from aeron_async.text import SHORT, printable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from starlette.types import Receive, Scope, Send

    from aeron_async.cli.monitor.hub import MonitorHub, WatchingPage

__all__ = [
    "Guard",
    "MonitorLimits",
    "MonitorServer",
    "is_address",
    "listening_at",
    "new_token",
    "serve_monitor",
]

TOKEN_BYTES: Final = 16
METHODS: Final = ("GET", "HEAD")
OWN_SITES: Final = frozenset({"same-origin", "none"})
"""What browsers say of a request that no other site has made."""
SEND_BUFFER_BYTES: Final = 256 * 1024
SHUTDOWN_S: Final = 0.5
"""How long pages have to take their last words."""
ABORT_S: Final = 1.0
"""How long the server may take to see that a connection was ended."""
HEADERS: Final[Mapping[str, str]] = {
    "Cache-Control": "no-store",
    # Pages that put text into the document as markup would be refused, too.
    "Content-Security-Policy": (
        "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Connection": "close",
}
MEDIA_TYPES: Final[Mapping[str, str]] = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".LICENSE": "text/plain",
}


@attrs.frozen(kw_only=True)
class MonitorLimits:
    """What browsers may take.

    Attributes:
        connections: Most connections at once.
        request_bytes: Longest request line with headers.
        answer_s: Longest time of a request with its answer, in seconds; pages that watch are apart.
        read_s: How long a page that watches may not read, in seconds.
        comment_s: Time after which a page is told that nothing is new, in seconds.
    """

    connections: int = 64
    request_bytes: int = 16_384
    answer_s: float = 15.0
    read_s: float = 5.0
    comment_s: float = 15.0


def new_token() -> str:
    """Return a token of 128 bits."""
    return secrets.token_hex(TOKEN_BYTES)


@attrs.frozen(kw_only=True)
class Guard:
    """Who may ask.

    Attributes:
        is_loopback: Whether the server listens at a loopback address.
        names: Names of this machine besides loopback ones, in small letters.
        token: What a browser must know; empty if it need not.
        cookie: The cookie that has the token.
    """

    is_loopback: bool
    names: frozenset[str] = frozenset()
    token: str = attrs.field(default="", repr=False)
    cookie: str = "aeron_async_monitor"

    def is_own(self, host: str) -> bool:
        """Return whether a `Host` header is for this server.

        At an address of the network every literal address is: no stranger can point a name of his
        own there, and the address that a browser sees may be translated on the way.
        """
        if is_this_machine(host):
            return True
        found = HOST.fullmatch(host)
        if found is None:
            return False
        if (found["name"] or "").lower() in self.names:
            return True
        return not self.is_loopback and is_address(found["v6"] or found["name"])

    def knows(self, token: str) -> bool:
        """Return whether somebody knows the token, or need not."""
        return not self.token or hmac.compare_digest(token.encode(), self.token.encode())


def is_address(text: str) -> bool:
    """Return whether this is a literal address."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


class RequestRefusedError(Exception):
    """A request that gets an error: a status, and the word by which it is counted."""

    def __init__(self, status: HTTPStatus, reason: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason


def check_request(request: Request, guard: Guard) -> None:
    """Refuse a request of a stranger.

    Raises:
        RequestRefusedError: It is for another host, of another site, or changes something.
    """
    host = request.headers.get("host", "")
    if not guard.is_own(host):
        text = (
            f"Host {printable(host, SHORT)!r} is none of this monitor's: use its address, or name "
            "it with --name"
        )
        raise RequestRefusedError(HTTPStatus.MISDIRECTED_REQUEST, "host", text)
    if request.method not in METHODS:
        origin = request.headers.get("origin")
        if origin is None or origin.lower() != f"http://{host.lower()}":
            text = "this request comes from another site"
            raise RequestRefusedError(HTTPStatus.FORBIDDEN, "origin", text)
        text = f"{printable(request.method, SHORT)} is not allowed, only {' and '.join(METHODS)}"
        raise RequestRefusedError(HTTPStatus.METHOD_NOT_ALLOWED, "method", text)
    is_foreign = request.headers.get("sec-fetch-site", "none") not in OWN_SITES
    is_link = request.url.path == "/" and request.headers.get("sec-fetch-mode") == "navigate"
    if is_foreign and not is_link:
        text = "this request comes from another site"
        raise RequestRefusedError(HTTPStatus.FORBIDDEN, "origin", text)


@final
class MonitorServer:
    """The application: an ASGI callable.

    Args:
        hub: What there is to tell.
        guard: Who may ask.
        limits: What browsers may take.

    Attributes:
        refused: What was refused, by reason.
        connection_count: Connections that are open.
        is_closed: Whether new connections are ended at once.
    """

    def __init__(self, hub: MonitorHub, guard: Guard, limits: MonitorLimits | None = None) -> None:
        self._hub = hub
        self._guard = guard
        self._boot = secrets.token_hex(4)
        self._files = static_files()
        self._pages: Mapping[str, Callable[[str], bytes | None]] = {
            "/api/stream": hub.stream,
            "/api/history": hub.history,
            "/api/driver": hub.driver,
            "/api/topology": hub.topology,
        }
        self.limits: Final = limits or MonitorLimits()
        self.refused: Counter[str] = Counter()
        self.connection_count = 0
        self.is_closed = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        assert scope["type"] == "http"
        request = Request(scope)
        try:
            response = self._response(request)
        except RequestRefusedError as refused:
            self.refused[refused.reason] += 1
            response = plain(refused.status, str(refused))
        if response is None:
            await self._events(scope, receive, send)
        else:
            await response(scope, receive, send)

    def _response(self, request: Request) -> Response | None:
        """Return the answer to a request; None for events.

        Raises:
            RequestRefusedError: It has none.
        """
        check_request(request, self._guard)
        given = request.query_params.get("token")
        if given is not None and self._guard.token:
            return self._let_in(given)
        if not self._guard.knows(request.cookies.get(self._guard.cookie, "")):
            text = (
                "This page needs the address with the token that the monitor has printed. If you "
                "came by it, put the cursor into the address bar and press Enter: a browser keeps "
                "the token back from links on other sites."
            )
            raise RequestRefusedError(HTTPStatus.UNAUTHORIZED, "token", text)
        if request.url.path != "/events":
            return self._answer(request)
        if request.method != "GET":
            # It would have no end, and nothing in it.
            text = "events can only be asked for by GET"
            raise RequestRefusedError(HTTPStatus.METHOD_NOT_ALLOWED, "method", text)
        return None

    def _let_in(self, token: str) -> Response:
        """Exchange a token for a cookie, so that the address shows it no longer."""
        if not self._guard.knows(token):
            text = "This token is not the one that the monitor has printed."
            raise RequestRefusedError(HTTPStatus.UNAUTHORIZED, "token", text)
        response = Response(
            status_code=HTTPStatus.SEE_OTHER, headers=dict(HEADERS) | {"Location": "/"}
        )
        response.set_cookie(
            self._guard.cookie, self._guard.token, path="/", httponly=True, samesite="strict"
        )
        return response

    def _answer(self, request: Request) -> Response:
        path = request.url.path
        if path in self._files:
            content, media_type = self._files[path]
            return Response(content, headers=HEADERS, media_type=media_type)
        page = self._pages.get(path)
        found = None if page is None else page(request.query_params.get("id", ""))
        if found is None:
            raise RequestRefusedError(HTTPStatus.NOT_FOUND, "path", "there is no such thing")
        return Response(found, headers=HEADERS, media_type="application/json")

    # Pages that watch.

    async def _events(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Tell a page what is new, until it leaves or all ends."""
        watcher = self._hub.enter()
        if watcher is None:
            self.refused["busy"] += 1
            text = "too many pages watch: close one, or wait"
            response = plain(HTTPStatus.SERVICE_UNAVAILABLE, text)
            await response(scope, receive, send)
            return
        head = [
            (name.lower().encode(), value.encode())
            for name, value in (
                *HEADERS.items(),
                ("Content-Type", "text/event-stream"),
                ("X-Accel-Buffering", "no"),
            )
        ]
        try:
            async with TaskOwner() as owner:
                owner.start(until_gone(receive, watcher), "monitor page leaves")
                await send({"type": "http.response.start", "status": 200, "headers": head})
                await self._tell(watcher, send)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            self._hub.slow_watcher_count += 1
            self.refused["slow_reader"] += 1
            await abort(scope, receive)
        finally:
            self._hub.leave(watcher)

    async def _tell(self, watcher: WatchingPage, send: Send) -> None:
        """Send what is new, and now and then that nothing is.

        Raises:
            TimeoutError: The page does not read.
        """
        begin = b"retry: 1000\n\n"
        while not (self._hub.is_stopped or watcher.is_gone):
            watcher.wake.clear()
            news = self._hub.news_for(watcher)
            body = begin
            if news is not None:
                kind, data = news
                head = f"id: {self._boot}-{watcher.version}\nevent: {kind}\ndata: "
                body += head.encode() + data + b"\n\n"
            elif not begin:
                try:
                    async with asyncio.timeout(self.limits.comment_s):
                        await watcher.wake.wait()
                    continue
                except TimeoutError:
                    body = b": nothing new\n\n"
            begin = b""
            async with asyncio.timeout(self.limits.read_s):
                await send({"type": "http.response.body", "body": body, "more_body": True})


def plain(status: HTTPStatus, text: str) -> Response:
    """Return an answer of one line."""
    return Response(f"{text}\n", status, headers=HEADERS, media_type="text/plain")


async def until_gone(receive: Receive, watcher: WatchingPage) -> None:
    """Wait until the browser has left."""
    await disconnected(receive)
    watcher.leave()


async def disconnected(receive: Receive) -> None:
    """Wait until a connection has ended; what comes from it is dropped."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def abort(scope: Scope, receive: Receive) -> None:
    """End a connection whose client does not read, with all that waits to be sent."""
    transport = scope.get("state", {}).get("transport")
    if transport is not None:
        transport.abort()
    # The server must see that it has gone, or would complain that the answer has no end.
    with suppress(TimeoutError):
        async with asyncio.timeout(ABORT_S):
            await disconnected(receive)


def static_files() -> dict[str, tuple[bytes, str]]:
    """Return the files of the page by their paths, with their media types."""
    found: dict[str, tuple[bytes, str]] = {}
    for each in (files("aeron_async.cli.monitor") / "static").iterdir():
        media_type = MEDIA_TYPES.get(f".{each.name.rpartition('.')[2]}")
        if media_type is not None:
            found[f"/{each.name}"] = each.read_bytes(), media_type
    found["/"] = found.pop("/index.html")
    found["/favicon.ico"] = found["/favicon.svg"]
    return found


# Connections.


class BoundedProtocol(H11Protocol):
    """One connection, which ends if its request takes too long, or if there are too many."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin a connection, or end it at once."""
        super().connection_made(transport)
        server = self.config.app
        assert isinstance(server, MonitorServer)
        server.connection_count = len(self.connections)
        self.app_state = {"transport": transport}
        if server.is_closed:
            transport.abort()
        elif len(self.connections) > server.limits.connections:
            server.refused["connections"] += 1
            transport.abort()
        self.deadline = self.loop.call_later(server.limits.answer_s, self.on_deadline, server)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        self.deadline.cancel()
        super().connection_lost(exc)
        server = self.config.app
        assert isinstance(server, MonitorServer)
        server.connection_count = len(self.connections)

    def on_deadline(self, server: MonitorServer) -> None:
        """End a connection that has no answer yet; pages that watch have a limit of their own."""
        is_watching = self.cycle is not None and self.scope["path"] == "/events"
        if not is_watching or self.cycle.response_complete:
            server.refused["slow"] += 1
            self.transport.abort()


def listening_at(address: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Raises:
        ConfigurationError: The address is no literal one, or cannot be listened at.
    """
    if not is_address(address):
        message = (
            f"{printable(address, SHORT)!r} is no address to listen at: write one such as "
            "127.0.0.1, or 0.0.0.0 for all of this machine"
        )
        raise ConfigurationError(message)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        listener = socket.create_server((address, port), family=family)
    except OSError as error:
        message = why_not_listening(
            error, address, port, address_setting="--bind", port_setting="--port"
        )
        raise ConfigurationError(message) from None
    # Connections inherit it: by itself it grows to megabytes, which a page would have to read late.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    return listener


@asynccontextmanager
async def serve_monitor(
    hub: MonitorHub, listener: socket.socket, guard: Guard, limits: MonitorLimits | None = None
) -> AsyncGenerator[MonitorServer]:
    """Serve pages for as long as the block runs; then all connections end at once.

    Args:
        hub: What there is to tell; it is stopped at the end.
        listener: The socket that listens, which is closed at the end.
        guard: Who may ask.
        limits: What browsers may take.
    """
    app = MonitorServer(hub, guard, limits)
    config = uvicorn.Config(
        app,
        interface="asgi3",
        http=BoundedProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        h11_max_incomplete_event_size=app.limits.request_bytes,
    )
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    # Not by `uvicorn.Server`, which takes the signals and looks ten times a second for its end.
    listening = await loop.create_server(
        lambda: BoundedProtocol(config, state, {}, loop), sock=listener
    )
    try:
        yield app
    finally:
        app.is_closed = True
        listening.close()
        # Pages first: an open one would hold the end up.
        hub.stop()
        if state.tasks:
            await asyncio.wait(tuple(state.tasks), timeout=SHUTDOWN_S)
        for each in tuple(state.connections):
            each.transport.abort()
        if state.tasks:
            await asyncio.wait(tuple(state.tasks), timeout=SHUTDOWN_S)
