"""Messages that are fields of fixed length in a fixed order, as Python's `struct` writes them."""

from __future__ import annotations

import re
from typing import Final, final

import attrs
import numpy as np
import pyarrow as pa

from aeron_async.errors import ConfigurationError
from aeron_async.spark.decoding.decoder import Decoded, RowErrors
from aeron_async.spark.decoding.payloads import Flags, Payloads, Places
from aeron_async.spark.decoding.primitives import Found, Primitive, char_arrays

__all__ = ["StructDecoder"]

CODES: Final = {
    "b": "i1", "B": "u1", "h": "i2", "H": "u2", "i": "i4", "I": "u4", "q": "i8", "Q": "u8",
    "f": "f4", "d": "f8", "?": "u1",
}  # fmt: skip
"""The formats of `struct`, but for those whose length depends on the machine."""
FIELD: Final = re.compile(r"(?:([A-Za-z_][A-Za-z0-9_]*)\s*:\s*)?(\d*)([bBhHiIqQfd?sx])")
LONGEST_TEXT: Final = 65_536


@final
@attrs.frozen
class StructField:
    """One field.

    Attributes:
        name: Of its column.
        offset: In the message, in bytes.
        width: In bytes.
        code: The format of `struct`.
        number: How to read it; None of a text.
    """

    name: str
    offset: int
    width: int
    code: str
    number: Primitive | None

    @property
    def arrow_type(self) -> pa.DataType:
        """The type of its column."""
        if self.number is None:
            return pa.string()
        return pa.bool_() if self.code == "?" else self.number.arrow_type

    def column(self, payloads: Payloads, places: Places, absent: Flags) -> Found:
        """Return the column, of messages that begin at these places."""
        if self.number is None:
            return char_arrays(payloads, places + self.offset, self.width, absent)
        found = self.number.column(payloads, places + self.offset, absent)
        if self.code == "?":
            return attrs.evolve(found, values=found.values.cast(pa.bool_()))
        return found


@final
class StructDecoder:
    """Reads fields of fixed length.

    Args:
        spec: `name:format` separated by commas, `<` (the default) or `>` before the first. Formats
            are those of `struct` with a fixed length: `b B h H i I q Q f d ?`, `20s` a text of 20
            bytes up to its first zero, and `4x`, without a name, four bytes to leave out. There is
            no padding but this. Messages may be longer than the fields.

    Raises:
        ConfigurationError: The spec cannot be meant.
    """

    def __init__(self, spec: str) -> None:
        text = spec.strip()
        order = text[0] if text[:1] in {"<", ">"} else "<"
        self._fields: list[StructField] = []
        self._length = 0
        for part in text.removeprefix(order).split(","):
            self._add(part.strip(), order, spec)
        if not self._fields:
            message = f"struct spec {spec!r} has no field: write for example <price:q,symbol:8s"
            raise ConfigurationError(message)

    def _add(self, part: str, order: str, spec: str) -> None:
        match = FIELD.fullmatch(part)
        if match is None:
            message = (
                f"struct spec {spec!r}: {part!r} is no field; write name:format, the format one of "
                f"{' '.join(CODES)}, a text as 8s, or bytes to leave out as 4x"
            )
            raise ConfigurationError(message)
        name, digits, code = match.groups()
        width = self._width(digits, code, spec)
        if code != "x":
            self._check_name(name, part, spec)
            number = Primitive(CODES[code], order) if code in CODES else None
            self._fields.append(StructField(name, self._length, width, code, number))
        self._length += width

    def _width(self, digits: str, code: str, spec: str) -> int:
        count = int(digits or 1)
        if code not in {"s", "x"}:
            if digits:
                message = f"struct spec {spec!r}: {digits}{code} is several fields; name each"
                raise ConfigurationError(message)
            return Primitive(CODES[code]).width
        if not 0 < count <= LONGEST_TEXT:
            message = f"struct spec {spec!r}: {count} is not 1 to {LONGEST_TEXT} bytes"
            raise ConfigurationError(message)
        return count

    def _check_name(self, name: str | None, part: str, spec: str) -> None:
        if name is None:
            message = f"struct spec {spec!r}: {part!r} has no name; write name:{part}"
            raise ConfigurationError(message)
        if name in {field.name for field in self._fields}:
            message = f"struct spec {spec!r} has two fields {name}"
            raise ConfigurationError(message)

    @property
    def fields(self) -> list[pa.Field]:
        """The columns."""
        return [pa.field(field.name, field.arrow_type) for field in self._fields]

    def decode(self, column: pa.BinaryArray) -> Decoded:
        """Return the columns of these messages."""
        payloads = Payloads(column)
        errors = RowErrors(len(payloads))
        lengths = payloads.ends - payloads.starts
        short = lengths < self._length
        for length in np.unique(lengths[short]).tolist():
            reason = f"message of {length} bytes is shorter than its {self._length} bytes of fields"
            errors.add(np.flatnonzero(short & (lengths == length)), reason)
        columns = []
        for field in self._fields:
            found = field.column(payloads, payloads.starts, short)
            errors.add(np.flatnonzero(found.wrong), f"{field.name} is no {field.arrow_type}")
            columns.append(found.values)
        return Decoded(columns, errors.column())
