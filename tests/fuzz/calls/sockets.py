"""Calls of what sends and receives datagrams, with a pair of sockets that loses nothing."""

from __future__ import annotations

import socket
from array import array
from typing import TYPE_CHECKING, Any, Final

from tests.twins import compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.fuzz.calls.values import Values

lanes: Final = compiled("lanes")
sockets: Final = compiled("sockets")

MEMORY_LENGTH: Final = 3 * 65_536
LONGEST: Final = 4_000


class Socket:
    """A socket that may name another file when it is asked."""

    def __init__(self, values: Values, inner: socket.socket) -> None:
        self._values = values
        self._inner = inner

    def fileno(self) -> Any:
        if self._values.rarely():
            self._values.hook()
            return self._values.rng.choice((-1, 2**31, -(2**31), None, "text"))
        return self._inner.fileno()


class Held:
    """Two sockets, a reader, and what is sent."""

    def __init__(self, values: Values) -> None:
        self.v = values
        self.ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        for end in self.ends:
            end.setblocking(False)
        self.sock, self.peer = (Socket(values, each) for each in self.ends)
        self.memory = memoryview(bytearray(MEMORY_LENGTH))
        self.segments = memoryview(array("i", bytes(512)))
        self.reader: Any = sockets.BatchReader(self.memory, self.segments, self.decode)
        self.tables = values.mixed(self.make_table, values.buffer)
        self.start = values.mixed(lambda: values.rng.choice((0, 0, 100)), values.any_number)
        self.index = values.mixed(lambda: values.rng.choice((0, 0, 0, 2, 3)), values.any_number)
        address = bytes((1, 0)) + bytes(14)
        self.addresses = values.cycled(
            [
                (address,),
                (address, address),
                (),
                (b"x",),
                (None,),
                (bytes(28),) * 3,
                (bytes(16),) * 70,
            ]
        )
        values.hook = self.interrupt
        self.reading: Any = sockets.LoneReading(
            *(self.reader, self.peer, self.take, values.hook, 9, values.hook, self.read)
        )

    def __del__(self) -> None:
        for end in self.ends:
            end.close()

    def interrupt(self) -> None:
        self.reader.read(self.peer, self.v.rng.randrange(9))

    def decode(self, raw: bytes) -> Any:
        if self.v.rarely():
            self.v.hook()
        if self.v.rarely():
            raise ValueError
        return str(raw), 0

    def make_table(self) -> array[int]:
        rng, end, table = self.v.rng, 0, array("i")
        for _ in range(rng.randrange(1, 6)):
            end += rng.randrange(600)
            table.extend((end, rng.choice((1, 50, 50, 700, 70_000))))
        if rng.random() < 0.2:
            table[rng.randrange(len(table))] = rng.choice((-1, 0, 2**31 - 1, -(2**31)))
        return table

    def make_reader(self) -> None:
        v = self.v
        source = self.memory if v.rng.randrange(8) else v.buffer()
        table: Any = self.segments if v.rng.randrange(8) else v.buffer()
        if v.rarely():
            table = memoryview(bytearray(600))[v.rng.randrange(9) :]
        made = sockets.BatchReader.__new__(sockets.BatchReader)
        self.reader = made if v.rarely() else self.reader
        made.__init__(source, table, self.decode)
        self.reader = made

    def read(self) -> None:
        self.reader.read(self.peer, self.v.number())

    def read_alone(self) -> None:
        self.reader.read_alone(self.peer, self.take, self.v.number())

    def make_reading(self) -> None:
        v = self.v
        made = sockets.LoneReading.__new__(sockets.LoneReading)
        self.reading = made if v.rarely() else self.reading
        lane = lanes.ReceiveLane.__new__(lanes.ReceiveLane)
        take = lane.take if v.rarely() else self.take
        made.__init__(self.reader, self.peer, take, v.hook, v.number(), v.hook, self.read)
        self.reading = made

    def read_lone(self) -> None:
        self.reading()

    def take(self, *_: object) -> bool:
        if self.v.rarely():
            self.v.hook()
        return bool(self.v.flag())

    def fill(self) -> None:
        self.ends[0].send(bytes(self.v.rng.randrange(2_000)))

    def send_segmented(self) -> None:
        v = self.v
        sockets.send_segmented(self.sock, v.buffer(), self.tables(), self.index(), self.start())

    def send_to_many(self) -> None:
        v = self.v
        sockets.send_to_many(
            *(self.sock, v.buffer(), self.tables(), self.index(), self.start(), self.addresses()),
            *(1 if v.flag() else v.number(), v.number()),
        )

    def attributes(self) -> None:
        reader = self.reader
        _ = reader.groups, reader.is_drained, reader.error, reader.dropped, reader.epoch_ns


def rounds(values: Values) -> Mapping[str, Callable[[], object]]:
    """Return a round for each function and method."""
    held = Held(values)
    made = (held.make_reader, held.read, held.read_alone, held.fill, held.attributes)
    lone = (held.make_reading, held.read_lone)
    found = {each.__name__: each for each in (*made, *lone, held.send_segmented, held.send_to_many)}
    return found | {"send_to_many again": held.send_to_many}
