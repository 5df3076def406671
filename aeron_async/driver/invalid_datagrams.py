"""A line in the log for a datagram that cannot be meant, within the budget of peers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.driver.core.udp_channel import format_address
from aeron_async.logs import get_logger
from aeron_async.protocol.datagram import classify

if TYPE_CHECKING:
    from aeron_async.driver.core.outbox import Address
    from aeron_async.logs import LogBudget

__all__ = ["InvalidDatagramLog"]

SHOWN_LENGTH: Final = 16

log = get_logger(__name__)


class InvalidDatagramLog:
    """Logs invalid datagrams, which have been counted already.

    Args:
        budget: Of the driver; it allows each source one line a second.
    """

    def __init__(self, budget: LogBudget) -> None:
        self._budget = budget

    def on_invalid_datagram(self, datagram: memoryview, source: Address, now_ns: int) -> None:
        """Log where it came from, how long it is, and how it begins."""
        if not self._budget.allows("datagram_invalid", source, now_ns):
            return
        kind = classify(datagram)
        log.warning(
            "datagram_invalid",
            source=format_address(source),
            length=len(datagram),
            first_bytes=bytes(datagram[:SHOWN_LENGTH]).hex(" "),
            reason=(
                "no frame of Aeron"
                if kind is None
                else f"a {kind.name} frame whose version, lengths or values cannot be"
            ),
        )
