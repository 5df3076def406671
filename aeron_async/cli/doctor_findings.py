"""Findings about a machine: what its facts mean for Aeron, each with a remedy.

Invariant: this module does no I/O. Facts are the input, findings the output, in a fixed order.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, final

import attrs

from aeron_async._speedups import PURE_VARIABLE
from aeron_async.cli.figures import format_bytes, format_ns
from aeron_async.cli.receive_room import DOUBLED, capacity, datagram_count, wanted_rcvbuf_length
from aeron_async.clock import NS_PER_MS, NS_PER_US
from aeron_async.driver.core.congestion_control.auto_window import (
    BUFFER_SHARE,
    WISHED_RCVBUF_LENGTH,
    longest_window,
)
from aeron_async.driver.media.sockets import wished_rcvbuf_length
from aeron_async.protocol.channel_uri import ChannelUri
from aeron_async.protocol.units import format_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aeron_async.driver.core.context import DriverContext

__all__ = [
    "GROUP",
    "Buffer",
    "DoctorFinding",
    "DoctorVerdict",
    "Facts",
    "NetworkCard",
    "findings",
    "judge",
    "network_findings",
    "worst",
]


@final
class DoctorVerdict(StrEnum):
    """Severity of a finding."""

    GOOD = "good"
    SLOW = "slow"
    """Everything works, but more slowly than it could, or a rarely used feature does not work."""
    BROKEN = "broken"
    """A stream with these settings is refused, or no peer can reach it."""


@attrs.frozen(kw_only=True)
class DoctorFinding:
    """One examined property of the machine.

    Attributes:
        what: Name of the property.
        seen: Its state.
        wanted: The state that it should have.
        remedy: What to do; empty if nothing is to be done.
        verdict: Severity.
    """

    what: str
    seen: str
    wanted: str
    remedy: str
    verdict: DoctorVerdict


def judge(
    what: str, *, seen: str, wanted: str, remedy: str, is_good: bool, otherwise: DoctorVerdict
) -> DoctorFinding:
    """Return a finding that is good, or has another verdict and a remedy."""
    verdict = DoctorVerdict.GOOD if is_good else otherwise
    return DoctorFinding(
        what=what, seen=seen, wanted=wanted, remedy="" if is_good else remedy, verdict=verdict
    )


GROUP: Final = "224.20.30.39"
"""Group that is tried; Aeron's samples use it."""


@attrs.frozen(kw_only=True)
class Buffer:
    """A socket buffer, in bytes.

    Attributes:
        asked_length: Length in the settings; 0 for the system's default.
        granted_length: Length that the system granted, comparable with the one asked for.
        limit_length: Largest length that the system grants; None if unknown.
    """

    asked_length: int
    granted_length: int
    limit_length: int | None


@attrs.frozen(kw_only=True)
class NetworkCard:
    """An interface that is up.

    Attributes:
        name: Such as `eth0`.
        mtu_length: Longest packet in bytes, IP header included.
        is_loopback: Whether this is a loopback interface.
    """

    name: str
    mtu_length: int
    is_loopback: bool


@attrs.frozen(kw_only=True)
class Facts:
    """Facts of a machine that matter to Aeron.

    Attributes:
        context: Settings of the environment.
        is_linux: Whether the system is Linux.
        receive_buffer: Receive buffer of a socket as the driver opens it.
        send_buffer: Send buffer of a socket as the driver opens it.
        cards: Interfaces that are up.
        multicast_interface: Local address for a group; None if the group cannot be reached.
        multicast_error: Why a group cannot be joined or sent to; empty if it can.
        has_gso: Whether the system splits a segment batch into datagrams (`UDP_SEGMENT`).
        has_gro: Whether the system delivers datagrams as a segment batch (`UDP_GRO`).
        why_pure: Why pure Python is used; None if compiled code is.
        loop_name: Event loop that commands run on.
        shared_free_length: Bytes free in /dev/shm; None if there is no such folder.
        loop_lag_median_ns: Median delay of timers of the event loop.
        loop_lag_max_ns: Longest delay of a timer.
        clock_step_ns: Shortest step of the monotonic clock.
        clock_cost_ns: Duration of reading the clock.
        clock_source: Clock source of the system; empty if unknown.
    """

    context: DriverContext
    is_linux: bool
    receive_buffer: Buffer
    send_buffer: Buffer
    cards: tuple[NetworkCard, ...]
    multicast_interface: str | None
    multicast_error: str
    has_gso: bool
    has_gro: bool
    why_pure: str | None
    loop_name: str
    shared_free_length: int | None
    loop_lag_median_ns: int
    loop_lag_max_ns: int
    clock_step_ns: int
    clock_cost_ns: int
    clock_source: str


