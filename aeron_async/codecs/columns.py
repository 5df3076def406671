"""Columns of many messages at once, as numpy and Arrow arrays.

`Payloads` has the bytes of messages and the place of each; `Strided` those of messages of one
length that lie one behind the other, whose fields are views of a matrix. The functions here read
one kind of value from either.

Needs numpy and pyarrow, which the extras `arrow` and `spark` install.
"""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, final

import attrs
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aeron_async._speedups import WHY_PURE
from aeron_async.errors import ConfigurationError, DecodeError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aeron_async.codecs.layout import Primitive, StructField

__all__ = [
    "EXACT",
    "WIDENED",
    "Bytes",
    "ColumnDecoder",
    "Decoded",
    "EnvelopeColumns",
    "Flags",
    "Found",
    "Payloads",
    "Places",
    "Readable",
    "RowErrors",
    "Strided",
    "StructColumns",
    "Types",
    "binaries",
    "blobs",
    "chars",
    "kind_of",
    "number_column",
    "record_batch",
    "struct_dtype",
    "struct_type",
    "texts",
]

Places = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Flags = NDArray[np.bool_]
if TYPE_CHECKING:
    Types: TypeAlias = Mapping[str, pa.DataType]

EXACT: Final = {
    "i1": pa.int8(),
    "i2": pa.int16(),
    "i4": pa.int32(),
    "i8": pa.int64(),
    "u1": pa.uint8(),
    "u2": pa.uint16(),
    "u4": pa.uint32(),
    "u8": pa.uint64(),
    "f4": pa.float32(),
    "f8": pa.float64(),
}
"""Column types of numbers, by numpy type code without the byte order."""
WIDENED: Final = EXACT | {"u1": pa.int16(), "u2": pa.int32(), "u4": pa.int64(), "u8": pa.int64()}
"""The same without unsigned types; 64 bits stay 64 bits, and a larger value is an error."""


POSITION: Final = "position"
OTHER: Final = "the message has another template"


class Payloads:
    """Payloads of a batch as one buffer, with the place of each message.

    Args:
        data: Bytes of all messages.
        starts: Where each message begins in `data`.
        ends: Where each message ends.
    """

    __slots__ = ("data", "ends", "starts")

    def __init__(self, data: Bytes, starts: Places, ends: Places) -> None:
        self.data = data
        self.starts = starts
        self.ends = ends

    @classmethod
    def of_column(cls, column: pa.BinaryArray) -> Payloads:
        """Return the payloads of an Arrow array of binaries."""
        _, offsets, buffer = column.buffers()
        edges = np.zeros(1, np.int32)
        if offsets is not None and len(column):
            edges = np.frombuffer(offsets, np.int32)[column.offset :][: len(column) + 1]
        data = np.frombuffer(pa.py_buffer(b"") if buffer is None else buffer, np.uint8)
        return cls(data, edges[:-1].astype(np.int64), edges[1:].astype(np.int64))

    @classmethod
    def of_bounds(cls, count: int, bounds: Any, data: Any) -> Payloads:
        """Return the payloads between bounds: where each begins, and the last ends; 64 bits."""
        edges = np.frombuffer(bounds, np.int64)[: count + 1]
        return cls(np.frombuffer(data, np.uint8), edges[:-1], edges[1:])

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, places: Places, width: int, absent: Flags) -> Bytes:
        """Return `width` bytes from each place, one row each; zeros where they are absent."""
        found = gathered(self.data, places, width, absent)
        return np.frombuffer(found, np.uint8).reshape(len(places), width)

    def numbers(self, places: Places, kind: np.dtype[Any], absent: Flags) -> NDArray[Any]:
        """Return the number at each place; zero where it is absent."""
        return self.take(places, kind.itemsize, absent).view(kind).reshape(len(places))

    def strided(self) -> Strided | None:
        """Return messages of one length, as far from each other; None for all others."""
        count = len(self.starts)
        if not count:
            return None
        first, length = int(self.starts[0]), int(self.ends[0] - self.starts[0])
        stride = length if count == 1 else int(self.starts[1] - self.starts[0])
        if not length or not (self.ends - self.starts == length).all():
            return None
        if count > 1 and not (self.starts[1:] - self.starts[:-1] == stride).all():
            return None
        return Strided(np.ndarray((count, length), np.uint8, self.data, first, (stride, 1)))


