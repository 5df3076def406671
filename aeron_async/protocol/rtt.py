"""RTTM frames: a receiver measures the round trip time to the sender.

Layout, 40 bytes: the common header, then session_id, stream_id (int32 each), echo_timestamp,
reception_delta and receiver_id (int64 each).

Source: Aeron `RttMeasurementFlyweight`.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, Self

import attrs

from aeron_async.protocol.header import (
    CURRENT_VERSION,
    Buffer,
    FrameType,
    RttFlags,
    check_header,
    is_byte,
    is_int32,
    is_int64,
)

RTT_MEASUREMENT_LENGTH: Final = 40
_RTT_MEASUREMENT: Final = Struct("<iBBHiiqqq")


@attrs.frozen(kw_only=True)
class RttMeasurement:
    """One half of a round trip: the request, or the reply that echoes it.

    Attributes:
        session_id: Publication, within the channel.
        stream_id: Stream, within the channel.
        echo_timestamp_ns: The requester's clock at sending; a reply echoes it.
        reception_delta_ns: How long the replier held the request; drivers send 0.
        receiver_id: Id of the requesting receiver; a reply echoes it; 0 means any receiver.
        flags: Whether a reply is requested.
        trailing: Bytes of the frame after the known fields; kept, not interpreted.
    """

    session_id: int = attrs.field(validator=is_int32)
    stream_id: int = attrs.field(validator=is_int32)
    echo_timestamp_ns: int = attrs.field(validator=is_int64)
    reception_delta_ns: int = attrs.field(default=0, validator=is_int64)
    receiver_id: int = attrs.field(validator=is_int64)
    flags: RttFlags = attrs.field(default=RttFlags(0), validator=is_byte)
    trailing: bytes = b""

    @property
    def frame_length(self) -> int:
        """Bytes of the whole frame."""
        return RTT_MEASUREMENT_LENGTH + len(self.trailing)

    @property
    def is_reply_requested(self) -> bool:
        """Whether this is a request, which its receiver must answer."""
        return bool(self.flags & RttFlags.REPLY)

    def encode(self) -> bytes:
        """Return the frame's bytes."""
        header = _RTT_MEASUREMENT.pack(
            self.frame_length,
            CURRENT_VERSION,
            self.flags,
            FrameType.RTTM,
            self.session_id,
            self.stream_id,
            self.echo_timestamp_ns,
            self.reception_delta_ns,
            self.receiver_id,
        )
        return header + self.trailing

    @classmethod
    def decode(cls, datagram: Buffer) -> Self:
        """Decode the frame at the start of `datagram`.

        Raises:
            ProtocolError: The bytes are not an RTTM frame.
        """
        frame_length, flags = check_header(datagram, FrameType.RTTM, RTT_MEASUREMENT_LENGTH)
        fields = _RTT_MEASUREMENT.unpack_from(datagram)
        return cls(
            session_id=fields[4],
            stream_id=fields[5],
            echo_timestamp_ns=fields[6],
            reception_delta_ns=fields[7],
            receiver_id=fields[8],
            flags=RttFlags(flags),
            trailing=bytes(datagram[RTT_MEASUREMENT_LENGTH:frame_length]),
        )
