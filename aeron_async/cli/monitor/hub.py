"""The middle of the monitor: it looks at drivers, and tells all pages what it has seen.

All sources are asked at each interval, at once. One that does not answer holds up the picture for
half an interval, and is asked again when it has answered or its time is over. A page gets one whole
state, then differences; one that was too slow for a difference gets the newest whole state instead.

Invariant: nothing is encoded without a page, and each state and difference once for all of them.
Pages, streams in a state, events and history are bounded.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final, Self, final

import attrs

from aeron_async.cli.monitor.history import History
from aeron_async.cli.monitor.topology import graph_of
from aeron_async.cli.monitor.views import (
    SourcePlace,
    difference,
    driver_detail,
    state_of,
    stream_detail,
    stream_id_of,
)
from aeron_async.cli.top import Looks
from aeron_async.cli.top_model import TopModel
from aeron_async.logs import get_logger
from aeron_async.tasks import TaskOwner

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from aeron_async.cli.top_model import StatsSource
    from aeron_async.cli.top_scene import TopRow, TopScene

__all__ = ["MonitorHub", "WatchingPage"]

FIRST_LOOK_S: Final = 1.0
"""How long the first picture waits for drivers."""
SPARK_HISTORY: Final = 40
_log: Final = get_logger(__name__)


@final
@attrs.define(eq=False)
class WatchingPage:
    """A page that watches.

    Attributes:
        wake: Set when there is something new, or the page has gone, or all is to end.
        version: The version of the state that it was told last; 0 for none.
        is_gone: Whether its browser has left.
    """

    wake: asyncio.Event = attrs.field(factory=asyncio.Event)
    version: int = 0
    is_gone: bool = False

    def leave(self) -> None:
        """Take note that the browser has left."""
        self.is_gone = True
        self.wake.set()


@final
class MonitorHub:
    """Looks at drivers for as long as its block runs.

    Args:
        sources: Where snapshots come from.
        host: What to call this machine.
        interval: Seconds between two looks.
        max_watchers: Most pages that may watch at once.

    Attributes:
        version: Number of the newest picture; the first one is 1.
        refused_watcher_count: Pages that came when there were too many.
        slow_watcher_count: Pages that were dropped because they did not read.
        whole_state_count: Whole states that were encoded.
        difference_count: Differences that were encoded.
    """

    def __init__(
        self,
        sources: Sequence[StatsSource],
        *,
        host: str,
        interval: float = 1.0,
        max_watchers: int = 16,
    ) -> None:
        self._sources = tuple(sources)
        self._places = {
            each.name: SourcePlace(place, host, each.name) for place, each in enumerate(sources)
        }
        assert len(self._places) == len(self._sources), "two sources have one name"
        self._interval = interval
        self._max_watchers = max_watchers
        self._model = TopModel(history=SPARK_HISTORY)
        self._history = History()
        self._tasks = TaskOwner(self._on_failed)
        self._looks = Looks(self._model, self._sources)
        self._watchers: dict[WatchingPage, None] = {}
        self._scene: TopScene = self._model.scene()
        self._states: dict[int, dict[str, Any]] = {}
        self._whole: dict[int, bytes] = {}
        self._differences: dict[int, bytes] = {}
        self._stopped = asyncio.Event()
        self.version = 0
        self.refused_watcher_count = 0
        self.slow_watcher_count = 0
        self.whole_state_count = 0
        self.difference_count = 0

    @property
    def is_stopped(self) -> bool:
        """Return whether all pages are to end."""
        return self._stopped.is_set()

    @property
    def watcher_count(self) -> int:
        """Return how many pages watch."""
        return len(self._watchers)

    async def __aenter__(self) -> Self:
        for each in self._sources:
            self._model.on_failure(each.name, "no answer yet")
        try:
            await self._look_at_all(FIRST_LOOK_S)
        except BaseException:
            await self._looks.aclose()
            raise
        self._tasks.start(self._run(), "monitor looks")
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        await self._tasks.aclose()
        await self._looks.aclose()

    def stop(self) -> None:
        """End all pages, and look no more."""
        self._stopped.set()
        self._tasks.cancel()
        for each in self._watchers:
            each.wake.set()

    async def wait_stopped(self) -> None:
        """Wait until it was stopped."""
        await self._stopped.wait()

    def failures(self) -> list[tuple[str, str]]:
        """Return the sources that do not answer, and why."""
        return [(each.name, each.failure) for each in self._scene.drivers if each.failure]

    def _on_failed(self, task: asyncio.Task[Any]) -> None:
        _log.error("monitor_task_failed", task=task.get_name(), exc_info=task.exception())
        self.stop()

    # Looking.

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            # A loop that was late does not catch up.
            due = max(due + self._interval, loop.time())
            await asyncio.sleep(due - loop.time())
            await self._look_at_all(self._interval / 2)

    async def _look_at_all(self, patience_s: float) -> None:
        """Ask all sources that are not being asked yet, and make a picture of what they say.

        Args:
            patience_s: How long the picture waits for answers.
        """
        await self._looks.look(patience_s)
        self._turn()

    def _turn(self) -> None:
        """Make a new picture, and wake all pages."""
        self._scene = scene = self._model.scene()
        self.version += 1
        self._history.add(scene.rows, {each.name: each.epoch_ns for each in scene.drivers})
        for cache in (self._states, self._whole, self._differences):
            for old in [each for each in cache if each < self.version - 1]:
                del cache[old]
        for each in self._watchers:
            each.wake.set()

    # Telling.

    def enter(self) -> WatchingPage | None:
        """Return a place for one more page; None if there is none."""
        if self.is_stopped or len(self._watchers) >= self._max_watchers:
            self.refused_watcher_count += 1
            return None
        watcher = WatchingPage()
        self._watchers[watcher] = None
        return watcher

    def leave(self, watcher: WatchingPage) -> None:
        """Give the place of a page back."""
        self._watchers.pop(watcher, None)

    def news_for(self, watcher: WatchingPage) -> tuple[str, bytes] | None:
        """Return what a page is to be told, `state` or `difference`; None if it knows all."""
        known, watcher.version = watcher.version, self.version
        if known == self.version:
            return None
        if known == self.version - 1 and known in self._states:
            return "difference", self._difference()
        return "state", self._whole_state()

    def _state(self) -> dict[str, Any]:
        state = self._states.get(self.version)
        if state is None:
            scene = self._scene
            event_count = scene.events_forgotten + len(scene.events)
            left_out_count = self._history.left_out_count
            state = self._states[self.version] = state_of(
                scene, self._places, event_count, without_history=left_out_count
            )
        return state

    def _whole_state(self) -> bytes:
        found = self._whole.get(self.version)
        if found is None:
            found = self._whole[self.version] = encoded(self._state())
            self.whole_state_count += 1
        return found

    def _difference(self) -> bytes:
        found = self._differences.get(self.version)
        if found is None:
            before = self._states[self.version - 1]
            found = self._differences[self.version] = encoded(difference(before, self._state()))
            self.difference_count += 1
        return found

    # Pages of one thing; None if there is none of this name.

    def _row(self, name: str) -> TopRow | None:
        rows = (each for each in self._scene.rows if each.key.kind != "drv")
        return next((each for each in rows if stream_id_of(each.key, self._places) == name), None)

    def stream(self, name: str) -> bytes | None:
        """Return the page of a stream."""
        row = self._row(name)
        if row is None:
            return None
        history = self._history.of(row.key)
        return encoded(stream_detail(row, self._scene, self._places, history))

    def history(self, name: str) -> bytes | None:
        """Return the last hour of a stream."""
        row = self._row(name)
        history = None if row is None else self._history.of(row.key)
        return None if history is None else encoded(history.columns())

    def driver(self, name: str) -> bytes | None:
        """Return the page of a driver."""
        for each in self._scene.drivers:
            if str(self._places[each.name].number) == name:
                return encoded(driver_detail(each, self._places))
        return None

    def topology(self, _name: str) -> bytes:
        """Return the graph of all drivers."""
        return encoded(graph_of(self._scene, self._places))


def encoded(value: object) -> bytes:
    """Return JSON on one line."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
