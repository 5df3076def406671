"""Times of sending and of arrival, written into messages where the channel asks for them.

The time is 8 bytes, little-endian, in nanoseconds since 1970. It goes into the payload at an
offset, where that has room for it, or into the reserved value of the frame. It is written into the
log, so that spies see the time of the latest sending too.

`channel-rcv-ts-offset` is where the driver's time goes, `media-rcv-ts-offset` that of the system.
The one is the time at which this driver had the datagram in hand, the other that at which the
system's network stack did. Both are 8 bytes, little-endian, in nanoseconds since 1970. They go into
the payload at an offset, where that has room for them, or into the reserved value of the frame;
over whatever the publisher put there.

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
    """Writes the time of sending into datagrams.

    Args:
        offset: In the payload, in bytes; -8 means the reserved value.
        epoch_ns: Reads wall-clock time in nanoseconds since 1970.
    """

    __slots__ = ("_epoch_ns", "_is_reserved", "_start")

    def __init__(self, offset: int, epoch_ns: Callable[[], int]) -> None:
        self._is_reserved = offset == RESERVED_TIMESTAMP_OFFSET
        self._start = RESERVED_VALUE_OFFSET if self._is_reserved else DATA_HEADER_LENGTH + offset
        self._epoch_ns = epoch_ns

    def stamp(self, datagram: memoryview) -> None:
        """Write the time into the first frame of a datagram, if that is a message with room."""
        frame_length, _, _, frame_type = SENT_FRAME.unpack_from(datagram)
        if frame_type != FrameType.DATA or not 0 < frame_length <= len(datagram):
            return
        if self._is_reserved or self._start + TIME.size <= frame_length:
            TIME.pack_into(datagram, self._start, self._epoch_ns())


FRAME: Final = Struct("<ixBH")


class ReceiveTimestamps:
    """Writes the times of arrival into datagrams.

    Args:
        channel_offset: Of the driver's time, in the payload, in bytes; -8 means the reserved value,
            None that nobody wants it.
        media_offset: Of the network stack's, likewise.
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
        """Return what writes the times that a channel asks for; None where it asks for none."""
        channel_offset = uri.channel_receive_timestamp_offset
        media_offset = uri.media_receive_timestamp_offset
        if channel_offset is None and media_offset is None:
            return None
        return cls(channel_offset=channel_offset, media_offset=media_offset, epoch_ns=epoch_ns)

    def stamp(self, datagram: memoryview, media_ns: int | None) -> memoryview:
        """Write the times into every first fragment of a datagram, and return what it is now.

        That is another one where this one cannot be written to. Nothing of it has been checked yet:
        whatever is no frame, and all that follows, stays as it is.

        Args:
            datagram: Whole, as it came off the wire.
            media_ns: When the network stack had it, in nanoseconds since 1970; None if it does not
                say, and then the driver's time stands in.
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
    """Return where in the frame a time goes, given where in the payload."""
    if offset is None:
        return None
    is_reserved = offset == RESERVED_TIMESTAMP_OFFSET
    return RESERVED_VALUE_OFFSET if is_reserved else DATA_HEADER_LENGTH + offset


def put(frame: memoryview, start: int | None, time_ns: int) -> None:
    """Write a time into a frame, if it is wanted and there is room for it."""
    if start is not None and start + TIME.size <= len(frame):
        TIME.pack_into(frame, start, time_ns)
