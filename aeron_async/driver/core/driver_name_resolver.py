"""The names of drivers, as drivers tell each other; without I/O.

Each driver sends its own name to its neighbors, and what it has heard of others. So a driver that
is told of one neighbor soon knows all, and `aeron:udp?endpoint=NAME:PORT` leads to the host of the
driver with that name, wherever that is. What is not heard of again in time is forgotten.

Invariant: what a packet brings is limited in number, is never from the future, and never replaces
newer knowledge by older.

Invariant: for each byte of a packet, at most three bytes are sent to the addresses that it comes
from and tells of. The own name for the bootstrap neighbors, whose addresses are in the settings, is
not counted. There is no other protection against forged addresses: whatever would prove that a
driver answers is known to all of its neighbors.

Source: Aeron `DriverNameResolver`, `DriverNameResolverCache`, `aeron_driver_name_resolver.c`.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.clock import NEVER_NS, NS_PER_MS
from aeron_async.driver.core.context import parse_neighbors
from aeron_async.driver.core.outbox import HandshakeBudget
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.driver.core.udp_channel import format_address
from aeron_async.errors import ProtocolError
from aeron_async.logs import get_logger
from aeron_async.protocol.header import HEADER_LENGTH, MAX_UDP_PAYLOAD_LENGTH
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
PROBES_MAX: Final = 2
"""How often an address that was only heard of is told the own name."""
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
        budget: Bytes that may be sent there.
        probe_count: How often it was told the own name before it was heard.
        told_count: Names that it was told in parts; the next part begins after them.
    """

    activity_ns: int
    is_heard: bool = False
    budget: HandshakeBudget = attrs.field(factory=HandshakeBudget)
    probe_count: int = 0
    told_count: int = 0


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
        header_length = HEADER_LENGTH
        try:
            for entry in resolutions(datagram):
                about = self._on_entry(entry, source, now_ns)
                if about is None or (about.is_heard and not entry.is_self):
                    about = self._neighbors.get(source)
                if about is not None:
                    about.budget.on_received(header_length + entry.length)
                    header_length = 0
        except ProtocolError:
            self._system_counters[SystemCounterId.INVALID_PACKETS].increment()
        self._count()

    def _on_entry(self, entry: Resolution, source: Address, now_ns: int) -> Neighbor | None:
        """Learn from one entry; return the neighbor that it tells of."""
        if entry.port == self._own.port and entry.name == self._own.name:
            # Others tell of us too.
            return None
        ip = ip_address(entry.address)
        if entry.is_self and ip.is_unspecified:
            # It is bound to all interfaces: this is how it reached us.
            ip = ip_address(source[0])
        # Differs: Aeron takes an age below 0, with which a name would never be forgotten, and
        # addresses to which nothing can be sent.
        if ip.is_unspecified or ip.is_multicast or entry.port == 0 or entry.age_ms < 0:
            self._system_counters[SystemCounterId.INVALID_PACKETS].increment()
            return None
        activity_ns = now_ns - entry.age_ms * NS_PER_MS
        if activity_ns + self._context.resolver_neighbor_timeout_ns <= now_ns:
            return None
        self._learn(entry, ip.packed, activity_ns)
        address = str(ip), entry.port
        neighbor = self._meet(address, activity_ns, is_self=entry.is_self)
        if neighbor is not None and entry.is_self and address[0] == source[0]:
            neighbor.is_heard = True
        return neighbor

    def _learn(self, entry: Resolution, address: bytes, activity_ns: int) -> None:
        key = entry.name, len(address)
        known = self._cache.get(key)
        if known is None:
            if self._has_room(len(self._cache)):
                self._cache[key] = CacheEntry(address, entry.port, activity_ns)
        elif activity_ns >= known.activity_ns:
            # Differs: in Aeron, late gossip replaces what the driver itself has said since.
            known.address, known.port, known.activity_ns = address, entry.port, activity_ns

    def _meet(self, address: Address, activity_ns: int, *, is_self: bool) -> Neighbor | None:
        known = self._neighbors.get(address)
        if known is None:
            if self._has_room(len(self._neighbors)):
                known = self._neighbors[address] = Neighbor(activity_ns)
                self._log.info("resolver_neighbor_added", address=format_address(address))
        elif is_self:
            known.activity_ns = max(known.activity_ns, activity_ns)
        return known

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
        if now_ns >= self._self_at_ns and self._has_targets():
            self._self_at_ns = now_ns + context.resolver_self_resolution_interval_ns
            self._tell_own_name(send)
        if now_ns >= self._gossip_at_ns and self._listeners():
            self._gossip_at_ns = now_ns + context.resolver_neighbor_resolution_interval_ns
            self._tell_names(now_ns, send)
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

    # Differs: Aeron tells its own name once a second, and all names that it knows, to every address
    # that it has heard of. So a stranger's packet makes it send many times its length to others.

    def _tell_own_name(self, send: Callable[[bytes, Address], None]) -> None:
        """Tell the own name to all bootstrap neighbors, then to the others within their budgets."""
        frame = self._own_frame
        bootstrap = dict.fromkeys(each.address for each in self.bootstrap_neighbors)
        for address in bootstrap:
            if address is not None:
                send(frame, address)
        for address, neighbor in self._neighbors.items():
            if address in bootstrap or not (neighbor.is_heard or neighbor.probe_count < PROBES_MAX):
                continue
            if not neighbor.budget.try_take(len(frame)):
                self._system_counters[DriverCounterId.HANDSHAKE_SENDS_WITHHELD].increment()
                continue
            neighbor.probe_count += 1
            send(frame, address)

    def _tell_names(self, now_ns: int, send: Callable[[bytes, Address], None]) -> None:
        """Tell what is known to those that were heard, as far as their budgets allow.

        Drivers tell each other about as much as they are told. Only a new one has a small budget:
        it grows with what the new driver has learned, and tells in turn.
        """
        mtu_length = self._context.mtu_length
        entries = [
            each for each in self._entries(now_ns) if HEADER_LENGTH + each.length <= mtu_length
        ]
        frames = list(encode_resolutions(entries, mtu_length))
        length = sum(map(len, frames))
        for address, neighbor in self._listeners():
            # The own name comes first.
            room = neighbor.budget.length - len(self._own_frame)
            told = frames
            if room < length:
                told = self._part(neighbor, entries, min(room, mtu_length))
                self._system_counters[DriverCounterId.HANDSHAKE_SENDS_WITHHELD].increment()
            for frame in told:
                neighbor.budget.try_take(len(frame))
                send(frame, address)

    def _part(self, neighbor: Neighbor, entries: list[Resolution], room: int) -> list[bytes]:
        """Return a frame with the next names that a neighbor is to be told, if there is room."""
        taken: list[Resolution] = []
        room -= HEADER_LENGTH
        first = neighbor.told_count
        for index in range(first, first + len(entries)):
            entry = entries[index % len(entries)]
            room -= entry.length
            if room < 0:
                break
            taken.append(entry)
        neighbor.told_count = first + len(taken)
        return list(encode_resolutions(taken, self._context.mtu_length))

    def _has_targets(self) -> bool:
        return bool(self._neighbors) or any(each.address for each in self.bootstrap_neighbors)

    def _listeners(self) -> list[tuple[Address, Neighbor]]:
        return [each for each in self._neighbors.items() if each[1].is_heard]

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
        if self._listeners():
            deadline_ns = min(deadline_ns, self._gossip_at_ns)
        if self._has_targets():
            deadline_ns = min(deadline_ns, self._self_at_ns)
        return deadline_ns

    def _count(self) -> None:
        self._neighbor_count.set(len(self._neighbors))
        self._cache_count.set(len(self._cache))


def _label_of(text: str, address: Address | None) -> str:
    resolved = "" if address is None else format_address(address)
    return f"Bootstrap neighbor: name={text} resolved={resolved}"
