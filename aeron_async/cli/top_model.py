"""The model of `aeron-async top`: what several snapshots of drivers say together.

Pure: all times come from the snapshots. Rates are of the last interval; losses, NAKs and blocked
time are of the last ten seconds, so that a short trouble can be read. `TopModel.scene` is a picture
that never changes, of which every view is made.

Invariant: everything that grows has a bound. A stream that has gone is forgotten, and so is the
oldest event if there are too many.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, final

import attrs

from aeron_async.cli.top_causes import (
    CauseClass,
    causes_of_driver,
    causes_of_image,
    causes_of_subscription,
    span_of,
)
from aeron_async.cli.top_publications import (
    causes_of_publication,
    is_measured,
    near_misses,
    waits_of,
)
from aeron_async.cli.top_scene import TopDriver, TopEvent, TopKey, TopRow, TopScene
from aeron_async.clock import NS_PER_SECOND
from aeron_async.stats import (
    ImageStats,
    PublicationStats,
    SubscriptionStats,
    image_rates,
    publication_rates,
)
from aeron_async.text import SHORT, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from aeron_async.cli.top_causes import DriverSpan
    from aeron_async.cli.top_scene import StreamStats
    from aeron_async.stats import DriverStats, Stats

__all__ = ["EVENTS_MAX", "HISTORY", "StatsSource", "TopModel"]

HISTORY: Final = 120
"""Default number of rates that are kept for each stream."""
EVENTS_MAX: Final = 1_000
WINDOW_NS: Final = 10 * NS_PER_SECOND
"""Time that losses, NAKs and blocked time are of."""
SAMPLES_A_WINDOW: Final = 20
"""Most snapshots that are kept of this time."""
HOLD_NS: Final = 5 * NS_PER_SECOND
"""How long a stream keeps its place, so that the list does not dance."""
RECEIVER_EVENTS_MAX: Final = 8
"""Most receivers of a publication that one snapshot names as new, and as gone."""


class StatsSource(Protocol):
    """Where the snapshots of one driver come from."""

    @property
    def name(self) -> str:
        """Return what to call the driver: a path."""
        ...

    @property
    def remark(self) -> str:
        """Return what to say of where the last snapshot came from; mostly empty."""
        ...

    async def take(self) -> Stats:
        """Return a new snapshot.

        Raises:
            AeronError: The driver is gone, or does not answer.
        """
        ...

    async def aclose(self) -> None:
        """Close what it has opened."""
        ...


@final
class Track:
    """What is remembered of one stream between snapshots.

    Args:
        samples: First of them, as time and row; a row of None is before the stream began.
        history: Most rates that are kept.
    """

    __slots__ = ("last", "placed", "placed_ns", "rates", "row", "samples")

    def __init__(self, first: tuple[int, StreamStats | None], history: int) -> None:
        self.last = first
        self.samples: deque[tuple[int, StreamStats | None]] = deque(
            [first], maxlen=SAMPLES_A_WINDOW + 2
        )
        self.rates: deque[float] = deque(maxlen=history)
        self.placed = 0.0
        self.placed_ns: int | None = None
        self.row: TopRow | None = None

    def before(self, now_ns: int) -> tuple[int, StreamStats | None]:
        """Return the newest sample that is a window old, or else the oldest."""
        while len(self.samples) > 1 and self.samples[1][0] <= now_ns - WINDOW_NS:
            self.samples.popleft()
        return self.samples[0]

    def keep(self, now_ns: int, stats: StreamStats) -> None:
        """Remember a row, and for the window if the last one is not too near."""
        self.last = now_ns, stats
        if now_ns - self.samples[-1][0] >= WINDOW_NS // SAMPLES_A_WINDOW:
            self.samples.append(self.last)

    @property
    def looks(self) -> tuple[StreamStats, ...]:
        """Return the stream at the looks of the window, the oldest first."""
        kept = [self.last, *reversed(self.samples)]
        # The last one is mostly kept for the window, too.
        rows = [row for place, (at, row) in enumerate(kept) if place == 0 or at < self.last[0]]
        return tuple(each for each in reversed(rows) if each is not None)

    def place(self, score: float, now_ns: int) -> None:
        """Choose the place in order of trouble; a new one is kept for a while."""
        if score != self.placed and (self.placed_ns is None or now_ns - self.placed_ns >= HOLD_NS):
            self.placed, self.placed_ns = score, now_ns


@final
class DriverTrack:
    """What is remembered of one driver between snapshots."""

    __slots__ = ("driver", "last", "samples", "tracks")

    def __init__(self, name: str) -> None:
        self.last: Stats | None = None
        self.samples: deque[tuple[int, DriverStats]] = deque(maxlen=SAMPLES_A_WINDOW + 2)
        self.tracks: dict[TopKey, Track] = {}
        self.driver = TopDriver(
            name=name,
            failure="no answer yet",
            remark="",
            epoch_ns=0,
            source="",
            stats=None,
            archive=None,
            span=None,
            stream_count=0,
            blocked_count=None,
            trouble_count=0,
            in_bytes_per_second=None,
            out_bytes_per_second=None,
            causes=(),
        )

    def forget(self) -> None:
        """Forget everything about a process that has been replaced by another one."""
        self.last = None
        self.samples.clear()
        self.tracks.clear()

    def span(self, stats: Stats) -> DriverSpan | None:
        """Return what happened to the driver within the window."""
        now_ns = stats.monotonic_ns
        while len(self.samples) > 1 and self.samples[1][0] <= now_ns - WINDOW_NS:
            self.samples.popleft()
        span = None
        if self.samples:
            then_ns, before = self.samples[0]
            span = span_of(stats.driver, before, (now_ns - then_ns) / NS_PER_SECOND)
        if not self.samples or now_ns - self.samples[-1][0] >= WINDOW_NS // SAMPLES_A_WINDOW:
            self.samples.append((now_ns, stats.driver))
        return span


@final
class TopModel:
    """Snapshots of drivers in, pictures out.

    Args:
        history: Most rates that are kept of a stream.
        names: What the drivers are called that will answer; pictures have them in this order,
            whichever answers first, and the others behind.
    """

    def __init__(self, history: int = HISTORY, *, names: Iterable[str] = ()) -> None:
        assert history > 0
        self._history = history
        self._drivers = {name: DriverTrack(name) for name in names}
        self._events: deque[TopEvent] = deque(maxlen=EVENTS_MAX)
        self._event_count = 0

    def on_stats(self, stats: Stats, name: str | None = None, *, remark: str = "") -> None:
        """Take a snapshot; one that is not newer than the last of its driver is ignored.

        Args:
            stats: The snapshot.
            name: What to call the driver, if not by its process id.
            remark: What its source says of where it came from.
        """
        name = str(stats.driver.pid) if name is None else name
        track = self._drivers.setdefault(name, DriverTrack(name))
        key = TopKey(name, "drv", 0)
        if track.last is not None and not are_comparable(track.last, stats):
            text = successor(track.last, stats)
            self._note(stats.epoch_ns, key, "driver", text)
            track.forget()
        elif track.last is not None and stats.monotonic_ns <= track.last.monotonic_ns:
            return
        elif track.driver.failure and track.last is not None:
            self._note(stats.epoch_ns, key, "driver", "it answers again")
        span = track.span(stats)
        is_first = track.last is None
        rows = self._streams(track, stats, span)
        if not is_first:
            self._note_limits(key, track.last, stats)
        track.last = stats
        track.driver = driver_of(name, stats, span, rows, printable(remark))

    def on_failure(self, name: str, reason: str) -> None:
        """Take note that a driver does not answer; what was known of it stays."""
        track = self._drivers.setdefault(name, DriverTrack(name))
        reason = printable(reason)
        if not track.driver.failure and track.last is not None:
            key = TopKey(name, "drv", 0)
            self._note(track.last.epoch_ns, key, "driver", f"it does not answer: {reason}")
        track.driver = attrs.evolve(track.driver, failure=reason)

    def last(self, name: str) -> Stats | None:
        """Return the last snapshot of a driver; None if it does not answer."""
        track = self._drivers[name]
        return None if track.driver.failure else track.last

    def scene(self) -> TopScene:
        """Return a picture of all that is known now."""
        drivers = [track.driver for track in self._drivers.values()]
        rows = [row_of_driver(each) for each in drivers if each.causes]
        streams = [
            (track.placed, track.row)
            for each in self._drivers.values()
            for track in each.tracks.values()
            if track.row is not None
        ]
        streams.sort(key=lambda each: (-each[0], each[1].key))
        return TopScene(
            drivers=tuple(drivers),
            rows=(*rows, *(row for _, row in streams)),
            events=tuple(self._events),
            events_forgotten=self._event_count - len(self._events),
        )

    def _streams(self, driver: DriverTrack, stats: Stats, span: DriverSpan | None) -> list[TopRow]:
        """Bring the tracks of all streams up to date, and return their rows."""
        before_ns = None if driver.last is None else driver.last.monotonic_ns
        name, now_ns = driver.driver.name, stats.monotonic_ns
        messages, nearly = messages_of(stats, driver.last), near_misses(stats)
        rows: list[TopRow] = []
        alive: set[TopKey] = set()
        for kind, row in streams_of(stats):
            key = TopKey(name, kind, row.registration_id)
            if key in alive:
                continue
            alive.add(key)
            track = driver.tracks.get(key)
            earlier: StreamStats | None = None
            if track is None:
                is_new = before_ns is not None
                first = (before_ns, None) if before_ns is not None else (now_ns, row)
                track = driver.tracks[key] = Track(first, self._history)
                if is_new:
                    self._note(stats.epoch_ns, key, "came", f"{described(row)} came")
            else:
                earlier = track.last[1]
            if earlier is not None:
                self._note_changes(stats.epoch_ns, key, earlier, row)
            beside = Beside(span, messages, nearly.get(row.registration_id, ()))
            track.row = made = row_of(key, row, track, stats, beside)
            track.keep(now_ns, row)
            rows.append(made)
        for key in driver.tracks.keys() - alive:
            gone = driver.tracks.pop(key)
            # A subscription whose publisher came is shown as an image from then on.
            if key.kind != "sub" and gone.last[1] is not None:
                self._note(stats.epoch_ns, key, "went", f"{described(gone.last[1])} went")
        return rows

    def _note(self, epoch_ns: int, key: TopKey, what: str, text: str) -> None:
        self._event_count += 1
        self._events.append(TopEvent(epoch_ns=epoch_ns, key=key, what=what, text=text))

    def _note_limits(self, key: TopKey, before: Stats | None, now: Stats) -> None:
        """Take note of limits that were reached for the first time."""
        assert before is not None
        for name, count in now.driver.limits.items():
            if count > 0 and not before.driver.limits.get(name, 0):
                text = f"limit {printable(name, SHORT)} was reached"
                self._note(now.epoch_ns, key, "limit", text)

    def _note_changes(
        self, epoch_ns: int, key: TopKey, before: StreamStats, now: StreamStats
    ) -> None:
        """Take note of what has changed of a stream."""
        for what, text in changes_of(before, now):
            self._note(epoch_ns, key, what, f"{described(now)} {text}")


# Streams.


def streams_of(stats: Stats) -> Iterable[tuple[str, StreamStats]]:
    """Yield every stream: publications, images, and subscriptions without an image."""
    for publication in stats.publications:
        yield "pub", publication
    for image in stats.images:
        yield "img", image
    for subscription in stats.subscriptions:
        if subscription.image_count == 0:
            yield "sub", subscription


def described(row: StreamStats) -> str:
    """Return what a stream is called in a sentence."""
    match row:
        case PublicationStats():
            return f"publication {row.stream_id}, session {row.session_id},"
        case ImageStats():
            return f"image {row.stream_id}, session {row.session_id},"
        case SubscriptionStats():
            return f"subscription {row.stream_id} without an image"


def changes_of(before: StreamStats, now: StreamStats) -> list[tuple[str, str]]:
    """Return what has changed of one stream: a word for programs, and the rest of a sentence."""
    found: list[tuple[str, str]] = []
    if isinstance(before, SubscriptionStats) or isinstance(now, SubscriptionStats):
        return found
    if before.state != now.state:
        states = printable(before.state, SHORT), printable(now.state, SHORT)
        found.append(("state", f"was {states[0]} and is {states[1]}"))
    if isinstance(before, PublicationStats) and isinstance(now, PublicationStats):
        found += publication_changes(before, now)
    if isinstance(before, ImageStats) and isinstance(now, ImageStats):
        known = {each.cause for each in before.losses if each.count > 0}
        found += [
            ("loss", f"has lost data by {printable(each.cause, SHORT)} for the first time")
            for each in now.losses
            if each.count > 0 and each.cause not in known
        ]
    return found


def publication_changes(
    before: PublicationStats, now: PublicationStats
) -> Iterable[tuple[str, str]]:
    """Yield what has changed of a publication besides its state."""
    if None not in {now.is_connected, before.is_connected} and (
        before.is_connected != now.is_connected
    ):
        word = "connected" if now.is_connected else "disconnected"
        yield word, f"is {word}"
    then = {(each.kind, each.id): each for each in before.receivers}
    there = {(each.kind, each.id): each for each in now.receivers}
    for word, ones in (
        ("came", [there[each] for each in there if each not in then]),
        ("went", [then[each] for each in then if each not in there]),
    ):
        for each in ones[:RECEIVER_EVENTS_MAX]:
            where = f" at {printable(each.address, SHORT)}" if each.address else ""
            name = f"{printable(each.kind, SHORT)} {printable(each.id, SHORT)}{where}"
            yield f"receiver_{word}", f"had a change: {name} {word}"
        if len(ones) > RECEIVER_EVENTS_MAX:
            more = len(ones) - RECEIVER_EVENTS_MAX
            yield f"receiver_{word}", f"had a change: {more:,} more receivers {word}"
    if before.blocked_by != now.blocked_by:
        if before.blocked_by:
            yield "unblocked", f"no longer waits for {printable(before.blocked_by, SHORT)}"
        if now.blocked_by:
            yield "blocked", f"waits for {printable(now.blocked_by, SHORT)}"


def messages_of(stats: Stats, earlier: Stats | None) -> dict[int, float]:
    """Return the messages a second of subscriptions that read one image, by registration id."""
    if earlier is None or stats.monotonic_ns <= earlier.monotonic_ns:
        return {}
    seconds = (stats.monotonic_ns - earlier.monotonic_ns) / NS_PER_SECOND
    before = dict(
        zip(
            earlier.subscriptions.column("registration_id"),
            earlier.subscriptions.column("message_count"),
            strict=True,
        )
    )
    return {
        row.registration_id: max(0, row.message_count - was) / seconds
        for row in stats.subscriptions
        if row.message_count is not None
        and row.image_count == 1
        and (was := before.get(row.registration_id, 0)) is not None
    }


def are_comparable(before: Stats, now: Stats) -> bool:
    """Return whether two snapshots are of one driver, and count the same things."""
    return before.driver.identity == now.driver.identity and before.source == now.source


def successor(before: Stats, now: Stats) -> str:
    """Return what to say of a snapshot that cannot be compared with the one before."""
    if now.driver.pid != before.driver.pid:
        return f"another process: {now.driver.pid} after {before.driver.pid}"
    if now.source != before.source:
        whose = "its counters are" if now.source == "counters" else "its own statistics are"
        return f"{whose} looked at from now on"
    return f"another driver in process {now.driver.pid}"


class Beside(NamedTuple):
    """What else was seen that explains a stream.

    Attributes:
        span: What happened to its driver.
        messages: Messages a second that subscriptions read, by registration id.
        nearly: Other streams in its place, if it has no peer.
    """

    span: DriverSpan | None
    messages: Mapping[int, float]
    nearly: tuple[int, ...]


def row_of(key: TopKey, row: StreamStats, track: Track, now: Stats, beside: Beside) -> TopRow:
    """Return the row of one stream, and remember its rate and its place."""
    fields: dict[str, Any]
    now_ns = now.monotonic_ns
    if isinstance(row, PublicationStats):
        fields = publication_fields(row, track, now_ns, beside)
    elif isinstance(row, ImageStats):
        fields = image_fields(row, track, now_ns, beside)
    else:
        fields = {
            **NOTHING,
            "lag_bytes": row.lag_bytes,
            "state": "no image",
            "causes": tuple(causes_of_subscription(row, beside.span, beside.nearly)),
        }
    if fields["bytes_per_second"] is not None:
        track.rates.append(fields["bytes_per_second"])
    score = max((each.score for each in fields["causes"]), default=0.0)
    track.place(score, now_ns)
    return TopRow(
        key=key,
        pid=now.driver.pid,
        started_ns=now.driver.started_ns,
        stream_id=row.stream_id,
        session_id=None if isinstance(row, SubscriptionStats) else row.session_id,
        channel=row.channel,
        history=tuple(track.rates),
        score=score,
        stats=row,
        **fields,
    )


NOTHING: Final[Mapping[str, Any]] = {
    "bytes_per_second": None,
    "messages_per_second": None,
    "lag_bytes": None,
    "lag_ns": None,
    "losses_per_second": {},
    "lost_bytes_per_second": {},
    "blocked_ratio": {},
    "naks_per_second": None,
    "is_held": False,
}


def publication_fields(
    row: PublicationStats, track: Track, now_ns: int, beside: Beside
) -> dict[str, Any]:
    """Return what a row says of a publication."""
    fields = dict(NOTHING)
    state = "no sub" if row.is_connected is False and row.state == "active" else row.state
    looks: tuple[PublicationStats, ...] = ()
    window = None
    last_ns, last = track.last
    if now_ns > last_ns:
        assert last is None or isinstance(last, PublicationStats)
        rates = publication_rates(row, last, (now_ns - last_ns) / NS_PER_SECOND)
        then_ns, then = track.before(now_ns)
        assert then is None or isinstance(then, PublicationStats)
        window = publication_rates(row, then, (now_ns - then_ns) / NS_PER_SECOND)
        # Most streams need no look at the past.
        if row.backlog_bytes or not is_measured(row):
            looks = tuple(each for each in track.looks if isinstance(each, PublicationStats))
        fields |= {
            "bytes_per_second": max(0.0, rates.bytes_per_second),
            "messages_per_second": rates.messages_per_second,
            "blocked_ratio": {by: max(0.0, share) for by, share in window.blocked_ratio.items()},
            "naks_per_second": window.naks_per_second,
        }
    waits = waits_of(row, window, looks)
    return fields | {
        "state": state,
        "lag_bytes": row.lag_bytes,
        "causes": tuple(causes_of_publication(row, window, beside.span, looks, beside.nearly)),
        # Whether anything is offered to one without a subscriber, not every source knows.
        "is_held": bool(waits.keys() - (set() if is_measured(row) else {"not_connected"})),
    }


def image_fields(row: ImageStats, track: Track, now_ns: int, beside: Beside) -> dict[str, Any]:
    """Return what a row says of an image."""
    fields = dict(NOTHING)
    window = None
    last_ns, last = track.last
    if now_ns > last_ns:
        assert last is None or isinstance(last, ImageStats)
        rates = image_rates(row, last, (now_ns - last_ns) / NS_PER_SECOND)
        then_ns, then = track.before(now_ns)
        assert then is None or isinstance(then, ImageStats)
        window = image_rates(row, then, (now_ns - then_ns) / NS_PER_SECOND)
        counts = [beside.messages.get(each.registration_id) for each in row.readers]
        fields |= {
            "bytes_per_second": max(0.0, rates.bytes_per_second),
            "messages_per_second": max((e for e in counts if e is not None), default=None),
            "losses_per_second": positive(window.losses_per_second),
            "lost_bytes_per_second": positive(window.lost_bytes_per_second),
            "naks_per_second": window.naks_per_second,
        }
    causes = tuple(causes_of_image(row, window, beside.span))
    return fields | {
        "state": row.state,
        "lag_bytes": row.lag_bytes,
        "lag_ns": row.lag_ns,
        "causes": causes,
    }


def positive(rates: Mapping[str, float]) -> dict[str, float]:
    """Return the rates that are more than 0."""
    return {name: rate for name, rate in rates.items() if rate > 0}


# Drivers.


def driver_of(
    name: str, stats: Stats, span: DriverSpan | None, rows: Sequence[TopRow], remark: str
) -> TopDriver:
    """Return what is shown of a driver."""
    rates = {
        kind: [each.bytes_per_second or 0.0 for each in rows if each.key.kind == kind]
        for kind in ("pub", "img")
    }
    in_rate = None if span is None else span.in_bytes_per_second
    out_rate = None if span is None else span.out_bytes_per_second
    if span is not None and in_rate is None:
        in_rate = sum(rates["img"])
    if span is not None and out_rate is None:
        out_rate = sum(rates["pub"])
    return TopDriver(
        name=name,
        failure="",
        remark=remark,
        epoch_ns=stats.epoch_ns,
        source=stats.source,
        stats=stats.driver,
        archive=stats.archive,
        span=span,
        stream_count=len(rows),
        blocked_count=sum(each.is_held for each in rows),
        trouble_count=sum(bool(each.causes) for each in rows),
        in_bytes_per_second=in_rate,
        out_bytes_per_second=out_rate,
        causes=() if span is None else tuple(causes_of_driver(span)),
    )


def row_of_driver(driver: TopDriver) -> TopRow:
    """Return the row of a driver that is in trouble itself."""
    return TopRow(
        key=TopKey(driver.name, "drv", 0),
        pid=0 if driver.stats is None else driver.stats.pid,
        started_ns=None if driver.stats is None else driver.stats.started_ns,
        stream_id=None,
        session_id=None,
        channel=driver.name,
        state="trouble",
        history=(),
        score=float(CauseClass.DRIVER),
        causes=driver.causes,
        stats=None,
        **NOTHING,
    )
