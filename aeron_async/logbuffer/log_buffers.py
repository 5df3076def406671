"""One log over one buffer: three terms and metadata, with creation, mapping and cleaning.

Layout: terms 0, 1 and 2, a hole if pages are larger than 4 KiB, and the metadata in the last 4096
bytes. The buffer may be anonymous memory or a mapped file of an Aeron directory; the code is the
same for both.

Source: Aeron `LogBuffers`, `LogBufferDescriptor`; `DriverConductor` (initialisation of publication
and image logs), `NetworkPublication.producerPosition`, `IpcPublication.cleanBufferTo`,
`NetworkPublication.cleanBufferTo`.
"""

from __future__ import annotations

import contextlib
import mmap
from typing import TYPE_CHECKING, Final, Protocol, final

import attrs

from aeron_async._speedups import WHY_PURE
from aeron_async.errors import ConfigurationError
from aeron_async.logbuffer.metadata import (
    END_OF_STREAM_UNKNOWN,
    LOG_TYPE_OFFSET,
    METADATA_LENGTH,
    LogMetadata,
    LogType,
)
from aeron_async.logbuffer.position import (
    PARTITION_COUNT,
    check_mtu,
    check_page_size,
    check_term_length,
    compute_position,
    pack_tail,
    partition_index,
    position_bits,
    term_offset_at,
    unpack_tail,
)
from aeron_async.protocol.header import (
    DATA_HEADER_LENGTH,
    FRAME_ALIGNMENT,
    DataFlags,
    FrameType,
    wrap_int32,
)
from aeron_async.protocol.units import align

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "LogBuffers",
    "LogSpec",
    "clean_to",
    "default_frame_header",
    "file_length",
    "initialise",
    "producer_position",
    "zero",
]

NULL_VALUE: Final = -1


# Settings of a log.


@final
@attrs.frozen(kw_only=True)
class LogSpec:
    """The settings of a new log, which never change; lengths in bytes, times in nanoseconds.

    Attributes:
        correlation_id: Registration id of the publication, or correlation id of the image.
        start_term_id: Term of the first frame; `None` means the initial term.
        start_term_offset: Offset of the first frame in that term; a multiple of 32.
        entity_tag: Tag of the publication, -1 for none; 0 for an image.
        response_correlation_id: Response correlation id, -1 for none; 0 for an image.

    Raises:
        ConfigurationError: A length, id or start that no log can have.
    """

    session_id: int
    stream_id: int
    initial_term_id: int
    term_length: int
    mtu_length: int
    log_type: LogType = LogType.CONCURRENT_PUBLICATION
    correlation_id: int = 0
    start_term_id: int | None = None
    start_term_offset: int = 0
    page_size: int = 4096
    publication_window_length: int = 0
    receiver_window_length: int = 0
    socket_sndbuf_length: int = 0
    os_default_socket_sndbuf_length: int = 0
    os_max_socket_sndbuf_length: int = 0
    socket_rcvbuf_length: int = 0
    os_default_socket_rcvbuf_length: int = 0
    os_max_socket_rcvbuf_length: int = 0
    max_resend: int = 0
    entity_tag: int = attrs.field()
    response_correlation_id: int = attrs.field()
    linger_timeout_ns: int = 0
    untethered_window_limit_timeout_ns: int = 0
    untethered_linger_timeout_ns: int = 0
    untethered_resting_timeout_ns: int = 0
    is_group: bool = False
    is_response: bool = False
    rejoin: bool = False
    reliable: bool = False
    sparse: bool = False
    signal_eos: bool = False
    spies_simulate_connection: bool = False
    tether: bool = False

    @entity_tag.default
    def _default_entity_tag(self) -> int:
        return 0 if self.log_type is LogType.IMAGE else NULL_VALUE

    @response_correlation_id.default
    def _default_response_correlation_id(self) -> int:
        return 0 if self.log_type is LogType.IMAGE else NULL_VALUE

    def __attrs_post_init__(self) -> None:
        check_term_length(self.term_length)
        check_mtu(self.mtu_length)
        check_page_size(self.page_size)
        for name in ("session_id", "stream_id", "initial_term_id", "start_term_id"):
            value = getattr(self, name)
            if value is not None and value != wrap_int32(value):
                msg = f"{name} {value} does not fit a signed 32-bit integer"
                raise ConfigurationError(msg)
        offset = self.start_term_offset
        if not 0 <= offset <= self.term_length or offset % FRAME_ALIGNMENT:
            msg = (
                f"start term offset {offset} must be a multiple of {FRAME_ALIGNMENT} within the "
                f"term length of {self.term_length}: set term-offset="
            )
            raise ConfigurationError(msg)
        if self.start_term_count < 0:
            msg = (
                f"start term id {self.start_term_id} lies before the initial term id "
                f"{self.initial_term_id}: set term-id= or init-term-id="
            )
            raise ConfigurationError(msg)

    @property
    def start_term_count(self) -> int:
        """How many terms after the initial one the log starts."""
        if self.start_term_id is None:
            return 0
        return wrap_int32(self.start_term_id - self.initial_term_id)


