"""At most one log line a second for each cause, and so many in all, whoever causes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.clock import NS_PER_SECOND

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["LogLimiter"]

MAX_CAUSES: Final = 1024
"""Lines in one interval: sources can be made up, and a line costs far more than a datagram."""


class LogLimiter:
    """Remembers when each cause was logged last, as long as that matters."""

    def __init__(self, interval_ns: int = NS_PER_SECOND) -> None:
        self._interval_ns = interval_ns
        self._last_ns: dict[Hashable, int] = {}

    def allows(self, cause: Hashable, now_ns: int) -> bool:
        """Return whether the cause may be logged now, and take note that it is."""
        last_ns = self._last_ns
        # In the order of their times: a cause is forgotten before it is noted anew.
        while last_ns and now_ns >= last_ns[oldest := next(iter(last_ns))] + self._interval_ns:
            del last_ns[oldest]
        if cause in last_ns or len(last_ns) >= MAX_CAUSES:
            return False
        last_ns[cause] = now_ns
        return True
