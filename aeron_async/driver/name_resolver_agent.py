"""The socket of a driver's name resolver, and the look-ups of its bootstrap neighbors.

Source: Aeron `DriverNameResolver`, `UdpNameResolutionTransport`, `aeron_driver_name_resolver.c`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Self

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.driver_name_resolver import DriverNameResolver
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.driver.media.channel_resolver import find_interface, find_named_interface
from aeron_async.driver.media.sockets import SocketSpec, literal
from aeron_async.errors import AeronError, ConfigurationError, DriverError, ErrorCode
from aeron_async.logs import get_logger
from aeron_async.protocol.address import Address as WrittenAddress
from aeron_async.protocol.address import InterfaceSpec
from aeron_async.tasks import TaskOwner

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.clock import Clock
    from aeron_async.counters import CountersManager
    from aeron_async.driver.core.context import DriverContext
    from aeron_async.driver.core.driver_name_resolver import BootstrapNeighbor
    from aeron_async.driver.core.outbox import Address
    from aeron_async.driver.core.suppliers import NameResolver
    from aeron_async.driver.core.system_counters import SystemCounters
    from aeron_async.driver.media.network import Network
    from aeron_async.protocol.header import Buffer

__all__ = ["NameResolverAgent"]

log: Final = get_logger(__name__)


class NameResolverAgent(asyncio.DatagramProtocol):
    """Carries the packets of a `DriverNameResolver`; the conductor polls it.

    There is at most one look-up for each bootstrap neighbor at a time.

    Attributes:
        resolver: Knows the names.
        wake: Wakes the conductor.
    """

    def __init__(
        self,
        context: DriverContext,
        delegate: NameResolver,
        clock: Clock,
        system_counters: SystemCounters,
    ) -> None:
        self._context = context
        self._delegate = delegate
        self._clock = clock
        self._system_counters = system_counters
        self._transport: asyncio.DatagramTransport | None = None
        self._tasks = TaskOwner()
        self._being_looked_up: set[BootstrapNeighbor] = set()
        self._look_up_at_ns = 0
        self.resolver: DriverNameResolver
        self.wake: Callable[[], None] = _do_nothing

    @classmethod
    async def open(
        cls,
        context: DriverContext,
        network: Network,
        delegate: NameResolver,
        *,
        clock: Clock,
        counters_manager: CountersManager,
        system_counters: SystemCounters,
    ) -> Self:
        """Open the socket.

        Args:
            context: Has `resolver_interface`.
            network: Opens the socket.
            delegate: Resolves the names that are no drivers'.
            clock: Tells the age of what was heard.
            counters_manager: Gets the counters of neighbors and names.
            system_counters: Count what is refused, and take the errors.

        Raises:
            DriverError: The socket cannot be bound.
            RegistrationError: There is no counter left.
        """
        agent = cls(context, delegate, clock, system_counters)
        try:
            spec = SocketSpec(
                local=await _local_address(context, network),
                socket_rcvbuf_length=context.socket_rcvbuf_length,
                socket_sndbuf_length=context.socket_sndbuf_length,
            )
            transport = await network.open(lambda: agent, spec)
        except AeronError as error:
            message = (
                f"resolver_interface={context.resolver_interface} cannot be used ({error}): "
                "choose an address of this machine and a free port"
            )
            raise DriverError(message) from error
        try:
            agent.resolver = DriverNameResolver(
                context,
                delegate,
                counters_manager=counters_manager,
                system_counters=system_counters,
                address=transport.get_extra_info("sockname"),
            )
        except BaseException:
            transport.abort()
            raise
        agent._transport = transport
        return agent

    def poll(self, now_ns: int) -> int:
        """Send what is due, start the look-ups that are due, and return the next deadline."""
        if self._transport is None:
            return NEVER_NS
        deadline_ns = self.resolver.poll(now_ns, self._send)
        if not self.resolver.bootstrap_neighbors:
            return deadline_ns
        if now_ns >= self._look_up_at_ns:
            self._look_up_at_ns = (
                now_ns + self._context.resolver_bootstrap_neighbor_resolution_interval_ns
            )
            for each in self.resolver.unheard():
                if each not in self._being_looked_up:
                    self._being_looked_up.add(each)
                    self._tasks.start(self._look_up(each), f"aeron-look-up {each.text}")
        return min(deadline_ns, self._look_up_at_ns)

    def close(self) -> None:
        """Close the socket, and cancel the look-ups."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        self._tasks.cancel()

    async def wait_closed(self) -> None:
        """Wait until all look-ups have ended; to be called after `close`."""
        await self._tasks.wait()

    # Called by the transport.

    def datagram_received(self, data: Buffer, addr: Address) -> None:
        """Learn from a datagram; the conductor answers if that is due."""
        if self._transport is not None:
            self.resolver.on_datagram(data, addr, self._clock.now_ns())
            self.wake()

    def error_received(self, exc: Exception) -> None:
        """Record that the system refused to send a datagram."""
        self._system_counters.note_error(
            ErrorCode.GENERIC, f"Failed to send resolution frames to a neighbor: {exc}"
        )

    def _send(self, frame: bytes, address: Address) -> None:
        assert self._transport is not None, "poll has looked"
        try:
            self._transport.sendto(frame, address)
        except (BufferError, ValueError):
            # A datagram already waits, or the address is of the other family: there is a next time.
            self._system_counters[SystemCounterId.SHORT_SENDS].increment()

    async def _look_up(self, neighbor: BootstrapNeighbor) -> None:
        found: Address | None = None
        try:
            written = WrittenAddress.parse(neighbor.text)
            if literal(written.host) is not None:
                found = written.host, written.port
            else:
                found = await self._delegate.resolve(
                    written.host, written.port, is_re_resolution=neighbor.address is not None
                )
        except ConfigurationError as error:
            self._note_error(neighbor, ErrorCode.GENERIC, f"Invalid argument: {error}")
        except Exception as error:  # noqa: BLE001 - a foreign resolver may raise anything
            self._note_error(neighbor, ErrorCode.UNKNOWN_HOST, f"unknown host: {error}")
        finally:
            self._being_looked_up.discard(neighbor)
        self.resolver.move(neighbor, found)
        self.wake()

    def _note_error(self, neighbor: BootstrapNeighbor, code: ErrorCode, reason: str) -> None:
        # Aeron's words; as there, the other neighbors are used.
        self._system_counters.note_error(code, f"bootstrap_neighbor={neighbor.text}: {reason}")
        log.warning("bootstrap_neighbor_not_found", neighbor=neighbor.text, reason=reason)


async def _local_address(context: DriverContext, network: Network) -> Address:
    """Return the address that `resolver_interface` names.

    Raises:
        RegistrationError: There is no such interface, or its name cannot be resolved.
    """
    assert context.resolver_interface is not None, "without it there is no resolver"
    spec = InterfaceSpec.parse(context.resolver_interface)
    if spec.host is None:
        assert spec.interface_name is not None, "an interface has an address or a name"
        found = find_named_interface(
            await network.interfaces(), spec.interface_name, is_ipv6=False, port=spec.port
        )
        return found.address, spec.port
    host, port = await network.resolve(spec.host, spec.port)
    if spec.prefix_length is None:
        return host, port
    table = await network.interfaces()
    found = find_interface(table, host, prefix_length=spec.prefix_length, port=port)
    return found.address, port


def _do_nothing() -> None:
    """Wake nobody: the conductor is not there yet."""
