"""Schemas of Simple Binary Encoding, read from XML into layouts.

Source: FIX Simple Binary Encoding 1.0, "Field Encoding" and "Message Schema".
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, TypeVar, final, overload
from xml.etree import ElementTree as ET

from aeron_async.codecs.layout import (
    Block,
    Char,
    Composite,
    Constant,
    Data,
    EnumType,
    Field,
    GroupSchema,
    Header,
    MessageSchema,
    Numbers,
    Primitive,
)
from aeron_async.codecs.sbe import MAX_ENTRIES, SbeCodec, SbeUnionCodec
from aeron_async.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from os import PathLike
    from xml.etree.ElementTree import Element

    from aeron_async.codecs.layout import Encoding

__all__ = [
    "SbeSchema",
    "SbeTypes",
]

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
"""Null value of each type, unless the schema sets another."""
TEXT_ENCODINGS: Final = {"UTF-8", "UTF8", "ASCII", "US-ASCII"}
LONGEST_ARRAY: Final = 65_535
DEEPEST_TYPE: Final = 16
LONGEST_NUMBER: Final = 20


def local_name(element: Element) -> str:
    """Return the tag without its namespace."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def attribute(element: Element, name: str, where: str) -> str:
    """Return a required attribute.

    Raises:
        ConfigurationError: The attribute is missing.
    """
    value = element.get(name)
    if value is None:
        message = f"{where}: <{local_name(element)} {dict(element.attrib)}> has no {name}"
        raise ConfigurationError(message)
    return value


def number_of(element: Element, name: str, where: str, default: int | None = None) -> int:
    """Return a numeric attribute.

    Raises:
        ConfigurationError: It is no number, is negative or longer than 20 digits, or is missing and
            has no default.
    """
    text = attribute(element, name, where) if default is None else element.get(name)
    if text is None:
        assert default is not None
        return default
    if not text.strip().isdecimal() or len(text) > LONGEST_NUMBER:
        message = f"{where}: <{local_name(element)}> has {name} {text!r}, which is no number"
        raise ConfigurationError(message)
    return int(text)


