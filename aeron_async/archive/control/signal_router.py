"""Who hears what becomes of a recording: whoever has asked for it.

Source: Aeron `ControlSession.sendSignal`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from aeron_async.archive.api import RecordingSignal
from aeron_async.archive.control.messages import RecordingSignalMessage

if TYPE_CHECKING:
    from aeron_async.archive.api import RecordingSignalEvent
    from aeron_async.archive.control.control_session import ControlSession

__all__ = ["SignalRouter"]

MOST_OWNERS: Final = 4_096
"""Subscriptions that it is known of who has asked for them; the oldest are forgotten."""
MOST_HELD: Final = 4_096
"""Signals that are kept until it is known whom they are for."""


class SignalRouter:
    """Hands signals to the sessions that they are for."""

    def __init__(self) -> None:
        self._owners: dict[int, tuple[ControlSession, int]] = {}
        self._held: deque[RecordingSignalEvent] = deque(maxlen=MOST_HELD)
        self._starting_count = 0

    def hold(self) -> None:
        """Keep signals that are for nobody known: the answer to a request tells whom they are for.

        A recording may begin before the request for it is answered.
        """
        self._starting_count += 1

    def own(self, subscription_id: int, session: ControlSession, correlation_id: int) -> None:
        """Let a session hear what a subscription records."""
        while len(self._owners) >= MOST_OWNERS:
            del self._owners[next(iter(self._owners))]
        self._owners[subscription_id] = (session, correlation_id)
        held = list(self._held)
        self._held.clear()
        for event in held:
            self.on_signal(event)

    def release(self) -> None:
        """Keep signals no more, if no other request is under way."""
        self._starting_count -= 1
        if self._starting_count == 0:
            self._held.clear()

    def forget(self, session: ControlSession) -> None:
        """Let a session hear nothing more."""
        self._owners = {
            key: (owner, each)
            for key, (owner, each) in self._owners.items()
            if owner is not session
        }

    def on_signal(self, event: RecordingSignalEvent) -> None:
        """Hand a signal to whom it is for."""
        if event.signal is RecordingSignal.DELETE:
            # Whoever has asked for it hears of that behind the answer.
            return
        found = self._owners.get(event.subscription_id)
        if found is not None:
            session, correlation_id = found
            session.say(
                RecordingSignalMessage(
                    control_session_id=session.session_id,
                    correlation_id=correlation_id,
                    recording_id=event.recording_id,
                    subscription_id=event.subscription_id,
                    position=event.position,
                    signal=event.signal,
                )
            )
        elif self._starting_count > 0:
            self._held.append(event)

    def tell_of_deletion(self, session: ControlSession, request: Any) -> None:
        """Tell whoever has asked for it that files were removed."""
        session.say(
            RecordingSignalMessage(
                control_session_id=session.session_id,
                correlation_id=request.correlation_id,
                recording_id=request.recording_id,
                subscription_id=-1,
                position=-1,
                signal=RecordingSignal.DELETE,
            )
        )
