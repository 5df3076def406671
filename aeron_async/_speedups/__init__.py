"""Compiled twins of what every frame or every turn costs, and the reason where they are not used.

They were built when the package was installed if there was a C compiler. `AERON_ASYNC_PURE=1` in
the environment selects pure Python at import. A Python module with a compiled twin imports it at
its end. A test compares the twins, and `aeron-async doctor` says which of them are in use.

A compiled function may do more in one call than its twin, but nothing else: where one stops, the
other may continue, and both return how far they got.
"""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aeron_async._speedups.appending import FrameWriter as FrameWriterType
    from aeron_async._speedups.lanes import SendLane as SendLaneType
    from aeron_async._speedups.sockets import BatchReader as BatchReaderType
    from aeron_async._speedups.sockets import LoneReading as LoneReadingType
    from aeron_async._speedups.sockets import SendSegmented, SendToMany
    from aeron_async._speedups.writing import BlockWriter as BlockWriterType

__all__ = [
    "PURE_VARIABLE",
    "WHY_PURE",
    "BlockWriter",
    "CompiledBatchReader",
    "FrameWriter",
    "LoneReading",
    "SendLane",
    "send_segmented",
    "send_to_many",
]

PURE_VARIABLE: Final = "AERON_ASYNC_PURE"
"""If set to anything but 0, pure Python is used."""


def _why_pure() -> str | None:
    """Return why the compiled twins are not used, or None if they are."""
    if os.environ.get(PURE_VARIABLE, "0") not in {"", "0"}:
        return f"{PURE_VARIABLE} is set"
    try:
        for name in (
            "atomics",
            "frames",
            "appending",
            "messages",
            "arrays",
            "calling",
            "chains",
            "clocks",
            "conflating",
            "deliveries",
            "paths",
            "gathering",
            "lanes",
            "scanning",
            "silence",
            "walks",
        ):
            import_module(f"{__name__}.{name}")
    except (ImportError, ValueError) as error:
        # ValueError: some modules were built before a change, and others after it.
        return f"it was not built when the package was installed ({error})"
    return None


WHY_PURE: Final = _why_pure()
"""Why pure Python is used; None if the compiled twins are."""

# Compiled code without a Python twin: Python would gain nothing by it, or cannot do it.
FrameWriter: type[FrameWriterType] | None = None
"""The compiled fast path of `Appender.offer`; None in pure Python."""
SendLane: type[SendLaneType] | None = None
"""Sends a lone offer in one call; None in pure Python."""
CompiledBatchReader: type[BatchReaderType] | None = None
"""Receives many datagrams in one call; None in pure Python, and on systems without `recvmsg`."""
LoneReading: type[LoneReadingType] | None = None
"""Takes datagrams that arrive alone; None where `CompiledBatchReader` is None."""
send_segmented: SendSegmented | None = None
"""Sends many segment batches in one call; None where `CompiledBatchReader` is None."""
send_to_many: SendToMany | None = None
"""Sends segment batches to many addresses; None where `CompiledBatchReader` is None."""
BlockWriter: type[BlockWriterType] | None = None
"""Writes blocks to files in its own thread; None in pure Python, and without native threads."""

if WHY_PURE is None:
    from aeron_async._speedups.appending import FrameWriter
    from aeron_async._speedups.lanes import SendLane

    # A system may lack the calls that this needs, and still support the rest.
    with suppress(ImportError):
        from aeron_async._speedups.sockets import BatchReader as CompiledBatchReader
        from aeron_async._speedups.sockets import LoneReading, send_segmented, send_to_many
    with suppress(ImportError):
        from aeron_async._speedups.writing import BlockWriter
