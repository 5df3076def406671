"""Which tests start Spark, and so follow one another.

One session serves all that ask for it, and takes seconds and half a gigabyte to start. A program of
a test may start one more beside it: two Sparks go side by side, three would keep each other from
answering within the ten seconds that Spark has for that.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Final

import pytest

__all__ = ["LONG", "SESSION", "spark_of"]

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = "tests/spark/"
SESSION: Final = "tests that share a Spark session"
LONG: Final = pytest.mark.skipif(
    not int(os.environ.get("AERON_ASYNC_SPARK_LONG", "0")),
    reason="takes many seconds in Spark: set AERON_ASYNC_SPARK_LONG=1",
)
ASKS: Final = "spark: SparkSession"
"""How a test asks for the session."""


@cache
def spark_of(path: str) -> str | None:
    """Return where the tests of a file, named from the root of the tree, belong; None: anywhere."""
    if not path.startswith(FOLDER):
        return None
    text = (ROOT / path).read_text()
    return SESSION if ASKS in text else None
