"""What tests of codecs have in common: the columns of messages, as rows."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from aeron_async.codecs.columns import Payloads

if TYPE_CHECKING:
    from aeron_async.codecs import Columnar


def columns_of(codec: Columnar, messages: list[bytes]) -> list[tuple[dict[str, Any], str | None]]:
    """Return the values of each message by column, and why it cannot be decoded."""
    decoder = codec.columns()
    bounds = np.array([0, *accumulate(map(len, messages))], np.int64)
    decoded = decoder.decode(Payloads.of_bounds(len(messages), bounds, b"".join(messages)))
    batch = pa.RecordBatch.from_arrays(decoded.columns, schema=pa.schema(decoder.fields))
    batch.validate(full=True)
    others = [False] * len(messages) if decoded.others is None else decoded.others.tolist()
    errors = [
        "another template" if other and error is None else error
        for other, error in zip(others, decoded.errors.to_pylist(), strict=True)
    ]
    return list(zip(batch.to_pylist(), errors, strict=True))
