"""Repair of what a crash leaves of an archive: a plan of changes, and copies before each.

`repair` mends four things: a next recording id that is used already, a recording without a stop
position, a stop position that its files do not reach, and a segment that is too short but lacks no
frame. It reports everything else that is wrong as `Unrepairable`, and leaves it as it is. No frame
before a damaged one is ever lost. Frames behind a damaged one are lost only in the last file, and
only if there are zeros where the damaged one should be, or the recording has no stop position.

A copy of every changed file stays, as `<name>.before-repair`.

A segment that lacks frames stays as short as it is. With zeros in place of the missing bytes, a
last frame that is only partly there would look whole, and be replayed.

A crash leaves zeros, or frames whose headers agree with their place. So a frame that is right
except for its stream and initial term shows a damaged catalog entry, or a file that came from
elsewhere (`find_contradiction`); it does not show where the recording ends.

Differs: Aeron checks lengths only, and takes any data with a plausible length for a frame.

Source: Aeron `ArchiveTool.verify`, which asks before it truncates.
"""

from __future__ import annotations

import shlex
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final, final

import attrs

from aeron_async.archive.disk.catalog import (
    CATALOG_NAME,
    NEXT_ID_OFFSET,
    Catalog,
    read_header,
    scan_entries,
)
from aeron_async.archive.disk.checksums import ChecksumTally
from aeron_async.archive.disk.descriptor import ENTRY_HEADER_LENGTH, RecordingState
from aeron_async.archive.disk.files import read_exactly, write_all
from aeron_async.archive.disk.recovery import (
    StreamIdentity,
    contradiction_of,
    segments_by_recording,
    stream_of,
    stream_told,
)
from aeron_async.archive.disk.segment_scan import HEADER_LENGTH, Problem, ScanBuffer, check_frames
from aeron_async.archive.disk.segments import segment_name, term_base
from aeron_async.archive.disk.tail_scan import clear_behind, find_following, find_frames_end
from aeron_async.archive.disk.verify import (
    Finding,
    Severity,
    descriptor_of,
    find_lost_entry,
    mtu_problem,
    time_problem,
    verify_recording,
)
from aeron_async.errors import ArchiveFileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aeron_async.archive.disk.checksums import Checksum
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import Directory, File

__all__ = [
    "COPY_SUFFIX",
    "Repair",
    "RepairKind",
    "Unrepairable",
    "damaged_entry",
    "find_contradiction",
    "find_damage",
    "keep_copy",
    "misplaced_file",
    "plan_repairs",
    "repair",
    "truncated_segments",
    "unknown",
]

# Copies.

COPY_SUFFIX: Final = ".before-repair"


def keep_copy(directory: Directory, name: str) -> str:
    """Copy a file, without filling its holes, to an unused name; return that name."""
    names = set(directory.names())
    copy, number = name + COPY_SUFFIX, 1
    while copy in names:
        number += 1
        copy = f"{name}{COPY_SUFFIX}.{number}"
    source = directory.open_to_read(name)
    try:
        target = directory.open(copy, exclusive=True)
        try:
            copy_file(source, target)
        finally:
            target.close()
    finally:
        source.close()
    directory.sync()
    return copy


def copy_file(source: File, target: File) -> None:
    """Copy a file in pieces, except pieces that are all zeros."""
    length = source.length()
    target.set_length(length)
    buffer = memoryview(bytearray(1 << 16))
    offset = 0
    while offset < length:
        count = read_exactly(source, buffer, offset)
        if count == 0:
            break
        if any(buffer[:count]):
            write_all(target, [buffer[:count]], offset)
        offset += count
    target.sync(metadata=True)


# Segments that are too short.


def truncated_segments(
    directory: Directory,
    descriptor: RecordingDescriptor,
    bases: list[int],
    end: int,
    buffer: ScanBuffer,
) -> Iterator[tuple[str, int]]:
    """Yield the name and the length of each file that may be extended with zeros.

    Args:
        directory: Directory of the archive.
        descriptor: Descriptor of the recording.
        bases: Base positions of its files.
        end: Stop position after the repair, in bytes.
        buffer: Buffer to read into.
    """
    for base in bases:
        file = directory.open_to_read(segment_name(descriptor.recording_id, base))
        try:
            length = file.length()
            is_short = length < descriptor.segment_length
            if is_short and lacks_nothing(file, descriptor, base, end, buffer):
                yield file.name, length
        finally:
            file.close()


