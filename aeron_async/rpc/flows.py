"""The two directions of a call that streams: what may be sent, and what was received.

The receiver of elements allows them in totals since the call began, elements and KiB, so that a
repeated or late CREDIT does no harm. What a peer may send is all that it can make us keep.

Invariant: an element beyond the credit, or out of sequence, ends the call. What waits for the
reader is at most a window, and one payload that came in pieces.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, final

from aeron_async.errors import BusyError, CallFailedError, ProtocolError, Status
from aeron_async.protocol.arguments import check_number
from aeron_async.protocol.units import INT64_MAX
from aeron_async.rpc.envelope import NUMBER_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "CHUNK",
    "INITIAL_ITEMS",
    "INITIAL_KIB",
    "KIB",
    "InFlow",
    "OutFlow",
    "check_window",
    "whole_of",
]

KIB: Final = 1_024
INITIAL_ITEMS: Final = 16
INITIAL_KIB: Final = 64
CHUNK: Final = 64 * KIB
"""Most bytes of a payload in one message; what is longer continues in the next."""
WINDOW_BYTES_LEAST: Final = 2 * CHUNK
"""Half a window is given back at a time, and a whole chunk must fit into the other half."""
WINDOW_BYTES_MOST: Final = 1 << 40
"""A CREDIT says four times as much before it begins again at 0."""


def check_window(items: int, length: int) -> tuple[int, int]:
    """Return `window_items` and `window_bytes`, which a CREDIT must be able to say.

    Raises:
        ConfigurationError: One is too small, or too great.
    """
    return (
        check_number(items, "window_items", minimum=1, maximum=INT64_MAX),
        check_number(length, "window_bytes", minimum=WINDOW_BYTES_LEAST, maximum=WINDOW_BYTES_MOST),
    )


@final
class OutFlow:
    """What this side may send."""

    __slots__ = (
        "_allowed_bytes",
        "_allowed_items",
        "_error",
        "_waiter",
        "sent_bytes",
        "sent_items",
    )

    def __init__(self) -> None:
        self.sent_items = self.sent_bytes = 0
        self._allowed_items = INITIAL_ITEMS
        self._allowed_bytes = INITIAL_KIB * KIB
        self._waiter: asyncio.Future[None] | None = None
        self._error: BaseException | None = None

    def on_credit(self, items: int, kib: int) -> None:
        """Allow more; what is less than before changes nothing.

        Args:
            items: Total of elements.
            kib: Total of KiB, of which a CREDIT has the lower 32 bits.
        """
        self._allowed_items = max(self._allowed_items, items)
        allowed_kib = self._allowed_bytes // KIB
        more_kib = (kib - allowed_kib) & NUMBER_MAX
        if kib > allowed_kib or more_kib <= NUMBER_MAX // 2:
            self._allowed_bytes = (allowed_kib + more_kib) * KIB
        self._wake()

    def close(self, error: BaseException) -> None:
        """Let whoever waits, and each later `reserve`, raise an error."""
        self._error = error
        self._wake()

    async def reserve(self, length: int) -> int:
        """Wait until an element of this length may be sent; return its sequence number.

        Only one task may wait.
        """
        while self._error is None and (
            self.sent_items >= self._allowed_items or self.sent_bytes + length > self._allowed_bytes
        ):
            if self._waiter is not None:
                message = "another task sends on this call; let one task send"
                raise BusyError(message)
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self._error is not None:
            raise self._error
        sequence = self.sent_items
        self.sent_items += 1
        self.sent_bytes += length
        return sequence

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


@final
class InFlow:
    """What this side has received, and still allows.

    Args:
        grant: Called with the totals that the peer may send: elements, and the low 32 bits of KiB.
        window_items: Most elements that wait here for the reader.
        window_bytes: Most bytes of them; at least `WINDOW_BYTES_LEAST`.
        payload_max: Most bytes of one element that came in pieces.
    """

    __slots__ = (
        "_allowed_items",
        "_allowed_kib",
        "_bytes",
        "_error",
        "_grant",
        "_is_ended",
        "_items",
        "_parts",
        "_parts_length",
        "_payload_max",
        "_queue",
        "_received",
        "_taken_bytes",
        "_taken_items",
        "_waiter",
        "_window_bytes",
        "_window_items",
    )

    def __init__(
        self,
        grant: Callable[[int, int], object],
        *,
        window_items: int,
        window_bytes: int,
        payload_max: int,
    ) -> None:
        self._grant = grant
        self._window_items = window_items
        self._window_bytes = window_bytes
        self._payload_max = payload_max
        self._allowed_items, self._allowed_kib = INITIAL_ITEMS, INITIAL_KIB
        self._items = self._bytes = 0
        self._taken_items = self._taken_bytes = 0
        # With what each counts towards the credit: its pieces, and its bytes.
        self._queue: deque[tuple[bytes, int, int]] = deque()
        self._parts: list[bytes] = []
        self._parts_length = 0
        self._is_ended = False
        self._error: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None

    def open(self) -> None:
        """Allow as much as the window is."""
        self._renew()

    def on_item(self, sequence: int, payload: bytes, *, is_continued: bool) -> None:
        """Take an element, or a piece of one.

        Raises:
            ProtocolError: It is out of sequence, beyond the credit, or too long.
        """
        if self._is_ended or sequence != self._items:
            raise ProtocolError(
                f"element {sequence} where {self._items} was expected"
                + (" none after the end" if self._is_ended else "")
            )
        if is_continued and not payload:
            message = "a piece of no bytes"
            raise ProtocolError(message)
        self._items += 1
        self._bytes += len(payload)
        if self._items > self._allowed_items or self._bytes > self._allowed_kib * KIB:
            message = (
                f"{self._items} elements and {self._bytes} bytes, where {self._allowed_items} and "
                f"{self._allowed_kib * KIB} are allowed"
            )
            raise ProtocolError(message)
        self._parts_length += len(payload)
        if self._parts_length > self._payload_max:
            message = f"a payload of more than {self._payload_max} bytes; raise payload_max"
            raise ProtocolError(message)
        if is_continued:
            self._parts.append(payload)
            # A reader cannot take a piece, so pieces must not use up the credit.
            self._renew()
            return
        items = len(self._parts) + 1
        if self._parts:
            self._parts.append(payload)
            payload = b"".join(self._parts)
            self._parts.clear()
        self._parts_length = 0
        self._queue.append((payload, items, len(payload)))
        self._wake()

    def on_end(self) -> None:
        """No more elements come."""
        self._is_ended = True
        self._wake()

    def close(self, error: BaseException) -> None:
        """Let the reader raise an error, after what has been received."""
        if self._error is None and not self._is_ended:
            self._error = error
        self._wake()

    def discard(self, error: BaseException) -> None:
        """Forget what has been received, and let the reader raise an error."""
        self._queue.clear()
        self._parts.clear()
        self._is_ended = False
        self._error = error
        self._wake()

    @property
    def has_parts(self) -> bool:
        """Return whether a payload has come in part."""
        return bool(self._parts)

    def take_now(self) -> bytes:
        """Return the payload that has just been received whole."""
        payload, _, _ = self._queue.pop()
        return payload

    def __aiter__(self) -> InFlow:
        return self

    async def __anext__(self) -> bytes:
        while not self._queue:
            if self._error is not None:
                raise self._error
            if self._is_ended:
                raise StopAsyncIteration
            if self._waiter is not None:
                message = "another task reads this call; let one task read"
                raise BusyError(message)
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        payload, items, length = self._queue.popleft()
        self._taken_items += items
        self._taken_bytes += length
        self._renew()
        return payload

    def _renew(self) -> None:
        # Half a window is given back at a time: a CREDIT for each element would cost as much.
        items = self._taken_items + self._window_items + len(self._parts)
        kib = (self._taken_bytes + self._window_bytes + self._parts_length) // KIB
        if self._is_ended or (
            items - self._allowed_items < self._window_items // 2
            and kib - self._allowed_kib < self._window_bytes // KIB // 2
        ):
            return
        self._allowed_items = max(items, self._allowed_items)
        self._allowed_kib = max(kib, self._allowed_kib)
        self._grant(self._allowed_items, self._allowed_kib & NUMBER_MAX)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


async def whole_of(inflow: InFlow, name: str) -> bytes:
    """Return a request that comes in pieces."""
    async for payload in inflow:
        return payload
    message = f"{name}: the request is empty"
    raise CallFailedError(message, status=Status.INVALID_ARGUMENT)
