"""Datagrams of a stream, good and bad, as hypothesis draws them."""

from __future__ import annotations

import random
from array import array
from typing import TYPE_CHECKING, Any, Final

from hypothesis import strategies as st

from aeron_async.protocol.header import DataFlags, RttFlags
from aeron_async.protocol.rtt import RttMeasurement
from aeron_async.testing.sim_network import ReceiveBuffer
from tests.driver.fakes import EOS, HALF_TERM, RECEIVER_ID, SOURCE, data, heartbeat, pad, setup
from tests.logbuffer.logs import INITIAL_TERM_ID, SESSION_ID, STREAM_ID, TERM_LENGTH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["CHUNKS", "Chunk", "Stream", "gathered"]

REVOKED: Final = EOS | DataFlags.REVOKED
LENGTHS: Final = (32, 64, 96, 320, 1_024, 1_408, 40, 33)
WHERE: Final = (*["next"] * 16, "again", "swapped", "gap", "back", "far", "over", "contrary")
OTHER: Final = ("heartbeat", "end", "revoked", "pad", "setup", "rttm", "garbage", "empty", "packed")
FOREIGN: Final[tuple[dict[str, Any], ...]] = (
    {"session_id": 1},
    {"stream_id": 9_999},
    {"initial_term_id": INITIAL_TERM_ID + 5},
)

Chunk = tuple[str, int, int, int]
"""Kind, length and count of some datagrams, and a seed for what else is drawn of them."""

CHUNKS = st.tuples(
    st.sampled_from((*WHERE, *OTHER, "damaged", "foreign", "version", "cut", "long")),
    st.sampled_from(LENGTHS),
    st.integers(1, 40),
    st.integers(0, 2**32),
)


class Stream:
    """Makes datagrams of a stream, good and bad; its `position` is that of the next good one."""

    def __init__(self, position: int) -> None:
        self.position = position

    def make(self, kind: str, length: int, count: int, seed: int) -> Iterator[bytes]:
        """Yield datagrams of one kind and length."""
        dice = random.Random(seed)
        step = (length + 31) & ~31
        if kind == "swapped":
            pairs = list(self.make("next", length, count * 2, seed))
            yield from (pairs[at ^ 1] for at in range(len(pairs)))
            return
        for _ in range(count):
            position = self.position
            if kind in {"next", "damaged", "foreign", "version", "cut", "long"}:
                self.position += step
            elif kind == "gap":
                position += step * dice.randint(1, 3)
                self.position = position + step
            elif kind in {"again", "contrary"}:
                position -= step
            elif kind == "back":
                position -= step * dice.randint(1, 60)
            elif kind == "far":
                position += step * dice.randint(0, 60)
            elif kind == "over":
                position += HALF_TERM - step * dice.randint(-2, 2)
            yield self._make_one(kind, max(0, position), length, dice)

    def _make_one(self, kind: str, position: int, length: int, dice: random.Random) -> bytes:
        rest = -position % TERM_LENGTH or TERM_LENGTH
        if kind == "pad":
            self.position = position + rest
            return pad(position, rest)
        if kind == "packed":
            frames = [data(position + at, 64) for at in range(0, 64 * dice.randint(2, 4), 64)]
            self.position = position + 64 * len(frames)
            return b"".join(frames)
        make = MAKERS.get(kind)
        return data(position, length) if make is None else make(position, length, dice)


def make_measurement() -> bytes:
    """Return a request for an answer, which is given so many times a second."""
    return RttMeasurement(
        session_id=SESSION_ID,
        stream_id=STREAM_ID,
        echo_timestamp_ns=0,
        receiver_id=RECEIVER_ID,
        flags=RttFlags.REPLY,
    ).encode()


def flip_bit(datagram: bytes, at: int, bit: int) -> bytes:
    damaged = bytearray(datagram)
    damaged[at] ^= 1 << bit
    return bytes(damaged)


MAKERS: dict[str, Callable[[int, int, random.Random], bytes]] = {
    "heartbeat": lambda position, _, __: heartbeat(position),
    "end": lambda position, _, __: heartbeat(position, EOS),
    "revoked": lambda position, _, __: heartbeat(position, REVOKED),
    "setup": lambda position, _, __: setup(position).encode(),
    "rttm": lambda _, __, ___: make_measurement(),
    "garbage": lambda _, length, dice: dice.randbytes(length),
    "empty": lambda _, __, ___: b"",
    "contrary": lambda position, length, _: data(position, length, flags=DataFlags.BEGIN_FRAGMENT),
    "foreign": lambda position, length, dice: data(position, length, **dice.choice(FOREIGN)),
    "damaged": lambda position, length, dice: flip_bit(
        data(position, length), dice.randrange(24), dice.randrange(8)
    ),
    "cut": lambda position, length, dice: data(position, length)[: dice.randrange(length)],
    "long": lambda position, length, dice: data(position, length) + dice.randbytes(32),
    "version": lambda position, length, dice: flip_bit(
        data(position, length), 4, dice.randrange(8)
    ),
}


def gathered(
    datagrams: list[bytes], batches_at_once: int
) -> Iterator[tuple[memoryview, array[int]]]:
    """Yield datagrams as Linux would gather them, some batches at a time, with their segments."""
    buffer = ReceiveBuffer(2**30, is_gathering=True, coin=random.Random(1))
    for datagram in datagrams:
        assert buffer.try_add(datagram, SOURCE, 0)
    while buffer:
        batches, segments = bytearray(), array("i")
        for _ in range(min(batches_at_once, len(buffer))):
            if buffer:
                taken, _, _ = buffer.take()
                batches += b"".join(taken)
                segments.extend((len(batches), len(taken[0])))
        yield memoryview(batches), segments
