"""What one end of a link sends: at once where there is room, else in order as room comes.

Invariant: frames leave in the order in which they were given. At most `limit_bytes` wait, and
beside them one frame that `put` gave, and `CONTROL_BYTES` of frames that end or allow something: a
peer that never hears of an end would wait for ever, so more than those end the link.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final, final

from aeron_async.errors import AeronError, OfferTimeoutError
from aeron_async.rpc.short_ways import ShortOutbox

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.client.publication import OfferOutcome, PublicationBase
    from aeron_async.tasks import TaskOwner

__all__ = ["OUTBOX_BYTES", "Outbox"]

OUTBOX_BYTES: Final = 1 << 20
"""Most bytes that wait for room by default: what one slow peer may cost."""
CONTROL_BYTES: Final = 256 << 10


def offer_nothing(_frame: bytes, _reserved_value: int) -> int:
    """Send nothing, where there is no publication."""
    return -1


@final
class Outbox(ShortOutbox):
    """The frames that wait for room in a publication.

    Args:
        owner: Owns the task that sends what waits.
        on_stuck: Called with a reason when nothing can be sent any more.
        on_empty: Called when nothing waits any more.
        limit_bytes: Most bytes that wait.
        patience_s: How long one frame may wait for room, in seconds.

    Attributes:
        frames: Those that wait, each with its subject.
        offer_fast: Sends a frame at once, and returns a negative number if it did not: if no
            `frames` wait, `post` is the long way.
    """

    __slots__ = (
        "_is_closed",
        "_length",
        "_limit",
        "_on_empty",
        "_on_stuck",
        "_owner",
        "_patience_s",
        "_sender",
        "_try_offer",
        "_waiters",
        "publication",
    )

    def __init__(
        self,
        owner: TaskOwner,
        on_stuck: Callable[[str], object],
        on_empty: Callable[[], object] | None = None,
        *,
        limit_bytes: int = OUTBOX_BYTES,
        patience_s: float,
    ) -> None:
        self.publication: PublicationBase | None = None
        self._try_offer: Callable[[bytes], int | OfferOutcome] | None = None
        self.offer_fast = offer_nothing
        self._owner = owner
        self._on_stuck = on_stuck
        self._on_empty = on_empty
        self._limit = limit_bytes
        self._patience_s = patience_s
        # Each with what is over when it need not be sent any more.
        self.frames = deque()
        self._length = 0
        self._sender: asyncio.Task[None] | None = None
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self.frames)

    @property
    def length(self) -> int:
        """Return how many bytes wait."""
        return self._length

    def attach(self, publication: Any) -> None:
        """Send into this publication from now on, also what waits."""
        self.publication = publication
        self._try_offer = publication.try_offer
        self.offer_fast = publication._offer_fast  # noqa: SLF001 - the part of it that is compiled
        self._begin_sending()

    def post(self, frame: bytes, subject: Any = None) -> bool:
        """Send a frame, or let it wait; return False if too many bytes wait.

        Args:
            frame: Envelope and payload.
            subject: What the frame is about, with a property `is_moot`: the frame is not sent once
                that is true. None for a frame that must be sent.
        """
        if not self.frames and self._try_offer is not None:
            try:
                if self._try_offer(frame).__class__ is int:
                    return True
            except AeronError as error:
                self._end(f"{type(error).__name__}: {error}")
                return False
        if self._length + len(frame) > self._limit:
            return False
        return self._append(frame, subject)

    def control(self, frame: bytes) -> None:
        """Send a frame that must not get lost, or end the link if too many of those wait."""
        if self.post(frame) or self._is_closed:
            return
        if self._length + len(frame) > self._limit + CONTROL_BYTES:
            self._end(f"{self._length} bytes wait for a peer that takes none")
        else:
            self._append(frame, None)

    async def put(self, frame: bytes, subject: Any = None) -> bool:
        """Send a frame after waiting for a place; return False if nothing can be sent any more."""
        # A frame longer than all that may wait can wait alone.
        while not self._is_closed and self.frames and self._length + len(frame) > self._limit:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except BaseException:
                # The place that it was told of goes to the next.
                if waiter.done() and not waiter.cancelled():
                    self._wake_one()
                raise
        # It may wait although it is longer than all that may.
        is_given = self.post(frame, subject) or self._append(frame, subject)
        if not self.frames:
            # It was sent at once: nothing that is sent later would wake the next.
            self._wake_one()
        return is_given

    def _append(self, frame: bytes, subject: Any) -> bool:
        if self._is_closed:
            return False
        self.frames.append((frame, subject))
        self._length += len(frame)
        self._begin_sending()
        return True

    async def drain(self) -> None:
        """Wait until nothing waits, or nothing can be sent any more."""
        if self._sender is not None:
            await asyncio.wait((self._sender,))

    def close(self) -> list[tuple[bytes, Any]]:
        """Send nothing more; return the frames that were not sent, with their subjects."""
        self._is_closed = True
        self._try_offer = None
        self.offer_fast = offer_nothing
        unsent = list(self.frames)
        self.frames.clear()
        self._length = 0
        if self._sender is not None:
            self._sender.cancel()
        while self._waiters:
            self._wake_one()
        return unsent

    # The task that sends what waits; there is one only while something does.

    def _begin_sending(self) -> None:
        if self.frames and self._sender is None and self.publication is not None:
            self._sender = self._owner.start(self._send_waiting(), "outbox of calls")

    async def _send_waiting(self) -> None:
        publication, frames = self.publication, self.frames
        assert publication is not None
        try:
            while frames:
                frame, subject = frames[0]
                if subject is None or not subject.is_moot:
                    await publication.offer(frame, timeout=self._patience_s)
                if not frames:
                    return
                frames.popleft()
                self._length -= len(frame)
                self._wake_one()
        except OfferTimeoutError as error:
            self._end(f"nothing was taken for {self._patience_s:g} s: {error}")
        except AeronError as error:
            self._end(f"{type(error).__name__}: {error}")
        finally:
            self._sender = None
        if self._on_empty is not None and not self._is_closed:
            self._on_empty()

    def _wake_one(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _end(self, reason: str) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._try_offer = None
            self.offer_fast = offer_nothing
            while self._waiters:
                self._wake_one()
            self._on_stuck(reason)
