"""Runs a program in a process that is forked from one which has imported everything already.

What a program imports takes half a second of a processor, and tests start hundreds of them. The
server is that of `multiprocessing`; it has no thread and no loop, and is started by the first test
of a worker that needs it. What happens before and while the command is imported is tested with a
Python of its own: see `tests/cli/test_entry.py`.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import threading
import warnings
from functools import cache
from multiprocessing import forkserver, get_all_start_methods, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from tests.tracing import untraced

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import IO

__all__ = ["COMMAND", "CONTEXT", "Program", "serve", "start"]

COMMAND: Final = "aeron-async"
MODULES: Final = (
    "aeron_async.archive",
    "aeron_async.cli.archive_catalog",
    "aeron_async.cli.archive_check",
    "aeron_async.cli.archive_record",
    "aeron_async.cli.archive_replay",
    "aeron_async.cli.archive_room",
    "aeron_async.cli.demo_publisher",
    "aeron_async.cli.demo_subscriber",
    "aeron_async.cli.driver_run",
    "aeron_async.cli.main",
    "aeron_async.cli.ping",
    "aeron_async.cli.pub",
    "aeron_async.cli.sub",
    "aeron_async.client.attached_driver",
    "aeron_async.driver.media_driver",
    "benchmarks.roles",
    "rich.table",
    "tests.archive.killed_archive",
    "tests.warm",
    "uvloop",
)
ROOT: Final = Path(__file__).parents[1]
CONTEXT: Final = get_context("forkserver") if "forkserver" in get_all_start_methods() else None
"""Of the one server that a process of tests has; None on Windows."""
if CONTEXT is not None:
    CONTEXT.set_forkserver_preload(list(MODULES))


@cache
def serve() -> None:
    """Start the server, unless it has been started.

    Coverage does not follow it: what is forked of it would be as slow as what is followed, and ends
    without having written down what it has seen.
    """
    with untraced():
        forkserver.ensure_running()


def start(program: str, arguments: tuple[str, ...], environment: Mapping[str, str]) -> Program:
    """Start a program: warm where that is possible, and else in a Python of its own.

    Args:
        program: The command, the path of a script, or the name of a module of the tests, of which
            the last two run with warnings as errors.
        arguments: Those of its command line.
        environment: That of its process.
    """
    if is_like_this(environment):
        return WarmProcess(program, arguments, environment)
    if program == COMMAND:
        words = ["-m", "aeron_async"]
    elif program.endswith(".py"):
        words = ["-W", "error", program]
    else:
        words = ["-W", "error", "-m", program]
    return subprocess.Popen(
        [sys.executable, *words, *arguments],
        env=environment,
        cwd=None if program == COMMAND else ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def is_like_this(environment: Mapping[str, str]) -> bool:
    """Return whether a Python with this environment would start as this one has."""
    if CONTEXT is None:
        return False
    names = {each for each in (*environment, *os.environ) if each.startswith("PYTHON")}
    return all(
        environment.get(name) == os.environ.get(name) for name in names - {"PYTHONUNBUFFERED"}
    )


def run(
    program: str,
    arguments: tuple[str, ...],
    environment: dict[str, str],
    folder: str,
    *ends: Connection,
    starts_session: bool = False,
) -> None:
    """Become a program, in a session of its own if that is wanted; called in its process."""
    if starts_session:
        os.setsid()
    for descriptor, end in enumerate(ends):
        os.dup2(end.fileno(), descriptor)
        end.close()
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - for as long as the process lives
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - as above
    sys.stderr = open(  # noqa: SIM115 - as above
        2, "w", buffering=1, errors="backslashreplace", closefd=False
    )
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = [program, *arguments]
    if program == COMMAND:
        from aeron_async.cli.entry import main  # noqa: PLC0415 - it has been imported

        sys.exit(main())
    warnings.simplefilter("error")
    if program.endswith(".py"):
        sys.path.insert(0, str(Path(program).parent))
        runpy.run_path(program, run_name="__main__")
    else:
        # runpy warns of a module that is imported already, and warnings are errors here.
        sys.modules.pop(program, None)
        runpy.run_module(program, run_name="__main__", alter_sys=True)


class WarmProcess:
    """As much of `subprocess.Popen` as the tests need; `start` says what its arguments are."""

    def __init__(
        self, program: str, arguments: tuple[str, ...], environment: Mapping[str, str]
    ) -> None:
        assert CONTEXT is not None
        serve()
        ends = [Connection(each) for pair in (os.pipe(), os.pipe(), os.pipe()) for each in pair]
        stdin, to_stdin, from_stdout, stdout, from_stderr, stderr = ends
        self._process = CONTEXT.Process(
            target=run,
            args=(program, arguments, dict(environment), str(Path.cwd()), stdin, stdout, stderr),
        )
        self._program = program
        self._exit_code: int | None = None
        self._process.start()
        for each in (stdin, stdout, stderr):
            each.close()
        self.stdin: IO[str] | None = _opened(to_stdin, "w")
        self.stdout: IO[str] | None = _opened(from_stdout, "r")
        self.stderr: IO[str] | None = _opened(from_stderr, "r")
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """Return the exit code, if it has ended; the negative number of a signal that ended it."""
        return self.poll()

    def poll(self) -> int | None:
        """Return the exit code, if it has ended."""
        if self._exit_code is None:
            self._exit_code = self._process.exitcode
        return self._exit_code

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; return its exit code.

        Raises:
            subprocess.TimeoutExpired: It has not ended.
        """
        if self.poll() is None:
            self._process.join(timeout)
        code = self.poll()
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self._program, timeout)
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it has not ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it, if it has not ended."""
        if self.poll() is None:
            self._process.kill()

    def communicate(self, sent: str = "", timeout: float | None = None) -> tuple[str, str]:
        """Send it the rest of its input; wait for its end, and return the rest of its output.

        Raises:
            subprocess.TimeoutExpired: It has not ended.
        """
        found = ["", ""]

        def read(place: int, stream: IO[str]) -> None:
            with stream:
                found[place] = stream.read()

        threads = [
            threading.Thread(target=read, args=(place, stream), daemon=True)
            for place, stream in enumerate((self.stdout, self.stderr))
            if stream is not None
        ]
        for each in threads:
            each.start()
        try:
            if self.stdin is not None and not self.stdin.closed:
                self.stdin.write(sent)
                self.stdin.close()
        except BrokenPipeError:
            pass
        self.wait(timeout)
        for each in threads:
            each.join(timeout)
        return found[0], found[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        try:
            if self.stdin is not None:
                self.stdin.close()
        except BrokenPipeError:
            pass
        self.wait()
        self._process.close()


Program = subprocess.Popen[str] | WarmProcess


def _opened(end: Connection, mode: str) -> IO[str]:
    """Return a file over the descriptor of a connection, which it takes."""
    descriptor = os.dup(end.fileno())
    end.close()
    return open(descriptor, mode)  # noqa: PTH123 - a descriptor
