"""Who wants which sessions of one stream, and where each session stands.

Sessions come off the wire, so the memory of those without an image is bounded: the oldest entry
makes way for the newest.

Source: Aeron `DataPacketDispatcher.StreamInterest`.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from aeron_async.driver.core.publication_image import PublicationImage

__all__ = ["MAX_SESSION_STATES", "SessionState", "StreamInterest"]

MAX_SESSION_STATES: Final = 4096
"""Sessions without an image that one stream remembers."""


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

    @property
    def is_wanted(self) -> bool:
        """Return whether any subscription is left."""
        return self.is_all_sessions or bool(self.session_ids)

    def wants(self, session_id: int) -> bool:
        """Return whether some subscription takes this session."""
        return self.is_all_sessions or session_id in self.session_ids

    def state_of(self, session_id: int, now_ns: int) -> SessionState | None:
        """Return why the session is ignored, or None when it is not."""
        entry = self._states.get(session_id)
        if entry is None:
            return None
        state, expiry_ns = entry
        if now_ns >= expiry_ns:
            del self._states[session_id]
            return None
        return state

    def set_state(self, session_id: int, state: SessionState, *, expiry_ns: int) -> None:
        """Ignore the session until `expiry_ns`."""
        self._states.pop(session_id, None)
        if len(self._states) >= MAX_SESSION_STATES:
            del self._states[next(iter(self._states))]
        self._states[session_id] = state, expiry_ns

    def forget(self, state: SessionState, session_id: int | None = None) -> None:
        """Stop ignoring sessions in that state; one of them, or all."""
        ids = list(self._states) if session_id is None else [session_id]
        for each in ids:
            if each in self._states and self._states[each][0] is state:
                del self._states[each]

    def forget_unwanted(self) -> None:
        """Drop the images and the states of sessions that no subscription takes."""
        self.images = {key: image for key, image in self.images.items() if self.wants(key)}
        self._states = {key: entry for key, entry in self._states.items() if self.wants(key)}
