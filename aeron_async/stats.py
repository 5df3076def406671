"""Statistics of one driver at one moment: streams, their receivers and losses, and the driver.

An archive has statistics of its own, which `Stats.with_archive` adds to those of its driver.

`Aeron.stats` takes them. They are columns, copied at one moment; a row is made when it is asked
for, and the snapshot never changes. Counts and positions grow for as long as their stream lives, so
rates are differences: `stats.diff(earlier)`.

Every name ends with its unit: `_bytes`, `_ns`, `_count`; a position is in bytes of its stream. None
means that the source cannot know: a driver in another process, for example, does not count the
messages that its clients read.

Losses are told apart by these words, which metrics, logs and views share:

    gap          a hole that a NAK was sent for
    socket_drop  a hole that came with datagrams which the system dropped at our full socket
    over_run     the publisher sent beyond the window, and the data was refused
    unfilled     a hole that was filled with padding: its data never comes
    left_behind  an untethered subscriber was too slow, and the stream went on without it
    forged       a frame that cannot be of this stream was refused
    malformed    a frame that no rule of the protocol allows was refused
    refused      a limit of ours was reached, and the data was not taken
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs

from aeron_async.errors import ConfigurationError
from aeron_async.stats_columns import Table, names_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "BLOCKED_BY",
    "LOSS_CAUSES",
    "ArchiveStats",
    "BudgetStats",
    "CallStats",
    "CycleStats",
    "DriverStats",
    "ImageRates",
    "ImageStats",
    "LossStats",
    "PublicationRates",
    "PublicationStats",
    "Rates",
    "ReaderStats",
    "ReceiverStats",
    "RecordingStats",
    "SocketStats",
    "Stats",
    "SubscriptionRates",
    "SubscriptionStats",
    "Table",
]

LOSS_CAUSES: Final = (
    "gap",
    "socket_drop",
    "over_run",
    "unfilled",
    "left_behind",
    "forged",
    "malformed",
    "refused",
)
"""The causes of losses, in the order of the tallies of an image."""
BLOCKED_BY: Final = ("sender_limit", "publisher_limit", "not_connected")
"""What holds an offer back: the receivers, this driver's sender or readers, or no subscriber."""
BLOCKED_NAMES: Final = tuple((by, f"blocked_{by}_ns") for by in BLOCKED_BY)
NS_PER_SECOND: Final = 1_000_000_000

Row = TypeVar("Row")


@attrs.frozen
class ReceiverStats:
    """One receiver of a publication: the socket of a driver, or a reader in this driver.

    Attributes:
        kind: `receiver`, `spy` or `ipc`.
        id: The receiver id in hexadecimal digits; of a spy or IPC reader its registration id.
        address: Where its status messages come from; empty if unknown.
        position: Up to where it has consumed.
        window_bytes: How far beyond that it takes data; None for a reader in this driver.
        silent_ns: Time since it was last heard; None for a reader in this driver.
        lag_bytes: How far it is behind what was sent or, in this driver, published.
    """

    kind: str
    id: str
    address: str
    position: int
    window_bytes: int | None
    silent_ns: int | None
    lag_bytes: int


@attrs.frozen
class PublicationStats:
    """One publication.

    Attributes:
        state: `active`, `draining`, `linger` or `done`; empty if unknown.
        position: Up to where it was published.
        position_limit: Below it an offer may begin.
        sender_position: Up to where it was sent; None for IPC.
        sender_limit: Up to where receivers allow to send; None for IPC.
        window_bytes: From the position to its limit; 0 if that was passed.
        backlog_bytes: Published and not sent; for IPC not consumed.
        message_count: Messages that clients in this process have published; None if others do.
        blocked_sender_limit_ns: How long offers waited for receivers, waits that last included;
            None if clients in another process offer as well, as for the other two.
        blocked_publisher_limit_ns: How long they waited for the sender, spies or IPC readers.
        blocked_not_connected_ns: How long they waited for a subscriber.
        blocked_by: What an offer waits for now, one of `BLOCKED_BY`; empty if none waits in this
            process.
        receivers: Those of the network, the furthest behind first, then readers in this driver.
    """

    registration_id: int
    channel: str
    stream_id: int
    session_id: int
    state: str
    is_connected: bool | None
    is_exclusive: bool
    position: int
    position_limit: int
    sender_position: int | None
    sender_limit: int | None
    window_bytes: int
    backlog_bytes: int | None
    message_count: int | None
    blocked_sender_limit_ns: int | None
    blocked_publisher_limit_ns: int | None
    blocked_not_connected_ns: int | None
    blocked_by: str
    back_pressure_count: int | None
    nak_count: int | None
    retransmit_count: int | None
    retransmitted_bytes: int | None
    receiver_count: int | None
    receivers: tuple[ReceiverStats, ...]

    @property
    def slowest_receiver(self) -> ReceiverStats | None:
        """Return the receiver that allows the least to be sent; None without one."""
        return slowest_of(self.receivers)

    @property
    def lag_bytes(self) -> int | None:
        """Return how far the receiver or reader furthest behind is behind what was published.

        Of a receiver of the network that is the backlog and what it lacks of what was sent. None if
        nobody reads, and the backlog is unknown.
        """
        backlog = self.backlog_bytes
        lags = [each.lag_bytes + network_backlog(each, backlog) for each in self.receivers]
        return max(lags if backlog is None else [backlog, *lags], default=None)

    @property
    def blocked_ns(self) -> int | None:
        """Return how long offers have waited, whatever for; None if that is not measured."""
        times = [getattr(self, name) for _, name in BLOCKED_NAMES]
        return None if None in times else sum(times)


