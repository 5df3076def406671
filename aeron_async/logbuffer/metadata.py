"""The 4096 bytes of metadata at the end of a log, and the rotation to the next term.

Invariant: hot fields of `LogMetadata` (tails, active term count, limits of the stream) are single
aligned loads and stores, so another process that maps the same file never sees half a value. Fields
are in host order, which is Aeron's little-endian order on every machine that Aeron runs on.

Source: Aeron `LogBufferDescriptor`, `LogBufferDescriptor.rotateLog`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple, final, overload

from aeron_async.errors import ConfigurationError
from aeron_async.logbuffer.atomics import (
    compare_and_swap_32,
    compare_and_swap_64,
    load_acquire_64,
)
from aeron_async.logbuffer.position import PARTITION_COUNT, pack_tail
from aeron_async.protocol.header import wrap_int32

__all__ = [
    "ACTIVE_TERM_COUNT_INDEX",
    "END_OF_STREAM_OFFSET",
    "END_OF_STREAM_UNKNOWN",
    "IS_CONNECTED_OFFSET",
    "LOG_TYPE_OFFSET",
    "METADATA_LENGTH",
    "LastSaid",
    "LogMetadata",
    "LogType",
    "rotate_log",
    "rotate_shared_log",
]

METADATA_LENGTH: Final = 4096
# An index of the 32-bit words: publishers read it for every message, faster than by its property.
ACTIVE_TERM_COUNT_INDEX: Final = 6
END_OF_STREAM_OFFSET: Final = 128
IS_CONNECTED_OFFSET: Final = 136
END_OF_STREAM_UNKNOWN: Final = 2**63 - 1
LOG_TYPE_OFFSET: Final = 497
UNTETHERED_LINGER_TIMEOUT: Final = slice(500, 508)
DEFAULT_FRAME_HEADER: Final = slice(320, 352)


@final
class LogType(IntEnum):
    """Which kind of writer a log has: several publishers, one publisher, or the receiver."""

    CONCURRENT_PUBLICATION = 0
    EXCLUSIVE_PUBLICATION = 1
    IMAGE = 2


class _Int32:
    """A 32-bit field at an offset divisible by four."""

    def __init__(self, offset: int) -> None:
        self._index = offset >> 2

    @overload
    def __get__(self, instance: None, owner: type[LogMetadata]) -> _Int32: ...
    @overload
    def __get__(self, instance: LogMetadata, owner: type[LogMetadata]) -> int: ...
    def __get__(self, instance: LogMetadata | None, owner: type[LogMetadata]) -> int | _Int32:
        return self if instance is None else instance.words[self._index]

    def __set__(self, instance: LogMetadata, value: int) -> None:
        instance.words[self._index] = value


class _Int64:
    """A 64-bit field at an offset divisible by eight."""

    def __init__(self, offset: int) -> None:
        self._index = offset >> 3

    @overload
    def __get__(self, instance: None, owner: type[LogMetadata]) -> _Int64: ...
    @overload
    def __get__(self, instance: LogMetadata, owner: type[LogMetadata]) -> int: ...
    def __get__(self, instance: LogMetadata | None, owner: type[LogMetadata]) -> int | _Int64:
        return self if instance is None else instance.longs[self._index]

    def __set__(self, instance: LogMetadata, value: int) -> None:
        instance.longs[self._index] = value


class _Flag:
    """A boolean in one byte."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    @overload
    def __get__(self, instance: None, owner: type[LogMetadata]) -> _Flag: ...
    @overload
    def __get__(self, instance: LogMetadata, owner: type[LogMetadata]) -> bool: ...
    def __get__(self, instance: LogMetadata | None, owner: type[LogMetadata]) -> bool | _Flag:
        return self if instance is None else instance.block[self._offset] != 0

    def __set__(self, instance: LogMetadata, value: int) -> None:
        instance.block[self._offset] = value != 0


