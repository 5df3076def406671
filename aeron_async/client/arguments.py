"""Checks of callers' arguments, made before any request to the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar, get_args

from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.media_driver import MediaDriver
from aeron_async.driver.own_loop import InvokedMediaDriver, ThreadedMediaDriver
from aeron_async.errors import ConfigurationError
from aeron_async.protocol.arguments import (
    check_function,
    check_handler,
    check_number,
    check_timeout,
    shown,
)
from aeron_async.protocol.channel_uri import ChannelUri, Media, parse_channel
from aeron_async.protocol.error import ERROR_MAX_TEXT_LENGTH
from aeron_async.protocol.header import Buffer
from aeron_async.protocol.units import INT32_MAX, INT32_MIN

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, SupportsIndex

__all__ = [
    "Offered",
    "OnDisconnected",
    "check_answer_timeout",
    "check_callable",
    "check_driver",
    "check_image_handler",
    "check_limit",
    "check_on_disconnected",
    "check_on_error",
    "check_reason",
    "check_reconnect",
    "check_session_id",
    "check_stream_id",
    "check_timeout",
    "check_whole",
    "destination_uri",
    "publication_uri",
    "subscription_uri",
]

Offered: TypeAlias = Buffer | list[Buffer] | tuple[Buffer, ...]
"""One message, or a list or tuple of its parts."""

F = TypeVar("F")


OnDisconnected = Literal["wait", "raise"]
"""Whether an offer waits or raises while no subscriber is connected."""


def publication_uri(
    channel: str | ChannelUri,
    stream_id: int,
    *,
    flow_control: Callable[..., Any] | None = None,
) -> ChannelUri:
    """Return the channel of a publication, checked as far as that needs no driver.

    Args:
        channel: Channel of the publication.
        stream_id: Stream id within the channel.
        flow_control: Returns the flow control strategy.

    Raises:
        ChannelUriError: The channel is invalid, or not for a publication.
        ConfigurationError: `flow_control` cannot be called, or the channel is IPC.
    """
    uri = parse_channel(channel)
    uri.check_publication(stream_id)
    check_callable(flow_control, "flow_control")
    if flow_control is not None and uri.media is Media.IPC:
        message = f"flow_control has nothing to do on {uri}: within a driver nothing is sent"
        raise ConfigurationError(message)
    return uri


def subscription_uri(
    channel: str | ChannelUri,
    stream_id: int,
    *,
    congestion_control: Callable[..., Any] | None = None,
) -> ChannelUri:
    """Return the channel of a subscription, checked as far as that needs no driver.

    Args:
        channel: Channel of the subscription.
        stream_id: Stream id within the channel.
        congestion_control: Returns the congestion control strategy of an image.

    Raises:
        ChannelUriError: The channel is invalid, or not for a subscription.
        ConfigurationError: `congestion_control` cannot be called, or the channel is IPC or a spy.
    """
    uri = parse_channel(channel)
    uri.check_subscription(stream_id)
    check_callable(congestion_control, "congestion_control")
    if congestion_control is not None and (uri.is_spy or uri.media is Media.IPC):
        message = f"congestion_control has nothing to do on {uri}: nothing is received there"
        raise ConfigurationError(message)
    return uri


def destination_uri(channel: str | ChannelUri, *, is_sent_to: bool) -> ChannelUri:
    """Return the channel of a destination, checked as far as that needs no driver.

    Args:
        channel: Channel of the destination.
        is_sent_to: Whether it is a destination of a publication; if not, of a subscription.

    Raises:
        ChannelUriError: The channel is invalid, or cannot be a destination.
    """
    uri = parse_channel(channel)
    if is_sent_to:
        uri.check_send_destination()
    else:
        uri.check_receive_destination()
    return uri


def check_callable(function: F | None, name: str) -> F | None:
    """Return a handler or a factory, if one was given.

    Raises:
        ConfigurationError: It cannot be called, such as a strategy in place of a function that
            returns one; or it is an `async def`, which would not be awaited.
    """
    return None if function is None else check_function(function, name)


def check_image_handler(function: F | None, name: str) -> F | None:
    """Return an image handler, if one was given.

    Raises:
        ConfigurationError: As for `check_callable`; or the handler does not take one argument.
    """
    return None if function is None else check_handler(function, name, "the image")


def check_on_error(function: F | None) -> F | None:
    """Return the handler of publication errors, if one was given.

    Raises:
        ConfigurationError: As for `check_callable`; or the handler does not take one argument.
    """
    return None if function is None else check_handler(function, "on_error", "the error frame")


def check_driver(driver: object, context: object) -> None:
    """Check the arguments of `Aeron.connect`.

    Raises:
        ConfigurationError: An argument has the wrong type, or both are given.
    """
    if driver is not None and not isinstance(
        driver, MediaDriver | ThreadedMediaDriver | InvokedMediaDriver
    ):
        given = f"Aeron.connect() was given {type(driver).__name__} as its driver"
        meant = "write context=..." if isinstance(driver, DriverContext) else "give a MediaDriver"
        message = f"{given}: {meant}"
        raise ConfigurationError(message)
    if context is not None and not isinstance(context, DriverContext):
        message = f"context={shown(context)} must be a DriverContext, got {type(context).__name__}"
        raise ConfigurationError(message)
    if driver is not None and context is not None:
        message = "a context configures the client's own driver: give it to MediaDriver.launch"
        raise ConfigurationError(message)


def check_reconnect(directory: object, *, reconnect: object, on_reconnected: object) -> None:
    """Check the directory that `Aeron.connect` is given, and what it is told about its loss.

    Raises:
        ConfigurationError: An argument has the wrong type, is empty, or has no effect.
    """
    if directory == "":
        message = "directory='' must name the Aeron directory of a driver: None uses none"
        raise ConfigurationError(message)
    if not isinstance(reconnect, bool):
        message = f"reconnect={shown(reconnect)} must be True or False"
        raise ConfigurationError(message)
    if reconnect and directory is None:
        message = "reconnect is for a client that is given a directory: no other loses its driver"
        raise ConfigurationError(message)
    if on_reconnected is not None:
        check_handler(on_reconnected, "on_reconnected", "the event")
        if not reconnect:
            message = "on_reconnected is never called without reconnect=True"
            raise ConfigurationError(message)


def check_reason(reason: str) -> str:
    """Return the reason for which an image is rejected.

    Raises:
        ConfigurationError: The reason is no text, or too long for an ERR frame.
    """
    if not isinstance(reason, str) or len(reason.encode()) > ERROR_MAX_TEXT_LENGTH:
        message = f"reason={shown(reason)} must be text of at most {ERROR_MAX_TEXT_LENGTH} bytes"
        raise ConfigurationError(message)
    return reason


def check_stream_id(stream_id: SupportsIndex, name: str = "stream_id") -> int:
    """Return the stream id as an int.

    Args:
        stream_id: The stream id.
        name: Name of the argument, for the error text.

    Raises:
        ConfigurationError: The stream id is no whole number, or does not fit signed 32 bits.
    """
    return check_number(
        stream_id, name, minimum=INT32_MIN, maximum=INT32_MAX, why=": signed 32 bits"
    )


def check_session_id(session_id: SupportsIndex) -> int:
    """Return the session id as an int.

    Raises:
        ConfigurationError: The session id is no whole number, or does not fit signed 32 bits.
    """
    return check_number(
        session_id, "session_id", minimum=INT32_MIN, maximum=INT32_MAX, why=": signed 32 bits"
    )


def check_on_disconnected(on_disconnected: OnDisconnected) -> OnDisconnected:
    """Return what an offer does without a subscriber.

    Raises:
        ConfigurationError: The value is neither "wait" nor "raise".
    """
    if on_disconnected not in get_args(OnDisconnected):
        choices = " or ".join(repr(choice) for choice in get_args(OnDisconnected))
        message = f"on_disconnected={shown(on_disconnected)} must be {choices}"
        raise ConfigurationError(message)
    return on_disconnected


def check_answer_timeout(timeout: float) -> float:
    """Return how long to wait for an answer, in seconds.

    Raises:
        ConfigurationError: The timeout is not a number of more than 0.
    """
    if timeout is None or check_timeout(timeout) == 0:
        message = f"timeout={shown(timeout)} must be more than 0 seconds"
        raise ConfigurationError(message)
    return timeout


def check_limit(limit: int, name: str) -> int:
    """Return a limit of how many messages or fragments to read.

    Raises:
        ConfigurationError: The limit is not a whole number of 1 or more.
    """
    return check_number(limit, name, minimum=1)


def check_whole(number: SupportsIndex, name: str) -> int:
    """Return a whole number, such as a position or the id of a recording.

    Raises:
        ConfigurationError: The number is not a whole number of 0 or more.
    """
    return check_number(number, name, minimum=0)
