"""What a SETUP may ask for: each limit on both sides, and what ends gives back."""

from __future__ import annotations

from typing import Any

import pytest

from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.image_refusals import MAX_TEXT_LENGTH, ImageBudget, window_refusal
from tests.driver.fakes import setup
from tests.logbuffer.logs import INITIAL_TERM_ID, TERM_LENGTH

MIB = 1 << 20


def reason(budget: ImageBudget, image_count: int = 0, **changes: Any) -> str | None:
    refusal = budget.refusal(setup(**changes), image_count=image_count)
    return None if refusal is None else refusal.reason()


@pytest.fixture
def budget() -> ImageBudget:
    return ImageBudget(DriverContext())


def test_terms_of_64_mebibytes_are_granted_and_no_longer_ones(budget: ImageBudget) -> None:
    assert reason(budget, term_length=64 * MIB) is None
    told = reason(budget, term_length=128 * MIB)
    assert told == (
        "term-length would be 134217728, and the limit is 67108864: raise max_image_term_length"
    )


def test_one_gibibyte_of_logs_is_granted_and_no_more(budget: ImageBudget) -> None:
    for _ in range(21):
        assert reason(budget, term_length=16 * MIB) is None
        budget.take(16 * MIB)
    assert reason(budget, term_length=4 * MIB) is None
    told = reason(budget, term_length=16 * MIB)
    assert told is not None
    assert "image_log_budget_length" in told
    budget.give_back(16 * MIB)
    assert reason(budget, term_length=16 * MIB) is None


@pytest.mark.parametrize(
    ("settings", "limit", "name"),
    [
        ({}, 64, "max_images_per_stream"),
        ({"stream_session_limit": 3}, 3, "stream_session_limit"),
        ({"max_images_per_stream": 5, "stream_session_limit": 9}, 5, "max_images_per_stream"),
    ],
)
def test_so_many_images_of_one_stream_are_granted(
    settings: dict[str, Any], limit: int, name: str
) -> None:
    budget = ImageBudget(DriverContext(**settings))
    assert reason(budget, limit - 1) is None
    assert reason(budget, limit) == (
        f"sessions would be {limit + 1}, and the limit is {limit}: raise {name}"
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mtu_length": 32}, "mtu is 32, and must be more than 32"),
        ({"active_term_id": INITIAL_TERM_ID - 1}, "before the initial term id"),
    ],
)
def test_what_no_log_can_be_made_for_is_refused(
    budget: ImageBudget, changes: dict[str, int], words: str
) -> None:
    told = reason(budget, **changes)
    assert told is not None
    assert words in told
    assert reason(budget, mtu_length=64) is None


def test_a_window_must_hold_a_datagram() -> None:
    assert window_refusal(setup(mtu_length=4_096), 4_096) is None
    refusal = window_refusal(setup(mtu_length=4_128), 4_096)
    assert refusal is not None
    assert "mtu would be 4128, and the limit is 4096" in refusal.reason()
    assert window_refusal(setup(mtu_length=TERM_LENGTH // 2), 1 << 20) is None
    assert window_refusal(setup(mtu_length=TERM_LENGTH // 2 + 32), 1 << 20) is not None


def test_a_gibibyte_of_term_is_refused_by_both_limits_at_once(budget: ImageBudget) -> None:
    """One was named, and the other when that had been raised."""
    refusal = budget.refusal(setup(term_length=1 << 30), image_count=0)
    assert refusal is not None
    assert refusal.reason() == (
        "term-length would be 1073741824, and the limit is 67108864: raise max_image_term_length; "
        "image logs would be 3221225472, and the limit is 1073741824: raise "
        "image_log_budget_length"
    )
    assert refusal.brief_reason() == (
        "max_image_term_length is 67108864, image_log_budget_length is 1073741824"
    )
    assert len(refusal.brief_reason()) <= MAX_TEXT_LENGTH
