"""The machine's own network, but for datagrams that never arrive."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aeron_async.driver.media.network import SystemNetwork

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from aeron_async.driver.media.sockets import SocketSpec


class LossyProtocol(asyncio.DatagramProtocol):
    """Stands before an endpoint and drops what comes in, by the rate and the seed."""

    def __init__(self, network: LossyNetwork, inner: asyncio.DatagramProtocol) -> None:
        self._network = network
        self._inner = inner
        self.connection_made = inner.connection_made  # type: ignore[method-assign]
        self.connection_lost = inner.connection_lost  # type: ignore[method-assign]
        self.error_received = inner.error_received  # type: ignore[method-assign]
        self.pause_writing = inner.pause_writing  # type: ignore[method-assign]
        self.resume_writing = inner.resume_writing  # type: ignore[method-assign]

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        network = self._network
        if network.random.random() < network.loss_rate:
            network.dropped_count += 1
        else:
            network.delivered_count += 1
            self._inner.datagram_received(data, addr)


class LossyNetwork(SystemNetwork):
    """A network whose every socket loses a share of what it receives.

    Args:
        loss_rate: Share of datagrams dropped, in each direction.
        random: Decides which, from its seed.
    """

    def __init__(self, loss_rate: float, random: Random) -> None:
        super().__init__()
        self.loss_rate = loss_rate
        self.random = random
        self.dropped_count = 0
        self.delivered_count = 0

    async def open(
        self, protocol_factory: Callable[[], asyncio.DatagramProtocol], spec: SocketSpec
    ) -> asyncio.DatagramTransport:
        return await super().open(lambda: LossyProtocol(self, protocol_factory()), spec)
