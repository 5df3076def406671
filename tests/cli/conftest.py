"""Running the command: in this process where that is enough, in others where two must talk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from aeron_async.cli.main import main
from aeron_async.driver.core.context import DriverContext
from tests import warm
from tests.cli.explainer import Explainer
from tests.cli.foreign_output import Output
from tests.logs import without_lines_of_the_machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tests.warm import Program

PROGRAM = (sys.executable, "-m", "aeron_async")
# Nothing here takes this long; what does has hung.
PATIENCE_S = 300.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and "start" in item.fixturenames:
            item.add_marker(pytest.mark.processes)


@pytest.fixture(autouse=True)
def _configured_logs_do_not_leak() -> Iterator[None]:
    yield
    structlog.reset_defaults()


@pytest.fixture
def explained(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Explainer:
    for setting in DriverContext.settings().values():
        monkeypatch.delenv(setting.env_name, raising=False)
    return Explainer(capsys)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    def run_one(arguments: list[str], *, is_terminal: bool) -> tuple[int, str, str]:
        output = Output(is_terminal=is_terminal)
        # Two of these are of one width, so that a wide table is not folded out of sight.
        monkeypatch.setenv("COLUMNS", "4000")
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", output.files[0])
            patched.setattr(sys, "stderr", output.files[1])
            try:
                code = main(arguments)
            finally:
                out, err = output.finish()
        return code, out, err

    return run_one


def buffered(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which Python keeps output for a pipe back, as it does for users."""
    return {name: each for name, each in environment.items() if name != "PYTHONUNBUFFERED"}


class Running:
    """The command in a process of its own, its output read line by line."""

    def __init__(
        self,
        *arguments: str,
        module: str = warm.COMMAND,
        program: tuple[str, ...] = PROGRAM,
        environment: dict[str, str] | None = None,
    ) -> None:
        chosen = buffered(os.environ if environment is None else environment)
        self.process: Program
        if program is PROGRAM:
            self.process = warm.start(module, arguments, chosen)
            return
        self.process = subprocess.Popen(
            (*program, *arguments),
            env=chosen,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def remark(self, containing: str) -> str:
        """Wait for a line of standard error."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if containing in line:
                return line.strip()
        pytest.fail(f"no {containing!r} before the end")

    def line(self) -> str:
        """Wait for a line of standard output."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def address(self) -> str:
        """Wait until it listens, and return where."""
        return self.remark("listening on").split()[2].rstrip(",")

    def finish(self, sent: str = "") -> tuple[int, str, str]:
        """Wait for its end; return its exit code and what is left of its output."""
        out, err = self.process.communicate(sent, timeout=PATIENCE_S)
        return self.process.wait(), out, without_lines_of_the_machine(err)

    def interrupt(self, number: int = signal.SIGINT) -> tuple[int, str, str]:
        """Send a signal, and wait for the end."""
        os.kill(self.process.pid, number)
        return self.finish()


@pytest.fixture
def start() -> Iterator[Callable[..., Running]]:
    """Start commands that are still running when a test fails, and no longer afterwards."""
    running: list[Running] = []

    def start_one(*arguments: str, **options: Any) -> Running:
        running.append(Running(*arguments, **options))
        return running[-1]

    yield start_one
    for one in running:
        with one.process:
            one.process.kill()


@pytest.fixture
def place(tmp_path: Path) -> str:
    """The Aeron directory of `driver`."""
    return str(tmp_path / "aeron")


@pytest.fixture
def driver(start: Callable[..., Running], place: str) -> Running:
    """A driver in a process of its own; clients wait until it runs."""
    environment = {name: text for name, text in os.environ.items() if name[:6] != "AERON_"}
    small = {"AERON_IPC_TERM_BUFFER_LENGTH": "64k"}
    return start("driver", "--directory", place, environment=environment | small)
