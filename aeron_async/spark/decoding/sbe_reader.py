"""Reads messages of Simple Binary Encoding, all rows of a batch in each step.

A length in a message is believed only as far as the message reaches: entries of a group take at
least a byte each, so that none can ask for more memory than a few times its own length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import numpy as np
import pyarrow as pa

from aeron_async.spark.decoding.decoder import Decoded, RowErrors
from aeron_async.spark.decoding.payloads import Flags, Payloads, Places, blobs, texts

if TYPE_CHECKING:
    from aeron_async.spark.decoding.sbe_layout import Block, Data, Group, Header, Message

__all__ = ["SbeDecoder"]


@final
class SbeDecoder:
    """Decodes messages of one template.

    Fields that are newer than a message are null in it, and what an older schema does not know is
    passed over, both as the encoding means it.

    Args:
        message: What to decode; others of the same schema are left out.
    """

    def __init__(self, message: Message) -> None:
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
        # Every row has its place, decoded or not.
        index = np.zeros(len(payloads), np.int64)
        index[rows] = np.arange(len(rows))
        is_blank = errors.failed | others
        taken = pa.array(index, mask=is_blank)
        return Decoded([each.take(taken) for each in arrays], errors.column(), others)


class _Walk:
    """One pass over a batch. Entries are given by the message each is of, and where it begins."""

    def __init__(self, payloads: Payloads, errors: RowErrors, versions: Places) -> None:
        self._payloads = payloads
        self._errors = errors
        self._versions = versions

    def block(
        self, block: Block, rows: Places, starts: Places, lengths: Places
    ) -> tuple[list[pa.Array], Places]:
        """Return the columns of these entries, and where each ends."""
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

    def _group(self, group: Group, rows: Places, places: Places) -> tuple[pa.Array, Places]:
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
        self, group: Group, rows: Places, places: Places
    ) -> tuple[Places, Places, Flags, Places]:
        """Return the block length and count of a group in each entry, and where its first is."""
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
        """Return where each entry of a group begins, whose ends only itself knows, and its end."""
        firsts = np.cumsum(counts) - counts
        starts = np.zeros(int(counts.sum()), np.int64)
        places = places.copy()
        for nth in range(int(counts.max(initial=0))):
            more = np.flatnonzero(counts > nth)
            starts[firsts[more] + nth] = places[more]
            places[more] = self._end(block, rows[more], places[more], lengths[more])
        return starts, places

    def _end(self, block: Block, rows: Places, starts: Places, lengths: Places) -> Places:
        """Return where entries end, without their columns."""
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
        # Whose place is not known any more has none, and what comes after is after all before.
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
        """Return where a header is absent: newer than the message, or beyond its end."""
        is_new = self._versions[rows] < since
        beyond = ~is_new & (places + header.width > self._payloads.ends[rows])
        self._errors.add(rows[beyond], "the message ends within a header of a group or of data")
        return is_new | self._errors.failed[rows]

    def _check(self, rows: Places, ends: Places) -> None:
        beyond = ends > self._payloads.ends[rows]
        self._errors.add(rows[beyond], "a block is longer than its message")
