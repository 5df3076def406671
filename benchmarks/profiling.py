"""Where the time goes: both ends of a stream under cProfile, and under perf where it may run."""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import io
import os
import pstats
import shutil
import subprocess
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aeron_async.cli.bench_processes import Child, free_port, role

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["main", "profiled"]

VARIABLE: Final = "BENCHMARKS_PROFILE"
"""A file that a role writes its profile to."""
CHILD: Final = (sys.executable, "-m", "benchmarks.roles")
PERF_DELAY_S: Final = 0.5


def profiled(play: Callable[[], int]) -> int:
    """Do something, and write its profile where the environment says; if it does."""
    path = os.environ.get(VARIABLE)
    if not path:
        return play()
    profile = cProfile.Profile()
    try:
        return profile.runcall(play)
    finally:
        profile.dump_stats(path)


def top(path: Path, count: int) -> str:
    """Return the entries of a profile that took the longest by themselves."""
    text = io.StringIO()
    pstats.Stats(str(path), stream=text).sort_stats("tottime").print_stats(count)
    return text.getvalue()


async def record(options: argparse.Namespace, folder: Path, *, is_perf: bool) -> None:
    """Run a stream once, and leave a profile of each end in a folder."""
    plans = commands(options)
    async with AsyncExitStack() as stack:
        children = []
        for name, command in plans.items():
            environ = {} if is_perf else {VARIABLE: str(folder / name)}
            child = await stack.enter_async_context(Child(command, environ))
            children.append(child)
            if name in {"subscribe", "pong"}:
                await child.wait_for("ready")
        recordings = []
        if is_perf:
            await asyncio.sleep(PERF_DELAY_S)
            for name, child in zip(plans, children, strict=True):
                recordings.append(perf(child.pid, folder / f"{name}.perf", options.seconds))
        for child in children:
            print(await child.wait_for("figures"))
            await child.end()
        for recording in recordings:
            await asyncio.get_running_loop().run_in_executor(None, recording.wait)


def commands(options: argparse.Namespace) -> dict[str, tuple[str, ...]]:
    """Return what is run, by the roles; who waits for the other is first."""
    plan: dict[str, object] = {"length": options.length, "seconds": options.seconds}
    if options.ipc:
        return {"exchange": role("exchange", CHILD, channel="aeron:ipc", **plan)}
    channel, other = (f"aeron:udp?endpoint=127.0.0.1:{free_port()}" for _ in range(2))
    if options.round_trip:
        plan |= {"there": channel, "back": other}
        return {name: role(name, CHILD, **plan) for name in ("pong", "ping")}
    there = f"{channel}|rcv-wnd={options.window}|so-rcvbuf=4m"
    here = f"{channel}|mtu={options.mtu}"
    return {
        "subscribe": role("subscribe", CHILD, channel=there, **plan),
        "publish": role("publish", CHILD, channel=here, **plan),
    }


def perf(pid: int, path: Path, seconds: float) -> subprocess.Popen[bytes]:
    """Begin to record a process."""
    command = ["perf", "record", "-q", "-F", "999", "-p", str(pid), "-o", str(path)]
    return subprocess.Popen(  # noqa: S603 - of our own making
        [*command, "--", "sleep", str(seconds / 2)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def perf_top(path: Path, count: int) -> str:
    """Return the functions that a recording found most often."""
    command = ["perf", "report", "--stdio", "-q", "--no-children", "-s", "dso,symbol", "-i"]
    done = subprocess.run(  # noqa: S603 - of our own making
        [*command, str(path)], capture_output=True, text=True, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    return "\n".join(lines[:count]) or f"perf saw nothing: {done.stderr.strip()[-200:]}"


def main(arguments: list[str]) -> int:
    """Run the target `profile`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks profile", description=__doc__)
    parser.add_argument("--length", type=int, default=100, help="of a message, in bytes")
    parser.add_argument("--mtu", type=int, default=1408)
    parser.add_argument("--window", default="2m", help="of the receiver")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--top", type=int, default=20, help="entries shown of each profile")
    parser.add_argument("--ipc", action="store_true", help="both ends in one event loop")
    parser.add_argument("--round-trip", action="store_true", help="10,000 round trips a second")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asyncio.run(record(options, folder, is_perf=False))
        for path in sorted(folder.iterdir()):
            print(f"== {path.name}, by cProfile", top(path, options.top), sep="\n")
    if shutil.which("perf") is None:
        print("perf is not on PATH: the time in compiled code and in the system is not shown")
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asyncio.run(record(options, folder, is_perf=True))
        for path in sorted(folder.iterdir()):
            print(f"== {path.name}", perf_top(path, options.top), sep="\n")
    return 0
