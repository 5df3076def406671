"""Decoder of messages in Simple Binary Encoding, and the layouts that it reads them by.

A length in a message counts only as far as the message reaches: each entry of a group takes at
least a byte, so no message can make the decoder allocate more than a few times its own length.

Source: FIX Simple Binary Encoding 1.0.
"""

from __future__ import annotations

from typing import Final, Protocol, final

import attrs
import numpy as np
import pyarrow as pa
from pyarrow import compute

from aeron_async.spark.decoding.decoder import (
    Decoded,
    Flags,
    Found,
    Payloads,
    Places,
    Primitive,
    RowErrors,
    blobs,
    char_arrays,
    texts,
)

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
    "SbeDecoder",
]

TEXT: Final = pa.string()


class Encoding(Protocol):
    """Encoding of one field's value."""

    @property
    def width(self) -> int:
        """Width in bytes."""
        ...

    @property
    def arrow_type(self) -> pa.DataType:
        """Column type."""
        ...

    def column(self, payloads: Payloads, places: Places, absent: Flags) -> Found:
        """Return the values at these places; null where one is absent."""
        ...


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
    def arrow_type(self) -> pa.DataType:
        """Column type."""
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
class EnumType:
    """An enumeration: a number, or one character, with a name for each value.

    A value without a name in the schema becomes its number as text, so that it is not lost.

    Attributes:
        number: Encoding of the value.
        names: Names by value.
    """

    number: Primitive
    names: dict[int, str]
    arrow_type: pa.DataType = TEXT

    @property
    def width(self) -> int:
        """Width in bytes."""
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
    """A value that the schema holds and messages do not.

    Attributes:
        value: Text or number.
        arrow_type: Column type.
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
        fields: Its members, with offsets in the composite.
        width: Width in bytes.
    """

    fields: tuple[Field, ...]
    width: int

    @property
    def arrow_type(self) -> pa.DataType:
        """Column type."""
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
        name: Name of its column.
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

    def read(self, name: str, payloads: Payloads, places: Places, absent: Flags) -> Places:
        """Return one number of each header; zero where the header is absent."""
        offset, number = self.numbers[name]
        values = payloads.numbers(places + offset, number.kind, absent)
        # Negative numbers, and those beyond 31 bits, become a length that exceeds any message.
        limit = np.uint64(np.iinfo(np.int32).max)
        bounded: Places = np.minimum(values.astype(np.uint64), limit).astype(np.int64)
        return bounded


@final
@attrs.frozen
class Data:
    """Variable-length data.

    Attributes:
        name: Name of its column.
        header: Header with `length`.
        is_text: Whether the data is text in UTF-8 or ASCII.
        since: Version of the schema that added it.
    """

    name: str
    header: Header
    is_text: bool
    since: int = 0

    @property
    def arrow_type(self) -> pa.DataType:
        """Column type."""
        return pa.string() if self.is_text else pa.binary()


@final
@attrs.frozen
class Block:
    """Content of a message, or of an entry of a group: fields, then groups, then data.

    Attributes:
        fields: Fields of fixed length.
        groups: Groups after the fields, in order.
        datas: Data after the groups, in order.
    """

    fields: tuple[Field, ...]
    groups: tuple[GroupSchema, ...]
    datas: tuple[Data, ...]

    @property
    def is_flat(self) -> bool:
        """Whether nothing follows the fields."""
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
class GroupSchema:
    """A repeating group.

    Attributes:
        name: Name of its column.
        header: Header with `blockLength` and `numInGroup`.
        block: Content of each entry.
        since: Version of the schema that added it.
    """

    name: str
    header: Header
    block: Block
    since: int = 0

    @property
    def arrow_type(self) -> pa.DataType:
        """Column type."""
        return pa.list_(pa.struct(self.block.columns))


