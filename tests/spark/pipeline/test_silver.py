"""Kinds of messages: which fields may be named, and when a message happened."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from aeron_async.errors import ConfigurationError
from aeron_async.spark.pipeline.settings import PipelineSettings
from aeron_async.spark.pipeline.silver import kinds_of
from aeron_async.spark.pipeline.task import event_of

SPEC = "7:quotes=struct:<price:d,sent:q"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"sequence": "quotes=sentt"}, "did you mean sent"),
        ({"sequence": "quotes=price"}, "must be an integer"),
        ({"latency": "quotes=sent..zzz"}, "it has price, sent"),
        ({"event_time": "quotes=price"}, "must be an integer"),
        ({"decode": "7:quotes=struct:<date:q"}, "rename it"),
        ({"decode": "7:quotes=struct:<Position:q"}, "rename it"),
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
    assert quotes.event_time is not None
    assert other.event_time is None
    times = {"sent": pa.array([5, None, 2**62])}
    recorded = np.array([1, 2, 3])
    assert event_of(quotes, times, recorded).tolist() == [5_000, 2, 3]
    assert event_of(other, times, recorded).tolist() == [1, 2, 3]
