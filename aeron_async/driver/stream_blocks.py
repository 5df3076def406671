"""Streams in blocks, of which statistics are taken column by column.

What does not change of a stream is looked up when its block is made: its names, the places of its
counters, and the objects that hold its numbers. To take a block then is a few walks over these, in
compiled code where there is any: no object is made for a stream. What was taken holds values only,
and no stream, so that a snapshot keeps no log in memory.

Most streams have one receiver or reader and one client in this loop. The others are taken one by
one, in smaller blocks.

This module reads private attributes of objects on the data path, as `sightings` does. It changes
nothing, and costs nothing while nobody asks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from heapq import nsmallest
from itertools import chain, count
from operator import add, attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar

import attrs

from aeron_async._speedups import WHY_PURE
from aeron_async.counters import VALUE_LENGTH
from aeron_async.driver.core.network_publication import NetworkPublication
from aeron_async.driver.core.rare_changes import RARE_CHANGES
from aeron_async.driver.core.udp_channel import format_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from aeron_async.driver.core.ipc_publication import IpcPublication
    from aeron_async.driver.core.losses import Arrivals
    from aeron_async.driver.core.publication_image import PublicationImage
    from aeron_async.driver.publication_table import PublicationEntry
    from aeron_async.driver.subscribers import SubscriptionLink

__all__ = [
    "BLOCK",
    "MAX_RECEIVERS_SHOWN",
    "ImageBlock",
    "ImagesTaken",
    "KnownStream",
    "LinkBlock",
    "PublicationBlock",
    "PublicationsTaken",
    "Roster",
    "StreamBlock",
    "SubscriptionsTaken",
]

BLOCK: Final = 256
"""Most simple streams of a block."""
SLOW: Final = 8
"""How much longer it takes to take a stream on its own, or for the first time."""
MAX_RECEIVERS_SHOWN: Final = 256
"""Most receivers and readers of one publication in a snapshot: those furthest behind."""
VALUE_WORDS: Final = VALUE_LENGTH // 8
NO_READERS: Final = array("q")

numbers: Final = count()


# Walks over many objects, which have compiled twins.


def fields_of(objects: Sequence[Any], name: str) -> list[Any]:
    """Return one attribute of each object."""
    return list(map(attrgetter(name), objects))


def values_at(words: memoryview, places: array[int]) -> bytes:
    """Return some of many words of 64 bits, one after the other.

    Raises:
        IndexError: A place is not in the words.
    """
    return array("q", map(words.__getitem__, places)).tobytes()


def firsts_of(mappings: Sequence[dict[Any, Any]]) -> tuple[list[Any], list[Any]]:
    """Return the first key of each dictionary, and its value.

    Raises:
        ValueError: A dictionary is empty.
    """
    keys, values = [], []
    for each in mappings:
        for key, value in each.items():
            keys.append(key)
            values.append(value)
            break
        else:
            message = "a dictionary is empty"
            raise ValueError(message)
    return keys, values


def entries_of(mappings: Sequence[dict[Any, Any]], keys: Sequence[Any]) -> list[Any]:
    """Return what each dictionary has for its key; None where it has nothing."""
    return [each.get(key) for each, key in zip(mappings, keys, strict=True)]


def intake_of(images: Sequence[PublicationImage]) -> tuple[bytes, bytes]:
    """Return when a datagram last came for each image, and how many status messages it has sent.

    Both are words of 64 bits.
    """
    sent = [each._feedback.sent_count for each in images]  # noqa: SLF001 - see the head
    columns = fields_of(images, "last_packet_ns"), sent
    last_packets_ns, sent_counts = [array("q", each).tobytes() for each in columns]
    return last_packets_ns, sent_counts


def oldest_of(
    positions: array[int], consumed: array[int], arrivals: Sequence[Arrivals]
) -> list[int]:
    """Return when the oldest byte came that the reader of each image lacks, 0 if it lacks none.

    Args:
        positions: Up to where all has arrived.
        consumed: Up to where the reader has consumed.
        arrivals: What knows when it came.
    """
    return [
        0 if slowest >= position else arrived.arrived_ns(slowest)
        for position, slowest, arrived in zip(positions, consumed, arrivals, strict=True)
    ]


if not TYPE_CHECKING and WHY_PURE is None:
    from aeron_async._speedups.walks import (
        entries_of,
        fields_of,
        firsts_of,
        intake_of,
        oldest_of,
        values_at,
    )


# What was taken.


class KnownStream(NamedTuple):
    """What does not change of a stream or a subscription.

    `start` is where an image has joined; `words` are the places of its counters' values.
    """

    registration_id: int
    channel: str
    stream_id: int
    session_id: int = 0
    source: str = ""
    is_exclusive: bool = False
    start: int = 0
    words: tuple[int, ...] = ()


def words() -> array[int]:
    """Return no words of 64 bits."""
    return array("q")


@attrs.define(eq=False)
class StreamsTaken:
    """What was taken of streams: a value for each, and for each of their readers.

    Attributes:
        numbers: The blocks that were taken, in order; no two blocks have the same number.
        known: What does not change.
        times_ns: When each stream was taken.
        reader_counts: How many readers in this driver each stream has.
        reader_ids: Their registration ids, stream by stream.
        reader_positions: Up to where they have consumed.
    """

    numbers: list[int] = attrs.field(factory=list)
    known: list[KnownStream] = attrs.field(factory=list)
    times_ns: list[int] = attrs.field(factory=list)
    states: list[Any] = attrs.field(factory=list)
    positions: array[int] = attrs.field(factory=words)
    reader_counts: list[int] = attrs.field(factory=list)
    reader_ids: list[int] = attrs.field(factory=list)
    reader_positions: array[int] = attrs.field(factory=words)

    def __len__(self) -> int:
        return len(self.known)


@attrs.define(eq=False)
class PublicationsTaken(StreamsTaken):
    """What was taken of publications, those of the network first.

    Attributes:
        network_count: How many are of the network: some lists have a value for each of these only.
        receiver_counts: How many receivers each of the network has; `seen_counts` has those that
            are shown, and readers in this driver.
        seen_reports: Position and window of each that is shown, the window of a reader is None.
        blocked_ns: How long offers were held back before, by what; None if others offer as well.
        blocked_by: What holds an offer back now, since `since_ns`; -1 for nothing.
    """

    network_count: int = 0
    connected: list[bool] = attrs.field(factory=list)
    limits: array[int] = attrs.field(factory=words)
    sender_positions: array[int] = attrs.field(factory=words)
    sender_limits: array[int] = attrs.field(factory=words)
    back_pressure_counts: array[int] = attrs.field(factory=words)
    nak_counts: array[int] = attrs.field(factory=words)
    resend_counts: list[int] = attrs.field(factory=list)
    resent_bytes: list[int] = attrs.field(factory=list)
    receiver_counts: list[int] = attrs.field(factory=list)
    message_counts: list[int | None] = attrs.field(factory=list)
    blocked_ns: list[tuple[int, ...] | None] = attrs.field(factory=list)
    blocked_by: list[int] = attrs.field(factory=list)
    since_ns: list[int] = attrs.field(factory=list)
    seen_counts: list[int] = attrs.field(factory=list)
    seen_kinds: list[str] = attrs.field(factory=list)
    seen_ids: list[int] = attrs.field(factory=list)
    seen_sources: list[Any] = attrs.field(factory=list)
    seen_reports: list[tuple[int, int | None]] = attrs.field(factory=list)
    seen_heard_ns: list[int | None] = attrs.field(factory=list)


@attrs.define(eq=False)
class ImagesTaken(StreamsTaken):
    """What was taken of images.

    Attributes:
        losses: Cause, count and bytes of the losses of those that had any, by place.
        oldest_ns: When the oldest byte came that a reader lacks; 0 if none does, None without one.
    """

    hwm_positions: array[int] = attrs.field(factory=words)
    nak_counts: array[int] = attrs.field(factory=words)
    ended: list[bool] = attrs.field(factory=list)
    window_lengths: list[int] = attrs.field(factory=list)
    status_message_counts: array[int] = attrs.field(factory=words)
    last_packets_ns: array[int] = attrs.field(factory=words)
    losses: dict[int, tuple[tuple[str, int, int], ...]] = attrs.field(factory=dict)
    oldest_ns: list[int | None] = attrs.field(factory=list)


@attrs.define(eq=False)
class SubscriptionsTaken:
    """What was taken of subscriptions; see `StreamsTaken`."""

    numbers: list[int] = attrs.field(factory=list)
    known: list[KnownStream] = attrs.field(factory=list)
    message_counts: list[int | None] = attrs.field(factory=list)

    def __len__(self) -> int:
        return len(self.known)


# Blocks.

Stream = TypeVar("Stream")
Taken = TypeVar("Taken")


class StreamBlock(ABC, Generic[Taken]):
    """Some streams of one kind.

    What does not change of them is looked up when they are first taken.

    Attributes:
        number: No other block has it.
        is_whole: Whether all of them are still there, as far as its roster knows; a roster that has
            other blocks for them tells this one nothing more.
    """

    def __init__(self, streams: Sequence[Any]) -> None:
        self.number: Final = next(numbers)
        self.streams: Final = tuple(streams)
        self.is_whole = True
        self._is_looked_up = self._is_simple = False
        self._rare_number = -1

    def take(self, taken: Taken, now_ns: int, values: memoryview) -> None:
        """Take what changes, and add it to what was taken of other streams.

        Args:
            taken: What was taken so far.
            now_ns: The time.
            values: The values of all counters.
        """
        if not self._is_looked_up:
            self._look_up()
            self._is_looked_up = True
        number = RARE_CHANGES.number
        if number != self._rare_number:
            self._look_at_rare()
            self._rare_number = number
        self._take(taken, now_ns, values)

    @property
    def weight(self) -> int:
        """Return how long it takes to take them: as long as so many simple streams, about."""
        count = len(self.streams)
        return count if self._is_simple else count * SLOW

    @abstractmethod
    def _look_up(self) -> None:
        """Look up what does not change."""

    @abstractmethod
    def _take(self, taken: Taken, now_ns: int, values: memoryview) -> None:
        """Take what changes, and see whether none of them had to be taken on its own."""

    @abstractmethod
    def _look_at_rare(self) -> None:
        """Look at what changes rarely; see `rare_changes`."""


class Readers:
    """The readers in this driver of the streams of one block.

    Attributes:
        counts: How many each stream has.
        ids: Their registration ids.
        left_counts: Which streams have gone on without an untethered reader, and how often.
    """

    __slots__ = ("_places", "_subscribers", "counts", "ids", "left_counts")

    def __init__(self, streams: Sequence[Any]) -> None:
        self._subscribers = [each.subscribers for each in streams]
        self._places = words()
        self.counts: list[int] = []
        self.ids: list[int] = []
        self.left_counts: list[tuple[int, int]] = []

    def look(self) -> None:
        """Look up who reads."""
        active = fields_of(self._subscribers, "active")
        untethered = fields_of(self._subscribers, "untethered")
        readers = list(chain.from_iterable(active))
        self.counts = list(map(len, active))
        self.ids = fields_of(readers, "subscription_id")
        counters = fields_of(readers, "position")
        self._places = array("q", [each.id * VALUE_WORDS for each in counters])
        self.left_counts.clear()
        if any(untethered):
            left_counts = [sum(each.left_count for each in some) for some in untethered]
            self.left_counts = [(index, each) for index, each in enumerate(left_counts) if each]

    def take(self, taken: StreamsTaken, values: memoryview) -> array[int]:
        """Add the readers of each stream, and return their positions."""
        taken.reader_counts += self.counts
        if not self.ids:
            return NO_READERS
        positions = array("q", values_at(values, self._places))
        taken.reader_ids += self.ids
        taken.reader_positions.extend(positions)
        return positions

    @property
    def are_single(self) -> bool:
        """Whether each stream has one, or none has any."""
        return self.counts.count(1) == len(self.counts) or not self.ids


class ClientOffers:
    """What clients in this loop say of their offers on the publications of one block.

    Attributes:
        is_plain: Whether each publication has one client, which is in this loop, and had no other.
    """

    __slots__ = ("_appenders", "_entries", "_lines", "_writers", "is_plain")

    def __init__(self, entries: list[PublicationEntry]) -> None:
        self._entries = entries
        self.is_plain = False
        self._lines: list[Any] = []
        self._appenders: list[Any] = []
        self._writers: list[Any] = []

    def look(self) -> None:
        """Look up the clients."""
        self.is_plain = False
        if any(len(each.links) != 1 for each in self._entries):
            return
        clients: list[Any] = [each.links[0].listener for each in self._entries]
        lines = [getattr(each, "offers", None) for each in clients]
        if None in lines or not all(each.gone.is_nothing for each in self._entries):
            return
        appenders: list[Any] = [each.appender for each in clients]
        writers = [] if None in appenders else [each.writer for each in appenders]
        # In pure Python no appender has a writer.
        if None in appenders or (None in writers and any(writers)):
            return
        self.is_plain = True
        self._lines, self._appenders = lines, appenders
        self._writers = [] if None in writers else writers

    def take(self, taken: PublicationsTaken, now_ns: int) -> list[int]:
        """Add what is known; return which publications may have been offered to elsewhere."""
        if self.is_plain:
            counts = fields_of(self._appenders, "_own_count")
            if self._writers:
                counts = list(map(add, counts, fields_of(self._writers, "message_count")))
            taken.message_counts += counts
            taken.blocked_ns += fields_of(self._lines, "blocked_ns")
            taken.blocked_by += fields_of(self._lines, "blocked_by")
            taken.since_ns += fields_of(self._lines, "since_blocked_ns")
            return []
        foreign = []
        for index, entry in enumerate(self._entries):
            message_count, blocked_ns, by = offers_of(entry, now_ns)
            taken.message_counts.append(message_count)
            taken.blocked_ns.append(blocked_ns)
            taken.blocked_by.append(by)
            taken.since_ns.append(now_ns)
            if message_count is None:
                foreign.append(index)
        return foreign


class PublicationBlock(StreamBlock[PublicationsTaken]):
    """Some publications, all of the network or all IPC.

    Args:
        streams: The publications.
        entries: The clients of each.
        known: Returns what does not change of one.
    """

    def __init__(
        self,
        streams: Sequence[NetworkPublication] | Sequence[IpcPublication],
        entries: Mapping[Any, PublicationEntry],
        known: Callable[[Any], KnownStream],
    ) -> None:
        super().__init__(streams)
        self._entries = entries
        self._known_of = known
        self._is_network = isinstance(streams[0], NetworkPublication)
        self._reports: list[dict[int, tuple[int, int]]] = []

    def _look_up(self) -> None:
        streams: Any = self.streams
        self._known = list(map(self._known_of, streams))
        self._places = places_of(self._known)
        self._readers = Readers(streams)
        self._offers = ClientOffers([self._entries[each] for each in streams])
        if self._is_network:
            receivers = [each._receivers for each in streams]  # noqa: SLF001 - see the head
            self._handlers = [each._retransmit_handler for each in streams]  # noqa: SLF001 - see the head
            self._reports = [each.reports for each in receivers]
            self._heard_ns = [each._last_heard_ns for each in receivers]  # noqa: SLF001 - see the head
            self._sources = [each._sources for each in receivers]  # noqa: SLF001 - see the head

    def _look_at_rare(self) -> None:
        streams = self.streams
        self._states = fields_of(streams, "state")
        self._connected = fields_of(streams, "is_connected")
        self._readers.look()
        self._offers.look()
        self._ids: list[int] = []

    def _take(self, taken: PublicationsTaken, now_ns: int, values: memoryview) -> None:
        streams = self.streams
        taken.numbers.append(self.number)
        taken.known += self._known
        taken.times_ns += [now_ns] * len(streams)
        taken.states += self._states
        taken.connected += self._connected
        foreign = self._offers.take(taken, now_ns)
        positions = array("q", values_at(values, self._places[0]))
        for index in foreign:
            # A client elsewhere does not wake the driver for what it publishes, so the counter may
            # be old; the log is not.
            positions[index] = max(positions[index], streams[index].producer_position)
        taken.positions.extend(positions)
        taken.limits.frombytes(values_at(values, self._places[1]))
        if self._is_network:
            taken.network_count += len(streams)
            _, _, at, limit, back_pressure, naks = self._places
            taken.sender_positions.frombytes(values_at(values, at))
            taken.sender_limits.frombytes(values_at(values, limit))
            taken.back_pressure_counts.frombytes(values_at(values, back_pressure))
            nak_counts = array("q", values_at(values, naks))
            taken.nak_counts.extend(nak_counts)
            # Only a NAK makes a publication resend.
            taken.resend_counts += nak_counts
            taken.resent_bytes += nak_counts
            if any(nak_counts):
                for place, each in enumerate(
                    self._handlers, len(taken.resent_bytes) - len(streams)
                ):
                    taken.resend_counts[place] = each.resend_count
                    taken.resent_bytes[place] = each.resent_length
        is_single = self._take_seen(taken, self._readers.take(taken, values))
        self._is_simple = is_single and self._offers.is_plain

    def _take_seen(self, taken: PublicationsTaken, positions: array[int]) -> bool:
        """Add who reads, here or elsewhere; return whether each has one receiver at most."""
        counts = list(map(len, self._reports))
        taken.receiver_counts += counts
        if not self._is_network or positions or max(counts) > 1:
            self._take_seen_of_each(taken, positions)
            return False
        reports, heard_ns = self._reports, self._heard_ns
        if 0 in counts:
            # Nothing else is known of a receiver without a report.
            heard_ns = [each for each, is_one in zip(heard_ns, counts, strict=True) if is_one]
            reports = list(filter(None, reports))
        ids, seen = firsts_of(reports)
        if ids != self._ids or not ids:
            sources = [each for each, is_one in zip(self._sources, counts, strict=True) if is_one]
            self._ids, self._found_sources = ids, entries_of(sources, ids)
        taken.seen_counts += counts
        taken.seen_kinds += ["receiver"] * len(ids)
        taken.seen_ids += ids
        taken.seen_reports += seen
        taken.seen_heard_ns += entries_of(heard_ns, ids)
        taken.seen_sources += self._found_sources
        return True

    def _take_seen_of_each(self, taken: PublicationsTaken, positions: array[int]) -> None:
        """Add receivers and readers, of each kind the one furthest behind first."""
        at = 0
        reader_counts = self._readers.counts if positions else [0] * len(self.streams)
        for index, reader_count in enumerate(reader_counts):
            before = len(taken.seen_ids)
            if self._is_network:
                self._take_receivers(taken, index)
            room = MAX_RECEIVERS_SHOWN - (len(taken.seen_ids) - before)
            ids = self._readers.ids[at : at + reader_count]
            readers = sorted(zip(positions[at : at + reader_count], ids, strict=True), key=first)
            at += reader_count
            for position, registration_id in readers[:room]:
                taken.seen_kinds.append("spy" if self._is_network else "ipc")
                taken.seen_ids.append(registration_id)
                taken.seen_reports.append((position, None))
                taken.seen_heard_ns.append(None)
                taken.seen_sources.append(None)
            taken.seen_counts.append(len(taken.seen_ids) - before)

    def _take_receivers(self, taken: PublicationsTaken, index: int) -> None:
        """Add the receivers of one publication."""
        # Ids come off the wire: peers decide how many there are.
        slowest = nsmallest(MAX_RECEIVERS_SHOWN, self._reports[index].items(), key=position_in)
        ids = [each for each, _ in slowest]
        taken.seen_kinds += ["receiver"] * len(ids)
        taken.seen_ids += ids
        taken.seen_reports += [report for _, report in slowest]
        taken.seen_heard_ns += map(self._heard_ns[index].get, ids)
        taken.seen_sources += map(self._sources[index].get, ids)


class ImageBlock(StreamBlock[ImagesTaken]):
    """Some images.

    Args:
        streams: The images.
        known: Returns what does not change of one.
    """

    def __init__(
        self,
        streams: Sequence[PublicationImage],
        known: Callable[[PublicationImage], KnownStream],
    ) -> None:
        super().__init__(streams)
        self._known_of = known

    def _look_up(self) -> None:
        streams = self.streams
        self._known = list(map(self._known_of, streams))
        self._places = places_of(self._known)
        self._readers = Readers(streams)
        self._lives = [each.life for each in streams]
        self._feedback = [each._feedback for each in streams]  # noqa: SLF001 - see the head
        self._losses = [each.losses for each in streams]
        self._arrivals = [each.arrivals for each in streams]

    def _look_at_rare(self) -> None:
        streams = self.streams
        self._states = fields_of(self._lives, "state")
        self._ended = fields_of(streams, "is_end_of_stream")
        self._window_lengths = fields_of(self._feedback, "window_length")
        counts = fields_of(self._losses, "_counts")
        self._with_losses = [index for index, each in enumerate(counts) if each]
        self._readers.look()
        self._is_simple = self._readers.are_single

    def _take(self, taken: ImagesTaken, now_ns: int, values: memoryview) -> None:
        streams, before = self.streams, len(taken)
        taken.numbers.append(self.number)
        taken.known += self._known
        taken.times_ns += [now_ns] * len(streams)
        taken.states += self._states
        taken.ended += self._ended
        taken.window_lengths += self._window_lengths
        last_packets_ns, sent = intake_of(streams)
        taken.last_packets_ns.frombytes(last_packets_ns)
        taken.status_message_counts.frombytes(sent)
        at, hwm, naks = self._places
        positions = array("q", values_at(values, at))
        taken.positions.extend(positions)
        taken.hwm_positions.frombytes(values_at(values, hwm))
        taken.nak_counts.frombytes(values_at(values, naks))
        consumed = self._readers.take(taken, values)
        if self._readers.counts.count(1) == len(streams):
            taken.oldest_ns += oldest_of(positions, consumed, self._arrivals)
        else:
            self._take_oldest_of_each(taken, positions, consumed)
        for index in self._with_losses:
            taken.losses[before + index] = self._losses[index].by_cause()
        for index, left_count in self._readers.left_counts:
            losses = taken.losses.get(before + index, ())
            taken.losses[before + index] = (*losses, ("left_behind", left_count, 0))

    def _take_oldest_of_each(
        self, taken: ImagesTaken, positions: array[int], consumed: array[int]
    ) -> None:
        """Add since when the oldest byte has been there that the slowest reader lacks."""
        slowest = slowest_of_each(self._readers.counts, consumed)
        for arrivals, slow, position in zip(self._arrivals, slowest, positions, strict=True):
            is_behind = slow is not None and slow < position
            taken.oldest_ns.append(arrivals.arrived_ns(slow) if is_behind else slow and 0)


class LinkBlock(StreamBlock[SubscriptionsTaken]):
    """Some subscriptions.

    Args:
        streams: The subscriptions.
        known: Returns what does not change of one.
    """

    def __init__(
        self,
        streams: Sequence[SubscriptionLink],
        known: Callable[[SubscriptionLink], KnownStream],
    ) -> None:
        super().__init__(streams)
        self._known_of = known

    def _look_up(self) -> None:
        self._known = list(map(self._known_of, self.streams))
        # None if the client is elsewhere.
        self._clients = [
            each.listener if hasattr(each.listener, "count_messages") else None
            for each in self.streams
        ]
        self._readings: list[Any] = [each.reading for each in self._clients if each is not None]

    def _look_at_rare(self) -> None:
        self._is_simple = True

    def _take(self, taken: SubscriptionsTaken, _now_ns: int, _values: memoryview) -> None:
        taken.numbers.append(self.number)
        taken.known += self._known
        counts: list[int | None] = []
        if self._readings:
            counts = next(filter(None, self._clients)).count_messages(self._readings)
        if len(counts) < len(self._clients):
            known = iter(counts)
            counts = [None if each is None else next(known) for each in self._clients]
        taken.message_counts += counts


class Roster(Generic[Stream, Taken]):
    """The streams of one kind, in blocks.

    Args:
        make: Returns a block of some streams.
    """

    def __init__(self, make: Callable[[Sequence[Stream]], StreamBlock[Taken]]) -> None:
        self._make = make
        self._block_of: dict[Stream, StreamBlock[Taken]] = {}
        self.is_stale = False
        self.blocks: list[StreamBlock[Taken]] = []

    def __len__(self) -> int:
        return len(self._block_of)

    def forget(self, stream: Stream) -> None:
        """Keep nothing of a stream that is removed; the others of its block are looked up again."""
        block = self._block_of.get(stream)
        if block is None:
            return
        block.is_whole = False
        self.blocks.remove(block)
        for each in block.streams:
            del self._block_of[each]
        self.is_stale = True

    def block_of(self, streams: Sequence[Stream]) -> StreamBlock[Taken]:
        """Return a block of some streams, which is not kept."""
        return self._make(streams)

    def renew(self, streams: Sequence[Stream]) -> None:
        """Make blocks of streams that are in none.

        Args:
            streams: All that are there, in order.
        """
        blocks: list[StreamBlock[Taken]] = []
        fresh: list[Stream] = []
        at = 0
        while at < len(streams):
            block = self._block_of.get(streams[at])
            if block is None or block.streams != tuple(streams[at : at + len(block.streams)]):
                fresh.append(streams[at])
                at += 1
                continue
            blocks += self._blocks_of(fresh)
            fresh = []
            blocks.append(block)
            at += len(block.streams)
        self._keep([*blocks, *self._blocks_of(fresh)])

    def halve(self) -> None:
        """Halve blocks that take too long in one turn of the loop."""
        halved: list[StreamBlock[Taken]] = []
        waiting = self.blocks[::-1]
        while waiting:
            block = waiting.pop()
            middle = len(block.streams) // 2
            if block.weight > BLOCK and middle:
                waiting.append(self._make(block.streams[middle:]))
                waiting.append(self._make(block.streams[:middle]))
            else:
                halved.append(block)
        if len(halved) != len(self.blocks):
            self._keep(halved)

    def join(self) -> None:
        """Join small blocks, each of which costs as much as some dozens of streams."""
        joined: list[list[StreamBlock[Taken]]] = []
        room = 0
        for block in self.blocks:
            is_simple = block.weight == len(block.streams)
            if is_simple and joined and block.weight <= room:
                joined[-1].append(block)
                room -= block.weight
            else:
                joined.append([block])
                room = BLOCK - block.weight if is_simple else 0
        if len(joined) != len(self.blocks):
            self._keep(
                [blocks[0] if len(blocks) == 1 else self._whole(blocks) for blocks in joined]
            )

    def _whole(self, blocks: list[StreamBlock[Taken]]) -> StreamBlock[Taken]:
        return self._make([stream for each in blocks for stream in each.streams])

    def _keep(self, blocks: list[StreamBlock[Taken]]) -> None:
        # Who takes them in slices may have those from before in hand.
        for each in set(self.blocks).difference(blocks):
            each.is_whole = False
        self.blocks = blocks
        self._block_of = {stream: block for block in blocks for stream in block.streams}
        self.is_stale = False

    def _blocks_of(self, streams: list[Stream]) -> Iterator[StreamBlock[Taken]]:
        for start in range(0, len(streams), BLOCK):
            yield self._make(streams[start : start + BLOCK])


# What does not change.


def known_publication(publication: NetworkPublication | IpcPublication) -> KnownStream:
    """Return what does not change of a publication."""
    used = [publication.counters.publisher_position, publication.counters.publisher_limit]
    if isinstance(publication, NetworkPublication):
        counters = publication.counters
        used += [
            counters.sender_position,
            counters.sender_limit,
            counters.back_pressure_events,
            counters.naks_received,
        ]
    return KnownStream(
        registration_id=publication.registration_id,
        channel=publication.channel,
        stream_id=publication.stream_id,
        session_id=publication.session_id,
        is_exclusive=publication.params.is_exclusive,
        words=tuple(each.id * VALUE_WORDS for each in used),
    )


def known_image(image: PublicationImage, channel: str) -> KnownStream:
    """Return what does not change of an image."""
    counters = image.counters
    used = counters.receiver_position, counters.receiver_hwm, counters.naks_sent
    return KnownStream(
        registration_id=image.registration_id,
        channel=channel,
        stream_id=image.stream_id,
        session_id=image.session_id,
        source=format_address(image.source),
        start=image._join_position,  # noqa: SLF001 - see the head
        words=tuple(each.id * VALUE_WORDS for each in used),
    )


def places_of(known: list[KnownStream]) -> list[array[int]]:
    """Return the places of the first counter of each stream, of the second, and so on."""
    return [array("q", each) for each in zip(*[stream.words for stream in known], strict=True)]


# One by one.

first: Final = itemgetter(0)


def position_in(item: tuple[int, tuple[int, int]]) -> int:
    """Return the position that a receiver has reported."""
    return item[1][0]


def slowest_of_each(counts: Sequence[int], positions: Sequence[int]) -> Iterator[int | None]:
    """Yield the position of the slowest reader of each stream; None for one without a reader."""
    at = 0
    for each in counts:
        yield min(positions[at : at + each]) if each else None
        at += each


def offers_of(
    entry: PublicationEntry, now_ns: int
) -> tuple[int | None, tuple[int, ...] | None, int]:
    """Return the count of messages, how long offers were held back, and by what one is now.

    Waits that last are included. Count and times are None if a client elsewhere offers, or has:
    nobody knows its. What those said that hold the publication no more is added.
    """
    gone = entry.gone
    is_known, message_count = not gone.has_others, gone.message_count
    waited_ns, blocked_by = list(gone.blocked_ns), -1
    for link in entry.links:
        client: Any = link.listener
        line: OfferTimes | None = getattr(client, "offers", None)
        if line is None:
            is_known = False
            continue
        message_count += 0 if client.appender is None else client.appender.message_count
        waited_ns = list(map(add, waited_ns, line.blocked_ns))
        if line.blocked_by >= 0:
            blocked_by = line.blocked_by
            waited_ns[blocked_by] += max(0, now_ns - line.since_blocked_ns)
    return (message_count, tuple(waited_ns), blocked_by) if is_known else (None, None, blocked_by)


class OfferTimes(Protocol):
    """What a client in this loop says of the offers that wait; see `OfferWaiters`."""

    blocked_ns: tuple[int, ...]
    blocked_by: int
    since_blocked_ns: int
