"""Command `aeron-async doctor`: whether this machine suits Aeron, and what to change."""

from __future__ import annotations

import asyncio
import shutil
import socket
import statistics
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from aeron_async._speedups import WHY_PURE
from aeron_async.cli.doctor_findings import (
    GROUP,
    Buffer,
    DoctorVerdict,
    Facts,
    NetworkCard,
    findings,
    worst,
)
from aeron_async.cli.options import Flag, Positive, RunOptions
from aeron_async.cli.output import make_console, print_json, safe_text
from aeron_async.cli.runner import ExitCode, run
from aeron_async.clock import NS_PER_MS
from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.core.udp_channel import Interface
from aeron_async.driver.media.sockets import (
    UDP_GRO,
    BufferLengths,
    SocketSpec,
    offers_segmentation,
    open_socket,
)
from aeron_async.errors import RegistrationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aeron_async.cli.doctor_findings import DoctorFinding

__all__ = [
    "clock_facts",
    "doctor",
    "exit_code",
    "limit_length",
    "look",
    "loop_lags",
    "try_multicast",
]

ANYWHERE: Final = ("0.0.0.0", 0)  # noqa: S104 - the system's choice, for a socket that is closed at once
LAG_INTERVAL_S: Final = 0.01
CLOCK_READ_COUNT: Final = 20_000
SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - where Aeron itself puts its folder
SYSCTLS: Final = Path("/proc/sys/net/core")
CLOCK_SOURCE: Final = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")


async def look(context: DriverContext, seconds: float) -> Facts:
    """Collect the facts of this machine.

    Args:
        context: Settings of the environment.
        seconds: How long to measure the event loop.

    Raises:
        RegistrationError: The system refuses to open any socket.
    """
    spec = SocketSpec(
        local=ANYWHERE,
        socket_sndbuf_length=context.socket_sndbuf_length,
        socket_rcvbuf_length=context.socket_rcvbuf_length,
    )
    with open_socket(spec) as sock:
        lengths = BufferLengths.of(sock, spec)
        has_gso, has_gro = offers_segmentation(sock), offers_gathering(sock)
    cards = await asyncio.get_running_loop().run_in_executor(None, network_cards)
    multicast_interface, multicast_error = try_multicast(GROUP)
    lags_ns = await loop_lags(seconds)
    clock_step_ns, clock_cost_ns = clock_facts(time.monotonic_ns)
    is_shared = SHARED_MEMORY.is_dir()
    return Facts(
        context=context,
        is_linux=sys.platform == "linux",
        receive_buffer=Buffer(
            asked_length=context.socket_rcvbuf_length,
            granted_length=lengths.granted_rcvbuf_length,
            limit_length=limit_length(SYSCTLS / "rmem_max"),
        ),
        send_buffer=Buffer(
            asked_length=context.socket_sndbuf_length,
            granted_length=lengths.granted_sndbuf_length,
            limit_length=limit_length(SYSCTLS / "wmem_max"),
        ),
        cards=cards,
        multicast_interface=multicast_interface,
        multicast_error=multicast_error,
        has_gso=has_gso,
        has_gro=has_gro,
        why_pure=WHY_PURE,
        loop_name=type(asyncio.get_running_loop()).__module__.partition(".")[0],
        shared_free_length=shutil.disk_usage(SHARED_MEMORY).free if is_shared else None,
        loop_lag_median_ns=round(statistics.median(lags_ns)),
        loop_lag_max_ns=max(lags_ns),
        clock_step_ns=clock_step_ns,
        clock_cost_ns=clock_cost_ns,
        clock_source=text_of(CLOCK_SOURCE),
    )


def offers_gathering(sock: socket.socket) -> bool:
    """Return whether the system delivers a segment batch of datagrams in one call."""
    if sys.platform != "linux":
        return False
    try:
        sock.setsockopt(socket.SOL_UDP, UDP_GRO, 1)
    except OSError:
        return False
    return True


def network_cards() -> tuple[NetworkCard, ...]:
    """Return the interfaces that are up; this call blocks."""
    import psutil  # noqa: PLC0415 - takes 20 ms to load, and is only needed here

    return tuple(
        NetworkCard(
            name=name, mtu_length=stats.mtu, is_loopback="loopback" in stats.flags.split(",")
        )
        for name, stats in sorted(psutil.net_if_stats().items())
        if stats.isup
    )


