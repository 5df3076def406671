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

import os
from functools import lru_cache, partial
from heapq import nsmallest
from importlib.metadata import version as installed_version
from itertools import chain, islice, repeat
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    NamedTuple,
    Protocol,
    TypeGuard,
    TypeVar,
    cast,
)

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
from aeron_async.tasks import Turns

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Collection,
        Container,
        Iterable,
        Iterator,
        Sequence,
    )

    from aeron_async.driver.core.image_state import ImageState
    from aeron_async.driver.core.outbox import Address
    from aeron_async.driver.core.publication import PublicationState, SubscribablePublication
    from aeron_async.driver.core.publication_image import PublicationImage
    from aeron_async.driver.core.receiver_liveness import ReceiverLiveness
    from aeron_async.driver.core.subscriber_position import SubscriberPositions
    from aeron_async.driver.endpoints import SendEndpoints
    from aeron_async.driver.publication_table import PublicationEntry, PublicationTable
    from aeron_async.driver.resources import DriverResources
    from aeron_async.driver.subscribers import SubscriptionLink
    from aeron_async.driver.subscriptions import Subscriptions

__all__ = ["MAX_RECEIVERS_SHOWN", "StatsTaker"]

VALUE_WORDS: Final = VALUE_LENGTH // 8
MAX_ENDPOINTS: Final = 64
"""Most endpoints whose sockets are looked at: each costs a call to the system."""
SLICE: Final = 16
"""Streams that are taken before it is seen whether the loop should run other tasks."""
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


