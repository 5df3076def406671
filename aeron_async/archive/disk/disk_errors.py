"""What to say of a disk that failed, and what whoever runs the archive can do about it."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from aeron_async.errors import ArchiveErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["code_of", "reason_of"]

ACTS: Final[Mapping[int, str]] = {
    errno.ENOSPC: "make room there, for instance with `aeron-async archive prune`",
    errno.EDQUOT: "raise the quota, or make room with `aeron-async archive prune`",
    errno.EROFS: "mount that file system writable",
    errno.EIO: "the disk is broken, or gone: look at the log of the system",
}
FULL: Final = {errno.ENOSPC, errno.EDQUOT}


def reason_of(error: OSError) -> str:
    """Return in one line what failed, and what can be done where that is known."""
    act = ACTS.get(error.errno or 0)
    return str(error) if act is None else f"{error}; {act}"


def code_of(error: OSError) -> ArchiveErrorCode:
    """Return what clients of the archive hear.

    Source: Aeron `RecordingWriter.checkErrorType`.
    """
    is_full = error.errno in FULL
    return ArchiveErrorCode.STORAGE_SPACE if is_full else ArchiveErrorCode.GENERIC
