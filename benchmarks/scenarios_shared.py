"""One driver for a host: what its clients in other processes reach through shared memory."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from aeron_async.cli.bench_child import StreamPlan
from aeron_async.cli.bench_processes import Child, free_port, meet, role
from benchmarks import official_programs
from benchmarks.drivers import our_driver, pinned, why_absent, why_not_pinned
from benchmarks.measuring import Contender, Metric, Scenario
from benchmarks.official_programs import OfficialPlan
from benchmarks.roles import CHILD
from benchmarks.usage import cpu_s, memory_mb, shares_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from benchmarks.drivers import Served
    from benchmarks.scenarios import Settings

    Serving = Callable[[], AbstractAsyncContextManager[Served]]
    Figures = dict[str, float]

__all__ = ["ARROW_LENGTH", "LENGTH", "LIST_LENGTH", "shared"]

LENGTH: Final = 100
MTU: Final = 1_408
LIST_LENGTH: Final = 1_024
ARROW_LENGTH: Final = 8_192
THROUGHPUT: Final = (
    Metric("messages_per_s", "messages/s"),
    Metric("publisher_ns", "ns of CPU a message, publisher", is_more_better=False),
    Metric("subscriber_ns", "ns of CPU a message, subscriber", is_more_better=False),
    Metric("driver_ns", "ns of CPU a message, drivers", is_more_better=False),
)
ROUND_TRIP: Final = (
    Metric("p50_us", "p50, μs", is_more_better=False),
    Metric("p99_us", "p99, μs", is_more_better=False),
)
IDLE: Final = (
    Metric("driver_percent", "% of a core, driver", is_more_better=False),
    Metric("client_percent", "% of a core, client", is_more_better=False),
)
MEMORY: Final = (
    Metric("rss_mb", "MB resident", is_more_better=False),
    Metric("pss_mb", "MB resident, shared pages shared out", is_more_better=False),
)
PAUSES_S: Final = {"10 ms": 0.01, "100 ms": 0.1}
# Nothing but the conductor works for a stream of IPC.
MODES: Final = (("SHARED", "backoff"), ("SHARED", "yield"))
STREAM_IDS: Final = (1001, 1002)
WARM_UP_S: Final = StreamPlan(channel="").warm_up_s


def shared(settings: Settings) -> list[Scenario]:
    """Return all that is asked of drivers that serve other processes."""
    return [
        one_by_one(settings),
        in_lists(settings),
        in_arrays(settings),
        over_udp(settings),
        round_trips(settings),
        silence(settings),
        Scenario(
            name="shared-memory",
            question="A driver that serves nobody yet.",
            metrics=MEMORY,
            contenders=(
                ours("ours", partial(memory, settings, our_driver)),
                Contender(
                    name="aeronmd",
                    measure=partial(memory, settings, partial(aeronmd, settings, *MODES[0])),
                    why_absent=official_programs.absent("aeronmd"),
                ),
            ),
        ),
    ]


def ours(name: str, measure: Callable[[], Awaitable[Figures]], *programs: str) -> Contender:
    """Return a contender of ours, which may need official programs too."""
    missing = official_programs.absent(*programs) if programs else ""
    return Contender(name=name, measure=measure, why_absent=why_absent() or missing)


def one_by_one(settings: Settings) -> Scenario:
    """Return a stream of IPC between two processes, and what others reach."""
    take = partial(stream, settings)
    iceoryx = "" if find_spec("iceoryx2") else "iceoryx2 is not installed"
    return Scenario(
        name="ipc-100",
        question=(
            "100-byte messages over aeron:ipc between two processes and a driver, one by one, "
            f"terms of {settings.term_length}, counted."
        ),
        metrics=THROUGHPUT,
        contenders=(
            ours("ours, exclusive", take),
            ours("ours, shared", partial(take, is_exclusive=False)),
            ours("ours, exclusive, every byte checked", partial(take, is_checked=True)),
            *through_aeronmd(settings, take),
            *official_programs.contenders(
                mtu_length=MTU,
                window=settings.window,
                term_length=settings.term_length,
                length=LENGTH,
                seconds=settings.seconds,
                channel=ipc(settings),
                modes=MODES,
            ),
            Contender(
                name="iceoryx2, Python, polling",
                measure=partial(iceoryx_stream, settings),
                why_absent=iceoryx,
            ),
        ),
    )


def through_aeronmd(
    settings: Settings, take: Callable[..., Awaitable[Figures]], **more: Any
) -> list[Contender]:
    """Return contenders that run a stream of ours through the official driver."""
    return [
        ours(
            f"ours, exclusive, through aeronmd {threading.lower()} {idle}",
            partial(take, serving=partial(aeronmd, settings, threading, idle), **more),
            "aeronmd",
        )
        for threading, idle in MODES
    ]


def in_lists(settings: Settings) -> Scenario:
    """Return a stream of IPC that is offered and read in lists."""
    take = partial(stream, settings, list_length=LIST_LENGTH)
    return Scenario(
        name="ipc-lists",
        question=(
            f"The same by `offer_many` and `batches`, in lists of {LIST_LENGTH:,}, "
            f"terms of {settings.term_length}."
        ),
        metrics=THROUGHPUT,
        contenders=(
            ours("ours, exclusive", take),
            ours("ours, exclusive, bytes not looked at", partial(take, is_read=False)),
            ours("ours, shared", partial(take, is_exclusive=False)),
            *through_aeronmd(settings, take),
        ),
    )


def in_arrays(settings: Settings) -> Scenario:
    """Return a stream of IPC that is offered and read as Arrow arrays."""
    take = partial(stream, settings, list_length=ARROW_LENGTH, is_arrow=True)
    missing = "" if find_spec("pyarrow") else "pyarrow is not installed"
    return Scenario(
        name="ipc-arrow",
        question=(
            f"The same by `offer_arrow` and `to_arrow`, in arrays of {ARROW_LENGTH:,}, "
            f"terms of {settings.term_length}."
        ),
        metrics=THROUGHPUT,
        contenders=tuple(
            Contender(name=name, measure=measure, why_absent=why_absent() or missing)
            for name, measure in (
                ("ours, exclusive", take),
                ("ours, shared", partial(take, is_exclusive=False)),
            )
        ),
    )


def over_udp(settings: Settings) -> Scenario:
    """Return a stream over UDP between clients of drivers of their own, of one, or of embedded."""
    take = partial(udp_stream, settings)
    return Scenario(
        name="udp-shared",
        question=f"100-byte messages over UDP on loopback, MTU {MTU}, by where the drivers are.",
        metrics=THROUGHPUT,
        contenders=(
            ours("ours, a driver for each", partial(take, driver_count=2)),
            Contender(
                name="ours, a driver for each, on the core of its client",
                measure=partial(take, driver_count=2, is_pinned=True),
                why_absent=why_absent() or why_not_pinned(),
            ),
            ours("ours, one driver for both", partial(take, driver_count=1)),
            Contender(name="ours, embedded", measure=partial(take, driver_count=0)),
        ),
    )


def round_trips(settings: Settings) -> Scenario:
    """Return round trips over IPC, by how the clients wait."""
    take = partial(round_trip, settings)
    return Scenario(
        name="ipc-round-trip",
        question="There and back over aeron:ipc, 100 bytes, one at a time.",
        metrics=ROUND_TRIP,
        contenders=(
            ours("ours, spinning", partial(take, idle_strategy="spin")),
            ours("ours, at once", take),
            *(
                ours(f"ours, after {pause}", partial(take, pause_s=pause_s))
                for pause, pause_s in PAUSES_S.items()
            ),
        ),
    )


def silence(settings: Settings) -> Scenario:
    """Return clients that are connected and say nothing."""
    return Scenario(
        name="shared-idle",
        question="Two clients of one driver, each with a publication and a subscription, silent.",
        metrics=IDLE,
        contenders=(
            ours("ours", partial(idle, settings)),
            ours(
                "ours, beside an official subscriber",
                partial(idle, settings, is_beside=True),
                "basic_subscriber",
            ),
        ),
    )


def ipc(settings: Settings) -> str:
    """Return the channel of all streams of IPC."""
    return f"aeron:ipc?term-length={settings.term_length}"


@asynccontextmanager
async def aeronmd(settings: Settings, threading: str, idle: str) -> AsyncIterator[Served]:
    """Run the official driver."""
    plan = OfficialPlan(
        threading=threading,
        idle=idle,
        mtu_length=MTU,
        window=settings.window,
        term_length=settings.term_length,
        length=LENGTH,
        seconds=settings.seconds,
    )
    async with official_programs.driver(plan) as served:
        yield served


async def stream(settings: Settings, *, serving: Serving = our_driver, **more: Any) -> Figures:
    """Run one stream of IPC between two clients of a driver."""
    async with serving() as served:
        plan = {
            "channel": ipc(settings),
            "directory": str(served.directory),
            "seconds": settings.seconds,
            **more,
        }
        return await with_costs(
            settings,
            [served],
            meet(role("shared_subscribe", CHILD, **plan), role("shared_publish", CHILD, **plan)),
        )


async def with_costs(
    settings: Settings, drivers: list[Served], running: Awaitable[Figures]
) -> Figures:
    """Return the figures of a stream, with the processor time that each message took.

    That of the drivers is from start to end, so it is shared out among the messages of the warm-up
    too, as if these had been as quick.
    """
    before_s = sum(cpu_s(each.pid) for each in drivers)
    figures = await running
    used_s = sum(cpu_s(each.pid) for each in drivers) - before_s
    rate = figures["messages_per_s"]
    for side in ("publisher", "subscriber"):
        if f"{side}_share" in figures:
            figures[f"{side}_ns"] = figures[f"{side}_share"] / rate * 1e9
    if drivers:
        count = figures["messages"] * (1 + WARM_UP_S / settings.seconds)
        figures["driver_ns"] = used_s / count * 1e9
    return figures


async def udp_stream(settings: Settings, *, driver_count: int, is_pinned: bool = False) -> Figures:
    """Run one stream over UDP, with so many drivers that are processes of their own."""
    cores = (
        [pinned(core) for core in sorted(os.sched_getaffinity(0))[:2]] if is_pinned else [(), ()]
    )
    channel = f"aeron:udp?endpoint=127.0.0.1:{free_port()}"
    there = f"{channel}|rcv-wnd={settings.window}|so-rcvbuf=4m"
    here = f"{channel}|mtu={MTU}|term-length={settings.term_length}|so-sndbuf=4m"
    async with AsyncExitStack() as stack:
        drivers = [
            await stack.enter_async_context(our_driver(*core)) for core in cores[:driver_count]
        ]
        directories = [str(each.directory) for each in drivers] or [""]
        plan: dict[str, Any] = {"seconds": settings.seconds}
        return await with_costs(
            settings,
            drivers,
            meet(
                (
                    *cores[-1],
                    *role(
                        "shared_subscribe", CHILD, channel=there, directory=directories[-1], **plan
                    ),
                ),
                (
                    *cores[0],
                    *role("shared_publish", CHILD, channel=here, directory=directories[0], **plan),
                ),
            ),
        )


async def iceoryx_stream(settings: Settings) -> Figures:
    """Run one stream of iceoryx2, which has no driver."""
    plan = {"channel": f"aeron-bench/{uuid4()}", "length": LENGTH, "seconds": settings.seconds}
    return await with_costs(
        settings,
        [],
        meet(role("iceoryx_subscribe", CHILD, **plan), role("iceoryx_publish", CHILD, **plan)),
    )


async def round_trip(settings: Settings, **more: Any) -> Figures:
    """Run a ping and a pong between two clients of a driver."""
    async with our_driver() as served:
        plan = {
            "directory": str(served.directory),
            "channel": ipc(settings),
            "seconds": settings.seconds,
            **more,
        }
        return await meet(
            role("shared_pong", CHILD, **plan),
            role("shared_ping", CHILD, **plan),
            waits_for_server=False,
        )


async def idle(settings: Settings, *, is_beside: bool = False) -> Figures:
    """Run two clients that are silent, and an official one that polls if it is asked for."""
    channel = ipc(settings)
    async with AsyncExitStack() as stack:
        served = await stack.enter_async_context(our_driver())
        directory, children = str(served.directory), []
        for says, hears in (STREAM_IDS, STREAM_IDS[::-1]):
            plan = {"directory": directory, "channel": channel, "says": says, "hears": hears}
            child = await stack.enter_async_context(Child(role("shared_rest", CHILD, **plan)))
            await child.wait_for("ready")
            children.append(child)
        for child in children:
            await child.wait_for("connected")
        if is_beside:
            where = ("-p", directory, "-c", channel, "-s", str(STREAM_IDS[0]))
            polling = official_programs.program("basic_subscriber", *where, environ={})
            await official_programs.line_with(
                await stack.enter_async_context(polling), "Available image"
            )
        await asyncio.sleep(settings.settle_s)
        pids = {"driver_percent": served.pid, "client_percent": children[0].pid}
        return await shares_of(pids, 5 * settings.seconds)


async def memory(settings: Settings, serving: Serving) -> Figures:
    """Run a driver, and look at its memory once it has settled."""
    async with serving() as served:
        await asyncio.sleep(settings.settle_s)
        return memory_mb(served.pid)
