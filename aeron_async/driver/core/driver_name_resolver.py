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

from collections import OrderedDict
from enum import IntEnum
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import attrs

from aeron_async.clock import NEVER_NS, NS_PER_MS, NS_PER_SECOND
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
STRANGERS_SHARE: Final = 4
"""Drivers that have not answered get this part of the entries that may be read in a second."""
FORGET_INTERVAL_NS: Final = 10 * NS_PER_MS
"""Least time between two looks for what is too old, as in Aeron."""
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


# What is known, and what gives way to it.


class Rank(IntEnum):
    """What speaks for a driver; where there is no room, a lower rank gives way to a higher one.

    Of those that have only announced themselves, the one that was silent longest gives way to a new
    one: a stranger that announces many must do it all the time, and those that answer stay.
    """

    HEARD_OF = 0
    ANNOUNCED = 1
    ANSWERED = 2
    BOOTSTRAP = 3


@attrs.define(eq=False)
class Neighbor:
    """A driver that is told the own name.

    Attributes:
        activity_ns: When it was last heard, or said to be heard.
        rank: ANSWERED if it has announced itself again after it was told the own name.
        is_heard: Whether a packet came from there, and not only word of it.
        announcement: How it has announced itself last.
        budget: Bytes that may be sent there.
        told_own_count: How often it was told the own name.
        told_count: Names that it was told in parts; the next part begins after them.
    """

    activity_ns: int
    rank: Rank
    is_heard: bool = False
    announcement: Resolution | None = None
    budget: HandshakeBudget = attrs.field(factory=HandshakeBudget)
    told_own_count: int = 0
    told_count: int = 0


@attrs.define(eq=False)
class CacheEntry:
    """What the driver has heard of one name.

    Attributes:
        address: 4 or 16 bytes.
        place: Where the resolver of the driver of that name is.
        activity_ns: When the driver of that name was last heard, by itself or by others.
        rank: That of the neighbor which has this name; HEARD_OF if it has not said so itself.
    """

    address: bytes
    place: Address
    activity_ns: int
    rank: Rank


KeyT = TypeVar("KeyT")
EntryT = TypeVar("EntryT", Neighbor, CacheEntry)


class RankedTable(Generic[KeyT, EntryT]):
    """A limited number of entries, of which those of low rank give way to others.

    Args:
        limit: How many there may be.
        on_displaced: Called with the key of an entry that gives way.

    Attributes:
        entries: By their keys.
    """

    def __init__(self, limit: int, on_displaced: Callable[[KeyT], object]) -> None:
        self._limit = limit
        self._on_displaced = on_displaced
        self.entries: Final[dict[KeyT, EntryT]] = {}
        # The keys of each rank; the one that was renewed longest ago comes first. A plain dict
        # looks for its first key behind all that were removed.
        self._orders: Final[dict[Rank, OrderedDict[KeyT, None]]] = {
            rank: OrderedDict() for rank in Rank
        }

    def try_add(self, key: KeyT, entry: EntryT) -> bool:
        """Add an entry, and return whether there was room."""
        if len(self.entries) >= self._limit and not self._displace(entry.rank):
            return False
        self.entries[key] = entry
        self._orders[entry.rank][key] = None
        return True

    def renew(self, key: KeyT, entry: EntryT, rank: Rank) -> None:
        """Give an entry a rank, and put it behind all others of that rank."""
        del self._orders[entry.rank][key]
        entry.rank = rank
        self._orders[rank][key] = None

    def remove(self, key: KeyT) -> None:
        """Remove an entry."""
        del self._orders[self.entries.pop(key).rank][key]

    def _displace(self, rank: Rank) -> bool:
        for lower in Rank:
            gives_way = lower < rank or lower == rank == Rank.ANNOUNCED
            order = self._orders[lower]
            if gives_way and order:
                key = next(iter(order))
                self.remove(key)
                self._on_displaced(key)
                return True
        return False


