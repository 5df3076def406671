"""A captured conversation with one side played by our driver, and the other by what was captured.

The official peer's datagrams are sent from where they came at the time at which they came, in a
world where nothing is lost; what ours says is noted, and compared frame by frame.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from aeron_async.driver.core.udp_channel import Interface
from aeron_async.driver.media.sockets import SocketSpec, is_group
from aeron_async.logbuffer.position import compute_position, position_bits
from aeron_async.protocol.datagram import DataFrame, frames
from aeron_async.protocol.header import StatusMessageFlags
from aeron_async.protocol.nak import Nak
from aeron_async.protocol.setup import Setup
from aeron_async.protocol.status_message import StatusMessage
from tests.captures import Address, Packet, read_capture

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aeron_async.testing.host import Host
    from aeron_async.testing.world import World

LOOPBACK = "127.0.0.1"
START_S = 1.0
"""When the first datagram of a capture is played, in the time of the world."""


class Said(NamedTuple):
    """A datagram of ours."""

    at_s: float
    source: Address
    destination: Address
    payload: bytes


class Ear(asyncio.DatagramProtocol):
    """A socket of the official peer."""

    def __init__(self, conversation: Conversation, address: Address) -> None:
        self._conversation = conversation
        self._address = address
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        self._conversation.on_said(addr, self._address, bytes(data))


class Conversation:
    """One capture, and what our side has said in its place.

    Args:
        world: Where it is played.
        name: Of the capture.
        plays: Whether a captured datagram is one of the peer's, to be played.
    """

    def __init__(self, world: World, name: str, plays: Callable[[Packet], bool]) -> None:
        self.world = world
        self.host: Host = world.host("both")
        packets = list(read_capture(name))
        self._epoch_ns = packets[0].timestamp_ns
        self.theirs = [packet for packet in packets if plays(packet)]
        self.expected = [
            Said(self.time_of(packet), packet.source, packet.destination, packet.payload)
            for packet in packets
            if not plays(packet)
        ]
        self.said: list[Said] = []
        self.moved: dict[Address, Address] = {}
        self._ears: dict[Address, Ear] = {}

    def time_of(self, packet: Packet) -> float:
        """When a captured datagram was sent, in the time of the world."""
        return START_S + (packet.timestamp_ns - self._epoch_ns) / 1e9

    def on_said(self, source: Address, destination: Address, payload: bytes) -> None:
        self.said.append(Said(self.world.now_ns / 1e9, source, destination, payload))

    async def open(self, *more: Address) -> None:
        """Open the sockets of the peer: where it sends from, where it hears, and `more`."""
        for address in dict.fromkeys([*(packet.source for packet in self.theirs), *more]):
            ear = self._ears[address] = Ear(self, address)
            await self.host.machine.open(partial(_itself, ear), spec(address))

    async def until(self, at_s: float) -> None:
        """Let the time of the world come."""
        await self.world.sleep(max(0.0, at_s - self.world.now_ns / 1e9))

    async def play(self) -> None:
        """Send what the peer sent, at its time, to where that is now."""
        for packet in self.theirs:
            await self.until(self.time_of(packet))
            destination = self.moved.get(packet.destination, packet.destination)
            self._ears[packet.source].transport.sendto(packet.payload, destination)


def _itself(ear: Ear) -> Ear:
    return ear


def spec(address: Address) -> SocketSpec:
    """The socket of the peer at an address, which may be a group."""
    host, port = address
    group = host if is_group(host) else None
    return SocketSpec(
        local=address if group is None else ("0.0.0.0", port),
        group=group,
        interface=Interface(address=LOOPBACK, index=1, name="lo"),
        reuse_address=True,
        reuse_port=True,
    )


# What was said, in a form that can be compared.


def setups(said: Iterable[Said]) -> list[tuple[Any, ...]]:
    """Every SETUP that says something new to its destination, in order."""
    found = []
    for each in said:
        frame = next(frames(each.payload))
        if isinstance(frame, Setup):
            position = position_of(frame, frame.active_term_id, frame.term_offset)
            found.append((each.destination, int(frame.flags), position, frame.ttl))
    return list(dict.fromkeys(found))


def data(said: Iterable[Said]) -> dict[Address, dict[tuple[int, int], bytes]]:
    """Every frame of data and padding by its place, for each destination."""
    found: dict[Address, dict[tuple[int, int], bytes]] = {}
    for each in said:
        for frame in frames(each.payload):
            if isinstance(frame, DataFrame) and not frame.header.is_heartbeat:
                place = frame.header.term_id, frame.header.term_offset
                found.setdefault(each.destination, {})[place] = bytes(frame.payload)
    return found


def heartbeats(said: Iterable[Said]) -> set[tuple[int, int, int]]:
    """Flags and place of the heartbeats."""
    return {
        (int(frame.header.flags), frame.header.term_id, frame.header.term_offset)
        for each in said
        for frame in frames(each.payload)
        if isinstance(frame, DataFrame) and frame.header.is_heartbeat
    }


def resent(said: Iterable[Said]) -> set[tuple[Address, int, int]]:
    """Destination and place of the frames that were sent more than once."""
    seen: set[tuple[Address, int, int]] = set()
    again: set[tuple[Address, int, int]] = set()
    for each in said:
        for frame in frames(each.payload):
            if isinstance(frame, DataFrame) and not frame.header.is_heartbeat:
                place = each.destination, frame.header.term_id, frame.header.term_offset
                (again if place in seen else seen).add(place)
    return again


def status_messages(said: Iterable[Said]) -> list[tuple[int, int, int, int, int]]:
    """Term, offset, window, flags and length of each status message that is not the last again."""
    found: list[tuple[int, int, int, int, int]] = []
    for each in said:
        sm = next(frames(each.payload))
        if isinstance(sm, StatusMessage) and (sm.session_id, sm.stream_id) != (0, 0):
            told = (
                sm.consumption_term_id,
                sm.consumption_term_offset,
                sm.receiver_window,
                int(sm.flags),
                sm.frame_length,
            )
            if not found or found[-1] != told:
                found.append(told)
    return found


def announcements(said: Iterable[Said]) -> list[tuple[float, Address, int]]:
    """When and to whom a status message for no stream was sent, and its length."""
    return [
        (round(each.at_s, 1), each.destination, sm.frame_length)
        for each in said
        if isinstance(sm := next(frames(each.payload)), StatusMessage)
        and (sm.session_id, sm.stream_id) == (0, 0)
        and sm.flags == StatusMessageFlags.SEND_SETUP
    ]


def naks(said: Iterable[Said]) -> list[tuple[int, int, int]]:
    """The distinct gaps that were asked for, in order."""
    return list(
        dict.fromkeys(
            (nak.term_id, nak.term_offset, nak.length)
            for each in said
            if isinstance(nak := next(frames(each.payload)), Nak)
        )
    )


def others(said: Iterable[Said], kind: type[Any]) -> list[Any]:
    """The frames of another kind."""
    return [frame for each in said if isinstance(frame := next(frames(each.payload)), kind)]


def position_of(setup: Setup, term_id: int, term_offset: int) -> int:
    """The position of a place in the stream of a SETUP."""
    return compute_position(
        term_id,
        term_offset,
        initial_term_id=setup.initial_term_id,
        bits=position_bits(setup.term_length),
    )
