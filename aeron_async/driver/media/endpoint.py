"""Channel endpoints: the sockets that one channel sends from or receives at.

Invariant: no endpoint queues. While the transport of a `ChannelSocket` asks for a pause, the
socket sends nothing. The caller sends again what could not leave: a publication from its log, the
rest from a timer.

The sockets of a `SendChannelEndpoint` depend on its channel:

- unicast: one, connected to its receiver;
- multicast: one connected to the data group, and one that is a member of the control group;
- with destinations, or for responses: one that is connected to no peer.

A `ReceiveChannelEndpoint` has one `ReceiveDestinationTransport` for each of its destinations.

Source: Aeron `UdpChannelTransport`, `SendChannelEndpoint`, `ReceiveChannelEndpoint`,
`aeron_send_channel_endpoint_send`, `ReceiveDestinationTransport`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from array import array
from typing import TYPE_CHECKING, Final, Protocol, cast

from aeron_async.driver.core.strategies import raise_failures
from aeron_async.driver.core.stream_counters import ChannelStatus
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.driver.core.udp_channel import format_address
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
    from aeron_async.driver.media.transport import BoundedTransport
    from aeron_async.logbuffer.placing import Cuts
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
    """Whose socket it is."""

    def on_socket_writable(self) -> None:
        """Sending is possible again."""
        ...

    def on_socket_error(self) -> None:
        """The socket told of an error that is not the answer to a send."""
        ...

    def on_datagrams_dropped(self, count: int) -> None:
        """The system dropped so many datagrams, for want of room in the socket's buffer."""
        ...

    def on_socket_lost(self, error: Exception) -> None:
        """The socket is gone, and it was not closed by us."""
        ...


