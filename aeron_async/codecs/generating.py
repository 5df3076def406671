"""Functions that read and write one block of a message, generated from its fields.

A block is one `struct.Struct`: all fields are unpacked in one call, and one expression makes the
value of them. That costs a third of a property for each field. No text of a schema becomes source
but names, and those are checked to be identifiers.
"""

from __future__ import annotations

import struct
from collections import namedtuple
from keyword import iskeyword
from math import isnan
from typing import TYPE_CHECKING, Any, Final, assert_never, final

from aeron_async.codecs.layout import Char, Composite, Constant, EnumType, Numbers, Primitive
from aeron_async.errors import ConfigurationError, EncodeError
from aeron_async.protocol.arguments import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from aeron_async.codecs.layout import Encoding, Field

__all__ = ["ENCODE_ERRORS", "FORMATS", "Scope", "python_name", "record_type"]

FORMATS: Final = {
    "i1": "b", "i2": "h", "i4": "i", "i8": "q", "u1": "B", "u2": "H", "u4": "I", "u8": "Q",
    "f4": "f", "f8": "d",
}  # fmt: skip
"""Formats of `struct` by numpy type code."""
ENCODE_ERRORS: Final = (
    struct.error,
    AttributeError,
    KeyError,
    OverflowError,
    TypeError,
    ValueError,
)
"""What Python raises for a value that does not fit its field."""


def python_name(name: str, where: str) -> str:
    """Return the name of an attribute: that of the field, with `_` behind a keyword of Python.

    Raises:
        ConfigurationError: It cannot be the name of an attribute.
    """
    found = f"{name}_" if iskeyword(name) else name
    if not found.isidentifier() or not found.isascii() or found.startswith("_"):
        message = (
            f"{where}: {shown(name)} cannot be the name of an attribute: give the field a name of "
            "letters, digits and _ that begins with a letter"
        )
        raise ConfigurationError(message)
    return found


def record_type(
    name: str, names: Sequence[str], constants: dict[str, Any], defaults: Sequence[Any] = ()
) -> type[Any]:
    """Return a named tuple with these fields; constants are attributes of the class."""
    made: Any = namedtuple(name, names, defaults=defaults)  # type: ignore[misc]  # noqa: PYI024
    return type(name, (made,), {"__slots__": (), "__doc__": made.__doc__, **constants})


@final
class EnumNames(dict[int, "str | None"]):
    """Names by value; a value without one becomes its number as text."""

    def __missing__(self, value: int) -> str:
        return str(value)


@final
class EnumValues(dict["str | None", int]):
    """Values by name; a number, or its text, is the value of itself."""

    def __missing__(self, name: object) -> int:
        if isinstance(name, int) and not isinstance(name, bool):
            return name
        if isinstance(name, str) and name.removeprefix("-").isdecimal():
            return int(name)
        names = ", ".join(each for each in self if each is not None)
        message = f"{shown(name)} is none of {names}"
        raise ValueError(message)


def chars_of(width: int) -> Callable[[str | None], bytes]:
    """Return a function that encodes a text of at most `width` bytes."""

    def encoded(text: str | None) -> bytes:
        if text is None:
            message = "a text is None, and its field is not optional"
            raise ValueError(message)
        data = text.encode()
        if len(data) > width or b"\0" in data:
            message = f"{shown(text)} is longer than its field, {width} bytes, or has a zero byte"
            raise ValueError(message)
        return data

    return encoded


def bytes_of(width: int, *, least: int) -> Callable[[bytes], bytes]:
    """Return a function that checks bytes of a fixed length; zeros are appended to fewer."""

    def checked(data: bytes) -> bytes:
        if not least <= len(data) <= width:
            message = f"{len(data)} bytes are not the {width} bytes of their field"
            raise ValueError(message)
        return data

    return checked


