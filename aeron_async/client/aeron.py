"""The client: one object that adds publications and subscriptions, and closes them all.

Invariant: a client keeps no cancel scope open in the body of its `async with` block.

Source: Aeron `Aeron`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self, TypeVar, final

import anyio

from aeron_async.client.arguments import (
    check_driver,
    check_reconnect,
    check_stream_id,
    check_whole,
    publication_uri,
    subscription_uri,
)
from aeron_async.client.attached_driver import AttachedDriver
from aeron_async.client.client_conductor import ClientConductor, check_process
from aeron_async.client.counter import Counter, CounterSpec
from aeron_async.client.exclusive_publication import ExclusivePublication
from aeron_async.client.opening import Opening
from aeron_async.client.publication import Publication
from aeron_async.client.subscription import Subscription
from aeron_async.driver.counter_stats import CncSource
from aeron_async.driver.media_driver import MediaDriver
from aeron_async.driver.own_loop import InvokedMediaDriver, ThreadedMediaDriver
from aeron_async.errors import ClosedError, ConfigurationError
from aeron_async.idle_strategy import idle_strategy_of

if TYPE_CHECKING:
    import os
    from collections.abc import Generator
    from types import TracebackType

    from aeron_async.client.arguments import OnDisconnected
    from aeron_async.client.client_conductor import ReconnectedHandler
    from aeron_async.client.publication import PublicationErrorHandler
    from aeron_async.client.subscription import ImageHandler
    from aeron_async.clock import Clock
    from aeron_async.counters import CountersReader
    from aeron_async.driver.commands import CongestionControlSupplier, FlowControlSupplier
    from aeron_async.driver.core.context import DriverContext
    from aeron_async.idle_strategy import IdleStrategy
    from aeron_async.protocol.channel_uri import ChannelUri
    from aeron_async.protocol.header import Buffer
    from aeron_async.stats import Stats

__all__ = ["Aeron"]

Added = TypeVar("Added", bound=Publication)


@final
class Aeron:
    """A client of a media driver: `async with Aeron.connect() as aeron`.

    Or `aeron = await Aeron.connect()`, which stays open until `aclose`. Closing the client closes
    everything it added. The client, and what it added, belong to the event loop it was started in.

    Attributes:
        driver: The media driver that the client uses: a `MediaDriver` of this process, or, if the
            client was given a directory or a driver in a thread, an `AttachedDriver`, which passes
            the client's requests to the driver there and has only what a client needs.
    """

    def __init__(
        self,
        driver: MediaDriver | AttachedDriver,
        *,
        is_driver_owned: bool,
        on_reconnected: ReconnectedHandler | None = None,
    ) -> None:
        self.driver: MediaDriver | AttachedDriver = driver
        self._is_driver_owned = is_driver_owned
        self._conductor = ClientConductor(self.driver, on_reconnected)
        self._thread: ThreadedMediaDriver | None = None

    @classmethod
    def connect(
        cls,
        driver: MediaDriver | ThreadedMediaDriver | InvokedMediaDriver | None = None,
        *,
        context: DriverContext | None = None,
        directory: str | os.PathLike[str] | None = None,
        idle_strategy: IdleStrategy | str | None = None,
        reconnect: bool = False,
        on_reconnected: ReconnectedHandler | None = None,
    ) -> Self:
        """Return a client that starts when it is entered with `async with`, or awaited.

        Args:
            driver: The driver to use, which keeps running when the client closes. If not given, the
                client embeds its own driver in the running event loop, and closes it at the end.
                To a driver in a thread the client attaches by its directory.
            context: Settings of the client's own driver; if not given, read from the environment.
            directory: The Aeron directory of a driver in another process, official or this
                package's, to use that one.
            idle_strategy: With a directory, or a driver in a thread, what the thread that watches
                the driver's memory does between two looks: an object, or an official name such as
                "spin" or "sleep-ns". None backs off.
            reconnect: With a directory, whether the client goes on when its driver has closed, died
                or been replaced: it looks for the next driver in the directory for as long as it is
                open, and adds everything again. Streams begin anew.
            on_reconnected: With `reconnect`, called with a `Reconnected` when everything was added
                again, as far as possible.

        Raises:
            ConfigurationError: An argument has the wrong type, or both are given.
        """
        check_driver(driver, context)
        check_reconnect(directory, reconnect=reconnect, on_reconnected=on_reconnected)
        idle = None if idle_strategy is None else idle_strategy_of(idle_strategy)
        if directory is not None:
            if driver is not None:
                message = "give a driver or the directory of one, not both"
                raise ConfigurationError(message)
            attached = AttachedDriver(directory, context, idle, reconnect=reconnect)
            return cls(attached, is_driver_owned=True, on_reconnected=on_reconnected)
        if isinstance(driver, ThreadedMediaDriver):
            client = cls(
                AttachedDriver(driver.directory, driver.context, idle), is_driver_owned=True
            )
            client._thread = driver
            return client
        if idle is not None:
            message = (
                "idle_strategy is for a client that is given a directory or a driver in a thread; "
                "for a driver of this event loop it is a setting of its DriverContext"
            )
            raise ConfigurationError(message)
        if isinstance(driver, InvokedMediaDriver):
            return cls(driver._driver, is_driver_owned=False)  # noqa: SLF001 - it is wrapped
        if driver is None:
            return cls(MediaDriver.launch(context), is_driver_owned=True)
        return cls(driver, is_driver_owned=False)

    @property
    def client_id(self) -> int:
        """Return the client id, which the driver has assigned.

        Raises:
            ClosedError: The client is not started, or closed.
        """
        return self._conductor.client_id

    @property
    def is_closed(self) -> bool:
        """Return whether the client is closed: by the caller or by its driver."""
        return self._conductor.is_closed

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """Return the event loop that the client was started in; None before the start."""
        return self._conductor.loop

    @property
    def clock(self) -> Clock:
        """Return the driver's clock."""
        return self.driver.clock

    @property
    def counters(self) -> CountersReader:
        """Return the driver's counters.

        Raises:
            ClosedError: The client has not been started; or its driver is of another process, and
                the client is closed.
            WrongLoopError: The client belongs to the parent of this process, and the driver shares
                its memory with other processes.
        """
        check_process(self._conductor.closed, "the client")
        if not self._conductor.is_started:
            self._check_started()
        return self.driver.counters

    def stats(self) -> Stats:
        """Return the statistics of this moment: streams, receivers, losses, and the driver itself.

        It takes a microsecond a stream, or two: of thousands, prefer `gather_stats`. Of a
        driver in another process, or in a thread, it is what its counters and its loss report tell:
        that takes some milliseconds, for their files are opened and read.

        Raises:
            ClosedError: The client is not started, or closed.
            DriverError: The driver of the other process shows no life.
            ProtocolError: A file of that driver is damaged.
            ConfigurationError: The compiled code is missing, which reads such files.
            WrongLoopError: Called from another event loop or process.
        """
        self._check_usable()
        if isinstance(self.driver, MediaDriver):
            return self.driver.stats()
        with CncSource(self.driver.path, clock=self.clock) as source:
            return source.take()

    async def gather_stats(self) -> Stats:
        """Return the statistics of about now; the loop runs other tasks between a few streams.

        What is said of one stream is of one moment. Of a driver in another process it is what
        `stats` returns; a thread reads the files.

        Raises:
            ClosedError: The client is not started, or closed.
            DriverError: The driver of the other process shows no life.
            ProtocolError: A file of that driver is damaged.
            ConfigurationError: The compiled code is missing, which reads such files.
            WrongLoopError: Called from another event loop or process.
        """
        self._check_usable()
        if isinstance(self.driver, MediaDriver):
            return await self.driver.gather_stats()
        return await anyio.to_thread.run_sync(self.stats)

    def _check_usable(self) -> None:
        check_process(self._conductor.closed, "the client")
        self._check_started()

    async def start(self) -> None:
        """Start the driver if it is this client's own, and register with it.

        Raises:
            ClosedError: The driver, or this client, is closed.
            WrongLoopError: The driver runs in another event loop or process.
        """
        if self._thread is not None:
            self._thread.check_serves()
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
        """Add a publication; adding the same channel and stream again shares it.

        Args:
            channel: Channel URI, such as `aeron:udp?endpoint=127.0.0.1:20121`.
            stream_id: Stream id within the channel; signed 32 bits.
            on_disconnected: Whether offers wait for a subscriber ("wait"), or raise
                `NotConnectedError` ("raise").
            on_error: Called with a `PublicationErrorFrame` whenever a receiver rejects the stream.
            flow_control: Called with `FlowControlParams`; returns the flow control strategy, which
                takes precedence over channel and context. A shared publication keeps the strategy
                it was created with.

        Raises:
            ChannelUriError: The channel is invalid.
            ConfigurationError: Another argument is invalid.
            RegistrationError: The driver cannot add the publication.
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
        """Add a publication with its own session, which is never shared; see `add_publication`.

        Args:
            channel: Channel URI, such as `aeron:udp?endpoint=127.0.0.1:20121`.
            stream_id: Stream id within the channel; signed 32 bits.
            on_disconnected: Whether offers wait for a subscriber ("wait"), or raise
                `NotConnectedError` ("raise").
            on_error: Called with a `PublicationErrorFrame` whenever a receiver rejects the stream.
            flow_control: Called with `FlowControlParams`; returns the flow control strategy.
            handshake_length: For a channel that an unknown peer has named: most bytes to send
                before a receiver has answered, such as three times the length of the request. If
                none has answered, the publication does not linger. None sets no limit.

        Raises:
            ChannelUriError: The channel is invalid.
            ConfigurationError: Another argument is invalid.
            RegistrationError: The driver cannot add the publication.
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
            channel: Channel URI, such as `aeron:udp?endpoint=127.0.0.1:20121`; with port 0 the
                system chooses the port.
            stream_id: Stream id within the channel; signed 32 bits.
            on_available_image: Called with each image before its first message; with images that
                exist already, before this returns.
            on_unavailable_image: Called with each image after its last message, and with the
                remaining images when the subscription closes.
            congestion_control: Called with `CongestionControlParams`; returns the congestion
                control strategy of an image, which takes precedence over channel and context. If
                several subscriptions share an image, the oldest decides.

        Raises:
            ChannelUriError: The channel is invalid.
            ConfigurationError: Another argument is invalid.
            RegistrationError: The driver cannot add the subscription.
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

    def add_counter(self, type_id: int, label: str, key: Buffer = b"") -> Opening[Counter]:
        """Add a counter to the driver's table, where every process can read it.

        The driver frees it when it is closed, when this client closes, and when this client dies.

        Args:
            type_id: Type of the counter; signed 32 bits. Those below 1000 belong to Aeron.
            label: Describes the value to people; at most 380 bytes of UTF-8.
            key: Identifies the counter among those of its type; at most 112 bytes.

        Raises:
            ConfigurationError: An argument is invalid.
            RegistrationError: The driver has no counter left.
            ClosedError: The client or the driver is closed.
        """
        spec = CounterSpec(type_id, label, key)
        self._check_started()
        return Opening(self._add_counter(spec), "Aeron.add_counter")

    def add_static_counter(
        self, type_id: int, label: str, key: Buffer = b"", *, registration_id: int
    ) -> Opening[Counter]:
        """Add a counter that stays for as long as the driver, or return the one that is there.

        Closing it, or this client, does not free it.

        Args:
            type_id: As for `add_counter`.
            label: As for `add_counter`; a counter that is there keeps its own.
            key: As for `add_counter`; a counter that is there keeps its own.
            registration_id: Identifies the counter, with its type; signed 64 bits.

        Raises:
            ConfigurationError: An argument is invalid.
            RegistrationError: The driver has no counter left, or a client owns a counter with this
                type and registration id.
            ClosedError: The client or the driver is closed.
        """
        spec = CounterSpec(type_id, label, key, registration_id)
        self._check_started()
        return Opening(self._add_counter(spec), "Aeron.add_static_counter")

    async def aclose(self) -> None:
        """Close everything this client added, and its driver if it is the client's own.

        The client's own driver still delivers what was offered, for at most the context's
        `close_linger_timeout_ns`. Closing a closed client does nothing.

        Raises:
            WrongLoopError: The client was started in another event loop; it stays open.
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
        # Before the start, which touches the log: a driver that was closed has freed it.
        self._check_still_open(publication)
        publication._start(ready)  # noqa: SLF001 - the two halves of one construction
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
        # Before the start, which calls handlers that may close the subscription.
        self._conductor.hold_subscription(ready.registration_id, subscription)
        subscription._start(ready)  # noqa: SLF001 - the two halves of one construction
        return subscription

    async def _add_counter(self, spec: CounterSpec) -> Counter:
        counter = Counter(self._conductor, spec)
        added = await self.driver.conductor.add_counter(
            self.client_id,
            spec.type_id,
            key=spec.key,
            label=spec.label,
            static_registration_id=spec.static_registration_id,
        )
        counter._start(added)  # noqa: SLF001 - the two halves of one construction
        self._check_still_open(counter)
        self._conductor.hold_counter(added.correlation_id, counter)
        return counter

    def _check_started(self) -> None:
        _ = self.client_id

    def _check_still_open(self, added: Publication | Subscription | Counter) -> None:
        conductor = self._conductor
        if conductor.is_closed:
            error = None if conductor.closed is None else conductor.closed.error
            added._on_driver_closed(error)
            message = "the client was closed while the request was under way"
            raise ClosedError(message) from error

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        """Start the client, unless it was awaited before."""
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
