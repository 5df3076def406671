"""Endpoints: the `asyncio.DatagramProtocol`s between a socket and the cores.

Invariant: nothing queues here. While the transport asks for a pause nothing is sent, and what could
not leave is for the caller to send again: a publication has its log, a timer sends the rest.

Source: Aeron `SendChannelEndpoint`, `ReceiveChannelEndpoint`, `UdpChannelTransport`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from aeron_async.driver.core.udp_channel import format_address

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.clock import Clock
    from aeron_async.counters import Counter
    from aeron_async.driver.core.control_packet_dispatcher import ControlPacketDispatcher
    from aeron_async.driver.core.data_packet_dispatcher import DataPacketDispatcher
    from aeron_async.driver.core.outbox import Address
    from aeron_async.driver.core.udp_channel import UdpChannel
    from aeron_async.protocol.header import Buffer

__all__ = ["ChannelEndpoint", "ReceiveChannelEndpoint", "SendChannelEndpoint"]


class ChannelEndpoint(asyncio.DatagramProtocol):
    """What both directions share: a transport, its pauses, and its errors.

    Args:
        channel: What it is bound and connected to.
        clock: Reads the time of arrival.
    """

    def __init__(self, channel: UdpChannel, clock: Clock) -> None:
        self.channel = channel
        self.counters: list[Counter] = []
        self._clock = clock
        self._transport: asyncio.DatagramTransport | None = None
        self._is_paused = False
        self._has_error = False
        self._is_sending = False

    @property
    def local_address(self) -> str:
        """Return the bound address, as `host:port`."""
        assert self._transport is not None
        sockname = cast("Address", self._transport.get_extra_info("sockname"))
        return format_address((sockname[0], sockname[1]))

    @property
    def granted_rcvbuf_length(self) -> int:
        """Return how much the kernel buffers for this endpoint, in bytes; 0 when it is unknown."""
        assert self._transport is not None
        return cast("int", self._transport.get_extra_info("granted_rcvbuf_length", 0))

    @property
    def granted_sndbuf_length(self) -> int:
        """Return how much the kernel queues for this endpoint, in bytes; 0 when it is unknown."""
        assert self._transport is not None
        return cast("int", self._transport.get_extra_info("granted_sndbuf_length", 0))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._transport = cast("asyncio.DatagramTransport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of the transport; nothing can be sent any more."""
        del exc
        self._transport = None

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
        """Close the socket and free the counters; more than once is once."""
        if self._transport is not None:
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
        self._transport.sendto(datagram, address)
        self._is_sending = False
        return not self._has_error


class SendChannelEndpoint(ChannelEndpoint):
    """The socket of a channel's publications, connected to their receiver.

    Args:
        channel: What it is bound and connected to.
        clock: Reads the time of arrival.
        dispatcher: Takes what comes back.
        short_sends: Counts what the far side would not have.
        on_writable: Called when sending is possible again.
    """

    def __init__(
        self,
        channel: UdpChannel,
        clock: Clock,
        dispatcher: ControlPacketDispatcher,
        short_sends: Counter,
        on_writable: Callable[[SendChannelEndpoint], None],
    ) -> None:
        super().__init__(channel, clock)
        self.dispatcher = dispatcher
        self._on_writable = on_writable
        self._short_sends = short_sends

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
        del addr
        self.dispatcher.on_datagram(memoryview(data), self._clock.now_ns())

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
        receiver_id: Names this end to senders.
        on_received: Told of the length of each datagram.
    """

    def __init__(
        self,
        channel: UdpChannel,
        clock: Clock,
        *,
        receiver_id: int,
        on_received: Callable[[int], None],
    ) -> None:
        super().__init__(channel, clock)
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
