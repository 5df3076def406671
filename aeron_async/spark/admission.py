"""Admission: how much of the available data the next micro-batch reads.

A limit applies when the end of a batch is chosen and nowhere else, so that a batch is what lies
between its start and its end, even if the limits have changed when it is read again.

Recordings share a limit in proportion to what each has waiting, as in Kafka's connector. Each
recording gets at least one message, so that none starves; the batch may therefore exceed the limit
by one message for each recording. A share ends where a message ends. If the share spans a term
start, it ends there: no file need be read.
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
        end: Readable end, in bytes; not before the start.
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

    def last_end(self, recording_id: int, start: int, limit: int) -> int:
        """Return the end of the last message between a start and a limit; the start if none."""
        ...

    def first_end(self, recording_id: int, start: int, end: int) -> int:
        """Return the end of the first message behind a start; `end` if none ends before it."""
        ...

    def end_of_rows(self, recording_id: int, start: int, end: int, rows: int) -> int:
        """Return the end of that many rows behind a start; `end` if there are fewer."""
        ...


def admit(
    waiting: Mapping[int, UnreadRange], limit: Limit, boundaries: Boundaries
) -> dict[int, int]:
    """Return up to where the next batch reads each recording, in bytes."""
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


def end_within(recording_id: int, each: UnreadRange, share: int, boundaries: Boundaries) -> int:
    """Return the end of the last message within a share; of the first message if none fits."""
    limit_position = each.start + share
    # Round down to a term start.
    term_start = limit_position & -each.term_length
    if share >= each.term_length and term_start > each.start:
        return term_start
    end = boundaries.last_end(recording_id, each.start, limit_position)
    return end if end > each.start else boundaries.first_end(recording_id, each.start, each.end)


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
