"""The RES frame: by which names drivers are known, and where their resolvers are.

A frame has the common header of 8 bytes and one entry for each name, padded to a multiple of 8
bytes. An entry, little endian: type uint8 (1 for IPv4, 2 for IPv6), flags uint8, port uint16, age
int32 in milliseconds, the address (4 or 16 bytes), length of the name int16, the name.

Source: Aeron `ResolutionEntryFlyweight`, `aeron_udp_protocol.h`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.errors import ProtocolError
from aeron_async.protocol.header import (
    CURRENT_VERSION,
    HEADER,
    HEADER_LENGTH,
    Buffer,
    FrameType,
    check_header,
)
from aeron_async.protocol.units import align

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "NAME_LENGTH_MAX",
    "RESOLUTION_LENGTH_MIN",
    "Resolution",
    "encode_resolutions",
    "resolutions",
]

NAME_LENGTH_MAX: Final = 512
RESOLUTION_LENGTH_MIN: Final = 22
"""Shortest frame that Aeron accepts: its header, and an entry of IPv4 up to the name."""
SELF_FLAG: Final = 0x80
ENTRY_ALIGNMENT: Final = 8

_ENTRY: Final = Struct("<BBHi")
_NAME_LENGTH: Final = Struct("<h")
_ADDRESS_LENGTHS: Final = {1: 4, 2: 16}
_TYPES: Final = {length: kind for kind, length in _ADDRESS_LENGTHS.items()}


@attrs.frozen(kw_only=True)
class Resolution:
    """One entry: the resolver of one driver.

    Attributes:
        name: Name of the driver; 1 to 512 bytes.
        address: 4 bytes of IPv4, or 16 of IPv6.
        port: Of the driver's resolver.
        age_ms: How long ago the driver itself said so, in milliseconds.
        is_self: Whether the sender of the frame is that driver.
    """

    name: bytes
    address: bytes
    port: int
    age_ms: int = 0
    is_self: bool = False

    @property
    def length(self) -> int:
        """Bytes of the entry, its padding included."""
        length = _ENTRY.size + len(self.address) + _NAME_LENGTH.size + len(self.name)
        return align(length, ENTRY_ALIGNMENT)

    def encode(self) -> bytes:
        """Return the bytes of the entry."""
        head = _ENTRY.pack(
            _TYPES[len(self.address)], SELF_FLAG if self.is_self else 0, self.port, self.age_ms
        )
        entry = head + self.address + _NAME_LENGTH.pack(len(self.name)) + self.name
        return entry.ljust(self.length, b"\0")


def encode_resolutions(entries: Iterable[Resolution], mtu_length: int) -> Iterator[bytes]:
    """Yield the frames that hold all entries, none longer than `mtu_length`.

    An entry that is longer than any frame may be is left out.
    """
    parts: list[bytes] = []
    frame_length = HEADER_LENGTH
    for each in entries:
        part = each.encode()
        if HEADER_LENGTH + len(part) > mtu_length:
            continue
        if frame_length + len(part) > mtu_length:
            yield _frame(parts)
            parts, frame_length = [], HEADER_LENGTH
        parts.append(part)
        frame_length += len(part)
    if parts:
        yield _frame(parts)


def _frame(parts: list[bytes]) -> bytes:
    body = b"".join(parts)
    return HEADER.pack(HEADER_LENGTH + len(body), CURRENT_VERSION, 0, FrameType.RES) + body


def resolutions(datagram: Buffer) -> Iterator[Resolution]:
    """Yield the entries of a RES frame.

    Differs: the C driver accepts an entry that ends behind the datagram.

    Raises:
        ProtocolError: The bytes at that point are no entry; those before have been yielded.
    """
    frame_length, _ = check_header(datagram, FrameType.RES, RESOLUTION_LENGTH_MIN)
    frame = bytes(datagram[:frame_length])
    offset = HEADER_LENGTH
    while offset < frame_length:
        entry = _entry(frame, offset)
        yield entry
        offset += entry.length


def _entry(frame: bytes, offset: int) -> Resolution:
    left = len(frame) - offset
    address_length = _ADDRESS_LENGTHS.get(frame[offset])
    if address_length is None:
        message = f"entry of type {frame[offset]} at {offset} of a RES frame: 1 and 2 are known"
        raise ProtocolError(message)
    address_at = offset + _ENTRY.size
    name_at = address_at + address_length + _NAME_LENGTH.size
    if name_at > len(frame):
        message = f"entry of {left} bytes at {offset} of a RES frame is too short"
        raise ProtocolError(message)
    _, flags, port, age_ms = _ENTRY.unpack_from(frame, offset)
    (name_length,) = _NAME_LENGTH.unpack_from(frame, name_at - _NAME_LENGTH.size)
    if not 0 < name_length <= min(NAME_LENGTH_MAX, len(frame) - name_at):
        message = f"name of {name_length} bytes at {name_at} of a RES frame of {len(frame)} bytes"
        raise ProtocolError(message)
    return Resolution(
        name=frame[name_at : name_at + name_length],
        address=frame[address_at : address_at + address_length],
        port=port,
        age_ms=age_ms,
        is_self=bool(flags & SELF_FLAG),
    )
