"""A service with statuses, deadlines and a stream, as with grpc.aio."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aeron_async as aa
from aeron_async import rpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

greeter = rpc.Server("greeter")


@greeter.unary
async def greet(request: bytes, call: rpc.ServerCall) -> bytes:
    """Answer, or abort: context.abort(StatusCode.INVALID_ARGUMENT, ...)."""
    if not request:
        what = "say a name"
        raise rpc.CallFailedError(what, status=rpc.Status.INVALID_ARGUMENT)
    # context.time_remaining(); the handler is cancelled when it is over.
    assert call.time_left is not None
    await asyncio.sleep(2 if request == b"slow" else 0)
    return b"hello " + request


@greeter.server_streaming
async def count(request: bytes) -> AsyncIterator[bytes]:
    """Yield the elements of a stream."""
    for number in range(int(request)):
        yield b"%d" % number


async def main() -> None:
    """Call it."""
    async with (
        aa.Aeron.connect() as aeron,
        greeter.serve(aeron, "aeron:ipc"),
        # wait_for_ready=True is connect_timeout: how long a call waits for a server.
        rpc.Client(aeron, "aeron:ipc", "greeter", connect_timeout=10) as client,
    ):
        print((await client.call("greet", b"ACME", timeout=1)).decode())
        async with client.stream("count", b"3") as numbers:
            print([number.decode() async for number in numbers])
        for request in (b"", b"slow"):
            try:
                await client.call("greet", request, timeout=0.2)
            except rpc.CallFailedError as error:
                print(error.status.name)
            except rpc.CallTimeoutError as error:
                print("DEADLINE_EXCEEDED, sent:", error.was_sent)


asyncio.run(main())
