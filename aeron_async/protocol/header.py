"""The common header of all frames, eight bytes: frame types, flags, alignment and limits.

Header layout, little endian: frame_length int32, version uint8, flags uint8, type uint16. Flags
keep unknown bits, so that a received frame is encoded again unchanged.

Source: Aeron `HeaderFlyweight`, `DataHeaderFlyweight`, `aeron_udp_protocol.h`.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from aeron_async.errors import ProtocolError

if TYPE_CHECKING:
    import attrs

Buffer: TypeAlias = bytes | bytearray | memoryview

CURRENT_VERSION: Final = 0
FRAME_ALIGNMENT: Final = 32
HEADER_LENGTH: Final = 8
DATA_HEADER_LENGTH: Final = 32
MAX_UDP_PAYLOAD_LENGTH: Final = 65504
TERM_MIN_LENGTH: Final = 64 * 1024
TERM_MAX_LENGTH: Final = 1024 * 1024 * 1024

HEADER: Final = Struct("<iBBH")


class FrameType(IntEnum):
    """Frame types; the ATS and EXT numbers are reserved and never accepted.

    Source: Aeron `HeaderFlyweight.HDR_TYPE_*`; the C names for 0x09 and 0x0A, which Java swaps.
    """

    PAD = 0x0000
    DATA = 0x0001
    NAK = 0x0002
    SM = 0x0003
    ERR = 0x0004
    SETUP = 0x0005
    RTTM = 0x0006
    RES = 0x0007
    ATS_DATA = 0x0008
    ATS_SETUP = 0x0009
    ATS_SM = 0x000A
    RSP_SETUP = 0x000B
    EXT = 0xFFFF


class DataFlags(IntFlag):
    """Flags of DATA and PAD frames; the last two are set on heartbeats only."""

    BEGIN_FRAGMENT = 0x80
    END_FRAGMENT = 0x40
    UNFRAGMENTED = 0xC0
    END_OF_STREAM = 0x20
    REVOKED = 0x10


class StatusMessageFlags(IntFlag):
    """Flags of SM frames: request for a SETUP, and leaving the stream."""

    SEND_SETUP = 0x80
    END_OF_STREAM = 0x40


class SetupFlags(IntFlag):
    """Flags of SETUP frames: response channel requested, and group of receivers."""

    SEND_RESPONSE = 0x80
    GROUP = 0x40


class RttFlags(IntFlag):
    """Flags of RTTM frames; REPLY requests a reply, which does not have the flag itself."""

    REPLY = 0x80


class ErrorFlags(IntFlag):
    """Flags of ERR frames."""

    HAS_GROUP_TAG = 0x08


def align_frame(length: int) -> int:
    """Return the bytes that a frame of `length` bytes occupies in a term, a multiple of 32."""
    return (length + (FRAME_ALIGNMENT - 1)) & -FRAME_ALIGNMENT


def wrap_int32(value: int) -> int:
    """Return the lowest 32 bits of `value` as a signed number."""
    return ((value + 0x8000_0000) & 0xFFFF_FFFF) - 0x8000_0000


def check_header(datagram: Buffer, frame_type: FrameType, header_length: int) -> tuple[int, int]:
    """Return the frame length and flags of a control frame, after checking its type and length.

    Args:
        datagram: Bytes that begin with the frame; more may follow it.
        frame_type: The only accepted type.
        header_length: Length of the type's fixed fields, in bytes.

    Raises:
        ProtocolError: The bytes are not such a frame.
    """
    if len(datagram) < header_length:
        name = frame_type.name
        message = f"{name} datagram of {len(datagram)} bytes: at least {header_length} needed"
        raise ProtocolError(message)
    frame_length, version, flags, actual_type = HEADER.unpack_from(datagram)
    if version != CURRENT_VERSION:
        message = f"{frame_type.name} frame of version {version}: only {CURRENT_VERSION} is known"
        raise ProtocolError(message)
    if actual_type != frame_type:
        name = frame_type.name
        message = f"frame of type 0x{actual_type:04x}: {name} is 0x{frame_type.value:04x}"
        raise ProtocolError(message)
    if not header_length <= frame_length <= len(datagram):
        message = (
            f"{frame_type.name} frame_length is {frame_length}: "
            f"must be within {header_length}..{len(datagram)}, the length of the datagram"
        )
        raise ProtocolError(message)
    return frame_length, flags


def _check_range(name: str, value: int, bits: int) -> None:
    limit = 1 << (bits - 1)
    if not -limit <= value < limit:
        message = f"{name} is {value}: must be within {-limit}..{limit - 1}, signed {bits} bit"
        raise ProtocolError(message)


def is_int32(_instance: object, attribute: attrs.Attribute[Any], value: int) -> None:
    """Refuse a field that does not fit four bytes; an attrs validator.

    Raises:
        ProtocolError: The value is out of range.
    """
    _check_range(attribute.name, value, 32)


def is_int64(_instance: object, attribute: attrs.Attribute[Any], value: int) -> None:
    """Refuse a field that does not fit eight bytes; an attrs validator.

    Raises:
        ProtocolError: The value is out of range.
    """
    _check_range(attribute.name, value, 64)


def is_byte(_instance: object, attribute: attrs.Attribute[Any], value: int) -> None:
    """Refuse flags that do not fit one byte; an attrs validator.

    Raises:
        ProtocolError: The value is out of range.
    """
    if not 0 <= value <= 0xFF:  # noqa: PLR2004  the largest byte has no better name
        message = f"{attribute.name} is {value}: must be within 0..255, one byte"
        raise ProtocolError(message)
