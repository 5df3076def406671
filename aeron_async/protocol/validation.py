"""Whether to trust a datagram or frame: the checks drivers make before they act on one.

`frame_type` and `check_data` see every datagram that arrives; they read integers out of the
buffer and allocate nothing. The other checks take control frames already decoded.

Source: Aeron `aeron_is_frame_valid`, `aeron_publication_image_validate_packet`,
`aeron_send_channel_endpoint.c`, `aeron_receive_channel_endpoint.c`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from aeron_async.protocol.error import ERROR_HEADER_LENGTH
from aeron_async.protocol.header import (
    CURRENT_VERSION,
    DATA_HEADER_LENGTH,
    FRAME_ALIGNMENT,
    HEADER_LENGTH,
    MAX_UDP_PAYLOAD_LENGTH,
    TERM_MAX_LENGTH,
    TERM_MIN_LENGTH,
    Buffer,
    FrameType,
)
from aeron_async.protocol.nak import NAK_LENGTH
from aeron_async.protocol.response_setup import RESPONSE_SETUP_LENGTH
from aeron_async.protocol.rtt import RTT_MEASUREMENT_LENGTH
from aeron_async.protocol.setup import SETUP_LENGTH
from aeron_async.protocol.status_message import STATUS_MESSAGE_LENGTH

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aeron_async.protocol.error import ErrorFrame
    from aeron_async.protocol.nak import Nak
    from aeron_async.protocol.setup import Setup
    from aeron_async.protocol.status_message import StatusMessage

INVALID: Final = -1
OLD_TERM: Final = -2
HEARTBEAT: Final = 0

# Plain integers, because looking up an enum member costs as much as the rest of a check.
_PAD: Final = 0
_DATA: Final = 1
_ALIGNMENT_MASK: Final = FRAME_ALIGNMENT - 1
_SIGN_BIT: Final = 0x8000_0000
_TERM_ID_MASK: Final = 0xFFFF_FFFF

_FIRST_HEADER: Final = Struct("<iBxH")
_FIRST_DATA: Final = Struct("<i2xHi8xi")
_NEXT_DATA: Final = Struct("<i2xHi")

_RESOLUTION_MINIMUM_LENGTH: Final = 22
_MINIMUM_LENGTHS: Final[Mapping[int, int]] = {
    int(FrameType.NAK): NAK_LENGTH,
    int(FrameType.SM): STATUS_MESSAGE_LENGTH,
    int(FrameType.ERR): ERROR_HEADER_LENGTH,
    int(FrameType.SETUP): SETUP_LENGTH,
    int(FrameType.RTTM): RTT_MEASUREMENT_LENGTH,
    int(FrameType.RES): _RESOLUTION_MINIMUM_LENGTH,
    int(FrameType.RSP_SETUP): RESPONSE_SETUP_LENGTH,
}


def frame_type(datagram: Buffer) -> int:
    """Return the type of the first frame, or INVALID if the datagram must be dropped.

    Control frames that pass can be decoded. Data frames that pass still need `check_data`.

    Source: Aeron `aeron_is_frame_valid`.
    """
    length = len(datagram)
    if length < HEADER_LENGTH:
        return INVALID
    frame_length, version, first_type = _FIRST_HEADER.unpack_from(datagram)
    if version != CURRENT_VERSION or frame_length < 0:
        return INVALID
    if first_type <= _DATA:
        # No frame is shorter than its header: see `check_data`. Data of unknown streams, which may
        # be answered all the same, does not get that far.
        is_whole = (
            length >= DATA_HEADER_LENGTH
            and not length & _ALIGNMENT_MASK
            and (frame_length >= DATA_HEADER_LENGTH or frame_length == 0)
        )
    else:
        # Differs: Aeron takes a control frame shorter than its own fields, if only the datagram
        # is long enough. No driver sends one, and what passes here should always decode.
        is_whole = _MINIMUM_LENGTHS.get(first_type, length + 1) <= frame_length <= length
    return int(first_type) if is_whole else INVALID


def check_data(datagram: Buffer, *, initial_term_id: int, term_length: int) -> int:
    """Return how many bytes of the stream a datagram of DATA and PAD frames covers.

    The whole datagram stands or falls together. The length of a PAD counts in full, though its
    body does not travel, so the result may exceed the length of the datagram.

    Args:
        datagram: Bytes for which `frame_type` said DATA or PAD.
        initial_term_id: First term of the stream; term ids wrap at 32 bits.
        term_length: In bytes; a power of two.

    Returns:
        A multiple of 32; or HEARTBEAT; or OLD_TERM for a term before the first, to be dropped
        without counting it invalid; or INVALID.

    Source: Aeron `aeron_publication_image_validate_packet`.
    """
    length = len(datagram)
    if length < DATA_HEADER_LENGTH or length & _ALIGNMENT_MASK:
        return INVALID
    frame_length, kind, frame_offset, term_id = _FIRST_DATA.unpack_from(datagram)
    if (term_id - initial_term_id) & _SIGN_BIT:
        # The end of the position space has the id of a term before the first: a stream that has
        # used up all its terms stands there, and says so by heartbeats.
        is_at_end = (term_id - initial_term_id) & _TERM_ID_MASK == _SIGN_BIT
        is_heartbeat = frame_length == frame_offset == 0 and length == DATA_HEADER_LENGTH
        return HEARTBEAT if is_at_end and is_heartbeat else OLD_TERM
    if not 0 <= frame_offset < term_length or frame_offset & _ALIGNMENT_MASK:
        return INVALID
    if frame_length == 0 and length == DATA_HEADER_LENGTH:
        return HEARTBEAT
    term_offset = frame_offset
    offset = 0
    while True:
        aligned_length = (frame_length + _ALIGNMENT_MASK) & -FRAME_ALIGNMENT
        # Differs: Aeron takes lengths of 1 to 31, which leave readers a negative payload.
        if (
            frame_length < DATA_HEADER_LENGTH
            or kind > _DATA
            or frame_offset != term_offset + offset
            or frame_offset + aligned_length > term_length
        ):
            return INVALID
        offset += aligned_length
        if offset >= length:
            break
        frame_length, kind, frame_offset = _NEXT_DATA.unpack_from(datagram, offset)
    return INVALID if offset > length and kind != _PAD else offset


def check_setup(setup: Setup) -> bool:
    """Return whether a stream such as the SETUP presents can exist.

    Source: Aeron `aeron_receive_channel_endpoint_is_valid_setup`.
    """
    term_length = setup.term_length
    return (
        TERM_MIN_LENGTH <= term_length <= TERM_MAX_LENGTH
        and term_length & (term_length - 1) == 0
        and _is_in_term(setup.term_offset, term_length)
        and DATA_HEADER_LENGTH <= setup.mtu_length <= MAX_UDP_PAYLOAD_LENGTH
        and not setup.mtu_length & _ALIGNMENT_MASK
    )


def check_nak(nak: Nak, term_length: int) -> bool:
    """Return whether the gap lies within a term of `term_length` bytes.

    Source: Aeron `aeron_send_channel_endpoint_is_valid_nak`.
    """
    return (
        _is_in_term(nak.term_offset, term_length)
        and 0 <= nak.length <= term_length - nak.term_offset
    )


def check_status_message(sm: StatusMessage, term_length: int = TERM_MAX_LENGTH) -> bool:
    """Return whether the consumption lies in a term and the window within half of one.

    Args:
        sm: Status message, eliciting ones included.
        term_length: Of the publication, in bytes; leave it out where the publication is unknown.

    Source: Aeron `aeron_send_channel_endpoint_is_valid_status_message`.
    """
    return (
        _is_in_term(sm.consumption_term_offset, term_length)
        and 0 <= sm.receiver_window <= term_length // 2
    )


def check_error(error: ErrorFrame) -> bool:
    """Return whether the text is as long as the frame says, and at most 1023 bytes.

    Source: Aeron `aeron_send_channel_endpoint_is_valid_error`.
    """
    return error.error_length == len(error.message)


def _is_in_term(term_offset: int, term_length: int) -> bool:
    return 0 <= term_offset < term_length and not term_offset & _ALIGNMENT_MASK
