"""The names of drivers, as drivers tell each other; without I/O.

Each driver sends its own name to its neighbors, and what it has heard of others. So a driver that
is told of one neighbor soon knows all, and `aeron:udp?endpoint=NAME:PORT` leads to the host of the
driver with that name, wherever that is. What is not heard of again in time is forgotten.

Invariant: what a packet brings is limited in number, is never from the future, and never replaces
newer knowledge by older.

Source: Aeron `DriverNameResolver`, `DriverNameResolverCache`, `aeron_driver_name_resolver.c`.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.clock import NEVER_NS, NS_PER_MS
from aeron_async.driver.core.context import parse_neighbors
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.driver.core.udp_channel import format_address
from aeron_async.errors import ProtocolError
from aeron_async.logs import get_logger
from aeron_async.protocol.header import MAX_UDP_PAYLOAD_LENGTH
from aeron_async.protocol.resolution import Resolution, encode_resolutions, resolutions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aeron_async.counters import Counter, CountersManager
    from aeron_async.driver.core.context import DriverContext
    from aeron_async.driver.core.outbox import Address
    from aeron_async.driver.core.suppliers import NameResolver
    from aeron_async.driver.core.system_counters import SystemCounters
    from aeron_async.protocol.header import Buffer

__all__ = ["BootstrapNeighbor", "DriverNameResolver"]

NEIGHBORS_TYPE_ID: Final = 15
CACHE_ENTRIES_TYPE_ID: Final = 16
BOOTSTRAP_NEIGHBOR_TYPE_ID: Final = 21
INDEX_LENGTH: Final = 4
"""Bytes of the key of a bootstrap neighbor's counter: its place in the setting."""

log: Final = get_logger(__name__)


@attrs.define(eq=False)
class BootstrapNeighbor:
    """A neighbor that the settings name.

    Attributes:
        text: As in the settings: `host:port`.
        counter: 1 while the driver hears of it.
        address: Where it is; None if its name has no address.
    """

    text: str
    counter: Counter
    address: Address | None = None


@attrs.define(eq=False)
class Neighbor:
    """A driver that is told the own name.

    Attributes:
        activity_ns: When it was last heard, or said to be heard.
        is_heard: Whether a packet came from there, and not only word of it.
    """

    activity_ns: int
    is_heard: bool = False


@attrs.define(eq=False)
class CacheEntry:
    """What the driver has heard of one name.

    Attributes:
        address: 4 or 16 bytes.
        port: Of the resolver there.
        activity_ns: When the driver of that name was last heard, by itself or by others.
    """

    address: bytes
    port: int
    activity_ns: int


