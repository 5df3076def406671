"""What clients have asked of a driver, carried out one after the other.

Nothing else moves while a socket is being opened. A request whose client no longer waits is undone
at once.

Source: Aeron `ClientCommandAdapter`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from aeron_async.errors import AeronError, ClosedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Container, Coroutine

__all__ = ["CommandQueue"]

T = TypeVar("T")


@attrs.frozen(eq=False)
class Command:
    """One request: what to do, who waits for it, and how to undo it if nobody does."""

    client_id: int
    execute: Callable[[], Awaitable[Any]]
    undo: Callable[[Any], None]
    result: asyncio.Future[Any]


class CommandQueue:
    """The requests of one driver.

    Args:
        wake: Called when there is one to carry out.
        clients: The ids of the clients there are.
    """

    def __init__(self, wake: Callable[[], None], clients: Container[int]) -> None:
        self._wake = wake
        self._clients = clients
        self._commands: deque[Command] = deque()
        # A dictionary for its order: closing must be the same every time.
        self._lookups: dict[asyncio.Future[Any], None] = {}
        self._is_closed = False
        self._error: Exception | None = None

    def check_open(self) -> None:
        """Refuse what is asked of a driver that is closed.

        Raises:
            ClosedError: It is.
        """
        if self._is_closed:
            message = "the media driver is closed"
            raise ClosedError(message) from self._error

    def stop(self, error: Exception | None) -> None:
        """Take no more requests, because of an error or without one."""
        self._is_closed = True
        self._error = error

    def close(self) -> None:
        """Answer every request that was not carried out: it will not be."""
        for lookup in self._lookups:
            lookup.cancel()
        while self._commands:
            command = self._commands.popleft()
            if not command.result.done():
                closed = ClosedError("the media driver was closed")
                closed.__cause__ = self._error
                command.result.set_exception(closed)

    async def carry_out(self) -> None:
        """Carry out what was asked for, in order."""
        while self._commands:
            await self._carry_out(self._commands.popleft())

    async def look_up(self, resolving: Coroutine[Any, Any, T]) -> T:
        """Resolve names, unless the driver closes first: it may take long."""
        # A task of its own, awaited right here, so that closing can end it and not the caller.
        lookup = asyncio.ensure_future(resolving)
        self._lookups[lookup] = None
        try:
            return await lookup
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if self._is_closed and caller is not None and not caller.cancelling():
                message = "the media driver was closed while a name was looked up"
                raise ClosedError(message) from self._error
            raise
        finally:
            self._lookups.pop(lookup, None)

    async def submit(
        self, client_id: int, execute: Callable[[], Awaitable[T]], undo: Callable[[T], None]
    ) -> T:
        """Let something be carried out, and return what comes of it.

        Args:
            client_id: Who asks; once it has gone, nothing is done for it any more.
            execute: Does it.
            undo: Takes the result back, if nobody waits for it by then.

        Raises:
            ClosedError: The driver or the client was closed, before or meanwhile.
        """
        self.check_open()
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._commands.append(Command(client_id, execute, undo, result))
        self._wake()
        try:
            return await result
        except asyncio.CancelledError:
            # Carried out, but the caller was cancelled before it could take the result.
            if result.done() and not result.cancelled() and result.exception() is None:
                undo(result.result())
            raise

    async def _carry_out(self, command: Command) -> None:
        if command.result.done():
            return
        try:
            self._check_client(command.client_id)
            value = await command.execute()
        except Exception as error:  # noqa: BLE001 - whoever asked gets it; others share this driver
            if isinstance(error, AeronError):
                # A refusal says itself what to do: ten frames of the driver would bury that.
                error.with_traceback(None)
            if not command.result.done():
                command.result.set_exception(error)
            return
        except asyncio.CancelledError:
            # The end of the driver: nobody may wait for an answer for ever.
            if not command.result.done():
                command.result.set_exception(ClosedError("the media driver was closed meanwhile"))
            raise
        if command.client_id not in self._clients:
            # Closed while the socket was being opened: what it asked for came after its end.
            command.undo(value)
            if not command.result.done():
                command.result.set_exception(ClosedError("the client was closed meanwhile"))
        elif command.result.done():
            command.undo(value)
        else:
            command.result.set_result(value)

    def _check_client(self, client_id: int) -> None:
        if client_id not in self._clients:
            message = "the client was closed while the request was under way"
            raise ClosedError(message)
