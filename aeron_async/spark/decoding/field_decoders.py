"""Decoders described by a list of fields: packed structs, JSON and MessagePack."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, final

import attrs
import numpy as np
import pyarrow as pa

from aeron_async.errors import ConfigurationError
from aeron_async.spark.decoding.decoder import (
    Decoded,
    Flags,
    Found,
    Payloads,
    Places,
    Primitive,
    RowErrors,
    char_arrays,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "StructDecoder",
    "ValueDecoder",
    "json_decoder",
    "msgpack_decoder",
]

CODES: Final = {
    "b": "i1", "B": "u1", "h": "i2", "H": "u2", "i": "i4", "I": "u4", "q": "i8", "Q": "u8",
    "f": "f4", "d": "f8", "?": "u1",
}  # fmt: skip
"""Formats of `struct` as numpy type codes, without those whose length depends on the machine."""
FIELD: Final = re.compile(r"(?:([A-Za-z_][A-Za-z0-9_]*)\s*:\s*)?(\d*)([bBhHiIqQfd?sx])")
LONGEST_TEXT: Final = 65_536


@final
@attrs.frozen
class StructField:
    """One field of a packed struct.

    Attributes:
        name: Name of its column.
        offset: Offset in the message, in bytes.
        width: Width in bytes.
        code: Format character of `struct`.
        number: Number to read; None for a text.
    """

    name: str
    offset: int
    width: int
    code: str
    number: Primitive | None

    @property
    def arrow_type(self) -> pa.DataType:
        """Column type."""
        if self.number is None:
            return pa.string()
        return pa.bool_() if self.code == "?" else self.number.arrow_type

    def column(self, payloads: Payloads, places: Places, absent: Flags) -> Found:
        """Return the column for messages that begin at these places."""
        if self.number is None:
            return char_arrays(payloads, places + self.offset, self.width, absent)
        found = self.number.column(payloads, places + self.offset, absent)
        if self.code == "?":
            return attrs.evolve(found, values=found.values.cast(pa.bool_()))
        return found


@final
class StructDecoder:
    """Decodes fields of fixed length.

    Args:
        spec: `name:format` separated by commas, `<` (the default) or `>` before the first. Formats
            are those of `struct` with a fixed length: `b B h H i I q Q f d ?`; `20s` is a text of
            20 bytes up to its first zero, and `4x`, without a name, skips four bytes. There is no
            other padding. Messages may be longer than the fields.

    Raises:
        ConfigurationError: The spec is invalid.
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


INT: Final = 2**31
LONG: Final = 2**63


def _is_int(value: object) -> bool:
    return type(value) is int and -INT <= value < INT


def _is_long(value: object) -> bool:
    return type(value) is int and -LONG <= value < LONG


def _is_number(value: object) -> bool:
    return type(value) is float or _is_long(value)


def _is_text(value: object) -> bool:
    if type(value) is not str:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        # JSON can spell half a surrogate pair, which UTF-8 cannot encode.
        return False
    return True


TYPES: Final[dict[str, tuple[pa.DataType, Callable[[object], bool]]]] = {
    "boolean": (pa.bool_(), lambda value: type(value) is bool),
    "int": (pa.int32(), _is_int),
    "bigint": (pa.int64(), _is_long),
    "double": (pa.float64(), _is_number),
    "string": (pa.string(), _is_text),
    "binary": (pa.binary(), lambda value: type(value) is bytes),
}
"""Arrow type and check for each of Spark's type names; values are never converted silently."""


@final
@attrs.frozen
class ValueField:
    """One value of the map.

    Attributes:
        name: Key in the map, and name of the column.
        kind: One of `TYPES`.
    """

    name: str
    kind: str


@final
class ValueDecoder:
    """Decodes named values of maps; a missing key is null, and other keys are ignored.

    Args:
        spec: `name type` separated by commas; types are `boolean int bigint double string binary`.
        load: Parses bytes into a map, or raises.
        what: Name of the format in errors.

    Raises:
        ConfigurationError: The spec is invalid.
    """

    def __init__(self, spec: str, load: Callable[[bytes], Any], what: str) -> None:
        self._load = load
        self._what = what
        self._fields: list[ValueField] = []
        for part in spec.split(","):
            name, _, kind = part.strip().rpartition(" ")
            kind = kind.lower()
            if not name.strip() or kind not in TYPES:
                message = (
                    f"{what} spec {spec!r}: {part.strip()!r} is no field; write name type, the "
                    f"type one of {' '.join(TYPES)}"
                )
                raise ConfigurationError(message)
            self._fields.append(ValueField(name.strip(), kind))
        names = [field.name for field in self._fields]
        if len(set(names)) < len(names):
            message = f"{what} spec {spec!r} names a field twice"
            raise ConfigurationError(message)

    @property
    def fields(self) -> list[pa.Field]:
        """The columns."""
        return [pa.field(field.name, TYPES[field.kind][0]) for field in self._fields]

    def decode(self, column: pa.BinaryArray) -> Decoded:
        """Return the columns of these messages."""
        errors = RowErrors(len(column))
        maps = [self._map(row, data, errors) for row, data in enumerate(column.to_pylist())]
        columns = [self._column(field, maps, errors) for field in self._fields]
        return Decoded(columns, errors.column())

    def _map(self, row: int, data: bytes, errors: RowErrors) -> dict[Any, Any]:
        try:
            found = self._load(data)
        except RecursionError:
            reason = f"no {self._what}: nested too deeply"
        except Exception as error:  # noqa: BLE001 - a library may raise what it likes for bad bytes
            reason = f"no {self._what}: {error}"
        else:
            if isinstance(found, dict):
                return found
            reason = f"{self._what} of a {type(found).__name__}, not of a map"
        errors.add(np.array([row]), reason[:200])
        return {}

    def _column(self, field: ValueField, maps: list[dict[Any, Any]], errors: RowErrors) -> pa.Array:
        arrow_type, fits = TYPES[field.kind]
        name = field.name
        values: list[Any] = []
        for row, found in enumerate(maps):
            value = found.get(name)
            if value is not None and not fits(value):
                errors.add(np.array([row]), f"{name} is no {field.kind}: {value!r:.60}")
                value = None
            if value is not None and field.kind == "double":
                # JSON means the nearest double; Arrow refuses an integer that is not exactly a
                # double.
                value = float(value)
            values.append(value)
        return pa.array(values, arrow_type)


def json_decoder(spec: str) -> ValueDecoder:
    """Return a decoder of JSON objects; see `ValueDecoder`."""
    return ValueDecoder(spec, json.loads, "JSON")


def msgpack_decoder(spec: str) -> ValueDecoder:
    """Return a decoder of MessagePack maps; see `ValueDecoder`.

    Raises:
        ConfigurationError: The spec is invalid, or the package `msgpack` is not installed.
    """
    try:
        import msgpack  # noqa: PLC0415 - few queries need it
    except ImportError:
        message = "messages in MessagePack need the package msgpack: pip install msgpack"
        raise ConfigurationError(message) from None
    return ValueDecoder(spec, msgpack.unpackb, "MessagePack")
