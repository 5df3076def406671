"""Lag of streaming queries behind the recordings, in bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, final

import attrs
from pyspark.sql.streaming.listener import StreamingQueryListener

from aeron_async.errors import ConfigurationError
from aeron_async.logs import get_logger
from aeron_async.spark.offsets import Offsets

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

__all__ = ["LagListener", "QueryLag", "bytes_behind", "offsets_of"]

log: Final = get_logger(__name__)


@final
@attrs.frozen(kw_only=True)
class QueryLag:
    """Lag of a query after one of its batches.

    Attributes:
        query_id: Id of the query in its checkpoint.
        name: Name of the query; None if it has none.
        batch_id: Id of the batch.
        positions: Position read so far by recording id, in bytes; this query needs nothing before
            it. Recordings are left out that were read to their ends before this batch, and those
            of which nothing was read.
        bytes_behind: Unread bytes by recording id when the batch was decided.
    """

    query_id: str
    name: str | None
    batch_id: int
    positions: dict[int, int]
    bytes_behind: dict[int, int]

    @property
    def total(self) -> int:
        """Return the unread bytes of all recordings."""
        return sum(self.bytes_behind.values())


@final
class LagListener(StreamingQueryListener):
    """Logs the lag of each streaming query over recordings, and passes it to a callback.

    Args:
        tell: Called after each batch, on a thread of Spark's; None for no callback.
    """

    def __init__(self, tell: Callable[[QueryLag], None] | None = None) -> None:
        self._tell = tell

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Log the lag of a query that reads recordings."""
        progress = event.progress
        for source in progress.sources:
            end, latest = offsets_of(source.endOffset), offsets_of(source.latestOffset)
            if end is None or latest is None:
                continue
            lag = QueryLag(
                query_id=str(progress.id),
                name=progress.name,
                batch_id=progress.batchId,
                positions={key: each.position for key, each in end.recordings.items()},
                bytes_behind=bytes_behind(end, latest),
            )
            log.info("stream_lag_measured", **attrs.asdict(lag), total=lag.total)
            if self._tell is not None:
                self._tell(lag)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: an idle query has no new lag."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing."""


def bytes_behind(end: Offsets, latest: Offsets) -> dict[int, int]:
    """Return the unread bytes of each recording.

    Args:
        end: Offsets read so far.
        latest: Offsets that can be read.
    """
    found = {}
    for recording_id, each in latest.recordings.items():
        before = end.recordings.get(recording_id)
        position = each.first if before is None else before.position
        found[recording_id] = 0 if position is None else max(each.position - position, 0)
    return found


def offsets_of(reported: str | Mapping[str, Any] | None) -> Offsets | None:
    """Return an offset from a progress report, text or JSON; None if it is of another source."""
    try:
        given = json.loads(reported or "null") if isinstance(reported, str) else reported
        return Offsets.from_json(given) if isinstance(given, Mapping) else None
    except (ValueError, ConfigurationError):
        return None