BARE_CHANNEL: Final = ChannelUri.parse("aeron:udp?endpoint=localhost:0")
UDP_IPV4_HEADERS_LENGTH: Final = 28
"""Length of an IPv4 header without options, and of a UDP header."""
MTU_ALIGNMENT: Final = 32
SMALL_LENGTH: Final = 100
"""A datagram of one small message, of which far more fit a window than a buffer."""


def network_findings(facts: Facts) -> Iterator[DoctorFinding]:
    """Yield findings about buffers, interfaces, groups and batches."""
    yield _receive_buffer(facts)
    yield from _receiver_window(facts)
    yield from _datagrams(facts)
    yield _send_buffer(facts)
    yield from _interfaces(facts)
    yield _multicast(facts)
    yield from _batching(facts)


def _receive_buffer(facts: Facts) -> DoctorFinding:
    buffer, window_length = facts.receive_buffer, facts.context.initial_window_length
    wanted_length = max(buffer.asked_length, window_length)
    is_refused = buffer.granted_length < window_length
    return judge(
        "receive buffer",
        seen=_granted(buffer),
        wanted=f"{format_size(wanted_length)}, for a window of {format_size(window_length)}",
        remedy=_buffer_remedy(facts, "AERON_SOCKET_SO_RCVBUF", "rmem", wanted_length),
        is_good=buffer.granted_length >= wanted_length,
        otherwise=DoctorVerdict.BROKEN if is_refused else DoctorVerdict.SLOW,
    )


def _receiver_window(facts: Facts) -> Iterator[DoctorFinding]:
    """Yield how far a window can grow that nobody has chosen."""
    context, limit_length = facts.context, facts.receive_buffer.limit_length
    if limit_length is None or not wished_rcvbuf_length(BARE_CHANNEL, context):
        return
    first_length = context.initial_window_length
    granted_length = min(WISHED_RCVBUF_LENGTH, limit_length)
    last_length = max(first_length, longest_window(context.term_buffer_length, granted_length))
    wanted_length = max(first_length, longest_window(context.term_buffer_length, 0))
    yield judge(
        "receiver window",
        seen=f"grows from {format_size(first_length)} to {format_size(last_length)}",
        wanted=f"to {format_size(wanted_length)}, where readers are fast",
        remedy=f"sudo sysctl -w net.core.rmem_max={BUFFER_SHARE * wanted_length}",
        is_good=last_length >= wanted_length,
        otherwise=DoctorVerdict.SLOW,
    )