Heard = tuple[tuple[int, int, int, int, "Address | None"], ...]
"""Receivers: id, position, window, when it was heard last, and its address."""
Readers = tuple[tuple[int, int], ...]
"""Readers in this driver: the registration id of each, and its position."""
Offers = tuple[int, tuple[int, ...], int, int]
Columns = list[list[Any]]
"""What was taken, field by field: each has a value for each stream."""
Row = tuple[Any, ...]
Lags = dict[int, list[tuple[int, int | None]]]
"""How far each subscription is behind its streams: bytes, and nanoseconds if known."""
READERS: Final = 5
OLDEST: Final = 10
"""Places of two columns: the readers of any stream, and since when bytes wait in an image."""


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
        # By registration id, which no later stream has.
        self._publications: dict[int, KnownStream] = {}
        self._images: dict[int, KnownStream] = {}
        # To write a channel takes longer than everything else.
        self._channels: dict[int, str] = {}
        self._version = installed_version("aeron-async")
        system = resources.system_counters
        self._named = [
            (each.name.lower(), system[each]) for each in (*SystemCounterId, *DriverCounterId)
        ]

    def take(self) -> Stats:
        """Return the statistics of this moment."""
        entries, images = self._table.entries, self._subscriptions.images.endpoints
        network = self._take_network([each for each in entries if is_over_network(each)])
        ipc = self._take_ipc([each for each in entries if is_over_ipc(each)])
        received = self._take_images(list(images))
        links = self._take_links(self._subscriptions.links)
        lags: Lags = {}

        def subscription_rows() -> Iterable[Row]:
            for taken in (network, ipc):
                note_lags(lags, taken, are_images=False)
            note_lags(lags, received, are_images=True)
            return map(partial(link_row, lags), *links)

        return self._stats(
            Table(
                PublicationStats,
                len(network[0]) + len(ipc[0]),
                lambda: as_columns(
                    PublicationStats, chain(map(network_row, *network), map(ipc_row, *ipc))
                ),
            ),
            Table(
                ImageStats,
                len(received[0]),
                lambda: as_columns(ImageStats, map(image_row, *received)),
            ),
            Table(
                SubscriptionStats,
                len(links[0]),
                lambda: as_columns(SubscriptionStats, subscription_rows()),
            ),
        )

    async def take_in_slices(self) -> Stats:
        """Return the statistics of about now; the loop runs other tasks between a few streams.

        Its columns are made in the same slices.
        """
        entries, images = self._table.entries, self._subscriptions.images.endpoints
        turns = Turns(self._resources.clock.now_ns)
        published, received = Slices(PublicationStats, turns), Slices(ImageStats, turns)
        subscribed = Slices(SubscriptionStats, turns)
        lags: Lags = {}
        network = [each for each in entries if is_over_network(each)]
        await published.take(network, entries, self._take_network, network_row, lags)
        ipc = [each for each in entries if is_over_ipc(each)]
        await published.take(ipc, entries, self._take_ipc, ipc_row, lags)
        await received.take(list(images), images, self._take_images, image_row, lags)
        links = self._subscriptions.links
        await subscribed.take(links, None, self._take_links, partial(link_row, lags), None)
        self.latest = self._stats(published.table, received.table, subscribed.table)
        return self.latest

    def _stats(
        self,
        publications: Table[PublicationStats],
        images: Table[ImageStats],
        subscriptions: Table[SubscriptionStats],
    ) -> Stats:
        clock = self._resources.clock
        forget_gone(self._publications, self._table.entries)
        forget_gone(self._images, self._subscriptions.images.endpoints)
        forget_gone(self._channels, self._subscriptions.links)
        return Stats(
            source="driver",
            epoch_ns=clock.epoch_ns(),
            monotonic_ns=clock.now_ns() + clock.stalled_ns,
            publications=publications,
            images=images,
            subscriptions=subscriptions,
            driver=self._driver(),
        )

    def _take_links(self, taken: Sequence[SubscriptionLink]) -> Columns:
        channels = self._channels
        for link in taken:
            if link.registration_id not in channels:
                channels[link.registration_id] = link.channel
        return [
            [link.registration_id for link in taken],
            [channels[link.registration_id] for link in taken],
            [link.stream_id for link in taken],
            [message_count_of(link) for link in taken],
        ]

    def _take_network(self, taken: list[NetworkPublication]) -> Columns:
        # The first columns are the same for publications of both kinds.
        handlers = [each._retransmit_handler for each in taken]  # noqa: SLF001 - see the head
        receivers = [each._receivers for each in taken]  # noqa: SLF001 - see the head
        return [
            *self._take_publications(taken),
            [each.resend_count for each in handlers],
            [each.resent_length for each in handlers],
            [receivers_of(each) for each in receivers],
            [len(each.reports) for each in receivers],
        ]

    def _take_ipc(self, taken: list[IpcPublication]) -> Columns:
        return self._take_publications(taken)

    def _take_publications(self, taken: list[NetworkPublication] | list[IpcPublication]) -> Columns:
        known, entries, now_ns = self._publications, self._table.entries, self._now_ns
        for each in taken:
            if each.registration_id not in known:
                known[each.registration_id] = publication_identity(each)
        identities = [known[each.registration_id] for each in taken]
        offers = [offers_of(entries[each]) for each in taken]
        return [
            identities,
            [now_ns] * len(taken),
            list(map(with_live_position, self._values(identities), taken, offers)),
            [each.state for each in taken],
            [each.is_connected for each in taken],
            [positions_of(each) for each in taken],
            offers,
        ]

    def _take_images(self, taken: list[PublicationImage]) -> Columns:
        known, endpoints = self._images, self._subscriptions.images.endpoints
        for each in taken:
            if each.registration_id not in known:
                channel = str(endpoints[each].channel.uri)
                known[each.registration_id] = image_identity(each, channel)
        identities = [known[each.registration_id] for each in taken]
        feedback = [each._feedback for each in taken]  # noqa: SLF001 - see the head
        readings = [reading_of(each) for each in taken]
        return [
            identities,
            [self._now_ns] * len(taken),
            self._values(identities),
            [each.life.state for each in taken],
            [each.is_end_of_stream for each in taken],
            [positions for positions, _ in readings],
            [each.window_length for each in feedback],
            [each.sent_count for each in feedback],
            [each.last_packet_ns for each in taken],
            [each.losses.by_cause() for each in taken],
            [oldest_ns for _, oldest_ns in readings],
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


# Taking.

Kind = TypeVar("Kind")


class Slices(Generic[Kind]):
    """A table that is made of a few streams in each turn of the loop."""

    def __init__(self, kind: type[Kind], turns: Turns) -> None:
        self._kind = kind
        self._turns = turns
        self._columns: Columns = [[] for _ in attrs.fields(cast("type[Any]", kind))]

    async def take(
        self,
        streams: Sequence[Any],
        there: Container[Any] | None,
        take: Callable[[list[Any]], Columns],
        row: Callable[..., Row],
        lags: Lags | None,
    ) -> None:
        """Take streams, a few in each turn; those that have gone since are left out."""
        for together in slices_of(streams):
            part = [each for each in together if there is None or each in there]
            taken = take(part)
            if lags is not None:
                note_lags(lags, taken, are_images=self._kind is ImageStats)
            made = zip(*map(row, *taken), strict=True)
            # Without a stream there is no column either.
            for column, more in zip(self._columns, made, strict=bool(part)):
                column.extend(more)
            await self._turns.step()

    @property
    def table(self) -> Table[Kind]:
        """Return what was taken."""
        made = self._columns
        return Table(self._kind, len(made[0]), lambda: made)


def slices_of(streams: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield a few streams at a time: fewer if they have many receivers or readers."""
    part: list[Any] = []
    weight = 0
    for each in streams:
        part.append(each)
        subscribers = getattr(each, "subscribers", None)
        weight += 1 if subscribers is None else 1 + len(subscribers.active)
        receivers: ReceiverLiveness | None = getattr(each, "_receivers", None)
        weight += 0 if receivers is None else len(receivers.reports)
        if weight >= SLICE:
            yield part
            part, weight = [], 0
    if part:
        yield part


def is_over_network(publication: SubscribablePublication) -> TypeGuard[NetworkPublication]:
    """Return whether a publication sends over the network."""
    return isinstance(publication, NetworkPublication)


def is_over_ipc(publication: SubscribablePublication) -> TypeGuard[IpcPublication]:
    """Return whether a publication is read in shared memory."""
    return isinstance(publication, IpcPublication)


def forget_gone(known: dict[int, Any], there: Collection[Registered]) -> None:
    """Forget streams that have gone, once they are as many as those that are there."""
    if len(known) > 2 * len(there) + SLICE:
        for each in known.keys() - {each.registration_id for each in there}:
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


def receivers_of(receivers: ReceiverLiveness) -> Heard:
    """Return what a publication knows of its receivers."""
    reports, heard_ns, sources = receivers.reports, receivers._last_heard_ns, receivers._sources  # noqa: SLF001 - see the head
    if len(reports) == 1:
        # Most publications have one, and a comprehension takes longer than all else.
        for each, report in reports.items():
            return ((each, report[0], report[1], heard_ns.get(each, 0), sources.get(each)),)
    # Ids come off the wire: peers decide how many there are.
    slowest = nsmallest(MAX_RECEIVERS_SHOWN, reports.items(), key=lambda each: each[1][0])
    return tuple(
        [
            (each, report[0], report[1], heard_ns.get(each, 0), sources.get(each))
            for each, report in slowest
        ]
    )


def positions_of(stream: NetworkPublication | IpcPublication | PublicationImage) -> Readers:
    """Return the registration id of each reader in this driver, and its position."""
    active = stream.subscribers.active
    if not active:
        return ()
    if len(active) == 1:
        return ((active[0].subscription_id, active[0].position.cell[0]),)
    return tuple([(each.subscription_id, each.position.get()) for each in active])


def reading_of(image: PublicationImage) -> tuple[Readers, int | None]:
    """Return the readers of an image, and since when the oldest byte has been there for them.

    The time is 0 if they have consumed everything, and None without readers.
    """
    positions = positions_of(image)
    if not positions:
        return positions, None
    slowest = positions[0][1] if len(positions) == 1 else min(at for _, at in positions)
    is_behind = slowest < image.rebuild_position
    return positions, image.arrivals.arrived_ns(slowest) if is_behind else 0


def with_live_position(
    values: tuple[int, ...],
    publication: NetworkPublication | IpcPublication,
    offers: tuple[Offers | None, ...],
) -> tuple[int, ...]:
    """Return the values of the counters of a publication, its position as its log has it.

    A client elsewhere does not wake the driver for what it publishes, so the counter may be old.
    """
    if None not in offers:
        return values
    return max(values[0], publication.producer_position), *values[1:]


def offers_of(entry: PublicationEntry) -> tuple[Offers | None, ...]:
    """Return what each client of a publication says of its offers; None for one elsewhere.

    What those said that hold it no more is added.
    """
    links, gone = entry.links, entry.gone
    if len(links) == 1 and gone.is_nothing:
        return (offers_by(links[0].listener),)
    before = None if gone.has_others else (gone.message_count, gone.blocked_ns, -1, 0)
    return (before, *[offers_by(each.listener) for each in links])


def offers_by(client: Any) -> Offers | None:
    """Return what a client says of its offers; None for one that is not in this loop."""
    line: OfferTimes | None = getattr(client, "offers", None)
    if line is None:
        return None
    appender = client.appender
    count = 0 if appender is None else appender.message_count
    return count, line.blocked_ns, line.blocked_by, line.since_blocked_ns


def left_count_of(subscribers: SubscriberPositions) -> int:
    """Return how often a stream has gone on without an untethered reader."""
    return sum(each.left_count for each in subscribers.untethered) if subscribers.untethered else 0


def message_count_of(link: SubscriptionLink) -> int | None:
    """Return how many messages a subscription was given; None if its client is elsewhere."""
    count: Callable[[], int] | None = getattr(link.listener, "count_messages", None)
    return None if count is None else count()


# Rows.

receiver_name: Final = lru_cache(4096)(format_receiver_id)
address_name: Final = lru_cache(4096)(format_address)


class Registered(Protocol):
    """A stream, or a subscription."""

    @property
    def registration_id(self) -> int:
        """Return its registration id."""
        ...


class OfferTimes(Protocol):
    """What a client in this loop says of the offers that wait; see `OfferWaiters`."""

    blocked_ns: tuple[int, ...]
    blocked_by: int
    since_blocked_ns: int


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
    receivers: Heard,
    receiver_count: int,
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
        receiver_count + len(readers),
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
    """Return the count of messages, the time that offers were held back, and by what they are.

    Of a client elsewhere nobody knows either, so count and times of the publication are None then.
    """
    count = 0
    blocked_ns, blocked_by = [0] * len(BLOCKED_BY), ""
    for each in offers:
        if each is None:
            continue
        message_count, before_ns, by, since_ns = each
        count += message_count
        for index, waited_ns in enumerate(before_ns):
            blocked_ns[index] += waited_ns
        if by >= 0:
            blocked_ns[by] += max(0, now_ns - since_ns)
            blocked_by = BLOCKED_BY[by]
    if None in offers:
        return None, *[None] * len(BLOCKED_BY), blocked_by
    return count, *blocked_ns, blocked_by


def receiver_rows(receivers: Heard, sent_position: int, now_ns: int) -> list[ReceiverStats]:
    """Return the receivers of the network, the furthest behind first."""
    rows = [
        ReceiverStats(
            "receiver",
            receiver_name(receiver_id),
            "" if source is None else address_name(source),
            position,
            window,
            now_ns - heard_ns,
            max(0, sent_position - position),
        )
        for receiver_id, position, window, heard_ns, source in receivers
    ]
    if len(rows) > 1:
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
    """Return how long a byte has been there that came at `oldest_ns`; see `reading_of`."""
    return oldest_ns and max(0, now_ns - oldest_ns)


def note_lags(lags: Lags, taken: Columns, *, are_images: bool) -> None:
    """Note how far each reader is behind the streams that were taken."""
    # A publication does not know when what its readers in this driver read was published.
    oldest = taken[OLDEST] if are_images else repeat(None)
    for now_ns, values, readers, oldest_ns in zip(
        taken[1], taken[2], taken[READERS], oldest, strict=False
    ):
        for registration_id, at in readers:
            lag = max(0, values[0] - at)
            lag_ns = lag_ns_of(oldest_ns, now_ns) if lag else 0
            lags.setdefault(registration_id, []).append((lag, lag_ns))


def link_row(
    lags: Lags, registration_id: int, channel: str, stream_id: int, message_count: int | None
) -> Row:
    """Return the fields of `SubscriptionStats`, in order."""
    read = lags.get(registration_id, [])
    if len(read) == 1:
        lag, lag_ns = read[0]
    else:
        times = [each for _, each in read if each is not None]
        lag, lag_ns = max((each for each, _ in read), default=0), max(times, default=None)
    return registration_id, channel, stream_id, len(read), message_count, lag, lag_ns
