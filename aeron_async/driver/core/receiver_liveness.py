"""Which receivers of a publication are alive: those whose status messages keep coming.

Source: Aeron `NetworkPublication.livenessTracker`.
"""

from __future__ import annotations

from typing import Final

__all__ = ["MAX_RECEIVERS", "ReceiverLiveness"]

MAX_RECEIVERS: Final = 4096
"""Receivers one publication remembers; the ids come off the wire, so their number is bounded."""


class ReceiverLiveness:
    """When each receiver was last heard; beyond the bound the longest silent one is forgotten.

    Refusing the newest instead would let made-up ids keep a real receiver out.

    Args:
        timeout_ns: How long a silent receiver is remembered.
    """

    def __init__(self, timeout_ns: int) -> None:
        self._timeout_ns = timeout_ns
        self._last_heard_ns: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._last_heard_ns)

    def on_status_message(self, receiver_id: int, now_ns: int) -> None:
        """Take note of a receiver; the longest silent one makes way when there are too many."""
        heard_ns = self._last_heard_ns
        # Taken out first, so that the order of the entries is that in which they were heard.
        heard_ns.pop(receiver_id, None)
        if len(heard_ns) >= MAX_RECEIVERS:
            del heard_ns[next(iter(heard_ns))]
        heard_ns[receiver_id] = now_ns

    def on_remote_close(self, receiver_id: int) -> bool:
        """Forget a receiver that left; False when it was not known."""
        return self._last_heard_ns.pop(receiver_id, None) is not None

    def expire(self, now_ns: int) -> None:
        """Forget every receiver that has been silent for longer than the timeout."""
        silent = [
            receiver_id
            for receiver_id, heard_ns in self._last_heard_ns.items()
            if now_ns > heard_ns + self._timeout_ns
        ]
        for receiver_id in silent:
            del self._last_heard_ns[receiver_id]
