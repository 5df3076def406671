"""Decoding: which fields may be named, what is put aside, and when a message happened."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest

from aeron_async.errors import ConfigurationError
from aeron_async.spark.decoding import decoder_of
from aeron_async.spark.pipeline.settings import PipelineSettings
from aeron_async.spark.pipeline.silver import is_fresh, kinds_of, reasons_of, recorded_ns

SPEC = "7:quotes=struct:<price:d,sent:q"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"sequence": "quotes=sentt"}, "did you mean sent"),
        ({"sequence": "quotes=price"}, "must be an integer"),
        ({"latency": "quotes=sent..zzz"}, "it has price, sent"),
        ({"event_time": "quotes=price"}, "must be an integer"),
        ({"decode": "7:quotes=struct:<date:q"}, "rename it"),
    ],
)
def test_fields_that_are_not_there_or_no_numbers_are_refused(
    given: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigurationError, match=says):
        kinds_of(PipelineSettings.parse({"decode": SPEC, **given}))


def test_a_field_can_be_the_time_of_a_message() -> None:
    given = {"decode": [SPEC, "8=json:a bigint"], "event_time": "quotes=sent:us"}
    quotes, other = kinds_of(PipelineSettings.parse(given))
    assert quotes.event_time == "coalesce(try_multiply(cast(`sent` as bigint), 1000), event_ns)"
    assert other.event_time == "event_ns"


def test_a_message_is_put_aside_when_no_decoder_reads_it() -> None:
    decoders = [decoder_of("struct:<a:q"), decoder_of("json:b bigint")]
    payloads = pa.array([struct.pack("<q", 1), b'{"b": 2}', b"x"], pa.binary())
    alone = reasons_of(payloads, decoders[:1])
    assert alone.is_valid().to_pylist() == [False, False, True]
    assert reasons_of(payloads, decoders).is_valid().to_pylist() == [False, False, True]
    assert len(reasons_of(payloads.slice(3), decoders)) == 0


def test_what_was_ingested_before_is_not_fresh() -> None:
    rows = {
        "recording_id": [1, 1, 2],
        "session_id": [5, 5, 5],
        "position": [0, 64, 0],
        "timestamp_ns": [5, None, None],
    }
    batch = pa.RecordBatch.from_pydict(rows)
    assert is_fresh(batch, {(1, 5): 64}).to_pylist() == [False, True, True]
    assert is_fresh(batch.slice(3), {(1, 5): 64}).to_pylist() == []
    assert recorded_ns(batch, {1: 2}).to_pylist() == [5, 2_000_000, 0]
    assert recorded_ns(batch.slice(3), {1: 2}).to_pylist() == []


def test_what_another_session_has_recorded_anew_is_fresh() -> None:
    rows = {"recording_id": [1, 1], "session_id": [5, 6], "position": [0, 32]}
    batch = pa.RecordBatch.from_pydict(rows)
    assert is_fresh(batch, {(1, 5): 64}).to_pylist() == [False, True]
