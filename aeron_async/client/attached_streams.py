"""Streams of a driver in another process: the publications and the images of a client.

The other side wakes no client. A publication therefore watches its limit and its connection, and an
image the length of the frame that its reader waits for.

Source: Aeron `Publication`, `Image`, `ClientConductor.onNewPublication`, `onAvailableImage`.
"""

from __future__ import annotations

import ipaddress
import os
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import attrs

from aeron_async.aeron_directory import open_plain
from aeron_async.concurrent.atomic_buffer import Mapping
from aeron_async.counters import (
    LOCAL_ADDRESS_TYPE_ID,
    PUBLISHER_POSITION_TYPE_ID,
    SENDER_POSITION_TYPE_ID,
    SUBSCRIPTION_POSITION_TYPE_ID,
    VALUE_LENGTH,
    Counter,
)
from aeron_async.driver.commands import (
    AddedCounter,
    ImageReady,
    PublicationErrorFrame,
    PublicationReady,
    SubscriptionReady,
)
from aeron_async.errors import DriverError, ErrorCode, ProtocolError
from aeron_async.logbuffer.frame import TYPE_SHIFT
from aeron_async.logbuffer.log_buffers import LogBuffers, producer_position
from aeron_async.logbuffer.metadata import END_OF_STREAM_OFFSET, IS_CONNECTED_OFFSET
from aeron_async.logbuffer.scanner import scan_for_send
from aeron_async.logbuffer.wake_flag import WakeFlag
from aeron_async.protocol.channel_uri import ControlMode, Media
from aeron_async.protocol.control_protocol import NO_COUNTER, NO_ID, AddressType, text_of
from aeron_async.protocol.header import FRAME_ALIGNMENT, align_frame
from aeron_async.protocol.units import INT64_MAX
from aeron_async.text import printable
from aeron_async.waits import ImageSeen, PublicationSeen, SubscriptionSeen
from aeron_async.watcher import SPINNING_WORDS_MAX, BellFlag

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

    from aeron_async.client.attachment import Attachment
    from aeron_async.counters import CountersReader
    from aeron_async.doorbell import ClientBells
    from aeron_async.driver.commands import PublicationUser, SubscriptionUser
    from aeron_async.protocol.channel_uri import ChannelUri
    from aeron_async.protocol.control_protocol import (
        ImageBuffersReady,
        PublicationBuffersReady,
        PublicationErrorResponse,
        SubscriptionReadyResponse,
    )
    from aeron_async.watcher import Spinner, WatchedWord, Watcher

__all__ = [
    "AttachedCounter",
    "AttachedImage",
    "AttachedPublication",
    "AttachedSubscription",
    "AwayIds",
    "CounterCell",
    "Destination",
    "MappedLogs",
    "local_address",
    "source_of",
]

SCAN_LENGTH: Final = 256 * 1024
"""Most bytes looked through at once for what is committed."""
RING_LENGTH_MIN: Final = 64
RING_LENGTH_MAX: Final = 512 * 1024
ADDRESS_LENGTH_AT: Final = 4
ADDRESS_AT: Final = 8
IPV4_LENGTH: Final = 4
KEY_ID_LENGTH: Final = 8
"""The key of a counter of a stream begins with the id of what it belongs to."""


