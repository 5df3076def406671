"""The channel on which an archive answers a client, and what it may send before an answer comes.

Invariant: a stranger decides where the answers go, and nothing else. The log buffers have the
length that the archive's settings say, and parameters that are not permitted are left out. A host
that has not answered is sent at most three bytes for each byte of the request that named it. Of
names that strangers choose only a few are looked up at once, one of each source: the system's
resolver may take long, in threads that the application's own names need. A source whose names have
failed leaves a place for others.

Differs: Aeron keeps twenty-odd parameters, takes the length of the terms from the client, and has
no such bound.

Source: Aeron `ArchiveConductor.newControlSession`.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs

from aeron_async.archive.channel_stripping import with_only
from aeron_async.archive.control.messages import CODEC
from aeron_async.archive.control.requests import BoundedReplayRequest, ReplayRequest
from aeron_async.errors import ErrorCode, RegistrationError
from aeron_async.protocol.address import Address, InterfaceSpec
from aeron_async.protocol.channel_uri import ChannelUri, ControlMode, Media

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aeron_async.archive.control.requests import Request
    from aeron_async.archive.control.settings import ControlSettings
    from aeron_async.client.image import Image

__all__ = [
    "LOOK_UPS_MAX",
    "PERMITTED",
    "SENT_PER_BYTE",
    "LookUps",
    "is_same_host",
    "response_channel",
    "unanswered_bound",
]

SENT_PER_BYTE: Final = 3
"""Bytes that a host is sent for each byte of a request before it has answered; as in QUIC."""

LOOK_UPS_MAX: Final = 2
"""Look-ups under way for clients that have not answered; asyncio has five threads for all, or more.

One whose caller has gone counts until it ends or is given up: its thread cannot be stopped.
"""
LOOK_UP_TIMEOUT_S: Final = 60.0
"""After this a look-up is given up, and its place is free.

The system's resolver has mostly ended by then. With many silent nameservers it takes longer, and
the thread runs on; a resolver of the application's own is cancelled.
"""
SUSPECT_S: Final = 600.0
"""How long a source comes last after a name of its failed, or was not looked up in time."""
CLOSE_TIMEOUT_S: Final = 1.0
"""A resolver of the application's own may not heed that it is cancelled."""
LOCALHOST: Final = "localhost"
SUSPECTS_MAX: Final = 1_024
"""Such sources that are remembered, the newest: a stranger may forge any number of them."""

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
"""What a client may say of its response channel.

Official clients add term-length, sparse and mtu. The first two are the archive's own business:
terms of a gigabyte, allocated at once, would be mapped before the client has answered. Tags would
share a socket of the archive's, and a position makes the stream easier to guess.
"""


def response_channel(asked: str, image: Image, settings: ControlSettings) -> ChannelUri:
    """Return the channel to answer on.

    Args:
        asked: What the client asks for.
        image: Of its requests.
        settings: The archive's.

    Raises:
        ChannelUriError: No channel is meant, or not one that can be published on.
    """
    # Also without what no Aeron knows: a client whose channel is refused could not even be told.
    uri = ChannelUri.parse(with_only(asked, PERMITTED))
    is_response = uri.control_mode is ControlMode.RESPONSE
    answer = uri.replace(
        term_length=settings.control_term_length,
        mtu_length=uri.mtu_length or settings.control_mtu_length,
        is_sparse=settings.is_control_term_sparse,
        response_correlation_id=image.correlation_id if is_response else None,
    )
    answer.check_publication()
    return answer


@attrs.define(eq=False)
class LookUp:
    """A name that a source wants to be looked up, and who waits for its address."""

    source: str
    host: str
    port: int
    answered: asyncio.Future[tuple[str, int]]


