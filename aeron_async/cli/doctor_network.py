"""What the sockets and interfaces of a machine mean for Aeron; see `doctor_findings`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.cli.doctor_facts import GROUP
from aeron_async.cli.doctor_verdict import Finding, Verdict, judge
from aeron_async.protocol.units import format_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aeron_async.cli.doctor_facts import Buffer, Facts, NetworkCard

__all__ = ["network_findings"]

UDP_IPV4_HEADERS_LENGTH: Final = 28
"""Of an IPv4 header without options, and of UDP."""
MTU_ALIGNMENT: Final = 32


def network_findings(facts: Facts) -> Iterator[Finding]:
    """Yield what there is to say of buffers, interfaces, groups and batches."""
    yield _receive_buffer(facts)
    yield _send_buffer(facts)
    yield from _interfaces(facts)
    yield _multicast(facts)
    yield from _batching(facts)


def _receive_buffer(facts: Facts) -> Finding:
    buffer, window_length = facts.receive_buffer, facts.context.initial_window_length
    wanted_length = max(buffer.asked_length, window_length)
    is_refused = buffer.granted_length < window_length
    return judge(
        "receive buffer",
        seen=_granted(buffer),
        wanted=f"{format_size(wanted_length)}, for a window of {format_size(window_length)}",
        remedy=_buffer_remedy(facts, "AERON_SOCKET_SO_RCVBUF", "rmem", wanted_length),
        is_good=buffer.granted_length >= wanted_length,
        otherwise=Verdict.BROKEN if is_refused else Verdict.SLOW,
    )


def _send_buffer(facts: Facts) -> Finding:
    buffer, mtu_length = facts.send_buffer, facts.context.mtu_length
    wanted_length = max(buffer.asked_length, mtu_length)
    return judge(
        "send buffer",
        seen=_granted(buffer),
        wanted=f"{format_size(wanted_length)}, for datagrams of {format_size(mtu_length)}",
        remedy=_buffer_remedy(facts, "AERON_SOCKET_SO_SNDBUF", "wmem", wanted_length),
        is_good=buffer.granted_length >= wanted_length,
        otherwise=Verdict.BROKEN if buffer.granted_length < mtu_length else Verdict.SLOW,
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


def _interfaces(facts: Facts) -> Iterator[Finding]:
    loopback = next((card for card in facts.cards if card.is_loopback), None)
    if loopback is None:
        yield Finding(
            what="loopback",
            seen="none that is up",
            wanted="one, for channels within this machine",
            remedy="sudo ip link set lo up" if facts.is_linux else "bring it up",
            verdict=Verdict.BROKEN,
        )
    for card in facts.cards:
        yield _mtu(card, facts.context.mtu_length)


def _mtu(card: NetworkCard, mtu_length: int) -> Finding:
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
        otherwise=Verdict.SLOW,
    )


def _multicast(facts: Facts) -> Finding:
    return judge(
        "multicast",
        seen=facts.multicast_error or f"{GROUP} is reached from {facts.multicast_interface}",
        wanted="a group can be joined and sent to",
        remedy=(
            "sudo ip route add 224.0.0.0/4 dev INTERFACE, or name interface= in channels of "
            "groups, or use control-mode=dynamic, which needs no multicast"
        ),
        is_good=not facts.multicast_error,
        otherwise=Verdict.SLOW,
    )


def _batching(facts: Facts) -> Iterator[Finding]:
    is_wanted = facts.context.socket_batching and facts.context.transport != "loop"
    for what, option, kernel, has in (
        ("batches sent (GSO)", "UDP_SEGMENT", "4.18", facts.has_gso),
        ("batches received (GRO)", "UDP_GRO", "5.0", facts.has_gro),
    ):
        offered = f"{option} is {'offered' if has else 'not offered'}"
        system = f"use Linux {kernel} or later" if not has else ""
        setting = "unset AERON_ASYNC_SOCKET_BATCHING and AERON_ASYNC_TRANSPORT"
        yield judge(
            what,
            seen=offered if is_wanted else f"{offered}, and switched off by a setting",
            wanted=f"{option}, many datagrams in one call",
            remedy="; ".join(filter(None, (system, "" if is_wanted else setting))),
            is_good=has and is_wanted,
            otherwise=Verdict.SLOW,
        )
