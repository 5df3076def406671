"""Commands `aeron-async archive verify` and `repair`: check and mend the files of an archive."""

from __future__ import annotations

import time
from pathlib import Path  # noqa: TC003 - cyclopts reads annotations at run time
from typing import TYPE_CHECKING, Literal

import attrs

from aeron_async.archive.disk.archive_look import check_not_at_work
from aeron_async.archive.disk.catalog import Catalog
from aeron_async.archive.disk.checksums import checksum_named
from aeron_async.archive.disk.mark_file import MarkFile, MarkIdentity
from aeron_async.archive.disk.repair import Repair, Unrepairable
from aeron_async.archive.disk.repair import repair as mend
from aeron_async.archive.disk.verify import Finding, Progress, Severity
from aeron_async.archive.disk.verify import verify as walk
from aeron_async.cli.archive_where import listed, progress_bar
from aeron_async.cli.figures import plural
from aeron_async.cli.options import Flag  # noqa: TC001 - as above
from aeron_async.cli.output import print_json, print_line, remark
from aeron_async.cli.runner import ExitCode
from aeron_async.cli.stdio import ask_at_once, can_ask
from aeron_async.clock import NS_PER_MS
from aeron_async.errors import ArchiveFileError, ConfigurationError

if TYPE_CHECKING:
    from aeron_async.archive.disk.files import Directory, OsDirectory

__all__ = ["repair", "verify"]

Checksum = Literal["none", "crc32", "crc32c"]


def verify(directory: Path, /, *, checksum: Checksum = "none", json: Flag = False) -> int:
    """Check every frame of every recording against the catalog; exit with 1 if anything is wrong.

    Nothing is changed, and the archive may be running.

    Args:
        directory: Directory of an archive, ours or the official one.
        checksum: Checksum that the archive puts into frames and catalog entries.
        json: One JSON object a line for each finding.
    """
    place = listed(directory)
    problems = 0
    begun: dict[int, int] = {}
    last: dict[int, int] = {}
    with progress_bar("verifying", recorded_length(place)) as advance:
        for each in walk(place, checksum=checksum_named(checksum)):
            if isinstance(each, Progress):
                begun.setdefault(each.recording_id, each.position)
                last[each.recording_id] = each.position
                advance(sum(last.values()) - sum(begun.values()))
                continue
            problems += each.severity is Severity.PROBLEM
            tell(each, is_json=json)
    remark("nothing is wrong" if not problems else f"problems: {problems}")
    return ExitCode.FAILURE if problems else ExitCode.SUCCESS


def repair(
    directory: Path,
    /,
    *,
    yes: Flag = False,
    dry_run: Flag = False,
    checksum: Checksum = "none",
    json: Flag = False,
) -> int:
    """List what can be mended in an archive, and mend it after consent.

    On a terminal the command asks for consent, elsewhere it needs --yes. A changed file is kept as
    NAME.before-repair.

    For damage that cannot be mended, the command names the commands that give up part of a
    recording.

    Args:
        directory: Directory of an archive that is not running.
        yes: Mend without asking.
        dry_run: Only list what can be mended; this is the default where there is no terminal.
        checksum: Checksum that the archive puts into frames and catalog entries.
        json: One JSON object a line.
    """
    if yes and dry_run:
        message = "--yes and --dry-run contradict each other: give one"
        raise ConfigurationError(message)
    place = listed(directory)
    is_done = yes
    count = damages = 0
    if not yes:
        # Without consent nothing is written, so the directory is not locked.
        is_whole = check_not_at_work(place, now_ms=time.time_ns() // NS_PER_MS)
        count, damages = mend_all(place, checksum, consent=False, is_whole=is_whole, is_json=json)
        if count and not dry_run and can_ask():
            is_done = ask_at_once(f"Repair {plural(count, 'thing')}?")
    if is_done:
        count, damages = mend_held(place, checksum, is_json=json)
    if not count:
        remark("nothing needs repair" if not damages else "nothing here can be repaired")
    elif not is_done:
        remark("nothing was changed: add --yes to repair it")
    if damages:
        remark(f"not repaired, for you to decide: {damages}")
    return ExitCode.SUCCESS if not damages and (is_done or not count) else ExitCode.FAILURE


def mend_held(place: OsDirectory, checksum: Checksum, *, is_json: bool) -> tuple[int, int]:
    """Lock the directory and mend; return how much was mended, and how much cannot be."""
    mark = MarkFile.open(place, MarkIdentity(), now_ms=time.time_ns() // NS_PER_MS)
    try:
        is_whole = mark.ends_are_whole
        return mend_all(place, checksum, consent=True, is_whole=is_whole, is_json=is_json)
    finally:
        mark.close()


def mend_all(
    place: OsDirectory, checksum: Checksum, *, consent: bool, is_whole: bool, is_json: bool
) -> tuple[int, int]:
    """List what can be mended, and mend it with consent; return the mendable and other counts."""
    count = damages = 0
    with progress_bar("looking at recordings", recording_count(place)) as advance:
        repairs = mend(
            place,
            consent=consent,
            now_ms=time.time_ns() // NS_PER_MS,
            checksum=checksum_named(checksum),
            ends_are_whole=is_whole,
            on_looked_at=advance,
        )
        for each in repairs:
            is_mended = isinstance(each, Repair)
            count += is_mended
            damages += not is_mended
            if is_json:
                print_json(as_json(each, is_done=consent))
            else:
                print_line(str(each))
    return count, damages


def as_json(each: Repair | Unrepairable, *, is_done: bool) -> dict[str, object]:
    """Return the JSON object for a repair, or for damage that cannot be mended."""
    if isinstance(each, Repair):
        return attrs.asdict(each) | {"kind": each.kind.value, "is_done": is_done}
    return attrs.asdict(each) | {"kind": "not mended", "is_done": False}


def tell(finding: Finding, *, is_json: bool) -> None:
    """Print one finding."""
    if is_json:
        print_json(attrs.asdict(finding) | {"severity": finding.severity.value})
    else:
        print_line(str(finding))


def recording_count(directory: Directory) -> int:
    """Return the number of recordings; 0 if the catalog cannot be read."""
    try:
        catalog = Catalog.open_to_read(directory)
    except (ArchiveFileError, FileNotFoundError):
        return 0
    try:
        return len(catalog)
    finally:
        catalog.close()


def recorded_length(directory: Directory) -> int:
    """Return the number of recorded bytes; 0 if the catalog cannot be read."""
    try:
        catalog = Catalog.open_to_read(directory)
    except ArchiveFileError:
        return 0
    try:
        found = [catalog.get(each) for each in catalog.ids()]
    except ArchiveFileError:
        return 0
    finally:
        catalog.close()
    return sum(max(0, each.stop_position - each.start_position) for each in found)
