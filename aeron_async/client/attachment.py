"""What a client holds while it is attached to a driver of another process.

Source: Aeron `Aeron.Context.conclude`, `ClientConductor`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias
from weakref import ref

from aeron_async.aeron_directory import DIRECTORY_VARIABLE
from aeron_async.client.attached_streams import (
    AttachedImage,
    AttachedPublication,
    CounterCell,
    Destination,
    MappedLogs,
)
from aeron_async.client.driver_proxy import DriverProxy
from aeron_async.clock import NEVER_NS, NS_PER_MS, NS_PER_SECOND
from aeron_async.doorbell import BELL_KEY, BELL_TYPE_ID, CLIENT_BELL_NS, ClientBells
from aeron_async.driver.core.context import DriverContext
from aeron_async.errors import DriverError, DriverTimeoutError, ErrorCode, RegistrationError
from aeron_async.logs import get_logger
from aeron_async.protocol.channel_uri import Media
from aeron_async.protocol.control_protocol import (
    NO_ID,
    AddCounter,
    AddDestination,
    AddReceiveDestination,
    ControlMessage,
    CounterReady,
    OperationSucceeded,
    RemoveCounter,
    RemoveDestination,
    RemoveDestinationById,
    RemoveReceiveDestination,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.aeron_directory import AeronDirectory
    from aeron_async.client.attached_streams import AttachedSubscription
    from aeron_async.protocol.channel_uri import ChannelUri
    from aeron_async.protocol.control_protocol import ClientCommand, ImageBuffersReady
    from aeron_async.watcher import Spinner, Watcher

__all__ = [
    "NOT_HEARD",
    "AttachedDestinations",
    "Attachment",
    "Owner",
    "refuse_strategy",
    "wait_for_driver",
]

ATTACH_INTERVAL_S: Final = 0.016
LAPSED_INTERVAL_S: Final = 0.05
SILENCE_MS: Final = 2_000
"""A driver that has not beaten for two of its seconds may have been replaced by another one."""
CATCH_UP_TYPE_ID: Final = 20_001
"""Type of a counter that exists for a moment only."""
REMEDY: Final = (
    "block its event loop for less long, or raise client_liveness_timeout_ns of the driver"
)
NOT_HEARD: Final = f"the media driver has not heard this client in time: {REMEDY}"

Owner: TypeAlias = "AttachedPublication | AttachedSubscription"

log: Final = get_logger(__name__)


async def wait_for_driver(
    look: Callable[[], AeronDirectory | str], context: DriverContext, *, now_ns: Callable[[], int]
) -> AeronDirectory:
    """Return the directory of a driver as soon as there is one.

    A wait that lasts longer than `waiting_hint_ns` is logged once, with what it waits for.

    Args:
        look: Returns the directory if it has an active driver; if not, why not.
        context: Says how long to wait.
        now_ns: Reads the clock, in nanoseconds.

    Raises:
        DriverTimeoutError: There was none within `driver_timeout_ms`.
    """
    timeout_ms, began_ns = context.driver_timeout_ms, now_ns()
    hint_ns = context.waiting_hint_ns or NEVER_NS
    while isinstance(found := look(), str):
        waited_ns = now_ns() - began_ns
        if waited_ns >= timeout_ms * NS_PER_MS:
            message = f"no media driver within {timeout_ms} ms, which is driver_timeout_ms: {found}"
            raise DriverTimeoutError(message)
        if waited_ns >= hint_ns:
            hint_ns = NEVER_NS
            seconds = round(waited_ns / NS_PER_SECOND, 3)
            log.warning("wait_lasted_long", operation="connect", seconds=seconds, why=found)
        # A driver that starts wakes no client.
        await asyncio.sleep(ATTACH_INTERVAL_S)
    return found


class Attachment:
    """What a client holds while it is attached: the driver's directory, and what looks at it.

    Args:
        directory: Closed by `close`.
        watcher: Looks at its memory; closed by `close`, and if this raises.
        timeout_ms: How long to wait for an answer of the driver.
        on_event: Called with what the driver says and no request has asked for.
        on_missed: Called if some of that was missed.
        on_failed: Called if that cannot be read.
        on_lapsed: Called in another thread if the client has not run for too long.
        now_ns: Returns the time.
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
        on_lapsed: Callable[[], object],
        now_ns: Callable[[], int],
    ) -> None:
        self.directory: Final = directory
        self._now_ns = now_ns
        self._timeout_ms = timeout_ms
        self._on_failed = on_failed
        self._on_lapsed = on_lapsed
        self._is_closed = threading.Event()
        self._served_ns = now_ns()
        self.logs: Final = MappedLogs(directory.path)
        self.watcher: Final = watcher
        self._heartbeat: CounterCell | None = None
        self._driver_beat_ms, self._heard_ns = directory.heartbeat_ms, now_ns()
        self.values: Final = directory.counter_values()
        self.bells: Final = ClientBells(directory.counters, self.values, now_ns)
        try:
            self._watch_liveness()
            self.proxy: Final = DriverProxy(
                directory,
                self.watcher,
                timeout_ms=timeout_ms,
                on_event=on_event,
                on_missed=on_missed,
                on_failed=on_failed,
                on_written=partial(self.bells.ring_driver, is_command=True),
            )
        except BaseException:
            self._is_closed.set()
            self.watcher.close()
            self.bells.close()
            self.values.release()
            raise

    def new_spinner(self) -> Spinner | None:
        """Return what lets one reader look for a moment before it sleeps; None if none should."""
        return self.watcher.new_spinner(self._now_ns)

    def _watch_liveness(self) -> None:
        limit_s = self.directory.layout.client_liveness_timeout_ns / NS_PER_SECOND
        thread = threading.Thread(
            target=watch_liveness,
            args=(ref(self), self._is_closed, min(limit_s, threading.TIMEOUT_MAX)),
            name="aeron-liveness",
            daemon=True,
        )
        try:
            thread.start()
        except RuntimeError as error:
            raise OSError(errno.EAGAIN, "the system gives no thread for the client") from error

    def open_heartbeat(self, counter_id: int) -> None:
        """Take the counter in which the client says that it lives.

        Raises:
            ProtocolError: There is no such counter.
        """
        if self._heartbeat is None:
            self._heartbeat = CounterCell(self.directory.counters, self.values, counter_id)

    def check_served(self) -> None:
        """Fail a client that has not run for so long that its driver may have given it up.

        The driver gives its counters away then, and a position must not be stored in one of them.

        Source: Aeron `ClientConductor.checkServiceInterval`.
        """
        if self._is_closed.is_set():
            # A reader of a client that comes back may still ask what it has left.
            return
        silent_ns = self._now_ns() - self._served_ns
        limit_ns = self.directory.layout.client_liveness_timeout_ns
        if silent_ns > limit_ns:
            message = (
                f"this client has not run for {silent_ns // NS_PER_MS} ms, of "
                f"{limit_ns // NS_PER_MS} ms that its media driver allows: {REMEDY}"
            )
            self._on_failed(DriverError(message))

    def look_from_thread(self) -> float:
        """Look whether the client has not run for too long; return when to look again, in seconds.

        Its readers then ask `check_served` before the next message.
        """
        limit_ns = self.directory.layout.client_liveness_timeout_ns
        left_ns = self._served_ns + limit_ns - self._now_ns()
        if left_ns >= 0:
            return left_ns / NS_PER_SECOND + LAPSED_INTERVAL_S
        self._on_lapsed()
        return LAPSED_INTERVAL_S

    def open_image(
        self, event: ImageBuffersReady, subscription: AttachedSubscription
    ) -> AttachedImage | None:
        """Return an image of a subscription; None if the driver has closed it in the meantime.

        Raises:
            ProtocolError: The driver names what it does not have.
            DriverError: This user may not open its log, or it is none.
            OSError: The system gives no descriptor or no memory for it now.
        """
        counter_id = event.subscriber_position_id
        cell = CounterCell(self.directory.counters, self.values, counter_id)
        # The driver may have closed the image, or given up the client, and given the counter away.
        is_there = cell.is_position_of(event.subscription_registration_id)
        mapped = None
        try:
            mapped = self.logs.map(event.log_file) if is_there else None
            if mapped is None:
                cell.close()
                return None
            return AttachedImage(
                event,
                log=mapped,
                cell=cell,
                watcher=self.watcher,
                bells=self.bells,
                on_progress=subscription.listener.on_image_progress,
                is_tethered=subscription.uri.is_tether is not False,
            )
        except BaseException:
            cell.close()
            if mapped is not None:
                self.logs.release(mapped)
            raise

    def beat(self, now_ms: int) -> None:
        """Say that the client lives."""
        self._served_ns = self._now_ns()
        # The driver may have given the counter to another client.
        if self._heartbeat is not None and self.is_known():
            self._heartbeat.counter.set(now_ms)
            self._keep_bell()

    async def add_bell(self) -> None:
        """Add a bell, if the driver rings; without one this client looks by itself.

        Raises:
            DriverTimeoutError: The driver did not answer in time.
            ProtocolError: The driver's answer cannot be.
            ClosedError: The client or the driver is closed.
        """
        if not self.bells.has_driver:
            return
        proxy = self.proxy
        command = AddCounter(
            client_id=proxy.client_id,
            correlation_id=proxy.next_id(),
            counter_type_id=BELL_TYPE_ID,
            key=BELL_KEY,
            label=b"bell of client %d" % proxy.client_id,
        )
        try:
            answer = await proxy.ask(command, CounterReady, RemoveCounter)
        except RegistrationError as error:
            log.info("bell_refused", error=str(error))
            return
        # It is there, and the driver's file says so.
        CounterCell(self.directory.counters, self.values, answer.counter_id).close()
        self.bells.use(self.watcher, answer.counter_id)
        self._keep_bell()

    def _keep_bell(self) -> None:
        # The driver may have freed it, for another client that names itself by this one's id.
        if self.bells.is_own(self.proxy.client_id):
            timeout_ns = self.directory.layout.client_liveness_timeout_ns
            self.watcher.keep_bell(min(CLIENT_BELL_NS, timeout_ns // 2))

    async def catch_up(self) -> None:
        """Hear everything that the driver has said by now.

        Raises:
            AeronError: The driver does not answer, or the client is closed.
        """
        # The driver says things in order. Every version of it knows this command, and a counter
        # disturbs nothing else.
        proxy = self.proxy
        answer = await proxy.ask(
            AddCounter(
                client_id=proxy.client_id,
                correlation_id=proxy.next_id(),
                counter_type_id=CATCH_UP_TYPE_ID,
                key=b"",
                label=b"catch-up",
            ),
            CounterReady,
            RemoveCounter,
        )
        proxy.undo(RemoveCounter, answer.correlation_id)

    def is_known(self) -> bool:
        """Return whether the driver counts this client among its own, as far as one can see."""
        return self._heartbeat is None or self._heartbeat.is_of(self.proxy.client_id)

    def why_lost(self) -> DriverTimeoutError | None:
        """Return why the driver is lost, although it has not ended in order; None if it lives."""
        now_ns, path = self._now_ns(), self.directory.path
        beat_ms = self.directory.heartbeat_ms
        if beat_ms != self._driver_beat_ms:
            self._driver_beat_ms, self._heard_ns = beat_ms, now_ns
        silent_ms = (now_ns - self._heard_ns) // NS_PER_MS
        if silent_ms > self._timeout_ms:
            message = (
                f"the media driver at {path} has shown no life for {silent_ms} ms, of "
                f"{self._timeout_ms} ms that driver_timeout_ms allows: it has died or stands "
                "still; start it again, or raise driver_timeout_ms"
            )
            return DriverTimeoutError(message)
        if silent_ms > SILENCE_MS and self.directory.is_replaced():
            message = f"another media driver uses {path} now, or none: connect again"
            return DriverTimeoutError(message)
        return None

    def close(self) -> None:
        """Stop looking, and unmap the directory."""
        self._is_closed.set()
        if self._heartbeat is not None:
            self._heartbeat.close()
        self.watcher.close()
        self.bells.close()
        self.values.release()
        self.directory.close()


def watch_liveness(attachment: ref[Attachment], is_closed: threading.Event, wait_s: float) -> None:
    """Look, from a thread, whether a client has not run for too long.

    An event loop that is blocked cannot look itself, and the reader that blocks it may go on to
    take messages without a turn of the loop.
    """
    while not is_closed.wait(wait_s):
        found = attachment()
        if found is None:
            return
        wait_s = min(found.look_from_thread(), threading.TIMEOUT_MAX)
        # The thread keeps no client that nothing else does.
        del found


class AttachedDestinations:
    """Commands about destinations, to a driver in another process; see `Destinations`.

    Args:
        owner: Returns the publication or the subscription with an id; None if there is none.
        proxy_for: Returns what takes commands about it; raises if the driver does not have it.
    """

    def __init__(
        self,
        owner: Callable[[int], Owner | None],
        proxy_for: Callable[[Owner | None], DriverProxy],
    ) -> None:
        self._owner = owner
        self._proxy_for = proxy_for

    async def add_to_publication(
        self, client_id: int, registration_id: int, uri: ChannelUri
    ) -> int:
        """Add a destination to a publication; return the id of the destination."""
        del client_id
        return await self._add(AddDestination, registration_id, uri)

    async def remove_from_publication(
        self, client_id: int, registration_id: int, destination: ChannelUri | int
    ) -> None:
        """Remove a destination from a publication, by its channel or its id."""
        del client_id
        if not isinstance(destination, int):
            await self._remove(RemoveDestination, registration_id, destination)
            return
        owner = self._owner(registration_id)
        known = None if owner is None else owner.destinations.get(destination)
        if owner is not None and known is not None and known.driver_id is None:
            del owner.destinations[destination]
            return
        proxy = self._proxy_for(owner)
        await proxy.ask(
            RemoveDestinationById(
                client_id=proxy.client_id,
                correlation_id=proxy.next_id(),
                registration_id=id_for_driver(registration_id, owner),
                destination_registration_id=(
                    destination if known is None or known.driver_id is None else known.driver_id
                ),
            ),
            OperationSucceeded,
        )
        if owner is not None:
            owner.destinations.pop(destination, None)

    async def add_to_subscription(
        self, client_id: int, registration_id: int, uri: ChannelUri
    ) -> int:
        """Add a destination to a subscription; return the id of the destination."""
        del client_id
        return await self._add(AddReceiveDestination, registration_id, uri)

    async def remove_from_subscription(
        self, client_id: int, registration_id: int, destination: ChannelUri | int
    ) -> None:
        """Remove a destination from a subscription, by its channel or its id.

        The driver has a command for the channel only.

        Raises:
            RegistrationError: It has no such destination.
        """
        del client_id
        owner = self._owner(registration_id)
        uri = "the subscription" if owner is None else owner.uri
        message = f"{destination} is not a destination of {uri}"
        if not isinstance(destination, int):
            try:
                await self._remove(RemoveReceiveDestination, registration_id, destination)
            except RegistrationError as error:
                is_local = destination.is_spy or destination.media is Media.IPC
                if is_local and owner is not None and error.code is ErrorCode.UNKNOWN_SUBSCRIPTION:
                    # Drivers say so of a stream of their own that the subscription does not read.
                    raise RegistrationError(message) from error
                raise
            return
        known = None if owner is None else owner.destinations.get(destination)
        if owner is None or known is None:
            raise RegistrationError(message)
        if known.driver_id is not None:
            await self._ask(RemoveReceiveDestination, registration_id, known.uri)
        owner.destinations.pop(destination, None)

    async def add_again(self, owner: Owner, key: int) -> None:
        """Add a destination to the driver that the client has come back to.

        Args:
            owner: The publication or the subscription.
            key: The id of the destination, as its user knows it.
        """
        destination = owner.destinations[key]
        is_sent_to = isinstance(owner, AttachedPublication)
        kind = AddDestination if is_sent_to else AddReceiveDestination
        registration_id = owner.ready.registration_id if owner.ready is not None else NO_ID
        driver_id = await self._ask(kind, registration_id, destination.uri)
        if owner.destinations.get(key) is destination:
            destination.driver_id = driver_id
            return
        # Its user has removed it in the meantime.
        undo = RemoveDestination if is_sent_to else RemoveReceiveDestination
        await self._ask(undo, registration_id, destination.uri)

    async def _add(self, kind: type[AddDestination], registration_id: int, uri: ChannelUri) -> int:
        added_id = await self._ask(kind, registration_id, uri)
        owner = self._owner(registration_id)
        if owner is not None:
            owner.destinations[added_id] = Destination(uri, added_id)
        return added_id

    async def _remove(
        self, kind: type[AddDestination], registration_id: int, uri: ChannelUri
    ) -> None:
        owner = self._owner(registration_id)
        found = {} if owner is None else owner.destinations
        key = next((key for key, each in found.items() if each.uri == uri), None)
        if key is None or found[key].driver_id is not None:
            await self._ask(kind, registration_id, uri)
        if key is not None:
            found.pop(key, None)

    async def _ask(self, kind: type[AddDestination], registration_id: int, uri: ChannelUri) -> int:
        owner = self._owner(registration_id)
        proxy = self._proxy_for(owner)
        command = kind(
            client_id=proxy.client_id,
            correlation_id=proxy.next_id(),
            registration_id=id_for_driver(registration_id, owner),
            channel=str(uri).encode(),
        )
        await proxy.ask(command, OperationSucceeded, taking_back(command, proxy.next_id()))
        return command.correlation_id


def taking_back(added: AddDestination, correlation_id: int) -> ClientCommand | None:
    """Return the command that takes back a destination for which nobody waits any more.

    Args:
        added: The command that has added it, or one that has removed it, which nothing takes back.
        correlation_id: That of the command to return.
    """
    if type(added) is AddDestination:
        return RemoveDestinationById(
            client_id=added.client_id,
            correlation_id=correlation_id,
            registration_id=added.registration_id,
            destination_registration_id=added.correlation_id,
        )
    if isinstance(added, AddReceiveDestination):
        return RemoveReceiveDestination(
            client_id=added.client_id,
            correlation_id=correlation_id,
            registration_id=added.registration_id,
            channel=added.channel,
        )
    return None


def refuse_strategy(supplier: object, name: str, key: str) -> None:
    """Refuse a strategy, which is an object of this process.

    Raises:
        RegistrationError: NOT_SUPPORTED; one is given.
    """
    if supplier is not None:
        message = f"{name} needs a driver of the same process: name a strategy by {key}= instead"
        raise RegistrationError(message, code=ErrorCode.NOT_SUPPORTED)


def id_for_driver(registration_id: int, owner: Owner | None) -> int:
    """Return the id by which a driver knows a publication that several requests share."""
    if isinstance(owner, AttachedPublication):
        return owner.ready.original_registration_id
    return registration_id


def context_here() -> DriverContext:
    """Return the settings of the environment, without a word about a directory that is given."""
    variables = {name: text for name, text in os.environ.items() if name != DIRECTORY_VARIABLE}
    return DriverContext.from_environment(variables)
