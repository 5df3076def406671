from __future__ import annotations

import struct

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.concurrent import loss_report
from aeron_async.concurrent.loss_report import LossReport, StreamLoss, read_loss_report

# Entries in the report of an official C driver 1.53. The second one has a channel of 65 bytes: its
# padding is what makes the entry longer than 128 bytes.
GOLDEN = (
    bytes.fromhex(
        "9000000000000000 c0bb030000000000 72ef40faa1010000 aaf140faa1010000 df8661ef a10f0000"
        "2e000000"
    )
    + b"aeron:udp?endpoint=127.0.0.1:24600|rcv-wnd=32k\0\0"
    + bytes.fromhex("0f000000")
    + b"127.0.0.1:51379"
)
GOLDEN_LOSS = StreamLoss(
    observation_count=144,
    total_bytes_lost=244_672,
    first_observation_ms=1_795_199_922_034,
    last_observation_ms=1_795_199_922_602,
    session_id=-278_821_153,
    stream_id=4_001,
    channel="aeron:udp?endpoint=127.0.0.1:24600|rcv-wnd=32k",
    source="127.0.0.1:51379",
)
GOLDEN_PADDED = (
    bytes.fromhex(
        "2100000000000000 80d2000000000000 5def240aa2010000 29f0240aa2010000 466d3841 a10f0000"
        "41000000"
    )
    + b"aeron:udp?endpoint=127.0.0.1:24618|rcv-wnd=32k|alias=xxxxxxxxxxxx\0\0\0"
    + bytes.fromhex("0f000000")
    + b"127.0.0.1:49548"
)
SMALLEST = 48


def add(
    report: LossReport, channel: str, source: str = "", *, bytes_lost: int = 1
) -> loss_report.ReportEntry | None:
    return report.create_entry(
        bytes_lost=bytes_lost, now_ms=2, session_id=-3, stream_id=4, channel=channel, source=source
    )


def padded(entry: bytes) -> bytes:
    return entry + bytes(-len(entry) % 64)


def entry(count: int, channel_length: int, rest: bytes) -> bytes:
    """Return an entry that no writer has checked."""
    return padded(struct.pack("<4q3i", count, 1, 2, 3, 4, 5, channel_length) + rest)


def channels(data: bytes | bytearray) -> list[str]:
    return [each.channel for each in read_loss_report(data)]


def test_entries_of_an_official_driver_are_read() -> None:
    found = list(read_loss_report(padded(GOLDEN_PADDED) + padded(GOLDEN) + bytes(64)))
    assert found == [
        StreamLoss(
            observation_count=33,
            total_bytes_lost=53_888,
            first_observation_ms=1_795_466_522_461,
            last_observation_ms=1_795_466_522_665,
            session_id=1_094_217_030,
            stream_id=4_001,
            channel="aeron:udp?endpoint=127.0.0.1:24618|rcv-wnd=32k|alias=xxxxxxxxxxxx",
            source="127.0.0.1:49548",
        ),
        GOLDEN_LOSS,
    ]


@pytest.mark.parametrize("golden", [GOLDEN, GOLDEN_PADDED])
def test_entries_are_laid_out_as_an_official_driver_does_it(golden: bytes) -> None:
    (loss,) = read_loss_report(padded(golden))
    buffer = bytearray(512)
    report = LossReport(buffer)
    created = report.create_entry(
        bytes_lost=1_000,
        now_ms=loss.first_observation_ms,
        session_id=loss.session_id,
        stream_id=loss.stream_id,
        channel=loss.channel,
        source=loss.source,
    )
    assert created is not None
    for _ in range(loss.observation_count - 2):
        created.record_observation(1, 0)
    missing = loss.total_bytes_lost - 1_000 - (loss.observation_count - 2)
    created.record_observation(missing, loss.last_observation_ms)
    assert buffer == padded(golden).ljust(512, b"\0")
    assert add(report, "next") is not None
    assert channels(buffer) == [loss.channel, "next"]


def test_the_first_loss_is_the_first_observation() -> None:
    buffer = bytearray(64)
    report = LossReport(buffer)
    assert add(report, "c", "s", bytes_lost=7) is not None
    (loss,) = read_loss_report(buffer)
    assert attrs.astuple(loss) == (1, 7, 2, 2, -3, 4, "c", "s")


def test_a_full_file_is_none_and_counted() -> None:
    buffer = bytearray(192)
    report = LossReport(buffer)
    first = add(report, "c" * 16)
    assert first is not None
    assert add(report, "c" * 81) is None
    assert add(report, "d" * 77, "s") is None
    assert report.refused_count == 2
    # To the last byte, and nothing behind it.
    second = add(report, "d" * 76, "host")
    assert second is not None
    before = bytes(buffer)
    assert add(report, "") is None
    assert report.refused_count == 3
    assert buffer == before
    for created in (first, second):
        created.record_observation(10, 5)
    assert [each.total_bytes_lost for each in read_loss_report(buffer)] == [11, 11]


@pytest.mark.parametrize("length", [0, 7, 40, SMALLEST - 1])
def test_a_buffer_without_room_for_an_entry_is_full(length: int) -> None:
    buffer = bytearray(length)
    assert add(LossReport(buffer), "") is None
    assert channels(buffer) == []
    # What is there is not read beyond the end either.
    assert channels(b"\x01" * length) == []


def test_the_smallest_buffer_holds_the_smallest_entry() -> None:
    buffer = bytearray(SMALLEST)
    assert add(LossReport(buffer), "") is not None
    assert channels(buffer) == [""]


