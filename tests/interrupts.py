"""Ctrl-C for tests that a shell has started in the background, where it would be ignored."""

from __future__ import annotations

import signal


def hear_interrupts() -> None:
    """Take SIGINT as Python does by itself, where the process was started with it ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
