"""A stream as its attacker knows it, and the frames that can be made of that.

Invariant: nothing here is checked. Fields are written as they are wanted, possible or not.
"""

from __future__ import annotations

from enum import Enum, auto
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

import attrs

from aeron_async.logbuffer.position import compute_position, position_bits, term_id_at
from aeron_async.protocol.data import DATA_HEADER
from aeron_async.protocol.header import (
    CURRENT_VERSION,
    DATA_HEADER_LENGTH,
    FRAME_ALIGNMENT,
    DataFlags,
    FrameType,
    StatusMessageFlags,
    wrap_int32,
)
from aeron_async.protocol.nak import Nak
from aeron_async.protocol.setup import Setup
from aeron_async.protocol.status_message import StatusMessage

if TYPE_CHECKING:
    from random import Random

__all__ = ["INT32", "Shot", "Target", "Victim", "any_int32", "any_int64", "could_be_genuine"]

DATA_FIELDS: Final = Struct("<ixBHiiii")
NO_SM_FLAGS: Final = StatusMessageFlags(0)
INT32: Final = 2**31


class Target(Enum):
    """Which end of the stream is shot at."""

    SENDER = auto()
    """The publication's socket; it is connected, so the source must be the receiver's address."""
    RECEIVER = auto()
    """The subscription's endpoint, which is open to everybody."""


Shot = tuple[Target, bytes]
"""Where to, and a datagram."""


@attrs.define(kw_only=True)
class Victim:
    """What the attacker knows of a stream.

    Attributes:
        session_id: Of the publication.
        stream_id: Of the stream.
        initial_term_id: First term of the stream.
        term_length: In bytes.
        mtu_length: In bytes.
        position: One that the receiver has passed not long ago, in bytes; to be kept up to date.
    """

    session_id: int
    stream_id: int
    initial_term_id: int
    term_length: int
    mtu_length: int
    position: int

    def place(self, position: int) -> tuple[int, int]:
        """Return the term id and the offset of a position, which may be no position at all."""
        bits = position_bits(self.term_length)
        term_id = term_id_at(position, initial_term_id=self.initial_term_id, bits=bits)
        return wrap_int32(term_id), position & (self.term_length - 1) & -FRAME_ALIGNMENT

    def nak(self, term_id: int, term_offset: int, length: int) -> bytes:
        """Return a NAK for this stream."""
        return Nak(
            session_id=self.session_id,
            stream_id=self.stream_id,
            term_id=term_id,
            term_offset=term_offset,
            length=length,
        ).encode()

    def sm(
        self,
        random: Random,
        term_id: int,
        term_offset: int,
        window_length: int,
        flags: StatusMessageFlags = NO_SM_FLAGS,
    ) -> bytes:
        """Return a status message for this stream, of a receiver that is none."""
        return StatusMessage(
            session_id=self.session_id,
            stream_id=self.stream_id,
            consumption_term_id=term_id,
            consumption_term_offset=term_offset,
            receiver_window=window_length,
            receiver_id=any_int64(random),
            flags=flags,
        ).encode()

    def setup(self, **changes: Any) -> bytes:
        """Return the SETUP of this stream, with other values in some of its fields."""
        setup = Setup(
            term_offset=0,
            session_id=self.session_id,
            stream_id=self.stream_id,
            initial_term_id=self.initial_term_id,
            active_term_id=self.initial_term_id,
            term_length=self.term_length,
            mtu_length=self.mtu_length,
        )
        return attrs.evolve(setup, **changes).encode()

    def data(
        self,
        frame_length: int,
        term_id: int,
        term_offset: int,
        session_id: int | None = None,
        *,
        flags: int = DataFlags.UNFRAGMENTED,
    ) -> bytes:
        """Return a data header of this stream, or of another session."""
        return DATA_HEADER.pack(
            frame_length,
            CURRENT_VERSION,
            flags,
            FrameType.DATA,
            term_offset,
            self.session_id if session_id is None else session_id,
            self.stream_id,
            term_id,
            0,
        )


def could_be_genuine(victim: Victim, datagram: bytes) -> bool:
    """Return whether only a signature could tell a datagram from the stream's own data.

    That is data within the window or near it, the end of the stream announced there, and a SETUP.
    """
    if len(datagram) < DATA_HEADER_LENGTH:
        return False
    frame_length, flags, kind, term_offset, session_id, stream_id, term_id = (
        DATA_FIELDS.unpack_from(datagram)
    )
    if (session_id, stream_id) != (victim.session_id, victim.stream_id):
        return False
    if kind > FrameType.DATA:
        return bool(kind == FrameType.SETUP)
    if frame_length == 0 and not flags & DataFlags.END_OF_STREAM:
        return False
    bits = position_bits(victim.term_length)
    position = compute_position(
        term_id, term_offset, initial_term_id=victim.initial_term_id, bits=bits
    )
    lowest = victim.position - victim.term_length // 2
    return lowest < position < victim.position + 2 * victim.term_length


def any_int32(random: Random) -> int:
    """Return any number that four bytes carry."""
    return random.randrange(-INT32, INT32)


def any_int64(random: Random) -> int:
    """Return any number that eight bytes carry."""
    return random.randrange(-(2**63), 2**63)
