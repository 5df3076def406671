"""Calls of what gives batches to Arrow libraries, of batches that are used in any other way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.fuzz.calls.messages import Held
from tests.twins import compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.fuzz.calls.values import Values

arrays: Final = compiled("arrays")


def rounds(values: Values) -> Mapping[str, Callable[[], object]]:
    """Return a round for the only function, and for what its batches go through."""
    v, held = values, Held(values)
    kept: list[Any] = []

    def exported() -> None:
        batch = v.anything() if v.rarely() else held.one()
        kept.append(arrays.exported(batch, v.word(), v.word()))
        if len(kept) > 8 or v.rarely():
            kept.clear()

    return {
        each.__name__: each
        for each in (
            *(exported, held.open_batch, held.open_batches_that_follow, held.make_batch),
            *(held.following, held.again, held.keep, held.term_is_changed),
            *(held.image_is_replaced, held.cycle),
        )
    }