class LookUps:
    """Looks up the names in response channels, a few at once; the others wait for their turn.

    A source has one look-up at a time. It is suspect for ten minutes after a name of its failed or
    took longer than its caller waited: then it comes after all others, and does not take the last
    place. So a source with slow names holds up no other for longer than one look-up.

    Args:
        look_up: Returns the numeric address of a host and a port.
    """

    def __init__(self, look_up: Callable[[str, int], Awaitable[tuple[str, int]]]) -> None:
        self._look_up = look_up
        # Each belongs to a session that has not been let in, and there is a bound on those.
        self._waiting: list[LookUp] = []
        self._under_way: dict[asyncio.Task[tuple[str, int]], str] = {}
        # Until when, in seconds of the loop; the newest is last.
        self._suspects: dict[str, float] = {}

    async def numeric(self, channel: ChannelUri, *, source: str) -> ChannelUri:
        """Return a channel with its names looked up; the caller may be cancelled.

        `localhost` stays: it is this machine, and the driver finds it without a nameserver.

        Differs: Aeron follows a name that comes to lead elsewhere. A client whose session breaks
        asks to be let in again, and its name is looked up then.

        Args:
            channel: As the client wants it.
            source: The host that asks, by its address.

        Raises:
            AeronError: A name leads nowhere, or not to what such a channel can be.
        """
        changes: dict[str, Any] = {}
        for name, written in (("endpoint", channel.endpoint), ("control", channel.control)):
            if written is not None and written.ip is None and written.host != LOCALHOST:
                found = await self._take_turn(source, written.host, written.port)
                changes[name] = Address.of(*found)
        interface = channel.interface
        if interface is not None and interface.host is not None and interface.ip is None:
            host, port = await self._take_turn(source, interface.host, interface.port)
            prefix = "" if interface.prefix_length is None else f"/{interface.prefix_length}"
            changes["interface"] = InterfaceSpec.parse(f"{Address.of(host, port)}{prefix}")
        return channel.replace(**changes) if changes else channel

    def close(self) -> None:
        """Begin no look-up any more, and cancel those under way."""
        self._waiting.clear()
        for task in self._under_way:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until those under way have ended, for a second at most."""
        if self._under_way:
            await asyncio.wait(list(self._under_way), timeout=CLOSE_TIMEOUT_S)

    async def _take_turn(self, source: str, host: str, port: int) -> tuple[str, int]:
        look_up = LookUp(source, host, port, asyncio.get_running_loop().create_future())
        self._waiting.append(look_up)
        self._begin()
        try:
            return await look_up.answered
        except asyncio.CancelledError:
            if look_up in self._waiting:
                self._waiting.remove(look_up)
            else:
                self._suspect(source)
            raise

    def _begin(self) -> None:
        """Begin look-ups while there is room."""
        while (look_up := self._next()) is not None:
            self._waiting.remove(look_up)
            task = asyncio.create_task(
                self._run(look_up.host, look_up.port), name="aeron-archive-look-up"
            )
            self._under_way[task] = look_up.source
            task.add_done_callback(partial(self._on_done, look_up))

    def _next(self) -> LookUp | None:
        """Return the look-up whose turn it is: of a source that is not suspect, if there is one."""
        free = LOOK_UPS_MAX - len(self._under_way)
        busy = set(self._under_way.values())
        those = [each for each in self._waiting if each.source not in busy] if free else []
        for each in those:
            if not self._is_suspect(each.source):
                return each
        return those[0] if those and free > 1 else None

    async def _run(self, host: str, port: int) -> tuple[str, int]:
        try:
            async with asyncio.timeout(LOOK_UP_TIMEOUT_S):
                return await self._look_up(host, port)
        except TimeoutError:
            message = f"cannot resolve host {host!r}: not within {LOOK_UP_TIMEOUT_S:.0f} s"
            raise RegistrationError(message, code=ErrorCode.UNKNOWN_HOST) from None

    def _on_done(self, look_up: LookUp, task: asyncio.Task[tuple[str, int]]) -> None:
        del self._under_way[task]
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._suspect(look_up.source)
        # The caller may be gone.
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


def unanswered_bound(request: Request, known: ChannelUri) -> dict[str, int]:
    """Return how many bytes a replay may send before its receiver has answered, where bounded.

    The host that takes our answers is there, and asked for it. Any other one may be a victim.

    Args:
        request: Of a client.
        known: Where it takes our answers.
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
    """Return whether two addresses are of one host by how they are written, whatever the port.

    Names are not looked up. A literal of one link, `[fe80::1%eth0]`, is another host on another.
    """
    if (one.host, one.scope) == (other.host, other.scope):
        return True
    return is_loopback(one) and is_loopback(other)


def is_loopback(address: Address) -> bool:
    """Return whether an address is this host's own."""
    return address.host == LOCALHOST or (address.ip is not None and address.ip.is_loopback)
