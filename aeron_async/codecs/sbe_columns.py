"""Columns of messages in Simple Binary Encoding.

A length in a message counts only as far as the message reaches: each entry of a group takes at
least a byte, so no message can make the decoder allocate more than a few times its own length.

Source: FIX Simple Binary Encoding 1.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, assert_never, final

import numpy as np
import pyarrow as pa
from pyarrow import compute

from aeron_async.codecs.columns import (
    EXACT,
    Decoded,
    Found,
    Payloads,
    RowErrors,
    binaries,
    blobs,
    chars,
    kind_of,
    number_column,
    texts,
)
from aeron_async.codecs.layout import Char, Composite, Constant, EnumType, Numbers, Primitive

if TYPE_CHECKING:
    from aeron_async.codecs.columns import Flags, Places, Readable, Strided, Types
    from aeron_async.codecs.layout import (
        Block,
        Data,
        Encoding,
        Field,
        GroupSchema,
        Header,
        MessageSchema,
    )

__all__ = ["SbeColumns", "columns_of_block"]

LOOKUP_WIDTH: Final = 1
"""Width of an enumeration whose names are looked up in a table of all values, in bytes."""


def type_of(encoding: Encoding, types: Types) -> pa.DataType:
    """Return the type of a field's column."""
    if isinstance(encoding, Primitive):
        return types[encoding.code]
    if isinstance(encoding, Char | EnumType):
        return pa.string()
    if isinstance(encoding, Numbers):
        return pa.binary() if encoding.is_binary else pa.list_(types[encoding.number.code])
    if isinstance(encoding, Constant):
        return pa.string() if encoding.code is None else types[encoding.code]
    if isinstance(encoding, Composite):
        return pa.struct([pa.field(f.name, type_of(f.encoding, types)) for f in encoding.fields])
    assert_never(encoding)


def columns_of_block(block: Block, types: Types) -> list[pa.Field]:
    """Return the columns of a message, or of an entry of a group, in order."""
    return [
        *(pa.field(field.name, type_of(field.encoding, types)) for field in block.fields),
        *(
            pa.field(group.name, pa.list_(pa.struct(columns_of_block(group.block, types))))
            for group in block.groups
        ),
        *(
            pa.field(data.name, pa.string() if data.is_text else pa.binary())
            for data in block.datas
        ),
    ]


def column_of(  # noqa: PLR0911 - one for each kind
    encoding: Encoding, payloads: Readable, places: Any, absent: Flags, types: Types
) -> Found:
    """Return the values at these places; null where one is absent."""
    if isinstance(encoding, Primitive):
        return number_column(encoding, payloads, places, absent, types)
    if isinstance(encoding, Char):
        none = absent
        if encoding.is_optional:
            none = absent | (payloads.take(places, 1, absent)[:, 0] == 0)
        found = chars(payloads, places, encoding.width, absent)
        if encoding.is_optional and none.any():
            values = compute.if_else(pa.array(none), pa.scalar(None, pa.string()), found.values)
            return Found(values, found.wrong)
        return found
    if isinstance(encoding, Numbers):
        return _arrays(encoding, payloads, places, absent, types)
    if isinstance(encoding, EnumType):
        return _names(encoding, payloads, places, absent)
    if isinstance(encoding, Constant):
        there = pa.repeat(pa.scalar(encoding.value, type_of(encoding, types)), len(absent))
        if not absent.any():
            return Found(there)
        blank = pa.nulls(len(absent), there.type)
        return Found(compute.if_else(pa.array(absent, pa.bool_()), blank, there))
    if isinstance(encoding, Composite):
        return _structs(encoding, payloads, places, absent, types)
    assert_never(encoding)