@final
class Scope:
    """Source of functions of one block, and the objects that it names.

    Args:
        where: Name of the block, in errors.
        order: `<` or `>`.
    """

    def __init__(self, where: str, order: str) -> None:
        self.where = where
        self.order = order
        self.names: dict[str, Any] = {
            "ENCODE_ERRORS": ENCODE_ERRORS,
            "EncodeError": EncodeError,
            "UnpackError": struct.error,
            "Z": b"\0",
            "new": tuple.__new__,
            "where": where,
        }
        self.types: dict[str, type[Any]] = {}
        self._count = 0

    def constant(self, value: Any) -> str:
        """Return the name of an object in the source."""
        name = f"k{len(self.names)}"
        self.names[name] = value
        return name

    def variable(self) -> str:
        """Return the name of another variable."""
        self._count += 1
        return f"v{self._count}"

    def function(self, source: str) -> Any:
        """Return the function `made` of a source."""
        exec(compile(source, f"<codec of {self.where}>", "exec"), self.names)  # noqa: S102 - see the module
        return self.names.pop("made")

    # Reading.

    def reading(self, encoding: Encoding, name: str) -> tuple[str, list[str], str]:
        """Return the format of a value, the variables that it is unpacked to, and its expression.

        Args:
            encoding: Encoding of the value.
            name: Name of its field; that of a member with those of its composites before it.
        """
        if isinstance(encoding, Composite):
            format_, variables, made = self.reading_fields(encoding.fields, f"{name}.")
            kind = self.constant(self._composite_type(encoding, name))
            return format_, variables, f"new({kind}, ({made}))"
        if isinstance(encoding, Constant):
            return "", [], self.constant(encoding.value)
        v = self.variable()
        if isinstance(encoding, Primitive):
            return FORMATS[encoding.code], [v], self._or_none(encoding, v)
        if isinstance(encoding, Char):
            text = f"{v}.partition(Z)[0].decode()"
            return f"{encoding.width}s", [v], f"({text} or None)" if encoding.is_optional else text
        if isinstance(encoding, EnumType):
            names: dict[int, str | None] = dict(encoding.names)
            if encoding.number.null is not None:
                names[int(encoding.number.null)] = None
            return FORMATS[encoding.number.code], [v], f"{self.constant(EnumNames(names))}[{v}]"
        if isinstance(encoding, Numbers):
            return f"{encoding.width}s", [v], self._numbers(encoding, v)
        assert_never(encoding)

    def reading_fields(
        self, fields: Iterable[Field], prefix: str = ""
    ) -> tuple[str, list[str], str]:
        """Return the same of the members of a composite or block, with what lies between them."""
        format_, variables, made = "", [], ""
        place = 0
        for field in fields:
            if isinstance(field.encoding, Constant):
                continue
            piece, more, expression = self.reading(field.encoding, f"{prefix}{field.name}")
            format_ += padding(field.offset - place) + piece
            place = field.end
            variables += more
            made += f"{expression}, "
        return format_, variables, made

    def _composite_type(self, encoding: Composite, name: str) -> type[Any]:
        """Return the named tuple of a composite's value, which all functions of a block share."""
        if name not in self.types:
            names = [python_name(f.name, self.where) for f in variable_fields(encoding.fields)]
            kind = record_type(name.rpartition(".")[2], names, constants_of(encoding.fields))
            self.types[name] = kind
        return self.types[name]

    def _numbers(self, encoding: Numbers, v: str) -> str:
        if encoding.is_binary:
            return f"bytes({v})"
        number = encoding.number
        unpack = struct.Struct(f"{self.order}{encoding.count}{FORMATS[number.code]}").unpack
        values = f"{self.constant(unpack)}({v})"
        if number.null is None:
            return values
        return f"tuple([{self._or_none(number, 'x')} for x in {values}])"

    def _or_none(self, number: Primitive, v: str) -> str:
        null = number.null
        if null is None:
            return v
        if isnan(null):
            return f"(None if {v} != {v} else {v})"
        return f"(None if {v} == {self.constant(self._as_read(number, null))} else {v})"

    def _as_read(self, number: Primitive, value: float) -> Any:
        """Return a null value as it is read: the nearest float of 32 bits may be another one."""
        code = f"{self.order}{FORMATS[number.code]}"
        try:
            return struct.unpack(code, struct.pack(code, value))[0]
        except (struct.error, OverflowError):
            return value

    # Writing.

    def writing(self, encoding: Encoding, path: str) -> list[str]:  # noqa: PLR0911 - one for each
        """Return the expressions whose values are packed, in the order of the format."""
        if isinstance(encoding, Constant):
            return []
        if isinstance(encoding, Composite):
            return self.writing_fields(encoding.fields, path)
        if isinstance(encoding, Primitive):
            return [self._or_null(encoding, path)]
        if isinstance(encoding, Char):
            text = f"({path} or '')" if encoding.is_optional else path
            return [f"{self.constant(chars_of(encoding.width))}({text})"]
        if isinstance(encoding, EnumType):
            values = EnumValues({name: value for value, name in encoding.names.items()})
            if encoding.number.null is not None:
                values[None] = int(encoding.number.null)
            return [f"{self.constant(values)}[{path}]"]
        if isinstance(encoding, Numbers):
            if encoding.is_binary:
                width = encoding.width
                return [f"{self.constant(bytes_of(width, least=width))}({path})"]
            code = f"{self.order}{encoding.count}{FORMATS[encoding.number.code]}"
            pack = self.constant(struct.Struct(code).pack)
            return [f"{pack}(*[{self._or_null(encoding.number, 'x')} for x in {path}])"]
        assert_never(encoding)

    def writing_fields(self, fields: Iterable[Field], path: str) -> list[str]:
        """Return the same for the members of a composite or block."""
        return [
            each
            for field in variable_fields(fields)
            for each in self.writing(
                field.encoding, f"{path}.{python_name(field.name, self.where)}"
            )
        ]

    def _or_null(self, number: Primitive, path: str) -> str:
        if number.null is None:
            return path
        return f"({self.constant(number.null)} if (y := {path}) is None else y)"


def padding(length: int) -> str:
    """Return the format of bytes that are skipped."""
    return f"{length}x" if length else ""


def variable_fields(fields: Iterable[Field]) -> list[Field]:
    """Return the fields that lie in a message."""
    return [field for field in fields if not isinstance(field.encoding, Constant)]


def constants_of(fields: Iterable[Field]) -> dict[str, Any]:
    """Return the values of the other fields."""
    return {
        python_name(field.name, "schema"): field.encoding.value
        for field in fields
        if isinstance(field.encoding, Constant)
    }
