"""The channel on which an archive answers a client, made of what the client asks for.

Invariant: a stranger decides where the answers go, and nothing else. The log buffers have the
length that the archive's settings say, and parameters that are not permitted are left out.

Differs: Aeron keeps twenty-odd parameters, and takes the length of the terms from the client.

Source: Aeron `ArchiveConductor.newControlSession`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.archive.channel_stripping import with_only
from aeron_async.protocol.channel_uri import ChannelUri, ControlMode

if TYPE_CHECKING:
    from aeron_async.archive.control.settings import ControlSettings
    from aeron_async.client.image import Image

__all__ = ["PERMITTED", "response_channel"]

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
