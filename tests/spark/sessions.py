"""Which tests start Spark."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

__all__ = ["starts_spark"]

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = "tests/spark/"
ASKS: Final = "spark: SparkSession"
"""How a test asks for the session that several share."""
STARTS: Final = "runs_java()"
"""What a file looks at whose tests start programs with a Spark of their own."""


@cache
def starts_spark(path: str) -> bool:
    """Whether any test does in a file that is named from the root of the tree."""
    if not path.startswith(FOLDER):
        return False
    text = (ROOT / path).read_text()
    return ASKS in text or STARTS in text
