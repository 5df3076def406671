"""The client conductor: the resources of one client, and its requests to the driver's conductor.

A child process that is forked does not inherit memory that a driver shares with other processes: to
touch it would end the child. So a client of such a driver is closed in the child, with all that it
has added, before anything else runs there. The parent's client stays as it is.

Source: Aeron `ClientConductor`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NoReturn, Protocol, Self, final
from weakref import WeakSet

import attrs

from aeron_async.client.home_loop import HomeLoop
from aeron_async.client.waiters import WaitWatch
from aeron_async.driver.media_driver import MediaDriver
from aeron_async.errors import ClosedError, ErrorCode, RegistrationError, WrongLoopError
from aeron_async.tasks import running_loop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aeron_async.client.attached_driver import AttachedDriver
    from aeron_async.clock import Clock
    from aeron_async.driver.commands import AddedCounter, PublicationReady, SubscriptionReady
    from aeron_async.errors import AeronError
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = [
    "ClientConductor",
    "ClientResource",
    "Closing",
    "NotAdded",
    "Reconnected",
    "ReconnectedHandler",
]

NOT_STARTED: Final = (
    "the client has not been started: write `async with Aeron.connect() as aeron`, or "
    "`aeron = await Aeron.connect()`"
)
UNKNOWN: Final = frozenset({ErrorCode.UNKNOWN_PUBLICATION, ErrorCode.UNKNOWN_SUBSCRIPTION})


@final
@attrs.frozen
class Closing:
    """Who closed a publication, a subscription or a client.

    Attributes:
        text: Who closed it, as the end of the text of `ClosedError`.
        error: The error that closed it, if one did.
    """

    text: str
    error: Exception | None = None

    @classmethod
    def by_driver(cls, error: Exception | None) -> Self:
        """Return the closing by a media driver, which was closed itself, or failed."""
        if error is None:
            return cls("its media driver was closed")
        return cls(f"it has lost its media driver: {error}", error)

    def raise_error(self, subject: str) -> NoReturn:
        """Raise `ClosedError` for what was closed.

        Raises:
            ClosedError: Always.
        """
        message = f"{subject} is closed: {self.text}"
        raise ClosedError(message) from self.error


BY_THIS_PROGRAM: Final = Closing("this program closed it")
BY_CLIENT: Final = Closing("its client was closed")
BY_FORK: Final = Closing("it belongs to the parent of this process")


def check_process(closed: Closing | None, subject: object) -> None:
    """Refuse, in a child process that is forked, what belongs to its parent.

    Raises:
        WrongLoopError: The process is such a child.
    """
    if closed is BY_FORK:
        message = f"{subject} belongs to the parent of this process: use and close it there"
        raise WrongLoopError(message)


class ClientResource(Protocol):
    """A publication, a subscription or a counter, which its client can close."""

    def close(self) -> None:
        """Close it, and remove it from the driver."""

    def _on_driver_closed(self, error: Exception | None, /) -> None:
        """Close it without a request to the driver, which is closed."""

    def _on_forked(self) -> None:
        """Close it in a child process; wake no task, and touch no memory of the driver."""

    def _mark_closed(self, closed: Closing, /) -> None:
        """Close it without a request to the driver."""


class ClientPublication(ClientResource, Protocol):
    """A publication."""

    def _move(
        self, ready: PublicationReady, lost: Callable[[], Exception] | None = None, /
    ) -> None:
        """Use another log."""


class ClientSubscription(ClientResource, Protocol):
    """A subscription."""

    def _start(self, ready: SubscriptionReady, /) -> None:
        """Use what a driver has created."""


class ClientCounter(ClientResource, Protocol):
    """A counter."""

    def _start(self, added: AddedCounter, /) -> None:
        """Use what a driver has allocated."""


@final
@attrs.frozen
class NotAdded:
    """What could not be added to the driver that a client has reconnected to.

    Attributes:
        subject: The publication, subscription or counter. It is closed, unless only one of its
            destinations could not be added.
        error: Why not.
        destination: Channel of that destination; None for the subject itself.
    """

    subject: ClientResource
    error: AeronError
    destination: str | None = None


@final
@attrs.frozen(kw_only=True)
class Reconnected:
    """What the handler `on_reconnected` is called with, once for each return to a driver.

    Attributes:
        client_id: The client id, which the new driver has assigned.
        reason: Why the client had lost the last driver.
        away_ns: From that moment until everything was added again, in nanoseconds.
        not_added: What could not be added again.
    """

    client_id: int
    reason: str
    away_ns: int
    not_added: tuple[NotAdded, ...]


ReconnectedHandler = Callable[[Reconnected], object]
"""Called in the event loop; an exception goes to the loop's exception handler."""


