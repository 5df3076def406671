"""Verification of an archive: checks its files against its catalog, and changes nothing.

Files are read in pieces, so that memory use does not grow with the length of recordings.

Source: Aeron `ArchiveTool.verify`.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, final

import attrs

from aeron_async.archive.disk.catalog import (
    CATALOG_NAME,
    NEXT_ID_OFFSET,
    START_OF_ENTRY,
    read_header,
    scan_entries,
)
from aeron_async.archive.disk.checksums import ChecksumTally, kind_of
from aeron_async.archive.disk.descriptor import (
    ACTIVE,
    ENTRY_HEADER_LENGTH,
    RecordingState,
    decode_descriptor,
)
from aeron_async.archive.disk.files import read_exactly
from aeron_async.archive.disk.mark_file import LINK_NAME, MARK_FILE_NAME, are_ends_whole
from aeron_async.archive.disk.segment_scan import Problem, ScanBuffer, check_frames
from aeron_async.archive.disk.segments import parse_segment_name, segment_name, term_base
from aeron_async.archive.disk.tail_scan import find_frames_end
from aeron_async.errors import ArchiveFileError
from aeron_async.protocol.header import FRAME_ALIGNMENT, MAX_UDP_PAYLOAD_LENGTH

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from aeron_async.archive.disk.catalog import CatalogHeader, Entry
    from aeron_async.archive.disk.checksums import Checksum
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import Directory, File
    from aeron_async.archive.disk.tail_scan import FramesEnd

__all__ = [
    "Finding",
    "LostEntry",
    "Progress",
    "Severity",
    "find_lost_entry",
    "mtu_problem",
    "time_problem",
    "verify",
    "verify_recording",
]

# Checks of the catalog.

YEAR_10000_MS: Final = 253_402_300_800_000
"""The first millisecond since 1970 that Python's calendar cannot represent."""
SMALLEST_MTU: Final = 2 * FRAME_ALIGNMENT


@attrs.frozen
class LostEntry:
    """An entry without a length, which ends the catalog, of a recording that has files.

    Attributes:
        offset: Offset of its header, in bytes.
        recording_id: Id of its recording.
        length: Stored length: 0, or negative.
    """

    offset: int
    recording_id: int
    length: int

    def __str__(self) -> str:
        return (
            f"an entry of {self.length} bytes ends the catalog, but recording "
            f"{self.recording_id}, which it describes, has files: readers find neither this "
            "recording nor later ones, and the next recording overwrites its entry"
        )


def find_lost_entry(
    catalog: File, header: CatalogHeader, last: Entry | None, has_files: Container[int]
) -> LostEntry | None:
    """Return the entry behind the last one, if its length was lost.

    An entry that was never finished has no files yet: a recording starts only when its entry is
    complete.

    Args:
        catalog: File of the catalog.
        header: Header of the catalog.
        last: The last entry; None if there is none.
        has_files: Ids of recordings that have files but no entry.
    """
    offset = header.first_offset if last is None else last.offset + last.length
    data = bytearray(START_OF_ENTRY.size)
    if read_exactly(catalog, memoryview(data), offset) < len(data):
        return None
    length, state, _, recording_id, _ = START_OF_ENTRY.unpack(data)
    last_id = -1 if last is None else last.recording_id
    is_entry = state == RecordingState.VALID and last_id < recording_id < header.next_recording_id
    if length > 0 or not is_entry or recording_id not in has_files:
        return None
    return LostEntry(offset, recording_id, length)


def mtu_problem(descriptor: RecordingDescriptor) -> str | None:
    """Return what is wrong with the MTU of a recording; a wrong MTU prevents extending it."""
    mtu = descriptor.mtu_length
    if SMALLEST_MTU <= mtu <= MAX_UDP_PAYLOAD_LENGTH and mtu % FRAME_ALIGNMENT == 0:
        return None
    return (
        f"mtu length {mtu} is no multiple of {FRAME_ALIGNMENT} from {SMALLEST_MTU} to "
        f"{MAX_UDP_PAYLOAD_LENGTH}"
    )


