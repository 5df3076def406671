"""Channel endpoints: the sockets that one channel sends from or receives at.

Invariant: no endpoint queues. While the transport of a `ChannelSocket` asks for a pause, the socket
sends nothing. The caller sends again what could not be sent: a publication from its log, all others
by their timers.

The sockets of a `SendChannelEndpoint` depend on its channel:

- unicast: one socket, connected to its receiver;
- multicast: one connected to the data group, and one that is a member of the control group;
- with destinations, or for responses: one socket that is not connected.

A `ReceiveChannelEndpoint` has one `ReceiveDestinationTransport` for each of its destinations.

Source: Aeron `UdpChannelTransport`, `SendChannelEndpoint`, `ReceiveChannelEndpoint`,
`aeron_send_channel_endpoint_send`, `ReceiveDestinationTransport`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from array import array
from typing import TYPE_CHECKING, Final, Protocol, cast

from aeron_async.driver.core.stream_counters import ChannelStatus
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.driver.core.udp_channel import format_address
from aeron_async.driver.media.sockets import receive_state
from aeron_async.errors import ErrorCode
from aeron_async.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aeron_async.clock import Clock
    from aeron_async.counters import Counter
    from aeron_async.driver.core.control_packet_dispatcher import ControlPacketDispatcher
    from aeron_async.driver.core.data_packet_dispatcher import DataPacketDispatcher
    from aeron_async.driver.core.destination_tracker import DestinationTracker
    from aeron_async.driver.core.outbox import Address
    from aeron_async.driver.core.system_counters import SystemCounters
    from aeron_async.driver.core.timestamps import ReceiveTimestamps
    from aeron_async.driver.core.udp_channel import UdpChannel
    from aeron_async.driver.media.socket_transport import SocketTransport
    from aeron_async.driver.media.transport import BoundedTransport
    from aeron_async.logbuffer.placing import SegmentTable
    from aeron_async.protocol.header import Buffer

__all__ = [
    "ChannelEndpoint",
    "ChannelSocket",
    "ReceiveChannelEndpoint",
    "ReceiveDestinationTransport",
    "SendChannelEndpoint",
    "SocketListener",
]


class SocketListener(Protocol):
    """What the owner of a socket implements to hear about it."""

    def on_socket_writable(self) -> None:
        """Sending is possible again."""
        ...

    def on_socket_error(self) -> None:
        """The socket reported an error that is not the result of a send."""
        ...

    def on_datagrams_dropped(self, count: int) -> None:
        """The system dropped `count` datagrams because the socket's buffer was full."""
        ...

    def on_socket_lost(self, error: Exception) -> None:
        """The socket failed; we did not close it."""
        ...


