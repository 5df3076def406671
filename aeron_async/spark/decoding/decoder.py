"""Payloads, primitive types, and what a decoder makes of them.

Spark has no unsigned numbers: each becomes the next larger signed one, and 64 bits stay 64; a
value that does not fit then is an error of its row.

A row is never dropped because it cannot be decoded: its columns are null, and `decode_error` says
why. Dropped are only messages that a schema knows as others than the one asked for.
"""

from __future__ import annotations

from math import isnan
from typing import Any, Final, Protocol, final

import attrs
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aeron_async.errors import ConfigurationError

__all__ = [
    "ARROW_TYPES",
    "ERROR_COLUMN",
    "Bytes",
    "Decoded",
    "Decoder",
    "Flags",
    "Found",
    "Payloads",
    "Places",
    "Primitive",
    "RowErrors",
    "blobs",
    "char_arrays",
    "decode_batch",
    "decoded_schema",
    "texts",
]

Places = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Flags = NDArray[np.bool_]


class Payloads:
    """Where each message begins and ends in the bytes of all.

    Attributes:
        data: The bytes.
        starts: Where each message begins in them.
        ends: Where each ends.
    """

    __slots__ = ("buffer", "data", "ends", "starts")

    def __init__(self, column: pa.BinaryArray) -> None:
        _, offsets, buffer = column.buffers()
        edges = np.zeros(1, np.int32)
        if offsets is not None and len(column):
            edges = np.frombuffer(offsets, np.int32)[column.offset :][: len(column) + 1]
        self.starts: Places = edges[:-1].astype(np.int64)
        self.ends: Places = edges[1:].astype(np.int64)
        self.buffer: Any = pa.py_buffer(b"") if buffer is None else buffer
        self.data: Bytes = np.frombuffer(self.buffer, np.uint8)

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, places: Places, width: int, absent: Flags) -> Bytes:
        """Return `width` bytes from each place, a row each; zeros where they are absent."""
        rows: Bytes
        if not absent.any():
            rows = self.data[places[:, None] + np.arange(width)]
            return rows
        rows = np.zeros((len(places), width), np.uint8)
        there = ~absent
        rows[there] = self.data[places[there][:, None] + np.arange(width)]
        return rows

    def numbers(self, places: Places, kind: np.dtype[Any], absent: Flags) -> NDArray[Any]:
        """Return the number at each place; zero where it is absent."""
        return self.take(places, kind.itemsize, absent).view(kind).reshape(len(places))


def blobs(payloads: Payloads, starts: Places, ends: Places, absent: Flags) -> pa.BinaryArray:
    """Return the bytes from each start to its end; starts and ends must only rise.

    Copied in one call: gaps between values are values too, and every second one is taken.
    """
    edges = np.empty(2 * len(starts) + 1, np.int32)
    edges[0:-1:2], edges[1::2] = starts, ends
    edges[-1] = edges[-2] if len(starts) else 0
    pieces = pa.Array.from_buffers(
        pa.binary(), 2 * len(starts), [None, pa.py_buffer(edges), payloads.buffer]
    )
    evens = np.arange(0, 2 * len(starts), 2)
    return pieces.take(pa.array(evens, mask=absent))


def texts(values: pa.BinaryArray) -> tuple[pa.StringArray, Flags]:
    """Return bytes as text, and where they are none: there the text is null."""
    try:
        return values.cast(pa.string()), np.zeros(len(values), np.bool_)
    except pa.ArrowInvalid:
        pass
    found: list[str | None] = []
    wrong = np.zeros(len(values), np.bool_)
    for index, value in enumerate(values.to_pylist()):
        try:
            found.append(None if value is None else value.decode())
        except UnicodeDecodeError:
            wrong[index] = True
            found.append(None)
    return pa.array(found, pa.string()), wrong


ARROW_TYPES: Final = {
    "i1": pa.int8(),
    "i2": pa.int16(),
    "i4": pa.int32(),
    "i8": pa.int64(),
    "u1": pa.int16(),
    "u2": pa.int32(),
    "u4": pa.int64(),
    "u8": pa.int64(),
    "f4": pa.float32(),
    "f8": pa.float64(),
}
"""Column types of numbers, by numpy's names of them without the byte order."""


@final
@attrs.frozen
class Found:
    """One column, and where it could not be made.

    Attributes:
        values: Of all rows.
        wrong: Rows whose bytes are there and mean nothing; their value is null.
    """

    values: pa.Array
    wrong: Flags


