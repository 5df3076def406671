"""DATA and PAD frames: the bytes of a stream; a DATA frame without bytes is a heartbeat.

Header layout, 32 bytes: the common header, then term_offset, session_id, stream_id, term_id (int32
each) and reserved_value (int64). These classes serve tools and tests: the data path reads the
fields it needs with `DATA_HEADER` and builds no object for a frame.

Source: Aeron `DataHeaderFlyweight`.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, Self

import attrs

from aeron_async.errors import ProtocolError
from aeron_async.protocol.header import (
    CURRENT_VERSION,
    DATA_HEADER_LENGTH,
    Buffer,
    DataFlags,
    FrameType,
    is_byte,
    is_int32,
    is_int64,
)

DATA_HEADER: Final = Struct("<iBBHiiiiq")


@attrs.frozen(kw_only=True)
class DataHeader:
    """The 32 bytes in front of every payload, and the whole of a PAD or heartbeat on the wire.

    Attributes:
        frame_length: Bytes of header and payload, unaligned; for a PAD all bytes it covers in the
            term, though only the header is sent; 0 for a heartbeat.
        term_offset: Where the frame begins in its term, in bytes; a multiple of 32.
        session_id: Publication, within the channel.
        stream_id: Stream, within the channel.
        term_id: Term; wraps at 32 bits.
        reserved_value: A value of the application, or a timestamp.
        flags: Fragmentation and end of stream.
        frame_type: DATA or PAD.
    """

    frame_length: int = attrs.field(validator=is_int32)
    term_offset: int = attrs.field(validator=is_int32)
    session_id: int = attrs.field(validator=is_int32)
    stream_id: int = attrs.field(validator=is_int32)
    term_id: int = attrs.field(validator=is_int32)
    reserved_value: int = attrs.field(default=0, validator=is_int64)
    flags: DataFlags = attrs.field(default=DataFlags.UNFRAGMENTED, validator=is_byte)
    frame_type: FrameType = FrameType.DATA

    def __attrs_post_init__(self) -> None:
        _check_type(self.frame_type)
        if self.frame_length < 0:
            message = f"frame_length is {self.frame_length}: a data frame's is never negative"
            raise ProtocolError(message)

    @property
    def is_heartbeat(self) -> bool:
        """Whether the frame carries no bytes, only the sender's position."""
        return self.frame_length == 0

    @property
    def is_end_of_stream(self) -> bool:
        """Whether the stream ends at this frame's position."""
        return bool(self.flags & DataFlags.END_OF_STREAM)

    @property
    def is_revoked(self) -> bool:
        """Whether the publication was revoked rather than closed."""
        return bool(self.flags & DataFlags.REVOKED)

    def encode(self) -> bytes:
        """Return the 32 bytes of the header."""
        return DATA_HEADER.pack(
            self.frame_length,
            CURRENT_VERSION,
            self.flags,
            self.frame_type,
            self.term_offset,
            self.session_id,
            self.stream_id,
            self.term_id,
            self.reserved_value,
        )

    @classmethod
    def decode(cls, datagram: Buffer) -> Self:
        """Decode the header at the start of `datagram`; bytes after it are ignored.

        Raises:
            ProtocolError: Fewer than 32 bytes, another version or type, or a negative length.
        """
        if len(datagram) < DATA_HEADER_LENGTH:
            message = f"data header of {len(datagram)} bytes: {DATA_HEADER_LENGTH} needed"
            raise ProtocolError(message)
        fields = DATA_HEADER.unpack_from(datagram)
        if fields[1] != CURRENT_VERSION:
            message = f"data frame of version {fields[1]}: only {CURRENT_VERSION} is known"
            raise ProtocolError(message)
        _check_type(fields[3])
        return cls(
            frame_length=fields[0],
            term_offset=fields[4],
            session_id=fields[5],
            stream_id=fields[6],
            term_id=fields[7],
            reserved_value=fields[8],
            flags=DataFlags(fields[2]),
            frame_type=FrameType(fields[3]),
        )


def encode_heartbeat(
    *,
    session_id: int,
    stream_id: int,
    term_id: int,
    term_offset: int,
    flags: DataFlags = DataFlags.UNFRAGMENTED,
) -> bytes:
    """Return the 32 bytes of a heartbeat, which tells receivers how far the stream was sent.

    Args:
        session_id: Publication, within the channel.
        stream_id: Stream, within the channel.
        term_id: Term of the next byte to send.
        term_offset: Offset of the next byte to send.
        flags: UNFRAGMENTED, with END_OF_STREAM once the stream has ended, and REVOKED if it was
            revoked.

    Source: Aeron `NetworkPublication.heartbeatMessageCheck`.
    """
    return DATA_HEADER.pack(
        0, CURRENT_VERSION, flags, 1, term_offset, session_id, stream_id, term_id, 0
    )


def _check_type(frame_type: int) -> None:
    if frame_type not in {FrameType.PAD, FrameType.DATA}:
        message = f"frame of type 0x{frame_type:04x}: DATA is 0x0001, PAD 0x0000"
        raise ProtocolError(message)
