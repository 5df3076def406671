"""The client conductor: the resources of one client, and its requests to the driver's conductor.

Source: Aeron `ClientConductor`.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NoReturn, Protocol, Self, final

import attrs

from aeron_async.client.home_loop import HomeLoop
from aeron_async.client.waiters import WaitWatch
from aeron_async.errors import ClosedError, ErrorCode, RegistrationError, WrongLoopError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aeron_async.clock import Clock
    from aeron_async.driver.media_driver import MediaDriver
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = ["ClientConductor", "ClientResource", "Closing"]

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
        return cls(f"its media driver failed: {error}", error)

    def raise_error(self, subject: str) -> NoReturn:
        """Raise `ClosedError` for what was closed.

        Raises:
            ClosedError: Always.
        """
        message = f"{subject} is closed: {self.text}"
        raise ClosedError(message) from self.error


BY_THIS_PROGRAM: Final = Closing("this program closed it")
BY_CLIENT: Final = Closing("its client was closed")


class ClientResource(Protocol):
    """A publication or a subscription, which its client can close."""

    def close(self) -> None:
        """Close it, and remove it from the driver."""

    def _on_driver_closed(self, error: Exception | None, /) -> None:
        """Close it without a request to the driver, which is closed."""


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
    """The publications and subscriptions of one client, and what they share.

    Attributes:
        driver: The media driver that the client uses.
        waits: Logs long waits of the publications and subscriptions.
        closed: Who closed the client; None while it is open.
    """

    waits: WaitWatch

    def __init__(self, driver: MediaDriver) -> None:
        self.driver = driver
        self.closed: Closing | None = None
        self._client_id: int | None = None
        self._home: HomeLoop | None = None
        # By registration id, in the order of adding, so that the order of closing is deterministic.
        self._publications: dict[int, ClientResource] = {}
        self._subscriptions: dict[int, ClientResource] = {}

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
            WrongLoopError: The driver runs in another event loop or process.
        """
        if self._client_id is not None or self.is_closed:
            message = "a client starts once: connect another"
            raise ClosedError(message)
        home = self._home = HomeLoop(asyncio.get_running_loop())
        self.waits = WaitWatch(home.loop, self.clock, self.driver.context.waiting_hint_ns)
        if is_driver_owned:
            await self.driver.start()
        self._client_id = self.driver.conductor.add_client(self)

    def close(self) -> None:
        """Close everything that was added, and leave the driver. When closed, do nothing.

        Raises:
            WrongLoopError: The client was started in another event loop; it stays open.
        """
        if self.is_closed:
            return
        home = self._home
        if home is not None and not home.is_here():
            message = "the client was started in another event loop: close it there"
            raise WrongLoopError(message)
        self.closed = BY_THIS_PROGRAM
        for resource in (*self._publications.values(), *self._subscriptions.values()):
            resource.close()
        if home is not None:
            self.waits.close()
        if self._client_id is not None and not self.driver.is_closed:
            self.driver.conductor.remove_client(self._client_id)

    def on_driver_closed(self, error: Exception | None) -> None:
        """Close everything without a request to the driver, which is closed."""
        self.closed = Closing.by_driver(error)
        for resource in (*self._publications.values(), *self._subscriptions.values()):
            resource._on_driver_closed(error)
        self._publications.clear()
        self._subscriptions.clear()
        self.waits.close()

    # Publications.

    def hold_publication(self, registration_id: int, publication: ClientResource) -> None:
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

    def hold_subscription(self, registration_id: int, subscription: ClientResource) -> None:
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

    async def reject_image(self, image_id: int, reason: str) -> None:
        """Reject an image; see `Image.reject`."""
        await self.driver.conductor.reject_image(self.client_id, image_id, reason)
