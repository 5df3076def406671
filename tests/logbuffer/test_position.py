from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.errors import ConfigurationError
from aeron_async.logbuffer.position import (
    check_mtu,
    check_page_size,
    check_term_length,
    compute_position,
    framed_length,
    max_message_length,
    max_payload_length,
    max_position,
    pack_tail,
    partition_index,
    position_bits,
    term_id_at,
    term_offset_at,
    unpack_tail,
)

INT32 = st.integers(-(2**31), 2**31 - 1)
TERM_LENGTHS = st.integers(16, 30).map(lambda bits: 1 << bits)


def test_the_position_of_the_official_example_is_found() -> None:
    assert compute_position(-3, 4096, initial_term_id=-5, bits=16) == 135_168


@given(INT32, TERM_LENGTHS, st.data())
def test_every_position_leads_to_its_term_and_back(
    initial_term_id: int, term_length: int, data: st.DataObject
) -> None:
    position = data.draw(st.integers(0, max_position(term_length) - 1))
    bits = position_bits(term_length)
    term_id = term_id_at(position, initial_term_id=initial_term_id, bits=bits)
    offset = term_offset_at(position, term_length=term_length)
    assert -(2**31) <= term_id < 2**31
    assert 0 <= offset < term_length
    assert compute_position(term_id, offset, initial_term_id=initial_term_id, bits=bits) == position
    assert partition_index(position, bits=bits) == (position // term_length) % 3


def test_term_ids_wrap_from_the_highest_to_the_lowest() -> None:
    assert term_id_at(1 << 16, initial_term_id=2**31 - 1, bits=16) == -(2**31)
    assert compute_position(-(2**31), 64, initial_term_id=2**31 - 1, bits=16) == 65536 + 64


@given(INT32, st.integers(0, 2**30))
def test_a_tail_gives_back_what_was_packed(term_id: int, offset: int) -> None:
    tail = pack_tail(term_id, offset)
    assert -(2**63) <= tail < 2**63
    assert unpack_tail(tail, term_length=2**30) == (term_id, offset)


@pytest.mark.parametrize("initial_term_id", [0, 7, -1, 2**31 - 1, -(2**31)])
def test_the_end_of_the_position_space_is_no_term_before_the_first(initial_term_id: int) -> None:
    end = max_position(65536)
    term_id = term_id_at(end, initial_term_id=initial_term_id, bits=16)
    assert compute_position(term_id, 0, initial_term_id=initial_term_id, bits=16) == end
    assert compute_position(term_id, 32, initial_term_id=initial_term_id, bits=16) < 0
    assert compute_position(term_id + 1, 0, initial_term_id=initial_term_id, bits=16) < 0


def test_a_packed_term_id_wraps() -> None:
    assert unpack_tail(pack_tail(2**31, 32), term_length=65536) == (-(2**31), 32)


@pytest.mark.parametrize("offset", [65_536, 67_968, 72_224, 2**32 - 32])
def test_a_tail_beyond_its_term_is_clamped(offset: int) -> None:
    assert unpack_tail(pack_tail(-7, offset), term_length=65_536) == (-7, 65_536)


@pytest.mark.parametrize(
    ("term_length", "expected"), [(65_536, 8192), (1 << 27, 1 << 24), (1 << 30, 1 << 24)]
)
def test_the_longest_message_is_an_eighth_of_a_term_and_never_above_16_mib(
    term_length: int, expected: int
) -> None:
    assert max_message_length(term_length) == expected


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (0, 32),
        (1, 64),
        (32, 64),
        (33, 96),
        (1376, 1408),
        (1377, 1408 + 64),
        (2752, 2816),
        (2753, 2816 + 64),
    ],
)
def test_framed_lengths_count_headers_and_alignment(length: int, expected: int) -> None:
    assert framed_length(length, max_payload_length=max_payload_length(1408)) == expected


@pytest.mark.parametrize("term_length", [0, -65_536, 32_768, 65_537, 98_304, 1 << 31])
def test_term_lengths_no_driver_takes_are_refused(term_length: int) -> None:
    with pytest.raises(ConfigurationError, match=rf"term length of {term_length} .*term-length="):
        check_term_length(term_length)


@pytest.mark.parametrize("page_size", [0, 2048, 4097, 1 << 31])
def test_page_sizes_no_driver_takes_are_refused(page_size: int) -> None:
    with pytest.raises(ConfigurationError, match=f"page size of {page_size} "):
        check_page_size(page_size)


@pytest.mark.parametrize("mtu_length", [0, 32, 1400, 65_536, -32])
def test_mtus_no_driver_takes_are_refused(mtu_length: int) -> None:
    with pytest.raises(ConfigurationError, match=f"mtu of {mtu_length} bytes .*mtu="):
        check_mtu(mtu_length)


def test_the_ends_of_every_range_are_taken() -> None:
    for term_length in (65_536, 1 << 30):
        check_term_length(term_length)
    for page_size in (4096, 1 << 30):
        check_page_size(page_size)
    for mtu_length in (64, 1408, 65_504):
        check_mtu(mtu_length)