def time_problem(descriptor: RecordingDescriptor) -> str | None:
    """Return what is wrong with the timestamps of a recording."""
    start_ms, stop_ms = descriptor.start_timestamp_ms, descriptor.stop_timestamp_ms
    for name, time_ms, is_open in (
        ("start", start_ms, False),
        ("stop", stop_ms, stop_ms == ACTIVE),
    ):
        if not is_open and not 0 <= time_ms < YEAR_10000_MS:
            return f"{name} timestamp {time_ms} is no time from 1970 to 9999, in milliseconds"
    return None


# Verification.

BEFORE_REPAIR: Final = ".before-repair"
OURS: Final = {CATALOG_NAME, MARK_FILE_NAME, LINK_NAME}


@final
class Severity(Enum):
    """How serious a finding is."""

    NOTE = "note"
    """Nothing is wrong."""
    PROBLEM = "problem"
    """Something cannot be read, or would be read wrongly."""


@attrs.frozen(kw_only=True)
class Finding:
    """A result of a verification.

    Attributes:
        severity: How serious it is.
        what: The finding, in words.
        file: File of the finding.
        offset: Offset in the file, in bytes.
        recording_id: Id of the recording; None if it belongs to none.
        position: Position up to which the recording can be read, in bytes; None if no data is
            affected.
    """

    severity: Severity
    what: str
    file: str
    offset: int = 0
    recording_id: int | None = None
    position: int | None = None

    def __str__(self) -> str:
        return f"{self.severity.value}: {self.file}, offset {self.offset}: {self.what}"


@attrs.frozen
class Progress:
    """Position up to which a recording has been read without a problem.

    Attributes:
        recording_id: Id of the recording.
        position: The position, in bytes.
    """

    recording_id: int
    position: int


def verify(
    directory: Directory, *, checksum: Checksum | None = None
) -> Iterator[Finding | Progress]:
    """Check the catalog, all segments and all other files; yield progress and findings.

    Args:
        directory: Directory of the archive, which may be running.
        checksum: Checksum of entries and data frames that have one; None to check none.

    Raises:
        FileNotFoundError: There is no catalog.
        OSError: The disk failed.
    """
    segments: dict[int, list[int]] = {}
    others = []
    for name in directory.names():
        parsed = parse_segment_name(name)
        if parsed is None:
            others.append(name)
        else:
            segments.setdefault(parsed[0], []).append(parsed[1])
    catalog = directory.open_to_read(CATALOG_NAME)
    try:
        yield from verify_entries(directory, catalog, segments, checksum)
    except ArchiveFileError as error:
        yield problem_of(error, None)
    finally:
        catalog.close()
    for name, kind in sorted(directory.other_kinds().items()):
        parsed = parse_segment_name(name)
        if parsed is not None:
            what = f"{kind}, but a segment is a plain file: it is not read"
            yield problem(name, what, parsed[0])
    for name in sorted(others):
        if name not in OURS and BEFORE_REPAIR not in name:
            yield Finding(
                severity=Severity.NOTE, what="a file that belongs to no archive", file=name
            )


def verify_entries(
    directory: Directory, catalog: File, segments: dict[int, list[int]], checksum: Checksum | None
) -> Iterator[Finding | Progress]:
    """Check the entries of a catalog, and the recording of each."""
    header = read_header(catalog)
    buffer = ScanBuffer()
    ends_are_whole = are_ends_whole(directory)
    last_id, last = -1, None
    for entry in scan_entries(catalog, header):
        last_id, last = entry.recording_id, entry
        bases = sorted(segments.pop(last_id, []))
        if entry.state is not RecordingState.VALID:
            yield from stray(last_id, bases, f"{entry.state.name.lower()} in the catalog")
            continue
        try:
            descriptor = descriptor_of(catalog, entry)
        except ArchiveFileError as error:
            yield problem_of(error, last_id)
            continue
        for doubt in (mtu_problem(descriptor), time_problem(descriptor)):
            if doubt is not None:
                at = entry.offset + ENTRY_HEADER_LENGTH
                yield problem(catalog.name, doubt, last_id, offset=at)
        yield from verify_checksum(catalog, entry, checksum)
        yield from verify_recording(
            directory, descriptor, bases, checksum, buffer, ends_are_whole=ends_are_whole
        )
    if 0 < header.next_recording_id <= last_id:
        what = f"the next recording id is {header.next_recording_id}, and {last_id} is used"
        yield Finding(
            severity=Severity.PROBLEM, what=what, file=catalog.name, offset=NEXT_ID_OFFSET
        )
    lost = find_lost_entry(catalog, header, last, segments)
    if lost is not None:
        yield problem(catalog.name, str(lost), lost.recording_id, offset=lost.offset)
    for recording_id in sorted(segments):
        yield from stray(recording_id, sorted(segments[recording_id]), "not in the catalog")


