"""A simulated network: hosts with addresses, interfaces and sockets, joined by links.

Every ordered pair of hosts in a `SimNetwork` has its own link with its own random numbers, so that
a fault added to one link changes nothing on another. Every datagram is traced.

The interfaces of a `SimHost`: `lo` leads to the host itself. `eth0` has the first address of each
family, `eth1` the second, and so on; multicast that leaves an `eth0` reaches the `eth0` of every
host, and no other interface.

Multicast: a socket with a group in its description is a member of the group at one interface; a
socket that is bound to the address of the group is a member at every interface. Each member host
has its own link, and so loses other datagrams than its neighbour.

Invariant: datagrams leave a `ReceiveBuffer` once, unchanged, and in the order of arrival. The
datagrams of a batch have one length, source and time; only the last may be shorter. In half of the
cases a lone datagram is delivered as a batch of one, which Linux never does, so that small worlds
use both entry points too.

Invariant: the buffer that a `SimTransport` passes to a protocol is valid only during the call; the
simulator releases it afterwards, so that a protocol that kept it fails.

Source: Linux, `udp_gro_receive`. Linux also decides what UDP leaves open: ports from 32768, a
refusal (ICMP) is reported to connected sockets only, errors of `sendto` are reported at once.
"""

from __future__ import annotations

import errno
import os
from array import array
from collections import deque
from contextvars import Context, copy_context
from itertools import chain
from random import Random
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

import attrs

from aeron_async.driver.core.udp_channel import format_address, wildcard_like
from aeron_async.driver.media.network import InterfaceAddress
from aeron_async.driver.media.sockets import is_group, literal, refuse_timestamps
from aeron_async.driver.media.transport import BoundedTransport, Datagram, Destination
from aeron_async.errors import ConfigurationError, ErrorCode, RegistrationError
from aeron_async.testing.fates import Conditions, Link
from aeron_async.testing.trace import Trace, Verdict

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Mapping

    from aeron_async.driver.media.socket_transport import SocketProtocol
    from aeron_async.driver.media.sockets import SocketAddress, SocketSpec, WildcardPorts
    from aeron_async.testing.virtual_clock import VirtualTime

__all__ = [
    "BATCH_COUNT_MAX",
    "BATCH_LENGTH_MAX",
    "DATAGRAM_LENGTH_MAX",
    "FIRST_INDEX",
    "LOOPBACK_INDEX",
    "ReceiveBuffer",
    "SimHost",
    "SimNetwork",
    "SimTransport",
    "interface_index",
    "interface_table",
]

# Interfaces.

LOOPBACK_INDEX: Final = 1
FIRST_INDEX: Final = 2
LOOPBACK: Final = (("127.0.0.1", 8), ("::1", 128))
IPV4_PREFIX_LENGTH: Final = 24
IPV6_PREFIX_LENGTH: Final = 64


def interface_table(addresses: Iterable[str]) -> tuple[InterfaceAddress, ...]:
    """Return the interface table of a host with these addresses."""
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
    """Return the index of the interface with an address; the first interface if none has it."""
    for each in interface_table(addresses):
        if each.address == host:
            return each.index
    return LOOPBACK_INDEX if host.startswith("127.") else FIRST_INDEX


# Receive buffers.

BATCH_COUNT_MAX: Final = 64
"""Most datagrams in a batch: Linux's `UDP_GRO_CNT_MAX`."""
BATCH_LENGTH_MAX: Final = 65_507
"""Most bytes in a batch: what a datagram over IPv4 can carry."""
ALONE_CHANCE: Final = 0.5


