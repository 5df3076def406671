"""Statistics and other values as JSON, made in pieces that hold an event loop up for a moment only.

A snapshot of 2,000 streams is a megabyte of JSON, and takes 10 ms at once. `json_pieces` makes it
column by column, so that its caller can let the loop turn between two pieces. Joined, they mean
what `json.dumps(stats.to_dict())` means.

Invariant: a piece has at most `CELLS_MAX` plain cells, `ROWS_MAX` rows of a nested table, or texts
of `TEXT_MAX` characters, and one cell more.

`msgspec` is used if it is installed; it is faster, and makes the same JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import attrs

from aeron_async.stats import Stats, Table, names_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["decode_json", "encode_json", "json_pieces"]

CELLS_MAX: Final = 1_000
ROWS_MAX: Final = 50
TEXT_MAX: Final = 32_768

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


def json_pieces(value: object) -> Iterator[bytes]:
    """Yield the JSON of a value piece by piece; a text, a list and statistics have several.

    Raises:
        TypeError: JSON has nothing for a part of it.
        ValueError: A number of it is infinite, or none.
    """
    if isinstance(value, Stats):
        yield from stats_pieces(value)
    elif isinstance(value, Table):
        yield from object_pieces(value.columns.items())
    elif isinstance(value, str):
        yield b'"'
        for start in range(0, len(value), TEXT_MAX):
            yield encode_json(value[start : start + TEXT_MAX])[1:-1]
        yield b'"'
    elif isinstance(value, list | tuple):
        yield from list_pieces(value)
    else:
        yield encode_json(value)


def stats_pieces(stats: Stats) -> Iterator[bytes]:
    """Yield the JSON of a snapshot: a list for each column of a table."""
    head = {name: getattr(stats, name) for name in ("source", "epoch_ns", "monotonic_ns")}
    yield encode_json(head)[:-1]
    for name in ("driver", "archive"):
        part = getattr(stats, name)
        if part is not None:
            yield b',"%s":' % name.encode()
            yield from object_pieces((each, getattr(part, each)) for each in names_of(type(part)))
    for name in ("publications", "images", "subscriptions"):
        yield b',"%s":' % name.encode()
        yield from json_pieces(getattr(stats, name))
    yield b"}"


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
