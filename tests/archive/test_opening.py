"""An archive is opened as one likes to write it; what cannot be opened is named, and left clean."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from aeron_async import Aeron
from aeron_async.archive import ArchiveContext, LocalArchive, RemoteArchive
from aeron_async.archive.control.server import ControlServer
from aeron_async.archive.control.settings import ControlSettings
from aeron_async.archive.disk.archive_look import archive_at
from aeron_async.archive.disk.files import OsDirectory, OsFile
from aeron_async.archive.disk.mark_file import MarkFile, MarkIdentity
from aeron_async.errors import ArchiveBusyError, ClosedError, StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from typing_extensions import Buffer

CONTROL = "aeron:ipc?term-length=64k"


async def test_an_archive_is_awaited_or_entered(tmp_path: Path) -> None:
    context = ArchiveContext(directory=str(tmp_path / "archive"))
    async with Aeron.connect() as aeron:
        awaited = await LocalArchive.open(aeron, context)
        await awaited.aclose()
        async with LocalArchive.open(aeron, context) as entered:
            assert [each async for each in entered.recordings()] == []
        with pytest.raises(ClosedError):
            await entered.describe(0)
        async with await LocalArchive.open(aeron, context) as both:
            assert both.archive_id == awaited.archive_id != context.archive_id
        opening = LocalArchive.open(aeron, context)
        await opening.__aexit__(None, None, None)


async def test_an_archive_elsewhere_is_awaited_or_entered(tmp_path: Path) -> None:
    context = ArchiveContext(directory=str(tmp_path / "archive"), archive_id=5)
    settings = ControlSettings(local_control_channel=CONTROL)
    async with (
        Aeron.connect() as aeron,
        LocalArchive.open(aeron, context) as archive,
        ControlServer(archive, aeron, settings),
    ):
        awaited = await RemoteArchive.connect(aeron, control_channel=CONTROL)
        assert awaited.archive_id == 5
        await awaited.aclose()
        async with await RemoteArchive.connect(aeron, control_channel=CONTROL) as both:
            assert both.archive_id == 5


@pytest.mark.parametrize("name", ["archive.catalog.new", "archive-mark.dat"])
async def test_a_full_disk_is_named_and_nothing_is_left_half_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = tmp_path / "archive"
    write = OsFile.write

    def refused(self: OsFile, buffers: Sequence[Buffer], offset: int) -> int:
        if self.name == name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(self, buffers, offset)

    context = ArchiveContext(directory=str(path))
    async with Aeron.connect() as aeron:
        with monkeypatch.context() as patch:
            patch.setattr(OsFile, "write", refused)
            with pytest.raises(StorageError, match=r"cannot be opened: .*No space left") as caught:
                await LocalArchive.open(aeron, context)
        assert str(path) in str(caught.value)
        assert not (path / "archive.catalog.new").exists()
        async with LocalArchive.open(aeron, context):
            pass


async def test_a_file_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    context = ArchiveContext(directory=str(tmp_path / "file"))
    async with Aeron.connect() as aeron:
        with pytest.raises(NotADirectoryError, match="file is not a directory"):
            await LocalArchive.open(aeron, context)


def test_what_holds_no_archive_is_told_in_one_wording(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter").write_bytes(b"")
    for name, why in (
        ("gone", "it does not exist"),
        ("file", "it is not a directory"),
        ("empty", "it is empty"),
        ("other", r"there is no archive\.catalog in it"),
    ):
        with pytest.raises(OSError, match=rf"{name} holds no archive: {why}$"):
            archive_at(tmp_path / name)


def test_who_holds_a_directory_is_named_with_what_can_be_done(tmp_path: Path) -> None:
    directory = OsDirectory(tmp_path)
    channel = "aeron:udp?endpoint=localhost:8010"
    for given, act in (
        (channel, f"use its control channel {channel}, or stop it"),
        ("", "stop it"),
    ):
        mark = MarkFile.open(directory, MarkIdentity(control_channel=given), now_ms=1)
        with pytest.raises(ArchiveBusyError) as caught:
            MarkFile.open(directory, MarkIdentity(), now_ms=1)
        assert act in str(caught.value)
        mark.close()