@final
@attrs.frozen
class MessageSchema:
    """One message of a schema.

    Attributes:
        name: Name of the message.
        template_id: Template id of the message.
        schema_id: Id of its schema.
        header: Message header of the schema.
        block: Content of the message.
    """

    name: str
    template_id: int
    schema_id: int
    header: Header
    block: Block


@final
class SbeDecoder:
    """Decodes messages of one template.

    As the encoding specifies, fields that are newer than a message are null, and bytes that an
    older schema does not know are skipped.

    Args:
        message: Message to decode; other messages of the same schema are dropped.
    """

    def __init__(self, message: MessageSchema) -> None:
        self._message = message

    @property
    def fields(self) -> list[pa.Field]:
        """The columns."""
        return self._message.block.columns

    def decode(self, column: pa.BinaryArray) -> Decoded:
        """Return the columns of these messages."""
        message = self._message
        payloads = Payloads(column)
        errors = RowErrors(len(payloads))
        lengths = payloads.ends - payloads.starts
        short = lengths < message.header.width
        errors.add(np.flatnonzero(short), "the message is shorter than its header")

        def read(name: str) -> Places:
            return message.header.read(name, payloads, payloads.starts, short)

        schema_id = read("schemaId")
        for other in np.unique(schema_id[~short & (schema_id != message.schema_id)]).tolist():
            reason = f"schema {other}, not {message.schema_id}"
            errors.add(np.flatnonzero(schema_id == other), reason)
        others = ~errors.failed & (read("templateId") != message.template_id)
        rows = np.flatnonzero(~errors.failed & ~others)
        walk = _Walk(payloads, errors, read("version"))
        arrays, _ = walk.block(
            message.block, rows, payloads.starts[rows] + message.header.width,
            read("blockLength")[rows],
        )  # fmt: skip
        # The result has one row for each payload, decoded or not.
        index = np.zeros(len(payloads), np.int64)
        index[rows] = np.arange(len(rows))
        is_blank = errors.failed | others
        taken = pa.array(index, mask=is_blank)
        return Decoded([each.take(taken) for each in arrays], errors.column(), others)


