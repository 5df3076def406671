"""Messages that are maps of names to values: JSON and MessagePack."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, final

import attrs
import numpy as np
import pyarrow as pa

from aeron_async.errors import ConfigurationError
from aeron_async.spark.decoding.decoder import Decoded, RowErrors

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ValueDecoder", "json_decoder", "msgpack_decoder"]

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
        # Half a pair of surrogates, which JSON can spell, is no text.
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
"""Types by Spark's names, and what fits one; nothing is taken for another silently."""


@final
@attrs.frozen
class ValueField:
    """One value of the map.

    Attributes:
        name: Its name in the map, and of the column.
        kind: One of `TYPES`.
    """

    name: str
    kind: str


@final
class ValueDecoder:
    """Reads named values out of maps; a name that is not there is null, one too many is left out.

    Args:
        spec: `name type` separated by commas; types are `boolean int bigint double string binary`.
        load: Makes a map of bytes, or raises.
        what: What the messages are called in errors.

    Raises:
        ConfigurationError: The spec cannot be meant.
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
                # Arrow refuses a whole number that no double is; JSON means the nearest one.
                value = float(value)
            values.append(value)
        return pa.array(values, arrow_type)


def json_decoder(spec: str) -> ValueDecoder:
    """Return a decoder of JSON objects; see `ValueDecoder`."""
    return ValueDecoder(spec, json.loads, "JSON")


def msgpack_decoder(spec: str) -> ValueDecoder:
    """Return a decoder of MessagePack maps; see `ValueDecoder`.

    Raises:
        ConfigurationError: The spec cannot be meant, or the package `msgpack` is not installed.
    """
    try:
        import msgpack  # noqa: PLC0415 - needed by those only who have such messages
    except ImportError:
        message = "messages in MessagePack need the package msgpack: pip install msgpack"
        raise ConfigurationError(message) from None
    return ValueDecoder(spec, msgpack.unpackb, "MessagePack")