# Fields that are copied to the metadata under the same name.
COPIED: Final = tuple(
    field.name
    for field in attrs.fields(LogSpec)
    if field.name not in {"start_term_id", "start_term_offset"}
)


def default_frame_header(*, session_id: int, stream_id: int, initial_term_id: int) -> bytes:
    """Return the 32 bytes that every frame of a log starts from: version 0, unfragmented data."""
    header = bytearray(DATA_HEADER_LENGTH)
    words = memoryview(header).cast("i")
    words[1] = DataFlags.UNFRAGMENTED << 8 | FrameType.DATA << 16
    words[3] = session_id
    words[4] = stream_id
    words[5] = initial_term_id
    return bytes(header)


def initialise(metadata: LogMetadata, spec: LogSpec) -> None:
    """Write the metadata of a new log.

    A publication gets its tails: the start in the active slot, and in the two others the term ids
    that they would last have held, which the first rotation expects. The tails and the active term
    count of an image stay zero; its driver keeps the position elsewhere.
    """
    for name in COPIED:
        setattr(metadata, name, getattr(spec, name))
    # After the ids, which are stored inside this header.
    metadata.default_frame_header = default_frame_header(
        session_id=spec.session_id,
        stream_id=spec.stream_id,
        initial_term_id=spec.initial_term_id,
    )
    metadata.default_frame_header_length = DATA_HEADER_LENGTH
    metadata.end_of_stream_position = END_OF_STREAM_UNKNOWN
    metadata.is_connected = 0
    metadata.active_transport_count = 0
    metadata.is_publication_revoked = False
    if spec.log_type is LogType.IMAGE:
        return
    count = spec.start_term_count
    term_id = spec.initial_term_id + count
    metadata.set_tail(count % PARTITION_COUNT, pack_tail(term_id, spec.start_term_offset))
    metadata.set_tail((count + 1) % PARTITION_COUNT, pack_tail(term_id - 2, 0))
    metadata.set_tail((count + 2) % PARTITION_COUNT, pack_tail(term_id - 1, 0))
    metadata.active_term_count = count


# The log.


def file_length(*, term_length: int, page_size: int) -> int:
    """Return the length of a whole log: three terms and the metadata, rounded up to pages."""
    return align(PARTITION_COUNT * term_length + METADATA_LENGTH, page_size)


class OwnedMemory(Protocol):
    """What a log closes when it is closed itself."""

    def close(self) -> None:
        """Free the memory, or raise `BufferError` if a view of it is left."""
        ...


