"""Running an example the way a reader would: as a program of its own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from tests import warm
from tests.logs import without_lines_of_the_machine
from tests.tracing import untraced_environment

if TYPE_CHECKING:
    from tests.warm import Program

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "examples"
# Generous: a busy machine is no reason to fail. The examples end by themselves long before.
TIMEOUT_S = 300


def channel(port: int) -> str:
    return f"aeron:udp?endpoint=127.0.0.1:{port}"


def start(name: str, *args: str, **variables: str) -> Program:
    return warm.start(str(EXAMPLES / f"{name}.py"), args, untraced_environment() | variables)


def finish(program: Program, complaint: str = "") -> list[str]:
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