class Strided:
    """Messages of one length as a matrix; a place is an offset that all have in common.

    Args:
        rows: One message each.
    """

    __slots__ = ("rows",)

    def __init__(self, rows: Bytes) -> None:
        self.rows = rows

    def take(self, places: int, width: int, absent: Flags) -> Bytes:
        """Return a copy of `width` bytes of each message; zeros where they are absent."""
        if absent.any():
            return np.zeros((len(absent), width), np.uint8)
        rows: Bytes = self.rows[:, places : places + width].copy()
        return rows

    def numbers(self, places: int, kind: np.dtype[Any], absent: Flags) -> NDArray[Any]:
        """Return the number of each message; zero where it is absent: in none of them, or in all.

        Otherwise it is a view.
        """
        if absent.any():
            return np.zeros(len(absent), kind)
        return self.rows[:, places : places + kind.itemsize].view(kind).reshape(len(self.rows))


class Readable(Protocol):
    """Payloads, or the part of them that reads values; places are as the class has them."""

    def take(self, places: Any, width: int, absent: Flags, /) -> Bytes:
        """Return `width` bytes from each place."""
        ...

    def numbers(self, places: Any, kind: np.dtype[Any], absent: Flags, /) -> NDArray[Any]:
        """Return the number at each place."""
        ...


@final
@attrs.frozen
class Found:
    """One decoded column.

    Attributes:
        values: Values of all rows.
        wrong: Rows whose bytes are present but invalid; their value is null. None if no row is.
    """

    values: pa.Array
    wrong: Flags | None = None


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


class ColumnDecoder(Protocol):
    """Makes columns of payloads."""

    @property
    def fields(self) -> list[pa.Field]:
        """The columns it makes, in order."""
        ...

    def decode(self, payloads: Payloads, /) -> Decoded:
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


def record_batch(
    decoder: ColumnDecoder, payloads: Payloads, positions: Any
) -> tuple[pa.RecordBatch, list[tuple[int, str]]]:
    """Return the columns of the messages that can be decoded, and why others cannot, by index.

    Args:
        decoder: Decoder of the columns.
        payloads: The messages.
        positions: Where each message ends, in 64 bits, for a first column; None for none.

    Raises:
        ConfigurationError: A column is named like that of the positions.
    """
    fields = decoder.fields
    decoded = decoder.decode(payloads)
    arrays, errors = decoded.columns, decoded.errors
    if positions is not None:
        if POSITION in {field.name for field in fields}:
            message = f"a field is named {POSITION} too: leave out positions=True"
            raise ConfigurationError(message)
        buffers = [None, pa.py_buffer(positions)]
        arrays = [pa.Array.from_buffers(pa.int64(), len(payloads), buffers), *arrays]
        fields = [pa.field(POSITION, pa.int64()), *fields]
    batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
    others = decoded.others
    if errors.null_count == len(errors) and (others is None or not others.any()):
        return batch, []
    reasons = errors.to_pylist()
    if others is not None:
        reasons = [
            OTHER if is_other and reason is None else reason
            for is_other, reason in zip(others.tolist(), reasons, strict=True)
        ]
    good = pa.array([reason is None for reason in reasons])
    wrong = [(index, reason) for index, reason in enumerate(reasons) if reason is not None]
    return batch.filter(good), wrong


def gathered(data: Bytes, places: Places, width: int, absent: Flags) -> Any:
    """Return the memory of `width` bytes from each place; zeros where they are absent."""
    rows: Bytes
    if not absent.any():
        rows = data[places[:, None] + np.arange(width)]
        return rows.reshape(-1)
    rows = np.zeros((len(places), width), np.uint8)
    there = ~absent
    rows[there] = data[places[there][:, None] + np.arange(width)]
    return rows.reshape(-1)


