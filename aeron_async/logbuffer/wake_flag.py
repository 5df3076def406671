"""A flag that wakes an agent once, until the agent clears it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async._speedups import WHY_PURE

if TYPE_CHECKING:
    from collections.abc import Callable


__all__ = [
    "WakeFlag",
]


class WakeFlag:
    """Wakes an agent once when there is something to do, until the agent has cleared the flag.

    Attributes:
        is_set: Set by `set`; the agent clears it before it looks for work.
        callback: Called by `set`; None while there is nothing to wake.
    """

    __slots__ = ("callback", "is_set")

    def __init__(self) -> None:
        self.is_set: bool = False
        self.callback: Callable[[], object] | None = None

    def set(self) -> None:
        """Wake the agent, unless it was woken already and has not yet looked."""
        if not self.is_set:
            self.is_set = True
            if self.callback is not None:
                self.callback()


if not TYPE_CHECKING and WHY_PURE is None:
    from aeron_async._speedups.paths import WakeFlag
