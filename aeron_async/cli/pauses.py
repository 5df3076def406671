"""Pauses of the event loop, as a command's summary reports them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from aeron_async.cli.figures import format_ns, plural
from aeron_async.cli.runner import hush_pauses
from aeron_async.driver.core.system_counters import DRIVER_COUNTER_TYPE_ID, DriverCounterId

if TYPE_CHECKING:
    from aeron_async.client.aeron import Aeron
    from aeron_async.counters import CountersReader

__all__ = ["Pauses", "own_counters"]


@attrs.frozen
class Pauses:
    """Pauses of one driver's event loop.

    Attributes:
        count: Number of pauses; None if nobody has measured them.
        longest_ns: Duration of the longest pause; None as well.
    """

    count: int | None = 0
    longest_ns: int | None = 0

    @classmethod
    def of(cls, counters: CountersReader | None) -> Pauses:
        """Return the pauses so far, and stop logging later ones, because the summary follows."""
        hush_pauses()
        if counters is None:
            return cls(None, None)
        found = [
            counters.find(type_id=DRIVER_COUNTER_TYPE_ID, registration_id=each)
            for each in (DriverCounterId.LOOP_LAG_COUNT, DriverCounterId.LOOP_LAG_MAX_NS)
        ]
        return cls(*(0 if record is None else record.value for record in found))

    def __str__(self) -> str:
        """Return the text to add to a summary; empty if there were no pauses."""
        if not self.count or self.longest_ns is None:
            return ""
        times = plural(self.count, "time")
        return f"; the event loop stood still {times}, for {format_ns(self.longest_ns)} at most"

    def to_json(self) -> dict[str, object]:
        """Return the pauses as a JSON object."""
        return {"loop_pauses": self.count, "longest_loop_pause_ns": self.longest_ns}


def own_counters(aeron: Aeron, aeron_dir: str | None) -> CountersReader | None:
    """Return the counters of a driver in this process; another's are not of this event loop."""
    return aeron.counters if aeron_dir is None else None
