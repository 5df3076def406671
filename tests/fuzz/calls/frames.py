"""Calls of the loops over frames, some of them compared with the twins in Python."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Final

from tests.fuzz.calls.values import SESSION_ID, STREAM_ID, TERM_ID, TERM_LENGTH, DifferenceError
from tests.twins import compiled, pure_twins

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.fuzz.calls.values import Values

frames: Final = compiled("frames")


class Held:
    """Terms, and tables of segments, from which every round takes its arguments."""

    def __init__(self, values: Values) -> None:
        self.v = values
        self.tables = values.cycled([table_of(values) for _ in range(40)])
        made = [array("i", [values.rng.randrange(3_000) for _ in range(64)]) for _ in range(40)]
        self.segments = values.mixed(values.cycled(made), values.buffer)

    def scan_for_send(self) -> None:
        v = self.v
        if v.rarely():
            limit = v.rng.randrange(TERM_LENGTH)
            compare("scan_for_send", v.good_term(), slot(v), limit=limit)
        frames.scan_for_send(v.buffer(), None, v.offset(), limit=v.limit())

    def scan_batches(self) -> None:
        v = self.v
        if v.rarely():
            compare_batches(v)
        frames.scan_batches(
            *(v.buffer(), None, v.offset(), self.segments()),
            limit=v.limit(),
            mtu_length=v.limit(),
            batch_length=v.limit(),
            max_count=v.number(),
            cost=v.number(),
        )

    def mark_starts(self) -> None:
        v = self.v
        table = self.segments() if v.flag() else self.tables()
        frames.mark_starts(v.buffer(), v.position(), v.position(), table, v.number())

    def place_batches(self) -> None:
        v = self.v
        term = v.buffer()
        source = v.buffer() if v.flag() else term
        table = self.tables() if v.flag() else self.segments()
        where = (v.number(), v.number()) if v.flag() else (0, v.offset())
        frames.place_batches(source, table, *where, term, None, v.offset(), limit=v.limit())

    def place_where_it_belongs(self) -> None:
        v = self.v
        at = slot(v)
        term = array("B", v.good_term())
        memoryview(term)[at:] = bytes(len(term) - at)
        where = 0, at, term, None, at
        frames.place_batches(v.good_term(), self.tables(), *where, limit=v.limit())

    def place_apart(self) -> None:
        v = self.v
        term, ids = v.buffer(), (SESSION_ID, STREAM_ID, TERM_ID)
        source = v.good_term() if v.flag() else term
        where = (v.number(), v.number()) if v.rarely() else (0, slot(v))
        frames.place_apart(
            *(source, self.tables(), *where, term, None, ids),
            base=v.position(),
            first=v.offset(),
            hwm=v.limit(),
            limit=v.limit(),
            requested=range(0, 1 << 40, 32) if v.flag() else (),
        )

    def zero(self) -> None:
        v = self.v
        term = v.buffer()
        # A copy: what is zeros only is of no more use.
        term = bytearray(term) if isinstance(term, array) else term
        frames.zero(term, v.number(), v.number())

    def skip_whole(self) -> None:
        v = self.v
        if v.rarely():
            compare("skip_whole", v.good_term(), slot(v), v.rng.randrange(0, TERM_LENGTH, 32))
        frames.skip_whole(v.buffer(), v.offset(), v.limit())

    def scan_for_gap(self) -> None:
        v = self.v
        if v.rarely():
            limit = v.rng.randrange(0, TERM_LENGTH, 32)
            compare("scan_for_gap", v.good_term(), slot(v), limit=limit)
        frames.scan_for_gap(v.buffer(), v.offset(), limit=v.limit())

    def skip_own(self) -> None:
        v = self.v
        ids = {"session_id": SESSION_ID, "stream_id": STREAM_ID, "term_id": TERM_ID}
        if v.rarely():
            compare("skip_own", v.good_term(), slot(v), TERM_LENGTH, **ids, mtu_length=1_000)
        if not v.flag():
            ids["term_id"] = v.word()
        frames.skip_own(v.buffer(), v.offset(), v.limit(), **ids, mtu_length=v.limit())


def rounds(values: Values) -> Mapping[str, Callable[[], object]]:
    """Return a round for each function."""
    held = Held(values)
    return {
        each.__name__: each
        for each in (
            *(held.scan_for_send, held.scan_batches, held.mark_starts, held.place_batches),
            held.place_apart,
            *(held.place_where_it_belongs, held.zero, held.skip_whole, held.scan_for_gap),
            held.skip_own,
        )
    }


def slot(values: Values) -> int:
    """Return where a frame may begin, also in the shortest term."""
    return values.rng.choice((0, 0, 32))


def table_of(values: Values) -> array[int]:
    """Return a segment table that may be right: ends that grow, and lengths of datagrams."""
    end = 0
    table = array("i")
    for _ in range(values.rng.randrange(1, 9)):
        segment = values.rng.randrange(32, 1_056, 32)
        end += values.rng.choice((segment, 3 * segment, 3 * segment - 32))
        table.extend((end, segment))
    return table


def compare(name: str, term: array[int], *where: int, **options: int) -> None:
    """Call both twins with the same valid arguments."""
    words = memoryview(term).cast("i")
    before = (memoryview(term), words) if name == "scan_for_send" else (words,)
    found = [getattr(twin, name)(*before, *where, **options) for twin in (pure_twins(), frames)]
    if found[0] != found[1]:
        message = f"{name}{where} {options}: {found} in {bytes(term).hex()}"
        raise DifferenceError(message)


def compare_batches(values: Values) -> None:
    """Divide the same frames by both twins."""
    term, at = values.good_term(), slot(values)
    limit = values.rng.randrange(TERM_LENGTH * 2)
    options = {"limit": limit, "mtu_length": values.rng.randrange(32, 1_408, 32), "cost": 50}
    found: list[Any] = []
    for twin in (pure_twins(), frames):
        table = array("i", bytes(64))
        scanned = twin.scan_batches(
            *(memoryview(term), memoryview(term).cast("i"), at, table),
            **options,
            batch_length=4_096,
            max_count=9,
        )
        found.append((scanned, table))
    if found[0] != found[1]:
        message = f"scan_batches at {at} {options}: {found} in {bytes(term).hex()}"
        raise DifferenceError(message)
