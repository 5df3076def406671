"""A media driver in another process, official or ours, as a client of this one uses it.

The client asks through the driver's ring buffer, hears through its broadcast buffer, and maps the
logs and counters that it is told of. For the rest of the client this driver is like one in its own
process: the same requests, the same events.

Invariant: the driver's files are trusted no more than a peer's datagrams. A path that the driver
names must lie in its directory, and every number in a file is checked once, on a copy.

Source: Aeron `Aeron`, `ClientConductor`, `DriverProxy`, `DriverEventsAdapter`, `LogBuffers`,
`aeron_client_conductor.c`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from aeron_async.client.attached_streams import (
    AttachedImage,
    AttachedPublication,
    CounterCell,
    local_address,
)
from aeron_async.clock import NS_PER_MS, SystemClock
from aeron_async.concurrent.atomic_buffer import Mapping
from aeron_async.concurrent.broadcast import BroadcastReceiver
from aeron_async.concurrent.cnc_file import CncNotReady
from aeron_async.concurrent.ring_buffer import ManyToOneRingBuffer
from aeron_async.driver.aeron_directory import AeronDirectory, CncMissing
from aeron_async.driver.commands import PublicationErrorFrame, SubscriptionReady
from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.media_driver import system_network
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
from aeron_async.logbuffer.log_buffers import LogBuffers
from aeron_async.logs import LogBudget
from aeron_async.protocol.control_protocol import (
    AddDestination,
    AddExclusivePublication,
    AddPublication,
    AddReceiveDestination,
    AddressType,
    AddSubscription,
    ClientClose,
    ClientCommand,
    ClientTimeout,
    ControlMessage,
    CounterReady,
    ErrorResponse,
    ImageBuffersReady,
    NextAvailableSessionId,
    OperationSucceeded,
    PublicationBuffersReady,
    PublicationErrorResponse,
    RejectImage,
    RemoveDestination,
    RemoveDestinationById,
    RemovePublication,
    RemovePublicationFlags,
    RemoveReceiveDestination,
    RemoveSubscription,
    StaticCounterReady,
    SubscriptionReadyResponse,
    UnavailableImage,
    response_of,
    text_of,
)
from aeron_async.waits import SubscriptionSeen
from aeron_async.watcher import Watcher

if TYPE_CHECKING:
    from aeron_async.clock import Clock
    from aeron_async.counters import CountersReader
    from aeron_async.driver.commands import (
        ClientListener,
        CongestionControlSupplier,
        FlowControlSupplier,
        PublicationListener,
        PublicationReady,
        SubscriptionListener,
    )
    from aeron_async.protocol.channel_uri import ChannelUri
    from aeron_async.watcher import WatchedWord

__all__ = ["AttachedDriver"]

T = TypeVar("T", bound=ControlMessage)

KEEPALIVE_INTERVAL_S: Final = 0.5
ATTACH_INTERVAL_S: Final = 0.016
RING_FULL_INTERVAL_S: Final = 0.001
RING_FULL_RETRIES: Final = 10
HEARTBEAT_ENDED: Final = -1
NO_ID: Final = -1
IPV4_LENGTH: Final = 4
CODES: Final = frozenset(ErrorCode)
ANSWERS_PER_TURN: Final = 1_000
"""Messages of the driver taken in one turn of the loop; the rest come in the next."""


class SharedLogs:
    """The logs that this process has mapped, each once, however many use it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.resolve()
        self._logs: dict[str, tuple[LogBuffers, Mapping, int]] = {}

    def map(self, name: bytes) -> LogBuffers:
        """Return the log in a file that the driver has named.

        Raises:
            ProtocolError: The file is not in the driver's directory, or no log.
            DriverError: It cannot be opened.
        """
        path = text_of(name)
        found = self._logs.get(path)
        if found is not None:
            log, mapping, count = found
            self._logs[path] = log, mapping, count + 1
            return log
        if self._directory not in Path(path).resolve().parents:
            message = f"the driver names a log outside {self._directory}: {path!r}"
            raise ProtocolError(message)
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            message = f"the log {path} cannot be opened: {error}"
            raise DriverError(message) from error
        try:
            mapping = Mapping(fd, os.fstat(fd).st_size)
        finally:
            os.close(fd)
        try:
            log = LogBuffers.map(mapping, file=path)
        except BaseException:
            mapping.close()
            raise
        self._logs[path] = log, mapping, 1
        return log

    def release(self, log: LogBuffers) -> None:
        """Unmap a log that nothing else uses."""
        _, mapping, count = self._logs[log.file]
        if count > 1:
            self._logs[log.file] = log, mapping, count - 1
            return
        del self._logs[log.file]
        log.close()
        close_quietly(mapping)


