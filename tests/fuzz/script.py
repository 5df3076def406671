"""Bytes read as a script: the small language in which a fuzzer writes whole conversations.

Every byte string is a script. Numbers are one to eight bytes, little endian; behind the end all
bytes are zero. A choice is a byte modulo the number of things to choose from, so a changed byte
changes one thing and whatever follows keeps its meaning.
"""

from __future__ import annotations

from typing import Final

__all__ = ["EDGES", "Script"]

EDGES: Final = (0, 1, -1, 31, 32, 33, 64, 2**31 - 1, -(2**31), 2**30, 65_536, 65_535, 1_408, -32)
"""Numbers that fields of 32 bits are likely to be wrong at."""


class Script:
    """A place in a script."""

    __slots__ = ("_at", "_data", "_end")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._end = len(data)

    @property
    def is_over(self) -> bool:
        return self._at >= self._end

    def byte(self) -> int:
        at = self._at
        self._at = at + 1
        return self._data[at] if at < self._end else 0

    def signed(self) -> int:
        """Return a number of -128 to 127."""
        return (self.byte() ^ 0x80) - 0x80

    def short(self) -> int:
        """Return a number of 0 to 65535."""
        return self.byte() | self.byte() << 8

    def int32(self) -> int:
        """Return an edge, mostly; or any number of 32 bits."""
        choice = self.byte()
        if choice < 0xF0:
            return EDGES[choice % len(EDGES)]
        return int.from_bytes(self.take(4), "little", signed=True)

    def take(self, length: int) -> bytes:
        """Return as many bytes as there are, up to `length`, and zeros for the others."""
        found = self._data[self._at : self._at + length]
        self._at += length
        return found.ljust(length, b"\0")
