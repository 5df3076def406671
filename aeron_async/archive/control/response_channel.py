"""Response channels of clients, and the limit of what is sent before a client answers.

Invariant: a client that the archive does not know yet decides where its answers go, and nothing
else. `response_channel` takes the term length from the archive's settings, and drops parameters
that are not permitted. Before a host has answered, the archive sends it at most three bytes for
each byte of the request that named it.

`LookUps` resolves the host names in response channels: a few at once, and one of each source. The
system's resolver may take long, in threads that the application needs for its own names. Sources
whose names have failed always leave a place for other sources, and the others leave one for them,
because an attacker can forge a source.

Differs: Aeron keeps some twenty parameters, takes the term length from the client, and has no such
limit.

Source: Aeron `ArchiveConductor.newControlSession`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING, Any, Final

import attrs

from aeron_async.archive.control.messages import CODEC, BoundedReplayRequest, ReplayRequest
from aeron_async.archive.recording_channels import with_only
from aeron_async.errors import ChannelUriError, ClosedError, ErrorCode, RegistrationError
from aeron_async.protocol.address import Address, InterfaceSpec
from aeron_async.protocol.channel_uri import ChannelUri, ControlMode, Media
from aeron_async.tasks import TaskOwner
from aeron_async.text import SHORT, printable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aeron_async.archive.control.messages import Request
    from aeron_async.archive.control.settings import ControlSettings
    from aeron_async.client.image import Image

__all__ = [
    "LOOK_UPS_MAX",
    "PERMITTED",
    "SENT_PER_BYTE",
    "LookUps",
    "is_same_host",
    "response_channel",
    "source_of",
    "unanswered_bound",
]

SENT_PER_BYTE: Final = 3
"""Bytes that a host may be sent, for each byte of a request, before it has answered; as in QUIC."""

LOOK_UPS_MAX: Final = 3
"""Look-ups at once for clients that have not answered; asyncio has five or more threads for all.

A look-up whose caller has gone counts until it ends or is given up: its thread cannot be stopped.
"""
OF_A_KIND_MAX: Final = LOOK_UPS_MAX - 1
"""Most of these for suspect sources, and for the others: each kind has a reserved place."""
LOOK_UP_TIMEOUT_S: Final = 60.0
"""After this time a look-up is given up, and its place is free.

The system's resolver has usually ended by then. With many silent nameservers it takes longer, and
its thread runs on; a resolver of the application is cancelled.
"""
SUSPECT_S: Final = 600.0
"""How long a source is suspect after one of its names failed, or was not resolved in time."""
CLOSE_TIMEOUT_S: Final = 1.0
"""Limits the wait for a resolver of the application that ignores its cancellation."""
LOCALHOST: Final = "localhost"
LOCAL_SOURCE_IDENTITY: Final = "aeron:ipc"
"""Source identity of an image whose publisher has the same driver."""
SUSPECTS_MAX: Final = 1_024
"""Suspect sources that are remembered, the newest: an attacker may forge any number of them."""
PREFIX_LENGTH: Final = 64
"""Bits of an IPv6 address that identify a source: a host may have all addresses behind them."""

PERMITTED: Final = (
    "endpoint",
    "interface",
    "control",
    "control-mode",
    "session-id",
    "ttl",
    "alias",
    "mtu",
)
"""Parameters that a client may set in its response channel.

