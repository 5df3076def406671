"""The types that a schema of Simple Binary Encoding declares, and those that need no declaring.

Source: FIX Simple Binary Encoding 1.0, "Field Encoding".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn, final

import pyarrow as pa

from aeron_async.errors import ConfigurationError
from aeron_async.spark.decoding.primitives import ARROW_TYPES, Primitive
from aeron_async.spark.decoding.sbe_layout import (
    Char,
    Choice,
    Composite,
    Constant,
    Field,
    Header,
    Numbers,
)

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from aeron_async.spark.decoding.sbe_layout import Encoding

__all__ = ["SbeTypes", "attribute", "local_name", "number_of"]

CODES: Final = {
    "int8": "i1", "int16": "i2", "int32": "i4", "int64": "i8",
    "uint8": "u1", "uint16": "u2", "uint32": "u4", "uint64": "u8",
    "float": "f4", "double": "f8", "char": "u1",
}  # fmt: skip
NAN: Final = float("nan")
NULLS: Final[dict[str, int | float]] = {
    "int8": -(2**7), "int16": -(2**15), "int32": -(2**31), "int64": -(2**63),
    "uint8": 2**8 - 1, "uint16": 2**16 - 1, "uint32": 2**32 - 1, "uint64": 2**64 - 1,
    "float": NAN, "double": NAN, "char": 0,
}  # fmt: skip
"""What stands for no value where a type says nothing else."""
TEXT_ENCODINGS: Final = {"UTF-8", "UTF8", "ASCII", "US-ASCII"}
LONGEST_ARRAY: Final = 65_535
DEEPEST_TYPE: Final = 16


def local_name(element: Element) -> str:
    """Return the tag without its namespace."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def attribute(element: Element, name: str, where: str) -> str:
    """Return an attribute that must be there.

    Raises:
        ConfigurationError: It is not.
    """
    value = element.get(name)
    if value is None:
        message = f"{where}: <{local_name(element)} {dict(element.attrib)}> has no {name}"
        raise ConfigurationError(message)
    return value


def number_of(element: Element, name: str, where: str, default: int | None = None) -> int:
    """Return an attribute that is a number.

    Raises:
        ConfigurationError: It is none, or negative, or not there and has no default.
    """
    text = attribute(element, name, where) if default is None else element.get(name)
    if text is None:
        assert default is not None
        return default
    if not text.strip().isdecimal():
        message = f"{where}: <{local_name(element)}> has {name} {text!r}, which is no number"
        raise ConfigurationError(message)
    return int(text)


