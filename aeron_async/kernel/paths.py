"""What a client does for every message: one offer, one step of an iteration, and their waking.

Here is what can be done at once; the publication, the subscription and the image that inherit from
these know the rest.
"""

from __future__ import annotations

import os
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, Protocol, SupportsFloat, TypeVar, cast

from aeron_async.errors import ClosedError, ConfigurationError
from aeron_async.kernel.batch import Batch
from aeron_async.protocol.arguments import shown

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine

    from aeron_async.kernel.message import Message


__all__ = [
    "NOTHING",
    "Cell",
    "Doorbell",
    "HomeLoop",
    "Offering",
    "Reading",
    "Taking",
    "check_timeout",
    "inheriting",
]

Kind = TypeVar("Kind")


LONGEST_TIMEOUT_S: Final = 1e9
"""More seconds than that, 31 years, are for ever: event loops count no further."""


def check_timeout(timeout: object) -> float | None:
    """Return a timeout in seconds; None for one that is endless.

    Raises:
        ConfigurationError: It is negative, or not a number.
    """
    if timeout is None:
        return None
    try:
        is_number = isinstance(timeout, SupportsFloat) and not isinstance(timeout, bool)
        seconds = float(cast("float", timeout)) if is_number else -1.0
    except (ValueError, OverflowError):
        seconds = -1.0
    if not seconds >= 0:
        message = f"timeout={shown(timeout)} must be 0 or more seconds, or None to wait for ever"
        raise ConfigurationError(message)
    return None if seconds > LONGEST_TIMEOUT_S else seconds


class _View(Protocol):
    def __getitem__(self, index: int, /) -> int: ...

    def __setitem__(self, index: int, value: int, /) -> None: ...


class _Closed:
    """Stands in for a word that was given back, so that an open cell need not ask each time."""

    __slots__ = ("_why",)

    def __init__(self, why: str) -> None:
        self._why = why

    def __getitem__(self, index: int, /) -> int:
        raise ClosedError(self._why)

    def __setitem__(self, index: int, value: int, /) -> None:
        raise ClosedError(self._why)


class Cell:
    """The one 64-bit word of a counter, for as long as the counter is open."""

    __slots__ = ("_view",)

    def __init__(self, view: memoryview) -> None:
        self._view: _View = view

    def __getitem__(self, index: int) -> int:
        return self._view[index]

    def __setitem__(self, index: int, value: int) -> None:
        self._view[index] = value

    def release(self, why: str) -> None:
        """Touch the word no more: by now it may be another's.

        Args:
            why: What every further access says in its `ClosedError`.
        """
        self._view = _Closed(why)


class Doorbell:
    """Tells an agent once that there is something to look at, until it has looked.

    Attributes:
        is_rung: Set by ringing; whoever looks clears it first.
        answer: What ringing calls; None while there is nobody to be told.
    """

    __slots__ = ("answer", "is_rung")

    def __init__(self) -> None:
        self.is_rung = False
        self.answer: Callable[[], object] | None = None

    def ring(self) -> None:
        """Let the agent look, unless it is going to anyhow."""
        if not self.is_rung:
            self.is_rung = True
            if self.answer is not None:
                self.answer()


class Forks:
    """How often this process was forked off from one that had imported this.

    A counter, for asking the system for the process id is slow.
    """

    count = 0

    @classmethod
    def note(cls) -> None:
        """Count one: called in the child."""
        cls.count += 1


os.register_at_fork(after_in_child=Forks.note)