class DriverNameResolver:
    """Resolves the names of drivers, and decides what is sent to whom, and when.

    Args:
        context: Has the own name, the bootstrap neighbors, the intervals and the limit.
        delegate: Resolves all other names.
        counters_manager: Gets the counters of neighbors and names.
        system_counters: Count what is refused.
        address: To which the socket is bound.

    Raises:
        RegistrationError: There is no counter left.
    """

    def __init__(
        self,
        context: DriverContext,
        delegate: NameResolver,
        *,
        counters_manager: CountersManager,
        system_counters: SystemCounters,
        address: Address,
    ) -> None:
        assert context.resolver_name is not None, "the context has checked it"
        self._context = context
        self._delegate = delegate
        self._system_counters = system_counters
        budget = system_counters.log_budget
        self._log = log if budget is None else budget.on(log)
        self._address = address
        self._name = context.resolver_name
        own = Resolution(
            name=self._name.encode(),
            address=ip_address(address[0]).packed,
            port=address[1],
            is_self=True,
        )
        self._own = own
        (self._own_frame,) = encode_resolutions([own], MAX_UDP_PAYLOAD_LENGTH)
        self._neighbors: dict[Address, Neighbor] = {}
        self._cache: dict[tuple[bytes, int], CacheEntry] = {}
        self._self_at_ns = 0
        self._gossip_at_ns = 0
        self._neighbor_count = counters_manager.allocate(
            NEIGHBORS_TYPE_ID, b"", f"Resolver neighbors: bound {format_address(address)}"
        )
        self._cache_count = counters_manager.allocate(
            CACHE_ENTRIES_TYPE_ID, b"", f"Resolver cache entries: name={self._name}"
        )
        self.bootstrap_neighbors: Final = tuple(
            BootstrapNeighbor(
                text,
                counters_manager.allocate(
                    BOOTSTRAP_NEIGHBOR_TYPE_ID,
                    index.to_bytes(INDEX_LENGTH, "little"),
                    _label_of(text, None),
                ),
            )
            for index, text in enumerate(parse_neighbors(context.resolver_bootstrap_neighbor))
        )

    async def resolve(self, host: str, port: int, *, is_re_resolution: bool = False) -> Address:
        """Return the address of the driver of that name, or what the delegate says.

        Differs: a driver that is known by an IPv6 address alone is found too.

        Raises:
            Exception: Whatever the delegate raises.
        """
        name = host.encode()
        for address_length in (4, 16):
            entry = self._cache.get((name, address_length))
            if entry is not None:
                return str(ip_address(entry.address)), port
        if host == self._name:
            return self._address[0], port
        return await self._delegate.resolve(host, port, is_re_resolution=is_re_resolution)

    # What arrives.

    def on_datagram(self, datagram: Buffer, source: Address, now_ns: int) -> None:
        """Learn from a RES frame.

        Args:
            datagram: Any bytes.
            source: Where they come from.
            now_ns: The time now.
        """
        try:
            for entry in resolutions(datagram):
                self._on_entry(entry, source, now_ns)
        except ProtocolError:
            self._system_counters[SystemCounterId.INVALID_PACKETS].increment()
        self._count()

    def _on_entry(self, entry: Resolution, source: Address, now_ns: int) -> None:
        if entry.port == self._own.port and entry.name == self._own.name:
            # Others tell of us too.
            return
        ip = ip_address(entry.address)
        if entry.is_self and ip.is_unspecified:
            # It is bound to all interfaces: this is how it reached us.
            ip = ip_address(source[0])
        # Differs: Aeron takes an age below 0, with which a name would never be forgotten, and
        # addresses to which nothing can be sent.
        if ip.is_unspecified or ip.is_multicast or entry.port == 0 or entry.age_ms < 0:
            self._system_counters[SystemCounterId.INVALID_PACKETS].increment()
            return
        activity_ns = now_ns - entry.age_ms * NS_PER_MS
        if activity_ns + self._context.resolver_neighbor_timeout_ns <= now_ns:
            return
        self._learn(entry, ip.packed, activity_ns)
        address = str(ip), entry.port
        self._meet(address, activity_ns, is_self=entry.is_self)
        if entry.is_self and address[0] == source[0] and address in self._neighbors:
            self._neighbors[address].is_heard = True

    def _learn(self, entry: Resolution, address: bytes, activity_ns: int) -> None:
        key = entry.name, len(address)
        known = self._cache.get(key)
        if known is None:
            if self._has_room(len(self._cache)):
                self._cache[key] = CacheEntry(address, entry.port, activity_ns)
        elif activity_ns >= known.activity_ns:
            # Differs: in Aeron, late gossip replaces what the driver itself has said since.
            known.address, known.port, known.activity_ns = address, entry.port, activity_ns

    def _meet(self, address: Address, activity_ns: int, *, is_self: bool) -> None:
        known = self._neighbors.get(address)
        if known is None:
            if self._has_room(len(self._neighbors)):
                self._neighbors[address] = Neighbor(activity_ns)
                self._log.info("resolver_neighbor_added", address=format_address(address))
        elif is_self:
            known.activity_ns = max(known.activity_ns, activity_ns)

    def _has_room(self, count: int) -> bool:
        if count < self._context.max_resolver_neighbors:
            return True
        self._system_counters[DriverCounterId.RESOLUTIONS_REFUSED].increment()
        return False

    # What is due.

    def poll(self, now_ns: int, send: Callable[[bytes, Address], None]) -> int:
        """Forget what was not heard in time, send what is due, and return the next deadline."""
        self._forget(now_ns)
        context = self._context
        if now_ns >= self._self_at_ns:
            targets = self._targets()
            if targets:
                self._self_at_ns = now_ns + context.resolver_self_resolution_interval_ns
            for address in targets:
                send(self._own_frame, address)
        # Differs: Aeron tells all it knows to addresses of which it has only heard. There the own
        # name is enough: a driver answers it. So a stranger's packet cannot make this driver send
        # many times its length to others.
        listeners = [address for address, each in self._neighbors.items() if each.is_heard]
        if now_ns >= self._gossip_at_ns and listeners:
            self._gossip_at_ns = now_ns + context.resolver_neighbor_resolution_interval_ns
            for frame in encode_resolutions(self._entries(now_ns), context.mtu_length):
                for address in listeners:
                    send(frame, address)
        for each in self.bootstrap_neighbors:
            each.counter.set(each.address in self._neighbors)
        return self._next_deadline_ns()

    def unheard(self) -> Iterator[BootstrapNeighbor]:
        """Yield the bootstrap neighbors that are not heard of: their names may lead elsewhere."""
        return (each for each in self.bootstrap_neighbors if each.address not in self._neighbors)

    def move(self, neighbor: BootstrapNeighbor, address: Address | None) -> None:
        """Note where a bootstrap neighbor is; it is told of this driver at once if that is new."""
        if address is not None and address != neighbor.address:
            self._self_at_ns = 0
        neighbor.address = address
        neighbor.counter.update_label(_label_of(neighbor.text, address))

    def _targets(self) -> list[Address]:
        """Return whom to tell the own name: all bootstrap neighbors, then the others."""
        found = [each.address for each in self.bootstrap_neighbors if each.address is not None]
        return list(dict.fromkeys([*found, *self._neighbors]))

    def _entries(self, now_ns: int) -> Iterator[Resolution]:
        for (name, _), entry in self._cache.items():
            yield Resolution(
                name=name,
                address=entry.address,
                port=entry.port,
                age_ms=(now_ns - entry.activity_ns) // NS_PER_MS,
            )

    def _forget(self, now_ns: int) -> None:
        oldest_ns = now_ns - self._context.resolver_neighbor_timeout_ns
        for address, neighbor in list(self._neighbors.items()):
            if neighbor.activity_ns <= oldest_ns:
                del self._neighbors[address]
                self._log.info("resolver_neighbor_removed", address=format_address(address))
        for key, entry in list(self._cache.items()):
            if entry.activity_ns <= oldest_ns:
                del self._cache[key]
        self._count()

    def _next_deadline_ns(self) -> int:
        known: list[Neighbor | CacheEntry] = [*self._neighbors.values(), *self._cache.values()]
        deadline_ns = NEVER_NS
        if known:
            oldest_ns = min(each.activity_ns for each in known)
            deadline_ns = oldest_ns + self._context.resolver_neighbor_timeout_ns
        if any(each.is_heard for each in self._neighbors.values()):
            deadline_ns = min(deadline_ns, self._gossip_at_ns)
        if self._targets():
            deadline_ns = min(deadline_ns, self._self_at_ns)
        return deadline_ns

    def _count(self) -> None:
        self._neighbor_count.set(len(self._neighbors))
        self._cache_count.set(len(self._cache))


def _label_of(text: str, address: Address | None) -> str:
    resolved = "" if address is None else format_address(address)
    return f"Bootstrap neighbor: name={text} resolved={resolved}"
