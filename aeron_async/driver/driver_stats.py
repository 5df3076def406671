"""The statistics of a driver in this event loop: taken now or in slices, made into rows later.

What is taken of a stream is what changes: its counters, and a few fields. What does not change is
looked up once for each stream, and forgotten with it. Everything else is done when the columns of
the snapshot are read. It is taken field by field, as columns: to make an object for each stream
would cost more than all of them, and would set off the garbage collector.

In slices, the loop runs other tasks between a few streams and the next; what is taken of one
stream is still of one moment.

This module reads private attributes of objects on the data path, as `sightings` does. It changes
nothing, and costs nothing while nobody asks.
"""

from __future__ import annotations

import asyncio
import os
from importlib.metadata import version as installed_version
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import attrs

from aeron_async._speedups import WHY_PURE
from aeron_async.counters import VALUE_LENGTH
from aeron_async.driver.core.flow_control.base import format_receiver_id
from aeron_async.driver.core.ipc_publication import IpcPublication
from aeron_async.driver.core.network_publication import NetworkPublication
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.driver.core.udp_channel import format_address
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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from aeron_async.driver.core.image_state import ImageState
    from aeron_async.driver.core.outbox import Address
    from aeron_async.driver.core.publication import PublicationState, SubscribablePublication
    from aeron_async.driver.core.publication_image import PublicationImage
    from aeron_async.driver.core.receiver_liveness import ReceiverLiveness
    from aeron_async.driver.core.subscriber_position import SubscriberPositions
    from aeron_async.driver.endpoints import SendEndpoints
    from aeron_async.driver.publication_table import PublicationTable
    from aeron_async.driver.resources import DriverResources
    from aeron_async.driver.subscribers import SubscriptionLink
    from aeron_async.driver.subscriptions import Subscriptions

__all__ = ["MAX_RECEIVERS_SHOWN", "StatsTaker"]

VALUE_WORDS: Final = VALUE_LENGTH // 8
MAX_ENDPOINTS: Final = 64
"""Most endpoints whose sockets are looked at: each costs a call to the system."""
SLICE: Final = 64
"""Streams that are taken before the loop runs other tasks."""
MAX_RECEIVERS_SHOWN: Final = 256
"""Most receivers and readers of one publication in a snapshot: those furthest behind."""
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


class KnownStream(NamedTuple):
    """What does not change of a publication or an image.

    `start` is where an image has joined; `words` are the places of its counters' values.
    """

    registration_id: int
    channel: str
    stream_id: int
    session_id: int
    source: str
    is_exclusive: bool
    start: int
    words: tuple[int, ...]


class ReceiverTables(NamedTuple):
    """The receivers of a network publication, as its tables have them."""

    heard_ns: Mapping[int, int]
    reports: Mapping[int, tuple[int, int]]
    sources: Mapping[int, Address]


NO_RECEIVERS: Final = ReceiverTables({}, {}, {})
Readers = tuple[tuple[int, int], ...]
Offers = tuple[int, tuple[int, ...], int, int]
Columns = list[list[Any]]
"""What was taken, field by field: each has a value for each stream."""