def _datagrams(facts: Facts) -> Iterator[DoctorFinding]:
    """Yield whether a sender within its window can overflow the buffer, as the system counts."""
    context, buffer = facts.context, facts.receive_buffer
    if not facts.is_linux:
        return
    mtu_length = context.mtu_length
    window_length = context.initial_window_length
    granted_length = buffer.granted_length
    if buffer.limit_length is not None and wished_rcvbuf_length(BARE_CHANNEL, context):
        granted_length = min(WISHED_RCVBUF_LENGTH, buffer.limit_length)
        longest_length = longest_window(context.term_buffer_length, granted_length)
        window_length = max(window_length, longest_length)
    window_length = min(window_length, context.term_buffer_length // 2)
    # What the system itself has chosen, it counts whole.
    system_length = DOUBLED * granted_length if buffer.asked_length else granted_length
    held_count = capacity(system_length, mtu_length)
    wanted_count = datagram_count(window_length, mtu_length)
    remedy = _buffer_remedy(
        facts, "AERON_SOCKET_SO_RCVBUF", "rmem", wanted_rcvbuf_length(window_length, mtu_length)
    )
    if held_count:
        fitting_length = format_size(held_count * mtu_length)
        remedy += f"; or set AERON_RCV_INITIAL_WINDOW_LENGTH={fitting_length}"
    yield judge(
        "datagrams in the buffer",
        seen=f"{held_count:,} of {mtu_length} bytes, {capacity(system_length, SMALL_LENGTH):,} of "
        f"{SMALL_LENGTH}",
        wanted=f"{wanted_count:,} of {mtu_length}, a window of {format_size(window_length)}",
        remedy=remedy,
        is_good=held_count >= wanted_count,
        otherwise=DoctorVerdict.SLOW,
    )


def _send_buffer(facts: Facts) -> DoctorFinding:
    buffer, mtu_length = facts.send_buffer, facts.context.mtu_length
    wanted_length = max(buffer.asked_length, mtu_length)
    return judge(
        "send buffer",
        seen=_granted(buffer),
        wanted=f"{format_size(wanted_length)}, for datagrams of {format_size(mtu_length)}",
        remedy=_buffer_remedy(facts, "AERON_SOCKET_SO_SNDBUF", "wmem", wanted_length),
        is_good=buffer.granted_length >= wanted_length,
        otherwise=DoctorVerdict.BROKEN
        if buffer.granted_length < mtu_length
        else DoctorVerdict.SLOW,
    )


def _granted(buffer: Buffer) -> str:
    granted = format_size(buffer.granted_length)
    if buffer.asked_length:
        return f"{granted} granted of {format_size(buffer.asked_length)}"
    return f"{granted}, the system's own"


def _buffer_remedy(facts: Facts, variable: str, sysctl: str, wanted_length: int) -> str:
    buffer = facts.receive_buffer if sysctl == "rmem" else facts.send_buffer
    remedies = []
    if buffer.asked_length < wanted_length:
        remedies.append(f"set {variable}={format_size(wanted_length)}")
    if facts.is_linux and (buffer.limit_length is None or buffer.limit_length < wanted_length):
        remedies.append(f"sudo sysctl -w net.core.{sysctl}_max={wanted_length}")
    return "; ".join(remedies) or "raise the limit of the system on socket buffers"


def _interfaces(facts: Facts) -> Iterator[DoctorFinding]:
    loopback = next((card for card in facts.cards if card.is_loopback), None)
    if loopback is None:
        yield DoctorFinding(
            what="loopback",
            seen="none that is up",
            wanted="one, for channels within this machine",
            remedy="sudo ip link set lo up" if facts.is_linux else "bring it up",
            verdict=DoctorVerdict.BROKEN,
        )
    for card in facts.cards:
        yield _mtu(card, facts.context.mtu_length)


def _mtu(card: NetworkCard, mtu_length: int) -> DoctorFinding:
    packet_length = mtu_length + UDP_IPV4_HEADERS_LENGTH
    fitting = (card.mtu_length - UDP_IPV4_HEADERS_LENGTH) // MTU_ALIGNMENT * MTU_ALIGNMENT
    return judge(
        f"MTU of {card.name}",
        seen=f"{card.mtu_length} bytes",
        wanted=f"{packet_length}, for mtu={mtu_length} and 28 of headers",
        remedy=(
            f"set AERON_MTU_LENGTH={fitting}, or mtu={fitting} in channels that leave by "
            f"{card.name}: longer datagrams are split into packets, and lost whole"
        ),
        is_good=packet_length <= card.mtu_length,
        otherwise=DoctorVerdict.SLOW,
    )


def _multicast(facts: Facts) -> DoctorFinding:
    return judge(
        "multicast",
        seen=facts.multicast_error or f"{GROUP} is reached from {facts.multicast_interface}",
        wanted="a group can be joined and sent to",
        remedy=(
            "sudo ip route add 224.0.0.0/4 dev INTERFACE, or name interface= in channels of "
            "groups, or use control-mode=dynamic, which needs no multicast"
        ),
        is_good=not facts.multicast_error,
        otherwise=DoctorVerdict.SLOW,
    )


def _batching(facts: Facts) -> Iterator[DoctorFinding]:
    is_wanted = facts.context.socket_batching and facts.context.transport != "loop"
    for what, option, release, has in (
        ("batches sent (GSO)", "UDP_SEGMENT", "4.18", facts.has_gso),
        ("batches received (GRO)", "UDP_GRO", "5.0", facts.has_gro),
    ):
        offered = f"{option} is {'offered' if has else 'not offered'}"
        system = f"use Linux {release} or later" if not has else ""
        setting = "unset AERON_ASYNC_SOCKET_BATCHING and AERON_ASYNC_TRANSPORT"
        yield judge(
            what,
            seen=offered if is_wanted else f"{offered}, and switched off by a setting",
            wanted=f"{option}, many datagrams in one call",
            remedy="; ".join(filter(None, (system, "" if is_wanted else setting))),
            is_good=has and is_wanted,
            otherwise=DoctorVerdict.SLOW,
        )


TERMS_PER_LOG: Final = 3
LAG_MAX_NS: Final = 20 * NS_PER_MS
"""A timer that is later than this was delayed by a busy machine."""
CLOCK_COST_MAX_NS: Final = NS_PER_US // 2
FASTEST_CLOCK: Final = "tsc"
"""Reading the clock takes about 50 ns; ten times that means a system call."""


def findings(facts: Facts) -> tuple[DoctorFinding, ...]:
    """Return all findings, good or bad."""
    return (
        *network_findings(facts),
        _compiled_code(facts),
        _loop(facts),
        _lag(facts),
        _clock_step(facts),
        _clock_cost(facts),
        _shared_memory(facts),
    )


def worst(found: Iterable[DoctorFinding]) -> DoctorVerdict:
    """Return the worst verdict; GOOD if there are no findings."""
    verdicts = {finding.verdict for finding in found}
    return max(verdicts, key=list(DoctorVerdict).index, default=DoctorVerdict.GOOD)


def _compiled_code(facts: Facts) -> DoctorFinding:
    why = facts.why_pure
    is_chosen = why is not None and PURE_VARIABLE in why
    return judge(
        "compiled code",
        seen="in use" if why is None else f"not in use: {why}",
        wanted="in use",
        remedy=(
            f"unset {PURE_VARIABLE}"
            if is_chosen
            else "install a C compiler and the headers of Python, then "
            "pip install --force-reinstall --no-deps aeron-async"
        ),
        is_good=why is None,
        otherwise=DoctorVerdict.SLOW,
    )


def _loop(facts: Facts) -> DoctorFinding:
    return judge(
        "event loop",
        seen=f"{facts.loop_name}, of this command",
        wanted="uvloop; a program of yours needs uvloop.run(main())",
        remedy=(
            "pip install uvloop, and do not ask for another loop; start programs of yours by "
            "uvloop.run(main())"
        ),
        is_good=facts.loop_name == "uvloop",
        otherwise=DoctorVerdict.SLOW,
    )


def _lag(facts: Facts) -> DoctorFinding:
    limit_ns = min(LAG_MAX_NS, facts.context.loop_lag_threshold_ns or LAG_MAX_NS)
    median, most = format_ns(facts.loop_lag_median_ns), format_ns(facts.loop_lag_max_ns)
    return judge(
        "event loop lag",
        seen=f"timers were late by {most} at most, {median} in the median",
        wanted=f"{format_ns(limit_ns)} at most",
        remedy="let this machine do less at once, or give this process a processor of its own",
        is_good=facts.loop_lag_max_ns <= limit_ns,
        otherwise=DoctorVerdict.SLOW,
    )


def _clock_step(facts: Facts) -> DoctorFinding:
    return judge(
        "clock resolution",
        seen=format_ns(facts.clock_step_ns),
        wanted=f"{format_ns(NS_PER_US)} or finer, the shortest timeout there is",
        remedy="use a system whose monotonic clock is finer; delays of NAKs are rounded up here",
        is_good=facts.clock_step_ns <= NS_PER_US,
        otherwise=DoctorVerdict.SLOW,
    )


def _clock_cost(facts: Facts) -> DoctorFinding:
    source = f" from {facts.clock_source}" if facts.clock_source else ""
    path = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
    if not facts.is_linux:
        remedy = "use a system that reads its clock without a system call"
    elif facts.clock_source == FASTEST_CLOCK:
        remedy = "the source is the fastest there is: run this again when the machine is quiet"
    else:
        remedy = f"echo {FASTEST_CLOCK} | sudo tee {path}, if this machine offers it"
    return judge(
        "clock reading",
        seen=f"{format_ns(facts.clock_cost_ns)}{source}",
        wanted=f"{format_ns(CLOCK_COST_MAX_NS)} at most",
        remedy=remedy,
        is_good=facts.clock_cost_ns <= CLOCK_COST_MAX_NS,
        otherwise=DoctorVerdict.SLOW,
    )


def _shared_memory(facts: Facts) -> DoctorFinding:
    wanted_length = TERMS_PER_LOG * facts.context.term_buffer_length
    free = facts.shared_free_length
    return judge(
        "shared memory",
        seen="no /dev/shm" if free is None else f"{format_bytes(free)} free in /dev/shm",
        wanted=f"{format_bytes(wanted_length)} for a log; the driver in a process needs none",
        remedy=(
            "name a folder in memory with AERON_DIR for Aeron's own drivers"
            if free is None
            else "free some, or sudo mount -o remount,size=1g /dev/shm"
        ),
        is_good=free is not None and free >= wanted_length,
        otherwise=DoctorVerdict.SLOW,
    )
