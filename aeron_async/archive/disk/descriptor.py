"""One entry of the catalog: the descriptor of a recording, and its encoding.

Layout, little endian: a header of 32 bytes (length, state, checksum, 19 bytes of zeros, one
reserved), then seven 64-bit and six 32-bit numbers, then three strings, each after its length in 32
bits, then zeros up to the catalog's alignment. The length in the header counts everything behind
the header, zeros included.

Source: Aeron `aeron-archive-codecs.xml`, `RecordingDescriptorHeader`, `RecordingDescriptor`.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final, final

import attrs

from aeron_async.archive.disk.segments import segment_base
from aeron_async.errors import ArchiveFileError

__all__ = [
    "ACTIVE",
    "BLOCK",
    "ENTRY_HEADER",
    "ENTRY_HEADER_LENGTH",
    "RecordingDescriptor",
    "RecordingState",
    "decode_descriptor",
    "encode_block",
    "encode_entry",
]

ACTIVE: Final = -1
"""Stop position, and stop timestamp, of a recording that has not stopped."""
ENTRY_HEADER: Final = Struct("<iii")
"""Length, state and checksum; zeros up to 32 bytes follow."""
ENTRY_HEADER_LENGTH: Final = 32
BLOCK: Final = Struct("<qqqqqqqiiiiii")
STRING_LENGTH: Final = Struct("<I")
LONGEST_STRING: Final = 65_536
"""A longer string means a damaged entry: a channel is a URI."""
SMALLEST_TERM: Final = 65_536
LARGEST_TERM: Final = 1 << 30
LARGEST_SEGMENT: Final = 1 << 30


@final
class RecordingState(IntEnum):
    """Whether an entry is valid."""

    INVALID = 0
    VALID = 1
    DELETED = 2


@attrs.frozen(kw_only=True)
class RecordingDescriptor:
    """What the catalog stores about a recording.

    Attributes:
        recording_id: Id in this archive; never used again.
        start_position: Where it begins, in bytes.
        stop_position: Where it has stopped, in bytes; -1 while it is active.
        start_timestamp_ms: When it started, in milliseconds since 1970.
        stop_timestamp_ms: When it stopped; -1 while it is active.
        initial_term_id: Initial term id of the stream.
        term_length: Term length of the stream, in bytes.
        segment_length: Length of each of its files, in bytes.
        mtu_length: MTU of the stream, in bytes.
        session_id: Session id of the publication that was recorded last.
        stream_id: Stream id.
        stripped_channel: Channel, reduced to the parameters that tell streams apart.
        original_channel: Channel as the request to record gave it.
        source_identity: Address of the publisher, as `host:port`, or `aeron:ipc`.
        control_session_id: Control session of the last request to extend it; 0 until then.
        correlation_id: Correlation id of that request; 0 until then.
    """

    recording_id: int
    start_position: int
    stop_position: int = ACTIVE
    start_timestamp_ms: int
    stop_timestamp_ms: int = ACTIVE
    initial_term_id: int
    term_length: int
    segment_length: int
    mtu_length: int
    session_id: int
    stream_id: int
    stripped_channel: str
    original_channel: str
    source_identity: str
    control_session_id: int = 0
    correlation_id: int = 0

    @property
    def is_active(self) -> bool:
        """Return whether it has no stop position: it is active, or was when its archive died."""
        return self.stop_position == ACTIVE

    def segment_base(self, position: int) -> int:
        """Return the base position of the segment file that holds a position, in bytes."""
        return segment_base(
            position,
            start_position=self.start_position,
            term_length=self.term_length,
            segment_length=self.segment_length,
        )


def encode_entry(descriptor: RecordingDescriptor, *, alignment: int) -> bytearray:
    """Return an encoded entry with its header; state and checksum are zero.

    Args:
        descriptor: Descriptor of the recording.
        alignment: Alignment of entries, in bytes; a power of two.
    """
    entry = bytearray(ENTRY_HEADER_LENGTH)
    entry += encode_block(descriptor)
    for text in (
        descriptor.stripped_channel,
        descriptor.original_channel,
        descriptor.source_identity,
    ):
        # As in the official archive: a character that is not ASCII becomes a question mark.
        data = text.encode("ascii", "replace")
        entry += STRING_LENGTH.pack(len(data)) + data
    entry += bytes(-len(entry) % alignment)
    ENTRY_HEADER.pack_into(entry, 0, len(entry) - ENTRY_HEADER_LENGTH, 0, 0)
    return entry


def encode_block(descriptor: RecordingDescriptor) -> bytes:
    """Return the encoded numbers of a descriptor."""
    each = descriptor
    return BLOCK.pack(
        each.control_session_id,
        each.correlation_id,
        each.recording_id,
        each.start_timestamp_ms,
        each.stop_timestamp_ms,
        each.start_position,
        each.stop_position,
        each.initial_term_id,
        each.segment_length,
        each.term_length,
        each.mtu_length,
        each.session_id,
        each.stream_id,
    )


def decode_descriptor(body: memoryview, *, file: str, offset: int) -> RecordingDescriptor:
    """Decode an entry.

    Args:
        body: The entry without its header.
        file: Name of the file, for errors.
        offset: Offset of the body in the file, for errors.

    Raises:
        ArchiveFileError: The entry is too short, or its values are not valid.
    """
    if len(body) < BLOCK.size:
        message = f"an entry of {len(body)} bytes, shorter than the {BLOCK.size} of its numbers"
        raise ArchiveFileError(message, file=file, offset=offset)
    (
        control_session_id,
        correlation_id,
        recording_id,
        start_timestamp_ms,
        stop_timestamp_ms,
        start_position,
        stop_position,
        initial_term_id,
        segment_length,
        term_length,
        mtu_length,
        session_id,
        stream_id,
    ) = BLOCK.unpack_from(body)
    texts = []
    at = BLOCK.size
    for _ in range(3):
        text, at = decode_string(body, at, file=file, offset=offset)
        texts.append(text)
    descriptor = RecordingDescriptor(
        recording_id=recording_id,
        start_position=start_position,
        stop_position=stop_position,
        start_timestamp_ms=start_timestamp_ms,
        stop_timestamp_ms=stop_timestamp_ms,
        initial_term_id=initial_term_id,
        term_length=term_length,
        segment_length=segment_length,
        mtu_length=mtu_length,
        session_id=session_id,
        stream_id=stream_id,
        stripped_channel=texts[0],
        original_channel=texts[1],
        source_identity=texts[2],
        control_session_id=control_session_id,
        correlation_id=correlation_id,
    )
    check_descriptor(descriptor, file=file, offset=offset)
    return descriptor


def decode_string(body: memoryview, at: int, *, file: str, offset: int) -> tuple[str, int]:
    """Return a string and the offset behind it.

    Raises:
        ArchiveFileError: The string exceeds the entry, or is too long.
    """
    end = at + STRING_LENGTH.size
    length = STRING_LENGTH.unpack_from(body, at)[0] if end <= len(body) else LONGEST_STRING + 1
    if length > LONGEST_STRING or end + length > len(body):
        message = f"a string of {length} bytes extends beyond its entry of {len(body)}"
        raise ArchiveFileError(message, file=file, offset=offset + at)
    return str(body[end : end + length], "ascii", "replace"), end + length


def check_descriptor(descriptor: RecordingDescriptor, *, file: str, offset: int) -> None:
    """Refuse values that are not valid.

    Raises:
        ArchiveFileError: A length is not valid, or positions contradict one another.
    """
    each = descriptor
    problems = [
        (each.recording_id < 0, f"recording id {each.recording_id} is negative"),
        (
            not is_power_of_two(each.term_length, SMALLEST_TERM, LARGEST_TERM),
            f"term length {each.term_length} is no power of two from 65536 to 2^30",
        ),
        (
            not is_power_of_two(each.segment_length, SMALLEST_TERM, LARGEST_SEGMENT)
            or each.segment_length < each.term_length,
            f"segment length {each.segment_length} is no power of two of at least the term length",
        ),
        (
            each.start_position < 0 or each.start_position & 31,
            f"start position {each.start_position} is no multiple of 32",
        ),
        (
            each.stop_position != ACTIVE
            and (each.stop_position < each.start_position or each.stop_position & 31),
            f"stop position {each.stop_position} is no multiple of 32 from {each.start_position}",
        ),
    ]
    for is_wrong, problem in problems:
        if is_wrong:
            raise ArchiveFileError(problem, file=file, offset=offset)


def is_power_of_two(value: int, smallest: int, largest: int) -> bool:
    """Return whether a value is a power of two within limits."""
    return smallest <= value <= largest and value & (value - 1) == 0
