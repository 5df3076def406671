"""Channels of recordings: what identifies a stream, and how an extension begins.

Source: Aeron `ArchiveConductor.strippedChannelBuilder`, `ArchiveConductor.makeKey`,
`ChannelUriStringBuilder.build`, `ChannelUriStringBuilder.initialPosition`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.errors import ArchiveError, ArchiveErrorCode
from aeron_async.protocol.channel_uri import parse_channel
from aeron_async.protocol.parameters import PARAMETERS

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = [
    "extending_channel",
    "recording_key",
    "stripped_channel",
    "with_only",
    "without_unknown",
]

KEPT: Final = (
    # In the order in which the official archive prints them.
    "tags",
    "endpoint",
    "interface",
    "control",
    "control-mode",
    "session-id",
    "ttl",
    "alias",
    "cc",
    "fc",
    "gtag",
    "tether",
    "group",
    "rejoin",
    "so-sndbuf",
    "so-rcvbuf",
    "rcv-wnd",
    "media-rcv-ts-offset",
    "channel-rcv-ts-offset",
    "channel-snd-ts-offset",
    "response-endpoint",
    "response-correlation-id",
    "stream-id",
)
IDENTIFYING: Final = ("endpoint", "interface", "control", "session-id", "tags")


def stripped_channel(uri: ChannelUri) -> str:
    """Return a channel with only the parameters that a subscriber needs to find the stream."""
    return only(uri, KEPT)


def recording_key(uri: ChannelUri, stream_id: int) -> str:
    """Return a key that is equal for two requests to record the same stream."""
    return f"{stream_id}:{only(uri, IDENTIFYING)}"


def without_unknown(channel: str) -> str:
    """Return a channel without the parameters that Aeron does not know."""
    return with_only(channel, PARAMETERS)


def with_only(channel: str, keys: Container[str]) -> str:
    """Return a channel, given as text, with only the parameters that are among the keys."""
    head, _, query = channel.partition("?")
    kept = [each for each in query.split("|") if each.partition("=")[0] in keys]
    return f"{head}{'?' if kept else ''}{'|'.join(kept)}"


def only(uri: ChannelUri, keys: Iterable[str]) -> str:
    """Return a channel with some of its parameters, in the given order."""
    given = uri.parameters
    query = "|".join(f"{key}={given[key]}" for key in keys if key in given)
    return f"aeron:{uri.media}{'?' if query else ''}{query}"


def extending_channel(descriptor: RecordingDescriptor, channel: str | ChannelUri) -> ChannelUri:
    """Return a channel whose publication begins where a recording has stopped.

    Args:
        descriptor: Descriptor of the recording.
        channel: Channel to publish on; its term parameters and MTU are replaced.

    Raises:
        ArchiveError: The recording has not stopped.
        ChannelUriError: The channel is not valid.
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
