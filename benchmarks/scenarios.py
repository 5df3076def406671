"""Every scenario, with its contenders."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from contextlib import AsyncExitStack
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.cli.bench_processes import Child, free_port, meet, messages_per_datagram, role
from benchmarks import official_programs
from benchmarks.measuring import Contender, Metric, Scenario
from benchmarks.roles import CHILD
from benchmarks.scenarios_archive import recordings
from benchmarks.scenarios_shared import ARROW_LENGTH, LENGTH, LIST_LENGTH, shared

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

__all__ = ["Settings", "scenarios"]

PURE: Final = {"AERON_ASYNC_PURE": "1"}
RATE: Final = Metric("messages_per_s", "messages/s")
THROUGHPUT: Final = (RATE, Metric("mb_per_s", "MB/s"))
ROUND_TRIP: Final = (
    Metric("p50_us", "p50, μs", is_more_better=False),
    Metric("p99_us", "p99, μs", is_more_better=False),
    Metric("p99_9_us", "p99.9, μs", is_more_better=False),
)
IDLE: Final = (
    Metric("publisher_percent", "% of a core, publisher", is_more_better=False),
    Metric("subscriber_percent", "% of a core, subscriber", is_more_better=False),
    Metric("subscriber_resident_mb", "MB resident, subscriber", is_more_better=False),
)
STREAM_COUNTS: Final = (10, 100, 1_000, 10_000)
RECEIVER_COUNTS: Final = (1, 2, 4, 8)
LOSSES: Final = (0.01, 0.05)
NATS_START_S: Final = 1.0


@attrs.frozen(kw_only=True)
class Settings:
    """What all scenarios have in common.

    Attributes:
        seconds: How long each run measures.
        window: Window of every receiver, ours and the official ones.
        term_length: Term length of every publication, ours and the official ones.
        seed: Seed of the losses.
        settle_s: How long streams are left alone before their silence is measured.
    """

    seconds: float = 2.0
    window: str = "2m"
    term_length: str = "4m"
    seed: int = 1
    settle_s: float = 2.0


def scenarios(settings: Settings) -> list[Scenario]:
    """Return all of them, in the order they are run."""
    found = [
        throughput(settings, f"throughput-{name}-mtu{mtu}", length, mtu)
        for name, length in (("100", 100), ("10k", 10_000))
        for mtu in (1_408, 8_192)
    ]
    return [*found, *_others(settings), *recordings(settings), *shared(settings)]


def _others(settings: Settings) -> list[Scenario]:
    counts = {count: partial(idle, settings, count) for count in (1, *STREAM_COUNTS)}
    receivers = {count: partial(fan_out, settings, count) for count in RECEIVER_COUNTS}
    return [
        Scenario(
            name="same-loop",
            question=(
                "100-byte messages over aeron:ipc, both ends in one event loop; one by one all are "
                "checked, lists and arrays are counted if their name says no more."
            ),
            metrics=THROUGHPUT,
            contenders=(
                *both(partial(same_loop, settings)),
                *batched(partial(same_loop_batches, settings)),
            ),
        ),
        Scenario(
            name="round-trip",
            question="There and back, 100 bytes, 10,000 a second, from when each was due.",
            metrics=ROUND_TRIP,
            contenders=(
                *both(partial(round_trip, settings)),
                Contender(
                    name="ours, on_message", measure=partial(round_trip, settings, prefix="called_")
                ),
                Contender(name="floor: bare uvloop echo", measure=partial(echo, settings)),
            ),
        ),
        Scenario(
            name="idle",
            question="Connected and silent, each end in its process.",
            metrics=IDLE,
            contenders=(Contender(name="ours, 1 stream", measure=counts.pop(1)),),
        ),
        Scenario(
            name="idle-streams",
            question="Many connected and silent streams in one pair of drivers, terms of 64 KiB.",
            metrics=IDLE,
            contenders=tuple(
                Contender(name=f"ours, {count} streams", measure=measure)
                for count, measure in counts.items()
            ),
        ),
        Scenario(
            name="receivers",
            question="100-byte messages to many processes by MDC, as fast as the slowest of them.",
            metrics=THROUGHPUT,
            contenders=tuple(
                Contender(name=f"ours, {count} receivers", measure=measure)
                for count, measure in receivers.items()
            ),
        ),
        Scenario(
            name="loss",
            question="100-byte messages where some datagrams in a hundred are lost, each way.",
            metrics=THROUGHPUT,
            contenders=(
                *(
                    Contender(
                        name=f"ours, {loss:.0%} lost".replace("%", " %"),
                        measure=partial(lossy, settings, loss),
                    )
                    for loss in LOSSES
                ),
                Contender(name="ours, nothing lost", measure=partial(lossy, settings, 0.0)),
            ),
        ),
    ]


def both(measure: Callable[..., Awaitable[dict[str, float]]]) -> tuple[Contender, ...]:
    """Return ours with compiled code, and ours in pure Python."""
    return (
        Contender(name="ours", measure=measure),
        Contender(name="ours, pure Python", measure=partial(measure, PURE)),
    )


def batched(measure: Callable[..., Awaitable[dict[str, float]]]) -> tuple[Contender, ...]:
    """Return ours by `offer_many` and `batches`, and as Arrow arrays."""
    arrow = "" if find_spec("pyarrow") else "pyarrow is not installed"
    return (
        Contender(name="ours, lists", measure=partial(measure, LIST_LENGTH)),
        Contender(
            name="ours, lists, checked", measure=partial(measure, LIST_LENGTH, is_checked=True)
        ),
        Contender(
            name="ours, Arrow",
            measure=partial(measure, ARROW_LENGTH, is_arrow=True),
            why_absent=arrow,
        ),
        Contender(
            name="ours, Arrow, checked",
            measure=partial(measure, ARROW_LENGTH, is_arrow=True, is_checked=True),
            why_absent=arrow,
        ),
    )


def throughput(settings: Settings, name: str, length: int, mtu_length: int) -> Scenario:
    """Return a stream between two processes as fast as it goes, ours and others'."""
    zmq = "" if find_spec("zmq") else "pyzmq is not installed"
    zenoh = "" if find_spec("zenoh") else "eclipse-zenoh is not installed"
    nats = "" if shutil.which("nats-server") and find_spec("nats") else "no nats-server, or nats-py"
    return Scenario(
        name=name,
        question=(
            f"{length}-byte messages between two processes, MTU {mtu_length}; one by one all are "
            "checked, lists and arrays are counted if their name says no more."
        ),
        metrics=THROUGHPUT,
        contenders=(
            *both(partial(stream, settings, length, mtu_length)),
            *batched(partial(stream_of_batches, settings, length, mtu_length)),
            *official_programs.contenders(
                mtu_length=mtu_length,
                window=settings.window,
                term_length=settings.term_length,
                length=length,
                seconds=settings.seconds,
            ),
            Contender(
                name="pyzmq, blocking",
                measure=partial(zmq_stream, settings, length, ""),
                why_absent=zmq,
            ),
            Contender(
                name="pyzmq, asyncio",
                measure=partial(zmq_stream, settings, length, "_asyncio"),
                why_absent=zmq,
            ),
            Contender(
                name="zenoh, callback",
                measure=partial(zenoh_stream, settings, length),
                why_absent=zenoh,
            ),
            Contender(name="nats", measure=partial(nats_stream, settings, length), why_absent=nats),
            Contender(
                name="floor: bare datagrams in batches",
                measure=partial(flood, settings, length, mtu_length),
            ),
        ),
    )


