from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.cli.stdio import BlockingCalls, read_lines, write_all
from aeron_async.errors import MessageTooLongError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


@pytest.fixture
async def calls() -> AsyncIterator[BlockingCalls]:
    blocking = BlockingCalls()
    yield blocking
    blocking.close()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            continue


async def test_a_blocking_call_returns_and_raises_as_it_does(calls: BlockingCalls) -> None:
    assert await calls.call(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await calls.call(divmod, 7, 0)
    assert await calls.call(sorted, [1, 2], reverse=True) == [2, 1]


async def test_the_loop_goes_on_meanwhile(calls: BlockingCalls) -> None:
    event = threading.Event()
    call = asyncio.ensure_future(calls.call(event.wait))
    await asyncio.sleep(0)
    assert not call.done()
    event.set()
    assert await call


async def test_an_abandoned_call_disturbs_nobody(calls: BlockingCalls) -> None:
    event = threading.Event()
    call = asyncio.ensure_future(calls.call(event.wait))
    await asyncio.sleep(0)
    call.cancel()
    event.set()
    assert await calls.call(int, "3") == 3


def test_a_call_may_outlive_its_loop() -> None:
    event = threading.Event()

    async def abandon() -> threading.Thread:
        calls = BlockingCalls()
        call = asyncio.ensure_future(calls.call(event.wait))
        await asyncio.sleep(0)
        call.cancel()
        return next(t for t in threading.enumerate() if t.name == "aeron-async-stdio")

    thread = asyncio.run(abandon())
    event.set()
    thread.join(10)
    assert not thread.is_alive()


async def test_lines_come_without_their_newlines(
    calls: BlockingCalls, pipe: tuple[int, int]
) -> None:
    os.write(pipe[1], b"one\n\nthree\r\nlast")
    os.close(pipe[1])
    lines = [line async for line in read_lines(calls, pipe[0], max_length=100)]
    assert lines == [b"one", b"", b"three\r", b"last"]


async def test_lines_come_before_the_end(calls: BlockingCalls, pipe: tuple[int, int]) -> None:
    os.write(pipe[1], b"one\ntw")
    lines = read_lines(calls, pipe[0], max_length=100)
    assert await anext(lines) == b"one"
    os.write(pipe[1], b"o\n")
    assert await anext(lines) == b"two"


async def test_a_line_that_never_ends_is_refused(
    calls: BlockingCalls, pipe: tuple[int, int]
) -> None:
    os.write(pipe[1], b"x" * 101)
    with pytest.raises(MessageTooLongError, match="100 bytes"):
        _ = [line async for line in read_lines(calls, pipe[0], max_length=100)]


@given(content=st.binary(max_size=200), length=st.integers(1, 7))
def test_however_it_is_cut_the_lines_are_the_same(content: bytes, length: int) -> None:
    chunks = iter([content[i : i + length] for i in range(0, len(content), length)])

    class Chunks:
        async def call(self, *_arguments: object) -> bytes:
            return next(chunks, b"")

    async def read() -> list[bytes]:
        lines = read_lines(cast("BlockingCalls", Chunks()), 0, max_length=1_000)
        return [line async for line in lines]

    expected = content.split(b"\n")
    assert asyncio.run(read()) == (expected if expected[-1] else expected[:-1])


def test_writing_goes_on_until_everything_is_written(pipe: tuple[int, int]) -> None:
    content = bytes(range(256)) * 4096
    received = bytearray()

    def read() -> None:
        while len(received) < len(content):
            received.extend(os.read(pipe[0], 70_000))

    reader = threading.Thread(target=read)
    reader.start()
    write_all(pipe[1], content)
    reader.join(10)
    assert bytes(received) == content


def test_writing_to_nobody_says_so(pipe: tuple[int, int]) -> None:
    os.close(pipe[0])
    with pytest.raises(BrokenPipeError):
        write_all(pipe[1], b"x")