@final
class SbeTypes:
    """Declared types of a schema, by name.

    Args:
        schema: Name of the schema in errors.
        order: `<` or `>`.
    """

    def __init__(self, schema: str, order: str) -> None:
        self._schema = schema
        self._order = order
        self._declared: dict[str, Element] = {}

    def declare(self, element: Element) -> None:
        """Add a type.

        Raises:
            ConfigurationError: The type has no name.
        """
        if local_name(element) in {"type", "composite", "enum", "set"}:
            self._declared[attribute(element, "name", self._schema)] = element

    def encoding_of(self, field: Element, where: str) -> Encoding:
        """Return the encoding of a field's value.

        Raises:
            ConfigurationError: The type is unknown or invalid.
        """
        type_name = attribute(field, "type", where)
        presence = field.get("presence")
        if presence == "constant" and field.get("valueRef") is not None:
            return Constant(self._referred(attribute(field, "valueRef", where), where))
        return self._named(type_name, presence, where, 0)

    def header(self, type_name: str, names: tuple[str, ...]) -> Header:
        """Return the layout of a header composite with the given numbers.

        Raises:
            ConfigurationError: The type is no composite, or lacks one of the numbers.
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
        """Return whether data of this type is text."""
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
            return Constant(text)
        return Constant(self._value(name, text, where), CODES[name])

    def _value(self, name: str, text: str, where: str) -> int | float:
        try:
            return float(text) if name in {"float", "double"} else int(text)
        except ValueError:
            self._refuse(where, f"{text!r} is no {name}")

    def _number(self, name: str, where: str) -> Primitive:
        """Return the number that encodes an enumeration or a set."""
        element = self._declared.get(name)
        if element is not None and local_name(element) == "type":
            name = attribute(element, "primitiveType", where)
        if name not in CODES or CODES[name][0] == "f":
            self._refuse(where, f"encodingType {name!r} is no whole number and no char")
        return Primitive(CODES[name], self._order)

    def _enum(self, element: Element, where: str, *, is_optional: bool) -> EnumType:
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
            return EnumType(number, names)
        null = NULLS[self._primitive_name(encoding)]
        return EnumType(Primitive(number.code, number.order, null), names)

    def _primitive_name(self, name: str) -> str:
        element = self._declared.get(name)
        return name if element is None else element.get("primitiveType", name)

    def _is_char(self, name: str) -> bool:
        return self._primitive_name(name) == "char"

    def _referred(self, reference: str, where: str) -> str:
        """Return the value name in a reference `Enum.value`."""
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


LARGEST_SCHEMA: Final = 16 * 1024 * 1024
DEEPEST_GROUP: Final = 8
LONGEST_BLOCK: Final = 16 * 1024 * 1024
"""As long as the longest message, in bytes."""
T = TypeVar("T")


@final
class SbeSchema:
    """The messages of one schema; see `from_file`.

    Args:
        text: XML of the schema.
        name: Name in errors, such as the file.

    Raises:
        ConfigurationError: The text is no XML, or no valid schema.
    """

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> Self:
        """Read a schema from a file of at most 16 MiB.

        Raises:
            ConfigurationError: The file cannot be read, is no XML, or is no valid schema.
        """
        file = Path(path)
        try:
            if file.stat().st_size > LARGEST_SCHEMA:
                message = f"schema {path} is longer than {LARGEST_SCHEMA} bytes"
                raise ConfigurationError(message)
            text = file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            message = f"schema {path} cannot be read: {error}"
            raise ConfigurationError(message) from error
        return cls(text, str(path))

    @classmethod
    def from_xml(cls, text: str) -> Self:
        """Read a schema from a text.

        Raises:
            ConfigurationError: The text is no XML, or no valid schema.
        """
        return cls(text)

    def __init__(self, text: str, name: str = "schema") -> None:
        self._name = name
        if "<!ENTITY" in text:
            self._refuse("declares entities; write their text instead")
        try:
            root = ET.fromstring(text)  # noqa: S314 - without entities XML cannot expand
        except ET.ParseError as error:
            self._refuse(f"is no XML: {error}")
        if local_name(root) != "messageSchema":
            self._refuse(f"begins with <{local_name(root)}>, not with <messageSchema>")
        if any(local_name(each) == "include" for each in root.iter()):
            self._refuse("includes another file; put the two together first")
        self._id = number_of(root, "id", name)
        self._version = number_of(root, "version", name, 0)
        order = root.get("byteOrder", "littleEndian")
        if order not in {"littleEndian", "bigEndian"}:
            self._refuse(f"has byteOrder {order!r}, not littleEndian or bigEndian")
        self._types = SbeTypes(name, "<" if order == "littleEndian" else ">")
        for group in root:
            if local_name(group) == "types":
                for each in group:
                    self._types.declare(each)
        self._header = self._types.header(
            root.get("headerType", "messageHeader"),
            ("blockLength", "templateId", "schemaId", "version"),
        )
        self._messages = {
            attribute(each, "name", name): each for each in root if local_name(each) == "message"
        }

    @property
    def message_names(self) -> list[str]:
        """Names of the messages, in the order of the file."""
        return list(self._messages)

    def message(self, name: str | None = None) -> MessageSchema:
        """Return one message.

        Args:
            name: Name of the message; None if the schema has only one.

        Raises:
            ConfigurationError: There is no such message, or it is invalid.
        """
        if name is None and len(self._messages) == 1:
            (name,) = self._messages
        if name is None or name not in self._messages:
            which = "more than one message" if name is None else f"no message {name}"
            found = ", ".join(self._messages) or "none"
            self._refuse(f"has {which}; name one of: {found}")
        element = self._messages[name]
        return MessageSchema(
            name,
            number_of(element, "id", self._name),
            self._id,
            self._version,
            self._header,
            self._block(element, name, 0),
        )

    @overload
    def codec(
        self, name: str | None = None, *, max_entries: int = MAX_ENTRIES
    ) -> SbeCodec[Any]: ...

    @overload
    def codec(
        self,
        name: str | None = None,
        *,
        into: Callable[..., T],
        max_entries: int = MAX_ENTRIES,
    ) -> SbeCodec[T]: ...

    def codec(
        self,
        name: str | None = None,
        *,
        into: Callable[..., Any] | None = None,
        max_entries: int = MAX_ENTRIES,
    ) -> SbeCodec[Any]:
        """Return a codec of one message.

        Args:
            name: Name of the message; None if the schema has only one.
            into: Makes the value, called with all members but constants, in the order of the
                schema; None for a named tuple, `SbeCodec.type`.
            max_entries: Most entries of all groups of one message that `decode` makes: each is a
                value of its own, and a message of a mebibyte may have a million. Columns have no
                such limit.

        Raises:
            ConfigurationError: There is no such message, it is invalid, or a name of it cannot be
                that of an attribute.
        """
        return SbeCodec(self.message(name), into, max_entries=max_entries)

    def codecs(self, *names: str, max_entries: int = MAX_ENTRIES) -> SbeUnionCodec:
        """Return a codec of several messages, of a stream that carries all of them.

        Args:
            names: Names of the messages; without any, all of the schema.
            max_entries: As for `codec`.

        Raises:
            ConfigurationError: As for `codec`.
        """
        found = names or tuple(self._messages)
        if not found:
            self._refuse("has no message")
        return SbeUnionCodec([self.codec(name, max_entries=max_entries) for name in found])

    def _block(self, parent: Element, where: str, depth: int) -> Block:
        if depth > DEEPEST_GROUP:
            self._refuse(f"{where}: groups nest deeper than {DEEPEST_GROUP}")
        fields: list[Field] = []
        groups: list[GroupSchema] = []
        datas: list[Data] = []
        for each in self._members(parent, where):
            kind = local_name(each)
            if kind == "field":
                fields.append(self._field(each, fields, where))
            elif kind == "group":
                groups.append(self._group(each, where, depth))
            else:
                datas.append(self._data(each, where))
        end = max((field.end for field in fields), default=0)
        length = number_of(parent, "blockLength", self._name, end)
        if length > LONGEST_BLOCK:
            self._refuse(f"{where}: a block of {length} bytes is longer than {LONGEST_BLOCK}")
        if length < end:
            self._refuse(f"{where}: blockLength {length} is less than its fields, {end} bytes")
        return Block(tuple(fields), tuple(groups), tuple(datas), length)

    def _members(self, parent: Element, where: str) -> Iterator[Element]:
        """Yield fields, groups and data, and check that they come in this order."""
        order = {"field": 0, "group": 1, "data": 2}
        last = 0
        names: set[str] = set()
        for each in parent:
            kind = local_name(each)
            if kind not in order:
                continue
            name = attribute(each, "name", self._name)
            if name in names:
                self._refuse(f"{where} has two members {name}")
            names.add(name)
            if order[kind] < last:
                self._refuse(f"{where}.{name}: fields come first, then groups, then data")
            last = order[kind]
            yield each

    def _field(self, element: Element, before: list[Field], where: str) -> Field:
        name = attribute(element, "name", self._name)
        encoding = self._types.encoding_of(element, f"{where}.{name}")
        natural = max((field.end for field in before), default=0)
        offset = number_of(element, "offset", self._name, natural)
        if offset < natural:
            self._refuse(f"{where}.{name}: offset {offset} is within the field before it")
        return Field(name, offset, encoding, number_of(element, "sinceVersion", self._name, 0))

    def _group(self, element: Element, where: str, depth: int) -> GroupSchema:
        name = attribute(element, "name", self._name)
        block = self._block(element, f"{where}.{name}", depth + 1)
        since = number_of(element, "sinceVersion", self._name, 0)
        header = element.get("dimensionType", "groupSizeEncoding")
        group = GroupSchema(
            name, self._header_of(header, "blockLength", "numInGroup"), block, since
        )
        others = [part.since for part in block.groups] + [part.since for part in block.datas]
        if not group.least and min(others, default=since + 1) > since:
            self._refuse(f"{where}.{name}: an entry of the group takes no bytes; give it a field")
        return group

    def _header_of(self, type_name: str, *numbers: str) -> Header:
        return self._types.header(type_name, numbers)

    def _data(self, element: Element, where: str) -> Data:
        name = attribute(element, "name", self._name)
        type_name = attribute(element, "type", f"{self._name}: {where}")
        return Data(
            name,
            self._types.header(type_name, ("length",)),
            self._types.is_text(type_name),
            number_of(element, "sinceVersion", self._name, 0),
        )

    def _refuse(self, what: str) -> NoReturn:
        message = f"{self._name} {what}"
        raise ConfigurationError(message)