class StatsTaker:
    """Takes the statistics of one driver, in its event loop.

    Args:
        resources: What the driver's parts share.
        table: Its publications.
        subscriptions: Its subscriptions and images.
        senders: The endpoints from which publications send.
    """

    def __init__(
        self,
        resources: DriverResources,
        table: PublicationTable,
        subscriptions: Subscriptions,
        senders: SendEndpoints,
    ) -> None:
        self._resources = resources
        self._table = table
        self._subscriptions = subscriptions
        self._senders = senders
        self._publications: dict[SubscribablePublication, KnownStream] = {}
        self._images: dict[PublicationImage, KnownStream] = {}
        self._version = installed_version("aeron-async")
        system = resources.system_counters
        self._named = [
            (each.name.lower(), system[each]) for each in (*SystemCounterId, *DriverCounterId)
        ]

    def take(self) -> Stats:
        """Return the statistics of this moment."""
        entries, images = self._table.entries, self._subscriptions.images.endpoints
        return self._made(
            self._take_network([each for each in entries if isinstance(each, NetworkPublication)]),
            self._take_ipc([each for each in entries if isinstance(each, IpcPublication)]),
            self._take_images(list(images)),
        )

    async def take_in_slices(self) -> Stats:
        """Return the statistics of about now; the loop runs other tasks between a few streams."""
        entries, images = self._table.entries, self._subscriptions.images.endpoints
        network = [each for each in entries if isinstance(each, NetworkPublication)]
        ipc = [each for each in entries if isinstance(each, IpcPublication)]
        return self._made(
            await in_slices(network, entries, self._take_network),
            await in_slices(ipc, entries, self._take_ipc),
            await in_slices(list(images), images, self._take_images),
        )

    def _made(self, network: Columns, ipc: Columns, images: Columns) -> Stats:
        clock = self._resources.clock
        forget_gone(self._publications, self._table.entries)
        forget_gone(self._images, self._subscriptions.images.endpoints)
        links = self._subscriptions.links
        subscriptions: Columns = [
            [link.registration_id for link in links],
            [link.uri for link in links],
            [link.stream_id for link in links],
            [message_count_of(link) for link in links],
        ]
        return Stats(
            source="driver",
            epoch_ns=clock.epoch_ns(),
            monotonic_ns=clock.now_ns() + clock.stalled_ns,
            publications=Table(
                PublicationStats,
                len(network[0]) + len(ipc[0]),
                lambda: as_columns(
                    PublicationStats,
                    chain(map(network_row, *network), map(ipc_row, *ipc)),
                ),
            ),
            images=Table(
                ImageStats,
                len(images[0]),
                lambda: as_columns(ImageStats, map(image_row, *images)),
            ),
            subscriptions=Table(
                SubscriptionStats,
                len(links),
                lambda: as_columns(
                    SubscriptionStats, subscription_rows(subscriptions, network, ipc, images)
                ),
            ),
            driver=self._driver(),
        )

    def _take_network(self, taken: list[NetworkPublication]) -> Columns:
        # The first columns are the same for publications of both kinds.
        handlers = [each._retransmit_handler for each in taken]  # noqa: SLF001 - see the head
        receivers = [each._receivers for each in taken]  # noqa: SLF001 - see the head
        return [
            *self._take_publications(taken),
            [each.resend_count for each in handlers],
            [each.resent_length for each in handlers],
            [receivers_of(each) if each.reports else NO_RECEIVERS for each in receivers],
        ]

    def _take_ipc(self, taken: list[IpcPublication]) -> Columns:
        return self._take_publications(taken)

    def _take_publications(self, taken: list[NetworkPublication] | list[IpcPublication]) -> Columns:
        known, entries, now_ns = self._publications, self._table.entries, self._now_ns
        for each in taken:
            if each not in known:
                known[each] = publication_identity(each)
        clients = [[link.listener for link in entries[each].links] for each in taken]
        return [
            [known[each] for each in taken],
            [now_ns] * len(taken),
            self._values([known[each] for each in taken]),
            [each.state for each in taken],
            [each.is_connected for each in taken],
            [positions_of(each) for each in taken],
            [offers_of(each) for each in clients],
        ]

    def _take_images(self, taken: list[PublicationImage]) -> Columns:
        known, endpoints = self._images, self._subscriptions.images.endpoints
        for each in taken:
            if each not in known:
                known[each] = image_identity(each, str(endpoints[each].channel.uri))
        feedback = [each._feedback for each in taken]  # noqa: SLF001 - see the head
        return [
            [known[each] for each in taken],
            [self._now_ns] * len(taken),
            self._values([known[each] for each in taken]),
            [each.life.state for each in taken],
            [each.is_end_of_stream for each in taken],
            [positions_of(each) for each in taken],
            [each.window_length for each in feedback],
            [each.sent_count for each in feedback],
            [each.last_packet_ns for each in taken],
            [each.losses.by_cause() for each in taken],
            [oldest_of(each) for each in taken],
            [left_count_of(each.subscribers) for each in taken],
        ]

    @property
    def _now_ns(self) -> int:
        return self._resources.clock.now_ns()

    def _values(self, identities: list[KnownStream]) -> list[Any]:
        """Return the values of the counters of some streams, a tuple for each."""
        if not identities:
            return []
        values = self._resources.counters_manager.value_words
        places = zip(*[each.words for each in identities], strict=True)
        return list(zip(*[[values[word] for word in words] for words in places], strict=True))

    def _driver(self) -> DriverStats:
        counters = {name: counter.get() for name, counter in self._named}
        log = self._resources.clock.stall_log
        return DriverStats(
            pid=os.getpid(),
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


# Taking.

Taken = TypeVar("Taken")


async def in_slices(
    streams: list[Taken], there: Mapping[Any, Any], take: Callable[[list[Taken]], Columns]
) -> Columns:
    """Take streams, a few in each turn of the loop; those that have gone meanwhile are left out."""
    taken = take([])
    for start in range(0, len(streams), SLICE):
        part = take([each for each in streams[start : start + SLICE] if each in there])
        for column, more in zip(taken, part, strict=True):
            column.extend(more)
        await asyncio.sleep(0)
    return taken


def forget_gone(known: dict[Any, Any], there: Mapping[Any, Any]) -> None:
    """Forget what is not there any more."""
    if len(known) > len(there):
        for each in known.keys() - there.keys():
            del known[each]


def publication_identity(publication: NetworkPublication | IpcPublication) -> KnownStream:
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
        source="",
        is_exclusive=publication.params.is_exclusive,
        start=0,
        words=tuple(each.id * VALUE_WORDS for each in used),
    )


