"""What a command's summary says of pauses of its event loop, during which nothing moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from aeron_async.cli.figures import format_ns, plural
from aeron_async.cli.runner import hush_pauses
from aeron_async.driver.core.system_counters import DRIVER_COUNTER_TYPE_ID, DriverCounterId

if TYPE_CHECKING:
    from aeron_async.counters import CountersManager

__all__ = ["Pauses"]


@attrs.frozen
class Pauses:
    """The pauses of one driver's loop.

    Attributes:
        count: How many there were.
        longest_ns: How long the longest was.
    """

    count: int = 0
    longest_ns: int = 0

    @classmethod
    def of(cls, counters: CountersManager | None) -> Pauses:
        """Return those so far. They are in the summary: later ones are not logged any more."""
        hush_pauses()
        if counters is None:
            return cls()
        found = [
            counters.find(type_id=DRIVER_COUNTER_TYPE_ID, registration_id=each)
            for each in (DriverCounterId.LOOP_LAG_COUNT, DriverCounterId.LOOP_LAG_MAX_NS)
        ]
        return cls(*(0 if record is None else record.value for record in found))

    def __str__(self) -> str:
        """Return what is added to a summary; nothing where there were none."""
        if not self.count:
            return ""
        times = plural(self.count, "time")
        return f"; the event loop stood still {times}, for {format_ns(self.longest_ns)} at most"

    def to_json(self) -> dict[str, object]:
        """Return them as JSON has them."""
        return {"loop_pauses": self.count, "longest_loop_pause_ns": self.longest_ns}