def lacks_nothing(
    file: File, descriptor: RecordingDescriptor, base: int, end: int, buffer: ScanBuffer
) -> bool:
    """Return whether a file holds all frames that it should hold."""
    walk = check_frames(
        file,
        descriptor,
        base=base,
        start=max(base, descriptor.start_position),
        end=min(end, base + descriptor.segment_length),
        checksum=None,
        buffer=buffer,
    )
    return not any(isinstance(each, Problem) for each in walk)


# Problems that are not mended.


@attrs.frozen(kw_only=True)
class Unrepairable:
    """A problem that needs a decision of the user, because every remedy loses data.

    Attributes:
        file: File that has the problem.
        offset: Where in the file, in bytes.
        what: The problem, in words.
        recording_id: Recording that the problem belongs to.
        position: Position up to which the recording can be read, in bytes; None if unknown.
        advice: What can be done, in words.
        commands: Commands of which one is to be chosen; empty if no command helps.
    """

    file: str
    offset: int
    what: str
    recording_id: int
    advice: str
    position: int | None = None
    commands: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.file}, offset {self.offset}: {self.what}; not repaired: {self.advice}"


def find_damage(
    directory: Directory,
    descriptor: RecordingDescriptor,
    bases: list[int],
    checksum: Checksum | None,
    buffer: ScanBuffer,
) -> Iterator[Unrepairable]:
    """Yield one `Unrepairable` for all damage between start and stop of a recording, if any.

    Args:
        directory: Directory of the archive.
        descriptor: Descriptor of the recording, with its stop position after the repair.
        bases: Base positions of its files.
        checksum: Checksum of data frames; None for none.
        buffer: Buffer to read into.
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
    going_on = [each for each in bases if descriptor.segment_base(last) < each]
    going_on = [
        each for each in going_on if each <= descriptor.segment_base(descriptor.stop_position)
    ]
    what = first.what if len(found) == 1 else f"{first.what} (and {len(found) - 1} more like this)"
    ways = ways_out(directory, descriptor, position, min(going_on, default=None))
    advice = ", ".join(f"`{command}` {effect}" for command, effect in ways)
    yield Unrepairable(
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
        directory: Directory of the archive.
        descriptor: Descriptor of the recording.
        position: Position up to which it is undamaged.
        base: Base of a file behind all damage; None if there is none.
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


def misplaced_file(descriptor: RecordingDescriptor, base: int, first: int) -> Unrepairable:
    """Report a file whose base is not that of a segment of the recording."""
    recording_id = descriptor.recording_id
    return Unrepairable(
        file=segment_name(recording_id, base),
        offset=0,
        what=(
            f"a file that begins at {base}, and the files of recording {recording_id} begin every "
            f"{descriptor.segment_length} bytes from {first} on"
        ),
        recording_id=recording_id,
        advice="move it out of the directory, for it cannot be one of its files",
    )


def damaged_entry(error: ArchiveFileError, recording_id: int) -> Unrepairable:
    """Report a damaged catalog entry."""
    return unknown(str(error).split(": ", 1)[-1], error.offset, recording_id)


def unknown(what: str, offset: int, recording_id: int) -> Unrepairable:
    """Report a damaged field of the catalog that cannot be derived from anything else."""
    return Unrepairable(
        file=CATALOG_NAME,
        offset=offset,
        what=what,
        recording_id=recording_id,
        advice=f"nothing else says what recording {recording_id} is; a copy of the catalog might",
    )


def find_contradiction(
    directory: Directory, descriptor: RecordingDescriptor, bases: list[int], buffer: ScanBuffer
) -> Unrepairable | None:
    """Return an `Unrepairable` if all files of a recording contradict the catalog's stream."""
    told: list[tuple[int, StreamIdentity]] = []
    for base in bases:
        file = directory.open_to_read(segment_name(descriptor.recording_id, base))
        try:
            said = stream_told(file, descriptor, base, buffer)
        finally:
            file.close()
        if said is not None:
            told.append((base, said))
    if not told or len({said for _, said in told}) > 1 or told[0][1] == stream_of(descriptor):
        return None
    base, said = told[0]
    recording_id = descriptor.recording_id
    command = f"aeron-async archive purge {shlex.quote(directory.path)} {recording_id}"
    return Unrepairable(
        file=segment_name(recording_id, base),
        offset=max(0, descriptor.start_position - base),
        what=contradiction_of(descriptor, said, files=told),
        recording_id=recording_id,
        advice=f"a copy of the catalog might tell which is right; `{command}` removes all of it",
        commands=(command,),
    )


