"""Codec of packed structs: fields of fixed length, without a header."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, final, overload

from aeron_async.codecs.base import column_module
from aeron_async.codecs.generating import Scope, bytes_of, chars_of, python_name, record_type
from aeron_async.codecs.layout import Primitive, StructField
from aeron_async.errors import ConfigurationError, DecodeError, EncodeError
from aeron_async.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aeron_async.codecs.base import Payload
    from aeron_async.codecs.columns import ColumnDecoder

__all__ = ["StructCodec", "struct_fields"]

T = TypeVar("T")
CODES: Final = {
    "b": "i1", "B": "u1", "h": "i2", "H": "u2", "i": "i4", "I": "u4", "q": "i8", "Q": "u8",
    "f": "f4", "d": "f8", "?": "u1",
}  # fmt: skip
"""Formats of `struct` as numpy type codes, without those whose length depends on the machine."""
FIELD: Final = re.compile(r"(?:([A-Za-z_][A-Za-z0-9_]*)\s*:\s*)?(\d{0,5})([bBhHiIqQfd?sx])")
LONGEST_TEXT: Final = 65_536


def struct_fields(
    spec: str, *, raw_bytes: bool = False
) -> tuple[str, tuple[StructField, ...], int, str]:
    """Return the order, the fields, their length in bytes, and the format of a spec.

    Raises:
        ConfigurationError: The spec is invalid.
    """
    text = spec.strip()
    order = text[0] if text[:1] in {"<", ">"} else "<"
    fields: list[StructField] = []
    length = 0
    format_ = order
    for part in (each.strip() for each in text.removeprefix(order).split(",")):
        match = FIELD.fullmatch(part)
        if match is None:
            message = (
                f"struct spec {spec!r}: {part!r} is no field; write name:format, the format one of "
                f"{' '.join(CODES)}, a text as 8s, or bytes to leave out as 4x"
            )
            raise ConfigurationError(message)
        name, digits, code = match.groups()
        width = width_of(digits, code, spec)
        if code != "x":
            check_name(name, part, spec, fields)
            number = Primitive(CODES[code], order) if code in CODES else None
            fields.append(StructField(name, length, width, code, number, raw_bytes))
        format_ += digits + code
        length += width
    if not fields:
        message = f"struct spec {spec!r} has no field: write for example <price:q,symbol:8s"
        raise ConfigurationError(message)
    return order, tuple(fields), length, format_


def width_of(digits: str, code: str, spec: str) -> int:
    """Return the width of a field, in bytes."""
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


def check_name(name: str | None, part: str, spec: str, before: Iterable[StructField]) -> None:
    """Refuse a field without a name, or with that of another."""
    if name is None:
        message = f"struct spec {spec!r}: {part!r} has no name; write name:{part}"
        raise ConfigurationError(message)
    if name in {field.name for field in before}:
        message = f"struct spec {spec!r} has two fields {name}"
        raise ConfigurationError(message)


DECODE: Final = """
def made(data):
    try:
        {unpacked}
        return {value}
    except UnpackError:
        raise {short}(data) from None
    except UnicodeDecodeError as error:
        raise DecodeError("a text is no UTF-8: " + error.reason) from error
"""
ENCODE: Final = """
def made(value{more}):
    try:
        {fields}return {packed}
    except EncodeError:
        raise
    except ENCODE_ERRORS as error:
        raise refused(error) from error
