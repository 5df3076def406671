"""Explanations of why a publication or a subscription waits, and what to change.

A client reads the state of its driver (`PublicationSeen`, `SubscriptionSeen`), and the functions
here choose the first reason that applies and put it into words.
"""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Final

from aeron_async.clock import NS_PER_SECOND
from aeron_async.protocol.channel_uri import SPY_PREFIX
from aeron_async.text import SHORT, printable
from aeron_async.waits import (
    ClaimSeen,
    PublicationSeen,
    Seen,
    StreamSeen,
    SubscriptionSeen,
    WaitReason,
    Why,
)

if TYPE_CHECKING:
    from aeron_async.client.waiters import Waiter

__all__ = [
    "SHARED_NETWORK",
    "explain_publication",
    "explain_subscription",
    "listed",
    "seconds",
    "stream_named",
    "streams",
    "why",
]

MAX_LISTED: Final = 3
"""Most entries of a list that a sentence shows."""
CHANNEL_LENGTH_MAX: Final = 300
"""In characters; a longer channel is cut so that what to change, behind it, is still shown."""
SHARED_NETWORK: Final = (
    "interface= at both ends names the network that they share, and ttl= reaches across routers"
)
"""What to change for a multicast group, at either end."""


def explain_publication(stream: str, seen: PublicationSeen, *, is_closed: bool = False) -> Why:
    """Return why a publication waits.

    Args:
        stream: Channel and stream as text; see `stream_named`.
        seen: State of the publication in the driver.
        is_closed: Whether the publication is closed.
    """
    if is_closed:
        subject, reason, sight, remedy = "closed", WaitReason.CLOSED, "it is closed", ""
    elif seen.is_driver_lost:
        subject, reason = "no media driver", WaitReason.DRIVER_LOST
        sight, remedy = LOST_SIGHT, LOST_REMEDY
    elif not seen.is_connected and seen.elsewhere:
        subject, reason = "no subscriber connected", WaitReason.DRIVER_ELSEWHERE
        sight, remedy = _unconnected_elsewhere(seen)
    elif not seen.is_connected:
        subject = "no subscriber connected"
        reason, sight, remedy = _unconnected(seen)
    elif seen.claim is not None:
        subject, reason = "claim not committed", WaitReason.CLAIM_UNCOMMITTED
        sight, remedy = _claimed(seen.claim)
    elif seen.position >= seen.position_limit:
        subject, reason = "back pressure", WaitReason.BACK_PRESSURED
        sight, remedy = _back_pressured(seen)
    elif seen.position > seen.sender_position:
        subject, reason = "not all sent", WaitReason.NOT_SENT
        sight, remedy = _not_sent(seen)
    else:
        subject, reason, remedy = "ready", WaitReason.NOTHING, ""
        sight = f"{seen.position_limit - seen.position} bytes may be offered now"
    return Why(
        reason=reason, subject=f"{subject} on {stream}", sight=sight, remedy=remedy, seen=seen
    )


SILENCE_NS: Final = NS_PER_SECOND
"""A receiver that lives reports five times as often."""
LOST_SIGHT: Final = "its driver has gone, and the client looks for the next one"
LOST_REMEDY: Final = "start a driver in the same directory"


def _elsewhere_remedy(seen: Seen) -> str:
    directory = quote(printable(seen.elsewhere, CHANNEL_LENGTH_MAX))
    return (
        f"with `--aeron-dir {directory}`, `aeron-async streams` shows what that driver knows of "
        "its streams, and `aeron-async errors` what it has refused"
    )


def _unconnected_elsewhere(seen: PublicationSeen) -> tuple[str, str]:
    """Return what can be said of a driver that knows more than its clients."""
    process, start = "its driver is another process", "start a subscription of this channel and"
    if seen.is_ipc:
        sight = f"{process}, which has no subscriber of this stream"
        return sight, f"{start} stream id: {_elsewhere_remedy(seen)}"
    remedies = [
        f"{start} stream id, or as many as the minimum group size",
        "let datagrams through, also on their way back",
    ]
    if seen.is_manual:
        remedies.insert(0, "add a destination")
    remedies.append(_elsewhere_remedy(seen))
    return f"{process}, which does not count it as connected", "; ".join(remedies)


