"""Streams of a driver in another process: the publications and the images of a client.

The other side wakes nobody. A publication therefore watches its limit and its connection, and an
image the length of the frame that its reader waits for.

Source: Aeron `Publication`, `Image`, `ClientConductor.onNewPublication`, `onAvailableImage`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from aeron_async.concurrent.atomic_buffer import acquire_fence
from aeron_async.counters import VALUE_LENGTH, Counter
from aeron_async.driver.commands import ImageReady, PublicationReady
from aeron_async.driver.core.stream_counters import LocalAddressType, StreamCounterType
from aeron_async.logbuffer.metadata import END_OF_STREAM_OFFSET, IS_CONNECTED_OFFSET
from aeron_async.logbuffer.scanner import scan_for_send
from aeron_async.logbuffer.wake_flag import WakeFlag
from aeron_async.protocol.channel_uri import Media
from aeron_async.protocol.control_protocol import text_of
from aeron_async.protocol.units import INT64_MAX
from aeron_async.waits import PublicationSeen

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.counters import CountersReader
    from aeron_async.driver.commands import PublicationListener
    from aeron_async.logbuffer.log_buffers import LogBuffers
    from aeron_async.protocol.channel_uri import ChannelUri
    from aeron_async.protocol.control_protocol import ImageBuffersReady, PublicationBuffersReady
    from aeron_async.watcher import WatchedWord, Watcher

__all__ = ["AttachedImage", "AttachedPublication", "CounterCell", "local_address"]

NO_COUNTER: Final = -1
SCAN_LENGTH: Final = 256 * 1024
"""Most bytes looked through at once for what is committed."""
ADDRESS_LENGTH_AT: Final = 4
ADDRESS_AT: Final = 8


class CounterCell:
    """A counter of the driver, as this client reads or writes it.

    Attributes:
        counter: Its value; closed by `close`, which leaves the driver's counter as it is.
        address: Where its value is among the values of all counters, in bytes.
    """

    def __init__(self, counters: CountersReader, memory: memoryview, counter_id: int) -> None:
        self._counters = counters
        self.address: Final = counter_id * VALUE_LENGTH
        self.counter: Final = Counter.mapped(
            counters, counter_id, memory[self.address : self.address + 8].cast("q")
        )

    @classmethod
    def of(cls, counters: CountersReader, memory: memoryview, counter_id: int) -> Self | None:
        """Return a counter that the driver has named; None for none.

        Raises:
            IndexError: There is no such counter.
        """
        if counter_id == NO_COUNTER:
            return None
        counters.state(counter_id)
        return cls(counters, memory, counter_id)

    def is_of(self, registration_id: int) -> bool:
        """Return whether the counter still belongs to a registration."""
        return self._counters.record(self.counter.id).registration_id == registration_id

    def close(self) -> None:
        """Stop using the memory."""
        self.counter.invalidate()


def local_address(counters: CountersReader, channel_status_id: int) -> str:
    """Return the bound address of an endpoint, as `host:port`; empty if the driver shows none."""
    if channel_status_id == NO_COUNTER:
        return ""
    type_id = LocalAddressType.SEND.type_id
    for record in counters:
        key = record.key
        if record.type_id == type_id and int.from_bytes(key[:4], "little") == channel_status_id:
            length = int.from_bytes(key[ADDRESS_LENGTH_AT:ADDRESS_AT], "little")
            return key[ADDRESS_AT : ADDRESS_AT + length].decode("utf-8", "replace")
    return ""


class AttachedPublication:
    """A publication of this client, in a driver of another process.

    Args:
        answer: What the driver said when it was added.
        uri: The channel as asked for.
        log: Its log.
        is_exclusive: Whether no other request shares it.
        listener: Called when an offer may find room.
        counters: The driver's counters.
        memory: Their values.
        watcher: Looks at the words that the driver writes.

    Attributes:
        ready: What the client is given.
        listener: As given.
    """

    def __init__(
        self,
        answer: PublicationBuffersReady,
        *,
        uri: ChannelUri,
        log: LogBuffers,
        is_exclusive: bool,
        listener: PublicationListener,
        counters: CountersReader,
        memory: memoryview,
        watcher: Watcher,
    ) -> None:
        self.listener: Final = listener
        self._log = log
        limit = CounterCell(counters, memory, answer.publisher_limit_id)
        status = CounterCell.of(counters, memory, answer.channel_status_id)
        sent = CounterCell.of(counters, memory, position_counter(counters, answer, uri)) or limit
        self._cells = [limit, *(each for each in (status, sent) if each is not None)]
        self.ready: Final = PublicationReady(
            registration_id=answer.correlation_id,
            original_registration_id=answer.registration_id,
            uri=uri,
            session_id=answer.session_id,
            stream_id=answer.stream_id,
            log=log,
            publisher_limit=limit.counter,
            channel_status=None if status is None else status.counter,
            local_address=local_address(counters, answer.channel_status_id),
            sender_position=sent.counter,
            is_exclusive=is_exclusive,
            # The driver looks at the log by itself.
            wake_flag=WakeFlag(),
            slowest_receiver=lambda: None,
            seen=PublicationSeen,
        )
        self._limit_word: WatchedWord = watcher.add(memory, limit.address, 64, self._on_limit)
        self._connected_word: WatchedWord = watcher.add(
            log.memory, log.metadata_offset + IS_CONNECTED_OFFSET, 32, self._on_connected
        )
        self._sent_word: WatchedWord = watcher.add(memory, sent.address, 64, self._on_sent)
        self._limit_word.arm(limit.counter.get())
        self._sent_word.arm(sent.counter.get())
        self._connected_word.arm(log.metadata.is_connected)

    def _on_limit(self) -> None:
        self._limit_word.arm(self.ready.publisher_limit.get())
        self.listener.on_window_changed()

    def _on_sent(self) -> None:
        self._sent_word.arm(self.ready.sender_position.get())
        self.listener.on_window_changed()

    def _on_connected(self) -> None:
        self._connected_word.arm(self._log.metadata.is_connected)
        self.listener.on_window_changed()

    def close(self) -> None:
        """Stop using the memory."""
        for word in (self._limit_word, self._connected_word, self._sent_word):
            word.remove()
        for cell in self._cells:
            cell.close()


def position_counter(
    counters: CountersReader, answer: PublicationBuffersReady, uri: ChannelUri
) -> int:
    """Return the id of the counter that shows how far a stream was sent; -1 if there is none."""
    kind = (
        StreamCounterType.PUBLISHER_POSITION_CONCURRENT
        if uri.media is Media.IPC
        else StreamCounterType.SENDER_POSITION
    )
    found = counters.find(type_id=kind.type_id, registration_id=answer.registration_id)
    return NO_COUNTER if found is None else found.counter_id


class AttachedImage:
    """An image of a subscription of this client, in a driver of another process.

    Args:
        answer: What the driver said when it became available.
        log: Its log.
        counters: The driver's counters.
        memory: Their values.
        watcher: Looks at the log.
        on_progress: Wakes the reader.

    Attributes:
        ready: What the subscription is given.
        log: As given.
        position: Up to where the reader has taken the stream.
        left_count: Always 0: a driver in another process does not say it.
    """

    left_count: Final = 0
    consumption_trigger: Final = INT64_MAX
    """The driver looks at the position by itself."""

    def __init__(
        self,
        answer: ImageBuffersReady,
        *,
        log: LogBuffers,
        counters: CountersReader,
        memory: memoryview,
        watcher: Watcher,
        on_progress: Callable[[], object],
    ) -> None:
        self.log: Final = log
        self._watcher = watcher
        self._on_progress = on_progress
        self._cell = CounterCell(counters, memory, answer.subscriber_position_id)
        self.position: Final = self._cell.counter
        join_position = self.position.get()
        self._committed = join_position
        self._word: WatchedWord | None = None
        self._word_at = -1
        self._end_word: WatchedWord = watcher.add(
            log.memory, log.metadata_offset + END_OF_STREAM_OFFSET, 64, self._on_end
        )
        self._end_word.arm(log.metadata.end_of_stream_position)
        self.ready: Final = ImageReady(
            image_id=answer.image_id,
            session_id=answer.session_id,
            stream_id=answer.stream_id,
            log=log,
            join_position=join_position,
            position=self.position,
            source_identity=text_of(answer.source_identity),
            port=self,
            hold=self,
            wake_flag=WakeFlag(),
        )

    @property
    def rebuild_position(self) -> int:
        """Return the position, in bytes, up to which frames are committed without a gap."""
        log = self.log
        index, offset = log.place_of(self._committed)
        if log.term_words[index][offset >> 2] > 0:
            acquire_fence()
            available, padding = scan_for_send(
                log.terms[index],
                log.term_words[index],
                offset,
                limit=min(SCAN_LENGTH, log.term_length - offset),
            )
            self._committed += available + padding
        return self._committed

    def arm(self) -> bool:
        """Watch for the next frame; return whether it is there already."""
        log = self.log
        before = self._committed
        if self.rebuild_position != before:
            return True
        index, offset = log.place_of(before)
        at = index * log.term_length + offset
        if self._word is None or at != self._word_at:
            if self._word is not None:
                self._word.remove()
            self._word = self._watcher.add(log.memory, at, 32, self._on_frame)
            self._word_at = at
        self._word.disarm()
        self._word.arm(min(log.term_words[index][offset >> 2], 0))
        return False

    def _on_frame(self) -> None:
        index, offset = self.log.place_of(self._committed)
        length = self.log.term_words[index][offset >> 2]
        if length < 0 and self._word is not None:
            # Claimed, and not committed yet.
            self._word.arm(length)
            return
        self._on_progress()

    def _on_end(self) -> None:
        self._end_word.arm(self.log.metadata.end_of_stream_position)
        self._on_progress()

    def close(self) -> None:
        """Stop using the memory."""
        if self._word is not None:
            self._word.remove()
        self._end_word.remove()
        self._cell.close()
