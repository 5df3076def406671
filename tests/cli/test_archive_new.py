"""A command that fails leaves no archive that it has made, and takes away nothing else."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from aeron_async.cli.archive_where import remove_if_unused
from aeron_async.cli.main import main
from aeron_async.errors import ConfigurationError
from tests.archive.golden import copy_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))
        yield int(other.getsockname()[1])


def commands(where: str, port: int) -> list[list[str]]:
    channel = f"aeron:udp?endpoint=127.0.0.1:{port}"
    return [
        ["serve", where, "--control", channel],
        ["record", where, channel, "--stream", "1"],
        ["record", where, "aeron:bad", "--stream", "1"],
        ["record", where, "aeron:udp?endpoint=127.0.0.1:0", "--stream", "1", "--extend", "3"],
    ]


@pytest.mark.parametrize("number", range(4))
def test_no_archive_is_left_where_there_was_none(
    tmp_path: Path, taken_port: int, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    where = tmp_path / "new"
    assert main(["archive", *commands(str(where), taken_port)[number]]) in {1, 2}
    assert "error: " in capsys.readouterr().err
    assert not where.exists()


@pytest.mark.parametrize("number", range(4))
def test_what_was_there_before_stays(tmp_path: Path, taken_port: int, number: int) -> None:
    where = tmp_path / "mine"
    where.mkdir()
    (where / "notes.txt").write_text("precious")
    assert main(["archive", *commands(str(where), taken_port)[number]]) in {1, 2}
    assert [each.name for each in where.iterdir()] == ["notes.txt"]
    archive = copy_of("A1-one-finished", tmp_path)
    names = {each.name for each in archive.iterdir()}
    assert main(["archive", *commands(str(archive), taken_port)[number]]) in {1, 2}
    assert {each.name for each in archive.iterdir()} - {"archive-mark.dat"} == names


@pytest.mark.parametrize("link", [False, True])
def test_an_archive_with_recordings_or_with_its_mark_elsewhere_stays(
    tmp_path: Path, *, link: bool
) -> None:
    where = tmp_path / "new"

    def fail() -> None:
        copy_of("A1-one-finished", tmp_path).rename(where)
        if link:
            (where / "archive-mark.lnk").write_text(str(tmp_path))
        message = "too late"
        raise ConfigurationError(message)

    with pytest.raises(ConfigurationError, match="too late"), remove_if_unused(str(where)):
        fail()
    assert (where / "archive.catalog").exists()


def test_a_failure_before_anything_was_made_is_the_one_that_is_told(tmp_path: Path) -> None:
    message = "no driver"
    for where in (tmp_path / "new", tmp_path):
        with pytest.raises(OSError, match=message), remove_if_unused(str(where)):
            raise OSError(message)
