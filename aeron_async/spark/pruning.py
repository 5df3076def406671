"""Leaves out what a query's filters rule out, before it is read.

Filters that come here are still applied by Spark to every row, so leaving out too little costs time
and nothing else. Positions are cut where terms begin, where messages do too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import attrs

from aeron_async.archive.disk.segments import term_base

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.spark.ranges import RecordingRange

__all__ = ["Predicate", "pruned"]


@final
@attrs.frozen
class Predicate:
    """A filter that every row must pass.

    Attributes:
        column: Whose value is looked at.
        operator: `=`, `<`, `<=`, `>`, `>=` or `in`.
        value: What it is compared with; several for `in`.
    """

    column: str
    operator: str
    value: Any


OF_RECORDING: Final[Mapping[str, Callable[[RecordingDescriptor], Any]]] = {
    "recording_id": lambda each: each.recording_id,
    "stream_id": lambda each: each.stream_id,
    "channel": lambda each: each.stripped_channel,
}
HOLDS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": lambda value, wanted: bool(value == wanted),
    "<": lambda value, wanted: bool(value < wanted),
    "<=": lambda value, wanted: bool(value <= wanted),
    ">": lambda value, wanted: bool(value > wanted),
    ">=": lambda value, wanted: bool(value >= wanted),
    "in": lambda value, wanted: value in wanted,
}


def pruned(
    parts: Iterable[RecordingRange], predicates: Iterable[Predicate]
) -> list[RecordingRange]:
    """Return what is left of ranges when rows that fail a predicate need not be there."""
    found = list(parts)
    for each in predicates:
        get = OF_RECORDING.get(each.column)
        if get is not None:
            holds = HOLDS[each.operator]
            found = [part for part in found if holds(get(part.descriptor), each.value)]
        elif each.column == "position":
            first, last = bounds(each)
            found = [cut for part in found if (cut := within(part, first, last)).length > 0]
    return found


def bounds(predicate: Predicate) -> tuple[int | None, int | None]:
    """Return the smallest and the largest position that a predicate lets pass; None for any."""
    value = predicate.value
    match predicate.operator:
        case "=":
            return value, value
        case "in":
            # What is null equals nothing.
            values = [each for each in value if each is not None]
            return (min(values), max(values)) if values else (0, -1)
        case "<" | "<=":
            return None, value
        case _:
            return value, None


def within(part: RecordingRange, first: int | None, last: int | None) -> RecordingRange:
    """Return the terms of a range in which rows from a first to a last position can begin."""
    term_length = part.descriptor.term_length
    start, end = part.start, part.end
    if first is not None and first > start:
        start = min(max(term_base(first, term_length), start), end)
    if last is not None and last < end:
        end = max(min(term_base(last, term_length) + term_length, end), start)
    return attrs.evolve(part, start=start, end=end)
