"""Why a publication is in trouble: what holds it back, who misses its data, or that nobody reads.

Pure: functions of a row, of its rates, and of what it was at the looks before.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.cli.figures import format_bytes
from aeron_async.cli.top_causes import (
    IN_HAND_BYTES_MAX,
    RCVBUF,
    WINDOW,
    Cause,
    CauseClass,
    if_meant,
    loop_cause,
    near_miss,
    of_time,
    severity_of_share,
    short,
    worst_first,
)
from aeron_async.driver.sightings import meeting_place
from aeron_async.errors import AeronError
from aeron_async.protocol.channel_uri import ChannelUri, Media
from aeron_async.stats import SubscriptionStats, network_backlog, slowest_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from aeron_async.cli.top_causes import DriverSpan
    from aeron_async.stats import PublicationRates, PublicationStats, ReceiverStats, Stats

__all__ = [
    "BLOCKED_SHARE_MIN",
    "PublicationLooks",
    "causes_of_publication",
    "is_measured",
    "near_misses",
    "waits_for",
    "waits_of",
]

BLOCKED_SHARE_MIN: Final = 0.01
"""Offers that wait for less of the time are no trouble."""
AT_LIMIT_SHARE_MIN: Final = 0.5
"""A publication that is at its limit at so many looks is held back, if waits are not measured."""
BACKLOG_SECONDS_MIN: Final = 1.0
"""A backlog that is sent within this time is no trouble."""
GROWING_LOOKS_MIN: Final = 4
"""Looks that are needed to see a backlog grow."""
DATAGRAM_BYTES: Final = 1_408
FRAME_BYTES_MAX: Final = 65_504
"""The default MTU, and the longest one."""
OPEN_STATES: Final = frozenset({"", "active"})
"""States in which a publication takes offers; empty if the source does not know it."""

PublicationLooks = tuple["PublicationStats", ...]
"""One publication at the looks of the last seconds, the oldest first, and without the present."""


def causes_of_publication(
    row: PublicationStats,
    rates: PublicationRates | None,
    span: DriverSpan | None,
    looks: PublicationLooks = (),
    nearly: Sequence[int] = (),
) -> list[Cause]:
    """Return what is wrong with a publication, the worst first.

    Args:
        row: The publication.
        rates: What it did since the first of its looks; None at the first.
        span: What happened to its driver meanwhile.
        looks: What it was at the looks before.
        nearly: Other streams that are subscribed to where it sends.
    """
    waits = waits_of(row, rates, looks)
    is_behind, late_s = backlog_of(row, rates, looks)
    found: list[Cause] = []
    for by, share in waits.items():
        severity, size = severity_of_share(share), share
        if is_behind:
            severity, size = CauseClass.HURT, max(share, of_time(late_s))
        if by == "sender_limit":
            causes = [sender_limit_cause(row, late_s if is_behind else 0.0)]
        elif by == "publisher_limit":
            causes = publisher_limit_causes(row, span)
        else:
            causes = []
        found += [attrs.evolve(each, severity=severity, magnitude=size) for each in causes]
    if is_behind and waits.keys().isdisjoint({"sender_limit", "publisher_limit"}):
        found.append(backlog_cause(row, late_s))
    if rates is not None and rates.naks_per_second:
        found.append(nak_cause(rates, rates.naks_per_second))
    if "not_connected" in waits or (row.is_connected is False and row.state == "active"):
        found.append(not_connected_cause(row, waits, nearly))
    return worst_first(found)


# Offers that wait.


def waits_of(
    row: PublicationStats, rates: PublicationRates | None, looks: PublicationLooks
) -> dict[str, float]:
    """Return what offers wait for, and for which part of the time, the most first.

    Where that is not measured, it is the part of the looks at which the publication was at its
    limit.
    """
    measured = {} if rates is None else rates.blocked_ratio
    waits = {by: share for by, share in measured.items() if share >= BLOCKED_SHARE_MIN}
    now = waits_for(row)
    if not is_measured(row):
        is_full = bool(now) or any(each.window_bytes <= 0 for each in looks)
        seen = [waits_for(each) for each in (*looks, row)] if is_full else []
        shares = {by: count / len(seen) for by, count in Counter(seen).items() if by}
        waits |= {
            by: share
            for by, share in shares.items()
            if by not in waits and (by == now or share >= AT_LIMIT_SHARE_MIN)
        }
    elif now:
        waits.setdefault(now, 0.0)
    return dict(sorted(waits.items(), key=lambda each: (-each[1], each[0])))


def is_measured(row: PublicationStats) -> bool:
    """Return whether the source knows for how long offers wait."""
    return row.blocked_sender_limit_ns is not None


def waits_for(row: PublicationStats) -> str:
    """Return what offers wait for now; empty if none waits.

    Where waits are not measured, a publication that has reached its limit has offers that wait. The
    limit is that of the sender's position plus the publication's own window, but for a publication
    without receivers, where it is what was sent.
    """
    if is_measured(row) or row.blocked_by or row.window_bytes > 0 or row.state not in OPEN_STATES:
        return row.blocked_by
    if row.sender_position is None or row.sender_limit is None:
        return "not_connected" if row.is_connected is False else "publisher_limit"
    if row.is_connected is False or row.position_limit <= row.sender_position:
        return "not_connected"
    return "sender_limit" if is_at_sender_limit(row) else "publisher_limit"


def is_at_sender_limit(row: PublicationStats) -> bool:
    """Return whether receivers allow no more to be sent; False for IPC, which nobody sends."""
    if row.sender_position is None or row.sender_limit is None:
        return False
    # The sender leaves what a whole frame does not fit into, which is a small part of the window.
    slowest = slowest_of_network(row)
    window = None if slowest is None else slowest.window_bytes
    part = min(FRAME_BYTES_MAX, (row.backlog_bytes or 0) // 4) if window is None else window // 8
    return row.sender_limit - row.sender_position < max(DATAGRAM_BYTES, part)


def sender_limit_cause(row: PublicationStats, late_s: float | None) -> Cause:
    """Return which receiver holds offers back.

    Args:
        row: The publication.
        late_s: After which time what is offered now is sent; None if nothing is sent at all.
    """
    slowest = slowest_of_network(row)
    who = "its receivers allow no more to be sent" if slowest is None else held_back(row, slowest)
    about = "" if not late_s else f", about {seconds_text(late_s)}"
    return Cause(
        "sender_limit",
        f"{who}{about}",
        f"let its subscriptions read faster; if they do, raise {WINDOW} there",
    )


def slowest_of_network(row: PublicationStats) -> ReceiverStats | None:
    """Return the receiver that allows the least to be sent; None if none is known."""
    return slowest_of(each for each in row.receivers if each.kind == "receiver")


def slowest_reader(row: PublicationStats) -> ReceiverStats | None:
    """Return the spy or IPC reader that is furthest behind; None without one."""
    readers = [each for each in row.receivers if each.kind != "receiver"]
    return max(readers, key=lambda each: each.lag_bytes, default=None)


def held_back(row: PublicationStats, receiver: ReceiverStats) -> str:
    """Return that a receiver or reader is behind."""
    lag_bytes = receiver.lag_bytes + network_backlog(receiver, row.backlog_bytes)
    return f"{named(receiver)} holds it back: {lag_bytes:,} bytes behind"


def named(receiver: ReceiverStats) -> str:
    """Return what a receiver or reader is called in a sentence."""
    where = f" at {short(receiver.address)}" if receiver.address else ""
    return f"{short(receiver.kind)} {short(receiver.id)}{where}"


def publisher_limit_causes(row: PublicationStats, span: DriverSpan | None) -> list[Cause]:
    """Return which reader in this driver holds offers back, and whether its event loop does.

    With neither, it is the sender.
    """
    is_late = span is not None and span.is_loop_late
    is_ipc = row.sender_position is None
    slowest = slowest_reader(row)
    found: list[Cause] = []
    # What was not sent yet, a spy could not read yet. Of IPC, a reader is what sets the limit.
    unsent = 0 if is_ipc else row.backlog_bytes or 0
    if slowest is not None and (slowest.lag_bytes > unsent or (is_ipc and not is_late)):
        found.append(
            Cause(
                "publisher_limit",
                held_back(row, slowest),
                "let that subscription read faster, or use tether=false if it may be left behind",
            )
        )
    if span is not None and is_late:
        found.append(loop_cause(span))
    if found:
        return found
    backlog = "" if row.backlog_bytes is None else f": {row.backlog_bytes:,} bytes not sent yet"
    return [
        Cause(
            "publisher_limit",
            f"the sender of this driver is late{backlog}",
            "give the driver a processor, or raise term-length (AERON_TERM_BUFFER_LENGTH)",
        )
    ]


# What was published and not sent.


def backlog_of(
    row: PublicationStats, rates: PublicationRates | None, looks: PublicationLooks
) -> tuple[bool, float | None]:
    """Return whether receivers or IPC readers let a publication fall behind, and by what time.

    The time, in seconds, is that after which what it publishes now is sent, or consumed of IPC;
    None if nothing is at all. Only a backlog that was there at the look before is one: a burst is
    over by then.
    """
    if rates is None or not looks or not row.backlog_bytes or row.is_connected is False:
        return False, 0.0
    backlog, before = row.backlog_bytes, looks[-1].backlog_bytes or 0
    is_held = is_behind_readers(row) and is_behind_readers(looks[-1])
    if not is_held or min(backlog, before) <= 0 or row.state in {"linger", "done"}:
        return False, 0.0
    sent = rates.bytes_per_second - (rates.backlog_bytes_per_second or 0.0)
    if sent <= 0:
        # A reader of IPC may have the last message in hand.
        return row.sender_position is not None or backlog > IN_HAND_BYTES_MAX, None
    is_long = min(backlog, before) >= BACKLOG_SECONDS_MIN * sent
    return is_long or is_growing((*looks, row)), backlog / sent


def is_behind_readers(row: PublicationStats) -> bool:
    """Return whether the backlog is what receivers do not let through, or readers of IPC lack."""
    return row.sender_position is None or is_at_sender_limit(row)


def is_growing(looks: PublicationLooks) -> bool:
    """Return whether the backlog was larger at each of the later looks than at all before.

    Receivers let a publication send in steps, so two looks do not tell.
    """
    if len(looks) < GROWING_LOOKS_MIN:
        return False
    sizes = [each.backlog_bytes or 0 for each in looks]
    half = len(sizes) // 2
    is_held = all(is_behind_readers(each) for each in looks[half:])
    return is_held and min(sizes[half:]) > max(sizes[:half])


def backlog_cause(row: PublicationStats, late_s: float | None) -> Cause:
    """Return which receiver or reader lets a publication fall behind that still takes offers."""
    is_ipc = row.sender_position is None
    slowest = slowest_reader(row) if is_ipc else slowest_of_network(row)
    who = f"its {'readers' if is_ipc else 'receivers'}" if slowest is None else named(slowest)
    nothing = f"nothing is {'consumed' if is_ipc else 'sent'}"
    about = nothing if late_s is None else f"about {seconds_text(late_s)}"
    window = "" if is_ipc else f"; if they do, raise {WINDOW} there"
    return Cause(
        "backlog",
        f"held back by {who}: backlog {row.backlog_bytes or 0:,} bytes, {about}",
        f"let its subscriptions read faster{window}; a shorter term-length or pub-wnd lets offers "
        "wait earlier",
        CauseClass.HURT,
        of_time(late_s),
    )


def seconds_text(seconds: float) -> str:
    """Return a time that is known roughly."""
    if seconds >= 10:  # noqa: PLR2004 - two digits are enough
        return f"{seconds:,.0f} s"
    return f"{seconds:.1f} s"


# Losses, and the lack of a subscriber.


def nak_cause(rates: PublicationRates, naks_per_second: float) -> Cause:
    """Return that receivers miss data."""
    resent = rates.retransmitted_bytes_per_second
    text = "" if resent is None else f", {format_bytes(resent)}/s sent again"
    lost = max(0.0, resent or 0.0)
    return Cause(
        "gap",
        f"receivers miss data: {naks_per_second:,.1f} NAKs/s{text}",
        f"look at the receivers with `aeron-async top`; raise {RCVBUF} there if their sockets drop",
        CauseClass.STRAIN,
        lost / (lost + max(1.0, rates.bytes_per_second)),
    )


def not_connected_cause(
    row: PublicationStats, waits: dict[str, float], nearly: Sequence[int]
) -> Cause:
    """Return that there is no subscriber, and whether offers are known to wait for one."""
    share = waits.get("not_connected", 0.0)
    is_waited_for = "not_connected" in waits and (
        is_measured(row) or row.blocked_by == "not_connected"
    )
    return Cause(
        "not_connected",
        ("offers wait for a subscriber" if is_waited_for else "no subscriber")
        + near_miss(nearly, "subscriptions"),
        f"{if_meant(nearly, 'publish on', 'subscribe to', row.stream_id)}start a subscriber of "
        "this channel and stream; `aeron-async explain CHANNEL` says where it must listen",
        severity_of_share(share) if is_waited_for else CauseClass.ODD,
        share if is_waited_for else 0.0,
    )


def near_misses(stats: Stats) -> dict[int, tuple[int, ...]]:
    """Return streams that have no peer while another stream has one end in the same place.

    By the registration id of a publication that is not connected, the streams that subscriptions of
    this driver wait for where it sends; and of a subscription without an image, those that are
    published where it listens. Those that have no peer either come first.
    """
    connected, counts = (
        stats.publications.column("is_connected"),
        stats.subscriptions.column("image_count"),
    )
    if False not in connected and 0 not in counts:
        return {}
    publications = [each for each in stats.publications if each.state in OPEN_STATES]
    lonely_publications = [each for each in publications if each.is_connected is False]
    lonely_subscriptions = [each for each in stats.subscriptions if each.image_count == 0]
    return {
        **nearest(lonely_publications, list(stats.subscriptions)),
        **nearest(lonely_subscriptions, publications),
    }


def nearest(
    lonely: Sequence[PublicationStats | SubscriptionStats],
    others: Sequence[PublicationStats | SubscriptionStats],
) -> dict[int, tuple[int, ...]]:
    """Return the streams of the others that are in the place of a lonely one, by its id."""
    if not lonely:
        return {}
    places: dict[Hashable, list[PublicationStats | SubscriptionStats]] = {}
    for each in others:
        place = place_of(each.channel)
        if place is not None:
            places.setdefault(place, []).append(each)
    found: dict[int, tuple[int, ...]] = {}
    for row in lonely:
        there = sorted(places.get(place_of(row.channel), ()), key=has_peer)
        streams = tuple(dict.fromkeys(each.stream_id for each in there))
        if streams and row.stream_id not in streams:
            found[row.registration_id] = streams
    return found


def has_peer(row: PublicationStats | SubscriptionStats) -> bool:
    """Return whether a stream has both its ends."""
    if isinstance(row, SubscriptionStats):
        return row.image_count > 0
    return row.is_connected is not False


def place_of(channel: str) -> Hashable:
    """Return where publisher and subscriber of a channel meet; None if nobody can tell."""
    try:
        uri = ChannelUri.parse(channel)
    except AeronError:
        return None
    if uri.is_spy:
        return None
    return uri.media if uri.media is Media.IPC else meeting_place(uri)
