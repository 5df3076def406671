"""The layout of `cnc.dat`, through which a media driver and its clients find each other.

The file has a header of 128 bytes, then five sections, back to back, then zeros up to a page:

    header    0 version i32 | 4 to-driver, 8 to-clients, 12 counters metadata, 16 counters values,
              20 error log: length i32 | 24 client liveness timeout ns i64
              32 start timestamp, epoch ms, i64 | 40 pid i64 | 48 file page size i32 | zeros
    sections  to-driver ring buffer, to-clients broadcast buffer, counters metadata,
              counters values, error log

Invariant: a `CncLayout` is valid, whichever program wrote the header. Its sections do not overlap,
and each begins at a multiple of 8. This module opens no file: it works on bytes that its caller
has mapped.

The driver writes the header with version 0, and the version last, when all sections are ready. A
reader therefore loads the version first, and copies the header once after an acquire fence; checks
and later use see the same copy.

Source: Aeron `CncFileDescriptor`, `aeron_cnc_file_descriptor.h`, `CommonContext`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

import attrs

from aeron_async.concurrent.atomic_buffer import acquire_fence
from aeron_async.concurrent.broadcast import BROADCAST_TRAILER_LENGTH
from aeron_async.concurrent.ring_buffer import RING_TRAILER_LENGTH
from aeron_async.errors import ConfigurationError, ProtocolError
from aeron_async.protocol.units import INT32_MAX, INT64_MAX, align

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = [
    "CNC_FILE",
    "CNC_VERSION",
    "META_DATA_LENGTH",
    "VERSION_OFFSET",
    "CncLayout",
    "CncNotReady",
    "Section",
    "load_layout",
]

CNC_FILE: Final = "cnc.dat"
CNC_VERSION: Final = 0x00_02_00
"""Version 0.2.0, one byte each for major, minor and patch; only the major part must match."""
VERSION_OFFSET: Final = 0
META_DATA_LENGTH: Final = 128
"""Length of the header, in bytes."""

CAPACITY_MIN: Final = 1024
CAPACITY_MAX: Final = 1 << 30
COUNTER_VALUE_LENGTH: Final = 128
METADATA_PER_VALUE: Final = 4
"""Bytes of metadata for each byte of values: 512 and 128 for each counter."""
COUNTERS_VALUES_LENGTH_MAX: Final = 500 * 1024 * 1024
ERROR_LOG_LENGTH_MIN: Final = 1024
PAGE_SIZE_MIN: Final = 4 * 1024
PAGE_SIZE_MAX: Final = 1 << 30
WORD_LENGTH: Final = 8

_HEADER: Final = Struct("<6i3qi76x")


class Section(NamedTuple):
    """The place of one section in the file; `AtomicBuffer(file, *section)` wraps it.

    Attributes:
        offset: Where it begins, in bytes.
        length: Its length, trailer included, in bytes.
    """

    offset: int
    length: int

    @property
    def end(self) -> int:
        """Offset of the first byte behind the section."""
        return self.offset + self.length

    def of(self, file: memoryview) -> memoryview:
        """Return the section of a file that is mapped as bytes."""
        return file[self.offset : self.end]


@attrs.frozen(kw_only=True)
class CncLayout:
    """What the header of `cnc.dat` says: lengths of the sections, and facts about the driver.

    The defaults are those of Aeron's drivers, which accept no shorter section; this class accepts
    much shorter ones.

    Attributes:
        to_driver_buffer_length: A power of two from 1 KiB to 1 GiB, plus a trailer of 768 bytes.
        to_clients_buffer_length: A power of two from 1 KiB to 1 GiB, plus a trailer of 128 bytes.
        counters_values_buffer_length: 128 bytes per counter, 500 MiB at most; a multiple of 8.
        counters_metadata_buffer_length: At least four times as long; a multiple of 8.
        error_log_buffer_length: At least 1 KiB.
        client_liveness_timeout_ns: How long a silent client is alive; at least 1.
        start_timestamp_ms: When the driver started, epoch milliseconds.
        pid: Process id of the driver, as the driver wrote it; another process may have it by now.
        file_page_size: A power of two from 4 KiB to 1 GiB; files are multiples of it.

    Raises:
        ConfigurationError: A value is outside its limits; the text names both.
    """

    to_driver_buffer_length: int = (1 << 20) + RING_TRAILER_LENGTH
    to_clients_buffer_length: int = (1 << 20) + BROADCAST_TRAILER_LENGTH
    counters_values_buffer_length: int = 8 << 20
    counters_metadata_buffer_length: int = attrs.field(
        default=attrs.Factory(
            lambda layout: METADATA_PER_VALUE * layout.counters_values_buffer_length,
            takes_self=True,
        )
    )
    error_log_buffer_length: int = 4 << 20
    client_liveness_timeout_ns: int = 10_000_000_000
    start_timestamp_ms: int
    pid: int
    file_page_size: int = PAGE_SIZE_MIN

    def __attrs_post_init__(self) -> None:
        # Differs: Aeron's clients check only that the file is as long as the sum of the sections.
        _check_capacity(
            "to_driver_buffer_length", self.to_driver_buffer_length, RING_TRAILER_LENGTH
        )
        _check_capacity(
            "to_clients_buffer_length",
            self.to_clients_buffer_length,
            BROADCAST_TRAILER_LENGTH,
        )
        values_length = self.counters_values_buffer_length
        _check_range(
            "counters_values_buffer_length",
            values_length,
            minimum=COUNTER_VALUE_LENGTH,
            maximum=COUNTERS_VALUES_LENGTH_MAX,
            multiple=WORD_LENGTH,
        )
        _check_range(
            "counters_metadata_buffer_length",
            self.counters_metadata_buffer_length,
            minimum=METADATA_PER_VALUE * values_length,
            maximum=INT32_MAX,
            multiple=WORD_LENGTH,
        )
        _check_range(
            "error_log_buffer_length",
            self.error_log_buffer_length,
            minimum=ERROR_LOG_LENGTH_MIN,
            maximum=INT32_MAX,
        )
        _check_range(
            "client_liveness_timeout_ns",
            self.client_liveness_timeout_ns,
            minimum=1,
            maximum=INT64_MAX,
        )
        _check_range(
            "start_timestamp_ms", self.start_timestamp_ms, minimum=~INT64_MAX, maximum=INT64_MAX
        )
        _check_range("pid", self.pid, minimum=~INT64_MAX, maximum=INT64_MAX)
        _check_power_of_two(
            "file_page_size", self.file_page_size, minimum=PAGE_SIZE_MIN, maximum=PAGE_SIZE_MAX
        )

    @property
    def to_driver_buffer(self) -> Section:
        """The ring buffer of commands from clients to the driver."""
        return Section(META_DATA_LENGTH, self.to_driver_buffer_length)

    @property
    def to_clients_buffer(self) -> Section:
        """The broadcast buffer of answers and events from the driver to all clients."""
        return Section(self.to_driver_buffer.end, self.to_clients_buffer_length)

    @property
    def counters_metadata_buffer(self) -> Section:
        """The states, types, keys and labels of the counters."""
        return Section(self.to_clients_buffer.end, self.counters_metadata_buffer_length)

    @property
    def counters_values_buffer(self) -> Section:
        """The values of the counters."""
        return Section(self.counters_metadata_buffer.end, self.counters_values_buffer_length)

    @property
    def error_log_buffer(self) -> Section:
        """The log of the driver's distinct errors."""
        return Section(self.counters_values_buffer.end, self.error_log_buffer_length)

    @property
    def file_length(self) -> int:
        """Length of the file that a driver creates: whole pages, in bytes."""
        return align(self.error_log_buffer.end, self.file_page_size)

    def encode(self) -> bytes:
        """Return the header with version 0, which tells clients to wait.

        The driver stores `CNC_VERSION` at `VERSION_OFFSET` with release when all is ready.
        """
        return _HEADER.pack(
            0,
            self.to_driver_buffer_length,
            self.to_clients_buffer_length,
            self.counters_metadata_buffer_length,
            self.counters_values_buffer_length,
            self.error_log_buffer_length,
            self.client_liveness_timeout_ns,
            self.start_timestamp_ms,
            self.pid,
            self.file_page_size,
        )