@contextmanager
def closed_while_asking() -> Iterator[None]:
    """Raise `ClosedError` if the driver no longer knows the publication or subscription.

    Raises:
        ClosedError: The publication or subscription was closed while the request was under way.
    """
    try:
        yield
    except RegistrationError as error:
        if error.code not in UNKNOWN:
            raise
        message = f"closed while the request was under way: {error}"
        raise ClosedError(message) from error


@final
class ClientConductor:
    """The publications, subscriptions and counters of one client, and what they share.

    Attributes:
        driver: The media driver that the client uses, in this process or another.
        waits: Logs long waits of the publications and subscriptions.
        closed: Who closed the client; None while it is open.
    """

    waits: WaitWatch

    def __init__(
        self,
        driver: MediaDriver | AttachedDriver,
        on_reconnected: ReconnectedHandler | None = None,
    ) -> None:
        self.driver = driver
        self._on_reconnected = on_reconnected
        self._not_added: list[NotAdded] = []
        self.closed: Closing | None = None
        self._client_id: int | None = None
        self._home: HomeLoop | None = None
        # By registration id, in the order of adding, so that the order of closing is deterministic.
        self._publications: dict[int, ClientPublication] = {}
        self._subscriptions: dict[int, ClientSubscription] = {}
        self._counters: dict[int, ClientCounter] = {}

    # Starting and closing.

    @property
    def clock(self) -> Clock:
        """Return the driver's clock."""
        return self.driver.clock

    @property
    def is_closed(self) -> bool:
        """Return whether the client is closed: by the caller or by its driver."""
        return self.closed is not None

    @property
    def closing(self) -> Closing:
        """Return who closes a publication or subscription now: the caller, or this client."""
        return BY_CLIENT if self.is_closed else BY_THIS_PROGRAM

    @property
    def is_started(self) -> bool:
        """Return whether the client was started, even if it is closed by now."""
        return self._client_id is not None

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """Return the event loop that the client was started in; None before the start."""
        return None if self._home is None else self._home.loop

    @property
    def home(self) -> HomeLoop:
        """Return what tells that event loop from others.

        Raises:
            ClosedError: The client is not started.
        """
        if self._home is None:
            raise ClosedError(NOT_STARTED)
        return self._home

    @property
    def client_id(self) -> int:
        """Return the client id, which the driver has assigned.

        Raises:
            ClosedError: The client is not started, or closed.
        """
        if self.closed is not None:
            self.closed.raise_error("the client")
        if self._client_id is None:
            raise ClosedError(NOT_STARTED)
        return self._client_id

    async def start(self, *, is_driver_owned: bool) -> None:
        """Start the driver if it is this client's own, and register with it.

        Raises:
            ClosedError: The driver, or this client, is closed.
            WrongLoopError: The driver runs in another event loop or process, or none of asyncio
                runs here.
        """
        if self._client_id is not None or self.is_closed:
            message = "a client starts once: connect another"
            raise ClosedError(message)
        home = self._home = HomeLoop(running_loop())
        CLIENTS.add(self)
        self.waits = WaitWatch(home.loop, self.clock, self.driver.context.waiting_hint_ns)
        if is_driver_owned:
            await self.driver.start()
        self._client_id = self.driver.conductor.add_client(self)

    def close(self) -> None:
        """Close everything that was added, and leave the driver. When closed, do nothing.

        Raises:
            WrongLoopError: The client was started in another event loop or process; it stays open.
        """
        check_process(self.closed, "the client")
        if self.is_closed:
            return
        home = self._home
        if home is not None and not home.is_here():
            message = "the client was started in another event loop: close it there"
            raise WrongLoopError(message)
        self.closed = BY_THIS_PROGRAM
        for resource in self._resources():
            resource.close()
        if home is not None:
            self.waits.close()
        if self._client_id is not None and not self.driver.is_closed:
            self.driver.conductor.remove_client(self._client_id)

    def on_driver_closed(self, error: Exception | None) -> None:
        """Close everything without a request to the driver, which is closed."""
        self.closed = Closing.by_driver(error)
        for resource in self._resources():
            resource._on_driver_closed(error)
        self._publications.clear()
        self._subscriptions.clear()
        self._counters.clear()
        self.waits.close()

    # From driver to driver; see `ReconnectListener`.

    def on_publication_moved(
        self,
        registration_id: int,
        ready: PublicationReady,
        lost: Callable[[], Exception] | None = None,
    ) -> None:
        """Give a publication another log; its waits end with `lost` if the driver is gone."""
        publication = self._publications.pop(registration_id)
        self._publications[ready.registration_id] = publication
        publication._move(ready, lost)  # noqa: SLF001 - two halves of one client

    def on_subscription_moved(self, registration_id: int, ready: SubscriptionReady) -> None:
        """Give a subscription what another driver has created, or what it has without a driver."""
        subscription = self._subscriptions.pop(registration_id)
        self._subscriptions[ready.registration_id] = subscription
        subscription._start(ready)  # noqa: SLF001 - two halves of one client

    def on_counter_moved(self, correlation_id: int, added: AddedCounter) -> None:
        """Give a counter another word of memory."""
        counter = self._counters.pop(correlation_id)
        self._counters[added.correlation_id] = counter
        counter._start(added)  # noqa: SLF001 - two halves of one client

    def on_not_added(
        self, registration_id: int, error: AeronError, destination: str | None = None
    ) -> None:
        """Note what could not be added again; close it, unless it is a destination."""
        resource = next(
            kind[registration_id]
            for kind in (self._publications, self._subscriptions, self._counters)
            if registration_id in kind
        )
        self._not_added.append(NotAdded(resource, error, destination))
        if destination is None:
            for kind in (self._publications, self._subscriptions, self._counters):
                kind.pop(registration_id, None)
            resource._mark_closed(
                Closing(f"it could not be added to the next media driver: {error}", error)
            )

    def on_reconnected(self, client_id: int, reason: str, away_ns: int) -> int:
        """Call the handler in the loop's next turn; return how much was not added again."""
        self._client_id = client_id
        not_added, self._not_added = tuple(self._not_added), []
        if self._on_reconnected is not None:
            event = Reconnected(
                client_id=client_id, reason=reason, away_ns=away_ns, not_added=not_added
            )
            asyncio.get_running_loop().call_soon(self._tell, self._on_reconnected, event)
        return len(not_added)

    def _tell(self, handler: ReconnectedHandler, event: Reconnected) -> None:
        if self.is_closed:
            return
        try:
            handler(event)
        except Exception as error:  # noqa: BLE001 - it is reported; no handler may stop an agent
            asyncio.get_running_loop().call_exception_handler(
                {"message": "the handler on_reconnected of a client failed", "exception": error}
            )

    def on_forked(self) -> None:
        """Close everything in a child process, if the driver's memory is shared with others."""
        driver = self.driver
        if isinstance(driver, MediaDriver) and not driver.context.aeron_directory:
            return
        try:
            if not self.is_closed:
                self.closed = BY_FORK
                for resource in self._resources():
                    resource._on_forked()
        finally:
            if not isinstance(driver, MediaDriver):
                driver.on_forked()

    def _resources(self) -> tuple[ClientResource, ...]:
        return (
            *self._publications.values(),
            *self._subscriptions.values(),
            *self._counters.values(),
        )

    # Publications.

    def hold_publication(self, registration_id: int, publication: ClientPublication) -> None:
        """Register a publication, which is closed when the client closes."""
        self._publications[registration_id] = publication

    def forget_publication(self, registration_id: int) -> None:
        """Unregister a publication that the driver has ended."""
        self._publications.pop(registration_id, None)

    def release_publication(self, registration_id: int) -> None:
        """Unregister a closed publication; the driver still sends what was offered."""
        self._publications.pop(registration_id, None)
        if not self.driver.is_closed:
            self.driver.conductor.remove_publication(registration_id)

    def revoke_publication(self, registration_id: int) -> None:
        """Unregister an exclusive publication, and make the driver revoke its stream."""
        self._publications.pop(registration_id, None)
        if not self.driver.is_closed:
            self.driver.conductor.revoke_publication(registration_id)

    async def add_publication_destination(self, registration_id: int, uri: ChannelUri) -> int:
        """Add a destination to a publication; see `Publication.add_destination`."""
        with closed_while_asking():
            return await self.driver.conductor.destinations.add_to_publication(
                self.client_id, registration_id, uri
            )

    async def remove_publication_destination(
        self, registration_id: int, destination: ChannelUri | int
    ) -> None:
        """Remove a destination of a publication; see `Publication.remove_destination`."""
        with closed_while_asking():
            await self.driver.conductor.destinations.remove_from_publication(
                self.client_id, registration_id, destination
            )

    # Subscriptions.

    def hold_subscription(self, registration_id: int, subscription: ClientSubscription) -> None:
        """Register a subscription, which is closed when the client closes."""
        self._subscriptions[registration_id] = subscription

    def release_subscription(self, registration_id: int) -> None:
        """Unregister a closed subscription, and remove it from the driver."""
        self._subscriptions.pop(registration_id, None)
        if not self.driver.is_closed:
            self.driver.conductor.remove_subscription(registration_id)

    async def add_subscription_destination(self, registration_id: int, uri: ChannelUri) -> int:
        """Add a destination to a subscription; see `Subscription.add_destination`."""
        with closed_while_asking():
            return await self.driver.conductor.destinations.add_to_subscription(
                self.client_id, registration_id, uri
            )

    async def remove_subscription_destination(
        self, registration_id: int, destination: ChannelUri | int
    ) -> None:
        """Remove a destination of a subscription; see `Subscription.remove_destination`."""
        with closed_while_asking():
            await self.driver.conductor.destinations.remove_from_subscription(
                self.client_id, registration_id, destination
            )

    # Counters.

    def hold_counter(self, correlation_id: int, counter: ClientCounter) -> None:
        """Register a counter, which is closed when the client closes."""
        self._counters[correlation_id] = counter

    def release_counter(self, correlation_id: int) -> None:
        """Unregister a closed counter, and make the driver free it, unless it is static."""
        self._counters.pop(correlation_id, None)
        if not self.driver.is_closed:
            self.driver.conductor.remove_counter(correlation_id)

    async def reject_image(self, image_id: int, reason: str) -> None:
        """Reject an image; see `Image.reject`."""
        await self.driver.conductor.reject_image(self.client_id, image_id, reason)


CLIENTS: Final[WeakSet[ClientConductor]] = WeakSet()


def close_in_child() -> None:
    """Close the clients of the parent; called in a child process, before anything else."""
    errors: list[Exception] = []
    for client in list(CLIENTS):
        try:
            client.on_forked()
        except Exception as error:  # noqa: BLE001 - all others are to be closed first
            errors.append(error)
    if errors:
        message = "clients of the parent of this process could not be closed here"
        raise ExceptionGroup(message, errors)


os.register_at_fork(after_in_child=close_in_child)
