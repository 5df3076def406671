"""SM frames: a receiver reports its consumption position and its window.

Layout, 36 bytes: the common header, then session_id, stream_id, consumption_term_id,
consumption_term_offset, receiver_window (int32 each) and receiver_id (int64, at offset 28); with a
group tag 8 bytes more (int64). Older peers may put other feedback in place of the group tag.

Source: Aeron `StatusMessageFlyweight`.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, Self

import attrs

from aeron_async.errors import ProtocolError
from aeron_async.protocol.header import (
    CURRENT_VERSION,
    Buffer,
    FrameType,
    StatusMessageFlags,
    check_header,
    is_byte,
    is_int32,
    is_int64,
)

STATUS_MESSAGE_LENGTH: Final = 36
STATUS_MESSAGE_WITH_GROUP_TAG_LENGTH: Final = 44
_STATUS_MESSAGE: Final = Struct("<iBBHiiiiiq")
_GROUP_TAG: Final = Struct("<q")
# One for every byte, and the operator of plain integers: creating and testing an enum costs more
# than the rest of a frame that arrives many thousand times a second.
_FLAGS: Final = tuple(StatusMessageFlags(value) for value in range(256))
_and: Final = int.__and__
_TYPE: Final = int(FrameType.SM)
_SEND_SETUP: Final = int(StatusMessageFlags.SEND_SETUP)
_END_OF_STREAM: Final = int(StatusMessageFlags.END_OF_STREAM)


@attrs.frozen(kw_only=True)
class StatusMessage:
    """A receiver's consumption position and window, or its request for a SETUP.

    Attributes:
        session_id: Publication; 0 with stream 0 if any publication may answer.
        stream_id: Stream, within the channel.
        consumption_term_id: Term of the consumption position; 0 when eliciting a SETUP.
        consumption_term_offset: Offset of the consumption position, in bytes; 0 when eliciting a
            SETUP.
        receiver_window: Bytes the receiver has room for beyond that position; 0 when eliciting a
            SETUP.
        receiver_id: Random id of the receive endpoint.
        group_tag: Group tag of the receiver, if it has one.
        flags: Setup requested, end of stream.
        feedback: Feedback whose length is not that of a group tag; kept, not interpreted.
    """

    session_id: int = attrs.field(validator=is_int32)
    stream_id: int = attrs.field(validator=is_int32)
    consumption_term_id: int = attrs.field(default=0, validator=is_int32)
    consumption_term_offset: int = attrs.field(default=0, validator=is_int32)
    receiver_window: int = attrs.field(default=0, validator=is_int32)
    receiver_id: int = attrs.field(validator=is_int64)
    group_tag: int | None = attrs.field(default=None, validator=attrs.validators.optional(is_int64))
    flags: StatusMessageFlags = attrs.field(default=StatusMessageFlags(0), validator=is_byte)
    feedback: bytes = b""

    def __attrs_post_init__(self) -> None:
        if self.feedback and (self.group_tag is not None or len(self.feedback) == _GROUP_TAG.size):
            message = (
                f"feedback of {len(self.feedback)} bytes, group_tag {self.group_tag}: "
                f"a group tag is the whole of {_GROUP_TAG.size} bytes of feedback"
            )
            raise ProtocolError(message)

    @property
    def frame_length(self) -> int:
        """Bytes of the whole frame: 36, or 44 with a group tag."""
        if self.group_tag is not None:
            return STATUS_MESSAGE_WITH_GROUP_TAG_LENGTH
        return STATUS_MESSAGE_LENGTH + len(self.feedback)

    @property
    def is_setup_elicit(self) -> bool:
        """Whether the receiver requests a SETUP; then the message has no consumption position."""
        return _and(self.flags, _SEND_SETUP) != 0

    @property
    def is_end_of_stream(self) -> bool:
        """Whether the receiver is leaving, or has drained the stream to its end."""
        return _and(self.flags, _END_OF_STREAM) != 0

    def encode(self) -> bytes:
        """Return the frame's bytes."""
        header = _STATUS_MESSAGE.pack(
            self.frame_length,
            CURRENT_VERSION,
            self.flags,
            FrameType.SM,
            self.session_id,
            self.stream_id,
            self.consumption_term_id,
            self.consumption_term_offset,
            self.receiver_window,
            self.receiver_id,
        )
        if self.group_tag is not None:
            return header + _GROUP_TAG.pack(self.group_tag)
        return header + self.feedback

    @classmethod
    def decode(cls, datagram: Buffer) -> Self:
        """Decode the frame at the start of `datagram`; `check_status_message` checks its values.

        Raises:
            ProtocolError: The bytes are not an SM frame.
        """
        frame_length, flags = check_header(datagram, FrameType.SM, STATUS_MESSAGE_LENGTH)
        fields = _STATUS_MESSAGE.unpack_from(datagram)
        group_tag = None
        feedback = b""
        if frame_length == STATUS_MESSAGE_WITH_GROUP_TAG_LENGTH:
            (group_tag,) = _GROUP_TAG.unpack_from(datagram, STATUS_MESSAGE_LENGTH)
        else:
            feedback = bytes(datagram[STATUS_MESSAGE_LENGTH:frame_length])
        # Without the constructor: decoded values need no check that they fit.
        frame = cls.__new__(cls)
        store = object.__setattr__
        store(frame, "session_id", fields[4])
        store(frame, "stream_id", fields[5])
        store(frame, "consumption_term_id", fields[6])
        store(frame, "consumption_term_offset", fields[7])
        store(frame, "receiver_window", fields[8])
        store(frame, "receiver_id", fields[9])
        store(frame, "group_tag", group_tag)
        store(frame, "flags", _FLAGS[flags])
        store(frame, "feedback", feedback)
        return frame


def encode_report(
    *,
    flags: int,
    session_id: int,
    stream_id: int,
    consumption_term_id: int,
    consumption_term_offset: int,
    receiver_window: int,
    receiver_id: int,
    group_tag: int | None,
) -> bytes:
    """Return the bytes of a `StatusMessage` without building one; receivers send many of them.

    The arguments are those of `StatusMessage`; the caller guarantees that they fit.
    """
    length = STATUS_MESSAGE_LENGTH
    tag = b""
    if group_tag is not None:
        length = STATUS_MESSAGE_WITH_GROUP_TAG_LENGTH
        tag = _GROUP_TAG.pack(group_tag)
    report = _STATUS_MESSAGE.pack(
        length,
        CURRENT_VERSION,
        flags,
        _TYPE,
        session_id,
        stream_id,
        consumption_term_id,
        consumption_term_offset,
        receiver_window,
        receiver_id,
    )
    return report + tag