def blobs(payloads: Payloads, starts: Places, ends: Places, absent: Flags) -> pa.BinaryArray:
    """Return the bytes between each start and end; both must be in ascending order.

    All values are copied in one call: the gaps are values of the array too, and every other value
    is taken.
    """
    edges = np.empty(2 * len(starts) + 1, np.int32)
    edges[0:-1:2], edges[1::2] = starts, ends
    edges[-1] = edges[-2] if len(starts) else 0
    pieces = pa.Array.from_buffers(
        pa.binary(), 2 * len(starts), [None, pa.py_buffer(edges), pa.py_buffer(payloads.data)]
    )
    evens = np.arange(0, 2 * len(starts), 2)
    return pieces.take(pa.array(evens, mask=absent))


def texts(values: pa.BinaryArray) -> Found:
    """Return bytes as text; what is not UTF-8 is wrong."""
    try:
        return Found(values.cast(pa.string()))
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
    return Found(pa.array(found, pa.string()), wrong)


def until_zero(rows: Bytes, width: int) -> tuple[Any, Any]:
    """Return the bounds of texts in 32 bits, and their bytes: each row up to its first zero."""
    count = len(rows)
    if not count:
        return bytes(4), b""
    flat = rows.reshape(-1)
    # Usually nothing follows a zero but zeros, which costs less to find out than to clear.
    begins_again = (flat[:-1] == 0) & (flat[1:] != 0)
    begins_again[width - 1 :: width] = False
    if begins_again.any():
        rows = np.where(np.logical_or.accumulate(rows == 0, axis=1), np.uint8(0), rows)
    _, bounds, data = pa.array(rows.view(f"S{width}").reshape(count), pa.binary()).buffers()
    return bounds, data or b""


def chars(payloads: Readable, places: Any, width: int, absent: Flags) -> Found:
    """Return texts of fixed length, each up to its first zero byte."""
    bounds, data = until_zero(payloads.take(places, width, absent), width)
    there = pa.array(~absent).buffers()[1] if absent.any() else None
    buffers = [there, pa.py_buffer(bounds), pa.py_buffer(data)]
    return texts(pa.Array.from_buffers(pa.binary(), len(absent), buffers))


def binaries(payloads: Readable, places: Any, width: int, absent: Flags) -> Found:
    """Return bytes of fixed length."""
    rows = payloads.take(places, width, absent)
    edges = np.arange(len(absent) + 1, dtype=np.int32) * width
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(np.ascontiguousarray(rows))]
    values = pa.Array.from_buffers(pa.binary(), len(absent), buffers)
    if absent.any():
        values = values.take(pa.array(np.arange(len(absent)), mask=absent))
    return Found(values)


def mask_of(absent: Flags) -> Flags | None:
    """Return which values are null; None if none is."""
    return absent if absent.any() else None


def kind_of(number: Primitive) -> np.dtype[Any]:
    """Return the numpy type of a number."""
    return np.dtype(number.order + number.code)


def number_column(
    number: Primitive, payloads: Readable, places: Any, absent: Flags, types: Types
) -> Found:
    """Return the numbers at these places; null if absent or equal to the null value."""
    values = payloads.numbers(places, kind_of(number), absent)
    wrong = None
    none = absent
    if number.null is not None:
        none = none | (np.isnan(values) if isnan(number.null) else values == number.null)
    kind = types[number.code]
    if number.code == "u8" and kind == pa.int64():
        wrong = (values > np.iinfo(np.int64).max) & ~none
        none = none | wrong
    # Of messages of one length it is a view of memory that may be reused.
    native = values.astype(kind.to_pandas_dtype(), copy=isinstance(payloads, Strided))
    return Found(pa.array(native, kind, mask=mask_of(none)), wrong)


# Packed structs.


def struct_dtype(fields: tuple[StructField, ...], length: int) -> np.dtype[Any]:
    """Return the numpy type of a packed struct; texts are bytes, without zeros at their end."""
    kinds = [f"S{f.width}" if f.number is None else kind_of(f.number) for f in fields]
    return np.dtype(
        {
            "names": [field.name for field in fields],
            "formats": ["?" if f.code == "?" else k for f, k in zip(fields, kinds, strict=True)],
            "offsets": [field.offset for field in fields],
            "itemsize": length,
        }
    )


def struct_type(field: StructField, types: Types) -> pa.DataType:
    """Return the type of a field's column."""
    if field.number is None:
        return pa.binary() if field.is_raw else pa.string()
    return pa.bool_() if field.code == "?" else types[field.number.code]


