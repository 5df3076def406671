"""The statistics of a driver in this event loop: taken now or in slices, made into columns later.

What is taken of the streams is what changes; see `stream_blocks`. A column of the snapshot is made
of that when it is asked for, and a row of columns.

In slices, the loop runs other tasks between some streams and the next; what is taken of one stream
is still of one moment.
"""

from __future__ import annotations

import os
from functools import lru_cache, partial
from importlib.metadata import version as installed_version
from itertools import accumulate, chain, islice, pairwise, repeat
from operator import add, sub
from typing import TYPE_CHECKING, Any, Final, TypeGuard, TypeVar

import attrs

from aeron_async._speedups import WHY_PURE
from aeron_async.driver.core.flow_control.base import format_receiver_id
from aeron_async.driver.core.image_state import ImageState
from aeron_async.driver.core.ipc_publication import IpcPublication
from aeron_async.driver.core.network_publication import NetworkPublication
from aeron_async.driver.core.publication import PublicationState
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.driver.core.udp_channel import format_address
from aeron_async.driver.stream_blocks import (
    BLOCK,
    MAX_RECEIVERS_SHOWN,
    ImageBlock,
    ImagesTaken,
    KnownStream,
    LinkBlock,
    PublicationBlock,
    PublicationsTaken,
    Roster,
    StreamBlock,
    StreamsTaken,
    SubscriptionsTaken,
    fields_of,
    known_image,
    known_publication,
)
from aeron_async.stats import (
    BLOCKED_BY,
    BudgetStats,
    CycleStats,
    DriverStats,
    ImageStats,
    LossStats,
    PublicationStats,
    ReaderStats,
    ReceiverStats,
    SocketStats,
    Stats,
    SubscriptionStats,
    Table,
)
from aeron_async.stats_columns import Columns, Groups
from aeron_async.tasks import Turns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from aeron_async.driver.core.publication import SubscribablePublication
    from aeron_async.driver.core.publication_image import PublicationImage
    from aeron_async.driver.endpoints import SendEndpoints
    from aeron_async.driver.publication_table import PublicationTable
    from aeron_async.driver.resources import DriverResources
    from aeron_async.driver.subscribers import SubscriptionLink
    from aeron_async.driver.subscriptions import Subscriptions

__all__ = ["MAX_RECEIVERS_SHOWN", "StatsTaker"]

MAX_ENDPOINTS: Final = 64
"""Most endpoints whose sockets are looked at: each costs a call to the system."""
LIMITS: Final = (
    DriverCounterId.NAKS_SUPPRESSED,
    DriverCounterId.ELICITED_SETUPS_SUPPRESSED,
    DriverCounterId.PENDING_SETUPS_REFUSED,
    DriverCounterId.IMAGES_REFUSED,
    DriverCounterId.NAKS_WITHHELD,
    DriverCounterId.RTT_REPLIES_SUPPRESSED,
    DriverCounterId.SESSION_STATES_EVICTED,
    DriverCounterId.DESTINATIONS_REFUSED,
    DriverCounterId.FLOW_CONTROL_RECEIVERS_REFUSED,
    DriverCounterId.REFUSALS_WITHHELD,
    DriverCounterId.LOG_LINES_LEFT_OUT,
    DriverCounterId.LATE_PACKETS_DROPPED,
    DriverCounterId.HANDSHAKE_SENDS_WITHHELD,
    DriverCounterId.RESOLUTIONS_REFUSED,
    DriverCounterId.COMMANDS_REFUSED,
    SystemCounterId.RETRANSMIT_OVERFLOW,
)
"""The counters of limits: each moves when one was reached."""
LIMIT_NAMES: Final = tuple(each.name.lower() for each in LIMITS)
AGENTS: Final = ("conductor", "sender", "receiver")

Stream = TypeVar("Stream")
Taken = TypeVar("Taken")


