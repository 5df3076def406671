"""The gateway: orders and cancels by HTTP and websocket, the live book to browsers.

FastAPI owns the requests and its lifespan owns Aeron: the driver, the calls and the streams open
before the first request is taken, and close after the last one.
"""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import socket
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from fastapi import FastAPI, HTTPException, Request, WebSocket
from fastapi.responses import FileResponse, PlainTextResponse, Response
from fastapi.staticfiles import StaticFiles

from aeron_async import rpc
from aeron_async.errors import RpcError
from aeron_async.metrics import MetricsText
from examples.exchange.browsers import (
    REFUSED,
    ignore,
    serve,
    show,
    take,
    tell_fills,
)
from examples.exchange.desk import Desk
from examples.exchange.matching import SYMBOLS
from examples.exchange.messages import CancelOrder
from examples.exchange.services import Account, ClientOrderId, OrderBody, Services, refusal_of
from examples.exchange.wiring import (
    CHANGES_STREAM,
    SERVICE,
    SNAPSHOTS_STREAM,
    Wiring,
    as_program,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine
    from contextlib import AbstractAsyncContextManager

    from starlette.types import ASGIApp, Receive, Scope, Send

    from examples.exchange.messages import Command

__all__ = ["UNREAD_S", "listening", "make_app"]

log = logging.getLogger("examples.exchange")

STATIC: Final = Path(__file__).parent / "static"
ORDER_TIMEOUT_S: Final = 15.0
HERE: Final = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)
"""The names of this machine: by another one, a page from elsewhere could be taken for ours."""
LENGTH: Final = re.compile(r"[0-9]{1,9}")
UNREAD_S: Final = 20
BODY_MOST: Final = 4_096
"""Bytes of a request; its length must be known before it is read."""
HEADERS: Final = {
    b"content-security-policy": b"default-src 'self'; frame-ancestors 'none'; base-uri 'none'",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-store",
}

# The way to Aeron.


@asynccontextmanager
async def connected(wiring: Wiring) -> AsyncGenerator[Services]:
    """Open everything that requests need, and keep the desk up to date."""
    desk, text = Desk(), MetricsText()
    async with (
        wiring.client("gateway") as aeron,
        aeron.add_subscription(wiring.market_reader, CHANGES_STREAM) as changes,
        aeron.add_subscription(wiring.market_reader, SNAPSHOTS_STREAM) as snapshots,
        rpc.Client(
            aeron,
            wiring.engine,
            SERVICE,
            name="gateway",
            timeout=ORDER_TIMEOUT_S,
            connect_timeout=ORDER_TIMEOUT_S,
            ping_interval=0.25,
        ) as engine,
        asyncio.TaskGroup() as group,
    ):

        async def submit(request: bytes) -> bytes:
            # Safe to send again when the engine is lost: it knows the command by its number.
            return await engine.call("submit", request, idempotent=True)

        async def metrics() -> str:
            return text.render(await aeron.gather_stats())

        tasks = [
            group.create_task(lasting(each))
            for each in (
                desk.follow_market(changes, snapshots),
                desk.follow_fills(engine),
                desk.watch_engine(engine),
            )
        ]
        try:
            yield Services(desk, submit, metrics)
        finally:
            for each in tasks:
                each.cancel()


async def lasting(work: Coroutine[Any, Any, None]) -> None:
    """Run what a gateway cannot do without: if it fails, the process ends in order.

    An error in a task group would cancel the lifespan, of which a server takes no notice while it
    serves.
    """
    try:
        await work
    except Exception:
        log.exception("the gateway ends")
        signal.raise_signal(signal.SIGTERM)


# Requests.


