"""Commands `aeron-async pipeline run` and `report`: recordings into a lake, and a page about it."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, final

import attrs
from cyclopts import Parameter

from aeron_async.cli.archive_where import opened
from aeron_async.cli.figures import format_bytes, plural
from aeron_async.cli.options import Flag, Int32, RunOptions
from aeron_async.cli.output import print_json, print_line, remark
from aeron_async.cli.runner import ExitCode, TerminatedError
from aeron_async.cli.runner import run as run_async
from aeron_async.clock import SystemClock
from aeron_async.errors import ConfigurationError
from aeron_async.spark.pipeline.session import NEEDED_BY_REPORT, check_installed, make_session
from aeron_async.spark.pipeline.settings import PipelineSettings
from aeron_async.spark.urls import scheme_of, told

if TYPE_CHECKING:
    from aeron_async.spark.lake.tables import Lake
    from aeron_async.spark.pipeline.job import BatchReport
    from aeron_async.spark.pipeline.query import Lag
    from aeron_async.spark.pipeline.watermark import Watermark

__all__ = [
    "LakeOptions",
    "report",
    "run",
    "write_report",
]


def report(
    lake: str,
    /,
    *,
    output: Annotated[Path, Parameter(name=("--output", "-o"))] = Path("report.html"),
    since: str | None = None,
    until: str | None = None,
    stream: Annotated[tuple[Int32, ...], Parameter(name=("--stream", "-s"))] = (),
) -> int:
    """Write a report on a lake: one HTML file, without a server.

    Args:
        lake: Directory that `pipeline run` has filled, or its URL, such as s3://bucket/lake.
        output: Where to write the page.
        since: Leave out what is earlier than this date or time in UTC, such as 2026-11-18 or
            2026-11-18T09:30, or so long ago as 24h or 7d.
        until: Leave out this time and what is later.
        stream: Id of a stream; several; by default all.
    """
    write_report(lake, output, since=since, until=until, streams=stream)
    print_line(str(output.absolute()))
    return ExitCode.SUCCESS


def write_report(
    lake: str | Path,
    output: Path,
    *,
    since: str | None = None,
    until: str | None = None,
    streams: tuple[int, ...] = (),
) -> None:
    """Draw a page about a lake, and write it."""
    check_installed(NEEDED_BY_REPORT)
    if output.is_dir() or not output.name:
        message = f"--output {str(output)!r} is a directory: name a file in it, such as report.html"
        raise ConfigurationError(message)
    from aeron_async.spark.lake.places import write_atomically  # noqa: PLC0415 - needs pyarrow
    from aeron_async.spark.lake.tables import Lake  # noqa: PLC0415 - as above
    from aeron_async.spark.pipeline.report import (  # noqa: PLC0415 - needs pyarrow, jinja2
        ReportRange,
        render_report,
    )

    now_ms = SystemClock().epoch_ms()
    shown = ReportRange.parse(since, until, streams, now_ms)
    report = render_report(Lake(lake), now_ms, shown)
    write_atomically(output, report.page.encode())
    if report.is_empty:
        remark("there are no messages in this range, and the page says so")


def key(name: str, flag: str | None = None) -> Parameter:
    """Return the flag of a setting, with the sentence and the limits of its declaration."""
    setting = PipelineSettings.settings()[name]
    limits = setting.kind.limits().replace("`", "")
    return Parameter(name=flag, help=f"{setting.doc[:-1]} ({limits})." if limits else setting.doc)


@Parameter(name="*", group="Lake")
@attrs.frozen(kw_only=True)
class LakeOptions:
    """Options of a lake; a TOML file may hold them as well, and `PipelineSettings` reads both.

    Attributes:
        config: A TOML file; its keys are these flags, in snake case.
    """

    config: Path | None = None
    decode: Annotated[list[str] | None, key("decode")] = None
    timestamp_from: Annotated[str | None, key("timestamp_from")] = None
    event_time: Annotated[list[str] | None, key("event_time")] = None
    sequence: Annotated[list[str] | None, key("sequence")] = None
    latency: Annotated[list[str] | None, key("latency")] = None
    format: Annotated[str | None, key("format")] = None
    bronze: Annotated[bool | None, key("bronze")] = None
    maintain: Annotated[bool | None, key("maintain")] = None
    source: Annotated[list[str] | None, key("source")] = None
    conf: Annotated[list[str] | None, key("conf")] = None
    master: Annotated[str | None, key("master")] = None
    max_file_bytes: Annotated[str | None, key("max_file_bytes")] = None
    purge_grace: Annotated[str | None, key("purge_grace")] = None
    consumers: Annotated[list[str] | None, key("consumers", "--consumer")] = None

    def settings(self, trigger: str | None) -> PipelineSettings:
        """Return the settings of these flags and of the file."""
        flags = attrs.asdict(self)
        flags.pop("config")
        return PipelineSettings.load(self.config, {**flags, "trigger": trigger})


def run(
    archive: str,
    lake: str,
    /,
    *,
    available_now: Flag = False,
    trigger: str | None = None,
    take_over: Flag = False,
    purge: Flag = False,
    control: str | None = None,
    json: Flag = False,
    options: LakeOptions | None = None,
) -> int:
    """Load recordings into a lake: bronze, silver and gold.

    Args:
        archive: Directory of an archive, ours or the official one; it may be running. Or its URL,
            such as s3://bucket/archive.
        lake: Directory of the lake, or its URL, such as s3://bucket/lake; created if missing.
        available_now: Ingest what is there, and end; this is the default without --trigger.
        trigger: Interval between batches, such as 1m; continues until Ctrl-C.
        take_over: Go on with a lake that has lost its checkpoint, behind its last batch.
        purge: At the end, remove files of the archive that all consumers have read, without asking;
            else only name them.
        control: Control channel of a running archive, to purge it.
        json: One JSON object a line, for every batch, lag, and file to purge.
        options: Options of the lake.
    """
    check_flags(archive, trigger if available_now else None, is_purged=purge and control is None)
    settings = (options or LakeOptions()).settings("available-now" if available_now else trigger)
    check_installed()
    from aeron_async.spark.lake.tables import Lake  # noqa: PLC0415 - needs pyarrow
    from aeron_async.spark.pipeline.job import PipelineJob  # noqa: PLC0415 - needs PySpark

    output = PipelineOutput(is_json=json)
    place = Lake(lake)
    job = PipelineJob(archive, place, settings, output.batch)
    spark = make_session(settings, lambda: remark("starting Spark: this takes some seconds"))
    with SignalStop() as stopper:
        try:
            job.run(
                spark,
                take_over=take_over,
                is_stopped=lambda: stopper.is_stopped() or output.is_unheard,
                tell_lag=output.lag,
            )
        finally:
            spark.stop()
        found = job.watermarks()
        for each in found:
            output.watermark(each)
        if found and purge:
            purge_files(control or archive, found)
        elif found:
            remark("nothing was removed: --purge removes what may go")
    tell_lake(place, lake)
    return stopper.finished()


def check_flags(archive: str, trigger: str | None, *, is_purged: bool) -> None:
    """Refuse a trigger beside --available-now, and to purge a copy in a store of objects."""
    if trigger is not None:
        message = f"--available-now ends by itself, and --trigger {trigger} does not: give one"
        raise ConfigurationError(message)
    if is_purged and scheme_of(archive) is not None:
        message = f"--purge removes nothing of {told(archive)!r}: name the archive by --control"
        raise ConfigurationError(message)


def tell_lake(lake: Lake, given: str) -> None:
    """Print where the lake is: as it was given, or without what may be secret in a URL."""
    named = given if lake.root.is_local else str(lake.root)
    if lake.is_empty():
        remark(f"the lake is {named}, and has no messages yet")
    else:
        remark(f"the lake is {named}; `aeron-async pipeline report {named}` draws it")


def purge_files(where: str, found: list[Watermark]) -> None:
    """Remove files of an archive that all consumers have read."""

    async def purge() -> int:
        async with opened(where) as (_, archive):
            for each in found:
                count = await archive.purge_segments(each.recording_id, each.purge_position)
                remark(f"recording {each.recording_id}: removed {plural(count, 'file')}")
        return ExitCode.SUCCESS

    run_async(purge(), RunOptions())


@final
class SignalStop:
    """Turns the first Ctrl-C or SIGTERM into a request to stop after the current batch."""

    def __init__(self) -> None:
        self._number: int | None = None
        self._before: dict[int, Any] = {}

    def is_stopped(self) -> bool:
        """Return whether a stop was requested."""
        return self._number is not None

    def finished(self) -> ExitCode:
        """Return the exit code; raise if a signal ended the command.

        Raises:
            KeyboardInterrupt: Ctrl-C.
            TerminatedError: SIGTERM.
        """
        if self._number == signal.SIGINT:
            raise KeyboardInterrupt
        if self._number is not None:
            raise TerminatedError
        return ExitCode.SUCCESS

    def _on_signal(self, number: int, _frame: object) -> None:
        if self._number is not None:
            raise KeyboardInterrupt
        self._number = number
        remark("ending after this batch; Ctrl-C again ends at once")

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


@final
class PipelineOutput:
    """Prints what a pipeline reports, as text or as JSON.

    Attributes:
        is_unheard: Whether the reader of the output has gone away. That stops the job as Ctrl-C
            does, because the reader may be the process that records, and it may have died. The
            batch being reported does not fail.
    """

    def __init__(self, *, is_json: bool) -> None:
        self._is_json = is_json
        self.is_unheard: bool = False

    def batch(self, report: BatchReport) -> None:
        """Write a line for a batch."""
        self._write(report, format_batch(report))

    def lag(self, lag: Lag) -> None:
        """Print a line if the lake is behind."""
        if self._is_json or any(lag.behind.values()):
            parts = [f"recording {key} by {length:,} B" for key, length in lag.behind.items()]
            parts += [f"and {plural(lag.untold, 'more recording')}"] if lag.untold else []
            self._write(lag, f"behind after batch {lag.batch_id}: {', '.join(parts)}")

    def watermark(self, watermark: Watermark) -> None:
        """Print a line for files that may be purged."""
        self._write(
            watermark,
            f"recording {watermark.recording_id}: all consumers have read up to "
            f"{watermark.read_position:,}; {plural(watermark.files, 'file')} before position "
            f"{watermark.purge_position:,} may go",
        )

    def _write(self, value: Any, text: str) -> None:
        if self.is_unheard:
            return
        try:
            if self._is_json:
                print_json(attrs.asdict(value))
            else:
                print_line(text)
            sys.stdout.flush()
        except BrokenPipeError:
            self.is_unheard = True


def format_batch(report: BatchReport) -> str:
    """Return a batch as text."""
    parts = [
        f"batch {report.batch_id}: {plural(report.messages, 'message')}",
        format_bytes(report.bytes),
        *(f"{count:,} {kind}" for kind, count in report.decoded.items()),
    ]
    if report.quarantined:
        parts.append(f"{report.quarantined:,} in quarantine")
    if report.gaps:
        parts.append(plural(report.gaps, "gap"))
    if report.unlisted_gaps:
        parts.append(f"{report.unlisted_gaps:,} of them not listed")
    for table, step in report.rounded.items():
        parts.append(f"times of {table} in steps of {step:,}")
    return f"{', '.join(parts)}; {report.seconds:.1f} s"
