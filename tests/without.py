"""Programs that find some packages not to be installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def without(names: Iterable[str]) -> str:
    """Return the first lines of a program: from then on no import finds these."""
    return f"import sys; sys.modules.update(dict.fromkeys({[*names]!r}))\n"
