"""RSP_SETUP frames: a subscriber naming the session on which it will answer a request stream.

Layout, 20 bytes: the common header, then session_id, stream_id, response_session_id (int32 each).

Source: Aeron `ResponseSetupFlyweight`.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, Self

import attrs

from aeron_async.protocol.header import (
    CURRENT_VERSION,
    Buffer,
    FrameType,
    check_header,
    is_byte,
    is_int32,
)

RESPONSE_SETUP_LENGTH: Final = 20
_RESPONSE_SETUP: Final = Struct("<iBBHiii")


@attrs.frozen(kw_only=True)
class ResponseSetup:
    """Which session answers.

    Attributes:
        session_id: Publication of the request stream.
        stream_id: The request stream.
        response_session_id: Session chosen by the response publication.
        flags: None are known; always 0 today.
        trailing: Bytes of the frame after the fields known here; kept, not interpreted.
    """

    session_id: int = attrs.field(validator=is_int32)
    stream_id: int = attrs.field(validator=is_int32)
    response_session_id: int = attrs.field(validator=is_int32)
    flags: int = attrs.field(default=0, validator=is_byte)
    trailing: bytes = b""

    @property
    def frame_length(self) -> int:
        """Bytes of the whole frame."""
        return RESPONSE_SETUP_LENGTH + len(self.trailing)

    def encode(self) -> bytes:
        """Return the frame's bytes."""
        header = _RESPONSE_SETUP.pack(
            self.frame_length,
            CURRENT_VERSION,
            self.flags,
            FrameType.RSP_SETUP,
            self.session_id,
            self.stream_id,
            self.response_session_id,
        )
        return header + self.trailing

    @classmethod
    def decode(cls, datagram: Buffer) -> Self:
        """Return the frame that `datagram` begins with.

        Raises:
            ProtocolError: The bytes are no RSP_SETUP frame.
        """
        frame_length, flags = check_header(datagram, FrameType.RSP_SETUP, RESPONSE_SETUP_LENGTH)
        fields = _RESPONSE_SETUP.unpack_from(datagram)
        return cls(
            session_id=fields[4],
            stream_id=fields[5],
            response_session_id=fields[6],
            flags=flags,
            trailing=bytes(datagram[RESPONSE_SETUP_LENGTH:frame_length]),
        )
