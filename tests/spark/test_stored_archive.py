"""Archives behind URLs: read as those of this host are, in few requests, and no secret is told."""

from __future__ import annotations

import io
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from aeron_async.archive.disk.files import OsDirectory, read_exactly
from aeron_async.errors import ArchiveError, ConfigurationError
from aeron_async.spark import stored_archive
from aeron_async.spark.lake import TableSnapshot
from aeron_async.spark.source import AeronArchiveSource
from aeron_async.spark.stored_archive import (
    LONGEST_REQUEST,
    SHORTEST_REQUEST,
    StoredDirectory,
    StoredFile,
    directory_at,
)
from tests.archive.golden import ARCHIVES, facts, golden_path
from tests.spark.pipeline.local import LocalJob, planned
from tests.spark.stores import KEY, SECRET, memory_copy, s3_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.spark.stores import S3

VALID = 1
SCHEMA = StructType(
    [
        *(StructField(name, LongType()) for name in ("recording_id", "position", "end_position")),
        StructField("payload", BinaryType()),
    ]
)


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with s3_server() as server:
        yield server


def rows(path: str, **options: str) -> list[dict[str, Any]]:
    reader: Any = AeronArchiveSource({"path": path, **options}).reader(SCHEMA)
    return [
        row
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


def framed(payloads: list[bytes]) -> str:
    return sha256(b"".join(len(each).to_bytes(4, "little") + each for each in payloads)).hexdigest()


@pytest.mark.parametrize("name", ARCHIVES)
@pytest.mark.parametrize("store", ["memory", "s3"])
def test_every_message_of_an_official_archive_is_read(
    name: str, store: str, request: pytest.FixtureRequest
) -> None:
    path = golden_path(name)
    given = {"failOnDataLoss": "false"} if name == "A3-recovered" else {}
    copy = memory_copy if store == "memory" else request.getfixturevalue("s3").copy
    found = rows(copy(path), **given)
    assert found == rows(str(path), **given)
    for each in facts()[name].get("recordings", ()):
        if each["state"] == VALID and "framed_messages_sha256" in each:
            mine = [row["payload"] for row in found if row["recording_id"] == each["recording_id"]]
            assert framed(mine) == each["framed_messages_sha256"]


@pytest.mark.parametrize("store", ["memory", "s3"])
def test_a_pipeline_takes_a_copy_as_its_original(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = golden_path("A1-one-finished")
    copy = memory_copy if store == "memory" else request.getfixturevalue("s3").copy
    bronze = []
    for name, archive in (("original", path), ("copied", copy(path))):
        job = LocalJob(archive, tmp_path / name)
        job.begin()
        job.process(0, *planned(archive))
        (report,) = job.reports
        rows = TableSnapshot.open(tmp_path / name / "bronze").arrow().to_table()
        assert rows.num_rows == report.messages > 0
        bronze.append(rows)
    assert bronze[0].equals(bronze[1])
    written = [each.read_bytes() for each in (tmp_path / "copied").rglob("*") if each.is_file()]
    assert not any(KEY.encode() in each or SECRET.encode() in each for each in written)
    with pytest.raises(ConfigurationError, match="archive"):
        LocalJob(path, tmp_path / "copied").begin()


def test_a_store_that_spark_writes_as_s3a_is_s3(s3: S3) -> None:
    url = s3.copy(golden_path("A6-padding"))
    assert rows(url.replace("s3://", "s3a://"))


def test_a_directory_can_be_a_file_url(tmp_path: Path) -> None:
    place = tmp_path / "with space"
    place.mkdir()
    assert isinstance(directory_at(place.as_uri()), OsDirectory)
    with pytest.raises(ConfigurationError, match="is no directory on this host"):
        directory_at((tmp_path / "none").as_uri())


@pytest.mark.parametrize(
    "url",
    [
        "s3://KEY1:hidden@bucket/a b",
        "s3a://KEY1:hid den@bucket/a",
        "s3://bucket/a?secret_key=hid den",
        "gs://KEY1:hidden@bucket/a?hidden=1",
        "s3://[KEY1:hidden@bucket",
    ],
)
def test_no_secret_is_told_of_what_is_no_url(url: str) -> None:
    with pytest.raises(ConfigurationError, match="no URL that can be opened") as caught:
        directory_at(url)
    assert "KEY1" not in str(caught.value)
    assert "hid" not in str(caught.value)


def test_no_secret_is_told(s3: S3) -> None:
    with pytest.raises(ConfigurationError) as caught:
        directory_at(s3.url("not-there"))
    assert "s3://feeds/not-there" in str(caught.value)
    assert KEY not in str(caught.value)
    directory = directory_at(s3.copy(golden_path("A6-padding")))
    assert directory.path == "s3://feeds/A6-padding"
    assert SECRET not in directory.path


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("s3://?scheme=ftp", "is no URL that can be opened"),
        ("teapot://place/archive", "cannot be opened by fsspec"),
        ("memory://nothing-here", "is no directory with files"),
    ],
)
def test_what_cannot_be_opened_is_told(url: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        directory_at(url)


def test_a_missing_library_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    with pytest.raises(ConfigurationError, match="pip install fsspec"):
        directory_at("memory://somewhere")


class Silent:
    """A store that does not answer."""

    def get_file_info(self, path: str) -> None:
        message = f"When getting information for {path}: connection refused\x1b[2J\nand more"
        raise OSError(message)


def test_a_store_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_archive, "opened", lambda _url: (Silent(), "feeds/archive"))
    with pytest.raises(ConfigurationError) as caught:
        directory_at("s3://key:password@feeds/archive?region=us-east-1")
    told = str(caught.value)
    assert told.startswith("path='s3://feeds/archive' could not be looked at: When getting")
    assert told.isprintable()
    assert "and more" not in told


