"""Channels that can be read and resolved, but that this driver does nothing for yet.

The conductor asks here before it looks up a name. A kind of channel that begins to work leaves this
module, and its row of the page of compatibility changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.errors import ErrorCode, RegistrationError
from aeron_async.protocol.channel_uri import TagReference

if TYPE_CHECKING:
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = ["check_has_no_control", "check_is_unicast"]


def unsupported_parameter(uri: ChannelUri) -> str | None:
    """Return the first parameter that would silently do nothing here, as a subject and verb."""
    asked = (
        ("ats=true", uri.ats is True),
        ("tether=false", uri.is_tether is False),
        (f"session-id={uri.session_id}", isinstance(uri.session_id, TagReference)),
        ("response-correlation-id", uri.response_correlation_id is not None),
        ("media-rcv-ts-offset", uri.media_receive_timestamp_offset is not None),
        ("channel-rcv-ts-offset", uri.channel_receive_timestamp_offset is not None),
        ("channel-snd-ts-offset", uri.channel_send_timestamp_offset is not None),
    )
    return next((f"{text} is" for text, is_asked in asked if is_asked), None)


def check_is_unicast(uri: ChannelUri) -> None:
    """Refuse a channel that this driver has no endpoint for.

    Raises:
        RegistrationError: The channel is not plain UDP unicast.
    """
    reason = None
    if uri.is_spy:
        reason = "spy subscriptions (aeron-spy:) are"
    elif uri.media.value != "udp":
        reason = f"{uri.media.value} channels are"
    elif uri.control_mode is not None:
        reason = f"control-mode={uri.control_mode.value} is"
    elif uri.endpoint is None:
        reason = "channels without an endpoint are"
    elif uri.endpoint.is_multicast:
        reason = "multicast endpoints are"
    else:
        reason = unsupported_parameter(uri)
    if reason is not None:
        message = (
            f"{reason} not supported by this driver: {uri}; docs/compatibility.md lists what is"
        )
        raise RegistrationError(message, code=ErrorCode.NOT_SUPPORTED)


def check_has_no_control(uri: ChannelUri) -> None:
    """Refuse a subscription that would report elsewhere than to where its streams come from.

    Raises:
        RegistrationError: The channel has an explicit control address.
    """
    if uri.control is not None:
        message = f"a subscription with control={uri.control} is not supported by this driver"
        raise RegistrationError(message, code=ErrorCode.NOT_SUPPORTED)
