"""The queue of a driver's commands, which its conductor executes one at a time.

Invariant: a command starts only when the one before it has ended, so nothing else changes while a
socket is being opened. If the caller of a command no longer waits for its result, the command is
undone at once.

Source: Aeron `ClientCommandAdapter`, `DriverConductor`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio
import attrs

from aeron_async.errors import AeronError, ClosedError
from aeron_async.tasks import TaskOwner

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Container, Coroutine, Iterable


__all__ = ["CommandQueue", "undo_nothing"]

T = TypeVar("T")


def undo_nothing(result: None) -> None:
    """Keep a removal although its caller no longer waits: there is nothing to undo."""


@attrs.frozen(eq=False)
class Command:
    """One command: its client, its work, its result, and how to undo it if no caller waits."""

    client_id: int
    execute: Callable[[], Awaitable[Any]]
    undo: Callable[[Any], None]
    result: asyncio.Future[Any]


LOOK_UP_END_S: Final = 1.0
"""How long a cancelled look-up may clean up before closing goes on without it."""
FOREIGN_LOOK_UPS_MAX: Final = 3
"""Look-ups at once for clients of other processes; the others wait for one of them to end.

One whose client has gone counts until it ends: the thread of the system's resolver cannot be
stopped, uvloop has four for all names, and asyncio has four more than there are processors. The C
driver has one.
"""
FOREIGN_LOOK_UP_S: Final = 60.0
"""After this time a look-up counts no more; the system's resolver has usually ended by then."""


