"""Which sessions of one endpoint were asked for a SETUP that has not come; never too many.

Each waits equally long, so the order in which they were asked is the order in which they expire.

Source: Aeron `Receiver.pendingSetupMessages`.
"""

from __future__ import annotations

__all__ = ["PendingSetups"]


class PendingSetups:
    """The sessions that are waited for.

    Args:
        limit: Most sessions at once.
        timeout_ns: How long each is waited for.
    """

    def __init__(self, limit: int, timeout_ns: int) -> None:
        self._limit = limit
        self._timeout_ns = timeout_ns
        self._expiry_ns: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self._expiry_ns)

    def try_add(self, stream_id: int, session_id: int, now_ns: int) -> bool:
        """Wait for a session; False when there are too many to wait for another."""
        pending = self._expiry_ns
        while pending and pending[oldest := next(iter(pending))] <= now_ns:
            del pending[oldest]
        if len(pending) >= self._limit:
            return False
        # Taken out first: one that was forgotten meanwhile and is asked again expires last.
        pending.pop((stream_id, session_id), None)
        pending[stream_id, session_id] = now_ns + self._timeout_ns
        return True

    def remove(self, stream_id: int, session_id: int) -> None:
        """Wait for a session no more."""
        self._expiry_ns.pop((stream_id, session_id), None)
