"""Tasks: one look at each message makes rows of all tables, and sums that agree with them."""

from __future__ import annotations

import itertools
import random
import struct
from collections import Counter
from datetime import date
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aeron_async.spark.decoding import decoder_of
from aeron_async.spark.pipeline import gold
from aeron_async.spark.pipeline.histogram import bin_of
from aeron_async.spark.pipeline.runs import GapKind
from aeron_async.spark.pipeline.settings import Latency
from aeron_async.spark.pipeline.task import DAYS_MOST, latencies, reasons_of
from tests.archive.golden import ARCHIVES, facts, golden_path
from tests.spark.pipeline.local import planned, ran
from tests.spark.recordings import RecordingMaker

if TYPE_CHECKING:
    from pathlib import Path

    from aeron_async.spark.pipeline.task import TaskResult

VALID = 1
STREAM = 1001
QUOTE = struct.Struct("<qqq")
SPEC = f"{STREAM}:quotes=struct:<sequence:q,sent:q,price:q"
DAY_NS = 86_400 * 10**9
MOST = 2**63 - 1


def table_of(folder: Path, result: TaskResult, table: str) -> pa.Table:
    files = result.files[table]
    found = [pq.read_table(folder / table / each.path, partitioning=None) for each in files]
    return pa.concat_tables(found) if found else pa.table({})


def framed(payloads: list[bytes]) -> str:
    return sha256(b"".join(len(each).to_bytes(4, "little") + each for each in payloads)).hexdigest()


@pytest.mark.parametrize("name", [name for name in ARCHIVES if name != "A3-recovered"])
def test_every_message_of_an_official_archive_is_a_row(name: str, tmp_path: Path) -> None:
    result = ran(golden_path(name), tmp_path)
    rows = table_of(tmp_path, result, "bronze").to_pylist()
    assert len(rows) == result.counts["bronze"]
    for each in facts()[name]["recordings"]:
        if each["state"] != VALID:
            continue
        mine = [row for row in rows if row["recording_id"] == each["recording_id"]]
        assert [row["length"] for row in mine] == each["message_lengths"]
        assert [row["end_position"] for row in mine] == each["message_end_positions"]
        assert framed([row["payload"] for row in mine]) == each["framed_messages_sha256"]
        own = [run for run in result.runs if run.recording_id == each["recording_id"]]
        assert sum(run.messages for run in own) == len(mine)
        assert sum(run.bytes for run in own) == sum(each["message_lengths"])


def quotes(folder: Path, rows: list[tuple[int, int, int]], **given: Any) -> RecordingMaker:
    """Record quotes, each a second behind the one before; prices below zero are cut short."""
    maker = RecordingMaker(folder, **given)
    for index, row in enumerate(rows):
        payload = QUOTE.pack(*row)
        cut = payload[:10] if row[2] < 0 else payload
        maker.message(cut, reserved=20_000 * DAY_NS + index * 10**9)
    maker.stop()
    return maker


def test_sums_are_what_the_rows_say(tmp_path: Path) -> None:
    chance = random.Random(3)
    rows = [
        (index + (index > 150), 20_000 * DAY_NS + index * 10**9 - chance.randrange(10**6), price)
        for index in range(300)
        for price in [-1 if index in (20, 21, 222) else chance.choice([5, 6, 7])]
    ]
    quotes(tmp_path / "archive", rows)
    result = ran(
        tmp_path / "archive",
        tmp_path,
        decode=SPEC,
        timestamp_from="reserved",
        sequence="quotes=sequence",
        latency="quotes=sent..timestamp_ns",
        event_time="quotes=sent",
    )
    silver = table_of(tmp_path, result, "silver/quotes").to_pylist()
    aside = table_of(tmp_path, result, "quarantine").to_pylist()
    good = [(index, row) for index, row in enumerate(rows) if row[2] >= 0]
    assert [(row["sequence"], row["sent"], row["price"]) for row in silver] == [
        row for _, row in good
    ]
    assert [row["event_ns"] for row in silver] == [row[1] for _, row in good]
    assert [(len(row["payload"]), bool(row["decode_error"])) for row in aside] == [
        (10, True) for _ in range(300 - len(good))
    ]
    assert result.counts == {"bronze": 300, "silver/quotes": len(good), "quarantine": len(aside)}
    assert result.sums["rates_second"].column("messages").to_pylist() == [1] * 300
    bins = Counter(
        (row["event_ns"] // (60 * 10**9), bin_of(row["timestamp_ns"] - row["sent"]))
        for row in silver
    )
    counts = result.sums["latency"].to_pylist()
    assert {(row["minute"], row["bin"]): row["count"] for row in counts} == bins
    gaps = [gap.missing for gap in result.gaps if gap.kind == GapKind.SEQUENCE]
    numbers = [row["sequence"] for row in silver]
    steps = [b - a - 1 for a, b in itertools.pairwise(numbers) if b - a != 1]
    assert gaps == steps


def test_days_that_alternate_are_apart_and_no_gaps(tmp_path: Path) -> None:
    rows = [(n, (20_000 + n % 3 % 2) * DAY_NS, 1) for n in range(40) if n != 23]
    quotes(tmp_path / "archive", rows)
    result = ran(
        tmp_path / "archive",
        tmp_path,
        decode=SPEC,
        event_time="quotes=sent",
        sequence="quotes=sequence",
    )
    files = result.files["silver/quotes"]
    assert {each.partition["date"] for each in files} == {"2024-10-04", "2024-10-05"}
    assert sum(each.rows for each in files) == 39
    for each in files:
        read = pq.read_table(tmp_path / "silver/quotes" / each.path, partitioning=None)
        days = {stamp.date() for stamp in read.column("event_time").to_pylist()}
        assert days == {date.fromisoformat(each.partition["date"])}
        positions = read.column("position").to_pylist()
        assert positions == sorted(positions)
    # Bronze has only the time when the recording began.
    assert {each.partition["date"] for each in result.files["bronze"]} == {"1970-01-01"}
    runs = [(run.messages, run.gaps, run.bytes) for run in result.runs if run.name]
    assert runs == [(39, 1, 0)]


def test_times_of_a_publisher_make_no_more_files_than_there_may_be(tmp_path: Path) -> None:
    days = random.Random(8).sample(range(20_000), 3 * DAYS_MOST)
    maker = RecordingMaker(tmp_path / "archive")
    for number, day in enumerate(days):
        maker.message(QUOTE.pack(number, 0, 1), reserved=day * DAY_NS)
    maker.stop()
    result = ran(tmp_path / "archive", tmp_path, decode=SPEC, timestamp_from="reserved_value:ns")
    for table in ("bronze", "silver/quotes"):
        assert len(result.files[table]) == DAYS_MOST + 1
        rows = table_of(tmp_path, result, table)
        assert len(rows) == len(days)


def test_times_of_a_publisher_make_few_sums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gold, "MOST_OF_A_PLAN", 50)
    quotes(tmp_path / "archive", [(n, n * 3_600 * 10**9, 1) for n in range(500)])
    result = ran(
        tmp_path / "archive",
        tmp_path,
        decode=SPEC,
        timestamp_from="payload:8:int64:ns",
        latency="quotes=sent..timestamp_ns",
    )
    assert result.sums.keys() == gold.SUMMED.keys()
    for table, found in result.sums.items():
        name = "messages" if "messages" in found.column_names else "count"
        assert found.num_rows <= 50, table
        assert sum(found.column(name).to_pylist()) == 500, table


