"""Aeron in an app of aiohttp: opened before the first request, and closed after the last one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from aiohttp import web

import aeron_async as aa
from aeron_async import rpc
from aeron_async.health import not_ready

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TICKS = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121")
AERON = web.AppKey("AERON", aa.Aeron)
ORDERS = web.AppKey("ORDERS", rpc.Client)
service = rpc.Server("orders")


@service.unary
async def place(request: bytes) -> bytes:
    """Accept an order."""
    return b"placed " + request


async def streams(app: web.Application) -> AsyncIterator[None]:
    """Open from the first line to the last, and close from the last to the first."""
    async with (
        aa.Aeron.connect() as app[AERON],
        service.serve(app[AERON], "aeron:ipc"),
        rpc.Client(app[AERON], "aeron:ipc", "orders") as app[ORDERS],
        app[AERON].add_publication(TICKS, stream_id=1001),
    ):
        yield


async def order(request: web.Request) -> web.Response:
    """Call the service."""
    name = request.match_info["name"]
    answer = await request.app[ORDERS].call("place", name.encode(), timeout=1)
    return web.Response(text=answer.decode())


async def ready(request: web.Request) -> web.Response:
    """Say why the app is not ready, a line for each reason."""
    reasons = not_ready(request.app[AERON].stats(), expect=[1001])
    return web.Response(text="\n".join(reasons) or "ready", status=503 if reasons else 200)


def create_app(_arguments: list[str] | None = None) -> web.Application:
    """Return the app: `python -m aiohttp.web service_in_aiohttp:create_app` serves it."""
    app = web.Application()
    app.cleanup_ctx.append(streams)
    app.add_routes([web.post("/orders/{name}", order), web.get("/ready", ready)])
    return app