def make_app(
    services: Callable[[], AbstractAsyncContextManager[Services]],
) -> FastAPI:
    """Return the application.

    Args:
        services: Opens what requests need, for as long as the application runs.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        async with services() as opened:
            app.state.services = opened
            yield

    app = FastAPI(title="A small exchange", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    add_pages(app)
    add_orders(app)
    add_streams(app)
    app.add_middleware(SameOrigin)
    return app


def services_of(each: Request | WebSocket) -> Services:
    """Return what a request needs."""
    found: Services = each.app.state.services
    return found


def add_pages(app: FastAPI) -> None:
    """Add the page, and what is to be read."""

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(STATIC / "index.html")

    @app.get("/api/symbols")
    async def symbols() -> list[str]:
        return list(SYMBOLS)

    @app.get("/api/book/{symbol}")
    async def book(request: Request, symbol: str) -> Response:
        check_symbol(symbol)
        return Response(services_of(request).desk.screen(symbol), media_type="application/json")

    @app.get("/api/status")
    async def status(request: Request) -> dict[str, Any]:
        return services_of(request).desk.status()

    @app.get("/metrics", include_in_schema=False)
    async def metrics(request: Request) -> PlainTextResponse:
        return PlainTextResponse(await services_of(request).metrics())


def check_symbol(symbol: str) -> None:
    """Refuse a symbol that is not traded."""
    if symbol not in SYMBOLS:
        raise HTTPException(404, f"unknown symbol; there are {', '.join(SYMBOLS)}")


def add_orders(app: FastAPI) -> None:
    """Add what is to be done, by HTTP."""

    async def carried_out(request: Request, command: Command) -> dict[str, Any]:
        try:
            return await services_of(request).carry_out(command)
        except RpcError as error:
            raise HTTPException(503, refusal_of(error)) from None

    @app.post("/api/orders")
    async def order(request: Request, body: OrderBody) -> dict[str, Any]:
        return await carried_out(request, body.command())

    @app.delete("/api/orders/{order_id}")
    async def cancel(
        request: Request,
        order_id: ClientOrderId,
        account: Account,
        client_order_id: ClientOrderId,
    ) -> dict[str, Any]:
        return await carried_out(request, CancelOrder(account, client_order_id, 0, order_id))


def add_streams(app: FastAPI) -> None:
    """Add the websockets: one for the live book of a symbol, one for the orders of an account."""

    @app.websocket("/ws/market")
    async def market(websocket: WebSocket, symbol: str = SYMBOLS[0]) -> None:
        if symbol in SYMBOLS:
            services = services_of(websocket)
            await serve(
                websocket,
                services,
                lambda: show(websocket, services.desk, symbol),
                lambda: ignore(websocket),
            )
        else:
            await websocket.close(REFUSED, "unknown symbol")

    @app.websocket("/ws/orders")
    async def orders(websocket: WebSocket, account: Account) -> None:
        services = services_of(websocket)
        await serve(
            websocket,
            services,
            lambda: tell_fills(websocket, services.desk, account),
            lambda: take(websocket, services, account),
        )


class SameOrigin:
    """Takes requests only by the names of this machine, and from pages of this gateway.

    Without it any page in the same browser could trade: websockets ask for no permission.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with 403, or pass the request on; see ASGI."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host, origin = headers.get(b"host", ""), headers.get(b"origin")
        is_here = HERE.fullmatch(host) is not None
        length = headers.get(b"content-length", "0")
        is_long = LENGTH.fullmatch(length) is None or int(length) > BODY_MOST
        if scope["type"] == "http" and (is_long or b"transfer-encoding" in headers):
            await PlainTextResponse("too long\n", 413)(scope, receive, send)
        elif is_here and origin in {None, f"http://{host}", f"https://{host}"}:
            await self._app(scope, receive, with_headers(send))
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": REFUSED, "reason": "another origin"})
        else:
            await PlainTextResponse("another origin\n", 403)(scope, receive, send)


def with_headers(send: Send) -> Send:
    """Return a function that sends what it is given, a response with the headers of this page."""

    async def sending(message: Any) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *HEADERS.items()]
        await send(message)

    return sending


async def main(wiring: Wiring) -> None:
    """Serve until SIGTERM or Ctrl-C, which uvicorn heeds."""
    app = make_app(lambda: connected(wiring))
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=wiring.web_port,
        ws="websockets-sansio",
        ws_max_size=BODY_MOST,
        log_level="warning",
        timeout_graceful_shutdown=3,
        lifespan="on",
    )
    await ReadyServer(config).serve(sockets=[listening(config)])


def listening(config: uvicorn.Config) -> socket.socket:
    """Return a socket whose connections the system ends if they are not read.

    A server can only close one, and waits for what was written to be read: without a browser that
    does, for ever.
    """
    found = config.bind_socket()
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1_000 * UNREAD_S)
    return found


class ReadyServer(uvicorn.Server):
    """Says when it takes requests."""

    async def startup(self, *arguments: Any, **options: Any) -> None:
        """Begin to listen, and print a line."""
        await super().startup(*arguments, **options)
        if self.started:
            print("ready", flush=True)


if __name__ == "__main__":
    as_program("gateway", main, has_own_signals=True)
