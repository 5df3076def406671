"""Calls of the clock that leaves out stalls, with times from anywhere."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from tests.twins import compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.fuzz.calls.values import Values

clocks: Final = compiled("clocks")


class Held:
    """A clock, and agents that it watches."""

    def __init__(self, values: Values) -> None:
        self.v = values
        self.time = 0
        self.agents = [SimpleNamespace(due_ns=0, role_name=str(each)) for each in range(4)]
        self.clock: Any = clocks.StallClock(self._source(), threshold_ns=100)

    def true_ns(self) -> Any:
        if self.v.rarely():
            return self.v.any_number()
        self.time += self.v.rng.randrange(200)
        return self.time

    def _source(self) -> Any:
        return SimpleNamespace(epoch_ms=int, epoch_ns=int, now_ns=self.true_ns)

    def make(self) -> None:
        threshold = 100 if self.v.flag() else self.v.number()
        self.clock = clocks.StallClock(self._source(), threshold_ns=threshold)
        self.clock.stall_log = SimpleNamespace(on_pause=self.on_pause)

    def on_pause(self, *_: object) -> None:
        self.clock.now_ns()

    def now_ns(self) -> None:
        self.clock.now_ns()

    def watch(self) -> None:
        self.clock.watch(self.v.rng.choice(self.agents))

    def forget(self) -> None:
        self.clock.forget(self.v.rng.choice(self.agents))

    def expect(self) -> None:
        due = self.v.number()
        if self.v.flag():
            due = self.time + self.v.rng.randrange(300)
        self.clock.expect(self.v.rng.choice(self.agents), due)

    def report(self) -> None:
        self.clock.report()

    def read(self) -> None:
        self.v.rng.choice(self.agents).due_ns = self.v.number()
        _ = self.clock.stalled_ns, self.clock.epoch_ms, self.clock.epoch_ns


def rounds(values: Values) -> Mapping[str, Callable[[], object]]:
    """Return a round for each method."""
    held = Held(values)
    made = (held.make, held.now_ns, held.watch, held.forget, held.expect, held.report, held.read)
    return {each.__name__: each for each in made}
