"""The swarm finds bugs: each one planted here is caught within a thousand seeds."""

from __future__ import annotations

import pytest

from aeron_async.testing.swarm import run_seed
from tests.sim.mutants import MUTANTS, Mutant

SEEDS_MAX = 1_000


@pytest.mark.untraced
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.plant(monkeypatch)
    assert any(run_seed(seed).failure for seed in range(SEEDS_MAX))
