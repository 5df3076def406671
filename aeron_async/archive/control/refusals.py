"""Errors of archives, as exceptions here and as numbers in the control protocol."""

from __future__ import annotations

from typing import Final

from aeron_async.errors import (
    ArchiveError,
    ArchiveErrorCode,
    InvalidPositionError,
    StorageError,
    UnknownRecordingError,
)
from aeron_async.text import printable

__all__ = ["archive_error", "unknown_recording"]

KINDS: Final[dict[ArchiveErrorCode, type[ArchiveError]]] = {
    ArchiveErrorCode.UNKNOWN_RECORDING: UnknownRecordingError,
    ArchiveErrorCode.INVALID_POSITION: InvalidPositionError,
    ArchiveErrorCode.STORAGE_SPACE: StorageError,
}
"""Codes that have an exception of their own."""
TEXT_LENGTH_MAX: Final = 1_000
"""In characters: an archive elsewhere says what it likes."""


def archive_error(code: int, text: str) -> ArchiveError:
    """Return what an archive says was wrong; a code that is not known is a generic one."""
    text = printable(text, TEXT_LENGTH_MAX)
    known = ArchiveErrorCode(code) if code in set(ArchiveErrorCode) else ArchiveErrorCode.GENERIC
    kind = KINDS.get(known)
    return ArchiveError(text, code=known) if kind is None else kind(text)


def unknown_recording(recording_id: int) -> UnknownRecordingError:
    """Return the error about a recording that is not there, in the official archive's words."""
    return UnknownRecordingError(f"unknown recording id: {recording_id}")
