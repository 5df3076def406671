"""Any damage to any file is named with file and offset, or harmless; nothing is mended silently."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.archive.disk.catalog import CATALOG_NAME, Catalog
from aeron_async.archive.disk.checksums import CHECKSUMS
from aeron_async.archive.disk.files import check_name
from aeron_async.archive.disk.mark_file import MARK_FILE_NAME, MarkFile, MarkIdentity
from aeron_async.archive.disk.recording_writer import RecordingWriter
from aeron_async.archive.disk.recovery import recover
from aeron_async.archive.disk.repair import COPY_SUFFIX, repair
from aeron_async.archive.disk.segments import parse_segment_name
from aeron_async.archive.disk.verify import Finding, Severity, verify
from aeron_async.errors import ArchiveBusyError, ArchiveError, ArchiveFileError
from tests.archive.disk.streams import FrameSource, described, read_all
from tests.support.faulty_files import FaultyDirectory

CRC = CHECKSUMS["crc32"]
NOW = 1_000_000
Files = dict[str, bytes]


@cache
def undamaged(*, stops: bool) -> tuple[Files, bytes]:
    """Return the files of an archive with three recordings, and what the second holds."""
    directory = FaultyDirectory(1)
    mark = MarkFile.open(directory, MarkIdentity(), now_ms=NOW, boot_id=1)
    catalog = Catalog.open(directory, capacity=1_024)
    data = bytearray()
    for number in range(3):
        data.clear()
        descriptor = catalog.add(described(start_position=4_096, segment_length=65_536))
        writer = RecordingWriter(directory, descriptor, position=4_096, checksum=CRC)
        source = FrameSource(descriptor, number)
        while writer.position < 150_000:
            block, padding = source.block()
            writer.write([(block, padding)])
        writer.close()
        if stops or number != 1:
            catalog.update(number, stop_position=writer.position, stop_timestamp_ms=9)
    mark.signal_ready(NOW)
    mark.close()
    names = sorted(directory.names())
    files = {name: contents(directory, name) for name in names}
    stop = 150_000 if catalog.get(1).is_active else catalog.get(1).stop_position
    kept = read_all(directory, catalog.get(1), 4_096, stop & -32) if stops else b""
    return files, kept


def contents(directory: FaultyDirectory, name: str) -> bytes:
    file = directory.open_to_read(name)
    data = memoryview(bytearray(file.length()))
    file.read_into(data, 0)
    file.close()
    return bytes(data)


def holding(files: Files) -> FaultyDirectory:
    directory = FaultyDirectory()
    for name, data in files.items():
        file = directory.open(name, create=True)
        file.write([data], 0)
        file.close()
    return directory


def hold(is_so: bool) -> None:  # noqa: FBT001 - it is all there is
    assert is_so


@st.composite
def damages(draw: st.DrawFn, *, stops: bool) -> Files:
    """Return files of which one or two are cut off, changed, spliced, foreign, or gone."""
    files = dict(undamaged(stops=stops)[0])
    for _ in range(draw(st.integers(1, 2))):
        name = draw(st.sampled_from(sorted(files)))
        data = bytearray(files[name])
        kind = draw(
            st.sampled_from(("cut", "flip", "write", "splice", "foreign", "gone", "longer"))
        )
        at = draw(st.integers(0, min(len(data), draw(st.sampled_from((300, 5_000, 1 << 20))))))
        if kind == "cut":
            del data[at:]
        elif kind == "flip" and at < len(data):
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "write":
            new = draw(st.binary(min_size=1, max_size=40))
            data[at : at + len(new)] = new
        elif kind == "splice":
            other = files[draw(st.sampled_from(sorted(files)))]
            data[at : at + 4_096] = other[:4_096]
        elif kind == "foreign":
            data = bytearray(draw(st.binary(max_size=200)))
        elif kind == "longer":
            data += draw(st.binary(min_size=1, max_size=200))
        if kind == "gone":
            del files[name]
        else:
            files[name] = bytes(data)
    return files


def found_in(directory: FaultyDirectory) -> list[Finding] | None:
    """Return what is found, each in a place that there is; None without a catalog."""
    try:
        found = [each for each in verify(directory, checksum=CRC) if isinstance(each, Finding)]
    except FileNotFoundError as error:
        hold(CATALOG_NAME in str(error))
        return None
    for each in found:
        assert each.file in str(each)
        assert each.offset >= 0
    return found


@given(damages(stops=True))
def test_what_is_wrong_is_named_and_left_as_it_is(files: Files) -> None:
    directory = holding(files)
    found = found_in(directory)
    try:
        catalog = Catalog.open_to_read(directory)
    except FileNotFoundError:
        assert found is None
    except ArchiveFileError as error:
        hold(error.file == CATALOG_NAME)
        hold(any(each.severity is Severity.PROBLEM for each in found or ()))
    else:
        assert found is not None
        read_what_is_there(directory, catalog, found)
    assert {name: contents(directory, name) for name in directory.names()} == files


def read_what_is_there(directory: FaultyDirectory, catalog: Catalog, found: list[Finding]) -> None:
    """Hold the second recording against what it was, unless something is known to be wrong."""
    kept = undamaged(stops=True)[1]
    problems = [each for each in found if each.severity is Severity.PROBLEM]
    if 1 not in catalog:
        return
    try:
        descriptor = catalog.get(1)
        data = read_all(
            directory,
            descriptor,
            descriptor.start_position,
            descriptor.stop_position,
            checksum=CRC,
        )
    except ArchiveFileError as error:
        hold(error.file in {each.file for each in problems})
        return
    if not found:
        assert data == kept


@given(damages(stops=False))
def test_an_archive_that_starts_on_damage_refuses_or_says_what_it_cut_off(files: Files) -> None:
    directory = holding(files)
    try:
        mark = MarkFile.open(directory, MarkIdentity(), now_ms=NOW + 20_000, boot_id=2)
        catalog = Catalog.open(directory, capacity=32)
        found = recover(
            directory,
            catalog,
            now_ms=NOW + 20_000,
            ends_are_whole=mark.ends_are_whole,
            checksum=CRC,
        )
    except (ArchiveFileError, ArchiveBusyError) as error:
        hold(any(name in str(error) for name in (*files, MARK_FILE_NAME)))
        return
    for name, data in files.items():
        now = contents(directory, name)
        if name in (CATALOG_NAME, MARK_FILE_NAME) or now == data:
            continue
        # Only the end of what was recovered changes, and by as much as is said.
        parsed = parse_segment_name(name)
        assert parsed is not None
        (mine,) = [each for each in found if each.recording_id == parsed[0]]
        offset = mine.stop_position - parsed[1]
        assert now[:offset] == data[:offset]
        assert not any(now[offset:])
        assert mine.discarded == len(data[offset:].rstrip(b"\0"))


@given(files=damages(stops=False), consent=st.booleans())
def test_a_repair_keeps_a_copy_of_whatever_it_changes(files: Files, *, consent: bool) -> None:
    directory = holding(files)
    try:
        done = list(repair(directory, consent=consent, now_ms=NOW, checksum=CRC))
    except (ArchiveFileError, FileNotFoundError) as error:
        hold(CATALOG_NAME in str(error))
        done = []
    changed = {name for name in files if contents(directory, name) != files[name]}
    copies = {name: contents(directory, name + COPY_SUFFIX) for name in changed}
    assert copies == {name: files[name] for name in changed}
    assert not changed or (consent and done)
    found_in(directory)


@given(st.text(max_size=300))
def test_no_name_leads_out_of_the_directory(name: str) -> None:
    try:
        check_name(name)
    except ArchiveError:
        assert name not in ("0-0.rec", CATALOG_NAME)
        return
    assert not {"/", "\\", "\0"} & set(name)
    assert name not in ("", ".", "..")


@pytest.mark.parametrize("name", ["../x", "a/b", "/etc/passwd", "..", ".", "", ".hidden", "a\\b"])
def test_names_that_lead_elsewhere_are_refused(name: str) -> None:
    directory = FaultyDirectory()
    with pytest.raises(ArchiveError, match="is no name of a file"):
        directory.open(name, create=True)
