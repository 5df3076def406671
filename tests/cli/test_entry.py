"""The command where what it needs is not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from aeron_async.cli.entry import NEEDED
from tests.without import without

AS_MODULE = "import runpy; runpy.run_module('aeron_async', run_name='__main__', alter_sys=True)"
AS_COMMAND = "from aeron_async.cli.entry import main; sys.exit(main())"


@pytest.mark.parametrize("start", [AS_MODULE, AS_COMMAND])
@pytest.mark.parametrize(
    ("missing", "named"),
    [
        (["cyclopts"], "cyclopts, which is not installed"),
        (["rich"], "rich, which is not installed"),
        ([*NEEDED, "uvloop"], "cyclopts, rich, which are not installed"),
    ],
)
def test_what_to_install_is_one_line_and_exit_code_2(
    missing: list[str], named: str, start: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", without(missing) + start, "--version"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == f"error: the command needs {named}: pip install 'aeron-async[cli]'\n"
    assert (done.returncode, done.stdout) == (2, "")


def test_the_command_does_without_uvloop() -> None:
    done = subprocess.run(
        [sys.executable, "-c", without(["uvloop"]) + AS_COMMAND, "doctor", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert '"asyncio, of this command' in done.stdout
    assert done.stderr == ""
