"""Messages that say where they belong: to which life of a publisher, and which of it they are."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import AsyncIterable

    from aeron_async.client.image import Message

__all__ = ["Run", "number_of", "payload", "runs_of"]

HEADER: Final = Struct("<qq")
WORD: Final = Struct("<Q")
SIZES: Final = (16, 17, 40, 100, 100, 101, 700, 1_376, 1_377, 5_000, 8_192)
"""Of messages, in bytes; the last is the longest that terms of 64 KiB take."""
ODD: Final = 0x9E37_79B9_7F4A_7C15


def payload(life: int, number: int) -> bytes:
    """Return a message, none of whose bytes but the first 16 is likely to be zero."""
    mixed = (life * 1_000_003 + number + 1) * ODD & (1 << 64) - 1
    size = SIZES[(mixed >> 40) % len(SIZES)]
    filler = WORD.pack(mixed | 0x0101_0101_0101_0101) * (size // WORD.size)
    return (HEADER.pack(life, number) + filler)[:size]


def number_of(data: bytes) -> tuple[int, int]:
    """Return the life and the number of a message, every byte of which has been looked at."""
    life, number = HEADER.unpack_from(data)
    assert data == payload(life, number), f"message {number} of life {life} is another"
    return life, number


@attrs.define
class Run:
    """Messages of one life that follow one another: no gap, none twice."""

    life: int
    first: int
    ends: list[int]
    """Where each ends, in bytes."""

    @property
    def next(self) -> int:
        """Return the number behind the last."""
        return self.first + len(self.ends)


async def runs_of(messages: AsyncIterable[Message]) -> list[Run]:
    """Return the runs that messages are of."""
    runs: list[Run] = []
    async for message in messages:
        add(runs, *number_of(message.data), message.position)
    return runs


def add(runs: list[Run], life: int, number: int, position: int) -> None:
    """Add a message to the runs before it."""
    if not runs or runs[-1].life != life:
        assert life not in {each.life for each in runs}
        # Another life goes on where a recording had stopped, and then from its beginning.
        assert not runs or number == 0
        runs.append(Run(life, number, []))
    run = runs[-1]
    assert number == run.next, f"message {number} of life {life} comes after {run.next - 1}"
    run.ends.append(position)
