"""Live streams into a lake: an archive that records them here, and a job beside it that follows.

The job is a process of its own, so that a long batch never makes the recorder late. It asks the
archive over its control channel how far recordings have come, and says after each batch how far it
is; the difference is the lag.
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

__all__ = ["IngestedBatch", "LiveStream", "ingest", "job_command"]

LONGEST_LINE: Final = 1 << 20
ENDING_SECONDS: Final = 120
"""A batch may take so long to end."""


@final
@attrs.frozen
class LiveStream:
    """A stream to be recorded."""

    channel: str
    stream_id: int


@final
@attrs.frozen
class IngestedBatch:
    """What the job said of a batch, and how far recordings had come by then.

    Attributes:
        report: As `pipeline run --json` writes it.
        behind: Bytes that are recorded and not in the lake, by recording id.
    """

    report: dict[str, Any]
    behind: dict[int, int]


async def ingest(
    streams: Sequence[LiveStream],
    context: ArchiveContext,
    job: Sequence[str],
    tell: Callable[[IngestedBatch], None],
) -> None:
    """Record streams and follow the recordings, until this is cancelled; then end both in order.

    The job ends after its batch, and recordings then.

    Args:
        streams: What to record.
        context: Of the archive; its control channel is where the job asks.
        job: The program to run beside, which ends on SIGTERM.
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
        process = await asyncio.create_subprocess_exec(
            *job,
            stdout=asyncio.subprocess.PIPE,
            limit=LONGEST_LINE,
            # Ctrl-C is for this process, which tells that one when to end.
            start_new_session=True,
        )
        try:
            await listen(process, archive, tell)
            code = await process.wait()
            message = f"the job ended by itself, with code {code}; it has said why"
            raise ArchiveError(message)
        finally:
            await end(process, archive, tell)


async def listen(
    process: asyncio.subprocess.Process,
    archive: LocalArchive,
    tell: Callable[[IngestedBatch], None],
) -> None:
    """Tell of every batch, until the job says no more."""
    assert process.stdout is not None
    async for line in process.stdout:
        report = parsed(line)
        if report is not None:
            tell(IngestedBatch(report, await behind(archive, report["positions"])))


def parsed(line: bytes) -> dict[str, Any] | None:
    """Return the report of a batch; None for any other line."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    is_batch = isinstance(found, dict) and isinstance(found.get("positions"), dict)
    return found if is_batch else None


async def behind(archive: LocalArchive, positions: dict[str, int]) -> dict[int, int]:
    """Return how many bytes of each recording are not in the lake yet."""
    found = {}
    async for descriptor in archive.recordings():
        recorded = await archive.max_recorded_position(descriptor.recording_id)
        read = positions.get(str(descriptor.recording_id), descriptor.start_position)
        found[descriptor.recording_id] = max(recorded - read, 0)
    return found


async def end(
    process: asyncio.subprocess.Process,
    archive: LocalArchive,
    tell: Callable[[IngestedBatch], None],
) -> None:
    """Let the job end after its batch, and tell of that; a job that does not end is ended."""
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(ENDING_SECONDS):
            await listen(process, archive, tell)
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def job_command(archive: str, lake: str, control: str, arguments: Sequence[str]) -> list[str]:
    """Return the program that follows the recordings."""
    return [
        *(sys.executable, "-m", "aeron_async", "pipeline", "run", archive, lake, "--json"),
        *("--source", "positionSource=control", "--source", f"archive.control.channel={control}"),
        *arguments,
    ]
