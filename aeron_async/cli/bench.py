"""Command `aeron-async bench`: throughput and latency of this machine, beside their floor."""

from __future__ import annotations

import platform
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import attrs

from aeron_async._speedups import WHY_PURE
from aeron_async.cli.bench_processes import (
    PATIENT,
    Child,
    Patience,
    free_port,
    meet,
    messages_per_datagram,
    role,
)
from aeron_async.cli.figures import format_ns, format_per_second, format_throughput
from aeron_async.cli.options import LONGEST_MESSAGE, Flag, Positive, Quiet, RunOptions, sized
from aeron_async.cli.output import make_console, print_json, remark
from aeron_async.cli.runner import ExitCode, run
from aeron_async.clock import NS_PER_US
from aeron_async.driver.core.context import DriverContext
from aeron_async.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

__all__ = ["bench", "rows"]

LONG_LENGTH: Final = 10_000
BenchSize = Annotated[int, sized(1, LONGEST_MESSAGE)]
NUMBER_LENGTH: Final = 8
HOST: Final = "aeron:udp?endpoint=127.0.0.1:"


def bench(
    *,
    seconds: Positive = 1.0,
    size: BenchSize = 100,
    rate: Positive = 10_000.0,
    json: Flag = False,
    quiet: Quiet = False,
    options: RunOptions | None = None,
) -> int:
    """Measure throughput and latency of this machine, and its floor.

    Every message is checked. The floor of throughput is bare datagrams from one process to another,
    without order, repair or flow control; the floor of latency is a bare echo on the same event
    loop.

    Args:
        seconds: How long each of the six parts measures.
        size: Length of a message in bytes, at least 8; throughput is also measured with 10,000.
        rate: Round trips a second, each measured from when it was due.
        json: Report as JSON.
        quiet: Do not remark on progress.
        options: How to run.
    """
    if size < NUMBER_LENGTH:
        message = (
            f"--size {size} must be at least {NUMBER_LENGTH}: a message begins with its number"
        )
        raise ConfigurationError(message)
    plan: dict[str, Any] = {"seconds": seconds}
    if options is not None and options.loop is not None:
        plan["loop"] = options.loop
    say: Callable[[str], object] = (lambda _text: None) if quiet else remark
    return run(_bench(plan, size, rate, is_json=json, say=say), options or RunOptions())


async def _bench(
    plan: Mapping[str, Any],
    size: int,
    rate: float,
    *,
    is_json: bool,
    say: Callable[[str], object],
) -> int:
    mtu_length = DriverContext.from_environment().mtu_length
    parts: dict[str, Callable[[Patience], Awaitable[dict[str, float]]]] = {
        "flood": partial(_flood, plan, mtu_length),
        "udp": partial(_stream, plan, size),
        "udp_long": partial(_stream, plan, LONG_LENGTH),
        "ipc": partial(_ipc, plan, size),
        "echo": partial(_echo, plan, size, rate),
        "round_trip": partial(_round_trip, plan, size, rate),
    }
    patience, found = attrs.evolve(PATIENT, say=say), dict[str, dict[str, float]]()
    for number, (name, measure) in enumerate(parts.items()):
        say(f"{number + 1} of {len(parts)}: {name.replace('_', ' ')}")
        found[name] = await measure(patience)
    if is_json:
        about = {"size": size, "rate": rate, "mtu": mtu_length, "seconds": plan["seconds"]}
        machine = {"python": platform.python_version(), "compiled_code": WHY_PURE or "in use"}
        print_json({**about, **machine, **found})
    else:
        _print(found, size=size, rate=rate, mtu_length=mtu_length)
    return ExitCode.SUCCESS


async def _flood(plan: Mapping[str, Any], mtu_length: int, patience: Patience) -> dict[str, float]:
    bare = {"port": free_port(), "mtu_length": mtu_length, "seconds": plan["seconds"]}
    return await meet(role("drain", **bare), role("flood", **bare), patience=patience)


async def _stream(plan: Mapping[str, Any], length: int, patience: Patience) -> dict[str, float]:
    channel = f"{HOST}{free_port()}"
    shape = {**plan, "channel": channel, "length": length}
    return await meet(role("subscribe", **shape), role("publish", **shape), patience=patience)


async def _ipc(plan: Mapping[str, Any], length: int, patience: Patience) -> dict[str, float]:
    command = role("exchange", channel="aeron:ipc", length=length, **plan)
    async with Child(command, patience=patience) as child:
        figures: dict[str, float] = await child.wait_for("figures")
    return figures


async def _echo(
    plan: Mapping[str, Any], length: int, rate: float, patience: Patience
) -> dict[str, float]:
    shape = {**plan, "there": str(free_port()), "length": length, "rate": rate}
    return await meet(
        role("echo_server", **shape),
        role("echo_client", **shape),
        waits_for_server=False,
        patience=patience,
    )


async def _round_trip(
    plan: Mapping[str, Any], length: int, rate: float, patience: Patience
) -> dict[str, float]:
    there, back = f"{HOST}{free_port()}", f"{HOST}{free_port()}"
    shape = {**plan, "there": there, "back": back, "length": length, "rate": rate}
    return await meet(role("pong", **shape), role("ping", **shape), patience=patience)


def rows(
    found: Mapping[str, Mapping[str, float]], *, size: int, rate: float, mtu_length: int
) -> list[tuple[str, str, str, str]]:
    """Return table rows: title, measurement, floor, and the measurement divided by the floor."""
    datagrams_per_s = found["flood"]["datagrams_per_s"]
    shown = []
    for name, what, length in (
        ("udp", "two processes, UDP", size),
        ("udp_long", "two processes, UDP", LONG_LENGTH),
        ("ipc", "one event loop, IPC", size),
    ):
        ours = found[name]["messages_per_s"]
        throughput = format_throughput(found[name]["mb_per_s"] * 1e6)
        floor, share = "", ""
        if name != "ipc":
            floor_rate = datagrams_per_s * messages_per_datagram(length, mtu_length)
            floor, share = format_per_second(floor_rate), f"{ours / floor_rate:.2f}"
        text = f"{format_per_second(ours)}, {throughput}"
        shown.append((f"{what}, {length:,} bytes", text, floor, share))
    for name, title in (("p50_us", "p50"), ("p99_us", "p99"), ("p99_9_us", "p99.9")):
        ours, bare = found["round_trip"][name], found["echo"][name]
        what = f"round trip, {rate:,.0f}/s, {size:,} bytes, {title}"
        times = f"{ours / bare:.2f}" if bare else ""
        shown.append((what, format_ns(ours * NS_PER_US), format_ns(bare * NS_PER_US), times))
    return shown


def _print(
    found: Mapping[str, Mapping[str, float]], *, size: int, rate: float, mtu_length: int
) -> None:
    from rich.table import Table  # noqa: PLC0415 - only this branch draws a table

    code = "compiled code" if WHY_PURE is None else f"pure Python: {WHY_PURE}"
    caption = (
        f"MTU {mtu_length}, {code}. Floor: bare datagrams, without order, repair or flow control"
    )
    table = Table(caption=caption, caption_justify="left")
    table.add_column("what")
    for title in ("aeron-async", "floor", "times the floor"):
        table.add_column(title, justify="right")
    for row in rows(found, size=size, rate=rate, mtu_length=mtu_length):
        table.add_row(*row)
    make_console().print(table)
