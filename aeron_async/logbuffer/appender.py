"""What both kinds of publication share: results of an offer, limits, the way into the log.

An offer first reserves room, which is where shared and exclusive publications differ, and then
writes its frames there. Nothing that can be refused is left to be found out after the reservation.

Source: Aeron `Publication`, `ConcurrentPublication`, `ExclusivePublication`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import IntEnum
from typing import TYPE_CHECKING, Final, cast, final

from aeron_async.errors import MessageTooLongError
from aeron_async.kernel import FrameWriter
from aeron_async.logbuffer.claim import Claim
from aeron_async.logbuffer.frame import (
    OPEN_UNFRAGMENTED,
    session_word,
    stream_word,
    write_frame,
    write_message,
)
from aeron_async.logbuffer.position import (
    MAX_MESSAGE_LENGTH,
    MESSAGES_PER_TERM_MIN,
    framed_length,
    max_message_length,
    max_payload_length,
    max_position,
    partition_index,
    term_id_at,
    term_offset_at,
)
from aeron_async.protocol.arguments import check_number, check_reserved, shown
from aeron_async.protocol.header import DATA_HEADER_LENGTH, align_frame

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

    from aeron_async.logbuffer.term_log import LogBuffers

__all__ = ["AppendResult", "Appender", "byte_view"]

INT64_LIMIT: Final = 2**63
UNRESERVED: Final = 0
# What `(length + FRAME_OVERHEAD) & -32` adds to a payload: its header, then up to the next frame.
FRAME_OVERHEAD: Final = DATA_HEADER_LENGTH + 31


@final
class AppendResult(IntEnum):
    """Why nothing was appended; a position, which is never negative, says that it was."""

    NOT_CONNECTED = -1
    BACK_PRESSURED = -2
    ADMIN_ACTION = -3
    CLOSED = -4
    MAX_POSITION_EXCEEDED = -5


class Appender(ABC):
    """Writes messages at the end of a log, up to a limit that the caller passes each time.

    `ADMIN_ACTION` means that a term came to its end: try again at once. A message may reach beyond
    the limit; only one that would start at or beyond it is refused.

    Attributes:
        max_message_length: Longest message that `offer` takes, in bytes.
        max_payload_length: Longest message that fits one frame, and longest claim, in bytes.
        max_position: Where the stream ends for good, in bytes.
        writer: Appends what takes no thought; None where the kernel is in Python.
    """

    __slots__ = (
        "_bits",
        "_initial_term_id",
        "_log",
        "_longs",
        "_metadata",
        "_metadata_words",
        "_session",
        "_stream",
        "_tails",
        "_term",
        "_term_begin",
        "_term_length",
        "_words",
        "max_message_length",
        "max_payload_length",
        "max_position",
        "writer",
    )

    def __init__(self, log: LogBuffers) -> None:
        self._log = log
        self._metadata = log.metadata
        self._metadata_words = log.metadata.words
        self._tails = log.metadata.longs
        self._term_length = log.term_length
        self._bits = log.position_bits
        self._initial_term_id = log.initial_term_id
        self._session = session_word(log.session_id)
        self.max_payload_length = max_payload_length(log.mtu_length)
        self.max_message_length = max_message_length(log.term_length)
        self.max_position = max_position(log.term_length)
        self._enter_term(log.metadata.active_term_count << log.position_bits)
        self.writer = None
        if FrameWriter is not None:
            self.writer = FrameWriter(
                log,
                max_payload_length=self.max_payload_length,
                max_message_length=self.max_message_length,
            )

    @property
    @abstractmethod
    def position(self) -> int:
        """Where the next message would start, in bytes."""

    @abstractmethod
    def _reserve(self, size: int, length: int, limit: int) -> int:
        """Return the position where `size` bytes are now ours, or a negative `AppendResult`."""

    def offer(
        self, data: Buffer | tuple[Buffer, ...], *, limit: int, reserved_value: int = 0
    ) -> int:
        """Append one message; return its end position, or a negative `AppendResult`.

        Args:
            data: Any buffer, or a tuple of them; one whose bytes do not lie side by side is copied.
            limit: Position at which the log is full for now.
            reserved_value: Signed 64 bits of the application's own, put into every fragment.

        Raises:
            MessageTooLongError: Longer than `max_message_length`.
            ConfigurationError: The reserved value has more than 64 bits.
            TypeError: It is no buffer.
        """
        if self.writer is not None:
            position = self.writer.offer(data, limit, reserved_value)
            if position >= 0:
                return position
        if type(data) is not bytes:
            data = byte_view(data)
        length = len(data)
        if reserved_value is not UNRESERVED and (
            type(reserved_value) is not int or not -INT64_LIMIT <= reserved_value < INT64_LIMIT
        ):
            reserved_value = check_reserved(reserved_value)
        max_payload = self.max_payload_length
        if length <= max_payload:
            size = (length + FRAME_OVERHEAD) & -32
        else:
            size = self._fragmented_length(length)
        start = self._reserve(size, length, limit)
        if start < 0:
            return start
        offset = start - self._term_begin
        if offset >= self._term_length:
            offset = self._enter_term(start)
        if length <= max_payload:
            write_frame(
                self._term, self._words, self._longs, offset,
                OPEN_UNFRAGMENTED, self._session, self._stream, data, length, reserved_value,
            )  # fmt: skip
        else:
            write_message(
                self._term, self._words, self._longs, offset,
                self._session, self._stream, memoryview(data), length, max_payload, reserved_value,
            )  # fmt: skip
        return start + size

    def detach(self) -> None:
        """Let go of the memory that the kernel holds, so that it can be given back."""
        if self.writer is not None:
            self.writer.detach()

    def offer_vector(
        self, buffers: Sequence[Buffer], *, limit: int, reserved_value: int = 0
    ) -> int:
        """Append one message gathered from several buffers; see `offer`.

        Gathered first and copied then: one call in C beats a loop over pieces in Python.

        Args:
            buffers: The parts of the message, in order.
            limit: Position at which the log is full for now.
            reserved_value: Signed 64 bits of the application's own, put into every fragment.

        Raises:
            MessageTooLongError: Longer than `max_message_length` in sum.
            ConfigurationError: The reserved value has more than 64 bits.
            TypeError: One of them is no buffer.
        """
        try:
            data = b"".join(buffers)
        except (TypeError, BufferError):
            data = joined(buffers)
        return self.offer(data, limit=limit, reserved_value=reserved_value)

    def try_claim(self, length: int, *, limit: int) -> Claim | int:
        """Reserve one frame to be filled in place; return it, or a negative `AppendResult`.

        Args:
            length: Of the payload, in bytes.
            limit: Position at which the log is full for now.

        Raises:
            MessageTooLongError: Longer than `max_payload_length`.
            ConfigurationError: The length is negative.
        """
        length = self.check_claim(length)
        size = align_frame(length + DATA_HEADER_LENGTH)
        start = self._reserve(size, length, limit)
        if start < 0:
            return start
        offset = start - self._term_begin
        if offset >= self._term_length:
            offset = self._enter_term(start)
        return Claim(
            self._term,
            self._words,
            self._longs,
            offset,
            session=self._session,
            stream=self._stream,
            length=length,
            position=start + size,
        )

    def _enter_term(self, position: int) -> int:
        """Look up what changes only with the term; return the offset of a position in it."""
        log = self._log
        index = partition_index(position, bits=log.position_bits)
        self._term = log.terms[index]
        self._words = log.term_words[index]
        self._longs = log.term_longs[index]
        term_id = term_id_at(position, initial_term_id=log.initial_term_id, bits=log.position_bits)
        self._stream = stream_word(stream_id=log.stream_id, term_id=term_id)
        offset = term_offset_at(position, term_length=log.term_length)
        self._term_begin = position - offset
        return offset

    def _fragmented_length(self, length: int) -> int:
        if length > self.max_message_length:
            raise MessageTooLongError(self._too_long(length))
        return framed_length(length, max_payload_length=self.max_payload_length)

    def _too_long(self, length: int) -> str:
        if length > MAX_MESSAGE_LENGTH:
            advice = f"split it, for no term length allows more than {MAX_MESSAGE_LENGTH} bytes"
        else:
            needed = 1 << (length * MESSAGES_PER_TERM_MIN - 1).bit_length()
            advice = f"set term-length={needed}"
        return (
            f"message of {length} bytes is longer than {self.max_message_length} bytes, the most "
            f"for terms of {self._term_length} bytes: {advice}"
        )

    def _refuse(self, position: int, length: int) -> int:
        """Return why a message may not start at or beyond the limit."""
        if position + align_frame(length + DATA_HEADER_LENGTH) >= self.max_position:
            return AppendResult.MAX_POSITION_EXCEEDED
        if self._metadata.is_connected == 1:
            return AppendResult.BACK_PRESSURED
        return AppendResult.NOT_CONNECTED

    def check_claim(self, length: int) -> int:
        """Return the length of a claim.

        Raises:
            MessageTooLongError: Longer than `max_payload_length`.
            ConfigurationError: It is no whole number of bytes.
        """
        if type(length) is not int or length < 0:
            length = check_number(length, "length", minimum=0, why=" bytes")
        if length > self.max_payload_length:
            msg = (
                f"claim of {length} bytes is longer than {self.max_payload_length} bytes, the most "
                f"for one frame: offer the message, which fragments it, or raise mtu="
            )
            raise MessageTooLongError(msg)
        return length

    def check_offer(self, data: Buffer | Sequence[Buffer], reserved_value: int) -> None:
        """Refuse what `offer` would, without appending anything.

        Raises:
            MessageTooLongError: Longer than `max_message_length`.
            ConfigurationError: The reserved value has more than 64 bits.
            TypeError: It is no buffer.
        """
        parts = parts_of(data) if isinstance(data, list | tuple) else [byte_view(data)]
        self._fragmented_length(sum(part.nbytes for part in parts))
        check_reserved(reserved_value)


def byte_view(data: Buffer | Sequence[Buffer]) -> memoryview:
    """Return a buffer as single bytes, whatever its items are; several in a tuple, joined.

    Raises:
        TypeError: It is no buffer.
    """
    if isinstance(data, tuple):
        return memoryview(joined(data))
    try:
        view = memoryview(cast("Buffer", data))
    except (TypeError, BufferError):
        remedy = ": encode it, for example with .encode()" if isinstance(data, str) else ""
        msg = f"a message is bytes, another buffer, or a list of these, not {shown(data)}{remedy}"
        raise TypeError(msg) from None
    if not view.nbytes:
        # A view with a zero in its shape cannot be cast, and need not be.
        return memoryview(b"")
    if not view.c_contiguous:
        view = memoryview(view.tobytes())
    return view.cast("B")


def joined(buffers: Sequence[Buffer]) -> bytes:
    """Return the bytes of several buffers, whatever their items are.

    Raises:
        TypeError: One of them is no buffer; says which.
    """
    return b"".join(parts_of(buffers))


def parts_of(buffers: Sequence[Buffer]) -> list[memoryview]:
    """Return each of several buffers as single bytes.

    Raises:
        TypeError: One of them is no buffer; says which.
    """
    views: list[memoryview] = []
    for index, each in enumerate(buffers):
        if isinstance(each, list | tuple):
            msg = f"item {index} of the message is {shown(each)}, and must be bytes or a buffer"
            raise TypeError(msg)
        try:
            views.append(byte_view(each))
        except TypeError as error:
            msg = f"item {index} of the message: {error}"
            raise TypeError(msg) from None
    return views
