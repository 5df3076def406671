"""The swarm finds bugs: each one planted here is caught within a thousand seeds."""

from __future__ import annotations

import os

import pytest

from tests.sim.fast_mutants import FAST_MUTANTS
from tests.sim.mutants import MUTANTS, Mutant
from tests.twins import needs_compiled

SEEDS_MAX = 1_000
PLANTED = int(os.environ.get("AERON_ASYNC_MUTANTS", "17"))
ALL = (*MUTANTS, *FAST_MUTANTS)


# What only compiled code calls.
COMPILED = {"a reader waits without a look at what is there"}

# Those that none of the first few seeds catches soon, with one that does. It is tried first; where
# worlds have changed, the others follow.
LATE = {
    "a batch waits for more until it is full": 6,
    "a lane calls no handler that it has said it would call": 18,
    "a new handler is not given what is there": 64,
    "a heartbeat waits for a poll": 3,
    "a batch that has grown is taken as far as it was before": 3,
    "views lie in the term behind the batch": 3,
    "a heartbeat that says nothing new is no sign of life": 3,
    "a sender answers again what it has just answered": 4,
    "runs that lie apart are laid into the next term": 35,
    "a lane drops what it cannot take": 3,
    "a gap that reaches the end of its term is taken for its end": 13,
    "a lane takes what comes from anywhere": 18,
    "an offer that is sent at once leaves behind what follows it": 29,
    "a reader waits without a look at what is there": 10,
    "a window grows by more than a window": 10,
    "a batch of heartbeats leaves its last one out": 10,
    "all heartbeats leave for the peer of the first": 25,
    "all status messages leave for the source of the first": 38,
    "a gap behind the first is asked for again though it was filled": 50,
    "a sender waits a second until it answers again": 11,
    "the last of several destinations is left out": 6,
    "an offer that is sent at once passes the limit": 5,
    "a list counts a message before it is appended": 5,
    "a list leaves one message out between two of its pieces": 6,
    "a window grows beyond half a term": 5,
    "a gap behind the first is asked for with what lies behind it": 4,
    "a handler is not called again for what is left behind a turn's messages": 982,
    "a duplicate of what was consumed is placed again": 58,
    "a lane takes any frame of its term for the next one": 3,
    "a lane wakes nobody": 18,
    "a range that was resent once is never resent again": 87,
    "what was placed behind a gap is shown with what is before it": 982,
    "a run is placed beyond what may be placed": 24,
    "a run is placed where its readers have been": 74,
    "a run takes one datagram more than it has looked at": 12,
    "the window of a receiver counts from what was sent, not from what it has consumed": 445,
}


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(
            mutant,
            id=mutant.name,
            marks=[
                *([pytest.mark.untraced] if mutant.name in LATE else []),
                *([needs_compiled] if mutant.name in COMPILED else []),
            ],
        )
        for mutant in ALL[:: -(-len(ALL) // PLANTED)]
    ],
)
def test_a_planted_bug_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.plant(monkeypatch)
    seeds = (LATE.get(mutant.name, 0), *range(SEEDS_MAX))
    assert any(mutant.run(seed).failure for seed in seeds)


def test_every_late_bug_is_planted() -> None:
    assert LATE.keys() <= {mutant.name for mutant in ALL}