@pytest.mark.parametrize("start_ms", [-(1 << 63), -1, (1 << 63) - 1])
def test_a_recording_may_say_that_it_began_at_any_time(tmp_path: Path, start_ms: int) -> None:
    quotes(tmp_path / "archive", [(n, 0, 1) for n in range(3)])
    (part,) = planned(tmp_path / "archive")[0]
    part = attrs.evolve(part, descriptor=attrs.evolve(part.descriptor, start_timestamp_ms=start_ms))
    result = ran(tmp_path / "archive", tmp_path / "lake", [part], decode=SPEC)
    rows = table_of(tmp_path / "lake", result, "silver/quotes")
    assert rows.num_rows == 3
    assert len(set(rows.column("event_ns").to_pylist())) == 1


def test_parts_are_summed_up_by_themselves(tmp_path: Path) -> None:
    quotes(tmp_path / "archive", [(n, 0, 1) for n in range(3_000)])
    batches = planned(tmp_path / "archive", parts=99)
    assert len(batches) > 2
    result = ran(
        tmp_path / "archive", tmp_path / "out", [part for each in batches for part in each]
    )
    assert len(result.runs) == len(batches)
    assert sum(run.messages for run in result.runs) == 3_000
    assert result.term_lengths == {0: batches[0][0].descriptor.term_length}


def test_messages_in_fragments_are_decoded(tmp_path: Path) -> None:
    maker = RecordingMaker(tmp_path / "archive")
    maker.message(QUOTE.pack(1, 2, 3) + bytes(5_000))
    maker.message(QUOTE.pack(4, 5, 6))
    maker.stop()
    for bronze in ("true", "false"):
        result = ran(tmp_path / "archive", tmp_path / bronze, decode=SPEC, bronze=bronze == "true")
        read = table_of(tmp_path / bronze, result, "silver/quotes")
        assert read.column("price").to_pylist() == [3, 6]


def test_a_message_is_put_aside_when_no_decoder_reads_it() -> None:
    decoders = [decoder_of("struct:<a:q"), decoder_of("json:b bigint")]
    payloads = pa.array([struct.pack("<q", 1), b'{"b": 2}', b"x"], pa.binary())
    found = [each.decode(payloads) for each in decoders]
    assert reasons_of(found[:1], 3).is_valid().to_pylist() == [False, False, True]
    assert reasons_of(found, 3).is_valid().to_pylist() == [False, False, True]


def test_latencies_beyond_64_bits_are_unknown() -> None:
    columns = {
        "a": pa.array([1, None, -MOST, MOST, 5]),
        "b": pa.array([3, 1, MOST, -MOST, 4]),
    }
    values, is_known = latencies(Latency("quotes", "a", "b"), columns)
    assert is_known.tolist() == [True, False, False, False, True]
    assert values[is_known].tolist() == [2, -1]
    _, is_known = latencies(Latency("quotes", "a", "b", 1_000_000_000), columns)
    assert is_known.tolist() == [True, False, False, False, True]
    assert np.count_nonzero(is_known) == 2
