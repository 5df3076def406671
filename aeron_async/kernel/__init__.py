"""The few loops that touch every frame, in Python and compiled: the same names, the same results.

Which of the two it is was decided when the package was installed, by whether a C compiler was
there; `AERON_ASYNC_PURE=1` in the environment takes the one in Python at import. A test holds the
twins together, and `aeron-async doctor` says which is at work.

A compiled function may do more in one call than its twin, never something else: both stop where
the other may go on, and say how far they came.
"""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Final

from aeron_async.kernel.batch import Batch, open_batch
from aeron_async.kernel.chains import scan_chain
from aeron_async.kernel.message import Message
from aeron_async.kernel.paths import (
    NOTHING,
    Cell,
    Doorbell,
    HomeLoop,
    Offering,
    Reading,
    Taking,
    inheriting,
)
from aeron_async.kernel.placing import place_runs, skip_whole
from aeron_async.kernel.reading import read_whole
from aeron_async.kernel.scanning import mark_starts, scan_for_send, scan_runs

if TYPE_CHECKING:
    from aeron_async.kernel._frames import FrameWriter as FrameWriterType
    from aeron_async.kernel._sockets import RunReader as RunReaderType
    from aeron_async.kernel._sockets import SendSegmented
    from aeron_async.kernel._writing import BlockWriter as BlockWriterType

__all__ = [
    "NOTHING",
    "PURE_VARIABLE",
    "WHY_PURE",
    "Batch",
    "BlockWriter",
    "Cell",
    "CompiledRunReader",
    "Doorbell",
    "FrameWriter",
    "HomeLoop",
    "Message",
    "Offering",
    "Reading",
    "Taking",
    "inheriting",
    "mark_starts",
    "open_batch",
    "place_runs",
    "read_whole",
    "scan_chain",
    "scan_for_send",
    "scan_runs",
    "send_segmented",
    "skip_whole",
]

PURE_VARIABLE: Final = "AERON_ASYNC_PURE"
"""Set to anything but 0, it takes the kernel in Python."""


def _why_pure() -> str | None:
    """Return why the compiled kernel is not to be used, or None if it is."""
    if os.environ.get(PURE_VARIABLE, "0") not in {"", "0"}:
        return f"{PURE_VARIABLE} is set"
    try:
        for name in ("_atomics", "_frames", "_batches", "_chains", "_paths"):
            import_module(f"aeron_async.kernel.{name}")
    except (ImportError, ValueError) as error:
        # A ValueError where one was built before, and another after, a change.
        return f"it was not built when the package was installed ({error})"
    return None


WHY_PURE: Final = _why_pure()
"""Why the kernel is the one in Python; None if it is the compiled one."""

FrameWriter: type[FrameWriterType] | None = None
"""Appends what takes no thought; None in Python, where it would save nothing."""
CompiledRunReader: type[RunReaderType] | None = None
"""Receives many datagrams in one call; None in Python, and where there is no `recvmsg`."""
send_segmented: SendSegmented | None = None
"""Sends many runs of datagrams in one call; likewise."""
BlockWriter: type[BlockWriterType] | None = None
"""Writes blocks to files in a thread apart; None in Python, and where there are no such threads."""

if WHY_PURE is None:
    from aeron_async.kernel._batches import Batch, open_batch
    from aeron_async.kernel._chains import scan_chain
    from aeron_async.kernel._frames import (
        FrameWriter,
        Message,
        mark_starts,
        place_runs,
        read_whole,
        scan_for_send,
        scan_runs,
        skip_whole,
    )
    from aeron_async.kernel._paths import (
        NOTHING,
        Cell,
        Doorbell,
        HomeLoop,
        Offering,
        Reading,
        Taking,
        inheriting,
    )

    # A system may be without the calls that this needs, and lacks nothing else then.
    with suppress(ImportError):
        from aeron_async.kernel._sockets import RunReader as CompiledRunReader
        from aeron_async.kernel._sockets import send_segmented
    with suppress(ImportError):
        from aeron_async.kernel._writing import BlockWriter