def _unconnected(seen: PublicationSeen) -> tuple[WaitReason, str, str]:
    if seen.is_ipc:
        return _without_local_subscription(seen)
    if seen.reader_count and not seen.do_spies_connect and not seen.receiver_count:
        return (
            WaitReason.SPIES_DO_NOT_CONNECT,
            (
                f"{counted(seen.reader_count, 'spy', 'spies')} of this driver (such as a local "
                f"recording) and no receiver; {_sent(seen)}"
            ),
            (
                "add ssc=true to the publication's channel, so that a spy alone connects it, or "
                "start a subscription elsewhere"
            ),
        )
    refused = _refused(seen)
    if refused is not None:
        return refused
    if seen.group_size is not None and seen.receiver_count and _is_group_small(seen):
        return (
            WaitReason.GROUP_TOO_SMALL,
            (
                f"flow control counts {counted(seen.group_size, 'receiver')} and requires "
                f"{seen.group_min_size}; {counted(seen.receiver_count, 'receiver')} in all"
            ),
            (
                "start more subscriptions (with the group tag, where fc=tagged), or lower the "
                "minimum group size: fc=...,g:/<size>, receiver_group_min_size"
            ),
        )
    if seen.has_destinations and len(seen.unresolved) == seen.destination_count:
        return _without_destination(seen)
    return _unanswered(seen)


def _without_local_subscription(seen: PublicationSeen) -> tuple[WaitReason, str, str]:
    if seen.last_error is not None:
        return (
            WaitReason.REJECTED,
            printable(seen.last_error),
            "let the subscriber that rejected it take it again",
        )
    return (
        WaitReason.NO_SUBSCRIPTION_HERE,
        f"no subscription of this driver reads it{_nearby_subscriptions(seen)}",
        _meant_subscription(seen)
        + "subscribe with a client of the same driver: IPC stays within one, and others need UDP",
    )


def _refused(seen: PublicationSeen) -> tuple[WaitReason, str, str] | None:
    if seen.receiver_count:
        return None
    if seen.refusal is not None:
        return (
            WaitReason.REJECTED,
            f"this very driver refuses the stream: {printable(seen.refusal.reason)}",
            "change that setting of the driver",
        )
    # An error from before the last receiver left says nothing about the present.
    if seen.last_error is not None and seen.last_gone is None:
        return (
            WaitReason.REJECTED,
            printable(seen.last_error),
            "change what the receiver names; it is asked again with every SETUP",
        )
    return None


def _is_group_small(seen: PublicationSeen) -> bool:
    return seen.group_size is not None and seen.group_size < seen.group_min_size


def _without_destination(seen: PublicationSeen) -> tuple[WaitReason, str, str]:
    if seen.unresolved:
        return (
            WaitReason.NAME_UNRESOLVED,
            f"no address for {listed(seen.unresolved)}",
            "correct the names of the destinations, or the resolver",
        )
    if seen.is_manual:
        remedy = "call add_destination with the channel of each subscriber"
        return WaitReason.NO_DESTINATION, "control-mode=manual, and no destination", remedy
    return (
        WaitReason.NO_DESTINATION,
        (
            "control-mode=dynamic, and no receiver has reported to the control address"
            f"{_nearby_subscriptions(seen)}"
        ),
        _meant_subscription(seen)
        + "subscribe with the same control address and control-mode=dynamic, and let datagrams "
        "through to it",
    )


