"""Mapped files and atomic access: what is stored is there, and nothing outside is touched."""

from __future__ import annotations

import gc
import mmap
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.concurrent import atomic_buffer
from aeron_async.concurrent.atomic_buffer import WHY_NOT_SHARED, check_shared_memory
from aeron_async.errors import ConfigurationError
from tests.by_hand import NOT_BUILT
from tests.tracing import untraced_environment

if TYPE_CHECKING:
    from pathlib import Path

needs_shared_memory = pytest.mark.skipif(WHY_NOT_SHARED is not None, reason=NOT_BUILT)
PAGE: Final = mmap.PAGESIZE
LENGTH: Final = 64
EDGES: Final = (-(2**31), -1, 0, 1, 2**31 - 1)
WIDE_EDGES: Final = (-(2**63), *EDGES, 2**63 - 1)
NO_OFFSETS: Final = (-(2**63), -8, -1, LENGTH, LENGTH + 8, 2**62, 2**63 - 1)


def buffer_of(length: int = LENGTH) -> Any:
    return atomic_buffer.AtomicBuffer(bytearray(length))


def file_of(path: Path, length: int) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, length)
    return fd


# Words.


@needs_shared_memory
@pytest.mark.parametrize(("size", "values"), [(32, EDGES), (64, WIDE_EDGES)])
def test_a_word_is_what_was_stored_last(size: int, values: tuple[int, ...]) -> None:
    atomic = buffer_of()

    def call(name: str, *args: int) -> Any:
        return getattr(atomic, f"{name}_{size}")(*args)

    for value in values:
        call("store_release", 8, value)
        assert call("load_acquire", 8) == value
        assert call("exchange", 8, 7) == value
        call("store_volatile", 8, value)
        assert not call("compare_and_swap", 8, 7, 5)
        assert call("compare_and_swap", 8, value, 5)
        assert call("fetch_add", 8, -6) == 5
        assert call("load_acquire", 8) == -1
    assert atomic.get_bytes(0, 8) == bytes(8)
    assert atomic.get_bytes(16, LENGTH - 16) == bytes(LENGTH - 16)


@needs_shared_memory
def test_adding_wraps_around() -> None:
    atomic = buffer_of()
    atomic.store_release_32(0, 2**31 - 1)
    assert atomic.fetch_add_32(0, 1) == 2**31 - 1
    assert atomic.load_acquire_32(0) == -(2**31)
    atomic.store_release_64(0, 2**63 - 1)
    assert atomic.fetch_add_64(0, 1) == 2**63 - 1
    assert atomic.load_acquire_64(0) == -(2**63)


WORD_CALLS: Final = {
    "load_acquire": (),
    "store_release": (1,),
    "store_volatile": (1,),
    "fetch_add": (1,),
    "exchange": (1,),
    "compare_and_swap": (0, 1),
}


@needs_shared_memory
@pytest.mark.parametrize("name", WORD_CALLS)
@pytest.mark.parametrize("size", [32, 64])
def test_a_word_outside_the_buffer_or_between_two_is_refused(name: str, size: int) -> None:
    atomic = buffer_of()
    call = getattr(atomic, f"{name}_{size}")
    width = size // 8
    for offset in (*NO_OFFSETS, LENGTH - width + 1, LENGTH - 1, 1, 2, width // 2):
        with pytest.raises(IndexError, match=f"no word of {width} bytes at offset {offset} in a"):
            call(offset, *WORD_CALLS[name])
    assert atomic.get_bytes(0, LENGTH) == bytes(LENGTH)
    call(LENGTH - width, *WORD_CALLS[name])


@needs_shared_memory
@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 2**64])
def test_a_number_that_is_too_large_is_refused(value: int) -> None:
    atomic = buffer_of()
    with pytest.raises(OverflowError):
        atomic.store_release_32(0, value)
    with pytest.raises(OverflowError):
        atomic.store_release_64(0, value << 32)
    assert atomic.get_bytes(0, LENGTH) == bytes(LENGTH)


# Bytes.


@needs_shared_memory
@given(
    offset=st.integers(-10, LENGTH + 10) | st.sampled_from(NO_OFFSETS),
    data=st.binary(max_size=LENGTH + 10),
)
def test_bytes_are_stored_where_they_fit_and_nowhere_else(offset: int, data: bytes) -> None:
    atomic = buffer_of()
    model = bytearray(LENGTH)
    if 0 <= offset <= LENGTH and offset + len(data) <= LENGTH:
        atomic.put_bytes(offset, data)
        model[offset : offset + len(data)] = data
        assert atomic.get_bytes(offset, len(data)) == data
    else:
        with pytest.raises(IndexError):
            atomic.put_bytes(offset, data)
        with pytest.raises(IndexError):
            atomic.get_bytes(offset, len(data))
        with pytest.raises(IndexError):
            atomic.zero(offset, len(data))
    assert atomic.get_bytes(0, LENGTH) == model


