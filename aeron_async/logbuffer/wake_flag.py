"""A flag that wakes an agent once, until the agent clears it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async._speedups import WHY_PURE

if TYPE_CHECKING:
    from collections.abc import Callable


__all__ = [
    "Doorbell",
]


class Doorbell:
    """Wakes an agent once when there is something to do, until the agent has cleared the flag.

    Attributes:
        is_rung: Set by `ring`; the agent clears it before it looks for work.
        answer: Called by `ring`; None while there is nothing to wake.
    """

    __slots__ = ("answer", "is_rung")

    def __init__(self) -> None:
        self.is_rung: bool = False
        self.answer: Callable[[], object] | None = None

    def ring(self) -> None:
        """Wake the agent, unless it was woken already and has not yet looked."""
        if not self.is_rung:
            self.is_rung = True
            if self.answer is not None:
                self.answer()


if not TYPE_CHECKING and WHY_PURE is None:
    from aeron_async._speedups.paths import Doorbell