class CommandQueue:
    """The commands that clients of one driver wait for.

    Args:
        wake: Called when there is a command to execute.
        clients: The ids of all connected clients.
        on_look_up: Called with the task that begins to wait for a name; returns whether a client of
            another process has asked. If it raises, nothing is looked up.
    """

    def __init__(
        self,
        wake: Callable[[], None],
        clients: Container[int],
        on_look_up: Callable[[asyncio.Task[Any] | None], bool],
    ) -> None:
        self._wake = wake
        self._on_look_up = on_look_up
        self._clients = clients
        self._commands: deque[Command] = deque()
        # One whose caller has gone fails for nobody.
        self._lookups = TaskOwner(on_failed=lambda _: None)
        self._foreign_places = asyncio.Semaphore(FOREIGN_LOOK_UPS_MAX)
        # Those that count, and when they do no more.
        self._foreign_lookups: dict[asyncio.Task[Any], asyncio.TimerHandle] = {}
        # The tasks of clients of other processes that wait for a name now.
        self._foreign_callers: set[asyncio.Task[Any]] = set()
        self._is_closed = False
        self._error: Exception | None = None

    def check_open(self) -> None:
        """Refuse a command if the driver is closed.

        Raises:
            ClosedError: The driver is closed.
        """
        if self._is_closed:
            message = "the media driver is closed"
            raise ClosedError(message) from self._error

    def stop(self, error: Exception | None) -> None:
        """Accept no more commands; `error` is the reason, if there is one."""
        self._is_closed = True
        self._error = error

    def close(self) -> None:
        """Cancel the name look-ups, and fail every command that was not executed."""
        self._lookups.cancel()
        while self._commands:
            command = self._commands.popleft()
            if not command.result.done():
                closed = ClosedError("the media driver was closed")
                closed.__cause__ = self._error
                command.result.set_exception(closed)

    def __len__(self) -> int:
        return len(self._commands)

    async def carry_out(self) -> None:
        """Execute the commands in order.

        Differs: Aeron's C driver makes a log in another thread, and executes others meanwhile. Here
        all of them wait for a slow disk, which zeroes a log with `sparse=false`.
        """
        while self._commands:
            await self._carry_out(self._commands.popleft())

    async def look_up(self, resolving: Coroutine[Any, Any, T]) -> T:
        """Resolve names, which may take long; closing the driver ends it."""
        caller = asyncio.current_task()
        try:
            is_foreign = self._on_look_up(caller)
        except BaseException:
            resolving.close()
            raise
        if is_foreign and caller is not None:
            return await self._look_up_for_another(resolving, caller)
        # In a task of its own, so that closing the driver cancels it once, and without the caller.
        # A cancel scope would cancel it again in every turn, also while it cleans up.
        return await self._result(self._lookups.start(resolving, "aeron-look-up"), caller)

    def give_up(self, callers: Iterable[asyncio.Task[Any]]) -> None:
        """Cancel those of these tasks, of a client of another process, that wait for a name."""
        for caller in tuple(callers):
            if caller in self._foreign_callers:
                caller.cancel()

    async def _look_up_for_another(
        self, resolving: Coroutine[Any, Any, T], caller: asyncio.Task[Any]
    ) -> T:
        """Resolve names for a client of another process, of whose look-ups a few run at once."""
        self._foreign_callers.add(caller)
        try:
            try:
                await self._foreign_places.acquire()
                if self._is_closed:
                    self._foreign_places.release()
                    self.check_open()
            except BaseException:
                resolving.close()
                raise
            lookup = self._lookups.start(resolving, "aeron-look-up")
            self._foreign_lookups[lookup] = asyncio.get_running_loop().call_later(
                FOREIGN_LOOK_UP_S, self._free_place, lookup
            )
            lookup.add_done_callback(self._free_place)
            # If the caller is cancelled the look-up goes on, and its thread counts.
            await asyncio.wait((lookup,))
            return await self._result(lookup, caller)
        finally:
            self._foreign_callers.remove(caller)

    def _free_place(self, lookup: asyncio.Task[Any]) -> None:
        """Let the next look-up begin, as this one has ended or takes too long."""
        timer = self._foreign_lookups.pop(lookup, None)
        if timer is not None:
            timer.cancel()
            self._foreign_places.release()

    async def _result(self, lookup: asyncio.Task[T], caller: asyncio.Task[Any] | None) -> T:
        """Return what was looked up.

        Raises:
            ClosedError: The driver was closed in the meantime.
        """
        try:
            return await lookup
        except asyncio.CancelledError:
            if self._is_closed and caller is not None and not caller.cancelling():
                message = "the media driver was closed while a name was looked up"
                raise ClosedError(message) from self._error
            raise

    async def wait_closed(self) -> None:
        """Wait until all look-ups have ended, for a second at most; called after `close`."""
        with anyio.move_on_after(LOOK_UP_END_S):
            await self._lookups.wait()

    async def submit(
        self, client_id: int, execute: Callable[[], Awaitable[T]], undo: Callable[[T], None]
    ) -> T:
        """Queue a command, wait for its execution, and return its result.

        Args:
            client_id: The client; once it has gone, nothing is done for it.
            execute: Executes the command.
            undo: Undoes it, if the caller no longer waits for the result.

        Raises:
            ClosedError: The driver or the client was closed, before or during the call.
        """
        self.check_open()
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._commands.append(Command(client_id, execute, undo, result))
        self._wake()
        try:
            return await result
        except asyncio.CancelledError:
            # Executed, but the caller was cancelled before it could take the result.
            if result.done() and not result.cancelled() and result.exception() is None:
                undo(result.result())
            raise

    async def _carry_out(self, command: Command) -> None:
        if command.result.done():
            return
        try:
            self._check_client(command.client_id)
            value = await command.execute()
        except Exception as error:  # noqa: BLE001 - its caller gets it; other clients share this driver
            if isinstance(error, AeronError):
                # A refusal says itself what to do: ten frames of the driver would hide that.
                error.with_traceback(None)
            if not command.result.done():
                command.result.set_exception(error)
            return
        except asyncio.CancelledError:
            # The driver ends: no caller may wait for an answer without end.
            if not command.result.done():
                command.result.set_exception(
                    ClosedError("the media driver was closed before the command was executed")
                )
            raise
        if command.client_id not in self._clients:
            # The client was closed while the command ran: undo what it has asked for.
            command.undo(value)
            if not command.result.done():
                command.result.set_exception(
                    ClosedError("the client was closed before the command was executed")
                )
        elif command.result.done():
            command.undo(value)
        else:
            command.result.set_result(value)

    def _check_client(self, client_id: int) -> None:
        if client_id not in self._clients:
            message = "the client was closed while the request was under way"
            raise ClosedError(message)