def close_quietly(mapping: Mapping) -> None:
    """Unmap memory, unless the application still holds a view: then it goes with the view."""
    try:
        mapping.close()
    except BufferError:
        return


class AttachedSubscription:
    """One subscription of this client, and its images."""

    def __init__(self, registration_id: int, listener: SubscriptionListener) -> None:
        self.registration_id: Final = registration_id
        self.listener: Final = listener
        self.images: Final[dict[int, AttachedImage]] = {}
        self.status: CounterCell | None = None

    def arm(self) -> bool:
        """Watch for the next message of each image; return whether there is one already."""
        is_there = False
        for image in self.images.values():
            is_there |= image.arm()
        return is_there


class AttachedDriver:
    """A media driver in another process; it stands where an embedded `MediaDriver` does.

    Args:
        directory: The Aeron directory.
        context: Gives the timeouts of this client.

    Attributes:
        context: As given.
        is_closed: Whether this client has left the driver, or the driver has gone.
    """

    def __init__(self, directory: str | os.PathLike[str], context: DriverContext | None) -> None:
        self.context: Final = DriverContext.from_environment() if context is None else context
        self.is_closed = False
        self.destinations: Final = AttachedDestinations(self)
        self._path = Path(directory)
        self._clock = SystemClock()
        self._network = system_network(self.context)
        self._log_budget = LogBudget(self._clock.now_ns)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listener: ClientListener | None = None
        self._client_id = NO_ID
        self._waiting: dict[int, asyncio.Future[ControlMessage]] = {}
        self._publications: dict[int, AttachedPublication] = {}
        self._subscriptions: dict[int, AttachedSubscription] = {}
        self._heartbeat: CounterCell | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._logs = SharedLogs(self._path)
        self._driver_heartbeat_ms = 0
        self._heard_ns = 0

    # What `MediaDriver` has.

    @property
    def clock(self) -> Clock:
        """Return the machine's clock."""
        return self._clock

    @property
    def conductor(self) -> AttachedDriver:
        """Return what takes the requests of the client."""
        return self

    @property
    def counters(self) -> CountersReader:
        """Return the driver's counters."""
        return self._directory.counters

    @property
    def log_budget(self) -> LogBudget:
        """Return the limit on log lines that peers can cause."""
        return self._log_budget

    async def start(self) -> None:
        """Attach to the driver, waiting for one for as long as the driver timeout.

        Raises:
            DriverTimeoutError: No driver was there in time.
            DriverError: This user may not open its files.
            ProtocolError: The files are of another version, or damaged.
        """
        loop = self._loop = asyncio.get_running_loop()
        self._directory = directory = await self._attach()
        layout = directory.layout
        self._ring = ManyToOneRingBuffer(directory.atomic_buffer(layout.to_driver_buffer))
        self._answers = BroadcastReceiver(directory.atomic_buffer(layout.to_clients_buffer))
        self._values = directory.counter_values()
        self._watcher = Watcher(loop)
        section = layout.to_clients_buffer
        self._word: WatchedWord = self._watcher.add(
            directory.memory, section.offset + self._answers.tail_offset, 64, self._on_answers
        )
        self._word.arm(self._answers.tail)
        self._driver_heartbeat_ms = directory.heartbeat_ms
        self._heard_ns = self._clock.now_ns()

    async def _attach(self) -> AeronDirectory:
        timeout_ms = self.context.driver_timeout_ms
        deadline_ns = self._clock.now_ns() + timeout_ms * NS_PER_MS
        while True:
            found = AeronDirectory.try_open(self._path, is_writable=True)
            if isinstance(found, CncMissing | CncNotReady):
                reason = found.reason
            else:
                why = found.why_not_active(self._clock.epoch_ms(), timeout_ms)
                if why is None:
                    return found
                found.close()
                reason = why
            if self._clock.now_ns() >= deadline_ns:
                message = f"no media driver within {timeout_ms} ms: {reason}"
                raise DriverTimeoutError(message)
            # A driver that starts wakes nobody.
            await asyncio.sleep(ATTACH_INTERVAL_S)

    async def aclose(self) -> None:
        """Leave the driver, which removes what this client has added."""
        self._detach()
        await asyncio.sleep(0)

    def _detach(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        if self._loop is None or not hasattr(self, "_watcher"):
            return
        if self._client_id != NO_ID:
            self._ring.write(ClientClose.TYPE_ID, ClientClose(client_id=self._client_id).encode())
        if self._timer is not None:
            self._timer.cancel()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ClosedError("the client left its media driver"))
        self._waiting.clear()
        for publication in list(self._publications.values()):
            self._end_publication(publication)
        for subscription in list(self._subscriptions.values()):
            self._end_subscription(subscription)
        if self._heartbeat is not None:
            self._heartbeat.close()
        self._word.remove()
        self._watcher.close()
        self._values.release()
        self._directory.close()

    # What `Conductor` has.

    def add_client(self, listener: ClientListener) -> int:
        """Add the one client of this object, and return its id."""
        self._listener = listener
        self._client_id = self._ring.next_correlation_id()
        assert self._loop is not None, "the client starts its driver first"
        self._timer = self._loop.call_later(KEEPALIVE_INTERVAL_S, self._keep_alive)
        return self._client_id

    def remove_client(self, client_id: int) -> None:
        """Leave the driver."""
        del client_id
        self._detach()

    async def add_publication(
        self,
        client_id: int,
        uri: ChannelUri,
        stream_id: int,
        *,
        is_exclusive: bool,
        listener: PublicationListener,
        flow_control: FlowControlSupplier | None = None,
        handshake_length: int | None = None,
    ) -> PublicationReady:
        """Add a publication; see `Conductor.add_publication`.

        Raises:
            RegistrationError: The driver refuses it; or a strategy is given, which cannot be passed
                to another process.
            DriverTimeoutError: The driver did not answer in time.
            ClosedError: The client or the driver is closed.
        """
        refuse_strategy(flow_control, "flow_control", "fc")
        if handshake_length is not None:
            message = "handshake_length needs a driver of the same process"
            raise RegistrationError(message, code=ErrorCode.NOT_SUPPORTED)
        kind = AddExclusivePublication if is_exclusive else AddPublication
        correlation_id = self._next_id()
        answer = await self._ask(
            kind(
                client_id=client_id,
                correlation_id=correlation_id,
                stream_id=stream_id,
                channel=str(uri).encode(),
            ),
            PublicationBuffersReady,
            RemovePublication,
        )
        publication = AttachedPublication(
            answer,
            uri=uri,
            log=self._logs.map(answer.log_file),
            is_exclusive=is_exclusive,
            listener=listener,
            counters=self._directory.counters,
            memory=self._values,
            watcher=self._watcher,
        )
        self._publications[correlation_id] = publication
        return publication.ready

    async def add_subscription(
        self,
        client_id: int,
        uri: ChannelUri,
        stream_id: int,
        *,
        listener: SubscriptionListener,
        congestion_control: CongestionControlSupplier | None = None,
    ) -> SubscriptionReady:
        """Add a subscription; see `Conductor.add_subscription`.

        Raises:
            RegistrationError: As `add_publication`.
            DriverTimeoutError: The driver did not answer in time.
            ClosedError: The client or the driver is closed.
        """
        refuse_strategy(congestion_control, "congestion_control", "cc")
        registration_id = self._next_id()
        # Images are announced right after the answer.
        subscription = AttachedSubscription(registration_id, listener)
        self._subscriptions[registration_id] = subscription
        try:
            answer = await self._ask(
                AddSubscription(
                    client_id=client_id,
                    correlation_id=registration_id,
                    stream_id=stream_id,
                    channel=str(uri).encode(),
                ),
                SubscriptionReadyResponse,
                RemoveSubscription,
            )
        except BaseException:
            self._end_subscription(subscription)
            raise
        status = subscription.status = CounterCell.of(
            self._directory.counters, self._values, answer.channel_status_id
        )
        return SubscriptionReady(
            registration_id=registration_id,
            uri=uri,
            stream_id=stream_id,
            channel_status=None if status is None else status.counter,
            local_address=local_address(self._directory.counters, answer.channel_status_id),
            seen=SubscriptionSeen,
            arm=subscription.arm,
        )

    def remove_publication(self, registration_id: int) -> None:
        """Remove a publication; what was offered is still sent."""
        self._remove_publication(registration_id, RemovePublicationFlags(0))

    def revoke_publication(self, registration_id: int) -> None:
        """Remove a publication, and take its stream back."""
        self._remove_publication(registration_id, RemovePublicationFlags.REVOKE)

    def _remove_publication(self, registration_id: int, flags: RemovePublicationFlags) -> None:
        publication = self._publications.get(registration_id)
        if publication is None:
            return
        self._end_publication(publication)
        self._tell(
            RemovePublication(
                client_id=self._client_id,
                correlation_id=self._next_id(),
                registration_id=registration_id,
                flags=flags,
            )
        )

    def remove_subscription(self, registration_id: int) -> None:
        """Remove a subscription."""
        subscription = self._subscriptions.get(registration_id)
        if subscription is None:
            return
        self._end_subscription(subscription)
        self._tell(
            RemoveSubscription(
                client_id=self._client_id,
                correlation_id=self._next_id(),
                registration_id=registration_id,
            )
        )

    async def reject_image(self, client_id: int, image_id: int, reason: str) -> None:
        """Reject an image; see `Conductor.reject_image`."""
        images = (each.images.get(image_id) for each in self._subscriptions.values())
        image = next((each for each in images if each is not None), None)
        await self._ask(
            RejectImage(
                client_id=client_id,
                correlation_id=self._next_id(),
                image_id=image_id,
                position=0 if image is None else image.position.get(),
                reason=reason.encode(),
            ),
            OperationSucceeded,
        )

    async def look_up(self, host: str, port: int) -> tuple[str, int]:
        """Resolve a host to a numeric address, by the resolver of this machine.

        Raises:
            RegistrationError: UNKNOWN_HOST.
        """
        address = await self._network.resolve(host, port)
        return address[0], address[1]

    def original_id(self, registration_id: int) -> int:
        """Return the id by which the driver knows a publication that several requests share."""
        publication = self._publications.get(registration_id)
        return (
            registration_id if publication is None else publication.ready.original_registration_id
        )

    # Requests.

    def _next_id(self) -> int:
        self._check_open()
        return self._ring.next_correlation_id()

    def _check_open(self) -> None:
        if self.is_closed:
            message = "the client has left its media driver"
            raise ClosedError(message)
        if asyncio.get_running_loop() is not self._loop:
            message = "the client was started in another event loop"
            raise WrongLoopError(message)

    def _tell(self, command: ClientCommand) -> None:
        """Write a command whose answer nobody waits for; a full ring loses it.

        What a lost command should have removed goes when the client closes.
        """
        self._ring.write(command.TYPE_ID, command.encode())

    async def _ask(
        self,
        command: ClientCommand,
        kind: type[T],
        undo: type[RemovePublication | RemoveSubscription] | None = None,
    ) -> T:
        """Write a command, and return its answer.

        Args:
            command: The command.
            kind: The type of its answer.
            undo: Removes what it has added, if the caller no longer waits.
        """
        self._check_open()
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[ControlMessage] = loop.create_future()
        self._waiting[command.correlation_id] = waiting
        timeout_ms = self.context.driver_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                await self._write(command)
                answer = await waiting
        except TimeoutError:
            message = f"the media driver at {self._path} did not answer within {timeout_ms} ms"
            raise DriverTimeoutError(message) from None
        except asyncio.CancelledError:
            if undo is not None and not self.is_closed:
                self._tell(
                    undo(
                        client_id=self._client_id,
                        correlation_id=self._ring.next_correlation_id(),
                        registration_id=command.correlation_id,
                    )
                )
            raise
        finally:
            self._waiting.pop(command.correlation_id, None)
        if not isinstance(answer, kind):
            message = f"the media driver answered {type(command).__name__} by {answer!r}"
            raise ProtocolError(message)
        return answer

    async def _write(self, command: ClientCommand) -> None:
        body = command.encode()
        for _ in range(RING_FULL_RETRIES):
            if self._ring.write(command.TYPE_ID, body):
                return
            await asyncio.sleep(RING_FULL_INTERVAL_S)
        message = f"the ring of commands in {self._path} is full: its driver stands still"
        raise RegistrationError(message, code=ErrorCode.RESOURCE_TEMPORARILY_UNAVAILABLE)

    # Events.

    def _on_answers(self) -> None:
        """Take what the driver has said, and wait for more.

        A client that cannot read what its driver says ends, instead of waiting for ever.
        """
        try:
            self._take_answers()
        except AeronError as error:
            self._fail(error)

    def _take_answers(self) -> None:
        for _ in range(ANSWERS_PER_TURN):
            # Read before the message, so that one written in between ends the wait at once.
            tail = self._answers.tail
            received = self._answers.receive()
            if self._answers.lapped_count:
                message = "the media driver has written over answers that this client had not read"
                raise DriverError(message)
            if received is None:
                self._word.arm(tail)
                return
            answer = response_of(*received)
            if answer is not None:
                self._on_answer(answer)
            if self.is_closed:
                return
        assert self._loop is not None, "it is set before there are answers"
        self._loop.call_soon(self._on_answers)

    def _on_answer(self, answer: ControlMessage) -> None:
        match answer:
            case ErrorResponse():
                code = ErrorCode(answer.code) if answer.code in CODES else ErrorCode.GENERIC
                message = text_of(answer.message)
                self._settle(answer.correlation_id, RegistrationError(message, code=code))
            case ImageBuffersReady():
                self._on_available_image(answer)
            case UnavailableImage():
                self._on_unavailable_image(answer)
            case PublicationErrorResponse():
                self._on_publication_error(answer)
            case ClientTimeout():
                if answer.client_id == self._client_id:
                    self._fail(DriverError("the media driver has not heard this client in time"))
            case CounterReady() | StaticCounterReady() if answer.correlation_id == self._client_id:
                self._heartbeat = CounterCell.of(
                    self._directory.counters, self._values, answer.counter_id
                )
                self._beat()
            case (
                PublicationBuffersReady()
                | SubscriptionReadyResponse()
                | OperationSucceeded()
                | CounterReady()
                | NextAvailableSessionId()
            ):
                self._settle(answer.correlation_id, answer)
            case _:
                pass

    def _settle(self, correlation_id: int, answer: ControlMessage | Exception) -> None:
        """Give an answer to who waits for it."""
        waiting = self._waiting.get(correlation_id)
        if waiting is None or waiting.done():
            return
        if isinstance(answer, Exception):
            waiting.set_exception(answer)
        else:
            waiting.set_result(answer)

    def _on_available_image(self, answer: ImageBuffersReady) -> None:
        subscription = self._subscriptions.get(answer.subscription_registration_id)
        if subscription is None or answer.image_id in subscription.images:
            return
        image = subscription.images[answer.image_id] = AttachedImage(
            answer,
            log=self._logs.map(answer.log_file),
            counters=self._directory.counters,
            memory=self._values,
            watcher=self._watcher,
            on_progress=subscription.listener.on_image_progress,
        )
        subscription.listener.on_available_image(image.ready)

    def _on_unavailable_image(self, answer: UnavailableImage) -> None:
        subscription = self._subscriptions.get(answer.subscription_registration_id)
        image = None if subscription is None else subscription.images.pop(answer.image_id, None)
        if subscription is None or image is None:
            return
        # The reader looks at the log a last time before it is unmapped.
        subscription.listener.on_unavailable_image(answer.image_id)
        image.close()
        self._logs.release(image.log)

    def _on_publication_error(self, answer: PublicationErrorResponse) -> None:
        destination_id = answer.destination_registration_id
        for registration_id, publication in list(self._publications.items()):
            if publication.ready.original_registration_id == answer.registration_id:
                publication.listener.on_publication_error(
                    PublicationErrorFrame(
                        code=answer.code,
                        message=text_of(answer.message),
                        session_id=answer.session_id,
                        stream_id=answer.stream_id,
                        receiver_id=answer.receiver_id,
                        group_tag=None if answer.group_tag == NO_ID else answer.group_tag,
                        source_address=source_of(answer),
                        registration_id=registration_id,
                        destination_registration_id=(
                            None if destination_id == NO_ID else destination_id
                        ),
                    )
                )

    # Life.

    def _keep_alive(self) -> None:
        """Show that this client lives, and look whether the driver does."""
        assert self._loop is not None, "the timer is started with the client"
        now_ns, heartbeat_ms = self._clock.now_ns(), self._directory.heartbeat_ms
        if heartbeat_ms != self._driver_heartbeat_ms:
            self._driver_heartbeat_ms, self._heard_ns = heartbeat_ms, now_ns
        silent_ms = (now_ns - self._heard_ns) // NS_PER_MS
        if heartbeat_ms == HEARTBEAT_ENDED:
            self._fail(None)
        elif silent_ms > self.context.driver_timeout_ms:
            message = f"the media driver at {self._path} has shown no life for {silent_ms} ms"
            self._fail(DriverTimeoutError(message))
        else:
            self._beat()
            self._timer = self._loop.call_later(KEEPALIVE_INTERVAL_S, self._keep_alive)

    def _beat(self) -> None:
        heartbeat = self._heartbeat
        # The driver may have given the counter to somebody else.
        if heartbeat is not None and heartbeat.is_of(self._client_id):
            heartbeat.counter.set(self._clock.epoch_ms())

    def _fail(self, error: Exception | None) -> None:
        """End the client: the driver has closed, died, or given the client up."""
        for waiting in self._waiting.values():
            if not waiting.done():
                closed = ClosedError("the media driver was closed")
                waiting.set_exception(closed if error is None else error)
        self._waiting.clear()
        if self._listener is not None:
            self._listener.on_driver_closed(error)
        self._detach()

    def _end_publication(self, publication: AttachedPublication) -> None:
        self._publications.pop(publication.ready.registration_id, None)
        publication.close()
        self._logs.release(publication.ready.log)

    def _end_subscription(self, subscription: AttachedSubscription) -> None:
        self._subscriptions.pop(subscription.registration_id, None)
        for image in subscription.images.values():
            image.close()
            self._logs.release(image.log)
        subscription.images.clear()
        if subscription.status is not None:
            subscription.status.close()