class HomeLoop:
    """The event loop that an object belongs to, told from others for every message.

    In one thread there runs one loop at a time; so it is the loop that runs here if this is its
    thread, and it runs.
    """

    __slots__ = ("_forks", "_is_running", "_thread_id", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._is_running = loop.is_running
        self._thread_id = get_ident()
        self._forks = Forks.count

    def is_here(self) -> bool:
        """Return whether the loop runs here: in this thread of this process."""
        return get_ident() == self._thread_id and Forks.count == self._forks and self._is_running()


class Offering:
    """Where messages are offered.

    Attributes:
        _turn_budget: Offers that may be made before the loop's turn is looked at again.
        _is_closed: Whether the publication is closed.
        _home: The one event loop that may offer.
    """

    _turn_budget: int = 0
    _is_closed: bool
    _home: HomeLoop

    def _attach(self, writer: Any, limit: Any, doorbell: Doorbell) -> None:
        """Take what a compiled offer needs: where it writes, up to where, and whom it wakes."""

    def _detach(self) -> None:
        """Touch none of it any more."""

    def _offer(self, data: Any, reserved_value: int) -> int:
        """Append if that can be done now; return the position, or a negative `AppendResult`."""
        raise NotImplementedError

    def _offer_waiting(
        self, data: Any, reserved_value: int, timeout: float | None
    ) -> Coroutine[Any, Any, int]:
        """Offer whatever it takes."""
        raise NotImplementedError

    async def offer(
        self,
        data: Any,
        *,
        reserved_value: int = 0,
        timeout: float | None = None,
    ) -> int:
        """Append one message, waiting for a subscriber and for room; return its position.

        Offers that wait are served in the order in which they came.

        Args:
            data: The message, up to `max_message_length` bytes: bytes, another buffer, or a list.
            reserved_value: 64 bits of the application's own beside the message.
            timeout: Seconds to wait at most; None waits as long as it takes.

        Raises:
            OfferTimeoutError: The timeout passed; nothing was appended.
            ConfigurationError: The timeout is not a number of seconds, room or not.
            ClosedError: The publication was closed, before or meanwhile.
            NotConnectedError: No subscriber is there, and the publication was told not to wait.
            MessageTooLongError: The message is longer than the log allows.
            MaxPositionExceededError: The stream is at its end.
        """
        if timeout is not None:
            timeout = check_timeout(timeout)
        if self._turn_budget > 0:
            self._turn_budget -= 1
            position = self._offer(data, reserved_value)
            if position >= 0:
                return position
        return await self._offer_waiting(data, reserved_value, timeout)


class Taking:
    """How far the application has taken a source.

    Attributes:
        _position: Up to where, in bytes.
        _trigger: Beyond this position the driver wants to know at once, in bytes.
        _is_closed: Whether the source is over, and its position no longer ours to move.
    """

    _position: int
    _trigger: int
    _is_closed: bool

    def _attach(self, cell: Any, doorbell: Doorbell) -> None:
        """Take where the position is shown, and whom to wake."""
        self._cell = cell
        self._doorbell = doorbell

    def take(self, position: int) -> None:
        """Move the position: the application has taken everything before it."""
        if position <= self._position or self._is_closed:
            return
        self._position = position
        self._cell[0] = position
        if position > self._trigger:
            self._doorbell.ring()
            if not self._doorbell.is_rung:
                # Answered at once: the driver has said what was to be said, and waits for the next.
                self.move_trigger()

    def move_trigger(self) -> None:
        """Ask where the driver wants to hear of progress next."""
        raise NotImplementedError


NOTHING: Final[Batch[Any]] = Batch([], None)
"""Where nothing has been read."""


class Reading:
    """Where messages are read.

    Attributes:
        _batch: Messages that have been read, and not all been delivered.
        _taken: The one delivered last; taken when the next is asked for.
        _turn_budget: Messages that may be delivered before the loop's turn is looked at again;
            negative when it is due.
        _is_closed: Whether the subscription is closed.
    """

    _batch: Batch[Any] = NOTHING
    _taken: Message | None = None
    _turn_budget: int = 0
    _is_closed: bool

    def _anext_waiting(self) -> Coroutine[Any, Any, Message]:
        """Return the next message, whatever it takes."""
        raise NotImplementedError

    async def __anext__(self) -> Message:
        """Return the next message, waiting for it; the iteration ends when this side closes.

        Raises:
            BusyError: Another task consumes the subscription.
            ClosedError: The driver failed.
            WrongLoopError: It belongs to another event loop.
        """
        if not self._batch.left or self._turn_budget <= 0 or self._is_closed:
            return await self._anext_waiting()
        taken = self._taken
        if taken is not None:
            image, position = taken.image, taken.position
            image.take(position)
            if position > image._trigger:  # noqa: SLF001 - twins of one module
                # The driver has something to say, and cannot before the loop has had its turn.
                self._turn_budget = 0
        message: Message | None = self._batch.following()
        if message is None:
            # Taking rang a bell, and whoever answered it closed the subscription.
            return await self._anext_waiting()
        self._turn_budget -= 1
        self._taken = message
        return message


def inheriting(kind: type[Kind]) -> type[Kind]:
    """Return a class that inherits from `Reading`; the compiled twin saves a call by name."""
    return kind
