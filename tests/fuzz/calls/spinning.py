"""Calls of the look at words for a moment, over lists that change in the meantime."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Final

from tests.twins import compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.fuzz.calls.values import Values

spinning: Final = compiled("spinning")

LENGTH: Final = 64
NOT_THERE: Final = 5
"""No word has this value, so that a look at any ends at once."""


def rounds(values: Values) -> Mapping[str, Callable[[], object]]:
    """Return a round for the only function, with words that are there, and with others."""
    v = values
    memory = array("i", bytes(LENGTH))
    places = v.mixed(lambda: v.rng.randrange(0, LENGTH, 4), v.any_number)
    near = v.mixed(lambda: v.rng.randrange(-8, LENGTH + 8), places)
    made: list[Any] = []

    def grow() -> None:
        made.extend([(memory, 0, NOT_THERE)] * v.rng.randrange(40))

    v.hook = grow

    def spin() -> None:
        made[:] = [(memory, places(), 0) for _ in range(v.rng.randrange(18))]
        spinning.spin(made, v.rng.choice((-1, 0, 1, 500)))

    def spin_over_anything() -> None:
        made[:] = [(v.buffer(), near(), v.word()) for _ in range(v.rng.randrange(18))]
        if v.rarely():
            made.append(v.anything())
        spinning.spin(made, 0)

    def spin_for_long() -> None:
        """As the first word has changed, the time does not matter."""
        made[:] = [(memory, 0, NOT_THERE), *((memory, places(), 0) for _ in range(3))]
        spinning.spin(made, v.any_number())

    return {each.__name__: each for each in (spin, spin_over_anything, spin_for_long)}