# The plan and its repairs.


@final
class RepairKind(Enum):
    """What a repair changes."""

    NEXT_ID = "next id"
    STOP_POSITION = "stop position"
    LENGTH = "length"


@attrs.frozen(kw_only=True)
class Repair:
    """A repair that is planned or done.

    Attributes:
        kind: What is changed.
        file: The file that changes.
        what: The problem and the change, in words.
        value: The new id, position or length.
        recording_id: Id of the recording; None for the catalog itself.
    """

    kind: RepairKind
    file: str
    what: str
    value: int
    recording_id: int | None = None

    def __str__(self) -> str:
        return f"{self.file}: {self.what}"


def plan_repairs(
    directory: Directory,
    *,
    checksum: Checksum | None = None,
    ends_are_whole: bool = False,
    on_looked_at: Callable[[int], object] | None = None,
) -> Iterator[Repair | Unrepairable]:
    """Yield what `repair` would do, and what it would not; change nothing.

    Args:
        directory: Directory of the archive.
        checksum: Checksum of data frames; None for none.
        ends_are_whole: No last frame can be torn; see `MarkFile.ends_are_whole`.
        on_looked_at: Called with the number of recordings checked so far.

    Raises:
        ArchiveFileError: The catalog cannot be read to its end, which cannot be repaired.
        FileNotFoundError: There is no catalog.
        OSError: The disk failed.
    """
    buffer = ScanBuffer()
    looked_at = 0
    bases = segments_by_recording(directory)
    catalog = directory.open_to_read(CATALOG_NAME)
    try:
        header = read_header(catalog)
        entries = list(scan_entries(catalog, header))
        last = entries[-1] if entries else None
        if last is not None and 0 < header.next_recording_id <= last.recording_id:
            yield next_id(header.next_recording_id, last.recording_id)
        for entry in entries:
            if entry.state is not RecordingState.VALID:
                continue
            try:
                descriptor = descriptor_of(catalog, entry)
            except ArchiveFileError as error:
                # A damaged entry does not show what it should be.
                yield damaged_entry(error, entry.recording_id)
                continue
            for doubt in (mtu_problem(descriptor), time_problem(descriptor)):
                if doubt is not None:
                    yield unknown(doubt, entry.offset + ENTRY_HEADER_LENGTH, entry.recording_id)
            yield from plan_recording(
                directory,
                descriptor,
                sorted(bases.get(entry.recording_id, [])),
                checksum,
                buffer,
                ends_are_whole=ends_are_whole,
            )
            looked_at += 1
            if on_looked_at is not None:
                on_looked_at(looked_at)
        lost = find_lost_entry(catalog, header, last, bases)
        if lost is not None:
            yield unknown(str(lost), lost.offset, lost.recording_id)
    finally:
        catalog.close()