@final
class LogBuffers:
    """One log: three terms of equal length and the metadata.

    Attributes:
        metadata: Typed access to the last 4096 bytes.
        terms: The terms as bytes.
        term_words: The same as signed 32-bit integers: one load or store per frame length.
        term_longs: The same as signed 64-bit integers: a frame header is four of them.
        term_length: In bytes; a power of two.
        position_bits: log2 of the term length.
        file: Path of the file that other processes may map; empty for anonymous memory.
        is_closed: Whether the views have been released.
    """

    __slots__ = (
        "_base",
        "_owned",
        "file",
        "initial_term_id",
        "is_closed",
        "metadata",
        "mtu_length",
        "position_bits",
        "session_id",
        "stream_id",
        "term_length",
        "term_longs",
        "term_words",
        "terms",
    )

    term_length: int

    def __init__(
        self,
        base: memoryview,
        metadata: LogMetadata,
        owned: OwnedMemory | None,
        file: str,
        spec: LogSpec | LogMetadata,
    ) -> None:
        self._base = base
        self._owned = owned
        self.file: str = file
        self.metadata: LogMetadata = metadata
        # Other processes can change the metadata: what is in the spec is not read back from there.
        self.term_length = length = spec.term_length
        self.position_bits: int = position_bits(length)
        self.initial_term_id: int = spec.initial_term_id
        self.mtu_length: int = spec.mtu_length
        self.session_id: int = spec.session_id
        self.stream_id: int = spec.stream_id
        self.terms: tuple[memoryview, ...] = (
            base[:length],
            base[length : 2 * length],
            base[2 * length : 3 * length],
        )
        first, second, third = self.terms
        self.term_words: tuple[memoryview, ...] = (
            first.cast("i"),
            second.cast("i"),
            third.cast("i"),
        )
        self.term_longs: tuple[memoryview, ...] = (
            first.cast("q"),
            second.cast("q"),
            third.cast("q"),
        )
        self.is_closed: bool = False

    @classmethod
    def create(
        cls,
        spec: LogSpec,
        buffer: Buffer | None = None,
        *,
        owned: OwnedMemory | None = None,
        file: str = "",
    ) -> LogBuffers:
        """Make a new log, in anonymous memory unless a zeroed buffer is given.

        Anonymous memory costs nothing until a page is touched. It is shared instead of private,
        because the kernel may back private memory by huge pages, and then one written byte costs
        2 MiB.

        Args:
            spec: The settings of the log.
            buffer: Its memory, whose length is that of the log.
            owned: What to close with the log.
            file: Path of the file that the buffer maps.

        Raises:
            ConfigurationError: The buffer does not have the length that the spec needs.
        """
        length = file_length(term_length=spec.term_length, page_size=spec.page_size)
        if buffer is None:
            buffer = owned = mmap.mmap(-1, length)
        base = memoryview(buffer).cast("B")
        if base.nbytes != length:
            msg = (
                f"buffer of {base.nbytes} bytes must be {length} bytes long for terms of "
                f"{spec.term_length} bytes and pages of {spec.page_size}"
            )
            _release(base)
            raise ConfigurationError(msg)
        metadata = LogMetadata(base[-METADATA_LENGTH:])
        try:
            initialise(metadata, spec)
        except BaseException:
            # So that the caller can free the buffer.
            _release(metadata.longs, metadata.words, metadata.block, base)
            raise
        return cls(base, metadata, owned, file, spec)

    @classmethod
    def map(cls, buffer: Buffer, *, owned: OwnedMemory | None = None, file: str = "") -> LogBuffers:
        """Open an existing log in a buffer that the caller keeps, unless the log owns it.

        Args:
            buffer: The whole log.
            owned: What to close with the log.
            file: Path of the file that the buffer maps.

        Raises:
            ConfigurationError: The buffer holds no whole log; no view of it stays open.
        """
        base = memoryview(buffer).cast("B")
        if base.nbytes < METADATA_LENGTH:
            msg = f"log buffer of {base.nbytes} bytes must hold {METADATA_LENGTH} of metadata"
            _release(base)
            raise ConfigurationError(msg)
        metadata = LogMetadata(base[-METADATA_LENGTH:])
        try:
            _check_layout(metadata, base.nbytes)
        except ConfigurationError:
            _release(metadata.longs, metadata.words, metadata.block, base)
            raise
        return cls(base, metadata, owned, file, metadata)

    @property
    def memory(self) -> memoryview:
        """The whole log as bytes, for those who look at single words."""
        return self._base

    @property
    def metadata_offset(self) -> int:
        """Where the metadata begins in the memory of the log, in bytes."""
        return self._base.nbytes - METADATA_LENGTH

    def place_of(self, position: int) -> tuple[int, int]:
        """Return the index of the term with a position, and the offset in it, in bytes."""
        index = (position >> self.position_bits) % PARTITION_COUNT
        return index, position & (self.term_length - 1)

    def close(self) -> None:
        """Release every view of the buffer, and the buffer itself if this log made it.

        A view that the application still holds keeps the memory alive. Unmapping it would crash the
        process, so the mapping is left to the garbage collector, which unmaps it after the last
        view is gone.
        """
        if self.is_closed:
            return
        self.is_closed = True
        metadata = self.metadata
        _release(*self.term_longs, *self.term_words, *self.terms)
        _release(metadata.longs, metadata.words, metadata.block, self._base)
        if self._owned is not None:
            with contextlib.suppress(BufferError):
                self._owned.close()
            self._owned = None


