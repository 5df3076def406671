"""Compaction: which files of a table are joined, and how several become one.

The joined file has the rows of its parts in order of position within each recording and session,
and the encodings of its parts. One row group is read and one is written at a time, so memory does
not grow with the number or the size of the files.
"""

from __future__ import annotations

import heapq
import json
import uuid
from collections import defaultdict
from contextlib import ExitStack, suppress
from functools import lru_cache
from itertools import groupby, pairwise
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final, final

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from aeron_async.errors import ArchiveError
from aeron_async.spark.lake.files import RANGED, statistics
from aeron_async.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aeron_async.spark.lake.places import LakePlace

__all__ = [
    "JoinedFile",
    "TableFile",
    "is_small",
    "join_files",
    "plan_joins",
    "table_files",
]

ROWS_PER_GROUP: Final = 256 << 10
BYTES_PER_GROUP: Final = 128 << 20
"""A row group ends at this many rows or bytes, whichever comes first."""
PARTS_MAX: Final = 256
"""Most files that are joined into one: all of them are open at the same time."""
GROUPS_CACHED: Final = 2
"""Row groups that are kept decoded; parts are read in their order where that is possible."""
ORDER: Final = ("recording_id", "session_id", "position")
TIER_BITS: Final = 3
"""Files are joined with others of at most eight times their size."""
SMALLEST_TIER: Final = 64 << 10
"""Below this size in bytes all files are alike."""


@final
@attrs.frozen(kw_only=True)
class TableFile:
    """A file of a table, as its log has it.

    Attributes:
        path: Path within the table.
        size: In bytes.
        rows: Number of rows; None if the log does not say.
        partition: Values of the partition columns as texts; None is null.
        modified_ms: When it was written, in milliseconds since 1970.
        start: Recording id and position of its first row, as far as the log has them.
    """

    path: str
    size: int
    rows: int | None
    partition: dict[str, str | None]
    modified_ms: int
    start: tuple[int, int]


@final
@attrs.frozen(kw_only=True)
class JoinedFile:
    """A file that has the rows of others.

    Attributes:
        parts: The files that it replaces.
        path: Path within the table.
        size: In bytes.
        statistics: JSON for the table's log.
    """

    parts: tuple[TableFile, ...]
    path: str
    size: int
    statistics: str


def table_files(files: pa.Table, partition_columns: Sequence[str]) -> list[TableFile]:
    """Return the files of a table from its add actions."""

    def column(name: str) -> list[Any]:
        is_there = name in files.column_names
        return files.column(name).to_pylist() if is_there else [None] * files.num_rows

    keys = [column(f"partition.{name}") for name in partition_columns]
    partitions = [
        {name: partition_text(value) for name, value in zip(partition_columns, values, strict=True)}
        for values in (zip(*keys, strict=True) if keys else [()] * files.num_rows)
    ]
    names = ("path", "size_bytes", "num_records", "modification_time")
    starts = (column("min.recording_id"), column("min.position"))
    return [
        TableFile(
            path=path,
            size=size,
            rows=rows,
            partition=partition,
            modified_ms=modified_ms,
            start=(recording_id or 0, position or 0),
        )
        for path, size, rows, modified_ms, partition, recording_id, position in zip(
            *map(column, names), partitions, *starts, strict=True
        )
    ]


