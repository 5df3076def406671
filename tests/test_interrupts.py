from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.interrupts import hear_interrupts

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOK = "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def is_deaf() -> bool:
    """Return whether a program that is started now ignores SIGINT."""
    done = subprocess.run((sys.executable, "-c", LOOK), capture_output=True, text=True, check=True)
    return done.stdout.strip() == "True"


def test_a_run_in_the_background_hears_interrupts_and_so_do_its_programs() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert is_deaf()
    hear_interrupts()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert not is_deaf()


def test_a_handler_that_is_there_stays() -> None:
    def handler(*_: object) -> None:
        """Do nothing."""

    signal.signal(signal.SIGINT, handler)
    hear_interrupts()
    assert signal.getsignal(signal.SIGINT) is handler
