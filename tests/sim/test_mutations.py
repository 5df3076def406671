"""The swarm finds bugs: each one planted here is caught within a thousand seeds."""

from __future__ import annotations

import pytest

from aeron_async.testing.swarm import run_seed
from tests.sim.mutants import MUTANTS, Mutant

SEEDS_MAX = 1_000


# Caught by no seed before the fourteenth.
LATE = {
    "a duplicate of what was consumed is placed again",
    "a range that was resent once is never resent again",
    "a run takes one datagram more than it has looked at",
    "a run is placed beyond what may be placed",
    "a run is placed where its readers have been",
    "the limit forgets that term ids wrap",
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
    assert any(run_seed(seed).failure for seed in range(SEEDS_MAX))
