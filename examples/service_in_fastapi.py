"""Aeron in an app of FastAPI: opened before the first request, and closed after the last one."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request
from fastapi.responses import PlainTextResponse

import aeron_async as aa
from aeron_async import rpc
from aeron_async.health import not_ready

TICKS = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121")
service = rpc.Server("orders")


@service.unary
async def place(request: bytes) -> bytes:
    """Accept an order."""
    return b"placed " + request


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[dict[str, Any]]:
    """Open from the first line to the last, and close from the last to the first."""
    async with (
        aa.Aeron.connect() as aeron,
        service.serve(aeron, "aeron:ipc"),
        rpc.Client(aeron, "aeron:ipc", "orders") as orders,
        aeron.add_publication(TICKS, stream_id=1001) as ticks,
    ):
        yield {"aeron": aeron, "orders": orders, "ticks": ticks}


def orders_of(request: Request) -> rpc.Client:
    """Return the client of the service that the lifespan has opened."""
    client: rpc.Client = request.state.orders
    return client


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{name}")
async def order(name: str, orders: Annotated[rpc.Client, Depends(orders_of)]) -> str:
    """Call the service."""
    return (await orders.call("place", name.encode(), timeout=1)).decode()


@app.get("/ready")
async def ready(request: Request) -> PlainTextResponse:
    """Say why the app is not ready, a line for each reason."""
    reasons = not_ready(request.state.aeron.stats(), expect=[1001])
    return PlainTextResponse("\n".join(reasons) or "ready", 503 if reasons else 200)
