"""Up to where a replay that is published may go: as far as was recorded, and as was asked for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

from aeron_async.errors import ClosedError

if TYPE_CHECKING:
    from aeron_async.archive.recording_session import RecordingSession
    from aeron_async.counters import CountersReader

__all__ = ["CounterLimit", "ReplayLimit"]

ALLOCATED: Final = 1
LOOK_SECONDS: Final = 0.005
"""A counter tells nobody when it moves: it is looked at so often."""


@final
class CounterLimit:
    """A counter of anybody's whose value a replay does not pass; when it goes, the last one."""

    def __init__(self, counters: CountersReader, counter_id: int) -> None:
        self._counters = counters
        self._counter_id = counter_id
        self._registration_id = counters.record(counter_id).registration_id
        self._value = counters.value(counter_id)

    @property
    def is_over(self) -> bool:
        """Return whether the counter has gone, or is another by now."""
        counters, counter_id = self._counters, self._counter_id
        return (
            counters.state(counter_id) != ALLOCATED
            or counters.record(counter_id).registration_id != self._registration_id
        )

    def value(self) -> int:
        """Return the value."""
        if not self.is_over:
            self._value = self._counters.value(self._counter_id)
        return self._value


@final
class ReplayLimit:
    """The limit of one replay.

    Args:
        recorded: Up to where the recording has been written, in bytes.
        end: Where the replay ends, in bytes; None goes on as long as the recording does.
        session: That records it now; None if it has stopped.
        counter: Whose value is not to be passed; None for none.
    """

    def __init__(
        self,
        *,
        recorded: int,
        end: int | None,
        session: RecordingSession | None,
        counter: CounterLimit | None,
    ) -> None:
        self.end = end
        self._recorded = recorded
        self._session = session
        self._counter = counter

    async def following(self, position: int) -> tuple[int, int] | None:
        """Wait until there is more behind a position.

        Returns:
            Up to where has been recorded, and up to where may be replayed; None at the end.
        """
        while self.end is None or position < self.end:
            session, counter = self._session, self._counter
            is_over = session is None or session.is_over
            is_counter_over = counter is None or counter.is_over
            recorded = self._recorded if session is None else session.position
            limit = recorded if counter is None else min(recorded, counter.value())
            if limit > position:
                return recorded, limit if self.end is None else min(limit, self.end)
            if counter is not None and recorded > position:
                if is_counter_over:
                    return None
                await asyncio.sleep(LOOK_SECONDS)
            elif session is None or is_over:
                return None
            else:
                await session.progress.wait()
        return None


def counter_limit(counters: CountersReader, counter_id: int) -> CounterLimit:
    """Return a counter as a limit.

    Raises:
        ClosedError: There is none with that id.
    """
    if not 0 <= counter_id < counters.limit or counters.state(counter_id) != ALLOCATED:
        message = f"no counter has the id {counter_id}"
        raise ClosedError(message)
    return CounterLimit(counters, counter_id)