def _unanswered(seen: PublicationSeen) -> tuple[WaitReason, str, str]:
    if seen.is_answered:
        gone = seen.last_gone
        who = (
            "the last receiver has left"
            if gone is None
            else f"the last receiver, {gone.receiver_id}, was heard {seconds(gone.silent_ns)} ago"
        )
        return (
            WaitReason.RECEIVERS_GONE,
            f"{who}; {_sent(seen)}{_nearby_subscriptions(seen)}",
            _meant_subscription(seen)
            + "start the subscriber again, or let its status messages through",
        )
    remedy = (
        "start a subscription with this endpoint and stream id, or let datagrams through, also on "
        "their way back"
    )
    if seen.interfaces:
        # The system chooses an interface at each end; the two may be in different networks.
        remedy = f"start a subscription of this group, port and stream id; {SHARED_NETWORK}"
    return (
        WaitReason.NO_ANSWER,
        f"{_sent(seen)}, none answered{_nearby_subscriptions(seen)}",
        f"{_meant_subscription(seen)}{remedy}",
    )


def _sent(seen: PublicationSeen) -> str:
    setups = counted(seen.setup_count, "SETUP")
    way = f"to {listed(seen.sent_to) or 'no address'}"
    if seen.interfaces:
        way += f" from interface {listed(seen.interfaces)}"
    return f"{setups} {way} in {seconds(seen.setups_for_ns)}"


def _back_pressured(seen: PublicationSeen) -> tuple[str, str]:
    where = f"position {seen.position}, limit {seen.position_limit}"
    if seen.elsewhere:
        return f"{where}; its driver is another process", _elsewhere_remedy(seen)
    if seen.is_ipc:
        return (
            (
                f"{where}, the slowest of {counted(seen.reader_count, 'subscription')} is "
                f"{seen.reader_lag} bytes behind"
            ),
            "let the slowest subscription keep up, raise the timeout, or raise term-length",
        )
    sight = f"{where}, {_slowest(seen)}"
    if seen.reader_count and seen.reader_lag is not None and _is_spy_slowest(seen):
        return (
            f"{sight}; the slowest spy of this driver is {seen.reader_lag} bytes behind",
            "let the spy keep up (a local recording: its disk), or give its channel tether=false",
        )
    if seen.receivers and seen.receivers[0].silent_ns >= SILENCE_NS:
        return sight, (
            "does that subscriber still run, and do its status messages get through? if it has "
            "gone, the publication goes on without it, or says so, after its timeout"
        )
    return sight, (
        "let the subscriber keep up, raise the timeout, or raise rcv-wnd and term-length"
    )


def _claimed(claim: ClaimSeen) -> tuple[str, str]:
    sight = (
        f"the claim at position {claim.position} was neither committed nor aborted, and nothing "
        "behind it can be sent or read"
    )
    if claim.unblocks_in_ns is None:
        return (
            f"{sight}; the driver frees no claim of an exclusive publication",
            "commit or abort the claim: `with` does so, also where an exception leaves it",
        )
    return (
        (
            f"{sight}; the driver frees it in {seconds(claim.unblocks_in_ns)} "
            f"(publication_unblock_timeout_ns is {claim.timeout_ns})"
        ),
        "commit or abort every claim, or lower publication_unblock_timeout_ns",
    )


def _is_spy_slowest(seen: PublicationSeen) -> bool:
    unsent_length = seen.position - seen.sender_position
    return seen.reader_lag is not None and seen.reader_lag > unsent_length


def _not_sent(seen: PublicationSeen) -> tuple[str, str]:
    length = seen.position - seen.sender_position
    return (
        (
            f"{length} bytes are still to be sent, from position {seen.sender_position}, limit "
            f"{seen.sender_limit}, {_slowest(seen)}"
        ),
        "do its subscribers keep up? let the slowest read faster, or raise the timeout",
    )


def _slowest(seen: PublicationSeen) -> str:
    name = seen.slowest_receiver or "unknown"
    sent = (
        f"slowest receiver {f'{seen.slowest_address} ({name})' if seen.slowest_address else name}"
    )
    if seen.receivers:
        sent += f", the longest silent heard {seconds(seen.receivers[0].silent_ns)} ago"
    return sent


