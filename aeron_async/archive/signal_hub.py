"""Tells whoever asks what becomes of recordings."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Self, final
from weakref import WeakSet

from aeron_async.client.signal import Signal
from aeron_async.errors import ArchiveError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.archive.api import RecordingSignalEvent

__all__ = ["SignalHub", "SignalStream"]

MOST_WAITING: Final = 65_536
"""Events that a reader may leave waiting; one that is so slow is told that it has lost some."""


@final
class SignalStream:
    """An iterator over what becomes of recordings, from when it was made."""

    def __init__(self, hub: SignalHub) -> None:
        self._hub = hub
        self._events: deque[RecordingSignalEvent] = deque()
        self._bell = Signal()
        self._has_lost = False
        self._is_closed = False

    def put(self, event: RecordingSignalEvent) -> None:
        """Add an event."""
        if len(self._events) < MOST_WAITING:
            self._events.append(event)
        else:
            self._has_lost = True
        self._bell.ring()

    def end(self) -> None:
        """Let the iteration end behind what is waiting."""
        self._is_closed = True
        self._bell.ring()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RecordingSignalEvent:
        """Return the next event; the iteration ends when the archive closes.

        Raises:
            ArchiveError: Events were lost, for too many were left waiting.
        """
        while not self._events:
            if self._has_lost:
                message = f"more than {MOST_WAITING} signals were waiting, and some were lost"
                raise ArchiveError(message)
            if self._is_closed:
                raise StopAsyncIteration
            await self._bell.wait()
        return self._events.popleft()

    async def aclose(self) -> None:
        """Hear of nothing more; closing twice is closing once."""
        self._events.clear()
        self._hub.forget(self)
        self.end()


@final
class SignalHub:
    """Hands each event to everybody who listens."""

    def __init__(self) -> None:
        # An iterator that was left and never closed is nobody's, and would keep all that comes.
        self._streams: WeakSet[SignalStream] = WeakSet()
        self._listeners: list[Callable[[RecordingSignalEvent], object]] = []

    def stream(self) -> SignalStream:
        """Return an iterator over events from now on."""
        stream = SignalStream(self)
        self._streams.add(stream)
        return stream

    def listen(self, listener: Callable[[RecordingSignalEvent], object]) -> Callable[[], None]:
        """Call a function with each event from now on; return what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def tell(self, event: RecordingSignalEvent) -> None:
        """Tell everybody."""
        for stream in list(self._streams):
            stream.put(event)
        for listener in list(self._listeners):
            listener(event)

    def forget(self, stream: SignalStream) -> None:
        """Hand nothing more to an iterator."""
        self._streams.discard(stream)

    def close(self) -> None:
        """Let all iterations end."""
        for stream in list(self._streams):
            stream.end()
        self._streams.clear()
