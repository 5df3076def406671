"""Whether the compiled code or the twins in Python are in use, and why."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from aeron_async import _speedups
from tests.twins import IS_BUILT


@pytest.mark.parametrize(("value", "is_forced"), [("1", True), ("0", False), ("", False)])
def test_the_environment_forces_the_kernel_in_python(value: str, *, is_forced: bool) -> None:
    code = "from aeron_async import _speedups; print(_speedups.WHY_PURE)"
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, _speedups.PURE_VARIABLE: value},
        capture_output=True,
        text=True,
        check=True,
    )
    said = found.stdout.strip()
    assert (said == "AERON_ASYNC_PURE is set") is is_forced
    assert said == "None" or is_forced or not IS_BUILT


def test_only_what_keeps_nothing_says_that_it_needs_no_lock_of_the_interpreter() -> None:
    # A writer may be let go while it writes, and tails are moved by a load and a store.
    sources = Path(__file__).parents[2].glob("aeron_async/_speedups/*.pyx")
    declared = "freethreading_compatible=True"
    found = {path.name for path in sources if declared in path.read_text(encoding="utf-8")}
    assert found == {"atomics.pyx", "chains.pyx", "gathering.pyx"}


PRIVATE = re.compile(r"\b_Py[A-Za-z]\w*|\bPy_SET_\w+|\bob_refcnt\b|\btp_dealloc\b|__asyncio_\w+")
"""Names that one version of Python has, and the next may not have or mean otherwise."""


def test_only_what_python_documents_is_relied_on() -> None:
    sources = list(Path(__file__).parents[2].glob("aeron_async/_speedups/*.p[xy][dxi]"))
    assert len(sources) > 6
    found = {path.name: PRIVATE.findall(path.read_text(encoding="utf-8")) for path in sources}
    assert {name: names for name, names in found.items() if names} == {}
