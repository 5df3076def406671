"""What is called for each message: the compiled parts of a subscription and of an image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs

from aeron_async._speedups import WHY_PURE
from aeron_async.logbuffer.message import Batch, Message

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aeron_async.driver.commands import ImageReady
    from aeron_async.logbuffer.wake_flag import WakeFlag

__all__ = ["NOTHING", "Reading", "SubscriptionEvents", "Taking", "inheriting", "message_counts"]

Kind = TypeVar("Kind")


NOTHING: Final[Batch[Any]] = Batch([], None)
"""The empty batch: nothing was read."""


@attrs.define(eq=False)
class SubscriptionEvents:
    """The `SubscriptionListener` of one subscription, which the driver calls."""

    on_available_image: Callable[[ImageReady], None]
    on_image_progress: Callable[[], None]
    on_unavailable_image: Callable[..., None]
    on_unanswered: Callable[[str | None], None]
    on_lapsed: Callable[[], None]
    reading: Reading
    deliver: Callable[[], object] | None = None
    gone_count: int = 0
    is_expecting: bool = False
    is_polling: bool = False
    written_channel: str | None = None

    def count_messages(self, readings: list[Reading]) -> list[int]:
        """Return how many messages each of some subscriptions has handed out."""
        return message_counts(readings)


class Reading:
    """The part of a subscription that is compiled: `__anext__`, and what it needs.

    Attributes:
        _batch: Messages that were read, of which some may not be delivered yet.
        _taken: The message delivered last; it is taken when the next one is asked for.
        _calls_until_check: Messages that may be delivered before the turn is checked again;
            negative if the loop must run other tasks now.
        _is_closed: Whether the subscription is closed.
        _lent: A list that was delivered and is not taken yet, or None.
        _images: The images that are announced.
    """

    _batch: Batch[Any] = NOTHING
    _taken: Message | None = None
    _calls_until_check: int = 0
    _is_closed: bool
    _turn: list[Any]
    _lent: Any
    _images: dict[int, Any]
    _listener: Any

    def _begin_wait(self) -> Any:
        """Begin to wait, for the compiled twin; return a future, or None to leave all of it.

        Then `_anext_waiting` does all that there is to do. It also follows a wait that ends without
        a message.
        """

    def _end_wait(self, _waiter: Any) -> None:
        """End a wait that `_begin_wait` has begun, however it ended."""

    def _hand_out_fast(self, _call: Callable[[Any], bool], left: int) -> int:
        """Take messages and call a function with each until it returns True, for the compiled twin.

        Args:
            _call: Called with each message.
            left: Most messages.

        Returns:
            How many of them are left if there are no more messages; inverted if the caller must
            look further, which here is always.
        """
        return ~left

    def _read_list_fast(self, _limit: int, _max_bytes: int) -> Batch[Any] | None:
        """Return messages that have arrived, in the plain case; None leaves it to `_next_batch`.

        Here that is always so.

        Args:
            _limit: Most messages.
            _max_bytes: Most bytes of the log.
        """
        return None

    def _count_list(self, count: int, _length: int) -> None:
        """Count a list that is delivered as messages towards the next check of the turn.

        Args:
            count: How many messages it has; compiled, those of a list cost less than others.
            _length: Their length in the log, in bytes.
        """
        self._calls_until_check = max(0, self._calls_until_check - count)

    def _anext_waiting(self) -> Coroutine[Any, Any, Message]:
        """Return the next message in all other cases: yield to the loop, read more, wait."""
        raise NotImplementedError

    async def __anext__(self) -> Message:
        """Wait for the next message and return it; iteration ends when the subscription closes.

        Raises:
            BusyError: Another task consumes the subscription.
            ClosedError: The driver failed.
            WrongLoopError: The subscription belongs to another event loop.
        """
        if not self._batch.left or self._calls_until_check <= 0 or self._is_closed:
            return await self._anext_waiting()
        taken = self._taken
        if taken is not None:
            image, position = taken.image, taken.position
            image._take(position)
            if position > image._trigger:  # noqa: SLF001 - twins of one module
                # The driver has work to do, and can do it only when the loop runs other tasks.
                self._calls_until_check = 0
        message: Message | None = self._batch.following()
        if message is None:
            # Taking set the wake flag, and what the driver then did closed the subscription.
            return await self._anext_waiting()
        self._calls_until_check -= 1
        self._taken = message
        return message


class Taking:
    """The part of an image that is compiled: the position up to which the application has taken.

    Attributes:
        _position: The position, in bytes.
        _trigger: Position beyond which the driver must be notified at once, in bytes.
        _is_closed: Whether the image is closed; its position counter must not be written then.
        _message_count: Messages that were read, those included that are not taken yet.
    """

    _message_count: int = 0
    _position: int
    _trigger: int
    _is_closed: bool

    def _attach(self, cell: Any, wake_flag: WakeFlag) -> None:
        """Set the word of the position counter, and the flag that wakes the driver."""
        self._cell = cell
        self._wake_flag = wake_flag

    def _take(self, position: int) -> None:
        """Move the position: the application has taken everything before it."""
        if position <= self._position or self._is_closed:
            return
        self._position = position
        self._cell[0] = position
        if position > self._trigger:
            self._wake_flag.set()
            if not self._wake_flag.is_set:
                # The driver has answered at once, and has moved its trigger.
                self._move_trigger()

    def _move_trigger(self) -> None:
        """Read from the driver the position beyond which to notify it next."""
        raise NotImplementedError

    def _read_fast(self, _limit: int, _max_bytes: int) -> Batch[Any] | None:
        """Return what `Image._read` does in the plain case; None leaves it to that, here always.

        The batch is empty if nothing can be read.
        """
        return None


def message_counts(readings: list[Reading]) -> list[int]:
    """Return how many messages each of some subscriptions has handed out, images gone included."""
    return [
        reading._listener.gone_count  # noqa: SLF001 - parts of one reader
        - reading._batch.left  # noqa: SLF001 - see above
        # It may be put back: it counts when it is taken.
        - (0 if reading._lent is None else len(reading._lent))  # noqa: SLF001 - see above
        + sum(each._message_count for each in reading._images.values())  # noqa: SLF001 - see above
        for reading in readings
    ]


def inheriting(kind: type[Kind]) -> type[Kind]:
    """Return a subclass of `Reading` unchanged; the compiled twin saves it a call by name."""
    return kind


if not TYPE_CHECKING and WHY_PURE is None:
    from aeron_async._speedups.paths import NOTHING, Reading, Taking, inheriting
    from aeron_async._speedups.walks import message_counts