class ChannelSocket(asyncio.DatagramProtocol):
    """A transport, its pauses and its errors; subclasses handle what arrives.

    Args:
        listener: Called when the socket changes.

    Attributes:
        is_connected: Whether it sends to, and receives from, one peer only.
    """

    def __init__(self, listener: SocketListener) -> None:
        self._listener = listener
        # For queries about the socket; kept when the transport is gone and nothing can be sent.
        self._socket: asyncio.BaseTransport
        self._transport: BoundedTransport | None = None
        self.is_connected: bool = False
        self._is_paused = False
        self._has_error = False
        self._is_sending = False

    @property
    def local_address(self) -> str:
        """Return the bound address, as `host:port`."""
        return format_address(self.bound_address)

    @property
    def bound_address(self) -> Address:
        """Return the bound address."""
        sockname = cast("Address", self._socket.get_extra_info("sockname"))
        return sockname[0], sockname[1]

    @property
    def granted_rcvbuf_length(self) -> int:
        """Return the length of the kernel's receive buffer, in bytes; 0 if unknown."""
        return cast("int", self._socket.get_extra_info("granted_rcvbuf_length", 0))

    @property
    def granted_sndbuf_length(self) -> int:
        """Return the length of the kernel's send buffer, in bytes; 0 if unknown."""
        return cast("int", self._socket.get_extra_info("granted_sndbuf_length", 0))

    def receive_state(self) -> tuple[int, int | None, int | None]:
        """Return how much the system has dropped here, how many bytes wait, and how many may."""
        return receive_state(self._socket.get_extra_info("socket"))

    @property
    def can_send(self) -> bool:
        """Return whether a datagram may be sent now."""
        return not self._is_paused and self._transport is not None

    @property
    def sendable_fd(self) -> int | None:
        """Return a descriptor to which compiled code may send now; None if it must not."""
        transport = self._transport
        return None if transport is None or self._is_paused else getattr(transport, "raw_fd", None)

    @property
    def unconnected_fd(self) -> int | None:
        """Return a descriptor by which compiled code may send to a raw address; else None."""
        transport = self._transport
        if transport is None or self._is_paused:
            return None
        return getattr(transport, "unconnected_fd", None)

    def raw_address(self, address: Address) -> bytes | None:
        """Return an address as compiled code sends to it; None if that is not possible now."""
        transport = self._transport
        return None if transport is None else transport.raw_address(address)

    def on_send_error(self, error: OSError) -> None:
        """Handle the error of a send by `sendable_fd`, as `send_to` does."""
        if self._transport is not None:
            self._is_sending = True
            try:
                cast("SocketTransport", self._transport).on_send_error(error)
            finally:
                self._is_sending = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._socket = transport
        self.is_connected = transport.get_extra_info("peername") is not None
        self._transport = cast("BoundedTransport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop the transport, so that nothing can be sent any more, and report a failure."""
        self._transport = None
        if exc is not None:
            self._listener.on_socket_lost(exc)

    def error_received(self, exc: Exception) -> None:
        """Record an error of the socket; absent peers cause them all the time."""
        del exc
        self._has_error = True
        if not self._is_sending:
            self._listener.on_socket_error()

    def datagrams_dropped(self, count: int) -> None:
        """Report datagrams that the system dropped."""
        self._listener.on_datagrams_dropped(count)

    def pause_writing(self) -> None:
        """Send nothing until `resume_writing`."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Send again."""
        self._is_paused = False
        self._listener.on_socket_writable()

    def reconnect(self, address: Address) -> None:
        """Send to another peer from now on, and receive from no other; the local port stays.

        Raises:
            RegistrationError: CHANNEL_ENDPOINT_ERROR; the system refused, and the peer stays.
            ValueError: The address is of the other family.
        """
        if self._transport is not None:
            self._transport.reconnect(address)

    def close(self) -> None:
        """Close the socket; a second call does nothing.

        The port is free when the driver's `aclose` returns: a waiting datagram is lost.
        """
        if self._transport is not None:
            if self._is_paused:
                # It would keep the port until the socket has room, and another may want to bind it.
                self._transport.abort()
            else:
                self._transport.close()
            self._transport = None

    def send_to(self, datagram: Buffer, address: Address | None) -> bool:
        """Send to `address`, None on a connected socket; return False if that failed."""
        if self._is_paused or self._transport is None:
            return False
        self._has_error = False
        self._is_sending = True
        try:
            self._transport.sendto(datagram, address)
        finally:
            self._is_sending = False
        return not self._has_error

    def send_batch(self, batch: memoryview, segment_length: int, address: Address | None) -> int:
        """Send the datagrams of a batch to `address`, None on a connected socket.

        Args:
            batch: The datagrams, one after the other; not kept.
            segment_length: Length of each datagram in bytes; only the last may be shorter.
            address: As for `send_to`.

        Returns:
            The bytes sent, in whole datagrams from the first on.
        """
        if self._is_paused or self._transport is None:
            return 0
        self._is_sending = True
        try:
            return self._transport.send_batch(batch, segment_length, address)
        finally:
            self._is_sending = False

    def send_batches(
        self, data: memoryview, segments: SegmentTable, address: Address | None
    ) -> int:
        """Send segment batches to `address`, None on a connected socket.

        Args:
            data: The datagrams, one after the other; not kept.
            segments: For each batch, its end in `data` and the length of its datagrams, in bytes;
                only the last datagram of a batch may be shorter.
            address: As for `send_to`.

        Returns:
            The bytes sent, in whole datagrams from the first on.
        """
        if self._is_paused or self._transport is None:
            return 0
        self._is_sending = True
        try:
            return self._transport.send_batches(data, segments, address)
        finally:
            self._is_sending = False

    def send_to_many(
        self, data: memoryview, segments: SegmentTable, addresses: Sequence[Address]
    ) -> tuple[int, int]:
        """Send segment batches to each address; see `BoundedTransport.send_to_many`."""
        if self._is_paused or self._transport is None:
            return 0, 0
        self._is_sending = True
        try:
            return self._transport.send_to_many(data, segments, addresses)
        finally:
            self._is_sending = False


log: Final = get_logger(__name__)


class ChannelEndpoint(ABC):
    """One channel of a driver, with its sockets.

    Args:
        channel: Says what the sockets are bound and connected to.
        system_counters: The driver's counters.

    Attributes:
        registration_id: Registration id of its counters.
        status: The counter of its channel status; set once it is open.
        counters: All counters that are freed with it.
        socket_sndbuf_length: The send buffer asked for, in bytes; 0 is the system's default.
        socket_rcvbuf_length: The receive buffer asked for, in bytes; 0 is the system's default.
    """

    status: Counter

    def __init__(self, channel: UdpChannel, system_counters: SystemCounters) -> None:
        self.channel = channel
        self.registration_id = 0
        self.counters: list[Counter] = []
        self.socket_sndbuf_length = 0
        self.socket_rcvbuf_length = 0
        self._system_counters = system_counters
        self._socket_drops = system_counters[DriverCounterId.SOCKET_DROPS]
        self._drop_count = 0

    @property
    @abstractmethod
    def sockets(self) -> Sequence[ChannelSocket]:
        """Return all open sockets, the data socket first."""

    @property
    def local_address(self) -> str:
        """Return the bound address, as `host:port`; empty without a socket."""
        sockets = self.sockets
        return sockets[0].local_address if sockets else ""

    @property
    def granted_rcvbuf_length(self) -> int:
        """Return the length of the smallest receive buffer, in bytes; 0 if unknown."""
        return min((each.granted_rcvbuf_length for each in self.sockets), default=0)

    @property
    def granted_sndbuf_length(self) -> int:
        """Return the length of the data socket's send buffer, in bytes; 0 if unknown."""
        sockets = self.sockets
        return sockets[0].granted_sndbuf_length if sockets else 0

    @abstractmethod
    def on_socket_writable(self) -> None:
        """Sending is possible again."""

    @abstractmethod
    def on_socket_error(self) -> None:
        """A socket reported an error that is not the result of a send."""

    def on_datagrams_dropped(self, count: int) -> None:
        """Count datagrams that the system dropped."""
        self._socket_drops.increment(count)
        self._drop_count += count

    def drop_count(self) -> int:
        """Return how many datagrams the system has dropped at its sockets."""
        return self._drop_count

    def on_socket_lost(self, error: Exception) -> None:
        """Count, record and log that a socket failed."""
        self._system_counters.note_error(
            ErrorCode.CHANNEL_ENDPOINT_ERROR, f"socket lost: channel={self.channel.uri}: {error}"
        )
        # While its sockets are being opened it has no status yet; once closed, no counters.
        if self.registration_id and self.counters:
            self.status.set(ChannelStatus.ERRORED)
        log.error("endpoint_lost", channel=str(self.channel.uri), exc_info=error)

    def close(self) -> None:
        """Close the sockets and free the counters; a second call does nothing."""
        for each in self.sockets:
            each.close()
        for counter in self.counters:
            counter.close()
        self.counters.clear()


# Sending.


class SendSocket(ChannelSocket):
    """A socket of a send endpoint; it receives the control frames of receivers.

    Args:
        endpoint: Its endpoint.
        clock: Gives the time of arrival.
    """

    def __init__(self, endpoint: SendChannelEndpoint, clock: Clock) -> None:
        super().__init__(endpoint)
        self._dispatcher = endpoint.dispatcher
        # The transport calls this twice for every wake-up, so it is bound directly.
        self.reading: Callable[[bool], None] = endpoint.on_reading
        self._clock = clock

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Pass a control datagram to the dispatcher."""
        self._dispatcher.on_datagram(memoryview(data), addr, self._clock.now_ns())

    def datagrams_received(
        self, data: memoryview, segment_length: int, addr: tuple[str, int]
    ) -> None:
        """Pass control datagrams that arrived together to the dispatcher.

        Raises:
            Exception: What one datagram raised, or a group if several did; the others were
                dispatched.
        """
        self._dispatcher.on_datagrams(data, segment_length, addr, self._clock.now_ns())


class SendChannelEndpoint(ChannelEndpoint):
    """The endpoint from which the publications of one channel send.

    Args:
        channel: Says what the sockets are bound and connected to.
        clock: Gives the time of arrival.
        system_counters: The driver's counters.
        dispatcher: Gets the control frames of receivers.
        on_writable: Called when sending is possible again.
        on_reading: Called before and after a socket is read.

    Attributes:
        data: The socket that sends.
        control: The socket that is a member of a multicast channel's control group.
        remote: The address of a unicast or multicast channel's data.
    """

    def __init__(
        self,
        channel: UdpChannel,
        clock: Clock,
        system_counters: SystemCounters,
        dispatcher: ControlPacketDispatcher,
        on_writable: Callable[[SendChannelEndpoint], None],
        on_reading: Callable[[bool], None] = lambda _: None,
    ) -> None:
        super().__init__(channel, system_counters)
        self.on_reading = on_reading
        self.dispatcher = dispatcher
        self.data: SendSocket = SendSocket(self, clock)
        self.control: SendSocket | None = SendSocket(self, clock) if channel.is_multicast else None
        self.remote: Address = channel.remote_data
        self._destinations = dispatcher.destinations
        # The segment table of a single datagram.
        self._lone = array("i", (0, 0))
        self._clock = clock
        self._on_writable = on_writable
        self._short_sends = system_counters[SystemCounterId.SHORT_SENDS]

    @property
    def destinations(self) -> DestinationTracker | None:
        """Return the destinations, for a channel that has some."""
        return self._destinations

    @property
    def sockets(self) -> Sequence[ChannelSocket]:
        """Return the sockets, the data socket first."""
        return (self.data,) if self.control is None else (self.data, self.control)

    def send(self, datagram: Buffer) -> bool:
        """Send to every receiver now; return False if the datagram could not be sent.

        Differs: in Aeron one destination that the system refuses to send to holds up all others.
        Here that is counted as a short send, and the receiver repairs the loss when it is back.
        """
        destinations = self._destinations
        if destinations is None:
            return self.data.send_to(datagram, None if self.data.is_connected else self.remote)
        if not self.data.can_send:
            return False
        addresses = destinations.addresses(self._clock.now_ns())
        if len(addresses) == 1:
            # The call for many would cost 1.5 us more.
            missed_count = int(not self.data.send_to(datagram, addresses[0]))
        else:
            self._lone[0] = self._lone[1] = len(datagram)
            _, missed_count = self.data.send_to_many(memoryview(datagram), self._lone, addresses)
        if missed_count:
            self._short_sends.increment(missed_count)
        return True

    def send_to(self, datagram: Buffer, address: Address) -> bool:
        """Send to one receiver, on a socket that is not connected."""
        return self.data.send_to(datagram, address)

    def send_batches(self, data: memoryview, segments: SegmentTable) -> int:
        """Send segment batches to every receiver now; return the bytes sent.

        Args:
            data: The datagrams, one after the other; not kept.
            segments: For each batch, its end in `data` and the length of its datagrams, in bytes;
                only the last datagram of a batch may be shorter.
        """
        if self._destinations is None:
            return self.data.send_batches(
                data, segments, None if self.data.is_connected else self.remote
            )
        if not self.data.can_send:
            return 0
        addresses = self._destinations.addresses(self._clock.now_ns())
        sent_length, missed_count = self.data.send_to_many(data, segments, addresses)
        if missed_count:
            # A receiver that missed some of what counts as sent repairs the loss.
            self._short_sends.increment(missed_count)
        return sent_length

    def send_batches_to(self, data: memoryview, segments: SegmentTable, address: Address) -> int:
        """Send segment batches to one receiver; return the bytes sent."""
        return self.data.send_batches(data, segments, address)

    def reconnect(self, address: Address) -> None:
        """Send to the new address of a unicast channel's name.

        Raises:
            RegistrationError: CHANNEL_ENDPOINT_ERROR; the system refused, and the peer stays.
            ValueError: The address is of the other family.
        """
        if self.data.is_connected:
            self.data.reconnect(address)
        self.remote = address
        self._on_writable(self)

    def on_socket_writable(self) -> None:
        """Let the publications send again."""
        self._on_writable(self)

    def on_socket_error(self) -> None:
        """Count an error that is not the result of a send: an absent receiver's host refuses."""
        self._short_sends.increment()


# Receiving.


class ReceiveDestinationTransport(ChannelSocket):
    """One socket that receives data; control frames are sent from it as well.

    They have to be: a connected sender receives from the address it sends to only.

    Args:
        endpoint: Its endpoint.
        channel: Says what it is bound to.
        clock: Gives the time of arrival.

    Attributes:
        control_address: The address for status messages and NAKs; None for the source of the data.
        is_multicast: Whether data arrives by multicast.
        last_activity_ns: When a datagram last arrived; for names that may resolve elsewhere.
        registration_id: Id of the destination, if it was added as one.
        counters: The counters of this socket.
    """

    def __init__(
        self,
        endpoint: ReceiveChannelEndpoint,
        channel: UdpChannel,
        clock: Clock,
        *,
        registration_id: int = 0,
    ) -> None:
        super().__init__(endpoint)
        self.channel = channel
        self.is_multicast: bool = channel.is_multicast
        self.control_address: Address | None = channel.remote_control
        self.registration_id = registration_id
        self.last_activity_ns: int = clock.now_ns()
        self.counters: list[Counter] = []
        self._dispatcher = endpoint.dispatcher
        self._clock = clock
        self._on_received = endpoint.on_received
        # The transport calls this twice for every wake-up, so it is bound directly.
        self.reading: Callable[[bool], None] = endpoint.on_reading
        self._timestamps = endpoint.timestamps
        self._media_ns: int | None = None
        lane = endpoint.dispatcher.lane(self, clock.now_ns) if self._timestamps is None else None
        # The transport calls these for a datagram that arrives alone, so they are bound directly.
        self.take_alone: Callable[[Buffer, Address], bool] | None = lane and lane.take
        self.taken_alone: Callable[[], None] | None = lane and lane.deliver

    def move_control(self, address: Address) -> None:
        """Report to the new address of the control address's name."""
        self.control_address = address

    def close(self) -> None:
        """Close the socket and free its counters; a second call does nothing."""
        super().close()
        for counter in self.counters:
            counter.close()
        self.counters.clear()

    def media_timestamp_received(self, epoch_ns: int) -> None:
        """Record when the system received the next datagram, in nanoseconds since 1970."""
        self._media_ns = epoch_ns

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Pass a datagram to the dispatcher."""
        now_ns = self._clock.now_ns()
        self.last_activity_ns = now_ns
        self._on_received(len(data))
        datagram = memoryview(data)
        if self._timestamps is not None:
            datagram = self._timestamps.stamp(datagram, self._media_ns)
            self._media_ns = None
        self._dispatcher.on_datagram(datagram, addr, now_ns, self)

    def datagrams_received(
        self, data: memoryview, segment_length: int, addr: tuple[str, int]
    ) -> None:
        """Pass datagrams that arrived together to the dispatcher; see `batches_received`."""
        self.batches_received(data, array("i", (len(data), segment_length)), addr)

    def batches_received(
        self, data: memoryview, segments: SegmentTable, addr: tuple[str, int]
    ) -> None:
        """Pass segment batches to the dispatcher, with one time and one count for all.

        Args:
            data: The datagrams, one after the other; valid only during the call.
            segments: The segment table of the batches; see `DataPacketDispatcher.on_batches`.
            addr: The address all of them came from.
        """
        now_ns = self._clock.now_ns()
        self.last_activity_ns = now_ns
        self._on_received(len(data))
        if self._timestamps is not None:
            start = 0
            for end, segment_length in zip(segments[::2], segments[1::2], strict=True):
                for each in range(start, end, segment_length or 1):
                    # In place: the transport's buffer is writable.
                    self._timestamps.stamp(data[each : min(each + segment_length, end)], None)
                start = end
        self._dispatcher.on_batches(data, segments, addr, now_ns, self)


class ReceiveChannelEndpoint(ChannelEndpoint):
    """The endpoint at which the subscriptions of one channel receive.

    Args:
        channel: Says what the sockets are bound to.
        system_counters: The driver's counters.
        receiver_id: Identifies this receiver to senders.
        group_tag: Sent in every status message; None for none. The first subscription sets it.
        dispatcher: Gets what arrives.
        on_received: Called with the length of what arrived, in bytes.
        on_reading: Called before and after a socket is read.
        timestamps: Writes the receive time into messages; None if the channel did not ask for it.

    Attributes:
        destinations: Its sockets.
    """

    def __init__(
        self,
        channel: UdpChannel,
        system_counters: SystemCounters,
        *,
        receiver_id: int,
        group_tag: int | None,
        dispatcher: DataPacketDispatcher,
        on_received: Callable[[int], None],
        on_reading: Callable[[bool], None] = lambda _: None,
        timestamps: ReceiveTimestamps | None = None,
    ) -> None:
        super().__init__(channel, system_counters)
        self.timestamps = timestamps
        self.receiver_id = receiver_id
        self.group_tag = group_tag
        self.dispatcher = dispatcher
        self.on_received = on_received
        self.on_reading = on_reading
        self.destinations: list[ReceiveDestinationTransport] = []

    @property
    def sockets(self) -> Sequence[ChannelSocket]:
        """Return all open sockets."""
        return self.destinations

    def on_socket_writable(self) -> None:
        """Do nothing: timers send the next control frames."""

    def on_socket_error(self) -> None:
        """Do nothing: the error only says that a sender is absent."""

    def remove(self, destination: ReceiveDestinationTransport) -> None:
        """Remove and close one of the sockets."""
        self.destinations.remove(destination)
        destination.close()

    def close(self) -> None:
        """Close the sockets and free the counters; a second call does nothing."""
        super().close()
        self.destinations.clear()