def slowest_of(receivers: Iterable[ReceiverStats]) -> ReceiverStats | None:
    """Return the receiver that allows the least to be sent; None without one."""
    return min(receivers, key=lambda each: each.position + (each.window_bytes or 0), default=None)


def network_backlog(receiver: ReceiverStats, backlog_bytes: int | None) -> int:
    """Return what a receiver lacks that was not sent yet; a reader in this driver needs no sender.

    An unknown backlog counts as none.
    """
    return (backlog_bytes or 0) if receiver.kind == "receiver" else 0


@attrs.frozen
class LossStats:
    """The losses of one image with one cause of `LOSS_CAUSES`; bytes of the stream."""

    cause: str
    count: int
    bytes: int


@attrs.frozen
class ReaderStats:
    """One subscription as a reader of an image.

    Attributes:
        registration_id: That of the subscription.
        position: Up to where it has consumed.
        lag_bytes: What has arrived for it and was not consumed.
    """

    registration_id: int
    position: int
    lag_bytes: int


@attrs.frozen
class ImageStats:
    """One image: a stream as this driver receives it.

    Attributes:
        state: `init`, `active`, `draining`, `linger` or `done`; empty if unknown.
        source: The address of the publisher, or of its first SETUP; empty if unknown.
        position: Up to where all has arrived.
        hwm_position: Up to where anything has arrived.
        missing_bytes: The room between both, part of which may have arrived.
        window_bytes: How much the publisher may send beyond what was consumed.
        lag_bytes: What has arrived and the slowest reader has not consumed.
        lag_ns: How long the oldest of that has been there; None if unknown.
        received_bytes: What has arrived in order since the image joined.
        silent_ns: Time since the last datagram; None if unknown.
        losses: By cause; a cause that never happened is left out.
        readers: The subscriptions that read it.
    """

    registration_id: int
    channel: str
    stream_id: int
    session_id: int
    source: str
    state: str
    is_end_of_stream: bool | None
    position: int
    hwm_position: int
    missing_bytes: int
    window_bytes: int | None
    lag_bytes: int
    lag_ns: int | None
    received_bytes: int | None
    silent_ns: int | None
    nak_count: int | None
    status_message_count: int | None
    losses: tuple[LossStats, ...]
    readers: tuple[ReaderStats, ...]

    @property
    def loss_count(self) -> int:
        """Return how many losses there were, whatever their cause."""
        return sum(each.count for each in self.losses)

    @property
    def lost_bytes(self) -> int:
        """Return how many bytes were lost, whatever the cause."""
        return sum(each.bytes for each in self.losses)


@attrs.frozen
class SubscriptionStats:
    """One subscription.

    Attributes:
        message_count: Messages that it was given; None for a subscription of another process.
        lag_bytes: What has arrived and was not consumed, on the image where that is most.
        lag_ns: How long the oldest of that has been there; None if unknown.
    """

    registration_id: int
    channel: str
    stream_id: int
    image_count: int
    message_count: int | None
    lag_bytes: int
    lag_ns: int | None


@attrs.frozen
class CycleStats:
    """The duty cycles of one agent: the longest, and how many took longer than its threshold."""

    agent: str
    max_ns: int
    exceeded_count: int