class _Walk:
    """One pass over a batch; an entry is given by the row of its message and by where it begins."""

    def __init__(self, payloads: Payloads, errors: RowErrors, versions: Places) -> None:
        self._payloads = payloads
        self._errors = errors
        self._versions = versions

    def block(
        self, block: Block, rows: Places, starts: Places, lengths: Places
    ) -> tuple[list[pa.Array], Places]:
        """Return the columns of these entries, and where each entry ends."""
        self._check(rows, starts + lengths)
        arrays = []
        nowhere = np.zeros(len(rows), np.bool_)
        for field in block.fields:
            is_new = self._versions[rows] < field.since
            beyond = field.end > lengths if field.encoding.width else nowhere
            absent = is_new | beyond | self._errors.failed[rows]
            found = field.encoding.column(self._payloads, starts + field.offset, absent)
            kind = field.encoding.arrow_type
            self._errors.add(rows[found.wrong], f"{field.name} is no {kind}")
            arrays.append(found.values)
        places: Places = starts + lengths
        for group in block.groups:
            array, places = self._group(group, rows, places)
            arrays.append(array)
        for data in block.datas:
            array, places = self._data(data, rows, places)
            arrays.append(array)
        return arrays, places

    def _group(self, group: GroupSchema, rows: Places, places: Places) -> tuple[pa.Array, Places]:
        lengths, counts, absent, places = self._dimensions(group, rows, places)
        owners: Places = np.repeat(np.arange(len(rows)), counts)
        firsts = np.cumsum(counts) - counts
        nth: Places = np.arange(len(owners), dtype=np.int64) - firsts[owners]
        starts: Places
        if group.block.is_flat:
            starts = places[owners] + nth * lengths[owners]
            places = np.add(places, counts * lengths, dtype=np.int64)
        else:
            starts, places = self._entries(group.block, rows, places, lengths, counts)
        arrays, _ = self.block(group.block, rows[owners], starts, lengths[owners])
        entries = pa.StructArray.from_arrays(arrays, fields=group.block.columns)
        offsets = np.append(firsts, len(owners)).astype(np.int32)
        return pa.ListArray.from_arrays(
            pa.array(offsets), entries, mask=pa.array(absent, pa.bool_())
        ), places

    def _dimensions(
        self, group: GroupSchema, rows: Places, places: Places
    ) -> tuple[Places, Places, Flags, Places]:
        """Return the group's block length and count for each entry, and where its entries begin."""
        absent = self._header(group.header, rows, places, group.since)
        lengths = group.header.read("blockLength", self._payloads, places, absent)
        counts = group.header.read("numInGroup", self._payloads, places, absent)
        places = np.where(absent, places, places + group.header.width)
        room = self._payloads.ends[rows] - places
        too_many = ~absent & (counts * np.maximum(lengths, 1) > room)
        self._errors.add(rows[too_many], f"group {group.name} is longer than its message")
        absent = absent | self._errors.failed[rows]
        return np.where(absent, 0, lengths), np.where(absent, 0, counts), absent, places

    def _entries(
        self, block: Block, rows: Places, places: Places, lengths: Places, counts: Places
    ) -> tuple[Places, Places]:
        """Return where each entry of a group begins, entry by entry because their lengths vary."""
        firsts = np.cumsum(counts) - counts
        starts = np.zeros(int(counts.sum()), np.int64)
        places = places.copy()
        for nth in range(int(counts.max(initial=0))):
            more = np.flatnonzero(counts > nth)
            starts[firsts[more] + nth] = places[more]
            places[more] = self._end(block, rows[more], places[more], lengths[more])
        return starts, places

    def _end(self, block: Block, rows: Places, starts: Places, lengths: Places) -> Places:
        """Return where entries end, without making columns."""
        places = starts + lengths
        self._check(rows, places)
        for group in block.groups:
            of_each, counts, _, places = self._dimensions(group, rows, places)
            if group.block.is_flat:
                places = places + counts * of_each
            else:
                _, places = self._entries(group.block, rows, places, of_each, counts)
        for data in block.datas:
            _, _, places = self._extent(data, rows, places)
        return places

    def _data(self, data: Data, rows: Places, places: Places) -> tuple[pa.Array, Places]:
        absent, begins, places = self._extent(data, rows, places)
        # Absent data has no known place; it gets the place before, because places must ascend.
        begins = np.maximum.accumulate(np.where(absent, 0, begins)) if len(rows) else begins
        ends = np.where(absent, begins, places)
        values = blobs(self._payloads, begins, ends, absent)
        if not data.is_text:
            return values, places
        text, wrong = texts(values)
        self._errors.add(rows[wrong], f"{data.name} is no text in UTF-8")
        return text, places

    def _extent(self, data: Data, rows: Places, places: Places) -> tuple[Flags, Places, Places]:
        """Return where data is absent, and where it begins and ends in each entry."""
        absent = self._header(data.header, rows, places, data.since)
        lengths = data.header.read("length", self._payloads, places, absent)
        begins = np.where(absent, places, places + data.header.width)
        ends = begins + lengths
        beyond = ~absent & (ends > self._payloads.ends[rows])
        self._errors.add(rows[beyond], f"data {data.name} is longer than its message")
        absent = absent | self._errors.failed[rows]
        return absent, begins, np.where(absent, begins, ends)

    def _header(self, header: Header, rows: Places, places: Places, since: int) -> Flags:
        """Return which headers are absent: newer than the message, or behind its end."""
        is_new = self._versions[rows] < since
        beyond = ~is_new & (places + header.width > self._payloads.ends[rows])
        self._errors.add(rows[beyond], "the message ends within a header of a group or of data")
        return is_new | self._errors.failed[rows]

    def _check(self, rows: Places, ends: Places) -> None:
        beyond = ends > self._payloads.ends[rows]
        self._errors.add(rows[beyond], "a block is longer than its message")
