"""Statistics and other values as JSON, made in pieces that hold an event loop up for a moment only.

A snapshot of 2,000 streams is a megabyte of JSON, and takes 10 ms at once. `json_pieces` makes it
column by column, so that its caller can let the loop turn between two pieces. Joined, they mean
what `json.dumps(stats.to_dict())` means.

Invariant: a piece has at most `CELLS_MAX` plain cells, `ROWS_MAX` rows of a nested table or
`NESTED_MAX` of one that is columns, or texts of `TEXT_MAX` characters, and one cell more.

`msgspec` is used if it is installed; it is faster, and makes the same JSON.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import attrs

from aeron_async.stats import Stats, Table
from aeron_async.stats_columns import Groups, names_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["Kept", "decode_json", "encode_json", "json_pieces"]

CELLS_MAX: Final = 1_000
ROWS_MAX: Final = 50
NESTED_MAX: Final = 250
"""Most rows of cells whose rows are columns, which are written faster."""
TEXT_MAX: Final = 32_768
TEXTS_CACHED: Final = 4_096
NUMBERS: Final = frozenset({int, float, bool, type(None)})

msgspec: Final[Any] = import_module("msgspec") if find_spec("msgspec") else None


def plain_of(value: object) -> object:
    """Return a row or a mapping as a dictionary, for an encoder that knows neither.

    Raises:
        TypeError: JSON has nothing for it.
    """
    if isinstance(value, Mapping):
        return dict(value)
    if attrs.has(type(value)):
        return {name: getattr(value, name) for name in names_of(type(value))}
    message = f"JSON has nothing for a value of type {type(value).__name__}"
    raise TypeError(message)


Kept = dict[str, tuple["Sequence[Any]", list[bytes]]]
"""Columns of a snapshot by their names, and the JSON of each."""

_text_of: Final[Callable[[object], str]] = json.JSONEncoder(
    separators=(",", ":"), allow_nan=False, default=plain_of
).encode
_fast_encode: Final[Callable[[object], bytes] | None] = (
    None if msgspec is None else msgspec.json.Encoder(enc_hook=plain_of).encode
)


def encode_json(value: object) -> bytes:
    """Return a value as JSON: lists, texts and numbers, rows of statistics, and mappings of them.

    Raises:
        TypeError: JSON has nothing for a part of it.
        ValueError: A number of it is infinite, or none.
    """
    if _fast_encode is not None:
        try:
            return _fast_encode(value)
        except (UnicodeEncodeError, OverflowError):
            # Half a surrogate pair, and a number of more than 64 bits, which only the slower takes.
            pass
    return _text_of(value).encode()


def decode_json(line: bytes) -> Any:
    """Return what a line of JSON says.

    Raises:
        ValueError: It is no JSON.
    """
    try:
        return json.loads(line) if msgspec is None else msgspec.json.decode(line)
    except RecursionError:
        message = "it is nested too deeply"
        raise ValueError(message) from None


def json_pieces(value: object, kept: Kept | None = None) -> Iterator[bytes]:
    """Yield the JSON of a value piece by piece; a text, a list and statistics have several.

    Args:
        value: Statistics, or anything else.
        kept: The columns of the statistics before, and their JSON, which is used again for columns
            that have not changed. It is changed to those of these.

    Raises:
        TypeError: JSON has nothing for a part of it.
        ValueError: A number of it is infinite, or none.
    """
    if isinstance(value, Stats):
        yield from stats_pieces(value, {} if kept is None else kept)
    elif isinstance(value, Table):
        yield from object_pieces(value.columns.items())
    elif isinstance(value, str):
        yield b'"'
        for start in range(0, len(value), TEXT_MAX):
            yield encode_json(value[start : start + TEXT_MAX])[1:-1]
        yield b'"'
    elif isinstance(value, Groups):
        yield from nested_pieces(value)
    elif isinstance(value, list | tuple):
        yield from list_pieces(value)
    else:
        yield encode_json(value)


def stats_pieces(stats: Stats, kept: Kept) -> Iterator[bytes]:
    """Yield the JSON of a snapshot: a list for each column of a table."""
    head = {name: getattr(stats, name) for name in ("source", "epoch_ns", "monotonic_ns")}
    yield encode_json(head)[:-1]
    for name in ("driver", "archive"):
        part = getattr(stats, name)
        if part is not None:
            yield b',"%s":' % name.encode()
            yield from object_pieces((each, getattr(part, each)) for each in names_of(type(part)))
    for name in ("publications", "images", "subscriptions"):
        separator = b',"%s":{' % name.encode()
        for column, values in getattr(stats, name).columns.items():
            yield b'%s"%s":' % (separator, column.encode())
            yield from column_pieces(f"{name} {column}", values, kept)
            separator = b","
        yield b"}"
    yield b"}"


def column_pieces(name: str, values: Sequence[Any], kept: Kept) -> Iterator[bytes]:
    """Yield the JSON of a column, and keep it; most columns are the same each time."""
    if isinstance(values, Groups):
        yield from nested_pieces(values)
        return
    before = kept.get(name)
    if before is not None and before[0] == values:
        yield from before[1]
        return
    pieces: list[bytes] = []
    for piece in list_pieces(values):
        pieces.append(piece)
        yield piece
    kept[name] = values, pieces


def object_pieces(items: Any) -> Iterator[bytes]:
    """Yield the JSON of an object by its names and values; a value that is a list has pieces."""
    separator = b"{"
    for name, value in items:
        yield b'%s"%s":' % (separator, name.encode())
        yield from json_pieces(value)
        separator = b","
    yield b"}"


def list_pieces(values: Sequence[Any]) -> Iterator[bytes]:
    """Yield the JSON of a list, as many cells at once as do not take long."""
    yield b"["
    separator = b""
    for group in groups_of(values):
        yield separator
        if len(group) == 1 and isinstance(group[0], tuple | list) and len(group[0]) > ROWS_MAX:
            yield from list_pieces(group[0])
        else:
            yield encode_json(group)[1:-1]
        separator = b","
    yield b"]"


def nested_pieces(groups: Groups[Any]) -> Iterator[bytes]:
    """Yield the JSON of cells that have rows of their own; no row is made for it."""
    starts, rows = groups.starts, groups.rows
    yield b"["
    separator, cell = b"", 0
    while cell < len(groups):
        yield separator
        separator = b","
        start = starts[cell]
        last = min(len(groups), cell + CELLS_MAX) + 1
        end = bisect_right(starts, start + NESTED_MAX, cell + 1, last) - 1
        if end > cell:
            texts = row_texts(rows, start, starts[end])
            yield cells_of(texts, [each - start for each in starts[cell : end + 1]]).encode()
            cell = end
            continue
        # A cell that has too many rows for one piece.
        cell += 1
        yield b"["
        for at in range(start, starts[cell], NESTED_MAX):
            text = ",".join(row_texts(rows, at, min(at + NESTED_MAX, starts[cell])))
            yield f"{text},".encode() if at + NESTED_MAX < starts[cell] else text.encode()
        yield b"]"
    yield b"]"


def row_texts(rows: Table[Any], start: int, end: int) -> list[str]:
    """Return the JSON of some rows of a table, from its columns."""
    if start == end:
        return []
    form = "{" + ",".join(f'"{name}":%s' for name in rows.names) + "}"
    texts = [texts_of(column[start:end]) for column in rows.columns.values()]
    return list(map(form.__mod__, zip(*texts, strict=True)))


def cells_of(texts: list[str], starts: list[int]) -> str:
    """Return the JSON of cells, without that of the list that they are in."""
    if len(texts) == len(starts) - 1 == starts[-1] and starts == list(range(len(starts))):
        return f"[{'],['.join(texts)}]"
    if not texts:
        return ",".join(["[]"] * (len(starts) - 1))
    return ",".join(f"[{','.join(texts[start:end])}]" for start, end in pairwise(starts))


def texts_of(values: Sequence[Any]) -> list[str]:
    """Return the JSON of each value of a column."""
    if NUMBERS.issuperset(map(type, values)):
        return encode_json(values)[1:-1].decode().split(",")
    return [
        text_of(each) if isinstance(each, str) else encode_json(each).decode() for each in values
    ]


@lru_cache(maxsize=TEXTS_CACHED)
def text_of(value: str) -> str:
    """Return the JSON of an address, a cause and the like: there are few."""
    return encode_json(value).decode()


def groups_of(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yield the cells of a list in groups that do not take long; the first cell tells the kind."""
    first = next((each for each in values if each is not None), None)
    if not isinstance(first, str | tuple | list):
        step = CELLS_MAX if first is None or isinstance(first, int | float) else ROWS_MAX
        for start in range(0, len(values), step):
            yield values[start : start + step]
        return
    limit = TEXT_MAX if isinstance(first, str) else ROWS_MAX
    group: list[Any] = []
    weight = 0
    for each in values:
        # What has nothing in it takes a little, too.
        own = 1 + len(each) if isinstance(each, str | tuple | list) else 1
        if group and (weight + own > limit or len(group) >= CELLS_MAX):
            yield group
            group, weight = [], 0
        group.append(each)
        weight += own
    if group:
        yield group
