"""Tokens: leave to ask for a replay from another image, for as long as a client takes to connect.

Source: Aeron `ArchiveConductor.generateReplayToken`.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aeron_async.archive.control.control_session import ControlSession
    from aeron_async.clock import Clock

__all__ = ["ReplayTokens"]

MOST_TOKENS: Final = 1_024
"""The oldest is worth nothing any more when there are as many."""


class ReplayTokens:
    """Tokens that are worth something.

    Args:
        clock: Reads the time.
        timeout_ns: How long a token is worth something.
    """

    def __init__(self, clock: Clock, *, timeout_ns: int) -> None:
        self._clock = clock
        self._timeout_ns = timeout_ns
        self._tokens: dict[int, tuple[ControlSession, int, int]] = {}

    def add(self, session: ControlSession, recording_id: int) -> int:
        """Return a token for replays of one recording, for one session."""
        now_ns = self._clock.now_ns()
        self._tokens = {key: each for key, each in self._tokens.items() if each[2] > now_ns}
        while len(self._tokens) >= MOST_TOKENS:
            del self._tokens[next(iter(self._tokens))]
        # -1 would be none, and nobody should guess it.
        token = secrets.randbits(63)
        self._tokens[token] = (session, recording_id, now_ns + self._timeout_ns)
        return token

    def session_of(self, token: int, recording_id: int) -> ControlSession | None:
        """Return whose token it is, if it is worth something for that recording."""
        found = self._tokens.get(token)
        if found is None:
            return None
        session, meant_id, deadline_ns = found
        is_good = meant_id == recording_id and self._clock.now_ns() < deadline_ns
        return session if is_good else None

    def forget(self, session: ControlSession) -> None:
        """Let a session's tokens be worth nothing any more."""
        self._tokens = {key: each for key, each in self._tokens.items() if each[0] is not session}
