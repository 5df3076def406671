"""What there is twice, in Python and compiled: both, whichever of the two is at work."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import pytest

from aeron_async import _speedups
from tests.by_hand import NOT_BUILT

if TYPE_CHECKING:
    from types import ModuleType

IS_BUILT: Final = find_spec("aeron_async._speedups.frames") is not None
needs_compiled = pytest.mark.skipif(not IS_BUILT, reason=NOT_BUILT)
COMPILED: Final = (
    "appending",
    "arrays",
    "atomics",
    "calling",
    "chains",
    "clocks",
    "conflating",
    "deliveries",
    "frames",
    "lanes",
    "messages",
    "paths",
    "silence",
    "walks",
)
IN_PYTHON: Final = {
    "driver.core.lanes": (
        *("OfferSending", "ReceiveLane", "Rebuilding", "Reporting", "Sleeping", "Streaming"),
    ),
    "driver.core.silent_streams": ("HeartbeatsIn", "HeartbeatsOut", "ReportsIn", "ReportsOut"),
    "driver.schedule": ("Schedule",),
    "driver.stall_clock": ("StallClock",),
    "driver.stream_blocks": (
        *("entries_of", "fields_of", "firsts_of", "intake_of", "oldest_of", "values_at"),
    ),
    "logbuffer.atomics": (
        *("IS_ATOMIC", "compare_and_swap_32", "compare_and_swap_64", "fetch_add_32"),
        *("fetch_add_64", "load_acquire_32", "load_acquire_64", "store_release_32"),
        "store_release_64",
    ),
    "logbuffer.log_buffers": ("zero",),
    "logbuffer.message": ("Batch", "Message", "open_batch", "read_whole"),
    "logbuffer.placing": ("place_batches", "skip_whole"),
    "logbuffer.rebuilder": ("place_apart", "scan_for_gap"),
    "logbuffer.scanner": (
        "mark_starts",
        "scan_chain",
        "scan_for_send",
        "scan_batches",
        "skip_own",
    ),
    "logbuffer.wake_flag": ("WakeFlag",),
    "counters": ("Cell",),
    "rpc.short_ways": (
        *("ShortBeginning", "ShortCall", "ShortDeadlines", "ShortLink", "ShortMethod"),
        *("ShortOutbox", "ShortServing", "ShortSession"),
    ),
    "client.arrow": ("exported",),
    "client.home_loop": ("HomeLoop",),
    "client.message_delivery": ("Delivering",),
    "client.newest_values": ("KeepingNewest",),
    "client.publication": ("Offering",),
    "client.reading": ("NOTHING", "Reading", "Taking", "inheriting", "message_counts"),
}


@cache
def pure(name: str) -> ModuleType:
    """Return a module of the package as it is where nothing is compiled."""
    # What it imports has to be there before, or would be another for the whole process.
    import_module(f"aeron_async.{name}")
    spec = find_spec(f"aeron_async.{name}")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    with patch.object(_speedups, "WHY_PURE", "a test wants the twin in Python"):
        spec.loader.exec_module(module)
    return module


@cache
def pure_twins() -> Any:
    """Return all twins in Python, as one object."""
    found = {each: getattr(pure(name), each) for name, names in IN_PYTHON.items() for each in names}
    return SimpleNamespace(**found)


def compiled(name: str) -> Any:
    """Return a compiled module."""
    return import_module(f"aeron_async._speedups.{name}")


@cache
def compiled_twins() -> Any:
    """Return all that is compiled, as one object."""
    modules = [compiled(name) for name in COMPILED]
    return SimpleNamespace(**{k: v for module in modules for k, v in vars(module).items()})


TWINS: Final = [
    pytest.param(pure_twins, id="pure"),
    pytest.param(compiled_twins, id="compiled", marks=needs_compiled),
]