class ReceiveBuffer:
    """The datagrams that have arrived at a socket and were not read yet.

    Args:
        length_max: Capacity in bytes; a datagram that does not fit is dropped.
        is_gathering: Whether datagrams are gathered into batches.
        coin: Decides whether a lone datagram is a batch of one.
    """

    def __init__(self, length_max: int, *, is_gathering: bool, coin: Random) -> None:
        self._length_max = length_max
        self._is_gathering = is_gathering
        self._coin = coin
        self._arrived: deque[tuple[bytes, SocketAddress, int]] = deque()
        self._length = 0

    def __len__(self) -> int:
        """Return how many datagrams wait."""
        return len(self._arrived)

    def try_add(self, datagram: bytes, source: SocketAddress, now_ns: int) -> bool:
        """Add a datagram, and return whether there was room."""
        if self._length + len(datagram) > self._length_max:
            return False
        self._arrived.append((datagram, source, now_ns))
        self._length += len(datagram)
        return True

    def take(self) -> tuple[list[bytes], SocketAddress, bool]:
        """Return the oldest datagram and those of its batch, the source, and whether it is a batch.

        Raises:
            IndexError: The buffer is empty.
        """
        arrived = self._arrived
        first, source, came_ns = arrived.popleft()
        taken, segment_length, length = [first], len(first), len(first)
        # An empty datagram is never part of a batch.
        is_open = self._is_gathering and segment_length > 0
        while is_open and arrived and len(taken) < BATCH_COUNT_MAX:
            datagram, other, other_ns = arrived[0]
            if (
                (other, other_ns) != (source, came_ns)
                or not 0 < len(datagram) <= segment_length
                or length + len(datagram) > BATCH_LENGTH_MAX
            ):
                break
            arrived.popleft()
            taken.append(datagram)
            length += len(datagram)
            is_open = len(datagram) == segment_length
        self._length -= length
        is_batch = len(taken) > 1
        if self._is_gathering and segment_length and not is_batch:
            is_batch = self._coin.random() < ALONE_CHANCE
        return taken, source, is_batch

    @property
    def next_source(self) -> SocketAddress | None:
        """Return the source of the oldest datagram in the buffer."""
        return self._arrived[0][1] if self._arrived else None

    def clear(self) -> None:
        """Drop all datagrams in the buffer."""
        self._arrived.clear()
        self._length = 0


# Sockets.

DATAGRAM_LENGTH_MAX: Final = 65_507
"""The most that UDP over IPv4 can carry, in bytes."""
BURST_LIMIT: Final = 64
"""Most datagrams read in one turn; a batch is read completely."""
RETRY_NS: Final = 100_000
"""How long a socket without room stays blocked, at least."""


