"""Appenders: messages, claims and padding at the end of a log, for one writer or several.

An offer first reserves room, which `SharedAppender` and `ExclusiveAppender` do in different ways,
and then writes its frames there. Everything that can be refused is checked before the reservation.

Source: Aeron `BufferClaim`, `Publication`, `ConcurrentPublication`, `ExclusivePublication`.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING, ClassVar, Final, NoReturn, cast, final

from aeron_async._speedups import FrameWriter
from aeron_async.errors import ClosedError, ConfigurationError, MessageTooLongError
from aeron_async.logbuffer.atomics import fetch_add_64, load_acquire_64
from aeron_async.logbuffer.frame import (
    DATA_WORD,
    HEADER,
    OPEN_UNFRAGMENTED,
    TYPE_SHIFT,
    session_word,
    stream_word,
    write_frame,
    write_message,
    write_padding,
)
from aeron_async.logbuffer.log_buffers import producer_position, zero
from aeron_async.logbuffer.metadata import (
    ACTIVE_TERM_COUNT_INDEX,
    rotate_log,
    rotate_shared_log,
)
from aeron_async.logbuffer.position import (
    MAX_MESSAGE_LENGTH,
    MESSAGES_PER_TERM_MIN,
    PARTITION_COUNT,
    UINT32_MASK,
    compute_position,
    framed_length,
    max_message_length,
    max_payload_length,
    max_position,
    pack_tail,
    partition_index,
    term_id_at,
    term_offset_at,
    unpack_tail,
)
from aeron_async.protocol.arguments import check_number, check_reserved, shown
from aeron_async.protocol.header import DATA_HEADER_LENGTH, FRAME_ALIGNMENT, align_frame, wrap_int32

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

    from aeron_async._speedups.appending import FrameWriter as FrameWriterType
    from aeron_async.logbuffer.log_buffers import LogBuffers

__all__ = [
    "AppendResult",
    "Appender",
    "Claim",
    "ConcurrentAppender",
    "ExclusiveAppender",
    "SharedAppender",
    "byte_view",
]


# Claims.


@final
class Claim:
    """One frame that is reserved and not yet committed; until then readers stop before it.

    It must be committed or aborted within the publication unblock timeout (15 s by default), or the
    driver of a shared publication turns it into padding.

    Attributes:
        data: The payload, to be filled in place; released by `commit` and `abort`.
        position: End of the frame in the stream, in bytes.
        is_open: Whether neither `commit` nor `abort` has been called.
    """

    __slots__ = (
        "_appender",
        "_frame_length",
        "_longs",
        "_offset",
        "_term",
        "_words",
        "data",
        "is_open",
        "position",
    )

    def __init__(
        self,
        appender: Appender,
        term: memoryview,
        words: memoryview,
        longs: memoryview,
        offset: int,
        *,
        session: int,
        stream: int,
        length: int,
        position: int,
    ) -> None:
        self._appender = appender
        self._term = term
        self._words = words
        self._longs = longs
        self._offset = offset
        self._frame_length = frame_length = HEADER + length
        index = offset >> 3
        longs[index] = OPEN_UNFRAGMENTED - frame_length
        longs[index + 1] = session + offset
        longs[index + 2] = stream
        self.data: memoryview = self._term[offset + HEADER : offset + frame_length]
        self.position: int = position
        self.is_open: bool = True

    @property
    def flags(self) -> int:
        """The flags of the frame, as in `DataFlags`; unfragmented unless set otherwise."""
        self._check_open()
        return self._term[self._offset + 5]

    @flags.setter
    def flags(self, flags: int) -> None:
        self._check_open()
        self._term[self._offset + 5] = flags

    @property
    def reserved_value(self) -> int:
        """A signed 64-bit value for the application's own use."""
        self._check_open()
        return self._longs[(self._offset >> 3) + 3]

    @reserved_value.setter
    def reserved_value(self, value: int) -> None:
        self._check_open()
        self._longs[(self._offset >> 3) + 3] = value

    def commit(self) -> None:
        """Make the frame available to readers; now it counts as a message.

        Raises:
            ClosedError: The claim was committed or aborted before.
        """
        self._finish()
        self._appender._own_count += 1  # noqa: SLF001 - a claim is a part of its appender

    def abort(self) -> None:
        """Turn the frame into padding, which readers skip; its room in the log stays used.

        Raises:
            ClosedError: The claim was committed or aborted before.
        """
        self._check_open()
        # The type is the high half of the second word; padding is type zero.
        try:
            self._words[(self._offset >> 2) + 1] &= 0xFFFF
        except ValueError:
            self._raise_gone()
        self._finish()

    def _finish(self) -> None:
        self._check_open()
        self.is_open = False
        with contextlib.suppress(BufferError):
            # An array over the view keeps it alive; readers need not wait for that.
            self.data.release()
        try:
            self._words[self._offset >> 2] = self._frame_length
        except ValueError:
            self._raise_gone()

    def _raise_gone(self) -> NoReturn:
        """Say that the views of the log are released, because its driver is gone."""
        self.is_open = False
        msg = f"the claim up to position {self.position} is lost: its driver is gone, with the log"
        raise ClosedError(msg) from None

    def _check_open(self) -> None:
        if not self.is_open:
            msg = f"the claim up to position {self.position} was committed or aborted before"
            raise ClosedError(msg)


