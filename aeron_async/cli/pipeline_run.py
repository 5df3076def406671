"""`aeron-async pipeline run`: recordings into a lake, once or for as long as it runs."""

from __future__ import annotations

import sys
from pathlib import Path  # noqa: TC003 - annotations of commands are read when they run
from typing import TYPE_CHECKING, Annotated

import attrs
from cyclopts import Parameter

from aeron_async.cli.figures import format_bytes, plural
from aeron_async.cli.options import Flag  # noqa: TC001 - annotations are read when commands run
from aeron_async.cli.output import print_json, print_line, remark
from aeron_async.cli.runner import ExitCode
from aeron_async.errors import ConfigurationError
from aeron_async.spark.pipeline.lake import Lake
from aeron_async.spark.pipeline.session import check_format, check_installed, make_session
from aeron_async.spark.pipeline.settings import PipelineSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.spark.pipeline.job import BatchReport

__all__ = ["LakeOptions", "run"]


@Parameter(name="*", group="Lake")
@attrs.frozen(kw_only=True)
class LakeOptions:
    """What becomes of recordings; all of it may stand in a TOML file too.

    Attributes:
        config: A TOML file; its keys are these flags, in snake case.
        decode: STREAM[:KIND]=SPEC, such as "1001:quotes=struct:<price:q,symbol:8s"; repeated.
        timestamp_from: "reserved[:unit]" or "payload:OFFSET:TYPE[:unit]".
        event_time: KIND=FIELD[:unit]; repeated.
        sequence: KIND=FIELD, which counts messages; repeated.
        latency: KIND=START..END[:unit]; repeated.
        format: Of bronze and silver: parquet, delta or iceberg.
        source: NAME=VALUE, an option of aeron_archive; repeated.
        conf: NAME=VALUE, a setting of Spark; repeated.
        master: Of Spark.
        max_file_bytes: Such as 128m.
        compact_batches: So many small folders are put together.
        purge_grace: Bytes that are kept beyond what all have read.
        consumers: Checkpoints of others that read the same archive; repeated.
    """

    config: Path | None = None
    decode: list[str] | None = None
    timestamp_from: str | None = None
    event_time: list[str] | None = None
    sequence: list[str] | None = None
    latency: list[str] | None = None
    format: str | None = None
    source: list[str] | None = None
    conf: list[str] | None = None
    master: str | None = None
    max_file_bytes: str | None = None
    compact_batches: int | None = None
    purge_grace: str | None = None
    consumers: Annotated[list[str] | None, Parameter(name="--consumer")] = None

    def settings(self, trigger: str | None) -> PipelineSettings:
        """Return them, with those of the file."""
        flags = attrs.asdict(self)
        flags.pop("config")
        return PipelineSettings.load(self.config, {**flags, "trigger": trigger})


def run(
    archive: Path,
    lake: Path,
    /,
    *,
    available_now: Flag = False,
    trigger: str | None = None,
    json: Flag = False,
    options: LakeOptions | None = None,
) -> int:
    """Bring recordings into a lake: bronze, silver and gold.

    Args:
        archive: Directory of an archive, ours or the official one; it may be running.
        lake: Directory of the lake, made if there is none.
        available_now: Take what there is, and end; so it is without --trigger too.
        trigger: Wait so long between batches, such as 1m, until Ctrl-C.
        json: One JSON object a line, for every batch.
        options: What becomes of recordings.
    """
    if available_now and trigger is not None:
        message = f"--available-now ends by itself, and --trigger {trigger} does not: give one"
        raise ConfigurationError(message)
    settings = (options or LakeOptions()).settings("available-now" if available_now else trigger)
    check_installed()
    check_format(settings)
    from aeron_async.spark.pipeline.failures import in_one_line  # noqa: PLC0415 - needs PySpark
    from aeron_async.spark.pipeline.job import PipelineJob  # noqa: PLC0415 - likewise

    job = PipelineJob(archive, Lake(lake), settings, teller(is_json=json))
    spark = make_session(settings)
    try:
        with in_one_line():
            job.run(spark)
    finally:
        spark.stop()
    remark(f"the lake is {lake}; `aeron-async pipeline report {lake}` draws it")
    return ExitCode.SUCCESS


def teller(*, is_json: bool) -> Callable[[BatchReport], None]:
    """Return what writes a line for every batch."""

    def tell(report: BatchReport) -> None:
        if is_json:
            print_json(attrs.asdict(report))
        else:
            print_line(told(report))
        sys.stdout.flush()

    return tell


def told(report: BatchReport) -> str:
    """Return a batch as a person reads it."""
    parts = [
        f"batch {report.batch_id}: {plural(report.messages, 'message')}",
        format_bytes(report.bytes),
        *(f"{count:,} {kind}" for kind, count in report.decoded.items()),
    ]
    if report.quarantined:
        parts.append(f"{report.quarantined:,} in quarantine")
    if report.gaps:
        parts.append(plural(report.gaps, "gap"))
    return f"{', '.join(parts)}; {report.seconds:.1f} s"
