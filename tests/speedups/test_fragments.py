"""Messages of several fragments, read at once where all of them are there."""

from __future__ import annotations

from typing import Any

import pytest

from tests.logbuffer.logs import TERM_LENGTH, make_log
from tests.twins import TWINS


@pytest.fixture(params=TWINS)
def twin(request: pytest.FixtureRequest) -> Any:
    return request.param()


def fragments(*frames: tuple[int, int, int]) -> Any:
    """Return a term of frames, each of a type, flags, and a length of payload."""
    log = make_log()
    at = 0
    for number, (kind, flags, length) in enumerate(frames, start=1):
        log.term_words[0][at >> 2] = length + 32
        log.term_words[0][(at >> 2) + 1] = kind << 16 | flags << 8
        payload = bytes([number]) * min(length, 100)
        log.terms[0][at + 32 : at + 32 + len(payload)] = payload
        at += (length + 63) & -32
    return log.terms[0], log.term_words[0], log.term_longs[0]


@pytest.mark.parametrize(
    "frames",
    [
        [(1, 0x80, 64), (1, 0x00, 64)],
        [(1, 0x80, 64), (1, 0x80, 64), (1, 0x40, 9)],
        [(1, 0x80, 64), (1, 0xC0, 64)],
        [(1, 0x80, 64), (0, 0x00, 64), (1, 0x40, 9)],
        [(1, 0x80, 64), (1, 0x40, -1)],
        [(1, 0x80, 64), (1, 0x40, -(2**31) - 32)],
        [(1, 0x80, 64), (1, 0x40, 2**31 - 33)],
        [(1, 0x80, 64), (1, 0x40, 70_000)],
        [(1, 0x80, 64), (1, 0x40, 401)],
        [(1, 0x00, 64), (1, 0x40, 64)],
        [(1, 0x40, 64)],
    ],
)
def test_a_message_whose_fragments_are_not_all_there_is_left(
    twin: Any, frames: list[tuple[int, int, int]]
) -> None:
    out: list[Any] = []
    where = fragments((1, 0xC0, 5), *frames)
    assert twin.read_whole(*where, 0, TERM_LENGTH, 0, 9, out, longest=464) == 64
    assert out == [(b"\1" * 5, 64, 0)]


def test_fragments_that_are_there_become_one_message(twin: Any) -> None:
    out: list[Any] = []
    where = fragments((1, 0x80, 64), (1, 0x00, 0), (1, 0x60, 9), (1, 0x80, 0), (1, 0x40, 0))
    assert twin.read_whole(*where, 0, TERM_LENGTH, 1 << 20, 9, out, longest=464) == 256
    message = b"\1" * 64 + b"\3" * 9
    assert out == [(message, (1 << 20) + 192, 0), (b"", (1 << 20) + 256, 0)]
    assert twin.read_whole(*where, 0, TERM_LENGTH, 0, 9, out) == 0
    assert twin.read_whole(*where, 0, 160, 0, 9, out, longest=464) == 0
    assert twin.read_whole(*where, 0, 96, 0, 9, out, longest=464) == 0, "the rest is not there"
    assert twin.read_whole(*where, 0, TERM_LENGTH, 0, 1, out, longest=464) == 192
