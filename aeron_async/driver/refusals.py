"""The streams that one driver has refused lately, for explanations.

Session ids come off the wire, so that their number is bounded: the one refused longest ago makes
way. The reason is put into words only when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

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
WILDCARDS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, not bound to


class Key(NamedTuple):
    """What a publisher asked for: ids alone may be those of others, at another endpoint."""

    receiver_id: int
    stream_id: int
    session_id: int
    source: Address


@attrs.frozen
class Entry:
    """One stream that was refused."""

    refusal: Refusal
    refused_ns: int


class Refusals:
    """What was refused, by endpoint, stream, session and source, the latest last.

    An endpoint is known by its receiver id: no two of a driver have the same.
    """

    def __init__(self) -> None:
        self._entries: dict[Key, Entry] = {}

    def note(
        self, refusal: Refusal, setup: Setup, source: Address, now_ns: int, *, receiver_id: int
    ) -> None:
        """Remember why a stream was refused.

        Args:
            refusal: Why.
            setup: What asked for it.
            source: Where that came from.
            now_ns: The time now.
            receiver_id: Of the endpoint that it came to.
        """
        key = Key(receiver_id, setup.stream_id, setup.session_id, source)
        self._entries.pop(key, None)
        if len(self._entries) >= MAX_REFUSALS:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = Entry(refusal, now_ns)

    def forget(self, *, receiver_id: int, stream_id: int, session_id: int) -> None:
        """Forget a stream that has its image now."""
        for key in [
            key for key in self._entries if key[:3] == (receiver_id, stream_id, session_id)
        ]:
            del self._entries[key]

    def at(
        self, receiver_id: int, since_ns: int, *, stream_id: int, session_id: int | None
    ) -> tuple[RefusalSeen, ...]:
        """Return what an endpoint has refused of a stream since a time; of a session, or of all."""
        return tuple(
            seen(key, each)
            for key, each in self._entries.items()
            if (key.receiver_id, key.stream_id) == (receiver_id, stream_id)
            and session_id in {None, key.session_id}
            and each.refused_ns >= since_ns
        )

    def of(
        self, sender: Address, since_ns: int, *, stream_id: int, session_id: int
    ) -> tuple[RefusalSeen, ...]:
        """Return what was refused, since a time, of a publication of this very driver.

        Args:
            sender: What its socket is bound to.
            since_ns: The time.
            stream_id: Of the publication.
            session_id: Likewise.
        """
        return tuple(
            seen(key, each)
            for key, each in self._entries.items()
            if (key.stream_id, key.session_id) == (stream_id, session_id)
            and is_from(key.source, sender)
            and each.refused_ns >= since_ns
        )


def seen(key: Key, entry: Entry) -> RefusalSeen:
    """Return a refusal as people read it."""
    return RefusalSeen(
        session_id=key.session_id,
        source=format_address(key.source),
        reason=entry.refusal.reason(),
    )


def is_from(source: Address, sender: Address) -> bool:
    """Return whether a datagram from an address may be of a socket that is bound to another."""
    return source[1] == sender[1] and (sender[0] in WILDCARDS or source[0] == sender[0])
