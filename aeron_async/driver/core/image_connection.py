"""One source of an image: where it is, when it was heard, and whether it has ended.

A unicast or multicast image has one; a subscription with several destinations has one for each.

Source: Aeron `ImageConnection`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.driver.core.context import DESTINATION_TIMEOUT_NS

if TYPE_CHECKING:
    from aeron_async.driver.core.outbox import Address

__all__ = ["ImageConnection"]


class ImageConnection:
    """What an image knows of one of its sources.

    Args:
        control_address: Where status messages and NAKs for it go.
        now_ns: The time now.
    """

    __slots__ = ("control_address", "eos_position", "is_end_of_stream", "last_activity_ns")

    def __init__(self, control_address: Address, *, now_ns: int) -> None:
        self.control_address = control_address
        self.last_activity_ns = now_ns
        self.is_end_of_stream = False
        self.eos_position = 0

    def forgive(self, late_ns: int, now_ns: int) -> None:
        """Let the source not count as silent for the time in which this driver was not running."""
        self.last_activity_ns = min(self.last_activity_ns + late_ns, now_ns)

    def is_alive(self, now_ns: int) -> bool:
        """Return whether the source was heard recently enough to be answered."""
        return now_ns < self.last_activity_ns + DESTINATION_TIMEOUT_NS
