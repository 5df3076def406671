"""Calls of the writer of blocks: begun, collected and closed in any order."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from tests.twins import compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.fuzz.calls.values import Values

writing: Final = compiled("writing")

LONGEST_FILE: Final = 1 << 16


class Block(bytearray):
    """A block that does something when nothing holds it any more."""

    values: Values

    def __del__(self) -> None:
        self.values.interrupt()


class Held:
    """A writer with a file in memory, and a pipe for its bell."""

    def __init__(self, values: Values) -> None:
        self.v = values
        self.file = os.memfd_create("fuzz")
        self.ends = os.pipe()
        for end in self.ends:
            os.set_blocking(end, False)
        self.offset = values.mixed(lambda: values.rng.randrange(LONGEST_FILE), values.any_number)
        self.blocks = values.cycled([values.rng.randbytes(each) for each in (4, 5, 64, 999)])
        self.writer: Any = writing.BlockWriter(self.ends[1])
        values.hook = self.interrupt

    def __del__(self) -> None:
        self.v.hook = int
        self.writer.close()
        for each in (self.file, *self.ends):
            os.close(each)

    def interrupt(self) -> None:
        if self.v.flag():
            self.writer.collect()
        elif self.v.flag():
            self.writer.begin(self.file, b"12345678", 0, 0)
        else:
            self.writer.close()

    def make(self) -> None:
        """Make a writer, which takes long; rarely one whose bell is no file."""
        if not self.v.rng.randrange(64):
            self.writer = writing.BlockWriter(-1 if self.v.rarely() else self.ends[1])

    def begin(self) -> None:
        v = self.v
        block: Any = v.buffer() if v.rarely() else self.blocks()
        if v.rarely():
            block = Block(64)
            block.values = v
        file = -1 if not v.rng.randrange(1_000) else self.file
        # A file of terabytes takes no memory, but pages of it here and there would.
        offset = self.offset() if v.flag() else v.rng.randrange(LONGEST_FILE)
        if isinstance(offset, int) and 2**33 > offset > LONGEST_FILE:
            offset = LONGEST_FILE
        self.writer.begin(file, block, offset, 0 if v.flag() else v.number())

    def collect(self) -> None:
        self.writer.collect()

    def close(self) -> None:
        if not self.v.rng.randrange(64):
            self.writer.close()

    def read(self) -> None:
        if not 0 <= self.writer.in_flight <= 16:
            message = f"{self.writer.in_flight} blocks in flight"
            raise BaseException(message)  # noqa: TRY002 - a call may raise any `Exception`
        os.read(self.ends[0], 64)


def rounds(values: Values) -> Mapping[str, Callable[[], object]]:
    """Return a round for each method."""
    held = Held(values)
    made = (held.make, held.begin, held.collect, held.close, held.read)
    return {**{each.__name__: each for each in made}, "begin again": held.begin}
