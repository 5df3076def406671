"""Command `aeron-async pipeline demo`: the whole pipeline on a small generated feed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aeron_async.cli.figures import plural
from aeron_async.cli.options import Count, Folder, RunOptions
from aeron_async.cli.output import print_line, remark
from aeron_async.cli.pipeline_run import write_report
from aeron_async.cli.runner import ExitCode
from aeron_async.cli.runner import run as run_async
from aeron_async.errors import ConfigurationError
from aeron_async.spark.pipeline.session import NEEDED_BY_REPORT, check_installed

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["demo"]

PROGRAM: Final = (sys.executable, "-m", "aeron_async", "pipeline")


def demo(
    directory: Folder | None = None,
    /,
    *,
    count: Count = 100_000,
    rate: Count = 20_000,
    endpoint: str | None = None,
) -> int:
    """Publish a feed, record it, bring it into a lake, and draw the report.

    Args:
        directory: Where to leave archive, lake and report; must be empty; by default a new one.
        count: Number of messages.
        rate: Messages per second.
        endpoint: Endpoint of the feed on this host; by default a free port.
    """
    check_installed()
    check_installed(NEEDED_BY_REPORT)
    from aeron_async.spark.pipeline.sample import (  # noqa: PLC0415 - needs Spark
        SETTINGS,
        free_endpoint,
    )

    place = Path(tempfile.mkdtemp(prefix="aeron-pipeline-")) if directory is None else directory
    if place.exists() and any(place.iterdir()):
        message = f"directory {str(place)!r} is not empty: name another"
        raise ConfigurationError(message)
    archive, lake, report = place / "archive", place / "lake", place / "report.html"
    endpoint = endpoint or free_endpoint()
    remark(f"publishing {count:,} quotes over Aeron at {endpoint}, and recording them")
    feed = record(archive, count=count, rate=rate, endpoint=endpoint)
    run_async(feed, RunOptions())
    flags = [flag for name, value in SETTINGS.items() for flag in flags_of(name, value)]
    # A separate process, because this one has run a driver and would pass its open files on.
    done = subprocess.run([*PROGRAM, "run", str(archive), str(lake), *flags], check=False)  # noqa: S603 - our own program
    if done.returncode:
        return done.returncode
    write_report(lake, report)
    print_line(str(report))
    return ExitCode.SUCCESS


async def record(archive: Path, *, count: int, rate: int, endpoint: str) -> int:
    """Publish and record the feed, and report the faults planted in it."""
    from aeron_async.spark.pipeline.sample import record_sample  # noqa: PLC0415 - as above

    planted = await record_sample(archive, count=count, rate=rate, endpoint=endpoint)
    remark(
        f"planted {plural(planted.sequence_gaps, 'gap')} and "
        f"{plural(planted.cut_messages, 'message')} that cannot be decoded"
    )
    return ExitCode.SUCCESS


def flags_of(name: str, value: str | list[str]) -> Iterator[str]:
    """Yield a setting as flags of `pipeline run`."""
    for each in [value] if isinstance(value, str) else value:
        yield from (f"--{name.replace('_', '-')}", each)
