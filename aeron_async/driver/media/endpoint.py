"""What the endpoints of both directions share: a channel, its counters, and what befalls sockets.

Source: Aeron `SendChannelEndpoint`, `ReceiveChannelEndpoint`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from aeron_async.driver.core.stream_counters import ChannelStatus
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aeron_async.counters import Counter
    from aeron_async.driver.core.system_counters import SystemCounters
    from aeron_async.driver.core.udp_channel import UdpChannel
    from aeron_async.driver.media.channel_socket import ChannelSocket

__all__ = ["ChannelEndpoint"]

log = get_logger(__name__)


class ChannelEndpoint(ABC):
    """One channel of a driver, with the sockets it takes.

    Args:
        channel: What it is bound and connected to.
        system_counters: The driver's counters.

    Attributes:
        registration_id: Of its counters.
        status: Shows whether it works; there once it is open.
        counters: All that go with it.
        socket_sndbuf_length: Asked for, in bytes; 0 is the system's default.
        socket_rcvbuf_length: Likewise.
    """

    status: Counter

    def __init__(self, channel: UdpChannel, system_counters: SystemCounters) -> None:
        self.channel = channel
        self.registration_id = 0
        self.counters: list[Counter] = []
        self.socket_sndbuf_length = 0
        self.socket_rcvbuf_length = 0
        self._errors = system_counters[SystemCounterId.ERRORS]
        self._socket_drops = system_counters[DriverCounterId.SOCKET_DROPS]

    @property
    @abstractmethod
    def sockets(self) -> Sequence[ChannelSocket]:
        """Return the sockets there are now, that of the data first."""

    @property
    def local_address(self) -> str:
        """Return what is bound, as `host:port`; empty without a socket."""
        sockets = self.sockets
        return sockets[0].local_address if sockets else ""

    @property
    def granted_rcvbuf_length(self) -> int:
        """Return how much the kernel buffers for this endpoint, in bytes; 0 when it is unknown."""
        return min((each.granted_rcvbuf_length for each in self.sockets), default=0)

    @property
    def granted_sndbuf_length(self) -> int:
        """Return how much the kernel queues for this endpoint, in bytes; 0 when it is unknown."""
        sockets = self.sockets
        return sockets[0].granted_sndbuf_length if sockets else 0

    @abstractmethod
    def on_socket_writable(self) -> None:
        """Sending is possible again."""

    @abstractmethod
    def on_socket_error(self) -> None:
        """A socket told of an error that is not the answer to a send."""

    def on_datagrams_dropped(self, count: int) -> None:
        """Count what the system had no room for."""
        self._socket_drops.increment(count)

    def on_socket_lost(self, error: Exception) -> None:
        """Tell that a socket failed."""
        self._errors.increment()
        # Between two sockets that are being opened, it has no status yet; closed, no counters.
        if self.registration_id and self.counters:
            self.status.set(ChannelStatus.ERRORED)
        log.error("endpoint_lost", channel=str(self.channel.uri), exc_info=error)

    def close(self) -> None:
        """Close the sockets and free the counters; more than once is once."""
        for each in self.sockets:
            each.close()
        for counter in self.counters:
            counter.close()
        self.counters.clear()
