"""`aeron-async archive truncate`, `purge` and `prune`: take away what was recorded."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from aeron_async.archive.context import ArchiveContext
from aeron_async.archive.disk.changes import check_new_start
from aeron_async.archive.disk.checksums import checksum_named
from aeron_async.archive.disk.frame_places import check_position
from aeron_async.archive.disk.looking import ArchiveLook
from aeron_async.archive.disk.plain_files import check_segments_are_plain
from aeron_async.archive.disk.retention import Expired, Retention, expired_segments
from aeron_async.archive.disk.segments import segment_bases
from aeron_async.cli.archive_bar import progress_bar
from aeron_async.cli.archive_where import is_elsewhere, listed, opened
from aeron_async.cli.consent import ask, check_can_ask
from aeron_async.cli.figures import plural
from aeron_async.cli.options import Flag, Positive, RecordingId, RunOptions, Size
from aeron_async.cli.output import print_json, print_line, remark
from aeron_async.cli.runner import ExitCode, run
from aeron_async.errors import ConfigurationError
from aeron_async.text import SHORT, printable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aeron_async.archive.api import Archive
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import OsDirectory

__all__ = ["prune", "purge", "truncate"]

MS_PER_SECOND: Final = 1_000
NS_PER_MS: Final = 1_000_000


def truncate(
    where: str,
    recording_id: RecordingId,
    position: Size,
    /,
    *,
    yes: Flag = False,
    dry_run: Flag = False,
    options: RunOptions | None = None,
) -> int:
    """Forget what was recorded after a position.

    Args:
        where: Directory of an archive, or the control channel of one that is running.
        recording_id: Of a recording that has stopped.
        position: Where a frame begins; the error names the nearest one.
        yes: Do not ask.
        dry_run: Only say what would go.
        options: How to run.
    """
    check_can_ask(yes=yes, dry_run=dry_run, what="forget what was recorded")
    main = _truncate(where, recording_id, position, yes=yes, is_dry=dry_run)
    return run(main, options or RunOptions())


@asynccontextmanager
async def opened_or_seen(where: str, *, is_dry: bool) -> AsyncIterator[Any]:
    """Give an archive for as long as the block lasts; a dry run of a directory only looks.

    Opening a directory would end what has no end, cut off torn frames and write the mark file.
    """
    if is_elsewhere(where) or not is_dry:
        async with opened(where) as (_, archive):
            yield archive
        return
    checksum = checksum_named(ArchiveContext.from_environment(directory=where).record_checksum)
    now_ms = time.time_ns() // NS_PER_MS
    async with ArchiveLook(listed(where), now_ms=now_ms, checksum=checksum) as look:
        yield look


def check_can_go(
    where: str, descriptor: RecordingDescriptor, *, end: int, before: int | None = None
) -> None:
    """Refuse what could not be taken away, before it is asked about; only of a directory.

    Args:
        where: The archive.
        descriptor: Of the recording.
        end: Where it ends, in bytes.
        before: What lies before this is to go; None for whatever else.

    Raises:
        ArchiveFileError: Something else than a plain file has the name of a segment.
        InvalidPositionError: No file begins there that could be the first.
    """
    if is_elsewhere(where):
        return
    check_segments_are_plain(listed(where), descriptor.recording_id)
    if before is not None and before != descriptor.start_position:
        check_new_start(descriptor, before, end)


async def _truncate(
    where: str, recording_id: int, position: int, *, yes: bool, is_dry: bool
) -> int:
    async with opened_or_seen(where, is_dry=is_dry) as archive:
        descriptor = await archive.describe(recording_id)
        end = await archive.max_recorded_position(recording_id)
        check_can_go(where, descriptor, end=end)
        if not is_elsewhere(where):
            check_position(listed(where), descriptor, position, end=end)
        gone = forgotten(descriptor, max(position, descriptor.start_position), end)
        if is_dry:
            print_line(f"would forget {gone}")
            return ExitCode.SUCCESS
        if not await ask(f"Forget {gone}?", yes=yes):
            return ExitCode.FAILURE
        count = await archive.truncate(recording_id, position)
        print_line(
            f"recording {recording_id} ends at position {position} now; removed "
            f"{plural(count, 'file')}"
        )
    return ExitCode.SUCCESS


def purge(
    where: str,
    recording_id: RecordingId,
    /,
    *,
    before: Size | None = None,
    yes: Flag = False,
    dry_run: Flag = False,
    options: RunOptions | None = None,
) -> int:
    """Forget a recording, or with --before only whole files at its beginning.

    Args:
        where: Directory of an archive, or the control channel of one that is running.
        recording_id: Of the recording; its id is never used again.
        before: Where one of its files begins, which becomes the first.
        yes: Do not ask.
        dry_run: Only say what would go.
        options: How to run.
    """
    check_can_ask(yes=yes, dry_run=dry_run, what="forget what was recorded")
    main = _purge(where, recording_id, before, yes=yes, is_dry=dry_run)
    return run(main, options or RunOptions())


async def _purge(
    where: str, recording_id: int, before: int | None, *, yes: bool, is_dry: bool
) -> int:
    async with opened_or_seen(where, is_dry=is_dry) as archive:
        descriptor = await archive.describe(recording_id)
        end = await archive.max_recorded_position(recording_id)
        check_can_go(where, descriptor, end=end, before=before)
        if before is None:
            gone = f"{forgotten(descriptor, descriptor.start_position, end)}, and its entry"
        else:
            gone = forgotten(descriptor, descriptor.start_position, min(before, end))
        if is_dry:
            print_line(f"would forget {gone}")
            return ExitCode.SUCCESS
        if not await ask(f"Forget {gone}?", yes=yes):
            return ExitCode.FAILURE
        if before is None:
            count = await archive.purge_recording(recording_id)
            print_line(f"recording {recording_id} is gone; removed {plural(count, 'file')}")
        else:
            count = await archive.purge_segments(recording_id, before)
            print_line(
                f"recording {recording_id} begins at position {before} now; removed "
                f"{plural(count, 'file')}"
            )
    return ExitCode.SUCCESS


def forgotten(descriptor: RecordingDescriptor, start: int, end: int) -> str:
    """Return in words what goes of a recording."""
    return (
        f"{plural(max(0, end - start), 'byte')} of recording {descriptor.recording_id}, positions "
        f"{start} to {max(start, end)} of stream {descriptor.stream_id} on "
        f"{printable(descriptor.original_channel, SHORT)}"
    )


def prune(
    where: str,
    /,
    *,
    recording: RecordingId | None = None,
    max_age: Positive | None = None,
    max_bytes: Size | None = None,
    before: Size | None = None,
    yes: Flag = False,
    dry_run: Flag = False,
    json: Flag = False,
    options: RunOptions | None = None,
) -> int:
    """Forget whole files at the beginning of recordings that are too old, or too much.

    A file goes when any of the limits lets it go; the last file of a recording never does.

    Args:
        where: Directory of an archive that is not at work, or the control channel of one that is.
        recording: Only this one.
        max_age: Files that were last written to so many seconds ago may go; of a directory only.
        max_bytes: So much of each recording is kept.
        before: What lies before this position may go.
        yes: Do not ask.
        dry_run: Only say what would go.
        json: One JSON object a line.
        options: How to run.
    """
    if max_age is None and max_bytes is None and before is None:
        message = "nothing says what may go: give --max-age, --max-bytes or --before"
        raise ConfigurationError(message)
    if max_age is not None and is_elsewhere(where):
        message = (
            "--max-age goes by the times of files, which no archive tells over its control "
            "channel: give its directory, or --max-bytes or --before"
        )
        raise ConfigurationError(message)
    check_can_ask(yes=yes, dry_run=dry_run, what="remove files of recordings")
    age_ms = None if max_age is None else int(max_age * MS_PER_SECOND)
    retention = Retention(max_age_ms=age_ms, max_bytes=max_bytes, before_position=before)
    main = _prune(where, retention, recording, yes=yes, is_dry=dry_run, is_json=json)
    return run(main, options or RunOptions())


async def _prune(
    where: str, retention: Retention, only: int | None, *, yes: bool, is_dry: bool, is_json: bool
) -> int:
    place = None if is_elsewhere(where) else listed(where)
    async with opened_or_seen(where, is_dry=is_dry) as archive:
        if only is None:
            found = [each async for each in archive.recordings()]
        else:
            found = [await archive.describe(only)]
        goes: list[tuple[int, Expired]] = []
        with progress_bar("looking at recordings", len(found)) as advance:
            for looked_at, descriptor in enumerate(found):
                advance(looked_at)
                end = await archive.max_recorded_position(descriptor.recording_id)
                now_ms = time.time_ns() // NS_PER_MS
                expired = expired_segments(place, descriptor, retention, now_ms=now_ms, end=end)
                if expired is not None and expired.bases:
                    goes.append((descriptor.recording_id, expired))
        if not goes:
            remark(f"nothing may go: {why_nothing(place, found)}")
            return ExitCode.SUCCESS
        if not is_dry:
            count = sum(len(expired.bases) for _, expired in goes)
            what = f"{plural(count, 'file')} of {plural(len(goes), 'recording')}"
            if not await ask(f"Remove {what}?", yes=yes):
                return ExitCode.FAILURE
        for recording_id, expired in goes:
            await _prune_one(archive, recording_id, expired, is_dry=is_dry, is_json=is_json)
    return ExitCode.SUCCESS


def why_nothing(place: OsDirectory | None, found: list[RecordingDescriptor]) -> str:
    """Return why no file of those recordings may go."""
    if not found:
        return "there are no recordings"
    names = None if place is None else place.names()
    if names and all(len(segment_bases(names, each.recording_id)) <= 1 for each in found):
        return "no recording has more than one file, and the last one of each never goes"
    return "all files are within the limits, and the last one of each recording never goes"


async def _prune_one(
    archive: Archive, recording_id: int, expired: Expired, *, is_dry: bool, is_json: bool
) -> None:
    """Let go of what may go of one recording, and say so."""
    count = len(expired.bases)
    if not is_dry:
        count = await archive.purge_segments(recording_id, expired.new_start_position)
    if is_json:
        print_json(
            {
                "recording_id": recording_id,
                "start_position": expired.new_start_position,
                "files": count,
                "is_done": not is_dry,
            }
        )
        return
    verb = "would remove" if is_dry else "removed"
    print_line(
        f"recording {recording_id} begins at position {expired.new_start_position}; {verb} "
        f"{plural(count, 'file')}"
    )
