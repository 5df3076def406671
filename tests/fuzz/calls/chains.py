"""Calls of the scan of frames that follow one another, some compared with the twin in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.fuzz.calls.values import STREAM_ID, TERM_ID, DifferenceError
from tests.twins import compiled, pure_twins

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.fuzz.calls.values import Values

chains: Final = compiled("chains")


def rounds(values: Values) -> Mapping[str, Callable[[], object]]:
    """Return a round for the only function."""
    v = values

    def scan_chain() -> None:
        chains.scan_chain(
            *(v.buffer(), v.limit()),
            term_offset=0 if v.flag() else v.offset(),
            term_id=TERM_ID if v.flag() else v.word(),
            stream_id=STREAM_ID,
            term_length=v.limit(),
        )

    def scan_chain_damaged_anywhere() -> None:
        """An offset that no frame should have, and no length that fits it."""
        term = v.good_term()
        offset = v.word()
        if isinstance(offset, int) and -(2**31) <= offset < 2**31:
            memoryview(term).cast("B").cast("i")[2] = offset
        ids = {"term_id": TERM_ID, "stream_id": STREAM_ID}
        chains.scan_chain(term, v.limit(), term_offset=offset, term_length=v.any_number(), **ids)

    def scan_chain_of_both() -> None:
        if not v.rarely():
            scan_chain()
            return
        term = v.good_term()
        options = {"term_offset": 0, "term_id": TERM_ID, "stream_id": STREAM_ID}
        options["term_length"] = v.rng.choice((len(term), 65_536))
        limit = v.rng.randrange(9_000)
        words = memoryview(term).cast("i")
        found = [twin.scan_chain(words, limit, **options) for twin in (pure_twins(), chains)]
        if found[0] != found[1]:
            message = f"scan_chain {limit} {options}: {found} in {bytes(term).hex()}"
            raise DifferenceError(message)

    return {
        each.__name__: each
        for each in (scan_chain, scan_chain_damaged_anywhere, scan_chain_of_both)
    }
