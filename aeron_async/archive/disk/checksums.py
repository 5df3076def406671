"""Checksums of frames and of catalog entries: none, CRC-32 or CRC-32C.

Source: Aeron `Checksum`, `Checksums`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, final

from aeron_async.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Buffer

__all__ = [
    "CHECKSUMS",
    "Checksum",
    "ChecksumTally",
    "checksum_named",
    "kind_of",
]

Checksum = Callable[["Buffer"], int]
"""Returns a signed 32-bit number for a range of bytes."""


def signed(value: int) -> int:
    """Return 32 bits as a signed number, as files store them."""
    return value - (1 << 32) if value >> 31 else value


def crc32(data: Buffer) -> int:
    """Return the CRC-32 of zip and Ethernet."""
    return signed(zlib.crc32(data))


def crc32c(data: Buffer) -> int:
    """Return the CRC-32 of Castagnoli, which processors compute in hardware."""
    from crc32c import crc32c as compute  # noqa: PLC0415 - optional dependency

    return signed(compute(data))


CHECKSUMS: Final[Mapping[str, Checksum]] = {
    "crc32": crc32,
    "crc-32": crc32,
    "crc32c": crc32c,
    "crc-32c": crc32c,
    # Names in the properties of the official archive.
    "org.agrona.checksum.Crc32": crc32,
    "org.agrona.checksum.Crc32c": crc32c,
    "io.aeron.archive.checksum.Crc32": crc32,
    "io.aeron.archive.checksum.Crc32c": crc32c,
}


def kind_of(data: Buffer, value: int) -> str | None:
    """Return the name of the checksum with that value for some bytes; None if there is none.

    A checksum whose package is not installed is skipped.
    """
    for name in ("crc32", "crc32c"):
        with suppress(ImportError):
            if CHECKSUMS[name](data) == value:
                return name
    return None


def checksum_named(name: str | None) -> Checksum | None:
    """Return a checksum by its name; None for no checksum.

    Raises:
        ConfigurationError: No checksum has that name, or its package is not installed.
    """
    if name is None or name == "none":
        return None
    found = CHECKSUMS.get(name)
    if found is None:
        message = f"no checksum is named {name!r}: crc32, crc32c or none"
        raise ConfigurationError(message)
    if found is crc32c and find_spec("crc32c") is None:
        message = f"checksum {name} needs a package: pip install 'aeron-async[crc32c]'"
        raise ConfigurationError(message)
    return found


@final
class ChecksumTally:
    """Recognises frames without a checksum, which have a session id of the recording in its place.

    Args:
        session_id: Session id of the recording in the catalog.

    Attributes:
        without: Number of frames without a checksum so far.
    """

    def __init__(self, session_id: int) -> None:
        self.without: int = 0
        self._sessions = {0, session_id}

    def has_none(
        self, stored: int, payload: Buffer, *, following: int | None, is_data_next: bool
    ) -> bool:
        """Return whether a frame whose checksum is not right was recorded without one.

        A recording that was extended has frames of earlier sessions, whose ids are not stored. Such
        a frame has the same value as the next frame, whereas checksums differ; or, if it is alone,
        the next frame was recorded without a checksum.

        Args:
            stored: Value in place of its session id: that, or a checksum.
            payload: Bytes behind its header.
            following: The same value of the next frame; None if that is not in the buffer.
            is_data_next: Whether that is a data frame; padding has a session id in any case.
        """
        if stored not in self._sessions:
            is_none_next = is_data_next and following in self._sessions
            if following != stored and not is_none_next:
                return False
            if kind_of(payload, stored) is not None:
                return False
            self._sessions.add(stored)
        self.without += 1
        return True
