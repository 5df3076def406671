"""Which tests go to the same worker when several run side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

from xdist.scheduler import LoadFileScheduling

from tests.spark.sessions import spark_of

if TYPE_CHECKING:
    import pytest

__all__ = ["FolderScheduling", "scheduler"]

APART: Final = "tests/sim/"
"""Worlds share nothing, and those of one file may take minutes."""


@final
class FolderScheduling(LoadFileScheduling):  # type: ignore[misc] # xdist ships no types
    """Keeps the tests of a file together, and those that use one Spark; worlds go anywhere."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        if path.startswith(APART):
            return nodeid
        return spark_of(path) or path


def scheduler(config: pytest.Config, log: Any) -> FolderScheduling | None:
    """Return what xdist schedules with; None where it was told to do otherwise."""
    return FolderScheduling(config, log) if config.getoption("dist") == "loadfile" else None
