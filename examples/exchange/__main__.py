"""Starts the exchange: every part as a process, and again when it dies.

    python -m examples.exchange [--folder DIR] [--port N] [--no-traders] [--no-multicast]

Without a folder the recordings are removed at the end. Ctrl-C ends everything in order, and once
more at once.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import shutil
import signal
import socket
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.text import printable
from examples.exchange.wiring import Wiring, free_ports, has_multicast, is_free

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

__all__ = ["Part", "supervise"]

PARTS: Final = ("archive", "engine", "market", "gateway", "traders")
NEEDED: Final = ("fastapi", "uvicorn", "websockets")
READY_S: Final = 60.0
END_S: Final = 8.0
FIRST_PAUSE_S: Final = 0.1
LAST_PAUSE_S: Final = 3.0
HEALTHY_S: Final = 5.0
"""A part that has run for so long begins with the first pause again."""
DEATHS_MOST: Final = 10
"""How often a part may die, each time within that time, before all is given up."""


class GivenUpError(Exception):
    """A part cannot be kept running."""


class Part:
    """One process of the exchange, which is started again when it ends.

    Attributes:
        name: Name of the module.
        start_count: How often it was started.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.start_count = 0
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None
        self._is_ready = asyncio.Event()

    async def run(self) -> None:
        """Keep the process running, with growing pauses while it dies at once.

        Raises:
            GivenUpError: It has died ten times, each time at once.
        """
        loop = asyncio.get_running_loop()
        pause_s, deaths = FIRST_PAUSE_S, 0
        while True:
            began = loop.time()
            code = await self._run_once()
            if loop.time() - began >= HEALTHY_S:
                pause_s, deaths = FIRST_PAUSE_S, 0
            deaths += 1
            if deaths == DEATHS_MOST:
                message = f"{self.name} has ended {deaths} times, each time at once: see above"
                raise GivenUpError(message)
            how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
            self._say(f"{how}; it starts again")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LAST_PAUSE_S)

    async def _run_once(self) -> int:
        self.start_count += 1
        # Its standard input is ours to close: if this process is killed, the part sees the end of
        # it, and ends. A session of its own keeps Ctrl-C of the terminal away from it.
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            f"examples.exchange.{self.name}",
            str(self._folder),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=os.environ | {"EXCHANGE_SUPERVISED": "1"},
            start_new_session=True,
        )
        self._process = process
        (self._folder / f"{self.name}.pid").write_text(f"{process.pid}\n")
        assert process.stdout is not None
        async for text in lines_of(process.stdout):
            if text == "ready":
                self._is_ready.set()
            else:
                self._say(text)
        return await process.wait()

    def _say(self, text: str) -> None:
        print(f"{self.name:>8} | {printable(text)}", flush=True)

    async def wait_ready(self) -> None:
        """Wait until it has said that it is ready, once.

        Raises:
            GivenUpError: It has not within a minute.
        """
        try:
            async with asyncio.timeout(READY_S):
                await self._is_ready.wait()
        except TimeoutError:
            message = f"{self.name} is not ready after {READY_S:g} s"
            raise GivenUpError(message) from None

    async def end(self) -> None:
        """End the process: kindly, and if that does not help, at once."""
        process = self._process
        if process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            self.send(number)
            with suppress(TimeoutError):
                async with asyncio.timeout(END_S):
                    await process.wait()
                    return

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process, if there is one."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)


async def lines_of(output: asyncio.StreamReader) -> AsyncIterator[str]:
    """Yield what a part prints; of a line that is too long to be kept only that."""
    while True:
        try:
            line = await output.readline()
        except ValueError:
            yield "a line is left out, for it is too long"
            continue
        if not line:
            return
        yield line.decode(errors="replace").rstrip()


async def supervise(
    folder: Path, wiring: Wiring, parts: Sequence[Part], ending: asyncio.Event
) -> None:
    """Run all parts until cancelled.

    Args:
        folder: Folder of the exchange.
        wiring: Its addresses.
        parts: Its processes.
        ending: Set when the parts begin to end; to cancel that would leave some behind.

    Raises:
        GivenUpError: One of them cannot be kept running.
    """
    try:
        async with asyncio.TaskGroup() as group:
            running: list[asyncio.Task[None]] = []
            try:
                # All at once: each waits for those that it needs.
                running += [group.create_task(part.run()) for part in parts]
                for part in parts:
                    await part.wait_ready()
                print(invitation(folder, wiring), flush=True)
                await asyncio.Event().wait()
            finally:
                for each in running:
                    each.cancel()
    finally:
        ending.set()
        # The last ones first: the engine closes its log while the archive is there.
        for part in reversed(parts):
            await part.end()


