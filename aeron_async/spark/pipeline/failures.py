"""What to say of a query that failed: Spark says it in hundreds of lines."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from aeron_async.errors import ArchiveError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["in_one_line", "problem_of"]

OURS: Final = re.compile(r"aeron_async\.errors\.\w+: (.+)")
LONGEST: Final = 400


def problem_of(text: str) -> str:
    """Return the line that matters: the last error of this package, else the first line."""
    ours = OURS.findall(text)
    if ours:
        return str(ours[-1]).strip()[:LONGEST]
    # Py4J's own first line names a method, and no reason.
    lines = [line.strip().removeprefix(": ") for line in text.splitlines() if line.strip(": ")]
    lines = [line for line in lines if not line.startswith("An error occurred while calling")]
    return (lines[0] if lines else "Spark failed, and did not say why")[:LONGEST]


@contextmanager
def in_one_line() -> Iterator[None]:
    """Let errors of Spark be errors of this package.

    Raises:
        ArchiveError: In place of any of them.
    """
    from py4j.protocol import Py4JError  # noqa: PLC0415 - whoever only reads does without
    from pyspark.errors import PySparkException  # noqa: PLC0415 - likewise

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise ArchiveError(problem_of(str(error))) from error
