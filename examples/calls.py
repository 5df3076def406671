"""A service with handlers, and a client that calls them; both in one process here."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import aeron_async as aa
from aeron_async import rpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ENDPOINT = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121")
CONTROL = os.environ.get("REPLY_CHANNEL", "aeron:udp?endpoint=127.0.0.1:20122").rpartition("=")[2]
CHANNEL = f"{ENDPOINT}|control={CONTROL}"
orders = rpc.Server("orders")
book: dict[str, int] = {}


@orders.unary
async def place(request: bytes) -> bytes:
    """Add shares to the book, and answer with how many there are."""
    name, _, count = request.decode().partition(" ")
    if not count.isdecimal():
        what = f"{count!r} is no count"
        raise rpc.CallFailedError(what, status=rpc.Status.INVALID_ARGUMENT)
    book[name] = book.get(name, 0) + int(count)
    return str(book[name]).encode()


@orders.server_streaming
async def listing(_request: bytes) -> AsyncIterator[bytes]:
    """Yield the whole book."""
    for name, count in sorted(book.items()):
        yield f"{name}: {count}".encode()


async def main() -> None:
    """Serve, call, and see what a wrong call raises."""
    async with (
        aa.Aeron.connect() as aeron,
        orders.serve(aeron, CHANNEL),
        rpc.Client(aeron, CHANNEL, "orders") as client,
    ):
        print(await client.call("place", b"ACME 100", timeout=1))
        print(await client.call("place", b"ACME 20", timeout=1))
        print(await client.call("place", b"INIT 5", timeout=1))
        async with client.stream("listing", b"") as lines:
            print([line.decode() async for line in lines])
        try:
            await client.call("place", b"ACME", timeout=1)
        except rpc.CallFailedError as error:
            print(error.status.name, error)


asyncio.run(main())