@final
@attrs.frozen
class Primitive:
    """A number.

    Attributes:
        code: Numpy's name of it without the byte order, such as `i4`.
        order: `<` or `>`.
        null: The value that stands for none; None where every value is one. NaN is no number.
    """

    code: str
    order: str = "<"
    null: int | float | None = None

    @property
    def width(self) -> int:
        """In bytes."""
        return int(self.code[1:])

    @property
    def kind(self) -> np.dtype[Any]:
        """Numpy's type of it."""
        return np.dtype(self.order + self.code)

    @property
    def arrow_type(self) -> pa.DataType:
        """The type of its column."""
        return ARROW_TYPES[self.code]

    def column(self, payloads: Payloads, places: Places, absent: Flags) -> Found:
        """Return the numbers at these places, null where one is absent or the null value."""
        values = payloads.numbers(places, self.kind, absent)
        wrong = np.zeros(len(places), np.bool_)
        none = absent
        if self.null is not None:
            is_null = np.isnan(values) if isnan(self.null) else values == self.null
            none = none | is_null
        if self.code == "u8":
            wrong = (values > np.iinfo(np.int64).max) & ~none
            none = none | wrong
        native = values.astype(self.arrow_type.to_pandas_dtype())
        return Found(pa.array(native, self.arrow_type, mask=none), wrong)


def char_arrays(payloads: Payloads, places: Places, width: int, absent: Flags) -> Found:
    """Return texts of fixed length, each up to its first zero."""
    rows = payloads.take(places, width, absent)
    rows[np.logical_or.accumulate(rows == 0, axis=1)] = 0
    raw = rows.view(f"S{width}").reshape(len(places))
    return Found(*texts(pa.array(raw, pa.binary(), mask=absent)))


ERROR_COLUMN: Final = "decode_error"
"""Why a message could not be decoded; null where it could."""
PAYLOAD: Final = "payload"


@final
@attrs.frozen
class Decoded:
    """What became of some messages.

    Attributes:
        columns: One of each field, as long as there were messages.
        errors: Why a row is null, as a text; null where it is not.
        others: Messages of another kind, to be left out; None where there are none.
    """

    columns: list[pa.Array]
    errors: pa.Array
    others: Flags | None = None


class Decoder(Protocol):
    """Makes columns of messages."""

    @property
    def fields(self) -> list[pa.Field]:
        """The columns it makes, in order."""
        ...

    def decode(self, column: pa.BinaryArray) -> Decoded:
        """Return the columns of these messages; never raises for what a message holds."""
        ...


class RowErrors:
    """The first thing that was wrong with each row."""

    __slots__ = ("_reasons", "failed")

    def __init__(self, count: int) -> None:
        self.failed: Flags = np.zeros(count, np.bool_)
        self._reasons: dict[int, str] = {}

    def add(self, rows: np.ndarray, reason: str) -> None:
        """Note a reason for some rows, by index; rows that have one keep it."""
        fresh = rows[~self.failed[rows]]
        self.failed[fresh] = True
        self._reasons.update(dict.fromkeys(fresh.tolist(), reason))

    def column(self) -> pa.Array:
        """Return the reasons, null where there is none."""
        count = len(self.failed)
        if not self._reasons:
            return pa.nulls(count, pa.string())
        return pa.array([self._reasons.get(row) for row in range(count)], pa.string())


def decoded_schema(schema: pa.Schema, decoder: Decoder) -> pa.Schema:
    """Return the schema of decoded batches: the payload gives way to its columns.

    Raises:
        ConfigurationError: There is no payload, or a field is named as a column that is there.
    """
    if PAYLOAD not in schema.names:
        message = f"columns {', '.join(schema.names)} have no payload to decode: select it"
        raise ConfigurationError(message)
    kept = [field for field in schema if field.name != PAYLOAD]
    added = [*decoder.fields, pa.field(ERROR_COLUMN, pa.string())]
    doubles = {field.name.lower() for field in kept} & {field.name.lower() for field in added}
    if doubles:
        message = (
            f"decoded fields {', '.join(sorted(doubles))} have the names of columns that are "
            "there: leave those out of columns, or rename the fields"
        )
        raise ConfigurationError(message)
    return pa.schema([*kept, *added])


def decode_batch(batch: pa.RecordBatch, decoder: Decoder) -> pa.RecordBatch:
    """Return a batch with its payload decoded; see `decoded_schema`."""
    schema = decoded_schema(batch.schema, decoder)
    decoded = decoder.decode(batch.column(PAYLOAD))
    kept = [batch.column(name) for name in batch.schema.names if name != PAYLOAD]
    result = pa.RecordBatch.from_arrays([*kept, *decoded.columns, decoded.errors], schema=schema)
    if decoded.others is None or not decoded.others.any():
        return result
    return result.filter(pa.array(~decoded.others))
