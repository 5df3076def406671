"""Pieces, messages, batches and damage, without Spark."""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from aeron_async._speedups import WHY_PURE
from aeron_async.archive.disk.catalog import Catalog
from aeron_async.archive.disk.files import OsDirectory
from aeron_async.errors import DataLossError
from aeron_async.spark.columns import COLUMNS, default_columns
from aeron_async.spark.frame_finder import has_checksums
from aeron_async.spark.planning import plan_batch
from aeron_async.spark.ranges import ScanSettings
from aeron_async.spark.scan import Scanner
from tests.archive.golden import ARCHIVES, copy_of, facts, golden_path
from tests.spark.recordings import TERM, RecordingMaker, frame, options_for, scanned

if TYPE_CHECKING:
    from pathlib import Path

EVERY = {
    mode: ",".join(column.name for column in COLUMNS if mode in column.modes)
    for mode in ("message", "frame")
}


def make(path: Path, count: int = 400, **settings: Any) -> tuple[RecordingMaker, list[bytes]]:
    chance = random.Random(1)
    maker = RecordingMaker(path, **settings)
    payloads = [
        chance.randbytes(chance.choice([0, 1, 50, 900, 1_376, 4_000])) for _ in range(count)
    ]
    for number, payload in enumerate(payloads):
        maker.message(payload, reserved=number)
    maker.stop()
    return maker, payloads


