"""One socket of an endpoint: the `asyncio.DatagramProtocol` between a transport and the cores.

Invariant: nothing queues here. While the transport asks for a pause nothing is sent, and what could
not leave is for the caller to send again: a publication has its log, a timer sends the rest.

Source: Aeron `UdpChannelTransport`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, cast

from aeron_async.driver.core.udp_channel import format_address

if TYPE_CHECKING:
    from aeron_async.driver.core.outbox import Address
    from aeron_async.driver.media.transport import BoundedTransport
    from aeron_async.kernel.placing import Cuts
    from aeron_async.protocol.header import Buffer

__all__ = ["ChannelSocket", "SocketListener"]


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
        self.is_connected = False
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
