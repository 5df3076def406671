"""The swarm finds bugs: each one planted here is caught within a thousand seeds."""

from __future__ import annotations

import pytest

from tests.sim.mutants import MUTANTS, Mutant
from tests.support.swarm import run_seed

SEEDS_MAX = 1_000


# Those that no seed before the twelfth catches, with the one that does. It is tried first; where
# worlds have changed, the others follow.
LATE = {
    "a handler is not called again for what is left behind a turn's messages": 244,
    "a duplicate of what was consumed is placed again": 56,
    "a lane takes any frame of its term for the next one": 12,
    "a lane wakes nobody": 18,
    "a range that was resent once is never resent again": 87,
    "a run is placed beyond what may be placed": 24,
    "a run is placed where its readers have been": 56,
    "a run takes one datagram more than it has looked at": 12,
    "the window of a receiver counts from what was sent, not from what it has consumed": 445,
}


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(
            mutant, id=mutant.name, marks=[pytest.mark.untraced] if mutant.name in LATE else []
        )
        for mutant in MUTANTS
    ],
)
def test_a_planted_bug_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.plant(monkeypatch)
    seeds = (LATE.get(mutant.name, 0), *range(SEEDS_MAX))
    assert any(run_seed(seed).failure for seed in seeds)


def test_every_late_bug_is_planted() -> None:
    assert LATE.keys() <= {mutant.name for mutant in MUTANTS}
