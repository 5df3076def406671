"""Recording signals, for any number of readers."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Self
from weakref import WeakSet

from aeron_async.archive.api import RecordingSignal, RecordingSignalEvent
from aeron_async.client.signal import Signal
from aeron_async.errors import AeronError, ArchiveError, ClosedError

if TYPE_CHECKING:
    from aeron_async.archive.control.messages import RecordingSignalMessage

__all__ = ["SignalHub", "SignalReader"]

READ_BEHIND_LIMIT: Final = 4_096
"""Signals that are kept for a reader who does not read."""


class SignalReader:
    """An iterator over what comes from now on; it ends when the archive's client is closed."""

    def __init__(self) -> None:
        self._events: deque[RecordingSignalEvent] = deque()
        self._changed = Signal()
        self._end: AeronError | None = None
        self._is_behind = False

    def put(self, event: RecordingSignalEvent) -> None:
        """Keep one for the reader."""
        if len(self._events) < READ_BEHIND_LIMIT:
            self._events.append(event)
        else:
            self._is_behind = True
        self._changed.ring()

    def close(self, error: AeronError) -> None:
        """Let the reader come to an end behind what there is."""
        self._end = error
        self._changed.ring()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RecordingSignalEvent:
        """Return the next one.

        Raises:
            ArchiveError: The archive is gone; or so many were not read that some were lost.
        """
        while not self._events:
            if self._is_behind:
                message = (
                    f"more than {READ_BEHIND_LIMIT} recording signals were not read, and some were "
                    "lost: read them as they come"
                )
                raise ArchiveError(message)
            if isinstance(self._end, ClosedError):
                raise StopAsyncIteration
            if self._end is not None:
                raise ArchiveError(str(self._end))
            await self._changed.wait()
        return self._events.popleft()


class SignalHub:
    """Hands signals to those who want them."""

    def __init__(self) -> None:
        self._readers: WeakSet[SignalReader] = WeakSet()
        self._end: AeronError | None = None

    def signals(self) -> SignalReader:
        """Return an iterator over what comes from now on."""
        reader = SignalReader()
        self._readers.add(reader)
        if self._end is not None:
            reader.close(self._end)
        return reader

    def on_signal(self, message: RecordingSignalMessage) -> None:
        """Hand out a signal; one of a kind that is not known is passed over."""
        if message.signal not in set(RecordingSignal):
            return
        event = RecordingSignalEvent(
            recording_id=message.recording_id,
            subscription_id=message.subscription_id,
            position=message.position,
            signal=RecordingSignal(message.signal),
            correlation_id=message.correlation_id,
        )
        for reader in list(self._readers):
            reader.put(event)

    def close(self, error: AeronError) -> None:
        """Let all readers come to an end."""
        self._end = error
        for reader in list(self._readers):
            reader.close(error)