class ChannelSocket(asyncio.DatagramProtocol):
    """A transport, its pauses, and its errors; what arrives is for the classes made of it.

    Args:
        listener: Hears what becomes of the socket.

    Attributes:
        is_connected: Whether it sends to, and hears, one peer only.
    """

    def __init__(self, listener: SocketListener) -> None:
        self._listener = listener
        # Answers what is asked of the socket, also when it is gone and nothing can be sent.
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
        """Return how much the kernel buffers for this socket, in bytes; 0 when it is unknown."""
        return cast("int", self._socket.get_extra_info("granted_rcvbuf_length", 0))

    @property
    def granted_sndbuf_length(self) -> int:
        """Return how much the kernel queues for this socket, in bytes; 0 when it is unknown."""
        return cast("int", self._socket.get_extra_info("granted_sndbuf_length", 0))

    @property
    def can_send(self) -> bool:
        """Return whether a datagram may be sent now."""
        return not self._is_paused and self._transport is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._socket = transport
        self.is_connected = transport.get_extra_info("peername") is not None
        self._transport = cast("BoundedTransport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of the transport; nothing can be sent any more, and a failure is told."""
        self._transport = None
        if exc is not None:
            self._listener.on_socket_lost(exc)

    def error_received(self, exc: Exception) -> None:
        """Take note of an error of the socket; absent peers make them all the time."""
        del exc
        self._has_error = True
        if not self._is_sending:
            self._listener.on_socket_error()

    def datagrams_dropped(self, count: int) -> None:
        """Tell of datagrams that the system had no room for."""
        self._listener.on_datagrams_dropped(count)

    def pause_writing(self) -> None:
        """Send nothing until told otherwise."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Send again."""
        self._is_paused = False
        self._listener.on_socket_writable()

    def reconnect(self, address: Address) -> None:
        """Send to another peer from now on, and hear no other; the local port stays.

        Raises:
            RegistrationError: CHANNEL_ENDPOINT_ERROR; the system refused, and the peer stays.
            ValueError: The address is of the other family.
        """
        if self._transport is not None:
            self._transport.reconnect(address)

    def close(self) -> None:
        """Close the socket; more than once is once.

        The port is free when the driver's `aclose` returns: a datagram that waits is lost.
        """
        if self._transport is not None:
            if self._is_paused:
                # It would keep the port until the socket has room, and the next may want to bind.
                self._transport.abort()
            else:
                self._transport.close()
            self._transport = None

    def send_to(self, datagram: Buffer, address: Address | None) -> bool:
        """Send to `address`, None where the socket is connected; False when it could not leave."""
        if self._is_paused or self._transport is None:
            return False
        self._has_error = False
        self._is_sending = True
        try:
            self._transport.sendto(datagram, address)
        finally:
            self._is_sending = False
        return not self._has_error

    def send_run(self, run: memoryview, segment_length: int, address: Address | None) -> int:
        """Send the datagrams of a run to `address`, None where the socket is connected.

        Args:
            run: The datagrams, one behind the other; not kept.
            segment_length: Of each, in bytes; only the last may be shorter.
            address: As of `send_to`.

        Returns:
            The bytes that left, in whole datagrams from the first on.
        """
        if self._is_paused or self._transport is None:
            return 0
        self._is_sending = True
        try:
            return self._transport.send_run(run, segment_length, address)
        finally:
            self._is_sending = False

    def send_runs(self, data: memoryview, cuts: Cuts, address: Address | None) -> int:
        """Send runs of datagrams to `address`, None where the socket is connected.

        Args:
            data: The datagrams, one behind the other; not kept.
            cuts: Of each run where it ends in the data, and the length of its datagrams in bytes;
                only its last may be shorter.
            address: As of `send_to`.

        Returns:
            The bytes that left, in whole datagrams from the first on.
        """
        if self._is_paused or self._transport is None:
            return 0
        self._is_sending = True
        try:
            return self._transport.send_runs(data, cuts, address)
        finally:
            self._is_sending = False


log: Final = get_logger(__name__)


class ChannelEndpoint(ABC):
    """One channel of a driver, with the sockets it takes.

    Args:
        channel: What it is bound and connected to.
        system_counters: The driver's counters.

    Attributes:
        registration_id: Of its counters.
        status: Shows whether it works; there once it is open.
        counters: All that go with it.
        socket_sndbuf_length: Asked for, in bytes; 0 is the system's default.
        socket_rcvbuf_length: Likewise.
    """

    status: Counter

    def __init__(self, channel: UdpChannel, system_counters: SystemCounters) -> None:
        self.channel = channel
        self.registration_id = 0
        self.counters: list[Counter] = []
        self.socket_sndbuf_length = 0
        self.socket_rcvbuf_length = 0
        self._errors = system_counters[SystemCounterId.ERRORS]
        self._socket_drops = system_counters[DriverCounterId.SOCKET_DROPS]

    @property
    @abstractmethod
    def sockets(self) -> Sequence[ChannelSocket]:
        """Return the sockets there are now, that of the data first."""

    @property
    def local_address(self) -> str:
        """Return what is bound, as `host:port`; empty without a socket."""
        sockets = self.sockets
        return sockets[0].local_address if sockets else ""

    @property
    def granted_rcvbuf_length(self) -> int:
        """Return how much the kernel buffers for this endpoint, in bytes; 0 when it is unknown."""
        return min((each.granted_rcvbuf_length for each in self.sockets), default=0)

    @property
    def granted_sndbuf_length(self) -> int:
        """Return how much the kernel queues for this endpoint, in bytes; 0 when it is unknown."""
        sockets = self.sockets
        return sockets[0].granted_sndbuf_length if sockets else 0

    @abstractmethod
    def on_socket_writable(self) -> None:
        """Sending is possible again."""

    @abstractmethod
    def on_socket_error(self) -> None:
        """A socket told of an error that is not the answer to a send."""

    def on_datagrams_dropped(self, count: int) -> None:
        """Count what the system had no room for."""
        self._socket_drops.increment(count)

    def on_socket_lost(self, error: Exception) -> None:
        """Tell that a socket failed."""
        self._errors.increment()
        # Between two sockets that are being opened, it has no status yet; closed, no counters.
        if self.registration_id and self.counters:
            self.status.set(ChannelStatus.ERRORED)
        log.error("endpoint_lost", channel=str(self.channel.uri), exc_info=error)

    def close(self) -> None:
        """Close the sockets and free the counters; more than once is once."""
        for each in self.sockets:
            each.close()
        for counter in self.counters:
            counter.close()
        self.counters.clear()


# Sending.

SLICE_COUNT: Final = 8
"""Datagrams of a run that one of several destinations gets before the others have theirs.

No more than this do those behind miss when the socket becomes full, and still a call to the system
takes about a quarter of the time that the datagrams would take one by one.
"""


class SendSocket(ChannelSocket):
    """A socket of a send endpoint; what arrives there is the receivers' answer.

    Args:
        endpoint: Whose it is.
        clock: Reads the time of arrival.
    """

    def __init__(self, endpoint: SendChannelEndpoint, clock: Clock) -> None:
        super().__init__(endpoint)
        self._dispatcher = endpoint.dispatcher
        # Told by the transport itself: twice for every wake-up.
        self.reading: Callable[[bool], None] = endpoint.on_reading
        self._clock = clock

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Hand a control datagram to its publication."""
        self._dispatcher.on_datagram(memoryview(data), addr, self._clock.now_ns())

    def datagrams_received(
        self, data: memoryview, segment_length: int, addr: tuple[str, int]
    ) -> None:
        """Hand control datagrams that came at once to their publications.

        Raises:
            Exception: What one of them raised, or a group of what several did; the others were
                taken.
        """
        now_ns, dispatcher = self._clock.now_ns(), self._dispatcher
        failures: list[Exception] = []
        for start in range(0, len(data), segment_length):
            try:
                dispatcher.on_datagram(data[start : start + segment_length], addr, now_ns)
            except Exception as error:  # noqa: BLE001 - it is raised when all were taken
                failures.append(error)
        if failures:
            raise_failures(failures)


class SendChannelEndpoint(ChannelEndpoint):
    """Where the publications of one channel send from.

    Args:
        channel: What it is bound and connected to.
        clock: Reads the time of arrival.
        system_counters: The driver's counters.
        dispatcher: Takes what comes back.
        on_writable: Called when sending is possible again.
        on_reading: Told before and after all that a socket has is read.

    Attributes:
        data: The socket that sends.
        control: The member of a multicast channel's control group.
        remote: Where the data goes, of a unicast channel or a multicast one.
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
        self._clock = clock
        self._on_writable = on_writable
        self._short_sends = system_counters[SystemCounterId.SHORT_SENDS]

    @property
    def destinations(self) -> DestinationTracker | None:
        """Return where data goes, for a channel that has destinations."""
        return self._destinations

    @property
    def sockets(self) -> Sequence[ChannelSocket]:
        """Return the sockets, that of the data first."""
        return (self.data,) if self.control is None else (self.data, self.control)

    def send(self, datagram: Buffer) -> bool:
        """Send to every receiver now; False when the datagram could not leave.

        Differs: in Aeron one destination that the system refuses to send to holds back all the
        others. Here it is counted as a short send, and repairs what it missed when it is back.
        """
        destinations = self._destinations
        if destinations is None:
            return self.data.send_to(datagram, None if self.data.is_connected else self.remote)
        if not self.data.can_send:
            return False
        for address in destinations.addresses(self._clock.now_ns()):
            if not self.data.send_to(datagram, address):
                self._short_sends.increment()
        return True

    def send_to(self, datagram: Buffer, address: Address) -> bool:
        """Send to one receiver of a channel that is connected to none."""
        return self.data.send_to(datagram, address)

    def send_runs(self, data: memoryview, cuts: Cuts) -> int:
        """Send runs of datagrams to every receiver now; return the bytes that left.

        Args:
            data: The datagrams, one behind the other; not kept.
            cuts: Of each run where it ends in the data, and the length of its datagrams in bytes;
                only its last may be shorter.
        """
        if self._destinations is None:
            return self.data.send_runs(data, cuts, None if self.data.is_connected else self.remote)
        start = 0
        for end, segment_length in zip(cuts[::2], cuts[1::2], strict=True):
            start += self._send_run(data[start:end], segment_length, self._destinations)
            if start < end:
                break
        return start

    def _send_run(
        self, run: memoryview, segment_length: int, destinations: DestinationTracker
    ) -> int:
        """Send the datagrams of a run to every destination now; return the bytes that left.

        Several destinations get it in slices by turns, up to the slice in which the socket becomes
        full. Of that one what any of them got has left, of the others everything: one that missed
        some of it is counted as so many short sends, and repairs them.
        """
        if not self.data.can_send:
            return 0
        addresses = destinations.addresses(self._clock.now_ns())
        slice_length = len(run) if len(addresses) == 1 else SLICE_COUNT * segment_length
        for start in range(0, len(run), slice_length):
            part = run[start : start + slice_length]
            sent_length = self._send_slice(part, segment_length, addresses)
            if sent_length < len(part):
                return start + sent_length
        return len(run)

    def _send_slice(
        self, part: memoryview, segment_length: int, addresses: Sequence[Address]
    ) -> int:
        """Send a part of a run to each address, and return the bytes that count as sent to all."""
        data = self.data
        left_lengths = [data.send_run(part, segment_length, address) for address in addresses]
        # A socket that became full sends the rest to everybody when it has room again.
        sent_length = len(part) if data.can_send else max(left_lengths)
        for left_length in left_lengths:
            if left_length < sent_length:
                self._short_sends.increment(-(-(sent_length - left_length) // segment_length))
        return sent_length

    def send_runs_to(self, data: memoryview, cuts: Cuts, address: Address) -> int:
        """Send runs of datagrams to one receiver; return the bytes that left."""
        return self.data.send_runs(data, cuts, address)

    def reconnect(self, address: Address) -> None:
        """Send to where the name of a unicast channel leads now.

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
        """Count an error that is not the answer to a send: an absent receiver's refusal."""
        self._short_sends.increment()


# Receiving.


class ReceiveDestinationTransport(ChannelSocket):
    """One socket that data arrives at; control frames leave from it too.

    A connected sender hears no other: that is why they do.

    Args:
        endpoint: Whose it is.
        channel: What it is bound to.
        clock: Reads the time of arrival.

    Attributes:
        control_address: Where status messages and NAKs go; None where to whoever sent the data.
        is_multicast: Whether data arrives by way of a group.
        last_activity_ns: When a datagram arrived; for names that may have moved.
        registration_id: Of the destination, where it was added as one.
        counters: Those of this socket.
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
        # Told by the transport itself: twice for every wake-up.
        self.reading: Callable[[bool], None] = endpoint.on_reading
        self._timestamps = endpoint.timestamps
        self._media_ns: int | None = None

    def move_control(self, address: Address) -> None:
        """Report to where the name of the control address leads now."""
        self.control_address = address

    def close(self) -> None:
        """Close the socket and free its counters; more than once is once."""
        super().close()
        for counter in self.counters:
            counter.close()
        self.counters.clear()

    def media_timestamp_received(self, epoch_ns: int) -> None:
        """Note when the system had the next datagram, in nanoseconds since 1970."""
        self._media_ns = epoch_ns

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Hand a datagram of data or setup to the dispatcher."""
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
        """Hand datagrams that came at once to the dispatcher; see `runs_received`."""
        self.runs_received(data, array("i", (len(data), segment_length)), addr)

    def runs_received(self, data: memoryview, cuts: Cuts, addr: tuple[str, int]) -> None:
        """Hand runs of datagrams to the dispatcher: one time for all, and one count.

        Args:
            data: The datagrams, one behind the other; valid only during the call.
            cuts: Where they are to be cut; see `DataPacketDispatcher.on_runs`.
            addr: Where all of them came from.
        """
        now_ns = self._clock.now_ns()
        self.last_activity_ns = now_ns
        self._on_received(len(data))
        if self._timestamps is not None:
            start = 0
            for end, segment_length in zip(cuts[::2], cuts[1::2], strict=True):
                for each in range(start, end, segment_length or 1):
                    # In place: what a transport lends can be written to.
                    self._timestamps.stamp(data[each : min(each + segment_length, end)], None)
                start = end
        self._dispatcher.on_runs(data, cuts, addr, now_ns, self)


class ReceiveChannelEndpoint(ChannelEndpoint):
    """Where the subscriptions of one channel receive.

    Args:
        channel: What it is bound to.
        system_counters: The driver's counters.
        receiver_id: Names this end to senders.
        group_tag: Carried by every status message, or None; the first subscription decides.
        dispatcher: Takes what arrives.
        on_received: Told of the length of each datagram.
        on_reading: Told before and after all that a socket has is read.
        timestamps: Writes the time of arrival into messages; None where nobody asked for it.

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
        """Return the sockets there are now."""
        return self.destinations

    def on_socket_writable(self) -> None:
        """Do nothing: control frames have timers that send the next."""

    def on_socket_error(self) -> None:
        """Do nothing: whom nobody hears, nobody hears."""

    def remove(self, destination: ReceiveDestinationTransport) -> None:
        """Close one of the sockets."""
        self.destinations.remove(destination)
        destination.close()

    def close(self) -> None:
        """Close the sockets and free the counters; more than once is once."""
        super().close()
        self.destinations.clear()
