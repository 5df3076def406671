"""The way from a response publication to the one receiver that asked for it.

Source: Aeron `aeron_network_publication_trigger_send_setup_frame`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.driver.core.outbox import Address
    from aeron_async.kernel.placing import Cuts
    from aeron_async.protocol.header import Buffer

__all__ = ["ResponseOutbox"]


class ResponseOutbox:
    """Sends to whoever asked for a SETUP last; until somebody has, nothing leaves.

    Args:
        send_to: Sends a datagram to an address, and says whether it could leave.
        send_runs_to: Sends runs of datagrams, and says how many bytes left.

    Attributes:
        address: Where the receiver is.
    """

    def __init__(
        self,
        send_to: Callable[[Buffer, Address], bool],
        send_runs_to: Callable[[memoryview, Cuts, Address], int],
    ) -> None:
        self._send_to = send_to
        self._send_runs_to = send_runs_to
        self.address: Address | None = None

    def send(self, datagram: Buffer) -> bool:
        """Send to the receiver now; False when the datagram could not leave."""
        return self.address is not None and self._send_to(datagram, self.address)

    def send_runs(self, data: memoryview, cuts: Cuts) -> int:
        """Send runs of datagrams to the receiver now; return how many bytes have left."""
        if self.address is None:
            return 0
        return self._send_runs_to(data, cuts, self.address)
