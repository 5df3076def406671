"""The commands that the pages tell people to type."""

from __future__ import annotations

import shlex

import pytest

from aeron_async.cli.main import ARCHIVE_COMMANDS, COMMANDS, PIPELINE_COMMANDS
from tests.examples.pages import ROOT, Block, blocks

CONSOLE = [block for block in blocks() if block.language == "console"]
# What a page tells people to run that is not ours.
SYSTEM_COMMANDS = {"sudo", "make", "pip", "pytest", "."}


@pytest.mark.parametrize("block", CONSOLE, ids=lambda block: block.text.splitlines()[0].strip())
def test_commands_in_a_page_exist(block: Block) -> None:
    for line in block.text.splitlines():
        prompt, *words = shlex.split(line)
        assert prompt == "$"
        program, *arguments = words
        if program == "python" and arguments[0] == "-m":
            module = ROOT / arguments[1].replace(".", "/")
            assert module.with_suffix(".py").exists() or (module / "__main__.py").exists()
        elif program == "python":
            assert (ROOT / arguments[0]).exists()
        elif program == "aeron-async":
            groups = {"archive": ARCHIVE_COMMANDS, "pipeline": PIPELINE_COMMANDS}
            if arguments[0] in groups:
                assert arguments[1] in {command for command, *_ in groups[arguments[0]]}
            else:
                assert arguments[0] in {command for command, _ in COMMANDS}
        else:
            assert program in SYSTEM_COMMANDS
        if program == "make":
            assert f"\n{arguments[0]}:" in (ROOT / "Makefile").read_text()
