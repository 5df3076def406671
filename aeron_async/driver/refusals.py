"""The streams that one driver has refused lately, for explanations.

Session ids come off the wire, so that their number is bounded: the one refused longest ago makes
way. The reason is put into words only when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.driver.core.udp_channel import format_address
from aeron_async.waits import RefusalSeen

if TYPE_CHECKING:
    from aeron_async.driver.core.outbox import Address
    from aeron_async.driver.image_budget import Refusal
    from aeron_async.protocol.setup import Setup

__all__ = ["Refusals"]

MAX_REFUSALS: Final = 64
"""Streams that are remembered."""


@attrs.frozen
class Entry:
    """One stream that was refused."""

    refusal: Refusal
    source: Address
    refused_ns: int


class Refusals:
    """What was refused, by stream and session id, the latest last."""

    def __init__(self) -> None:
        self._entries: dict[tuple[int, int], Entry] = {}

    def note(self, refusal: Refusal, setup: Setup, source: Address, now_ns: int) -> None:
        """Remember why a stream was refused."""
        key = setup.stream_id, setup.session_id
        self._entries.pop(key, None)
        if len(self._entries) >= MAX_REFUSALS:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = Entry(refusal, source, now_ns)

    def forget(self, stream_id: int, session_id: int) -> None:
        """Forget a stream that has its image now."""
        self._entries.pop((stream_id, session_id), None)

    def since(
        self, since_ns: int, *, stream_id: int, session_id: int | None
    ) -> tuple[RefusalSeen, ...]:
        """Return what was refused of a stream since a time; of one session, or of all."""
        return tuple(
            RefusalSeen(
                session_id=session, source=format_address(each.source), reason=each.refusal.reason()
            )
            for (stream, session), each in self._entries.items()
            if stream == stream_id and session_id in {None, session} and each.refused_ns >= since_ns
        )
