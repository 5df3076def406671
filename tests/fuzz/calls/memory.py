"""Calls of atomic buffers and mappings: closed, released and made again in any order."""

from __future__ import annotations

import os
from array import array
from functools import partial
from mmap import PAGESIZE
from typing import TYPE_CHECKING, Any, Final

from tests.twins import compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.fuzz.calls.values import Values

memory: Final = compiled("memory")

LENGTH: Final = 256
COUNTS: Final = {
    **dict.fromkeys(("load_acquire_32", "load_acquire_64"), 0),
    **dict.fromkeys(("store_release_32", "store_release_64", "exchange_32", "exchange_64"), 1),
    **dict.fromkeys(("store_volatile_32", "store_volatile_64", "fetch_add_32", "fetch_add_64"), 1),
    **dict.fromkeys(("compare_and_swap_32", "compare_and_swap_64"), 2),
    **dict.fromkeys(("get_bytes", "zero"), 1),
}


class Held:
    """A buffer and a mapping, which every round uses or replaces."""

    def __init__(self, values: Values) -> None:
        self.v = values
        self.file = os.memfd_create("fuzz")
        os.ftruncate(self.file, 2 * PAGESIZE)
        self.mapping: Any = memory.Mapping(self.file, PAGESIZE)
        self.buffer: Any = memory.AtomicBuffer(bytearray(LENGTH))
        self.offset = values.mixed(
            lambda: values.rng.randrange(0, LENGTH + 8, 8), values.any_number
        )
        self.length = values.mixed(lambda: values.rng.randrange(64), values.any_number)
        values.hook = self.let_go

    def __del__(self) -> None:
        os.close(self.file)

    def let_go(self) -> None:
        self.buffer.release()

    def make_buffer(self) -> None:
        v = self.v
        made = (self.mapping, array("q", bytes(LENGTH)), v.buffer(), self.buffer)
        where = (0, None) if v.flag() else (self.offset(), self.length())
        self.buffer = memory.AtomicBuffer(v.rng.choice(made), *where)

    def make_mapping(self) -> None:
        if not self.v.rarely():
            return
        length, offset = self.v.rng.choice((1, PAGESIZE, 2 * PAGESIZE, 0)), 0
        if self.v.flag():
            length, offset = self.v.any_number(), self.v.any_number()
        self.mapping = memory.Mapping(self.file, length, offset=offset, is_writable=self.v.flag())

    def close_mapping(self) -> None:
        self.mapping.close()

    def view_mapping(self) -> None:
        view = memoryview(self.mapping)
        if self.v.flag() and not view.readonly:
            view[self.v.rng.randrange(len(view))] = 1
        self.view = view if self.v.rarely() else None

    def put_bytes(self) -> None:
        self.buffer.put_bytes(self.offset(), self.v.data())

    def put_bytes_of_itself(self) -> None:
        source = array("q", bytes(LENGTH))
        buffer = memory.AtomicBuffer(source)
        buffer.put_bytes(self.offset(), memoryview(source).cast("B")[self.v.rng.randrange(99) :])

    def access(self, name: str, count: int) -> None:
        numbers = self.length if name in {"get_bytes", "zero"} else self.v.word
        getattr(self.buffer, name)(self.offset(), *(numbers() for _ in range(count)))

    def fence(self) -> None:
        memory.full_fence()
        memory.acquire_fence()
        memory.release_fence()


def rounds(values: Values) -> Mapping[str, Callable[[], object]]:
    """Return a round for each method."""
    held = Held(values)
    whole = (held.make_buffer, held.make_mapping, held.close_mapping, held.view_mapping, held.fence)
    made = [*whole, held.put_bytes, held.put_bytes_of_itself]
    return {
        **{each.__name__: each for each in made},
        **{name: partial(held.access, name, count) for name, count in COUNTS.items()},
        "make_buffer again": held.make_buffer,
    }
