"""From what was seen of a subscription to the reason why it waits, and what to change. No I/O."""

from __future__ import annotations

from typing import Final

from aeron_async.client.why_publication import SHARED_NETWORK, listed, streams
from aeron_async.text import SHORT, printable
from aeron_async.waits import SubscriptionSeen, WaitReason, Why

__all__ = ["explain_subscription"]

RESPONSE_FOR_EACH: Final = "let it add a response publication for each client"


def explain_subscription(stream: str, seen: SubscriptionSeen, *, is_closed: bool = False) -> Why:
    """Return why a subscription waits.

    Args:
        stream: Channel and stream, as words.
        seen: What is known of it.
        is_closed: Whether it is closed.
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
            f"no publication of this driver has this channel and stream{_nearly(seen)}",
            (
                "publish with a client of the same MediaDriver: IPC and spies stay within one; to "
                "receive from others leave aeron-spy: out, or use UDP"
            ),
        )
    return _heard(seen)


def _without_response(seen: SubscriptionSeen) -> tuple[WaitReason, str, str]:
    if seen.last_error is not None:
        # A server has answered before, so requests name this subscription as they should.
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
            f"the subscription has no socket to receive at{_nearly(seen)}",
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
            f"{at} has ended its image of {_sessions(seen.cooling_sessions)}, and takes it no more",
            "start the publication again, or subscribe with rejoin=true",
        )
    if seen.other_streams:
        return (
            WaitReason.OTHER_STREAMS_HEARD,
            f"{at} hears {streams(seen.other_streams)}, which no subscription there wants",
            "subscribe to that stream id, or publish with this one",
        )
    heard = "has heard nothing"
    if seen.answered_from:
        server = f"the server at control address {listed(seen.answered_from)}"
        # It may have been heard, and have ended.
        heard = f"hears nothing of session {seen.session_id}, with which {server} answers"
    elif seen.reports_to:
        heard += f" from a publisher at control address {listed(seen.reports_to)}"
    return WaitReason.NOTHING_HEARD, f"{at} {heard}{_nearly(seen)}", _where_to_look(seen)


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
            "start a publication with this endpoint and stream id on this machine: a loopback "
            "address hears no other"
        )
    return "start a publication with this endpoint and stream id, and let its datagrams through"


def _publication_at_control(addresses: tuple[str, ...]) -> str:
    remedy = (
        f"start a publication with control={addresses[0]}|control-mode=dynamic, without "
        "endpoint, and with this stream id"
    )
    if are_loopback(addresses):
        return f"{remedy}, on this machine: a loopback address is heard by no other"
    return f"{remedy}, and let datagrams through to that address, and back"


def are_loopback(addresses: tuple[str, ...]) -> bool:
    """Return whether addresses are all of this machine alone."""
    return all(each.startswith(("127.", "[::1]")) for each in addresses)


def _listening(seen: SubscriptionSeen) -> str:
    at = listed(seen.listening_at)
    return f"{at} on {listed(seen.interfaces)}" if seen.interfaces else at


def _sessions(session_ids: tuple[int, ...]) -> str:
    words = listed(tuple(map(str, session_ids)))
    return f"session{'s' if len(session_ids) > 1 else ''} {words}"


def _nearly(seen: SubscriptionSeen) -> str:
    if not seen.nearly:
        return ""
    return f"; this driver has publications of {printable(streams(seen.nearly), 3 * SHORT)}"
