"""Errors of this package as Spark shows them: what they say, without the calls that led to them."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from aeron_async.errors import AeronError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["few_lines"]

OF_WORKERS: Final = "PYTHON_WORKER_FACTORY_"
"""How variables begin that Spark sets for its Python processes, and for no other."""
HIDING: Final = "SPARK_HIDE_TRACEBACK"


@contextmanager
def few_lines() -> Iterator[None]:
    """Let Spark show an error of this package as what it says, without the calls that led to it.

    Spark asks this variable when a process of it ends with an error. Elsewhere nothing changes.
    """
    try:
        yield
    except AeronError:
        if any(each.startswith(OF_WORKERS) for each in os.environ):
            os.environ[HIDING] = "1"
        raise
