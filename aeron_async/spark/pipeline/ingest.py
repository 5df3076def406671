"""Live ingest: an archive that records streams, and a pipeline job that follows its recordings.

The job is a process of its own, so that a long batch never delays the recorder. The job asks the
archive over its control channel how far recordings go, and reports after each batch how far it has
read; the difference is the lag.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from aeron_async.archive import ArchiveContext, ControlServer, ControlSettings, LocalArchive
from aeron_async.archive.api import SourceLocation
from aeron_async.client.aeron import Aeron
from aeron_async.errors import ArchiveError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["IngestedBatch", "StreamToRecord", "ingest", "job_command"]

LONGEST_LINE: Final = 1 << 20
"""Upper limit on a report of the job in bytes; `MOST_TOLD` recordings take less than half of it."""
ENDING_SECONDS: Final = 120
"""How long a batch may take to end after SIGTERM."""


@final
@attrs.frozen
class StreamToRecord:
    """A stream to record."""

    channel: str
    stream_id: int


@final
@attrs.frozen
class IngestedBatch:
    """Report of the job about a batch, and how far recordings were ahead by then.

    Attributes:
        report: Output of `pipeline run --json`.
        behind: Bytes that are recorded and not in the lake, by recording id.
        unknown: Recordings of which no report has named a position so far.
    """

    report: dict[str, Any]
    behind: dict[int, int]
    unknown: int = 0


async def ingest(
    streams: Sequence[StreamToRecord],
    context: ArchiveContext,
    job: Sequence[str],
    tell: Callable[[IngestedBatch], None],
) -> None:
    """Record streams and follow the recordings until this is cancelled.

    On cancellation, the job ends after its batch, and the recordings stop after the job.

    Args:
        streams: Streams to record.
        context: Context of the archive; the job uses its control channel.
        job: Command line of the job, which must end on SIGTERM.
        tell: Called with every batch.

    Raises:
        ArchiveError: A stream cannot be recorded, or the job ended by itself.
    """
    async with (
        Aeron.connect() as aeron,
        await LocalArchive.open(aeron, context) as archive,
        ControlServer(archive, aeron, ControlSettings.of(context)),
    ):
        for each in streams:
            await archive.start_recording(
                each.channel, each.stream_id, source_location=SourceLocation.REMOTE
            )
        known: dict[int, int] = {}
        process = await asyncio.create_subprocess_exec(
            *job,
            stdout=asyncio.subprocess.PIPE,
            limit=LONGEST_LINE,
            # Ctrl-C must reach only this process, which then sends SIGTERM to the job.
            start_new_session=True,
        )
        try:
            await listen(process, archive, known, tell)
            code = await process.wait()
            message = f"the job ended by itself, with code {code}; its output says why"
            raise ArchiveError(message)
        finally:
            await end(process, archive, known, tell)


async def listen(
    process: asyncio.subprocess.Process,
    archive: LocalArchive,
    known: dict[int, int],
    tell: Callable[[IngestedBatch], None],
) -> None:
    """Report every batch until the job closes its output.

    Args:
        process: The job.
        archive: The archive that it reads.
        known: Positions in the lake that reports have named so far, by recording id.
        tell: Called with every batch.
    """
    assert process.stdout is not None
    async for line in process.stdout:
        report = parsed(line)
        if report is not None:
            known |= {int(key): end for key, end in report["positions"].items()}
            is_whole = not report.get("untold")
            found, unknown = await behind(archive, known, is_whole=is_whole)
            tell(IngestedBatch(report, found, unknown))


def parsed(line: bytes) -> dict[str, Any] | None:
    """Parse the report of a batch; return None for any other line."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    is_batch = isinstance(found, dict) and isinstance(found.get("positions"), dict)
    return found if is_batch else None


async def behind(
    archive: LocalArchive, known: dict[int, int], *, is_whole: bool
) -> tuple[dict[int, int], int]:
    """Return how many bytes of each recording are not in the lake yet, and how many are unknown.

    Args:
        archive: The archive.
        known: Positions in the lake by recording id; those of recordings that are gone are removed.
        is_whole: Whether a recording that is not among them is not in the lake at all.
    """
    found, ids = {}, set()
    async for descriptor in archive.recordings():
        ids.add(descriptor.recording_id)
        read = known.get(descriptor.recording_id)
        if read is None and not is_whole:
            continue
        recorded = await archive.max_recorded_position(descriptor.recording_id)
        found[descriptor.recording_id] = max(
            recorded - (descriptor.start_position if read is None else read), 0
        )
    for each in known.keys() - ids:
        del known[each]
    return found, len(ids) - len(found)


async def end(
    process: asyncio.subprocess.Process,
    archive: LocalArchive,
    known: dict[int, int],
    tell: Callable[[IngestedBatch], None],
) -> None:
    """Send SIGTERM to the job and report its last batch; kill it if it does not end."""
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(ENDING_SECONDS):
            await listen(process, archive, known, tell)
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def job_command(archive: str, lake: str, control: str, arguments: Sequence[str]) -> list[str]:
    """Return the command line of the job that follows the recordings."""
    return [
        *(sys.executable, "-m", "aeron_async", "pipeline", "run", archive, lake, "--json"),
        *("--source", "positionSource=control", "--source", f"archive.control.channel={control}"),
        *arguments,
    ]