Official clients also send term-length, sparse and mtu. The archive decides the first two itself:
terms of a gigabyte, allocated at once, would be mapped before the client has answered. Tags would
share a socket of the archive, and a position makes the stream easier to guess.
"""


def response_channel(asked: str, image: Image, settings: ControlSettings) -> ChannelUri:
    """Return the channel for the answers to a client.

    Args:
        asked: Channel that the client asks for.
        image: Image of its requests.
        settings: Settings of the archive.

    Differs: Aeron answers over IPC even if the request came from another host.

    Raises:
        ChannelUriError: The channel is not valid or cannot be published on, or a client on another
            host asks for IPC.
    """
    # This also drops unknown parameters: a client whose channel is refused could not be told so.
    uri = ChannelUri.parse(with_only(asked, PERMITTED))
    is_response = uri.control_mode is ControlMode.RESPONSE
    answer = uri.replace(
        term_length=settings.control_term_length,
        mtu_length=uri.mtu_length or settings.control_mtu_length,
        is_sparse=settings.is_control_term_sparse,
        response_correlation_id=image.correlation_id if is_response else None,
    )
    answer.check_publication()
    if answer.media is Media.IPC and not is_of_this_host(image.source_identity):
        message = (
            f"response channel {printable(asked, SHORT)} works on this host only, but the request "
            f"came from {image.source_identity}: name a UDP endpoint"
        )
        raise ChannelUriError(message)
    return answer


@attrs.define(eq=False)
class LookUp:
    """A host name that a source asked for.

    Attributes:
        deadline: When its caller stops waiting, in seconds of the loop.
        is_suspect: Whether the source was suspect when the look-up began.
    """

    source: str
    host: str
    port: int
    deadline: float
    answered: asyncio.Future[tuple[str, int]]
    is_suspect: bool = False


class LookUps:
    """Resolves the host names in response channels, a few at once; the others wait for their turn.

    A source has one look-up at a time. A source becomes suspect for ten minutes if a name of its
    fails or is not resolved within the caller's deadline, waiting for a turn included; a name that
    is resolved in time ends that. Suspect sources cannot take the last place, so they block no
    other source. Other sources cannot take the last place either: an attacker may forge the address
    of an honest host and make it suspect, and that host still gets its turn. Of the suspect
    sources, the one whose last suspicion is the oldest comes first.

    Args:
        look_up: Returns the numeric address of a host and a port.
    """

    def __init__(self, look_up: Callable[[str, int], Awaitable[tuple[str, int]]]) -> None:
        self._look_up = look_up
        # Each belongs to a session that is not admitted yet, and the number of those is bounded.
        self._waiting: list[LookUp] = []
        self._tasks = TaskOwner()
        self._under_way: dict[asyncio.Task[tuple[str, int]], LookUp] = {}
        # When each suspicion ends, in seconds of the loop; ordered by the last suspicion.
        self._suspects: dict[str, float] = {}
        self._is_closed = False

    async def numeric(self, channel: ChannelUri, *, source: str, deadline: float) -> ChannelUri:
        """Return a channel with numeric addresses; the caller may be cancelled.

        `localhost` stays: the driver resolves it without a nameserver.

        Differs: Aeron resolves a name again when its address changes. Here the client connects
        again when its session breaks, and its name is resolved then.

        Args:
            channel: Channel that the client wants.
            source: Host of the client; see `source_of`.
            deadline: When the caller stops waiting, in seconds of the loop.

        Raises:
            AeronError: A name cannot be resolved, or its address is not valid for such a channel.
            ClosedError: This object is closed.
        """
        changes: dict[str, Any] = {}
        for name, written in (("endpoint", channel.endpoint), ("control", channel.control)):
            if written is not None and written.ip is None and written.host != LOCALHOST:
                found = await self._take_turn(source, written.host, written.port, deadline)
                changes[name] = Address.of(*found)
        interface = channel.interface
        if interface is not None and interface.host is not None and interface.ip is None:
            host, port = await self._take_turn(source, interface.host, interface.port, deadline)
            prefix = "" if interface.prefix_length is None else f"/{interface.prefix_length}"
            changes["interface"] = InterfaceSpec.parse(f"{Address.of(host, port)}{prefix}")
        return channel.replace(**changes) if changes else channel

    def close(self) -> None:
        """Refuse new look-ups, and cancel those that wait and those in progress."""
        self._is_closed = True
        for look_up in self._waiting:
            look_up.answered.cancel()
        self._waiting.clear()
        self._tasks.cancel()

    async def wait_closed(self) -> None:
        """Wait until the look-ups in progress have ended, for a second at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._tasks.wait()

    async def _take_turn(
        self, source: str, host: str, port: int, deadline: float
    ) -> tuple[str, int]:
        if self._is_closed:
            message = f"host {host!r} is not looked up: the archive is being closed"
            raise ClosedError(message)
        answered: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()
        look_up = LookUp(source, host, port, deadline, answered)
        self._waiting.append(look_up)
        self._begin()
        try:
            return await answered
        finally:
            if look_up in self._waiting:
                self._waiting.remove(look_up)

    def _begin(self) -> None:
        """Begin look-ups while there is room."""
        while (look_up := self._next()) is not None:
            self._waiting.remove(look_up)
            task = self._tasks.start(self._run(look_up.host, look_up.port), "aeron-archive-look-up")
            self._under_way[task] = look_up
            # The timer outlives a caller that has left: the look-up still occupies a place.
            late = asyncio.get_running_loop().call_at(
                look_up.deadline, self._suspect, look_up.source
            )
            task.add_done_callback(partial(self._on_done, look_up, late))

    def _next(self) -> LookUp | None:
        """Return the next look-up, of a source that is not suspect if there is one."""
        under_way = list(self._under_way.values())
        if len(under_way) >= LOOK_UPS_MAX:
            return None
        busy = {each.source for each in under_way}
        those = [each for each in self._waiting if each.source not in busy]
        for each in those:
            each.is_suspect = self._is_suspect(each.source)
        for is_suspect in (False, True):
            if sum(each.is_suspect == is_suspect for each in under_way) < OF_A_KIND_MAX:
                kind = [each for each in those if each.is_suspect == is_suspect]
                if kind:
                    return self._longest_suspect(kind) if is_suspect else kind[0]
        return None

    def _longest_suspect(self, waiting: list[LookUp]) -> LookUp:
        """Return the look-up of the longest suspect source; a turn moves it last or clears it."""
        sources = {each.source: each for each in reversed(waiting)}
        return next(sources[each] for each in self._suspects if each in sources)

    async def _run(self, host: str, port: int) -> tuple[str, int]:
        try:
            async with asyncio.timeout(LOOK_UP_TIMEOUT_S):
                return await self._look_up(host, port)
        except TimeoutError:
            message = f"cannot resolve host {host!r}: not within {LOOK_UP_TIMEOUT_S:.0f} s"
            raise RegistrationError(message, code=ErrorCode.UNKNOWN_HOST) from None

    def _on_done(
        self, look_up: LookUp, late: asyncio.TimerHandle, task: asyncio.Task[tuple[str, int]]
    ) -> None:
        del self._under_way[task]
        is_late = late.when() <= asyncio.get_running_loop().time()
        late.cancel()
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._suspect(look_up.source)
        elif not task.cancelled() and not is_late:
            self._suspects.pop(look_up.source, None)
        # The caller may have stopped waiting.
        if look_up.answered.done():
            pass
        elif task.cancelled():
            look_up.answered.cancel()
        elif error is not None:
            look_up.answered.set_exception(error)
        else:
            look_up.answered.set_result(task.result())
        self._begin()

    def _suspect(self, source: str) -> None:
        self._suspects.pop(source, None)
        self._suspects[source] = asyncio.get_running_loop().time() + SUSPECT_S
        if len(self._suspects) > SUSPECTS_MAX:
            del self._suspects[next(iter(self._suspects))]

    def _is_suspect(self, source: str) -> bool:
        return self._suspects.get(source, 0.0) > asyncio.get_running_loop().time()