def try_multicast(group: str) -> tuple[str | None, str]:
    """Return the local address for a group; None and the reason if the group cannot be joined."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            # Connecting a UDP socket looks up the route, and sends nothing.
            sock.connect((group, 1))
            address: str = sock.getsockname()[0]
        with open_socket(
            SocketSpec(local=ANYWHERE, group=group, interface=Interface(address=address))
        ):
            return address, ""
    except OSError as error:
        return None, f"no route to {group}: {error.strerror or error}"
    except RegistrationError as error:
        return None, str(error)


async def loop_lags(seconds: float) -> list[int]:
    """Return how late timers of the event loop were, in nanoseconds, measured for that long."""
    lags_ns: list[int] = []
    end_ns = time.monotonic_ns() + int(seconds * 1e9)
    while not lags_ns or time.monotonic_ns() < end_ns:
        due_ns = time.monotonic_ns() + int(LAG_INTERVAL_S * 1e9)
        await asyncio.sleep(LAG_INTERVAL_S)
        # Timers of event loops have a resolution of a millisecond, and may be that much too early.
        lags_ns.append(max(0, time.monotonic_ns() - due_ns - NS_PER_MS))
    return lags_ns


def clock_facts(clock: Callable[[], int]) -> tuple[int, int]:
    """Return the shortest step of a clock, and the duration of a reading; in nanoseconds."""
    readings = [clock() for _ in range(CLOCK_READ_COUNT)]
    steps = [later - earlier for earlier, later in pairwise(readings) if later > earlier]
    elapsed = readings[-1] - readings[0]
    return min(steps, default=elapsed), elapsed // (CLOCK_READ_COUNT - 1)


def limit_length(path: Path) -> int | None:
    """Return the number in a system file; None if there is none."""
    text = text_of(path)
    return int(text) if text.isdecimal() else None


def text_of(path: Path) -> str:
    """Return the text of a system file; empty if it cannot be read."""
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""


STYLES: Final = {
    DoctorVerdict.GOOD: "green",
    DoctorVerdict.SLOW: "yellow",
    DoctorVerdict.BROKEN: "bold red",
}


def doctor(
    *,
    seconds: Positive = 1.0,
    strict: Flag = False,
    json: Flag = False,
    options: RunOptions | None = None,
) -> int:
    """Check whether this machine suits Aeron, and say what to change.

    The exit code is 0 if streams work, even slowly, and 1 if a stream with the settings of this
    environment would be refused or could not be reached.

    Args:
        seconds: How long to measure the event loop.
        strict: Exit with 1 also for findings that only make streams slow.
        json: Report as JSON.
        options: How to run.
    """
    context = DriverContext.from_environment()
    main = _doctor(context, seconds, is_strict=strict, is_json=json)
    return run(main, options or RunOptions())


async def _doctor(context: DriverContext, seconds: float, *, is_strict: bool, is_json: bool) -> int:
    found = findings(await look(context, seconds))
    if is_json:
        report = {"verdict": worst(found), "findings": [attrs.asdict(each) for each in found]}
        print_json(report)
    else:
        print_findings(found)
    return exit_code(worst(found), is_strict=is_strict)


def exit_code(verdict: DoctorVerdict, *, is_strict: bool) -> ExitCode:
    """Return 0 for a machine that works, 1 for one that does not."""
    refused = {DoctorVerdict.BROKEN, DoctorVerdict.SLOW} if is_strict else {DoctorVerdict.BROKEN}
    return ExitCode.FAILURE if verdict in refused else ExitCode.SUCCESS


def print_findings(found: Sequence[DoctorFinding]) -> None:
    """Print findings as a table, with the remedies below."""
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - only this draws
    from rich.table import Table  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415 - as above

    console = make_console()
    table = Table(box=SIMPLE_HEAD, show_edge=False)
    for title in ("", "what", "seen", "wanted"):
        table.add_column(title, no_wrap=title in {"", "what"})
    for each in found:
        style = STYLES[each.verdict]
        table.add_row(
            Text(each.verdict, style),
            safe_text(each.what),
            safe_text(each.seen),
            safe_text(each.wanted),
        )
    console.print(table)
    remedies = [each for each in found if each.remedy]
    if not remedies:
        console.print(Text("\nThis machine suits Aeron.", style="bold"))
        return
    console.print(Text("\nWhat to change", style="bold"))
    for each in remedies:
        console.print(safe_text(f"  {each.what}: {each.remedy}", style=STYLES[each.verdict]))
