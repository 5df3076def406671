"""Calls of what gathers fields of many messages, some compared with the same in Python."""

from __future__ import annotations

from array import array
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from tests.fuzz.calls.values import DifferenceError
from tests.twins import compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.fuzz.calls.values import Values

gathering: Final = compiled("gathering")
WIDTHS: Final = (1, 2, 3, 4, 8, 8, 17, 100)
NO_WIDTHS: Final = (
    0,
    -1,
    -(2**63),
    1 << 16,
    1 << 46,
    1 << 62,
    (1 << 63) - 1,
    1 << 63,
    None,
    "text",
)
"""None of gigabytes, which would be filled with zeros."""


def places(v: Values, count: int, limit: int) -> Any:
    """Return places, mostly before a limit."""
    if v.rarely():
        return v.buffer()
    found = [v.rng.randrange(limit) for _ in range(count)]
    if found and v.rarely():
        found[-1] = v.rng.choice((-1, limit, limit + 7, 2**63 - 1, -(2**63)))
    return array("q", found)


def some_width(v: Values) -> Any:
    return v.rng.choice(NO_WIDTHS if v.rarely() else WIDTHS)


def rounds(values: Values) -> Mapping[str, Callable[[], object]]:
    """Return a round for each function."""
    v = values

    def gathered() -> None:
        data = v.buffer() if v.rarely() else v.good_term()
        count = v.rng.randrange(40)
        limit = max(1, len(data) - 100) if isinstance(data, array) else 64
        absent = v.buffer() if v.rarely() else bytes(v.rng.choices((0, 0, 1, 2), k=count))
        gathering.gathered(data, places(v, count, limit), some_width(v), absent)

    def gathered_as_in_python() -> None:
        data = bytes(v.good_term())
        count, size = v.rng.randrange(20), v.rng.choice(WIDTHS)
        where = [v.rng.randrange(max(1, len(data) - size)) for _ in range(count)]
        absent = v.rng.choices((0, 1), k=count)
        if len(data) < size:
            return
        found = gathering.gathered(data, array("q", where), size, bytes(absent))
        wanted = b"".join(
            bytes(size) if none else data[at : at + size]
            for at, none in zip(where, absent, strict=True)
        )
        if found != wanted:
            message = f"gathered {where} {size} {absent} in {data.hex()}"
            raise DifferenceError(message)

    def until_zero() -> None:
        gathering.until_zero(v.buffer(), some_width(v))

    def until_zero_as_in_python() -> None:
        data = bytes(v.good_term()[:960])
        size = v.rng.choice((1, 2, 4, 8, 32))
        rows = [data[at : at + size].partition(b"\0")[0] for at in range(0, len(data), size)]
        bounds, found = gathering.until_zero(data, size)
        edges = memoryview(bounds).cast("i").tolist()
        if [found[a:b] for a, b in pairwise(edges)] != rows:
            message = f"until_zero {size} {bounds} {found} in {data.hex()}"
            raise DifferenceError(message)

    return {
        each.__name__: each
        for each in (gathered, gathered_as_in_python, until_zero, until_zero_as_in_python)
    }
