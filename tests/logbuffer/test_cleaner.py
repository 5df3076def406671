from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aeron_async.logbuffer.log_buffers import clean_to
from tests.logbuffer.logs import TERM_LENGTH, make_log

if TYPE_CHECKING:
    from aeron_async.logbuffer.log_buffers import LogBuffers


@pytest.fixture
def dirty() -> LogBuffers:
    log = make_log(term_length=2 * TERM_LENGTH)
    for term in log.terms:
        term[:] = b"\xff" * len(term)
    return log


def test_exactly_the_range_asked_for_is_zeroed(dirty: LogBuffers) -> None:
    assert clean_to(dirty, clean_position=32, position=96) == 96
    assert bytes(dirty.terms[0][:128]) == b"\xff" * 32 + bytes(64) + b"\xff" * 32


def test_one_call_stays_within_one_term(dirty: LogBuffers) -> None:
    length = dirty.term_length
    clean = clean_to(dirty, clean_position=64, position=4 * length)
    assert clean == length
    assert not any(dirty.terms[0][64:])
    assert dirty.terms[1][0] == 0xFF
    assert clean_to(dirty, clean_position=clean, position=4 * length) == 2 * length
    assert not any(dirty.terms[1])
    # The fourth term lies where the first did, of which 64 bytes were left.
    assert clean_to(dirty, clean_position=3 * length, position=3 * length + 32) == 3 * length + 32
    assert bytes(dirty.terms[0][:96]) == bytes(32) + b"\xff" * 32 + bytes(32)


@pytest.mark.parametrize("position", [64, 32, -65_536])
def test_what_is_clean_stays_untouched(dirty: LogBuffers, position: int) -> None:
    before = bytes(dirty.terms[0])
    assert clean_to(dirty, clean_position=64, position=position) == 64
    assert bytes(dirty.terms[0]) == before