class SimTransport(BoundedTransport):
    """An open socket of a simulated host.

    Args:
        host: Host of the socket.
        loop: The loop in virtual time.
        protocol: Protocol that gets the events.
        context: Context of these calls: that of the process which opened the socket.
        extra: Values for `get_extra_info`, `sockname` and `peername` among them.
        spec: Description that the socket was opened with.
        rcvbuf_length: Capacity for unread datagrams, in bytes; more are dropped, as in the kernel.
        coin: Decides which lone datagrams are delivered as a batch of one.

    Attributes:
        host: As given.
        spec: As given.
        local: Local address.
        peer: Address it is connected to, or None.
    """

    def __init__(
        self,
        host: SimHost,
        loop: VirtualTime,
        protocol: asyncio.DatagramProtocol,
        *,
        context: Context,
        extra: Mapping[str, Any],
        spec: SocketSpec,
        rcvbuf_length: int,
        coin: Random,
    ) -> None:
        super().__init__(loop, protocol, extra)
        self.local: SocketAddress = extra["sockname"]
        self.peer: SocketAddress | None = extra["peername"]
        self.host = host
        self.spec = spec
        self._virtual = loop
        self._context = context
        takes_runs = spec.is_batching and hasattr(protocol, "datagrams_received")
        self._takes_many_batches = takes_runs and hasattr(protocol, "batches_received")
        self._arrived = ReceiveBuffer(rcvbuf_length, is_gathering=takes_runs, coin=coin)
        self._take_alone = getattr(protocol, "take_alone", None)
        self._on_dropped = getattr(protocol, "datagrams_dropped", None)
        self._dropped_count = 0
        self._is_reading = False
        self._held: tuple[bytes, Destination] | None = None

    def start(self) -> None:
        """Call `connection_made` of the protocol."""
        self._protocol.connection_made(self)

    # Sending.

    def sendto(self, data: Datagram, addr: Destination = None) -> None:
        """Send now, or keep this one datagram until the socket has room.

        Raises:
            BufferError: A datagram is already waiting.
            ClosedError: The transport is closed.
            ValueError: No data, or an address though the socket is connected, or none though it is
                not.
        """
        if self._is_blocked or not data or (addr is None) is not self._is_connected:
            self._refuse(data, addr)
        error_number = self.host.send_error(len(data))
        if error_number == errno.EAGAIN:
            self._held = bytes(data), addr
            self._is_blocked = True
            self._virtual.call_at_ns(
                self._virtual.now_ns + RETRY_NS, self._send_held, context=self._context
            )
            self._tell(self._protocol.pause_writing)
        elif error_number:
            error = OSError(error_number, os.strerror(error_number))
            self._tell_error(error)
        else:
            self.host.send(self, bytes(data), self.peer if addr is None else addr)

    def get_write_buffer_size(self) -> int:
        """Return the length of the datagram that waits, or 0."""
        return 0 if self._held is None else len(self._held[0])

    def close(self) -> None:
        """Stop receiving, send a waiting datagram, then close; a second call does nothing."""
        if self._is_closing:
            return
        self._is_closing = self._is_blocked = True
        self._arrived.clear()
        if self._held is None:
            self._finish()

    def abort(self) -> None:
        """Close at once; a waiting datagram is lost."""
        was_flushing = self._is_closing and self._held is not None
        self._held = None
        if was_flushing:
            self._finish()
        self.close()

    def _connect(self, address: SocketAddress) -> None:
        self.peer = address

    def _send_held(self) -> None:
        if self._held is None:
            return
        (data, addr), self._held = self._held, None
        self.host.send(self, data, self.peer if addr is None else addr)
        if self._is_closing:
            self._finish()
            return
        self._is_blocked = False
        self._tell(self._protocol.resume_writing)

    def _finish(self) -> None:
        self.host.forget(self)
        if not self._loop.is_closed():
            self._virtual.call_soon(self._tell_lost, None, context=self._context)

    # Receiving.

    def arrive(self, datagram: bytes, source: SocketAddress) -> Verdict | None:
        """Put a datagram into the receive buffer; return why it was dropped, if it was."""
        if self.peer is not None and source != self.peer:
            return Verdict.NOT_THE_PEER
        if not self._arrived.try_add(datagram, source, self._virtual.now_ns):
            self._dropped_count += 1
            return Verdict.BUFFER_FULL
        self.read_soon()
        return None

    def refuse(self, error: OSError) -> None:
        """Report to a connected socket that no socket receives at its destination."""
        if not self._is_closing:
            self._virtual.call_soon(
                self._tell, self._protocol.error_received, error, context=self._context
            )

    def read_soon(self) -> None:
        """Schedule delivery of the received datagrams, unless the process stands still."""
        if self._arrived and not self._is_reading and not self.host.is_paused:
            self._is_reading = True
            self._virtual.call_soon(self._read, context=self._context)

    def _read(self) -> None:
        self._is_reading = False
        if self.host.is_paused:
            return
        if self._dropped_count and self._on_dropped is not None:
            # The system says so beside the next datagram.
            dropped_count, self._dropped_count = self._dropped_count, 0
            self._tell(self._on_dropped, dropped_count)
        count_left = BURST_LIMIT
        batches: list[list[bytes]] = []
        while self._arrived and count_left > 0:
            datagrams, source, is_batch = self._arrived.take()
            count_left -= len(datagrams)
            for datagram in datagrams:
                self.host.note_delivered(source, self.local, datagram)
            batches.append(datagrams)
            if count_left > 0 and self._takes_many_batches and self._arrived.next_source == source:
                continue
            self._lend(batches, source, is_batch=is_batch)
            batches = []
            if self._is_closing:
                return
        self.read_soon()

    def _lend(self, batches: list[list[bytes]], source: SocketAddress, *, is_batch: bool) -> None:
        buffer, segments = bytearray(), array("i")
        for datagrams in batches:
            buffer += b"".join(datagrams)
            segments.extend((len(buffer), len(datagrams[0])))
        view = memoryview(buffer)
        protocol = cast("SocketProtocol", self._protocol)
        if len(batches) > 1:
            self._tell(protocol.batches_received, view, segments, source)
        elif is_batch:
            self._tell(protocol.datagrams_received, view, segments[1], source)
        else:
            self._tell(self._lend_one, view, source)
        view.release()
        # Fails if the protocol kept a slice, whose bytes a real socket would overwrite.
        self._tell(buffer.clear)

    def _lend_one(self, view: memoryview, source: SocketAddress) -> None:
        if self._take_alone is not None and self._take_alone(view, source):
            cast("SocketProtocol", self._protocol).taken_alone()
        else:
            self._protocol.datagram_received(cast("bytes", view), source)


