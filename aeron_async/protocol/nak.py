"""NAK frames: a receiver requests the bytes of a gap again.

Layout, 28 bytes: the common header, then session_id, stream_id, term_id, term_offset, length (int32
each). A gap never spans two terms.

Source: Aeron `NakFlyweight`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, Self

import attrs

from aeron_async.protocol.header import (
    CURRENT_VERSION,
    Buffer,
    FrameType,
    check_header,
    is_byte,
    is_int32,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

NAK_LENGTH: Final = 28
_NAK: Final = Struct("<iBBHiiiii")
_TYPE: Final = int(FrameType.NAK)


@attrs.frozen(kw_only=True)
class Nak:
    """A gap in a stream.

    Attributes:
        session_id: Publication, within the channel.
        stream_id: Stream, within the channel.
        term_id: Term of the gap.
        term_offset: Where the gap begins, in bytes.
        length: Missing bytes of the term, headers and alignment included.
        flags: None are defined; always 0 today.
        trailing: Bytes of the frame after the known fields; kept, not interpreted.
    """

    session_id: int = attrs.field(validator=is_int32)
    stream_id: int = attrs.field(validator=is_int32)
    term_id: int = attrs.field(validator=is_int32)
    term_offset: int = attrs.field(validator=is_int32)
    length: int = attrs.field(validator=is_int32)
    flags: int = attrs.field(default=0, validator=is_byte)
    trailing: bytes = b""

    @property
    def frame_length(self) -> int:
        """Bytes of the whole frame."""
        return NAK_LENGTH + len(self.trailing)

    def encode(self) -> bytes:
        """Return the frame's bytes."""
        header = _NAK.pack(
            self.frame_length,
            CURRENT_VERSION,
            self.flags,
            FrameType.NAK,
            self.session_id,
            self.stream_id,
            self.term_id,
            self.term_offset,
            self.length,
        )
        return header + self.trailing

    @classmethod
    def decode(cls, datagram: Buffer) -> Self:
        """Decode the frame at the start of `datagram`; `check_nak` checks its values.

        Raises:
            ProtocolError: The bytes are not a NAK frame.
        """
        frame_length, flags = check_header(datagram, FrameType.NAK, NAK_LENGTH)
        fields = _NAK.unpack_from(datagram)
        return cls(
            session_id=fields[4],
            stream_id=fields[5],
            term_id=fields[6],
            term_offset=fields[7],
            length=fields[8],
            flags=flags,
            trailing=bytes(datagram[NAK_LENGTH:frame_length]),
        )


def encode_requests(
    gaps: Iterable[tuple[int, int]], *, session_id: int, stream_id: int, term_id: int
) -> bytes:
    """Return the bytes of a `Nak` for each gap of a term, one after the other.

    None is built: heavy loss needs thousands. Each gap is an offset and a length, in bytes. The
    arguments are those of `Nak`; the caller guarantees that they fit.
    """
    pack, fixed = _NAK.pack, (NAK_LENGTH, CURRENT_VERSION, 0, _TYPE, session_id, stream_id, term_id)
    return b"".join([pack(*fixed, term_offset, length) for term_offset, length in gaps])
