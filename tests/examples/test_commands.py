"""The commands that the pages tell people to type."""

from __future__ import annotations

import itertools
import shlex

import pytest

from aeron_async.cli import driver_run
from aeron_async.cli.entry import runs_driver
from aeron_async.cli.main import (
    ARCHIVE_COMMANDS,
    COMMANDS,
    DRIVER_COMMANDS,
    PIPELINE_COMMANDS,
)
from tests.examples.pages import ROOT, Block, blocks

CONSOLE = [block for block in blocks() if block.language == "console"]
# What a page tells people to run that is not ours.
SYSTEM_COMMANDS = {"sudo", "make", "pip", "pytest", ".", "mkdir", "tar", "zip", "cc", "ssh"}
SYSTEM_COMMANDS |= {"cd", "curl", "jupyter", "jupytext", "uvicorn"}
SYSTEM_MODULES = {"venv", "uvicorn", "aiohttp.web"}


@pytest.mark.parametrize("block", CONSOLE, ids=lambda block: block.text.splitlines()[0].strip())
def test_commands_in_a_page_exist(block: Block) -> None:
    for line in block.text.replace("\\\n", " ").splitlines():
        # A comment stands behind a space: `env.tar.gz#env` is a name.
        prompt, *words = shlex.split(line.partition(" # ")[0])
        assert prompt == "$"
        while words:
            end = words.index("&&") if "&&" in words else len(words)
            check(words[:end])
            words = words[end + 1 :]


def check(words: list[str]) -> None:
    program, *arguments = itertools.dropwhile(is_setting, words)
    if program in {"python", "python3"} and arguments[0] == "-m":
        module = ROOT / arguments[1].replace(".", "/")
        is_ours = module.with_suffix(".py").exists() or (module / "__main__.py").exists()
        assert is_ours or arguments[1] in SYSTEM_MODULES
    elif program == "python":
        # A tutorial has its reader write a file that is one of the examples.
        assert (ROOT / arguments[0]).exists() or (ROOT / "examples" / arguments[0]).exists()
    elif program == "spark-submit":
        script = next(each for each in arguments if each.endswith(".py"))
        assert (ROOT / script).exists()
    elif program == "export":
        assert all(is_setting(each) for each in arguments)
    elif program == "aeron-async":
        groups = {
            "archive": ARCHIVE_COMMANDS,
            "driver": DRIVER_COMMANDS,
            "pipeline": PIPELINE_COMMANDS,
        }
        if runs_driver(arguments):
            driver_run.parser().parse_args(arguments[1:])
        elif arguments[0] in groups:
            assert arguments[1] in {command for command, *_ in groups[arguments[0]]}
        else:
            assert arguments[0] in {command for command, _ in COMMANDS}
    else:
        # An environment that the page has made has programs of its own.
        assert program in SYSTEM_COMMANDS or program.startswith("env/bin/")
    if program == "make":
        assert f"\n{arguments[0]}:" in (ROOT / "Makefile").read_text()


def is_setting(word: str) -> bool:
    """Return whether a word sets a variable of the environment."""
    return word.partition("=")[0].isidentifier() and "=" in word
