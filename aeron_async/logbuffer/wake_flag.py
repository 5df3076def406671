"""A flag that wakes an agent once, until the agent has looked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async._speedups import WHY_PURE

if TYPE_CHECKING:
    from collections.abc import Callable


__all__ = [
    "Doorbell",
]


class Doorbell:
    """Tells an agent once that there is something to look at, until it has looked.

    Attributes:
        is_rung: Set by ringing; whoever looks clears it first.
        answer: What ringing calls; None while there is nobody to be told.
    """

    __slots__ = ("answer", "is_rung")

    def __init__(self) -> None:
        self.is_rung: bool = False
        self.answer: Callable[[], object] | None = None

    def ring(self) -> None:
        """Let the agent look, unless it is going to anyhow."""
        if not self.is_rung:
            self.is_rung = True
            if self.answer is not None:
                self.answer()


if not TYPE_CHECKING and WHY_PURE is None:
    from aeron_async._speedups.paths import Doorbell