def _nearby_subscriptions(seen: PublicationSeen) -> str:
    if not seen.nearly:
        return ""
    return f"; this driver has subscriptions of {streams(seen.nearly)}"


def _meant_subscription(seen: PublicationSeen) -> str:
    """Return the remedy that comes first if a subscription of this driver is probably meant."""
    meant = _meant(seen.nearly)
    if meant is None:
        return ""
    if meant.differs_in == "stream id":
        return (
            f"publish on stream {meant.stream_id} if that subscription is meant, or subscribe to "
            "this stream id; otherwise "
        )
    return "give that subscription the session-id of this publication, or none; otherwise "


def _meant_publication(seen: SubscriptionSeen) -> str:
    """Return the remedy that comes first if a publication of this driver is probably meant."""
    meant = _meant(seen.nearly)
    if meant is None:
        return ""
    if meant.differs_in == "stream id":
        return (
            f"subscribe to stream {meant.stream_id} if that publication is meant, or publish on "
            "this stream id; otherwise "
        )
    return "subscribe with the session-id of that publication, or with none; otherwise "


def _meant(nearly: tuple[StreamSeen, ...]) -> StreamSeen | None:
    """Return the stream of the same channel that differs in nothing but a number."""
    same_channel = (each for each in nearly if each.differs_in in {"session id", "stream id"})
    return next((each for each in same_channel if not each.channel.startswith(SPY_PREFIX)), None)


def streams(found: tuple[StreamSeen, ...]) -> str:
    """Return streams as text."""
    return listed(
        tuple(
            f"stream {each.stream_id}"
            + ("" if each.session_id is None else f" session {each.session_id}")
            + (f" on {each.channel}" if each.channel else "")
            + (f" from {each.source}" if each.source else "")
            for each in found
        )
    )


def stream_named(channel: str, stream_id: int) -> str:
    """Return a channel and a stream as text; a long channel is cut."""
    return f"{printable(channel, CHANNEL_LENGTH_MAX)} stream {stream_id}"


def listed(words: tuple[str, ...]) -> str:
    """Return the first three words, made printable, and whether there are others."""
    text = ", ".join(printable(each, SHORT) for each in words[:MAX_LISTED])
    return f"{text} and others" if len(words) > MAX_LISTED else text


def counted(count: int, singular: str, plural: str = "") -> str:
    """Return a count with its noun."""
    return f"{count} {singular if count == 1 else plural or f'{singular}s'}"


def seconds(duration_ns: int) -> str:
    """Return a duration as text, in seconds."""
    return f"{duration_ns / NS_PER_SECOND:.1f} s"


RESPONSE_FOR_EACH: Final = "let it add a response publication for each client"


