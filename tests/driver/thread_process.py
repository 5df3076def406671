"""The other process of tests about a driver in a thread: `python -m tests.driver.thread_process`.

exchange DIRECTORY CHANNEL COUNT    two clients pass so many messages from one to the other
forget                              start a driver, and end without closing it
daemon                              the same, while a daemon thread still runs its loop
wait                                start a driver, and wait for Ctrl-C
"""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Final

import aeron_async as aa

__all__ = ["STREAM_ID"]

STREAM_ID: Final = 1001
TIMEOUT_S: Final = 60


async def exchange(directory: str, channel: str, count: int) -> None:
    """Read what another client publishes, both of them clients of a driver elsewhere."""
    async with (
        aa.Aeron.connect(directory=directory) as reader,
        aa.Aeron.connect(directory=directory) as writer,
        asyncio.timeout(TIMEOUT_S),
    ):
        subscription = await reader.add_subscription(channel, STREAM_ID)
        publication = await writer.add_publication(channel, STREAM_ID)

        async def write() -> None:
            for number in range(count):
                await publication.offer(b"%d" % number)

        async with asyncio.TaskGroup() as group:
            group.create_task(write())
            for number in range(count):
                assert (await anext(subscription)).data == b"%d" % number
    sys.stdout.write(f"exchanged {count}\n")


async def start() -> aa.ThreadedMediaDriver:
    """Start a driver over a temporary directory, and print where that is."""
    driver = await aa.MediaDriver.launch(thread=True)
    sys.stdout.write(f"{driver.directory}\n")
    sys.stdout.flush()
    return driver


def forget() -> None:
    """End with the event loop as it is: neither ended in order nor closed."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    # The loop lives as long as the process.
    sys.modules[__name__].__dict__["forgotten"] = (loop, loop.run_until_complete(start()))


def leave_to_daemon() -> None:
    """End while the event loop that could close the driver runs in a daemon thread."""
    is_started = threading.Event()

    async def serve() -> None:
        await start()
        is_started.set()
        await asyncio.Event().wait()

    threading.Thread(target=asyncio.run, args=(serve(),), daemon=True).start()
    assert is_started.wait(TIMEOUT_S)


async def wait() -> None:
    """Serve until Ctrl-C."""
    async with await start():
        await asyncio.Event().wait()


if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    if what == "exchange":
        asyncio.run(exchange(arguments[0], arguments[1], int(arguments[2])))
    elif what == "forget":
        forget()
    elif what == "daemon":
        leave_to_daemon()
    else:
        asyncio.run(wait())
