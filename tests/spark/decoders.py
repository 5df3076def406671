"""Decoders for queries under test; the workers import them from here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from aeron_async.spark.decoding import decoder_of

__all__ = ["first_bytes", "liar", "made", "no_batch", "no_schema", "sized", "strange"]

NUMBERS = pa.schema([("position", pa.int64()), ("number", pa.int64())])


def first_bytes(batch: Any) -> Any:
    """Return the number that the first four bytes of each payload are; null where it is shorter."""
    payloads = batch.column(batch.schema.get_field_index("payload")).to_pylist()
    numbers = [int.from_bytes(each[:4], "little") if len(each) > 3 else None for each in payloads]
    position = batch.column(batch.schema.get_field_index("position"))
    return pa.RecordBatch.from_arrays([position, pa.array(numbers, pa.int64())], schema=NUMBERS)


first_bytes.schema = NUMBERS  # type: ignore[attr-defined] # as decoders do


def sized(batch: Any) -> Any:
    lengths = batch.column(batch.schema.get_field_index("length")).to_numpy()
    return pa.RecordBatch.from_arrays([pa.array(lengths.astype(np.int64))], names=["size"])


sized.schema = "size BIGINT"  # type: ignore[attr-defined] # as decoders do


def liar(batch: Any) -> Any:
    return pa.RecordBatch.from_arrays([pa.array(["no number"] * batch.num_rows)], names=["size"])


liar.schema = "size BIGINT"  # type: ignore[attr-defined] # as decoders do


def no_batch(batch: Any) -> Any:
    return batch.num_rows


no_batch.schema = "size BIGINT"  # type: ignore[attr-defined] # as decoders do


def no_schema(batch: Any) -> Any:
    return batch


def made() -> Any:
    return decoder_of("struct:<n:I")


def strange(batch: Any) -> Any:
    return batch


strange.schema = 7  # type: ignore[attr-defined] # as decoders do
