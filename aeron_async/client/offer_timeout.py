"""What waits that were given a timeout raise: why they waited is part of the text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.clock import NS_PER_SECOND
from aeron_async.errors import AeronTimeoutError, OfferTimeoutError
from aeron_async.waits import PublicationSeen

if TYPE_CHECKING:
    from aeron_async.waits import Why

__all__ = ["offer_timeout", "wait_timeout"]


def offer_timeout(why: Why, waited_ns: int) -> OfferTimeoutError:
    """Return the error of an offer that found no room in time."""
    seen = why.seen
    assert isinstance(seen, PublicationSeen), "a publication was asked"
    return OfferTimeoutError(
        f"offer waited {waited_ns / NS_PER_SECOND:.3f} s: {why}",
        position=seen.position,
        position_limit=seen.position_limit,
        waited_ns=waited_ns,
        is_connected=seen.is_connected,
        slowest_receiver=seen.slowest_receiver,
        why=why,
    )


def wait_timeout(why: Why, operation: str, waited_ns: int) -> AeronTimeoutError:
    """Return the error of another operation whose timeout has passed."""
    message = f"{operation} waited {waited_ns / NS_PER_SECOND:.3f} s: {why}"
    return AeronTimeoutError(message, why=why)
