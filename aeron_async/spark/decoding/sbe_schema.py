"""Reads a schema of Simple Binary Encoding, an XML file, into layouts of its messages.

Source: FIX Simple Binary Encoding 1.0, "Message Schema".
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, final
from xml.etree import ElementTree as ET

from aeron_async.errors import ConfigurationError
from aeron_async.spark.decoding.sbe_layout import Block, Data, Field, Group, Header, Message
from aeron_async.spark.decoding.sbe_types import SbeTypes, attribute, local_name, number_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from xml.etree.ElementTree import Element

__all__ = ["SbeSchema", "load_sbe_schema"]

LARGEST_SCHEMA: Final = 16 * 1024 * 1024
DEEPEST_GROUP: Final = 8


def load_sbe_schema(path: str) -> SbeSchema:
    """Read a schema.

    Raises:
        ConfigurationError: The file is not there, is no XML, or what it says cannot be meant.
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
    return SbeSchema(text, path)


@final
class SbeSchema:
    """The messages of one schema.

    Args:
        text: XML.
        name: What errors call it, such as its file.

    Raises:
        ConfigurationError: It is no XML, or what it says cannot be meant.
    """

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
        """The names of its messages, in the order of the file."""
        return list(self._messages)

    def message(self, name: str | None = None) -> Message:
        """Return one message.

        Args:
            name: Of it; not needed where there is one only.

        Raises:
            ConfigurationError: There is none of that name, or it cannot be meant.
        """
        if name is None and len(self._messages) == 1:
            (name,) = self._messages
        if name is None or name not in self._messages:
            which = "more than one message" if name is None else f"no message {name}"
            found = ", ".join(self._messages) or "none"
            self._refuse(f"has {which}; name one of: {found}")
        element = self._messages[name]
        return Message(
            name,
            number_of(element, "id", self._name),
            self._id,
            self._header,
            self._block(element, name, 0),
        )

    def _block(self, parent: Element, where: str, depth: int) -> Block:
        if depth > DEEPEST_GROUP:
            self._refuse(f"{where}: groups nest deeper than {DEEPEST_GROUP}")
        fields: list[Field] = []
        groups: list[Group] = []
        datas: list[Data] = []
        for each in self._members(parent, where):
            kind = local_name(each)
            if kind == "field":
                fields.append(self._field(each, fields, where))
            elif kind == "group":
                groups.append(self._group(each, where, depth))
            else:
                datas.append(self._data(each, where))
        return Block(tuple(fields), tuple(groups), tuple(datas))

    def _members(self, parent: Element, where: str) -> Iterator[Element]:
        """Yield fields, groups and data, which must come in this order."""
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

    def _group(self, element: Element, where: str, depth: int) -> Group:
        name = attribute(element, "name", self._name)
        return Group(
            name,
            self._header_of(
                element.get("dimensionType", "groupSizeEncoding"), "blockLength", "numInGroup"
            ),
            self._block(element, f"{where}.{name}", depth + 1),
            number_of(element, "sinceVersion", self._name, 0),
        )

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