def test_a_directory_is_listed_and_never_written() -> None:
    path = golden_path("A6-padding")
    directory = StoredDirectory(memory_copy(path))
    assert sorted(directory.names()) == sorted(each.name for each in path.iterdir())
    assert directory.modified_ms("archive.catalog") == 0
    with pytest.raises(ArchiveError, match="no name of a file"):
        directory.open_to_read("../archive.catalog")
    for of_nothing in (directory.open_to_read, directory.modified_ms):
        with pytest.raises(FileNotFoundError):
            of_nothing("0-0.rec.gone")
    assert not any(hasattr(directory, each) for each in ("open", "remove", "rename"))
    file = directory.open_to_read("archive.catalog")
    assert not any(hasattr(file, each) for each in ("write", "set_length"))


def test_a_catalog_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_archive, "LONGEST_CATALOG", 1_000)
    directory = StoredDirectory(memory_copy(golden_path("A6-padding")))
    with pytest.raises(ArchiveError, match="longer than 1000 bytes"):
        directory.open_to_read("archive.catalog")


class Counting(io.BytesIO):
    """An object that counts the requests for its bytes."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.asked: list[int] = []

    def size(self) -> int:
        return len(self.getbuffer())

    def readinto(self, buffer: Any) -> int:
        self.asked.append(len(buffer))
        return super().readinto(buffer)


def test_a_reader_that_goes_on_asks_for_more_and_more() -> None:
    data = bytes(range(256)) * (3 << 16)
    source = Counting(data)
    file = StoredFile("0-0.rec", source)
    piece, found = memoryview(bytearray(1 << 16)), bytearray()
    while count := read_exactly(file, piece, len(found)):
        found += piece[:count]
    assert found == data
    assert source.asked[:3] == [SHORTEST_REQUEST, 2 * SHORTEST_REQUEST, 4 * SHORTEST_REQUEST]
    assert max(source.asked) == LONGEST_REQUEST
    assert len(source.asked) < 16


def test_a_look_here_and_there_asks_for_little() -> None:
    source = Counting(bytes(1 << 22))
    file = StoredFile("0-0.rec", source)
    for at in (3 << 20, 1 << 20, 2 << 20):
        assert file.read_into(memoryview(bytearray(32)), at) == 32
        assert file.read_into(memoryview(bytearray(32)), at + 32) == 32
    assert source.asked == [SHORTEST_REQUEST] * 3
    assert file.read_into(memoryview(bytearray(32)), (1 << 22) - 8) == 8
    assert file.read_into(memoryview(bytearray(32)), 1 << 22) == 0
    file.close()
    file.close()