def repair(
    directory: Directory,
    *,
    consent: bool,
    now_ms: int,
    checksum: Checksum | None = None,
    ends_are_whole: bool = False,
    on_looked_at: Callable[[int], object] | None = None,
) -> Iterator[Repair | Unrepairable]:
    """Mend what can be mended, and yield each repair when it is done; without consent, only yield.

    Problems that are not mended are yielded too, with what can be done about them.

    Args:
        directory: Directory of an archive that is not running; the caller holds its mark file.
        consent: Whether files may be changed.
        now_ms: The time, in milliseconds since 1970.
        checksum: Checksum of data frames; None for none.
        ends_are_whole: No last frame can be torn; see `MarkFile.ends_are_whole`.
        on_looked_at: Called with the number of recordings checked so far.

    Raises:
        ArchiveFileError: The catalog cannot be read to its end, which cannot be repaired.
        FileNotFoundError: There is no catalog.
        OSError: The disk failed.
    """
    planned = plan_repairs(
        directory, checksum=checksum, ends_are_whole=ends_are_whole, on_looked_at=on_looked_at
    )
    repairs = list(planned)
    copied: set[str] = set()
    for each in repairs:
        if consent and isinstance(each, Repair):
            for name in touched(directory, each):
                if name not in copied:
                    keep_copy(directory, name)
                    copied.add(name)
            apply(directory, each, now_ms=now_ms, checksum=checksum)
        yield each


def next_id(next_recording_id: int, last_id: int) -> Repair:
    """Return the repair of a next recording id that is used already."""
    return Repair(
        kind=RepairKind.NEXT_ID,
        file=CATALOG_NAME,
        what=f"the next recording id is {next_recording_id}, and {last_id} is used: it becomes "
        f"{last_id + 1}",
        value=last_id + 1,
    )


def plan_recording(
    directory: Directory,
    descriptor: RecordingDescriptor,
    bases: list[int],
    checksum: Checksum | None,
    buffer: ScanBuffer,
    *,
    ends_are_whole: bool,
) -> Iterator[Repair | Unrepairable]:
    """Yield the repairs of a recording, and its problems that are not mended."""
    recording_id = descriptor.recording_id
    first = term_base(descriptor.start_position, descriptor.term_length)
    counted = [each for each in bases if each >= first]
    stop = None if descriptor.is_active else descriptor.stop_position
    if stop is not None:
        counted = [each for each in counted if each <= descriptor.segment_base(stop)]
    odd = [each for each in counted if (each - first) % descriptor.segment_length]
    if odd and stop is None:
        yield misplaced_file(descriptor, odd[-1], first)
        return
    whole = [each for each in counted if each not in odd]
    contradiction = find_contradiction(directory, descriptor, whole, buffer)
    if contradiction is not None:
        yield contradiction
        return
    # Missing files may exist elsewhere and be put back: keep the stop position.
    is_missing = stop is not None and stop > max(
        [descriptor.start_position, *(each + descriptor.segment_length for each in whole)]
    )
    end = stop
    if not (odd or is_missing):
        end = end_of_frames(
            directory, descriptor, counted, stop, checksum, buffer, ends_are_whole=ends_are_whole
        )
    assert end is not None, "a recording without an end has got one"
    for name, length in truncated_segments(directory, descriptor, whole, end, buffer):
        yield Repair(
            kind=RepairKind.LENGTH,
            file=name,
            what=f"{length} bytes, and a segment has {descriptor.segment_length}: zeros follow",
            value=descriptor.segment_length,
            recording_id=recording_id,
        )
    if end != stop:
        why = "has no end" if stop is None else f"ends at {stop}, which its files do not reach"
        yield Repair(
            kind=RepairKind.STOP_POSITION,
            file=CATALOG_NAME,
            what=f"recording {recording_id} {why}: it ends at {end}",
            value=end,
            recording_id=recording_id,
        )
    ended = attrs.evolve(descriptor, stop_position=end)
    yield from find_damage(directory, ended, counted, checksum, buffer)


