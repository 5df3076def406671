"""A server of calls that notes each run in a file, until it is killed.

`python -m tests.slow.killed_call_server CHANNEL FILE`. A line of stdout says that it serves.
"""

from __future__ import annotations

import asyncio
import os
import sys

import aeron_async as aa
from aeron_async import rpc

SERVICE = "kept"
server = rpc.Server(SERVICE)
runs = -1


@server.unary
def at_once(request: bytes) -> bytes:
    """Note a run, and answer."""
    os.write(runs, request + b"\n")
    return request


@server.unary
async def later(request: bytes) -> bytes:
    """Note a run, and answer some time later."""
    os.write(runs, request + b"\n")
    await asyncio.sleep(int(request) % 20 / 1_000)
    return request


async def main(channel: str, path: str) -> None:
    """Serve until killed."""
    global runs  # noqa: PLW0603 - the file of this process
    # The system has a line when `write` returns: it stays when the process is killed.
    runs = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    async with aa.Aeron.connect() as aeron, server.serve(aeron, channel):
        os.write(1, b"up\n")
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