async def stream(
    settings: Settings, length: int, mtu_length: int, environ: Mapping[str, str] | None = None
) -> dict[str, float]:
    """Run one stream of ours."""
    channel = f"aeron:udp?endpoint=127.0.0.1:{free_port()}"
    shape = {"length": length, "seconds": settings.seconds}
    return await meet(
        role("subscribe", CHILD, channel=f"{channel}|{tuned(settings)}", **shape),
        role("publish", CHILD, channel=f"{channel}|mtu={mtu_length}|{sending(settings)}", **shape),
        environ=environ,
    )


async def stream_of_batches(
    settings: Settings,
    length: int,
    mtu_length: int,
    list_length: int,
    *,
    is_arrow: bool = False,
    is_checked: bool = False,
) -> dict[str, float]:
    """Run one stream of ours in lists or arrays."""
    channel = f"aeron:udp?endpoint=127.0.0.1:{free_port()}"
    # A list has as many bytes, whatever its messages are.
    shape = {
        "length": length,
        "seconds": settings.seconds,
        "list_length": max(1, list_length * LENGTH // length),
        "is_arrow": is_arrow,
        "is_checked": is_checked,
    }
    return await meet(
        role("shared_subscribe", CHILD, channel=f"{channel}|{tuned(settings)}", **shape),
        role(
            "shared_publish",
            CHILD,
            channel=f"{channel}|mtu={mtu_length}|{sending(settings)}",
            **shape,
        ),
    )


def sending(settings: Settings) -> str:
    """Return the parameters of a publication that goes as fast as it can."""
    return f"term-length={settings.term_length}|so-sndbuf=4m"


def tuned(settings: Settings) -> str:
    """Return the parameters of every receiver."""
    return f"rcv-wnd={settings.window}|so-rcvbuf=4m"


async def same_loop(
    settings: Settings, environ: Mapping[str, str] | None = None
) -> dict[str, float]:
    """Run one stream in one process."""
    plan = role(
        "exchange",
        CHILD,
        channel=f"aeron:ipc?term-length={settings.term_length}",
        seconds=settings.seconds,
    )
    async with Child(plan, environ) as child:
        figures: dict[str, float] = await child.wait_for("figures")
    return figures


async def same_loop_batches(
    settings: Settings,
    list_length: int,
    *,
    is_arrow: bool = False,
    is_checked: bool = False,
) -> dict[str, float]:
    """Run one stream of lists or arrays in one process."""
    plan = role(
        "shared_exchange",
        CHILD,
        channel=f"aeron:ipc?term-length={settings.term_length}",
        seconds=settings.seconds,
        list_length=list_length,
        is_arrow=is_arrow,
        is_checked=is_checked,
    )
    async with Child(plan) as child:
        figures: dict[str, float] = await child.wait_for("figures")
    return figures


async def round_trip(
    settings: Settings, environ: Mapping[str, str] | None = None, *, prefix: str = ""
) -> dict[str, float]:
    """Run a ping and a pong, by tasks or by functions."""
    there, back = (f"aeron:udp?endpoint=127.0.0.1:{free_port()}" for _ in range(2))
    plan = {"there": there, "back": back, "seconds": settings.seconds}
    return await meet(
        role(f"{prefix}pong", CHILD, **plan), role(f"{prefix}ping", CHILD, **plan), environ=environ
    )


async def echo(settings: Settings) -> dict[str, float]:
    """Run bare datagrams there and back."""
    plan = {"there": str(free_port()), "seconds": settings.seconds}
    return await meet(
        role("echo_server", CHILD, **plan),
        role("echo_client", CHILD, **plan),
        waits_for_server=False,
    )


async def flood(settings: Settings, length: int, mtu_length: int) -> dict[str, float]:
    """Run bare datagrams one way, and return how many messages would fit into what arrived."""
    plan = {"port": free_port(), "mtu_length": mtu_length, "seconds": settings.seconds}
    figures = await meet(role("drain", CHILD, **plan), role("flood", CHILD, **plan))
    rate = figures["datagrams_per_s"] * messages_per_datagram(length, mtu_length)
    return {"messages_per_s": rate, "mb_per_s": rate * length / 1e6}


async def zmq_stream(settings: Settings, length: int, kind: str) -> dict[str, float]:
    """Run one stream of pyzmq."""
    return await tcp_stream(settings, length, f"zmq_subscribe{kind}", f"zmq_publish{kind}")


async def zenoh_stream(settings: Settings, length: int) -> dict[str, float]:
    """Run one stream of Zenoh between two peers, without a router."""
    return await tcp_stream(settings, length, "zenoh_subscribe", "zenoh_publish")


async def tcp_stream(
    settings: Settings, length: int, subscriber: str, publisher: str
) -> dict[str, float]:
    """Run one stream over TCP between two processes with these roles."""
    plan = {
        "channel": f"tcp://127.0.0.1:{free_port()}",
        "length": length,
        "seconds": settings.seconds,
    }
    return await meet(role(subscriber, CHILD, **plan), role(publisher, CHILD, **plan))


async def nats_stream(settings: Settings, length: int) -> dict[str, float]:
    """Run one stream through a NATS server of its own."""
    port = free_port()
    plan = {
        "channel": f"nats://127.0.0.1:{port}",
        "length": length,
        "seconds": settings.seconds,
    }
    with tempfile.TemporaryFile() as output:
        server = await asyncio.create_subprocess_exec(
            "nats-server", "-a", "127.0.0.1", "-p", str(port), stdout=output, stderr=output
        )
        try:
            await asyncio.sleep(NATS_START_S)
            return await meet(
                role("nats_subscribe", CHILD, **plan), role("nats_publish", CHILD, **plan)
            )
        finally:
            server.terminate()
            await server.wait()


async def idle(settings: Settings, count: int) -> dict[str, float]:
    """Hold streams open and silent."""
    # A thousand logs of the usual length are more than one driver keeps for its images.
    channel = f"aeron:udp?endpoint=127.0.0.1:{free_port()}|term-length=64k"
    plan = {
        "channel": channel,
        "streams": count,
        "seconds": 2 * settings.seconds,
        "settle_s": settings.settle_s,
    }
    return await meet(
        role("idle", CHILD, is_publisher=False, **plan),
        role("idle", CHILD, is_publisher=True, **plan),
    )


async def fan_out(settings: Settings, count: int) -> dict[str, float]:
    """Run one publication to many receivers, which all have to take everything."""
    control = f"control=127.0.0.1:{free_port()}|control-mode=dynamic"
    there = f"aeron:udp?endpoint=127.0.0.1:0|{control}|{tuned(settings)}"
    here = f"aeron:udp?{control}|fc=min,g:/{count}"
    async with AsyncExitStack() as stack:
        subscribers = [
            await stack.enter_async_context(
                Child(role("subscribe", CHILD, channel=there, seconds=settings.seconds))
            )
            for _ in range(count)
        ]
        for subscriber in subscribers:
            await subscriber.wait_for("ready")
        plan = role("publish", CHILD, channel=here, seconds=settings.seconds)
        publisher = await stack.enter_async_context(Child(plan))
        await publisher.wait_for("figures")
        found = [await subscriber.wait_for("figures") for subscriber in subscribers]
    slowest: dict[str, float] = min(found, key=lambda figures: figures["messages_per_s"])
    return slowest


async def lossy(settings: Settings, loss: float) -> dict[str, float]:
    """Run one stream of ours over a network that loses datagrams, or might."""
    channel = f"aeron:udp?endpoint=127.0.0.1:{free_port()}"
    plan = {"loss": loss, "seconds": settings.seconds, "seed": settings.seed}
    there = f"{channel}|{tuned(settings)}"
    return await meet(
        role("lossy", CHILD, channel=there, is_publisher=False, **plan),
        role("lossy", CHILD, channel=channel, is_publisher=True, **plan),
    )
