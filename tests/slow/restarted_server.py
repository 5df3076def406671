"""The server of the guide to requests and responses, for clients with short terms, until SIGTERM.

It says when it serves. `CHANNEL` and `REPLY_CHANNEL` are where.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal

import aeron_async as aa
from examples import response_server


async def main() -> None:
    """Serve until SIGTERM."""
    response_server.CLIENT_LIMIT = 64
    context = aa.DriverContext(term_buffer_length=64 * 1024, close_linger_timeout_ns=100_000_000)
    async with aa.Aeron.connect(context=context) as aeron:
        serving = asyncio.create_task(response_server.serve(aeron))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
        print("serving", flush=True)  # noqa: T201 - for whoever started it
        with contextlib.suppress(asyncio.CancelledError):
            await serving


if __name__ == "__main__":
    asyncio.run(main())
