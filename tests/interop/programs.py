"""The official programs: where they are, how they are started, what they print, how they end."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

LOOK_AGAIN_S: Final = 0.01
LINE_LIMIT: Final = 1024 * 1024
START_TIMEOUT_S: Final = 20.0
STOP_TIMEOUT_S: Final = 10.0


def find(name: str) -> str | None:
    """A program of a folder in AERON_BIN, or else on PATH."""
    folders = os.environ.get("AERON_BIN", "")
    return shutil.which(name, path=os.pathsep.join((folders, os.environ.get("PATH", ""))))


def require(*names: str) -> None:
    missing = [name for name in names if find(name) is None]
    if missing:
        pytest.skip(f"not found in AERON_BIN or on PATH: {', '.join(missing)}")


class Output:
    """Lines of one stream of a program, as they come."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self.lines: list[str] = []
        self._reader = reader
        self._waiter: asyncio.Future[None] | None = None
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for line in self._reader:
            self.lines.append(line.decode().rstrip("\n"))
            self._ring()
        self._ring()

    def _ring(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def finish(self) -> None:
        await self._task

    async def wait_for(self, is_wanted: Callable[[str], bool]) -> str:
        """The first line that is wanted, from the start of the program."""
        index = 0
        while True:
            for line in self.lines[index:]:
                if is_wanted(line):
                    return line
            index = len(self.lines)
            if self._task.done():
                message = "the program ended without the line that was waited for"
                raise AssertionError(message)
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter


class Program:
    """A program that runs, with both its streams."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self.name = name
        self.process = process
        self.stdout = Output(process.stdout)
        self.stderr = Output(process.stderr)

    @property
    def is_running(self) -> bool:
        return self.process.returncode is None

    async def wait_for(self, text: str, *, timeout: float = START_TIMEOUT_S) -> str:
        """The first line of standard output that contains a text."""
        return await self._wait_for(self.stdout, text, timeout)

    async def wait_for_error(self, text: str, *, timeout: float = START_TIMEOUT_S) -> str:
        """The first line of standard error that contains a text."""
        return await self._wait_for(self.stderr, text, timeout)

    async def _wait_for(self, output: Output, text: str, timeout: float) -> str:
        try:
            async with asyncio.timeout(timeout):
                return await output.wait_for(lambda line: text in line)
        except TimeoutError:
            message = f"{self.name} did not print {text!r} within {timeout} s; {self._tail()}"
            raise AssertionError(message) from None

    async def wait(self, *, timeout: float) -> int:
        """The exit code, once everything that was printed has been read."""
        try:
            async with asyncio.timeout(timeout):
                code = await self.process.wait()
                await self.stdout.finish()
                await self.stderr.finish()
        except TimeoutError:
            message = f"{self.name} did not end within {timeout} s; {self._tail()}"
            raise AssertionError(message) from None
        return code

    async def interrupt(self) -> int:
        """End it as Ctrl-C does: any other signal loses what it has not printed yet."""
        if self.is_running:
            self.process.send_signal(signal.SIGINT)
        return await self.wait(timeout=STOP_TIMEOUT_S)

    async def close(self) -> None:
        """End it whatever state it is in."""
        if self.is_running:
            self.process.kill()
        await self.wait(timeout=STOP_TIMEOUT_S)

    def _tail(self) -> str:
        return f"stdout ends {self.stdout.lines[-3:]}, stderr ends {self.stderr.lines[-3:]}"


@asynccontextmanager
async def running(
    name: str, *arguments: object, environ: Mapping[str, str] | None = None
) -> AsyncIterator[Program]:
    """Run a program line-buffered; it is killed if it outlives the block."""
    path = find(name)
    assert path is not None
    process = await asyncio.create_subprocess_exec(
        "stdbuf",
        "-oL",
        path,
        *map(str, arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=LINE_LIMIT,
        env={**os.environ, **(environ or {})},
    )
    program = Program(name, process)
    try:
        yield program
    finally:
        await program.close()


async def wait_until(
    condition: Callable[[], bool], what: str, *, timeout: float = START_TIMEOUT_S
) -> None:
    """Look again and again at what another process does: it rings no bell."""
    deadline = asyncio.get_running_loop().time() + timeout
    while not condition():
        if asyncio.get_running_loop().time() > deadline:
            message = f"{what}: not within {timeout} s"
            raise AssertionError(message)
        await asyncio.sleep(LOOK_AGAIN_S)
