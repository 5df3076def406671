"""Running an example the way a reader would: as a program of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.logs import without_lines_of_the_machine
from tests.tracing import untraced_environment
from tests.warm import WarmProcess, is_like_this

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "examples"
# Generous: a busy machine is no reason to fail. The examples end by themselves long before.
TIMEOUT_S = 300


def channel(port: int) -> str:
    return f"aeron:udp?endpoint=127.0.0.1:{port}"


def start(name: str, *args: str, **variables: str) -> subprocess.Popen[str] | WarmProcess:
    program, environment = str(EXAMPLES / f"{name}.py"), untraced_environment() | variables
    if is_like_this(environment):
        return WarmProcess(program, args, environment)
    return subprocess.Popen(
        [sys.executable, "-W", "error", program, *args],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(program: subprocess.Popen[str] | WarmProcess, complaint: str = "") -> list[str]:
    """Wait for a program, see that it succeeded, and return the lines it printed.

    Args:
        program: An example.
        complaint: A pattern of all that it may write beside its output.
    """
    try:
        output, complaints = program.communicate(timeout=TIMEOUT_S)
    finally:
        program.kill()
    assert re.fullmatch(complaint, without_lines_of_the_machine(complaints)), complaints
    assert program.returncode == 0
    return output.splitlines()


def run(name: str, *args: str, **variables: str) -> list[str]:
    return finish(start(name, *args, **variables))