@needs_shared_memory
def test_zeros_replace_bytes() -> None:
    atomic = buffer_of()
    atomic.put_bytes(0, b"x" * LENGTH)
    atomic.zero(3, 5)
    assert atomic.get_bytes(0, 12) == b"xxx" + bytes(5) + b"xxxx"


@needs_shared_memory
@pytest.mark.parametrize("length", [-1, -(2**63), LENGTH + 1, 2**63 - 1])
def test_lengths_that_do_not_fit_are_refused(length: int) -> None:
    atomic = buffer_of()
    with pytest.raises(IndexError, match=f"no {length} bytes at offset 0"):
        atomic.get_bytes(0, length)
    with pytest.raises(IndexError, match=f"no {length} bytes at offset 0"):
        atomic.zero(0, length)


# The buffer.


@needs_shared_memory
def test_a_part_of_a_buffer_begins_and_ends_where_it_is_said() -> None:
    memory = bytearray(range(LENGTH))
    part = atomic_buffer.AtomicBuffer(memory, 16, 8)
    assert len(part) == part.length == 8
    assert part.get_bytes(0, 8) == bytes(range(16, 24))
    part.store_release_64(0, 0)
    assert memory[15:25] == bytes([15, *bytes(8), 24])
    assert len(atomic_buffer.AtomicBuffer(memory, LENGTH)) == 0
    for offset, length in [(-8, 8), (0, LENGTH + 1), (LENGTH + 8, 0), (8, LENGTH), (0, -1)]:
        with pytest.raises(IndexError, match="in a buffer of 64"):
            atomic_buffer.AtomicBuffer(memory, offset, length)


@needs_shared_memory
def test_a_buffer_that_cannot_be_changed_or_is_not_aligned_is_refused() -> None:
    with pytest.raises(TypeError):
        atomic_buffer.AtomicBuffer(b"read only")
    with pytest.raises(TypeError):
        atomic_buffer.AtomicBuffer(memoryview(bytearray(LENGTH))[::2])
    with pytest.raises(ValueError, match="no multiple of 8"):
        atomic_buffer.AtomicBuffer(bytearray(LENGTH), 4)


@needs_shared_memory
def test_a_released_buffer_holds_nothing_and_refuses_everything() -> None:
    memory = bytearray(LENGTH)
    atomic = atomic_buffer.AtomicBuffer(memory)
    with pytest.raises(BufferError):
        memory.append(0)
    atomic.release()
    atomic.release()
    memory.append(0)
    assert len(atomic) == 0
    with pytest.raises(IndexError, match="the buffer is released"):
        atomic.load_acquire_64(0)
    with pytest.raises(IndexError, match="the buffer is released"):
        atomic.put_bytes(0, b"")


@needs_shared_memory
def test_buffers_are_collected() -> None:
    memory = bytearray(LENGTH)
    atomic = atomic_buffer.AtomicBuffer(memory)
    del atomic
    memory.append(0)
    assert len(memory) == LENGTH + 1


# Mappings.


@needs_shared_memory
def test_two_mappings_of_a_file_are_the_same_memory(tmp_path: Path) -> None:
    fd = file_of(tmp_path / "shared", 2 * PAGE)
    first = atomic_buffer.Mapping(fd, 2 * PAGE)
    second = atomic_buffer.Mapping(fd, PAGE, offset=PAGE, is_populated=True)
    # Neither needs the descriptor any more.
    os.close(fd)
    assert (len(first), second.length) == (2 * PAGE, PAGE)
    whole, part = atomic_buffer.AtomicBuffer(first), atomic_buffer.AtomicBuffer(second)
    whole.store_release_64(PAGE + 8, 5)
    assert part.fetch_add_64(8, 1) == 5
    assert whole.load_acquire_64(PAGE + 8) == 6
    assert (tmp_path / "shared").read_bytes()[PAGE + 8] == 6


@needs_shared_memory
def test_memory_stays_mapped_while_something_holds_it(tmp_path: Path) -> None:
    fd = file_of(tmp_path / "shared", PAGE)
    mapping = atomic_buffer.Mapping(fd, PAGE)
    os.close(fd)
    atomic, view = atomic_buffer.AtomicBuffer(mapping), memoryview(mapping)
    with pytest.raises(BufferError, match="2 views"):
        mapping.close()
    assert view[0] == 0
    view.release()
    with pytest.raises(BufferError, match="1 views"):
        mapping.close()
    atomic.release()
    mapping.close()
    mapping.close()
    assert len(mapping) == 0
    with pytest.raises(BufferError, match="the mapping is closed"):
        memoryview(mapping)


