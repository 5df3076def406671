"""Numbers and short texts of fixed length: how they lie in bytes, and what columns they become.

Spark has no unsigned numbers: each becomes the next larger signed one, and 64 bits stay 64; a
value that does not fit then is an error of its row.
"""

from __future__ import annotations

from math import isnan
from typing import Any, Final, final

import attrs
import numpy as np
import pyarrow as pa

from aeron_async.spark.decoding.payloads import Flags, Payloads, Places, texts

__all__ = ["ARROW_TYPES", "Found", "Primitive", "char_arrays"]

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
