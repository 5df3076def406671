"""Series of metrics: what one snapshot adds to them, and which streams have one of their own.

Streams with the same labels are one series. A counter of a series is the sum over its streams, and
keeps what streams had counted that have gone. Of a position only the increments are counted, from
where it was when the stream was first seen: a stream may begin anywhere.

Invariant: a counter of streams never falls while its series is there, and there are never more than
`max_series` series of a metric beside those with `stream="other"`. What is kept of streams is the
last snapshot, and series that have no stream for up to five minutes.
"""

from __future__ import annotations

from collections import ChainMap
from functools import lru_cache
from itertools import accumulate, chain
from operator import add, lt
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast, final

import attrs

from aeron_async.errors import ConfigurationError
from aeron_async.metrics.definitions import (
    CALL_LABELS,
    INFO,
    INVALID_PACKETS,
    LOOP_LAG,
    LOOP_LAG_POWERS,
    METRICS,
    REFUSED,
    SERIES_DROPPED,
    SNAPSHOT_AGE,
    STREAM_LABELS,
    Merge,
    Metric,
    MetricKind,
    MetricSource,
)
from aeron_async.protocol.arguments import check_number
from aeron_async.stats import BLOCKED_BY, LOSS_CAUSES, check_stats, network_backlog, slowest_of
from aeron_async.stats_columns import Groups
from aeron_async.text import SHORT, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

    from aeron_async.stats import ArchiveStats, CallStats, DriverStats, ReceiverStats, Stats, Table

__all__ = ["Buckets", "Family", "Labels", "MetricSeries", "channel_labels"]

GONE_NS: Final = 300_000_000_000
"""How long a series stays after its last stream has gone."""
CHANNELS_CACHED: Final = 1_024
CHANNEL_LENGTH_MAX: Final = 200
OTHER: Final = (("stream", "other"), ("channel", "other"))
OTHER_RECORDINGS: Final = (("recording", "other"),)
WHOLES: Final = {
    MetricSource.ARCHIVE,
    MetricSource.CALLS,
    MetricSource.DRIVER,
    MetricSource.PAGE,
}
"""Sources whose series are those of the snapshot itself."""
UNKNOWN_CAUSE: Final = "unknown"
NS_PER_SECOND: Final = 1_000_000_000

MERGES: Final[Mapping[Merge, Callable[[list[int]], int]]] = {
    Merge.SUM: sum,
    Merge.LARGEST: max,
    Merge.SMALLEST: min,
}

Number: TypeAlias = int | float
Pairs: TypeAlias = tuple[tuple[str, str], ...]
Column: TypeAlias = "Sequence[int | None]"


@attrs.frozen
class Labels:
    """The labels of one series.

    Attributes:
        pairs: Names and values, in order; values are printable.
        text: As the text format has them, in braces; empty if there are none.
    """

    pairs: Pairs
    text: str = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        inner = ",".join(f'{name}="{escaped(value)}"' for name, value in self.pairs)
        object.__setattr__(self, "text", f"{{{inner}}}" if inner else "")


