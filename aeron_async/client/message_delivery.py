"""Messages given to a function as they arrive, with no task in between.

A task that waits for a message is woken by a future: the loop runs it in a later step, and it goes
through its coroutines before it reads. A delivery is woken in the place of that future. It reads
and calls the handler in the next step of the loop. If the messages came through a lane, it does so
in the callback of their socket, once the driver has done its part.

It never runs within the driver, whose state a handler may change: it may offer, and it may close
its subscription.
"""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from inspect import iscoroutine
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, final

from aeron_async._speedups import WHY_PURE
from aeron_async.errors import ClosedError, ConfigurationError
from aeron_async.protocol.arguments import awaited_by_nobody

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context

    from aeron_async.client.reading import SubscriptionEvents

__all__ = ["MESSAGES_PER_TURN", "Delivering", "MessageDelivery"]

Message = TypeVar("Message")
MESSAGES_PER_TURN: Final = 64
"""Most messages that a handler gets before the loop runs other callbacks."""


class Delivering:
    """The part of a delivery that is compiled: from the wake-up to the handler.

    Attributes:
        _is_due: Whether there may be more to deliver.
        _is_scheduled: Whether the loop will call it, which then delivers what is due.
        _is_calling: Whether it is calling the handler.
        _is_over: Whether it has ended.
        _unwatch: Ends watching; None if nothing is watched.
    """

    __slots__ = (
        "_context",
        "_events",
        "_hand_out_fast",
        "_handler",
        "_is_calling",
        "_is_due",
        "_is_over",
        "_is_scheduled",
        "_loop",
        "_subject",
        "_unwatch",
    )

    _context: Context
    _events: SubscriptionEvents | None
    _hand_out_fast: Callable[[Callable[[Any], bool], int], int]
    _handler: Callable[[Any], object]
    _is_calling: bool
    _is_due: bool
    _is_over: bool
    _is_scheduled: bool
    _loop: asyncio.AbstractEventLoop
    _subject: object
    _unwatch: Callable[[], object] | None

    def wake(self) -> None:
        """Deliver in the next step of the loop, unless `deliver_now` has done it by then.

        A lane that has said that it will call `deliver_now` needs no step of the loop.
        """
        self._is_due = True
        if not self._is_scheduled and (self._events is None or not self._events.is_expecting):
            self._schedule()

    def _schedule(self) -> None:
        self._is_scheduled = True
        self._loop.call_soon(self._deliver_scheduled, context=self._context)

    def deliver_now(self) -> None:
        """Deliver if it was woken, in a callback of the loop that does nothing else any more."""
        if not self._is_due:
            return
        if not self._is_calling:
            self._context.run(self._deliver)
        elif not self._is_scheduled:
            self._schedule()

    # In the place of a future.

    def done(self) -> bool:
        """Return whether the loop will call it anyhow."""
        return self._is_scheduled

    def set_result(self, _result: None) -> None:
        """Deliver: there may be more to read."""
        self.wake()

    def set_exception(self, _error: Exception) -> None:
        """Find out that the subscription is closed."""
        self.wake()

    # Delivering.

    def _watch_no_more(self) -> None:
        unwatch, self._unwatch = self._unwatch, None
        if unwatch is not None:
            unwatch()

    def _deliver_scheduled(self) -> None:
        self._is_scheduled = False
        self._deliver()

    def _deliver(self) -> None:
        if self._is_over or not self._is_due:
            return
        self._is_due = False
        self._is_calling = True
        self._watch_no_more()
        is_more = True
        try:
            left = self._hand_out_fast(self._call, MESSAGES_PER_TURN)
            if left < 0:
                left = self._hand_out(~left)
            is_more = not left
        except BaseException:
            # A handler has raised what stops the loop, which may be run again.
            if not self._is_over:
                self._put_back()
            raise
        finally:
            self._is_calling = False
            if not self._is_over:
                self._go_on(is_more=is_more)

    def _call(self, message: Any) -> bool:
        """Call the handler; return whether it is to get no more."""
        try:
            result = self._handler(message)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - it is reported, and ends no stream
            self._report(error)
            return self._is_over
        if result is not None:
            self._check_result(result)
        return self._is_over

    def _hand_out(self, left: int) -> int:
        """Call the handler with at most so many messages; return how many of them are left."""
        raise NotImplementedError

    def _put_back(self) -> None:
        """Put back what was read and not taken."""
        raise NotImplementedError

    def _go_on(self, *, is_more: bool) -> None:
        """Wait for the next message; end if there will be none.

        The compiled twin leaves that out where there is nothing to do: nothing is left to read of a
        subscription that is open, has an image, and is woken by its driver.
        """
        raise NotImplementedError

    def _report(self, error: BaseException) -> None:
        """Tell the loop what a handler has raised."""
        raise NotImplementedError

    def _check_result(self, result: object) -> None:
        """Refuse a coroutine, which nobody awaits."""
        raise NotImplementedError


