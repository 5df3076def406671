"""When a datagram was sent, written into its first message: `channel-snd-ts-offset`.

The time is 8 bytes, little-endian, in nanoseconds since 1970. It goes into the payload at an
offset, where that has room for it, or into the reserved value of the frame. It is written into the
log, so that spies see the time of the latest sending too.

Source: Aeron `aeron_send_channel_apply_timestamps`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from aeron_async.protocol.channel_uri import RESERVED_TIMESTAMP_OFFSET
from aeron_async.protocol.header import DATA_HEADER_LENGTH, FrameType

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SendTimestamps"]

FRAME: Final = Struct("<iBBH")
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
        frame_length, _, _, frame_type = FRAME.unpack_from(datagram)
        if frame_type != FrameType.DATA or not 0 < frame_length <= len(datagram):
            return
        if self._is_reserved or self._start + TIME.size <= frame_length:
            TIME.pack_into(datagram, self._start, self._epoch_ns())
