"""Looks up again the names of those who have fallen silent: they may have moved.

A publication's receiver is silent when no status message came for a while, a destination likewise,
and a control address when no datagram did. Who speaks is where the name led, and is not looked for.
Numeric addresses are not names.

Source: Aeron `aeron_send_channel_endpoint_check_for_re_resolution`,
`aeron_receive_channel_endpoint_check_for_re_resolution`, `DriverConductor.onReResolveEndpoint`.
"""

from __future__ import annotations

import asyncio
from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeGuard

import attrs

from aeron_async.driver.core.context import DESTINATION_TIMEOUT_NS
from aeron_async.driver.core.loss_detector import NEVER_NS
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.driver.core.udp_channel import format_address
from aeron_async.driver.media.channel_resolver import resolve_address
from aeron_async.driver.media.socket_spec import literal
from aeron_async.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from aeron_async.driver.core.destination_tracker import SendDestination
    from aeron_async.driver.core.outbox import Address
    from aeron_async.driver.media.receive_channel_endpoint import ReceiveChannelEndpoint
    from aeron_async.driver.media.send_channel_endpoint import SendChannelEndpoint
    from aeron_async.driver.resources import DriverResources
    from aeron_async.protocol.address import Address as WrittenAddress

__all__ = ["NameWatch"]

MAX_LOOKUPS: Final = 16
"""Look-ups under way at once: those who have waited longest come first."""

log = get_logger(__name__)


@attrs.frozen(eq=False)
class Silence:
    """Somebody who may be looked for.

    Attributes:
        place: Who.
        written: The name, as the channel has it.
        address: Where it led last; None where it did not yet lead anywhere.
        since_ns: When it was last heard.
        move: To be called with where it leads now, if that is elsewhere.
    """

    place: object
    written: WrittenAddress
    address: Address | None
    since_ns: int
    move: Callable[[Address], None]


class NameWatch:
    """The names of one driver.

    At most one look-up of each is under way, and 16 in all; there are as many names as there are
    endpoints and destinations.

    Args:
        resources: What the driver's parts share.
        send_endpoints: Whose receivers may move.
        receive_endpoints: Whose control addresses may.
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
        # Those of whom it was said that their names lead nowhere: once is enough.
        self._unfollowed: set[object] = set()
        self._checked_ns: dict[object, int] = {}
        self._lookups: dict[object, asyncio.Task[None]] = {}

    def poll(self, now_ns: int) -> int:
        """Look for those who are silent for too long, and return when somebody might be."""
        if not self._interval_ns or self._is_closed:
            return NEVER_NS
        if now_ns < self._next_poll_ns:
            # Something was added, or found: it is early enough to look at it with the others.
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
            self._lookups[silence.place] = asyncio.create_task(
                self._look_up(silence), name=f"aeron-look-up {silence.written}"
            )
        self._unfollowed &= self._checked_ns.keys()
        if due:
            return self._next_poll_ns
        return max(deadline_ns, self._next_poll_ns)

    def close(self) -> None:
        """Look for nobody any more."""
        self._is_closed = True
        for lookup in self._lookups.values():
            lookup.cancel()

    async def wait_closed(self) -> None:
        """Wait until no look-up is under way any more; after `close`."""
        await asyncio.gather(*self._lookups.values(), return_exceptions=True)

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
        except Exception as error:  # noqa: BLE001 - a resolver of somebody else's may raise anything
            # It may resolve again, or its family come back: the next look-up is not far.
            if silence.place not in self._unfollowed:
                self._unfollowed.add(silence.place)
                log.warning("name_not_followed", name=str(written), reason=str(error))
        finally:
            self._lookups.pop(silence.place, None)
            self._wake()

    def _silences(self) -> Iterator[Silence]:
        """Yield everybody whose address is a name."""
        for sender in self._send_endpoints:
            yield from _of_sender(sender)
        for receiver in self._receive_endpoints:
            for destination in receiver.destinations:
                written = destination.channel.uri.control
                if destination.channel.has_explicit_control and _is_name(written):
                    yield Silence(
                        destination,
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
                    destination.uri.endpoint,
                    destination.address,
                    destination.last_activity_ns,
                    move,
                )
    elif not (channel.is_multicast or channel.is_response) and _is_name(channel.uri.endpoint):
        yield Silence(
            endpoint,
            channel.uri.endpoint,
            endpoint.remote,
            endpoint.dispatcher.last_sm_ns,
            endpoint.reconnect,
        )
