"""Clients of other processes: their commands, their lives, and what a driver keeps for them.

The adapter takes commands from the ring buffer in its conductor's turn. Each client's commands are
executed one after another. Those of other clients do not wait for them, because a name may take
long to resolve; nor do those of the same client that name nothing in common with that command.

Invariant: nothing that a client writes ends the driver, and nothing belongs to two clients. A
command that makes no sense is refused, or counted and recorded if no client can be told.

Source: Aeron `ClientCommandAdapter`, `DriverConductor`,
`aeron_driver_conductor_on_command`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from aeron_async.clock import NEVER_NS, NS_PER_SECOND
from aeron_async.concurrent.ring_buffer import TAIL_OFFSET
from aeron_async.doorbell import BELL_KEY, BELL_TYPE_ID
from aeron_async.driver.aeron_client import (
    CLOSED_HEARTBEAT,
    LOOK_UPS_MAX,
    AeronClient,
    CommandBacklog,
)
from aeron_async.driver.client_proxy import ClientProxy, code_of
from aeron_async.driver.core.stream_counters import allocate_client_heartbeat
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.driver.foreign_streams import ClientBell, PublicationWatch, SubscriptionWatch
from aeron_async.errors import (
    AeronError,
    ChannelUriError,
    ErrorCode,
    ProtocolError,
    RegistrationError,
)
from aeron_async.logs import get_logger, within
from aeron_async.protocol.channel_uri import MAX_LENGTH, ChannelUri
from aeron_async.protocol.control_protocol import (
    AddCounter,
    AddDestination,
    AddExclusivePublication,
    AddPublication,
    AddReceiveDestination,
    AddStaticCounter,
    AddSubscription,
    ClientClose,
    ClientCommand,
    ClientKeepalive,
    GetNextAvailableSessionId,
    RejectImage,
    RemoveCounter,
    RemoveDestination,
    RemoveDestinationById,
    RemovePublication,
    RemovePublicationFlags,
    RemoveReceiveDestination,
    RemoveSubscription,
    TerminateDriver,
    command_of,
    text_of,
)
from aeron_async.protocol.error import ERROR_MAX_TEXT_LENGTH
from aeron_async.protocol.units import format_duration
from aeron_async.tasks import TaskOwner

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from aeron_async.doorbell import DriverBells
    from aeron_async.driver.conductor import Conductor
    from aeron_async.driver.resources import DriverResources
    from aeron_async.driver.storage import DirectoryStorage
    from aeron_async.watcher import Word, WordWatcher

__all__ = ["RING_WORDS", "ClientCommandAdapter"]

COMMANDS_PER_TURN: Final = 10
"""Commands taken in one turn of the conductor, as in Aeron."""
CLIENTS_MAX: Final = 4_096
"""Clients of other processes that one driver serves."""
RING_WORDS: Final = 2
"""Words of the ring that are watched: its tail, and the length of the next record."""
REMOVALS_PER_TURN: Final = 4
"""Silent clients removed in one turn of the conductor; the rest follow in the next turns."""
OFFICIAL_WORDS: Final = {
    "response-correlation-id=": (
        "invalid response-correlation-id, must be a number greater than or equal to -1, or "
        "'prototype'"
    ),
}
"""The words of an official refusal, which clients may look for, by how our text begins."""

log: Final = get_logger(__name__)


class ClientCommandAdapter:
    """Serves the clients of other processes.

    Args:
        resources: What the driver's parts share.
        storage: The Aeron directory.
        conductor: Executes the commands, and calls `poll`.
        watcher: Looks at the words that clients write.
        on_terminate: Called when a client asks the driver to end, and may.
        bells: Wakes the clients that are asleep; None if all look by themselves.
    """

    def __init__(
        self,
        resources: DriverResources,
        storage: DirectoryStorage,
        conductor: Conductor,
        watcher: WordWatcher,
        on_terminate: Callable[[], object],
        bells: DriverBells | None = None,
    ) -> None:
        self._bells = bells
        self._resources = resources
        self._context = resources.context
        self._storage = storage
        self._conductor = conductor
        self._watcher = watcher
        self._on_terminate = on_terminate
        self._proxy = ClientProxy(storage.answers, bells)
        conductor.client_counters.listener = self._proxy
        self._clients: dict[int, AeronClient] = {}
        # Those that the timer still has to look after.
        self._unchecked: deque[AeronClient] = deque()
        # By the task that executes, or is about to execute, a command of theirs.
        self._served: dict[asyncio.Task[Any], AeronClient] = {}
        self._backlog = CommandBacklog(conductor.wake, conductor.original_id)
        self._is_held_up = False
        self._ids_being_added: set[int] = set()
        self._is_stopped = False
        self._tasks = TaskOwner()
        counters = resources.system_counters
        self._note_error: Final = counters.note_error
        # What clients do, any number of times, must not fill the log.
        self._log = within(resources.log_budget, log)
        self._client_timeouts = counters[SystemCounterId.CLIENT_TIMEOUTS]
        self._commands_refused = counters[DriverCounterId.COMMANDS_REFUSED]
        self._unblocked_commands = counters[SystemCounterId.UNBLOCKED_COMMANDS]
        self._timer_ns = 0
        self._beat: asyncio.TimerHandle
        self._commands = storage.commands
        self._corrupt_count = 0
        self._blocked_position = self._commands.consumer_position
        self._blocked_since_ns = NEVER_NS
        self._was_blocked = False
        section = storage.layout.to_driver_buffer
        self._ring_offset = section.offset
        self._tail_word = watcher.add(
            storage.memory,
            section.offset + self._commands.capacity + TAIL_OFFSET,
            64,
            conductor.wake,
            is_command=True,
        )
        self._record_word: Word | None = None
        self._execute: Final = self._executors()

    def _executors(self) -> dict[type[ClientCommand], Callable[..., Awaitable[None]]]:
        """Return what executes each command of a client."""
        return {
            AddPublication: self._add_publication,
            AddExclusivePublication: self._add_publication,
            RemovePublication: self._remove_publication,
            AddSubscription: self._add_subscription,
            RemoveSubscription: self._remove_subscription,
            AddDestination: self._add_destination,
            RemoveDestination: self._remove_destination,
            RemoveDestinationById: self._remove_destination_by_id,
            AddReceiveDestination: self._add_receive_destination,
            RemoveReceiveDestination: self._remove_receive_destination,
            AddCounter: self._add_counter,
            AddStaticCounter: self._add_static_counter,
            RemoveCounter: self._remove_counter,
            RejectImage: self._reject_image,
            GetNextAvailableSessionId: self._next_session_id,
        }

    # In the conductor's turn.

    def poll(self, now_ns: int) -> int:
        """Take commands, look after the clients, and return the next deadline."""
        if now_ns >= self._timer_ns:
            self._on_timer(now_ns)
            self._timer_ns = now_ns + self._context.timer_interval_ns
        if self._is_stopped:
            return self._timer_ns
        self._look_after_clients(now_ns)
        if self._bells is not None:
            self._bells.note_clients(self._conductor.client_count)
        held_until_ns = self._backlog.held_until_ns(now_ns)
        self._is_held_up = now_ns < held_until_ns
        if self._is_held_up:
            return now_ns if self._unchecked else min(self._timer_ns, held_until_ns)
        count = self._commands.read(self._on_message, COMMANDS_PER_TURN)
        self._note_corruption()
        if count or self._unchecked:
            return now_ns
        self._watch_ring()
        return self._timer_ns

    @contextmanager
    def alive(self) -> Iterator[None]:
        """Show that the driver lives while its conductor waits, such as for a disk."""
        loop = asyncio.get_running_loop()
        interval_s = self._context.timer_interval_ns / NS_PER_SECOND

        def beat() -> None:
            self._show_life()
            self._beat = loop.call_later(interval_s, beat)

        self._beat = loop.call_later(interval_s, beat)
        try:
            yield
        finally:
            self._beat.cancel()

    def stop(self) -> None:
        """Forget the clients, and read no more commands; a second call does nothing.

        The driver may still send what is left. Until it closes, `poll` shows that it lives, so that
        no other driver takes its directory; then clients see from its heartbeat that it has gone.
        """
        if self._is_stopped:
            return
        self._is_stopped = True
        self._tasks.cancel()
        self._tail_word.remove()
        if self._record_word is not None:
            self._record_word.remove()
        for client in self._clients.values():
            client.is_closed = True
            client.commands.clear()
            client.end_watches()
        self._clients.clear()
        self._unchecked.clear()
        if self._bells is not None:
            self._bells.close()

    async def wait_closed(self) -> None:
        """Wait until no command is being executed; to be called after `stop`."""
        await self._tasks.wait()

    def _watch_ring(self) -> None:
        """Wait for the next record: for a producer to claim it, or to complete it."""
        commands = self._commands
        if self._record_word is not None:
            self._record_word.remove()
            self._record_word = None
        position, tail = commands.consumer_position, commands.producer_position
        if tail <= position:
            # It is behind only if a client has forged it; the timer mends that.
            self._tail_word.arm(tail)
            return
        self._tail_word.disarm()
        index = position & (commands.capacity - 1)
        length = commands.length_at(index)
        if length > 0 and not commands.is_corrupt:
            # Padding, or a record that was completed just now.
            self._conductor.wake()
            return
        self._record_word = self._watcher.add(
            self._storage.memory,
            self._ring_offset + index,
            32,
            self._conductor.wake,
            is_command=True,
        )
        self._record_word.arm(length)

    def _show_life(self) -> None:
        self._commands.consumer_heartbeat_ms = self._resources.clock.epoch_ms()

    def _on_timer(self, now_ns: int) -> None:
        """Show that the driver lives, look for dead clients, and for dead producers."""
        self._show_life()
        if self._is_stopped:
            return
        if self._bells is not None:
            self._bells.mend()
        if not self._unchecked:
            self._unchecked.extend(self._clients.values())
        self._check_ring(now_ns, self._context.client_liveness_timeout_ns)

    def _look_after_clients(self, now_ns: int) -> None:
        """Look after the clients that the timer has named, until some of them were removed."""
        removed_count = 0
        while self._unchecked and removed_count < REMOVALS_PER_TURN:
            client = self._unchecked.popleft()
            if client.is_closed:
                continue
            try:
                removed_count += self._look_after(client, now_ns)
            except Exception as error:  # noqa: BLE001 - it is logged; other clients share this driver
                removed_count += 1
                self._end_failed(client, error)
        if removed_count:
            # It may have taken long, if they had added much.
            self._show_life()

    def _look_after(self, client: AeronClient, now_ns: int) -> bool:
        """Act on what was missed of a client, or remove it if it is silent; return whether it went.

        A client that has closed has no time limit. Its commands end: it waits for no name, and what
        else they wait for, such as a disk, holds up the conductor itself.
        """
        timeout_ns = self._context.client_liveness_timeout_ns
        if client.is_leaving or not client.is_silent(now_ns, timeout_ns):
            # Nothing should be missed; if it was, it is found here.
            for watch in client.watches:
                watch.look()
            return False
        if client.heartbeat.get() == CLOSED_HEARTBEAT:
            self._leave(client)
            return client.is_closed
        self._client_timeouts.increment()
        self._log.warning(
            "client_timed_out",
            client_id=client.client_id,
            timeout_ns=timeout_ns,
            remedy="the client was stopped, or its loop held up for that long",
        )
        self._proxy.on_client_timeout(client.client_id)
        self._remove(client)
        return True

    def _end_failed(self, client: AeronClient, error: Exception) -> None:
        """Remove a client that the driver failed to look after, and say so to it."""
        client_id = client.client_id
        self._log.error("client_failed", client_id=client_id, exc_info=error)
        self._note_error(ErrorCode.GENERIC, f"client {client_id} was not looked after: {error!r}")
        # A client that is closed already is one whose removal failed: what is left of it stays.
        if not client.is_closed:
            self._proxy.on_client_timeout(client_id)
            try:
                self._remove(client)
            except Exception as second:  # noqa: BLE001 - it is logged
                self._log.error("client_failed", client_id=client_id, exc_info=second)
                self._note_error(
                    ErrorCode.GENERIC, f"client {client_id} was not removed: {second!r}"
                )

    def _check_ring(self, now_ns: int, timeout_ns: int) -> None:
        """Skip what a dead producer left in the ring.

        The time begins when the record is first seen: the conductor may have waited for a disk
        since it last saw an empty ring, and a producer may have claimed the record just now.
        """
        commands = self._commands
        position = commands.consumer_position
        is_blocked = commands.producer_position != position or commands.is_corrupt
        # What nobody has looked at is not what a dead producer has left.
        is_blocked = is_blocked and not self._is_held_up
        if position != self._blocked_position or not self._was_blocked:
            self._blocked_position, self._blocked_since_ns = position, now_ns
        self._was_blocked = is_blocked
        if not is_blocked or now_ns - self._blocked_since_ns <= timeout_ns:
            return
        if commands.unblock():
            self._unblocked_commands.increment()
            self._conductor.wake()

    def _note_corruption(self) -> None:
        """Record that the ring holds what no client library writes, if it was found just now."""
        count = self._commands.corrupt_count
        if count == self._corrupt_count:
            return
        self._corrupt_count = count
        timeout = format_duration(self._context.client_liveness_timeout_ns)
        message = (
            "the ring of commands holds what no client library writes: none of it is read, and "
            f"after {timeout} all of it is dropped; stop the process that wrote it, or update its "
            "library"
        )
        self._log.error("command_ring_corrupt", reason=message)
        self._note_error(ErrorCode.MALFORMED_COMMAND, message)

    # Commands.

    def _on_message(self, type_id: int, body: bytes) -> None:
        """Take a command from the ring; if that fails, the driver and its clients live on."""
        try:
            self._take(type_id, body)
        except Exception as error:  # noqa: BLE001 - it is logged
            self._log.error("command_failed", type_id=type_id, exc_info=error)
            self._note_error(ErrorCode.GENERIC, f"command {type_id} was not taken: {error!r}")

    def _take(self, type_id: int, body: bytes) -> None:
        """Act on a message to the driver itself; queue what is a command of a client."""
        try:
            command = command_of(type_id, body)
        except ProtocolError as error:
            self._note_error(
                ErrorCode.MALFORMED_COMMAND, f"type={type_id} length={len(body)}: {error}"
            )
            return
        now_ns = self._resources.clock.now_ns()
        match command:
            case None:
                self._note_error(ErrorCode.UNKNOWN_COMMAND, f"command={type_id} unknown")
            case ClientKeepalive():
                client = self._clients.get(command.client_id)
                if client is not None:
                    client.on_alive(now_ns)
            case ClientClose():
                client = self._clients.get(command.client_id)
                if client is not None:
                    self._leave(client)
            case TerminateDriver():
                if self._context.termination_validator == "allow":
                    self._on_terminate()
            case _:
                self._queue(command, len(body), now_ns)

    def _queue(self, command: ClientCommand, length: int, now_ns: int) -> None:
        """Queue a command behind those of its client."""
        client_id = command.client_id
        client = self._clients.get(client_id)
        try:
            if client is None:
                client = self._add_client(client_id, now_ns)
            client.on_alive(now_ns)
            check_length(command)
            self._backlog.add(client, command, length)
        except AeronError as error:
            if code_of(error) is ErrorCode.RESOURCE_TEMPORARILY_UNAVAILABLE:
                self._commands_refused.increment()
            self._refuse(command, error)
            return
        self._serve(client)

    def _serve(self, client: AeronClient) -> None:
        """Execute the commands of a client, unless that is under way."""
        if client.commands and client.task is None and len(client.looking_up) < LOOK_UPS_MAX:
            task = self._tasks.start(self._carry_out(client), f"aeron-client-{client.client_id}")
            client.task = task
            self._served[task] = client

    def on_look_up(self, task: asyncio.Task[Any] | None) -> bool:
        """Let other commands of the client go on while this task waits for a name.

        Returns:
            Whether the task executes a command of a client of another process.

        Raises:
            ClosedError: The client has closed, and waits for no name.
        """
        client = None if task is None else self._served.get(task)
        if task is None or client is None:
            return False
        if client.task is task:
            client.looking_up[task] = client.names
            client.task = None
            self._serve(client)
            if client.task is None:
                self._end_leaving(client)
            self._wake_if_held_up()
        client.check_open()
        return True

    def _add_client(self, client_id: int, now_ns: int) -> AeronClient:
        """Add a client that has not been heard of, and tell it where its heartbeat is.

        Raises:
            RegistrationError: There are too many clients, or no counter is left, or a client in the
                process of the driver has this id.
        """
        if self._conductor.has_client(client_id):
            message = f"client id {client_id} is in use: take it from the driver's counter"
            raise RegistrationError(message)
        client_count = len(self._clients)
        if client_count >= CLIENTS_MAX:
            message = (
                f"{client_count} clients of other processes use this driver, and {CLIENTS_MAX} is "
                "the limit: close some, or start a second driver with a directory of its own"
            )
            raise RegistrationError(message, code=ErrorCode.RESOURCE_TEMPORARILY_UNAVAILABLE)
        heartbeat = allocate_client_heartbeat(self._resources.counters_manager, client_id=client_id)
        heartbeat.set(self._resources.clock.epoch_ms())
        client = self._clients[client_id] = AeronClient(client_id, heartbeat, now_ns)
        self._conductor.add_client(client, client_id)
        self._proxy.on_counter_ready(client_id, heartbeat.id)
        return client

    def _leave(self, client: AeronClient) -> None:
        """Remove a client that has closed, once the commands that it wrote before are executed.

        They may have an effect beyond it: a stream is revoked, or a static counter is added. Those
        behind a name that is looked up are left out.
        """
        client.is_leaving = True
        # As in Aeron: a reader of the counter sees that the client is not silent, but closed.
        client.heartbeat.set(CLOSED_HEARTBEAT)
        if client.task is None:
            self._remove(client)

    def _remove(self, client: AeronClient) -> None:
        """Remove a client and all that it has added."""
        client.is_closed = True
        del self._clients[client.client_id]
        self._backlog.clear(client)
        # Their ids are free, and what they would have added is not made for nobody.
        self._conductor.give_up_look_ups(client.looking_up)
        client.end_watches()
        if self._bells is not None:
            self._bells.remove(client.client_id)
        self._conductor.remove_client(client.client_id)
        heartbeat_id = client.heartbeat.id
        client.heartbeat.close()
        self._proxy.on_unavailable_counter(client.client_id, heartbeat_id)

    async def _carry_out(self, client: AeronClient) -> None:
        """Execute the commands of one client, in order, until one of them waits for a name."""
        task = asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"
        try:
            while client.task is task and (command := self._backlog.take(client)) is not None:
                await self._carry_out_one(client, command)
        finally:
            del self._served[task]
            if client.looking_up.pop(task, None) is None:
                client.task = None
                self._end_leaving(client)
            elif not self._is_stopped:
                # Others may have waited for this one.
                self._serve(client)
            self._wake_if_held_up()

    def _end_leaving(self, client: AeronClient) -> None:
        """Remove a client that has closed, as all is executed that does not wait for a name."""
        if client.is_leaving and not client.is_closed and not self._is_stopped:
            try:
                self._remove(client)
            except Exception as error:  # noqa: BLE001 - it is logged; other clients share this driver
                self._end_failed(client, error)

    def _wake_if_held_up(self) -> None:
        """Let the conductor find out anew for how long the ring has to wait."""
        if self._is_held_up:
            self._conductor.wake()

    async def _carry_out_one(self, client: AeronClient, command: ClientCommand) -> None:
        """Execute a command; what fails is an answer, and does not stop those after it."""
        try:
            await self._execute[type(command)](client, command)
        except AeronError as error:
            self._answer_error(client, command, error)
        except Exception as error:  # noqa: BLE001 - it is logged
            self._log.error("command_failed", client_id=client.client_id, exc_info=error)
            self._answer_error(client, command, RegistrationError(f"the driver failed: {error!r}"))

    def _answer_error(self, client: AeronClient, command: ClientCommand, error: AeronError) -> None:
        """Refuse a command that was executed in vain; a client that has closed gets no answer."""
        if client.is_closed:
            return
        try:
            self._refuse(command, error)
        except Exception as second:  # noqa: BLE001 - it is logged
            client_id = client.client_id
            self._log.error("answer_failed", client_id=client_id, exc_info=second)
            self._note_error(ErrorCode.GENERIC, f"client {client_id} got no refusal: {second!r}")

    def _refuse(self, command: ClientCommand, error: AeronError) -> None:
        """Answer a command with an error, and record it."""
        code = code_of(error)
        message = recorded = str(error)
        if isinstance(command, AddPublication | AddSubscription | AddDestination):
            message = in_clients_words(message, error, text_of(command.channel))
        self._proxy.on_error(command.correlation_id, code, message)
        if code is not ErrorCode.RESOURCE_TEMPORARILY_UNAVAILABLE:
            recorded = f"client {command.client_id}: {message}"
        # Differs: Aeron records no refusal with that code. Here it says that a limit was reached,
        # and one record is for all commands that the limit keeps off.
        self._note_error(code, recorded)

    # What commands do.

    async def _add_publication(self, client: AeronClient, command: AddPublication) -> None:
        with (
            self._new_id(command.correlation_id) as registration_id,
            self._proxy.images_after(registration_id),
        ):
            uri = channel_of(command)
            uri.check_publication(command.stream_id)
            bell = ClientBell(client.client_id, self._bells)
            watch = PublicationWatch(self._proxy, self._watcher, bell)
            ready = await self._conductor.add_publication(
                client.client_id,
                uri,
                command.stream_id,
                is_exclusive=isinstance(command, AddExclusivePublication),
                listener=watch,
                registration_id=registration_id,
            )
            try:
                # Each may fail, and a command has one answer.
                client.check_open()
                watch.begin(self._conductor.publication(registration_id))
            except BaseException:
                watch.end()
                self._conductor.remove_publication(registration_id)
                raise
            client.publications[registration_id] = watch
            self._proxy.on_publication_ready(ready)

    async def _remove_publication(self, client: AeronClient, command: RemovePublication) -> None:
        registration_id = command.registration_id
        watch = client.publications.pop(registration_id, None)
        if watch is None:
            message = f"unknown publication: {registration_id}"
            raise RegistrationError(message, code=ErrorCode.UNKNOWN_PUBLICATION)
        watch.end()
        if command.flags & RemovePublicationFlags.REVOKE:
            self._conductor.revoke_publication(registration_id)
        else:
            self._conductor.remove_publication(registration_id)
        self._proxy.on_operation_succeeded(command.correlation_id)

    async def _add_subscription(self, client: AeronClient, command: AddSubscription) -> None:
        with self._new_id(command.correlation_id) as registration_id:
            uri = channel_of(command)
            uri.check_subscription(command.stream_id)
            watch = SubscriptionWatch(
                registration_id,
                written_channel=text_of(command.channel),
                stream_id=command.stream_id,
                proxy=self._proxy,
                values=self._storage.counter_values,
                watcher=self._watcher,
                bell=ClientBell(client.client_id, self._bells),
            )
            try:
                ready = await self._conductor.add_subscription(
                    client.client_id,
                    uri,
                    command.stream_id,
                    listener=watch,
                    registration_id=registration_id,
                )
                client.check_open()
            except BaseException:
                # It may have joined images before it failed.
                watch.end()
                self._conductor.remove_subscription(registration_id)
                raise
            client.subscriptions[registration_id] = watch
            self._proxy.on_subscription_ready(ready)
            watch.begin()

    async def _remove_subscription(self, client: AeronClient, command: RemoveSubscription) -> None:
        registration_id = command.registration_id
        # Differs: Aeron lets a client remove the subscription of another one.
        watch = client.subscriptions.pop(registration_id, None)
        if watch is None:
            message = f"unknown subscription: {registration_id}"
            raise RegistrationError(message, code=ErrorCode.UNKNOWN_SUBSCRIPTION)
        watch.end()
        self._conductor.remove_subscription(registration_id)
        self._proxy.on_operation_succeeded(command.correlation_id)

    async def _succeed(
        self, client: AeronClient, command: ClientCommand, executing: Awaitable[object]
    ) -> None:
        """Answer a command that has no other result, once it is executed.

        Raises:
            ClosedError: The client has gone in the meantime.
        """
        await executing
        client.check_open()
        self._proxy.on_operation_succeeded(command.correlation_id)

    async def _add_destination(self, client: AeronClient, command: AddDestination) -> None:
        uri = channel_of(command)
        uri.check_send_destination()
        executing = self._conductor.destinations.add_to_publication(
            client.client_id,
            command.registration_id,
            uri,
            destination_id=command.correlation_id,
        )
        await self._succeed(client, command, executing)

    async def _remove_destination(self, client: AeronClient, command: RemoveDestination) -> None:
        executing = self._conductor.destinations.remove_from_publication(
            client.client_id,
            command.registration_id,
            channel_of(command),
            # As in Aeron, whose agents have nobody to tell that there is no such destination.
            missing_ok=True,
        )
        await self._succeed(client, command, executing)

    async def _remove_destination_by_id(
        self, client: AeronClient, command: RemoveDestinationById
    ) -> None:
        executing = self._conductor.destinations.remove_from_publication(
            client.client_id,
            command.registration_id,
            command.destination_registration_id,
            missing_ok=True,
        )
        await self._succeed(client, command, executing)

    async def _add_receive_destination(
        self, client: AeronClient, command: AddReceiveDestination
    ) -> None:
        uri = channel_of(command)
        uri.check_receive_destination()
        executing = self._conductor.destinations.add_to_subscription(
            client.client_id,
            command.registration_id,
            uri,
            destination_id=command.correlation_id,
        )
        await self._succeed(client, command, executing)

    async def _remove_receive_destination(
        self, client: AeronClient, command: RemoveReceiveDestination
    ) -> None:
        executing = self._conductor.destinations.remove_from_subscription(
            client.client_id,
            command.registration_id,
            channel_of(command),
            # As in Aeron, whose agents have nobody to tell that there is no such destination.
            missing_ok=True,
        )
        await self._succeed(client, command, executing)

    async def _add_counter(self, client: AeronClient, command: AddCounter) -> None:
        with self._new_id(command.correlation_id) as registration_id:
            counter_id = self._conductor.client_counters.add(
                client.client_id,
                registration_id,
                command.counter_type_id,
                key=command.key,
                label=text_of(command.label),
            )
            is_bell = command.counter_type_id == BELL_TYPE_ID and command.key == BELL_KEY
            if is_bell and self._bells is not None and client.bell_id is None:
                client.bell_id = registration_id
                self._bells.add(client.client_id, counter_id)

    async def _add_static_counter(self, client: AeronClient, command: AddStaticCounter) -> None:
        del client
        self._conductor.client_counters.add_static(
            command.correlation_id,
            command.registration_id,
            command.counter_type_id,
            key=command.key,
            label=text_of(command.label),
        )

    async def _remove_counter(self, client: AeronClient, command: RemoveCounter) -> None:
        counters = self._conductor.client_counters
        counters.check_owner(client.client_id, command.registration_id)
        if command.registration_id == client.bell_id and self._bells is not None:
            client.bell_id = None
            self._bells.remove(client.client_id)
        self._proxy.on_operation_succeeded(command.correlation_id)
        counters.remove(command.registration_id)

    async def _reject_image(self, client: AeronClient, command: RejectImage) -> None:
        if len(command.reason) > ERROR_MAX_TEXT_LENGTH:
            message = f"Invalidation reason_text must be {ERROR_MAX_TEXT_LENGTH} bytes or less"
            raise RegistrationError(message)
        # Differs: Aeron lets a client reject the image of another one.
        if not any(each.has_image(command.image_id) for each in client.subscriptions.values()):
            message = f"the client has no image {command.image_id}"
            raise RegistrationError(message)
        executing = self._conductor.reject_image(
            client.client_id, command.image_id, text_of(command.reason)
        )
        await self._succeed(client, command, executing)

    async def _next_session_id(
        self, client: AeronClient, command: GetNextAvailableSessionId
    ) -> None:
        del client
        session_id = self._conductor.next_session_id(command.stream_id)
        self._proxy.on_next_available_session_id(command.correlation_id, session_id)

    @contextmanager
    def _new_id(self, registration_id: int) -> Iterator[int]:
        """Reserve an id that a client has chosen, until what it names is there or has failed.

        Raises:
            RegistrationError: It is in use.
        """
        if registration_id in self._ids_being_added or self._conductor.has(registration_id):
            message = (
                f"correlation id {registration_id} is in use: take it from the driver's counter"
            )
            raise RegistrationError(message)
        self._ids_being_added.add(registration_id)
        try:
            yield registration_id
        finally:
            self._ids_being_added.remove(registration_id)


def in_clients_words(message: str, error: AeronError, channel: str) -> str:
    """Return a refusal with the channel as the client wrote it, and the words it may look for."""
    if isinstance(error, ChannelUriError):
        for key, words in OFFICIAL_WORDS.items():
            if message.startswith(key):
                message = f"{words}: {message}"
    else:
        # A command may be refused before its channel is looked at.
        with suppress(ChannelUriError):
            message = message.replace(str(ChannelUri.parse(channel, ignores_unknown=True)), channel)
    return message if channel in message else f"{message} (channel {channel})"


def check_length(command: ClientCommand) -> None:
    """Refuse a channel that is too long to be one, before it waits.

    Raises:
        ChannelUriError: It is none.
    """
    if not isinstance(command, AddPublication | AddSubscription | AddDestination):
        return
    # Bytes are at least as many as characters, and counted faster.
    if len(command.channel) > MAX_LENGTH:
        channel_of(command)


def channel_of(command: AddPublication | AddSubscription | AddDestination) -> ChannelUri:
    """Return the channel in a command.

    Raises:
        ChannelUriError: It is none.
    """
    return ChannelUri.parse(text_of(command.channel), ignores_unknown=True)