def test_the_count_is_stored_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the fence everything stands there but the count, so no reader sees half an entry."""
    buffer = bytearray(128)
    seen: list[tuple[int, ...]] = []

    def look() -> None:
        seen.append(struct.unpack_from("<4q", buffer))
        assert b"channel" in buffer
        assert b"source" in buffer

    monkeypatch.setattr(loss_report, "release_fence", look)
    created = add(LossReport(buffer), "channel", "source")
    assert created is not None
    created.record_observation(10, 9)
    assert seen == [(0, 1, 2, 2), (1, 11, 2, 9)]
    assert struct.unpack_from("<4q", buffer) == (2, 11, 2, 9)


def test_an_entry_that_changes_after_it_was_read_moves_no_reader() -> None:
    data = bytearray(entry(1, 8, b"12345678" + struct.pack("<i", 0)) + padded(GOLDEN))
    reading = read_loss_report(data)
    assert next(reading).channel == "12345678"
    struct.pack_into("<qi", data, 0, -1, 0)
    struct.pack_into("<i", data, 40, 2**31 - 1)
    assert list(reading) == [GOLDEN_LOSS]


def test_another_writer_cannot_move_the_writer() -> None:
    buffer = bytearray(256)
    report = LossReport(memoryview(buffer)[:192])
    first = add(report, "first")
    assert first is not None
    buffer[:192] = b"\xff" * 192
    first.record_observation(5, 9)
    assert struct.unpack_from("<4q", buffer) == (2, 6, -1, 9)
    assert buffer[32:192] == b"\xff" * 160
    assert add(report, "second") is not None
    assert struct.unpack_from("<4q", buffer, 64) == (1, 1, 2, 2)
    assert buffer[192:] == bytes(64)


def test_totals_stop_at_their_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_report, "TOTAL_MAX", 3)
    buffer = bytearray(64)
    created = add(LossReport(buffer), "c")
    assert created is not None
    for _ in range(9):
        created.record_observation(2, 8)
    (loss,) = read_loss_report(buffer)
    assert (loss.observation_count, loss.total_bytes_lost) == (3, 3)


def test_text_stays_as_it_is() -> None:
    """It is escaped where it is shown; only what UTF-8 cannot hold is replaced at once."""
    buffer = bytearray(128)
    assert add(LossReport(buffer), "\x1b[2Jü\n", "\udcff:1") is not None
    (loss,) = read_loss_report(buffer)
    assert (loss.channel, loss.source) == ("\x1b[2Jü\n", "\\udcff:1")


@pytest.mark.parametrize("count", [0, -1, -(2**63)])
def test_a_count_that_is_not_positive_ends_the_report(count: int) -> None:
    good = padded(GOLDEN)
    assert channels(good + entry(count, 0, bytes(4)) + good) == [GOLDEN_LOSS.channel]


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 213, 209])
def test_a_channel_that_does_not_fit_ends_the_report(length: int) -> None:
    """The buffer has 212 bytes behind the length; the length of the source takes the last four."""
    good = padded(GOLDEN)
    assert channels(good + entry(1, length, bytes(80)) + good) == [GOLDEN_LOSS.channel]


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 17])
def test_a_source_that_does_not_fit_ends_the_report(length: int) -> None:
    good = padded(GOLDEN)
    bad = entry(1, 0, struct.pack("<i", length))
    assert channels(good + bad) == [GOLDEN_LOSS.channel]
    assert channels(good + entry(1, 0, struct.pack("<i", 16))) == [GOLDEN_LOSS.channel, ""]


TEXTS = st.text(max_size=70)
INT32 = st.integers(-(2**31), 2**31 - 1)
POSITIVE = st.integers(0, 2**40)


@given(
    st.lists(st.tuples(TEXTS, TEXTS, INT32, INT32, st.lists(st.tuples(POSITIVE, POSITIVE)))),
)
def test_what_was_recorded_is_read_again(
    streams: list[tuple[str, str, int, int, list[tuple[int, int]]]],
) -> None:
    buffer = bytearray(1024)
    report = LossReport(buffer)
    expected: list[StreamLoss] = []
    for channel, source, session_id, stream_id, observations in streams:
        created = report.create_entry(
            bytes_lost=1,
            now_ms=2,
            session_id=session_id,
            stream_id=stream_id,
            channel=channel,
            source=source,
        )
        if created is not None:
            for bytes_lost, now_ms in observations:
                created.record_observation(bytes_lost, now_ms)
            expected.append(
                StreamLoss(
                    observation_count=1 + len(observations),
                    total_bytes_lost=1 + sum(lost for lost, _ in observations),
                    first_observation_ms=2,
                    last_observation_ms=observations[-1][1] if observations else 2,
                    session_id=session_id,
                    stream_id=stream_id,
                    channel=channel,
                    source=source,
                )
            )
    assert list(read_loss_report(buffer)) == expected
    assert len(expected) + report.refused_count == len(streams)


def check_any(data: bytes) -> None:
    """Any bytes are read in bounded work: no more entries and texts than the buffer can hold."""
    found = list(read_loss_report(data))
    assert len(found) <= -(-len(data) // 64)
    assert sum(len(each.channel) + len(each.source) for each in found) <= len(data)


@given(st.binary(max_size=400))
def test_any_bytes_are_read(data: bytes) -> None:
    check_any(data)


@given(
    st.lists(
        st.builds(
            entry,
            st.one_of(st.integers(0, 3), st.integers(-(2**63), 2**63 - 1)),
            st.one_of(st.integers(0, 40), st.integers(-(2**31), 2**31 - 1)),
            st.one_of(st.binary(max_size=80), st.just(bytes(60))),
        )
    ),
    st.integers(0, 70),
)
def test_any_entries_are_read(entries: list[bytes], cut: int) -> None:
    data = b"".join(entries)
    check_any(data[: max(len(data) - cut, 0)])
