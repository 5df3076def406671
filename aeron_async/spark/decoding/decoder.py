"""Decoder interface: payloads of a batch, primitive types, and the decoded columns.

Spark has no unsigned numbers. Each becomes the next larger signed type, except that 64 bits stay 64
bits; a value that does not fit is an error of its row.

A row that cannot be decoded is kept: its columns are null, and `decode_error` holds the reason.
Only messages that a schema identifies as another kind are dropped.
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
    """Payloads of a batch as one buffer, with the place of each message.

    Attributes:
        data: Bytes of all messages.
        starts: Where each message begins in `data`.
        ends: Where each message ends.
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
        """Return `width` bytes from each place, one row each; zeros where they are absent."""
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
    """Return the bytes between each start and end; both must be in ascending order.

    All values are copied in one call: the gaps are values of the array too, and every other value
    is taken.
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
    """Return bytes as text, and which are not UTF-8; their text is null."""
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
"""Column types of numbers, by numpy type code without the byte order."""


@final
@attrs.frozen
class Found:
    """One decoded column.

    Attributes:
        values: Values of all rows.
        wrong: Rows whose bytes are present but invalid; their value is null.
    """

    values: pa.Array
    wrong: Flags


@final
@attrs.frozen
class Primitive:
    """A number.

    Attributes:
        code: Numpy type code without the byte order, such as `i4`.
        order: `<` or `>`.
        null: Value that means null, which may be NaN; None if every value is a number.
    """

    code: str
    order: str = "<"
    null: int | float | None = None

    @property
    def width(self) -> int:
        """Width in bytes."""
        return int(self.code[1:])

    @property
    def kind(self) -> np.dtype[Any]:
        """Numpy type."""
        return np.dtype(self.order + self.code)

    @property
    def arrow_type(self) -> pa.DataType:
        """Column type."""
        return ARROW_TYPES[self.code]

    def column(self, payloads: Payloads, places: Places, absent: Flags) -> Found:
        """Return the numbers at these places; null if absent or equal to the null value."""
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
    """Return texts of fixed length, each up to its first zero byte."""
    rows = payloads.take(places, width, absent)
    rows[np.logical_or.accumulate(rows == 0, axis=1)] = 0
    raw = rows.view(f"S{width}").reshape(len(places))
    return Found(*texts(pa.array(raw, pa.binary(), mask=absent)))


ERROR_COLUMN: Final = "decode_error"
"""Reason why a message could not be decoded; null if it could."""
PAYLOAD: Final = "payload"


@final
@attrs.frozen
class Decoded:
    """Decoded messages.

    Attributes:
        columns: One column for each field, with a row for each message.
        errors: Reason why a row is null, as text; null for decoded rows.
        others: Messages of another kind, to be dropped; None if there are none.
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
        """Return the columns of these messages; never raise because of their content."""
        ...


class RowErrors:
    """The first error of each row."""

    __slots__ = ("_reasons", "failed")

    def __init__(self, count: int) -> None:
        self.failed: Flags = np.zeros(count, np.bool_)
        self._reasons: dict[int, str] = {}

    def add(self, rows: np.ndarray, reason: str) -> None:
        """Add an error for some rows, by index; a row that has one keeps it."""
        fresh = rows[~self.failed[rows]]
        self.failed[fresh] = True
        self._reasons.update(dict.fromkeys(fresh.tolist(), reason))

    def column(self) -> pa.Array:
        """Return the errors; null for rows without one."""
        count = len(self.failed)
        if not self._reasons:
            return pa.nulls(count, pa.string())
        return pa.array([self._reasons.get(row) for row in range(count)], pa.string())


def decoded_schema(schema: pa.Schema, decoder: Decoder) -> pa.Schema:
    """Return the schema of decoded batches: the decoder's columns replace the payload.

    Raises:
        ConfigurationError: There is no payload, or a field has the name of another column.
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
