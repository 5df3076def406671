"""At most one log line a second for each cause, whoever causes it and however often."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.clock import NS_PER_SECOND

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["LogLimiter"]

MAX_CAUSES: Final = 1024


class LogLimiter:
    """Remembers when each cause was logged last; the oldest makes way for the newest."""

    def __init__(self, interval_ns: int = NS_PER_SECOND) -> None:
        self._interval_ns = interval_ns
        self._last_ns: dict[Hashable, int] = {}

    def allows(self, cause: Hashable, now_ns: int) -> bool:
        """Return whether the cause may be logged now, and take note that it is."""
        last_ns = self._last_ns.get(cause)
        if last_ns is not None and now_ns < last_ns + self._interval_ns:
            return False
        self._last_ns.pop(cause, None)
        if len(self._last_ns) >= MAX_CAUSES:
            del self._last_ns[next(iter(self._last_ns))]
        self._last_ns[cause] = now_ns
        return True
