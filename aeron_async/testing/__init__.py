"""Simulated worlds for tests: virtual time, a simulated network, and hosts with faults.

Names are imported on first use: this package contains the plugin for pytest, and every run of
pytest loads it if the package is installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aeron_async.testing.fates import Bursts, Conditions, Fate, Link, ScriptedFates
    from aeron_async.testing.host import Host, HostClock
    from aeron_async.testing.recorder import Recorder, ViolationError
    from aeron_async.testing.services import Market, Tick
    from aeron_async.testing.trace import PcapWriter, Trace, Verdict
    from aeron_async.testing.virtual_clock import (
        DeadlockError,
        LivelockError,
        TimeLimitError,
        VirtualLoop,
        run_virtual,
    )
    from aeron_async.testing.world import LeakError, World, simulate
else:
    # Hidden from type checkers, which would accept every name.
    def __getattr__(name: str) -> object:
        for module, names in MODULES.items():
            if name in names:
                return getattr(import_module(f"{__name__}.{module}"), name)
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)


__all__ = [
    "Bursts",
    "Conditions",
    "DeadlockError",
    "Fate",
    "Host",
    "HostClock",
    "LeakError",
    "Link",
    "LivelockError",
    "Market",
    "PcapWriter",
    "Recorder",
    "ScriptedFates",
    "Tick",
    "TimeLimitError",
    "Trace",
    "Verdict",
    "ViolationError",
    "VirtualLoop",
    "World",
    "run_virtual",
    "simulate",
]

MODULES: Final[dict[str, tuple[str, ...]]] = {
    "fates": ("Bursts", "Conditions", "Fate", "Link", "ScriptedFates"),
    "host": ("Host", "HostClock"),
    "recorder": ("Recorder", "ViolationError"),
    "services": ("Market", "Tick"),
    "trace": ("PcapWriter", "Trace", "Verdict"),
    "virtual_clock": (
        "DeadlockError",
        "LivelockError",
        "TimeLimitError",
        "VirtualLoop",
        "run_virtual",
    ),
    "world": ("LeakError", "World", "simulate"),
}
"""The module of each public name."""


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
