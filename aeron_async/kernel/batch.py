"""Messages of one source that are there, handed out one at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from aeron_async.kernel.reading import read_whole

if TYPE_CHECKING:
    from aeron_async.kernel.message import MessageSource

__all__ = ["Batch", "open_batch"]

MessageT = TypeVar("MessageT")


class Batch(Generic[MessageT]):
    """Messages of one source, in their order.

    The compiled twin leaves in the log what has not been handed out yet, until `keep`.

    Args:
        messages: All of them; of one source.
        image: That source; None where there are no messages.

    Attributes:
        left: How many are still to be handed out.
        image: The source.
    """

    __slots__ = ("_messages", "image", "left")

    def __init__(self, messages: list[MessageT], image: MessageSource | None) -> None:
        self._messages = messages
        self.image: Any = image
        self.left = len(messages)

    def following(self) -> MessageT | None:
        """Return the next message; None where there is none any more."""
        left = self.left
        if left == 0:
            return None
        self.left = left - 1
        return self._messages[-left]

    def rest(self) -> list[MessageT]:
        """Return all that are still to be handed out, and be empty."""
        messages = self._messages[len(self._messages) - self.left :]
        self.left = 0
        return messages

    def keep(self) -> None:
        """Look at the log no more: it is about to go."""


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

    They stay in the log until they are handed out, and so no publisher may write there before: the
    position of who reads must not pass them.

    Args:
        term: The term as bytes; likewise the others as for `read_whole`.
        words: The term as 32-bit words.
        longs: The term as 64-bit words.
        offset: Where to begin; start of a frame.
        end: Offset not to be passed.
        begin_position: Of the term.
        limit: Most messages.
        image: The source they come from.
    """
    found: list[Any] = []
    behind = read_whole(term, words, longs, offset, end, begin_position, limit, found, image)
    return Batch(found, image), behind
