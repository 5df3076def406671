"""The scenarios of the first seeds, which several files of tests look at."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from tests.support.draw import draw_scenario

if TYPE_CHECKING:
    from tests.support.scenario import Scenario

__all__ = ["scenarios"]

COUNT: Final = 300


@cache
def scenarios() -> tuple[Scenario, ...]:
    """Draw them, once in a process: that takes a moment, and not every process needs them."""
    return tuple(draw_scenario(seed) for seed in range(COUNT))
