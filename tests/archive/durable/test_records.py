"""The header of a record: its bytes, and what others put in its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.archive.disk.descriptor import RecordingDescriptor
from aeron_async.archive.durable.log import in_order
from aeron_async.archive.durable.records import (
    HEADER_LENGTH,
    RecordHeader,
    RecordKind,
    check_producer_name,
    decode_header,
    encode_header,
    producer_id_of,
)
from aeron_async.errors import ConfigurationError

HEADER = RecordHeader(RecordKind.DATA, 0x1122_3344_5566_7788, 5, 2, 1_000)
BYTES = bytes.fromhex(
    "2000 0100 6161 0100 8877665544332211 0500000000000000 e803000000000000 02000000 00000000"
)


def test_the_header_has_the_documented_bytes() -> None:
    assert encode_header(HEADER) == BYTES
    assert decode_header(BYTES + b"data") == (HEADER, HEADER_LENGTH)


def test_a_longer_block_of_a_later_version_is_skipped() -> None:
    later = bytearray(BYTES)
    later[0], later[6] = 40, 2
    assert decode_header(bytes(later) + bytes(8) + b"data") == (HEADER, HEADER_LENGTH + 8)


@pytest.mark.parametrize(
    ("offset", "value"),
    [(0, 31), (0, 255), (2, 3), (4, 0), (6, 0), (16, 0), (23, 0x80), (32, 0)],
)
def test_other_numbers_are_no_record(offset: int, value: int) -> None:
    data = bytearray(BYTES)
    data[offset] = value
    assert decode_header(bytes(data)) is None


@given(st.binary(max_size=100))
def test_any_bytes_are_a_record_or_not(data: bytes) -> None:
    found = decode_header(data)
    assert found is None or HEADER_LENGTH <= found[1] <= len(data)


@pytest.mark.parametrize("name", ["", "a\x1b[2J", "x" * 256, "\n", None, 5])
def test_a_name_that_is_no_printable_text_is_refused(name: object) -> None:
    with pytest.raises(ConfigurationError):
        check_producer_name(name)


def test_a_producer_id_stays_the_same() -> None:
    assert producer_id_of("orders") == 0xE408_D200_DB8A_161C


def descriptor(recording_id: int, start_ms: int) -> RecordingDescriptor:
    return RecordingDescriptor(
        recording_id=recording_id,
        start_position=0,
        start_timestamp_ms=start_ms,
        initial_term_id=0,
        term_length=65_536,
        segment_length=65_536,
        mtu_length=1_408,
        session_id=1,
        stream_id=1,
        stripped_channel="aeron:ipc",
        original_channel="aeron:ipc",
        source_identity="aeron:ipc",
    )


@given(st.lists(st.integers(0, 3), max_size=20), st.randoms(use_true_random=False))
def test_the_order_is_that_of_start_and_id_however_they_are_listed(
    starts: list[int], draw: object
) -> None:
    recordings = [descriptor(number, start) for number, start in enumerate(starts)]
    shuffled = list(recordings)
    draw.shuffle(shuffled)  # type: ignore[attr-defined]
    ordered = [(each.start_timestamp_ms, each.recording_id) for each in in_order(shuffled)]
    assert ordered == sorted((start, number) for number, start in enumerate(starts))