class AttachedDestinations:
    """Commands about destinations, to a driver in another process; see `Destinations`."""

    def __init__(self, driver: AttachedDriver) -> None:
        self._driver = driver

    async def add_to_publication(
        self, client_id: int, registration_id: int, uri: ChannelUri
    ) -> int:
        """Add a destination to a publication; return the id of the destination."""
        return await self._change(AddDestination, client_id, registration_id, uri)

    async def remove_from_publication(
        self, client_id: int, registration_id: int, destination: ChannelUri | int
    ) -> None:
        """Remove a destination from a publication, by its channel or its id."""
        if not isinstance(destination, int):
            await self._change(RemoveDestination, client_id, registration_id, destination)
            return
        driver = self._driver
        await driver._ask(  # noqa: SLF001 - one object in two parts
            RemoveDestinationById(
                client_id=client_id,
                correlation_id=driver._next_id(),  # noqa: SLF001 - as above
                registration_id=driver.original_id(registration_id),
                destination_registration_id=destination,
            ),
            OperationSucceeded,
        )

    async def add_to_subscription(
        self, client_id: int, registration_id: int, uri: ChannelUri
    ) -> int:
        """Add a destination to a subscription; return the id of the destination."""
        return await self._change(AddReceiveDestination, client_id, registration_id, uri)

    async def remove_from_subscription(
        self, client_id: int, registration_id: int, destination: ChannelUri | int
    ) -> None:
        """Remove a destination from a subscription, by its channel.

        Raises:
            RegistrationError: NOT_SUPPORTED; an id is given, for which there is no command.
        """
        if isinstance(destination, int):
            message = "a driver in another process removes a receive destination by its channel"
            raise RegistrationError(message, code=ErrorCode.NOT_SUPPORTED)
        await self._change(RemoveReceiveDestination, client_id, registration_id, destination)

    async def _change(
        self, kind: type[AddDestination], client_id: int, registration_id: int, uri: ChannelUri
    ) -> int:
        driver = self._driver
        correlation_id = driver._next_id()  # noqa: SLF001 - one object in two parts
        await driver._ask(  # noqa: SLF001 - as above
            kind(
                client_id=client_id,
                correlation_id=correlation_id,
                registration_id=driver.original_id(registration_id),
                channel=str(uri).encode(),
            ),
            OperationSucceeded,
        )
        return correlation_id


def refuse_strategy(supplier: object, name: str, key: str) -> None:
    """Refuse a strategy, which is an object of this process.

    Raises:
        RegistrationError: NOT_SUPPORTED; one is given.
    """
    if supplier is not None:
        message = f"{name} needs a driver of the same process: name a strategy by {key}= instead"
        raise RegistrationError(message, code=ErrorCode.NOT_SUPPORTED)


def source_of(answer: PublicationErrorResponse) -> str | None:
    """Return the address that a publication error came from, as `host:port`; None for none."""
    if answer.address_type == AddressType.NONE:
        return None
    packed = answer.source_address
    if answer.address_type == AddressType.IPV4:
        return f"{ipaddress.IPv4Address(packed[:IPV4_LENGTH])}:{answer.source_port}"
    return f"[{ipaddress.IPv6Address(packed)}]:{answer.source_port}"
