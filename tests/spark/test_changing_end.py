"""Where a recording ends whose files change while one looks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.errors import DataLossError
from aeron_async.spark.readable_end import ReadableEnds
from tests.spark.recordings import TERM, options_for
from tests.spark.test_readable_end import Clock, alive, end, filled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aeron_async.archive.disk.files import File, OsDirectory


class RacingFile:
    """A file that somebody goes on with behind the first look at it."""

    def __init__(self, file: File, then: Callable[[], object]) -> None:
        self._file = file
        self._then: Callable[[], object] | None = then

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read_into(self, buffer: memoryview, offset: int) -> int:
        count = self._file.read_into(buffer, offset)
        then, self._then = self._then, None
        if then is not None:
            then()
        return count


class RacingDirectory:
    """A directory of such files."""

    def __init__(self, directory: OsDirectory, then: Callable[[], object]) -> None:
        self._directory = directory
        self._then = then

    def __getattr__(self, name: str) -> Any:
        return getattr(self._directory, name)

    def open_to_read(self, name: str) -> Any:
        return RacingFile(self._directory.open_to_read(name), self._then)


@pytest.mark.parametrize("seen", [0, 4, 6, 7])
def test_what_is_written_while_one_looks_is_not_damaged(tmp_path: Path, seen: int) -> None:
    maker = filled(tmp_path, 5)
    before = maker.positions[3]
    file = tmp_path / "0-0.rec"
    whole = file.read_bytes()
    # So much of the header, and of what lies behind it nothing or all.
    torn = whole[: before + seen] + bytes(32 - seen)
    file.write_bytes(torn + (whole[len(torn) :] if seen else bytes(len(whole) - len(torn))))
    directory: Any = RacingDirectory(maker.directory, lambda: file.write_bytes(whole))
    ends = ReadableEnds(directory, options_for(tmp_path), clock=Clock())
    assert ends.of(maker.descriptor) in {before, maker.position}
    # Where nobody writes it is.
    file.write_bytes(torn + whole[len(torn) :])
    if seen:
        with pytest.raises(DataLossError, match="takes this for the end"):
            end(maker, tmp_path)


def test_a_file_that_has_gone_while_one_looks_is_named(tmp_path: Path) -> None:
    maker = filled(tmp_path, 200, segment_length=TERM)
    mark = alive(maker.directory)
    try:
        # The first of several, where an end that is held back may lie.
        lag = str(maker.position - 1_000)
        (tmp_path / "0-0.rec").unlink()
        with pytest.raises(DataLossError, match=r"0-0\.rec is not there; failOnDataLoss=false"):
            end(maker, tmp_path, safetyLagBytes=lag)
        assert end(maker, tmp_path, safetyLagBytes=lag, failOnDataLoss="false") == 0
    finally:
        mark.close()
