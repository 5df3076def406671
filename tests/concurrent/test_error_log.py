from __future__ import annotations

import struct
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.concurrent import error_log
from aeron_async.concurrent.error_log import (
    HEADER_LENGTH,
    DistinctErrorLog,
    ErrorObservation,
    ErrorOutcome,
    read_error_log,
)
from aeron_async.errors import ConfigurationError

NOW_MS = 1_795_466_301_053
# The first record of the log of an official C driver 1.53, after two observations: its header, and
# the beginning of its text of 619 bytes.
GOLDEN_START = bytes.fromhex("83020000 02000000 ed8e210aa2010000 7d8e210aa2010000")
GOLDEN_LINE = b"(22) Invalid argument\n[aeron_driver_conductor_set_error_from_result"


def record(
    text: bytes, *, length: int | None = None, count: int = 1, last: int = NOW_MS, first: int = 0
) -> bytes:
    """Return a record that no writer has checked."""
    size = HEADER_LENGTH + len(text) if length is None else length
    encoded = struct.pack("<iiqq", size, count, last, first) + text
    return encoded + bytes(-len(encoded) % 8)


def texts(data: bytes | bytearray, *, since_ms: int = 0) -> list[str]:
    return [each.text for each in read_error_log(data, since_ms=since_ms)]


def test_a_record_of_an_official_driver_is_read() -> None:
    data = GOLDEN_START + GOLDEN_LINE.ljust(643 - HEADER_LENGTH, b".") + bytes(5 + 64)
    (found,) = read_error_log(data)
    assert found.text.startswith(GOLDEN_LINE.decode())
    assert len(found.text) == 619
    assert attributes(found) == (2, 1_795_466_301_053, 1_795_466_301_165)


def attributes(found: ErrorObservation) -> tuple[int, int, int]:
    return found.observation_count, found.first_observation_ms, found.last_observation_ms


def test_records_are_laid_out_as_an_official_driver_does_it() -> None:
    buffer = bytearray(256)
    log = DistinctErrorLog(buffer)
    text = GOLDEN_LINE.decode().ljust(619, ".")[:99]
    log.record(text, NOW_MS)
    log.record(text, NOW_MS + 112)
    # Only the length differs from the golden record, since this text is shorter.
    assert buffer[4:HEADER_LENGTH] == GOLDEN_START[4:]
    assert buffer[:4] == struct.pack("<i", HEADER_LENGTH + 99)
    assert buffer[HEADER_LENGTH : HEADER_LENGTH + 99] == text.encode()
    log.record("(-2) unknown subscription\n", NOW_MS)
    assert buffer[123:128] == bytes(5)
    assert buffer[128:] == record(b"(-2) unknown subscription\n", first=NOW_MS).ljust(128, b"\0")


def test_errors_are_distinct_by_text() -> None:
    buffer = bytearray(1024)
    log = DistinctErrorLog(buffer)
    outcomes = [log.record(text, now) for now, text in enumerate(("a", "b", "a", "ab", "", "a"))]
    new, again = ErrorOutcome.NEW, ErrorOutcome.AGAIN
    assert outcomes == [new, new, again, new, new, again]
    assert log.distinct_count == 4
    assert [(each.text, *attributes(each)) for each in read_error_log(buffer)] == [
        ("a", 3, 0, 5),
        ("b", 1, 1, 1),
        ("ab", 1, 3, 3),
        ("", 1, 4, 4),
    ]


def test_an_error_that_does_not_fit_is_counted_and_leaves_nothing() -> None:
    buffer = bytearray(64)
    log = DistinctErrorLog(buffer)
    assert log.record("x" * 8, 1) is ErrorOutcome.NEW
    before = bytes(buffer)
    for _ in range(2):
        assert log.record("y" * 9, 2) is ErrorOutcome.NO_ROOM
    assert buffer == before
    assert log.unrecorded_count == 2
    # What is known is counted on, and what is short enough still fits, to the last byte.
    assert log.record("x" * 8, 3) is ErrorOutcome.AGAIN
    assert log.record("z" * 8, 4) is ErrorOutcome.NEW
    assert log.record("", 5) is ErrorOutcome.NO_ROOM
    assert log.distinct_count == 2
    assert texts(buffer) == ["x" * 8, "z" * 8]


def test_memory_is_bounded_by_the_buffer() -> None:
    log = DistinctErrorLog(bytearray(4096))
    outcomes = Counter(log.record(f"error {number}", number) for number in range(10_000))
    assert outcomes[ErrorOutcome.NEW] == log.distinct_count == 10 + 90 + 22
    assert log.unrecorded_count == 10_000 - log.distinct_count


@pytest.mark.parametrize("length", [0, 8, 23])
def test_a_buffer_without_room_for_a_record_is_refused(length: int) -> None:
    with pytest.raises(ConfigurationError, match=f"at least 24 bytes, got {length}"):
        DistinctErrorLog(bytearray(length))
    assert texts(bytearray(length)) == []


def test_bytes_beyond_the_last_word_are_not_used() -> None:
    buffer = bytearray(31)
    log = DistinctErrorLog(buffer)
    assert log.record("x", 1) is ErrorOutcome.NO_ROOM
    assert log.record("", 1) is ErrorOutcome.NEW
    assert buffer[24:] == bytes(7)
    assert texts(buffer) == [""]


