"""What one image has lost and refused, by cause, and when its bytes arrived.

`Losses` counts the causes that `aeron_async.stats` explains. A gap belongs to the system if its
socket has dropped datagrams since the gap before: then all gaps below the highest position of that
moment do.

`Arrivals` knows how long what a reader has not consumed has been there. It keeps a few marks of
position and time, 64 at most: one for each 64th of a term, and one a tenth of a second. When there
is no room, it drops every second mark; so the oldest time is exact to a tenth of a second, or to a
32nd of its age.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from aeron_async.driver.core.rare_changes import RARE_CHANGES
from aeron_async.stats import LOSS_CAUSES

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "FORGED",
    "GAP",
    "LEFT_BEHIND",
    "MALFORMED",
    "OVER_RUN",
    "REFUSED",
    "SOCKET_DROP",
    "UNFILLED",
    "Arrivals",
    "Losses",
]

GAP, SOCKET_DROP, OVER_RUN, UNFILLED, LEFT_BEHIND, FORGED, MALFORMED, REFUSED = range(
    len(LOSS_CAUSES)
)
MAX_MARKS: Final = 64
MARKS_PER_TERM: Final = 64
MARK_NS: Final = 100_000_000
"""A stream that moves is marked as often, however little arrives."""


def nothing_dropped() -> int:
    """Return that nothing was dropped, where nobody counts it."""
    return 0


class Losses:
    """The losses of one image.

    Args:
        record: Writes the length of each gap into the loss report; None without one.
        drop_count: Returns how much the system has dropped at the socket of the image.
    """

    __slots__ = ("_bytes", "_counts", "_drop_count", "_dropped_until", "_record", "_seen_drops")

    def __init__(
        self,
        record: Callable[[int], None] | None = None,
        drop_count: Callable[[], int] = nothing_dropped,
    ) -> None:
        self._record = record
        self._drop_count = drop_count
        self._seen_drops = drop_count()
        self._dropped_until = 0
        # Nearly every image loses nothing.
        self._counts: list[int] = []
        self._bytes: list[int] = []

    def on_gap(self, start: int, end: int, hwm_position: int) -> None:
        """Count a gap for which a NAK is sent, and record it.

        Args:
            start: Where it begins.
            end: Where it ends.
            hwm_position: Up to where anything has arrived.
        """
        drops = self._drop_count()
        if drops != self._seen_drops:
            self._seen_drops, self._dropped_until = drops, hwm_position
        self.note(SOCKET_DROP if start < self._dropped_until else GAP, end - start)
        self.record(end - start)

    def record(self, length: int) -> None:
        """Write the length of a gap into the loss report."""
        if self._record is not None:
            self._record(length)

    def note(self, cause: int, length: int) -> None:
        """Count a loss of `length` bytes, by its place in `LOSS_CAUSES`."""
        if not self._counts:
            self._counts, self._bytes = [0] * len(LOSS_CAUSES), [0] * len(LOSS_CAUSES)
            RARE_CHANGES.note()
        self._counts[cause] += 1
        self._bytes[cause] += length

    def by_cause(self) -> tuple[tuple[str, int, int], ...]:
        """Return each cause that has happened, how often, and how many bytes that were."""
        if not self._counts:
            return ()
        return tuple(
            (cause, count, length)
            for cause, count, length in zip(LOSS_CAUSES, self._counts, self._bytes, strict=False)
            if count
        )


class Arrivals:
    """When the bytes of one image arrived, in few marks; lengths in bytes."""

    __slots__ = ("_positions", "_step", "_times_ns")

    def __init__(self, term_length: int) -> None:
        self._step = term_length // MARKS_PER_TERM
        self._positions = array("q")
        self._times_ns = array("q")

    def mark(self, before: int, position: int, now_ns: int) -> tuple[int, int]:
        """Record that all before `position` has arrived; return where or when to mark next.

        What has arrived up to `before` has come until now without a mark: less than a tenth of a
        second after the last one, however long that is ago.
        """
        positions, times_ns = self._positions, self._times_ns
        if len(positions) >= MAX_MARKS - 1:
            # The latest of each pair stays: a byte then seems to have come later, never earlier.
            del positions[::2], times_ns[::2]
        if positions and before > positions[-1] and now_ns > times_ns[-1] + MARK_NS:
            positions.append(before)
            times_ns.append(times_ns[-1] + MARK_NS)
        positions.append(position)
        times_ns.append(now_ns)
        return position + self._step, now_ns + MARK_NS

    def arrived_ns(self, position: int) -> int:
        """Return by when the byte at `position`, which has arrived, had come."""
        index = bisect_right(self._positions, position)
        if index < len(self._positions):
            return self._times_ns[index]
        # It came after the last mark, but less than a tenth of a second after.
        return self._times_ns[-1] + MARK_NS if self._times_ns else 0
