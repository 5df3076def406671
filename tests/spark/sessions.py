"""Which tests ask for a Spark session."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

__all__ = ["asks_for_session"]

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = "tests/spark/"
ASKS: Final = "spark: SparkSession"
"""How a test asks for the fixture."""


@cache
def asks_for_session(path: str) -> bool:
    """Whether any test does in a file that is named from the root of the tree."""
    return path.startswith(FOLDER) and ASKS in (ROOT / path).read_text()