@attrs.frozen
class Buckets:
    """The one histogram: how many values were at most each bound, the last one infinite."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


@attrs.frozen
class Family:
    """All series of one metric at one moment: a value for each label set."""

    metric: Metric
    labels: Sequence[Labels]
    values: Sequence[Number]
    histogram: Buckets | None = None


@final
class SeriesTable:
    """The series of all metrics that are made of one table.

    Args:
        metrics: What is made of the columns.
        max_series: Most series with a name of their own; labels beyond them share one.
        positions: The columns of which only increments count.
        other: The labels of those beyond `max_series`.
        begins_anew: Whether a count that falls has begun again at 0. Else a part of what it sums
            has gone, such as a client of a publication, and only what it grows by later counts.
    """

    def __init__(
        self,
        metrics: Sequence[Metric],
        max_series: int,
        positions: frozenset[str] = frozenset(),
        other: Pairs = OTHER,
        *,
        begins_anew: bool = False,
    ) -> None:
        self._metrics = metrics
        self._max_series = max_series
        self._named_count = 0
        self._other = other
        self._begins_anew = begins_anew
        self._replaced = {*STREAM_LABELS, *(name for name, _ in other)}
        self.positions = positions
        # By series:
        self._labels: list[Labels] = []
        self._series_by_pairs: dict[Pairs, int] = {}
        self._gone_at_ns: dict[int, int] = {}  # those without a row, the longest gone first
        # What sums hold beside the rows of now: None until a row was known.
        self._bases: dict[str, list[int | None]] = {
            each.column: [] for each in metrics if each.kind is MetricKind.COUNTER
        }
        # By row of the last snapshot; of a column what was last known:
        self._ids: list[Hashable] = []
        self._series: list[int] = []
        # By series: its first row, -1 without one; and the rows of those that have several.
        self._first_rows: list[int] = []
        self._shared: dict[int, list[int]] = {}
        self._is_one_to_one = True
        self._last: dict[str, Column] = dict.fromkeys(self._bases, ())
        # What was made of each column; the same again while it does not change.
        self._results: dict[str, tuple[Column, Family]] = {}
        self._hidden: dict[Hashable, Pairs] = {}

    @property
    def hidden_count(self) -> int:
        """Return how many label sets of now have no series of their own."""
        return len(set(self._hidden.values()))

    @property
    def kept_count(self) -> int:
        """Return how many series and rows are kept."""
        return len(self._labels) + len(self._ids)

    def update(
        self, ids: Sequence[Hashable], pairs_of: Callable[[int], Pairs], now_ns: int
    ) -> None:
        """Give each row a series: those that came, and take leave of those that have gone.

        Args:
            ids: What tells rows apart, in order.
            pairs_of: Returns the labels of a row by its index.
            now_ns: The time of the snapshot.
        """
        ids = list(ids)
        if ids != self._ids:
            self._join(ids, pairs_of, now_ns)
        gone = self._gone_at_ns
        if gone and now_ns - next(iter(gone.values())) > GONE_NS:
            self._forget({each for each, at_ns in gone.items() if now_ns - at_ns > GONE_NS})

    def families(self, columns: Mapping[str, Column]) -> Iterator[Family]:
        """Yield the series of each metric; columns that are not known have None or are empty."""
        for metric in self._metrics:
            column = columns[metric.column]
            # Most columns stay as they are: nothing is lost, and nobody waits.
            before = self._results.get(metric.name)
            if before is not None and before[0] == column:
                yield before[1]
                continue
            if metric.kind is MetricKind.COUNTER:
                values = self._sums(metric.column, column)
            else:
                values = self._merged(metric.merge, column)
            found = family(metric, self._labels, values)
            self._results[metric.name] = column, found
            yield found

    def _join(self, ids: list[Hashable], pairs_of: Callable[[int], Pairs], now_ns: int) -> None:
        """Find a series for each row, and keep in the sums what rows had that have gone."""
        before = {each: row for row, each in enumerate(self._ids)}
        rows = [before.pop(each, None) for each in ids]
        hidden, self._hidden = self._hidden, {}
        series: list[int] = []
        for index, row in enumerate(rows):
            if row is None:
                series.append(self._series_for(ids[index], pairs_of(index)))
                continue
            series.append(self._series[row])
            if ids[index] in hidden:
                self._hidden[ids[index]] = hidden[ids[index]]
        for name, last in self._last.items():
            base = self._bases[name]
            if last:
                for row in before.values():
                    keep(base, self._series[row], last[row])
            self._last[name] = [None if row is None or not last else last[row] for row in rows]
        living = set(series)
        for each in sorted(set(self._series) - living):
            self._gone_at_ns[each] = now_ns
        for each in living & self._gone_at_ns.keys():
            del self._gone_at_ns[each]
        self._ids = ids
        self._place(series)

    def _place(self, series: list[int]) -> None:
        """Note the series of each row."""
        self._series = series
        self._results.clear()
        self._is_one_to_one = series == list(range(len(series)))
        self._first_rows, self._shared = [-1] * len(self._labels), {}
        for row, each in enumerate(series):
            first = self._first_rows[each]
            if first < 0:
                self._first_rows[each] = row
            else:
                self._shared.setdefault(each, [first]).append(row)

    def _series_for(self, row_id: Hashable, pairs: Pairs) -> int:
        """Return the series of labels; those beyond the limit share one."""
        found = self._series_by_pairs.get(pairs)
        if found is not None:
            return found
        if self._named_count < self._max_series:
            self._named_count += 1
        else:
            self._hidden[row_id] = pairs
            pairs = self._other + tuple(pair for pair in pairs if pair[0] not in self._replaced)
            found = self._series_by_pairs.get(pairs)
            if found is not None:
                return found
        self._series_by_pairs[pairs] = len(self._labels)
        self._labels.append(Labels(pairs))
        for base in self._bases.values():
            base.append(None)
        return len(self._labels) - 1

    def _forget(self, gone: set[int]) -> None:
        """Remove series, and number the others anew."""
        kept = [each for each in range(len(self._labels)) if each not in gone]
        number = {each: new for new, each in enumerate(kept)}
        self._labels = [self._labels[each] for each in kept]
        self._series_by_pairs = {each.pairs: new for new, each in enumerate(self._labels)}
        self._bases = {name: [base[each] for each in kept] for name, base in self._bases.items()}
        self._place([number[each] for each in self._series])
        self._gone_at_ns = {
            number[each]: at_ns for each, at_ns in self._gone_at_ns.items() if each not in gone
        }
        other = self._other
        self._named_count = sum(each.pairs[: len(other)] != other for each in self._labels)

    def _sums(self, name: str, column: Column) -> Sequence[int | None]:
        """Return the sums by series, and remember the column."""
        if None in column:
            # What a row was last known to have stays in its sum, and is where it goes on from.
            pairs = zip(self._last[name], column, strict=True)
            column = [was if now is None else now for was, now in pairs]
        self._follow(name, column)
        self._last[name] = column
        bases: Any = self._bases[name]
        own = self._merged(Merge.SUM, column)
        if None in own:
            return [
                base if now is None else base + now for base, now in zip(bases, own, strict=True)
            ]
        return list(map(add, bases, own))

    def _follow(self, name: str, column: Column) -> None:
        """Change the base of sums where a row began or fell since it was last known."""
        last, base = self._last[name], self._bases[name]
        below: Callable[[Any, Any], bool] = lt
        # Two walks in C; the one in Python only if they find something.
        if None not in last and not any(map(below, column, last)):
            return
        is_position = name in self.positions
        for each, was, now in zip(self._series, last, column, strict=True):
            if was is None:
                keep(base, each, None if now is None else -now if is_position else 0)
            elif now is not None and now < was:
                keep(base, each, was if self._begins_anew else was - now)

    def _merged(self, merge: Merge, column: Column) -> Sequence[int | None]:
        """Return a gauge by series; None where no row has a value."""
        if self._is_one_to_one:
            return [*column, *[None] * (len(self._labels) - len(column))]
        padded = [*column, None]
        values = [padded[row] for row in self._first_rows]
        for each, rows in self._shared.items():
            known = [now for now in [column[row] for row in rows] if now is not None]
            values[each] = MERGES[merge](known) if known else None
        return values


@final
class MetricSeries:
    """All series of one driver, from snapshot to snapshot.

    Args:
        max_series: Most series of a metric beside those with `stream="other"`; 1 or more.
        info: More labels of `aeron_info`, such as `kernel` and `loop`.
        label_recordings: Whether each active recording of an archive has series of its own, with
            its id as the label `recording`; else one series has the sum, or the largest lag.

    Raises:
        ConfigurationError: `max_series` is below 1.
    """

    def __init__(
        self,
        max_series: int = 500,
        info: Mapping[str, str] | None = None,
        *,
        label_recordings: bool = False,
    ) -> None:
        self._label_recordings = label_recordings
        self._max_series = check_number(max_series, "max_series", minimum=1)
        self._info = dict(info or {})
        self._driver_id: tuple[int, int | None] | None = None
        self._at_ns = 0
        self._regs: Sequence[Any] = ()
        self._blocked_ids: Sequence[Hashable] = ()
        # By metric.
        self._texts: dict[str, tuple[Family, str]] = {}
        self._tables = {
            source: SeriesTable(
                [each for each in METRICS if each.source is source],
                max_series,
                frozenset({"sent"}) if source is MetricSource.PUBLICATIONS else frozenset(),
                OTHER_RECORDINGS if source is MetricSource.RECORDINGS else OTHER,
                begins_anew=source is MetricSource.RECORDINGS,
            )
            for source in MetricSource
            if source not in WHOLES
        }

    def text_of(self, found: Family, write: Callable[[Family], str]) -> str:
        """Return the text of a family, which is written once while the family stays the same."""
        name = found.metric.name
        before = self._texts.get(name)
        if before is None or before[0] is not found:
            before = self._texts[name] = found, write(found)
        return before[1]

    @property
    def kept_count(self) -> int:
        """Return how many series and rows are kept of earlier snapshots."""
        return sum(each.kept_count for each in self._tables.values())

    def collect(
        self,
        stats: Stats,
        *,
        now_ns: int | None = None,
        refused: Mapping[str, int] | None = None,
    ) -> Iterator[Family]:
        """Yield every metric that has a series; take them all before the next snapshot.

        Args:
            stats: A snapshot that is later than the one before.
            now_ns: The time of the machine's monotonic clock, for the age; None leaves it out.
            refused: What a server has refused, by reason.

        Raises:
            ConfigurationError: It is no snapshot, or older than the one before.
        """
        check_stats(stats, "stats")
        if stats.driver.identity != self._driver_id:
            # Registration ids begin anew: nothing of this driver was seen before.
            self._driver_id = stats.driver.identity
            for table in self._tables.values():
                table.update((), no_pairs, stats.monotonic_ns)
        elif stats.monotonic_ns < self._at_ns:
            message = (
                f"metrics need snapshots in order, and this one is "
                f"{self._at_ns - stats.monotonic_ns} ns older than the one before"
            )
            raise ConfigurationError(message)
        self._at_ns = stats.monotonic_ns
        for each in self._page(stats, now_ns, refused):
            if each.values:
                yield each
        for each in chain(
            self._publications(stats),
            self._images(stats),
            self._subscriptions(stats),
            self._recordings(stats.archive, stats.monotonic_ns),
            archive_families(stats.archive),
            call_families(stats.calls, self._max_series),
            self._driver(stats.driver),
        ):
            if each.values or each.histogram:
                yield each
        hidden = sum(table.hidden_count for table in self._tables.values())
        yield family(SERIES_DROPPED, [NO_LABELS], [hidden])

    def _page(
        self, stats: Stats, now_ns: int | None, refused: Mapping[str, int] | None
    ) -> Iterator[Family]:
        info = {"version": stats.driver.version, **self._info}
        pairs = tuple((name, printable(value, SHORT)) for name, value in info.items())
        yield family(INFO, [Labels(pairs)], [1])
        if now_ns is not None:
            age_s = max(0, now_ns - stats.monotonic_ns) / NS_PER_SECOND
            yield family(SNAPSHOT_AGE, [NO_LABELS], [age_s])
        if refused is not None:
            yield labelled(REFUSED, refused.items())

    def _publications(self, stats: Stats) -> Iterator[Family]:
        rows = stats.publications
        regs, pairs_of = rows.column("registration_id"), stream_pairs_of(rows)
        table = self._tables[MetricSource.PUBLICATIONS]
        table.update(regs, pairs_of, stats.monotonic_ns)
        sent = rows.column("sender_position")
        if None in sent:
            positions = rows.column("position")
            sent = [at if to is None else to for to, at in zip(sent, positions, strict=True)]
        added = {
            "sent": sent,
            "slowest_lag": slowest_lags(rows.column("receivers"), rows.column("backlog_bytes")),
            "rows": [1] * len(rows),
            "connected": [
                None if each is None else int(each) for each in rows.column("is_connected")
            ],
        }
        # Nothing is made of a column that no metric shows.
        yield from table.families(ChainMap(added, cast("dict[str, Any]", rows.columns)))
        table = self._tables[MetricSource.BLOCKED]
        if regs != self._regs:
            self._regs = regs
            self._blocked_ids = [(each, by) for each in regs for by in BLOCKED_BY]
        each_by = len(BLOCKED_BY)
        table.update(
            self._blocked_ids,
            lambda row: (*pairs_of(row // each_by), ("by", BLOCKED_BY[row % each_by])),
            stats.monotonic_ns,
        )
        columns = [rows.column(f"blocked_{by}_ns") for by in BLOCKED_BY]
        yield from table.families({"ns": list(chain.from_iterable(zip(*columns, strict=True)))})

    def _images(self, stats: Stats) -> Iterator[Family]:
        rows = stats.images
        regs, pairs_of = rows.column("registration_id"), stream_pairs_of(rows)
        table = self._tables[MetricSource.IMAGES]
        received = rows.column("received_bytes")
        # A table of counters knows positions only.
        is_known = any(each is not None for each in received) or not received
        table.positions = frozenset() if is_known else frozenset({"received"})
        table.update(regs, pairs_of, stats.monotonic_ns)
        added = {"received": received if is_known else rows.column("position")}
        yield from table.families(ChainMap(added, cast("dict[str, Any]", rows.columns)))
        losses: dict[tuple[Any, str], tuple[int, int, int]] = {}
        column = rows.column("losses")
        # Most streams lose nothing.
        lossy = column.filled if isinstance(column, Groups) else range(len(column))
        for row in lossy:
            for each in column[row]:
                key = regs[row], each.cause if each.cause in LOSS_CAUSES else UNKNOWN_CAUSE
                _, count, lost_bytes = losses.get(key, (row, 0, 0))
                losses[key] = row, count + each.count, lost_bytes + each.bytes
        ids = list(losses)
        table = self._tables[MetricSource.LOSSES]
        table.update(
            ids,
            lambda index: (*pairs_of(losses[ids[index]][0]), ("cause", ids[index][1])),
            stats.monotonic_ns,
        )
        yield from table.families(
            {
                "count": [count for _, count, _ in losses.values()],
                "bytes": [lost_bytes for _, _, lost_bytes in losses.values()],
            }
        )

    def _subscriptions(self, stats: Stats) -> Iterator[Family]:
        rows = stats.subscriptions
        table = self._tables[MetricSource.SUBSCRIPTIONS]
        table.update(rows.column("registration_id"), stream_pairs_of(rows), stats.monotonic_ns)
        yield from table.families(rows.columns)

    def _recordings(self, archive: ArchiveStats | None, now_ns: int) -> Iterator[Family]:
        table = self._tables[MetricSource.RECORDINGS]
        if archive is None:
            # Its rows stay as they were: the same archive may come back, and go on counting.
            return
        if self._label_recordings:
            rows = archive.recordings
            names = rows.column("recording_id")
            # A recording that is extended counts from 0 again: it is another row then.
            archive_ids = [archive.archive_id] * len(rows)
            ids = list(zip(archive_ids, names, rows.column("start_position"), strict=True))
            table.update(ids, lambda row: (("recording", str(names[row])),), now_ns)
            yield from table.families(
                {"recorded": rows.column("recorded_bytes"), "lag": rows.column("lag_bytes")}
            )
        else:
            table.update([archive.archive_id], no_pairs, now_ns)
            yield from table.families(
                {"recorded": [archive.recorded_bytes], "lag": [archive.lag_bytes]}
            )

    def _driver(self, driver: DriverStats) -> Iterator[Family]:
        counters = driver.counters
        drops = counters.get("socket_drops")
        if drops is None and driver.sockets:
            drops = sum(each.drop_count for each in driver.sockets)
        values: dict[str, Iterable[tuple[str, Number | None]]] = {
            "cycle_max": [(each.agent, each.max_ns) for each in driver.cycles],
            "cycles_exceeded": [(each.agent, each.exceeded_count) for each in driver.cycles],
            "socket_drops": [("socket_full", drops)],
            "invalid_packets": [
                (reason, counters.get(name)) for name, reason in INVALID_PACKETS.items()
            ],
            "limits": driver.limits.items(),
            "budgets": [
                (each.name, each.used / each.limit) for each in driver.budgets if each.limit
            ],
        }
        for metric in METRICS:
            if metric is LOOP_LAG:
                if driver.loop_lags:
                    yield Family(metric, [], [], histogram_of(driver))
            elif metric.source is MetricSource.DRIVER:
                yield labelled(metric, list(values[metric.column])[: self._max_series])


def archive_families(archive: ArchiveStats | None) -> Iterator[Family]:
    """Yield the metrics of an archive as a whole."""
    if archive is None:
        return
    stopped_count = max(0, archive.recording_count - archive.active_count)
    for metric in METRICS:
        if metric.source is not MetricSource.ARCHIVE:
            continue
        if metric.label:
            yield labelled(metric, [("active", archive.active_count), ("stopped", stopped_count)])
        else:
            yield family(metric, [NO_LABELS], [archive.free_bytes])


def call_families(calls: Table[CallStats] | None, max_series: int) -> Iterator[Family]:
    """Yield the metrics of services of calls; of more methods than `max_series`, the first."""
    rows = [] if calls is None else list(calls)[:max_series]
    if not rows:
        return
    names = [(printable(each.service, SHORT), printable(each.method, SHORT)) for each in rows]
    for metric in METRICS:
        if metric.source is not MetricSource.CALLS:
            continue
        # Of two services with the same names, the sum.
        sums: dict[Pairs, int] = {}
        for own, row in zip(names, rows, strict=True):
            pairs = tuple(zip(CALL_LABELS, own, strict=True))
            value = getattr(row, metric.column)
            parts = value.items() if metric.label else [("", value)]
            for name, count in parts:
                key = (*pairs, (metric.label, printable(name, SHORT))) if name else pairs
                sums[key] = sums.get(key, 0) + count
        yield family(metric, [Labels(each) for each in sums], list(sums.values()))


# Columns.


def stream_pairs_of(rows: Table[Any]) -> Callable[[int], Pairs]:
    """Return a function that returns the labels of a row."""
    channels, stream_ids = rows.column("channel"), rows.column("stream_id")

    def pairs_of(row: int) -> Pairs:
        channel, alias = channel_labels(str(channels[row]))
        pairs = (("stream", str(stream_ids[row])), ("channel", channel))
        return (*pairs, ("alias", alias)) if alias else pairs

    return pairs_of


def slowest_lags(
    column: Sequence[Sequence[ReceiverStats]], backlogs: Sequence[int | None]
) -> list[int | None]:
    """Return how far the receiver that allows the least is behind what was published, by row."""
    if isinstance(column, Groups) and column.are_single:
        # Most publications have one receiver, and nobody needs the row.
        lags, kinds = column.rows.column("lag_bytes"), column.rows.column("kind")
        return [
            lag + (backlog or 0) if kind == "receiver" else lag
            for lag, kind, backlog in zip(lags, kinds, backlogs, strict=True)
        ]
    return list(map(slowest_lag, column, backlogs))


def slowest_lag(receivers: Sequence[ReceiverStats], backlog_bytes: int | None) -> int | None:
    """Return how far the receiver that allows the least is behind what was published."""
    # Most publications have one receiver.
    slowest = receivers[0] if len(receivers) == 1 else slowest_of(receivers)
    if slowest is None:
        return None
    return slowest.lag_bytes + network_backlog(slowest, backlog_bytes)


def histogram_of(driver: DriverStats) -> Buckets:
    """Return the lags of the loop in buckets that are always the same."""
    below = list(accumulate(driver.loop_lags))
    counts = [below[min(power, len(below) - 1)] for power in LOOP_LAG_POWERS]
    return Buckets(
        bounds=(*(2**power / NS_PER_SECOND for power in LOOP_LAG_POWERS), float("inf")),
        counts=(*counts, below[-1]),
        total=(driver.loop_lag_ns or 0) / NS_PER_SECOND,
    )


def keep(base: list[int | None], series: int, value: int | None) -> None:
    """Add a value to the base of a series, which is known from then on; None adds nothing."""
    if value is not None:
        base[series] = (base[series] or 0) + value


# Families.


def family(metric: Metric, labels: Sequence[Labels], values: Sequence[Number | None]) -> Family:
    """Return the series whose value is known, in the base unit."""
    known: Any = values
    if None in values:
        pairs = [pair for pair in zip(labels, values, strict=True) if pair[1] is not None]
        labels, known = [each for each, _ in pairs], [each for _, each in pairs]
    if metric.divisor != 1:
        known = [each / metric.divisor for each in known]
    return Family(metric, labels, known)


def labelled(metric: Metric, items: Iterable[tuple[str, Number | None]]) -> Family:
    """Return series that differ in the label of the metric only; of equal labels the last one."""
    values = {label_of(metric.label, str(name)): value for name, value in items}
    return family(metric, list(values), list(values.values()))


# Labels.


@lru_cache(maxsize=CHANNELS_CACHED)
def label_of(name: str, value: str) -> Labels:
    """Return one label as labels."""
    return Labels(((name, printable(value, SHORT)),))


NO_LABELS: Final = Labels(())


def no_pairs(_row: int) -> Pairs:
    """Return the labels of what has no rows."""
    return ()


@lru_cache(maxsize=CHANNELS_CACHED)
def channel_labels(channel: str) -> tuple[str, str]:
    """Return the labels `channel` and `alias` of a channel: where it leads, and nothing else.

    The media, the endpoint or else the control address, and the group. Session ids, tags and
    lengths would make a new series of each start. Nothing is refused: the text is foreign.
    """
    head, _, query = channel.partition("?")
    values: dict[str, str] = {}
    for each in query.split("|"):
        key, _, value = each.partition("=")
        values.setdefault(key, value)
    kept = [key for key in ("endpoint", "control") if values.get(key)][:1]
    if not kept and values.get("control-mode"):
        kept = ["control-mode"]
    if values.get("group"):
        kept.append("group")
    shown = "|".join(f"{key}={values[key]}" for key in kept)
    where = f"{head}?{shown}" if shown else head
    return printable(where, CHANNEL_LENGTH_MAX), printable(values.get("alias", ""), SHORT)


def escaped(value: str) -> str:
    r"""Return the value of a label as the text format has it, with `\`, `"` and newline escaped."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
