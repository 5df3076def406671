"""The channel on which an archive answers a client, and what it may send before an answer comes.

Invariant: a stranger decides where the answers go, and nothing else. The log buffers have the
length that the archive's settings say, and parameters that are not permitted are left out. A host
that has not answered is sent at most three bytes for each byte of the request that named it. Of
names that strangers choose only a few are looked up at once: the system's resolver may take long,
in threads that the application's own names need.

Differs: Aeron keeps twenty-odd parameters, takes the length of the terms from the client, and has
no such bound.

Source: Aeron `ArchiveConductor.newControlSession`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

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

One that nobody waits for any more counts until it has ended: its thread cannot be stopped.
"""
LOOK_UP_TIMEOUT_S: Final = 60.0
"""Longer than the system's resolver takes; a resolver of the application's own is cancelled."""

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


class LookUps:
    """Looks up the names in response channels, a few at once; the others wait for their turn.

    Args:
        look_up: Returns the numeric address of a host and a port.
    """

    def __init__(self, look_up: Callable[[str, int], Awaitable[tuple[str, int]]]) -> None:
        self._look_up = look_up
        self._room = asyncio.Semaphore(LOOK_UPS_MAX)
        self._under_way: set[asyncio.Task[tuple[str, int]]] = set()

    async def numeric(self, channel: ChannelUri) -> ChannelUri:
        """Return a channel with its names looked up; whoever waits for it may be cancelled.

        Differs: Aeron follows a name that comes to lead elsewhere. A client whose session breaks
        asks to be let in again, and its name is looked up then.

        Raises:
            AeronError: A name leads nowhere, or not to what such a channel can be.
        """
        changes: dict[str, Any] = {}
        for name, written in (("endpoint", channel.endpoint), ("control", channel.control)):
            if written is not None and written.ip is None:
                changes[name] = Address.of(*await self._take_turn(written.host, written.port))
        interface = channel.interface
        if interface is not None and interface.host is not None:
            host, port = await self._take_turn(interface.host, interface.port)
            prefix = "" if interface.prefix_length is None else f"/{interface.prefix_length}"
            changes["interface"] = InterfaceSpec.parse(f"{Address.of(host, port)}{prefix}")
        return channel.replace(**changes) if changes else channel

    def close(self) -> None:
        """Wait for none of them any more."""
        for task in self._under_way:
            task.cancel()

    async def _take_turn(self, host: str, port: int) -> tuple[str, int]:
        await self._room.acquire()
        task = asyncio.create_task(self._run(host, port), name="aeron-archive-look-up")
        self._under_way.add(task)
        task.add_done_callback(self._on_done)
        await asyncio.wait((task,))
        return task.result()

    async def _run(self, host: str, port: int) -> tuple[str, int]:
        try:
            async with asyncio.timeout(LOOK_UP_TIMEOUT_S):
                return await self._look_up(host, port)
        except TimeoutError:
            message = f"cannot resolve host {host!r}: not within {LOOK_UP_TIMEOUT_S:.0f} s"
            raise RegistrationError(message, code=ErrorCode.UNKNOWN_HOST) from None

    def _on_done(self, task: asyncio.Task[tuple[str, int]]) -> None:
        self._under_way.discard(task)
        self._room.release()
        # Whoever asked may be gone.
        if not task.cancelled():
            task.exception()


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
    return address.host == "localhost" or (address.ip is not None and address.ip.is_loopback)
