"""The sockets of a channel's publications, and where their datagrams go.

Unicast has one socket, connected to its receiver. Multicast has one connected to the data group and
one that is a member of the control group. A channel with destinations, and one for responses, has
one socket that is connected to nobody.

Source: Aeron `SendChannelEndpoint`, `aeron_send_channel_endpoint_send`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.driver.core.strategies import raise_failures
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.driver.media.channel_socket import ChannelSocket
from aeron_async.driver.media.endpoint import ChannelEndpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aeron_async.clock import Clock
    from aeron_async.driver.core.control_packet_dispatcher import ControlPacketDispatcher
    from aeron_async.driver.core.destination_tracker import DestinationTracker
    from aeron_async.driver.core.outbox import Address
    from aeron_async.driver.core.system_counters import SystemCounters
    from aeron_async.driver.core.udp_channel import UdpChannel
    from aeron_async.kernel.placing import Cuts
    from aeron_async.protocol.header import Buffer

__all__ = ["SendChannelEndpoint"]

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
        self.reading = endpoint.on_reading
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
        self.data = SendSocket(self, clock)
        self.control = SendSocket(self, clock) if channel.is_multicast else None
        self.remote = channel.remote_data
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
