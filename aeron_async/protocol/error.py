"""ERR frames: a receiver tells the publication that its image was rejected, and why.

Layout, 40 bytes: the common header, then session_id, stream_id (int32 each), receiver_id, group_tag
(int64 each), error_code, error_length (int32 each); then the text, neither terminated nor aligned.

Source: Aeron `ErrorFlyweight`.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, Self

import attrs

from aeron_async.errors import ProtocolError
from aeron_async.protocol.header import (
    CURRENT_VERSION,
    Buffer,
    ErrorFlags,
    FrameType,
    check_header,
    is_byte,
    is_int32,
    is_int64,
)

ERROR_HEADER_LENGTH: Final = 40
ERROR_MAX_TEXT_LENGTH: Final = 1023
_ERROR: Final = Struct("<iBBHiiqqii")


@attrs.frozen(kw_only=True)
class ErrorFrame:
    """A receiver's rejection of a stream.

    Attributes:
        session_id: Publication, within the channel.
        stream_id: Stream, within the channel.
        receiver_id: Receiver id, as in the status messages of that endpoint.
        group_tag: Group tag of the receiver; valid only with `has_group_tag`.
        error_code: One of `ErrorCode`; Aeron sends only 13, image rejected.
        message: Text as UTF-8 bytes, at most 1023.
        error_length: Length of the text as the frame states it; see `check_error`.
        flags: Whether the group tag is valid.
        trailing: Bytes of the frame after the message; kept, not interpreted.
    """

    session_id: int = attrs.field(validator=is_int32)
    stream_id: int = attrs.field(validator=is_int32)
    receiver_id: int = attrs.field(validator=is_int64)
    group_tag: int = attrs.field(default=-1, validator=is_int64)
    error_code: int = attrs.field(validator=is_int32)
    message: bytes
    error_length: int = attrs.field(validator=is_int32)
    flags: ErrorFlags = attrs.field(default=ErrorFlags(0), validator=is_byte)
    trailing: bytes = b""

    @error_length.default
    def _length_of_message(self) -> int:
        return len(self.message)

    def __attrs_post_init__(self) -> None:
        if len(self.message) > ERROR_MAX_TEXT_LENGTH:
            message = f"error text of {len(self.message)} bytes: at most {ERROR_MAX_TEXT_LENGTH}"
            raise ProtocolError(message)

    @property
    def frame_length(self) -> int:
        """Bytes of the whole frame."""
        return ERROR_HEADER_LENGTH + len(self.message) + len(self.trailing)

    @property
    def has_group_tag(self) -> bool:
        """Whether the group tag is valid; otherwise it may have any value."""
        return bool(self.flags & ErrorFlags.HAS_GROUP_TAG)

    def encode(self) -> bytes:
        """Return the frame's bytes."""
        header = _ERROR.pack(
            self.frame_length,
            CURRENT_VERSION,
            self.flags,
            FrameType.ERR,
            self.session_id,
            self.stream_id,
            self.receiver_id,
            self.group_tag,
            self.error_code,
            self.error_length,
        )
        return header + self.message + self.trailing

    @classmethod
    def decode(cls, datagram: Buffer) -> Self:
        """Decode the frame at the start of `datagram`; `check_error` checks its length.

        Raises:
            ProtocolError: The bytes are not an ERR frame.
        """
        frame_length, flags = check_header(datagram, FrameType.ERR, ERROR_HEADER_LENGTH)
        fields = _ERROR.unpack_from(datagram)
        error_length = fields[9]
        # A stated length that is not valid is kept, so that `check_error` refuses it. The text is
        # cut at the limit, so that its length never equals such a stated length.
        text_end = ERROR_HEADER_LENGTH + ERROR_MAX_TEXT_LENGTH
        if 0 <= error_length <= ERROR_MAX_TEXT_LENGTH:
            text_end = ERROR_HEADER_LENGTH + error_length
        text_end = min(text_end, frame_length)
        return cls(
            session_id=fields[4],
            stream_id=fields[5],
            receiver_id=fields[6],
            group_tag=fields[7],
            error_code=fields[8],
            message=bytes(datagram[ERROR_HEADER_LENGTH:text_end]),
            error_length=error_length,
            flags=ErrorFlags(flags),
            trailing=bytes(datagram[text_end:frame_length]),
        )
