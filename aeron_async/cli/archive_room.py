"""Commands `aeron-async archive truncate`, `purge` and `prune`: remove recorded data."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from aeron_async.archive.context import ArchiveContext
from aeron_async.archive.disk.archive_look import ArchiveLook
from aeron_async.archive.disk.changes import (
    Expired,
    Retention,
    check_new_start,
    check_segments_are_plain,
    expired_segments,
)
from aeron_async.archive.disk.checksums import checksum_named
from aeron_async.archive.disk.recording_reader import check_position
from aeron_async.archive.disk.segments import segment_bases
from aeron_async.cli.archive_where import is_elsewhere, listed, opened, progress_bar
from aeron_async.cli.figures import plural
from aeron_async.cli.options import ClientOptions, Flag, Positive, RecordingId, Size
from aeron_async.cli.output import print_json, print_line, remark
from aeron_async.cli.runner import ExitCode, run
from aeron_async.cli.stdio import ask, check_can_ask
from aeron_async.clock import NS_PER_MS
from aeron_async.errors import ArchiveError, ConfigurationError
from aeron_async.text import SHORT, printable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aeron_async.archive.api import Archive
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import OsDirectory

__all__ = ["prune", "purge", "truncate"]

MS_PER_SECOND: Final = 1_000


def truncate(
    where: str,
    recording_id: RecordingId,
    position: Size,
    /,
    *,
    yes: Flag = False,
    dry_run: Flag = False,
    options: ClientOptions | None = None,
) -> int:
    """Remove what was recorded from a position on.

    Args:
        where: Directory of an archive, or the control channel of a running archive.
        recording_id: Id of a stopped recording.
        position: Where a frame begins; the error names the nearest one.
        yes: Do not ask.
        dry_run: Only say what would be removed.
        options: How to run.
    """
    check_can_ask(yes=yes, dry_run=dry_run, what="remove recorded data")
    options = options or ClientOptions()
    main = _truncate(
        where, recording_id, position, aeron_dir=options.aeron_dir, yes=yes, is_dry=dry_run
    )
    return run(main, options)


@asynccontextmanager
async def seen(where: str, aeron_dir: str | None) -> AsyncIterator[Any]:
    """Yield a view of an archive that changes no file.

    Opening an archive in a directory would set the ends of unfinished recordings, cut off torn
    frames and write the mark file. That happens only after consent, in `changeable`.
    """
    if is_elsewhere(where):
        async with opened(where, aeron_dir=aeron_dir) as (_, archive):
            yield archive
        return
    checksum = checksum_named(ArchiveContext.from_environment(directory=where).record_checksum)
    now_ms = time.time_ns() // NS_PER_MS
    async with ArchiveLook(listed(where), now_ms=now_ms, checksum=checksum) as look:
        yield look


@asynccontextmanager
async def changeable(where: str, aeron_dir: str | None, looked_at: Any) -> AsyncIterator[Archive]:
    """Yield the archive for changes; a running archive is the one already connected."""
    if is_elsewhere(where):
        yield looked_at
        return
    async with opened(where, aeron_dir=aeron_dir) as (_, archive):
        yield archive


async def check_ends(archive: Archive, recording_id: int, end: int) -> None:
    """Refuse to remove more than was agreed to: the archive is not locked while the user is asked.

    Raises:
        ArchiveError: The end of the recording has changed.
    """
    found = await archive.max_recorded_position(recording_id)
    if found != end:
        message = (
            f"recording {recording_id} ends at position {found}, but ended at {end} when you were "
            "asked: nothing was removed, so look again"
        )
        raise ArchiveError(message)


def check_can_go(
    where: str, descriptor: RecordingDescriptor, *, end: int, before: int | None = None
) -> None:
    """Refuse before asking what the removal would refuse later; only for a directory.

    Args:
        where: The archive.
        descriptor: The recording.
        end: End of the recording, in bytes.
        before: New start position; None if the start stays.

    Raises:
        ArchiveFileError: Something other than a plain file has the name of a segment.
        InvalidPositionError: No segment begins at `before`.
    """
    if is_elsewhere(where):
        return
    check_segments_are_plain(listed(where), descriptor.recording_id)
    if before is not None and before != descriptor.start_position:
        check_new_start(descriptor, before, end)


async def _truncate(
    where: str, recording_id: int, position: int, *, aeron_dir: str | None, yes: bool, is_dry: bool
) -> int:
    async with seen(where, aeron_dir) as look:
        descriptor = await look.describe(recording_id)
        end = await look.max_recorded_position(recording_id)
        check_can_go(where, descriptor, end=end)
        if not is_elsewhere(where):
            check_position(listed(where), descriptor, position, end=end)
        gone = forgotten(descriptor, max(position, descriptor.start_position), end)
        if is_dry:
            print_line(f"would forget {gone}")
            return ExitCode.SUCCESS
        if not await ask(f"Forget {gone}?", yes=yes):
            return ExitCode.FAILURE
        async with changeable(where, aeron_dir, look) as archive:
            await check_ends(archive, recording_id, end)
            count = await archive.truncate(recording_id, position)
    print_line(
        f"recording {recording_id} ends at position {position} now; removed {plural(count, 'file')}"
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
    options: ClientOptions | None = None,
) -> int:
    """Remove a recording, or with --before only whole files at its beginning.

    Args:
        where: Directory of an archive, or the control channel of a running archive.
        recording_id: Id of the recording; it is never used again.
        before: Where one of its files begins, which becomes the first.
        yes: Do not ask.
        dry_run: Only say what would be removed.
        options: How to run.
    """
    check_can_ask(yes=yes, dry_run=dry_run, what="remove recorded data")
    options = options or ClientOptions()
    main = _purge(where, recording_id, before, aeron_dir=options.aeron_dir, yes=yes, is_dry=dry_run)
    return run(main, options)


async def _purge(
    where: str,
    recording_id: int,
    before: int | None,
    *,
    aeron_dir: str | None,
    yes: bool,
    is_dry: bool,
) -> int:
    async with seen(where, aeron_dir) as look:
        descriptor = await look.describe(recording_id)
        end = await look.max_recorded_position(recording_id)
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
        async with changeable(where, aeron_dir, look) as archive:
            if before is None:
                await check_ends(archive, recording_id, end)
                count = await archive.purge_recording(recording_id)
                done = "is gone"
            else:
                count = await archive.purge_segments(recording_id, before)
                done = f"begins at position {before} now"
    print_line(f"recording {recording_id} {done}; removed {plural(count, 'file')}")
    return ExitCode.SUCCESS


def forgotten(descriptor: RecordingDescriptor, start: int, end: int) -> str:
    """Return a description of the data that would be removed."""
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
    options: ClientOptions | None = None,
) -> int:
    """Remove whole files at the beginning of recordings that are too old or too long.

    A file is removed if any of the limits allows it; the last file of a recording always stays.

    Args:
        where: Directory of an archive that is not running, or the control channel of a running one.
        recording: Only this recording.
        max_age: Remove files not written to for so many seconds; only with a directory.
        max_bytes: Keep so many bytes of each recording.
        before: Remove files that lie before this position.
        yes: Do not ask.
        dry_run: Only say what would be removed.
        json: One JSON object a line.
        options: How to run.
    """
    if max_age is None and max_bytes is None and before is None:
        message = "give --max-age, --max-bytes or --before, to say what may be removed"
        raise ConfigurationError(message)
    if max_age is not None and is_elsewhere(where):
        message = (
            "--max-age needs the times of files, which archives do not send over the control "
            "channel: give its directory, or --max-bytes or --before"
        )
        raise ConfigurationError(message)
    check_can_ask(yes=yes, dry_run=dry_run, what="remove files of recordings")
    age_ms = None if max_age is None else int(max_age * MS_PER_SECOND)
    retention = Retention(max_age_ms=age_ms, max_bytes=max_bytes, before_position=before)
    options = options or ClientOptions()
    main = _prune(
        where,
        retention,
        recording,
        aeron_dir=options.aeron_dir,
        yes=yes,
        is_dry=dry_run,
        is_json=json,
    )
    return run(main, options)


async def _prune(
    where: str,
    retention: Retention,
    only: int | None,
    *,
    aeron_dir: str | None,
    yes: bool,
    is_dry: bool,
    is_json: bool,
) -> int:
    place = None if is_elsewhere(where) else listed(where)
    async with seen(where, aeron_dir) as look:
        goes, found = await _expired(look, place, retention, only)
        if not goes:
            remark(f"nothing to remove: {why_nothing(place, found)}")
            return ExitCode.SUCCESS
        if is_dry:
            for recording_id, expired in goes:
                say_pruned(recording_id, expired, len(expired.bases), is_dry=True, is_json=is_json)
            return ExitCode.SUCCESS
        files = sum(len(expired.bases) for _, expired in goes)
        what = f"{plural(files, 'file')} of {plural(len(goes), 'recording')}"
        if not await ask(f"Remove {what}?", yes=yes):
            return ExitCode.FAILURE
        async with changeable(where, aeron_dir, look) as archive:
            for recording_id, expired in goes:
                count = await archive.purge_segments(recording_id, expired.new_start_position)
                say_pruned(recording_id, expired, count, is_dry=False, is_json=is_json)
    return ExitCode.SUCCESS


async def _expired(
    look: Any, place: OsDirectory | None, retention: Retention, only: int | None
) -> tuple[list[tuple[int, Expired]], list[RecordingDescriptor]]:
    """Return the expired files by recording, and all recordings that were examined."""
    if only is None:
        found = [each async for each in look.recordings()]
    else:
        found = [await look.describe(only)]
    goes: list[tuple[int, Expired]] = []
    with progress_bar("looking at recordings", len(found)) as advance:
        for looked_at, descriptor in enumerate(found):
            advance(looked_at)
            end = await look.max_recorded_position(descriptor.recording_id)
            now_ms = time.time_ns() // NS_PER_MS
            expired = expired_segments(place, descriptor, retention, now_ms=now_ms, end=end)
            if expired is not None and expired.bases:
                goes.append((descriptor.recording_id, expired))
    return goes, found


def why_nothing(place: OsDirectory | None, found: list[RecordingDescriptor]) -> str:
    """Return why none of these recordings has a file to remove."""
    if not found:
        return "there are no recordings"
    names = None if place is None else place.names()
    if names and all(len(segment_bases(names, each.recording_id)) <= 1 for each in found):
        return "no recording has more than one file, and the last one of each is never removed"
    return "all files are within the limits, and the last one of each recording is never removed"


def say_pruned(
    recording_id: int, expired: Expired, count: int, *, is_dry: bool, is_json: bool
) -> None:
    """Print what was removed of one recording, or would be."""
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
