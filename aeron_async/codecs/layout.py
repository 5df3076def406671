"""Layouts of messages: what a schema of Simple Binary Encoding, or a list of fields, says.

The codec of a message and the decoder of columns both read them.

Source: FIX Simple Binary Encoding 1.0, "Field Encoding" and "Message Structure".
"""

from __future__ import annotations

from typing import TypeAlias, final

import attrs

__all__ = [
    "Block",
    "Char",
    "Composite",
    "Constant",
    "Data",
    "Encoding",
    "EnumType",
    "Field",
    "GroupSchema",
    "Header",
    "MessageSchema",
    "Numbers",
    "Primitive",
    "StructField",
]


@final
@attrs.frozen
class Primitive:
    """A number.

    Attributes:
        code: Numpy type code without the byte order, such as `i4`.
        order: `<` or `>`.
        null: Value that means null, which may be NaN; None if every value is a number.
    """

    code: str
    order: str = "<"
    null: int | float | None = None

    @property
    def width(self) -> int:
        """Width in bytes."""
        return int(self.code[1:])


@final
@attrs.frozen
class Char:
    """A text of fixed length, up to its first zero byte.

    Attributes:
        width: Width in bytes.
        is_optional: Whether an empty text means null.
    """

    width: int
    is_optional: bool = False


@final
@attrs.frozen
class Numbers:
    """Several numbers of one type; several bytes are one binary value.

    Attributes:
        number: Type of each number.
        count: Number of values.
    """

    number: Primitive
    count: int

    @property
    def width(self) -> int:
        """Width in bytes."""
        return self.number.width * self.count

    @property
    def is_binary(self) -> bool:
        """Whether the value is bytes."""
        return self.number.code == "u1"


@final
@attrs.frozen
class EnumType:
    """An enumeration: a number, or one character, with a name for each value.

    A value without a name in the schema becomes its number as text, so that it is not lost.

    Attributes:
        number: Encoding of the value.
        names: Names by value.
    """

    number: Primitive
    names: dict[int, str]

    @property
    def width(self) -> int:
        """Width in bytes."""
        return self.number.width


@final
@attrs.frozen
class Constant:
    """A value that the schema holds and messages do not.

    Attributes:
        value: Text or number.
        code: Numpy type code of a number; None for a text.
    """

    value: str | int | float
    code: str | None = None
    width: int = 0


@final
@attrs.frozen
class Composite:
    """Several values that belong together.

    Attributes:
        fields: Its members, with offsets in the composite.
        width: Width in bytes.
    """

    fields: tuple[Field, ...]
    width: int


Encoding: TypeAlias = Primitive | Char | Numbers | EnumType | Constant | Composite
"""Encoding of one field's value."""


@final
@attrs.frozen
class Field:
    """A field of a block, or of a composite.

    Attributes:
        name: Name of the field.
        offset: Offset in the block, in bytes.
        encoding: Encoding of its value.
        since: Version of the schema that added it.
    """

    name: str
    offset: int
    encoding: Encoding
    since: int = 0

    @property
    def end(self) -> int:
        """Offset of its end in the block, in bytes."""
        return self.offset + self.encoding.width


@final
@attrs.frozen
class Header:
    """Header of a message, a group, or variable-length data.

    Attributes:
        numbers: Offset and encoding of each number, by name.
        width: Width in bytes.
    """

    numbers: dict[str, tuple[int, Primitive]]
    width: int


@final
@attrs.frozen
class Data:
    """Variable-length data.

    Attributes:
        name: Name of the data.
        header: Header with `length`.
        is_text: Whether the data is text in UTF-8 or ASCII.
        since: Version of the schema that added it.
    """

    name: str
    header: Header
    is_text: bool
    since: int = 0


@final
@attrs.frozen
class Block:
    """Content of a message, or of an entry of a group: fields, then groups, then data.

    Attributes:
        fields: Fields of fixed length.
        groups: Groups after the fields, in order.
        datas: Data after the groups, in order.
        length: Length of the fields that a writer of this schema writes, in bytes.
    """

    fields: tuple[Field, ...]
    groups: tuple[GroupSchema, ...]
    datas: tuple[Data, ...]
    length: int

    @property
    def is_flat(self) -> bool:
        """Whether nothing follows the fields."""
        return not self.groups and not self.datas


@final
@attrs.frozen
class GroupSchema:
    """A repeating group.

    Attributes:
        name: Name of the group.
        header: Header with `blockLength` and `numInGroup`.
        block: Content of each entry.
        since: Version of the schema that added it.
    """

    name: str
    header: Header
    block: Block
    since: int = 0

    @property
    def least(self) -> int:
        """Bytes of the shortest block of an entry: its first field, if each version has one."""
        fields = self.block.fields
        ends = (each.end for each in fields if each.encoding.width and each.since <= self.since)
        return next(ends, 0)


@final
@attrs.frozen
class MessageSchema:
    """One message of a schema.

    Attributes:
        name: Name of the message.
        template_id: Template id of the message.
        schema_id: Id of its schema.
        version: Version of its schema.
        header: Message header of the schema.
        block: Content of the message.
    """

    name: str
    template_id: int
    schema_id: int
    version: int
    header: Header
    block: Block


@final
@attrs.frozen
class StructField:
    """One field of a packed struct.

    Attributes:
        name: Name of the field.
        offset: Offset in the message, in bytes.
        width: Width in bytes.
        code: Format character of `struct`.
        number: Number to read; None for a text.
        is_raw: Whether a text stays bytes, with its zeros.
    """

    name: str
    offset: int
    width: int
    code: str
    number: Primitive | None
    is_raw: bool = False
