"""The channel on which an archive answers a client, and what it may send before an answer comes.

Invariant: a stranger decides where the answers go, and nothing else. The log buffers have the
length that the archive's settings say, and parameters that are not permitted are left out. A host
that has not answered is sent at most three bytes for each byte of the request that named it.

Differs: Aeron keeps twenty-odd parameters, takes the length of the terms from the client, and has
no such bound.

Source: Aeron `ArchiveConductor.newControlSession`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.archive.channel_stripping import with_only
from aeron_async.archive.control.messages import CODEC
from aeron_async.archive.control.requests import BoundedReplayRequest, ReplayRequest
from aeron_async.protocol.channel_uri import ChannelUri, ControlMode, Media

if TYPE_CHECKING:
    from aeron_async.archive.control.requests import Request
    from aeron_async.archive.control.settings import ControlSettings
    from aeron_async.client.image import Image
    from aeron_async.protocol.address import Address

__all__ = [
    "PERMITTED",
    "SENT_PER_BYTE",
    "is_same_host",
    "response_channel",
    "unanswered_bound",
]

SENT_PER_BYTE: Final = 3
"""Bytes that a host is sent for each byte of a request before it has answered; as in QUIC."""

PERMITTED: Final = (
    "endpoint",
    "interface",
    "control",
    "control-mode",
    "session-id",
    "ttl",
    "alias",
    "mtu",
)
"""What a client may say of its response channel.

Official clients add term-length, sparse and mtu. The first two are the archive's own business:
terms of a gigabyte, allocated at once, would be mapped before the client has answered. Tags would
share a socket of the archive's, and a position makes the stream easier to guess.
"""


def response_channel(asked: str, image: Image, settings: ControlSettings) -> ChannelUri:
    """Return the channel to answer on.

    Args:
        asked: What the client asks for.
        image: Of its requests.
        settings: The archive's.

    Raises:
        ChannelUriError: No channel is meant, or not one that can be published on.
    """
    # Also without what no Aeron knows: a client whose channel is refused could not even be told.
    uri = ChannelUri.parse(with_only(asked, PERMITTED))
    is_response = uri.control_mode is ControlMode.RESPONSE
    answer = uri.replace(
        term_length=settings.control_term_length,
        mtu_length=uri.mtu_length or settings.control_mtu_length,
        is_sparse=settings.is_control_term_sparse,
        response_correlation_id=image.correlation_id if is_response else None,
    )
    answer.check_publication()
    return answer


def unanswered_bound(request: Request, known: ChannelUri) -> dict[str, int]:
    """Return how many bytes a replay may send before its receiver has answered, where bounded.

    The host that takes our answers is there, and asked for it. Any other one may be a victim.

    Args:
        request: Of a client.
        known: Where it takes our answers.
    """
    if not isinstance(request, ReplayRequest | BoundedReplayRequest):
        return {}
    wanted = ChannelUri.parse(request.replay_channel).endpoint
    if known.media is Media.IPC or wanted is None:
        return {}
    if known.endpoint is not None and is_same_host(wanted, known.endpoint):
        return {}
    return {"handshake_length": SENT_PER_BYTE * len(CODEC.encode(request))}


def is_same_host(one: Address, other: Address) -> bool:
    """Return whether two addresses are of one host by how they are written, whatever the port.

    Names are not looked up. A literal of one link, `[fe80::1%eth0]`, is another host on another.
    """
    if (one.host, one.scope) == (other.host, other.scope):
        return True
    return is_loopback(one) and is_loopback(other)


def is_loopback(address: Address) -> bool:
    """Return whether an address is this host's own."""
    return address.host == "localhost" or (address.ip is not None and address.ip.is_loopback)
