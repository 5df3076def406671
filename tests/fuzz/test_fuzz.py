"""The targets under hypothesis, on every kept input, and on every input that once was too much."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.fuzz.seeds import seeds
from tests.fuzz.targets import TARGETS

HERE = Path(__file__).parent
CRASHES = sorted((HERE / "crashes").glob("*.bin"))
NAMES = list(TARGETS)
GROWTH_LIMIT = 1024 * 1024


def kept(target: str) -> list[bytes]:
    """Return the inputs of a target that found something new at the time."""
    return [path.read_bytes() for path in sorted((HERE / "corpus" / target).iterdir())]


@pytest.mark.parametrize("target", NAMES)
def test_every_kept_input_is_borne(target: str) -> None:
    inputs = kept(target)
    assert inputs
    for data in inputs:
        TARGETS[target](data)


@pytest.mark.parametrize("path", CRASHES, ids=lambda path: path.stem)
def test_what_once_was_too_much_is_borne(path: Path) -> None:
    TARGETS[path.stem.partition("-")[0]](path.read_bytes())


@pytest.mark.parametrize("target", NAMES)
def test_no_kept_input_takes_more_memory_than_a_mebibyte(target: str) -> None:
    inputs = kept(target)
    tracemalloc.start()
    try:
        for data in inputs:
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            TARGETS[target](data)
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before < GROWTH_LIMIT
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("target", NAMES)
def test_any_bytes_are_borne(target: str) -> None:
    @settings(deadline=None)
    @given(st.binary(max_size=300))
    @example(b"")
    def bear(data: bytes) -> None:
        TARGETS[target](data)

    bear()


@pytest.mark.parametrize("target", NAMES)
def test_kept_inputs_are_borne_spliced_and_changed(target: str) -> None:
    source = random.Random(target)
    inputs = kept(target)
    for _ in range(100):
        first, second = bytearray(source.choice(inputs)), source.choice(inputs)
        cut = source.randrange(len(first) + 1)
        first[cut:] = second[source.randrange(len(second) + 1) :]
        for _ in range(source.randrange(4)):
            if first:
                first[source.randrange(len(first))] = source.randrange(256)
        TARGETS[target](bytes(first))


def test_every_seed_has_a_target() -> None:
    found = {target for target, _ in seeds()}
    assert found == set(TARGETS)
