"""Who wants which sessions of one stream, and where each session stands.

Sessions come off the wire, so the memory of those without an image is bounded: the oldest entry
makes way for the newest. Sessions that cool down are remembered apart, so that no flood of unknown
ones brings back an image that was let go.

Source: Aeron `DataPacketDispatcher.StreamInterest`.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, final

from aeron_async.driver.core.loss_detector import NEVER_NS

if TYPE_CHECKING:
    from aeron_async.driver.core.publication_image import PublicationImage

__all__ = ["MAX_SESSION_STATES", "SessionState", "StreamInterest"]

MAX_SESSION_STATES: Final = 4096
"""Sessions without an image that one stream remembers, and as many again that cool down."""


@final
class SessionState(Enum):
    """Why data of a session that has no image is ignored."""

    PENDING_SETUP = auto()
    """Its sender was asked for a SETUP, which has not come yet."""
    COOL_DOWN = auto()
    """Its image went away without an end of stream."""
    NO_INTEREST = auto()
    """No subscription wants it."""


class StreamInterest:
    """The sessions of one stream on one endpoint.

    Attributes:
        images: Active images by session id.
        is_all_sessions: Whether some subscription takes every session.
        session_ids: Sessions that subscriptions ask for by id.
    """

    def __init__(self) -> None:
        self.images: dict[int, PublicationImage] = {}
        self.is_all_sessions = False
        self.session_ids: set[int] = set()
        self._states: dict[int, tuple[SessionState, int]] = {}
        self._cool_downs: dict[int, None] = {}

    @property
    def is_wanted(self) -> bool:
        """Return whether any subscription is left."""
        return self.is_all_sessions or bool(self.session_ids)

    def wants(self, session_id: int) -> bool:
        """Return whether some subscription takes this session."""
        return self.is_all_sessions or session_id in self.session_ids

    def state_of(self, session_id: int, now_ns: int) -> SessionState | None:
        """Return why the session is ignored, or None when it is not."""
        if session_id in self._cool_downs:
            return SessionState.COOL_DOWN
        entry = self._states.get(session_id)
        if entry is None:
            return None
        state, expiry_ns = entry
        if now_ns >= expiry_ns:
            del self._states[session_id]
            return None
        return state

    def set_state(self, session_id: int, state: SessionState, *, expiry_ns: int = NEVER_NS) -> None:
        """Ignore the session until `expiry_ns`; a cool-down has no such end."""
        self._states.pop(session_id, None)
        if state is SessionState.COOL_DOWN:
            self._cool_downs.pop(session_id, None)
            make_room(self._cool_downs)
            self._cool_downs[session_id] = None
        else:
            make_room(self._states)
            self._states[session_id] = state, expiry_ns

    def forget(self, state: SessionState, session_id: int | None = None) -> None:
        """Stop ignoring sessions in that state; one of them, or all."""
        if state is SessionState.COOL_DOWN:
            ids = list(self._cool_downs) if session_id is None else [session_id]
            for each in ids:
                self._cool_downs.pop(each, None)
            return
        ids = list(self._states) if session_id is None else [session_id]
        for each in ids:
            if each in self._states and self._states[each][0] is state:
                del self._states[each]

    def forget_unwanted(self) -> None:
        """Drop the images and the states of sessions that no subscription takes."""
        self.images = {key: image for key, image in self.images.items() if self.wants(key)}
        self._states = {key: entry for key, entry in self._states.items() if self.wants(key)}
        self._cool_downs = {key: None for key in self._cool_downs if self.wants(key)}


def make_room(sessions: dict[int, Any]) -> None:
    """Forget the oldest entry where there are as many as there may be."""
    if len(sessions) >= MAX_SESSION_STATES:
        del sessions[next(iter(sessions))]
