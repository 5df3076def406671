"""What `repair` does not mend, and what whoever runs the archive can do about it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import attrs

from aeron_async.archive.disk.catalog_file import CATALOG_NAME
from aeron_async.archive.disk.changes import base_of
from aeron_async.archive.disk.segments import segment_name
from aeron_async.archive.disk.verify import Finding, Severity, verify_recording

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aeron_async.archive.disk.checksums import Checksum
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import Directory
    from aeron_async.archive.disk.segment_scan import ScanBuffer
    from aeron_async.errors import ArchiveFileError

__all__ = ["Unmended", "damaged_entry", "find_damage", "misplaced_file", "unknown"]


@attrs.frozen(kw_only=True)
class Unmended:
    """One thing that is wrong, and stays so until somebody decides what is to be lost.

    Attributes:
        file: Where it is.
        offset: Where in that, in bytes.
        what: What is wrong, in words.
        recording_id: Of which recording.
        position: Up to where that can be read, in bytes; None where nobody knows.
        advice: What can be done, in words.
        commands: Which do so, one of them; none where no command does.
    """

    file: str
    offset: int
    what: str
    recording_id: int
    advice: str
    position: int | None = None
    commands: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.file}, offset {self.offset}: {self.what}; not mended: {self.advice}"


def find_damage(
    directory: Directory,
    descriptor: RecordingDescriptor,
    bases: list[int],
    checksum: Checksum | None,
    buffer: ScanBuffer,
) -> Iterator[Unmended]:
    """Yield what cannot be read of a recording between its start and its stop, once for all.

    Args:
        directory: Of the archive.
        descriptor: Of the recording, with the end that it has, or is about to get.
        bases: Where its files begin.
        checksum: Of data frames; None for none.
        buffer: To read into.
    """
    found = [
        (each, each.position)
        for each in verify_recording(directory, descriptor, bases, checksum, buffer)
        if isinstance(each, Finding)
        and each.severity is Severity.PROBLEM
        and each.position is not None
    ]
    if not found:
        return
    first, position = found[0]
    position = max(position, descriptor.start_position)
    last = max(position for _, position in found)
    going_on = [each for each in bases if base_of(descriptor, last) < each]
    going_on = [each for each in going_on if each <= base_of(descriptor, descriptor.stop_position)]
    what = first.what if len(found) == 1 else f"{first.what} (and {len(found) - 1} more like this)"
    ways = ways_out(directory, descriptor, position, min(going_on, default=None))
    advice = ", ".join(f"`{command}` {effect}" for command, effect in ways)
    yield Unmended(
        file=first.file,
        offset=first.offset,
        what=what,
        recording_id=descriptor.recording_id,
        position=position,
        advice=f"recording {descriptor.recording_id} is good up to position {position}; {advice}",
        commands=tuple(command for command, _ in ways),
    )


def ways_out(
    directory: Directory, descriptor: RecordingDescriptor, position: int, base: int | None
) -> list[tuple[str, str]]:
    """Return commands, and what each does.

    Args:
        directory: Of the archive.
        descriptor: Of the recording.
        position: Up to where it is good.
        base: Where a file begins behind all damage; None if none does.
    """
    place, recording_id = shlex.quote(directory.path), descriptor.recording_id
    ways = []
    if position > descriptor.start_position:
        command = f"aeron-async archive truncate {place} {recording_id} {position}"
        ways.append((command, "keeps what lies before"))
    if base is not None:
        command = f"aeron-async archive purge {place} {recording_id} --before {base}"
        ways.append((command, "keeps what lies behind"))
    ways.append((f"aeron-async archive purge {place} {recording_id}", "removes all of it"))
    return ways


def misplaced_file(descriptor: RecordingDescriptor, base: int, first: int) -> Unmended:
    """Return that a file begins where none of a recording can."""
    recording_id = descriptor.recording_id
    return Unmended(
        file=segment_name(recording_id, base),
        offset=0,
        what=(
            f"a file that begins at {base}, and the files of recording {recording_id} begin every "
            f"{descriptor.segment_length} bytes from {first} on"
        ),
        recording_id=recording_id,
        advice="move it out of the directory, for it cannot be one of its files",
    )


def damaged_entry(error: ArchiveFileError, recording_id: int) -> Unmended:
    """Return that the catalog does not tell what a recording is."""
    return unknown(str(error).split(": ", 1)[-1], error.offset, recording_id)


def unknown(what: str, offset: int, recording_id: int) -> Unmended:
    """Return that something of the catalog is wrong, and nothing else tells what it should be."""
    return Unmended(
        file=CATALOG_NAME,
        offset=offset,
        what=what,
        recording_id=recording_id,
        advice=f"nothing else says what recording {recording_id} is; a copy of the catalog might",
    )