@final
class SbeTypes:
    """Types by name.

    Args:
        schema: What errors call the schema.
        order: `<` or `>`.
    """

    def __init__(self, schema: str, order: str) -> None:
        self._schema = schema
        self._order = order
        self._declared: dict[str, Element] = {}

    def declare(self, element: Element) -> None:
        """Know a type from now on.

        Raises:
            ConfigurationError: It has no name.
        """
        if local_name(element) in {"type", "composite", "enum", "set"}:
            self._declared[attribute(element, "name", self._schema)] = element

    def encoding_of(self, field: Element, where: str) -> Encoding:
        """Return how the value of a field lies in bytes.

        Raises:
            ConfigurationError: Its type is not known, or cannot be meant.
        """
        type_name = attribute(field, "type", where)
        presence = field.get("presence")
        if presence == "constant" and field.get("valueRef") is not None:
            return Constant(self._referred(attribute(field, "valueRef", where), where), pa.string())
        return self._named(type_name, presence, where, 0)

    def header(self, type_name: str, names: tuple[str, ...]) -> Header:
        """Return a composite whose numbers are looked at here.

        Raises:
            ConfigurationError: It is none, or has not these numbers.
        """
        element = self._declared.get(type_name)
        if element is None or local_name(element) != "composite":
            self._refuse(type_name, f"is no composite; it needs {', '.join(names)}")
        composite = self._composite(element, type_name, 0, is_header=True)
        numbers = {
            field.name: (field.offset, field.encoding)
            for field in composite.fields
            if isinstance(field.encoding, Primitive)
        }
        for name in names:
            if name not in numbers or numbers[name][1].code[0] == "f":
                self._refuse(type_name, f"has no number {name}")
        return Header({name: numbers[name] for name in names}, composite.width)

    def is_text(self, type_name: str) -> bool:
        """Return whether data of a type is text."""
        for each in self._declared[type_name]:
            if each.get("name") == "varData":
                return each.get("characterEncoding", "").upper() in TEXT_ENCODINGS
        return False

    def _named(self, type_name: str, presence: str | None, where: str, depth: int) -> Encoding:
        if depth > DEEPEST_TYPE:
            self._refuse(where, f"types nest deeper than {DEEPEST_TYPE}, or contain themselves")
        element = self._declared.get(type_name)
        if element is not None:
            return self._made(element, presence, where, depth)
        if type_name not in CODES:
            self._refuse(where, f"type {type_name!r} is not declared")
        return self._primitive(type_name, presence == "optional", None)

    def _made(self, element: Element, presence: str | None, where: str, depth: int) -> Encoding:
        kind = local_name(element)
        if kind == "type":
            return self._type(element, presence, where)
        if kind == "composite":
            return self._composite(element, where, depth)
        if kind == "enum":
            return self._enum(element, where, is_optional=presence == "optional")
        if kind == "set":
            return self._number(attribute(element, "encodingType", where), where)
        return self._refuse(where, f"<{kind}> is no type")

    def _type(self, element: Element, presence: str | None, where: str) -> Encoding:
        name = attribute(element, "primitiveType", where)
        if name not in CODES:
            self._refuse(where, f"primitiveType {name!r} is none of {', '.join(CODES)}")
        presence = presence or element.get("presence", "required")
        length = number_of(element, "length", where, 1)
        if presence == "constant":
            return self._constant(name, (element.text or "").strip(), length, where)
        if not 1 <= length <= LONGEST_ARRAY:
            self._refuse(where, f"length {length} is not 1 to {LONGEST_ARRAY}")
        if name == "char":
            return Char(length, presence == "optional")
        number = self._primitive(name, presence == "optional", element.get("nullValue"))
        if length == 1 or not isinstance(number, Primitive):
            return number
        return Numbers(number, length)

    def _primitive(self, name: str, is_optional: bool, null: str | None) -> Encoding:  # noqa: FBT001 - what a schema says of presence
        if name == "char":
            return Char(1, is_optional)
        value: int | float | None = None
        if is_optional or null is not None:
            value = NULLS[name] if null is None else self._value(name, null, "nullValue")
        return Primitive(CODES[name], self._order, value)

    def _constant(self, name: str, text: str, length: int, where: str) -> Constant:
        if name == "char":
            if length > 1 and len(text) > length:
                self._refuse(where, f"constant {text!r} is longer than {length} characters")
            return Constant(text, pa.string())
        return Constant(self._value(name, text, where), ARROW_TYPES[CODES[name]])

    def _value(self, name: str, text: str, where: str) -> int | float:
        try:
            return float(text) if name in {"float", "double"} else int(text)
        except ValueError:
            self._refuse(where, f"{text!r} is no {name}")

    def _number(self, name: str, where: str) -> Primitive:
        """Return the number that an enumeration or a set is made of."""
        element = self._declared.get(name)
        if element is not None and local_name(element) == "type":
            name = attribute(element, "primitiveType", where)
        if name not in CODES or CODES[name][0] == "f":
            self._refuse(where, f"encodingType {name!r} is no whole number and no char")
        return Primitive(CODES[name], self._order)

    def _enum(self, element: Element, where: str, *, is_optional: bool) -> Choice:
        encoding = attribute(element, "encodingType", where)
        number = self._number(encoding, where)
        names: dict[int, str] = {}
        is_char = self._is_char(encoding)
        for each in element:
            if local_name(each) == "validValue":
                text = (each.text or "").strip()
                if is_char and len(text) != 1:
                    self._refuse(where, f"validValue {text!r} is not one character")
                value = ord(text) if is_char else int(self._value("int64", text, where))
                names[value] = attribute(each, "name", where)
        if not is_optional:
            return Choice(number, names)
        null = NULLS[self._primitive_name(encoding)]
        return Choice(Primitive(number.code, number.order, null), names)

    def _primitive_name(self, name: str) -> str:
        element = self._declared.get(name)
        return name if element is None else element.get("primitiveType", name)

    def _is_char(self, name: str) -> bool:
        return self._primitive_name(name) == "char"

    def _referred(self, reference: str, where: str) -> str:
        """Return the name of a value of an enumeration, of `Enum.value`."""
        enum_name, _, value = reference.partition(".")
        element = self._declared.get(enum_name)
        if element is not None and value in {each.get("name") for each in element}:
            return value
        return self._refuse(where, f"valueRef {reference!r} names no value of an enumeration")

    def _composite(
        self, element: Element, where: str, depth: int, *, is_header: bool = False
    ) -> Composite:
        fields: list[Field] = []
        width = 0
        for each in element:
            kind = local_name(each)
            if not kind:
                continue
            name = attribute(each, "name", where)
            if is_header and name == "varData":
                continue
            inner = f"{where}.{name}"
            if kind == "ref":
                encoding = self._named(attribute(each, "type", inner), None, inner, depth + 1)
            else:
                encoding = self._made(each, each.get("presence"), inner, depth + 1)
            offset = number_of(each, "offset", inner, width)
            if offset < width:
                self._refuse(inner, f"offset {offset} is within what comes before it")
            fields.append(Field(name, offset, encoding))
            width = offset + encoding.width
        if not fields:
            self._refuse(where, "a composite has no member")
        return Composite(tuple(fields), width)

    def _refuse(self, where: str, what: str) -> NoReturn:
        message = f"{self._schema}: {where}: {what}"
        raise ConfigurationError(message)