class WorkBudget:
    """How many entries may be read in any second.

    Args:
        limit: Most entries.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._left = limit
        self._since_ns = 0

    def try_take(self, now_ns: int) -> bool:
        """Return whether an entry may be read now, and count it if so."""
        if now_ns >= self._since_ns + NS_PER_SECOND:
            self._since_ns, self._left = now_ns, self._limit
        self._left -= 1
        return self._left >= 0


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
        limit = context.max_resolver_neighbors
        self._neighbors: RankedTable[Address, Neighbor] = RankedTable(limit, self._log_removed)
        self._cache: RankedTable[tuple[bytes, int], CacheEntry] = RankedTable(limit, _ignore)
        self._neighbors_work = WorkBudget(context.max_resolutions_per_second)
        self._strangers_work = WorkBudget(context.max_resolutions_per_second // STRANGERS_SHARE)
        self._reached_limit = ""
        self._forgot_ns = -FORGET_INTERVAL_NS
        self._forget_at_ns = NEVER_NS
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
            entry = self._cache.entries.get((name, address_length))
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
        self._reached_limit = ""
        try:
            self._read(datagram, source, now_ns)
        except ProtocolError:
            self._system_counters[SystemCounterId.INVALID_PACKETS].increment()
        if self._reached_limit:
            self._log.warning(
                "resolutions_refused", source=format_address(source), limit=self._reached_limit
            )
        self._count()

    def _refuse(self, limit: str) -> None:
        self._system_counters[DriverCounterId.RESOLUTIONS_REFUSED].increment()
        self._reached_limit = limit

    def _read(self, datagram: Buffer, source: Address, now_ns: int) -> None:
        """Learn from the entries of a frame, as many as there may be.

        Raises:
            ProtocolError: The bytes at some point are no entry.
        """
        neighbors = self._neighbors.entries
        speaker = neighbors.get(source)
        is_known = speaker is not None and speaker.is_heard and speaker.rank >= Rank.ANSWERED
        work = self._neighbors_work if is_known else self._strangers_work
        header_length = HEADER_LENGTH
        for index, entry in enumerate(resolutions(datagram)):
            about = self._on_entry_fast(entry, source, now_ns)
            # That a driver announces itself again is free: whatever strangers send, it stays known.
            is_free = about is not None and entry.is_self and not index
            if index >= self._context.max_resolver_neighbors:
                self._refuse("max_resolver_neighbors")
                break
            if not is_free and not work.try_take(now_ns):
                self._refuse("max_resolutions_per_second")
                break
            if about is None:
                about = self._on_entry(entry, source, now_ns)
            if about is None or (about.is_heard and not entry.is_self):
                about = neighbors.get(source)
            if about is not None:
                about.budget.on_received(header_length + entry.length)
                header_length = 0

    def _on_entry_fast(self, entry: Resolution, source: Address, now_ns: int) -> Neighbor | None:
        """Note that what is known already is said again, and return the neighbor that it tells of.

        It returns None if the long way is needed. The order in which entries give way may differ.
        """
        known = self._cache.entries.get((entry.name, len(entry.address)))
        if known is None or entry.age_ms < 0:
            return None
        neighbor = self._neighbors.entries.get(known.place)
        if neighbor is None:
            return None
        activity_ns = now_ns - entry.age_ms * NS_PER_MS
        if activity_ns + self._context.resolver_neighbor_timeout_ns <= now_ns:
            return None
        if entry.is_self:
            is_same = known.place == source and neighbor.announcement == entry
            if not is_same or known.rank < Rank.ANSWERED:
                return None
            neighbor.activity_ns = max(neighbor.activity_ns, activity_ns)
        elif known.address != entry.address or known.place[1] != entry.port:
            return None
        known.activity_ns = max(known.activity_ns, activity_ns)
        return neighbor

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
        address = str(ip), entry.port
        neighbor = self._meet(address, activity_ns, entry, source)
        rank = Rank.HEARD_OF
        if neighbor is not None and neighbor.announcement is entry:
            rank = neighbor.rank
        self._learn(entry.name, CacheEntry(ip.packed, address, activity_ns, rank))
        return neighbor

    def _meet(
        self, address: Address, activity_ns: int, entry: Resolution, source: Address
    ) -> Neighbor | None:
        """Return the neighbor at an address that an entry tells of; None if there is no room."""
        is_announced = entry.is_self and address[0] == source[0]
        rank = Rank.ANNOUNCED if is_announced else Rank.HEARD_OF
        known = self._neighbors.entries.get(address)
        if any(address == each.address for each in self.bootstrap_neighbors):
            rank = Rank.BOOTSTRAP
        elif known is not None and is_announced and address == source and known.told_own_count:
            rank = Rank.ANSWERED
        if known is None:
            known = Neighbor(activity_ns, rank)
            if not self._neighbors.try_add(address, known):
                self._refuse("max_resolver_neighbors")
                return None
            self._forget_from(activity_ns)
            self._log.info("resolver_neighbor_added", address=format_address(address))
        elif entry.is_self:
            known.activity_ns = max(known.activity_ns, activity_ns)
        if is_announced:
            self._neighbors.renew(address, known, max(rank, known.rank))
            self._on_announcement(known, address, entry)
        return known

    def _on_announcement(self, neighbor: Neighbor, address: Address, entry: Resolution) -> None:
        """Note how a neighbor calls itself; another name that it had is one that was heard of."""
        before = neighbor.announcement
        neighbor.is_heard, neighbor.announcement = True, entry
        if before is not None and before.name != entry.name:
            for address_length in (4, 16):
                key = before.name, address_length
                known = self._cache.entries.get(key)
                if known is not None and known.place == address:
                    self._cache.renew(key, known, Rank.HEARD_OF)

    def _learn(self, name: bytes, heard: CacheEntry) -> None:
        key = name, len(heard.address)
        known = self._cache.entries.get(key)
        if known is None:
            if self._cache.try_add(key, heard):
                self._forget_from(heard.activity_ns)
            else:
                self._refuse("max_resolver_neighbors")
            return
        # Differs: in Aeron, late gossip replaces what the driver itself has said since.
        if heard.activity_ns >= known.activity_ns:
            rank = max(heard.rank, known.rank) if heard.place == known.place else heard.rank
            known.address, known.place = heard.address, heard.place
            known.activity_ns = heard.activity_ns
            self._cache.renew(key, known, rank)

    # What is due.

    def poll(self, now_ns: int, send: Callable[[bytes, Address], None]) -> int:
        """Forget what was not heard in time, send what is due, and return the next deadline."""
        if now_ns >= self._forget_at_ns:
            self._forget(now_ns)
        context = self._context
        if now_ns >= self._self_at_ns and self._has_targets():
            self._self_at_ns = now_ns + context.resolver_self_resolution_interval_ns
            self._tell_own_name(send)
        if now_ns >= self._gossip_at_ns and self._has_listeners():
            self._gossip_at_ns = now_ns + context.resolver_neighbor_resolution_interval_ns
            self._tell_names(now_ns, send)
        for each in self.bootstrap_neighbors:
            each.counter.set(each.address in self._neighbors.entries)
        return self._next_deadline_ns()

    def unheard(self) -> Iterator[BootstrapNeighbor]:
        """Yield the bootstrap neighbors that are not heard of: their names may lead elsewhere."""
        known = self._neighbors.entries
        return (each for each in self.bootstrap_neighbors if each.address not in known)

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
        for address, neighbor in self._neighbors.entries.items():
            has_probes = not neighbor.is_heard and neighbor.told_own_count >= PROBES_MAX
            if address in bootstrap or has_probes:
                continue
            if not neighbor.budget.try_take(len(frame)):
                self._system_counters[DriverCounterId.HANDSHAKE_SENDS_WITHHELD].increment()
                continue
            neighbor.told_own_count += 1
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
        for address, neighbor in self._neighbors.entries.items():
            if not neighbor.is_heard:
                continue
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
        # There is less room than all names take, so this ends before one of them comes again.
        while entries:
            entry = entries[neighbor.told_count % len(entries)]
            room -= entry.length
            if room < 0:
                break
            neighbor.told_count += 1
            taken.append(entry)
        return list(encode_resolutions(taken, self._context.mtu_length))

    def _has_targets(self) -> bool:
        return bool(self._neighbors.entries) or any(
            each.address for each in self.bootstrap_neighbors
        )

    def _has_listeners(self) -> bool:
        return any(each.is_heard for each in self._neighbors.entries.values())

    def _entries(self, now_ns: int) -> Iterator[Resolution]:
        for (name, _), entry in self._cache.entries.items():
            yield Resolution(
                name=name,
                address=entry.address,
                port=entry.place[1],
                age_ms=(now_ns - entry.activity_ns) // NS_PER_MS,
            )

    def _forget_from(self, activity_ns: int) -> None:
        """Look for what is too old when something with this activity may be."""
        due_ns = activity_ns + self._context.resolver_neighbor_timeout_ns
        due_ns = max(due_ns, self._forgot_ns + FORGET_INTERVAL_NS)
        self._forget_at_ns = min(self._forget_at_ns, due_ns)

    def _forget(self, now_ns: int) -> None:
        oldest_ns = now_ns - self._context.resolver_neighbor_timeout_ns
        self._forgot_ns, self._forget_at_ns = now_ns, NEVER_NS
        for address, neighbor in list(self._neighbors.entries.items()):
            if neighbor.activity_ns <= oldest_ns:
                self._neighbors.remove(address)
                self._log_removed(address)
        for key, entry in list(self._cache.entries.items()):
            if entry.activity_ns <= oldest_ns:
                self._cache.remove(key)
        known: list[Neighbor | CacheEntry] = [
            *self._neighbors.entries.values(),
            *self._cache.entries.values(),
        ]
        if known:
            self._forget_from(min(each.activity_ns for each in known))
        self._count()

    def _log_removed(self, address: Address) -> None:
        self._log.info("resolver_neighbor_removed", address=format_address(address))

    def _next_deadline_ns(self) -> int:
        deadline_ns = self._forget_at_ns
        if self._has_listeners():
            deadline_ns = min(deadline_ns, self._gossip_at_ns)
        if self._has_targets():
            deadline_ns = min(deadline_ns, self._self_at_ns)
        return deadline_ns

    def _count(self) -> None:
        self._neighbor_count.set(len(self._neighbors.entries))
        self._cache_count.set(len(self._cache.entries))


def _ignore(_: object) -> None:
    """Do nothing: a name that gives way has no log line."""


def _label_of(text: str, address: Address | None) -> str:
    resolved = "" if address is None else format_address(address)
    return f"Bootstrap neighbor: name={text} resolved={resolved}"