def stray(recording_id: int, bases: list[int], why: str) -> Iterator[Finding]:
    """Yield a note for each file of a recording that is not valid."""
    for base in bases:
        yield Finding(
            severity=Severity.NOTE,
            what=f"of recording {recording_id}, which is {why}",
            file=segment_name(recording_id, base),
            recording_id=recording_id,
        )


def descriptor_of(catalog: File, entry: Entry) -> RecordingDescriptor:
    """Decode the descriptor of an entry.

    Raises:
        ArchiveFileError: The entry is damaged.
    """
    body = body_of(catalog, entry)
    return decode_descriptor(body, file=catalog.name, offset=entry.offset + ENTRY_HEADER_LENGTH)


def body_of(catalog: File, entry: Entry) -> memoryview:
    """Return an entry without its header, with the length from that header."""
    length = bytearray(4)
    read_exactly(catalog, memoryview(length), entry.offset)
    body = memoryview(bytearray(int.from_bytes(length, "little")))
    read_exactly(catalog, body, entry.offset + ENTRY_HEADER_LENGTH)
    return body


def verify_checksum(catalog: File, entry: Entry, checksum: Checksum | None) -> Iterator[Finding]:
    """Yield a note if the checksum of an entry is wrong."""
    if checksum is None or entry.checksum == 0:
        return
    body = body_of(catalog, entry)
    wanted = checksum(body)
    if wanted != entry.checksum:
        kind = kind_of(body, entry.checksum)
        # An official archive does not update it in recovery.
        hint = (
            "; an archive without checksums has changed it since, or the start or stop position of "
            f"recording {entry.recording_id} is damaged; its frames are checked by themselves"
            if kind is None
            else f", which matches {kind}: is that the kind?"
        )
        yield Finding(
            severity=Severity.NOTE,
            what=f"an entry with checksum {entry.checksum}, and it is {wanted}{hint}",
            file=catalog.name,
            offset=entry.offset,
            recording_id=entry.recording_id,
        )


def verify_recording(
    directory: Directory,
    descriptor: RecordingDescriptor,
    bases: list[int],
    checksum: Checksum | None,
    buffer: ScanBuffer,
    *,
    ends_are_whole: bool = False,
) -> Iterator[Finding | Progress]:
    """Check all frames of a recording, and its files."""
    recording_id = descriptor.recording_id
    first = term_base(descriptor.start_position, descriptor.term_length)
    is_active = descriptor.stop_position == ACTIVE
    counted = [each for each in bases if each >= first]
    stop = descriptor.stop_position
    if is_active:
        stop = counted[-1] + descriptor.segment_length if counted else descriptor.start_position
    last = descriptor.segment_base(stop)
    following = first
    tally = ChecksumTally(descriptor.session_id)
    for base in bases:
        name = segment_name(recording_id, base)
        if base < first:
            what = f"detached from recording {recording_id}, which begins at {first}"
            yield note(name, what, recording_id)
        elif base > last or (base - first) % descriptor.segment_length:
            what = f"no part of recording {recording_id}, which ends at {stop}"
            yield note(name, what, recording_id)
        else:
            if base > following:
                yield gap(recording_id, following, base)
            following = base + descriptor.segment_length
            is_last = is_active and base == counted[-1]
            yield from verify_segment(
                directory,
                descriptor,
                base,
                stop,
                checksum,
                buffer,
                tally,
                has_no_end=is_last,
                whole=ends_are_whole,
            )
    if max(following, descriptor.start_position) < stop:
        yield gap(recording_id, following, stop)
    if tally.without:
        what = f"{tally.without} frames of recording {recording_id} have no checksum to check"
        yield note(segment_name(recording_id, first), what, recording_id)


