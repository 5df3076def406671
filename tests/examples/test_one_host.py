"""Examples for one driver on a host: each is a process, beside a driver and a neighbor."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

import aeron_async as aa
from tests.examples.programs import TIMEOUT_S, start
from tests.logs import without_lines_of_the_machine
from tests.serving import until_it_serves
from tests.tracing import untraced_environment
from tests.twins import needs_compiled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.warm import Program

pytestmark = [needs_compiled, pytest.mark.processes]

CHANNEL = "aeron:ipc?term-length=64k"
STREAM_ID = 1001


@asynccontextmanager
async def driver_in(directory: Path) -> AsyncIterator[None]:
    """Run a driver as a process; kill it in the end, which leaves its directory."""
    settings = {
        "AERON_DIR": str(directory),
        "AERON_DIR_DELETE_ON_START": "true",
        "AERON_COUNTERS_VALUES_BUFFER_LENGTH": str(1 << 20),
    }
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "aeron_async", "driver"), env=untraced_environment() | settings
    )
    try:
        await until_it_serves(directory, program.pid)
        yield
    finally:
        program.kill()
        await program.wait()


async def line_of(program: Program) -> str:
    """Return the next line that a program prints."""
    assert program.stdout is not None
    async with asyncio.timeout(TIMEOUT_S):
        return (await asyncio.to_thread(program.stdout.readline)).rstrip("\n")


def end(program: Program) -> None:
    """Kill a program that has not ended, and close its pipes."""
    with program:
        program.kill()


async def test_the_one_beside_java_reads_a_neighbor_to_its_end(tmp_path: Path) -> None:
    directory = tmp_path / "aeron"
    async with driver_in(directory):
        async with aa.Aeron.connect(directory=directory) as neighbor:
            program = start("beside_java", AERON_DIR=str(directory), CHANNEL=CHANNEL)
            try:
                assert await line_of(program) == "listening"
                async with neighbor.add_publication(CHANNEL, STREAM_ID) as publication:
                    for number in range(3):
                        await publication.offer(b"order %d" % number, timeout=TIMEOUT_S)
                    await publication.drain(timeout=TIMEOUT_S)
                    for number in range(3):
                        assert await line_of(program) == f"{64 * (number + 1)} order {number}"
                    taken = [each for each in neighbor.counters if each.type_id == STREAM_ID]
                    assert [each.value for each in taken] == [3]
                _, complaints = await asyncio.to_thread(program.communicate, timeout=TIMEOUT_S)
            finally:
                end(program)
        assert (without_lines_of_the_machine(complaints), program.returncode) == ("", 0)


async def test_the_one_in_a_container_waits_for_drivers_and_ends_when_it_is_stopped(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "aeron"
    program = start("in_a_container", AERON_DIR=str(directory), CHANNEL=CHANNEL)
    try:
        for word in ("first", "second"):
            async with (
                driver_in(directory),
                aa.Aeron.connect(directory=directory) as neighbor,
            ):
                if word == "first":
                    assert await line_of(program) == "listening"
                async with neighbor.add_publication(CHANNEL, STREAM_ID) as publication:
                    await publication.offer(word.encode(), timeout=TIMEOUT_S)
                    count = 1 if word == "first" else 2
                    lines = [await line_of(program) for _ in range(count)]
                    # It may have a message before everything has been added again.
                    assert word in lines
                    others = [line for line in lines if line != word]
                    assert all(line.startswith("reconnected: ") for line in others)
        program.send_signal(signal.SIGTERM)
        output, _ = await asyncio.to_thread(program.communicate, timeout=TIMEOUT_S)
    finally:
        end(program)
    assert (output, program.returncode) == ("", 0)