def image_identity(image: PublicationImage, channel: str) -> KnownStream:
    """Return what does not change of an image."""
    counters = image.counters
    used = counters.receiver_position, counters.receiver_hwm, counters.naks_sent
    return KnownStream(
        registration_id=image.registration_id,
        channel=channel,
        stream_id=image.stream_id,
        session_id=image.session_id,
        source=format_address(image.source),
        is_exclusive=False,
        start=image._join_position,  # noqa: SLF001 - see the head
        words=tuple(each.id * VALUE_WORDS for each in used),
    )


def receivers_of(receivers: ReceiverLiveness) -> ReceiverTables:
    """Return a copy of the tables of a publication's receivers."""
    return ReceiverTables(
        receivers._last_heard_ns.copy(),  # noqa: SLF001 - see the head
        receivers.reports.copy(),
        receivers._sources.copy(),  # noqa: SLF001 - see the head
    )


def positions_of(stream: NetworkPublication | IpcPublication | PublicationImage) -> Readers:
    """Return the registration id of each reader in this driver, and its position."""
    active = stream.subscribers.active
    return tuple([(each.subscription_id, each.position.get()) for each in active]) if active else ()


def offers_of(clients: list[Any]) -> tuple[Offers | None, ...]:
    """Return what each client of a publication says of its offers; None for one elsewhere."""
    return tuple(
        [
            None
            if (offers := getattr(client, "offers", None)) is None
            else (
                0 if client.appender is None else client.appender.message_count,
                offers.blocked_ns,
                offers.blocked_by,
                offers.since_blocked_ns,
            )
            for client in clients
        ]
    )


def oldest_of(image: PublicationImage) -> int | None:
    """Return since when the oldest byte that its slowest reader has not consumed has been there.

    0 if its readers have consumed everything; None without readers.
    """
    active = image.subscribers.active
    if not active:
        return None
    position = min(each.position.get() for each in active)
    return image.arrivals.arrived_ns(position) if position < image.rebuild_position else 0


def left_count_of(subscribers: SubscriberPositions) -> int:
    """Return how often a stream has gone on without an untethered reader."""
    return sum(each.left_count for each in subscribers.untethered) if subscribers.untethered else 0


def message_count_of(link: SubscriptionLink) -> int | None:
    """Return how many messages a subscription was given; None if its client is elsewhere."""
    count: Callable[[], int] | None = getattr(link.listener, "count_messages", None)
    return None if count is None else count()


# Rows.


def as_columns(kind: type[Any], rows: Iterable[Sequence[Any]]) -> Sequence[Sequence[Any]]:
    """Return rows as columns."""
    return list(zip(*rows, strict=True)) or [()] * len(attrs.fields(kind))


def network_row(
    identity: KnownStream,
    now_ns: int,
    values: Sequence[int],
    state: PublicationState,
    is_connected: bool,  # noqa: FBT001 - a column
    readers: Readers,
    offers: tuple[Offers | None, ...],
    resend_count: int,
    resent_bytes: int,
    receivers: ReceiverTables,
) -> tuple[Any, ...]:
    """Return the fields of `PublicationStats`, in order."""
    position, limit, sender_position, sender_limit, back_pressure_count, nak_count = values
    seen = receiver_rows(receivers, sender_position, now_ns)
    seen += reader_rows(readers, position, "spy")
    return (
        *identity[:4],
        state.name.lower(),
        is_connected,
        identity.is_exclusive,
        position,
        limit,
        sender_position,
        sender_limit,
        max(0, limit - position),
        max(0, position - sender_position),
        *offers_columns(offers, now_ns),
        back_pressure_count,
        nak_count,
        resend_count,
        resent_bytes,
        len(seen),
        tuple(seen[:MAX_RECEIVERS_SHOWN]),
    )


def ipc_row(
    identity: KnownStream,
    now_ns: int,
    values: Sequence[int],
    state: PublicationState,
    is_connected: bool,  # noqa: FBT001 - a column
    readers: Readers,
    offers: tuple[Offers | None, ...],
) -> tuple[Any, ...]:
    """Return the fields of `PublicationStats`, in order."""
    position, limit = values
    seen = reader_rows(readers, position, "ipc")
    return (
        *identity[:4],
        state.name.lower(),
        is_connected,
        identity.is_exclusive,
        position,
        limit,
        None,
        None,
        max(0, limit - position),
        max((each.lag_bytes for each in seen), default=0),
        *offers_columns(offers, now_ns),
        0,
        0,
        0,
        0,
        len(seen),
        tuple(seen[:MAX_RECEIVERS_SHOWN]),
    )


