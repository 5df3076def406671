"""How far long work on an archive has come: shown on a terminal, and nowhere else."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(label: str, total: int | None) -> Iterator[Callable[..., None]]:
    """Give what shows how far something is: call it with how much is done, and a new label if any.

    Args:
        label: What is being done.
        total: When all is done; None where nobody knows, and 0 where there is nothing.
    """
    if not sys.stderr.isatty() or total == 0:
        yield lambda *_: None
        return
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)

        def advance(done: int, label: str | None = None) -> None:
            bar.update(task, completed=done, description=label)

        yield advance