@attrs.frozen
class CncNotReady:
    """A `cnc.dat` that its driver has not finished; a client looks again until its deadline.

    Attributes:
        reason: What is missing, for the error that ends the waiting.

    Source: Aeron `aeron_cnc_load_result_t`.
    """

    reason: str


def load_layout(header: ReadableBuffer, file_length: int) -> CncLayout | CncNotReady:
    """Return the layout of a mapped `cnc.dat`, or why it cannot be used yet.

    Args:
        header: The file from its beginning; no more than 128 bytes are read.
        file_length: Length of the file as the system says it, never as the file does; in bytes.

    Raises:
        ProtocolError: The version's major part differs, or a value is outside the limits of
            `CncLayout`. Waiting does not help; a new driver would write a new file.
    """
    view = memoryview(header).cast("B")
    length = min(len(view), file_length)
    if length < META_DATA_LENGTH:
        return CncNotReady(f"{CNC_FILE} has {length} bytes, its header needs {META_DATA_LENGTH}")
    version = view[VERSION_OFFSET : VERSION_OFFSET + 4].cast("i")[0]
    if version == 0:
        return CncNotReady(
            f"{CNC_FILE} has version 0: its driver is starting, or died in its start"
        )
    # Differs: Aeron ignores the highest byte, so that 256.0.0 would pass for 0.0.0.
    if version >> 16 != CNC_VERSION >> 16:
        message = (
            f"{CNC_FILE} has version {_version_text(version)}, and only those of major version "
            f"{CNC_VERSION >> 16} can be read, such as {_version_text(CNC_VERSION)}"
        )
        raise ProtocolError(message)
    acquire_fence()
    _, to_driver, to_clients, metadata, values, errors, liveness, start, pid, page_size = (
        _HEADER.unpack(view[:META_DATA_LENGTH].tobytes())
    )
    try:
        layout = CncLayout(
            to_driver_buffer_length=to_driver,
            to_clients_buffer_length=to_clients,
            counters_metadata_buffer_length=metadata,
            counters_values_buffer_length=values,
            error_log_buffer_length=errors,
            client_liveness_timeout_ns=liveness,
            start_timestamp_ms=start,
            pid=pid,
            # Drivers before the field was added left zero there, and used pages of 4 KiB.
            file_page_size=page_size or PAGE_SIZE_MIN,
        )
    except ConfigurationError as error:
        message = f"{CNC_FILE} is damaged: {error}"
        raise ProtocolError(message) from None
    end = layout.error_log_buffer.end
    if file_length < end:
        return CncNotReady(f"{CNC_FILE} has {file_length} bytes, its sections end at {end}")
    return layout


def _version_text(version: int) -> str:
    """Return a version as people write it; a negative one belongs to no driver."""
    return f"{version >> 16}.{version >> 8 & 0xFF}.{version & 0xFF}"


def _check_capacity(name: str, length: int, trailer_length: int) -> None:
    capacity = length - trailer_length
    if not CAPACITY_MIN <= capacity <= CAPACITY_MAX or capacity & (capacity - 1):
        message = (
            f"{name} of {length} must be a power of two from {CAPACITY_MIN} to {CAPACITY_MAX}, "
            f"plus {trailer_length} for the trailer"
        )
        raise ConfigurationError(message)


def _check_power_of_two(name: str, value: int, *, minimum: int, maximum: int) -> None:
    if not minimum <= value <= maximum or value & (value - 1):
        message = f"{name} of {value} must be a power of two from {minimum} to {maximum}"
        raise ConfigurationError(message)


def _check_range(name: str, value: int, *, minimum: int, maximum: int, multiple: int = 1) -> None:
    if not minimum <= value <= maximum or value % multiple:
        kind = f"a multiple of {multiple} " if multiple > 1 else ""
        message = f"{name} of {value} must be {kind}from {minimum} to {maximum}"
        raise ConfigurationError(message)
