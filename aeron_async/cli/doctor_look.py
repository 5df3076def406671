"""Looks at the machine for `aeron-async doctor`: every fact, and no opinion."""

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

from aeron_async.cli.doctor_facts import GROUP, Buffer, Facts, NetworkCard
from aeron_async.clock import NS_PER_MS
from aeron_async.driver.core.udp_channel import Interface
from aeron_async.driver.media.sockets import (
    UDP_GRO,
    BufferLengths,
    SocketSpec,
    offers_segmentation,
    open_socket,
)
from aeron_async.errors import RegistrationError
from aeron_async.kernel import WHY_PURE

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.driver.core.context import DriverContext

__all__ = ["clock_facts", "limit_length", "look", "loop_lags", "try_multicast"]

ANYWHERE: Final = ("0.0.0.0", 0)  # noqa: S104 - the system's choice, for a socket that is closed at once
LAG_INTERVAL_S: Final = 0.01
CLOCK_READ_COUNT: Final = 20_000
SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - where Aeron itself puts its folder
SYSCTLS: Final = Path("/proc/sys/net/core")
CLOCK_SOURCE: Final = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")


async def look(context: DriverContext, seconds: float) -> Facts:
    """Return everything that is to be known.

    Args:
        context: The settings of the environment.
        seconds: How long the event loop is watched.

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
    """Return whether the system hands over a run of datagrams as one."""
    if sys.platform != "linux":
        return False
    try:
        sock.setsockopt(socket.SOL_UDP, UDP_GRO, 1)
    except OSError:
        return False
    return True


def network_cards() -> tuple[NetworkCard, ...]:
    """Return the interfaces that are up; blocks for as long as the system takes."""
    import psutil  # noqa: PLC0415 - takes 20 ms to load, and is only needed here

    return tuple(
        NetworkCard(
            name=name, mtu_length=stats.mtu, is_loopback="loopback" in stats.flags.split(",")
        )
        for name, stats in sorted(psutil.net_if_stats().items())
        if stats.isup
    )


def try_multicast(group: str) -> tuple[str | None, str]:
    """Return the address that a group is reached from, or None and why it is not."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            # Asks the routes, and sends nothing.
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
    """Return by how much timers of the event loop were late, in nanoseconds, for so long."""
    lags_ns: list[int] = []
    end_ns = time.monotonic_ns() + int(seconds * 1e9)
    while not lags_ns or time.monotonic_ns() < end_ns:
        due_ns = time.monotonic_ns() + int(LAG_INTERVAL_S * 1e9)
        await asyncio.sleep(LAG_INTERVAL_S)
        # Timers of event loops count in milliseconds, and may be as much too early.
        lags_ns.append(max(0, time.monotonic_ns() - due_ns - NS_PER_MS))
    return lags_ns


def clock_facts(clock: Callable[[], int]) -> tuple[int, int]:
    """Return the shortest step of a clock, and how long reading it takes; in nanoseconds."""
    readings = [clock() for _ in range(CLOCK_READ_COUNT)]
    steps = [later - earlier for earlier, later in pairwise(readings) if later > earlier]
    elapsed = readings[-1] - readings[0]
    return min(steps, default=elapsed), elapsed // (CLOCK_READ_COUNT - 1)


def limit_length(path: Path) -> int | None:
    """Return the number that a file of the system holds; None where there is none."""
    text = text_of(path)
    return int(text) if text.isdecimal() else None


def text_of(path: Path) -> str:
    """Return what a file of the system holds; nothing where it cannot be read."""
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""
