"""Calls over Aeron: servers with handlers, clients that await answers.

server = rpc.Server("orders")

@server.unary
async def place(request: bytes) -> bytes: ...

async with server.serve(aeron, "aeron:udp?endpoint=localhost:20121|control=localhost:20122"):
    ...

async with rpc.Client(aeron, channel, "orders") as client:
    answer = await client.call("place", b"...", timeout=1)
"""

from __future__ import annotations

from aeron_async.errors import (
    CallFailedError,
    CallLostError,
    CallNotSentError,
    CallTimeoutError,
    NoServerError,
    RpcError,
    Status,
)
from aeron_async.rpc.client import CallCounts, Client
from aeron_async.rpc.client_stream import ClientStream
from aeron_async.rpc.server import Server
from aeron_async.rpc.server_session import Caller, ServerCall
from aeron_async.rpc.serving import Serving
from aeron_async.rpc.serving_limits import ServerCounts
from aeron_async.rpc.typed_calls import Method, TypedClientStream

__all__ = [
    "CallCounts",
    "CallFailedError",
    "CallLostError",
    "CallNotSentError",
    "CallTimeoutError",
    "Caller",
    "Client",
    "ClientStream",
    "Method",
    "NoServerError",
    "RpcError",
    "Server",
    "ServerCall",
    "ServerCounts",
    "Serving",
    "Status",
    "TypedClientStream",
]