@final
class LogMetadata:
    """Typed access to the metadata of one log.

    Lengths are in bytes, times in nanoseconds. All fields from `correlation_id` on are constant
    once the log is in use, except `is_publication_revoked`.

    Attributes:
        block: The 4096 bytes themselves.
        words: The same as signed 32-bit integers.
        longs: The same as signed 64-bit integers; the first three are the tail counters.
    """

    __slots__ = ("block", "longs", "words")

    active_term_count: _Int32 = _Int32(ACTIVE_TERM_COUNT_INDEX << 2)
    end_of_stream_position: _Int64 = _Int64(END_OF_STREAM_OFFSET)
    is_connected: _Int32 = _Int32(IS_CONNECTED_OFFSET)
    active_transport_count: _Int32 = _Int32(140)
    correlation_id: _Int64 = _Int64(256)
    initial_term_id: _Int32 = _Int32(264)
    default_frame_header_length: _Int32 = _Int32(268)
    mtu_length: _Int32 = _Int32(272)
    term_length: _Int32 = _Int32(276)
    page_size: _Int32 = _Int32(280)
    publication_window_length: _Int32 = _Int32(284)
    receiver_window_length: _Int32 = _Int32(288)
    socket_sndbuf_length: _Int32 = _Int32(292)
    os_default_socket_sndbuf_length: _Int32 = _Int32(296)
    os_max_socket_sndbuf_length: _Int32 = _Int32(300)
    socket_rcvbuf_length: _Int32 = _Int32(304)
    os_default_socket_rcvbuf_length: _Int32 = _Int32(308)
    os_max_socket_rcvbuf_length: _Int32 = _Int32(312)
    max_resend: _Int32 = _Int32(316)
    session_id: _Int32 = _Int32(332)
    stream_id: _Int32 = _Int32(336)
    entity_tag: _Int64 = _Int64(448)
    response_correlation_id: _Int64 = _Int64(456)
    linger_timeout_ns: _Int64 = _Int64(464)
    untethered_window_limit_timeout_ns: _Int64 = _Int64(472)
    untethered_resting_timeout_ns: _Int64 = _Int64(480)
    is_group: _Flag = _Flag(488)
    is_response: _Flag = _Flag(489)
    rejoin: _Flag = _Flag(490)
    reliable: _Flag = _Flag(491)
    sparse: _Flag = _Flag(492)
    signal_eos: _Flag = _Flag(493)
    spies_simulate_connection: _Flag = _Flag(494)
    tether: _Flag = _Flag(495)
    is_publication_revoked: _Flag = _Flag(496)

    def __init__(self, block: memoryview) -> None:
        if block.nbytes != METADATA_LENGTH:
            msg = f"log metadata of {block.nbytes} bytes must be {METADATA_LENGTH} bytes long"
            raise ConfigurationError(msg)
        self.block: memoryview = block
        self.words: memoryview = block.cast("i")
        self.longs: memoryview = block.cast("q")

    @property
    def default_frame_header(self) -> bytes:
        """The 32-byte header template for every frame of this log."""
        return bytes(self.block[DEFAULT_FRAME_HEADER])

    @default_frame_header.setter
    def default_frame_header(self, header: bytes) -> None:
        self.block[DEFAULT_FRAME_HEADER] = header

    @property
    def log_type(self) -> LogType:
        """Which kind of writer this log has."""
        return LogType(self.block[LOG_TYPE_OFFSET])

    @log_type.setter
    def log_type(self, log_type: LogType) -> None:
        self.block[LOG_TYPE_OFFSET] = log_type

    @property
    def untethered_linger_timeout_ns(self) -> int:
        """How long an untethered subscriber lingers; the one field that is not 8-byte aligned."""
        return int.from_bytes(self.block[UNTETHERED_LINGER_TIMEOUT], "little", signed=True)

    @untethered_linger_timeout_ns.setter
    def untethered_linger_timeout_ns(self, timeout_ns: int) -> None:
        self.block[UNTETHERED_LINGER_TIMEOUT] = timeout_ns.to_bytes(8, "little", signed=True)

    def tail(self, partition: int) -> int:
        """Return the raw tail counter of one term; see `position.unpack_tail`."""
        return self.longs[partition]

    def set_tail(self, partition: int, tail: int) -> None:
        """Store the raw tail counter of one term."""
        self.longs[partition] = tail


class LastSaid(NamedTuple):
    """What the metadata said when an image closed: its log may be freed then."""

    end_of_stream_position: int = END_OF_STREAM_UNKNOWN
    is_publication_revoked: bool = False
    reliable: bool = True

    @classmethod
    def of(cls, metadata: LogMetadata) -> LastSaid:
        """Return what the metadata says now."""
        return cls(
            metadata.end_of_stream_position, metadata.is_publication_revoked, metadata.reliable
        )


def rotate_log(metadata: LogMetadata, *, term_count: int, term_id: int) -> None:
    """Make the term after `term_id` the active one, unless another publisher has done so.

    Differs: Aeron compares and swaps, because its publishers are threads. In the memory of one
    process ours share one event loop, so no other publisher runs between the load and the store;
    in an Aeron directory `rotate_shared_log` does it as Aeron does.

    Args:
        metadata: The metadata of the log.
        term_count: How many terms after the initial one the full term is.
        term_id: Term id of the full term.
    """
    following = (term_count + 1) % PARTITION_COUNT
    # If the slot no longer holds the term of three rotations ago, the rotation is done already.
    if metadata.tail(following) >> 32 == wrap_int32(term_id + 1 - PARTITION_COUNT):
        metadata.set_tail(following, pack_tail(term_id + 1, 0))
    if metadata.active_term_count == term_count:
        metadata.active_term_count = term_count + 1


def rotate_shared_log(metadata: LogMetadata, *, term_count: int, term_id: int) -> None:
    """Do what `rotate_log` does, beside publishers in other processes.

    Source: Aeron `LogBufferDescriptor.rotateLog`.
    """
    following = (term_count + 1) % PARTITION_COUNT
    while True:
        tail = load_acquire_64(metadata.longs, following)
        if tail >> 32 != wrap_int32(term_id + 1 - PARTITION_COUNT):
            break
        if compare_and_swap_64(metadata.longs, following, tail, pack_tail(term_id + 1, 0)):
            break
    compare_and_swap_32(metadata.words, ACTIVE_TERM_COUNT_INDEX, term_count, term_count + 1)