# Hosts.

EPHEMERAL_PORTS: Final = range(32_768, 61_000)
RCVBUF_DEFAULT_LENGTH: Final = 212_992
SNDBUF_DEFAULT_LENGTH: Final = 212_992


class SimHost:
    """A machine; it is a `Network` for the drivers that run on it.

    Args:
        network: Network that it belongs to.
        addresses: Its numeric addresses, of either family; the first of a family is its source
            address.
        random: Random numbers for the errors of its system.
        coin: Decides how a lone datagram is delivered.

    Attributes:
        addresses: As given.
        is_paused: Whether its processes stand still; what arrives waits in the sockets.
        is_cut: Whether no datagram leaves it or reaches it, as after a loss of power.
        send_errors: Error numbers that `sendto` returns, each with its chance; EAGAIN means a
            socket without room.
        open_error: The error number of opening a socket, or 0.
        socket_limit: Most sockets open at once; one more fails with EMFILE.
    """

    def __init__(
        self, network: SimNetwork, addresses: tuple[str, ...], random: Random, coin: Random
    ) -> None:
        self.addresses = addresses
        self.is_paused: bool = False
        self.is_cut = False
        self.send_errors: Mapping[int, float] = {}
        self.open_error = 0
        self.socket_limit = 1024
        self._network = network
        self._random = random
        self._coin = coin
        self._sockets: dict[SocketAddress, list[SimTransport]] = {}
        self._next_port = EPHEMERAL_PORTS.start

    # The interface that drivers use.

    async def open(
        self, protocol_factory: Callable[[], asyncio.DatagramProtocol], spec: SocketSpec
    ) -> asyncio.DatagramTransport:
        """Open a socket on this host.

        Raises:
            RegistrationError: CHANNEL_ENDPOINT_ERROR if the port is taken, the address is not the
                host's, or `open_error` is set. NOT_SUPPORTED if receive timestamps are requested.
        """
        refuse_timestamps(spec, "a simulated network")
        self._check_open(spec)
        local = self._bind(spec)
        sndbuf_length = spec.socket_sndbuf_length or SNDBUF_DEFAULT_LENGTH
        asked_length = max(spec.socket_rcvbuf_length, spec.wished_rcvbuf_length)
        rcvbuf_length = asked_length or RCVBUF_DEFAULT_LENGTH
        extra: dict[str, Any] = {
            "sockname": local,
            "peername": spec.remote,
            "granted_sndbuf_length": sndbuf_length,
            "granted_rcvbuf_length": rcvbuf_length,
        }
        transport = SimTransport(
            self,
            self._network.loop,
            protocol_factory(),
            context=copy_context(),
            extra=extra,
            spec=spec,
            rcvbuf_length=rcvbuf_length,
            coin=self._coin,
        )
        self._sockets.setdefault(local, []).append(transport)
        transport.start()
        return transport

    async def resolve(
        self, host: str, port: int, *, is_re_resolution: bool = False
    ) -> SocketAddress:
        """Return the address of a name of this network, or of a numeric host.

        Raises:
            RegistrationError: UNKNOWN_HOST.
        """
        del is_re_resolution
        if host == "localhost":
            return "127.0.0.1", port
        address = host if literal(host) is not None else self._network.names.get(host)
        if address is None:
            message = f"cannot resolve host {host!r}: {self._network.describe_names(host)}"
            raise RegistrationError(message, code=ErrorCode.UNKNOWN_HOST)
        return address, port

    async def interfaces(self) -> tuple[InterfaceAddress, ...]:
        """Return its addresses: loopback, then `eth0` with the first of each family, and so on."""
        return interface_table(self.addresses)

    # Sockets.

    @property
    def socket_count(self) -> int:
        """Return how many sockets are open."""
        return sum(map(len, self._sockets.values()))

    def send_error(self, length: int) -> int:
        """Return the error number of a send now, or 0."""
        if length > DATAGRAM_LENGTH_MAX:
            return errno.EMSGSIZE
        for error_number, chance in self.send_errors.items():
            if self._random.random() < chance:
                return error_number
        return 0

    def send(
        self, sender: SimTransport, datagram: bytes, destination: SocketAddress | None
    ) -> None:
        """Send a datagram over the network."""
        assert destination is not None
        source = self._source_of(sender, destination)
        if not self.is_cut:
            self._network.send(self, sender, source, destination, datagram)

    def forget(self, transport: SimTransport) -> None:
        """Free the port of a socket that was closed."""
        there = self._sockets.get(transport.local)
        if there is not None and transport in there:
            there.remove(transport)
            if not there:
                del self._sockets[transport.local]

    def note_delivered(
        self, source: SocketAddress, destination: SocketAddress, datagram: bytes
    ) -> None:
        """Trace that a protocol has read a datagram."""
        trace = self._network.trace
        trace.note(self._network.loop.now_ns, Verdict.DELIVERED, source, destination, datagram)

    def arrive(
        self,
        sender: SimTransport | None,
        source: SocketAddress,
        destination: SocketAddress,
        datagram: bytes,
        index: int = 0,
    ) -> None:
        """Deliver a datagram to its socket, or to every member of a group.

        Args:
            sender: Gets a refusal if no socket receives; None for none.
            source: As receivers see it.
            destination: An address of this host, or a group.
            datagram: Not empty.
            index: Interface at which a group's datagram arrives.
        """
        if self.is_cut:
            return
        if is_group(destination[0]):
            transports = self._members(destination, index)
        else:
            transports = self._listening(destination)
        is_refused = not transports
        if transports and not is_group(destination[0]):
            # Of several sockets on one port, the one that is connected to the source receives.
            transports = [max(transports, key=lambda each: each.peer == source)]
        for transport in transports:
            why = transport.arrive(datagram, source)
            if why is not None:
                is_refused = why is Verdict.NOT_THE_PEER
                self._drop(why, source, destination, datagram)
        if is_refused and not is_group(destination[0]):
            if not transports:
                self._drop(Verdict.NO_SOCKET, source, destination, datagram)
            self._network.refuse(self, sender)

    def pause(self) -> None:
        """Suspend its processes: sockets are not read."""
        self.is_paused = True

    def resume(self) -> None:
        """Continue its processes: they read first, as a loop does after a delay."""
        self.is_paused = False
        for transport in chain.from_iterable(list(self._sockets.values())):
            transport.read_soon()

    def is_member(self, group: SocketAddress, index: int = FIRST_INDEX) -> bool:
        """Return whether any socket is a member of a group at an interface."""
        return bool(self._members(group, index))

    def leaving_index(self, sender: SimTransport | None, source: SocketAddress) -> int:
        """Return the interface by which the multicast of a socket leaves."""
        interface = None if sender is None else sender.spec.interface
        if interface is not None and interface.index:
            return interface.index
        return interface_index(self.addresses, source[0])

    # Addresses of sockets.

    def _check_open(self, spec: SocketSpec) -> None:
        error_number = self.open_error
        if self.socket_count >= self.socket_limit:
            error_number = errno.EMFILE
        if error_number:
            _refuse("open a socket for", spec.local, error_number)
        host = spec.local[0]
        is_own = host in self.addresses or _is_wildcard(host) or _is_loopback(host)
        if not is_own and not is_group(host):
            _refuse("bind", spec.local, errno.EADDRNOTAVAIL)

    def _bind(self, spec: SocketSpec) -> SocketAddress:
        host, port = spec.local
        if port == 0 and spec.wildcard_ports is not None:
            port = self._managed_port(spec, spec.wildcard_ports)
        elif port == 0:
            port = self._free_port(host)
        elif self._is_taken(spec):
            _refuse("bind", spec.local, errno.EADDRINUSE)
        if spec.remote is not None and _is_wildcard(host):
            # A connected socket gets the local address that leads to its peer.
            host = self._address_towards(spec.remote[0])
        return host, port

    def _is_taken(self, spec: SocketSpec) -> bool:
        return any(_collide(spec, each) for each in chain.from_iterable(self._sockets.values()))

    def _managed_port(self, spec: SocketSpec, ports: WildcardPorts) -> int:
        host = spec.local[0]
        for port in ports.candidates():
            if not self._is_taken(attrs.evolve(spec, local=(host, port))):
                ports.take(port)
                return port
        return ports.refuse(host)

    def _free_port(self, host: str) -> int:
        taken = {port for _, port in self._sockets}
        if len(taken) >= len(EPHEMERAL_PORTS):
            _refuse("bind", (host, 0), errno.EADDRINUSE)
        while True:
            port = self._next_port
            self._next_port = port + 1 if port + 1 < EPHEMERAL_PORTS.stop else EPHEMERAL_PORTS.start
            if port not in taken:
                return port

    def _listening(self, destination: SocketAddress) -> list[SimTransport]:
        found = list(self._sockets.get(destination, ()))
        found += self._sockets.get(wildcard_like(destination, destination[1]), ())
        return found

    def _members(self, group: SocketAddress, index: int) -> list[SimTransport]:
        # A socket that is bound to the group itself is a member at every interface.
        found = list(self._sockets.get(group, ()))
        found += (
            each
            for each in self._sockets.get(wildcard_like(group, group[1]), ())
            if each.spec.group == group[0] and self._joined_index(each) == index
        )
        return found

    def _joined_index(self, member: SimTransport) -> int:
        interface = member.spec.interface
        if interface is None:
            return interface_index(self.addresses, "")
        return interface.index or interface_index(self.addresses, interface.address)

    def _source_of(self, sender: SimTransport, destination: SocketAddress) -> SocketAddress:
        host, port = sender.local
        if _is_wildcard(host) or is_group(host):
            host = self._address_towards(destination[0])
        return host, port

    def _address_towards(self, destination: str) -> str:
        if _is_loopback(destination):
            return "::1" if ":" in destination else "127.0.0.1"
        is_v6 = ":" in destination
        return next((each for each in self.addresses if (":" in each) == is_v6), destination)

    def _drop(
        self, why: Verdict, source: SocketAddress, destination: SocketAddress, datagram: bytes
    ) -> None:
        self._network.trace.note(self._network.loop.now_ns, why, source, destination, datagram)


