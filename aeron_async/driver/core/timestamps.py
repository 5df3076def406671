"""Send and receive timestamps, written into messages where the channel asks for them.

A timestamp is 8 bytes, little-endian, in nanoseconds since 1970. It goes into the payload at an
offset, if there is room, or into the reserved value of the frame; it overwrites what the publisher
put there. A send timestamp is written into the log, so spies see the time of the latest send too.

There are two receive timestamps: `channel-rcv-ts-offset` places the time at which this driver
received the datagram, `media-rcv-ts-offset` the time at which the system's network stack did.

Source: Aeron `aeron_send_channel_apply_timestamps`, `aeron_publication_image_validate_packet`,
`aeron_timestamps_set_timestamp`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from aeron_async.protocol.channel_uri import RESERVED_TIMESTAMP_OFFSET
from aeron_async.protocol.header import DATA_HEADER_LENGTH, DataFlags, FrameType, align_frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = [
    "ReceiveTimestamps",
    "SendTimestamps",
]

SENT_FRAME: Final = Struct("<iBBH")
TIME: Final = Struct("<q")
RESERVED_VALUE_OFFSET: Final = 24


class SendTimestamps:
    """Writes the send time into datagrams.

    Args:
        offset: Where in the payload, in bytes; -8 means the reserved value.
        epoch_ns: Reads wall-clock time in nanoseconds since 1970.
    """

    __slots__ = ("_epoch_ns", "_is_reserved", "_start")

    def __init__(self, offset: int, epoch_ns: Callable[[], int]) -> None:
        self._is_reserved = offset == RESERVED_TIMESTAMP_OFFSET
        self._start = RESERVED_VALUE_OFFSET if self._is_reserved else DATA_HEADER_LENGTH + offset
        self._epoch_ns = epoch_ns

    def stamp(self, datagram: memoryview) -> None:
        """Write the time into the first frame of a datagram, if a message with room begins there.

        Differs: the C driver writes it into every fragment of a message, over its payload; the
        Java driver, as here, only into the first.
        """
        frame_length, _, flags, frame_type = SENT_FRAME.unpack_from(datagram)
        if frame_type != FrameType.DATA or not 0 < frame_length <= len(datagram):
            return
        if not flags & DataFlags.BEGIN_FRAGMENT:
            return
        if self._is_reserved or self._start + TIME.size <= frame_length:
            TIME.pack_into(datagram, self._start, self._epoch_ns())


FRAME: Final = Struct("<ixBH")


class ReceiveTimestamps:
    """Writes the receive times into datagrams.

    Args:
        channel_offset: Where in the payload the driver's time goes, in bytes; -8 means the reserved
            value, None that the channel does not ask for it.
        media_offset: The same for the time of the network stack.
        epoch_ns: Reads wall-clock time in nanoseconds since 1970.
    """

    __slots__ = ("_channel_start", "_epoch_ns", "_media_start")

    def __init__(
        self,
        *,
        channel_offset: int | None,
        media_offset: int | None,
        epoch_ns: Callable[[], int],
    ) -> None:
        self._channel_start = frame_offset(channel_offset)
        self._media_start = frame_offset(media_offset)
        self._epoch_ns = epoch_ns

    @classmethod
    def of(cls, uri: ChannelUri, epoch_ns: Callable[[], int]) -> ReceiveTimestamps | None:
        """Return the writer for the times that a channel asks for; None if it asks for none."""
        channel_offset = uri.channel_receive_timestamp_offset
        media_offset = uri.media_receive_timestamp_offset
        if channel_offset is None and media_offset is None:
            return None
        return cls(channel_offset=channel_offset, media_offset=media_offset, epoch_ns=epoch_ns)

    def stamp(self, datagram: memoryview, media_ns: int | None) -> memoryview:
        """Write the times into every first fragment of a datagram, and return the datagram.

        A read-only datagram is copied first. The datagram is unchecked: from the first invalid
        frame on, everything stays as it is.

        Args:
            datagram: The whole datagram as received.
            media_ns: When the network stack received it, in nanoseconds since 1970; None if
                unknown, and then the driver's time is used.
        """
        if datagram.readonly:
            datagram = memoryview(bytearray(datagram))
        now_ns = self._epoch_ns()
        length, start = len(datagram), 0
        while start + DATA_HEADER_LENGTH <= length:
            frame_length, flags, kind = FRAME.unpack_from(datagram, start)
            end = start + frame_length
            if frame_length < DATA_HEADER_LENGTH or end > length or kind != FrameType.DATA:
                break
            if flags & DataFlags.BEGIN_FRAGMENT:
                frame = datagram[start:end]
                put(frame, self._media_start, now_ns if media_ns is None else media_ns)
                put(frame, self._channel_start, now_ns)
            start += align_frame(frame_length)
        return datagram


def frame_offset(offset: int | None) -> int | None:
    """Return the offset in the frame for an offset in the payload."""
    if offset is None:
        return None
    is_reserved = offset == RESERVED_TIMESTAMP_OFFSET
    return RESERVED_VALUE_OFFSET if is_reserved else DATA_HEADER_LENGTH + offset


def put(frame: memoryview, start: int | None, time_ns: int) -> None:
    """Write a time into a frame, if the channel asks for it and there is room."""
    if start is not None and start + TIME.size <= len(frame):
        TIME.pack_into(frame, start, time_ns)
