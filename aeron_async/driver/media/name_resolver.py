"""A network whose names are looked up by the resolver of the context, with the time it takes.

Source: Aeron `TimeTrackingNameResolver`, counters 32 and 33.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.driver.media.socket_spec import literal
from aeron_async.errors import AeronError, ErrorCode, RegistrationError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from aeron_async.clock import Clock
    from aeron_async.driver.core.suppliers import NameResolver
    from aeron_async.driver.core.system_counters import SystemCounters
    from aeron_async.driver.media.interfaces import InterfaceAddress
    from aeron_async.driver.media.network import Network
    from aeron_async.driver.media.socket_spec import SocketAddress, SocketSpec

__all__ = ["ResolvingNetwork"]


class ResolvingNetwork:
    """A network as one driver sees it.

    Args:
        network: Opens its sockets.
        resolver: Looks up its names; None leaves that to the network.
        clock: Times the look-ups.
        system_counters: Has the longest of them, and how many took longer than the threshold.
        threshold_ns: From here on a look-up counts as slow.
    """

    def __init__(
        self,
        network: Network,
        resolver: NameResolver | None,
        *,
        clock: Clock,
        system_counters: SystemCounters,
        threshold_ns: int,
    ) -> None:
        self._network = network
        self._resolver: NameResolver = network if resolver is None else resolver
        self._clock = clock
        self._max_time = system_counters[SystemCounterId.NAME_RESOLVER_MAX_TIME]
        self._slow = system_counters[SystemCounterId.NAME_RESOLVER_TIME_THRESHOLD_EXCEEDED]
        self._threshold_ns = threshold_ns

    async def open(
        self, protocol_factory: Callable[[], asyncio.DatagramProtocol], spec: SocketSpec
    ) -> asyncio.DatagramTransport:
        """Open a socket on the network below.

        Raises:
            RegistrationError: CHANNEL_ENDPOINT_ERROR.
        """
        return await self._network.open(protocol_factory, spec)

    async def interfaces(self) -> tuple[InterfaceAddress, ...]:
        """Return the addresses of this machine, in the order of its system."""
        return await self._network.interfaces()

    async def resolve(
        self, host: str, port: int, *, is_re_resolution: bool = False
    ) -> SocketAddress:
        """Return the numeric address of a host; a numeric one is not looked up.

        Raises:
            RegistrationError: UNKNOWN_HOST; the resolver failed, or gave no numeric address.
        """
        if literal(host) is not None:
            return await self._network.resolve(host, port, is_re_resolution=is_re_resolution)
        begin_ns = self._clock.now_ns()
        try:
            found = await self._resolver.resolve(host, port, is_re_resolution=is_re_resolution)
            is_numeric = literal(found[0]) is not None
        except AeronError:
            raise
        except Exception as error:
            message = f"cannot resolve host {host!r}: the name resolver failed: {error!r}"
            raise RegistrationError(message, code=ErrorCode.UNKNOWN_HOST) from error
        finally:
            self._note(self._clock.now_ns() - begin_ns)
        if not is_numeric:
            message = (
                f"cannot resolve host {host!r}: the name resolver answered {found[0]!r}, which is "
                "no numeric address"
            )
            raise RegistrationError(message, code=ErrorCode.UNKNOWN_HOST)
        return found

    def _note(self, duration_ns: int) -> None:
        self._max_time.propose_max(duration_ns)
        if duration_ns > self._threshold_ns:
            self._slow.increment()
