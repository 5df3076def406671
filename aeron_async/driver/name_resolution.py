"""Name resolution of one driver: timed look-ups, and repeated ones for silent peers.

The receiver of a publication and a destination are silent if no status message came for a while, a
control address if no datagram did. The name of a peer that is not silent need not be resolved
again, nor does a numeric address.

Source: Aeron `TimeTrackingNameResolver`, counters 32 and 33,
`aeron_send_channel_endpoint_check_for_re_resolution`,
`aeron_receive_channel_endpoint_check_for_re_resolution`, `DriverConductor.onReResolveEndpoint`.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeGuard

import attrs

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.context import DESTINATION_TIMEOUT_NS
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.driver.core.udp_channel import format_address
from aeron_async.driver.media.channel_resolver import resolve_address
from aeron_async.driver.media.sockets import literal
from aeron_async.errors import AeronError, ErrorCode, RegistrationError
from aeron_async.logs import get_logger
from aeron_async.tasks import TaskOwner

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Iterator

    from aeron_async.clock import Clock
    from aeron_async.driver.core.destination_tracker import SendDestination
    from aeron_async.driver.core.outbox import Address
    from aeron_async.driver.core.suppliers import NameResolver
    from aeron_async.driver.core.system_counters import SystemCounters
    from aeron_async.driver.media.endpoint import ReceiveChannelEndpoint, SendChannelEndpoint
    from aeron_async.driver.media.network import InterfaceAddress, Network
    from aeron_async.driver.media.sockets import SocketAddress, SocketSpec
    from aeron_async.driver.resources import DriverResources
    from aeron_async.protocol.address import Address as WrittenAddress

__all__ = [
    "NameWatch",
    "ResolvingNetwork",
]


class ResolvingNetwork:
    """A network with the name resolver and the counters of one driver.

    Args:
        network: Opens the sockets.
        resolver: Resolves the names.
        clock: Times the look-ups.
        system_counters: Show the longest look-up, and count the slow ones.
        threshold_ns: A look-up that takes longer counts as slow.
    """

    def __init__(
        self,
        network: Network,
        resolver: NameResolver,
        *,
        clock: Clock,
        system_counters: SystemCounters,
        threshold_ns: int,
    ) -> None:
        self._network = network
        self._resolver = resolver
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
                "not a numeric address"
            )
            raise RegistrationError(message, code=ErrorCode.UNKNOWN_HOST)
        return found

    def _note(self, duration_ns: int) -> None:
        self._max_time.propose_max(duration_ns)
        if duration_ns > self._threshold_ns:
            self._slow.increment()


MAX_LOOKUPS: Final = 16
"""Most look-ups at once; the peers that have waited longest come first."""

log: Final = get_logger(__name__)


@attrs.frozen(eq=False)
class Silence:
    """A peer whose name may have to be resolved again.

    Attributes:
        place: Identifies the peer.
        key: The parameter of the channel that has the name.
        written: The name in the channel.
        address: Its last address; None if the name has not been resolved yet.
        since_ns: When the peer was last heard.
        move: Called with the new address, if that differs.
    """

    place: object
    key: str
    written: WrittenAddress
    address: Address | None
    since_ns: int
    move: Callable[[Address], None]


class NameWatch:
    """Resolves the names of silent peers of one driver again.

    There is at most one look-up for each name at a time, and 16 in all. There are as many names as
    endpoints and destinations.

    Args:
        resources: What the driver's parts share.
        send_endpoints: The endpoints whose receivers may move.
        receive_endpoints: The endpoints whose control addresses may move.
        wake: Called when a look-up has ended.
    """

    def __init__(
        self,
        resources: DriverResources,
        send_endpoints: Iterable[SendChannelEndpoint],
        receive_endpoints: Iterable[ReceiveChannelEndpoint],
        wake: Callable[[], None],
    ) -> None:
        self._resources = resources
        self._interval_ns = resources.context.reresolution_check_interval_ns
        self._changes = resources.system_counters[SystemCounterId.RESOLUTION_CHANGES]
        self._send_endpoints = send_endpoints
        self._receive_endpoints = receive_endpoints
        self._wake = wake
        self._is_closed = False
        self._next_poll_ns = 0
        # The peers whose failed look-up was logged: once is enough.
        self._unfollowed: set[object] = set()
        self._checked_ns: dict[object, int] = {}
        self._tasks = TaskOwner()
        self._lookups: set[object] = set()

    def poll(self, now_ns: int) -> int:
        """Start the look-ups that are due, and return the next deadline."""
        if not self._interval_ns or self._is_closed:
            return NEVER_NS
        if now_ns < self._next_poll_ns:
            # Called early because something was added or found: that can wait for the others.
            return self._next_poll_ns
        self._next_poll_ns = now_ns + self._interval_ns
        deadline_ns, checked_ns = NEVER_NS, self._checked_ns
        due: list[tuple[int, Silence]] = []
        self._checked_ns = {}
        for silence in self._silences():
            place = silence.place
            due_ns = checked_ns.get(place, silence.since_ns - self._interval_ns) + self._interval_ns
            if silence.address is not None:
                due_ns = max(due_ns, silence.since_ns + DESTINATION_TIMEOUT_NS + 1)
            if place in checked_ns:
                self._checked_ns[place] = checked_ns[place]
            if now_ns < due_ns:
                deadline_ns = min(deadline_ns, due_ns)
            elif place not in self._lookups:
                due.append((due_ns, silence))
        due.sort(key=itemgetter(0))
        for _, silence in due[: MAX_LOOKUPS - len(self._lookups)]:
            self._checked_ns[silence.place] = now_ns
            self._lookups.add(silence.place)
            self._tasks.start(self._look_up(silence), f"aeron-look-up {silence.written}")
        self._unfollowed &= self._checked_ns.keys()
        if due:
            return self._next_poll_ns
        return max(deadline_ns, self._next_poll_ns)

    def close(self) -> None:
        """Cancel all look-ups, and start no more."""
        self._is_closed = True
        self._tasks.cancel()

    async def wait_closed(self) -> None:
        """Wait until all look-ups have ended; to be called after `close`."""
        await self._tasks.wait()

    async def _look_up(self, silence: Silence) -> None:
        written = silence.written
        try:
            address = await resolve_address(self._resources.network, written, is_re_resolution=True)
            self._unfollowed.discard(silence.place)
            if address != silence.address:
                silence.move(address)
                self._changes.increment()
                log.info(
                    "name_leads_elsewhere",
                    name=str(written),
                    before=None if silence.address is None else format_address(silence.address),
                    after=format_address(address),
                )
        except Exception as error:  # noqa: BLE001 - a foreign resolver may raise anything
            # A name that has never resolved is no error yet: its receiver may start later.
            if silence.address is not None:
                self._note_error(silence, error)
            # The next look-up comes soon; the name or its family may resolve again by then.
            if silence.place not in self._unfollowed:
                self._unfollowed.add(silence.place)
                log.warning("name_not_followed", name=str(written), reason=str(error))
        finally:
            self._lookups.discard(silence.place)
            self._wake()

    def _note_error(self, silence: Silence, error: Exception) -> None:
        where = f"{silence.key}={silence.written}"
        code = error.code if isinstance(error, RegistrationError) else ErrorCode.GENERIC
        # Tools look for these words of Aeron.
        what = (
            "Unable to resolve host" if code is ErrorCode.UNKNOWN_HOST else "could not re-resolve"
        )
        self._resources.system_counters.note_error(code, f"{what}: {where}: {error}")

    def _silences(self) -> Iterator[Silence]:
        """Yield every peer whose address is a name."""
        for sender in self._send_endpoints:
            yield from _of_sender(sender)
        for receiver in self._receive_endpoints:
            for destination in receiver.destinations:
                written = destination.channel.uri.control
                if destination.channel.has_explicit_control and _is_name(written):
                    yield Silence(
                        destination,
                        "control",
                        written,
                        destination.control_address,
                        destination.last_activity_ns,
                        destination.move_control,
                    )


def _is_name(written: WrittenAddress | None) -> TypeGuard[WrittenAddress]:
    return written is not None and literal(written.host) is None


def _of_sender(endpoint: SendChannelEndpoint) -> Iterator[Silence]:
    channel, tracker = endpoint.channel, endpoint.destinations
    if tracker is not None:
        for destination in tracker.destinations:
            if destination.uri is not None and _is_name(destination.uri.endpoint):

                def move(address: Address, moved: SendDestination = destination) -> None:
                    tracker.move(moved, address)

                yield Silence(
                    destination,
                    "endpoint",
                    destination.uri.endpoint,
                    destination.address,
                    destination.last_activity_ns,
                    move,
                )
    elif not (channel.is_multicast or channel.is_response) and _is_name(channel.uri.endpoint):
        yield Silence(
            endpoint,
            "endpoint",
            channel.uri.endpoint,
            endpoint.remote,
            endpoint.dispatcher.last_sm_ns,
            endpoint.reconnect,
        )
