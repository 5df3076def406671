"""SETUP and RSP_SETUP frames: the parameters of a stream, and the session of a response.

Layout of `Setup`, 40 bytes: the common header, then term_offset, session_id, stream_id,
initial_term_id, active_term_id, term_length, mtu, ttl (int32 each).

Layout of `ResponseSetup`, 20 bytes: the common header, then session_id, stream_id,
response_session_id (int32 each).

Source: Aeron `SetupFlyweight`, `ResponseSetupFlyweight`.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, Self

import attrs

from aeron_async.protocol.header import (
    CURRENT_VERSION,
    Buffer,
    FrameType,
    SetupFlags,
    check_header,
    is_byte,
    is_int32,
)

SETUP_LENGTH: Final = 40
_SETUP: Final = Struct("<iBBHiiiiiiii")


@attrs.frozen(kw_only=True)
class Setup:
    """A sender's description of its stream.

    Attributes:
        term_offset: Sender's offset in the active term, in bytes.
        session_id: Publication, within the channel.
        stream_id: Stream, within the channel.
        initial_term_id: First term of the stream.
        active_term_id: Current term of the sender; with `term_offset` the position to join at.
        term_length: In bytes; a power of two, 64 KiB to 1 GiB.
        mtu_length: Longest datagram the sender makes, in bytes.
        ttl: Hops of multicast datagrams, or 0.
        flags: Group semantics, response channel requested.
        trailing: Bytes of the frame after the known fields; kept, not interpreted.
    """

    term_offset: int = attrs.field(validator=is_int32)
    session_id: int = attrs.field(validator=is_int32)
    stream_id: int = attrs.field(validator=is_int32)
    initial_term_id: int = attrs.field(validator=is_int32)
    active_term_id: int = attrs.field(validator=is_int32)
    term_length: int = attrs.field(validator=is_int32)
    mtu_length: int = attrs.field(validator=is_int32)
    ttl: int = attrs.field(default=0, validator=is_int32)
    flags: SetupFlags = attrs.field(default=SetupFlags(0), validator=is_byte)
    trailing: bytes = b""

    @property
    def frame_length(self) -> int:
        """Bytes of the whole frame."""
        return SETUP_LENGTH + len(self.trailing)

    @property
    def is_group(self) -> bool:
        """Whether the stream has, or may have, more than one receiver."""
        return bool(self.flags & SetupFlags.GROUP)

    @property
    def is_send_response(self) -> bool:
        """Whether the publication requests a response channel."""
        return bool(self.flags & SetupFlags.SEND_RESPONSE)

    def encode(self) -> bytes:
        """Return the frame's bytes."""
        header = _SETUP.pack(
            self.frame_length,
            CURRENT_VERSION,
            self.flags,
            FrameType.SETUP,
            self.term_offset,
            self.session_id,
            self.stream_id,
            self.initial_term_id,
            self.active_term_id,
            self.term_length,
            self.mtu_length,
            self.ttl,
        )
        return header + self.trailing

    @classmethod
    def decode(cls, datagram: Buffer) -> Self:
        """Decode the frame at the start of `datagram`; `check_setup` checks its values.

        Raises:
            ProtocolError: The bytes are not a SETUP frame.
        """
        frame_length, flags = check_header(datagram, FrameType.SETUP, SETUP_LENGTH)
        fields = _SETUP.unpack_from(datagram)
        return cls(
            term_offset=fields[4],
            session_id=fields[5],
            stream_id=fields[6],
            initial_term_id=fields[7],
            active_term_id=fields[8],
            term_length=fields[9],
            mtu_length=fields[10],
            ttl=fields[11],
            flags=SetupFlags(flags),
            trailing=bytes(datagram[SETUP_LENGTH:frame_length]),
        )


RESPONSE_SETUP_LENGTH: Final = 20
_RESPONSE_SETUP: Final = Struct("<iBBHiii")


@attrs.frozen(kw_only=True)
class ResponseSetup:
    """The session of the response to a request stream.

    Attributes:
        session_id: Publication of the request stream.
        stream_id: The request stream.
        response_session_id: Session chosen by the response publication.
        flags: None are defined; always 0 today.
        trailing: Bytes of the frame after the known fields; kept, not interpreted.
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
        """Decode the frame at the start of `datagram`.

        Raises:
            ProtocolError: The bytes are not an RSP_SETUP frame.
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
