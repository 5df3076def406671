"""Datagrams that arrive and are dropped on purpose, between the sockets and the endpoints.

Invariant: a driver without loss generators has none of this in the way of its datagrams.

Source: Aeron `aeron_udp_channel_incoming_interceptor_t`, `aeron_udp_channel_transport_bindings.c`.
"""

from __future__ import annotations

import asyncio
from array import array
from typing import TYPE_CHECKING, cast

from aeron_async.driver.core.loss_generator import LossGenerators
from aeron_async.driver.core.strategies import raise_failures

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.driver.core.context import DriverContext
    from aeron_async.driver.core.loss_generator import LossGenerator
    from aeron_async.driver.media.network import InterfaceAddress, Network
    from aeron_async.driver.media.sockets import SocketAddress, SocketSpec
    from aeron_async.logbuffer.placing import SegmentTable

__all__ = ["LossyNetwork"]


class LossyNetwork:
    """A network whose sockets lose what loss generators drop.

    Args:
        network: Opens the sockets.
        generators: Make the generators of each socket.
    """

    def __init__(self, network: Network, generators: LossGenerators) -> None:
        self._network = network
        self._generators = generators

    @classmethod
    def of(cls, network: Network, context: DriverContext) -> Network:
        """Return a network that loses what a context says; if that is nothing, the same one."""
        generators = LossGenerators(context)
        return cls(network, generators) if generators else network

    async def open(
        self, protocol_factory: Callable[[], asyncio.DatagramProtocol], spec: SocketSpec
    ) -> asyncio.DatagramTransport:
        """Open a socket whose protocol gets what no generator drops.

        Raises:
            RegistrationError: CHANNEL_ENDPOINT_ERROR.
        """
        generators = self._generators.of_socket()
        return await self._network.open(lambda: LossyProtocol(protocol_factory(), generators), spec)

    async def resolve(
        self, host: str, port: int, *, is_re_resolution: bool = False
    ) -> SocketAddress:
        """Return the numeric address of a host.

        Raises:
            RegistrationError: UNKNOWN_HOST.
        """
        return await self._network.resolve(host, port, is_re_resolution=is_re_resolution)

    async def interfaces(self) -> tuple[InterfaceAddress, ...]:
        """Return the addresses of this machine, in the order of its system."""
        return await self._network.interfaces()


class LossyProtocol(asyncio.DatagramProtocol):
    """Passes the datagrams that no generator drops, one by one, and all else as it is.

    Args:
        protocol: A socket of an endpoint.
        generators: What the first one drops, the next one does not see.
    """

    def __init__(
        self, protocol: asyncio.DatagramProtocol, generators: tuple[LossGenerator, ...]
    ) -> None:
        self._protocol = protocol
        self._generators = generators
        # A transport looks for these once, and calls them often.
        for name in ("reading", "datagrams_dropped", "media_timestamp_received"):
            if hasattr(protocol, name):
                setattr(self, name, getattr(protocol, name))

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Pass a datagram unless a generator drops it."""
        if not self._should_drop(memoryview(data)):
            self._protocol.datagram_received(data, addr)

    def datagrams_received(
        self, data: memoryview, segment_length: int, addr: tuple[str, int]
    ) -> None:
        """Pass datagrams that arrived together; see `batches_received`."""
        self.batches_received(data, array("i", (len(data), segment_length)), addr)

    def batches_received(
        self, data: memoryview, segments: SegmentTable, addr: tuple[str, int]
    ) -> None:
        """Pass the datagrams of segment batches.

        Raises:
            Exception: What one datagram raised, or a group if several did; the others were passed.
        """
        failures: list[Exception] = []
        start = 0
        for end, segment_length in zip(segments[::2], segments[1::2], strict=True):
            for each in range(start, end, segment_length or 1):
                datagram = data[each : min(each + segment_length, end)]
                if self._should_drop(datagram):
                    continue
                try:
                    self._protocol.datagram_received(cast("bytes", datagram), addr)
                except Exception as error:  # noqa: BLE001 - it is raised when all were passed
                    failures.append(error)
            start = end
        if failures:
            raise_failures(failures)

    def _should_drop(self, datagram: memoryview) -> bool:
        return any(each.should_drop(datagram) for each in self._generators)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Pass the transport."""
        self._protocol.connection_made(cast("asyncio.DatagramTransport", transport))

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass the end of the transport."""
        self._protocol.connection_lost(exc)

    def error_received(self, exc: Exception) -> None:
        """Pass an error of the socket."""
        self._protocol.error_received(exc)

    def pause_writing(self) -> None:
        """Pass a pause."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Pass the end of a pause."""
        self._protocol.resume_writing()