def explain_subscription(stream: str, seen: SubscriptionSeen, *, is_closed: bool = False) -> Why:
    """Return why a subscription waits.

    Args:
        stream: Channel and stream as text; see `stream_named`.
        seen: State of the subscription in the driver.
        is_closed: Whether the subscription is closed.
    """
    if is_closed:
        subject, reason, sight, remedy = "closed", WaitReason.CLOSED, "it is closed", ""
    elif any(each.unread_length for each in seen.images):
        subject, reason, remedy = "ready", WaitReason.NOTHING, ""
        length = sum(each.unread_length for each in seen.images)
        sight = f"{length} bytes have arrived and can be read"
    elif seen.images and seen.last_error is not None:
        subject = "no response"
        reason, sight, remedy = _without_response(seen)
    elif any(each.missing_length for each in seen.images):
        subject, reason = "datagrams lost", WaitReason.DATA_MISSING
        missing = [
            f"{each.missing_length} bytes of session {each.session_id} {each.source}".strip()
            for each in seen.images
            if each.missing_length
        ]
        sight = f"{listed(tuple(missing))} begin with a gap, which is asked for again"
        remedy = (
            "let datagrams through in both directions, and raise socket_rcvbuf_length where they "
            "are dropped; an image with a gap that stays ends after image_gap_timeout_ns"
        )
    elif seen.images:
        subject, reason = "no message", WaitReason.NO_DATA
        sources = [f"session {each.session_id} {each.source}".strip() for each in seen.images]
        sight = f"everything was read of {listed(tuple(sources))}"
        remedy = "nothing to change here: the publishers have offered no more"
    elif seen.is_driver_lost:
        subject, reason = "no media driver", WaitReason.DRIVER_LOST
        sight, remedy = LOST_SIGHT, LOST_REMEDY
    elif seen.elsewhere:
        subject, reason = "no image", WaitReason.DRIVER_ELSEWHERE
        remedy = f"start a publication of this channel and stream id: {_elsewhere_remedy(seen)}"
        sight = "its driver is another process, in which no image of this subscription has come up"
    else:
        subject = "no publication"
        reason, sight, remedy = _without_image(seen)
    return Why(
        reason=reason, subject=f"{subject} on {stream}", sight=sight, remedy=remedy, seen=seen
    )


def _without_image(seen: SubscriptionSeen) -> tuple[WaitReason, str, str]:
    if seen.resting_count:
        return (
            WaitReason.LEFT_BEHIND,
            "it was too slow, and the stream went on without it",
            "read faster, or subscribe with tether=true; with rejoin it joins again by itself",
        )
    if seen.is_response_pending or seen.last_error is not None:
        return _without_response(seen)
    if seen.refusals:
        refusal = seen.refusals[-1]
        return (
            WaitReason.IMAGE_REFUSED,
            (
                f"this driver refuses session {refusal.session_id} from {refusal.source}: "
                f"{printable(refusal.reason)}"
            ),
            "change that setting of this driver",
        )
    if seen.is_local:
        return (
            WaitReason.NO_PUBLICATION_HERE,
            (
                "no publication of this driver has this channel and stream"
                f"{_nearby_publications(seen)}"
            ),
            _meant_publication(seen)
            + "publish with a client of the same driver (directory=, --aeron-dir): IPC and spies "
            "stay within one; to receive from another driver, subscribe to UDP without aeron-spy:",
        )
    return _heard(seen)


def _without_response(seen: SubscriptionSeen) -> tuple[WaitReason, str, str]:
    if seen.last_error is not None:
        # A server has answered before, so the requests name this subscription correctly.
        return (
            WaitReason.NO_RESPONSE_SESSION,
            printable(seen.last_error),
            f"start the server again, or {RESPONSE_FOR_EACH}",
        )
    return (
        WaitReason.NO_RESPONSE_SESSION,
        "no server has named the session of its responses",
        (
            "publish requests with response-correlation-id of this subscription, and let the "
            "server answer with control-mode=response"
        ),
    )


