"""Which tests go to the same worker when several run side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    import pytest

__all__ = ["FolderScheduling", "scheduler"]

TOGETHER = "tests/spark/"
"""One Spark session serves this folder, and takes seconds and half a gigabyte to start."""
APART = "tests/sim/"
"""Worlds share nothing, and those of one file may take minutes."""


@final
class FolderScheduling(LoadFileScheduling):  # type: ignore[misc] # xdist ships no types
    """Keeps the tests of a file together, and those of one folder; those of another go anywhere."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(APART):
            return nodeid
        return TOGETHER if nodeid.startswith(TOGETHER) else nodeid.partition("::")[0]


def scheduler(config: pytest.Config, log: Any) -> FolderScheduling | None:
    """Return what xdist schedules with; None where it was told to do otherwise."""
    return FolderScheduling(config, log) if config.getoption("dist") == "loadfile" else None
