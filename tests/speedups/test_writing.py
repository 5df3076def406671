"""Blocks written by a thread apart: their order, their errors, and who holds their memory."""

from __future__ import annotations

import errno
import os
import resource
import selectors
import signal
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async._speedups import BlockWriter
from tests.by_hand import NOT_BUILT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aeron_async._speedups.writing import BlockWriter as BlockWriterType

pytestmark = pytest.mark.skipif(BlockWriter is None, reason=NOT_BUILT)

PATIENCE_S = 20.0
SLOTS = 16


class Lane:
    """A writer with its bell."""

    def __init__(self) -> None:
        assert BlockWriter is not None
        self.bell, self.end = os.pipe()
        os.set_blocking(self.end, False)
        self.blocks: BlockWriterType = BlockWriter(self.end)

    def wait(self, count: int) -> int:
        """Collect until so many blocks have been written, or one failed; return why."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.bell, selectors.EVENT_READ)
            found, failure = self.blocks.collect()
            while found < count and not failure:
                assert selector.select(PATIENCE_S), "it rings when something was done"
                os.read(self.bell, 64)
                more, failure = self.blocks.collect()
                found += more
        assert found >= count or failure
        return failure

    def close(self) -> None:
        self.blocks.close()
        os.close(self.bell)
        os.close(self.end)


@pytest.fixture
def lane() -> Iterator[Lane]:
    found = Lane()
    yield found
    found.close()


@contextmanager
def opened(path: Path) -> Iterator[int]:
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        yield file
    finally:
        os.close(file)


@pytest.mark.parametrize("sync_level", [0, 1, 2])
def test_blocks_lie_where_they_were_to_lie(lane: Lane, tmp_path: Path, sync_level: int) -> None:
    blocks = [bytes([number]) * 32 * number for number in range(1, 40)]
    with opened(tmp_path / "file") as file:
        offset = 64
        for block in blocks:
            while lane.blocks.in_flight == SLOTS:
                assert lane.wait(1) == 0
            lane.blocks.begin(file, block, offset, sync_level)
            offset += len(block)
        assert lane.wait(lane.blocks.in_flight) == 0
    assert (tmp_path / "file").read_bytes() == bytes(64) + b"".join(blocks)


def test_memory_is_held_until_it_is_collected(lane: Lane, tmp_path: Path) -> None:
    memory = bytearray(b"x" * 64)
    with opened(tmp_path / "file") as file:
        lane.blocks.begin(file, memory, 0, 0)
        with pytest.raises(BufferError):
            memory.clear()
        assert lane.wait(1) == 0
        memory.clear()


def test_a_short_write_goes_on_and_what_is_refused_is_told(lane: Lane, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with opened(tmp_path / "file") as file:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
        try:
            lane.blocks.begin(file, b"a" * 8_192, 0, 0)
            lane.blocks.begin(file, b"b" * 8_192, 8_192, 0)
            lane.blocks.begin(file, b"c" * 32, 0, 0)
            assert lane.wait(3) == errno.EFBIG
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        lane.blocks.close()
        assert lane.blocks.collect() == (0, errno.EFBIG)
    # The first length of the block that failed is not there, and nothing behind it was done.
    data = (tmp_path / "file").read_bytes()
    assert data == b"a" * 8_192 + bytes(4) + b"b" * (10_000 - 8_196)


def test_a_file_that_is_none_is_an_error_and_not_a_crash(lane: Lane) -> None:
    lane.blocks.begin(1_000_000, b"x" * 32, 0, 0)
    assert lane.wait(1) == errno.EBADF


def test_a_block_of_a_length_alone_is_written(lane: Lane, tmp_path: Path) -> None:
    with opened(tmp_path / "file") as file:
        lane.blocks.begin(file, b"1234", 4, 0)
        assert lane.wait(1) == 0
    assert (tmp_path / "file").read_bytes() == bytes(4) + b"1234"


@pytest.mark.parametrize("arguments", [(b"abc", 0), (b"abcd", -1), (b"abcd", 2**63 - 4)])
def test_what_is_no_block_is_refused(lane: Lane, arguments: tuple[bytes, int]) -> None:
    with pytest.raises(ValueError, match="lies in its file"):
        lane.blocks.begin(0, *arguments, 0)
    with pytest.raises(TypeError):
        lane.blocks.begin(0, None, 0, 0)  # type: ignore[arg-type]
    assert lane.blocks.in_flight == 0


def test_what_was_begun_is_done_before_it_is_closed(tmp_path: Path) -> None:
    lane = Lane()
    memory = bytearray(1 << 20)
    with opened(tmp_path / "file") as file:
        for number in range(SLOTS):
            lane.blocks.begin(file, memory, number << 20, 0)
        with pytest.raises(ValueError, match="at once"):
            lane.blocks.begin(file, memory, 0, 0)
        lane.close()
        lane.blocks.close()
        with pytest.raises(ValueError, match="at once"):
            lane.blocks.begin(file, memory, 0, 0)
        assert lane.blocks.collect() == (SLOTS, 0)
        memory.clear()
    assert (tmp_path / "file").stat().st_size == SLOTS << 20


def test_a_writer_that_is_dropped_ends_its_thread_and_holds_nothing(tmp_path: Path) -> None:
    lane: Any = Lane()
    memory = bytearray(1 << 20)
    with opened(tmp_path / "file") as file:
        lane.blocks.begin(file, memory, 0, 0)
        lane.blocks = None
        memory.clear()
    os.close(lane.bell)
    os.close(lane.end)


def test_memory_of_what_failed_is_held_no_more_when_it_is_closed(lane: Lane) -> None:
    memory = bytearray(64)
    for _ in range(3):
        lane.blocks.begin(1_000_000, memory, 0, 0)
    assert lane.wait(3) == errno.EBADF
    with pytest.raises(BufferError):
        memory.clear()
    lane.blocks.close()
    memory.clear()
    assert lane.blocks.collect() == (0, errno.EBADF)


def test_a_process_that_was_forked_has_no_thread_and_waits_for_none(lane: Lane) -> None:
    child = os.fork()
    if child == 0:
        answer = 1
        try:
            assert lane.blocks.collect() == (0, 0)
            try:
                lane.blocks.begin(0, b"x" * 32, 0, 0)
            except ValueError:
                lane.blocks.close()
                del lane.blocks
                answer = 0
        finally:
            os._exit(answer)
    with selectors.DefaultSelector() as selector:
        ended = os.pidfd_open(child)
        selector.register(ended, selectors.EVENT_READ)
        has_ended = selector.select(PATIENCE_S)
        os.close(ended)
    if not has_ended:
        os.kill(child, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_programs_that_are_started_hold_none_of_its_files(lane: Lane, tmp_path: Path) -> None:
    path = tmp_path / "file"
    with opened(path) as file:
        lane.blocks.begin(file, b"x" * 32, 0, 0)
        assert lane.wait(1) == 0
    found = []
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if each.readlink() == path:
                found.append(int(each.name))
    # The thread keeps one of its own.
    assert found
    assert not any(map(os.get_inheritable, found))


def test_long_recordings_go_through_several_files_whatever_memory_costs(
    lane: Lane, tmp_path: Path
) -> None:
    block = bytes(range(256)) * 4_096
    for name in ("one", "two"):
        with opened(tmp_path / name) as file:
            for number in range(48):
                while lane.blocks.in_flight == SLOTS:
                    assert lane.wait(1) == 0
                lane.blocks.begin(file, block, number * len(block), 0)
            assert lane.wait(lane.blocks.in_flight) == 0
    for name in ("one", "two"):
        assert (tmp_path / name).read_bytes() == block * 48
