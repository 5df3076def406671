"""Admission: how much of the available data the next micro-batch reads.

A limit applies when the end of a batch is chosen and nowhere else, so that a batch is what lies
between its start and its end, even if the limits have changed when it is read again.

Recordings are served one after the other until the limit is reached. What is read of each ends
where a message ends. If the limit spans a term start, the last one ends there. So a batch with a
limit looks at the files of the recordings that it reads to their ends, and of one more, whichever
number of recordings waits. A batch reads at least one message; it may exceed the limit only by the
first.

The oldest recording is the first, except that an active one that got less than it had waits behind
the others the next time: otherwise one that grows faster than the limit would starve them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Boundaries", "Limit", "TriggerDelay", "UnreadRange", "admit"]


@final
@attrs.frozen
class UnreadRange:
    """The unread part of a recording.

    Attributes:
        start: Position read so far, in bytes.
        end: Up to where the recording goes, in bytes; not before the start. The last message may
            not be whole.
        term_length: Term length of the stream, in bytes.
    """

    start: int
    end: int
    term_length: int

    @property
    def length(self) -> int:
        """Return the length of the unread part, in bytes."""
        return self.end - self.start


@final
@attrs.frozen
class Limit:
    """Limit of a batch; None for no limit.

    Attributes:
        max_bytes: With headers, as on the disk.
        max_rows: Rows; at most one of both limits is given.
    """

    max_bytes: int | None = None
    max_rows: int | None = None


class Boundaries(Protocol):
    """Finds the ends of messages by reading the files."""

    def readable_end(self, recording_id: int, start: int, end: int) -> int:
        """Return the end of the last message that may be read; `start` if there is none."""
        ...

    def last_end(self, recording_id: int, start: int, limit: int) -> int:
        """Return the end of the last message between a start and a limit; the start if none."""
        ...

    def first_end(self, recording_id: int, start: int, end: int) -> int:
        """Return the end of the first message behind a start; `end` if none ends before it."""
        ...

    def end_of_rows(self, recording_id: int, start: int, end: int, rows: int) -> tuple[int, int]:
        """Return the end of so many rows behind a start, or `end`, and the rows up to there."""
        ...


def admit(
    waiting: Mapping[int, UnreadRange], limit: Limit, boundaries: Boundaries
) -> dict[int, int]:
    """Return up to where the next batch reads those recordings that it reads, in bytes.

    Args:
        waiting: What is to be read, by recording, in the order in which they are served.
        limit: Limit of the batch.
        boundaries: Finds the ends of messages.
    """
    found: dict[int, int] = {}
    room, rows = limit.max_bytes, limit.max_rows
    for recording_id, each in waiting.items():
        if not each.length:
            continue
        is_cut = room is not None and each.length > room
        if room is not None and is_cut:
            end = end_within(recording_id, each, room, boundaries, is_first=not found)
        else:
            end = boundaries.readable_end(recording_id, each.start, each.end)
        if rows is not None and end > each.start:
            end, count = boundaries.end_of_rows(recording_id, each.start, end, rows)
            rows -= count
        if end > each.start:
            found[recording_id] = end
            room = None if room is None else max(room - (end - each.start), 0)
        # Of the first one, a part of a message may be all there is.
        if (is_cut and found) or room == 0 or rows == 0:
            break
    return found


def end_within(
    recording_id: int, each: UnreadRange, room: int, boundaries: Boundaries, *, is_first: bool
) -> int:
    """Return the end of the last message that fits; of the first message if a batch begins."""
    limit_position = each.start + room
    term_start = limit_position & -each.term_length
    if term_start > each.start:
        return term_start
    end = boundaries.last_end(recording_id, each.start, limit_position)
    if end > each.start or not is_first:
        return end
    last = boundaries.readable_end(recording_id, each.start, each.end)
    return boundaries.first_end(recording_id, each.start, last) if last > each.start else each.start


@final
class TriggerDelay:
    """Waits until a batch has a minimum size, up to a maximum delay.

    Args:
        min_bytes: Minimum size; None for any.
        max_delay_ms: How long available data may wait.
    """

    def __init__(self, min_bytes: int | None, max_delay_ms: int) -> None:
        self._min_bytes = min_bytes
        self._max_delay_ms = max_delay_ms
        self._since_ms: int | None = None

    def may_read(self, waiting_bytes: int, now_ms: int) -> bool:
        """Return whether to read what is waiting; if so, the delay ends.

        Args:
            waiting_bytes: Unread bytes of all recordings.
            now_ms: Monotonic time in milliseconds.
        """
        if self._min_bytes is None:
            return True
        if not waiting_bytes:
            self._since_ms = None
            return True
        if self._since_ms is None:
            self._since_ms = now_ms
        is_late = now_ms - self._since_ms >= self._max_delay_ms
        if waiting_bytes < self._min_bytes and not is_late:
            return False
        self._since_ms = None
        return True
