"""How a publication must begin to go on with a recording that has stopped.

Source: Aeron `ChannelUriStringBuilder.initialPosition`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.client.arguments import parse_channel
from aeron_async.errors import ArchiveError, ArchiveErrorCode

if TYPE_CHECKING:
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = ["extending_channel"]


def extending_channel(descriptor: RecordingDescriptor, channel: str | ChannelUri) -> ChannelUri:
    """Return a channel whose publication begins where a recording has stopped.

    Args:
        descriptor: The recording.
        channel: Where to publish; what it says of terms is replaced.

    Raises:
        ArchiveError: The recording has not stopped.
        ChannelUriError: The channel cannot be meant.
    """
    if descriptor.is_active:
        message = f"recording {descriptor.recording_id} has not stopped: stop it before extending"
        raise ArchiveError(message, code=ArchiveErrorCode.ACTIVE_RECORDING)
    uri = parse_channel(channel)
    terms, offset = divmod(descriptor.stop_position, descriptor.term_length)
    # Term ids are signed 32 bits, and wrap.
    term_id = (descriptor.initial_term_id + terms + (1 << 31)) % (1 << 32) - (1 << 31)
    return uri.replace(
        initial_term_id=descriptor.initial_term_id,
        term_id=term_id,
        term_offset=offset,
        term_length=descriptor.term_length,
        mtu_length=descriptor.mtu_length,
    )
