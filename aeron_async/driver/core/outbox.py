"""Where a core puts the datagrams it wants sent: the one thing it knows of a network.

An endpoint of `driver/media` stands behind it; in tests, a list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from aeron_async.kernel.placing import Cuts
    from aeron_async.protocol.header import Buffer

__all__ = ["Address", "DataOutbox", "ReceiveDestination"]

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
