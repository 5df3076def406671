"""Decides how much of what is there the next micro-batch reads.

Limits are obeyed when an end is chosen and nowhere else, so that a batch is what lies between its
start and its end, whatever the limits are when it is read again.

A limit is shared among recordings in proportion to what each has waiting, as Kafka's connector
does; each gets one message at least, so no recording waits for ever, and the whole may be more
than the limit by as many messages as there are recordings. What is given ends where a message does:
where a term begins, if that is within the limit, for that needs no look at the disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Boundaries", "Limit", "Patience", "Waiting", "admit"]


@final
@attrs.frozen
class Waiting:
    """What of a recording may be read.

    Attributes:
        start: Up to where it was read, in bytes.
        end: Up to where it may be; not before the start.
        term_length: Of the stream, in bytes.
    """

    start: int
    end: int
    term_length: int

    @property
    def length(self) -> int:
        """Return how much it is, in bytes."""
        return self.end - self.start


@final
@attrs.frozen
class Limit:
    """Most of a batch; None for as much as there is.

    Attributes:
        max_bytes: With headers, as it lies on the disk.
        max_rows: Rows; at most one of both is given.
    """

    max_bytes: int | None = None
    max_rows: int | None = None


class Boundaries(Protocol):
    """Knows where messages end; looks at the disk."""

    def last_end(self, recording_id: int, start: int, limit: int) -> int:
        """Return where the last message ends from a start to a limit; the start if none does."""
        ...

    def first_end(self, recording_id: int, start: int, end: int) -> int:
        """Return where the first message behind a start ends; the end if none does before it."""
        ...

    def end_of_rows(self, recording_id: int, start: int, end: int, rows: int) -> int:
        """Return where so many rows behind a start end; the end if there are fewer."""
        ...


def admit(waiting: Mapping[int, Waiting], limit: Limit, boundaries: Boundaries) -> dict[int, int]:
    """Return up to where each recording is read next, in bytes.

    Args:
        waiting: By recording id.
        limit: Of the batch.
        boundaries: Where messages end.
    """
    total = sum(each.length for each in waiting.values())
    found = {}
    for recording_id, each in waiting.items():
        end = each.end
        if each.length and limit.max_bytes is not None and limit.max_bytes < total:
            share = limit.max_bytes * each.length // total
            end = end_within(recording_id, each, share, boundaries)
        elif each.length and limit.max_rows is not None:
            rows = max(limit.max_rows * each.length // total, 1)
            end = boundaries.end_of_rows(recording_id, each.start, each.end, rows)
        found[recording_id] = end
    return found


def end_within(recording_id: int, each: Waiting, share: int, boundaries: Boundaries) -> int:
    """Return where the last message ends that is within a share, or the first one does."""
    limit = each.start + share
    term_start = limit & -each.term_length
    if share >= each.term_length and term_start > each.start:
        return term_start
    end = boundaries.last_end(recording_id, each.start, limit)
    return end if end > each.start else boundaries.first_end(recording_id, each.start, each.end)


@final
class Patience:
    """Waits until a batch is worth its while, and no longer than is bearable.

    Args:
        min_bytes: Worth it; None for anything.
        max_delay_ms: How long what is there may wait.
    """

    def __init__(self, min_bytes: int | None, max_delay_ms: int) -> None:
        self._min_bytes = min_bytes
        self._max_delay_ms = max_delay_ms
        self._since_ms: int | None = None

    def is_over(self, waiting_bytes: int, now_ms: int) -> bool:
        """Return whether to read what is waiting.

        Args:
            waiting_bytes: Of all recordings.
            now_ms: Any time that only grows, in milliseconds.
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
