"""Where the sessions of one endpoint stand that have no image.

Sessions come off the wire, so their number is bounded, over all streams together: the one that was
heard of least recently makes way. Sessions that cool down go last, so that no flood of unknown ones
brings back an image that was let go. Images are kept elsewhere, and never make way.

Source: Aeron `DataPacketDispatcher.SessionInterest`.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, final

from aeron_async.driver.core.loss_detector import NEVER_NS
from aeron_async.driver.core.strangers import Strangers

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.counters import Counter

__all__ = ["SessionState", "SessionStates"]


@final
class SessionState(Enum):
    """Why data of a session that has no image is ignored."""

    PENDING_SETUP = auto()
    """Its sender was asked for a SETUP, which has not come yet."""
    COOL_DOWN = auto()
    """Its image went away without an end of stream."""
    NO_INTEREST = auto()
    """No subscription wants it."""


class SessionStates:
    """The sessions that are remembered, by stream and session id.

    Args:
        limit: Most sessions at once.
        evicted: Counts those that made way.

    Attributes:
        strangers: Sessions of streams that nobody wants.
    """

    def __init__(self, limit: int, evicted: Counter) -> None:
        self._limit = limit
        self._evicted = evicted
        self.strangers = Strangers()
        # Both in the order in which they were last heard of.
        self._states: dict[tuple[int, int], tuple[SessionState, int]] = {}
        self._cool_downs: dict[tuple[int, int], None] = {}

    def __len__(self) -> int:
        return len(self._states) + len(self._cool_downs)

    def state_of(self, stream_id: int, session_id: int, now_ns: int) -> SessionState | None:
        """Return why a session that is heard of now is ignored, or None when it is not."""
        key = stream_id, session_id
        if key in self._cool_downs:
            del self._cool_downs[key]
            self._cool_downs[key] = None
            return SessionState.COOL_DOWN
        entry = self._states.pop(key, None)
        if entry is None or now_ns >= entry[1]:
            return None
        self._states[key] = entry
        return entry[0]

    def of_stream(self, stream_id: int) -> list[tuple[int, SessionState]]:
        """Return the sessions of a stream and why they are ignored, that heard of last at the end.

        Those whose time is up are among them until they are heard of again.
        """
        states = [(key, state) for key, (state, _) in self._states.items()]
        cool_downs = [(key, SessionState.COOL_DOWN) for key in self._cool_downs]
        return [(key[1], state) for key, state in states + cool_downs if key[0] == stream_id]

    def set_state(
        self, stream_id: int, session_id: int, state: SessionState, *, expiry_ns: int = NEVER_NS
    ) -> None:
        """Ignore the session until `expiry_ns`; a cool-down has no such end."""
        key = stream_id, session_id
        self._states.pop(key, None)
        self._cool_downs.pop(key, None)
        if len(self) >= self._limit:
            oldest = self._states or self._cool_downs
            del oldest[next(iter(oldest))]
            self._evicted.increment()
        if state is SessionState.COOL_DOWN:
            self._cool_downs[key] = None
        else:
            self._states[key] = state, expiry_ns

    def forget(self, stream_id: int, session_id: int, state: SessionState) -> None:
        """Stop ignoring a session, if it is in that state."""
        key = stream_id, session_id
        if state is SessionState.COOL_DOWN:
            self._cool_downs.pop(key, None)
        elif key in self._states and self._states[key][0] is state:
            del self._states[key]

    def forget_uninterest(self, stream_id: int, session_id: int | None) -> None:
        """Stop ignoring what somebody wants now: one session of a stream, or all of them."""
        if session_id is not None:
            self.forget(stream_id, session_id, SessionState.NO_INTEREST)
            return
        self._states = {
            key: entry
            for key, entry in self._states.items()
            if key[0] != stream_id or entry[0] is not SessionState.NO_INTEREST
        }

    def keep(self, stream_id: int, is_wanted: Callable[[int], bool]) -> None:
        """Forget the sessions of a stream that nobody wants any more."""
        for states in (self._states, self._cool_downs):
            unwanted = [key for key in states if key[0] == stream_id and not is_wanted(key[1])]
            for key in unwanted:
                del states[key]