def invitation(folder: Path, wiring: Wiring) -> str:
    """Return where to look, and what to try."""
    doors = " ".join(f"--door {wiring.door(name)}" for name in PARTS)
    how = "multicast over loopback"
    if not wiring.is_multicast:
        how = "a stream for each reader (MDC), without multicast over loopback"
    return f"""
The exchange is open; market data goes by {how}.

  look            http://127.0.0.1:{wiring.web_port}/
  metrics         http://127.0.0.1:{wiring.web_port}/metrics
  kill the engine kill -9 $(cat {folder}/engine.pid)
  bars in Spark   make exchange-bars FOLDER={folder}
  each driver     aeron-async monitor {doors}

Ctrl-C ends it.
"""


def missing() -> list[str]:
    """Return which packages are missing."""
    return [each for each in NEEDED if importlib.util.find_spec(each) is None]


async def run(folder: Path, names: Sequence[str], port: int, *, is_multicast: bool) -> None:
    """Run all parts until Ctrl-C, SIGTERM, or the end of the terminal."""
    task = asyncio.current_task()
    assert task is not None
    parts, ending = [Part(name, folder) for name in names], asyncio.Event()

    def on_signal() -> None:
        if ending.is_set():
            # Whoever asks again does not want to wait for that.
            for part in parts:
                part.send(signal.SIGKILL)
        else:
            task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, on_signal)
    wiring = await wired(folder, port, is_multicast=is_multicast)
    await supervise(folder, wiring, parts, ending)


async def wired(folder: Path, port: int, *, is_multicast: bool) -> Wiring:
    """Return the wiring of a folder, with a port of the page that is free.

    Args:
        folder: Folder of the exchange.
        port: Port that the page must have; 0 for that of last time, or any.
        is_multicast: Whether market data goes to a group, in a new folder.

    Raises:
        GivenUpError: The port is taken, or one that belongs to the recordings of the folder.
    """
    if port and not is_free(port, socket.SOCK_STREAM):
        message = f"port {port} is taken: name another one, or none for any that is free"
        raise GivenUpError(message)
    try:
        wiring = Wiring.read(folder)
    except FileNotFoundError:
        return Wiring.new(folder, is_multicast=is_multicast, web_port=port)
    # A log is known by its channel: with its recordings its addresses stay, but for the page.
    # Parts of an exchange whose supervisor was killed hold them for a moment.
    end_s = asyncio.get_running_loop().time() + END_S
    while taken := [each for each in wiring.udp_ports if not is_free(each, socket.SOCK_DGRAM)]:
        if asyncio.get_running_loop().time() > end_s:
            message = (
                f"the recordings in {printable(str(folder))} belong to UDP ports "
                f"{', '.join(map(str, taken))}, which another program has: end it, perhaps an "
                "exchange in this folder, or name another folder"
            )
            raise GivenUpError(message)
        await asyncio.sleep(FIRST_PAUSE_S)
    if not port and not is_free(wiring.web_port, socket.SOCK_STREAM):
        [port] = free_ports(1, socket.SOCK_STREAM)
        print(f"port {wiring.web_port} of the page is taken: now it has {port}", flush=True)
    if port:
        wiring = attrs.evolve(wiring, web_port=port)
        wiring.write()
    return wiring


def main() -> int:
    """Start everything; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m examples.exchange", description=__doc__)
    parser.add_argument("--folder", type=Path, help="keep recordings here, and go on with them")
    parser.add_argument("--port", type=int, default=0, help="port of the page; any free one else")
    parser.add_argument("--no-traders", action="store_true", help="leave the simulated traders out")
    parser.add_argument(
        "--no-multicast", action="store_true", help="a stream for each reader; for a new folder"
    )
    given = parser.parse_args()
    if lacking := missing():
        print(f"missing: {', '.join(lacking)}; pip install 'aeron-async[exchange]'")
        return 1
    folder = given.folder or Path(tempfile.mkdtemp(prefix="exchange-"))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    names = [each for each in PARTS if each != "traders" or not given.no_traders]
    code = 0
    try:
        with suppress(asyncio.CancelledError):
            is_multicast = not given.no_multicast and has_multicast()
            asyncio.run(run(folder.resolve(), names, given.port, is_multicast=is_multicast))
        print("closed")
    except* GivenUpError as errors:
        for each in errors.exceptions:
            print(each, file=sys.stderr)
        code = 1
    finally:
        if given.folder is None:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            shutil.rmtree(folder)
    return code


if __name__ == "__main__":
    sys.exit(main())
