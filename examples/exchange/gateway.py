"""The gateway: orders and cancels by HTTP and websocket, the live book to browsers.

FastAPI owns the requests and its lifespan owns Aeron: the driver, the calls and the streams open
before the first request is taken, and close after the last one. A browser has three tasks at most,
all of one task group, so that it leaves nothing behind; one that does not read is ended, and until
then holds up nothing but itself.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI, HTTPException, Query, Request, WebSocket, WebSocketDisconnect
from fastapi import Path as PathParameter
from fastapi.responses import FileResponse, PlainTextResponse, Response
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from aeron_async import rpc
from aeron_async.errors import CallFailedError, RpcError
from aeron_async.metrics import MetricsText
from examples.exchange.desk import Desk
from examples.exchange.matching import PRICE_MOST, QUANTITY_MOST, SYMBOLS
from examples.exchange.messages import ACK, CancelOrder, NewOrder, encode_command
from examples.exchange.wiring import (
    CHANGES_STREAM,
    SERVICE,
    SNAPSHOTS_STREAM,
    Wiring,
    as_program,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
    from contextlib import AbstractAsyncContextManager

    from starlette.types import ASGIApp, Receive, Scope, Send

    from examples.exchange.messages import Command, Fill

__all__ = ["Services", "make_app"]

log = logging.getLogger("examples.exchange")

STATIC: Final = Path(__file__).parent / "static"
FRAME_S: Final = 0.05
"""Least time between two pictures of the book for one browser."""
STATUS_S: Final = 1.0
PATIENCE_S: Final = 10.0
"""How long a browser may leave what it was sent unread."""
BROWSERS_MOST: Final = 64
ORDERS_AT_ONCE: Final = 16
"""Commands of one websocket that have no answer yet; it is read on when one has."""
ORDER_TIMEOUT_S: Final = 15.0
MESSAGE_MOST: Final = 1_024
"""Bytes of a message from a browser."""
SAFE_INTEGER: Final = 2**53 - 1
"""The greatest integer that JavaScript has exactly."""
TRY_AGAIN_LATER: Final = 1013
TOO_SLOW: Final = 1008
HEADERS: Final = {
    b"content-security-policy": b"default-src 'self'; frame-ancestors 'none'; base-uri 'none'",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-store",
}

Account = Annotated[str, Field(pattern=r"^[a-z0-9-]{1,16}$")]
ClientOrderId = Annotated[int, Field(ge=1, le=SAFE_INTEGER)]
Symbol = Annotated[str, Field(pattern=r"^[A-Z]{1,8}$")]


class OrderBody(BaseModel):
    """An order, as HTTP and websockets bring it."""

    type: Literal["order"] = "order"
    account: Account
    client_order_id: ClientOrderId
    symbol: Symbol
    side: Literal["BUY", "SELL"]
    kind: Literal["LIMIT", "MARKET"] = "LIMIT"
    price: Annotated[int, Field(ge=0, le=PRICE_MOST)] = 0
    quantity: Annotated[int, Field(ge=1, le=QUANTITY_MOST)]

    def command(self) -> Command:
        """Return the command; the engine sets its time."""
        return NewOrder(
            self.account,
            self.client_order_id,
            0,
            self.symbol,
            self.side,
            self.kind,
            self.price,
            self.quantity,
        )


class CancelBody(BaseModel):
    """The wish to cancel an order, as websockets bring it."""

    type: Literal["cancel"]
    account: Account
    client_order_id: ClientOrderId
    order_id: ClientOrderId

    def command(self) -> Command:
        """Return the command; the engine sets its time."""
        return CancelOrder(self.account, self.client_order_id, 0, self.order_id)


FROM_BROWSER: Final[TypeAdapter[OrderBody | CancelBody]] = TypeAdapter(
    Annotated[OrderBody | CancelBody, Field(discriminator="type")]
)


class Services:
    """What requests need: the desk, the way to the engine, and the metrics.

    Args:
        desk: What all browsers share.
        submit: Brings an encoded command to the engine, and returns its encoded answer.
        metrics: Returns the page of metrics.
    """

    def __init__(
        self,
        desk: Desk,
        submit: Callable[[bytes], Awaitable[bytes]],
        metrics: Callable[[], Awaitable[str]],
    ) -> None:
        self.desk = desk
        self.metrics = metrics
        self.browser_count = 0
        self._submit = submit

    async def carry_out(self, command: Command) -> dict[str, Any]:
        """Let the engine carry out a command; return its answer, with the time that took.

        Raises:
            RpcError: There is no answer.
        """
        began_ns = now_ns()
        ack = ACK.decode(await self._submit(encode_command(command)))
        return {"type": "ack", "call_ns": now_ns() - began_ns} | ack._asdict()


def now_ns() -> int:
    """Return the time of the event loop in nanoseconds."""
    return int(asyncio.get_running_loop().time() * 1e9)


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
        order_id: Annotated[int, PathParameter(ge=1, le=SAFE_INTEGER)],
        account: Annotated[str, Query(pattern=r"^[a-z0-9-]{1,16}$")],
        client_order_id: Annotated[int, Query(ge=1, le=SAFE_INTEGER)],
    ) -> dict[str, Any]:
        return await carried_out(request, CancelOrder(account, client_order_id, 0, order_id))


def refusal_of(error: RpcError) -> str:
    """Return why there is no answer, and what the sender may do."""
    if isinstance(error, CallFailedError):
        return f"the engine refused it: {error}"
    return f"{error}. Send it again with the same client_order_id: it will not be done twice"


def add_streams(app: FastAPI) -> None:
    """Add the websockets: one for the live book of a symbol, one for the orders of an account."""

    @app.websocket("/ws/market")
    async def market(websocket: WebSocket, symbol: str = SYMBOLS[0]) -> None:
        if symbol in SYMBOLS:
            await serve(websocket, lambda: show(websocket, symbol), lambda: ignore(websocket))
        else:
            await websocket.close(TOO_SLOW, "unknown symbol")

    @app.websocket("/ws/orders")
    async def orders(
        websocket: WebSocket, account: Annotated[str, Query(pattern=r"^[a-z0-9-]{1,16}$")]
    ) -> None:
        await serve(
            websocket, lambda: tell_fills(websocket, account), lambda: take(websocket, account)
        )


async def serve(
    websocket: WebSocket,
    send: Callable[[], Coroutine[Any, Any, None]],
    receive: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    """Serve one browser until it goes, or does not read for too long."""
    services = services_of(websocket)
    if services.browser_count >= BROWSERS_MOST:
        await websocket.close(TRY_AGAIN_LATER, "too many browsers")
        return
    services.browser_count += 1
    try:
        await websocket.accept()
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(send())
            try:
                # It ends when the browser goes: only who reads a websocket learns of that.
                await receive()
            finally:
                sending.cancel()
    except* (WebSocketDisconnect, RuntimeError):
        # It has gone; Starlette says so by one or the other, by what was tried last.
        pass
    except* TimeoutError:
        with suppress(RuntimeError):
            await asyncio.wait_for(websocket.close(TOO_SLOW, "too slow"), 1)
    finally:
        services.browser_count -= 1


async def told(websocket: WebSocket, text: str) -> None:
    """Send a text.

    Raises:
        TimeoutError: The browser has not read for ten seconds.
    """
    async with asyncio.timeout(PATIENCE_S):
        await websocket.send_text(text)


async def ignore(websocket: WebSocket) -> None:
    """Read until the browser goes."""
    while True:
        await websocket.receive_text()


async def show(websocket: WebSocket, symbol: str) -> None:
    """Send the book whenever it has changed, at most twenty times a second, and always the newest.

    Whatever changed while the browser was busy is left out: `version` says how much that was.
    """
    desk = services_of(websocket).desk
    shown, said_at = -1, 0.0
    loop = asyncio.get_running_loop()
    while True:
        if loop.time() - said_at >= STATUS_S:
            said_at = loop.time()
            await told(websocket, json.dumps(desk.status()))
        with suppress(TimeoutError):
            async with asyncio.timeout(STATUS_S):
                await desk.wait_changed(symbol, shown)
        version = desk.book.symbols[symbol].version
        if version != shown:
            shown = version
            await told(websocket, desk.screen(symbol))
        await asyncio.sleep(FRAME_S)


async def tell_fills(websocket: WebSocket, account: str) -> None:
    """Send the fills of an account as they come."""
    with services_of(websocket).desk.fills_of(account) as queue:
        if queue is None:
            await told(websocket, json.dumps({"type": "error", "error": "too many listen"}))
            return
        while True:
            for fill in await queue.take():
                await told(websocket, json.dumps(fill_shown(fill, queue.missed_count)))


def fill_shown(fill: Fill, missed_count: int) -> dict[str, Any]:
    """Return a fill for a browser."""
    return {"type": "fill", "missed": missed_count} | fill._asdict()


async def take(websocket: WebSocket, account: str) -> None:
    """Carry out the commands of a browser, a few at once."""
    services = services_of(websocket)
    room = asyncio.Semaphore(ORDERS_AT_ONCE)

    async def answer(body: OrderBody | CancelBody) -> None:
        try:
            said = await services.carry_out(body.command())
        except RpcError as error:
            number = body.client_order_id
            said = {"type": "error", "client_order_id": number, "error": refusal_of(error)}
        finally:
            room.release()
        await told(websocket, json.dumps(said))

    async with asyncio.TaskGroup() as group:
        while True:
            text = await websocket.receive_text()
            try:
                body = FROM_BROWSER.validate_json(text[:MESSAGE_MOST])
            except ValidationError as error:
                await told(websocket, json.dumps({"type": "error", "error": wrong(error)}))
                continue
            if body.account != account:
                what = f"account {body.account} is not {account}, for which this websocket is"
                await told(websocket, json.dumps({"type": "error", "error": what}))
                continue
            await room.acquire()
            group.create_task(answer(body))


def wrong(error: ValidationError) -> str:
    """Return what is wrong with a message, without its text."""
    return "; ".join(
        f"{'.'.join(map(str, each['loc']))}: {each['msg']}"
        for each in error.errors(include_url=False, include_input=False)
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
        is_here = urlsplit(f"//{host}").hostname in {"127.0.0.1", "localhost", "::1", "testserver"}
        if is_here and (origin is None or urlsplit(origin).netloc == host):
            await self._app(scope, receive, with_headers(send))
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": TOO_SLOW, "reason": "another origin"})
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
        ws_max_size=4 * MESSAGE_MOST,
        log_level="warning",
        timeout_graceful_shutdown=3,
        lifespan="on",
    )
    await ReadyServer(config).serve()


class ReadyServer(uvicorn.Server):
    """Says when it takes requests."""

    async def startup(self, *arguments: Any, **options: Any) -> None:
        """Begin to listen, and print a line."""
        await super().startup(*arguments, **options)
        if self.started:
            print("ready", flush=True)


if __name__ == "__main__":
    as_program("gateway", main, has_own_signals=True)
