"""Seeds that once failed, each with what was wrong, and many that never have."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.draw import draw_scenario
from tests.support.run import run_scenario
from tests.support.swarm import run_seed

# Coverage of so many worlds would take minutes; the same code is covered by the other tests.
ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
# `make long` takes more of them.
COUNT = int(os.environ.get("AERON_ASYNC_SWARM_SEEDS", "10"))

pytestmark = pytest.mark.untraced


@pytest.mark.parametrize(
    ("seed", "features"),
    [
        # A stream that had used up its terms had a negative position, and nobody could join it.
        (14, {"end_of_positions"}),
        (225, {"end_of_positions"}),
        (326, {"end_of_positions", "crash"}),
        # Two publishers with one session and the same terms were put together in one image.
        (578, {"collision", "end_of_positions"}),
        # A damaged datagram reached over the start of a frame to come, whose length was then read
        # from its payload: the image, and its readers, went on beyond what had ever come.
        (622, {"corruption"}),
        (1258, {"corruption", "end_of_positions"}),
        # A window of one MTU, of which a sender had used too little to be told of.
        (2107, {"windows", "small_mtu"}),
        # A datagram that a full socket held kept its port, and who started again could not bind.
        (12636, {"restart", "send_errors"}),
        # The limit rose while an offer went on to the next term, and the offer then waited for it.
        (4761, {"several_terms", "windows"}),
    ],
)
def test_a_seed_that_once_failed_passes(seed: int, features: set[str]) -> None:
    # The seed still stands for the story that it failed with.
    scenario = draw_scenario(seed)
    assert features <= scenario.features
    assert run_seed(seed).failure == ""
    # It failed before there were groups.
    before = draw_scenario(seed, without=frozenset({"multicast"}))
    if before != scenario:
        assert run_scenario(before).failure == ""


@pytest.mark.parametrize("seed", [9465, 11674, 17594, 25019, 33342, 37201])
def test_a_seed_that_once_failed_with_a_forger_passes(seed: int) -> None:
    """What readers were given, and nothing ever said that it was forged.

    9465 and 11674: an image whose SETUP was forged read on, and its status messages were refused.
    17594: a revocation was forged while the publisher was asked for a frame, and withdrawn.
    25019 and 33342: a forged frame filled the place that was cleared because of another one.
    37201: a forged frame that was sent twice was taken for the publisher's word.
    """
    assert run_seed(seed, always=frozenset({"forger"})).failure == ""


def test_random_worlds_keep_every_promise() -> None:
    seeds = f"0..{COUNT}"
    command = [sys.executable, "-m", "tests.support.swarm", "--seeds", seeds]
    finished = subprocess.run(
        command, capture_output=True, text=True, env=ENVIRONMENT, check=False, timeout=3_000
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert finished.stdout.startswith(f"{COUNT} seeds, 0 failed")
