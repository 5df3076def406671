"""Recording signals, passed to any number of readers."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final
from weakref import WeakSet

from aeron_async.archive.api import RecordingSignal, RecordingSignalEvent, SignalReader
from aeron_async.client.waiters import Notify
from aeron_async.errors import ArchiveError, ClosedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.archive.control.messages import RecordingSignalMessage
    from aeron_async.errors import AeronError

__all__ = [
    "RemoteSignalHub",
    "SignalHub",
    "SignalStream",
]

MOST_WAITING: Final = 65_536
"""Events that a reader may leave unread; further ones are lost, and the reader gets an error."""


@final
class SignalStream(SignalReader):
    """Iterator over the signals of recordings, from its creation on."""

    def __init__(self, hub: SignalHub) -> None:
        self._hub = hub
        self._events: deque[RecordingSignalEvent] = deque()
        self._signalled = Notify()
        self._has_lost = False
        self._end: AeronError | None = None

    def put(self, event: RecordingSignalEvent) -> None:
        """Add an event."""
        if len(self._events) < self._hub.most_waiting:
            self._events.append(event)
        else:
            self._has_lost = True
        self._signalled.notify()

    def end(self, error: AeronError) -> None:
        """End the iteration after the unread events; raise, unless `error` is a `ClosedError`."""
        self._end = error
        self._signalled.notify()

    async def __anext__(self) -> RecordingSignalEvent:
        """Return the next event; the iteration ends when the archive or this stream is closed.

        Raises:
            ArchiveError: The archive is gone, or events were lost because they were read too
                slowly.
        """
        while not self._events:
            if self._has_lost:
                # Raise once: a reader that continues waits for new events.
                self._has_lost = False
                message = (
                    f"more than {self._hub.most_waiting} recording signals were not read, and some "
                    "were lost: read them as they come"
                )
                raise ArchiveError(message)
            if isinstance(self._end, ClosedError):
                raise StopAsyncIteration
            if self._end is not None:
                raise ArchiveError(str(self._end))
            await self._signalled.wait()
        return self._events.popleft()

    async def aclose(self) -> None:
        """Stop collecting; a second call does nothing."""
        self._events.clear()
        self._has_lost = False
        self._hub.forget(self)
        self.end(ClosedError("this reader of signals was closed"))


class SignalHub:
    """Passes each event to all streams and listeners.

    Args:
        most_waiting: Unread events kept for each stream.
    """

    def __init__(self, most_waiting: int = MOST_WAITING) -> None:
        self.most_waiting = most_waiting
        # Weak: an abandoned stream that was never closed must not collect events.
        self._streams: WeakSet[SignalStream] = WeakSet()
        self._listeners: list[Callable[[RecordingSignalEvent], object]] = []
        self._end: AeronError | None = None

    def stream(self) -> SignalStream:
        """Return an iterator over events from now on."""
        stream = SignalStream(self)
        self._streams.add(stream)
        if self._end is not None:
            stream.end(self._end)
        return stream

    def listen(self, listener: Callable[[RecordingSignalEvent], object]) -> Callable[[], None]:
        """Call a function with each event from now on; return a function that ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def tell(self, event: RecordingSignalEvent) -> None:
        """Pass an event to all streams and listeners."""
        for stream in list(self._streams):
            stream.put(event)
        for listener in list(self._listeners):
            listener(event)

    def forget(self, stream: SignalStream) -> None:
        """Pass no more events to a stream."""
        self._streams.discard(stream)

    def reopen(self) -> None:
        """Let new streams wait for events, after a failed attempt to connect had closed the hub."""
        self._end = None

    def close(self, error: AeronError | None = None) -> None:
        """End all iterations; with any error other than `ClosedError` they raise."""
        self._end = ClosedError("the archive is closed") if error is None else error
        for stream in list(self._streams):
            stream.end(self._end)
        self._streams.clear()


READ_BEHIND_LIMIT: Final = 4_096
"""Unread events kept for each stream of a remote archive's client."""


@final
class RemoteSignalHub(SignalHub):
    """Passes the signals that a remote archive sends to readers."""

    def __init__(self, most_waiting: int = READ_BEHIND_LIMIT) -> None:
        super().__init__(most_waiting)

    def on_signal(self, message: RecordingSignalMessage) -> None:
        """Pass a signal to readers; one of an unknown kind is ignored."""
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
