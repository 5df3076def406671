from __future__ import annotations

import os
import struct
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async import aeron_directory
from aeron_async.aeron_directory import (
    AeronDirectory,
    CncMissing,
    default_directory,
    describe_log,
    file_in_place_of,
)
from aeron_async.concurrent import atomic_buffer
from aeron_async.concurrent.cnc_file import CNC_VERSION, CncNotReady, load_layout
from aeron_async.concurrent.ring_buffer import ManyToOneRingBuffer
from aeron_async.errors import ConfigurationError, DriverError, ProtocolError
from aeron_async.logbuffer.metadata import LogType
from aeron_async.logbuffer.position import pack_tail
from tests.concurrent.shared import needs_shared_memory
from tests.driver.directories import (
    NOW_MS,
    SMALL,
    cnc_bytes,
    golden_directory,
    log_bytes,
    loss_bytes,
    small_directory,
    write_log,
)

TIMEOUT_MS = 10_000
LOG_LENGTH = 200_704


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return small_directory(tmp_path / "aeron")


# Where the directory is.


def test_a_variable_names_the_directory() -> None:
    assert default_directory({"AERON_DIR": "/some/where", "USER": "me"}) == Path("/some/where")


@pytest.mark.skipif(sys.platform != "linux", reason="the folder is Linux's")
def test_without_it_the_directory_is_the_users_in_shared_memory() -> None:
    assert default_directory({"USER": "me"}) == Path("/dev", "shm", "aeron-me")
    assert default_directory({"AERON_DIR": "", "USER": "me"}) == Path("/dev", "shm", "aeron-me")


def test_elsewhere_it_is_among_the_temporary_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    assert default_directory({"USER": "me"}) == tmp_path / "aeron-me"


def test_a_user_without_a_name_in_the_environment_has_one_in_the_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pwd = pytest.importorskip("pwd", reason="Windows has no table of users")
    assert default_directory({}).name == f"aeron-{pwd.getpwuid(os.getuid()).pw_name}"

    def unknown(_uid: int) -> None:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert default_directory({}).name == "aeron-default"


# Opening.


@needs_shared_memory
def test_a_directory_of_an_official_driver_is_read(tmp_path: Path) -> None:
    with AeronDirectory.open(golden_directory(tmp_path / "aeron")) as directory:
        assert directory.layout.pid == 30_468
        assert directory.layout.file_length == 48_238_592
        assert len(directory.counters.snapshot()) == 66
        (error,) = directory.errors()
        assert error.text.startswith("(-9) unknown host\n[aeron_driver_conductor")
        (loss,) = directory.losses()
        assert (loss.observation_count, loss.total_bytes_lost) == (500, 660_640)
        assert (loss.stream_id, loss.source) == (1001, "127.0.0.1:40086")
        publication = directory.publication_log(10)
        assert publication is not None
        assert publication.log_type is LogType.EXCLUSIVE_PUBLICATION
        assert publication.term_length == 64 * 1024 * 1024
        assert publication.producer_position == 849_420_160
        image = directory.image_log(11)
        assert image is not None
        assert image.log_type is LogType.IMAGE
        assert image.producer_position is None
        assert directory.producer_position == directory.consumer_position > 0
        last_ms = directory.heartbeat_ms
        assert directory.is_active(last_ms + TIMEOUT_MS, TIMEOUT_MS)
        assert not directory.is_active(last_ms + TIMEOUT_MS + 1, TIMEOUT_MS)


@needs_shared_memory
def test_a_directory_is_read_without_permission_to_write(place: Path) -> None:
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    for path in before:
        path.chmod(0o400)
    with AeronDirectory.open(place) as directory:
        assert directory.layout == SMALL
        assert (directory.heartbeat_ms, directory.producer_position) == (NOW_MS, 4_096)
        assert directory.consumer_position == 4_000
        assert [error.text for error in directory.errors()] == ["no room"]
        assert [loss.total_bytes_lost for loss in directory.losses()] == [1_500]
        with pytest.raises(TypeError):
            memoryview(directory._mapping)[0] = 1
        with pytest.raises(ConfigurationError, match="reading only"):
            directory.atomic_buffer(directory.layout.to_driver_buffer)
    assert {path: path.read_bytes() for path in before} == before


@needs_shared_memory
def test_a_client_writes_through_a_directory(place: Path) -> None:
    with AeronDirectory.open(place, is_writable=True) as directory:
        ring = ManyToOneRingBuffer(directory.atomic_buffer(directory.layout.to_driver_buffer))
        assert ring.consumer_heartbeat_ms == NOW_MS
        assert ring.write(1, bytes(8))
        assert directory.producer_position == 4_096 + 16
    assert (place / "cnc.dat").read_bytes()[128:132] == struct.pack("<i", 16)