def _arrays(
    encoding: Numbers, payloads: Readable, places: Any, absent: Flags, types: Types
) -> Found:
    if encoding.is_binary:
        return binaries(payloads, places, encoding.width, absent)
    count, number = encoding.count, encoding.number
    # The bytes of all arrays, one behind the other, are payloads of their own.
    rows = payloads.take(places, encoding.width, absent).reshape(-1)
    inner = Payloads(rows, np.arange(0, len(rows), number.width), np.zeros(0, np.int64))
    found = number_column(number, inner, inner.starts, np.repeat(absent, count), types)
    offsets = pa.array(np.arange(len(absent) + 1, dtype=np.int32) * count)
    values = pa.ListArray.from_arrays(offsets, found.values, mask=pa.array(absent))
    if found.wrong is None:
        return Found(values)
    return Found(values, np.any(found.wrong.reshape(len(absent), count), axis=1))


def _names(encoding: EnumType, payloads: Readable, places: Any, absent: Flags) -> Found:
    number = encoding.number
    raw = payloads.numbers(places, kind_of(number), absent)
    none = absent if number.null is None else absent | (raw == number.null)
    index = raw
    if number.width == LOOKUP_WIDTH:
        info = np.iinfo(raw.dtype)
        kinds = list(range(info.min, info.max + 1))
        index = raw.astype(np.int64) - info.min
    else:
        unique, index = np.unique(raw, return_inverse=True)
        kinds, index = unique.tolist(), index.reshape(-1)
    names = pa.array([encoding.names.get(kind, str(kind)) for kind in kinds], pa.string())
    return Found(names.take(pa.array(index, mask=none)))


def _structs(
    encoding: Composite, payloads: Readable, places: Any, absent: Flags, types: Types
) -> Found:
    found = [
        column_of(field.encoding, payloads, places + field.offset, absent, types)
        for field in encoding.fields
    ]
    values = pa.StructArray.from_arrays(
        [each.values for each in found],
        fields=list(type_of(encoding, types)),
        mask=pa.array(absent, pa.bool_()) if absent.any() else None,
    )
    wrongs = [each.wrong for each in found if each.wrong is not None]
    return Found(values, np.logical_or.reduce(wrongs) if wrongs else None)


def read_header(
    header: Header, name: str, payloads: Readable, places: Any, absent: Flags
) -> Places:
    """Return one number of each header; zero where the header is absent."""
    offset, number = header.numbers[name]
    values = payloads.numbers(places + offset, kind_of(number), absent)
    # Negative numbers, and those beyond 31 bits, become a length that exceeds any message.
    limit = np.uint64(np.iinfo(np.int32).max)
    bounded: Places = np.minimum(values.astype(np.uint64), limit).astype(np.int64)
    return bounded


def has_equal_heads(messages: Strided, width: int) -> bool:
    """Return whether all messages begin with the same bytes."""
    if messages.rows.shape[1] < width:
        return False
    kind = np.dtype(f"V{width}") if width not in {1, 2, 4, 8} else np.dtype(f"u{width}")
    if kind.kind == "V":
        head = messages.rows[:, :width]
        return bool((head == head[0]).all())
    heads = messages.numbers(0, kind, np.zeros(1, np.bool_))
    return bool((heads == heads[0]).all())


