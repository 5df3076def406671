"""What recording costs a stream, how fast a recording is replayed, and plain files beside it."""

from __future__ import annotations

import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aeron_async.cli.bench_processes import Child, Patience, free_port, meet, role
from benchmarks.measuring import Contender, Metric, Scenario
from benchmarks.roles import CHILD

if TYPE_CHECKING:
    from benchmarks.scenarios import Settings

__all__ = ["recordings"]

MEMORY: Final = "/dev/shm"  # noqa: S108 - what is put there has a folder of its own
ROOM: Final = 8 << 30
"""Bytes that a run may take for a moment: ten seconds' worth are more than anybody asks for."""
LONGEST_S: Final = 120.0
METRICS: Final = (
    Metric("messages_per_s", "messages/s"),
    Metric("mb_per_s", "MB/s"),
    Metric("file_mb_per_s", "MB/s of file"),
    Metric("lag_p99_ms", "loop lag, p99, ms", is_more_better=False),
    Metric("work_p99_ms", "its own work of that, ms", is_more_better=False),
)
PLACES: Final = {"on disk": tempfile.gettempdir(), "in memory": MEMORY}


def recordings(settings: Settings) -> list[Scenario]:
    """Return all that an archive is asked."""
    return [
        *(recording(settings, name, length) for name, length in (("100", 100), ("10k", 10_000))),
        replaying(settings),
        Scenario(
            name="replays-10",
            question="Nine replays at once and a slow one, while it is recorded.",
            metrics=METRICS,
            contenders=tuple(
                Contender(
                    name=f"ours, {place}",
                    measure=partial(replayed, settings, directory, part="replays"),
                    why_absent=why_absent(directory),
                )
                for place, directory in PLACES.items()
            ),
        ),
    ]


def recording(settings: Settings, name: str, length: int) -> Scenario:
    """Return a stream that is read, recorded, or both."""
    take = partial(recorded, settings, length)
    contenders = [
        Contender(
            name=f"ours, {kind} {place}",
            measure=partial(take, directory, is_read=is_read),
            why_absent=why_absent(directory),
        )
        for place, directory in PLACES.items()
        for kind, is_read in (("recorded", False), ("recorded and read,", True))
    ]
    return Scenario(
        name=f"recording-{name}",
        question=f"{length}-byte messages between two processes, read, recorded, or both.",
        metrics=METRICS,
        contenders=(
            *contenders,
            Contender(
                name="ours, read and not recorded",
                measure=partial(take, PLACES["on disk"], is_read=True, is_recorded=False),
            ),
            *floors(settings, is_read=False),
        ),
    )


def replaying(settings: Settings) -> Scenario:
    """Return a recording that is read again, message by message."""
    return Scenario(
        name="replay-100",
        question="A recording of 100-byte messages, replayed to `async for`.",
        metrics=METRICS,
        contenders=(
            *(
                Contender(
                    name=f"ours, {place}",
                    measure=partial(replayed, settings, directory),
                    why_absent=why_absent(directory),
                )
                for place, directory in PLACES.items()
            ),
            *floors(settings, is_read=True),
        ),
    )


def floors(settings: Settings, *, is_read: bool) -> list[Contender]:
    """Return what a plain file does, written or read from its beginning to its end."""
    return [
        Contender(
            name=f"floor: plain file {place}",
            measure=partial(plain_file, settings, directory, is_read=is_read),
            why_absent=why_absent(directory),
        )
        for place, directory in PLACES.items()
    ]


def why_absent(directory: str) -> str:
    """Return why nothing is to be written to a directory; empty if it may be."""
    if not Path(directory).is_dir():
        return f"no directory {directory}"
    free = shutil.disk_usage(directory).free
    return "" if free >= ROOM else f"{directory} has {free} bytes left, and {ROOM} may be needed"


async def recorded(
    settings: Settings,
    length: int,
    directory: str,
    *,
    is_read: bool,
    is_recorded: bool = True,
) -> dict[str, float]:
    """Run one stream, and all that is asked of it in one process."""
    channel = f"aeron:udp?endpoint=127.0.0.1:{free_port()}"
    shape = {"length": length, "seconds": settings.seconds}
    return await meet(
        role(
            "record",
            CHILD,
            channel=f"{channel}|rcv-wnd={settings.window}|so-rcvbuf=4m",
            directory=directory,
            records=is_recorded,
            subscribes=is_read,
            settle_s=settings.settle_s,
            **shape,
        ),
        role(
            "publish",
            CHILD,
            channel=f"{channel}|mtu=1408|term-length={settings.term_length}|so-sndbuf=4m",
            **shape,
        ),
    )


async def alone(command: tuple[str, ...]) -> dict[str, float]:
    """Run one process, and return what it came to."""
    async with Child(command, patience=Patience(limit_s=LONGEST_S)) as child:
        figures: dict[str, float] = await child.wait_for("figures")
    return figures


async def replayed(settings: Settings, directory: str, part: str = "replay") -> dict[str, float]:
    """Record a stream, and replay it, or replay it many times at once."""
    return await alone(role(part, CHILD, directory=directory, length=100, seconds=settings.seconds))


async def plain_file(settings: Settings, directory: str, *, is_read: bool) -> dict[str, float]:
    """Write a plain file, and read it again."""
    plan = {"directory": directory, "is_read": is_read, "seconds": settings.seconds}
    return await alone(role("plain_file", CHILD, settle_s=settings.settle_s, **plan))