@needs_shared_memory
def test_close_releases_everything_and_may_be_repeated(place: Path) -> None:
    directory = AeronDirectory.open(place, is_writable=True)
    buffer = directory.atomic_buffer(directory.layout.error_log_buffer)
    directory.errors()
    list(directory.counters)
    directory.close()
    directory.close()
    assert directory._mapping.length == 0
    for use in (
        lambda: directory.heartbeat_ms,
        directory.errors,
        lambda: list(directory.counters),
        lambda: buffer.load_acquire_32(0),
    ):
        with pytest.raises((ValueError, IndexError)):
            use()


@needs_shared_memory
def test_no_directory_and_an_empty_one_have_no_driver(tmp_path: Path) -> None:
    for place in (tmp_path / "none", tmp_path):
        found = AeronDirectory.try_open(place)
        assert isinstance(found, CncMissing)
        assert f"{place}/cnc.dat" in found.reason
        with pytest.raises(DriverError, match="start one"):
            AeronDirectory.open(place)


@needs_shared_memory
def test_a_file_in_place_of_a_directory_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for place in (file, file / "under" / "it"):
        found = AeronDirectory.try_open(place)
        assert isinstance(found, CncMissing)
        assert found.reason == f"{file} is a file, and an Aeron directory is needed"
        assert file_in_place_of(place) == file
    assert file_in_place_of(tmp_path / "none") is None


@needs_shared_memory
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "has 0 bytes"),
        (b"\0\2\0\0" + bytes(123), "has 127 bytes"),
        (bytes(5_000), "version 0"),
        (bytes(cnc_bytes())[:-5_000], "its sections end at"),
    ],
)
def test_a_file_that_is_not_finished_is_not_ready(tmp_path: Path, data: bytes, reason: str) -> None:
    (tmp_path / "cnc.dat").write_bytes(data)
    found = AeronDirectory.try_open(tmp_path)
    assert isinstance(found, CncNotReady)
    assert reason in found.reason
    assert str(tmp_path) in found.reason
    with pytest.raises(DriverError, match="look again"):
        AeronDirectory.open(tmp_path)


@needs_shared_memory
def test_a_file_that_is_cut_while_it_is_opened_is_not_ready(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load_and_cut(header: Any, length: int) -> Any:
        found = load_layout(header, length)
        os.truncate(place / "cnc.dat", 4_096)
        return found

    monkeypatch.setattr(aeron_directory, "load_layout", load_and_cut)
    found = AeronDirectory.try_open(place)
    assert isinstance(found, CncNotReady)
    assert "look again" in found.reason


@needs_shared_memory
def test_another_major_version_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "cnc.dat").write_bytes(cnc_bytes(version=0x010203))
    with pytest.raises(ProtocolError) as caught:
        AeronDirectory.try_open(tmp_path)
    for part in ("1.2.3", "0.2.0", str(tmp_path), "another version"):
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


@needs_shared_memory
@pytest.mark.parametrize("is_writable", [False, True])
@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_what_is_no_plain_file_is_refused_at_once(
    place: Path, kind: str, *, is_writable: bool
) -> None:
    path = place / "cnc.dat"
    path.rename(place / "real")
    if kind == "link":
        path.symlink_to(place / "real")
    elif kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    with pytest.raises(ProtocolError, match="no plain file"):
        AeronDirectory.try_open(place, is_writable=is_writable)


