"""One browser at one websocket.

A browser has a few tasks, all of one task group, so that it leaves nothing behind. One that does
not read is ended, and until then holds up nothing but itself.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import WebSocketDisconnect
from pydantic import Field, TypeAdapter, ValidationError

from aeron_async.errors import RpcError
from examples.exchange.services import CancelBody, OrderBody, is_refused, refusal_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from fastapi import WebSocket

    from examples.exchange.desk import Desk
    from examples.exchange.messages import Fill
    from examples.exchange.services import Services

__all__ = ["REFUSED", "ignore", "serve", "show", "take", "tell_fills"]

FRAME_S: Final = 0.05
"""Least time between two pictures of the book for one browser."""
STATUS_S: Final = 1.0
PATIENCE_S: Final = 10.0
"""How long a browser may leave what it was sent unread."""
CLOSE_S: Final = 1.0
BROWSERS_MOST: Final = 64
ORDERS_AT_ONCE: Final = 16
"""Commands of one websocket that have no answer yet; it is read on when one has."""
MESSAGE_MOST: Final = 1_024
"""Bytes of a message from a browser."""
TRY_AGAIN_LATER: Final = 1013
REFUSED: Final = 1008
NO_TEXT: Final = 1003
FROM_BROWSER: Final[TypeAdapter[OrderBody | CancelBody]] = TypeAdapter(
    Annotated[OrderBody | CancelBody, Field(discriminator="type")]
)


async def serve(
    websocket: WebSocket,
    services: Services,
    send: Callable[[], Coroutine[Any, Any, None]],
    receive: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    """Serve one browser until it goes, or does not read for too long."""
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
        # What it is told goes behind what it does not read: most likely there is no room.
        with suppress(RuntimeError, TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await websocket.close(REFUSED, "too slow")
    finally:
        services.browser_count -= 1


async def told(websocket: WebSocket, text: str) -> None:
    """Send a text.

    Raises:
        TimeoutError: The browser has not read for ten seconds.
    """
    async with asyncio.timeout(PATIENCE_S):
        await websocket.send_text(text)


async def heard(websocket: WebSocket) -> str:
    """Return the next text.

    Raises:
        WebSocketDisconnect: The browser has gone, or sends what is no text.
    """
    try:
        return await websocket.receive_text()
    except KeyError:
        raise WebSocketDisconnect(NO_TEXT) from None


async def ignore(websocket: WebSocket) -> None:
    """Read until the browser goes."""
    while True:
        await heard(websocket)


async def show(websocket: WebSocket, desk: Desk, symbol: str) -> None:
    """Send the book whenever it has changed, at most twenty times a second, and always the newest.

    Whatever changed while the browser was busy is left out: `version` says how much that was.
    """
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


async def tell_fills(websocket: WebSocket, desk: Desk, account: str) -> None:
    """Send the fills of an account as they come."""
    with desk.fills_of(account) as queue:
        if queue is None:
            await told(websocket, json.dumps({"type": "error", "error": "too many listen"}))
            return
        while True:
            for fill in await queue.take():
                await told(websocket, json.dumps(fill_shown(fill, queue.missed_count)))


def fill_shown(fill: Fill, missed_count: int) -> dict[str, Any]:
    """Return a fill for a browser."""
    return {"type": "fill", "missed": missed_count} | fill._asdict()


async def take(websocket: WebSocket, services: Services, account: str) -> None:
    """Carry out the commands of a browser, a few at once."""
    room = asyncio.Semaphore(ORDERS_AT_ONCE)

    async def answer(body: OrderBody | CancelBody) -> None:
        try:
            said = await services.carry_out(body.command())
        except RpcError as error:
            said = {
                "type": "error",
                "client_order_id": body.client_order_id,
                "error": refusal_of(error),
                "again": not is_refused(error),
            }
        finally:
            room.release()
        await told(websocket, json.dumps(said))

    async with asyncio.TaskGroup() as group:
        while True:
            text = await heard(websocket)
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
