"""Publications, subscriptions and images as anyio streams: attributes and errors.

anyio distinguishes a stream that its user has closed (`ClosedResourceError`) from one that failed
for another reason (`BrokenResourceError`), which here includes the driver.

Source: anyio `ObjectSendStream`, `ObjectReceiveStream`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, final

import anyio
from anyio import TypedAttributeSet, typed_attribute
from anyio.abc import ObjectReceiveStream
from anyio.lowlevel import checkpoint_if_cancelled

from aeron_async.driver.commands import ImageEnd, ImageEndReason
from aeron_async.errors import (
    BusyError,
    ClosedError,
    MaxPositionExceededError,
    NotConnectedError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from aeron_async.logbuffer.message import Message

__all__ = ["STREAM_ERRORS", "AeronAttribute", "ImageStream", "as_anyio"]

STREAM_ERRORS: Final = (BusyError, ClosedError, MaxPositionExceededError, NotConnectedError)
"""Errors for which anyio has its own; the caller of a stream gets all others unchanged."""
RECEIVING: Final = "receiving from"
CLOSED: Final = "the stream of the image is closed"


@final
class AeronAttribute(TypedAttributeSet):
    """The attributes that `extra` of a publication, a subscription or an `ImageStream` can read.

    Attributes:
        channel: The channel as requested.
        stream_id: Stream id within the channel.
        session_id: Session id of the publication, or of the image; a subscription has none.
        local_address: Address the socket is bound to, as `host:port`; empty without a socket.
    """

    channel: str = typed_attribute()
    stream_id: int = typed_attribute()
    session_id: int = typed_attribute()
    local_address: str = typed_attribute()


def as_anyio(error: Exception) -> Exception:
    """Return the anyio error for one of `STREAM_ERRORS`."""
    if isinstance(error, BusyError):
        return anyio.BusyResourceError(RECEIVING)
    # An error with a cause was closed by that cause, not by its owner.
    if isinstance(error, ClosedError) and error.__cause__ is None:
        return anyio.ClosedResourceError(str(error))
    return anyio.BrokenResourceError(str(error))


class OneImage(Protocol):
    """The part of an image that is needed here."""

    session_id: int
    subscription: Any

    @property
    def end(self) -> ImageEnd | None: ...

    def __aiter__(self) -> Any: ...

    def __anext__(self) -> Awaitable[Message]: ...


@final
class ImageStream(ObjectReceiveStream["Message"]):
    """One image as an anyio stream, which ends when its publication does.

    A subscription has no end of its own, because other publications may follow. It reads as the
    subscription does, and no other task may read that at the same time. Closing it ends this
    reading, and leaves the subscription open.

    Args:
        image: The image.

    Attributes:
        image: The image.
    """

    def __init__(self, image: OneImage) -> None:
        self.image: Any = image
        self._image = image
        self._is_closed = False
        self._receiving: anyio.CancelScope | None = None

    async def receive(self) -> Message:
        """Return the next message of the image.

        Raises:
            EndOfStream: The publication has ended, and all its messages were received.
            ClosedResourceError: The stream or the subscription was closed, before or during the
                call.
            BrokenResourceError: The image ended in another way, which the text names, or the driver
                failed.
            BusyResourceError: Another task consumes the subscription.
        """
        await checkpoint_if_cancelled()
        if self._is_closed:
            raise anyio.ClosedResourceError(CLOSED)
        if self._receiving is not None:
            raise anyio.BusyResourceError(RECEIVING)
        try:
            with anyio.CancelScope() as self._receiving:
                return await anext(self._image)
        except StopAsyncIteration as over:
            raise self._why_over(over) from None
        except STREAM_ERRORS as error:
            raise as_anyio(error) from error
        finally:
            self._receiving = None
        raise anyio.ClosedResourceError(CLOSED)

    def _why_over(self, over: StopAsyncIteration) -> Exception:
        """Return the error for the end of the iteration."""
        end = self._image.end
        if self._image.subscription.is_closed or end is None:
            return anyio.ClosedResourceError(str(over))
        if end.reason is ImageEndReason.END_OF_STREAM:
            return anyio.EndOfStream(str(over))
        how = f"{end.reason.name} at position {end.position}"
        return anyio.BrokenResourceError(f"the image of session {self._image.session_id}: {how}")

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        """Return the attributes of the subscription, and the session id."""
        session_id = {AeronAttribute.session_id: lambda: self._image.session_id}
        return {**self._image.subscription.extra_attributes, **session_id}

    async def aclose(self) -> None:
        """End the reading; a call of `receive` that waits raises `ClosedResourceError`."""
        self._is_closed = True
        if self._receiving is not None:
            self._receiving.cancel()