@pytest.mark.parametrize("piece_length", [64, 96, 4_096, 65_536, 1 << 20])
def test_any_length_of_piece_gives_the_same_messages(tmp_path: Path, piece_length: int) -> None:
    maker, payloads = make(tmp_path)
    options = options_for(tmp_path, columns=EVERY["message"], timestampFrom="reserved:s")
    found, counts = scanned(options, piece_length=piece_length)
    assert found["payload"] == payloads
    assert found["length"] == [len(each) for each in payloads]
    assert found["position"] == maker.positions
    assert found["reserved_value"] == list(range(len(payloads)))
    assert found["timestamp_ns"] == [number * 10**9 for number in range(len(payloads))]
    assert [each.timestamp() for each in found["timestamp"]] == list(range(len(payloads)))
    assert found["fragment_count"] == [max(-(-len(each) // 1_376), 1) for each in payloads]
    assert set(found["flags"]) == {0xC0}
    assert (counts.rows, counts.dropped_fragments, counts.damaged_places) == (len(payloads), 0, 0)


@pytest.mark.parametrize("piece_length", [1_408, 65_536, 1 << 20])
def test_frames_are_the_same_whatever_the_length_of_a_piece(
    tmp_path: Path, piece_length: int
) -> None:
    _, payloads = make(tmp_path)
    options = options_for(tmp_path, fragmentMode="frame", columns=EVERY["frame"])
    found, _ = scanned(options, piece_length=piece_length)
    assert b"".join(found["payload"]) == b"".join(payloads)
    assert set(found["frame_type"]) == {1}
    assert set(found["frame_checksum"]) == {None}
    padded, counts = scanned(attrs.evolve(options, include_padding=True), piece_length=piece_length)
    assert len(padded["payload"]) == counts.frames > len(found["payload"])
    ends = [0, *padded["end_position"]]
    assert padded["position"] == ends[:-1]
    empty = [
        length
        for length, kind in zip(padded["length"], padded["frame_type"], strict=True)
        if not kind
    ]
    assert set(empty) == {0}


def test_batches_are_bounded_in_rows_and_in_bytes(tmp_path: Path) -> None:
    make(tmp_path)
    options = options_for(tmp_path, rowsPerBatch="10", bytesPerBatch="3000")
    scanner = Scanner(ScanSettings(options, default_columns(options)))
    batches = list(scanner.batches(plan_batch(options)))
    assert max(batch.num_rows for batch in batches) <= 10
    for batch in batches:
        lengths = batch.column("length").to_pylist()
        assert sum(lengths) <= 3_000 or len(lengths) == 1


def test_term_ids_wrap_and_a_recording_starts_in_a_term(tmp_path: Path) -> None:
    start = 3 * TERM + 4_096
    maker, payloads = make(tmp_path, start=start, initial_term_id=2**31 - 2)
    found, counts = scanned(options_for(tmp_path, includeHeaders="true"))
    assert found["payload"] == payloads
    assert found["position"][0] == start == maker.positions[0]
    assert found["term_id"][0] == -(2**31) + 1
    assert found["term_offset"][0] == 4_096
    assert counts.walked_pieces == 0


@pytest.mark.parametrize("checksum", ["crc32", "crc32c"])
def test_checksums_are_told_from_sessions_and_verified(tmp_path: Path, checksum: str) -> None:
    maker, payloads = make(tmp_path, 60, checksum=checksum, session_id=-9)
    found, _ = scanned(options_for(tmp_path))
    assert set(found["session_id"]) == {-9}
    verified, _ = scanned(options_for(tmp_path, verifyChecksum=checksum))
    assert verified["payload"] == payloads
    frames, _ = scanned(options_for(tmp_path, fragmentMode="frame", columns=EVERY["frame"]))
    assert None not in frames["frame_checksum"]
    other = "crc32" if checksum == "crc32c" else "crc32c"
    with pytest.raises(DataLossError, match="Change verifyChecksum") as caught:
        scanned(options_for(tmp_path, verifyChecksum=other))
    assert caught.value.position == 0
    assert maker.recording_id == caught.value.recording_id


def test_one_flipped_bit_is_found_by_its_checksum(tmp_path: Path) -> None:
    maker, payloads = make(tmp_path, 60, checksum="crc32")
    victim = next(at for at, payload in enumerate(payloads) if at > 10 and len(payload) == 900)
    position = maker.positions[victim]
    flip(tmp_path / f"0-{position & -(2 * TERM)}.rec", position % (2 * TERM) + 40)
    assert len(scanned(options_for(tmp_path))[0]["payload"]) == len(payloads)
    with pytest.raises(DataLossError) as caught:
        scanned(options_for(tmp_path, verifyChecksum="crc32"))
    assert caught.value.position == position
    rest, counts = scanned(options_for(tmp_path, verifyChecksum="crc32", failOnDataLoss="false"))
    assert rest["payload"] != payloads
    assert rest["payload"][:victim] == payloads[:victim]
    lost = min(position + -position % TERM, maker.position) - position
    assert (counts.damaged_places, counts.lost_bytes) == (1, lost)


def test_the_first_session_of_an_extended_recording_is_no_checksum(tmp_path: Path) -> None:
    make(tmp_path, 10, session_id=44)
    catalog = Catalog.open(OsDirectory(tmp_path), capacity=4_096)
    catalog.update(0, session_id=45)
    catalog.close()
    assert set(scanned(options_for(tmp_path))[0]["session_id"]) == {44}


def flip(path: Path, offset: int, length: int = 1) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        found = file.read(length)
        file.seek(offset)
        file.write(bytes(each ^ 0xFF for each in found))


@pytest.mark.parametrize("where", ["first frame", "in a term", "last frame"])
def test_damage_costs_the_rest_of_its_term(tmp_path: Path, where: str) -> None:
    maker, payloads = make(tmp_path)
    victim = {"first frame": 0, "in a term": 50, "last frame": len(payloads) - 1}[where]
    position = maker.positions[victim]
    flip(tmp_path / f"0-{position & -(2 * TERM)}.rec", position % (2 * TERM), 32)
    with pytest.raises(DataLossError, match="failOnDataLoss=false") as caught:
        scanned(options_for(tmp_path))
    assert caught.value.position == position
    rest, counts = scanned(options_for(tmp_path, failOnDataLoss="false"))
    end = min(position + -position % TERM or position + TERM, maker.position)
    kept = [
        payload
        for at, payload in zip(maker.positions, payloads, strict=True)
        if not position <= at < end
    ]
    assert rest["payload"] == kept
    assert (counts.damaged_places, counts.lost_bytes) == (1, end - position)


def test_a_file_that_is_missing_costs_what_it_held(tmp_path: Path) -> None:
    maker, payloads = make(tmp_path)
    (tmp_path / f"0-{2 * TERM}.rec").unlink()
    with pytest.raises(DataLossError, match=r"0-131072\.rec is not there"):
        scanned(options_for(tmp_path))
    rest, counts = scanned(options_for(tmp_path, failOnDataLoss="false"))
    kept = [
        payload
        for at, payload in zip(maker.positions, payloads, strict=True)
        if not 2 * TERM <= at < 4 * TERM
    ]
    assert rest["payload"] == kept
    assert counts.lost_bytes == 2 * TERM


def test_a_file_that_goes_while_it_is_read_is_named(tmp_path: Path) -> None:
    make(tmp_path)
    options = options_for(tmp_path)
    parts = plan_batch(options)
    (tmp_path / "0-0.rec").unlink()
    with pytest.raises(DataLossError, match="its file is not there") as caught:
        scanned(options, parts)
    assert caught.value.position == 0


@pytest.mark.parametrize("cut", [0, 10, 32, 5_000])
def test_a_file_that_is_too_short_is_named(tmp_path: Path, cut: int) -> None:
    make(tmp_path)
    with (tmp_path / "0-0.rec").open("r+b") as file:
        file.truncate(cut)
    with pytest.raises(DataLossError):
        scanned(options_for(tmp_path))
    _, counts = scanned(options_for(tmp_path, failOnDataLoss="false"))
    assert counts.lost_bytes >= 2 * TERM - cut - 1_408


def test_zeros_before_the_end_are_damage(tmp_path: Path) -> None:
    maker, _ = make(tmp_path)
    last = maker.position & -(2 * TERM)
    path = tmp_path / f"0-{last}.rec"
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(DataLossError, match="a frame of 0 bytes") as caught:
        scanned(options_for(tmp_path))
    assert caught.value.position == last


def test_padding_in_a_message_breaks_it(tmp_path: Path) -> None:
    maker = RecordingMaker(tmp_path)
    maker.message(b"whole")
    maker.fragment(b"begins", flags=0x80)
    maker.padding(64)
    maker.fragment(b"ends", flags=0x40)
    maker.message(b"after")
    maker.stop()
    found, counts = scanned(options_for(tmp_path))
    assert found["payload"] == [b"whole", b"after"]
    assert (counts.broken_messages, counts.dropped_fragments) == (1, 2)


def test_fragments_without_a_beginning_are_dropped(tmp_path: Path) -> None:
    maker = RecordingMaker(tmp_path)
    maker.fragment(b"middle", flags=0)
    maker.fragment(b"end", flags=0x40)
    maker.message(b"x" * 3_000)
    maker.fragment(b"begins and never ends", flags=0x80)
    maker.stop()
    found, counts = scanned(options_for(tmp_path))
    assert found["payload"] == [b"x" * 3_000]
    assert (counts.broken_messages, counts.dropped_fragments) == (1, 3)


@pytest.mark.parametrize("piece_length", [TERM, 1 << 20])
def test_a_message_that_ends_with_its_term_is_not_looked_for_in_the_next(
    tmp_path: Path, piece_length: int
) -> None:
    maker = RecordingMaker(tmp_path)
    maker.fragment(b"x" * (TERM - 32), flags=0x80)
    maker.fragment(b"of nobody", flags=0x40)
    maker.message(b"next term")
    maker.stop()
    found, counts = scanned(options_for(tmp_path), piece_length=piece_length)
    assert found["payload"] == [b"next term"]
    assert (counts.broken_messages, counts.dropped_fragments) == (1, 2)


def test_only_fragments_give_no_message(tmp_path: Path) -> None:
    maker = RecordingMaker(tmp_path)
    for _ in range(3):
        maker.fragment(b"middle", flags=0)
    maker.stop()
    found, counts = scanned(options_for(tmp_path))
    assert found["payload"] == []
    assert counts.dropped_fragments == 3


def test_an_end_in_a_frame_is_damage(tmp_path: Path) -> None:
    maker = RecordingMaker(tmp_path)
    maker.message(b"x" * 900)
    maker.stop()
    options = options_for(tmp_path, fragmentMode="frame")
    (part,) = plan_batch(options)
    with pytest.raises(DataLossError, match="extends beyond"):
        scanned(options, [attrs.evolve(part, end=part.end - 32)])


def test_payloads_that_hold_headers_are_read(tmp_path: Path) -> None:
    maker = RecordingMaker(tmp_path)
    payloads = []
    for _ in range(30):
        payload = frame(b"z" * 40, term_offset=(maker.position + 32) % TERM)
        payloads.append(payload)
        maker.message(payload)
    maker.stop()
    found, counts = scanned(options_for(tmp_path))
    assert found["payload"] == payloads
    assert (counts.walked_pieces, counts.pieces) == (int(WHY_PURE is not None), 1)


def test_times_in_payloads_are_read_where_they_are_long_enough(tmp_path: Path) -> None:
    maker = RecordingMaker(tmp_path)
    for payload in (b"12345678" + (99).to_bytes(8, "big"), b"short"):
        maker.message(payload)
    maker.stop()
    options = options_for(tmp_path, timestampFrom="payload:8:uint64be:us")
    assert scanned(options)[0]["timestamp_ns"] == [99_000, None]


@pytest.mark.parametrize("offset", [0, 88, 89, 95, 96, 192, 292])
def test_a_time_is_read_in_whichever_frames_of_a_message_it_lies(
    tmp_path: Path, offset: int
) -> None:
    maker = RecordingMaker(tmp_path, mtu=128)
    body = bytearray(b"\xff" * 300)
    body[offset : offset + 8] = (77).to_bytes(8, "little")
    for payload in (bytes(body), b"short", bytes(body)):
        maker.message(payload)
    maker.stop()
    options = options_for(tmp_path, timestampFrom=f"payload:{offset}:int64")
    assert scanned(options)[0]["timestamp_ns"] == [77, None, 77]


@pytest.mark.parametrize("where", ["reserved:ms", "payload:0:uint64:ms"])
def test_a_time_that_64_bits_cannot_hold_in_nanoseconds_is_none(tmp_path: Path, where: str) -> None:
    maker = RecordingMaker(tmp_path)
    for number in (1_700_000_000_000, 1_700_000_000_000_000_000):
        maker.message(number.to_bytes(8, "little"), reserved=number)
    maker.stop()
    found, _ = scanned(options_for(tmp_path, timestampFrom=where))
    assert found["timestamp_ns"] == [1_700_000_000_000_000_000, None]
    assert found["timestamp"][1] is None


@pytest.mark.parametrize("name", [name for name in ARCHIVES if name != "A3-recovered"])
@pytest.mark.parametrize("mode", ["message", "frame"])
def test_golden_recordings_are_what_is_known_of_them(name: str, mode: str) -> None:
    options = options_for(golden_path(name), fragmentMode=mode, columns=EVERY[mode])
    found, _ = scanned(options, piece_length=8_192)
    for each in facts()[name]["recordings"]:
        if each["state"] != 1:
            continue
        mine = [
            at for at, number in enumerate(found["recording_id"]) if number == each["recording_id"]
        ]
        assert {found["channel"][at] for at in mine} <= {each["stripped_channel"]}
        if mode == "frame":
            assert len(mine) == each["data_frames"]
            continue
        assert [found["length"][at] for at in mine] == each["message_lengths"]
        assert [found["end_position"][at] for at in mine] == each["message_end_positions"]
        for position, session_id in each.get("frame_session_ids", []):
            later = [at for at in mine if found["position"][at] >= position]
            assert not later or found["session_id"][later[0]] == session_id


def test_golden_checksums_are_right(tmp_path: Path) -> None:
    path = golden_path("A4-crc32")
    found, _ = scanned(options_for(path, verifyChecksum="crc32"))
    wanted = facts()["A4-crc32"]["recordings"]
    assert len(found["payload"]) == sum(each["messages"] for each in wanted)
    assert set(found["session_id"]) == {each["session_id"] for each in wanted}
    broken = copy_of("A4-crc32", tmp_path)
    flip(broken / "0-0.rec", 100)
    with pytest.raises(DataLossError):
        scanned(options_for(broken, verifyChecksum="crc32"))


def test_whether_a_missing_file_has_checksums_is_nobody_s_guess(tmp_path: Path) -> None:
    maker, _ = make(tmp_path, 10)
    (tmp_path / "0-0.rec").unlink()
    assert not has_checksums(maker.directory, maker.descriptor, 0, maker.position)


@pytest.mark.parametrize("term_length", [TERM, 8 * TERM])
def test_checksums_are_told_from_sessions_behind_padding(tmp_path: Path, term_length: int) -> None:
    maker = RecordingMaker(
        tmp_path, checksum="crc32", term_length=term_length, segment_length=term_length
    )
    maker.message(b"m" * 900)
    position = maker.position
    maker.padding(term_length - position)
    end = maker.position
    maker.message(b"n" * 900)
    maker.stop()
    options = options_for(tmp_path, startingPositions=f'{{"0": {position}}}')
    assert scanned(options)[0]["session_id"] == [5]
    assert not has_checksums(maker.directory, maker.descriptor, position, end)
    (tmp_path / f"0-{term_length}.rec").write_bytes(bytes(term_length))
    assert not has_checksums(maker.directory, maker.descriptor, position, maker.position)


def test_a_checksum_that_nobody_can_compute_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, 10, checksum="crc32c")
    monkeypatch.setitem(sys.modules, "crc32c", None)
    assert set(scanned(options_for(tmp_path))[0]["session_id"]) != {5}
