"""Command `aeron-async pipeline maintain`: join small files of a lake, and remove old ones."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Annotated, Final

import attrs

from aeron_async.cli.figures import format_bytes, plural
from aeron_async.cli.options import Flag, sized
from aeron_async.cli.output import print_json, print_line, remark
from aeron_async.cli.runner import ExitCode
from aeron_async.errors import ConfigurationError
from aeron_async.spark.pipeline.session import check_installed

if TYPE_CHECKING:
    from aeron_async.spark.lake.maintenance import TableReport

__all__ = ["maintain"]

FileSize = Annotated[int, sized(1)]
HOURS: Final = {"h": 1, "d": 24}
RETENTION: Final = re.compile(r"(\d{1,6})([hd])")


def maintain(
    lake: str,
    /,
    *,
    target_size: FileSize = 128 << 20,
    retention: str = "24h",
    may_break_readers: Flag = False,
    max_bytes: FileSize = 64 << 30,
    dry_run: Flag = False,
    json: Flag = False,
) -> int:
    """Join small files of a lake's tables, and remove files that nothing needs.

    Batches and readers may run: a reader keeps the version that it has opened for the retention.

    Args:
        lake: Directory that `pipeline run` has filled, or its URL, such as s3://bucket/lake.
        target_size: Size of a full file, such as 128m; files below half of it are joined.
        retention: How long replaced files stay for readers, and those of failed batches, such as
            24h or 7d.
        may_break_readers: Allow a retention below six hours; while nothing writes or reads the
            lake.
        max_bytes: Most bytes of files that this run joins in a table.
        dry_run: Only say what would be done.
        json: One JSON object a line, for every table.
    """
    check_installed(("deltalake", "pyarrow", "numpy"))
    from aeron_async.spark.lake.maintenance import MaintenanceSettings  # noqa: PLC0415 - an extra
    from aeron_async.spark.lake.maintenance import maintain as maintain_lake  # noqa: PLC0415

    settings = MaintenanceSettings(
        target_size=target_size,
        retention_hours=hours_of(retention),
        may_break_readers=may_break_readers,
        max_bytes=max_bytes,
    )
    left = 0
    for report in maintain_lake(lake, settings, is_plan=dry_run):
        if json:
            print_json(attrs.asdict(report))
        else:
            print_line(format_report(report))
        sys.stdout.flush()
        left += report.left_files
    if left:
        remark(f"{plural(left, 'small file')} left to join: run it again, or raise --max-bytes")
    if dry_run:
        remark("nothing was changed: without --dry-run it is")
    return ExitCode.SUCCESS


def hours_of(text: str) -> int:
    """Return a duration of hours or days in hours.

    Raises:
        ConfigurationError: The text is no such duration.
    """
    match = RETENTION.fullmatch(text)
    if match is None:
        message = f"--retention {text!r} must be hours or days: write it as 24h or 7d"
        raise ConfigurationError(message)
    return int(match[1]) * HOURS[match[2]]


def format_report(report: TableReport) -> str:
    """Return a line for a table."""
    parts = []
    if report.joined_files:
        verb = "would join" if report.is_plan else "joined"
        made = "" if report.is_plan else f" of {format_bytes(report.made_bytes)}"
        parts.append(
            f"{verb} {plural(report.joined_files, 'file')} of {format_bytes(report.joined_bytes)} "
            f"into {report.made_files:,}{made}"
        )
    if report.refused_files:
        parts.append(f"{plural(report.refused_files, 'file')} had been joined by another process")
    if report.replaced_files or report.unknown_files:
        verb = "would remove" if report.is_plan else "removed"
        parts.append(
            f"{verb} {plural(report.replaced_files, 'replaced file')} and "
            f"{plural(report.unknown_files, 'unknown file')}, {format_bytes(report.removed_bytes)}"
        )
    if report.log_files:
        parts.append(f"removed {plural(report.log_files, 'file')} of the log")
    if report.has_checkpoint:
        parts.append("would write a checkpoint" if report.is_plan else "wrote a checkpoint")
    return (
        f"{report.table}: {plural(report.files, 'file')}, {format_bytes(report.bytes)}; "
        f"{', '.join(parts) or 'nothing to do'}"
    )
