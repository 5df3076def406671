"""Whole datagrams as values and back, for tools and tests; and the checks, for everyone.

Control frames travel alone, DATA and PAD frames one behind the other. Drivers look at the first
frame and hand on the rest unseen: they use the checks, and build no value for a data frame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self, TypeAlias

import attrs

from aeron_async.errors import ProtocolError
from aeron_async.protocol.data import DataHeader
from aeron_async.protocol.error import ErrorFrame
from aeron_async.protocol.header import (
    DATA_HEADER_LENGTH,
    FRAME_ALIGNMENT,
    HEADER,
    HEADER_LENGTH,
    Buffer,
    FrameType,
    align_frame,
)
from aeron_async.protocol.nak import Nak
from aeron_async.protocol.response_setup import ResponseSetup
from aeron_async.protocol.rtt import RttMeasurement
from aeron_async.protocol.setup import Setup
from aeron_async.protocol.status_message import StatusMessage
from aeron_async.protocol.validation import (
    HEARTBEAT,
    INVALID,
    OLD_TERM,
    check_data,
    check_error,
    check_nak,
    check_setup,
    check_status_message,
    frame_type,
)

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
]


@attrs.frozen
class DataFrame:
    """A data header and the bytes that travel behind it.

    Attributes:
        header: The frame's first 32 bytes.
        body: Payload and alignment bytes as received; of a PAD or heartbeat usually nothing.
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
        """Return the frame that `datagram` begins with; whatever follows it is not looked at.

        Only the body of a PAD may be absent, wholly or in part.

        Raises:
            ProtocolError: The header cannot be meant, or the frame is longer than the datagram.
        """
        header = DataHeader.decode(datagram)
        return cls(header, bytes(datagram[DATA_HEADER_LENGTH : align_frame(header.frame_length)]))


@attrs.frozen
class OpaqueFrame:
    """Bytes that are named, but not taken apart.

    Attributes:
        frame_type: RES, one of the ATS types or EXT; INVALID for bytes after a control frame,
            which no driver reads.
        data: All the bytes, header included.
    """

    frame_type: int
    data: bytes

    def encode(self) -> bytes:
        """Return the bytes as they were."""
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
    """Return the type a datagram claims, also where drivers refuse it; None if it has no name."""
    if len(datagram) < HEADER_LENGTH:
        return None
    try:
        return FrameType(HEADER.unpack_from(datagram)[3])
    except ValueError:
        return None


def frames(datagram: Buffer) -> Iterator[Frame]:
    """Walk a datagram from frame to frame; `encode_datagram` of all gives the same bytes.

    Lengths and types are checked; values, and whether data frames follow each other in the term,
    are not: see `check_data` and the other checks.

    Raises:
        ProtocolError: The bytes at that point are no frame; those before have been yielded.
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
    """Return the bytes of the frames, one behind the other."""
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
