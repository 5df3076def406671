"""One job at a time for a lake: two would write the same folders, and each remove the other's."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aeron_async.archive.disk.files import OsFile
from aeron_async.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["hold"]


@contextmanager
def hold(path: Path) -> Iterator[None]:
    """Hold a file of a lake; the system lets it go when this process ends, however it does.

    A file system that knows no locks leaves it to Spark, which notices the second query when both
    have read a batch.

    Args:
        path: Of the file, made if there is none; it says which process holds it.

    Raises:
        ConfigurationError: Another process holds it, or it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = OsFile(str(path), os.open(path, os.O_RDWR | os.O_CREAT, 0o644))
    except OSError as error:
        message = f"{str(path)!r} could not be written: {error.strerror}; choose another place"
        raise ConfigurationError(message) from error
    try:
        if file.try_lock() is False:
            holder = path.read_text() or "unknown"
            message = (
                f"lake {str(path.parent.parent)!r} is being written by process {holder}, and two "
                "would write over one another: let that one end, or begin another LAKE"
            )
            raise ConfigurationError(message)
        file.set_length(0)
        file.write([str(os.getpid()).encode()], 0)
        yield
    finally:
        file.close()