def partition_text(value: Any) -> str | None:
    """Return a partition value as the log writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)


def is_small(size: int, target_size: int) -> bool:
    """Return whether a file is far below the target size."""
    return size < target_size // 2


def plan_joins(
    files: Sequence[TableFile], *, target_size: int, min_files: int, settled_before_ms: int
) -> list[list[TableFile]]:
    """Return groups of small files to join, each within a partition and in order of position.

    A partition that still gets files has only files of like sizes joined, so that a large file is
    not written again for each small one. In a settled partition all small files are joined.

    Args:
        files: All files of a table.
        target_size: Size of a full file in bytes.
        min_files: Files that are joined even if they do not make half of a full file.
        settled_before_ms: A partition whose newest file is not newer than this is settled.
    """
    partitions: dict[tuple[str | None, ...], list[TableFile]] = defaultdict(list)
    newest_ms: dict[tuple[str | None, ...], int] = defaultdict(int)
    for each in files:
        key = tuple(each.partition.values())
        newest_ms[key] = max(newest_ms[key], each.modified_ms)
        if is_small(each.size, target_size):
            partitions[key].append(each)
    found: list[list[TableFile]] = []
    for key in sorted(partitions, key=lambda key: [each or "" for each in key]):
        is_settled = newest_ms[key] <= settled_before_ms
        tiers: dict[int, list[TableFile]] = defaultdict(list)
        for each in sorted(partitions[key], key=lambda file: (file.start, file.path)):
            tiers[0 if is_settled else tier_of(each.size)].append(each)
        for tier in sorted(tiers):
            for group in filled(tiers[tier], target_size):
                is_worth = len(group) >= min_files or is_settled
                is_worth |= not is_small(sum(each.size for each in group), target_size)
                if len(group) > 1 and is_worth:
                    found.append(group)
    return found


def tier_of(size: int) -> int:
    """Return the class of sizes that a file belongs to."""
    return -(-(size // SMALLEST_TIER).bit_length() // TIER_BITS)


def filled(files: Sequence[TableFile], target_size: int) -> Iterator[list[TableFile]]:
    """Yield groups of adjacent files, none larger than a full file."""
    group: list[TableFile] = []
    length = 0
    for each in files:
        if group and (length + each.size > target_size or len(group) == PARTS_MAX):
            yield group
            group, length = [], 0
        group.append(each)
        length += each.size
    if group:
        yield group


@final
@attrs.frozen(order=True)
class Piece:
    """Rows of one recording and session in a row group, in order of position.

    Attributes:
        file: LakePlace of the file among the parts.
        group: The row group.
        start: First of the rows.
        count: Number of rows.
        key: Recording and session.
        first: Position of the first row.
    """

    file: int
    group: int
    start: int
    count: int
    key: tuple[int, ...]
    first: int


def join_files(
    root: LakePlace, parts: Sequence[TableFile], schema: pa.Schema, name: str
) -> JoinedFile:
    """Write one file with the rows of several, and sync it to the disk.

    Args:
        root: Folder of the table.
        parts: Files of one partition.
        schema: Columns of the table that are in its files.
        name: Start of the file's name.

    Raises:
        ArchiveError: A part is missing or damaged, or has another number of rows than the log says.
    """
    folder = PurePosixPath(parts[0].path).parent
    path = str(folder / f"{name}-{uuid.uuid4().hex[:8]}-000.parquet")
    stream = None
    try:
        with ExitStack() as opened:
            readers = [opened_file(opened, root, each.path) for each in parts]
            stream = root.create(path)
            metadata = write_rows(stream, readers, schema)
            size = int(stream.tell())
        stream.close()
        root.keep(path)
        check_rows(parts, metadata.num_rows)
    except (OSError, pa.ArrowException, ArchiveError) as error:
        remove(root, path, stream)
        message = (
            f"table {printable(root)!r} cannot join {len(parts)} files from "
            f"{printable(parts[0].path)!r} on: {root.told(error)}; none of them was changed"
        )
        raise ArchiveError(message) from root.cause(error)
    except BaseException:
        remove(root, path, stream)
        raise
    return JoinedFile(
        parts=tuple(parts), path=path, size=size, statistics=json.dumps(statistics(metadata))
    )


def opened_file(opened: ExitStack, root: LakePlace, path: str) -> pq.ParquetFile:
    """Return a file of a table, which is closed with what was opened before it."""
    source = opened.enter_context(root.files.open_input_file(root.inside(path)))
    return opened.enter_context(pq.ParquetFile(source))


def remove(root: LakePlace, path: str, stream: Any) -> None:
    """Remove a file that could not be completed; what is left belongs to no table."""
    if stream is not None:
        with suppress(OSError):
            stream.close()
        with suppress(OSError, ArchiveError):
            root.remove(path)


def check_rows(parts: Sequence[TableFile], rows: int) -> None:
    """Refuse to replace files by one that has another number of rows.

    Raises:
        ArchiveError: The numbers differ.
    """
    expected = [each.rows for each in parts if each.rows is not None]
    if len(expected) == len(parts) and sum(expected) != rows:
        message = f"they have {rows} rows, and by the log {sum(expected)}"
        raise ArchiveError(message)


def write_rows(file: Any, readers: Sequence[pq.ParquetFile], schema: pa.Schema) -> pq.FileMetaData:
    """Write the rows of several files; return what the footer of the new one says."""

    @lru_cache(maxsize=GROUPS_CACHED)
    def group(file: int, group: int) -> pa.Table:
        reader = readers[file]
        inside = [each for each in schema.names if each in reader.schema_arrow.names]
        rows = reader.read_row_group(group, columns=inside)
        return ordered(fitted(rows, schema))

    pieces = [each for file, reader in enumerate(readers) for each in pieces_of(file, reader)]
    footers: list[pq.FileMetaData] = []
    options = writer_options(readers, schema)
    with pq.ParquetWriter(
        file, schema, store_schema=False, metadata_collector=footers, **options
    ) as writer:
        for rows in row_groups(in_order(pieces), group):
            writer.write_table(rows, row_group_size=ROWS_PER_GROUP)
    return footers[0]


def row_groups(
    pieces: Iterator[Piece], group: Callable[[int, int], pa.Table]
) -> Iterator[pa.Table]:
    """Yield the rows of pieces as row groups."""
    held: list[pa.Table] = []
    rows = length = 0
    for each in pieces:
        start, left = each.start, each.count
        while left:
            source = group(each.file, each.group)
            # Rows of long payloads are taken in parts.
            fitting = max(BYTES_PER_GROUP * source.num_rows // max(source.nbytes, 1), 1)
            part = source.slice(start, min(left, ROWS_PER_GROUP - rows, fitting))
            held.append(part)
            rows += part.num_rows
            length += part.nbytes
            start, left = start + part.num_rows, left - part.num_rows
            if rows >= ROWS_PER_GROUP or length >= BYTES_PER_GROUP:
                yield pa.concat_tables(held)
                held, rows, length = [], 0, 0
    if held:
        yield pa.concat_tables(held)


def pieces_of(file: int, reader: pq.ParquetFile) -> Iterator[Piece]:
    """Yield the pieces of a file; a row group is one piece if its rows have no positions."""
    names = [name for name in ORDER if name in reader.schema_arrow.names]
    for group in range(reader.num_row_groups):
        if not {"recording_id", "position"} <= set(names):
            count = reader.metadata.row_group(group).num_rows
            yield Piece(file, group, 0, count, (), 0)
            continue
        rows = ordered(reader.read_row_group(group, columns=names))
        *keys, positions = columns_of(rows, names)
        changes = np.zeros(max(rows.num_rows - 1, 0), np.bool_)
        for key in keys:
            changes |= np.diff(key) != 0
        starts: list[int] = [0, *(np.flatnonzero(changes) + 1).tolist(), rows.num_rows]
        for start, end in pairwise(starts):
            if start < end:
                key = tuple(int(each[start]) for each in keys)
                yield Piece(file, group, start, end - start, key, int(positions[start]))


def ordered(rows: pa.Table) -> pa.Table:
    """Return the rows of a row group with those of a recording together and in order."""
    names = [name for name in ORDER if name in rows.column_names]
    if not {"recording_id", "position"} <= set(names) or rows.num_rows < 2:  # noqa: PLR2004 - two to compare
        return rows
    *keys, positions = columns_of(rows, names)
    is_same = np.ones(rows.num_rows - 1, np.bool_)
    for key in keys:
        is_same &= np.diff(key) == 0
    runs = 1 + int(np.count_nonzero(~is_same))
    kinds = len(np.unique(np.stack(keys), axis=1).T) if runs > 1 else 1
    if runs == kinds and not np.any(is_same & (np.diff(positions) < 0)):
        return rows
    # Stable, so that what is written twice stays in its order.
    return rows.take(pa.array(np.lexsort([positions, *reversed(keys)])))


def columns_of(rows: pa.Table, names: Sequence[str]) -> list[Any]:
    """Return columns as arrays of NumPy."""
    return [pc.fill_null(rows.column(name), 0).to_numpy() for name in names]


def in_order(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """Yield pieces in the order of their files, except where that is not the order of positions."""
    by_key = {
        key: sorted(group, key=lambda each: (each.first, each.file, each.group))[::-1]
        for key, group in groupby(
            sorted(pieces, key=lambda each: each.key), key=lambda each: each.key
        )
    }
    heads = [waiting.pop() for waiting in by_key.values()]
    heapq.heapify(heads)
    while heads:
        yield (piece := heapq.heappop(heads))
        if by_key[piece.key]:
            heapq.heappush(heads, by_key[piece.key].pop())


def fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with the columns of a table; a column that a file lacks is null."""
    columns = [
        rows.column(each.name).cast(each.type)
        if each.name in rows.column_names
        else pa.nulls(rows.num_rows, each.type)
        for each in schema
    ]
    return pa.table(columns, schema=schema)


