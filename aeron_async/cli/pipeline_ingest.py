"""Command `aeron-async pipeline ingest`: live streams into a lake."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import attrs

from aeron_async.archive.context import ArchiveContext
from aeron_async.cli.figures import plural
from aeron_async.cli.options import Flag, Folder, RunOptions
from aeron_async.cli.output import print_json, print_line, remark
from aeron_async.cli.pipeline_run import LakeOptions
from aeron_async.cli.runner import ExitCode, run
from aeron_async.errors import ConfigurationError
from aeron_async.spark.java import ensure_java
from aeron_async.spark.pipeline.ingest import StreamToRecord, job_command
from aeron_async.spark.pipeline.ingest import ingest as ingest_streams
from aeron_async.spark.pipeline.session import check_installed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aeron_async.spark.pipeline.ingest import IngestedBatch

__all__ = ["ingest"]


def ingest(
    archive: Folder,
    lake: str,
    /,
    *streams: str,
    trigger: str = "10s",
    control: str = "aeron:udp?endpoint=127.0.0.1:8010",
    purge: Flag = False,
    json: Flag = False,
    options: LakeOptions | None = None,
    running: RunOptions | None = None,
) -> int:
    """Record live streams and load them into a lake, until Ctrl-C; a second run continues.

    Args:
        archive: Directory to record into; created if missing.
        lake: Directory of the lake, or its URL, such as s3://bucket/lake; created if missing.
        streams: CHANNEL STREAM, any number of such pairs.
        trigger: Interval between two batches.
        control: Control channel of the archive, for the job and for other clients.
        purge: At the end, remove files of the archive that all consumers have read, without asking;
            else keep them.
        json: One JSON object a line, for every batch.
        options: Options of the lake.
        running: How to run.
    """
    found = live_streams(streams)
    options = options or LakeOptions()
    # Errors in the settings must show before anything is recorded.
    settings = options.settings(trigger)
    check_installed()
    ensure_java()
    from aeron_async.spark.pipeline.silver import kinds_of  # noqa: PLC0415 - needs pyarrow

    kinds_of(settings)
    arguments = [*flags_of(options), "--trigger", trigger]
    if purge:
        arguments += ["--purge", "--control", control]
    context = ArchiveContext.from_environment(directory=str(archive), control_channel=control)
    job = job_command(str(archive), lake, control, arguments)
    remark(f"recording {plural(len(found), 'stream')} into {archive}; Ctrl-C ends it")
    main = ingest_streams(found, context, job, json_of if json else line_of)

    async def whole() -> int:
        await main
        return ExitCode.SUCCESS

    try:
        return run(whole(), running or RunOptions())
    finally:
        main.close()


def live_streams(given: tuple[str, ...]) -> list[StreamToRecord]:
    """Return pairs of a channel and a stream id.

    Raises:
        ConfigurationError: There are no streams, or one has no stream id.
    """
    channels, ids = given[::2], given[1::2]
    if not given or len(channels) != len(ids):
        message = (
            f"streams {' '.join(given)!r} must be pairs of CHANNEL STREAM: add what is missing"
        )
        raise ConfigurationError(message)
    found = []
    for channel, stream_id in zip(channels, ids, strict=True):
        try:
            found.append(StreamToRecord(channel, int(stream_id)))
        except ValueError:
            message = f"stream {stream_id!r} of {channel} must be a number: change STREAM"
            raise ConfigurationError(message) from None
    return found


def flags_of(options: LakeOptions) -> Iterator[str]:
    """Yield these options as flags of `pipeline run`."""
    for name, value in attrs.asdict(options).items():
        flag = "--consumer" if name == "consumers" else f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            yield flag if value else f"--no-{name}"
            continue
        for each in value if isinstance(value, list) else [] if value is None else [value]:
            yield from (flag, str(each))


def json_of(batch: IngestedBatch) -> None:
    """Print a batch as JSON."""
    print_json({**batch.report, "behind": batch.behind, "unknown": batch.unknown})
    sys.stdout.flush()


def line_of(batch: IngestedBatch) -> None:
    """Print a batch as text."""
    report = batch.report
    behind = ", ".join(f"recording {key} by {length:,} B" for key, length in batch.behind.items())
    if batch.unknown:
        behind += f"; {plural(batch.unknown, 'recording')} without a report so far"
    print_line(
        f"batch {report['batch_id']}: {plural(report['messages'], 'message')}, "
        f"{plural(report['gaps'], 'gap')}; {report['seconds']:.1f} s; behind: {behind or 'nothing'}"
    )
    sys.stdout.flush()
