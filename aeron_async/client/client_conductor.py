"""The client's side of the driver's conductor: what a client has added, and how it asks for more.

Source: Aeron `ClientConductor`.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol, final

from aeron_async.client.home_loop import HomeLoop
from aeron_async.client.waiters import WaitWatch
from aeron_async.errors import ClosedError, ErrorCode, RegistrationError, WrongLoopError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aeron_async.clock import Clock
    from aeron_async.driver.media_driver import MediaDriver
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = ["ClientConductor", "ClientResource"]

NOT_STARTED: Final = (
    "the client has not been started: write `async with Aeron.connect() as aeron`, or "
    "`aeron = await Aeron.connect()`"
)
UNKNOWN: Final = frozenset({ErrorCode.UNKNOWN_PUBLICATION, ErrorCode.UNKNOWN_SUBSCRIPTION})


class ClientResource(Protocol):
    """A publication or a subscription, as its client closes it."""

    def close(self) -> None:
        """Close it, and tell the driver."""

    def _on_driver_closed(self, error: Exception | None, /) -> None:
        """Close it without asking the driver: it is gone."""


@contextmanager
def closed_while_asking() -> Iterator[None]:
    """Raise `ClosedError` where the driver no longer knows the object of a request.

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
    """What the publications and subscriptions of one client share.

    Attributes:
        driver: The media driver it uses.
        home: The event loop that it was started in.
        waits: Logs waits of its publications and subscriptions that last for long.
        is_closed: Whether the client is closed, by itself or by its driver.
        closed_because: The error that closed the driver, if one did.
    """

    home: HomeLoop
    waits: WaitWatch

    def __init__(self, driver: MediaDriver) -> None:
        self.driver = driver
        self.is_closed: bool = False
        self.closed_because: Exception | None = None
        self._client_id: int | None = None
        # By registration id, in the order of adding: closing must be the same every time.
        self._publications: dict[int, ClientResource] = {}
        self._subscriptions: dict[int, ClientResource] = {}

    # Starting and closing.

    @property
    def clock(self) -> Clock:
        """Return the driver's clock."""
        return self.driver.clock

    @property
    def is_started(self) -> bool:
        """Return whether the client has joined its driver, even if it is closed by now."""
        return self._client_id is not None

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """Return the event loop that the client was started in."""
        home = getattr(self, "home", None)
        return None if home is None else home.loop

    @property
    def client_id(self) -> int:
        """Return the id by which the driver knows this client.

        Raises:
            ClosedError: The client is not running.
        """
        if self._client_id is None or self.is_closed:
            message = "the client is closed: connect another" if self.is_closed else NOT_STARTED
            raise ClosedError(message) from self.closed_because
        return self._client_id

    async def start(self, *, is_driver_owned: bool) -> None:
        """Join the driver, which starts here if it is this client's own.

        Raises:
            ClosedError: The driver, or this client, is closed.
            WrongLoopError: The driver runs in another event loop or process.
        """
        if self._client_id is not None or self.is_closed:
            message = "a client starts once: connect another"
            raise ClosedError(message)
        self.home = HomeLoop(asyncio.get_running_loop())
        self.waits = WaitWatch(self.home.loop, self.clock, self.driver.context.waiting_hint_ns)
        if is_driver_owned:
            await self.driver.start()
        self._client_id = self.driver.conductor.add_client(self)

    def close(self) -> None:
        """Close everything that was added, and leave the driver. Closing twice is closing once.

        Raises:
            WrongLoopError: The client was started in another event loop; it stays open.
        """
        if self.is_closed:
            return
        home: HomeLoop | None = getattr(self, "home", None)
        if home is not None and not home.is_here():
            message = "the client was started in another event loop: close it there"
            raise WrongLoopError(message)
        self.is_closed = True
        for resource in (*self._publications.values(), *self._subscriptions.values()):
            resource.close()
        if home is not None:
            self.waits.close()
        if self._client_id is not None and not self.driver.is_closed:
            self.driver.conductor.remove_client(self._client_id)

    def on_driver_closed(self, error: Exception | None) -> None:
        """Close everything without asking the driver: it is gone."""
        self.is_closed = True
        self.closed_because = error
        for resource in (*self._publications.values(), *self._subscriptions.values()):
            resource._on_driver_closed(error)
        self._publications.clear()
        self._subscriptions.clear()
        self.waits.close()

    # Publications.

    def hold_publication(self, registration_id: int, publication: ClientResource) -> None:
        """Close a publication with the client."""
        self._publications[registration_id] = publication

    def forget_publication(self, registration_id: int) -> None:
        """Hold a publication no longer: the driver has ended it."""
        self._publications.pop(registration_id, None)

    def release_publication(self, registration_id: int) -> None:
        """Let the driver drain a publication that was closed."""
        self._publications.pop(registration_id, None)
        if not self.driver.is_closed:
            self.driver.conductor.remove_publication(registration_id)

    def revoke_publication(self, registration_id: int) -> None:
        """Let the driver take back what has not arrived of an exclusive publication."""
        self._publications.pop(registration_id, None)
        if not self.driver.is_closed:
            self.driver.conductor.revoke_publication(registration_id)

    async def add_publication_destination(self, registration_id: int, uri: ChannelUri) -> int:
        """Send a publication to one more receiver; see `Publication.add_destination`."""
        with closed_while_asking():
            return await self.driver.conductor.destinations.add_to_publication(
                self.client_id, registration_id, uri
            )

    async def remove_publication_destination(
        self, registration_id: int, destination: ChannelUri | int
    ) -> None:
        """Send a publication no longer to a receiver."""
        with closed_while_asking():
            await self.driver.conductor.destinations.remove_from_publication(
                self.client_id, registration_id, destination
            )

    # Subscriptions.

    def hold_subscription(self, registration_id: int, subscription: ClientResource) -> None:
        """Close a subscription with the client."""
        self._subscriptions[registration_id] = subscription

    def release_subscription(self, registration_id: int) -> None:
        """Let the driver forget a subscription that was closed."""
        self._subscriptions.pop(registration_id, None)
        if not self.driver.is_closed:
            self.driver.conductor.remove_subscription(registration_id)

    async def add_subscription_destination(self, registration_id: int, uri: ChannelUri) -> int:
        """Receive a subscription at one more address; see `Subscription.add_destination`."""
        with closed_while_asking():
            return await self.driver.conductor.destinations.add_to_subscription(
                self.client_id, registration_id, uri
            )

    async def remove_subscription_destination(
        self, registration_id: int, destination: ChannelUri | int
    ) -> None:
        """Receive a subscription no longer at an address."""
        with closed_while_asking():
            await self.driver.conductor.destinations.remove_from_subscription(
                self.client_id, registration_id, destination
            )

    async def reject_image(self, image_id: int, reason: str) -> None:
        """Take nothing more from an image; see `Image.reject`."""
        await self.driver.conductor.reject_image(self.client_id, image_id, reason)
