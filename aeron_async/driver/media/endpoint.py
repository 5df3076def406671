"""Endpoints: the `asyncio.DatagramProtocol`s between a socket and the cores.

Invariant: nothing queues here. While the transport asks for a pause nothing is sent, and what could
not leave is for the caller to send again: a publication has its log, a timer sends the rest.

Source: Aeron `SendChannelEndpoint`, `ReceiveChannelEndpoint`, `UdpChannelTransport`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from aeron_async.driver.core.stream_counters import ChannelStatus
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.driver.core.udp_channel import format_address
from aeron_async.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.clock import Clock
    from aeron_async.counters import Counter
    from aeron_async.driver.core.control_packet_dispatcher import ControlPacketDispatcher
    from aeron_async.driver.core.data_packet_dispatcher import DataPacketDispatcher
    from aeron_async.driver.core.outbox import Address
    from aeron_async.driver.core.system_counters import SystemCounters
    from aeron_async.driver.core.udp_channel import UdpChannel
    from aeron_async.protocol.header import Buffer

__all__ = ["ChannelEndpoint", "ReceiveChannelEndpoint", "SendChannelEndpoint"]

log = get_logger(__name__)


class ChannelEndpoint(asyncio.DatagramProtocol):
    """What both directions share: a transport, its pauses, and its errors.

    Args:
        channel: What it is bound and connected to.
        clock: Reads the time of arrival.
        system_counters: The driver's counters.

    Attributes:
        counters: The channel status first.
        socket_sndbuf_length: Asked for, in bytes; 0 is the system's default.
        socket_rcvbuf_length: Likewise.
    """

    def __init__(self, channel: UdpChannel, clock: Clock, system_counters: SystemCounters) -> None:
        self.channel = channel
        self.counters: list[Counter] = []
        self.socket_sndbuf_length = 0
        self.socket_rcvbuf_length = 0
        self._clock = clock
        self._errors = system_counters[SystemCounterId.ERRORS]
        # Answers what is asked of the socket, also when it is gone and nothing can be sent.
        self._socket: asyncio.BaseTransport
        self._transport: asyncio.DatagramTransport | None = None
        self._is_paused = False
        self._has_error = False
        self._is_sending = False

    @property
    def local_address(self) -> str:
        """Return the bound address, as `host:port`."""
        sockname = cast("Address", self._socket.get_extra_info("sockname"))
        return format_address((sockname[0], sockname[1]))

    @property
    def granted_rcvbuf_length(self) -> int:
        """Return how much the kernel buffers for this endpoint, in bytes; 0 when it is unknown."""
        return cast("int", self._socket.get_extra_info("granted_rcvbuf_length", 0))

    @property
    def granted_sndbuf_length(self) -> int:
        """Return how much the kernel queues for this endpoint, in bytes; 0 when it is unknown."""
        return cast("int", self._socket.get_extra_info("granted_sndbuf_length", 0))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._socket = transport
        self._transport = cast("asyncio.DatagramTransport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of the transport; nothing can be sent any more, and a failure is told."""
        self._transport = None
        if exc is None:
            return
        self._errors.increment()
        for status in self.counters[:1]:
            status.set(ChannelStatus.ERRORED)
        log.error("endpoint_lost", channel=str(self.channel.uri), exc_info=exc)

    def error_received(self, exc: Exception) -> None:
        """Take note of an error of the socket; absent peers make them all the time."""
        del exc
        self._has_error = True

    def pause_writing(self) -> None:
        """Send nothing until told otherwise."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Send again."""
        self._is_paused = False

    def close(self) -> None:
        """Close the socket and free the counters; more than once is once.

        The port is free when the driver's `aclose` returns: a datagram that waits is lost.
        """
        if self._transport is not None:
            if self._is_paused:
                # It would keep the port until the socket has room, and the next may want to bind.
                self._transport.abort()
            else:
                self._transport.close()
            self._transport = None
        for counter in self.counters:
            counter.close()
        self.counters.clear()

    def _send(self, datagram: Buffer, address: Address | None) -> bool:
        if self._is_paused or self._transport is None:
            return False
        self._has_error = False
        self._is_sending = True
        try:
            self._transport.sendto(datagram, address)
        finally:
            self._is_sending = False
        return not self._has_error


class SendChannelEndpoint(ChannelEndpoint):
    """The socket of a channel's publications, connected to their receiver.

    Args:
        channel: What it is bound and connected to.
        clock: Reads the time of arrival.
        system_counters: The driver's counters.
        dispatcher: Takes what comes back.
        on_writable: Called when sending is possible again.
    """

    def __init__(
        self,
        channel: UdpChannel,
        clock: Clock,
        system_counters: SystemCounters,
        dispatcher: ControlPacketDispatcher,
        on_writable: Callable[[SendChannelEndpoint], None],
    ) -> None:
        super().__init__(channel, clock, system_counters)
        self.dispatcher = dispatcher
        self._on_writable = on_writable
        self._short_sends = system_counters[SystemCounterId.SHORT_SENDS]

    def send(self, datagram: Buffer) -> bool:
        """Send to the receiver now; False when the datagram could not leave."""
        return self._send(datagram, None)

    def error_received(self, exc: Exception) -> None:
        """Count an error that is not the answer to a send: an absent receiver's refusal."""
        if not self._is_sending:
            self._short_sends.increment()
        super().error_received(exc)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Hand a control datagram to its publication."""
        self.dispatcher.on_datagram(memoryview(data), addr, self._clock.now_ns())

    def resume_writing(self) -> None:
        """Send again."""
        super().resume_writing()
        self._on_writable(self)


class ReceiveChannelEndpoint(ChannelEndpoint):
    """The socket of a channel's subscriptions, bound to its endpoint.

    Control frames leave from this same socket: a connected sender hears no other.

    Args:
        channel: What it is bound to.
        clock: Reads the time of arrival.
        system_counters: The driver's counters.
        receiver_id: Names this end to senders.
        on_received: Told of the length of each datagram.
    """

    def __init__(
        self,
        channel: UdpChannel,
        clock: Clock,
        system_counters: SystemCounters,
        *,
        receiver_id: int,
        on_received: Callable[[int], None],
    ) -> None:
        super().__init__(channel, clock, system_counters)
        self.receiver_id = receiver_id
        self.group_tag: int | None = None
        self.dispatcher: DataPacketDispatcher
        self._on_received = on_received

    def send_to(self, datagram: Buffer, address: Address) -> bool:
        """Send a control frame to a source now; False when it could not leave."""
        return self._send(datagram, address)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Hand a datagram of data or setup to the dispatcher."""
        self._on_received(len(data))
        self.dispatcher.on_datagram(memoryview(data), addr, self._clock.now_ns())
