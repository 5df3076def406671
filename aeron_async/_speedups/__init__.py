"""Compiled twins of the loops that touch every frame, and why they are not used where they are not.

Which of the two is at work was decided when the package was installed, by whether a C compiler was
there; `AERON_ASYNC_PURE=1` in the environment takes the one in Python at import. A module in Python
that has a twin here says so at its end, and takes it. A test holds the twins together, and
`aeron-async doctor` says which is at work.

A compiled function may do more in one call than its twin, never something else: both stop where
the other may go on, and say how far they came.
"""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aeron_async._speedups.frames import FrameWriter as FrameWriterType
    from aeron_async._speedups.sockets import RunReader as RunReaderType
    from aeron_async._speedups.sockets import SendSegmented
    from aeron_async._speedups.writing import BlockWriter as BlockWriterType

__all__ = [
    "PURE_VARIABLE",
    "WHY_PURE",
    "BlockWriter",
    "CompiledRunReader",
    "FrameWriter",
    "send_segmented",
]

PURE_VARIABLE: Final = "AERON_ASYNC_PURE"
"""Set to anything but 0, it takes the twins in Python."""


def _why_pure() -> str | None:
    """Return why the compiled twins are not to be used, or None if they are."""
    if os.environ.get(PURE_VARIABLE, "0") not in {"", "0"}:
        return f"{PURE_VARIABLE} is set"
    try:
        for name in ("atomics", "frames", "batches", "chains", "paths"):
            import_module(f"{__name__}.{name}")
    except (ImportError, ValueError) as error:
        # A ValueError where one was built before, and another after, a change.
        return f"it was not built when the package was installed ({error})"
    return None


WHY_PURE: Final = _why_pure()
"""Why the twins in Python are at work; None if the compiled ones are."""

# What has no twin: Python would save nothing by it, or cannot do it.
FrameWriter: type[FrameWriterType] | None = None
"""Appends what takes no thought; None in Python."""
CompiledRunReader: type[RunReaderType] | None = None
"""Receives many datagrams in one call; None in Python, and where there is no `recvmsg`."""
send_segmented: SendSegmented | None = None
"""Sends many runs of datagrams in one call; None where `CompiledRunReader` is."""
BlockWriter: type[BlockWriterType] | None = None
"""Writes blocks to files in a thread apart; None in Python, and where there are no such threads."""

if WHY_PURE is None:
    from aeron_async._speedups.frames import FrameWriter

    # A system may be without the calls that this needs, and lacks nothing else then.
    with suppress(ImportError):
        from aeron_async._speedups.sockets import RunReader as CompiledRunReader
        from aeron_async._speedups.sockets import send_segmented
    with suppress(ImportError):
        from aeron_async._speedups.writing import BlockWriter
