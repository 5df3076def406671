"""The official C driver and its sample programs, found in AERON_BIN or on PATH, as contenders.

One driver serves both programs, which is how it is fastest on few cores. It is run with several
threading modes and idle strategies, none of which keeps a core busy for nothing, and with the same
windows and buffers as ours; the best of them counts. The samples themselves spin. The programs
`checked_publisher` and `checked_subscriber`, which idle politely and look at every byte, run too
where they are found: their sources in C are in the folder `official`.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import statistics
import time
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.cli.bench_processes import BenchError, free_port
from benchmarks.drivers import Served, aeron_directory, wait_until_served
from benchmarks.measuring import Contender

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path

__all__ = [
    "MODES",
    "OfficialPlan",
    "absent",
    "contenders",
    "driver",
    "find",
    "line_with",
    "program",
    "rates_of",
]

MODES: Final = (("SHARED", "backoff"), ("SHARED", "yield"), ("DEDICATED", "backoff"))
STREAM_ID: Final = "1001"
STOP_TIMEOUT_S: Final = 10.0
RATE: Final = re.compile(r"^(\d+)ms, ([\d.e+]+) msgs/sec")
SECONDS: Final = re.compile(r"seconds=([\d.]+)")
WARM_UP_S: Final = 1
# How many messages are to be sent is told beforehand; at these rates they take about as long.
GUESSED_BYTES_PER_S: Final = 400_000_000
GUESSED_MESSAGES_PER_S: Final = 2_000_000
MEMORY_SPEED: Final = 5
"""How many times as fast messages are that go through memory and not through sockets."""


@attrs.frozen(kw_only=True)
class OfficialPlan:
    """What is run.

    Attributes:
        threading: Threading mode of the driver.
        idle: Strategy of its threads.
        mtu_length: Longest datagram payload, in bytes.
        window: Window of the receiver, spelled as in settings.
        term_length: Term length of the publication, spelled as in settings.
        length: Length of a message, in bytes.
        seconds: Length of the run.
        channel: Where messages go; empty for a free port of loopback.
    """

    threading: str
    idle: str
    mtu_length: int
    window: str
    term_length: str
    length: int
    seconds: float
    channel: str = ""

    def environ(self, directory: Path) -> dict[str, str]:
        """Return the settings of the driver."""
        threads = ("CONDUCTOR", "SENDER", "RECEIVER", "SHARED")
        return {
            "AERON_DIR": str(directory),
            "AERON_DIR_DELETE_ON_START": "1",
            "AERON_DIR_DELETE_ON_SHUTDOWN": "1",
            "AERON_THREADING_MODE": self.threading,
            "AERON_MTU_LENGTH": str(self.mtu_length),
            "AERON_TERM_BUFFER_LENGTH": self.term_length,
            "AERON_RCV_INITIAL_WINDOW_LENGTH": self.window,
            "AERON_SOCKET_SO_RCVBUF": "4m",
            "AERON_SOCKET_SO_SNDBUF": "4m",
            **{f"AERON_{thread}_IDLE_STRATEGY": self.idle for thread in threads},
        }

    def to(self) -> str:
        """Return the channel of one run."""
        return self.channel or f"aeron:udp?endpoint=127.0.0.1:{free_port()}"

    def guessed_count(self) -> int:
        """Return how many messages take about as long as the run."""
        guessed = min(GUESSED_MESSAGES_PER_S, GUESSED_BYTES_PER_S / self.length)
        speed = MEMORY_SPEED if self.channel.startswith("aeron:ipc") else 1
        return int(guessed * speed * self.seconds)


def find(name: str) -> str | None:
    """Return the path of a program."""
    folders = (os.environ.get("AERON_BIN", ""), os.environ.get("PATH", ""))
    return shutil.which(name, path=os.pathsep.join(folders))


def absent(*programs: str) -> str:
    """Return why these programs cannot run; empty if they can."""
    missing = [name for name in programs if find(name) is None]
    return f"not found: {', '.join(missing)}" if missing else ""


def contenders(
    *,
    mtu_length: int,
    window: str,
    term_length: str,
    length: int,
    seconds: float,
    channel: str = "",
    modes: Sequence[tuple[str, str]] = MODES,
) -> list[Contender]:
    """Return one contender for each mode and each pair of programs."""
    pairs = (
        ("samples", run_samples, ("aeronmd", "streaming_publisher", "rate_subscriber")),
        ("polite", run_checked, ("aeronmd", "checked_publisher", "checked_subscriber")),
    )
    found = []
    for pair, run, programs in pairs:
        for threading, idle in modes:
            plan = OfficialPlan(
                threading=threading,
                idle=idle,
                mtu_length=mtu_length,
                window=window,
                term_length=term_length,
                length=length,
                seconds=seconds,
                channel=channel,
            )
            found.append(
                Contender(
                    name=f"aeronmd {threading.lower()} {idle}, {pair}",
                    measure=partial(run, plan),
                    why_absent=absent(*programs),
                )
            )
    return found


async def run_samples(plan: OfficialPlan) -> dict[str, float]:
    """Stream with the samples, and return what the subscriber has seen, second by second."""
    async with driver(plan) as served:
        environ = {"AERON_DIR": str(served.directory)}
        where = ("-p", str(served.directory), "-c", plan.to(), "-s", STREAM_ID)
        async with program("rate_subscriber", *where, environ=environ) as subscriber:
            await line_with(subscriber, "Subscription channel status")
            sending = ("-L", str(plan.length), "-m", str(10**12), "-l", "0")
            async with program("streaming_publisher", *where, *sending, environ=environ):
                # Rates are told once a second, the first of them with a start in it.
                await asyncio.sleep(max(2.0, plan.seconds) + WARM_UP_S + 0.5)
            subscriber.send_signal(signal.SIGINT)
            output, _ = await asyncio.wait_for(subscriber.communicate(), STOP_TIMEOUT_S)
    return figures(statistics.median(rates_of(output.decode())), plan.length)


def rates_of(output: str) -> list[float]:
    """Return the messages a second that a subscriber has told of, but for the ends.

    Raises:
        BenchError: It has told of none.
    """
    told = [float(found[2]) for line in output.splitlines() if (found := RATE.match(line))]
    busy = [rate for rate in told if rate > 0]
    # The first second has the start in it, and the last the end.
    rates = busy[1:-1] or busy
    if not rates:
        message = "rate_subscriber has seen no message"
        raise BenchError(message)
    return rates


async def run_checked(plan: OfficialPlan) -> dict[str, float]:
    """Stream with programs that look at every byte, and return what came from start to end."""
    count = plan.guessed_count()
    async with driver(plan) as served:
        environ = {"AERON_DIR": str(served.directory)}
        what = (plan.to(), STREAM_ID, str(count), str(plan.length), str(plan.length))
        async with program("checked_subscriber", *what, environ=environ) as subscriber:
            await line_with(subscriber, "SUBSCRIBED")
            async with program("checked_publisher", *what, environ=environ) as publisher:
                telling = asyncio.ensure_future(timed_line_with(publisher, "STATS"))
                _, ended_s = await timed_line_with(subscriber, "OK")
                told, offered_s = await telling
    seconds = SECONDS.search(told)
    assert seconds is not None, "the line says how long it took to offer"
    # It was told when the last message was offered, and ended when that had arrived.
    elapsed_s = float(seconds[1]) + ended_s - offered_s
    return figures(count / elapsed_s, plan.length)


def figures(messages_per_s: float, length: int) -> dict[str, float]:
    """Return the figures that all streams have."""
    return {"messages_per_s": messages_per_s, "mb_per_s": messages_per_s * length / 1e6}


@asynccontextmanager
async def driver(plan: OfficialPlan) -> AsyncIterator[Served]:
    """Run a driver with a directory of its own.

    Raises:
        BenchError: It does not start.
    """
    with aeron_directory() as directory:
        async with program("aeronmd", environ=plan.environ(directory)) as process:
            await wait_until_served(directory, process)
            yield Served(directory=directory, pid=process.pid)


@asynccontextmanager
async def program(name: str, *arguments: str, environ: Mapping[str, str]) -> AsyncIterator[Process]:
    """Run a program line by line; it is asked to end with the block."""
    path = find(name)
    assert path is not None, "an absent program is not run"
    process = await asyncio.create_subprocess_exec(
        "stdbuf",
        "-oL",
        path,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, **environ},
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
        try:
            await asyncio.wait_for(process.communicate(), STOP_TIMEOUT_S)
        except TimeoutError:
            process.kill()
            await process.communicate()


async def timed_line_with(process: Process, text: str) -> tuple[str, float]:
    """Return the first line that contains a text, and when it came."""
    return await line_with(process, text), time.perf_counter()


async def line_with(process: Process, text: str) -> str:
    """Return the first line that contains a text.

    Raises:
        BenchError: It has ended without, or takes too long.
    """
    assert process.stdout is not None
    lines: list[str] = []
    try:
        async with asyncio.timeout(60):
            while line := (await process.stdout.readline()).decode():
                lines.append(line)
                if text in line:
                    return line
    except TimeoutError:
        pass
    message = f"no {text!r} in {lines[-3:]}"
    raise BenchError(message)
