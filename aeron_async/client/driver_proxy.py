"""The requests of one client to a driver in another process, and what the driver says.

A request is a command in the driver's ring buffer; its answer comes by the broadcast buffer, where
every client hears everything. What answers no request of this client is an event.

The broadcast buffer is watched while a request waits, and while a stream needs events at once: see
`hold`. At other times it is read now and then, and a message that was written over is no loss.

Invariant: each request ends, with its answer, with an error, or with the client. What a request has
added is removed again if its caller does not get the answer.

Source: Aeron `DriverProxy`, `DriverEventsAdapter`, `ClientConductor.awaitResponse`.
"""

from __future__ import annotations

import asyncio
import os
import warnings
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar
from weakref import finalize

from aeron_async.concurrent.broadcast import BroadcastReceiver
from aeron_async.concurrent.ring_buffer import ManyToOneRingBuffer
from aeron_async.errors import (
    AeronError,
    ClosedError,
    DriverError,
    DriverTimeoutError,
    ErrorCode,
    ProtocolError,
    RegistrationError,
    WrongLoopError,
)
from aeron_async.protocol.control_protocol import (
    ClientClose,
    ClientCommand,
    ControlMessage,
    CounterReady,
    ErrorResponse,
    NextAvailableSessionId,
    OperationSucceeded,
    PublicationBuffersReady,
    RemoveCounter,
    RemovePublication,
    RemoveReceiveDestination,
    RemoveSubscription,
    SubscriptionReadyResponse,
    response_of,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.aeron_directory import AeronDirectory
    from aeron_async.watcher import WatchedWord, Watcher

__all__ = ["DriverProxy"]

T = TypeVar("T", bound=ControlMessage)
Removal: TypeAlias = RemovePublication | RemoveSubscription | RemoveCounter

RING_FULL_INTERVAL_S: Final = 0.001
RING_FULL_RETRIES: Final = 10
LATE_ANSWERS_MAX: Final = 1_024
"""Requests that may wait for answers; beyond them, what nobody waits for is not taken back."""
UNWRITTEN_MAX: Final = 65_536
"""Most removals that wait for room in the ring."""
CODES: Final = frozenset(ErrorCode)
ANSWERS_PER_TURN: Final = 1_000
"""Messages of the driver taken in one turn of the loop; the rest come in the next."""


class DriverProxy:
    """The requests of one client.

    Args:
        directory: The driver's directory, open for writing.
        watcher: Looks at the answers.
        timeout_ms: How long to wait for an answer.
        on_event: Called with each message that answers no request.
        on_missed: Called if messages were missed at a time when this client needed none.
        on_failed: Called if the driver's messages cannot be read; no more are read then.
        on_written: Called when a command was written: wakes the driver.

    Attributes:
        client_id: The client; unique for the life of the driver.
        is_closed: Whether the client has left the driver.
    """

    def __init__(
        self,
        directory: AeronDirectory,
        watcher: Watcher,
        *,
        timeout_ms: int,
        on_event: Callable[[ControlMessage], object],
        on_missed: Callable[[], object],
        on_failed: Callable[[Exception], object],
        on_written: Callable[[], object],
    ) -> None:
        self._on_written = on_written
        layout = directory.layout
        self._path = directory.path
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        self._timeout_ms = timeout_ms
        self._on_event = on_event
        self._on_missed = on_missed
        self._on_failed = on_failed
        self._ring = ManyToOneRingBuffer(directory.atomic_buffer(layout.to_driver_buffer))
        self._answers = BroadcastReceiver(directory.atomic_buffer(layout.to_clients_buffer))
        self._waiting: dict[int, asyncio.Future[ControlMessage]] = {}
        # Removals only, at most one for each command that was written.
        self._unwritten: deque[ClientCommand] = deque()
        self.is_closed: bool = False
        self._lost: Exception | None = None
        self.client_id: Final = self._ring.next_correlation_id()
        self._word: WatchedWord = watcher.add(
            directory.memory,
            layout.to_clients_buffer.offset + self._answers.tail_offset,
            64,
            self._on_answers,
            is_command=True,
        )
        # Nothing of it refers to this object, which may be collected with its event loop.
        self._leaving = finalize(
            self,
            leave,
            self._ring,
            self.client_id,
            on_written,
            f"unclosed client {self.client_id} of {self._path}: not closed by `await aclose()`",
            self._pid,
        )
        self._hold_count = 0
        # Whether messages may have come that were not watched for, and lapped before.
        self._is_behind = True
        self._lapped_count = 0

    # Requests.

    def next_id(self) -> int:
        """Return a correlation id that no other request of any client has.

        Raises:
            ClosedError: The client has left its driver.
            WrongLoopError: Called from another event loop or process.
        """
        self.check_open()
        return self._ring.next_correlation_id()

    def check_open(self) -> None:
        """Refuse a request that cannot be made.

        Raises:
            ClosedError: The client has left its driver.
            DriverTimeoutError: It has, and looks for the next one.
            WrongLoopError: Called from another event loop or process.
        """
        if self._lost is not None:
            raise self._lost
        if self.is_closed:
            message = "the client has left its media driver: connect another"
            raise ClosedError(message)
        if asyncio.get_running_loop() is not self._loop or os.getpid() != self._pid:
            message = "the client was started in another event loop or process: use it there"
            raise WrongLoopError(message)

    def tell(self, command: ClientCommand) -> None:
        """Write a command that removes something; its answer is not waited for.

        If the ring is full the command is kept, and written as soon as there is room. Too many of
        them end the client, which removes all that it has added.
        """
        self._unwritten.append(command)
        self.flush()
        if len(self._unwritten) > UNWRITTEN_MAX:
            self._on_failed(DriverError(f"{self._ring_full()}, {UNWRITTEN_MAX} more are waiting"))

    def flush(self) -> None:
        """Write the commands that found no room, in order."""
        unwritten = self._unwritten
        while unwritten and self._ring.write(unwritten[0].TYPE_ID, unwritten[0].encode()):
            unwritten.popleft()
            self._on_written()

    async def ask(
        self,
        command: ClientCommand,
        kind: type[T],
        undo: type[Removal] | ClientCommand | None = None,
        *,
        on_written: Callable[[], object] | None = None,
        is_held: bool = False,
    ) -> T:
        """Write a command, and return its answer.

        Args:
            command: The command.
            kind: The type of its answer.
            undo: Removes what the command has added, if this raises after it was written: a
                command, or the kind of one that names what it removes by its registration id.
                One that names a channel waits until the driver says that something was added.
            on_written: Called once the driver will execute the command, even if none waits.
            is_held: Whether to hear the driver beyond the answer, until `release`: a `hold` after
                it might hear that the client has ended, while its caller uses the answer.

        Raises:
            RegistrationError: The driver refuses, or the ring stays full.
            DriverTimeoutError: The driver did not answer in time.
            ProtocolError: The driver gave an answer of another kind.
            ClosedError: The client has left its driver, before or during the call.
        """
        self.check_open()
        waiting: asyncio.Future[ControlMessage] = self._loop.create_future()
        self._waiting[command.correlation_id] = waiting
        is_written = is_refused = False
        try:
            self.hold()
            async with asyncio.timeout(self._timeout_ms / 1_000):
                is_written = await self._write_after_news(command, waiting)
                if is_written and on_written is not None:
                    on_written()
                try:
                    answer = await waiting
                except RegistrationError:
                    is_refused = True
                    raise
            # The driver may have ended since it answered.
            self.check_open()
            found = checked(answer, kind, command)
        except BaseException as error:
            if undo is not None and is_written and not is_refused:
                self.take_back(undo, command.correlation_id)
            if isinstance(error, TimeoutError) and not isinstance(error, AeronError):
                raise self._too_late() from None
            raise
        else:
            if is_held:
                self._hold_count += 1
            return found
        finally:
            if self._waiting.get(command.correlation_id) is waiting:
                del self._waiting[command.correlation_id]
            self.release()

    def take_back(self, undo: type[Removal] | ClientCommand, registration_id: int) -> None:
        """Remove what was added, by a command or by a kind of one."""
        if isinstance(undo, type):
            self.undo(undo, registration_id)
        elif self.is_closed:
            return
        elif not isinstance(undo, RemoveReceiveDestination):
            self.tell(undo)
        elif len(self._waiting) < LATE_ANSWERS_MAX:
            # The driver may refuse, and the command would then remove what another has added.
            late = self._waiting[registration_id] = self._loop.create_future()
            late.add_done_callback(partial(self._on_late_answer, undo, registration_id))
            self._hold_count += 1

    def _on_late_answer(
        self, undo: ClientCommand, correlation_id: int, answer: asyncio.Future[ControlMessage]
    ) -> None:
        """Remove what was added, now that the driver has said so; nobody waits for it."""
        if self._waiting.get(correlation_id) is answer:
            del self._waiting[correlation_id]
        self.release()
        is_added = not answer.cancelled() and answer.exception() is None
        if is_added and not self.is_closed:
            self.tell(undo)

    def undo(self, kind: type[Removal], registration_id: int) -> None:
        """Remove what was added; a closed client has removed everything."""
        if self.is_closed:
            return
        self.tell(
            kind(
                client_id=self.client_id,
                correlation_id=self._ring.next_correlation_id(),
                registration_id=registration_id,
            )
        )

    def _too_late(self) -> DriverTimeoutError:
        message = (
            f"the media driver at {self._path} did not answer within {self._timeout_ms} ms: see "
            f"`aeron-async driver ping --directory {self._path}`, or raise driver_timeout_ms"
        )
        return DriverTimeoutError(message)

    async def _write_after_news(
        self, command: ClientCommand, waiting: asyncio.Future[ControlMessage]
    ) -> bool:
        """Write a command, unless what the driver has said by now ends it; return whether."""
        while self._is_behind and not waiting.done():  # noqa: ASYNC110 - rare, a few turns
            await asyncio.sleep(0)
        if waiting.done():
            return False
        await self._write(command)
        return True

    async def _write(self, command: ClientCommand) -> None:
        body = command.encode()
        for _ in range(RING_FULL_RETRIES):
            self.flush()
            if not self._unwritten and self._ring.write(command.TYPE_ID, body):
                self._on_written()
                return
            await asyncio.sleep(RING_FULL_INTERVAL_S)
        raise RegistrationError(self._ring_full(), code=ErrorCode.RESOURCE_TEMPORARILY_UNAVAILABLE)

    def _ring_full(self) -> str:
        return (
            f"the ring of commands in {self._path} is full, with {self._ring.capacity} bytes, so "
            "its driver stands still or has too much to do: see `aeron-async driver ping "
            f"--directory {self._path}`, or raise conductor_buffer_length of the driver"
        )

    # What the driver says.

    def hold(self) -> None:
        """Hear what the driver says as soon as it is said, until `release`."""
        self._hold_count += 1
        if self._hold_count == 1:
            self._on_answers()

    def release(self) -> None:
        """Hear what the driver says only now and then, unless something else holds this."""
        self._hold_count -= 1
        if not self._hold_count and not self.is_closed:
            self._word.disarm()
            self._is_behind = True

    def look(self) -> None:
        """Hear what the driver has said, if nothing waits for it."""
        if not self._hold_count and not self.is_closed:
            self._on_answers()

    def _on_answers(self) -> None:
        """Take what the driver has said, and wait for more.

        A client that cannot read what its driver says ends, instead of waiting for ever.
        """
        try:
            self._take_answers()
        except AeronError as error:
            self._on_failed(error)
        except Exception as error:
            self._on_failed(DriverError(f"an event of the driver failed: {error!r}"))
            raise

    def _take_answers(self) -> None:
        for _ in range(ANSWERS_PER_TURN):
            if self.is_closed:
                return
            # Read before the message, so that one written in between ends the wait at once.
            tail = self._answers.tail
            received = self._answers.receive()
            if self._answers.lapped_count != self._lapped_count:
                self._lapped_count = self._answers.lapped_count
                if self._is_behind:
                    self._on_missed()
                    continue
                message = (
                    "the media driver has written over messages that this client had not read, "
                    f"beyond {self._answers.capacity} bytes: block its event loop for less long, "
                    "or raise clients_buffer_length of the driver"
                )
                raise DriverError(message)
            if received is None:
                if self._hold_count:
                    self._is_behind = False
                    self._word.arm(tail)
                return
            answer = response_of(*received)
            if answer is not None:
                self._on_answer(answer)
        self._loop.call_soon(self._on_answers)

    def _on_answer(self, answer: ControlMessage) -> None:
        match answer:
            case ErrorResponse(code=ErrorCode.CHANNEL_ENDPOINT_ERROR):
                # Of drivers of old versions; it names the status of a channel, and no request.
                self._on_event(answer)
            case ErrorResponse():
                code = ErrorCode(answer.code) if answer.code in CODES else ErrorCode.GENERIC
                message = text_of(answer.message)
                self._settle(answer.correlation_id, RegistrationError(message, code=code))
            case CounterReady() if answer.correlation_id == self.client_id:
                self._on_event(answer)
            case (
                PublicationBuffersReady()
                | SubscriptionReadyResponse()
                | OperationSucceeded()
                | CounterReady()
                | NextAvailableSessionId()
            ):
                self._settle(answer.correlation_id, answer)
            case _:
                self._on_event(answer)

    def _settle(self, correlation_id: int, answer: ControlMessage | Exception) -> None:
        """Give an answer to its caller."""
        waiting = self._waiting.get(correlation_id)
        if waiting is None or waiting.done():
            return
        if isinstance(answer, Exception):
            waiting.set_exception(answer)
        else:
            waiting.set_result(answer)

    # The end.

    def fail(self, error: Exception) -> None:
        """Let every request that waits raise an error."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(error)
        self._waiting.clear()

    def lose(self, error: Exception) -> None:
        """Leave a driver that has gone: every request raises an error, now and later."""
        self._lost = error
        self.fail(error)
        self.close()

    def close(self) -> None:
        """Leave the driver, which removes what this client has added.

        If the ring is full, the driver finds out by the liveness timeout.
        """
        if self.is_closed:
            return
        self.fail(ClosedError("the client left its media driver"))
        self._unwritten.append(ClientClose(client_id=self.client_id))
        self.flush()
        self.is_closed = True
        self._leaving.detach()
        self._word.remove()


def leave(
    ring: ManyToOneRingBuffer,
    client_id: int,
    on_written: Callable[[], object],
    text: str,
    pid: int,
) -> None:
    """Leave the driver for a client that was collected, or whose interpreter ends.

    Without it the driver would hold what the client has added until the liveness timeout.
    """
    # In a child process that is forked, the client is its parent's, and so is the memory.
    if os.getpid() != pid:
        return
    command = ClientClose(client_id=client_id)
    if ring.write(command.TYPE_ID, command.encode()):
        on_written()
    warnings.warn(text, ResourceWarning, stacklevel=1)


def checked(answer: ControlMessage, kind: type[T], command: ClientCommand) -> T:
    """Return an answer of the right kind.

    Raises:
        ProtocolError: It is of another one.
    """
    if isinstance(answer, kind):
        return answer
    message = f"the media driver answered {type(command).__name__} by {answer!r}"
    raise ProtocolError(message)
