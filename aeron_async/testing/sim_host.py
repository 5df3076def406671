"""A simulated machine as the network sees it: addresses, sockets, and what its system refuses.

Source: the behaviour is Linux's, where UDP leaves it open: ports from 32768, a refusal (ICMP) told
to connected sockets only, errors of `sendto` told at once.
"""

from __future__ import annotations

import errno
import os
from contextvars import copy_context
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NoReturn

import attrs

from aeron_async.driver.core.udp_channel import format_address, wildcard_like
from aeron_async.driver.media.sockets import is_group, literal, refuse_timestamps
from aeron_async.errors import ErrorCode, RegistrationError
from aeron_async.testing.sim_interfaces import FIRST_INDEX, interface_index, interface_table
from aeron_async.testing.sim_socket import DATAGRAM_LENGTH_MAX, SimTransport
from aeron_async.testing.trace import Verdict

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping
    from random import Random

    from aeron_async.driver.media.network import InterfaceAddress
    from aeron_async.driver.media.sockets import SocketAddress, SocketSpec, WildcardPorts
    from aeron_async.testing.sim_network import SimNetwork

__all__ = ["SimHost"]

EPHEMERAL_PORTS: Final = range(32_768, 61_000)
RCVBUF_DEFAULT_LENGTH: Final = 212_992
SNDBUF_DEFAULT_LENGTH: Final = 212_992


class SimHost:
    """One machine; it is a `Network` for the drivers that run on it.

    Args:
        network: Where it is.
        addresses: Its own, numeric, of either family; the first of a family is used to send from.
        random: The dice of its system's moods.
        coin: Decides by which way in a datagram comes that is alone.

    Attributes:
        addresses: As given.
        is_paused: Whether its processes stand still; what arrives waits in the sockets.
        is_cut: Whether nothing leaves it or reaches it, as when the power has gone.
        send_errors: Error numbers that `sendto` meets, each with its chance; EAGAIN is a socket
            without room.
        open_error: The error number that opening a socket meets, or 0.
        socket_limit: Most sockets open at once; one more meets EMFILE.
    """

    def __init__(
        self, network: SimNetwork, addresses: tuple[str, ...], random: Random, coin: Random
    ) -> None:
        self.addresses = addresses
        self.is_paused = False
        self.is_cut = False
        self.send_errors: Mapping[int, float] = {}
        self.open_error = 0
        self.socket_limit = 1024
        self._network = network
        self._random = random
        self._coin = coin
        self._sockets: dict[SocketAddress, list[SimTransport]] = {}
        self._next_port = EPHEMERAL_PORTS.start

    # The datagram seam.

    async def open(
        self, protocol_factory: Callable[[], asyncio.DatagramProtocol], spec: SocketSpec
    ) -> asyncio.DatagramTransport:
        """Open a socket on this host.

        Raises:
            RegistrationError: CHANNEL_ENDPOINT_ERROR; the port is taken, the address another's, or
                the host was told to refuse. NOT_SUPPORTED; times of arrival are asked for.
        """
        refuse_timestamps(spec, "a simulated network")
        self._check_open(spec)
        local = self._bind(spec)
        sndbuf_length = spec.socket_sndbuf_length or SNDBUF_DEFAULT_LENGTH
        rcvbuf_length = spec.socket_rcvbuf_length or RCVBUF_DEFAULT_LENGTH
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

    # What its sockets do.

    @property
    def socket_count(self) -> int:
        """Return how many sockets are open."""
        return sum(map(len, self._sockets.values()))

    def send_error(self, length: int) -> int:
        """Return the error number that a send meets now, or 0."""
        if length > DATAGRAM_LENGTH_MAX:
            return errno.EMSGSIZE
        for error_number, chance in self.send_errors.items():
            if self._random.random() < chance:
                return error_number
        return 0

    def send(
        self, sender: SimTransport, datagram: bytes, destination: SocketAddress | None
    ) -> None:
        """Put a datagram on the wire."""
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
        """Take note that a protocol has read a datagram."""
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
        """Give what arrives to the socket it is for; several members of a group all get it.

        Args:
            sender: Told if nobody listens; None where nobody cares.
            source: As receivers see it.
            destination: An address of this host, or a group.
            datagram: Not empty.
            index: The interface at which a group's datagram arrives.
        """
        if self.is_cut:
            return
        if is_group(destination[0]):
            transports = self._members(destination, index)
        else:
            transports = self._listening(destination)
        is_refused = not transports
        if transports and not is_group(destination[0]):
            # Of several sockets on one port, the one that is connected to the source is meant.
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
        """Let its processes stand still: nothing is read."""
        self.is_paused = True

    def resume(self) -> None:
        """Let its processes go on: they read first, as a loop does that was held up."""
        self.is_paused = False
        for transport in chain.from_iterable(list(self._sockets.values())):
            transport.read_soon()

    def is_member(self, group: SocketAddress, index: int = FIRST_INDEX) -> bool:
        """Return whether any socket hears this group at this interface."""
        return bool(self._members(group, index))

    def leaving_index(self, sender: SimTransport | None, source: SocketAddress) -> int:
        """Return the interface by which the multicast of a socket leaves."""
        interface = None if sender is None else sender.spec.interface
        if interface is not None and interface.index:
            return interface.index
        return interface_index(self.addresses, source[0])

    # How sockets find their address.

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
            # A connected socket learns which of the addresses leads to its peer.
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
        # Who is bound to the group itself hears it at every interface.
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
    """Return whether a socket cannot be bound beside another; who binds to all binds to each."""
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
