"""Why a stream or a driver is in trouble: one cause word, one sentence, and what to change.

Pure: functions of rows and of what happened to them in the last seconds. The words are those of
`aeron_async.stats`, and these:

    slow_reader  a subscription does not consume what has arrived for it
    loop_lag     the event loop of the driver was late
    limit        a limit of the driver was reached, or one of its budgets is nearly used up
    no_image     a subscription has no publisher

Foreign texts in a sentence are printable and short.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.cli.figures import format_bytes, format_ns
from aeron_async.clock import NS_PER_MS, NS_PER_SECOND
from aeron_async.text import SHORT, printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aeron_async.stats import (
        BudgetStats,
        DriverStats,
        ImageRates,
        ImageStats,
        PublicationRates,
        PublicationStats,
        ReceiverStats,
        SubscriptionStats,
    )

__all__ = [
    "BLOCKED_SHARE_MIN",
    "BUDGET_SETTINGS",
    "LIMIT_SETTINGS",
    "Cause",
    "DriverSpan",
    "causes_of_driver",
    "causes_of_image",
    "causes_of_publication",
    "causes_of_subscription",
    "moved",
    "span_of",
    "waits_for",
]

BLOCKED_SHARE_MIN: Final = 0.01
"""Offers that wait for less of the time are no trouble."""
LAG_TIME_MIN_NS: Final = NS_PER_SECOND
LAG_WINDOW_SHARE: Final = 0.5
"""A reader is slow if what it has not consumed is as old as this, or so much of the window."""
LOOP_LAG_MIN_NS: Final = 64 * NS_PER_MS
"""A loop that was late by less is no trouble."""
BUDGET_SHARE_MIN: Final = 0.95
"""Part of a budget beyond which it is nearly used up."""
DATAGRAM_BYTES: Final = 1_408
DATAGRAM_COST_BYTES: Final = 2_304
"""A datagram of the default MTU, and what Linux charges to a receive buffer for it."""

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
SMALL_LOSS_SHARE: Final = 0.01
"""Losses of less than this part of what arrives come after a slow reader."""
HARMLESS: Final = frozenset({"forged", "malformed"})
"""Causes by which nothing of the stream itself was lost."""


@attrs.frozen
class Cause:
    """Why something is in trouble.

    Attributes:
        word: One word for programs, filters and narrow screens.
        sentence: What happens.
        remedy: What to change, with the name of the setting.
    """

    word: str
    sentence: str
    remedy: str


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


def loop_cause(span: DriverSpan) -> Cause:
    """Return that the event loop was late."""
    times = f", {span.loop_lag_count or 0:,} times in {span.seconds:.0f} s"
    return Cause(
        "loop_lag",
        f"the event loop of driver {span.stats.pid} was late by up to {format_ns(span.loop_lag_ns)}"
        f"{times if span.loop_lag_count else ''}",
        "move blocking work out of the event loop (`asyncio.to_thread`), run the driver in a "
        "process of its own (`aeron-async driver`), or give it a processor",
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


# Publications.


def causes_of_publication(
    row: PublicationStats, rates: PublicationRates | None, span: DriverSpan | None
) -> list[Cause]:
    """Return what is wrong with a publication, the worst first."""
    blocked = {} if rates is None else rates.blocked_ratio
    waits = {by for by, share in blocked.items() if share >= BLOCKED_SHARE_MIN}
    measured = waits | {row.blocked_by}
    waits = (measured | {waits_for(row)}) - {""}
    found: list[Cause] = []
    for by in sorted(waits - {"not_connected"}, key=lambda each: (-blocked.get(each, 0.0), each)):
        is_sender = by == "sender_limit"
        found.append(sender_limit_cause(row) if is_sender else publisher_limit_cause(row, span))
    if rates is not None and rates.naks_per_second:
        found.append(
            Cause(
                "gap",
                f"receivers miss data: {rates.naks_per_second:,.1f} NAKs/s{resent(rates)}",
                f"look at the receivers with `aeron-async top`; raise {RCVBUF} there if their "
                "sockets drop",
            )
        )
    is_waited_for = "not_connected" in measured
    if "not_connected" in waits or (row.is_connected is False and row.state == "active"):
        found.append(
            Cause(
                "not_connected",
                "offers wait for a subscriber" if is_waited_for else "no subscriber",
                "start a subscriber of this channel and stream; `aeron-async explain CHANNEL` says "
                "where it must listen",
            )
        )
    return found


def waits_for(row: PublicationStats) -> str:
    """Return what offers wait for now; empty if none waits.

    Where waits are not measured, a publication that has reached its limit has offers that wait. The
    limit is that of the sender's position plus the publication's own window, but for a publication
    without receivers, where it is what was sent.
    """
    is_measured = row.blocked_sender_limit_ns is not None
    if is_measured or row.blocked_by or row.window_bytes > 0:
        return row.blocked_by
    if row.sender_position is None or row.sender_limit is None:
        return "not_connected" if row.is_connected is False else "publisher_limit"
    if row.is_connected is False or row.position_limit <= row.sender_position:
        return "not_connected"
    # The sender leaves what a whole frame does not fit into.
    left = row.sender_limit - row.sender_position
    is_used_up = left < max(DATAGRAM_BYTES, (row.backlog_bytes or 0) // 4)
    return "sender_limit" if is_used_up else "publisher_limit"


def resent(rates: PublicationRates) -> str:
    """Return what is sent again, as the end of a sentence; empty if that is unknown."""
    rate = rates.retransmitted_bytes_per_second
    return "" if rate is None else f", {format_bytes(rate)}/s sent again"


def sender_limit_cause(row: PublicationStats) -> Cause:
    """Return which receiver holds a publication back."""
    network = [each for each in row.receivers if each.kind == "receiver"]
    remedy = f"let its subscriptions read faster; if they do, raise {WINDOW} there"
    if not network:
        return Cause("sender_limit", "its receivers allow no more to be sent", remedy)
    slowest = min(network, key=lambda each: each.position + (each.window_bytes or 0))
    return Cause("sender_limit", held_back(slowest), remedy)


def held_back(receiver: ReceiverStats) -> str:
    """Return that a receiver or reader is behind."""
    where = f" at {short(receiver.address)}" if receiver.address else ""
    return (
        f"{short(receiver.kind)} {short(receiver.id)}{where} holds it back: "
        f"{receiver.lag_bytes:,} bytes behind"
    )


def publisher_limit_cause(row: PublicationStats, span: DriverSpan | None) -> Cause:
    """Return whether readers in this driver, its event loop or its sender hold it back."""
    readers = [each for each in row.receivers if each.kind != "receiver"]
    slowest = max(readers, key=lambda each: each.lag_bytes, default=None)
    if span is not None and span.is_loop_late:
        return loop_cause(span)
    if slowest is not None and (row.sender_position is None or slowest.lag_bytes > 0):
        return Cause(
            "publisher_limit",
            held_back(slowest),
            "let that subscription read faster, or use tether=false if it may be left behind",
        )
    backlog = "" if row.backlog_bytes is None else f": {row.backlog_bytes:,} bytes not sent yet"
    return Cause(
        "publisher_limit",
        f"the sender of this driver is late{backlog}",
        "give the driver a processor, or raise term-length (AERON_TERM_BUFFER_LENGTH)",
    )


# Images and subscriptions.


def causes_of_image(
    row: ImageStats, rates: ImageRates | None, span: DriverSpan | None
) -> list[Cause]:
    """Return what is wrong with an image, the worst first."""
    found: list[tuple[tuple[int, float], Cause]] = []
    if rates is not None:
        small = SMALL_LOSS_SHARE * rates.bytes_per_second
        for word, rate in rates.losses_per_second.items():
            lost = rates.lost_bytes_per_second.get(word, 0.0)
            if rate > 0:
                rank = 3 if word in HARMLESS else 2 if lost < small else 0
                found.append(((rank, -lost), loss_cause(word, rates, span)))
    lag = lag_cause(row, span)
    if lag is not None:
        found.append(((1, 0.0), lag))
    found.sort(key=lambda each: each[0])
    return [cause for _, cause in found]


def loss_cause(word: str, rates: ImageRates, span: DriverSpan | None) -> Cause:
    """Return what is lost by a cause, and what to do about it."""
    meaning, remedy = LOSSES.get(word, ("data was lost", "look at the log of the driver"))
    if word == "socket_drop":
        remedy = buffer_remedy(span)
    limit = None if span is None or word != "refused" else limit_cause(span)
    if limit is not None:
        meaning, remedy = limit.sentence, limit.remedy
    rate = format_bytes(rates.lost_bytes_per_second.get(word, 0.0))
    verb = "refused as" if word in HARMLESS else "lost by"
    return Cause(
        printable(word, 64),
        f"{rate}/s {verb} {printable(word, 64)}, {rates.losses_per_second[word]:,.1f} times/s: "
        f"{meaning}",
        remedy,
    )


def lag_cause(row: ImageStats, span: DriverSpan | None) -> Cause | None:
    """Return why what has arrived is not consumed; None if it is."""
    window = row.window_bytes or 0
    is_much = window > 0 and row.lag_bytes >= LAG_WINDOW_SHARE * window
    if not is_much and (row.lag_ns or 0) < LAG_TIME_MIN_NS:
        return None
    if span is not None and span.is_loop_late:
        return loop_cause(span)
    slowest = max(row.readers, key=lambda each: each.lag_bytes, default=None)
    who = "its reader" if slowest is None else f"subscription {slowest.registration_id}"
    lag_bytes = row.lag_bytes if slowest is None else slowest.lag_bytes
    age = "" if row.lag_ns is None else f", the oldest for {format_ns(row.lag_ns)}"
    return Cause(
        "slow_reader",
        f"{who} reads too slowly: {lag_bytes:,} bytes behind{age}",
        "let it read faster: `Subscription.batches`, or its work in another thread; tether=false "
        "if the stream may go on without it",
    )


def causes_of_subscription(row: SubscriptionStats, span: DriverSpan | None) -> list[Cause]:
    """Return why a subscription has no image."""
    if row.image_count > 0:
        return []
    limit = None if span is None else limit_cause(span)
    if limit is not None:
        return [Cause(limit.word, f"no image, and {limit.sentence}", limit.remedy)]
    return [
        Cause(
            "no_image",
            "no publisher has been heard of",
            "start a publisher of this channel and stream; `aeron-async explain CHANNEL` says "
            "where it must send",
        )
    ]


def short(text: str) -> str:
    """Return a foreign word as part of a sentence."""
    return printable(text, SHORT)
