"""How far the publishers of an IPC stream may append.

Invariant: the limit is a window beyond the slowest subscriber, is raised in steps of an eighth of
that window only, and whatever it lets be written has been cleaned. Nothing is kept for resending.

Source: Aeron `IpcPublication.updatePublisherPositionAndLimit`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.logbuffer.cleaner import clean_to

if TYPE_CHECKING:
    from aeron_async.counters import Counter
    from aeron_async.logbuffer.term_log import LogBuffers

__all__ = ["IpcWindow"]

TRIP_GAIN_SHIFT: Final = 3
"""A limit that is less than an eighth of the window further is not worth telling."""


class IpcWindow:
    """The publisher limit of one IPC publication.

    Args:
        log: The terms that are cleaned behind the subscribers.
        counter: Shows the limit to clients.
        window_length: How far the limit runs ahead of the slowest subscriber, in bytes.
        position: Where the stream starts, in bytes.

    Attributes:
        limit: Position below which an offer may begin, in bytes.
    """

    def __init__(
        self, log: LogBuffers, counter: Counter, *, window_length: int, position: int
    ) -> None:
        self._log = log
        self._counter = counter
        self._window_length = window_length
        self._trip_gain = window_length >> TRIP_GAIN_SHIFT
        self._clean_position = position
        self._trip_limit = self.limit = position
        counter.set(position)

    @property
    def consumption_trigger(self) -> int:
        """Return the position beyond which the slowest subscriber lets the limit rise."""
        return self._trip_limit - self._window_length

    def advance(self, min_position: int) -> bool:
        """Raise the limit if the slowest subscriber allows a whole step; tell whether it rose."""
        limit = min_position + self._window_length
        if limit <= self._trip_limit:
            return False
        self._clean(min_position)
        self._trip_limit = limit + self._trip_gain
        self._set(limit)
        return True

    def retract(self, consumer_position: int) -> None:
        """Pull the limit back to what has been consumed, because nobody is there."""
        if self.limit > consumer_position:
            self._trip_limit = consumer_position
            self._set(consumer_position)
            self._clean(consumer_position)

    def close(self, producer_position: int) -> None:
        """Let nothing be appended after `producer_position`."""
        self._set(producer_position)

    def _clean(self, position: int) -> None:
        # One step a call, never past the end of a term: a stall here would stall the whole loop.
        self._clean_position = clean_to(
            self._log, clean_position=self._clean_position, position=position
        )

    def _set(self, limit: int) -> None:
        self.limit = limit
        self._counter.set(limit)
