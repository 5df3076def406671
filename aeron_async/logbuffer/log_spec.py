"""What a driver decides about a log before it exists, and the metadata that says so.

Source: Aeron `LogBufferDescriptor`; `DriverConductor` (initialisation of publication and image
logs).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import attrs

from aeron_async.errors import ConfigurationError
from aeron_async.logbuffer.metadata import END_OF_STREAM_UNKNOWN, LogType
from aeron_async.logbuffer.position import (
    PARTITION_COUNT,
    check_mtu,
    check_page_size,
    check_term_length,
    pack_tail,
)
from aeron_async.protocol.header import (
    DATA_HEADER_LENGTH,
    FRAME_ALIGNMENT,
    DataFlags,
    FrameType,
    wrap_int32,
)

if TYPE_CHECKING:
    from aeron_async.logbuffer.metadata import LogMetadata

__all__ = ["LogSpec", "default_frame_header", "initialise"]

NULL_VALUE: Final = -1


@final
@attrs.frozen(kw_only=True)
class LogSpec:
    """Everything that is fixed when a log is made; lengths in bytes, times in nanoseconds.

    Attributes:
        correlation_id: Registration id of the publication, or correlation id of the image.
        start_term_id: Term of the first frame; `None` means the initial term.
        start_term_offset: Offset of the first frame in that term; a multiple of 32.
        entity_tag: Tag of the publication, -1 for none; images hold 0.
        response_correlation_id: Likewise.

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


# Fields that the metadata takes over under the same name.
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
    """Write the metadata of a log that nobody has seen yet.

    A publication gets its tails: the start in the active slot, and in the two others the term ids
    they would last have held, so that the first rotation finds what it expects. The tails and the
    active term count of an image stay zero; its driver keeps the position elsewhere.
    """
    for name in COPIED:
        setattr(metadata, name, getattr(spec, name))
    # After the ids, which live inside it.
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
