"""Publications and subscriptions as anyio streams: attributes and errors.

anyio distinguishes a stream that its user has closed (`ClosedResourceError`) from one that failed
for another reason (`BrokenResourceError`), which here includes the driver.

Source: anyio `ObjectSendStream`, `ObjectReceiveStream`.
"""

from __future__ import annotations

from typing import Final, final

import anyio
from anyio import TypedAttributeSet, typed_attribute

from aeron_async.errors import (
    BusyError,
    ClosedError,
    MaxPositionExceededError,
    NotConnectedError,
)

__all__ = ["STREAM_ERRORS", "AeronAttribute", "as_anyio"]

STREAM_ERRORS: Final = (BusyError, ClosedError, MaxPositionExceededError, NotConnectedError)
"""Errors for which anyio has its own; the caller of a stream gets all others unchanged."""


@final
class AeronAttribute(TypedAttributeSet):
    """The attributes that `extra` of a publication or a subscription can read.

    Attributes:
        channel: The channel as requested.
        stream_id: Stream id within the channel.
        session_id: Session id of the publication; a subscription has none.
        local_address: Address the socket is bound to, as `host:port`; empty without a socket.
    """

    channel: str = typed_attribute()
    stream_id: int = typed_attribute()
    session_id: int = typed_attribute()
    local_address: str = typed_attribute()


def as_anyio(error: Exception) -> Exception:
    """Return the anyio error for one of `STREAM_ERRORS`."""
    if isinstance(error, BusyError):
        return anyio.BusyResourceError("receiving from")
    # An error with a cause was closed by that cause, not by its owner.
    if isinstance(error, ClosedError) and error.__cause__ is None:
        return anyio.ClosedResourceError(str(error))
    return anyio.BrokenResourceError(str(error))
