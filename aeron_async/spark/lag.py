"""How far streaming queries are behind what is recorded, in bytes of each recording."""

from __future__ import annotations

import json
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

__all__ = ["LagListener", "QueryLag", "bytes_behind"]

log: Final = get_logger(__name__)


@final
@attrs.frozen(kw_only=True)
class QueryLag:
    """How far a query is behind after one of its batches.

    Attributes:
        query_id: Of the query, as its checkpoint has it.
        name: Of the query; None if it has none.
        batch_id: Of the batch.
        positions: Up to where each recording has been read, by its id, in bytes: what lies before
            is done with, as far as this query goes.
        bytes_behind: What each had more when the batch was decided, in bytes.
    """

    query_id: str
    name: str | None
    batch_id: int
    positions: dict[int, int]
    bytes_behind: dict[int, int]

    @property
    def total(self) -> int:
        """Return what all recordings had more, in bytes."""
        return sum(self.bytes_behind.values())


@final
class LagListener(StreamingQueryListener):
    """Logs how far each streaming query over recordings is behind, and tells whoever wants to know.

    Args:
        tell: Called after each batch, on a thread of Spark's; None for nobody.
    """

    def __init__(self, tell: Callable[[QueryLag], None] | None = None) -> None:
        self._tell = tell

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Have nothing to say yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Say how far a query is behind, if it reads recordings."""
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
        """Have nothing to say: there was nothing more to read."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Have nothing more to say."""


def bytes_behind(end: Offsets, latest: Offsets) -> dict[int, int]:
    """Return what each recording has beyond an offset, in bytes.

    Args:
        end: Up to where they were read.
        latest: Up to where they can be.
    """
    found = {}
    for recording_id, each in latest.recordings.items():
        before = end.recordings.get(recording_id)
        position = each.first if before is None else before.position
        found[recording_id] = max(each.position - position, 0)
    return found


def offsets_of(text: str | None) -> Offsets | None:
    """Return what an offset says as Spark reports it; None if another source said it."""
    try:
        given: Any = json.loads(text or "null")
        return Offsets.from_json(given) if isinstance(given, dict) else None
    except (ValueError, ConfigurationError):
        return None