@needs_shared_memory
def test_the_directory_itself_may_be_a_link(place: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(place)
    with AeronDirectory.open(tmp_path / "link") as directory:
        assert directory.layout == SMALL


@needs_shared_memory
def test_a_file_of_another_user_is_refused_with_what_to_do(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The tests may run as root, who may read everything.
    def refuse(*_: object) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(DriverError, match="run as the user of its driver") as caught:
        AeronDirectory.try_open(place, is_writable=True)
    assert f"read and write {place}/cnc.dat" in str(caught.value)


def test_without_compiled_code_it_says_so(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic_buffer, "WHY_NOT_SHARED", "a test wants none")
    with pytest.raises(ConfigurationError, match="needs compiled code"):
        AeronDirectory.try_open(place)


@needs_shared_memory
def test_no_descriptor_stays_open(place: Path) -> None:
    before = len([*Path("/dev/fd").iterdir()])
    with AeronDirectory.open(place) as directory:
        directory.losses()
        directory.image_log(9)
        assert len([*Path("/dev/fd").iterdir()]) == before


# The driver.


@needs_shared_memory
@pytest.mark.parametrize(
    ("heartbeat_ms", "part"),
    [
        (NOW_MS, None),
        (NOW_MS - TIMEOUT_MS, None),
        (NOW_MS + 3_600_000, None),
        (2**63 - 1, None),
        (NOW_MS - TIMEOUT_MS - 1, "no life for 10,001 ms, of 10,000 ms"),
        (0, "has not begun"),
        (-1, "has ended"),
        (-(2**63), "no life"),
    ],
)
def test_a_heartbeat_says_whether_the_driver_is_active(
    tmp_path: Path, heartbeat_ms: int, part: str | None
) -> None:
    (tmp_path / "cnc.dat").write_bytes(cnc_bytes(heartbeat_ms=heartbeat_ms))
    with AeronDirectory.open(tmp_path) as directory:
        assert directory.heartbeat_ms == heartbeat_ms
        assert directory.is_active(NOW_MS, TIMEOUT_MS) is (part is None)
        why_not = directory.why_not_active(NOW_MS, TIMEOUT_MS)
        if part is None:
            assert why_not is None
        else:
            assert why_not is not None
            assert part in why_not
            assert "process 4711" in why_not


@needs_shared_memory
def test_a_file_that_is_replaced_stays_readable_and_is_noticed(place: Path) -> None:
    with AeronDirectory.open(place) as directory:
        assert not directory.is_replaced()
        (place / "cnc.dat").unlink()
        assert directory.is_replaced()
        other = attrs.evolve(SMALL, pid=99)
        (place / "cnc.dat").write_bytes(cnc_bytes(layout=other, heartbeat_ms=NOW_MS + 5))
        assert directory.is_replaced()
        assert directory.heartbeat_ms == NOW_MS
        assert len(directory.counters.snapshot()) == 13
        with AeronDirectory.open(place) as another:
            assert another.layout.pid == 99
            assert not another.is_replaced()


# The other files.


@needs_shared_memory
def test_without_a_loss_report_nothing_was_lost(place: Path) -> None:
    with AeronDirectory.open(place) as directory:
        (place / "loss-report.dat").write_bytes(b"")
        assert directory.losses() == []
        (place / "loss-report.dat").unlink()
        assert directory.losses() == []
        (place / "loss-report.dat").symlink_to(place / "cnc.dat")
        with pytest.raises(ProtocolError, match="no plain file"):
            directory.losses()


@needs_shared_memory
def test_files_that_go_while_they_are_read_are_left_out(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_cut(*_: object, **__: object) -> None:
        message = "the file is too short"
        raise ValueError(message)

    def failed(*_: object) -> None:
        raise OSError

    with AeronDirectory.open(place) as directory:
        monkeypatch.setattr(aeron_directory, "Mapping", is_cut)
        monkeypatch.setattr(os, "pread", failed)
        assert directory.losses() == []
        assert directory.publication_log(5) is None


@needs_shared_memory
def test_reports_return_no_more_than_their_limit(place: Path) -> None:
    (place / "cnc.dat").write_bytes(cnc_bytes(errors=("one", "two", "three")))
    (place / "loss-report.dat").write_bytes(loss_bytes()[:128] * 32)
    with AeronDirectory.open(place) as directory:
        assert [error.text for error in directory.errors(limit=2)] == ["one", "two"]
        assert directory.errors(since_ms=NOW_MS + 1) == []
        assert len(directory.losses(limit=5)) == 5
        assert len(directory.losses()) == 32


@needs_shared_memory
def test_counters_are_yielded_up_to_a_limit(place: Path) -> None:
    with AeronDirectory.open(place) as directory:
        assert list(directory.counter_records()) == directory.counters.snapshot()
        assert [each.counter_id for each in directory.counter_records(limit=3)] == [0, 1, 2]


@needs_shared_memory
def test_a_log_that_cannot_be_read_says_nothing(place: Path) -> None:
    path = place / "publications" / "5.logbuffer"
    with AeronDirectory.open(place) as directory:
        log = directory.publication_log(5)
        assert log is not None
        assert (log.log_type, log.producer_position) == (LogType.EXCLUSIVE_PUBLICATION, 12_000)
        assert (log.term_length, log.mtu_length, log.initial_term_id) == (65_536, 1_408, -3)
        assert directory.publication_log(6) is None
        assert directory.image_log(5) is None
        os.truncate(path, 4_096)
        assert directory.publication_log(5) is None
        os.truncate(path, 7)
        assert directory.publication_log(5) is None
        path.unlink()
        path.symlink_to(place / "images" / "9.logbuffer")
        assert directory.publication_log(5) is None


@pytest.mark.parametrize(
    ("tail", "position"),
    [
        (pack_tail(-3, 0), 0),
        (pack_tail(-3, 2**32 - 1), 65_536),
        (pack_tail(2, 64), 5 * 65_536 + 64),
        (pack_tail(-4, 64), None),
    ],
)
def test_a_tail_gives_a_position_if_a_publisher_stores_such_tails(
    tail: int, position: int | None
) -> None:
    block = bytearray(log_bytes(LogType.CONCURRENT_PUBLICATION))
    struct.pack_into("<q", block, 0, tail)
    found = describe_log(bytes(block), LOG_LENGTH)
    assert found is not None
    assert found.producer_position == position


@pytest.mark.parametrize(
    ("offset", "value"), [(272, 1), (276, 65_537), (276, -1), (280, 0), (496, 9 << 8)]
)
def test_metadata_of_no_possible_log_says_nothing(offset: int, value: int) -> None:
    block = bytearray(log_bytes(LogType.IMAGE))
    assert describe_log(bytes(block), LOG_LENGTH) is not None
    struct.pack_into("<i", block, offset, value)
    assert describe_log(bytes(block), LOG_LENGTH) is None
    assert describe_log(log_bytes(LogType.IMAGE), LOG_LENGTH + 1) is None


# Hostile files.

PATCHES = st.lists(
    st.tuples(st.integers(0, 2**20), st.binary(min_size=1, max_size=16)), max_size=12
)


def patched(
    data: bytearray, patches: list[tuple[int, bytes]], start: int = 0, end: int | None = None
) -> bytearray:
    """Return the data with some bytes replaced from `start` on, never changed in length."""
    length = len(data)
    span = (length if end is None else end) - start
    for offset, text in patches:
        at = start + offset % span
        data[at : at + len(text)] = text
    return data[:length]


def read_everything(directory: AeronDirectory) -> None:
    for record in directory.counters:
        assert len(record.label) <= 380
    for error in directory.errors():
        assert len(error.text) <= SMALL.error_log_buffer_length
    for loss in directory.losses():
        assert len(loss.channel) + len(loss.source) <= 4_096
    for log in (directory.publication_log(5), directory.image_log(9)):
        assert log is None or log.producer_position is None or log.producer_position >= 0
    directory.why_not_active(NOW_MS, TIMEOUT_MS)
    assert isinstance(directory.producer_position, int)


@needs_shared_memory
@given(PATCHES, st.sampled_from(((0, 128), (4, 52), (128, None))), st.integers(0, 20_000))
def test_any_cnc_file_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory,
    patches: list[tuple[int, bytes]],
    span: tuple[int, int | None],
    cut: int,
) -> None:
    place = tmp_path_factory.mktemp("aeron", numbered=True)
    data = patched(cnc_bytes(errors=("one",)), patches, *span)
    (place / "cnc.dat").write_bytes(data[: len(data) - cut] if cut % 3 == 0 else data)
    try:
        found = AeronDirectory.try_open(place)
    except ProtocolError:
        return
    if isinstance(found, AeronDirectory):
        with found:
            read_everything(found)
            assert found.layout.file_length <= len(data)
    else:
        assert str(place) in found.reason


@needs_shared_memory
@given(st.binary(min_size=128, max_size=128), st.booleans())
def test_any_header_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory,
    header: bytes,
    is_version_right: bool,  # noqa: FBT001 - hypothesis gives it by place
) -> None:
    place = tmp_path_factory.mktemp("aeron", numbered=True)
    version = struct.pack("<i", CNC_VERSION) if is_version_right else header[:4]
    (place / "cnc.dat").write_bytes(version + header[4:] + bytes(9_000))
    try:
        found = AeronDirectory.try_open(place)
    except ProtocolError:
        return
    if isinstance(found, AeronDirectory):
        with found:
            assert found.layout.error_log_buffer.end <= 9_128
    else:
        assert isinstance(found, CncNotReady)


@needs_shared_memory
@given(PATCHES, PATCHES, PATCHES)
def test_any_other_file_is_read_or_left_out(
    tmp_path_factory: pytest.TempPathFactory,
    of_report: list[tuple[int, bytes]],
    of_log: list[tuple[int, bytes]],
    of_image: list[tuple[int, bytes]],
) -> None:
    place = small_directory(tmp_path_factory.mktemp("aeron", numbered=True))
    (place / "loss-report.dat").write_bytes(patched(loss_bytes(), of_report))
    log = patched(bytearray(log_bytes(LogType.EXCLUSIVE_PUBLICATION)), of_log)
    write_log(place / "publications" / "5.logbuffer", bytes(log))
    image = patched(bytearray(log_bytes(LogType.IMAGE)), of_image)
    write_log(place / "images" / "9.logbuffer", bytes(image))
    with AeronDirectory.open(place) as directory:
        read_everything(directory)
