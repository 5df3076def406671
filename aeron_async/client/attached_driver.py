"""A media driver in another process, official or ours, as a client of this one uses it.

The client asks through the driver's ring buffer, hears through its broadcast buffer, and maps the
logs and counters that it is told of. For the rest of the client this driver is like one in its own
process: the same requests, the same events.

Invariant: the driver's files are trusted no more than a peer's datagrams. A path that the driver
names must lie in its directory, and every number in a file is checked once, on a copy.

Source: Aeron `Aeron`, `ClientConductor`, `LogBuffers`, `aeron_client_conductor.c`.
"""

from __future__ import annotations

import asyncio
import warnings
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aeron_async.aeron_directory import (
    HEARTBEAT_ENDED,
    AeronDirectory,
    file_in_place_of,
)
from aeron_async.client.attached_destinations import AttachedDestinations
from aeron_async.client.attached_streams import (
    AttachedCounter,
    AttachedPublication,
    AttachedSubscription,
    AwayIds,
    CounterCell,
    is_of_driver,
)
from aeron_async.client.attachment import (
    NOT_HEARD,
    Attachment,
    context_here,
    refuse_strategy,
    wait_for_driver,
)
from aeron_async.client.reconnecting import Comeback
from aeron_async.clock import SystemClock
from aeron_async.driver.media_driver import system_network
from aeron_async.errors import (
    AeronError,
    ClosedError,
    ConfigurationError,
    DriverError,
    ErrorCode,
    ProtocolError,
    PublicationError,
    RegistrationError,
)
from aeron_async.logs import LogBudget, get_logger
from aeron_async.protocol.channel_uri import Media
from aeron_async.protocol.control_protocol import (
    NO_ID,
    AddCounter,
    AddExclusivePublication,
    AddPublication,
    AddStaticCounter,
    AddSubscription,
    ClientTimeout,
    ControlMessage,
    CounterReady,
    ErrorResponse,
    ImageBuffersReady,
    OperationSucceeded,
    PublicationBuffersReady,
    PublicationErrorResponse,
    RejectImage,
    RemoveCounter,
    RemovePublication,
    RemovePublicationFlags,
    RemoveSubscription,
    StaticCounterReady,
    SubscriptionReadyResponse,
    UnavailableImage,
    text_of,
)
from aeron_async.tasks import TaskOwner
from aeron_async.text import printable
from aeron_async.watcher import Watcher

if TYPE_CHECKING:
    import os

    from aeron_async.client.attached_destinations import Owner
    from aeron_async.client.driver_proxy import DriverProxy
    from aeron_async.client.reconnecting import ReconnectListener
    from aeron_async.clock import Clock
    from aeron_async.counters import CountersReader
    from aeron_async.driver.commands import (
        AddedCounter,
        CongestionControlSupplier,
        FlowControlSupplier,
        PublicationReady,
        PublicationUser,
        SubscriptionReady,
        SubscriptionUser,
    )
    from aeron_async.driver.core.context import DriverContext
    from aeron_async.idle_strategy import IdleStrategy
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = ["AttachedDriver"]

KEEPALIVE_INTERVAL_S: Final = 0.5
ROOM: Final = "raise the limit of open files, or that of memory"
UNOPENED_MAX: Final = 1_024
"""Most images of a subscription that wait for a descriptor or memory; more are left out."""

log: Final = get_logger(__name__)