def test_the_length_is_stored_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the fence everything stands there but the length, so no reader sees half a text."""
    buffer = bytearray(64)
    seen: list[tuple[int, ...]] = []

    def look() -> None:
        seen.append(struct.unpack_from("<iiqq", buffer))
        assert buffer[HEADER_LENGTH:28] == b"text"

    monkeypatch.setattr(error_log, "release_fence", look)
    log = DistinctErrorLog(buffer)
    log.record("text", 3)
    log.record("text", 4)
    assert seen == [(0, 1, 3, 3), (28, 2, 3, 3)]
    assert struct.unpack_from("<iiqq", buffer) == (28, 2, 4, 3)


def test_a_length_that_changes_under_the_reader_is_read_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reader bounds the text by the value that it checked, and goes on from there."""
    data = bytearray(record(b"12345678") + record(b"next"))
    lengths = iter((2**31 - 1, -1))

    def write() -> None:
        struct.pack_into("<i", data, 0, next(lengths, 0))

    monkeypatch.setattr(error_log, "acquire_fence", write)
    assert texts(data) == ["12345678", "next"]


def test_another_writer_cannot_move_the_writer() -> None:
    buffer = bytearray(256)
    log = DistinctErrorLog(memoryview(buffer)[:128])
    log.record("first", 1)
    buffer[:128] = b"\xff" * 128
    assert log.record("first", 2) is ErrorOutcome.AGAIN
    assert log.record("second", 3) is ErrorOutcome.NEW
    assert struct.unpack_from("<iiq", buffer) == (-1, 2, 2)
    assert buffer[32:64] == record(b"second", last=3, first=3)[:30] + b"\xff\xff"
    assert buffer[128:] == bytes(128)


def test_the_count_stops_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(error_log, "OBSERVATION_COUNT_MAX", 3)
    buffer = bytearray(64)
    log = DistinctErrorLog(buffer)
    for now in range(9):
        log.record("often", now)
    (found,) = read_error_log(buffer)
    assert attributes(found) == (3, 0, 8)


def test_text_stays_as_it_is() -> None:
    """It is escaped where it is shown; only what UTF-8 cannot hold is replaced at once."""
    buffer = bytearray(256)
    log = DistinctErrorLog(buffer)
    log.record("\x1b[2J\u202eü\n\0", 1)
    log.record("lone \ud800 and byte \udcff", 1)
    assert texts(buffer) == ["\x1b[2J\u202eü\n\0", "lone \\ud800 and byte \\udcff"]


def test_only_what_was_observed_since_is_read() -> None:
    buffer = bytearray(256)
    log = DistinctErrorLog(buffer)
    log.record("old", 10)
    log.record("again", 11)
    log.record("new", 20)
    log.record("again", 21)
    assert texts(buffer, since_ms=20) == ["again", "new"]
    assert texts(buffer, since_ms=22) == []


def test_a_record_without_observations_is_shown_with_count_0() -> None:
    """A C driver stores the length before the count and the last observation."""
    data = record(b"young", count=0, last=0, first=5) + record(b"next")
    assert [(each.text, *attributes(each)) for each in read_error_log(data)] == [
        ("young", 0, 5, 0),
        ("next", 1, 0, NOW_MS),
    ]
    assert texts(data, since_ms=1) == ["next"]


@pytest.mark.parametrize("length", [0, -1, -(2**31), 1, 23])
def test_a_length_below_the_header_ends_the_log(length: int) -> None:
    assert texts(record(b"a") + record(b"b", length=length) + record(b"c")) == ["a"]


@pytest.mark.parametrize("length", [33, 2**31 - 1])
def test_a_length_past_the_end_is_cut_there(length: int) -> None:
    assert texts(record(b"a") + record(b"12345678", length=length)) == ["a", "12345678"]


@pytest.mark.parametrize("rest", range(24))
def test_no_header_is_read_past_the_end(rest: int) -> None:
    """The next header would begin inside the buffer and end outside, whatever is there."""
    assert texts(record(b"12345678") + b"\x18" * rest) == ["12345678"]


def test_bytes_that_are_not_utf_8_are_replaced() -> None:
    assert texts(record(b"a\xff\xfe")) == ["a\ufffd\ufffd"]


@given(st.lists(st.tuples(st.text(max_size=40), st.integers(0, 2**63 - 1)), max_size=30))
def test_what_was_recorded_is_read_again(errors: list[tuple[str, int]]) -> None:
    buffer = bytearray(600)
    log = DistinctErrorLog(buffer)
    expected: dict[str, tuple[int, int, int]] = {}
    refused = 0
    for text, now_ms in errors:
        match log.record(text, now_ms):
            case ErrorOutcome.NEW:
                assert text not in expected
                expected[text] = (1, now_ms, now_ms)
            case ErrorOutcome.AGAIN:
                count, first_ms, _ = expected[text]
                expected[text] = (count + 1, first_ms, now_ms)
            case ErrorOutcome.NO_ROOM:
                assert text not in expected
                refused += 1
        found = {each.text: attributes(each) for each in read_error_log(buffer)}
        assert found == expected
    assert log.unrecorded_count == refused


def check_any(data: bytes) -> None:
    """Any bytes are read in bounded work: no more records and texts than the buffer can hold."""
    found = list(read_error_log(data, since_ms=-(2**63)))
    assert len(found) <= len(data) // HEADER_LENGTH
    assert sum(len(each.text) for each in found) <= len(data)


@given(st.binary(max_size=400))
def test_any_bytes_are_read(data: bytes) -> None:
    check_any(data)


@given(
    st.lists(
        st.builds(
            record,
            st.binary(max_size=20),
            length=st.one_of(st.none(), st.integers(-64, 128), st.integers(-(2**31), 2**31 - 1)),
            count=st.integers(-(2**31), 2**31 - 1),
            last=st.integers(-(2**63), 2**63 - 1),
        )
    ),
    st.integers(0, 40),
)
def test_any_records_are_read(records: list[bytes], cut: int) -> None:
    data = b"".join(records)
    check_any(data[: max(len(data) - cut, 0)])