@final
class SbeColumns:
    """Decodes messages of one template.

    As the encoding specifies, fields that are newer than a message are null, and bytes that an
    older schema does not know are skipped.

    Args:
        message: Message to decode; other messages of the same schema are dropped.
        types: `EXACT` or `WIDENED`.
    """

    def __init__(self, message: MessageSchema, types: Types = EXACT) -> None:
        self._message = message
        self._types = types

    @property
    def fields(self) -> list[pa.Field]:
        """The columns."""
        return columns_of_block(self._message.block, self._types)

    def decode(self, payloads: Payloads) -> Decoded:
        """Return the columns of these messages."""
        return self._decode_fast(payloads) or self._decode(payloads)

    def _decode_fast(self, payloads: Payloads) -> Decoded | None:
        """Decode messages of one length with equal headers and without groups and data.

        None leaves it to `_decode`.
        """
        message = self._message
        header, block = message.header, message.block
        strided = payloads.strided() if block.is_flat else None
        if strided is None or not has_equal_heads(strided, header.width):
            return None
        count, length = strided.rows.shape
        first = np.zeros(1, np.bool_)

        def read(name: str) -> int:
            return int(read_header(header, name, payloads, payloads.starts[:1], first)[0])

        block_length, version = read("blockLength"), read("version")
        if (
            read("schemaId") != message.schema_id
            or read("templateId") != message.template_id
            or header.width + block_length > length
        ):
            return None
        errors = RowErrors(count)
        everywhere, nowhere = np.ones(count, np.bool_), np.zeros(count, np.bool_)
        arrays = []
        for field in block.fields:
            is_beyond = bool(field.encoding.width) and field.end > block_length
            absent = everywhere if is_beyond or version < field.since else nowhere
            place = header.width + field.offset
            found = column_of(field.encoding, strided, place, absent, self._types)
            if found.wrong is not None and found.wrong.any():
                self._note(errors, np.flatnonzero(found.wrong), field)
            arrays.append(found.values)
        if errors.failed.any():
            # All values of such a row are null.
            return None
        return Decoded(arrays, errors.column(), nowhere)

    def _note(self, errors: RowErrors, rows: Places, field: Field) -> None:
        errors.add(rows, f"{field.name} is no {type_of(field.encoding, self._types)}")

    def _decode(self, payloads: Payloads) -> Decoded:
        message = self._message
        errors = RowErrors(len(payloads))
        lengths = payloads.ends - payloads.starts
        short = lengths < message.header.width
        errors.add(np.flatnonzero(short), "the message is shorter than its header")

        def read(name: str) -> Places:
            return read_header(message.header, name, payloads, payloads.starts, short)

        schema_id = read("schemaId")
        for other in np.unique(schema_id[~short & (schema_id != message.schema_id)]).tolist():
            reason = f"schema {other}, not {message.schema_id}"
            errors.add(np.flatnonzero(schema_id == other), reason)
        others = ~errors.failed & (read("templateId") != message.template_id)
        rows = np.flatnonzero(~errors.failed & ~others)
        walk = _Walk(payloads, errors, read("version"), self._types)
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

    def __init__(
        self, payloads: Payloads, errors: RowErrors, versions: Places, types: Types
    ) -> None:
        self._payloads = payloads
        self._errors = errors
        self._versions = versions
        self._types = types

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
            place = starts + field.offset
            found = column_of(field.encoding, self._payloads, place, absent, self._types)
            if found.wrong is not None:
                kind = type_of(field.encoding, self._types)
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
        entries = pa.StructArray.from_arrays(
            arrays, fields=columns_of_block(group.block, self._types)
        )
        offsets = np.append(firsts, len(owners)).astype(np.int32)
        return pa.ListArray.from_arrays(
            pa.array(offsets), entries, mask=pa.array(absent, pa.bool_())
        ), places

    def _dimensions(
        self, group: GroupSchema, rows: Places, places: Places
    ) -> tuple[Places, Places, Flags, Places]:
        """Return the group's block length and count for each entry, and where its entries begin."""
        absent = self._header(group.header, rows, places, group.since)
        lengths = read_header(group.header, "blockLength", self._payloads, places, absent)
        counts = read_header(group.header, "numInGroup", self._payloads, places, absent)
        places = np.where(absent, places, places + group.header.width)
        room = self._payloads.ends[rows] - places
        too_many = ~absent & (counts * np.maximum(lengths, 1) > room)
        self._errors.add(rows[too_many], f"group {group.name} is longer than its message")
        least = group.least
        for length in np.unique(lengths[~absent & (lengths < least) & (counts > 0)]).tolist():
            which = ~absent & (lengths == length) & (counts > 0)
            reason = f"group {group.name} has entries of {length} bytes, fewer than {least}"
            self._errors.add(rows[which], reason)
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
        found = texts(values)
        if found.wrong is not None:
            self._errors.add(rows[found.wrong], f"{data.name} is no text in UTF-8")
        return found.values, places

    def _extent(self, data: Data, rows: Places, places: Places) -> tuple[Flags, Places, Places]:
        """Return where data is absent, and where it begins and ends in each entry."""
        absent = self._header(data.header, rows, places, data.since)
        lengths = read_header(data.header, "length", self._payloads, places, absent)
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