# What both appenders share.

INT64_LIMIT: Final = 2**63
UNRESERVED: Final = 0
# `(length + FRAME_OVERHEAD) & -32` is the frame length of a payload, aligned to the next frame.
FRAME_OVERHEAD: Final = DATA_HEADER_LENGTH + 31


@final
class AppendResult(IntEnum):
    """Why nothing was appended; a successful append returns a position, which is never negative."""

    NOT_CONNECTED = -1
    BACK_PRESSURED = -2
    ADMIN_ACTION = -3
    CLOSED = -4
    MAX_POSITION_EXCEEDED = -5


class Appender(ABC):
    """Writes messages at the end of a log, up to a limit that the caller passes each time.

    `ADMIN_ACTION` means that a term is full: try again at once. A message may extend beyond the
    limit; only one that would start at or beyond it is refused.

    Attributes:
        max_message_length: Longest message that `offer` accepts, in bytes.
        max_payload_length: Longest message that fits one frame, and longest claim, in bytes.
        max_position: Where the position space of the stream ends, in bytes.
        writer: The compiled fast path of `offer`; None in pure Python.
    """

    __slots__ = (
        "_bits",
        "_initial_term_id",
        "_log",
        "_longs",
        "_metadata",
        "_metadata_words",
        "_own_count",
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

    IS_SHARED: ClassVar[bool] = False
    """Whether writers of other processes append to the log, too."""

    def __init__(self, log: LogBuffers) -> None:
        self._log = log
        self._metadata = log.metadata
        self._metadata_words = log.metadata.words
        self._tails = log.metadata.longs
        self._term_length = log.term_length
        self._bits = log.position_bits
        self._initial_term_id = log.initial_term_id
        self._session = session_word(log.session_id)
        self._own_count = 0
        self.max_payload_length: int = max_payload_length(log.mtu_length)
        self.max_message_length: int = max_message_length(log.term_length)
        self.max_position: int = max_position(log.term_length)
        self._enter_term(log.metadata.active_term_count << log.position_bits)
        self.writer: FrameWriterType | None = None
        if FrameWriter is not None:
            self.writer = FrameWriter(
                log,
                max_payload_length=self.max_payload_length,
                max_message_length=self.max_message_length,
                is_shared=self.IS_SHARED,
            )

    @property
    @abstractmethod
    def position(self) -> int:
        """Where the next message would start, in bytes."""

    @property
    def message_count(self) -> int:
        """How many messages this writer has appended: a claim counts when it is committed.

        Blocks of frames do not count.
        """
        writer = self.writer
        return self._own_count if writer is None else self._own_count + writer.message_count

    @abstractmethod
    def _reserve(self, size: int, length: int, limit: int) -> int:
        """Reserve `size` bytes; return their position, or a negative `AppendResult`."""

    def offer(
        self, data: Buffer | tuple[Buffer, ...], *, limit: int, reserved_value: int = 0
    ) -> int:
        """Append one message; return its end position, or a negative `AppendResult`.

        Args:
            data: Any buffer, or a tuple of buffers; one that is not contiguous is copied.
            limit: Position at which the log is full for now.
            reserved_value: The application's own signed 64 bits, put into every fragment.

        Raises:
            MessageTooLongError: Longer than `max_message_length`.
            ConfigurationError: The reserved value has more than 64 bits.
            TypeError: The data is no buffer.
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
        self._own_count += 1
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
        """Release the views that the compiled writer holds, so that the memory can be freed."""
        if self.writer is not None:
            self.writer.detach()

    def offer_vector(
        self, buffers: Sequence[Buffer], *, limit: int, reserved_value: int = 0
    ) -> int:
        """Append one message gathered from several buffers; see `offer`.

        The buffers are joined first and then copied: one call in C beats a loop in Python.

        Args:
            buffers: The parts of the message, in order.
            limit: Position at which the log is full for now.
            reserved_value: The application's own signed 64 bits, put into every fragment.

        Raises:
            MessageTooLongError: Longer than `max_message_length` in total.
            ConfigurationError: The reserved value has more than 64 bits.
            TypeError: An item is no buffer.
        """
        try:
            data = b"".join(buffers)
        except (TypeError, BufferError):
            data = joined(buffers)
        return self.offer(data, limit=limit, reserved_value=reserved_value)

    def try_claim(self, length: int, *, limit: int) -> Claim | int:
        """Reserve one frame to be filled in place; return it, or a negative `AppendResult`.

        Args:
            length: Length of the payload, in bytes.
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
            self,
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
        """Update what depends on the term; return the offset of a position in it."""
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
        """Return the length of a claim after checking it.

        Raises:
            MessageTooLongError: Longer than `max_payload_length`.
            ConfigurationError: Not a whole, non-negative number of bytes.
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
        """Raise the errors that `offer` would raise, without appending anything.

        Raises:
            MessageTooLongError: Longer than `max_message_length`.
            ConfigurationError: The reserved value has more than 64 bits.
            TypeError: The data is no buffer.
        """
        parts = parts_of(data) if isinstance(data, list | tuple) else [byte_view(data)]
        self._fragmented_length(sum(part.nbytes for part in parts))
        check_reserved(reserved_value)


def byte_view(data: Buffer | Sequence[Buffer]) -> memoryview:
    """Return a buffer as a view of single bytes; the buffers of a tuple are joined.

    Raises:
        TypeError: The data is no buffer.
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
        # A view with a zero in its shape cannot be cast.
        return memoryview(b"")
    if not view.c_contiguous:
        view = memoryview(view.tobytes())
    return view.cast("B")


def joined(buffers: Sequence[Buffer]) -> bytes:
    """Return the joined bytes of several buffers with items of any size.

    Raises:
        TypeError: An item is no buffer; the message says which.
    """
    return b"".join(parts_of(buffers))


def parts_of(buffers: Sequence[Buffer]) -> list[memoryview]:
    """Return each of several buffers as a view of single bytes.

    Raises:
        TypeError: An item is no buffer; the message says which.
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


# Several writers.


@final
class SharedAppender(Appender):
    """One of any number of writers in one event loop; all state is in the log.

    A plain load and store can replace Aeron's fetch-and-add: no other writer runs between the two.
    Across processes that would not hold; see `ConcurrentAppender`.
    """

    __slots__ = ()

    @property
    def position(self) -> int:
        """Where the next message would start, in bytes."""
        metadata = self._metadata
        tail = metadata.tail(metadata.active_term_count % PARTITION_COUNT)
        term_id, offset = unpack_tail(tail, term_length=self._term_length)
        return compute_position(
            term_id, offset, initial_term_id=self._initial_term_id, bits=self._bits
        )

    def _reserve(self, size: int, length: int, limit: int) -> int:
        tails = self._tails
        count = self._metadata_words[ACTIVE_TERM_COUNT_INDEX]
        tail = tails[count % PARTITION_COUNT]
        if ((tail >> 32) - self._initial_term_id - count) & UINT32_MASK:
            # Another writer has rotated the tail, but not yet the active term count.
            return AppendResult.ADMIN_ACTION
        offset = tail & UINT32_MASK
        position = (count << self._bits) + offset
        if position < limit and offset + size <= self._term_length:
            tails[count % PARTITION_COUNT] = tail + size
            return position
        position += min(offset, self._term_length) - offset
        if position >= limit:
            return self._refuse(position, length)
        tails[count % PARTITION_COUNT] = tail + size
        return self._end_of_log(tail, size)

    def _end_of_log(self, tail: int, size: int) -> int:
        """Pad the rest of a full term if this writer crossed its end, and rotate."""
        term_id, offset = unpack_tail(tail, term_length=self._term_length)
        begin = compute_position(term_id, 0, initial_term_id=self._initial_term_id, bits=self._bits)
        if offset < self._term_length:
            # The writer that crosses the end pads; later ones find the tail beyond the end.
            self._enter_term(begin)
            rest = self._term_length - offset
            write_padding(self._words, self._longs, offset, self._session, self._stream, rest)
        if begin + offset + size >= self.max_position:
            return AppendResult.MAX_POSITION_EXCEEDED
        rotate_log(self._metadata, term_count=begin >> self._bits, term_id=term_id)
        return AppendResult.ADMIN_ACTION


@final
class ConcurrentAppender(Appender):
    """One of any number of writers, in any process that has mapped the log; all state is in it.

    Like Aeron's, it claims by adding to the tail, and finds out from the old value what it got.
    """

    __slots__ = ()

    IS_SHARED: ClassVar[bool] = True

    @property
    def position(self) -> int:
        """Where the next message would start, in bytes."""
        return producer_position(self._log)

    def _reserve(self, size: int, length: int, limit: int) -> int:
        tails, count = self._tails, self._metadata_words[ACTIVE_TERM_COUNT_INDEX]
        index = count % PARTITION_COUNT
        tail = load_acquire_64(tails, index)
        if ((tail >> 32) - self._initial_term_id - count) & UINT32_MASK:
            # Another writer has rotated the tail, but not yet the active term count.
            return AppendResult.ADMIN_ACTION
        position = (count << self._bits) + min(tail & UINT32_MASK, self._term_length)
        if position >= limit:
            return self._refuse(position, length)
        tail = fetch_add_64(tails, index, size)
        term_id, offset = tail >> 32, tail & UINT32_MASK
        begin = compute_position(term_id, 0, initial_term_id=self._initial_term_id, bits=self._bits)
        if offset + size <= self._term_length:
            return begin + offset
        if offset < self._term_length:
            # The writer that crosses the end pads; later ones find the tail beyond the end.
            self._enter_term(begin)
            rest = self._term_length - offset
            write_padding(self._words, self._longs, offset, self._session, self._stream, rest)
        if begin + offset + size >= self.max_position:
            return AppendResult.MAX_POSITION_EXCEEDED
        rotate_shared_log(self._metadata, term_count=begin >> self._bits, term_id=term_id)
        return AppendResult.ADMIN_ACTION


# One writer.

FRAME_HEADER: Final = Struct("<8i")
FIRST_WORD: Final = Struct("<q")


@final
class ExclusiveAppender(Appender):
    """The only writer of its log: it keeps its own offset, and updates the tail for others."""

    __slots__ = ("_index", "_offset", "_term_id")

    def __init__(self, log: LogBuffers) -> None:
        super().__init__(log)
        self._index = self._metadata.active_term_count % PARTITION_COUNT
        self._term_id, self._offset = unpack_tail(
            self._metadata.tail(self._index), term_length=log.term_length
        )

    @property
    def position(self) -> int:
        """Where the next message would start, in bytes."""
        return self._term_begin + self._look_up_offset()

    def append_padding(self, length: int, *, limit: int) -> int:
        """Append `length` bytes that readers skip; return the end position or an `AppendResult`.

        Args:
            length: Length of the padding behind its frame header, in bytes.
            limit: Position at which the log is full for now.

        Raises:
            MessageTooLongError: Longer than the longest message with all its headers.
            ConfigurationError: The length is negative.
        """
        length = self.check_padding(length)
        frame_length = length + DATA_HEADER_LENGTH
        size = align_frame(frame_length)
        start = self._reserve(size, length, limit)
        if start < 0:
            return start
        offset = start - self._term_begin
        zero(self._term, offset + DATA_HEADER_LENGTH, offset + size)
        self._write_padding(offset, frame_length)
        return start + size

    def check_padding(self, length: int) -> int:
        """Return the length of padding after checking it.

        Raises:
            MessageTooLongError: Longer than the longest message with all its headers.
            ConfigurationError: Not a whole, non-negative number of bytes.
        """
        length = check_number(length, "length", minimum=0, why=" bytes")
        max_length = framed_length(
            self.max_message_length, max_payload_length=self.max_payload_length
        )
        if length > max_length:
            msg = (
                f"padding of {length} bytes is longer than {max_length} bytes, the most for terms "
                f"of {self._term_length} bytes: append it in parts, or raise term-length="
            )
            raise MessageTooLongError(msg)
        return length

    def offer_block(self, block: Buffer, *, limit: int) -> int:
        """Append frames made for exactly this position; return the end position or `AppendResult`.

        Only the first header is checked. The block must fit into the rest of the term; a full term
        is rotated first.

        Args:
            block: Whole frames, aligned; the first is a data frame.
            limit: Position at which the log is full for now.

        Raises:
            ConfigurationError: Length or first header of the block do not fit this position.
        """
        view = byte_view(block)
        length = view.nbytes
        if self._look_up_offset() == self._term_length and (result := self._next_term()) < 0:
            return result
        start = self.position
        if start >= limit:
            return self._refuse(start, length)
        self._check_block(view)
        offset = self._offset
        self._offset = end = offset + length
        self._tails[self._index] = pack_tail(self._term_id, end)
        self._term[offset + 8 : end] = view[8:]
        # The word with the first frame length is stored last: until then a reader sees nothing.
        self._longs[offset >> 3] = FIRST_WORD.unpack_from(view)[0]
        return start + length

    def _look_up_offset(self) -> int:
        """Return the offset of the tail: the compiled writer may have moved it."""
        if self.writer is not None:
            self._offset = min(self._tails[self._index] & UINT32_MASK, self._term_length)
        return self._offset

    def _reserve(self, size: int, length: int, limit: int) -> int:
        offset = self._look_up_offset()
        start = self._term_begin + offset
        if start >= limit:
            return self._refuse(start, length)
        end = offset + size
        self._tails[self._index] = (self._term_id << 32) + end
        if end > self._term_length:
            return self._end_of_term()
        self._offset = end
        return start

    def _end_of_term(self) -> int:
        """Pad the rest of a full term and move to the next."""
        if self._offset < self._term_length:
            self._write_padding(self._offset, self._term_length - self._offset)
            self._offset = self._term_length
        return self._next_term() or AppendResult.ADMIN_ACTION

    def _next_term(self) -> int:
        """Rotate; return 0, or `MAX_POSITION_EXCEEDED` when this term was the last."""
        begin = self._term_begin + self._term_length
        if begin >= self.max_position:
            return AppendResult.MAX_POSITION_EXCEEDED
        self._enter_term(begin)
        self._index = (self._index + 1) % PARTITION_COUNT
        self._term_id = wrap_int32(self._term_id + 1)
        self._offset = 0
        self._tails[self._index] = pack_tail(self._term_id, 0)
        self._metadata.active_term_count = begin >> self._bits
        return 0

    def _write_padding(self, offset: int, frame_length: int) -> None:
        write_padding(self._words, self._longs, offset, self._session, self._stream, frame_length)

    def _check_block(self, block: memoryview) -> None:
        length = block.nbytes
        rest = self._term_length - self._offset
        if not DATA_HEADER_LENGTH <= length <= rest or length % FRAME_ALIGNMENT:
            msg = (
                f"block of {length} bytes must be a multiple of {FRAME_ALIGNMENT}, and not longer "
                f"than the {rest} bytes left in the term"
            )
            raise ConfigurationError(msg)
        _, second, *found, _, _ = FRAME_HEADER.unpack_from(block)
        wanted = [self._offset, self._log.session_id, self._log.stream_id, self._term_id]
        if found != wanted or second >> TYPE_SHIFT != DATA_WORD >> TYPE_SHIFT:
            msg = (
                f"block begins with frame type {second >> TYPE_SHIFT & 0xFFFF} and (term offset, "
                f"session id, stream id, term id) {found}: must be type 1 and {wanted}"
            )
            raise ConfigurationError(msg)
