"""`aeron-async pipeline report`: one page of HTML about a lake."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from aeron_async.cli.output import print_line
from aeron_async.cli.runner import ExitCode
from aeron_async.clock import SystemClock
from aeron_async.errors import ConfigurationError
from aeron_async.spark.pipeline.lake import Lake, write_atomically
from aeron_async.spark.pipeline.session import check_installed

__all__ = ["report", "write_report"]


def report(
    lake: Path,
    /,
    *,
    output: Annotated[Path, Parameter(name=("--output", "-o"))] = Path("report.html"),
) -> int:
    """Draw a page about a lake, to be opened without a server.

    Args:
        lake: Directory that `pipeline run` has filled.
        output: Where to write the page.
    """
    write_report(lake, output)
    print_line(str(output.absolute()))
    return ExitCode.SUCCESS


def write_report(lake: Path, output: Path) -> None:
    """Draw a page about a lake, and write it."""
    check_installed(("pyarrow", "numpy"))
    if output.is_dir() or not output.name:
        message = f"--output {str(output)!r} is a directory: name a file in it, such as report.html"
        raise ConfigurationError(message)
    from aeron_async.spark.pipeline.report import render_report  # noqa: PLC0415 - needs pyarrow

    page = render_report(Lake(lake), SystemClock().epoch_ms())
    write_atomically(output, page.encode())
