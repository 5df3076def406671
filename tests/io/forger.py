"""A forger of the publisher's own address, on raw sockets; and a reader who checks everything."""

from __future__ import annotations

import asyncio
import socket
from struct import Struct
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

import aeron_async as aa
from tests.support.forgeries import Genuine
from tests.support.victim import Victim

if TYPE_CHECKING:
    from random import Random

    from tests.support.forgeries import Forgery

IP_HEADER = Struct("!BBHHHBBH4s4s")
UDP_HEADER = Struct("!HHHH")
NUMBER = Struct("<q")
MAGIC = b"genuine message number "
HEALS_WITHIN_S = 6.0
TERM_LENGTH = 256 * 1024


def may_forge() -> bool:
    """Return whether this process may open raw sockets."""
    try:
        socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW).close()
    except PermissionError:
        return False
    return True


class Forger:
    """Sends datagrams to a subscription from the address of its publisher."""

    def __init__(self, source: tuple[str, int], destination: tuple[str, int]) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
        self._source, self._destination = source, destination

    def send(self, datagram: bytes) -> None:
        (source, source_port), (host, port) = self._source, self._destination
        length = UDP_HEADER.size + len(datagram)
        header = IP_HEADER.pack(
            0x45,
            0,
            IP_HEADER.size + length,
            0,
            0,
            64,
            socket.IPPROTO_UDP,
            0,
            socket.inet_aton(source),
            socket.inet_aton(host),
        )
        udp = UDP_HEADER.pack(source_port, port, length, 0)
        self._socket.sendto(header + udp + datagram, (host, 0))

    def close(self) -> None:
        self._socket.close()


class Spoil(NamedTuple):
    """Something that was read and was not the next message.

    Attributes:
        image: Of which.
        noticed_s: When, in seconds of the monotonic clock.
        end_position: Where it ends in the stream.
        length: Its length; 0 where it is a message of the publisher, and others are missing.
    """

    image: aa.Image
    noticed_s: float
    end_position: int
    length: int


class Stream:
    """A publication of numbered messages, and who reads them.

    Attributes:
        sent: Messages offered.
        read: The number of the last genuine message read; -1 before the first.
        spoils: What else was read, in order.
        offered: The length of each message, by where it ends in the stream.
        ends: Why images ended, in order.
    """

    def __init__(
        self,
        publication: aa.Publication,
        subscription: aa.Subscription,
        port: int,
        random: Random,
    ) -> None:
        self._publication, self._subscription = publication, subscription
        self._port, self._random = port, random
        self.sent = 0
        self.read = -1
        self.spoils: list[Spoil] = []
        self.offered: dict[int, int] = {}
        self.ends: list[str] = []
        self._last: dict[aa.Image, int] = {}
        self._forger: Forger | None = None

    async def offer(self) -> None:
        length = self._random.choice((40, 200, 200, 200, 1_000))
        message = (MAGIC + NUMBER.pack(self.sent)).ljust(length, b".")
        self.offered[await self._publication.offer(message)] = length
        self.sent += 1

    async def consume(self) -> None:
        """Read, and note whatever is not the next message of its image."""
        async for message in self._subscription:
            data, image = bytes(message), message.image
            is_genuine = data.startswith(MAGIC)
            number = NUMBER.unpack_from(data, len(MAGIC))[0] if is_genuine else -1
            before = self._last.get(image)
            if not is_genuine or (before is not None and number != before + 1):
                length = 0 if is_genuine else len(data)
                self.spoils.append(Spoil(image, monotonic(), message.position, length))
            if is_genuine:
                self._last[image] = self.read = number
            else:
                self._last.pop(image, None)

    async def watch(self) -> None:
        async for event in self._subscription.image_events():
            if event.kind is aa.ImageEventKind.UNAVAILABLE and event.reason is not None:
                self.ends.append(event.reason.name)

    def check(self) -> None:
        """See that nothing wrong was read of an image that is still open long after."""
        for spoil in self.unhealed():
            assert monotonic() - spoil.noticed_s < HEALS_WITHIN_S, f"wrong, and silent: {spoil}"

    def unhealed(self) -> list[Spoil]:
        """Return what was wrong in images that are open.

        A forged frame that has happened to get the whole header of the message whose place it
        took is not told from it: only the payload differs, and that may differ.
        """
        return [
            each
            for each in self.spoils
            if not each.image.is_closed and self.offered.get(each.end_position) != each.length
        ]

    def genuine(self) -> Genuine:
        """Return the message that is offered next, as the forger sees it."""
        publication = self._publication
        victim = Victim(
            session_id=publication.session_id,
            stream_id=publication.stream_id,
            initial_term_id=publication.initial_term_id,
            term_length=publication.term_length,
            mtu_length=1_408,
            position=publication.position,
        )
        position = publication.position
        datagram = victim.data(232, *victim.place(position)) + bytes(224)
        return Genuine(victim, datagram, position)

    def send_forged(self, datagram: bytes) -> None:
        if self._forger is None:
            host, _, port = self._subscription.images[0].source_identity.rpartition(":")
            self._forger = Forger((host, int(port)), ("127.0.0.1", self._port))
        self._forger.send(datagram)

    async def forge(self, forgery: Forgery) -> None:
        self.send_forged(forgery(self.genuine(), self._random))

    async def settle(self) -> None:
        """Wait until what is sent now is read again, within six seconds."""
        deadline = monotonic() + HEALS_WITHIN_S
        while self.read < self.sent - 1 or self.unhealed():
            assert monotonic() < deadline, f"silent and still: {self.read} of {self.sent}"
            self.check()
            # What was sent while there was no image is lost, and said to be.
            if self.read < self.sent - 1:
                await self.offer()
            await asyncio.sleep(0.02)

    def close(self) -> None:
        if self._forger is not None:
            self._forger.close()
