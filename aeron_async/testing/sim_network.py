"""A network of simulated hosts, behind the same seam as the machine's own.

Every ordered pair of hosts has its own link with its own dice, so that a fault added here changes
nothing there. Every datagram is traced.

Multicast: a socket with a group in its description is its member at one interface, and so is, at
every interface, a socket that is bound to the group's address. Each member host has its own link,
and so loses other datagrams than its neighbour.
"""

from __future__ import annotations

import errno
import os
from contextvars import Context
from random import Random
from typing import TYPE_CHECKING, Final

from aeron_async.driver.media.sockets import is_group, literal
from aeron_async.errors import ConfigurationError
from aeron_async.testing.fates import Conditions
from aeron_async.testing.link import Link
from aeron_async.testing.sim_host import SimHost
from aeron_async.testing.sim_interfaces import LOOPBACK_INDEX
from aeron_async.testing.trace import Trace, Verdict

if TYPE_CHECKING:
    from aeron_async.driver.media.sockets import SocketAddress
    from aeron_async.testing.sim_socket import SimTransport
    from aeron_async.testing.virtual_clock import VirtualTime

__all__ = ["SimNetwork"]

WITHIN_A_HOST: Final = Conditions(delay_ns=10_000)
NAMES_SHOWN: Final = 8


class SimNetwork:
    """Hosts and the links between them.

    Args:
        loop: The loop in virtual time.
        seed: Of all dice.
        conditions: Of every link that is not given its own.

    Attributes:
        names: What hosts resolve, besides numeric addresses; change it and they resolve anew.
        trace: All that happened.
    """

    def __init__(
        self, loop: VirtualTime, *, seed: int, conditions: Conditions | None = None
    ) -> None:
        self.loop = loop
        self.names: dict[str, str] = {}
        self.trace = Trace()
        self._seed = seed
        self._conditions = Conditions() if conditions is None else conditions
        self._hosts: dict[str, SimHost] = {}
        self._links: dict[tuple[SimHost, SimHost], Link] = {}
        # The world's own: what a host's process has in its context stays there.
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
        """Return which names there are, and how one is made that is missing."""
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
        """Carry a datagram from a host to wherever its destination is.

        Args:
            host: Where it leaves.
            sender: Told if nobody listens there; None where nobody cares.
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
        """Carry the news that nobody listens back to a connected sender."""
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