@attrs.frozen
class BudgetStats:
    """A bounded resource of the driver, in its own unit, which `name` ends with."""

    name: str
    used: int
    limit: int


@attrs.frozen
class SocketStats:
    """One socket that receives.

    Attributes:
        address: Where it is bound.
        drop_count: What the system dropped because it was full; with UDP_GRO, batches of datagrams.
        queued_bytes: What waits in it, with the system's overhead; None if unknown.
        buffer_bytes: Its receive buffer, with the system's overhead; None if unknown.
    """

    address: str
    drop_count: int
    queued_bytes: int | None
    buffer_bytes: int | None


@attrs.frozen(kw_only=True)
class DriverStats:
    """The driver itself.

    Attributes:
        started_ns: Wall-clock time at which it started; None if unknown. Of drivers one after the
            other in one process, or of containers, the process id may be the same.
        loop_lag_max_ns: The longest time the event loop was late.
        loop_lags: How often it was late, by time: entry `n` counts lags below 2 ** n ns that are
            not below 2 ** (n - 1). Empty if unknown.
        loop_lag_ns: The sum of these lags.
        counters: Every counter of the driver by its name, such as `bytes_sent`.
        limits: Limits that were reached, by the name of their counter, and how often.
    """

    pid: int
    started_ns: int | None
    version: str
    is_pure: bool | None
    loop_lag_count: int | None
    loop_lag_max_ns: int | None
    loop_lags: tuple[int, ...]
    loop_lag_ns: int | None
    cycles: tuple[CycleStats, ...]
    budgets: tuple[BudgetStats, ...]
    sockets: tuple[SocketStats, ...]
    counters: Mapping[str, int]
    limits: Mapping[str, int]

    @property
    def identity(self) -> tuple[int, int | None]:
        """Return what tells drivers of one source apart: the process, and when they started."""
        return self.pid, self.started_ns


@attrs.frozen
class RecordingStats:
    """One active recording of an archive, since its session began.

    A recording is extended by another session, and so its bytes count from 0 again.

    Attributes:
        channel: The channel as it was asked for.
        start_position: Where the session began; an extended recording began earlier.
        position: Up to where the recording is written.
        image_position: Up to where the stream has arrived; None if another process knows it.
        lag_bytes: What has arrived and is not written yet; None if another process knows it.
        recorded_bytes: What was written since the session began.
        state: `recording`; `stopping`, if it ends with what has arrived; `failed`, if the disk
            refused it; or `ended`, if only its stop position is still to be written.
    """

    recording_id: int
    channel: str
    stream_id: int
    session_id: int
    start_position: int
    position: int
    image_position: int | None
    lag_bytes: int | None
    recorded_bytes: int
    state: str


@attrs.frozen(kw_only=True)
class ArchiveStats:
    """One archive at one moment; counts are those since it was opened.

    Attributes:
        archive_id: The id that tells archives apart.
        free_bytes: Free bytes of the file system, as the archive's disk threads saw them last; None
            if they cannot be determined.
        free_age_ns: How long ago that was; it grows while the disk does not answer.
        low_space_limit_bytes: With less free bytes than that no recording begins.
        recording_count: All recordings in the catalog, active or not.
        active_count: Recordings that are being written.
        replay_count: Replays that are published, or read in this process.
        refused_image_count: Sources that were not recorded because `max_recorded_images` was
            reached.
        failed_count: Recordings that ended too early because the disk failed.
        recorded_bytes: What all recordings have written.
        recordings: The active recordings, at most 256 of them: those that began first.
    """

    archive_id: int
    free_bytes: int | None
    free_age_ns: int | None
    low_space_limit_bytes: int
    recording_count: int
    active_count: int
    replay_count: int
    refused_image_count: int
    failed_count: int
    recorded_bytes: int
    recordings: Table[RecordingStats]

    @property
    def lag_bytes(self) -> int | None:
        """Return the largest lag of the recordings shown; 0 without one, None if none is known."""
        lags = self.recordings.column("lag_bytes")
        return max((each for each in lags if each is not None), default=None if lags else 0)


@attrs.frozen
class CallStats:
    """One method of a service of calls; counts are those since the service was opened.

    Attributes:
        service: Name of the service.
        method: Name of the method.
        outcomes: How many of its calls were answered, repeated (they got a result that was kept),
            refused before they began, cancelled, or failed, by the name of a status.
        under_way: Those that run.
        handler_ns: How long the handlers of answered calls took together.
    """

    service: str
    method: str
    outcomes: Mapping[str, int]
    under_way: int
    handler_ns: int


