"""Calls of the atomic loads and stores, beside what the same words hold for Python."""

from __future__ import annotations

from array import array
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tests.fuzz.calls.values import DifferenceError
from tests.twins import compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.fuzz.calls.values import Values

atomics: Final = compiled("atomics")

COUNT: Final = 16
NAMES: Final = {"load_acquire": 0, "store_release": 1, "fetch_add": 1, "compare_and_swap": 2}


def rounds(values: Values) -> Mapping[str, Callable[[], object]]:
    """Return a round for each function and width."""
    return {
        f"{name}_{bits}": partial(access, values, f"{name}_{bits}", count, *views(values, bits))
        for name, count in NAMES.items()
        for bits in (32, 64)
    }


def views(values: Values, bits: int) -> tuple[Any, Any]:
    """Return functions that return words, mostly of the right width, and indices."""
    v = values
    codes = ("i" if bits == 32 else "q",) * 9 + ("i", "q", "h")
    words = [memoryview(array(v.rng.choice(codes), [0] * COUNT)) for _ in range(40)]
    odd = [memoryview(bytearray(69))[by : by + 64].cast("i") for by in (0, 1, 2, 4)]
    return v.mixed(v.cycled(words + odd), v.buffer), v.mixed(
        lambda: v.rng.randrange(-1, COUNT + 1), v.any_number
    )


def access(values: Values, name: str, count: int, words: Any, index: Any) -> None:
    """Call once; a load must return what Python reads there."""
    where = words(), index()
    found = getattr(atomics, name)(*where, *(values.word() for _ in range(count)))
    is_plain = isinstance(where[0], memoryview) and where[0].format in "iq"
    if count == 0 and is_plain and found != where[0][where[1]]:
        message = f"{name} {where}: {found}"
        raise DifferenceError(message)