def end_of_frames(
    directory: Directory,
    descriptor: RecordingDescriptor,
    counted: list[int],
    stop: int | None,
    checksum: Checksum | None,
    buffer: ScanBuffer,
    *,
    ends_are_whole: bool,
) -> int | None:
    """Return where the frames of a recording's last file end."""
    if not counted:
        # Without any file the recording is empty.
        return descriptor.start_position
    base = counted[-1]
    start = max(base, descriptor.start_position)
    if stop is not None and stop <= start:
        return stop
    file = directory.open_to_read(segment_name(descriptor.recording_id, base))
    try:
        find = partial(first_bad, file, descriptor, base, start, stop, buffer, ends_are_whole)
        bad = find(checksum)
        if bad == start and checksum is not None:
            # Every frame may have been recorded without a checksum.
            bad = find(None)
        if bad is None or (
            stop is not None and is_damage(file, descriptor, base, bad - base, buffer)
        ):
            return stop
        return bad
    finally:
        file.close()


def is_damage(
    file: File, descriptor: RecordingDescriptor, base: int, offset: int, buffer: ScanBuffer
) -> bool:
    """Return whether a place without a frame is damage, and not the end that a crash leaves.

    It is damage if a frame follows; see `tail_scan`.
    """
    count = buffer.fill(file, offset, offset + HEADER_LENGTH)
    if count < HEADER_LENGTH or buffer.words[0] <= 0:
        return False
    following = find_following(file, descriptor, base=base, offset=offset, buffer=buffer)
    return following is not None


def first_bad(
    file: File,
    descriptor: RecordingDescriptor,
    base: int,
    start: int,
    stop: int | None,
    buffer: ScanBuffer,
    ends_are_whole: bool,  # noqa: FBT001 - given by `partial`
    checksum: Checksum | None,
) -> int | None:
    """Return the position of the first place without a frame; None if frames reach the end."""
    if stop is None:
        end = find_frames_end(
            file,
            descriptor,
            base=base,
            start=start - base,
            buffer=buffer,
            checksum=checksum,
            ends_are_whole=ends_are_whole,
        )
        if checksum is not None and end.is_checksum_wrong and base + end.offset == start:
            return start
        return base + (end.offset if end.torn is None else end.torn)
    walk = check_frames(
        file,
        descriptor,
        base=base,
        start=start,
        end=stop,
        checksum=checksum,
        buffer=buffer,
        tally=ChecksumTally(descriptor.session_id),
    )
    for each in walk:
        if isinstance(each, Problem):
            return base + each.offset
    return None


def touched(directory: Directory, each: Repair) -> list[str]:
    """Return the files that a repair changes."""
    names = [each.file]
    if each.kind is RepairKind.STOP_POSITION and each.recording_id is not None:
        name = segment_at(directory, each)
        names += [name] if name in directory.names() else []
    return names


def segment_at(directory: Directory, each: Repair) -> str:
    """Return the file that holds the new stop position of a recording."""
    catalog = Catalog.open_to_read(directory)
    try:
        assert each.recording_id is not None
        descriptor = catalog.get(each.recording_id)
    finally:
        catalog.close()
    return segment_name(descriptor.recording_id, descriptor.segment_base(each.value))


def apply(directory: Directory, each: Repair, *, now_ms: int, checksum: Checksum | None) -> None:
    """Carry out a repair, and wait until it is on the disk."""
    if each.kind is RepairKind.STOP_POSITION and each.recording_id is not None:
        name = segment_at(directory, each)
        catalog = Catalog.open(directory, capacity=32, checksum=checksum, sync_level=2)
        try:
            catalog.update(each.recording_id, stop_position=each.value, stop_timestamp_ms=now_ms)
            descriptor = catalog.get(each.recording_id)
        finally:
            catalog.close()
        if name in directory.names():
            with_zeros(
                directory, name, each.value - descriptor.segment_base(each.value), descriptor
            )
        return
    file = directory.open(each.file)
    try:
        if each.kind is RepairKind.NEXT_ID:
            write_all(file, [each.value.to_bytes(8, "little")], NEXT_ID_OFFSET)
        else:
            file.set_length(each.value)
        file.sync(metadata=True)
    finally:
        file.close()


def with_zeros(
    directory: Directory, name: str, offset: int, descriptor: RecordingDescriptor
) -> None:
    """Clear a segment from an offset on, so that only zeros follow."""
    file = directory.open(name)
    try:
        clear_behind(file, offset, segment_length=descriptor.segment_length, sync_level=2)
    finally:
        file.close()
