"""Calls of the writer of frames, in logs whose tails somebody else has changed."""

from __future__ import annotations

from array import array
from itertools import accumulate
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from tests.fuzz.calls.values import SESSION_ID, STREAM_ID, TERM_ID, TERM_LENGTH
from tests.twins import compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.fuzz.calls.values import Values

appending: Final = compiled("appending")

METADATA_LENGTH: Final = 4_096
FIELDS: Final = ("term_length", "position_bits", "initial_term_id", "session_id", "terms")


def make_log(values: Values) -> Any:
    """Return all that a writer uses of a log; rarely with something wrong in it."""
    log = SimpleNamespace(
        term_length=TERM_LENGTH,
        position_bits=12,
        initial_term_id=TERM_ID,
        session_id=SESSION_ID,
        stream_id=STREAM_ID,
        terms=tuple(array("B", bytes(TERM_LENGTH)) for _ in range(3)),
        metadata=SimpleNamespace(block=array("q", bytes(METADATA_LENGTH))),
    )
    for index in range(3):
        log.metadata.block[index] = (TERM_ID + index - 3 * (index > 0)) << 32
    if values.rng.random() < 0.2:
        name = values.rng.choice(FIELDS)
        log.__dict__[name] = values.anything()
        if values.rng.random() < 0.5:
            log.terms = (array("B", bytes(TERM_LENGTH)), values.buffer(), values.buffer())
    return log


class Held:
    """A writer and its log, which every round uses or replaces."""

    def __init__(self, values: Values) -> None:
        self.v = values
        self.lengths = values.mixed(
            lambda: values.rng.choice((1, 33, 224, 1_000)), values.any_number
        )
        self.log = make_log(values)
        self.writer: Any = appending.FrameWriter.__new__(appending.FrameWriter)
        self.lists = values.cycled(
            [[values.data() for _ in range(values.rng.randrange(6))] for _ in range(50)]
        )
        self.bounds = values.cycled([self._make_bounds() for _ in range(80)])
        values.hook = self.detach

    def _make_bounds(self) -> Any:
        rng = self.v.rng
        wrong = rng.choice((-1, 0, 9_999, 2**31 - 1, -(2**31)))
        numbers = sorted(rng.randrange(200) for _ in range(rng.randrange(9)))
        if rng.random() < 0.3:
            numbers.append(wrong)
        code = rng.choice("iq")
        return rng.choice((array(code, numbers), self.v.buffer()))

    def make(self) -> None:
        v = self.v
        self.log = make_log(v)
        lengths = {"max_payload_length": 224, "max_message_length": 1_000}
        if v.flag():
            lengths = {name: self.lengths() for name in lengths}
        if v.rarely():
            self.writer.__init__(self.log, **lengths)
        self.writer = appending.FrameWriter(self.log, **lengths, is_shared=v.flag())

    def detach(self) -> None:
        self.writer.detach()

    def offer(self) -> None:
        self.writer.offer(self.v.data(), self.v.position(), self.v.number())

    def offer_of_the_log(self) -> None:
        """Offer what lies where the frame is going to lie."""
        at = self.v.rng.randrange(0, TERM_LENGTH, 16)
        term = memoryview(self.log.terms[self.v.rng.randrange(3)])
        self.writer.offer(term[at : at + self.v.rng.randrange(400)], 2**62, 0)

    def offer_list(self) -> None:
        first = 0 if self.v.flag() else self.v.number()
        self.writer.offer_list(self.lists(), first, self.v.position())

    def offer_long_list(self) -> None:
        """Offer more messages than are claimed at once, as a list or as a column."""
        v = self.v
        sizes = [v.rng.choice((0, 1, 33, 100, 224)) for _ in range(v.rng.randrange(20, 200))]
        if v.flag():
            self.writer.offer_list([bytes(each) for each in sizes], 0, v.position())
            return
        bounds = array("i", [0, *accumulate(sizes)])
        self.writer.offer_column(bounds, bytes(bounds[-1]), 4, 0, v.position())

    def offer_column(self) -> None:
        v = self.v
        width = v.rng.choice((4, 8)) if v.flag() else v.number()
        first = 0 if v.flag() else v.number()
        self.writer.offer_column(self.bounds(), v.buffer(), width, first, v.position())

    def offer_column_of_the_log(self) -> None:
        """Offer a column whose bounds change while it is written."""
        term, block = self.log.terms[0], self.log.metadata.block
        self.writer.offer_column(self.v.rng.choice((term, block)), term, 4, 0, 2**62)

    def damage(self) -> None:
        """Change a tail or the count of terms, mostly to something near."""
        rng, longs = self.v.rng, self.log.metadata.block
        value = rng.choice((rng.randrange(-(2**63), 2**63), rng.randrange(0, TERM_LENGTH + 64, 32)))
        if rng.random() < 0.7:
            index = rng.randrange(3)
            longs[index] = ((TERM_ID + index) << 32) + value % TERM_LENGTH
            memoryview(longs).cast("B").cast("i")[6] = index
        else:
            longs[rng.randrange(4)] = value


def rounds(values: Values) -> Mapping[str, Callable[[], object]]:
    """Return a round for each method."""
    held = Held(values)
    offers = (held.offer, held.offer_list, held.offer_column, held.offer_of_the_log)
    others = (held.offer_column_of_the_log, held.offer_long_list, held.damage, held.make)
    found: dict[str, Callable[[], object]] = {each.__name__: each for each in (*offers, *others)}
    found |= {f"{each.__name__} again": each for each in offers}
    found["detach"] = lambda: None if values.rng.random() < 0.9 else held.detach()
    return found
