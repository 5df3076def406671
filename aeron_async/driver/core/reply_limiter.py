"""So many answers a second, and so many of them to one asker: who answers must not be a mirror.

The address a question came from may be made up; whoever lives there gets the answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Hashable

    from aeron_async.driver.core.context import DriverContext

__all__ = ["ReplyLimiter"]

INTERVAL_NS: Final = 1_000_000_000


class ReplyLimiter:
    """Counts the answers of one second; it remembers no more askers than it answers.

    Args:
        limit: Answers in a second.
        limit_per_asker: Answers in a second to one of those who ask.
        limit_per_source: Answers in a second to one address, where many ask from there; None sets
            no other limit to it than to all.
    """

    __slots__ = (
        "_counts",
        "_limit",
        "_limit_per_asker",
        "_limit_per_source",
        "_sent_count",
        "_source_counts",
        "_start_ns",
    )

    def __init__(
        self, *, limit: int, limit_per_asker: int, limit_per_source: int | None = None
    ) -> None:
        self._limit = limit
        self._limit_per_asker = limit_per_asker
        self._limit_per_source = limit if limit_per_source is None else limit_per_source
        self._source_counts: dict[Hashable, int] = {}
        self._start_ns = -INTERVAL_NS
        self._sent_count = 0
        self._counts: dict[Hashable, int] = {}

    @classmethod
    def of(cls, context: DriverContext) -> Self:
        """Return one for the round-trip measurements of one image."""
        return cls(
            limit=context.max_rtt_replies_per_second,
            limit_per_asker=context.max_rtt_replies_per_source,
        )

    def try_take(self, asker: Hashable, now_ns: int, *, source: Hashable = None) -> bool:
        """Return whether a question may be answered now, and take note that it is.

        Args:
            asker: Who asks.
            now_ns: The time now.
            source: The address that it asks from, where others may ask from there, too.
        """
        if now_ns >= self._start_ns + INTERVAL_NS:
            self._start_ns = now_ns
            self._sent_count = 0
            self._counts.clear()
            self._source_counts.clear()
        if self._sent_count >= self._limit:
            return False
        count = self._counts.get(asker, 0)
        if count >= self._limit_per_asker:
            return False
        source_count = self._source_counts.get(source, 0)
        if source is not None and source_count >= self._limit_per_source:
            return False
        self._counts[asker] = count + 1
        if source is not None:
            self._source_counts[source] = source_count + 1
        self._sent_count += 1
        return True