if not TYPE_CHECKING and WHY_PURE is None:
    from aeron_async._speedups.deliveries import Delivering


@final
class MessageDelivery(Delivering, Generic[Message]):
    """Calls a handler with the messages of one subscription, in the context in which it was made.

    Args:
        subject: Whose handler it is, for errors.
        handler: Called with each message, whose position was taken.
        check_open: Raises `ClosedError` when the subscription is closed, with a cause if its driver
            has failed.
        take: Returns the next message and takes it, reading so many at most; None if there is none.
            With 0 it puts back what was read and not taken.
        hand_out_fast: Takes messages and calls a function with them; see `Reading._hand_out_fast`.
        watch: Returns whether there may be more already, and what ends watching for it; None where
            nothing is watched.
        on_end: Called once, when it ends.
        events: Says whether a lane will call `deliver_now`; None if none ever does.
    """

    __slots__ = ("_check_open", "_on_end", "_take", "_watch")

    def __init__(
        self,
        subject: object,
        handler: Callable[[Message], object],
        *,
        check_open: Callable[[], object],
        take: Callable[[int], Message | None],
        hand_out_fast: Callable[[Callable[[Message], bool], int], int],
        watch: Callable[[], tuple[bool, Callable[[], object] | None]],
        on_end: Callable[[MessageDelivery[Message]], object],
        events: SubscriptionEvents | None = None,
    ) -> None:
        self._subject = subject
        self._handler = handler
        self._check_open = check_open
        self._take = take
        self._hand_out_fast = hand_out_fast
        self._watch = watch
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self._events = events
        self._is_due = self._is_over = self._is_calling = self._is_scheduled = False
        self._unwatch = None

    def end(self) -> None:
        """Deliver no more; a second call does nothing."""
        if not self._is_over:
            self._is_over = True
            self._watch_no_more()
            self._on_end(self)

    def _hand_out(self, left: int) -> int:
        """Call the handler with at most so many messages; return how many of them are left."""
        while left and not self._is_over:
            message = self._take(left)
            if message is None:
                break
            left -= 1
            self._call(message)
        return left

    def _put_back(self) -> None:
        self._take(0)

    def _go_on(self, *, is_more: bool) -> None:
        """Wait for the next message; end if there will be none."""
        try:
            self._check_open()
        except ClosedError as error:
            self.end()
            if error.__cause__ is not None:
                self._report(error)
            return
        if not is_more:
            is_more, self._unwatch = self._watch()
        if is_more:
            self.wake()

    def _check_result(self, result: object) -> None:
        if iscoroutine(result):
            result.close()
            self._report(ConfigurationError(awaited_by_nobody("handler")))

    def _report(self, error: BaseException) -> None:
        message = f"the message handler of {self._subject!r} failed"
        self._loop.call_exception_handler({"message": message, "exception": error})