@final
class StructColumns:
    """Decodes fields of fixed length.

    Args:
        fields: The fields, with offsets.
        length: Length of all fields, in bytes; messages may be longer.
        types: `EXACT` or `WIDENED`.
    """

    def __init__(self, fields: tuple[StructField, ...], length: int, types: Types = EXACT) -> None:
        self._fields = fields
        self._length = length
        self._types = types

    @property
    def fields(self) -> list[pa.Field]:
        """The columns."""
        return [pa.field(field.name, struct_type(field, self._types)) for field in self._fields]

    def decode(self, payloads: Payloads) -> Decoded:
        """Return the columns of these messages."""
        errors = RowErrors(len(payloads))
        source: Readable = payloads
        places: Any = payloads.starts
        lengths = payloads.ends - payloads.starts
        short = lengths < self._length
        strided = None if short.any() else payloads.strided()
        if strided is not None:
            source, places = strided, 0
        for length in np.unique(lengths[short]).tolist():
            reason = f"message of {length} bytes is shorter than its {self._length} bytes of fields"
            errors.add(np.flatnonzero(short & (lengths == length)), reason)
        columns = []
        for field in self._fields:
            found = self._column(field, source, places + field.offset, short)
            if found.wrong is not None:
                kind = struct_type(field, self._types)
                errors.add(np.flatnonzero(found.wrong), f"{field.name} is no {kind}")
            columns.append(found.values)
        return Decoded(columns, errors.column())

    def _column(self, field: StructField, source: Readable, places: Any, absent: Flags) -> Found:
        if field.number is None:
            read = binaries if field.is_raw else chars
            return read(source, places, field.width, absent)
        found = number_column(field.number, source, places, absent, self._types)
        if field.code == "?":
            return attrs.evolve(found, values=found.values.cast(pa.bool_()))
        return found


# Envelopes.

ENVELOPE_LENGTH: Final = 8


@final
class EnvelopeColumns:
    """Decodes what envelopes hold.

    Args:
        inner: Decoder of that.
        place: Returns where the payload begins in a message; raises `DecodeError`.
    """

    def __init__(self, inner: ColumnDecoder, place: Callable[[bytes], int]) -> None:
        self._inner = inner
        self._place = place

    @property
    def fields(self) -> list[pa.Field]:
        """The columns."""
        return self._inner.fields

    def decode(self, payloads: Payloads) -> Decoded:
        """Return the columns of these messages."""
        strided = payloads.strided()
        if strided is not None and strided.rows.shape[1] >= ENVELOPE_LENGTH:
            heads = strided.numbers(0, np.dtype("<u8"), np.zeros(1, np.bool_))
            if (heads == heads[0]).all():
                return self._decode_equal(payloads)
        places, reasons = payloads.starts.copy(), {}
        for row, (start, end) in enumerate(
            zip(payloads.starts.tolist(), payloads.ends.tolist(), strict=True)
        ):
            try:
                places[row] += self._place(payloads.data[start:end].tobytes())
            except DecodeError as error:
                places[row] = end
                reasons[row] = str(error)
        decoded = self._inner.decode(Payloads(payloads.data, places, payloads.ends))
        if not reasons:
            return decoded
        errors = [reasons.get(row, old) for row, old in enumerate(decoded.errors.to_pylist())]
        bad = np.zeros(len(places), np.bool_)
        bad[list(reasons)] = True
        others = None if decoded.others is None else decoded.others & ~bad
        return Decoded(decoded.columns, pa.array(errors, pa.string()), others)

    def _decode_equal(self, payloads: Payloads) -> Decoded:
        """Decode messages of one length whose envelopes are equal."""
        start, end = int(payloads.starts[0]), int(payloads.ends[0])
        count = len(payloads)
        try:
            place = self._place(payloads.data[start:end].tobytes())
        except DecodeError as error:
            nothing = [pa.nulls(count, field.type) for field in self.fields]
            return Decoded(nothing, pa.array([str(error)] * count, pa.string()))
        return self._inner.decode(Payloads(payloads.data, payloads.starts + place, payloads.ends))


if not TYPE_CHECKING and WHY_PURE is None:
    from aeron_async._speedups.gathering import gathered, until_zero