"""


@final
class StructCodec(Generic[T]):
    """A codec of fields of fixed length, one behind the other.

    Messages may be longer than the fields: a later version may append some.

    Args:
        spec: `name:format` separated by commas, `<` (the default) or `>` before the first. Formats
            are those of `struct` with a fixed length: `b B h H i I q Q f d ?`; `20s` is a text of
            20 bytes up to its first zero, and `4x`, without a name, skips four bytes. There is no
            other padding.
        into: Makes the value, called with all fields in order; None for a named tuple, `type`.
            What it makes has an attribute for each field.
        raw_bytes: Whether `s` is bytes with their zeros, as in `struct`, and not a text.

    Attributes:
        type: Named tuple of the fields.
        length: Length of all fields, in bytes.
        format: The same as a format of `struct`.
        decode: Returns the value of a message; raises `DecodeError` if it is too short.
        encode: Returns the message of a value; raises `EncodeError` if a field cannot hold it.
        encode_into: Writes the message of a value into a buffer at an offset, such as that of a
            claim; returns its length.

    Raises:
        ConfigurationError: The spec is invalid.
    """

    @overload
    def __init__(
        self: StructCodec[Any], spec: str, *, into: None = None, raw_bytes: bool = False
    ) -> None: ...

    @overload
    def __init__(
        self: StructCodec[T], spec: str, *, into: Callable[..., T], raw_bytes: bool = False
    ) -> None: ...

    def __init__(
        self, spec: str, *, into: Callable[..., Any] | None = None, raw_bytes: bool = False
    ) -> None:
        order, self._fields, self.length, self.format = struct_fields(spec, raw_bytes=raw_bytes)
        names = [python_name(field.name, f"struct spec {spec!r}") for field in self._fields]
        self.type: type[Any] = record_type("Record", names, {})
        self._names = names
        self._struct = struct.Struct(self.format)
        assert self._struct.size == self.length
        scope = Scope("struct", order)
        scope.names["DecodeError"] = DecodeError
        scope.names["refused"] = self._refused
        self.decode: Callable[[Payload], T] = self._reading(scope, into)
        self.encode: Callable[[T], bytes] = self._writing(scope, into, is_into=False)
        self.encode_into: Callable[[T, Any, int], int] = self._writing(scope, into, is_into=True)

    @property
    def dtype(self) -> Any:
        """Return the numpy type of a message: `numpy.frombuffer(b"".join(payloads), codec.dtype)`.

        Raises:
            ConfigurationError: numpy or pyarrow is not installed.
        """
        return column_module("columns").struct_dtype(self._fields, self.length)

    @property
    def arrow_schema(self) -> Any:
        """Return the `pyarrow.Schema` of the columns.

        Raises:
            ConfigurationError: numpy or pyarrow is not installed.
        """
        return column_module("columns").pa.schema(self.columns().fields)

    def columns(self) -> ColumnDecoder:
        """Return a decoder of columns, one for each field.

        Raises:
            ConfigurationError: numpy or pyarrow is not installed.
        """
        decoder: ColumnDecoder = column_module("columns").StructColumns(self._fields, self.length)
        return decoder

    def _short(self, data: Payload) -> DecodeError:
        length = self.length
        return DecodeError(
            f"message of {len(data)} bytes is shorter than its {length} bytes of fields"
        )

    def _refused(self, error: Exception) -> EncodeError:
        fields = printable(", ".join(self._names))
        return EncodeError(f"{error}: a value has the fields {fields}")

    def _reading(self, scope: Scope, into: Callable[..., Any] | None) -> Any:
        unpack = scope.constant(self._struct.unpack_from)
        has_texts = any(field.number is None and not field.is_raw for field in self._fields)
        if not has_texts:
            values, unpacked = f"{unpack}(data)", "pass"
            arguments = f"*{values}"
        else:
            variables = [scope.variable() for _ in self._fields]
            unpacked = f"({', '.join(variables)},) = {unpack}(data)"
            pairs = zip(self._fields, variables, strict=True)
            made = [v if f.number else f"{v}.partition(Z)[0].decode()" for f, v in pairs]
            arguments = ", ".join(made)
            values = f"({arguments},)"
        if into is None:
            value = f"new({scope.constant(self.type)}, {values})"
        else:
            value = f"{scope.constant(into)}({arguments})"
        short = scope.constant(self._short)
        source = DECODE.format(unpacked=unpacked, value=value, short=short)
        return scope.function(source.replace("        pass\n", ""))

    def _writing(self, scope: Scope, into: Callable[..., Any] | None, *, is_into: bool) -> Any:
        pack = scope.constant(self._struct.pack_into if is_into else self._struct.pack)
        variables = [scope.variable() for _ in self._fields]
        source = "value"
        if into is not None:
            source = f"({', '.join(f'value.{name}' for name in self._names)},)"
        fields = f"({', '.join(variables)},) = {source}; "
        checked = [
            v if field.number else f"{scope.constant(self._check(field))}({v})"
            for field, v in zip(self._fields, variables, strict=True)
        ]
        if all(field.number for field in self._fields):
            fields, checked = "", [f"*{source}"]
        arguments = ", ".join((["buffer", "offset"] if is_into else []) + checked)
        packed = f"{pack}({arguments})" + (f" or {self.length}" if is_into else "")
        more = ", buffer, offset=0" if is_into else ""
        return scope.function(ENCODE.format(more=more, fields=fields, packed=packed))

    def _check(self, field: StructField) -> Callable[[Any], bytes]:
        return bytes_of(field.width, least=0) if field.is_raw else chars_of(field.width)
