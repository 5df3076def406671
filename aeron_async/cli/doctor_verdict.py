"""What a finding is, and how bad."""

from __future__ import annotations

from enum import StrEnum
from typing import final

import attrs

__all__ = ["Finding", "Verdict", "judge"]


@final
class Verdict(StrEnum):
    """How a finding is to be taken."""

    GOOD = "good"
    SLOW = "slow"
    """All works, but more slowly than it could, or something seldom used does not."""
    BROKEN = "broken"
    """A stream with these settings is refused, or nothing can reach it."""


@attrs.frozen(kw_only=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        what: The thing.
        seen: How it is.
        wanted: How it should be.
        remedy: What to do about it; empty where nothing is to be done.
        verdict: Whether that matters.
    """

    what: str
    seen: str
    wanted: str
    remedy: str
    verdict: Verdict


def judge(
    what: str, *, seen: str, wanted: str, remedy: str, is_good: bool, otherwise: Verdict
) -> Finding:
    """Return a finding that is good, or is something else and has a remedy."""
    verdict = Verdict.GOOD if is_good else otherwise
    return Finding(
        what=what, seen=seen, wanted=wanted, remedy="" if is_good else remedy, verdict=verdict
    )
