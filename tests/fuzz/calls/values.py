"""What compiled functions are called with: what is nearly right, and some of anything else."""

from __future__ import annotations

from array import array
from contextlib import suppress
from ctypes import c_char
from itertools import cycle
from struct import pack_into
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

SESSION_ID: Final = 7
STREAM_ID: Final = 8
TERM_ID: Final = 9
TERM_LENGTH: Final = 4_096
HEADER: Final = 32
SIZES: Final = (0, 1, 31, 32, 33, 100, 100, 100, 300, 1_000)
TERM_LENGTHS: Final = (64, 96, 1_024, *(TERM_LENGTH,) * 8, 16_384)
CODES: Final[tuple[Any, ...]] = ("b", "h", "i", "q", "d")
EDGES: Final = (0, 1 << 8, 1 << 15, 1 << 16, 1 << 31, 1 << 32, 1 << 62, 1 << 63, 1 << 64)
HOSTILE_SHARE: Final = 8
"""One value of so many is hostile, so that about half of all calls are not refused at once."""
POOL_LENGTH: Final = 1_009
"""Prime, and each pool a little longer than the one before: values meet in ever other pairs."""


class DifferenceError(BaseException):
    """Two twins did not do the same; no `Exception`, which a call may raise."""


class Sly:
    """A number that does something when it is asked for its value."""

    def __init__(self, values: Values, number: int) -> None:
        self._values = values
        self._number = number

    def __index__(self) -> int:
        self._values.hook()
        return self._number


class Lender:
    """Memory that does something when it is asked for; memory at all from Python 3.12 on."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._memory = bytearray(64)

    def __buffer__(self, flags: int) -> memoryview:
        self._values.hook()
        return memoryview(self._memory)

    def __release_buffer__(self, view: memoryview) -> None:
        self._values.interrupt()


class Values:
    """Endless values of several kinds; the same seed gives the same ones.

    Attributes:
        hook: Called in the middle of a call, where Python code can run there.
    """

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.hook: Callable[[], object] = int
        self._pool_length = POOL_LENGTH
        strays = [
            None,
            "text",
            1.5,
            (),
            (b"", 1),
            [],
            object(),
            *(Sly(self, each) for each in (0, 32, -1)),
        ]
        edges = [sign * edge + by for edge in EDGES for by in (-1, 0, 1) for sign in (1, -1)]
        self.any_number = self.cycled(edges + strays)
        hostile = self.any_number
        self.number = self.mixed(lambda: rng.randrange(1 << rng.randrange(1, 17)), hostile)
        self.offset = self.mixed(lambda: rng.randrange(0, TERM_LENGTH + 32, 32), self._near_slots())
        self.limit = self.mixed(lambda: rng.choice((TERM_LENGTH, rng.randrange(9_000))), hostile)
        self.position = self.mixed(lambda: rng.randrange(0, 1 << 40, 32), hostile)
        self.word = self.mixed(lambda: rng.randrange(-(1 << 31), 1 << 31), hostile)
        self.flag = self.cycled([True, False])
        self.rarely = self.cycled([True, *[False] * 31])
        self.good_term = self.cycled([make_term(rng) for _ in range(48)])
        self.buffer = self.mixed(self.good_term, self._hostile_buffers())
        self.data = self.mixed(
            lambda: rng.randbytes(rng.choice(SIZES)),
            self.cycled([self.buffer() for _ in range(99)]),
        )
        self.anything = self.cycled(
            [each() for each in (self.number, self.buffer, self.data) * 60] + strays
        )

    def interrupt(self) -> None:
        """Do what is done in the middle of a call, where nothing may be raised."""
        with suppress(Exception):
            self.hook()

    def cycled(self, pool: Sequence[Any]) -> Callable[[], Any]:
        """Return a function that returns the values in random order, again and again."""
        length = self._pool_length
        self._pool_length += 2
        found = [*pool] * (length // len(pool)) + [*pool][: length % len(pool)]
        self.rng.shuffle(found)
        return cycle(found).__next__

    def mixed(self, good: Callable[[], Any], hostile: Callable[[], Any]) -> Callable[[], Any]:
        """Return a function that mostly returns good values."""
        is_hostile = [not each % HOSTILE_SHARE for each in range(POOL_LENGTH)]
        return self.cycled([hostile() if each else good() for each in is_hostile])

    def _near_slots(self) -> Callable[[], Any]:
        near = [at + by for at in range(0, TERM_LENGTH + 32, 512) for by in (-32, -1, 1, 4, 8, 16)]
        return self.cycled(near + [self.any_number() for _ in near])

    def _hostile_buffers(self) -> Callable[[], Any]:
        term = self.good_term
        released = memoryview(b"")
        released.release()
        return self.cycled(
            [
                *(memoryview(term())[by:] for by in (1, 2, 4, 8, 31, 32, 60)),
                *(memoryview(term())[: len(term()) - by] for by in (1, 4, 31)),
                memoryview(term())[::2],
                memoryview(term())[::-1],
                *(memoryview(term()).cast("B").cast(each) for each in CODES),
                memoryview(bytes(64)).cast("B", (8, 8)),
                *(bytes(term()) for _ in range(3)),
                *(array("B", bytes(each)) for each in (0, 1, 31, 33, 63)),
                (c_char * 64)(),
                (c_char * 0)(),
                bytearray(),
                b"",
                released,
                *(Lender(self), Lender(self), None, "text", 5, [1, 2], object()),
            ]
        )


def make_term(rng: Random, length: int = 0) -> array[int]:
    """Return a term of frames, half of them with a few wrong numbers in the headers.

    It takes exactly its length, so that a look behind its end is seen.
    """
    length = length or rng.choice(TERM_LENGTHS)
    term = array("B", bytes(length))
    starts = []
    offset = 0
    size = rng.choice(SIZES)
    is_mixed = rng.random() < 0.5
    stop = rng.choice((length, length, rng.randrange(length)))
    while offset + HEADER <= stop:
        size = rng.choice(SIZES) if is_mixed else size
        kind = 0xC0, int(rng.random() < 0.97)
        if offset + HEADER + size > length:
            size, kind = length - offset - HEADER, (0xC0, 0)
        write_header(term, offset, HEADER + size, *kind)
        starts.append(offset)
        offset += (HEADER + size + 31) & -32
    if starts and rng.random() < 0.5:
        for _ in range(rng.randrange(1, 4)):
            damage(rng, term, rng.choice(starts))
    return term


def write_header(term: array[int], offset: int, length: int, flags: int, kind: int) -> None:
    """Write the header of a frame of our stream."""
    where = offset, SESSION_ID, STREAM_ID, TERM_ID, offset
    pack_into("<iBBHiiiiq", term, offset, length, 0, flags, kind, *where)


def damage(rng: Random, term: array[int], offset: int) -> None:
    """Change one number of a header."""
    if rng.random() < 0.3:
        # A fragment: the first of a message, one in the middle, or the last.
        term[offset + 5] = rng.choice((0x80, 0, 0x40))
        return
    value = rng.choice((0, 1, 31, 33, 2**31 - 1, 2**31 - 32, rng.randrange(TERM_LENGTH)))
    value = rng.choice((value, -value, -(2**31)))
    pack_into("<i", term, offset + rng.choice((0, 0, 0, 4, 8, 12, 16, 20)), value)
