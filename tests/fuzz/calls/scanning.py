"""Calls of the scan of recordings, some compared with the twin in NumPy."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from tests.fuzz.calls.values import STREAM_ID, TERM_ID, DifferenceError
from tests.twins import compiled, pure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.fuzz.calls.values import Values

scanning: Final = compiled("scanning")
KEPT: Final = 8
COLUMNS: Final = 10
FOUND: Final = ("count", "frames", "end", "dropped", "broken", "problem_at", "is_checksum_wrong")


class Scans:
    """Scans that are used in any order."""

    def __init__(self, values: Values) -> None:
        self.v = values
        self.kept: list[Any] = []

    def described(self, *, is_good: bool) -> SimpleNamespace:
        v = self.v
        return SimpleNamespace(
            term_length=65_536 if is_good else v.any_number(),
            initial_term_id=TERM_ID if is_good else v.any_number(),
            stream_id=STREAM_ID if is_good else v.word(),
        )

    def checksum(self, _: bytes) -> Any:
        """Do anything in the middle of a scan."""
        self.v.hook()
        return self.v.word() if self.v.rarely() else 7

    def keep(self, scan: Any) -> None:
        self.kept.append(scan)
        if len(self.kept) > KEPT:
            del self.kept[self.v.rng.randrange(KEPT)]

    def one(self) -> Any:
        while not self.kept:
            self.make()
        return self.v.rng.choice(self.kept)

    def span(self, scan: Any) -> tuple[Any, Any]:
        v = self.v
        if v.rarely():
            return v.any_number(), v.any_number()
        begin = v.rng.randrange(scan.count + 1)
        return begin, v.rng.randrange(begin, scan.count + 1)

    def make(self) -> None:
        v = self.v
        self.keep(
            scanning.RowScan(
                self.described(is_good=not v.rarely()),
                by_message=v.flag(),
                include_padding=v.flag(),
                checksum=self.checksum if v.rarely() else None,
            )
        )

    def set_up(self) -> None:
        """Set up a scan that was made from nothing, or one that is set up already."""
        kind = scanning.RowScan
        scan = self.one() if self.v.rarely() else kind.__new__(kind)
        scan.__init__(self.described(is_good=True), by_message=True, include_padding=False)
        self.keep(scan)

    def scan(self) -> None:
        v = self.v
        v.hook = self.any_of_all
        position = v.offset() if v.rarely() else 0
        self.one().scan(v.buffer(), position, goes_on=v.flag())

    def cut(self) -> None:
        v, scan = self.v, self.one()
        scan.cut(v.number() if v.rarely() else self.span(scan)[0], v.number(), v.number())

    def column(self) -> None:
        v, scan = self.v, self.one()
        which = v.any_number() if v.rarely() else v.rng.randrange(COLUMNS)
        scan.column(which, *self.span(scan))

    def payloads(self) -> None:
        scan = self.one()
        scan.payloads(*self.span(scan))

    def bounds(self) -> None:
        scan = self.one()
        scan.bounds(*self.span(scan), self.v.number())

    def values(self) -> None:
        v, scan = self.v, self.one()
        scan.values(v.number(), v.rng.choice((1, 2, 4, 8, 16, 17, 0)), *self.span(scan))

    def change_piece(self) -> None:
        """Change a length between the scan and what follows it."""
        v, scan = self.v, self.one()
        term = v.good_term()
        before = bytes(term)
        scan.scan(term, 0, goes_on=False)
        lengths = memoryview(term).cast("B").cast("i")[::8]
        lengths[v.rng.randrange(len(lengths))] = v.word()
        try:
            scan.payloads(0, scan.count)
            scan.values(v.number(), 8, 0, scan.count)
        finally:
            memoryview(term).cast("B")[:] = before

    def scan_with_both(self) -> None:
        v = self.v
        if not v.rarely():
            self.scan()
            return
        term = bytes(v.good_term())
        how = {"by_message": v.flag(), "include_padding": v.flag()}
        goes_on, reach = v.flag(), v.rng.choice((0, 100, 1 << 40))
        found = []
        for twin in (pure("spark.rows").RowScan, scanning.RowScan):
            each = twin(self.described(is_good=True), **how)
            each.scan(memoryview(term), 0, goes_on=goes_on)
            parts = [each.column(which, 0, each.count) for which in range(COLUMNS)]
            parts += each.payloads(0, each.count)
            parts += each.bounds(0, each.count, reach) or ()
            found.append([*(getattr(each, name) for name in FOUND), *map(bytes, parts)])
        if found[0] != found[1]:
            message = f"scan {how} {goes_on}: {found} in {term.hex()}"
            raise DifferenceError(message)

    def any_of_all(self) -> None:
        self.v.rng.choice((self.make, self.scan, self.payloads, self.values, self.set_up))()


def rounds(values: Values) -> Mapping[str, Callable[[], object]]:
    """Return a round for each method."""
    s = Scans(values)
    return {
        each.__name__: each
        for each in (
            *(s.make, s.set_up, s.scan, s.cut, s.column, s.payloads, s.bounds),
            *(s.values, s.change_piece, s.scan_with_both),
        )
    }