class AttachedDriver:
    """A media driver in another process; it stands where an embedded `MediaDriver` does.

    Args:
        directory: The Aeron directory.
        context: Gives the timeouts of this client.
        idle_strategy: What the watcher does between two looks; None backs off.
        reconnect: Whether the client goes on with the next driver when it has lost one.

    Attributes:
        path: The Aeron directory, as an absolute path.
        context: As given.
        listener: The client, once it has started.
        client_id: Its id in the driver, once it has started.
        publications: Those that the client has added, by their ids.
        subscriptions: Those that the client has added, by their ids.
        own_counters: Those that the client has added, by their correlation ids.
        destinations: Adds and removes destinations.
        is_closed: Whether this client has left the driver, or the driver has gone.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        context: DriverContext | None,
        idle_strategy: IdleStrategy | None = None,
        *,
        reconnect: bool = False,
    ) -> None:
        self.context: Final = context_here() if context is None else context
        self.is_closed: bool = False
        # A relative one must mean the same when the program has changed its own.
        self.path: Final = Path(directory).absolute()
        self._idle_strategy = idle_strategy
        self._clock = SystemClock()
        self._network = system_network(self.context)
        self._log_budget = LogBudget(self._clock.now_ns)
        self.listener: ReconnectListener | None = None
        self.client_id: int = NO_ID
        self._attached: Attachment | None = None
        self.publications: Final[dict[int, AttachedPublication]] = {}
        self.subscriptions: Final[dict[int, AttachedSubscription]] = {}
        self.own_counters: Final[dict[int, AttachedCounter]] = {}
        self._order = count()
        self._timer: asyncio.TimerHandle | None = None
        self._watching = TaskOwner()
        self._left = asyncio.Event()
        away_ids = AwayIds()
        self._comeback = Comeback(self, away_ids) if reconnect else None
        self._lost_at: tuple[tuple[int, int], int] | None = None
        self.destinations: Final = AttachedDestinations(self._owner, self._proxy_for, away_ids)

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
        """Return the driver's counters.

        Raises:
            ClosedError: The client is not attached to the driver.
        """
        return self._attachment().directory.counters

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
            ConfigurationError: The directory is a file, the compiled code is missing, or the system
                is not Linux.
        """
        if (file := file_in_place_of(self.path)) is not None:
            message = f"{file} is a file, and an Aeron directory is needed: name another"
            raise ConfigurationError(message)
        self._attach(await wait_for_driver(self._look, self.context, now_ns=self._clock.now_ns))
        try:
            await self.add_bell()
        except BaseException:
            self._detach()
            raise

    def _look(self) -> AeronDirectory | str:
        """Return the directory if it has an active driver; if not, say why not."""
        return AeronDirectory.try_open_active(
            self.path, now_ms=self._clock.epoch_ms(), timeout_ms=self.context.driver_timeout_ms
        )

    def _attach(self, directory: AeronDirectory) -> None:
        try:
            self._attached = Attachment(
                directory,
                Watcher(asyncio.get_running_loop(), self._idle_strategy),
                timeout_ms=self.context.driver_timeout_ms,
                on_event=self._on_event,
                on_missed=self._on_missed,
                on_failed=self._fail,
                on_lapsed=self._on_lapsed,
                now_ns=self._clock.now_ns,
            )
        except BaseException:
            directory.close()
            raise
        self.client_id = self._attached.proxy.client_id

    async def add_bell(self) -> None:
        """Add the bell of this client; see `Attachment.add_bell`."""
        await self._attachment().add_bell()

    def look_for_driver(self) -> str | None:
        """Attach to the next driver if there is one; if not, say why not.

        Raises:
            AeronError: Its files cannot be used, or not yet.
            OSError: The system has no memory or no thread for them.
        """
        found = self._look()
        if isinstance(found, str):
            return found
        if (found.identity, found.heartbeat_ms) == self._lost_at:
            # It was lost because its heartbeat stands still, whatever its time says.
            found.close()
            return "the driver that was lost has shown no life since"
        self._attach(found)
        self._keep_alive_later()
        return None

    async def aclose(self) -> None:
        """Leave the driver, which removes what this client has added."""
        self._detach()
        if self._comeback is not None:
            await self._comeback.wait_closed()
        # As every close of the client: what was woken runs before this returns.
        await asyncio.sleep(0)

    def _detach(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._left.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._comeback is not None:
            self._comeback.close()
        if self._attached is not None:
            self._attached.proxy.close()
        self._end_all()

    async def _watch(self) -> None:
        """Wait for the end of the client, and end it if its event loop ends before it."""
        try:
            await self._left.wait()
        except asyncio.CancelledError:
            if not self.is_closed:
                self.end(None)
                # asyncio warns of transports in the same way: the driver is left in order.
                message = f"unclosed client of {self.path}: its event loop ended before `aclose()`"
                warnings.warn(message, ResourceWarning, source=self, stacklevel=1)
            raise

    def on_forked(self) -> None:
        """Stop using the driver's memory, which a child process has not inherited."""
        self.is_closed = True
        if self._attached is not None:
            self._attached.proxy.is_closed = True
        self._end_all()

    def _end_all(self) -> None:
        attached, self._attached = self._attached, None
        for publication in list(self.publications.values()):
            self._end_publication(publication, attached)
        for subscription in list(self.subscriptions.values()):
            self.end_subscription(subscription, attached)
        for correlation_id in list(self.own_counters):
            self._end_counter(correlation_id)
        if attached is not None:
            attached.close()

    @property
    def is_attached(self) -> bool:
        """Return whether the client has a driver now."""
        return self._attached is not None

    def _attachment(self) -> Attachment:
        if self._attached is None:
            if self._comeback is not None and self._comeback.is_away:
                raise self._comeback.error()
            message = "the client is not attached to its media driver: connect another"
            raise ClosedError(message)
        return self._attached

    async def _found(self) -> Attachment:
        """Return what takes requests, after waiting for the next driver if the last one is lost.

        Raises:
            DriverTimeoutError: There is none in time.
            ClosedError: The client is closed.
        """
        if self._attached is None and self._comeback is not None and self._comeback.is_away:
            await self._comeback.wait_found()
        return self._attachment()

    def _proxy(self) -> DriverProxy:
        return self._attachment().proxy

    def _proxy_for(self, owner: Owner | None) -> DriverProxy:
        """Return what takes commands about a publication or a subscription.

        Raises:
            DriverTimeoutError: The driver was lost, and the next one does not have it yet.
        """
        proxy = self._proxy()
        if self._comeback is not None and owner is not None and not owner.is_attached:
            raise self._comeback.error()
        return proxy

    # What `Conductor` has.

    def add_client(self, listener: ReconnectListener) -> int:
        """Add the one client of this object, and return its id."""
        self.listener = listener
        self._watching.start(self._watch(), "aeron-client-watch")
        self._keep_alive_later()
        return self._proxy().client_id

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
        listener: PublicationUser,
        flow_control: FlowControlSupplier | None = None,
        handshake_length: int | None = None,
    ) -> PublicationReady:
        """Add a publication; see `Conductor.add_publication`.

        Raises:
            RegistrationError: The driver refuses it; or a strategy is given, which cannot be passed
                to another process.
            DriverTimeoutError: The driver did not answer in time.
            DriverError: Its log cannot be opened.
            ProtocolError: The driver's answer cannot be.
            ClosedError: The client or the driver is closed.
        """
        refuse_strategy(flow_control, "flow_control", "fc")
        if handshake_length is not None and uri.media is not Media.IPC:
            message = "handshake_length needs a driver of the same process: leave it out"
            raise RegistrationError(message, code=ErrorCode.NOT_SUPPORTED)
        del client_id
        await self._found()
        publication = AttachedPublication(
            uri,
            stream_id,
            is_exclusive=is_exclusive,
            listener=listener,
            order=next(self._order),
            directory=str(self.path),
        )
        request_id = uri.response_correlation_id
        publication.answers = None if request_id is None else self.subscriptions.get(request_id)
        await self.open_publication(publication)
        first_id = publication.ready.original_registration_id
        if first_id != publication.ready.registration_id:
            for other in self.publications.values():
                if other.is_attached and other.ready.original_registration_id == first_id:
                    publication.destinations = other.destinations
        self.publications[publication.ready.registration_id] = publication
        return publication.ready

    async def open_publication(self, publication: AttachedPublication) -> None:
        """Ask the driver for a publication, and use what it has created."""
        attached = self._attachment()
        proxy = attached.proxy
        uri = publication.uri
        if publication.answers is not None:
            uri = uri.replace(response_correlation_id=publication.answers.registration_id)
        kind = AddExclusivePublication if publication.is_exclusive else AddPublication
        is_held = publication.listener.has_error_handler
        answer = await proxy.ask(
            kind(
                client_id=proxy.client_id,
                correlation_id=proxy.next_id(),
                stream_id=publication.stream_id,
                channel=str(uri).encode(),
            ),
            PublicationBuffersReady,
            RemovePublication,
            is_held=is_held,
        )
        try:
            self._open_log(publication, answer, attached)
        except BaseException:
            proxy.undo(RemovePublication, answer.correlation_id)
            if is_held:
                proxy.release()
            raise

    def _open_log(
        self,
        publication: AttachedPublication,
        answer: PublicationBuffersReady,
        attached: Attachment,
    ) -> None:
        try:
            mapped = attached.logs.map(answer.log_file)
        except OSError as error:
            message = f"the log {text_of(answer.log_file)} cannot be mapped: {error}; {ROOM}"
            raise DriverError(message) from error
        if mapped is None:
            self._check_driver(attached)
            name = text_of(answer.log_file)
            message = f"the media driver has removed the log {name} already: add it again"
            raise DriverError(message)
        try:
            publication.open(
                answer,
                log=mapped,
                counters=attached.directory.counters,
                memory=attached.values,
                watcher=attached.watcher,
                bells=attached.bells,
            )
        except BaseException:
            publication.close()
            attached.logs.release(mapped)
            raise

    async def add_subscription(
        self,
        client_id: int,
        uri: ChannelUri,
        stream_id: int,
        *,
        listener: SubscriptionUser,
        congestion_control: CongestionControlSupplier | None = None,
    ) -> SubscriptionReady:
        """Add a subscription; see `Conductor.add_subscription`.

        Raises:
            RegistrationError: As `add_publication`.
            DriverTimeoutError: The driver did not answer in time.
            ProtocolError: The driver's answer cannot be.
            ClosedError: The client or the driver is closed.
        """
        refuse_strategy(congestion_control, "congestion_control", "cc")
        del client_id
        await self._found()
        subscription = AttachedSubscription(
            uri, stream_id, listener=listener, order=next(self._order), directory=str(self.path)
        )
        ready = await self.open_subscription(subscription)
        assert ready is not None, "nothing closes a subscription before it is returned"
        return ready

    async def open_subscription(
        self, subscription: AttachedSubscription
    ) -> SubscriptionReady | None:
        """Ask the driver for a subscription; return what it has created.

        None says that the subscription was closed in the meantime, and is removed again.
        """
        attached = self._attachment()
        proxy = attached.proxy
        registration_id = proxy.next_id()
        # Images are announced right after the answer.
        self.subscriptions[registration_id] = subscription
        subscription.asked_id = registration_id
        proxy.hold()
        try:
            answer = await proxy.ask(
                AddSubscription(
                    client_id=proxy.client_id,
                    correlation_id=registration_id,
                    stream_id=subscription.stream_id,
                    channel=str(subscription.uri).encode(),
                ),
                SubscriptionReadyResponse,
                RemoveSubscription,
            )
        except BaseException:
            if subscription.asked_id == registration_id:
                self._end_request(subscription, attached)
            raise
        if subscription.asked_id != registration_id:
            proxy.undo(RemoveSubscription, registration_id)
            return None
        try:
            return subscription.open(answer, attached)
        except BaseException:
            proxy.undo(RemoveSubscription, registration_id)
            self._end_request(subscription, attached)
            raise

    def _end_request(self, subscription: AttachedSubscription, attached: Attachment) -> None:
        """Forget a subscription that the driver has not added, and its images."""
        if subscription.asked_id is not None:
            self.subscriptions.pop(subscription.asked_id, None)
            subscription.asked_id = None
        attached.proxy.release()
        for image in subscription.images.values():
            image.close()
            attached.logs.release(image.log)
        subscription.images.clear()
        subscription.unopened.clear()

    def remove_publication(self, registration_id: int) -> None:
        """Remove a publication; what was offered is still sent."""
        self._remove_publication(registration_id, RemovePublicationFlags(0))

    def revoke_publication(self, registration_id: int) -> None:
        """Remove a publication, and take its stream back."""
        self._remove_publication(registration_id, RemovePublicationFlags.REVOKE)

    def _remove_publication(self, registration_id: int, flags: RemovePublicationFlags) -> None:
        publication = self.publications.get(registration_id)
        if publication is None:
            return
        is_attached, attached = publication.is_attached, self._attached
        self._end_publication(publication, attached)
        if not is_attached or attached is None:
            return
        attached.proxy.tell(
            RemovePublication(
                client_id=attached.proxy.client_id,
                correlation_id=attached.proxy.next_id(),
                registration_id=registration_id,
                flags=flags,
            )
        )

    def remove_subscription(self, registration_id: int) -> None:
        """Remove a subscription."""
        subscription = self.subscriptions.get(registration_id)
        if subscription is None:
            return
        is_attached, attached = subscription.is_attached, self._attached
        self.end_subscription(subscription, attached)
        if is_attached and attached is not None:
            attached.proxy.undo(RemoveSubscription, registration_id)

    async def add_counter(
        self,
        client_id: int,
        type_id: int,
        *,
        key: bytes,
        label: str,
        static_registration_id: int | None = None,
    ) -> AddedCounter:
        """Add a counter; see `Conductor.add_counter`.

        Raises:
            RegistrationError: The driver refuses it.
            DriverTimeoutError: The driver did not answer in time.
            ProtocolError: The driver's answer cannot be.
            ClosedError: The client or the driver is closed.
        """
        del client_id
        await self._found()
        counter = AttachedCounter(
            type_id=type_id,
            key=key,
            label=label,
            static_registration_id=static_registration_id,
            order=next(self._order),
        )
        added = await self.open_counter(counter)
        self.own_counters[added.correlation_id] = counter
        return added

    async def catch_up(self, client_id: int) -> None:
        """Hear everything that the driver has said by now; see `Conductor.catch_up`.

        Raises:
            AeronError: See `add_counter`.
        """
        del client_id
        await self._attachment().catch_up()

    async def open_counter(self, counter: AttachedCounter) -> AddedCounter:
        """Ask the driver for a counter; return what it has allocated."""
        attached = self._attachment()
        proxy = attached.proxy
        correlation_id = proxy.next_id()
        static_id = counter.static_registration_id
        label = counter.label.encode("utf-8", "replace")
        answer: CounterReady
        if static_id is None:
            command = AddCounter(
                client_id=proxy.client_id,
                correlation_id=correlation_id,
                counter_type_id=counter.type_id,
                key=counter.key,
                label=label,
            )
            answer = await proxy.ask(command, CounterReady, RemoveCounter)
        else:
            static = AddStaticCounter(
                client_id=proxy.client_id,
                correlation_id=correlation_id,
                registration_id=static_id,
                counter_type_id=counter.type_id,
                key=counter.key,
                label=label,
            )
            answer = await proxy.ask(static, StaticCounterReady)
        try:
            cell = CounterCell(attached.directory.counters, attached.values, answer.counter_id)
        except BaseException:
            if static_id is None:
                proxy.undo(RemoveCounter, correlation_id)
            raise
        return counter.open(correlation_id, cell.counter)

    def remove_counter(self, correlation_id: int) -> None:
        """Free a counter, by the id of the request that added it; a static one stays."""
        counter = self.own_counters.get(correlation_id)
        if counter is None:
            return
        self._end_counter(correlation_id)
        if counter.is_attached and counter.static_registration_id is None:
            self._proxy().undo(RemoveCounter, correlation_id)

    async def reject_image(self, client_id: int, image_id: int, reason: str) -> None:
        """Reject an image; see `Conductor.reject_image`."""
        del client_id
        images = (each.images.get(image_id) for each in self.subscriptions.values())
        image = next((each for each in images if each is not None), None)
        if image is None:
            message = f"there is no image {image_id}: it has ended"
            raise RegistrationError(message)
        proxy = self._proxy()
        await proxy.ask(
            RejectImage(
                client_id=proxy.client_id,
                correlation_id=proxy.next_id(),
                image_id=image_id,
                position=image.position.get(),
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

    def _owner(self, registration_id: int) -> Owner | None:
        """Return the publication or the subscription with an id."""
        publication = self.publications.get(registration_id)
        return self.subscriptions.get(registration_id) if publication is None else publication

    # Events.

    def _on_event(self, event: ControlMessage) -> None:
        match event:
            case ImageBuffersReady():
                self._on_available_image(event)
            case UnavailableImage():
                self._on_unavailable_image(event)
            case PublicationErrorResponse():
                self._on_publication_error(event)
            case ClientTimeout():
                if event.client_id == self._proxy().client_id:
                    self._fail(DriverError(NOT_HEARD))
            case ErrorResponse():
                self._on_channel_error(event)
            case CounterReady():
                self._attachment().open_heartbeat(event.counter_id)
                self._attachment().beat(self._clock.epoch_ms())
            case _:
                pass

    def _on_available_image(self, event: ImageBuffersReady) -> None:
        subscription = self.subscriptions.get(event.subscription_registration_id)
        if subscription is None or event.image_id in subscription.images:
            return
        image_id, stream_id = event.image_id, event.stream_id
        try:
            image = self._attachment().open_image(event, subscription)
        except OSError as error:
            if image_id not in subscription.unopened and len(subscription.unopened) < UNOPENED_MAX:
                subscription.unopened[image_id] = event
                if self._log_budget.allows("image_not_mapped"):
                    log.warning(
                        "image_not_mapped", image_id=image_id, stream_id=stream_id, error=str(error)
                    )
            return
        subscription.unopened.pop(image_id, None)
        if image is None:
            log.info("image_gone", image_id=image_id, stream_id=stream_id)
            return
        subscription.images[image_id] = image
        subscription.listener.on_available_image(image.ready)

    def _open_images(self) -> None:
        """Try again to open the images whose logs could not be mapped."""
        try:
            for subscription in list(self.subscriptions.values()):
                for event in list(subscription.unopened.values()):
                    self._on_available_image(event)
        except AeronError as error:
            self._fail(error)

    def _on_unavailable_image(self, event: UnavailableImage) -> None:
        subscription = self.subscriptions.get(event.subscription_registration_id)
        if subscription is None:
            return
        subscription.unopened.pop(event.image_id, None)
        image = subscription.images.pop(event.image_id, None)
        if image is None:
            return
        image.on_unavailable()
        # The reader looks at the log a last time before it is unmapped.
        subscription.listener.on_unavailable_image(event.image_id)
        image.close()
        self._attachment().logs.release(image.log)

    def _on_publication_error(self, event: PublicationErrorResponse) -> None:
        for publication in list(self.publications.values()):
            if publication.ready.original_registration_id != event.registration_id:
                continue
            if is_of_driver(event):
                # It has ended the publication.
                self._end_publication(publication, self._attached)
                error = PublicationError(text_of(event.message))
                publication.listener.on_publication_failed(error)
            else:
                publication.on_error(event)

    def _on_channel_error(self, event: ErrorResponse) -> None:
        """Log that the socket of a channel has failed, as a driver of an old version says it.

        Source: Aeron `DriverEventsAdapter`, `ClientConductor.onChannelEndpointError`.
        """
        streams: list[Owner] = [*self.publications.values(), *self.subscriptions.values()]
        for each in streams:
            status = None if each.ready is None else each.ready.channel_status
            if status is not None and status.id == event.correlation_id:
                error = printable(text_of(event.message))
                log.warning("channel_failed", channel=str(each.uri), error=error)

    def _on_missed(self) -> None:
        """End the client if what it has missed is that the driver gave it up."""
        if not self._attachment().is_known():
            self._fail(DriverError(NOT_HEARD))

    # Life.

    def _keep_alive_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(KEEPALIVE_INTERVAL_S, self._keep_alive)

    def _keep_alive(self) -> None:
        """Show that this client lives, and look whether the driver does."""
        attached = self._attachment()
        attached.check_served()
        if self._attached is not attached:
            return
        if attached.directory.heartbeat_ms == HEARTBEAT_ENDED:
            self._fail(None)
        elif (error := attached.why_lost()) is not None:
            self._fail(error)
        else:
            attached.proxy.flush()
            attached.beat(self._clock.epoch_ms())
            self._keep_alive_later()
            if self._comeback is not None:
                self._comeback.on_alive()
            # Last, because what the driver says may end the client.
            attached.proxy.look()
            if self._attached is attached:
                self._open_images()

    def _on_lapsed(self) -> None:
        for subscription in list(self.subscriptions.values()):
            subscription.listener.on_lapsed()

    def _check_driver(self, attached: Attachment) -> None:
        """Notice now, and not half a second later, that a driver has ended with its logs.

        Raises:
            DriverTimeoutError: It has, and the client reconnects.
        """
        directory = attached.directory
        has_ended = directory.heartbeat_ms == HEARTBEAT_ENDED
        if self._comeback is not None and (has_ended or directory.is_replaced()):
            self.lose("it was closed" if has_ended else "another media driver has taken its place")
            raise self._comeback.error()

    def _fail(self, error: Exception | None) -> None:
        """Act on a driver that has closed, died, or given the client up.

        A driver that says what no driver says ends the client: the next look would find it again.
        """
        if self._comeback is None or self.listener is None or isinstance(error, ProtocolError):
            self.end(error)
        else:
            self.lose("it was closed" if error is None else str(error))

    def end(self, error: Exception | None) -> None:
        """End the client with its driver."""
        if self._attached is not None:
            closed = ClosedError("the media driver was closed")
            self._attached.proxy.fail(closed if error is None else error)
        if self.listener is not None:
            self.listener.on_driver_closed(error)
        self._detach()

    def lose(self, reason: str) -> None:
        """Leave the driver, and look for the next one; do nothing if that has begun."""
        attached, self._attached = self._attached, None
        if attached is None or self._comeback is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._lost_at = attached.directory.identity, attached.directory.heartbeat_ms
        try:
            self._comeback.begin(attached, reason)
        except OSError as error:
            # No memory for what stands in for the logs of the driver.
            self._attached = attached
            self.end(DriverError(f"the media driver was lost: {reason}; and then: {error}"))
        else:
            attached.close()

    def _end_publication(
        self, publication: AttachedPublication, attached: Attachment | None
    ) -> None:
        self.publications.pop(publication.ready.registration_id, None)
        if attached is None or not publication.is_attached:
            publication.ready.log.close()
            return
        if publication.listener.has_error_handler:
            attached.proxy.release()
        publication.close()
        attached.logs.release(publication.ready.log)

    def end_subscription(
        self, subscription: AttachedSubscription, attached: Attachment | None
    ) -> None:
        """Forget a subscription, and its images."""
        self.subscriptions.pop(subscription.registration_id, None)
        # One that the client has not yet come to, after the driver was lost, holds nothing.
        if attached is not None and (subscription.is_attached or subscription.asked_id is not None):
            self._end_request(subscription, attached)
        subscription.is_attached = False
        subscription.close_status()

    def _end_counter(self, correlation_id: int) -> None:
        added = self.own_counters.pop(correlation_id).added
        if added is not None:
            added.counter.invalidate()
