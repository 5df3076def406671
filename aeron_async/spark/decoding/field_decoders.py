"""Decoders described by a list of fields: packed structs, JSON and MessagePack."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, final

import attrs
import numpy as np
import pyarrow as pa

from aeron_async.codecs.columns import WIDENED, Decoded, RowErrors, StructColumns
from aeron_async.codecs.struct_codec import struct_fields
from aeron_async.errors import ConfigurationError
from aeron_async.spark.decoding.decoder import CodecDecoder

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "ValueDecoder",
    "json_decoder",
    "msgpack_decoder",
    "struct_decoder",
]


def struct_decoder(spec: str) -> CodecDecoder:
    """Return a decoder of packed structs; see `StructCodec` for the spec.

    Raises:
        ConfigurationError: The spec is invalid.
    """
    _, fields, length, _ = struct_fields(spec)
    return CodecDecoder(StructColumns(fields, length, WIDENED), reach=length)


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
