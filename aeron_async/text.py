"""Foreign text made safe for terminals, logs and error texts.

Invariant: the result is one line without control characters, invisible format characters or
undecodable bytes, and never longer than its limit. Applying the function again does not change it.

The result is for people: a backslash is not doubled, so it cannot be converted back. Programs read
the original text in JSON output and in attributes.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

__all__ = ["SHORT", "printable", "utc_time"]

SHORT: Final = 120
"""Limit for a word inside a sentence, such as a name or an address; in characters."""
LIMIT: Final = 500
"""Default limit, in characters: longer than usual channel URIs."""
NOTE_LENGTH_MAX: Final = 32
"""Most characters of the limit that the note about the cut may take."""
BYTES_A_CHARACTER: Final = 4
"""Most bytes of a character in UTF-8."""
UNDECODABLE: Final = range(0xDC80, 0xDD00)
"""The code points by which Python's `surrogateescape` keeps bytes that are not UTF-8."""
UNITS: Final = {1: "s", 1_000: "ms", 1_000_000: "us", 1_000_000_000: "ns"}
"""Units of time, by how many of them make a second."""
NAMED: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(value: object, limit: int = LIMIT) -> str:
    r"""Return foreign text as one harmless line: `a\x1b[2J` shows its ESC and does nothing.

    Control characters (C0, DEL, C1), line separators, format characters such as those that change
    the direction of writing, surrogates, and bytes that are not UTF-8 are escaped. Markup stays as
    it is: code that renders the line must not interpret it as markup.

    Args:
        value: A text, or bytes in UTF-8; anything else is converted with `str`.
        limit: Longest result in characters, at least 64. A note at its end counts what was cut off.
    """
    assert limit >= 2 * NOTE_LENGTH_MAX
    if isinstance(value, bytes | bytearray | memoryview):
        length, unit = len(value), "bytes"
        head = bytes(value[: (limit + 1) * BYTES_A_CHARACTER])
        text = head.decode("utf-8", "surrogateescape")
    else:
        text = value if isinstance(value, str) else str(value)
        length, unit = len(text), "characters"
    if len(text) <= limit and text.isprintable():
        return text
    kept: list[str] = []
    kept_length = cut_at = cut_place = 0
    for index, character in enumerate(text[: limit + 1]):
        escaped = character if character.isprintable() else _escaped(character)
        if kept_length + len(escaped) <= limit - NOTE_LENGTH_MAX:
            cut_at, cut_place = index + 1, len(kept) + 1
        kept.append(escaped)
        kept_length += len(escaped)
        if kept_length > limit:
            break
    else:
        return "".join(kept)
    shown = text[:cut_at]
    is_text = unit == "characters"
    shown_length = len(shown if is_text else shown.encode("utf-8", "surrogateescape"))
    return f"{''.join(kept[:cut_place])}... ({length - shown_length} more {unit})"


def utc_time(count: int, *, per_second: int, pattern: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Return a time in UTC, or the number with a note if it is outside the calendar.

    Args:
        count: Units of time since 1970.
        per_second: Units per second: 1,000 for milliseconds.
        pattern: Format as for `strftime`.
    """
    try:
        return datetime.fromtimestamp(count / per_second, UTC).strftime(pattern)
    except (OverflowError, ValueError, OSError):
        return f"{count}{UNITS[per_second]}-after-1970(not-in-years-1-to-9999)"


def _escaped(character: str) -> str:
    """Return the escape sequence of a character that is not printable."""
    code = ord(character)
    if character in NAMED:
        return NAMED[character]
    if code in UNDECODABLE:
        return f"\\x{code - 0xDC00:02x}"
    if code <= 0xFF:  # noqa: PLR2004 - what two digits can write
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004 - four digits