def offers_columns(offers: tuple[Offers | None, ...], now_ns: int) -> tuple[Any, ...]:
    """Return the count of messages, the time that offers were held back, and by what they are."""
    count: int | None = 0
    blocked_ns, blocked_by = [0] * len(BLOCKED_BY), ""
    for each in offers:
        if each is None:
            count = None
            continue
        message_count, before_ns, by, since_ns = each
        if count is not None:
            count += message_count
        for index, waited_ns in enumerate(before_ns):
            blocked_ns[index] += waited_ns
        if by >= 0:
            blocked_ns[by] += max(0, now_ns - since_ns)
            blocked_by = BLOCKED_BY[by]
    return count, *blocked_ns, blocked_by


def receiver_rows(
    receivers: ReceiverTables, sent_position: int, now_ns: int
) -> list[ReceiverStats]:
    """Return the receivers of the network, the furthest behind first."""
    heard_ns, reports, sources = receivers
    rows = [
        ReceiverStats(
            "receiver",
            format_receiver_id(receiver_id),
            format_address(sources[receiver_id]) if receiver_id in sources else "",
            position,
            window,
            now_ns - heard_ns[receiver_id],
            max(0, sent_position - position),
        )
        for receiver_id, (position, window) in reports.items()
        if receiver_id in heard_ns
    ]
    rows.sort(key=lambda each: each.position)
    return rows


def reader_rows(readers: Readers, position: int, kind: str) -> list[ReceiverStats]:
    """Return the readers of a publication in this driver, the furthest behind first."""
    rows = [
        ReceiverStats(kind, str(registration_id), "", at, None, None, max(0, position - at))
        for registration_id, at in readers
    ]
    rows.sort(key=lambda each: each.position)
    return rows


def image_row(
    identity: KnownStream,
    now_ns: int,
    values: Sequence[int],
    state: ImageState,
    is_end_of_stream: bool,  # noqa: FBT001 - a column
    positions: Readers,
    window_length: int,
    status_message_count: int,
    last_packet_ns: int,
    lost: tuple[tuple[str, int, int], ...],
    oldest_ns: int | None,
    left_count: int,
) -> tuple[Any, ...]:
    """Return the fields of `ImageStats`, in order."""
    position, hwm_position, nak_count = values
    readers = tuple(
        ReaderStats(registration_id, at, max(0, position - at)) for registration_id, at in positions
    )
    losses = tuple(LossStats(*each) for each in lost)
    if left_count:
        losses += (LossStats("left_behind", left_count, 0),)
    return (
        *identity[:5],
        state.name.lower(),
        is_end_of_stream,
        position,
        hwm_position,
        max(0, hwm_position - position),
        window_length,
        max((each.lag_bytes for each in readers), default=0),
        lag_ns_of(oldest_ns, now_ns),
        position - identity.start,
        now_ns - last_packet_ns,
        nak_count,
        status_message_count,
        losses,
        readers,
    )


def lag_ns_of(oldest_ns: int | None, now_ns: int) -> int | None:
    """Return how long a byte has been there that came at `oldest_ns`; see `oldest_of`."""
    return oldest_ns and max(0, now_ns - oldest_ns)


def subscription_rows(
    links: Columns, network: Columns, ipc: Columns, images: Columns
) -> Iterable[Sequence[Any]]:
    """Yield the fields of each `SubscriptionStats`, in order."""
    read: dict[int, list[tuple[int, int | None]]] = {}
    for columns in (network, ipc, images):
        for index, (values, readers) in enumerate(zip(columns[2], columns[5], strict=True)):
            # A publication does not know when what its readers in this driver read was published.
            lag_ns = None
            if columns is images:
                lag_ns = lag_ns_of(columns[10][index], columns[1][index])
            for registration_id, at in readers:
                lag = max(0, values[0] - at)
                read.setdefault(registration_id, []).append((lag, lag_ns if lag else 0))
    for registration_id, uri, stream_id, message_count in zip(*links, strict=True):
        lags = read.get(registration_id, [])
        times = [each for _, each in lags if each is not None]
        yield (
            registration_id,
            str(uri),
            stream_id,
            len(lags),
            message_count,
            max((lag for lag, _ in lags), default=0),
            max(times) if times else None,
        )
