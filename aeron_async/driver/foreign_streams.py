"""Streams that clients of other processes write and read, as their driver watches them.

Such a client wakes nobody: it stores frames, and its position in its counter. The driver therefore
watches the one word that changes next: the length of the frame that it has not seen, and for a
reader the position that lets its stream go on. A busy stream has no word to watch.

Source: Aeron `NetworkPublication`, `IpcPublication`, `ReadablePosition`, whose agents poll.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.counters import VALUE_LENGTH
from aeron_async.driver.core.ipc_publication import IpcPublication
from aeron_async.driver.core.network_publication import NetworkPublication
from aeron_async.driver.core.shared_logs import CheckedPosition
from aeron_async.errors import ConfigurationError, ErrorCode, RegistrationError
from aeron_async.logbuffer.scanner import scan_for_send
from aeron_async.protocol.header import FRAME_ALIGNMENT

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from aeron_async.doorbell import DriverBells
    from aeron_async.driver.client_proxy import ClientProxy
    from aeron_async.driver.commands import (
        ImageEnd,
        ImageReady,
        PublicationErrorFrame,
    )
    from aeron_async.driver.core.publication import SubscribablePublication
    from aeron_async.logbuffer.log_buffers import LogBuffers
    from aeron_async.watcher import Word, WordWatcher

__all__ = ["ClientBell", "PublicationWatch", "SubscriptionWatch"]

TELLING_SHIFT: Final = 6
"""A reader that is beyond the trigger already is looked at again a 64th of a term later, or an
eighth of the window, if that is less."""
WINDOW_SHIFT: Final = 3
"""While the sender sends on, a publisher that waits is woken for an eighth of its window."""


def no_word_left(error: ConfigurationError) -> RegistrationError:
    """Return the refusal of what the watcher has no word for."""
    message = f"{error}; the driver's counters_buffer_length sets how many it may have"
    return RegistrationError(message, code=ErrorCode.RESOURCE_TEMPORARILY_UNAVAILABLE)


class ClientBell:
    """Wakes one client if it is asleep.

    Args:
        client_id: The client.
        bells: Those of the driver; None if all clients look by themselves.
    """

    def __init__(self, client_id: int, bells: DriverBells | None) -> None:
        self._client_id = client_id
        self._bells = bells

    def ring(self) -> None:
        """Wake the client, after something was stored that it may wait for."""
        if self._bells is not None:
            self._bells.ring(self._client_id)

    def on_change(self) -> None:
        """Let publishers look again for their readers."""
        if self._bells is not None:
            self._bells.on_change()


class PublicationWatch:
    """One hold of a publication by a client in another process.

    Of all such holds of one publication, the oldest watches its log, for the others too.

    Args:
        proxy: Writes to the clients.
        watcher: Looks at the log.
        bell: Wakes the client if it is asleep.
    """

    def __init__(self, proxy: ClientProxy, watcher: WordWatcher, bell: ClientBell) -> None:
        self._proxy = proxy
        self._watcher = watcher
        self._bell = bell
        self._publication: SubscribablePublication | None = None
        self._word: Word | None = None
        self._word_at = -1
        self._position = 0
        self._rung_limit = 0
        self._was_connected = False

    @property
    def has_begun(self) -> bool:
        """Whether it watches the log, or another hold does in its place."""
        return self._publication is not None

    def begin(self, publication: SubscribablePublication) -> None:
        """Watch the log from now on, unless an older hold does.

        Raises:
            RegistrationError: The watcher has no word left for it.
        """
        self._publication = publication
        self._position = publication.seen_position
        try:
            # The hold that watched until now may have left a frame that the driver has not seen.
            self.act()
        except ConfigurationError as error:
            raise no_word_left(error) from None

    def end(self) -> None:
        """Stop looking at the log; the next hold does from now on."""
        publication, self._publication = self._publication, None
        if self._word is not None:
            self._word.remove()
            self._word = None
        next_watch = None if publication is None else oldest_watch(publication)
        if next_watch is not None:
            next_watch.act()

    def look(self) -> None:
        """Act on what was missed; to be called from time to time.

        Nobody says that a publisher of another process has died within a claim: no frame follows,
        and readers of other processes need no driver to see those that do. The publication finds
        out by itself once it has looked.
        """
        self.act()
        publication = self._watched()
        if isinstance(publication, IpcPublication) and publication.has_unread:
            publication.wake_flag.set()

    def act(self) -> None:
        """Let the driver act on frames that it has not seen, and wait for more."""
        publication = self._watched()
        is_woken = publication is not None and self._has_frame(publication)
        if publication is not None and is_woken:
            if isinstance(publication, IpcPublication):
                # Readers in this process are woken once for all that is committed.
                self._position += committed_length(publication, self._position)
            publication.wake_flag.set()
        # A frame may be committed between the two looks: only a driver that was woken sees it.
        self.watch(is_woken=is_woken)

    def watch(self, *, is_woken: bool = False) -> None:
        """Wait for the frame after those that the driver has seen.

        It wakes nobody, and so may be called from within the publication.

        Args:
            is_woken: Whether the driver looks at the publication soon after this call.
        """
        publication = self._watched()
        if publication is None:
            return
        if isinstance(publication, IpcPublication):
            subscribers = publication.subscribers
            if not subscribers.has_waiting:
                return
            # What all have read was committed, and may be overwritten by now.
            self._position = max(self._position, min(subscribers.consumed()))
        else:
            self._position = publication.seen_position
        # Read once: a frame that is committed after this look changes the word.
        length = self._frame_length(publication)
        if not self._is_committed(publication, length):
            self._arm(publication, length)
        elif isinstance(publication, IpcPublication) or not (is_woken or looks_again(publication)):
            # It fires at once: the frame was committed after the sender had looked.
            self._arm(publication, 0)
        # Otherwise the sender says when the frame was sent.

    # Events of the publication.

    def on_window_changed(self) -> None:
        """The sender has sent, or may send: tell the client, and watch what follows."""
        if self._is_worth_a_ring():
            self._bell.ring()
        self.watch()

    def on_publication_error(self, error: PublicationErrorFrame) -> None:
        """Notify the client; one message is for all that hold the publication."""
        publication = self._watched()
        if publication is not None:
            self._proxy.on_publication_error(error, publication.registration_id)

    def on_publication_failed(self, error: Exception) -> None:
        """Notify the clients; one message is for all that hold the publication."""
        publication = self._publication
        if publication is not None:
            self._proxy.on_publication_failed(error, publication)
        self.end()

    def _is_worth_a_ring(self) -> bool:
        """Return whether a client that sleeps should look now, and not a burst later.

        While the sender sends on, the limit rises with each burst, and to wake a client for so
        little room costs more than it offers. The last burst always rings.
        """
        publication = self._publication
        if not isinstance(publication, NetworkPublication):
            return True
        limit, is_connected = publication.publisher_limit, publication.is_connected
        step = publication.params.publication_window_length >> WINDOW_SHIFT
        is_little = is_connected == self._was_connected and 0 <= limit - self._rung_limit < step
        if publication.is_sending and is_little:
            return False
        self._rung_limit, self._was_connected = limit, is_connected
        return True

    # The watched word.

    def _arm(self, publication: SubscribablePublication, expected: int) -> None:
        """Wait until the length of the frame at the position is not `expected`."""
        log = publication.log
        index, offset = log.place_of(self._position)
        at = index * log.term_length + offset
        if at != self._word_at or self._word is None:
            if self._word is not None:
                self._word.remove()
            self._word = self._watcher.add(log.memory, at, 32, self.act)
            self._word_at = at
        self._word.arm(expected)

    def _has_frame(self, publication: SubscribablePublication) -> bool:
        """Return whether a frame is committed at the position."""
        return self._is_committed(publication, self._frame_length(publication))

    def _frame_length(self, publication: SubscribablePublication) -> int:
        """Return what the log says now at the position, in bytes."""
        log = publication.log
        index, offset = log.place_of(self._position)
        return log.term_words[index][offset >> 2]

    def _is_committed(self, publication: SubscribablePublication, length: int) -> bool:
        """Return whether a length at the position is that of a committed frame.

        Beyond the producers' position there may be a length of long ago.
        """
        return length > 0 and self._position < publication.producer_position

    def _watched(self) -> SubscribablePublication | None:
        """Return the publication, if this is the oldest of the holds that watch it."""
        publication = self._publication
        if publication is None or publication.log.is_closed:
            return None
        return publication if oldest_watch(publication) is self else None


def looks_again(publication: SubscribablePublication) -> bool:
    """Return whether the sender waits for its receivers, or sends more in its next turn.

    Where spies replace the receivers, it waits for nobody, and its limit is always its position.
    """
    return isinstance(publication, NetworkPublication) and (
        publication.is_sending
        or (publication.has_receivers and publication.sender_position >= publication.sender_limit)
    )


def oldest_watch(publication: SubscribablePublication) -> PublicationWatch | None:
    """Return the oldest hold by a client in another process that has begun and not ended."""
    for listener in publication.window_listeners:
        if isinstance(listener, PublicationWatch) and listener.has_begun:
            return listener
    return None


def committed_length(publication: SubscribablePublication, position: int) -> int:
    """Return how many bytes are committed from a position on, within its term."""
    log = publication.log
    index, offset = log.place_of(position)
    rest = min(log.term_length - offset, publication.producer_position - position)
    available, padding = scan_for_send(log.terms[index], log.term_words[index], offset, limit=rest)
    return available + padding


class ReaderWatch:
    """The position of one reader in another process, in one stream.

    Args:
        ready: The image that the reader was given.
        values: The values of all counters.
        watcher: Looks at them.
    """

    def __init__(self, ready: ImageReady, values: Buffer, watcher: WordWatcher) -> None:
        self._ready = ready
        self._word = watcher.add(values, ready.position.id * VALUE_LENGTH, 64, self.act)
        self._told_position = -1
        self._step = reading_step(ready.log)
        self.watch()

    def act(self) -> None:
        """Let the stream go on if the reader is far enough, and wait until it is further."""
        if self._is_over():
            return
        ready = self._ready
        position = ready.position.get()
        if position > ready.port.consumption_trigger and position != self._told_position:
            self._told_position = position
            ready.wake_flag.set()
        self.watch()

    def watch(self) -> None:
        """Wait until the reader is so far that its stream may go on.

        It wakes nobody, and so may be called from within the stream.
        """
        if self._is_over():
            # The stream waits for this reader no more.
            return
        ready = self._ready
        position, trigger = ready.position.get(), ready.port.consumption_trigger
        if isinstance(ready.position, CheckedPosition):
            position, stored = ready.position.read()
            if stored > max(position, trigger):
                # No honest reader wrote this value: wait for another one.
                self._word.arm(stored)
                return
        if trigger < position == self._told_position:
            trigger = position + self._step
        self._word.arm_at_least(trigger + 1)

    def _is_over(self) -> bool:
        """Return whether the counter of the position was freed."""
        return self._ready.position.is_closed

    def end(self) -> None:
        """Stop looking at the position, whose counter may be freed."""
        self._word.remove()


def reading_step(log: LogBuffers) -> int:
    """Return after how many bytes a reader is looked at that has been seen beyond the trigger.

    The windows are read once: a client that has changed them slows down this stream alone.
    """
    step = log.term_length >> TELLING_SHIFT
    window_length = log.metadata.publication_window_length or log.metadata.receiver_window_length
    if window_length <= 0:
        return step
    return max(FRAME_ALIGNMENT, min(step, window_length >> WINDOW_SHIFT))


class SubscriptionWatch:
    """One subscription of a client in another process, which reads by itself.

    Images that come before the subscription is answered are announced after the answer.

    Args:
        registration_id: The id of the subscription.
        written_channel: The channel as the client wrote it.
        stream_id: Within the channel.
        proxy: Writes to the clients.
        values: The values of all counters.
        watcher: Looks at them.
        bell: Wakes the client if it is asleep.
    """

    is_polling: Final = True
    deliver: Final = None
    is_expecting: bool = False

    def __init__(
        self,
        registration_id: int,
        *,
        written_channel: str,
        stream_id: int,
        proxy: ClientProxy,
        values: Buffer,
        watcher: WordWatcher,
        bell: ClientBell,
    ) -> None:
        self._bell = bell
        self._registration_id = registration_id
        self.written_channel: Final = written_channel
        self._stream_id = stream_id
        self._proxy = proxy
        self._values = values
        self._watcher = watcher
        self._is_answered = False
        self._held: list[ImageReady] = []
        self._readers: dict[int, ReaderWatch] = {}

    def begin(self) -> None:
        """Announce the images that came before the answer, and from now on each at once."""
        self._is_answered = True
        for ready in self._held:
            self._proxy.on_available_image(self._registration_id, ready)
        self._held.clear()

    def end(self) -> None:
        """Stop looking at the positions of the images."""
        for reader in self._readers.values():
            reader.end()
        self._readers.clear()

    def has_image(self, image_id: int) -> bool:
        """Return whether the subscription has an image."""
        return image_id in self._readers

    def look(self) -> None:
        """Let the streams go on whose readers are far enough."""
        for reader in tuple(self._readers.values()):
            reader.act()

    # Events of the subscription.

    def on_available_image(self, ready: ImageReady) -> None:
        """Announce an image, and watch how far it is read.

        Raises:
            RegistrationError: The watcher has no word left for it.
        """
        self._end_reader(ready.image_id)
        try:
            self._readers[ready.image_id] = ReaderWatch(ready, self._values, self._watcher)
        except ConfigurationError as error:
            raise no_word_left(error) from None
        self._bell.on_change()
        if self._is_answered:
            self._proxy.on_available_image(self._registration_id, ready)
        else:
            self._held.append(ready)

    def on_image_progress(self) -> None:
        """Tell the client, which sees by itself what has arrived; watch what it does next."""
        self._bell.ring()
        for reader in self._readers.values():
            reader.watch()

    def on_unavailable_image(self, image_id: int, end: ImageEnd | None = None) -> None:
        """Take an image from the client."""
        del end
        self._end_reader(image_id)
        if not self._is_answered:
            self._held = [each for each in self._held if each.image_id != image_id]
            return
        self._proxy.on_unavailable_image(
            self._registration_id,
            image_id,
            stream_id=self._stream_id,
            channel=self.written_channel,
        )

    def on_unanswered(self, reason: str | None) -> None:
        """Do nothing: clients of other processes have no such event."""

    def _end_reader(self, image_id: int) -> None:
        reader = self._readers.pop(image_id, None)
        if reader is not None:
            reader.end()
            self._bell.on_change()
