"""The machine's own network, but for datagrams that are lost on the way in, by a rate and a seed.

What is left of a segment batch stays one, as when the system joins what has arrived: losing is not
to cost what batching saves.
"""

from __future__ import annotations

import asyncio
import math
from array import array
from random import Random
from typing import TYPE_CHECKING, Any, Final

from aeron_async.driver.media.network import SystemNetwork

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aeron_async.driver.media.sockets import SocketSpec
    from aeron_async.logbuffer.placing import SegmentTable

__all__ = ["Lossy", "LossyNetwork", "pieces"]

ONE_BATCH: Final = 2
"""Length of the segment table of one batch."""


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
        if hasattr(inner, "batches_received"):
            self.batches_received = self._take

    def datagram_received(self, data: Any, addr: Any) -> None:
        """Take one that came alone."""
        if self._left:
            self._left -= 1
            self._inner.datagram_received(data, addr)
        else:
            self._left = next(self._gaps)

    def datagrams_received(self, data: memoryview, segment_length: int, addr: Any) -> None:
        """Take a batch; what is left of it is a shorter batch."""
        self._take(data, array("i", (len(data), segment_length)), addr)

    def _take(self, data: memoryview, segments: SegmentTable, addr: Any) -> None:
        """Take batches: what is left of them goes on together, behind each other.

        The whole call is one to the endpoint, as without a loss, and each byte moves once at most:
        otherwise what this wrapper costs would count as what losses cost.
        """
        table = array("i")
        # From `whole` on nothing was lost; it will lie at `kept`, behind what was moved already.
        start = whole = kept = known = 0
        for end, length in zip(segments[::2], segments[1::2], strict=True):
            place = start
            while (lost := place + self._left * length) < end:
                self._left = next(self._gaps)
                if whole > kept:
                    data[kept : kept + lost - whole] = data[whole:lost]
                kept += lost - whole
                place = whole = min(lost + length, end)
            self._left -= -(-(end - place) // length)
            left_end = kept + end - whole
            if left_end > known:
                table.extend((left_end, length))
                known = left_end
            start = end
        if whole > kept:
            data[kept : kept + start - whole] = data[whole:start]
        self._pass(data[:known], table, addr)

    def _pass(self, data: memoryview, segments: array[int], addr: Any) -> None:
        if not data:
            return
        if len(segments) == ONE_BATCH and len(data) <= segments[1]:
            self._inner.datagram_received(data, addr)
        elif len(segments) == ONE_BATCH:
            self._inner.datagrams_received(data, segments[1], addr)
        else:
            self._inner.batches_received(data, segments, addr)


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