def _check_layout(metadata: LogMetadata, length: int) -> None:
    """Refuse metadata that does not describe a log of `length` bytes."""
    check_term_length(metadata.term_length)
    check_page_size(metadata.page_size)
    check_mtu(metadata.mtu_length)
    expected = file_length(term_length=metadata.term_length, page_size=metadata.page_size)
    if length != expected:
        msg = (
            f"log buffer of {length} bytes must be {expected} bytes long for terms of "
            f"{metadata.term_length} bytes and pages of {metadata.page_size}"
        )
        raise ConfigurationError(msg)
    if metadata.block[LOG_TYPE_OFFSET] not in tuple(LogType):
        msg = f"log buffer of type {metadata.block[LOG_TYPE_OFFSET]} is of no publication or image"
        raise ConfigurationError(msg)


def _release(*views: memoryview) -> None:
    for view in views:
        with contextlib.suppress(BufferError):
            view.release()


# The producer position.


def producer_position(log: LogBuffers) -> int:
    """Return up to where publishers have claimed the log, in bytes, committed or not.

    The tail of a full term may lie beyond its end; the position does not.
    """
    metadata = log.metadata
    tail = metadata.tail(metadata.active_term_count % PARTITION_COUNT)
    term_id, offset = unpack_tail(tail, term_length=log.term_length)
    return compute_position(
        term_id, offset, initial_term_id=log.initial_term_id, bits=log.position_bits
    )


# Cleaning.

ZEROS: Final = memoryview(bytes(64 * 1024))


def zero(term: memoryview, start: int, end: int) -> None:
    """Fill a range of a term with zeros."""
    step = len(ZEROS)
    while start < end:
        stop = min(start + step, end)
        term[start:stop] = ZEROS[: stop - start]
        start = stop


def clean_to(log: LogBuffers, *, clean_position: int, position: int) -> int:
    """Zero from `clean_position` towards `position`, within one term; return how far it got.

    If that is short of `position`, call it again in a later turn. The first eight bytes are zeroed
    last, so that a reader never sees a frame length before a body that is gone.

    Args:
        log: The log to clean.
        clean_position: Up to where it is clean, in bytes.
        position: Up to where it may be cleaned, in bytes; all readers are beyond it.
    """
    offset = term_offset_at(clean_position, term_length=log.term_length)
    length = min(position - clean_position, log.term_length - offset)
    if length <= 0:
        return clean_position
    index = partition_index(clean_position, bits=log.position_bits)
    zero(log.terms[index], offset + 8, offset + length)
    log.term_longs[index][offset >> 3] = 0
    return clean_position + length


if not TYPE_CHECKING and WHY_PURE is None:
    from aeron_async._speedups.frames import zero
