"""What is asked of a test that has been collected."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

__all__ = ["first_of_each", "name_of"]

HERE = Path(__file__).parent


@cache
def name_of(path: Path) -> str:
    """Return the path of a file from here on: paths are slow, and tests are many."""
    return path.relative_to(HERE).as_posix()


def first_of_each(items: Iterable[pytest.Item]) -> dict[str, pytest.Item]:
    """Return each test with the first of its parameters, by its name without them."""
    found: dict[str, pytest.Item] = {}
    for item in items:
        found.setdefault(item.nodeid.partition("[")[0], item)
    return found
