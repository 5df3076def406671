"""The fuzzer that needs no other package: the same seed, the same inputs, and failures are seen."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from tests.fuzz.blind import Inputs, holds
from tests.fuzz.run import LENGTHS

if TYPE_CHECKING:
    import pytest


def test_a_seed_gives_the_same_inputs_and_another_seed_others() -> None:
    first, second, other = (Inputs("datagram", Random(seed)) for seed in (1, 1, 2))
    made = [first.following() for _ in range(500)]
    assert made == [second.following() for _ in range(500)]
    assert made != [other.following() for _ in range(500)]
    assert len(set(made)) > 400
    assert max(map(len, made)) <= LENGTHS["datagram"]


def test_what_a_target_does_not_promise_is_seen(capsys: pytest.CaptureFixture[str]) -> None:
    def target(data: bytes) -> None:
        if data == b"bad":
            raise IndexError(3)

    assert holds(target, b"good")
    assert not holds(target, b"bad")
    assert "IndexError: 3" in capsys.readouterr().err
