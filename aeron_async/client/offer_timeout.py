"""What an offer says that found no room in time: who holds it up, and what to change."""

from __future__ import annotations

from aeron_async.clock import NS_PER_SECOND
from aeron_async.errors import OfferTimeoutError

__all__ = ["offer_timeout"]


def offer_timeout(
    stream: str,
    *,
    position: int,
    position_limit: int,
    waited_ns: int,
    is_connected: bool,
    is_ipc: bool,
    slowest_receiver: str | None,
    search: str,
) -> OfferTimeoutError:
    """Return the error of an offer.

    Args:
        stream: Channel and stream.
        position: Where the message would have started, in bytes.
        position_limit: Below which one may start, in bytes.
        waited_ns: How long it has waited.
        is_connected: Whether a subscriber is there.
        is_ipc: Whether the subscribers are those of this driver.
        slowest_receiver: Who holds it up, where that is known.
        search: Where to look for a subscriber.
    """
    where = f"position {position}, limit {position_limit}, waited {waited_ns / NS_PER_SECOND:.3f} s"
    if not is_connected:
        message = f"no subscriber connected on {stream}: {where}; {search}"
    elif is_ipc:
        message = (
            f"back pressure on {stream}: {where}; let the slowest subscription keep up, raise the "
            "timeout, or raise term-length"
        )
    else:
        slowest = slowest_receiver or "unknown"
        message = (
            f"back pressure on {stream}: {where}, slowest receiver {slowest}; "
            "let the subscriber keep up, raise the timeout, or raise rcv-wnd and term-length"
        )
    return OfferTimeoutError(
        message,
        position=position,
        position_limit=position_limit,
        waited_ns=waited_ns,
        is_connected=is_connected,
        slowest_receiver=slowest_receiver,
    )
