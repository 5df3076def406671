"""Recording signals that an archive elsewhere sends, for any number of readers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from aeron_async.archive.api import RecordingSignal, RecordingSignalEvent
from aeron_async.archive.signal_hub import SignalHub

if TYPE_CHECKING:
    from aeron_async.archive.control.messages import RecordingSignalMessage

__all__ = ["RemoteSignalHub"]

READ_BEHIND_LIMIT: Final = 4_096
"""Signals that are kept for a reader who does not read."""


@final
class RemoteSignalHub(SignalHub):
    """Hands signals to those who want them."""

    def __init__(self, most_waiting: int = READ_BEHIND_LIMIT) -> None:
        super().__init__(most_waiting)

    def on_signal(self, message: RecordingSignalMessage) -> None:
        """Hand out a signal; one of a kind that is not known is passed over."""
        if message.signal not in set(RecordingSignal):
            return
        self.tell(
            RecordingSignalEvent(
                recording_id=message.recording_id,
                subscription_id=message.subscription_id,
                position=message.position,
                signal=RecordingSignal(message.signal),
                correlation_id=message.correlation_id,
            )
        )
