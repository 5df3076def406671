"""The sockets of a channel's subscriptions: most have one, a multi-destination subscription any.

Source: Aeron `ReceiveChannelEndpoint`, `ReceiveDestinationTransport`.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from aeron_async.driver.media.channel_socket import ChannelSocket
from aeron_async.driver.media.endpoint import ChannelEndpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aeron_async.clock import Clock
    from aeron_async.counters import Counter
    from aeron_async.driver.core.data_packet_dispatcher import DataPacketDispatcher
    from aeron_async.driver.core.outbox import Address
    from aeron_async.driver.core.system_counters import SystemCounters
    from aeron_async.driver.core.timestamps import ReceiveTimestamps
    from aeron_async.driver.core.udp_channel import UdpChannel
    from aeron_async.kernel.placing import Cuts

__all__ = ["ReceiveChannelEndpoint", "ReceiveDestinationTransport"]


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
        self.is_multicast = channel.is_multicast
        self.control_address: Address | None = channel.remote_control
        self.registration_id = registration_id
        self.last_activity_ns = clock.now_ns()
        self.counters: list[Counter] = []
        self._dispatcher = endpoint.dispatcher
        self._clock = clock
        self._on_received = endpoint.on_received
        # Told by the transport itself: twice for every wake-up.
        self.reading = endpoint.on_reading
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

    def forgive_silence(self, late_ns: int, now_ns: int) -> None:
        """Let no sender count as silent for the time in which this driver was not running.

        Args:
            late_ns: How long that was.
            now_ns: The time now; nothing is remembered as later than this.
        """
        for destination in self.destinations:
            destination.last_activity_ns = min(destination.last_activity_ns + late_ns, now_ns)

    def remove(self, destination: ReceiveDestinationTransport) -> None:
        """Close one of the sockets."""
        self.destinations.remove(destination)
        destination.close()

    def close(self) -> None:
        """Close the sockets and free the counters; more than once is once."""
        super().close()
        self.destinations.clear()
