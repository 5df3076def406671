"""Forged frames, and the forger who sends them in a publisher's name.

All forgeries differ from what the publisher sends by more than payload: no receiver can tell a
frame with the same header and another payload from a genuine one, so such frames are left out. So
is what no copy of a genuine frame contradicts, because that was lost.

A `Forger` sees each datagram on its way to a receiver, and now and then lets another one arrive
there, just before it or just after it, from the publisher's own address.

Source: the attack of one frame that ends or freezes a stream.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Final

from aeron_async.logbuffer.position import compute_position, position_bits
from aeron_async.protocol.data import DATA_HEADER
from aeron_async.protocol.datagram import frame_type
from aeron_async.protocol.header import DATA_HEADER_LENGTH, DataFlags, FrameType, align_frame
from aeron_async.protocol.setup import Setup
from aeron_async.testing.trace import Verdict
from tests.support.victim import Victim

if TYPE_CHECKING:
    from random import Random

    from aeron_async.driver.media.sockets import SocketAddress
    from aeron_async.testing.world import World

__all__ = [
    "FORGERIES",
    "Forger",
    "Forgery",
    "Genuine",
    "mutate",
]

END: Final = DataFlags.UNFRAGMENTED | DataFlags.END_OF_STREAM
REVOKED: Final = END | DataFlags.REVOKED
STRANGE_FLAGS: Final = 0xC1
"""No publisher sets the lowest bit."""
COMPARED_LENGTH: Final = 24
FLIPPED_BITS_MAX: Final = 8


class Genuine:
    """A datagram of a publisher, as a forger sees it go by.

    Args:
        victim: The stream.
        datagram: One or more frames.
        position: Where it begins, in bytes.
    """

    def __init__(self, victim: Victim, datagram: bytes, position: int) -> None:
        self.victim = victim
        self.datagram = datagram
        self.position = position

    @property
    def frame_length(self) -> int:
        """Return the length of its first frame, in bytes; 0 of a heartbeat."""
        return int.from_bytes(self.datagram[:4], "little", signed=True)

    def heartbeat(self, position: int, flags: int = DataFlags.UNFRAGMENTED) -> bytes:
        """Return a heartbeat of the stream."""
        return self.victim.data(0, *self.victim.place(position), flags=flags)

    def frame(self, position: int, length: int, flags: int = STRANGE_FLAGS) -> bytes:
        """Return a frame of data, with its header, that fits its term."""
        term_id, term_offset = self.victim.place(position)
        length = max(32, min(length, self.victim.term_length - term_offset))
        header = self.victim.data(length, term_id, term_offset, flags=flags)
        return header + bytes(align_frame(length) - 32)

    def padding(self, position: int, length: int) -> bytes:
        """Return padding, of which only the header travels."""
        frame = bytearray(self.frame(position, length, DataFlags.UNFRAGMENTED)[:32])
        frame[6:8] = int(FrameType.PAD).to_bytes(2, "little")
        return bytes(frame)


Forgery = Callable[[Genuine, "Random"], bytes]
"""Makes one datagram; whatever it draws, it draws from the dice."""


def end_behind(genuine: Genuine, random: Random) -> bytes:
    """End the stream where it has been."""
    return genuine.heartbeat(max(0, genuine.position - 32 * random.randint(1, 1_000)), END)


def revocation_behind(genuine: Genuine, random: Random) -> bytes:
    """Take the stream back where it has been."""
    return genuine.heartbeat(max(0, genuine.position - 32 * random.randint(1, 1_000)), REVOKED)


def end_here(genuine: Genuine, random: Random) -> bytes:
    """End the stream where it is."""
    del random
    return genuine.heartbeat(genuine.position, END)


def end_ahead(genuine: Genuine, random: Random) -> bytes:
    """End the stream where it will be."""
    return genuine.heartbeat(genuine.position + 32 * random.randint(1, 300), END)


def revocation_ahead(genuine: Genuine, random: Random) -> bytes:
    """Take the stream back where it will be."""
    return genuine.heartbeat(genuine.position + 32 * random.randint(1, 300), REVOKED)


def heartbeat_ahead(genuine: Genuine, random: Random) -> bytes:
    """Say that more was sent."""
    return genuine.heartbeat(genuine.position + 32 * random.randint(1, 300))


def heartbeat_behind(genuine: Genuine, random: Random) -> bytes:
    """Say that less was sent."""
    return genuine.heartbeat(max(0, genuine.position - 32 * random.randint(1, 300)))


def shorter(genuine: Genuine, random: Random) -> bytes:
    """Begin where a frame does, and end inside it."""
    length = max(33, genuine.frame_length)
    return genuine.frame(genuine.position, random.randrange(32, length))


def header_alone(genuine: Genuine, random: Random) -> bytes:
    """Begin where a frame does, without payload."""
    del random
    return genuine.frame(genuine.position, 32)


def longer(genuine: Genuine, random: Random) -> bytes:
    """Begin where a frame does, and reach over the next ones."""
    more = genuine.frame_length + 32 * random.randint(1, 40)
    return genuine.frame(genuine.position, min(more, 8_192))


def other_flags(genuine: Genuine, random: Random) -> bytes:
    """Be as long as the genuine frame, and another one."""
    del random
    return genuine.frame(genuine.position, genuine.frame_length)


def padding_in_place(genuine: Genuine, random: Random) -> bytes:
    """Be padding in place of a message."""
    del random
    return genuine.padding(genuine.position, genuine.frame_length)


def padding_over_many(genuine: Genuine, random: Random) -> bytes:
    """Be padding over this and what follows."""
    return genuine.padding(
        genuine.position, genuine.frame_length + 32 * random.randint(1, genuine.victim.mtu_length)
    )


def padding_to_the_end(genuine: Genuine, random: Random) -> bytes:
    """Be padding up to the end of the term."""
    del random
    return genuine.padding(genuine.position, genuine.victim.term_length)


def inside_a_frame(genuine: Genuine, random: Random) -> bytes:
    """Begin where a payload lies."""
    slots = max(2, genuine.frame_length // 32)
    length = 32 * random.randint(1, 20)
    return genuine.frame(genuine.position + 32 * random.randrange(1, slots), length)


def ahead(genuine: Genuine, random: Random) -> bytes:
    """Begin where nothing is yet."""
    length = 32 * random.randint(1, 20)
    return genuine.frame(genuine.position + 32 * random.randint(2, 300), length)


def behind(genuine: Genuine, random: Random) -> bytes:
    """Begin where everything was read."""
    position = max(0, genuine.position - 32 * random.randint(1, 300))
    return genuine.frame(position, 32 * random.randint(1, 20))


def two_in_place_of_one(genuine: Genuine, random: Random) -> bytes:
    """Cut a frame in two."""
    del random
    half = align_frame(max(64, genuine.frame_length) // 2)
    return genuine.frame(genuine.position, half) + genuine.frame(genuine.position + half, half)


def second_frame_of_another_session(genuine: Genuine, random: Random) -> bytes:
    """Follow a frame with one of another session."""
    first = genuine.frame(genuine.position, 64)
    second = bytearray(genuine.frame(genuine.position + 64, 64))
    second[12:16] = random.randbytes(4)
    return first + bytes(second)


def other_terms(genuine: Genuine, random: Random) -> bytes:
    """Begin the stream again, with other terms."""
    return genuine.victim.setup(term_length=2 ** random.randint(16, 24))


def mutate(datagram: bytes, random: Random) -> bytes | None:
    """Return a datagram with some bits turned over; None where only payload was hit."""
    damaged = bytearray(datagram)
    for _ in range(random.randint(1, FLIPPED_BITS_MAX)):
        # Mostly in the header: nothing tells a damaged payload.
        end = len(damaged) if random.random() < 0.1 else COMPARED_LENGTH
        damaged[random.randrange(end)] ^= 1 << random.randrange(8)
    is_told = damaged[:COMPARED_LENGTH] != datagram[:COMPARED_LENGTH]
    return bytes(damaged) if is_told else None


FORGERIES: Final[tuple[Forgery, ...]] = (
    end_behind,
    revocation_behind,
    end_here,
    end_ahead,
    revocation_ahead,
    heartbeat_ahead,
    heartbeat_behind,
    shorter,
    header_alone,
    longer,
    other_flags,
    padding_in_place,
    padding_over_many,
    padding_to_the_end,
    inside_a_frame,
    ahead,
    behind,
    two_in_place_of_one,
    second_frame_of_another_session,
    other_terms,
)
"""Every kind there is, by name."""


FORGED_MAX: Final = 40
"""In one run: it is to be seen what one frame does, not what a flood does."""
MUTATION_CHANCE: Final = 0.5
DELAYS_NS: Final = (10_000, 60_000, 2_000_000)
"""Before, and soon or long after, the genuine datagram where nothing delays that."""
SETTLED_NS: Final = 500_000_000
"""From the beginning on the publishers are left alone for so long: whose SETUP comes first has the
session, and nothing tells a forger's."""


