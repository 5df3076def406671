"""Stands in for `asyncio.create_subprocess_exec`, and forks warm what a Python would import first.

Programs that measure start two or three others, each of which imports for half a second; see
`tests.warm`. Where they find what they run, and that they start cold, other tests show.
"""

from __future__ import annotations

import asyncio
import os
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import IO, TYPE_CHECKING, Any

from benchmarks.profiling import VARIABLE as PROFILE
from tests.warm import COMMAND, CONTEXT, is_like_this, run, serve

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["create_subprocess_exec"]

Target = int | IO[bytes]
cold = asyncio.create_subprocess_exec


async def create_subprocess_exec(
    *command: str,
    stdin: Target = DEVNULL,
    stdout: Target = DEVNULL,
    stderr: Target = DEVNULL,
    env: Mapping[str, str] | None = None,
    **options: Any,
) -> asyncio.subprocess.Process | WarmChild:
    """Start a program, warm if it is a module that this very Python is to run."""
    environment = dict(os.environ if env is None else env)
    # What else differs may be looked at while modules are imported.
    is_usual = environment.items() - {(PROFILE, environment.get(PROFILE))} <= os.environ.items()
    if command[:2] != (sys.executable, "-m") or not (is_usual and is_like_this(environment)):
        return await cold(
            *command, stdin=stdin, stdout=stdout, stderr=stderr, env=environment, **options
        )
    program = COMMAND if command[2] == "aeron_async" else command[2]
    child = WarmChild(program, command[3:], environment)
    await child.start(stdin, stdout, stderr)
    return child


class WarmChild:
    """As much of `asyncio.subprocess.Process` as the programs need.

    Args:
        program: The command, or the name of a module.
        arguments: Those of its command line.
        environment: That of its process.

    Attributes:
        stdin: Where its input is written to, if that is a pipe.
        stdout: Where its output is read from, if that is a pipe.
    """

    def __init__(
        self, program: str, arguments: tuple[str, ...], environment: dict[str, str]
    ) -> None:
        self.stdin: asyncio.StreamWriter | None = None
        self.stdout: asyncio.StreamReader | None = None
        self._program = program, arguments, environment

    async def start(self, stdin: Target, stdout: Target, stderr: Target) -> None:
        """Start it."""
        assert CONTEXT is not None
        assert stderr is not PIPE
        serve()
        loop = asyncio.get_running_loop()
        here, its = [], []
        for target, side in ((stdin, 0), (stdout, 1), (stderr, 1)):
            if target == PIPE:
                ends = os.pipe()
                here.append(ends[1 - side])
                its.append(Connection(ends[side]))
            elif target == DEVNULL:
                its.append(Connection(os.open(os.devnull, os.O_RDWR)))
            else:
                assert not isinstance(target, int)
                its.append(Connection(os.dup(target.fileno())))
        self._process = CONTEXT.Process(target=run, args=(*self._program, str(Path.cwd()), *its))
        self._process.start()
        for each in its:
            each.close()
        assert self._process.pid is not None
        self.pid = self._process.pid
        if stdout == PIPE:
            self.stdout = reader = asyncio.StreamReader()
            self._reading, _ = await loop.connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(here.pop(), "rb", 0)
            )
        if stdin == PIPE:
            transport, protocol = await loop.connect_write_pipe(
                lambda: asyncio.streams.FlowControlMixin(loop), os.fdopen(here.pop(), "wb", 0)
            )
            self.stdin = asyncio.StreamWriter(transport, protocol, None, loop)

    @property
    def returncode(self) -> int | None:
        """Return the exit code, if it has ended; the negative number of a signal that ended it."""
        return self._process.exitcode

    async def wait(self) -> int:
        """Wait for its end; return its exit code."""
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        loop.add_reader(self._process.sentinel, _tell, ended)
        try:
            await ended
        finally:
            loop.remove_reader(self._process.sentinel)
        self._process.join()
        assert self._process.exitcode is not None
        return self._process.exitcode

    async def communicate(self) -> tuple[bytes, None]:
        """Close its input, and wait for its end; return the rest of its output."""
        if self.stdin is not None:
            self.stdin.close()
        said = b""
        if self.stdout is not None:
            said = await self.stdout.read()
            self._reading.close()
        await self.wait()
        return said, None

    def terminate(self) -> None:
        """Ask it to end.

        Raises:
            ProcessLookupError: It has ended.
        """
        self._check()
        self._process.terminate()

    def kill(self) -> None:
        """End it.

        Raises:
            ProcessLookupError: It has ended.
        """
        self._check()
        self._process.kill()

    def _check(self) -> None:
        if self._process.exitcode is not None:
            raise ProcessLookupError


def _tell(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)