CODECS: Final = {"UNCOMPRESSED": "NONE", "LZ4_RAW": "LZ4"}
COLUMN_ENCODINGS: Final = (
    "DELTA_BINARY_PACKED",
    "DELTA_LENGTH_BYTE_ARRAY",
    "DELTA_BYTE_ARRAY",
    "BYTE_STREAM_SPLIT",
)


def writer_options(readers: Sequence[pq.ParquetFile], schema: pa.Schema) -> dict[str, Any]:
    """Return compression, encodings and statistics of each column as the newest part has them."""
    codecs = {each.name: "ZSTD" for each in schema}
    dictionaries: list[str] = []
    ranged = [name for name in schema.names if name in RANGED]
    encodings: dict[str, str] = {}
    seen: set[str] = set()
    for reader in reversed(readers):
        groups = reader.metadata
        for place in range(groups.num_columns if groups.num_row_groups else 0):
            chunk = groups.row_group(0).column(place)
            name = chunk.path_in_schema
            if name in seen or name.partition(".")[0] not in codecs:
                continue
            seen.add(name)
            codecs[name] = CODECS.get(chunk.compression, chunk.compression)
            if chunk.is_stats_set and name not in ranged:
                ranged.append(name)
            if chunk.has_dictionary_page:
                dictionaries.append(name)
            else:
                special = [each for each in COLUMN_ENCODINGS if each in chunk.encodings]
                encodings |= dict.fromkeys([name] if special else [], *special[:1])
    return {
        "compression": codecs,
        "use_dictionary": dictionaries,
        "column_encoding": encodings or None,
        "write_statistics": ranged or False,
    }
