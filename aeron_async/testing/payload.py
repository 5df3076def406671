"""Messages that can be checked byte by byte without being kept.

Layout, little endian: 8 bytes the number of the publication, 8 bytes the number of the message,
then a slice of one fixed pattern that both numbers choose. A message shorter than 16 bytes is the
slice alone.
"""

from __future__ import annotations

from random import Random
from struct import Struct
from typing import Final

__all__ = ["IDENTITY_LENGTH", "make_payload"]

IDENTITY: Final = Struct("<qq")
IDENTITY_LENGTH: Final = IDENTITY.size
SLICES: Final = 4099
"""A prime, so that neighbouring messages and publications differ in every byte."""
PATTERN_LENGTH_MAX: Final = 16 * 1024 * 1024
"""The longest message there is."""

_pattern = b""


def make_payload(publication_number: int, message_number: int, length: int) -> bytes:
    """Return the one right content of a message of `length` bytes."""
    start = (publication_number * 101 + message_number * 17) % SLICES
    if length < IDENTITY_LENGTH:
        return _pattern_up_to(start + length)[start : start + length]
    end = start + length - IDENTITY_LENGTH
    identity = IDENTITY.pack(publication_number, message_number)
    return identity + _pattern_up_to(end)[start:end]


def _pattern_up_to(length: int) -> bytes:
    global _pattern  # noqa: PLW0603 - made once, as long as the longest message that was asked for
    if len(_pattern) < length:
        wanted = min(max(length, 2 * len(_pattern), 65_536), PATTERN_LENGTH_MAX + SLICES)
        # Always from the same seed: a longer pattern begins as the shorter one did.
        _pattern = Random(20_121).randbytes(wanted)  # noqa: S311 - a pattern, not a secret
    return _pattern
