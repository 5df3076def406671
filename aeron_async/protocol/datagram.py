"""Whole datagrams: the checks of drivers, and frames as values for tools.

A control frame travels alone, DATA and PAD frames follow one another. A driver decides by the first
frame what to do with a datagram, and builds no value for a data frame.

Invariant: `frame_type` and `check_data` see every datagram that arrives, so they read integers out
of the buffer and allocate nothing. The other checks take decoded control frames. Only tools and
tests build a value, `DataFrame` or `OpaqueFrame`, for each frame.

Source: Aeron `aeron_is_frame_valid`, `aeron_publication_image_validate_packet`,
`aeron_send_channel_endpoint.c`, `aeron_receive_channel_endpoint.c`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, Self, TypeAlias

import attrs

from aeron_async.errors import ProtocolError
from aeron_async.protocol.data import DataHeader
from aeron_async.protocol.error import ERROR_HEADER_LENGTH, ErrorFrame
from aeron_async.protocol.header import (
    CURRENT_VERSION,
    DATA_HEADER_LENGTH,
    FRAME_ALIGNMENT,
    HEADER,
    HEADER_LENGTH,
    MAX_UDP_PAYLOAD_LENGTH,
    TERM_MAX_LENGTH,
    TERM_MIN_LENGTH,
    Buffer,
    FrameType,
    align_frame,
)
from aeron_async.protocol.nak import NAK_LENGTH, Nak
from aeron_async.protocol.resolution import RESOLUTION_LENGTH_MIN
from aeron_async.protocol.rtt import RTT_MEASUREMENT_LENGTH, RttMeasurement
from aeron_async.protocol.setup import RESPONSE_SETUP_LENGTH, SETUP_LENGTH, ResponseSetup, Setup
from aeron_async.protocol.status_message import STATUS_MESSAGE_LENGTH, StatusMessage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = [
    "HEARTBEAT",
    "INVALID",
    "OLD_TERM",
    "ControlFrame",
    "DataFrame",
    "Frame",
    "OpaqueFrame",
    "check_data",
    "check_error",
    "check_nak",
    "check_setup",
    "check_status_message",
    "classify",
    "encode_datagram",
    "frame_type",
    "frames",
    "is_in_term",
]

# Checks for drivers.

INVALID: Final = -1
OLD_TERM: Final = -2
HEARTBEAT: Final = 0

# Plain integers, because accessing an enum member costs as much as the rest of a check.
_PAD: Final = 0
_DATA: Final = 1
_ALIGNMENT_MASK: Final = FRAME_ALIGNMENT - 1
_SIGN_BIT: Final = 0x8000_0000
_TERM_ID_MASK: Final = 0xFFFF_FFFF

_FIRST_HEADER: Final = Struct("<iBxH")
_FIRST_DATA: Final = Struct("<i2xHi8xi")
_NEXT_DATA: Final = Struct("<i2xHi")

_MINIMUM_LENGTHS: Final[Mapping[int, int]] = {
    int(FrameType.NAK): NAK_LENGTH,
    int(FrameType.SM): STATUS_MESSAGE_LENGTH,
    int(FrameType.ERR): ERROR_HEADER_LENGTH,
    int(FrameType.SETUP): SETUP_LENGTH,
    int(FrameType.RTTM): RTT_MEASUREMENT_LENGTH,
    int(FrameType.RES): RESOLUTION_LENGTH_MIN,
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
        # A frame is never shorter than its header, as in `check_data`. This is checked here too,
        # because a driver may answer data of an unknown stream without `check_data`.
        is_whole = (
            length >= DATA_HEADER_LENGTH
            and not length & _ALIGNMENT_MASK
            and (frame_length >= DATA_HEADER_LENGTH or frame_length == 0)
        )
    else:
        # Differs: Aeron accepts a control frame shorter than its own fields if the datagram is long
        # enough. No driver sends one, and a frame that passes here must always decode.
        is_whole = _MINIMUM_LENGTHS.get(first_type, length + 1) <= frame_length <= length
    return int(first_type) if is_whole else INVALID


def check_data(datagram: Buffer, *, initial_term_id: int, term_length: int) -> int:
    """Return how many bytes of the stream a datagram of DATA and PAD frames covers.

    If one frame is invalid, the whole datagram is. The length of a PAD counts in full, though its
    body is not sent, so the result may exceed the length of the datagram.

    Args:
        datagram: Bytes for which `frame_type` returned DATA or PAD.
        initial_term_id: First term of the stream; term ids wrap at 32 bits.
        term_length: In bytes; a power of two.

    Returns:
        A multiple of 32; or HEARTBEAT; or OLD_TERM for a term before the first, which is dropped
            but not counted as invalid; or INVALID.

    Source: Aeron `aeron_publication_image_validate_packet`.
    """
    length = len(datagram)
    if length < DATA_HEADER_LENGTH or length & _ALIGNMENT_MASK:
        return INVALID
    frame_length, kind, frame_offset, term_id = _FIRST_DATA.unpack_from(datagram)
    if (term_id - initial_term_id) & _SIGN_BIT:
        # The end of the position range has the id of a term before the first: a stream that has
        # used up all its terms sends heartbeats from there.
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
        # Differs: Aeron accepts lengths of 1 to 31, with which readers get a negative payload
        # length.
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
    """Return whether the values of a SETUP describe a possible stream.

    Source: Aeron `aeron_receive_channel_endpoint_is_valid_setup`.
    """
    term_length = setup.term_length
    return (
        TERM_MIN_LENGTH <= term_length <= TERM_MAX_LENGTH
        and term_length & (term_length - 1) == 0
        and _is_offset(setup.term_offset, term_length)
        and DATA_HEADER_LENGTH <= setup.mtu_length <= MAX_UDP_PAYLOAD_LENGTH
        and not setup.mtu_length & _ALIGNMENT_MASK
    )


def check_nak(nak: Nak, term_length: int) -> bool:
    """Return whether the gap lies within a term of `term_length` bytes.

    Source: Aeron `aeron_send_channel_endpoint_is_valid_nak`.
    """
    return is_in_term(nak.term_offset, nak.length, term_length)


def is_in_term(term_offset: int, length: int, term_length: int) -> bool:
    """Return whether a range of bytes that begins where a frame may lies within a term."""
    return _is_offset(term_offset, term_length) and 0 <= length <= term_length - term_offset


def check_status_message(sm: StatusMessage, term_length: int = TERM_MAX_LENGTH) -> bool:
    """Return whether the consumption position lies in a term and the window is at most half of one.

    Args:
        sm: Status message, eliciting ones included.
        term_length: Of the publication, in bytes; omit it if the publication is unknown.

    Source: Aeron `aeron_send_channel_endpoint_is_valid_status_message`.
    """
    return (
        _is_offset(sm.consumption_term_offset, term_length)
        and 0 <= sm.receiver_window <= term_length // 2
    )


def check_error(error: ErrorFrame) -> bool:
    """Return whether the text is as long as the frame states, and at most 1023 bytes.

    Source: Aeron `aeron_send_channel_endpoint_is_valid_error`.
    """
    return error.error_length == len(error.message)


def _is_offset(term_offset: int, term_length: int) -> bool:
    return 0 <= term_offset < term_length and not term_offset & _ALIGNMENT_MASK


# Frames as values, for tools and tests.


@attrs.frozen
class DataFrame:
    """A data header and the bytes behind it.

    Attributes:
        header: The frame's first 32 bytes.
        body: Payload and alignment bytes as received; usually empty for a PAD or heartbeat.
    """

    header: DataHeader
    body: bytes = b""

    def __attrs_post_init__(self) -> None:
        frame_length = self.header.frame_length
        if not self.header.is_heartbeat and frame_length < DATA_HEADER_LENGTH:
            message = f"frame_length is {frame_length}: at least {DATA_HEADER_LENGTH}, or 0"
            raise ProtocolError(message)
        limit = max(0, align_frame(frame_length) - DATA_HEADER_LENGTH)
        is_pad = self.header.frame_type is FrameType.PAD
        if len(self.body) != limit and not (is_pad and len(self.body) < limit):
            message = (
                f"frame_length is {frame_length}, with a body of {len(self.body)} bytes: "
                f"{limit} needed, alignment included; only a PAD may have fewer"
            )
            raise ProtocolError(message)

    @property
    def payload(self) -> bytes:
        """The body without its alignment bytes."""
        return self.body[: max(0, self.header.frame_length - DATA_HEADER_LENGTH)]

    def encode(self) -> bytes:
        """Return header and body."""
        return self.header.encode() + self.body

    @classmethod
    def decode(cls, datagram: Buffer) -> Self:
        """Decode the frame at the start of `datagram`; bytes after it are ignored.

        Only the body of a PAD may be missing, wholly or in part.

        Raises:
            ProtocolError: The header is not valid, or the frame is longer than the datagram.
        """
        header = DataHeader.decode(datagram)
        return cls(header, bytes(datagram[DATA_HEADER_LENGTH : align_frame(header.frame_length)]))


@attrs.frozen
class OpaqueFrame:
    """Bytes of a known type that are not decoded.

    Attributes:
        frame_type: RES, one of the ATS types or EXT; INVALID for bytes after a control frame, which
            no driver reads.
        data: All the bytes, header included.
    """

    frame_type: int
    data: bytes

    def encode(self) -> bytes:
        """Return the bytes unchanged."""
        return self.data


ControlFrame: TypeAlias = Setup | StatusMessage | Nak | RttMeasurement | ErrorFrame | ResponseSetup
Frame: TypeAlias = DataFrame | ControlFrame | OpaqueFrame

_CONTROL_FRAMES: Final[Mapping[int, type[ControlFrame]]] = {
    int(FrameType.SETUP): Setup,
    int(FrameType.SM): StatusMessage,
    int(FrameType.NAK): Nak,
    int(FrameType.RTTM): RttMeasurement,
    int(FrameType.ERR): ErrorFrame,
    int(FrameType.RSP_SETUP): ResponseSetup,
}


def classify(datagram: Buffer) -> FrameType | None:
    """Return the type that a datagram states, even if drivers refuse it; None if it is unknown."""
    if len(datagram) < HEADER_LENGTH:
        return None
    try:
        return FrameType(HEADER.unpack_from(datagram)[3])
    except ValueError:
        return None


def frames(datagram: Buffer) -> Iterator[Frame]:
    """Yield the frames of a datagram; `encode_datagram` of all returns the same bytes.

    Lengths and types are checked. Values, and whether data frames are contiguous in the term, are
    not: see `check_data` and the other checks.

    Raises:
        ProtocolError: The bytes at that point are not a frame; those before have been yielded.
    """
    first_type = classify(datagram)
    if first_type is None:
        message = f"no frame in {len(datagram)} bytes: {bytes(datagram[:8]).hex(' ')}"
        raise ProtocolError(message)
    if first_type <= FrameType.DATA:
        yield from _data_frames(datagram)
        return
    control_frame = _CONTROL_FRAMES.get(first_type)
    if control_frame is None:
        if first_type is FrameType.RES and frame_type(datagram) == INVALID:
            message = f"RES datagram of {len(datagram)} bytes: lengths or version do not fit"
            raise ProtocolError(message)
        yield OpaqueFrame(first_type, bytes(datagram))
        return
    frame = control_frame.decode(datagram)
    yield frame
    if frame.frame_length < len(datagram):
        yield OpaqueFrame(INVALID, bytes(datagram[frame.frame_length :]))


def encode_datagram(values: Iterable[Frame]) -> bytes:
    """Return the bytes of the frames, concatenated."""
    return b"".join(value.encode() for value in values)


def _data_frames(datagram: Buffer) -> Iterator[DataFrame]:
    if len(datagram) % FRAME_ALIGNMENT:
        message = f"data datagram of {len(datagram)} bytes: must be a multiple of {FRAME_ALIGNMENT}"
        raise ProtocolError(message)
    view = memoryview(datagram)
    offset = 0
    while True:
        frame = DataFrame.decode(view[offset:])
        if frame.header.is_heartbeat and len(view) != DATA_HEADER_LENGTH:
            message = f"frame_length is 0 in {len(view)} bytes: a heartbeat travels alone"
            raise ProtocolError(message)
        yield frame
        offset += DATA_HEADER_LENGTH + len(frame.body)
        if offset >= len(view):
            return