class MappedLogs:
    """The logs that this process has mapped, each once, however many use it.

    Args:
        directory: The driver's directory; no log is outside it.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory.resolve()
        self._logs: dict[str, tuple[LogBuffers, int]] = {}

    def map(self, name: bytes) -> LogBuffers | None:
        """Return the log in a file that the driver has named; None if the file is gone.

        Raises:
            ProtocolError: The file is not in the driver's directory, or no plain file.
            DriverError: This user may not open it, or it holds no log.
            OSError: The system gives no descriptor or no memory for it now.
        """
        # As the driver has encoded it, which may be no UTF-8.
        path = os.fsdecode(name)
        found = self._logs.get(path)
        if found is None:
            try:
                mapped = self._open(path)
            except (FileNotFoundError, NotADirectoryError):
                return None
            except (DriverError, ProtocolError):
                raise
            except ValueError as error:
                message = f"the log {path!r} cannot be used: {error}"
                raise DriverError(message) from error
            found = mapped, 0
        mapped, count = found
        self._logs[path] = mapped, count + 1
        return mapped

    def _open(self, path: str) -> LogBuffers:
        if self._directory not in Path(path).resolve().parents:
            message = f"the media driver names a log outside {self._directory}: {path!r}"
            raise ProtocolError(message)
        fd = open_plain(Path(path), is_writable=True)
        try:
            mapping = Mapping(fd, os.fstat(fd).st_size)
        finally:
            os.close(fd)
        try:
            return LogBuffers.map(mapping, owned=mapping, file=path)
        except BaseException:
            mapping.close()
            raise

    def release(self, log: LogBuffers) -> None:
        """Unmap a log that nothing else uses; a view that is left keeps its memory."""
        _, count = self._logs[log.file]
        if count > 1:
            self._logs[log.file] = log, count - 1
        else:
            del self._logs[log.file]
            log.close()


class CounterCell:
    """A counter of the driver, as this client reads or writes it.

    Args:
        counters: The driver's counters.
        memory: Their values.
        counter_id: As the driver has named it.

    Attributes:
        counter: Its value; closed by `close`, which leaves the driver's counter as it is.
        address: Where its value is among the values of all counters, in bytes.

    Raises:
        ProtocolError: There is no such counter.
    """

    def __init__(self, counters: CountersReader, memory: memoryview, counter_id: int) -> None:
        if not 0 <= counter_id < counters.limit:
            message = f"the media driver names counter {counter_id}, and has {counters.limit}"
            raise ProtocolError(message)
        self._counters = counters
        self.address: Final = counter_id * VALUE_LENGTH
        self.counter: Final = Counter.mapped(
            counters, counter_id, memory[self.address : self.address + 8].cast("q")
        )

    @classmethod
    def of(cls, counters: CountersReader, memory: memoryview, counter_id: int) -> Self | None:
        """Return a counter that the driver has named; None for none.

        Raises:
            ProtocolError: There is no such counter.
        """
        return None if counter_id == NO_COUNTER else cls(counters, memory, counter_id)

    def is_of(self, registration_id: int) -> bool:
        """Return whether the counter still belongs to a registration."""
        return self._counters.record(self.counter.id).registration_id == registration_id

    def is_position_of(self, subscription_id: int) -> bool:
        """Return whether the counter is the position of a subscription in some image."""
        key = self._counters.record(self.counter.id).key
        return (
            self._counters.is_allocated(self.counter.id, SUBSCRIPTION_POSITION_TYPE_ID)
            # Old drivers say it in the key alone.
            and int.from_bytes(key[:KEY_ID_LENGTH], "little", signed=True) == subscription_id
        )

    def close(self) -> None:
        """Stop using the memory."""
        self.counter.invalidate()


def local_address(counters: CountersReader, channel_status_id: int) -> str:
    """Return the bound address of an endpoint, as `host:port`; empty if the driver shows none."""
    if channel_status_id == NO_COUNTER:
        return ""
    for counter_id in counters.ids_of(LOCAL_ADDRESS_TYPE_ID):
        key = counters.record(counter_id).key
        if int.from_bytes(key[:ADDRESS_LENGTH_AT], "little") == channel_status_id:
            length = int.from_bytes(key[ADDRESS_LENGTH_AT:ADDRESS_AT], "little")
            # The key has 112 bytes, whatever length another process has written into it.
            return printable(key[ADDRESS_AT : ADDRESS_AT + length].decode("utf-8", "replace"))
    return ""


class WordWatch:
    """A `MemoryWatch` of some words of memory.

    It outlives the memory: after `close`, words of other memory may be added for the same tasks.

    Args:
        on_changed: Called when one of them has changed while a task waits.
    """

    def __init__(self, on_changed: Callable[[], object]) -> None:
        self._on_changed = on_changed
        self._words: list[tuple[WatchedWord, Callable[[], int]]] = []
        self._waiter_count = 0

    def add(
        self,
        watcher: Watcher,
        memory: memoryview,
        offset: int,
        width: int,
        read: Callable[[], int],
    ) -> None:
        """Add a word, which the watcher looks at while a task waits; `read` returns its value."""
        word = watcher.add(memory, offset, width, lambda: self._on_word(word, read))
        self._words.append((word, read))
        if self._waiter_count:
            word.arm(read())

    def begin(self) -> None:
        """Look for one more task; see `MemoryWatch`."""
        self._waiter_count += 1
        if self._waiter_count == 1:
            for word, read in self._words:
                word.arm(read())

    def end(self) -> None:
        """Look no more for one of the tasks."""
        self._waiter_count -= 1
        if not self._waiter_count:
            for word, _ in self._words:
                word.disarm()

    def _on_word(self, word: WatchedWord, read: Callable[[], int]) -> None:
        # Before the call, whose tasks check what they wait for: no store is missed in between.
        word.arm(read())
        self._on_changed()

    def close(self) -> None:
        """Look no more."""
        for word, _ in self._words:
            word.remove()
        self._words.clear()


class AttachedPublication:
    """A publication of this client, in a driver of another process.

    Args:
        uri: The channel as asked for.
        stream_id: The stream.
        is_exclusive: Whether no other request shares it.
        listener: Called when an offer may find room.
        order: Which of the things that the client has added it is.
        directory: Aeron directory of the driver.

    Attributes:
        answers: The subscription of this client whose id the channel names, for its responses.
        destinations: Those that were added, by their ids; all requests for one publication share
            them.
        is_attached: Whether the driver has it.
        ready: What the client is given.
    """

    ready: PublicationReady

    def __init__(
        self,
        uri: ChannelUri,
        stream_id: int,
        *,
        is_exclusive: bool,
        listener: PublicationUser,
        order: int,
        directory: str,
    ) -> None:
        self.uri: Final = uri
        self.stream_id: Final = stream_id
        self.is_exclusive: Final = is_exclusive
        self.listener: Final = listener
        self.order: Final = order
        self._directory: Final = directory
        self.answers: AttachedSubscription | None = None
        self.destinations: dict[int, Destination] = {}
        self.is_attached: bool = False
        self._wake_flag = WakeFlag()
        self._cells: list[CounterCell] = []
        self._window_watch: Final = WordWatch(listener.on_window_changed)
        self._sent_watch: Final = WordWatch(listener.on_window_changed)

    def open(
        self,
        answer: PublicationBuffersReady,
        *,
        log: LogBuffers,
        counters: CountersReader,
        memory: memoryview,
        watcher: Watcher,
        bells: ClientBells,
    ) -> None:
        """Use what the driver has created.

        Args:
            answer: What the driver said when it was added.
            log: Its log.
            counters: The driver's counters.
            memory: Their values.
            watcher: Looks at the words that the driver writes.
            bells: Wakes those that wait for what is appended.

        Raises:
            ProtocolError: The driver names counters that it does not have.
        """
        limit = CounterCell(counters, memory, answer.publisher_limit_id)
        status = CounterCell.of(counters, memory, answer.channel_status_id)
        sent = CounterCell.of(counters, memory, position_counter(counters, answer, self.uri))
        sent = sent or limit
        self._cells = [limit, *(each for each in (status, sent) if each is not None)]
        connection = log.metadata_offset + IS_CONNECTED_OFFSET
        window, sending = self._window_watch, self._sent_watch
        window.add(watcher, memory, limit.address, 64, limit.counter.get)
        window.add(watcher, log.memory, connection, 32, lambda: log.metadata.is_connected)
        sending.add(watcher, memory, sent.address, 64, sent.counter.get)
        flag = self._wake_flag = bells.flag(
            answer.registration_id, is_sent=self.uri.media is not Media.IPC
        )
        self.ready = PublicationReady(
            registration_id=answer.correlation_id,
            original_registration_id=answer.registration_id,
            uri=self.uri,
            session_id=answer.session_id,
            stream_id=answer.stream_id,
            log=log,
            publisher_limit=limit.counter,
            channel_status=None if status is None else status.counter,
            local_address=local_address(counters, answer.channel_status_id),
            sender_position=sent.counter,
            is_exclusive=self.is_exclusive,
            wake_flag=flag,
            slowest_receiver=lambda: None,
            seen=self._seen,
            window_watch=window,
            sent_watch=sending,
        )
        self.is_attached = True

    def on_error(self, event: PublicationErrorResponse) -> None:
        """Pass on why a receiver has rejected the stream."""
        driver_id = event.destination_registration_id
        known = (key for key, each in self.destinations.items() if each.driver_id == driver_id)
        destination_id = next(known, driver_id)
        self.listener.on_publication_error(
            PublicationErrorFrame(
                code=event.code,
                message=text_of(event.message),
                session_id=event.session_id,
                stream_id=event.stream_id,
                receiver_id=event.receiver_id,
                group_tag=None if event.group_tag == NO_ID else event.group_tag,
                source_address=source_of(event),
                registration_id=self.ready.registration_id,
                destination_registration_id=None if destination_id == NO_ID else destination_id,
            )
        )

    def _seen(self) -> PublicationSeen:
        """Return what this client knows; the rest is in the other process."""
        is_ipc, sender_position = self.uri.media is Media.IPC, 0
        if self.is_attached:
            # Over IPC nothing is sent: what was offered is there.
            ready = self.ready
            sender_position = (
                producer_position(ready.log) if is_ipc else ready.sender_position.get()
            )
        return PublicationSeen(
            elsewhere=self._directory,
            is_driver_lost=not self.is_attached,
            is_ipc=is_ipc,
            is_manual=self.uri.control_mode is ControlMode.MANUAL,
            sender_position=sender_position,
        )

    def close(self) -> None:
        """Stop using the memory."""
        self.is_attached = False
        self._window_watch.close()
        self._sent_watch.close()
        if isinstance(self._wake_flag, BellFlag):
            self._wake_flag.close()
        for cell in self._cells:
            cell.close()
        self._cells.clear()


def source_of(answer: PublicationErrorResponse) -> str | None:
    """Return the address that a publication error came from, as `host:port`; None for none."""
    if answer.address_type == AddressType.NONE:
        return None
    packed = answer.source_address
    if answer.address_type == AddressType.IPV4:
        return f"{ipaddress.IPv4Address(packed[:IPV4_LENGTH])}:{answer.source_port}"
    return f"[{ipaddress.IPv6Address(packed)}]:{answer.source_port}"


def is_of_driver(answer: PublicationErrorResponse) -> bool:
    """Return whether the driver says it, and no receiver: what those say came from an address."""
    return (
        answer.code == ErrorCode.GENERIC
        and answer.receiver_id == NO_ID
        and answer.address_type == AddressType.NONE
    )


def position_counter(
    counters: CountersReader, answer: PublicationBuffersReady, uri: ChannelUri
) -> int:
    """Return the id of the counter that shows how far a stream was sent; -1 if there is none."""
    type_id = PUBLISHER_POSITION_TYPE_ID if uri.media is Media.IPC else SENDER_POSITION_TYPE_ID
    found = counters.find(type_id=type_id, registration_id=answer.registration_id)
    return NO_COUNTER if found is None else found.counter_id


class AttachedImage:
    """An image of a subscription of this client, in a driver of another process.

    Args:
        answer: What the driver said when it became available.
        log: Its log.
        cell: Its position.
        watcher: Looks at the log.
        bells: Wakes the driver when the reader has made room.
        on_progress: Wakes the reader.
        is_tethered: Whether the stream waits for the reader.

    Attributes:
        ready: What the subscription is given.
        log: As given.
        position: Up to where the reader has taken the stream.
        consumption_trigger: Position, in bytes, beyond which the driver is woken if it is asleep.
        left_count: How often the stream may have continued without the reader.
    """

    def __init__(
        self,
        answer: ImageBuffersReady,
        *,
        log: LogBuffers,
        cell: CounterCell,
        watcher: Watcher,
        bells: ClientBells,
        on_progress: Callable[[], object],
        is_tethered: bool,
    ) -> None:
        self.left_count: int = 0
        self._is_tethered = is_tethered
        self.log: Final = log
        self._watcher = watcher
        self._on_progress = on_progress
        self._cell = cell
        self.position: Final = self._cell.counter
        join_position = self.position.get()
        if join_position < 0 or join_position % FRAME_ALIGNMENT:
            message = f"the media driver lets an image begin at {join_position}, where no frame can"
            raise ProtocolError(message)
        self._bells = bells
        self._wake_flag = WakeFlag()
        self._wake_flag.callback = self._on_consumed
        # A driver without a bell looks at the position by itself.
        self.consumption_trigger: int = INT64_MAX
        if bells.has_driver:
            self.consumption_trigger = join_position + self._ring_length()
        self._known_position = join_position
        self._word: WatchedWord | None = None
        self._word_at = self._armed_position = -1
        self._end_word: WatchedWord = watcher.add(
            log.memory, log.metadata_offset + END_OF_STREAM_OFFSET, 64, self._on_end
        )
        self._end_position = log.metadata.end_of_stream_position
        self.ready: Final = ImageReady(
            image_id=answer.image_id,
            session_id=answer.session_id,
            stream_id=answer.stream_id,
            log=log,
            join_position=join_position,
            position=self.position,
            source_identity=printable(text_of(answer.source_identity)),
            port=self,
            hold=self,
            wake_flag=self._wake_flag,
        )

    def _ring_length(self) -> int:
        """Return how much the reader takes, in bytes, until it rings the driver again.

        It is less than the room that any driver waits for: a part of the least window that a
        stream with such terms may have.
        """
        log = self.log
        metadata = log.metadata
        # An image of a publication within the driver has the window of that. Its limit rises for an
        # eighth of the window, so five eighths are left when the driver is woken. To wake it twice
        # as often costs an eighth of the rate.
        if metadata.publication_window_length:
            length = metadata.publication_window_length // 4
        else:
            # A status message may be due when no datagram fits any more, so this is less.
            length = (metadata.receiver_window_length or log.term_length // 2) // 8
        return max(RING_LENGTH_MIN, min(length, RING_LENGTH_MAX))

    def _on_consumed(self) -> None:
        """Wake the driver, if it is asleep: its stream may go on."""
        self._wake_flag.is_set = False
        self.consumption_trigger = self.position.get() + self._ring_length()
        self._bells.ring_driver()

    def readable_position(self, position: int) -> int:
        """Return the position that the reader must not pass, in bytes; see `ImagePort`.

        The reader finds out itself where the frames end: looking at each frame here, too, would
        cost a twentieth of all that a message costs.
        """
        self._known_position = position
        log = self.log
        index, offset = log.place_of(position)
        words, rest = log.term_words[index], log.term_length - offset
        length = words[offset >> 2]
        is_padding = not words[(offset >> 2) + 1] >> TYPE_SHIFT
        # Another process may have written a length that no frame here has; it may be corrected.
        # Padding ends with the term at the latest, whatever its length says.
        if length <= 0 or (length > rest and not is_padding):
            return position
        return position + min(rest, max(SCAN_LENGTH, align_frame(length)))

    @property
    def unread_length(self) -> int:
        """Return how many bytes are committed that the reader has not taken; changes nothing."""
        taken_position = self.position.get()
        # The driver may have cleaned what was taken.
        return self._committed_position(max(self._known_position, taken_position)) - taken_position

    def _committed_position(self, position: int) -> int:
        """Return up to where frames are committed from a position on."""
        log = self.log
        index, offset = log.place_of(position)
        if log.term_words[index][offset >> 2] <= 0:
            return position
        available, padding = scan_for_send(
            log.terms[index],
            log.term_words[index],
            offset,
            limit=min(SCAN_LENGTH, log.term_length - offset),
        )
        return position + available + padding

    def arm(self) -> bool:
        """Watch for the next frame, or the end; return whether the frame is there already."""
        log = self.log
        if not self._end_word.is_armed:
            # As the reader knows it: what was stored since then fires at once.
            self._end_word.arm(self._end_position)
        before = self._known_position
        index, offset = log.place_of(before)
        length = log.term_words[index][offset >> 2]
        if length > 0:
            # Said once: the image may not have been announced yet, and then nothing reads it.
            self._known_position = self._committed_position(before)
            if self._known_position != before:
                return True
        at = index * log.term_length + offset
        if self._word is None or at != self._word_at:
            if self._word is not None:
                self._word.remove()
            self._word = self._watcher.add(log.memory, at, 32, self._on_frame)
            self._word_at = at
        self._armed_position = before
        # Nothing yet, a claim, or a length that no frame has: wait until it is another one.
        self._word.arm(length)
        return False

    def next_word(self) -> tuple[Buffer, int, int]:
        """Return where the length of the next frame is, in bytes of the log, and what it is."""
        log = self.log
        index, offset = log.place_of(self._known_position)
        return log.memory, index * log.term_length + offset, log.term_words[index][offset >> 2]

    def _on_frame(self) -> None:
        # Another reader of the log may have moved on since: then the frame is there.
        if self._word is not None and self._armed_position == self._known_position:
            index, offset = self.log.place_of(self._known_position)
            length = self.log.term_words[index][offset >> 2]
            if length < 0:
                # Claimed, and not committed yet.
                self._word.arm(length)
                return
        self._on_progress()

    def disarm(self) -> None:
        """Watch no more: no reader waits."""
        if self._word is not None:
            self._word.disarm()
        self._end_word.disarm()

    def on_unavailable(self) -> None:
        """Note that the driver has closed the image; the log is still mapped.

        A driver does not say when it continues without a reader that is not tethered.
        """
        if not self._is_tethered:
            self.left_count = 1

    def _on_end(self) -> None:
        self._end_position = self.log.metadata.end_of_stream_position
        self._on_progress()

    def close(self) -> None:
        """Stop using the memory."""
        # A reader that has not heard of it rings nobody.
        self.consumption_trigger = INT64_MAX
        if self._word is not None:
            self._word.remove()
        self._end_word.remove()
        self._cell.close()


class AttachedSubscription:
    """One subscription of this client, and its images.

    Args:
        uri: The channel as asked for.
        stream_id: The stream.
        listener: Called when its images change.
        order: Which of the things that the client has added it is.
        directory: Aeron directory of the driver.

    Attributes:
        asked_id: Id of the request that the driver has not answered yet; None without one.
        registration_id: Its id, once the driver has answered.
        destinations: Those that were added, by their ids.
        images: By their ids.
        unopened: Images whose logs could not be mapped yet, by their ids.
        is_attached: Whether the driver has it.
        ready: What the client is given, once the driver has answered.
        status: The status of its channel, once the driver has answered; None without one.
    """

    def __init__(
        self,
        uri: ChannelUri,
        stream_id: int,
        *,
        listener: SubscriptionUser,
        order: int,
        directory: str,
    ) -> None:
        self._waiter_count = 0
        self._spinner: Spinner | None = None
        self.asked_id: int | None = None
        self.registration_id: int = NO_ID
        self.uri: Final = uri
        self.stream_id: Final = stream_id
        self.listener: Final = listener
        self.order: Final = order
        self._directory: Final = directory
        self.destinations: Final[dict[int, Destination]] = {}
        self.images: Final[dict[int, AttachedImage]] = {}
        self.unopened: Final[dict[int, ImageBuffersReady]] = {}
        self.is_attached: bool = False
        self.ready: SubscriptionReady | None = None
        self.status: CounterCell | None = None

    def open(self, answer: SubscriptionReadyResponse, attached: Attachment) -> SubscriptionReady:
        """Return what the client is given.

        Args:
            answer: What the driver said when it was added.
            attached: The driver, as the client has attached to it.

        Raises:
            ProtocolError: The driver names a counter that it does not have.
        """
        counters = attached.directory.counters
        status = self.status = CounterCell.of(counters, attached.values, answer.channel_status_id)
        self._spinner = attached.new_spinner()
        self.registration_id, self.asked_id = answer.correlation_id, None
        self.ready = SubscriptionReady(
            registration_id=self.registration_id,
            uri=self.uri,
            stream_id=self.stream_id,
            channel_status=None if status is None else status.counter,
            local_address=local_address(counters, answer.channel_status_id),
            seen=self.seen,
            arm=self.arm,
            disarm=self.disarm,
            check_served=attached.check_served,
        )
        self.is_attached = True
        return self.ready

    def close_status(self) -> None:
        """Stop using the memory of the status."""
        if self.status is not None:
            self.status.close()
            self.status = None

    def arm(self) -> bool:
        """Watch for the next message of each image; return whether there is one already.

        Each of several tasks that wait calls this, and then `disarm`.
        """
        self._waiter_count += 1
        is_there = self._waiter_count == 1 and self._has_spun()
        if not is_there:
            for image in self.images.values():
                is_there |= image.arm()
        if is_there and self._waiter_count > 1:
            # What this task has seen may be for another one, and nothing else would say so.
            self.listener.on_image_progress()
        return is_there

    def _has_spun(self) -> bool:
        """Look at the next frames for a moment, if that is worth it; return whether one came."""
        spinner = self._spinner
        if spinner is None or not 0 < len(self.images) <= SPINNING_WORDS_MAX:
            return False
        if not spinner.begin():
            return False
        words = [image.next_word() for image in self.images.values()]
        # `arm` finds out what it is that is there already.
        return all(length <= 0 for *_, length in words) and spinner.spin(words)

    def disarm(self) -> None:
        """Watch no more, unless another task waits."""
        self._waiter_count -= 1
        if self._waiter_count:
            return
        if self._spinner is not None:
            self._spinner.end()
        for image in self.images.values():
            image.disarm()

    def seen(self) -> SubscriptionSeen:
        """Return what this client knows; the rest is in the other process."""
        return SubscriptionSeen(
            elsewhere=self._directory,
            is_driver_lost=not self.is_attached,
            images=tuple(
                ImageSeen(
                    session_id=each.ready.session_id,
                    source=each.ready.source_identity,
                    unread_length=each.unread_length,
                )
                for each in self.images.values()
            ),
        )


class AwayIds:
    """Ids that no driver gives, and the client only once, for what it takes to the next driver.

    Attributes:
        are_needed: Whether the client ever lost a driver: the next one gives the same ids again.
    """

    def __init__(self) -> None:
        self.are_needed = False
        self._ids = count(-2, -1)

    def next(self) -> int:
        """Return an id."""
        return next(self._ids)


@attrs.define
class Destination:
    """A destination of a publication or a subscription.

    Attributes:
        uri: Its channel.
        driver_id: The id by which the driver knows it; None until it was added again.
    """

    uri: ChannelUri
    driver_id: int | None


@attrs.define(kw_only=True, eq=False)
class AttachedCounter:
    """A counter that this client has added.

    Attributes:
        type_id: Its type.
        key: Its key.
        label: Its label.
        static_registration_id: Identifies a static counter; None for one of the client.
        order: Which of the things that the client has added it is.
        added: What the client is given, once the driver has answered.
        is_attached: Whether the driver has it.
    """

    type_id: int
    key: bytes
    label: str
    static_registration_id: int | None
    order: int
    added: AddedCounter | None = None
    is_attached: bool = False

    def open(self, correlation_id: int, counter: Counter) -> AddedCounter:
        """Return what the client is given."""
        static_id = self.static_registration_id
        self.is_attached = True
        self.added = AddedCounter(
            correlation_id=correlation_id,
            registration_id=correlation_id if static_id is None else static_id,
            is_static=static_id is not None,
            counter=counter,
        )
        return self.added