def source_of(identity: str) -> str:
    """Return the host of an image, as far as hosts can be told apart.

    For an IPv6 address that is its network of 64 bits: a host may take any address in it.

    Args:
        identity: Source identity of the image.
    """
    host = identity.rpartition(":")[0].removeprefix("[").removesuffix("]")
    try:
        ip = ip_address(host)
    except ValueError:
        # The image does not come over UDP.
        return host
    if not isinstance(ip, IPv6Address) or ip.ipv4_mapped is not None:
        return host
    network = str(IPv6Network((int(ip), PREFIX_LENGTH), strict=False))
    return network if ip.scope_id is None else f"{network}%{ip.scope_id}"


def is_of_this_host(identity: str) -> bool:
    """Return whether an image comes from this host, in a way that no other host can forge.

    Args:
        identity: Source identity of the image.
    """
    if identity == LOCAL_SOURCE_IDENTITY:
        return True
    host = identity.rpartition(":")[0].removeprefix("[").removesuffix("]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def unanswered_bound(request: Request, known: ChannelUri) -> dict[str, int]:
    """Return `handshake_length` for a replay whose receiver has not answered; empty if unlimited.

    The host that takes the answers, on the channel `known`, is connected and asked for the replay.
    Any other host may be the victim of an attack.
    """
    if not isinstance(request, ReplayRequest | BoundedReplayRequest):
        return {}
    wanted = ChannelUri.parse(request.replay_channel).endpoint
    if known.media is Media.IPC or wanted is None:
        return {}
    if known.endpoint is not None and is_same_host(wanted, known.endpoint):
        return {}
    return {"handshake_length": SENT_PER_BYTE * len(CODEC.encode(request))}


def is_same_host(one: Address, other: Address) -> bool:
    """Return whether two addresses are written as the same host, whatever the port.

    Names are not resolved. A link-local address with another scope, as in `[fe80::1%eth0]`, is
    another host.
    """
    if (one.host, one.scope) == (other.host, other.scope):
        return True
    return is_loopback(one) and is_loopback(other)


def is_loopback(address: Address) -> bool:
    """Return whether an address is a loopback address."""
    return address.host == LOCALHOST or (address.ip is not None and address.ip.is_loopback)
