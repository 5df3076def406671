"""The interfaces of a simulated host, made up from its addresses.

`lo` leads to the host itself. `eth0` has the first address of each family, `eth1` the second, and
so on; multicast that leaves an `eth0` reaches the `eth0` of every host, and no other interface.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.driver.media.network import InterfaceAddress

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["FIRST_INDEX", "LOOPBACK_INDEX", "interface_index", "interface_table"]

LOOPBACK_INDEX: Final = 1
FIRST_INDEX: Final = 2
LOOPBACK: Final = (("127.0.0.1", 8), ("::1", 128))
IPV4_PREFIX_LENGTH: Final = 24
IPV6_PREFIX_LENGTH: Final = 64


def interface_table(addresses: Iterable[str]) -> tuple[InterfaceAddress, ...]:
    """Return what the system of a host with these addresses would list."""
    table = [
        InterfaceAddress(
            name="lo",
            index=LOOPBACK_INDEX,
            address=address,
            prefix_length=prefix_length,
            is_loopback=True,
            is_multicast=False,
        )
        for address, prefix_length in LOOPBACK
    ]
    counts = {True: 0, False: 0}
    for address in addresses:
        is_ipv6 = ":" in address
        number = counts[is_ipv6]
        counts[is_ipv6] += 1
        table.append(
            InterfaceAddress(
                name=f"eth{number}",
                index=FIRST_INDEX + number,
                address=address,
                prefix_length=IPV6_PREFIX_LENGTH if is_ipv6 else IPV4_PREFIX_LENGTH,
            )
        )
    return tuple(table)


def interface_index(addresses: Iterable[str], host: str) -> int:
    """Return which interface an address belongs to; the first where it is none of them."""
    for each in interface_table(addresses):
        if each.address == host:
            return each.index
    return LOOPBACK_INDEX if host.startswith("127.") else FIRST_INDEX