@attrs.frozen(kw_only=True)
class PublicationRates:
    """What one publication did in one second; see `PublicationStats` for the words.

    Attributes:
        blocked_ratio: The part of the time in which an offer waited, from 0 to 1, by what for;
            empty if that is not measured.
        backlog_bytes_per_second: How fast the backlog grows; less than 0 if it shrinks. What was
            sent, or consumed of IPC, is `bytes_per_second` less this. None if it is unknown.
    """

    bytes_per_second: float
    messages_per_second: float | None
    retransmitted_bytes_per_second: float | None
    naks_per_second: float | None
    blocked_ratio: Mapping[str, float]
    backlog_bytes_per_second: float | None = None


@attrs.frozen(kw_only=True)
class ImageRates:
    """What happened to one image in one second; see `ImageStats` for the words."""

    bytes_per_second: float
    naks_per_second: float | None
    losses_per_second: Mapping[str, float]
    lost_bytes_per_second: Mapping[str, float]


@attrs.frozen(kw_only=True)
class SubscriptionRates:
    """What one subscription read in one second; None if the source does not count messages."""

    messages_per_second: float | None


@attrs.frozen(kw_only=True)
class Rates:
    """The difference of two snapshots, by the second.

    Attributes:
        seconds: The time between both; rates of a stream that is new are from its begin.
        publications: By registration id.
        images: By registration id.
        subscriptions: By registration id.
        counters: The counters of the driver.
        archive: Bytes recorded, by recording id; empty if either snapshot has no archive.
    """

    seconds: float
    publications: Mapping[int, PublicationRates]
    images: Mapping[int, ImageRates]
    subscriptions: Mapping[int, SubscriptionRates]
    counters: Mapping[str, float]
    archive: Mapping[int, float] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class Stats:
    """A snapshot of the statistics of one driver; it never changes.

    Attributes:
        source: `driver`, or `counters` if all was read from a counters file.
        epoch_ns: Wall-clock time of the snapshot.
        monotonic_ns: Its time by the machine's monotonic clock; differences are taken of this.
        publications: Publications, those that drain or linger included.
        images: Images.
        subscriptions: Subscriptions.
        driver: The driver itself.
        archive: An archive of the same process, if `with_archive` has added one.
        calls: The methods of services of the same process, if `with_calls` has added them.
    """

    source: str
    epoch_ns: int
    monotonic_ns: int
    publications: Table[PublicationStats]
    images: Table[ImageStats]
    subscriptions: Table[SubscriptionStats]
    driver: DriverStats
    archive: ArchiveStats | None = None
    calls: Table[CallStats] | None = None

    def with_archive(self, archive: ArchiveStats | None) -> Stats:
        """Return the same snapshot with the statistics of an archive."""
        return attrs.evolve(self, archive=archive)

    def with_calls(self, calls: Sequence[CallStats]) -> Stats:
        """Return the same snapshot with the methods of services, such as `Serving.stats()`."""
        return attrs.evolve(self, calls=Table.of(CallStats, calls))

    def diff(self, earlier: Stats) -> Rates:
        """Return what happened between an earlier snapshot of the same driver and this one.

        Raises:
            ConfigurationError: `earlier` is no snapshot, of another driver, or not earlier.
        """
        check_stats(earlier, "earlier")
        elapsed_ns = self.monotonic_ns - earlier.monotonic_ns
        if elapsed_ns <= 0 or earlier.driver.identity != self.driver.identity:
            message = (
                f"diff needs an earlier snapshot of the same driver: this one is of process "
                f"{self.driver.pid}, started at {self.driver.started_ns} ns, the other of process "
                f"{earlier.driver.pid}, started at {earlier.driver.started_ns} ns, and "
                f"{elapsed_ns} ns older"
            )
            raise ConfigurationError(message)
        seconds = elapsed_ns / NS_PER_SECOND
        return Rates(
            seconds=seconds,
            publications={
                now.registration_id: publication_rates(now, before, seconds)
                for now, before in pairs(self.publications, earlier.publications)
            },
            images={
                now.registration_id: image_rates(now, before, seconds)
                for now, before in pairs(self.images, earlier.images)
            },
            subscriptions={
                now.registration_id: SubscriptionRates(
                    messages_per_second=counted(
                        now.message_count, 0 if before is None else before.message_count, seconds
                    )
                )
                for now, before in pairs(self.subscriptions, earlier.subscriptions)
            },
            counters={
                name: (value - earlier.driver.counters.get(name, 0)) / seconds
                for name, value in self.driver.counters.items()
            },
            archive=recording_rates(self.archive, earlier.archive, seconds),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return lists, texts and numbers only, as JSON takes them; `from_dict` is the inverse."""
        return {
            "source": self.source,
            "epoch_ns": self.epoch_ns,
            "monotonic_ns": self.monotonic_ns,
            "driver": plain(self.driver),
            "publications": plain(self.publications),
            "images": plain(self.images),
            "subscriptions": plain(self.subscriptions),
            **({} if self.archive is None else {"archive": plain(self.archive)}),
            **({} if self.calls is None else {"calls": plain(self.calls)}),
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Stats:
        """Return the snapshot that `to_dict` has taken apart, perhaps in another version.

        What is unknown to this version is left out, and what the other does not know is empty.

        Raises:
            ConfigurationError: A field has not the type that it must have.
        """
        try:
            return cls(
                source=str(fields["source"]),
                epoch_ns=int(fields["epoch_ns"]),
                monotonic_ns=int(fields["monotonic_ns"]),
                publications=table_of(
                    PublicationStats, fields["publications"], {"receivers": ReceiverStats}
                ),
                images=table_of(
                    ImageStats, fields["images"], {"losses": LossStats, "readers": ReaderStats}
                ),
                subscriptions=table_of(SubscriptionStats, fields["subscriptions"], {}),
                driver=driver_of(fields["driver"]),
                archive=None if fields.get("archive") is None else archive_of(fields["archive"]),
                calls=table_of(CallStats, fields["calls"], {}) if fields.get("calls") else None,
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            message = f"these are no statistics of a driver: {error!r}"
            raise ConfigurationError(message) from error


# Differences.


def pairs(now: Table[Any], earlier: Table[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield each row, and the row of the same stream in an earlier table; None if it is new."""
    ids = earlier.column("registration_id")
    before = {each: index for index, each in enumerate(ids)}
    for row in now:
        index = before.get(row.registration_id)
        yield row, None if index is None else earlier[index]


def counted(now: int | None, before: int | None, seconds: float) -> float | None:
    """Return how much a count has grown in a second; None if it is, or was, unknown."""
    return None if now is None or before is None else (now - before) / seconds


def publication_rates(
    now: PublicationStats, before: PublicationStats | None, seconds: float
) -> PublicationRates:
    """Return the rates of one publication; a new one began at its position."""
    was = now if before is None else before
    ns = seconds * NS_PER_SECOND
    blocked = ((by, getattr(now, name), getattr(was, name)) for by, name in BLOCKED_NAMES)
    return PublicationRates(
        bytes_per_second=(now.position - was.position) / seconds,
        messages_per_second=counted(
            now.message_count, 0 if before is None else before.message_count, seconds
        ),
        retransmitted_bytes_per_second=counted(
            now.retransmitted_bytes, was.retransmitted_bytes, seconds
        ),
        naks_per_second=counted(now.nak_count, was.nak_count, seconds),
        blocked_ratio={
            by: min(1.0, (waited_ns - before_ns) / ns)
            for by, waited_ns, before_ns in blocked
            if waited_ns is not None and before_ns is not None
        },
        backlog_bytes_per_second=counted(now.backlog_bytes, was.backlog_bytes, seconds),
    )


def image_rates(now: ImageStats, before: ImageStats | None, seconds: float) -> ImageRates:
    """Return the rates of one image; a new one began where it joined."""
    received = now.received_bytes or 0
    if before is not None:
        received = now.position - before.position
    earlier = {} if before is None else {each.cause: each for each in before.losses}
    nothing = LossStats("", 0, 0)
    return ImageRates(
        bytes_per_second=received / seconds,
        naks_per_second=counted(now.nak_count, 0 if before is None else before.nak_count, seconds),
        losses_per_second={
            each.cause: (each.count - earlier.get(each.cause, nothing).count) / seconds
            for each in now.losses
        },
        lost_bytes_per_second={
            each.cause: (each.bytes - earlier.get(each.cause, nothing).bytes) / seconds
            for each in now.losses
        },
    )


def recording_rates(
    now: ArchiveStats | None, before: ArchiveStats | None, seconds: float
) -> dict[int, float]:
    """Return bytes recorded in a second by recording id; a new session began at 0."""
    if now is None or before is None or now.archive_id != before.archive_id:
        return {}
    known = {
        (each.recording_id, each.start_position): each.recorded_bytes for each in before.recordings
    }
    return {
        each.recording_id: (
            each.recorded_bytes - known.get((each.recording_id, each.start_position), 0)
        )
        / seconds
        for each in now.recordings
    }


def check_stats(value: object, name: str) -> Stats:
    """Return what must be a snapshot.

    Args:
        value: An argument, or what a function of the caller has returned.
        name: What it is, for the error.

    Raises:
        ConfigurationError: It is something else.
    """
    if not isinstance(value, Stats):
        message = (
            f"{name} must be a snapshot, as `aeron.stats()` returns it (aeron_async.stats.Stats), "
            f"got {type(value).__name__}"
        )
        raise ConfigurationError(message)
    return value


# Plain values.


def plain(value: Any) -> Any:
    """Return a value as JSON takes it: a row becomes a mapping, a table one of its columns."""
    if isinstance(value, Table):
        return {name: [plain(each) for each in column] for name, column in value.columns.items()}
    if attrs.has(type(value)):
        return {each.name: plain(getattr(value, each.name)) for each in attrs.fields(type(value))}
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    return dict(value) if isinstance(value, Mapping) else value


def row_of(row_type: type[Row], fields: Mapping[str, Any]) -> Row:
    """Return one nested row of its mapping."""
    return row_type(**{name: fields.get(name) for name in names_of(row_type)})


def table_of(
    row_type: type[Row], columns: Mapping[str, Sequence[Any]], nested: Mapping[str, type[Any]]
) -> Table[Row]:
    """Return a table of plain columns, all as long as the first.

    Raises:
        TypeError: A column is no list, or a value of nested rows is none.
        ValueError: A column has another length.
    """
    length = len(list_of(names_of(row_type)[0], columns[names_of(row_type)[0]]))
    made: list[Sequence[Any]] = []
    for name in names_of(row_type):
        column = columns.get(name)
        if column is None:
            column = [()] * length if name in nested else [None] * length
        if len(list_of(name, column)) != length:
            message = f"column {name!r} has {len(column)} values and not {length}"
            raise ValueError(message)
        kind = nested.get(name)
        if kind is not None:
            column = [tuple(row_of(kind, each) for each in list_of(name, cell)) for cell in column]
        made.append(column)
    return Table(row_type, length, lambda: made)


def list_of(name: str, value: Any) -> list[Any] | tuple[Any, ...]:
    """Return a value of a column that must be a list; of a text each character would be a value.

    Raises:
        TypeError: It is none.
    """
    if not isinstance(value, list | tuple):
        message = f"column {name!r} has a {type(value).__name__} where a list must be"
        raise TypeError(message)
    return value


def driver_of(fields: Mapping[str, Any]) -> DriverStats:
    """Return the statistics of the driver of their mapping."""
    return DriverStats(
        pid=fields["pid"],
        started_ns=fields.get("started_ns"),
        version=fields["version"],
        is_pure=fields.get("is_pure"),
        loop_lag_count=fields.get("loop_lag_count"),
        loop_lag_max_ns=fields.get("loop_lag_max_ns"),
        loop_lags=tuple(fields.get("loop_lags", ())),
        loop_lag_ns=fields.get("loop_lag_ns"),
        cycles=tuple(row_of(CycleStats, each) for each in fields.get("cycles", ())),
        budgets=tuple(row_of(BudgetStats, each) for each in fields.get("budgets", ())),
        sockets=tuple(row_of(SocketStats, each) for each in fields.get("sockets", ())),
        counters=dict(fields.get("counters", {})),
        limits=dict(fields.get("limits", {})),
    )


def archive_of(fields: Mapping[str, Any]) -> ArchiveStats:
    """Return the statistics of an archive of their mapping."""
    return ArchiveStats(
        archive_id=fields["archive_id"],
        free_bytes=fields.get("free_bytes"),
        free_age_ns=fields.get("free_age_ns"),
        low_space_limit_bytes=fields.get("low_space_limit_bytes", 0),
        recording_count=fields.get("recording_count", 0),
        active_count=fields.get("active_count", 0),
        replay_count=fields.get("replay_count", 0),
        refused_image_count=fields.get("refused_image_count", 0),
        failed_count=fields.get("failed_count", 0),
        recorded_bytes=fields.get("recorded_bytes", 0),
        recordings=table_of(RecordingStats, fields["recordings"], {}),
    )
