"""Offers of many messages in one step.

Differs: Aeron claims room for each message alone. Messages of a list are claimed together: in a log
to which other processes append, up to 64 KiB or an eighth of a term, and a publisher may pass its
limit by that much; in any other, up to 256 KiB or a quarter of a term, and no message begins beyond
the limit. A process that dies in the middle of a claim leaves the rest of it empty.

Invariant: the messages before `accepted` were appended, in order, and none after them; however the
offer ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol, final

from aeron_async.client.arrow import arrow_array, is_arrow, pieces_of
from aeron_async.errors import ConfigurationError, OfferTimeoutError
from aeron_async.protocol.arguments import check_timeout, shown

if TYPE_CHECKING:
    from collections.abc import Generator

    from aeron_async.client.arguments import Offered

__all__ = ["BatchOffer"]

ONE_MESSAGE: Final = (str, bytes, bytearray, memoryview)
"""Types that can be iterated over, but are not several messages."""
BYTES: Final = ("B", "b", "c")
"""Formats of buffers whose items are bytes, as in `struct`."""


def is_one(messages: Any) -> bool:
    """Return whether something is one message: of the types above, or another row of bytes."""
    if isinstance(messages, ONE_MESSAGE):
        return True
    try:
        view = memoryview(messages)
    except (TypeError, ValueError, BufferError):
        return False
    return view.ndim == 1 and view.format in BYTES


class Appending(Protocol):
    """The part of a publication that appends messages."""

    @property
    def position(self) -> int:
        """Return the position at which the next message would start, in bytes."""
        ...

    async def offer(self, data: Offered, *, timeout: float | None = None) -> int:
        """Append one message; return the position after it."""
        ...

    def _offer_list(self, messages: list[Offered], first: int, /) -> tuple[int, int]: ...

    def _offer_column(
        self, bounds: memoryview, data: memoryview, width: int, first: int, /
    ) -> tuple[int, int]: ...


@final
class BatchOffer:
    """Messages to append one after the other, which says how many were: `await BatchOffer(...)`.

    `Publication.offer_many` is the same without the object. Use this where a call may be cancelled,
    and what is left must be offered later.

    Args:
        publication: Where to append.
        messages: An iterable of messages; each is as for `Publication.offer`. A list of `bytes` is
            appended in pieces of up to 256 KiB, and so is an Arrow array of binaries or strings,
            which may be chunked. Of any other iterable, the next message is fetched when the one
            before was appended.
        timeout: Most seconds to wait for each message; None sets no limit.

    Attributes:
        accepted: How many messages were appended.
        position: Where the last of them ends, in bytes; before the first, that of the publication.

    Raises:
        ConfigurationError: `messages` is one message, or not iterable, or an Arrow array of another
            type or with nulls; or the timeout is not a number of seconds.
        ClosedError: The publication is closed.
    """

    __slots__ = ("_is_begun", "_messages", "_publication", "_timeout", "accepted", "position")

    def __init__(
        self,
        publication: Appending,
        messages: Iterable[Offered],
        *,
        timeout: float | None = None,
    ) -> None:
        self._timeout = check_timeout(timeout)
        if is_one(messages) or not isinstance(messages, Iterable):
            message = (
                f"messages={shown(messages)} must be messages one after the other, such as a list "
                "of bytes; one alone goes to offer()"
            )
            raise ConfigurationError(message)
        self._publication = publication
        self._messages = arrow_array(messages) if is_arrow(messages) else messages
        self._is_begun = False
        self.accepted: int = 0
        self.position: int = publication.position

    def __await__(self) -> Generator[Any, Any, int]:
        """Append the messages; return the position after the last."""
        if self._is_begun:
            message = "a batch is offered once: make another for what is left"
            raise RuntimeError(message)
        self._is_begun = True
        return self._run().__await__()

    async def _run(self) -> int:
        try:
            if type(self._messages) in (list, tuple):
                await self._offer_list(list(self._messages))
            elif is_arrow(self._messages):
                for bounds, data in pieces_of(self._messages):
                    await self._offer_column(bounds, data)
            else:
                for message in self._messages:
                    self.position = await self._publication.offer(message, timeout=self._timeout)
                    self.accepted += 1
        except OfferTimeoutError as error:
            error.accepted = self.accepted
            raise
        except Exception as error:
            error.add_note(f"at message {self.accepted}: those before it were appended")
            raise
        return self.position

    async def _offer_list(self, messages: list[Offered]) -> None:
        """Append as many messages at a time as can be; what needs more care goes alone."""
        publication = self._publication
        while self.accepted < len(messages):
            count, position = publication._offer_list(messages, self.accepted)  # noqa: SLF001 - this is a part of the publication
            if not count:
                data = messages[self.accepted]
                count, position = 1, await publication.offer(data, timeout=self._timeout)
            self.accepted += count
            self.position = position

    async def _offer_column(self, bounds: memoryview, data: memoryview) -> None:
        """Append messages that lie behind each other, as many at a time as can be."""
        publication = self._publication
        first, count = 0, len(bounds) - 1
        while first < count:
            done, position = publication._offer_column(bounds, data, bounds.itemsize, first)  # noqa: SLF001 - as above
            if not done:
                start, end = bounds[first], bounds[first + 1]
                if not 0 <= start <= end <= len(data):
                    text = (
                        f"message {first} of the array lies from {start} to {end} of {len(data)} "
                        "bytes: the array is damaged, as its validate(full=True) says"
                    )
                    raise ConfigurationError(text)
                message = data[start:end]
                done, position = 1, await publication.offer(message, timeout=self._timeout)
            first += done
            self.accepted += done
            self.position = position
