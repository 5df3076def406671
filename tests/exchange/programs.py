"""The exchange as its user starts it: a supervisor, and a process for each part."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from tests.tracing import untraced_environment

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
END_S = 60


@attrs.define
class Program:
    """A running exchange."""

    process: subprocess.Popen[str]
    folder: Path
    lines: list[str]

    @property
    def wiring(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "wiring.json").read_text())
        return found

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.wiring['web_port']}"

    def pid(self, part: str) -> int:
        return int((self.folder / f"{part}.pid").read_text())

    def doors(self) -> list[Path]:
        return list(self.folder.glob("*.door"))

    def kill(self, part: str) -> None:
        """Kill a part, unless it is away already."""
        pid = self.pid(part)
        with suppress(FileNotFoundError, ProcessLookupError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if f"examples.exchange.{part}".encode() in command:
                os.kill(pid, signal.SIGKILL)

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Read what is printed until a line has what is looked for."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if found := re.search(pattern, line):
                return found
        raise AssertionError("".join(self.lines))

    def interrupt(self) -> str:
        """Press Ctrl-C and wait for the end; return all that was printed."""
        self.process.send_signal(signal.SIGINT)
        rest, _ = self.process.communicate(timeout=END_S)
        return "".join(self.lines) + rest


@contextmanager
def running(folder: Path, *options: str) -> Iterator[Program]:
    process = subprocess.Popen(
        [sys.executable, "-m", "examples.exchange", "--folder", str(folder), *options],
        cwd=ROOT,
        env=untraced_environment() | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    program = Program(process, folder, [])
    try:
        program.wait_for("Ctrl-C ends it")
        yield program
    finally:
        # Its parts see the end of their standard input, whatever has become of it.
        process.kill()
        process.communicate(timeout=END_S)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