def gap(recording_id: int, start: int, end: int) -> Finding:
    """Return the problem that segment files are missing."""
    what = f"no file holds positions {start} to {end} of recording {recording_id}"
    return problem(segment_name(recording_id, start), what, recording_id, position=start)


def verify_segment(
    directory: Directory,
    descriptor: RecordingDescriptor,
    base: int,
    stop: int,
    checksum: Checksum | None,
    buffer: ScanBuffer,
    tally: ChecksumTally,
    *,
    has_no_end: bool,
    whole: bool,
) -> Iterator[Finding | Progress]:
    """Check the frames of a segment up to the end of the recording or of the segment."""
    recording_id = descriptor.recording_id
    start = max(base, descriptor.start_position)
    file = directory.open_to_read(segment_name(recording_id, base))
    try:
        length = file.length()
        end = min(stop, base + descriptor.segment_length)
        if length != descriptor.segment_length:
            what = f"{length} bytes, and a segment has {descriptor.segment_length}"
            # An interrupted truncation leaves a segment that is too short but lacks no frame.
            say = note if end - base <= length else problem
            yield say(file.name, what, recording_id, offset=length)
        if has_no_end:
            found = find_frames_end(
                file, descriptor, base=base, start=start - base, buffer=buffer, ends_are_whole=whole
            )
            end = base + found.offset
            yield from verify_end(
                file.name, recording_id, found, has_checksums=checksum is not None
            )
        walk = check_frames(
            file,
            descriptor,
            base=base,
            start=start,
            end=end,
            checksum=checksum,
            buffer=buffer,
            tally=tally,
        )
        for each in walk:
            if isinstance(each, Problem):
                position = base + each.offset
                yield problem(
                    each.file, each.what, recording_id, offset=each.offset, position=position
                )
            else:
                yield Progress(recording_id, base + each)
    finally:
        file.close()


def verify_end(
    file: str, recording_id: int, end: FramesEnd, *, has_checksums: bool
) -> Iterator[Finding]:
    """Yield the findings about the end of a recording that has no stop position."""
    what = f"recording {recording_id} has no end: it is active, or its archive died at {end.offset}"
    yield note(file, what, recording_id, offset=end.offset)
    if end.following is not None:
        what = f"{end.problem}, and a whole frame lies behind it, at offset {end.following}"
        yield problem(file, what, recording_id, offset=end.offset)
    elif end.problem is not None:
        what = f"{end.problem}: an archive that starts here cuts it off"
        yield note(file, what, recording_id, offset=end.offset)
    if end.torn is not None and not has_checksums:
        what = f"the last frame, up to {end.offset}, may be torn"
        yield problem(file, what, recording_id, offset=end.torn)


def problem(
    file: str, what: str, recording_id: int, *, offset: int = 0, position: int | None = None
) -> Finding:
    """Return a problem."""
    return Finding(
        severity=Severity.PROBLEM,
        what=what,
        file=file,
        offset=offset,
        recording_id=recording_id,
        position=position,
    )


def note(file: str, what: str, recording_id: int, *, offset: int = 0) -> Finding:
    """Return a note."""
    return Finding(
        severity=Severity.NOTE, what=what, file=file, offset=offset, recording_id=recording_id
    )


def problem_of(error: ArchiveFileError, recording_id: int | None) -> Finding:
    """Return an error as a problem."""
    what = str(error).split(": ", 1)[-1]
    return Finding(
        severity=Severity.PROBLEM,
        what=what,
        file=error.file,
        offset=error.offset,
        recording_id=recording_id,
    )
