"""The receive buffer of a simulated socket, which gathers datagrams to runs as Linux does.

Invariant: datagrams leave in the order they came, each as it came, and each once. A run is of one
length, source and instant; only its last datagram may be shorter.

A datagram that is alone is given as a run of one half of the time, which Linux never does: so that
small worlds too come in by either way.

Source: Linux, `udp_gro_receive`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from random import Random

    from aeron_async.driver.media.sockets import SocketAddress

__all__ = ["RUN_COUNT_MAX", "RUN_LENGTH_MAX", "ReceiveBuffer"]

RUN_COUNT_MAX: Final = 64
"""Datagrams in a run: Linux's `UDP_GRO_CNT_MAX`."""
RUN_LENGTH_MAX: Final = 65_507
"""Bytes in a run: what a datagram over IPv4 can carry."""
ALONE_CHANCE: Final = 0.5


class ReceiveBuffer:
    """What has arrived at a socket and was not read yet.

    Args:
        length_max: Bytes it holds; what does not fit is dropped, one datagram at a time.
        is_gathering: Whether there are runs.
        coin: Decides whether a datagram that is alone is a run of one.
    """

    def __init__(self, length_max: int, *, is_gathering: bool, coin: Random) -> None:
        self._length_max = length_max
        self._is_gathering = is_gathering
        self._coin = coin
        self._arrived: deque[tuple[bytes, SocketAddress, int]] = deque()
        self._length = 0

    def __len__(self) -> int:
        """Return how many datagrams wait."""
        return len(self._arrived)

    def try_add(self, datagram: bytes, source: SocketAddress, now_ns: int) -> bool:
        """Take a datagram in, and return whether there was room."""
        if self._length + len(datagram) > self._length_max:
            return False
        self._arrived.append((datagram, source, now_ns))
        self._length += len(datagram)
        return True

    def take(self) -> tuple[list[bytes], SocketAddress, bool]:
        """Return the oldest datagram and those of its run, their source, and whether it is one.

        Raises:
            IndexError: Nothing waits.
        """
        arrived = self._arrived
        first, source, came_ns = arrived.popleft()
        taken, segment_length, length = [first], len(first), len(first)
        # An empty datagram has no place in a run.
        is_open = self._is_gathering and segment_length > 0
        while is_open and arrived and len(taken) < RUN_COUNT_MAX:
            datagram, other, other_ns = arrived[0]
            if (
                (other, other_ns) != (source, came_ns)
                or not 0 < len(datagram) <= segment_length
                or length + len(datagram) > RUN_LENGTH_MAX
            ):
                break
            arrived.popleft()
            taken.append(datagram)
            length += len(datagram)
            is_open = len(datagram) == segment_length
        self._length -= length
        is_run = len(taken) > 1
        if self._is_gathering and segment_length and not is_run:
            is_run = self._coin.random() < ALONE_CHANCE
        return taken, source, is_run

    @property
    def next_source(self) -> SocketAddress | None:
        """Return where the oldest datagram that waits came from."""
        return self._arrived[0][1] if self._arrived else None

    def clear(self) -> None:
        """Forget what waits."""
        self._arrived.clear()
        self._length = 0