class StatsTaker:
    """Takes the statistics of one driver, in its event loop.

    Args:
        resources: What the driver's parts share.
        table: Its publications.
        subscriptions: Its subscriptions and images.
        senders: The endpoints from which publications send.
        started_ns: When the driver started, by its wall clock.

    Attributes:
        latest: What was last taken in slices, which is kept for the next who asks soon; or None.
    """

    def __init__(
        self,
        resources: DriverResources,
        table: PublicationTable,
        subscriptions: Subscriptions,
        senders: SendEndpoints,
        *,
        started_ns: int,
    ) -> None:
        self._resources = resources
        self._table = table
        self._subscriptions = subscriptions
        self._senders = senders
        self._started_ns = started_ns
        self.latest: Stats | None = None
        entries, images = table.entries, subscriptions.images
        # Until a stream is removed: to write a channel takes longer than everything else. Not by
        # registration id, which clients choose, and may choose once more.
        self._known: dict[Any, KnownStream] = {}
        known = partial(remembered, self._known)
        publication, image = partial(known, known_publication), partial(known, self._known_image)
        self._network: Roster[Any, PublicationsTaken] = Roster(
            lambda streams: PublicationBlock(streams, entries, publication)
        )
        self._ipc: Roster[Any, PublicationsTaken] = Roster(
            lambda streams: PublicationBlock(streams, entries, publication)
        )
        self._images: Roster[PublicationImage, ImagesTaken] = Roster(
            lambda streams: ImageBlock(streams, image)
        )
        self._links: Roster[SubscriptionLink, SubscriptionsTaken] = Roster(
            lambda streams: LinkBlock(streams, partial(known, known_link))
        )
        table.on_removed = self._forget_publication
        images.on_removed = partial(self._forget, self._images)
        subscriptions.on_removed = partial(self._forget, self._links)
        self._fixed = [FixedColumns([], []) for _ in range(3)]
        self._version = installed_version("aeron-async")
        system = resources.system_counters
        self._named = [
            (each.name.lower(), system[each]) for each in (*SystemCounterId, *DriverCounterId)
        ]

    def take(self) -> Stats:
        """Return the statistics of this moment."""
        self._renew()
        published, received, subscribed = PublicationsTaken(), ImagesTaken(), SubscriptionsTaken()
        now_ns = self._resources.clock.now_ns()
        values = self._resources.counters_manager.value_words
        for roster, taken in self._rosters(published, received, subscribed):
            if len(roster.blocks) > 2 * (len(roster) // BLOCK + 1):
                roster.join()
            for block in roster.blocks:
                block.take(taken, now_ns, values)
        return self._stats(published, received, subscribed)

    async def take_in_slices(self) -> Stats:
        """Return the statistics of about now; the loop runs other tasks between some streams."""
        clock = self._resources.clock
        self._renew()
        published, received, subscribed = PublicationsTaken(), ImagesTaken(), SubscriptionsTaken()
        rosters = self._rosters(published, received, subscribed)
        # All blocks of one time: none that is made while the loop turns has a stream of another.
        blocks: list[tuple[Roster[Any, Any], StreamBlock[Any], Any]] = []
        for roster, taken in rosters:
            roster.halve()
            roster.join()
            blocks += [(roster, block, taken) for block in roster.blocks]
        turns = Turns(clock.now_ns)
        for roster, block, taken in blocks:
            whole = block if block.is_whole else self._left_of(roster, block)
            if whole is not None:
                whole.take(taken, clock.now_ns(), self._resources.counters_manager.value_words)
            await turns.step()
        self.latest = self._stats(published, received, subscribed)
        return self.latest

    def _rosters(
        self,
        published: PublicationsTaken,
        received: ImagesTaken,
        subscribed: SubscriptionsTaken,
    ) -> list[tuple[Roster[Any, Any], Any]]:
        """Return what there is, in order, and where what is taken of it goes."""
        return [
            (self._network, published),
            (self._ipc, published),
            (self._images, received),
            (self._links, subscribed),
        ]

    def _renew(self) -> None:
        """Have a block for each stream."""
        entries, images = self._table.entries, self._subscriptions.images.endpoints
        links = self._subscriptions.links
        network, ipc = self._network, self._ipc
        if network.is_stale or ipc.is_stale or len(network) + len(ipc) != len(entries):
            network.renew([each for each in entries if is_over_network(each)])
            ipc.renew([each for each in entries if is_over_ipc(each)])
        if self._images.is_stale or len(self._images) != len(images):
            self._images.renew(list(images))
        if self._links.is_stale or len(self._links) != len(links):
            self._links.renew(links)

    def _left_of(
        self, roster: Roster[Any, Taken], block: StreamBlock[Taken]
    ) -> StreamBlock[Taken] | None:
        """Return a block of those streams of another that are still there; None without one."""
        there = [each for each in block.streams if self._is_there(each)]
        return roster.block_of(there) if there else None

    def _is_there(self, stream: Any) -> bool:
        return (
            stream in self._table.entries
            or stream in self._subscriptions.images.endpoints
            or self._subscriptions.find(stream.registration_id) is stream
        )

    def _forget_publication(self, publication: SubscribablePublication) -> None:
        self._forget(self._network if is_over_network(publication) else self._ipc, publication)

    def _forget(self, roster: Roster[Any, Any], stream: Any) -> None:
        """Keep nothing of a stream that is removed."""
        self._known.pop(stream, None)
        roster.forget(stream)

    def _known_image(self, image: PublicationImage) -> KnownStream:
        endpoint = self._subscriptions.images.endpoints[image]
        return known_image(image, str(endpoint.channel.uri))

    def _stats(
        self,
        published: PublicationsTaken,
        received: ImagesTaken,
        subscribed: SubscriptionsTaken,
    ) -> Stats:
        clock = self._resources.clock
        every: tuple[StreamsTaken | SubscriptionsTaken, ...] = published, received, subscribed
        for place, taken in enumerate(every):
            if self._fixed[place].numbers != taken.numbers:
                self._fixed[place] = FixedColumns(taken.numbers, taken.known)
        publications, images, subscriptions = self._fixed
        return Stats(
            source="driver",
            epoch_ns=clock.epoch_ns(),
            monotonic_ns=clock.now_ns() + clock.stalled_ns,
            publications=Table(
                PublicationStats,
                len(published),
                Columns(PublicationColumns(published, publications), PUBLICATION_COLUMNS),
            ),
            images=Table(
                ImageStats, len(received), Columns(ImageColumns(received, images), IMAGE_COLUMNS)
            ),
            subscriptions=Table(
                SubscriptionStats,
                len(subscribed),
                Columns(
                    SubscriptionColumns(subscribed, subscriptions, published, received),
                    SUBSCRIPTION_COLUMNS,
                ),
            ),
            driver=self._driver(),
        )

    def _driver(self) -> DriverStats:
        counters = {name: counter.get() for name, counter in self._named}
        log = self._resources.clock.stall_log
        return DriverStats(
            pid=os.getpid(),
            started_ns=self._started_ns,
            version=self._version,
            is_pure=WHY_PURE is not None,
            loop_lag_count=counters["loop_lag_count"],
            loop_lag_max_ns=counters["loop_lag_max_ns"],
            loop_lags=() if log is None else tuple(log.lags),
            loop_lag_ns=0 if log is None else log.lag_ns,
            cycles=tuple(
                CycleStats(
                    agent,
                    counters[f"{agent}_max_cycle_time"],
                    counters[f"{agent}_cycle_time_threshold_exceeded"],
                )
                for agent in AGENTS
            ),
            budgets=self._budgets(),
            sockets=tuple(
                SocketStats(each.local_address, *each.receive_state())
                for endpoint in islice(
                    chain(self._subscriptions.endpoints, self._senders), MAX_ENDPOINTS
                )
                for each in endpoint.sockets
            ),
            counters=counters,
            limits={name: counters[name] for name in LIMIT_NAMES if counters[name]},
        )

    def _budgets(self) -> tuple[BudgetStats, ...]:
        context, manager = self._resources.context, self._resources.counters_manager
        return (
            BudgetStats(
                "image_log_bytes",
                self._subscriptions.images.log_length,
                context.image_log_budget_length,
            ),
            BudgetStats("counters_count", manager.allocated_count, manager.limit),
        )


def is_over_network(publication: SubscribablePublication) -> TypeGuard[NetworkPublication]:
    """Return whether a publication sends over the network."""
    return isinstance(publication, NetworkPublication)


def is_over_ipc(publication: SubscribablePublication) -> TypeGuard[IpcPublication]:
    """Return whether a publication is read in shared memory."""
    return isinstance(publication, IpcPublication)


def known_link(link: SubscriptionLink) -> KnownStream:
    """Return what does not change of a subscription."""
    return KnownStream(link.registration_id, link.channel, link.stream_id)


def remembered(
    known: dict[Any, KnownStream], look_up: Callable[[Any], KnownStream], stream: Any
) -> KnownStream:
    """Return what does not change of a stream, which is looked up once."""
    found = known.get(stream)
    if found is None:
        found = known[stream] = look_up(stream)
    return found


# Columns.

receiver_name: Final = lru_cache(4096)(format_receiver_id)
address_name: Final = lru_cache(4096)(format_address)
PUBLICATION_STATES: Final = {each.value: each.name.lower() for each in PublicationState}
IMAGE_STATES: Final = {each.value: each.name.lower() for each in ImageState}


class FixedColumns:
    """Columns of what does not change: the same objects as long as the streams are the same."""

    __slots__ = ("_columns", "_known", "numbers")

    def __init__(self, numbers: list[int], known: list[KnownStream]) -> None:
        self.numbers: Final = numbers
        self._known = known
        self._columns: tuple[tuple[Any, ...], ...] | None = None

    def __getitem__(self, name: str) -> tuple[Any, ...]:
        if self._columns is None:
            # Without a stream there is no column either.
            empty: tuple[tuple[Any, ...], ...] = ((),) * len(KnownStream._fields)
            self._columns = tuple(zip(*self._known, strict=True)) or empty
        return self._columns[KnownStream._fields.index(name)]


def fixed(name: str) -> Maker:
    """Return what makes a column of what does not change."""
    return lambda streams, _: streams.fixed[name]


def as_taken(name: str) -> Maker:
    """Return what makes a column of what was taken as it is shown."""
    return lambda streams, _: listed(getattr(streams.taken, name))


def of_network(name: str, otherwise: int | None) -> Maker:
    """Return what makes a column of what only publications of the network have."""
    return lambda streams, _: [
        *listed(getattr(streams.taken, name)),
        *repeat(otherwise, len(streams.taken) - streams.taken.network_count),
    ]


def blocked_for(by: int) -> Maker:
    """Return what makes a column of how long offers were held back by one thing."""
    return lambda streams, _: streams.blocked_ns(by)


def listed(values: Any) -> list[Any]:
    """Return values as a list."""
    return values if isinstance(values, list) else list(values)


def texts_of(names: Mapping[int, str], taken: StreamsTaken) -> list[str]:
    """Return the states of streams as texts."""
    return list(map(names.__getitem__, fields_of(taken.states, "_value_")))


def differences(greater: Iterable[int], smaller: Iterable[int]) -> list[int]:
    """Return how much greater the ones are than the others; 0 if they are not."""
    return [
        most - least if most > least else 0 for most, least in zip(greater, smaller, strict=True)
    ]


def starts_of(counts: Iterable[int]) -> list[int]:
    """Return where each of some groups starts, and where the last one ends."""
    return list(accumulate(counts, initial=0))


def repeated(values: Sequence[Any], counts: Sequence[int]) -> Sequence[Any]:
    """Return each value as often as its count says."""
    if counts.count(1) == len(counts):
        return values
    return list(chain.from_iterable(map(repeat, values, counts)))


def reader_lags(taken: StreamsTaken) -> list[int]:
    """Return how far each reader in this driver is behind its stream."""
    return differences(repeated(taken.positions, taken.reader_counts), taken.reader_positions)


def slowest_lags(taken: StreamsTaken) -> list[int]:
    """Return how far the reader furthest behind is behind each stream; 0 without one."""
    lags = reader_lags(taken)
    if taken.reader_counts.count(1) == len(taken.reader_counts):
        return lags
    return [
        max(lags[start:end], default=0) for start, end in pairwise(starts_of(taken.reader_counts))
    ]


@attrs.frozen(eq=False)
class PublicationColumns:
    """What was taken of publications, and what does not change of them."""

    taken: PublicationsTaken
    fixed: FixedColumns

    def backlog_bytes(self, columns: Columns) -> list[int]:
        """Return what was published and not sent; of IPC what was not consumed."""
        taken, count = self.taken, self.taken.network_count
        backlog = differences(columns["position"][:count], taken.sender_positions)
        return backlog if count == len(taken) else backlog + slowest_lags(taken)[count:]

    def blocked_ns(self, by: int) -> list[int | None]:
        """Return how long offers were held back by one thing, a wait that lasts included."""
        taken = self.taken
        before = [None if each is None else each[by] for each in taken.blocked_ns]
        if by in taken.blocked_by:
            for index, waits_for in enumerate(taken.blocked_by):
                known = before[index]
                if waits_for == by and known is not None:
                    lasts_ns = max(0, taken.times_ns[index] - taken.since_ns[index])
                    before[index] = known + lasts_ns
        return before

    def receiver_count(self, _: Columns) -> list[int]:
        """Return how many receivers and readers there are, those that are not shown included."""
        taken = self.taken
        network = taken.receiver_counts + [0] * (len(taken) - taken.network_count)
        return list(map(add, network, taken.reader_counts))

    def receivers(self, _: Columns) -> Groups[ReceiverStats]:
        """Return who reads."""
        taken = self.taken
        rows = Table(ReceiverStats, len(taken.seen_ids), Columns(taken, RECEIVER_COLUMNS))
        return Groups(rows, starts_of(taken.seen_counts))


def receiver_lags(taken: PublicationsTaken, columns: Columns) -> list[int]:
    """Return how far each is behind what was sent or, in this driver, published."""
    sent = [*taken.sender_positions, *taken.positions[taken.network_count :]]
    ends = repeated(sent, taken.seen_counts)
    lags = differences(ends, columns["position"])
    if taken.reader_ids:
        published = repeated(taken.positions, taken.seen_counts)
        for index, kind in enumerate(taken.seen_kinds):
            if kind != "receiver":
                lags[index] = max(0, published[index] - columns["position"][index])
    return lags


def receiver_silences(taken: PublicationsTaken, _: Columns) -> list[int | None]:
    """Return since when each was not heard; None of a reader in this driver."""
    times_ns = repeated(taken.times_ns, taken.seen_counts)
    kinds = taken.seen_kinds
    return [
        now_ns - (heard_ns or 0) if kind == "receiver" else None
        for now_ns, heard_ns, kind in zip(times_ns, taken.seen_heard_ns, kinds, strict=True)
    ]


@attrs.frozen(eq=False)
class ImageColumns:
    """What was taken of images, and what does not change of them."""

    taken: ImagesTaken
    fixed: FixedColumns

    def lag_ns(self, _: Columns) -> list[int | None]:
        """Return how long the oldest byte has been there; 0 if there is none to be consumed."""
        taken = self.taken
        if not any(taken.oldest_ns):
            return taken.oldest_ns
        return [
            oldest_ns and max(0, now_ns - oldest_ns)
            for oldest_ns, now_ns in zip(taken.oldest_ns, taken.times_ns, strict=True)
        ]

    def losses(self, _: Columns) -> Groups[LossStats]:
        """Return what was lost."""
        lost, count = self.taken.losses, len(self.taken)
        rows = [each for row in sorted(lost) for each in lost[row]]
        table = Table(LossStats, len(rows), lambda: list(zip(*rows, strict=True)) or [()] * 3)
        starts = [0] * (count + 1)
        if rows:
            starts = starts_of(len(lost.get(row, ())) for row in range(count))
        return Groups(table, starts)

    def readers(self, _: Columns) -> Groups[ReaderStats]:
        """Return the subscriptions that read it."""
        taken = self.taken
        rows = Table(ReaderStats, len(taken.reader_ids), Columns(taken, READER_COLUMNS))
        return Groups(rows, starts_of(taken.reader_counts))


@attrs.define(eq=False)
class SubscriptionColumns:
    """What was taken of subscriptions, and of the streams that they read."""

    taken: SubscriptionsTaken
    fixed: FixedColumns
    published: PublicationsTaken
    received: ImagesTaken
    _reading: list[Sequence[int | None]] | None = None

    def reading(self, place: int, columns: Columns) -> Sequence[int | None]:
        """Return how many streams each reads, or how far it is behind: bytes, or nanoseconds."""
        if self._reading is None:
            self._reading = self._read(columns["registration_id"])
        return self._reading[place]

    def _read(self, registration_ids: Sequence[int]) -> list[Sequence[int | None]]:
        published, received = self.published, self.received
        ids = published.reader_ids + received.reader_ids
        before, behind = reader_lags(published), reader_lags(received)
        oldest = repeated(received.oldest_ns, received.reader_counts)
        times = repeated(received.times_ns, received.reader_counts)
        # A publication does not know when what its readers in this driver read was published.
        lags, lags_ns = before + behind, [None if each else 0 for each in before]
        lags_ns += [
            (oldest_ns and max(0, now_ns - oldest_ns)) if lag else 0
            for lag, oldest_ns, now_ns in zip(behind, oldest, times, strict=True)
        ]
        places: Any = dict(zip(ids, range(len(ids)), strict=True))
        if len(places) == len(ids):
            # Most subscriptions read one stream.
            own = list(map(places.get, registration_ids))
            return [
                [0 if each is None else 1 for each in own],
                [0 if each is None else lags[each] for each in own],
                [None if each is None else lags_ns[each] for each in own],
            ]
        read: dict[int, list[int]] = {}
        for place, registration_id in enumerate(ids):
            read.setdefault(registration_id, []).append(place)
        every = [read.get(each, []) for each in registration_ids]
        times_of = [[lags_ns[each] for each in some] for some in every]
        return [
            list(map(len, every)),
            [max((lags[each] for each in some), default=0) for some in every],
            [max((ns for ns in some if ns is not None), default=None) for some in times_of],
        ]


def blocked_by(streams: PublicationColumns, _: Columns) -> list[str]:
    """Return what holds offers back now."""
    return [BLOCKED_BY[each] if each >= 0 else "" for each in streams.taken.blocked_by]


if TYPE_CHECKING:
    Maker = Callable[[Any, Columns], Sequence[Any]]

PUBLICATION_COLUMNS: Final[Mapping[str, Maker]] = {
    **{name: fixed(name) for name in ("registration_id", "channel", "stream_id", "session_id")},
    "state": lambda streams, _: texts_of(PUBLICATION_STATES, streams.taken),
    "is_connected": as_taken("connected"),
    "is_exclusive": fixed("is_exclusive"),
    "position": as_taken("positions"),
    "position_limit": as_taken("limits"),
    "sender_position": of_network("sender_positions", None),
    "sender_limit": of_network("sender_limits", None),
    "window_bytes": lambda _, columns: differences(columns["position_limit"], columns["position"]),
    "backlog_bytes": PublicationColumns.backlog_bytes,
    "message_count": as_taken("message_counts"),
    **{f"blocked_{name}_ns": blocked_for(by) for by, name in enumerate(BLOCKED_BY)},
    "blocked_by": blocked_by,
    "back_pressure_count": of_network("back_pressure_counts", 0),
    "nak_count": of_network("nak_counts", 0),
    "retransmit_count": of_network("resend_counts", 0),
    "retransmitted_bytes": of_network("resent_bytes", 0),
    "receiver_count": PublicationColumns.receiver_count,
    "receivers": PublicationColumns.receivers,
}
RECEIVER_COLUMNS: Final[Mapping[str, Maker]] = {
    "kind": lambda taken, _: taken.seen_kinds,
    "id": lambda taken, _: [
        receiver_name(each) if kind == "receiver" else str(each)
        for each, kind in zip(taken.seen_ids, taken.seen_kinds, strict=True)
    ],
    "address": lambda taken, _: [
        "" if each is None else address_name(each) for each in taken.seen_sources
    ],
    "position": lambda taken, _: [position for position, _ in taken.seen_reports],
    "window_bytes": lambda taken, _: [window for _, window in taken.seen_reports],
    "silent_ns": receiver_silences,
    "lag_bytes": receiver_lags,
}
IMAGE_COLUMNS: Final[Mapping[str, Maker]] = {
    **{
        name: fixed(name)
        for name in ("registration_id", "channel", "stream_id", "session_id", "source")
    },
    "state": lambda streams, _: texts_of(IMAGE_STATES, streams.taken),
    "is_end_of_stream": as_taken("ended"),
    "position": as_taken("positions"),
    "hwm_position": as_taken("hwm_positions"),
    "missing_bytes": lambda _, columns: differences(columns["hwm_position"], columns["position"]),
    "window_bytes": as_taken("window_lengths"),
    "lag_bytes": lambda streams, _: slowest_lags(streams.taken),
    "lag_ns": ImageColumns.lag_ns,
    "received_bytes": lambda streams, columns: list(
        map(sub, columns["position"], streams.fixed["start"])
    ),
    "silent_ns": lambda streams, _: list(
        map(sub, streams.taken.times_ns, streams.taken.last_packets_ns)
    ),
    "nak_count": as_taken("nak_counts"),
    "status_message_count": as_taken("status_message_counts"),
    "losses": ImageColumns.losses,
    "readers": ImageColumns.readers,
}
READER_COLUMNS: Final[Mapping[str, Maker]] = {
    "registration_id": lambda taken, _: taken.reader_ids,
    "position": lambda taken, _: taken.reader_positions.tolist(),
    "lag_bytes": lambda taken, _: reader_lags(taken),
}
SUBSCRIPTION_COLUMNS: Final[Mapping[str, Maker]] = {
    **{name: fixed(name) for name in ("registration_id", "channel", "stream_id")},
    "image_count": lambda streams, columns: streams.reading(0, columns),
    "message_count": as_taken("message_counts"),
    "lag_bytes": lambda streams, columns: streams.reading(1, columns),
    "lag_ns": lambda streams, columns: streams.reading(2, columns),
}
