"""Outboxes: how a core sends datagrams, and how few before a receiver has answered.

A core sends through `DataOutbox` and `ReceiveDestination`. An endpoint of `driver/media` stands
behind each of them; in tests, a list.

Invariant: `HandshakeBudget` grants a receiver that has not answered a SETUP yet at most three
times the bytes that came from its address, as a QUIC server does before a path is validated: a
stranger may have named the address of another host, and only the answer proves whose it is.
`ResponseOutbox` sends to the receiver that asked last, within such a budget, until one answers.

Differs: Aeron sends a SETUP every 100 ms for as long as the publication lives. A publication with
a budget of its own lets the pauses grow, so that the budget lasts for seconds.

Source: RFC 9000, section 8.1; Aeron `aeron_network_publication_trigger_send_setup_frame`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.counters import Counter
    from aeron_async.logbuffer.placing import Cuts
    from aeron_async.protocol.header import Buffer

__all__ = [
    "SENT_PER_BYTE",
    "Address",
    "DataOutbox",
    "HandshakeBudget",
    "ReceiveDestination",
    "ResponseOutbox",
]

Address = tuple[str, int]
"""A numeric host and a port; IPv6 without scope or flow."""


class DataOutbox(Protocol):
    """The way from a publication to its receivers."""

    def send(self, datagram: Buffer) -> bool:
        """Send to every receiver now, without copying first; False when it could not leave."""
        ...

    def send_runs(self, data: memoryview, cuts: Cuts) -> int:
        """Send runs of datagrams to every receiver now; return how many bytes have left.

        Args:
            data: The datagrams, one behind the other; not kept.
            cuts: Of each run where it ends in the data, and the length of its datagrams in bytes;
                only its last may be shorter.

        Returns:
            The length of whole datagrams, from the first on; less than the data where one could
            not leave, and then none after it has left.
        """
        ...


class ReceiveDestination(Protocol):
    """One way into a receive endpoint, and the way back: most endpoints have just one.

    Source: Aeron `ReceiveDestinationTransport`.
    """

    @property
    def is_multicast(self) -> bool:
        """Return whether data arrives by way of a group."""
        ...

    @property
    def control_address(self) -> Address | None:
        """Return where status messages and NAKs go; None where to whoever sent the data."""
        ...

    def send_to(self, datagram: Buffer, address: Address) -> bool:
        """Send to `address` now; False when it could not leave."""
        ...


# Before a receiver has answered.

SENT_PER_BYTE: Final = 3
"""Bytes that may be sent for each byte that was received."""


class HandshakeBudget:
    """The bytes that are left to one receiver.

    Args:
        length: To begin with, in bytes.
    """

    __slots__ = ("length",)

    def __init__(self, length: int = 0) -> None:
        self.length: int = length

    def on_received(self, length: int) -> None:
        """Allow three times the bytes that the receiver sent."""
        self.length += SENT_PER_BYTE * length

    def try_take(self, length: int) -> bool:
        """Return whether so many bytes may leave now, and take note that they do."""
        if length > self.length:
            return False
        self.length -= length
        return True


class ResponseOutbox:
    """Sends to whoever asked for a SETUP last; until somebody has, nothing leaves.

    Args:
        send_to: Sends a datagram to an address, and says whether it could leave.
        send_runs_to: Sends runs of datagrams, and says how many bytes left.
        withheld: Counts datagrams that may not leave before the receiver answers.

    Attributes:
        address: Where the receiver is.
    """

    def __init__(
        self,
        send_to: Callable[[Buffer, Address], bool],
        send_runs_to: Callable[[memoryview, Cuts, Address], int],
        withheld: Counter,
    ) -> None:
        self._send_to = send_to
        self._send_runs_to = send_runs_to
        self._withheld = withheld
        self._budget: HandshakeBudget | None = None
        self.address: Address | None = None

    def on_asked(self, address: Address, length: int) -> None:
        """Send to whoever asks for a SETUP, as long as nobody has answered one.

        Args:
            address: Where the request came from.
            length: Of the request, in bytes.
        """
        if self._budget is None or address != self.address:
            self.address, self._budget = address, HandshakeBudget()
        self._budget.on_received(length)

    def on_answered(self, address: Address) -> None:
        """Send to the first receiver that answers, without a bound."""
        if self._budget is not None:
            self.address, self._budget = address, None

    def send(self, datagram: Buffer) -> bool:
        """Send to the receiver now; False when the datagram could not leave."""
        if self.address is None:
            return False
        if self._budget is not None and not self._budget.try_take(len(datagram)):
            # Withheld on purpose: it would be no use to try again at once.
            self._withheld.increment()
            return True
        return self._send_to(datagram, self.address)

    def send_runs(self, data: memoryview, cuts: Cuts) -> int:
        """Send runs of datagrams to the receiver now; return how many bytes have left."""
        if self.address is None or self._budget is not None:
            return 0
        return self._send_runs_to(data, cuts, self.address)