class Forger:
    """Watches the network of a world, until it is told to stop.

    Args:
        world: Where.
        random: The dice.

    Attributes:
        is_active: Whether it goes on.
        count: Datagrams that it has sent.
    """

    def __init__(self, world: World, random: Random) -> None:
        self._world = world
        self._random = random
        self._chance = 10 ** random.uniform(-2.5, -1)
        self._victims: dict[tuple[int, int, SocketAddress], Victim] = {}
        self._begun_ns = world.now_ns
        self.is_active = True
        self.count = 0
        world.network.trace.watch(self._on_event)

    def _on_event(
        self,
        now_ns: int,
        verdict: Verdict,
        source: SocketAddress,
        destination: SocketAddress,
        datagram: bytes,
    ) -> None:
        if not self.is_active or verdict is not Verdict.SENT or self.count >= FORGED_MAX:
            return
        kind = frame_type(datagram)
        if kind == FrameType.SETUP:
            self._on_setup(source, Setup.decode(datagram))
        elif kind in {FrameType.DATA, FrameType.PAD} and now_ns > self._begun_ns + SETTLED_NS:
            victim = self._victim_of(source, datagram)
            if victim is not None and self._random.random() < self._chance:
                self._forge(victim, source, destination, datagram)

    def _victim_of(self, source: SocketAddress, datagram: bytes) -> Victim | None:
        fields = DATA_HEADER.unpack_from(datagram)
        return self._victims.get((fields[5], fields[6], source))

    def _on_setup(self, source: SocketAddress, setup: Setup) -> None:
        self._victims[setup.session_id, setup.stream_id, source] = Victim(
            session_id=setup.session_id,
            stream_id=setup.stream_id,
            initial_term_id=setup.initial_term_id,
            term_length=setup.term_length,
            mtu_length=setup.mtu_length,
            position=0,
        )

    def _forge(
        self, victim: Victim, source: SocketAddress, destination: SocketAddress, datagram: bytes
    ) -> None:
        random = self._random
        if random.random() < MUTATION_CHANCE:
            forged = mutate(datagram[: len(datagram)], random)
        else:
            _, _, _, _, term_offset, _, _, term_id, _ = DATA_HEADER.unpack_from(datagram)
            position = compute_position(
                term_id,
                term_offset,
                initial_term_id=victim.initial_term_id,
                bits=position_bits(victim.term_length),
            )
            forged = random.choice(FORGERIES)(Genuine(victim, datagram, position), random)
        if forged is None or len(forged) < DATA_HEADER_LENGTH:
            return
        self.count += 1
        arrive_ns = self._world.now_ns + random.choice(DELAYS_NS)
        for host in self._world.hosts:
            if destination[0] in host.machine.addresses:
                arrive = host.machine.arrive
                self._world.loop.call_at_ns(
                    arrive_ns, arrive, None, source, destination, forged, context=Context()
                )
