"""Messages read from a log: one small object each, mutable and without a dictionary.

`read_whole` reads a list of them, and `open_batch` a batch that is handed out one by one.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from aeron_async._speedups import WHY_PURE
from aeron_async.logbuffer.frame import FLAGS_SHIFT, HEADER, TYPE_SHIFT, UNFRAGMENTED_WORD
from aeron_async.protocol.header import DataFlags

if TYPE_CHECKING:
    from typing import TypeAlias

    from typing_extensions import Buffer

    Columns: TypeAlias = tuple[int, Buffer, Buffer, Buffer, Buffer]
    """Number of messages; bounds of payloads, positions, reserved values; payloads."""

__all__ = [
    "Batch",
    "Message",
    "MessageSource",
    "columns_of",
    "open_batch",
    "read_whole",
]


class MessageSource(Protocol):
    """The source of a message: an `Image`, or a recording that is replayed.

    Attributes:
        session_id: Session id of the publication.
        stream_id: Stream id of the publication.
        source_identity: Where the stream comes from, as `host:port`.
    """

    session_id: int
    stream_id: int
    source_identity: str


class Message:
    """One complete message.

    Attributes:
        data: The payload, a copy.
        position: Where the message ends in its stream, in bytes.
        reserved_value: The publisher's own 64 bits; 0 by default.
        image: The source it came from.
    """

    __slots__ = ("data", "image", "position", "reserved_value")

    def __init__(
        self, data: bytes, position: int, reserved_value: int, image: MessageSource
    ) -> None:
        self.data: bytes = data
        self.position: int = position
        self.reserved_value: int = reserved_value
        # Typed as Any, because a log knows no images; `client.image` defines the type.
        self.image: Any = image

    @property
    def session_id(self) -> int:
        """Return the session id of the publication it came from."""
        session_id: int = self.image.session_id
        return session_id

    @property
    def stream_id(self) -> int:
        """Return the stream id it came on."""
        stream_id: int = self.image.stream_id
        return stream_id

    def __bytes__(self) -> bytes:
        return self.data

    def __len__(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        return (
            f"<Message of {len(self.data)} bytes at position {self.position}, "
            f"session {self.session_id}, stream {self.stream_id}>"
        )


FLAGS_BITS: Final = DataFlags.UNFRAGMENTED << FLAGS_SHIFT
BEGIN_BIT: Final = DataFlags.BEGIN_FRAGMENT << FLAGS_SHIFT
END_BIT: Final = DataFlags.END_FRAGMENT << FLAGS_SHIFT


def read_whole(
    term: memoryview,
    words: memoryview,
    longs: memoryview,
    offset: int,
    end: int,
    begin_position: int,
    limit: int,
    out: list[Any],
    image: MessageSource | None = None,
    longest: int = 0,
) -> int:
    """Read complete messages; return the offset behind the last frame and its padding.

    Stops at any other fragment, at a frame that is missing or extends beyond `end`, and after
    `limit` messages.

    Args:
        term: The term as bytes.
        words: The term as 32-bit words.
        longs: The term as 64-bit words.
        offset: Where to begin; start of a frame.
        end: Offset not to be passed.
        begin_position: Position of the term.
        limit: Most messages to read.
        out: Receives a `Message` each, or without an image a tuple (payload, end position,
            reserved value).
        image: The source of the messages.
        longest: Longest message that may be joined from fragments, in bytes; 0 stops at any.

    Source: Aeron `TermReader`.
    """
    append = out.append
    while limit > 0 and offset < end:
        index = offset >> 2
        frame_length = words[index]
        if frame_length <= 0:
            break
        following = (offset + frame_length + 31) & -32
        if following > end:
            break
        word = words[index + 1]
        # The first comparison is enough for all but the rare frame with further flags.
        if word == UNFRAGMENTED_WORD or (word >> TYPE_SHIFT and word & FLAGS_BITS == FLAGS_BITS):
            data = bytes(term[offset + HEADER : offset + frame_length])
        elif word >> TYPE_SHIFT:
            data, following = _join(term, words, offset, end, longest)
            if not following:
                break
        else:
            offset = following
            continue
        reserved_value, offset = longs[(offset >> 3) + 3], following
        position = begin_position + following
        if image is None:
            append((data, position, reserved_value))
        else:
            append(Message(data, position, reserved_value, image))
        limit -= 1
    return offset


def _join(
    term: memoryview, words: memoryview, offset: int, end: int, longest: int
) -> tuple[bytes, int]:
    """Return the message whose fragments begin here, and the offset behind it; 0 if incomplete.

    Every fragment must be there, one after the other, from the first to the last.
    """
    pieces = []
    length, expected = 0, BEGIN_BIT
    while offset < end:
        index = offset >> 2
        frame_length = words[index]
        word = words[index + 1]
        following = (offset + frame_length + 31) & -32
        length += frame_length - HEADER
        if (
            frame_length < HEADER
            or following > end
            or word & BEGIN_BIT != expected
            or not word >> TYPE_SHIFT
            or length > longest
        ):
            break
        pieces.append(term[offset + HEADER : offset + frame_length])
        if word & END_BIT:
            return b"".join(pieces), following
        offset, expected = following, 0
    return b"", 0


MessageT = TypeVar("MessageT")


class Batch(Generic[MessageT]):
    """Messages of one source, in order.

    The compiled twin leaves messages in the log until they are handed out, or until `keep`.

    Args:
        messages: All messages.
        image: Their source; None if there are no messages.

    Attributes:
        left: How many are still to be handed out.
        image: The source.
    """

    __slots__ = ("_messages", "image", "left")

    def __init__(self, messages: list[MessageT], image: MessageSource | None) -> None:
        self._messages = messages
        self.image: Any = image
        self.left: int = len(messages)

    def following(self) -> MessageT | None:
        """Return the next message; None if there is none left."""
        left = self.left
        if left == 0:
            return None
        self.left = left - 1
        return self._messages[-left]

    def at(self, index: int) -> MessageT | None:
        """Return the message at an index of those that are left; None if there is none. It stays.

        Compiled, the first one behind index 0 that is asked for costs a walk over the headers.
        """
        if not 0 <= index < self.left:
            return None
        return self._messages[index - self.left]

    def rest(self) -> list[MessageT]:
        """Return all messages that are left, and empty the batch."""
        messages = self._left()
        self.left = 0
        return messages

    def again(self) -> Batch[MessageT]:
        """Return another batch of what is left; this one hands out nothing by it."""
        return Batch(self._left(), self.image)

    def extend(self, other: Batch[MessageT]) -> bool:
        """Add what follows; return whether that was possible.

        Compiled, only messages of one term can follow each other in the log.
        """
        self._messages = self._left() + other._left()
        self.left = len(self._messages)
        return True

    def payloads(self) -> list[bytes]:
        """Return copies of the payloads that are left."""
        messages: list[Any] = self._left()
        return [message.data for message in messages]

    def places(self) -> list[tuple[int, int]] | None:
        """Return where the payloads that are left lie in the log; None if they are not there."""
        return None

    def columns(
        self,
        with_payloads: bool = True,  # noqa: ARG002, FBT001, FBT002 - of the twin
    ) -> tuple[int, bytearray, bytearray, bytearray, bytearray] | None:
        """Return the columns of what is left in the log; None if it is not there.

        Those are the number of messages; where each payload begins, and the last one ends;
        positions; reserved values; payloads, unless they are left out. Numbers have 64 bits.
        """
        return None

    def keep(self) -> None:
        """Copy what is still in the log, which is about to be freed; nothing to do in Python."""

    def _left(self) -> list[MessageT]:
        return self._messages[len(self._messages) - self.left :]


def open_batch(
    term: memoryview,
    words: memoryview,
    longs: memoryview,
    offset: int,
    end: int,
    begin_position: int,
    limit: int,
    image: MessageSource,
) -> tuple[Batch[Any], int]:
    """Return the unfragmented messages that are there, and the offset behind them.

    They stay in the log until they are handed out, so the reader's position must not pass them
    before: a publisher could overwrite them.

    Args:
        term: The term as bytes.
        words: The term as 32-bit words.
        longs: The term as 64-bit words.
        offset: Where to begin; start of a frame.
        end: Offset not to be passed.
        begin_position: Position of the term.
        limit: Most messages.
        image: The source of the messages.
    """
    found: list[Any] = []
    behind = read_whole(term, words, longs, offset, end, begin_position, limit, found, image)
    return Batch(found, image), behind


def columns_of(batch: Batch[Any], *, with_payloads: bool = True) -> Columns:
    """Return the columns of what is left of a batch, wherever it is; see `Batch.columns`."""
    columns = batch.columns(with_payloads)
    if columns is not None:
        return columns
    messages = batch.again().rest()
    bounds = array("q", [0])
    for message in messages:
        bounds.append(bounds[-1] + len(message.data))
    return (
        len(messages),
        bounds,
        array("q", [message.position for message in messages]),
        array("q", [message.reserved_value for message in messages]),
        b"".join([message.data for message in messages]),
    )


if not TYPE_CHECKING and WHY_PURE is None:
    from aeron_async._speedups.messages import Batch, Message, open_batch, read_whole
