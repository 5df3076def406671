"""The machine's own network, but for datagrams that are lost on the way in, by a rate and a seed.

What is left of a segment batch stays one: losing is not to cost what batching saves.
"""

from __future__ import annotations

import asyncio
import math
from random import Random
from typing import TYPE_CHECKING, Any

from aeron_async.driver.media.network import SystemNetwork

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aeron_async.driver.media.sockets import SocketSpec

__all__ = ["Lossy", "LossyNetwork", "pieces"]


def pieces(random: Random, rate: float) -> Iterator[int]:
    """Yield how many datagrams arrive before the next one is lost, without end."""
    while True:
        # The geometric distribution: one draw for each loss, not one for each datagram.
        yield int(math.log(1 - random.random()) / math.log(1 - rate)) if rate else 2**62


class Lossy(asyncio.DatagramProtocol):
    """Stands before an endpoint."""

    def __init__(self, inner: Any, gaps: Iterator[int]) -> None:
        self._inner = inner
        self._gaps = gaps
        self._left = next(gaps)
        self.connection_made = inner.connection_made  # type: ignore[method-assign] # passed on as it is
        self.connection_lost = inner.connection_lost  # type: ignore[method-assign] # as above
        self.error_received = inner.error_received  # type: ignore[method-assign] # as above
        self.pause_writing = inner.pause_writing  # type: ignore[method-assign] # as above
        self.resume_writing = inner.resume_writing  # type: ignore[method-assign] # as above
        for name in ("datagrams_dropped", "media_timestamp_received", "reading"):
            if hasattr(inner, name):
                setattr(self, name, getattr(inner, name))

    def datagram_received(self, data: Any, addr: Any) -> None:
        """Take one that came alone."""
        if self._left:
            self._left -= 1
            self._inner.datagram_received(data, addr)
        else:
            self._left = next(self._gaps)

    def datagrams_received(self, data: memoryview, segment_length: int, addr: Any) -> None:
        """Take a batch; what is left of it on either side of a loss is a shorter batch."""
        start = 0
        while start < len(data):
            count = -(-(len(data) - start) // segment_length)
            arriving = min(count, self._left)
            end = min(len(data), start + arriving * segment_length)
            if end - start > segment_length:
                self._inner.datagrams_received(data[start:end], segment_length, addr)
            elif end > start:
                self._inner.datagram_received(data[start:end], addr)
            self._left -= arriving
            start = end
            if start < len(data):
                self._left = next(self._gaps)
                start += segment_length


class LossyNetwork(SystemNetwork):
    """A network whose every socket loses a share of what it receives.

    Args:
        rate: The share.
        seed: Decides which.
    """

    def __init__(self, rate: float, seed: int) -> None:
        super().__init__()
        self._rate = rate
        self._random = Random(seed)

    async def open(
        self, protocol_factory: Callable[[], asyncio.DatagramProtocol], spec: SocketSpec
    ) -> asyncio.DatagramTransport:
        """Open a socket that loses."""
        gaps = pieces(Random(self._random.random()), self._rate)
        return await super().open(lambda: Lossy(protocol_factory(), gaps), spec)
