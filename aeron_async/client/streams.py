"""Publications and subscriptions as anyio streams: `send` and `receive`, and what anyio raises.

anyio tells what this side has closed (`ClosedResourceError`) from what the world has broken
(`BrokenResourceError`); so do we, with the driver as a part of the world.

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
"""What anyio has an error of its own for; the others reach the caller of a stream as they are."""


@final
class AeronAttribute(TypedAttributeSet):
    """What `extra` of a publication or a subscription can be asked for.

    Attributes:
        channel: As it was asked for.
        stream_id: Within the channel.
        session_id: Of the publication; a subscription has none.
        local_address: What the socket is bound to, as `host:port`.
    """

    channel: str = typed_attribute()
    stream_id: int = typed_attribute()
    session_id: int = typed_attribute()
    local_address: str = typed_attribute()


def as_anyio(error: Exception) -> Exception:
    """Return what anyio expects of a stream in place of one of `STREAM_ERRORS`."""
    if isinstance(error, BusyError):
        return anyio.BusyResourceError("receiving from")
    # Behind the error stands what closed it, where that was not its owner.
    if isinstance(error, ClosedError) and error.__cause__ is None:
        return anyio.ClosedResourceError(str(error))
    return anyio.BrokenResourceError(str(error))
