"""Foreign words made safe."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.text import LIMIT, printable


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("aeron:udp?endpoint=[fe80::1]:20121|alias=[/x]", None),
        ("Zürich, 東京, \N{CLOCKWISE OPEN CIRCLE ARROW}", None),
        ("", None),
        ("a\\b", None),
        ("\x1b[2Jgone\x07", r"\x1b[2Jgone\x07"),
        ("one\r\ntwo\tthree", r"one\r\ntwo\tthree"),
        ("\x7f\x85\x9b31m", r"\x7f\x85\x9b31m"),
        ("safe\u202egpj.exe\u2066", r"safe\u202egpj.exe\u2066"),
        ("zero\u200bwidth\ufeff\U000e0041", r"zero\u200bwidth\ufeff\U000e0041"),
        ("lines\u2028and\u2029paragraphs", r"lines\u2028and\u2029paragraphs"),
        ("half \ud83d a pair", r"half \ud83d a pair"),
        ("name\udcff of a file", r"name\xff of a file"),
        (b"caf\xc3\xa9 \xff\xc0\x1b[0m", r"café \xff\xc0\x1b[0m"),
        (bytearray(b"\x00"), r"\x00"),
        (memoryview(b"x\n"), r"x\n"),
        (ValueError("no\x1b"), r"no\x1b"),
        (None, "None"),
    ],
)
def test_what_cannot_be_shown_is_escaped(value: object, shown: str | None) -> None:
    """ESC sequences and their like never reach a terminal."""
    assert printable(value) == (value if shown is None else shown)


@pytest.mark.untraced
def test_every_character_that_moves_or_hides_others_is_escaped() -> None:
    dangerous = [
        character
        for character in map(chr, range(sys.maxunicode + 1))
        if unicodedata.category(character) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    ]
    assert len(dangerous) > 900_000
    # Many at once, none of which is cut off: each call has its price.
    for start in range(0, len(dangerous), 1_000):
        some = dangerous[start : start + 1_000]
        shown = printable("".join(some), limit=16_384)
        assert shown.isascii(), hex(ord(some[0]))
        assert shown.isprintable(), hex(ord(some[0]))
        assert shown.count("\\") == len(some), hex(ord(some[0]))


@pytest.mark.parametrize("limit", [64, LIMIT, 65_536])
@pytest.mark.parametrize(
    ("value", "unit"),
    [
        ("x" * 70_000, "characters"),
        ("é\x1b" * 40_000, "characters"),
        (b"x" * 70_000, "bytes"),
        ("東".encode() * 70_000, "bytes"),
        (b"\xff" * 70_000, "bytes"),
        (b"\xf0\x9f" * 35_000, "bytes"),
    ],
)
def test_a_long_text_is_cut_and_says_how_much(value: str | bytes, unit: str, limit: int) -> None:
    shown = printable(value, limit=limit)
    assert len(shown) <= limit
    head, _, note = shown.rpartition("... (")
    count, found_unit = note.removesuffix(")").split(" more ")
    assert found_unit == unit
    kept = value[: len(value) - int(count)]
    assert printable(kept, limit=4 * len(value)) == head
    assert len(head) > limit - 48


def test_what_just_fits_is_not_cut() -> None:
    assert printable("x" * 64, limit=64) == "x" * 64
    assert printable("x" * 60 + "\x1b", limit=64) == "x" * 60 + r"\x1b"
    assert printable("x" * 61 + "\x1b", limit=64).endswith("... (30 more characters)")


@given(value=st.text(st.characters(), max_size=300) | st.binary(max_size=300))
def test_the_result_is_harmless_and_stays_as_it_is(value: str | bytes) -> None:
    shown = printable(value, limit=64)
    assert len(shown) <= 64
    assert shown.isprintable()
    assert printable(shown, limit=64) == shown
