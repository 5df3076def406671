"""Stands in for `asyncio.create_subprocess_exec`, and forks warm what a Python would import first.

Programs that measure start two or three others, each of which imports for half a second; see
`tests.warm`. Other tests show that these programs start in a new Python, and find what they run.
"""

from __future__ import annotations

import asyncio
import os
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import IO, TYPE_CHECKING

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
    start_new_session: bool = False,
) -> asyncio.subprocess.Process | WarmChild:
    """Start a program, warm if it is a module that this very Python is to run."""
    environment = dict(os.environ if env is None else env)
    # What else differs may be looked at while modules are imported.
    is_usual = environment.items() - {(PROFILE, environment.get(PROFILE))} <= os.environ.items()
    if command[:2] != (sys.executable, "-m") or not (is_usual and is_like_this(environment)):
        return await cold(
            *command,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=environment,
            start_new_session=start_new_session,
        )
    program = COMMAND if command[2] == "aeron_async" else command[2]
    child = WarmChild(program, command[3:], environment)
    await child.start(stdin, stdout, stderr, starts_session=start_new_session)
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
        self._ended: asyncio.Future[None] | None = None

    async def start(
        self, stdin: Target, stdout: Target, stderr: Target, *, starts_session: bool
    ) -> None:
        """Start it, in a session of its own if that is wanted."""
        assert CONTEXT is not None
        assert stderr != PIPE
        serve()
        loop = asyncio.get_running_loop()
        kept, passed = [], []
        for target, side in ((stdin, 0), (stdout, 1), (stderr, 1)):
            if target == PIPE:
                ends = os.pipe()
                kept.append(ends[1 - side])
                passed.append(Connection(ends[side]))
            elif target == DEVNULL:
                passed.append(Connection(os.open(os.devnull, os.O_RDWR)))
            else:
                assert not isinstance(target, int)
                passed.append(Connection(os.dup(target.fileno())))
        self._process = CONTEXT.Process(
            target=run,
            args=(*self._program, str(Path.cwd()), *passed),
            kwargs={"starts_session": starts_session},
        )
        self._process.start()
        for each in passed:
            each.close()
        assert self._process.pid is not None
        self.pid = self._process.pid
        if stdout == PIPE:
            self.stdout = reader = asyncio.StreamReader()
            self._reading, _ = await loop.connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(kept.pop(), "rb", 0)
            )
        if stdin == PIPE:
            transport, protocol = await loop.connect_write_pipe(
                lambda: asyncio.streams.FlowControlMixin(loop), os.fdopen(kept.pop(), "wb", 0)
            )
            self.stdin = asyncio.StreamWriter(transport, protocol, None, loop)

    @property
    def returncode(self) -> int | None:
        """Return the exit code, if it has ended; the negative number of a signal that ended it."""
        return self._process.exitcode

    async def wait(self) -> int:
        """Wait for its end; return its exit code."""
        if self._ended is None:
            loop = asyncio.get_running_loop()
            self._ended = loop.create_future()
            loop.add_reader(self._process.sentinel, self._tell, loop, self._ended)
        # Others may wait too: who is cancelled does not cancel it for them.
        await asyncio.shield(self._ended)
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

    def _tell(self, loop: asyncio.AbstractEventLoop, ended: asyncio.Future[None]) -> None:
        loop.remove_reader(self._process.sentinel)
        ended.set_result(None)

    def _check(self) -> None:
        if self._process.exitcode is not None:
            raise ProcessLookupError
