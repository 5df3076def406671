"""The client: one object that adds publications and subscriptions, and closes them all.

Invariant: a client holds no cancel scope open between entering and leaving its `async with` block.

Source: Aeron `Aeron`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self, TypeVar, final

from aeron_async.client.arguments import (
    check_driver,
    check_stream_id,
    check_whole,
    publication_uri,
    subscription_uri,
)
from aeron_async.client.client_conductor import ClientConductor
from aeron_async.client.exclusive_publication import ExclusivePublication
from aeron_async.client.opening import Opening
from aeron_async.client.publication import Publication
from aeron_async.client.subscription import Subscription
from aeron_async.driver.media_driver import MediaDriver
from aeron_async.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType

    from aeron_async.client.arguments import OnDisconnected
    from aeron_async.client.publication import PublicationErrorHandler
    from aeron_async.client.subscription import ImageHandler
    from aeron_async.clock import Clock
    from aeron_async.counters import CountersManager
    from aeron_async.driver.commands import CongestionControlSupplier, FlowControlSupplier
    from aeron_async.driver.core.context import DriverContext
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = ["Aeron"]

Added = TypeVar("Added", bound=Publication)


@final
class Aeron:
    """A client of a media driver: `async with Aeron.connect() as aeron`.

    Or `aeron = await Aeron.connect()`, which stays open until `aclose`. Everything it added is
    closed with it. Objects belong to the event loop that made them.

    Attributes:
        driver: The media driver it uses.
    """

    def __init__(self, driver: MediaDriver, *, is_driver_owned: bool) -> None:
        self.driver = driver
        self._is_driver_owned = is_driver_owned
        self._conductor = ClientConductor(driver)

    @classmethod
    def connect(
        cls, driver: MediaDriver | None = None, *, context: DriverContext | None = None
    ) -> Self:
        """Return a client that starts when it is entered with `async with`, or awaited.

        Args:
            driver: To be used and left running; when not given, one of its own is embedded in the
                running event loop, and closed with the client.
            context: Settings of its own driver; read from the environment when not given.

        Raises:
            ConfigurationError: An argument is something else, or both are given.
        """
        check_driver(driver, context)
        if driver is None:
            return cls(MediaDriver.launch(context), is_driver_owned=True)
        return cls(driver, is_driver_owned=False)

    @property
    def client_id(self) -> int:
        """Return the id by which the driver knows this client.

        Raises:
            ClosedError: The client is not running.
        """
        return self._conductor.client_id

    @property
    def is_closed(self) -> bool:
        """Return whether the client is closed, by itself or by its driver."""
        return self._conductor.is_closed

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """Return the event loop that the client was started in."""
        return self._conductor.loop

    @property
    def clock(self) -> Clock:
        """Return the driver's clock."""
        return self.driver.clock

    @property
    def counters(self) -> CountersManager:
        """Return the driver's counters.

        Raises:
            ClosedError: The client has not been started.
        """
        if not self._conductor.is_started:
            self._check_started()
        return self.driver.counters

    async def start(self) -> None:
        """Start the driver if it is this client's own, and join it.

        Raises:
            ClosedError: The driver, or this client, is closed.
            WrongLoopError: The driver runs in another event loop or process.
        """
        await self._conductor.start(is_driver_owned=self._is_driver_owned)

    def add_publication(
        self,
        channel: str | ChannelUri,
        stream_id: int,
        *,
        on_disconnected: OnDisconnected = "wait",
        on_error: PublicationErrorHandler | None = None,
        flow_control: FlowControlSupplier | None = None,
    ) -> Opening[Publication]:
        """Add a publication; asking for the same channel and stream again shares it.

        Args:
            channel: Such as `aeron:udp?endpoint=127.0.0.1:20121`.
            stream_id: Signed 32 bits, within the channel.
            on_disconnected: Whether offers wait for a subscriber, or raise `NotConnectedError`.
            on_error: Called with a `PublicationErrorFrame` whenever a receiver rejects the stream.
            flow_control: Makes its strategy, whatever channel and context say; called with
                `FlowControlParams`. A publication that is shared has the one it was made with.

        Raises:
            ChannelUriError: The channel cannot be meant.
            RegistrationError: The driver cannot have it.
            ClosedError: The client or the driver is closed.
        """
        stream_id = check_stream_id(stream_id)
        uri = publication_uri(channel, stream_id, flow_control=flow_control)
        self._check_started()
        publication = Publication(
            self._conductor, uri, stream_id, on_disconnected=on_disconnected, on_error=on_error
        )
        adding = self._add_publication(publication, uri, flow_control, is_exclusive=False)
        return Opening(adding, "Aeron.add_publication")

    def add_exclusive_publication(
        self,
        channel: str | ChannelUri,
        stream_id: int,
        *,
        on_disconnected: OnDisconnected = "wait",
        on_error: PublicationErrorHandler | None = None,
        flow_control: FlowControlSupplier | None = None,
        handshake_length: int | None = None,
    ) -> Opening[ExclusivePublication]:
        """Add a publication with a session of its own; otherwise like `add_publication`.

        Args:
            channel: As for `add_publication`; likewise the others.
            stream_id: Within the channel.
            on_disconnected: What `offer` does without a subscriber.
            on_error: Called with what a receiver refused.
            flow_control: Makes its strategy.
            handshake_length: For a channel that a stranger named: bytes that may be sent before a
                receiver has answered, such as three times the length of the request; the
                publication does not linger then, if none has. None sets no bound.

        Raises:
            ChannelUriError: The channel cannot be meant.
            RegistrationError: The driver cannot have it.
            ClosedError: The client or the driver is closed.
        """
        stream_id = check_stream_id(stream_id)
        uri = publication_uri(channel, stream_id, flow_control=flow_control)
        if handshake_length is not None:
            handshake_length = check_whole(handshake_length, "handshake_length")
        self._check_started()
        publication = ExclusivePublication(
            self._conductor, uri, stream_id, on_disconnected=on_disconnected, on_error=on_error
        )
        adding = self._add_publication(
            publication, uri, flow_control, is_exclusive=True, handshake_length=handshake_length
        )
        return Opening(adding, "Aeron.add_exclusive_publication")

    def add_subscription(
        self,
        channel: str | ChannelUri,
        stream_id: int,
        *,
        on_available_image: ImageHandler | None = None,
        on_unavailable_image: ImageHandler | None = None,
        congestion_control: CongestionControlSupplier | None = None,
    ) -> Opening[Subscription]:
        """Add a subscription.

        Args:
            channel: Such as `aeron:udp?endpoint=127.0.0.1:20121`; port 0 lets the system choose.
            stream_id: Signed 32 bits, within the channel.
            on_available_image: Called with each source before its first message; with those that
                are there already, before this returns.
            on_unavailable_image: Called with each source after its last message, and with those
                still there when the subscription closes.
            congestion_control: Makes the strategy of each image, whatever channel and context say;
                called with `CongestionControlParams`. Of several subscriptions that share an image
                the oldest decides.

        Raises:
            ChannelUriError: The channel cannot be meant.
            RegistrationError: The driver cannot have it.
            ClosedError: The client or the driver is closed.
        """
        stream_id = check_stream_id(stream_id)
        uri = subscription_uri(channel, stream_id, congestion_control=congestion_control)
        self._check_started()
        subscription = Subscription(
            self._conductor,
            uri,
            stream_id,
            on_available_image=on_available_image,
            on_unavailable_image=on_unavailable_image,
        )
        adding = self._add_subscription(subscription, uri, congestion_control)
        return Opening(adding, "Aeron.add_subscription")

    async def aclose(self) -> None:
        """Close everything this client added, and its driver if it is its own.

        With a driver of its own, what was offered is still delivered, for as long as the context's
        `close_linger_timeout_ns` allows. Closing twice is closing once.

        Raises:
            WrongLoopError: It was started in another event loop; it stays open.
        """
        self._conductor.close()
        if self._is_driver_owned:
            await self.driver.aclose()
        else:
            await asyncio.sleep(0)

    async def _add_publication(
        self,
        publication: Added,
        uri: ChannelUri,
        flow_control: FlowControlSupplier | None,
        *,
        is_exclusive: bool,
        handshake_length: int | None = None,
    ) -> Added:
        ready = await self.driver.conductor.add_publication(
            self.client_id,
            uri,
            publication.stream_id,
            is_exclusive=is_exclusive,
            listener=publication._listener,  # noqa: SLF001
            flow_control=flow_control,
            handshake_length=handshake_length,
        )
        publication._start(ready)  # noqa: SLF001 - the two halves of one construction
        self._check_still_open(publication)
        self._conductor.hold_publication(ready.registration_id, publication)
        return publication

    async def _add_subscription(
        self,
        subscription: Subscription,
        uri: ChannelUri,
        congestion_control: CongestionControlSupplier | None,
    ) -> Subscription:
        ready = await self.driver.conductor.add_subscription(
            self.client_id,
            uri,
            subscription.stream_id,
            listener=subscription._listener,  # noqa: SLF001
            congestion_control=congestion_control,
        )
        self._check_still_open(subscription)
        # Before the start, for that calls handlers, and they may close the subscription.
        self._conductor.hold_subscription(ready.registration_id, subscription)
        subscription._start(ready)  # noqa: SLF001 - the two halves of one construction
        return subscription

    def _check_started(self) -> None:
        _ = self.client_id

    def _check_still_open(self, added: Publication | Subscription) -> None:
        conductor = self._conductor
        if conductor.is_closed:
            added._on_driver_closed(conductor.closed_because)
            message = "the client was closed while the request was under way"
            raise ClosedError(message) from conductor.closed_because

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        """Start it, unless it was awaited before."""
        if not self._conductor.is_started or self._conductor.is_closed:
            await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()
