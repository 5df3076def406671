"""Why a stream or a driver is in trouble: one cause word, one sentence, and what to change.

Pure: functions of rows and of what happened to them in the last seconds. The words are those of
`aeron_async.stats`, and these:

    slow_reader  a subscription does not consume what has arrived for it
    loop_lag     the event loop of the driver was late
    limit        a limit of the driver was reached, or one of its budgets is nearly used up
    backlog      a publication has published for long what its receivers do not let it send
    no_image     a subscription has no publisher

A cause has a severity, so that what hurts most comes first: a stream that stands or falls behind,
or data that never comes, before losses that are repaired, and those before what only looks odd.

Foreign texts in a sentence are printable and short.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.cli.figures import format_bytes, format_ns
from aeron_async.clock import NS_PER_MS, NS_PER_SECOND
from aeron_async.text import SHORT, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from aeron_async.stats import (
        BudgetStats,
        DriverStats,
        ImageRates,
        ImageStats,
        SubscriptionStats,
    )

__all__ = [
    "BUDGET_SETTINGS",
    "IN_HAND_BYTES_MAX",
    "LIMIT_SETTINGS",
    "RCVBUF",
    "WINDOW",
    "Cause",
    "CauseClass",
    "DriverSpan",
    "causes_of_driver",
    "causes_of_image",
    "causes_of_subscription",
    "loop_cause",
    "moved",
    "of_time",
    "severity_of_share",
    "short",
    "span_of",
    "worst_first",
]

HURTING_SHARE: Final = 0.1
"""A stream hurts if offers wait for so much of the time; less is a strain."""
LAG_TIME_MIN_NS: Final = NS_PER_SECOND
LAG_WINDOW_SHARE: Final = 0.5
"""A reader is slow if what it has not consumed is as old as this, or so much of the window."""
IN_HAND_BYTES_MAX: Final = 4_096
"""If nothing more comes, a reader that has not consumed so much may have a last message in hand."""
LOOP_LAG_MIN_NS: Final = 64 * NS_PER_MS
"""A loop that was late by less is no trouble."""
BUDGET_SHARE_MIN: Final = 0.95
"""Part of a budget beyond which it is nearly used up."""
DATAGRAM_BYTES: Final = 1_408
DATAGRAM_COST_BYTES: Final = 2_304
"""A datagram of the default MTU, and what Linux charges to a receive buffer for it."""

NEARLY_MAX: Final = 3
"""Most other streams that a sentence names."""

RCVBUF: Final = "so-rcvbuf (AERON_SOCKET_SO_RCVBUF)"
WINDOW: Final = "rcv-wnd (AERON_RCV_INITIAL_WINDOW_LENGTH)"

LIMIT_SETTINGS: Final[Mapping[str, str]] = {
    "naks_suppressed": "AERON_ASYNC_MAX_RETRANSMIT_BASE_COUNT",
    "elicited_setups_suppressed": "AERON_ASYNC_MAX_ELICITED_SETUPS_PER_SECOND",
    "pending_setups_refused": "AERON_ASYNC_MAX_PENDING_SETUPS",
    "images_refused": "AERON_ASYNC_IMAGE_LOG_BUDGET_LENGTH or AERON_ASYNC_MAX_IMAGES_PER_STREAM",
    "naks_withheld": "AERON_ASYNC_MAX_NAKS_PER_SECOND",
    "rtt_replies_suppressed": "AERON_ASYNC_MAX_RTT_REPLIES_PER_SECOND",
    "session_states_evicted": "AERON_ASYNC_MAX_SESSION_STATES",
    "destinations_refused": "AERON_ASYNC_MAX_DESTINATIONS",
    "flow_control_receivers_refused": "AERON_ASYNC_MAX_FLOW_CONTROL_RECEIVERS",
    "resolutions_refused": "AERON_ASYNC_MAX_RESOLUTIONS_PER_SECOND",
}
"""What to raise if a limit was reached, by the name of its counter."""
BUDGET_SETTINGS: Final[Mapping[str, str]] = {
    "image_logs_bytes": "AERON_ASYNC_IMAGE_LOG_BUDGET_LENGTH",
}
"""What to raise if a budget is used up, by its name."""

LOSSES: Final[Mapping[str, tuple[str, str]]] = {
    "gap": (
        "datagrams did not arrive, and were asked for again",
        (
            "look for drops on the way (`ethtool -S`, switches); if datagrams are fragmented, "
            "lower mtu (AERON_MTU_LENGTH)"
        ),
    ),
    "socket_drop": ("the receive buffer of its socket was full", ""),
    "over_run": (
        "the publisher sent beyond the window",
        f"let the publisher wait for this receiver with fc=min, or raise {WINDOW}",
    ),
    "unfilled": (
        "holes were filled with padding, and their data never comes",
        "use reliable=true, if every message matters",
    ),
    "left_behind": (
        "an untethered subscription was too slow, and the stream went on without it",
        "let it read faster, use tether=true, or raise AERON_UNTETHERED_WINDOW_LIMIT_TIMEOUT",
    ),
    "refused": (
        "a limit of this driver was reached",
        "raise the limit that the driver page (d) names",
    ),
    "forged": (
        "frames that cannot be of this stream were refused",
        (
            "find out who else sends to this address, and let a firewall admit only the "
            "publisher; two publishers must not share one session-id"
        ),
    ),
    "malformed": (
        "frames that no rule of the protocol allows were refused",
        "find out who else sends to this address, and let a firewall admit only the publisher",
    ),
}
"""What a loss means and what to do about it, in order of importance."""
FINAL: Final = frozenset({"unfilled", "left_behind", "refused"})
"""Causes by which data is lost for good."""
HARMLESS: Final = frozenset({"forged", "malformed"})
"""Causes by which nothing of the stream itself was lost."""


class CauseClass(IntEnum):
    """How much a cause hurts, whatever its size.

    Any cause of one class comes before all causes of the next.
    """

    ODD = 1
    """Nothing is lost or waits: there is no peer, or frames of a stranger were refused."""
    STRAIN = 2
    """Losses that are repaired, over-runs, offers that wait now and then."""
    HURT = 3
    """Offers wait, data comes late by seconds or ever later, or it never comes."""
    DRIVER = 4
    """The driver itself: it stands before its streams."""


@attrs.frozen
class Cause:
    """Why something is in trouble.

    Attributes:
        word: One word for programs, filters and narrow screens.
        sentence: What happens.
        remedy: What to change, with the name of the setting.
        severity: Its class.
        magnitude: How bad it is among those of its class, from 0 to 1.
    """

    word: str
    sentence: str
    remedy: str
    severity: CauseClass = CauseClass.HURT
    magnitude: float = 0.0

    @property
    def score(self) -> float:
        """Return the number by which troubles are sorted: its class, and a part for its size."""
        return self.severity + 0.999 * max(0.0, min(1.0, self.magnitude))


def worst_first(causes: Iterable[Cause]) -> list[Cause]:
    """Return causes in order of their scores; of equal ones the first stays first."""
    return sorted(causes, key=lambda each: -each.score)


def severity_of_share(share: float) -> CauseClass:
    """Return how much it hurts if offers wait for this part of the time."""
    return CauseClass.HURT if share >= HURTING_SHARE else CauseClass.STRAIN


def of_time(seconds: float | None) -> float:
    """Return how bad it is to be so late, from 0 to 1; 1 second is half of the way, None all."""
    return 1.0 if seconds is None else seconds / (1 + seconds)


@attrs.frozen(kw_only=True)
class DriverSpan:
    """What happened to a driver within some seconds.

    Attributes:
        loop_lag_count: How often its event loop was late; None if unknown.
        loop_lag_ns: By how much at most: a power of two above, or the maximum ever.
        drops: What the system dropped at its sockets, by address; those without are left out.
        limits: Limits that were reached, and how often.
        exceeded: Duty cycles that took too long, by agent.
        in_bytes_per_second: None if the driver does not count what it receives.
        out_bytes_per_second: Likewise of what it sends.
        stats: The driver at the end of the span.
    """

    seconds: float
    loop_lag_count: int | None
    loop_lag_ns: int
    drops: Mapping[str, int]
    limits: Mapping[str, int]
    exceeded: Mapping[str, int]
    in_bytes_per_second: float | None
    out_bytes_per_second: float | None
    stats: DriverStats

    @property
    def drop_count(self) -> int:
        """Return what the system dropped at all sockets."""
        return sum(self.drops.values())

    @property
    def is_loop_late(self) -> bool:
        """Return whether the event loop was late enough to matter."""
        return bool(self.loop_lag_count) or self.loop_lag_ns >= LOOP_LAG_MIN_NS


def moved(now: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    """Return by how much counters have grown, without those that have not."""
    grown = {name: value - before.get(name, 0) for name, value in now.items()}
    return {name: value for name, value in grown.items() if value > 0}


def span_of(now: DriverStats, before: DriverStats, seconds: float) -> DriverSpan:
    """Return what happened to a driver between two moments."""
    lags = [
        count - (before.loop_lags[place] if place < len(before.loop_lags) else 0)
        for place, count in enumerate(now.loop_lags)
    ]
    highest = max((place for place, count in enumerate(lags) if count > 0), default=None)
    count = now.loop_lag_count
    if count is not None:
        count = max(0, count - (before.loop_lag_count or 0))
    longest_ns = now.loop_lag_max_ns or 0
    lag_ns = longest_ns if count else 0
    if highest is not None:
        lag_ns = min(2**highest, longest_ns)

    def rate(name: str) -> float | None:
        value = now.counters.get(name)
        return None if value is None else max(0, value - before.counters.get(name, 0)) / seconds

    return DriverSpan(
        seconds=seconds,
        loop_lag_count=count,
        loop_lag_ns=lag_ns,
        drops=moved(
            {each.address: each.drop_count for each in now.sockets},
            {each.address: each.drop_count for each in before.sockets},
        ),
        limits=moved(now.limits, before.limits),
        exceeded=moved(
            {each.agent: each.exceeded_count for each in now.cycles},
            {each.agent: each.exceeded_count for each in before.cycles},
        ),
        in_bytes_per_second=rate("bytes_received"),
        out_bytes_per_second=rate("bytes_sent"),
        stats=now,
    )


# Drivers.


def causes_of_driver(span: DriverSpan) -> list[Cause]:
    """Return what is wrong with a driver, the worst first."""
    found: list[Cause] = []
    if span.is_loop_late:
        found.append(loop_cause(span))
    limit = limit_cause(span)
    if limit is not None:
        found.append(limit)
    if span.drops:
        address, count = max(span.drops.items(), key=lambda each: each[1])
        found.append(
            Cause(
                "socket_drop",
                f"the socket at {short(address)} was full: the system dropped {count:,} datagrams "
                f"or batches in {span.seconds:.0f} s",
                buffer_remedy(span),
            )
        )
    return found


def loop_cause(
    span: DriverSpan, severity: CauseClass = CauseClass.HURT, magnitude: float = 0.0
) -> Cause:
    """Return that the event loop was late."""
    times = f", {span.loop_lag_count or 0:,} times in {span.seconds:.0f} s"
    return Cause(
        "loop_lag",
        f"the event loop of driver {span.stats.pid} was late by up to {format_ns(span.loop_lag_ns)}"
        f"{times if span.loop_lag_count else ''}",
        "move blocking work out of the event loop (`asyncio.to_thread`), run the driver in a "
        "process of its own (`aeron-async driver`), or give it a processor",
        severity,
        magnitude,
    )


def limit_cause(span: DriverSpan) -> Cause | None:
    """Return which limit was reached and which budget is nearly used up; None if neither."""
    full = [each for each in span.stats.budgets if is_full(each)]
    parts: list[str] = []
    settings: list[str] = []
    for name, count in sorted(span.limits.items(), key=lambda each: -each[1])[:3]:
        parts.append(f"limit {short(name)} was reached {count:,} times in {span.seconds:.0f} s")
        settings.append(LIMIT_SETTINGS.get(name, f"the limit of {short(name)}"))
    for each in full[:3]:
        percent = 100 * each.used // each.limit
        parts.append(
            f"budget {short(each.name)} is {percent} % used: {each.used:,} of {each.limit:,}"
        )
        settings.append(BUDGET_SETTINGS.get(each.name, f"the limit of {short(each.name)}"))
    if not parts:
        return None
    if full and "images_refused" in span.limits:
        settings = [each for each in settings if " or " not in each] or settings
    return Cause("limit", "; ".join(parts), f"raise {', '.join(dict.fromkeys(settings))}")


def is_full(budget: BudgetStats) -> bool:
    """Return whether a budget is nearly used up."""
    return budget.limit > 0 and budget.used >= BUDGET_SHARE_MIN * budget.limit


def buffer_remedy(span: DriverSpan | None) -> str:
    """Return how to enlarge the receive buffer, and what the present one holds."""
    text = f"raise {RCVBUF} and net.core.rmem_max"
    dropping = () if span is None else [e for e in span.stats.sockets if e.address in span.drops]
    sizes = [each.buffer_bytes for each in dropping if each.buffer_bytes]
    if not sizes:
        return text
    held = min(sizes) // DATAGRAM_COST_BYTES
    return f"{text}: {min(sizes):,} bytes hold {held:,} datagrams of {DATAGRAM_BYTES:,} bytes"


# Images and subscriptions.


def causes_of_image(
    row: ImageStats, rates: ImageRates | None, span: DriverSpan | None
) -> list[Cause]:
    """Return what is wrong with an image, the worst first."""
    lag = lag_cause(row, rates, span)
    found = [] if lag is None else [lag]
    if rates is not None:
        found += [
            loss_cause(word, rates, span)
            for word, rate in rates.losses_per_second.items()
            if rate > 0
        ]
    return worst_first(found)


def loss_cause(word: str, rates: ImageRates, span: DriverSpan | None) -> Cause:
    """Return what is lost by a cause, and what to do about it."""
    meaning, remedy = LOSSES.get(word, ("data was lost", "look at the log of the driver"))
    if word == "socket_drop":
        remedy = buffer_remedy(span)
    limit = None if span is None or word != "refused" else limit_cause(span)
    if limit is not None:
        meaning, remedy = limit.sentence, limit.remedy
    lost = max(0.0, rates.lost_bytes_per_second.get(word, 0.0))
    share = lost / (lost + max(1.0, rates.bytes_per_second))
    severity = CauseClass.ODD if word in HARMLESS else CauseClass.STRAIN
    if word in FINAL:
        # What never comes is as bad as offers that wait for half of the time.
        severity, share = CauseClass.HURT, (1 + share) / 2
    verb = "refused as" if word in HARMLESS else "lost by"
    return Cause(
        printable(word, 64),
        f"{format_bytes(lost)}/s {verb} {printable(word, 64)}, "
        f"{rates.losses_per_second[word]:,.1f} times/s: {meaning}",
        remedy,
        severity,
        share,
    )


def lag_cause(row: ImageStats, rates: ImageRates | None, span: DriverSpan | None) -> Cause | None:
    """Return why what has arrived is not consumed; None if it is."""
    window = row.window_bytes or 0
    is_much = window > 0 and row.lag_bytes >= LAG_WINDOW_SHARE * window
    if not is_much and (row.lag_ns or 0) < LAG_TIME_MIN_NS:
        return None
    late_s: float | None = None
    if row.lag_ns is not None:
        late_s = row.lag_ns / NS_PER_SECOND
    elif rates is not None and rates.bytes_per_second > 0:
        late_s = row.lag_bytes / rates.bytes_per_second
    is_long = late_s is None or late_s >= LAG_TIME_MIN_NS / NS_PER_SECOND
    severity = CauseClass.HURT if is_long else CauseClass.STRAIN
    is_idle = rates is not None and rates.bytes_per_second <= 0
    if is_idle and row.lag_bytes <= IN_HAND_BYTES_MAX:
        severity = CauseClass.ODD
    if span is not None and span.is_loop_late:
        return loop_cause(span, severity, of_time(late_s))
    slowest = max(row.readers, key=lambda each: each.lag_bytes, default=None)
    who = "its reader" if slowest is None else f"subscription {slowest.registration_id}"
    lag_bytes = row.lag_bytes if slowest is None else slowest.lag_bytes
    age = "" if row.lag_ns is None else f", the oldest for {format_ns(row.lag_ns)}"
    return Cause(
        "slow_reader",
        f"{who} reads too slowly: {lag_bytes:,} bytes behind{age}",
        "let it read faster: `Subscription.batches`, or its work in another thread; tether=false "
        "if the stream may go on without it",
        severity,
        of_time(late_s),
    )


def causes_of_subscription(
    row: SubscriptionStats, span: DriverSpan | None, nearly: Sequence[int] = ()
) -> list[Cause]:
    """Return why a subscription has no image.

    Args:
        row: The subscription.
        span: What happened to its driver.
        nearly: Other streams that are published where it listens.
    """
    if row.image_count > 0:
        return []
    limit = None if span is None else limit_cause(span)
    if limit is not None:
        return [attrs.evolve(limit, sentence=f"no image, and {limit.sentence}")]
    return [
        Cause(
            "no_image",
            f"no publisher has been heard of{near_miss(nearly, 'publications')}",
            f"{if_meant(nearly, 'subscribe to', 'publish on', row.stream_id)}start a publisher of "
            "this channel and stream; `aeron-async explain CHANNEL` says where it must send",
            CauseClass.ODD,
        )
    ]


def near_miss(nearly: Sequence[int], what: str) -> str:
    """Return which other streams this driver has there, as the end of a sentence."""
    if not nearly:
        return ""
    more = " and others" if len(nearly) > NEARLY_MAX else ""
    plural = "s" if len(nearly) > 1 else ""
    numbers = ", ".join(str(each) for each in nearly[:NEARLY_MAX])
    return f"; this driver has {what} of stream{plural} {numbers}{more} there"


def if_meant(nearly: Sequence[int], change: str, otherwise: str, stream_id: int) -> str:
    """Return what to change if another stream was meant, as the begin of a remedy."""
    if not nearly:
        return ""
    return (
        f"{change} stream {nearly[0]} if that one is meant, or {otherwise} stream {stream_id} "
        "there; otherwise "
    )


def short(text: str) -> str:
    """Return a foreign word as part of a sentence."""
    return printable(text, SHORT)
