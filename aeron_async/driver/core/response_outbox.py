"""The way from a response publication to the one receiver that asked for it.

Until that has answered a SETUP it is sent at most three times the bytes it sent itself: whose
address it is, only the answer proves.

Source: Aeron `aeron_network_publication_trigger_send_setup_frame`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.driver.core.handshake_budget import HandshakeBudget

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.counters import Counter
    from aeron_async.driver.core.outbox import Address
    from aeron_async.kernel.placing import Cuts
    from aeron_async.protocol.header import Buffer

__all__ = ["ResponseOutbox"]


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
