"""How a message of Simple Binary Encoding lies in bytes: blocks of fields, groups, and data.

Source: FIX Simple Binary Encoding 1.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final

import attrs
import numpy as np
import pyarrow as pa
from pyarrow import compute

from aeron_async.spark.decoding.primitives import Found, Primitive, char_arrays

if TYPE_CHECKING:
    from aeron_async.spark.decoding.payloads import Flags, Payloads, Places

__all__ = [
    "Block",
    "Char",
    "Choice",
    "Composite",
    "Constant",
    "Data",
    "Encoding",
    "Field",
    "Group",
    "Header",
    "Message",
    "Numbers",
]

TEXT: Final = pa.string()


class Encoding(Protocol):
    """How the value of one field lies in bytes."""

    @property
    def width(self) -> int:
        """In bytes."""
        ...

    @property
    def arrow_type(self) -> pa.DataType:
        """The type of its column."""
        ...

    def column(self, payloads: Payloads, places: Places, absent: Flags) -> Found:
        """Return the values at these places, null where one is absent."""
        ...


@final
@attrs.frozen
class Char:
    """A text of fixed length, up to its first zero.

    Attributes:
        width: In bytes.
        is_optional: Whether an empty text stands for none.
    """

    width: int
    is_optional: bool = False
    arrow_type: pa.DataType = TEXT

    def column(self, payloads: Payloads, places: Places, absent: Flags) -> Found:
        """See `Encoding`."""
        none = absent
        if self.is_optional:
            none = absent | (payloads.take(places, 1, absent)[:, 0] == 0)
        return char_arrays(payloads, places, self.width, none)


@final
@attrs.frozen
class Numbers:
    """Several numbers of one kind; of bytes, one value.

    Attributes:
        number: Each of them.
        count: How many.
    """

    number: Primitive
    count: int

    @property
    def width(self) -> int:
        """In bytes."""
        return self.number.width * self.count

    @property
    def arrow_type(self) -> pa.DataType:
        """The type of the column."""
        if self.number.code == "u1":
            return pa.binary()
        return pa.list_(self.number.arrow_type)

    def column(self, payloads: Payloads, places: Places, absent: Flags) -> Found:
        """See `Encoding`."""
        if self.number.code == "u1":
            rows = payloads.take(places, self.width, absent)
            values = pa.array([row.tobytes() for row in rows], pa.binary(), mask=absent)
            return Found(values, np.zeros(len(places), np.bool_))
        steps = np.arange(self.count) * self.number.width
        spread = (places[:, None] + steps).reshape(-1)
        found = self.number.column(payloads, spread, np.repeat(absent, self.count))
        offsets = pa.array(np.arange(len(places) + 1, dtype=np.int32) * self.count)
        values = pa.ListArray.from_arrays(offsets, found.values, mask=pa.array(absent))
        wrong = np.any(found.wrong.reshape(len(places), self.count), axis=1)
        return Found(values, np.asarray(wrong, np.bool_))


@final
@attrs.frozen
class Choice:
    """An enumeration: a number, or one character, that has a name.

    A value that the schema has no name for is the number as text, so that it is not lost.

    Attributes:
        number: How it lies in bytes.
        names: Of each value.
    """

    number: Primitive
    names: dict[int, str]
    arrow_type: pa.DataType = TEXT

    @property
    def width(self) -> int:
        """In bytes."""
        return self.number.width

    def column(self, payloads: Payloads, places: Places, absent: Flags) -> Found:
        """See `Encoding`."""
        raw = payloads.numbers(places, self.number.kind, absent)
        none = absent if self.number.null is None else absent | (raw == self.number.null)
        kinds, index = np.unique(raw, return_inverse=True)
        names = pa.array([self.names.get(kind, str(kind)) for kind in kinds.tolist()], pa.string())
        values = names.take(pa.array(index.reshape(-1), mask=none))
        return Found(values, np.zeros(len(places), np.bool_))


@final
@attrs.frozen
class Constant:
    """A value that the schema says, and no message.

    Attributes:
        value: A text, or a number.
        arrow_type: The type of its column.
    """

    value: str | int | float
    arrow_type: pa.DataType
    width: int = 0

    def column(self, payloads: Payloads, places: Places, absent: Flags) -> Found:
        """See `Encoding`."""
        del payloads
        there = pa.repeat(pa.scalar(self.value, self.arrow_type), len(places))
        blank = pa.nulls(len(places), self.arrow_type)
        values = compute.if_else(pa.array(absent, pa.bool_()), blank, there)
        return Found(values, np.zeros(len(places), np.bool_))


@final
@attrs.frozen
class Composite:
    """Several values that belong together.

    Attributes:
        fields: Of it, with offsets in it.
        width: In bytes.
    """

    fields: tuple[Field, ...]
    width: int

    @property
    def arrow_type(self) -> pa.DataType:
        """The type of the column."""
        return pa.struct([pa.field(field.name, field.encoding.arrow_type) for field in self.fields])

    def column(self, payloads: Payloads, places: Places, absent: Flags) -> Found:
        """See `Encoding`."""
        found = [
            field.encoding.column(payloads, places + field.offset, absent) for field in self.fields
        ]
        values = pa.StructArray.from_arrays(
            [each.values for each in found],
            fields=list(self.arrow_type),
            mask=pa.array(absent, pa.bool_()),
        )
        return Found(values, np.logical_or.reduce([each.wrong for each in found]))


@final
@attrs.frozen
class Field:
    """A field of a block, or of a composite.

    Attributes:
        name: Of its column.
        offset: In the block, in bytes.
        encoding: How its value lies in bytes.
        since: The version of the schema that brought it.
    """

    name: str
    offset: int
    encoding: Encoding
    since: int = 0

    @property
    def end(self) -> int:
        """Where it ends in the block, in bytes."""
        return self.offset + self.encoding.width


@final
@attrs.frozen
class Header:
    """Numbers that say how what follows lies in bytes: of a message, a group, or data.

    Attributes:
        numbers: By name, each with its offset.
        width: In bytes.
    """

    numbers: dict[str, tuple[int, Primitive]]
    width: int

    def read(self, name: str, payloads: Payloads, places: Places, absent: Flags) -> Places:
        """Return one number of each header; zero where it is absent."""
        offset, number = self.numbers[name]
        values = payloads.numbers(places + offset, number.kind, absent)
        # What is beyond any length stays beyond it, and what is negative becomes so.
        limit = np.uint64(np.iinfo(np.int32).max)
        bounded: Places = np.minimum(values.astype(np.uint64), limit).astype(np.int64)
        return bounded


@final
@attrs.frozen
class Data:
    """Bytes of any length.

    Attributes:
        name: Of its column.
        header: With `length`.
        is_text: Whether they are text in UTF-8 or ASCII.
        since: The version of the schema that brought it.
    """

    name: str
    header: Header
    is_text: bool
    since: int = 0

    @property
    def arrow_type(self) -> pa.DataType:
        """The type of the column."""
        return pa.string() if self.is_text else pa.binary()


@final
@attrs.frozen
class Block:
    """What a message is, and each entry of a group: fields, then groups, then data.

    Attributes:
        fields: Of the block.
        groups: After the block, in order.
        datas: After the groups, in order.
    """

    fields: tuple[Field, ...]
    groups: tuple[Group, ...]
    datas: tuple[Data, ...]

    @property
    def is_flat(self) -> bool:
        """Whether nothing follows the block."""
        return not self.groups and not self.datas

    @property
    def columns(self) -> list[pa.Field]:
        """The columns, in order."""
        return [
            *(pa.field(field.name, field.encoding.arrow_type) for field in self.fields),
            *(pa.field(group.name, group.arrow_type) for group in self.groups),
            *(pa.field(data.name, data.arrow_type) for data in self.datas),
        ]


@final
@attrs.frozen
class Group:
    """Entries that repeat.

    Attributes:
        name: Of its column.
        header: With `blockLength` and `numInGroup`.
        block: What each entry is.
        since: The version of the schema that brought it.
    """

    name: str
    header: Header
    block: Block
    since: int = 0

    @property
    def arrow_type(self) -> pa.DataType:
        """The type of the column."""
        return pa.list_(pa.struct(self.block.columns))


@final
@attrs.frozen
class Message:
    """One kind of message of a schema.

    Attributes:
        name: Of it.
        template_id: Its number.
        schema_id: The number of its schema.
        header: What is before every message of the schema.
        block: What it is.
    """

    name: str
    template_id: int
    schema_id: int
    header: Header
    block: Block
