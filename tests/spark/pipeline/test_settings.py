"""Settings: from flags, from a file, and refused with the name that was probably meant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.errors import ConfigurationError
from aeron_async.spark.pipeline.settings import (
    Decoding,
    EventTime,
    Latency,
    PipelineSettings,
    Sequence,
)

if TYPE_CHECKING:
    from pathlib import Path

QUOTES = "1001:quotes=struct:<price:q,sent:q"


def test_what_is_not_given_has_a_default() -> None:
    settings = PipelineSettings.parse({})
    assert (settings.format, settings.trigger, settings.kinds) == ("delta", None, [])


def test_texts_are_read_into_what_they_mean() -> None:
    settings = PipelineSettings.parse(
        {
            "decode": [QUOTES, "-3=json:a long", "4=sbe:x.xml#Trade"],
            "timestamp_from": "reserved:us",
            "event_time": "quotes=sent:ms",
            "sequence": ["quotes=price"],
            "latency": ["quotes=sent..timestamp_ns:us"],
            "trigger": "1m",
            "max_file_bytes": "1m",
            "source": ["maxBytesPerTrigger=64m"],
            "conf": {"spark.x": True},
        }
    )
    assert settings.decode == (
        Decoding(1001, "quotes", "struct:<price:q,sent:q"),
        Decoding(-3, "stream_minus_3", "json:a long"),
        Decoding(4, "trade", "sbe:x.xml#Trade"),
    )
    assert settings.event_time == (EventTime("quotes", "sent", 1_000_000),)
    assert settings.sequence == (Sequence("quotes", "price"),)
    assert settings.latency == (Latency("quotes", "sent", "timestamp_ns", 1_000),)
    assert settings.latency[0].name == "quotes: sent to timestamp_ns"
    assert (settings.trigger, settings.max_file_bytes) == (60_000, 1 << 20)
    assert settings.source == {"maxBytesPerTrigger": "64m"}
    assert settings.conf == {"spark.x": "true"}


def test_flags_go_before_the_file(tmp_path: Path) -> None:
    config = tmp_path / "pipeline.toml"
    config.write_text(
        f'decode = ["{QUOTES}"]\nformat = "delta"\nbronze = false\nsource = {{ minPartitions = 4 }}'
    )
    settings = PipelineSettings.load(config, {"format": "parquet", "decode": None})
    assert (settings.format, settings.bronze) == ("parquet", False)
    assert settings.kinds == ["quotes"]
    assert settings.source == {"minPartitions": "4"}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"decoder": []}, "did you mean decode"),
        ({"timestamp-from": "x"}, "did you mean timestamp_from"),
        ({"zzz": 1}, "The settings are decode, "),
        ({"decode": "struct:<a:q"}, "STREAM"),
        ({"decode": 5}, "a text, or a list of texts"),
        ({"decode": ["1=json:a long", "1=json:b long"]}, "twice: write STREAM:KIND=SPEC"),
        ({"timestamp_from": "payload"}, "payload:<offset>"),
        ({"decode": QUOTES, "latency": "quotes=sent"}, "START..END"),
        ({"decode": QUOTES, "latency": "quotes=sent..sent"}, "START..END"),
        ({"decode": QUOTES, "latency": "quotes=sent..price:h"}, "unit one of"),
        ({"decode": QUOTES, "latency": "quotes=sent..timestamp_ns"}, "set timestamp_from"),
        ({"decode": QUOTES, "sequence": "quotes"}, "KIND=FIELD"),
        ({"decode": QUOTES, "event_time": "quotes=a b"}, "KIND=FIELD"),
        ({"sequence": "quotes=a"}, "none: give decode"),
        ({"decode": QUOTES, "sequence": "trades=a"}, r"a kind that decode names \(quotes\), got"),
        ({"format": "orc"}, "delta, parquet"),
        ({"trigger": "soon"}, "a time"),
        ({"trigger": "0"}, "at least 1, got 0"),
        ({"source": ["path=/x"]}, "sets by itself"),
        ({"source": ["decoder=json:a int"]}, "decode says how"),
        ({"source": {"FragmentMode": "frame"}}, "a row of a lake is a message"),
        ({"source": ["endingPositions=latest"]}, "from batch to batch"),
        ({"source": ["minPartitions"]}, "NAME=VALUE"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        PipelineSettings.parse(given)


@pytest.mark.parametrize("text", [None, "format = ", "\xff"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, text: str | None) -> None:
    config = tmp_path / "pipeline.toml"
    if text is not None:
        config.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigurationError, match=r"pipeline\.toml.*--config"):
        PipelineSettings.load(config, {})
