"""A channel with its addresses resolved: what to bind, what to connect to, and its identity.

Two channels of one canonical form share an endpoint. Names stay names in it, so that a name that
resolves anew is still the same channel.

Source: Aeron `UdpChannel`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from aeron_async.errors import ErrorCode, RegistrationError
from aeron_async.protocol.channel_uri import TagReference

if TYPE_CHECKING:
    from aeron_async.driver.core.outbox import Address
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = ["UdpChannel", "check_is_unicast", "format_address"]

WILDCARDS = {4: "0.0.0.0", 6: "::"}  # noqa: S104 - to bind to, as Aeron does when nothing is said


@attrs.frozen(kw_only=True)
class UdpChannel:
    """One unicast channel, ready for a socket.

    Attributes:
        uri: As the client wrote it.
        canonical_form: Its identity; equal forms share an endpoint.
        local: What to bind to.
        remote: What a sender connects to; None for a receiver.
    """

    uri: ChannelUri
    canonical_form: str
    local: Address
    remote: Address | None

    @classmethod
    def for_publication(
        cls, uri: ChannelUri, *, endpoint: Address, local: Address | None
    ) -> UdpChannel:
        """Return the channel of a sender.

        Args:
            uri: With an endpoint.
            endpoint: Its endpoint, resolved.
            local: Its control or interface address, resolved; None to let the system choose.
        """
        bound = local or wildcard_like(endpoint)
        return cls(
            uri=uri,
            canonical_form=canonical_form(uri, endpoint=endpoint, local=bound),
            local=bound,
            remote=endpoint,
        )

    @classmethod
    def for_subscription(
        cls, uri: ChannelUri, *, endpoint: Address, unique_suffix: str
    ) -> UdpChannel:
        """Return the channel of a receiver.

        Args:
            uri: With an endpoint.
            endpoint: Its endpoint, resolved; port 0 lets the system choose.
            unique_suffix: Keeps two channels apart that both let the system choose.
        """
        form = canonical_form(uri, endpoint=endpoint, local=wildcard_like(endpoint))
        if endpoint[1] == 0:
            tag = uri.channel_tag
            form += f"-{unique_suffix}" if tag is None else f"#{tag}"
        return cls(uri=uri, canonical_form=form, local=endpoint, remote=None)


def wildcard_like(address: Address) -> Address:
    """Return the wildcard address, port 0, of the same family."""
    return (WILDCARDS[6 if ":" in address[0] else 4], 0)


def canonical_form(uri: ChannelUri, *, endpoint: Address, local: Address) -> str:
    """Return the identity of a channel: local and remote, as written where they were written."""
    written_local = format_address(local) if uri.control is None else str(uri.control)
    written_remote = format_address(endpoint) if uri.endpoint is None else str(uri.endpoint)
    return f"UDP-{written_local}-{written_remote}"


def format_address(address: Address) -> str:
    """Return an address as channel URIs write it: `host:port` or `[ipv6]:port`."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


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