def _heard(seen: SubscriptionSeen) -> tuple[WaitReason, str, str]:
    if not seen.listening_at:
        return (
            WaitReason.NOTHING_HEARD,
            f"the subscription has no socket to receive at{_nearby_publications(seen)}",
            _where_to_look(seen),
        )
    at = _listening(seen)
    if seen.other_sessions:
        return (
            WaitReason.OTHER_SESSIONS_HEARD,
            f"{at} hears {_sessions(seen.other_sessions)}, and session {seen.session_id} is wanted",
            (
                f"start the server again, or {RESPONSE_FOR_EACH}"
                if seen.answered_from
                else "give the session-id of the publication, or leave it out"
            ),
        )
    if seen.asked_sessions:
        return (
            WaitReason.SETUP_NOT_ANSWERED,
            (
                f"{at} hears data of {_sessions(seen.asked_sessions)}, whose publisher was asked "
                "for a SETUP and has sent none"
            ),
            (
                "let datagrams through back to the publisher: a firewall, or a control address "
                "that is not its own"
            ),
        )
    if seen.cooling_sessions:
        return (
            WaitReason.COOLING_DOWN,
            f"{at} has ended its image of {_sessions(seen.cooling_sessions)}, which stays ended",
            "start the publication again, or subscribe with rejoin=true",
        )
    if seen.other_streams:
        return (
            WaitReason.OTHER_STREAMS_HEARD,
            f"{at} hears {streams(seen.other_streams)}, which no subscription there wants",
            "subscribe to that stream id, or publish with this one",
        )
    # It may have heard publishers that have left since.
    heard = "hears nothing"
    if seen.answered_from:
        server = f"the server at control address {listed(seen.answered_from)}"
        # The session may have been heard before, and have ended.
        heard = f"hears nothing of session {seen.session_id}, with which {server} answers"
    elif seen.reports_to:
        heard += f" from a publisher at control address {listed(seen.reports_to)}"
    return (
        WaitReason.NOTHING_HEARD,
        f"{at} {heard}{_nearby_publications(seen)}",
        f"{_meant_publication(seen)}{_where_to_look(seen)}",
    )


def _where_to_look(seen: SubscriptionSeen) -> str:
    if not seen.listening_at:
        return "call add_destination: control-mode=manual receives nowhere by itself"
    if seen.interfaces:
        return f"start a publication of this group, port and stream id; {SHARED_NETWORK}"
    if seen.answered_from:
        return (
            f"let datagrams through from {listed(seen.answered_from)}, and back; if the server has "
            f"gone, start it again; if it lives, {RESPONSE_FOR_EACH}"
        )
    if seen.reports_to:
        return _publication_at_control(seen.reports_to)
    if are_loopback(seen.listening_at):
        return (
            "start a publication with this endpoint and stream id on this machine: no other "
            "reaches a loopback address"
        )
    return "start a publication with this endpoint and stream id, and let its datagrams through"


def _publication_at_control(addresses: tuple[str, ...]) -> str:
    remedy = (
        f"start a publication with control={addresses[0]}|control-mode=dynamic, without "
        "endpoint, and with this stream id"
    )
    if are_loopback(addresses):
        return f"{remedy}, on this machine: no other reaches a loopback address"
    return f"{remedy}, and let datagrams through to that address, and back"


def are_loopback(addresses: tuple[str, ...]) -> bool:
    """Return whether all addresses are loopback addresses."""
    return all(each.startswith(("127.", "[::1]")) for each in addresses)


def _listening(seen: SubscriptionSeen) -> str:
    at = listed(seen.listening_at)
    return f"{at} on {listed(seen.interfaces)}" if seen.interfaces else at


def _sessions(session_ids: tuple[int, ...]) -> str:
    words = listed(tuple(map(str, session_ids)))
    return f"session{'s' if len(session_ids) > 1 else ''} {words}"


def _nearby_publications(seen: SubscriptionSeen) -> str:
    if not seen.nearly:
        return ""
    return f"; this driver has publications of {printable(streams(seen.nearly), 3 * SHORT)}"


def why(waiter: Waiter) -> Why:
    """Return why a publication or subscription waits: the reason, what was seen, what to change.

    `why` may be called at any time; `reason` is `WaitReason.NOTHING` if there is nothing to wait
    for. `str()` of the result is the text that the log gives for a wait longer than
    `waiting_hint_ns`, and that ends the text of a timeout error.

    Args:
        waiter: A publication or subscription of this process; call `why` in its event loop.

    Raises:
        ConfigurationError: The argument is neither a publication nor a subscription.
    """
    explain = getattr(waiter, "_explain", None)
    if explain is None:
        from aeron_async.errors import ConfigurationError  # noqa: PLC0415 - the rare case

        message = f"why() explains a publication or a subscription, got {type(waiter).__name__}"
        raise ConfigurationError(message)
    found: Why = explain()
    return found
