"""Streams that arrive at one endpoint and that nobody there has subscribed to, for explanations.

Their ids come off the wire, so that few are remembered: the one noted first makes way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aeron_async.driver.core.outbox import Address

__all__ = ["Strangers"]

MAX_STRANGERS: Final = 8
"""Streams that are remembered."""


class Strangers:
    """The streams that arrived and were not wanted."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[tuple[int, int], tuple[Address, list[int]]] = {}

    def note(self, stream_id: int, session_id: int, source: Address, now_ns: int) -> None:
        """Remember that a datagram of a stream came; the source is that of its first one."""
        entries = self._entries
        entry = entries.get((stream_id, session_id))
        if entry is not None:
            entry[1][0] = now_ns
            return
        if len(entries) >= MAX_STRANGERS:
            del entries[next(iter(entries))]
        entries[stream_id, session_id] = source, [now_ns]

    def heard_since(self, since_ns: int) -> list[tuple[int, int, Address]]:
        """Return stream id, session id and source of the streams that were heard since a time."""
        return [
            (stream_id, session_id, source)
            for (stream_id, session_id), (source, heard_ns) in self._entries.items()
            if heard_ns[0] >= since_ns
        ]