@needs_shared_memory
def test_a_view_that_is_left_keeps_the_mapping() -> None:
    view, fd = None, os.memfd_create("shared")
    os.ftruncate(fd, PAGE)
    mapping = atomic_buffer.Mapping(fd, PAGE)
    os.close(fd)
    view = memoryview(mapping)
    del mapping
    gc.collect()
    view[PAGE - 1] = 3
    assert view[PAGE - 1] == 3


@needs_shared_memory
def test_a_mapping_that_may_not_be_written_refuses_it(tmp_path: Path) -> None:
    path = tmp_path / "shared"
    os.close(file_of(path, PAGE))
    fd = os.open(path, os.O_RDONLY)
    with pytest.raises(PermissionError):
        atomic_buffer.Mapping(fd, PAGE)
    mapping = atomic_buffer.Mapping(fd, PAGE, is_writable=False)
    os.close(fd)
    assert memoryview(mapping).readonly
    with pytest.raises(TypeError):
        atomic_buffer.AtomicBuffer(mapping)


@needs_shared_memory
def test_what_the_system_cannot_map_is_refused() -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        atomic_buffer.Mapping(-1, PAGE)
    for length, offset in [(0, 0), (-1, 0), (PAGE, -PAGE)]:
        with pytest.raises(ValueError, match="cannot map"):
            atomic_buffer.Mapping(0, length, offset=offset)


@needs_shared_memory
@pytest.mark.parametrize(("length", "offset"), [(PAGE + 1, 0), (1, PAGE), (2**62, 2**62)])
def test_no_more_is_mapped_than_a_file_has(tmp_path: Path, length: int, offset: int) -> None:
    fd = file_of(tmp_path / "shared", PAGE)
    with pytest.raises(ValueError, match=f"offset {offset} of a file of {PAGE}"):
        atomic_buffer.Mapping(fd, length, offset=offset)
    os.close(fd)


@needs_shared_memory
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
@pytest.mark.processes
def test_a_forked_child_has_no_such_memory_and_ends_in_peace(tmp_path: Path) -> None:
    code = f"""
import gc, mmap, os, sys
from aeron_async.concurrent.atomic_buffer import AtomicBuffer, Mapping
LENGTH = 1 << 20
fd = os.open({str(tmp_path / "shared")!r}, os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, LENGTH)
mapping = Mapping(fd, LENGTH)
atomic, own = AtomicBuffer(mapping), AtomicBuffer(bytearray(8))
view = AtomicBuffer(memoryview(mapping))

def refused(error, call, *arguments):
    try:
        call(*arguments)
    except error as problem:
        return "parent" in str(problem)
    return False

pid = os.fork()
if pid == 0:
    try:
        # The system may give the child this memory where its parent has the other.
        memory = [mmap.mmap(-1, LENGTH) for _ in range(8)]
        assert refused(IndexError, atomic.store_release_64, 0, -1)
        assert refused(IndexError, view.put_bytes, 0, b"x")
        assert refused(IndexError, atomic.get_bytes, 0, 0)
        assert refused(BufferError, memoryview, mapping)
        own.store_release_64(0, 1)
        atomic.release()
        view.release()
        mapping.close()
        atomic = view = mapping = None
        gc.collect()
        assert all(each[:] == bytes(LENGTH) for each in memory)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
assert atomic.fetch_add_64(0, 1) == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True, env=untraced_environment())


# Without the compiled code.


@pytest.mark.skipif(WHY_NOT_SHARED is not None, reason=NOT_BUILT)
def test_shared_memory_is_there() -> None:
    check_shared_memory()


@pytest.mark.skipif(WHY_NOT_SHARED is None, reason="the compiled code is there")
def test_without_compiled_code_no_buffer_is_made() -> None:
    for kind in (atomic_buffer.AtomicBuffer, atomic_buffer.Mapping):
        with pytest.raises(ConfigurationError, match="needs compiled code"):
            kind(bytearray(LENGTH))  # type: ignore[arg-type, call-arg] # no argument helps


@pytest.mark.parametrize(
    ("why", "remedy"),
    [
        ("AERON_ASYNC_PURE is set", "leave AERON_ASYNC_PURE unset"),
        ("it was not built", "install a C compiler, and then this package once more (`pip install"),
    ],
)
def test_without_compiled_code_one_line_says_how_to_get_it(
    why: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(atomic_buffer, "WHY_NOT_SHARED", why)
    with pytest.raises(ConfigurationError) as raised:
        check_shared_memory()
    assert f"{why}: {remedy}" in str(raised.value)
    assert "\n" not in str(raised.value)
