"""Which local interface a channel means: by address and prefix, by name, or the best there is.

Source: Aeron `NetworkUtil`, `InterfaceSearchAddress`, `aeron_netutil.c`.
"""

from __future__ import annotations

import socket
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, NoReturn

import attrs

from aeron_async.driver.core.udp_channel import Interface
from aeron_async.errors import ErrorCode, RegistrationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["InterfaceAddress", "find_interface", "find_named_interface", "system_interfaces"]


@attrs.frozen(kw_only=True)
class InterfaceAddress:
    """One address of one interface of this machine.

    Attributes:
        name: Of the interface, such as `eth0`.
        index: The system's number of it.
        address: Numeric, without a scope.
        prefix_length: Leading bits of its own network.
        is_up: Whether the interface is in use.
        is_loopback: Whether it leads to this machine itself.
        is_multicast: Whether it says that it can carry multicast.
    """

    name: str
    index: int
    address: str
    prefix_length: int
    is_up: bool = True
    is_loopback: bool = False
    is_multicast: bool = True

    def __str__(self) -> str:
        down = "" if self.is_up else ", down"
        return f"{self.name} {self.address}/{self.prefix_length}{down}"


def find_interface(
    table: Sequence[InterfaceAddress], host: str, *, prefix_length: int | None = None, port: int = 0
) -> Interface:
    """Return the best interface whose address shares a prefix with a numeric host.

    Of those that can carry multicast the longest own netmask wins, the first where they tie;
    loopback is taken only if nothing was found before it, and gives way to what is found later.

    Args:
        table: The addresses of this machine, in its own order.
        host: Numeric; with a prefix length of 0 only its family counts.
        prefix_length: Bits to be equal; None means all of them.
        port: Passed on.

    Raises:
        RegistrationError: INVALID_CHANNEL; lists the interfaces there are.
    """
    wanted = ip_address(host)
    length = wanted.max_prefixlen if prefix_length is None else prefix_length
    network = ip_network(f"{wanted}/{length}", strict=False)
    best: InterfaceAddress | None = None
    best_length = 0
    for each in table:
        ip = ip_address(each.address)
        if not each.is_up or ip.version != wanted.version or ip not in network:
            continue
        if each.is_loopback and best is None:
            best = each
        elif each.is_multicast and (best is None or each.prefix_length > best_length):
            best, best_length = each, each.prefix_length
    if best is None:
        _refuse(f"no interface that is up matches {host}/{length}", table)
    return _chosen(best, port)


def find_named_interface(
    table: Sequence[InterfaceAddress], name: str, *, is_ipv6: bool, port: int = 0
) -> Interface:
    """Return the first address of a family that an interface of this name has.

    Args:
        table: The addresses of this machine, in its own order.
        name: Exactly as the system spells it.
        is_ipv6: The family.
        port: Passed on.

    Raises:
        RegistrationError: INVALID_CHANNEL; lists the interfaces there are.
    """
    for each in table:
        if each.name == name and each.is_up and (":" in each.address) is is_ipv6:
            return _chosen(each, port)
    if any(each.name == name and each.is_up for each in table):
        family = "IPv6" if is_ipv6 else "IPv4"
        _refuse(f"interface {name} has no {family} address", table)
    return _refuse(f"there is no interface {name} that is up", table)


def system_interfaces() -> tuple[InterfaceAddress, ...]:
    """Return the addresses of this machine, by the numbers of their interfaces.

    Blocks for as long as the system takes; call it off the loop.
    """
    import psutil  # noqa: PLC0415 - takes 20 ms to load, and most drivers never ask

    stats = psutil.net_if_stats()
    found = [
        InterfaceAddress(
            name=name,
            index=_index_of(name),
            address=each.address.partition("%")[0],
            prefix_length=_prefix_length(each.address.partition("%")[0], each.netmask),
            is_up=stats[name].isup,
            is_loopback="loopback" in stats[name].flags.split(","),
            is_multicast="multicast" in stats[name].flags.split(","),
        )
        for name, addresses in psutil.net_if_addrs().items()
        for each in addresses
        if each.family in {socket.AF_INET, socket.AF_INET6} and name in stats
    ]
    # As the system lists them, which psutil has sorted by name and family.
    return tuple(sorted(found, key=lambda each: each.index))


def _prefix_length(host: str, netmask: str | None) -> int:
    return int(ip_address(netmask)).bit_count() if netmask else ip_address(host).max_prefixlen


def _index_of(name: str) -> int:
    try:
        return socket.if_nametoindex(name)
    except OSError:
        # An alias such as eth0:1 has no number of its own; its address tells the rest.
        return 0


def _chosen(found: InterfaceAddress, port: int) -> Interface:
    return Interface(address=found.address, index=found.index, name=found.name, port=port)


def _refuse(reason: str, table: Iterable[InterfaceAddress]) -> NoReturn:
    there = "; ".join(str(each) for each in table) or "none"
    message = f"{reason}: check interface= of the channel; there are: {there}"
    raise RegistrationError(message, code=ErrorCode.INVALID_CHANNEL)