def _refuse(deed: str, address: SocketAddress, error_number: int) -> NoReturn:
    reason = os.strerror(error_number)
    message = f"cannot {deed} {format_address(address)}: {reason}; the simulated host says so"
    raise RegistrationError(message, code=ErrorCode.CHANNEL_ENDPOINT_ERROR)


def _collide(spec: SocketSpec, other: SimTransport) -> bool:
    """Return whether a socket cannot be bound beside another; a wildcard includes every address."""
    host, port = other.local
    if port != spec.local[1] or (":" in host) is not (":" in spec.local[0]):
        return False
    is_shared = (spec.reuse_address and other.spec.reuse_address) or (
        spec.reuse_port and other.spec.reuse_port
    )
    is_same = host == spec.local[0] or _is_wildcard(host) or _is_wildcard(spec.local[0])
    return is_same and not is_shared


def _is_wildcard(host: str) -> bool:
    return host in {"0.0.0.0", "::"}  # noqa: S104 - compared, not bound


def _is_loopback(host: str) -> bool:
    return host.startswith("127.") or host == "::1"


# The network.

WITHIN_A_HOST: Final = Conditions(delay_ns=10_000)
NAMES_SHOWN: Final = 8


class SimNetwork:
    """Hosts and the links between them.

    Args:
        loop: The loop in virtual time.
        seed: Seed of all random numbers.
        conditions: Conditions of every link that has none of its own.

    Attributes:
        names: Addresses by host name; a change affects later resolutions.
        trace: Trace of all datagrams.
    """

    def __init__(
        self, loop: VirtualTime, *, seed: int, conditions: Conditions | None = None
    ) -> None:
        self.loop = loop
        self.names: dict[str, str] = {}
        self.trace: Trace = Trace()
        self._seed = seed
        self._conditions = Conditions() if conditions is None else conditions
        self._hosts: dict[str, SimHost] = {}
        self._links: dict[tuple[SimHost, SimHost], Link] = {}
        # The context of the world: values in the context of a host's process stay there.
        self._context = Context()

    @property
    def hosts(self) -> tuple[SimHost, ...]:
        """Return every host once, oldest first."""
        return tuple(dict.fromkeys(self._hosts.values()))

    def add_host(self, *addresses: str) -> SimHost:
        """Add a machine with one or more numeric addresses.

        Raises:
            ConfigurationError: No address, a name, or an address that another host has.
        """
        for address in addresses:
            if literal(address) is None or address in self._hosts:
                message = f"address={address!r} must be numeric, and of one host only"
                raise ConfigurationError(message)
        if not addresses:
            message = "a host needs an address, such as '10.0.0.1'"
            raise ConfigurationError(message)
        moods, coin = self._dice("host", *addresses), self._dice("runs", *addresses)
        host = SimHost(self, addresses, moods, coin)
        self._hosts.update(dict.fromkeys(addresses, host))
        return host

    def describe_names(self, missing: str) -> str:
        """Return which names exist, and how to create a missing one."""
        shown = list(self.names)[:NAMES_SHOWN]
        more = len(self.names) - len(shown)
        names = ", ".join(map(repr, shown)) + (f" and {more} more" if more else "")
        return (
            f"the simulated network has {names or 'no names yet'}; world.host({missing!r}) makes "
            "that host, and must come before whatever resolves its name"
        )

    def link(self, source: SimHost, destination: SimHost) -> Link:
        """Return the link from one host to another; the way back is another link."""
        link = self._links.get((source, destination))
        if link is None:
            dice = self._dice("link", source.addresses[0], destination.addresses[0])
            conditions = WITHIN_A_HOST if source is destination else self._conditions
            link = self._links[source, destination] = Link(dice, conditions)
        return link

    def send(
        self,
        host: SimHost,
        sender: SimTransport | None,
        source: SocketAddress,
        destination: SocketAddress,
        datagram: bytes,
    ) -> None:
        """Carry a datagram from a host to all hosts of its destination.

        Args:
            host: Host that sends it.
            sender: Gets a refusal if no socket receives; None for none.
            source: As receivers will see it.
            destination: Numeric.
            datagram: Not empty.
        """
        index = host.leaving_index(sender, source) if is_group(destination[0]) else 0
        receivers = self._receivers(host, destination, index)
        if not receivers:
            self.trace.note(self.loop.now_ns, Verdict.NO_ROUTE, source, destination, datagram)
        for receiver in receivers:
            link = self.link(host, receiver)
            verdict, passages = link.carry(datagram, self.loop.now_ns)
            self.trace.note(self.loop.now_ns, verdict, source, destination, datagram)
            for arrival_ns, data in passages:
                self.loop.call_at_ns(
                    arrival_ns,
                    receiver.arrive,
                    sender,
                    source,
                    destination,
                    data,
                    index,
                    context=self._context,
                )

    def refuse(self, host: SimHost, sender: SimTransport | None) -> None:
        """Carry a refusal back to a connected sender."""
        if sender is None or sender.peer is None:
            return
        back = self.link(host, sender.host)
        if back.is_up:
            error = ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
            arrival_ns = self.loop.now_ns + back.conditions.delay_ns
            self.loop.call_at_ns(arrival_ns, sender.refuse, error, context=self._context)

    def _receivers(self, host: SimHost, destination: SocketAddress, index: int) -> list[SimHost]:
        address = destination[0]
        if address.startswith("127.") or address == "::1":
            return [host]
        found = self._hosts.get(address)
        if found is not None:
            return [found]
        # Loopback is a network of one host.
        hosts = (host,) if index == LOOPBACK_INDEX else self.hosts
        return [each for each in hosts if each.is_member(destination, index)]

    def _dice(self, *names: str) -> Random:
        return Random("/".join((str(self._seed), *names)))  # noqa: S311 - seeded on purpose
