"""Calls of what a client does for every message: steps that are driven, dropped and closed."""

from __future__ import annotations

import gc
import types
from array import array
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from tests.fuzz.calls import appending as logs
from tests.fuzz.calls.values import TERM_LENGTH, damage
from tests.twins import compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.fuzz.calls.values import Values

appending: Final = compiled("appending")
messages: Final = compiled("messages")
paths: Final = compiled("paths")

LENGTHS: Final = {"max_payload_length": 224, "max_message_length": 1_000}
STEPS: Final = 4
SEEN: Final = ("cr_running", "cr_suspended", "cr_frame", "cr_code", "cr_await", "__name__")
OFFERING: Final = ("_wake_flag", "_calls_until_check", "_is_closed", "_home")
READING: Final = ("_batch", "_taken", "_calls_until_check", "_is_closed", "_home", "_turn")
TAKING: Final = ("_position", "_trigger", "_is_closed", "_cell", "_wake_flag", "_port", "_log")


@types.coroutine
def pause() -> Iterator[str]:
    """Wait for whoever drives."""
    yield "waits"


class Publication(paths.Offering):  # type: ignore[misc,name-defined] # without types
    """One whose long way waits at times."""

    held: Held

    async def _offer_waiting(self, *_: object) -> int:
        if self.held.v.flag():
            await pause()
        self.held.look()
        return 1


class Source(paths.Taking):  # type: ignore[misc,name-defined] # without types
    """An image whose port says anything."""

    session_id = 1
    stream_id = 2

    def __init__(self, held: Held) -> None:
        v = held.v
        self._attach(held.cell, paths.WakeFlag())
        self._trigger = v.rng.choice((0, 1_000, 1 << 40))
        self._log = SimpleNamespace(term_length=TERM_LENGTH, position_bits=12)
        self._log.terms = tuple(v.good_term() for _ in range(3))
        self._reader = self
        self._port = SimpleNamespace(consumption_trigger=1 << 40)
        self._port.readable_position = held.readable_position
        if not v.rng.randrange(4):
            where = v.rng.choice((self._log, self._port))
            setattr(where, v.rng.choice(list(vars(where))), v.anything())
        if not v.rng.randrange(8):
            self._log.terms = tuple(v.buffer() for _ in range(v.rng.randrange(5)))

    def _move_trigger(self) -> None:
        self._trigger += 100


class Subscription(paths.Reading):  # type: ignore[misc,name-defined] # without types
    """One whose long way waits at times, also without a coroutine."""

    held: Held
    _check_served = None

    def _begin_wait(self) -> Any:
        return self if self.held.v.flag() else None

    def __await__(self) -> Iterator[str]:
        self.held.look()
        if self.held.v.flag():
            yield "waits"

    def _end_wait(self, _: object) -> None:
        self.held.v.interrupt()

    async def _anext_waiting(self) -> Any:
        if self.held.v.flag():
            await pause()
        self.held.look()
        return None


class Held:
    """A publication, a subscription, and steps of both, which every round uses or replaces."""

    def __init__(self, values: Values) -> None:
        self.v = values
        self.steps: list[Any] = [None] * STEPS
        self.cell: Any = paths.Cell(memoryview(array("q", [1 << 40])))
        self.publication: Any = Publication()
        self.subscription: Any = Subscription()
        self.lists = values.cycled(
            [[values.data() for _ in range(values.rng.randrange(6))] for _ in range(50)]
        )
        values.hook = self.interrupt
        for each in (self.make_publication, self.make_subscription):
            with suppress(Exception):
                each()

    def look(self) -> bool:
        """Do something rarely, where Python code runs in the middle of a call."""
        if self.v.rarely():
            self.v.hook()
        return bool(self.v.flag() or self.v.flag())

    def interrupt(self) -> None:
        match self.v.rng.randrange(8):
            case 0:
                self.publication._detach()
            case 1:
                self.cell.release("closed")
            case 2:
                self.drive()
            case 3:
                self.close()
            case 4:
                self.subscription._batch = messages.Batch([], None)
            case 5:
                self.change()
            case 6:
                self.change_turn()
            case _:
                self.publication._offer_fast(b"more", 0)

    def home(self) -> Any:
        return paths.HomeLoop(SimpleNamespace(is_running=self.look))

    def make_publication(self) -> None:
        made: Any = Publication()
        made.held = self
        made._calls_until_check = 1 << 40
        made._home = self.home()
        flag = paths.WakeFlag()
        flag.callback = self.look if self.v.flag() else None
        self.publication = made
        writer = appending.FrameWriter(logs.make_log(self.v), **LENGTHS)
        made._attach(writer, self.cell, flag)

    def make_subscription(self) -> None:
        made: Any = Subscription()
        made.held = self
        made._calls_until_check = 1 << 40
        made._home = self.home()
        made._turn = [Source(self)]
        made._ready, made._waits_since_ns = SimpleNamespace(arm=None), 5
        self.subscription = made

    def make_cell(self) -> None:
        words = memoryview(array("q", [1 << 40]))
        made = paths.Cell.__new__(paths.Cell)
        if self.v.flag():
            made.__init__(words)
        else:
            made.__init__(self.v.buffer(), self.v.number())
        self.cell = made

    def use_cell(self) -> None:
        self.cell[0] = self.v.number()
        _ = self.cell[self.v.number()]

    def release_cell(self) -> None:
        if self.v.rarely():
            self.cell.release("closed")

    def put(self, step: Any) -> None:
        self.steps[self.v.rng.randrange(STEPS)] = step

    def one(self) -> Any:
        return self.v.rng.choice(self.steps)

    def offer(self) -> None:
        timeout = self.v.anything() if self.v.rarely() else None
        self.put(
            self.publication.offer(self.v.data(), reserved_value=self.v.number(), timeout=timeout)
        )

    def offer_at_once(self) -> None:
        with suppress(StopIteration):
            self.publication.offer(self.v.data()).send(None)

    def offer_fast(self) -> None:
        self.publication._offer_fast(self.v.data(), self.v.number())

    def offer_list(self) -> None:
        first = 0 if self.v.flag() else self.v.number()
        self.publication._offer_list(self.lists(), first)

    def offer_column(self) -> None:
        bounds = array("i", sorted(self.v.rng.randrange(200) for _ in range(5)))
        data = self.v.buffer()
        bounds = bounds if self.v.flag() else self.v.buffer()
        self.publication._offer_column(bounds, data, self.v.rng.choice((4, 8)), 0)

    def anext(self) -> None:
        self.put(self.subscription.__anext__())

    def anext_at_once(self) -> None:
        with suppress(StopIteration):
            self.subscription.__anext__().send(None)

    def hand_out_fast(self) -> None:
        self.subscription._hand_out_fast(self.call_back, self.v.number())

    def call_back(self, _: object) -> bool:
        return self.look()

    def read_fast(self) -> None:
        limits = (100, 9_999) if self.v.flag() else (self.v.number(), self.v.any_number())
        source = (self.subscription._turn or [None])[0]
        found = source._read_fast(*limits)
        if found is not None and found.left:
            self.subscription._batch = found

    def readable_position(self, at: int) -> Any:
        """Answer for a port, whose image, subscription or turn may change meanwhile."""
        self.look()
        return at + self.v.rng.randrange(2_000)

    def change_turn(self) -> None:
        """Let the images of the subscription be some, or others, in the list that is there."""
        v, turn = self.v, self.subscription._turn
        found = v.rng.choice(([], [None], [Source(self) for _ in range(3)], [v.anything()]))
        turn[:] = [*found, *turn[:2]] if v.flag() else found

    def read_list(self) -> None:
        """Read from several images, where nothing is left of what was read before."""
        v, subscription = self.v, self.subscription
        if v.rng.randrange(8):
            subscription._batch, subscription._taken = paths.NOTHING, None
        if v.flag() and v.flag():
            subscription._turn = [Source(self) for _ in range(v.rng.randrange(4))]
        limits = (100, 9_999) if v.flag() else (v.any_number(), v.any_number())
        subscription._read_list_fast(*limits)

    def count_list(self) -> None:
        v = self.v
        if v.flag():
            self.subscription._calls_until_check = v.any_number()
        self.subscription._count_list(v.any_number(), v.any_number())
        if v.rng.randrange(8):
            self.subscription._calls_until_check = 1 << 40

    def take(self) -> None:
        self.subscription._turn[0]._take(self.v.position())

    def drive(self) -> None:
        self.one().send(None if self.v.rng.randrange(8) else self.v.anything())

    def iterate(self) -> None:
        next(iter(self.one().__await__()))

    def throw(self) -> None:
        with suppress(ValueError, GeneratorExit):
            self.one().throw(self.v.rng.choice((ValueError, ValueError(1), GeneratorExit, 5)))

    def close(self) -> None:
        self.one().close()

    def see(self) -> None:
        getattr(self.one(), self.v.rng.choice(SEEN))

    def drop(self) -> None:
        self.put(None)

    def change(self) -> None:
        """Store anything in what the compiled code uses."""
        v = self.v
        source = Source(self)
        changed, names = v.rng.choice(
            ((self.publication, OFFERING), (self.subscription, READING), (source, TAKING))
        )
        value = v.anything() if v.flag() else v.rng.choice((None, [None], [source], [v.anything()]))
        if changed is source and v.flag():
            self.subscription._turn = [source]
        setattr(changed, v.rng.choice(names), value)

    def attach(self) -> None:
        flag, cell = v_choice(self.v, paths.WakeFlag()), v_choice(self.v, self.cell)
        self.subscription._turn[0]._attach(cell, flag)
        self.publication._attach(None, cell, flag)

    def detach(self) -> None:
        if self.v.rarely():
            self.publication._detach()

    def collect(self) -> None:
        """Leave a step to the collector, in a cycle with its owner."""
        made: Any = Subscription()
        made.held = self
        made.itself = made.__anext__()
        if self.v.rarely():
            gc.collect(0)

    def change_term(self) -> None:
        """Change a header under the batches, as another process may."""
        term = self.v.good_term()
        damage(self.v.rng, term, self.v.rng.randrange(0, len(term), 32))

    def inherit(self) -> None:
        kinds = (Subscription, paths.Reading, Source, object, self.subscription, self.v.anything())
        paths.inheriting(self.v.rng.choice(kinds))

    def inherit_elsewhere(self) -> None:
        """Give the compiled `__anext__` to what it is not made for."""
        fields = {"__anext__": paths.Reading.__anext__}
        kind: Any = type("Other", (), fields) if self.v.flag() else SimpleNamespace(**fields)
        anext(paths.inheriting(kind)())


def v_choice(values: Values, good: Any) -> Any:
    """Return it, or nothing."""
    return good if values.rng.randrange(4) else None


def rounds(values: Values) -> Mapping[str, Callable[[], object]]:
    """Return a round for each method."""
    held = Held(values)
    offers = (held.offer, held.offer_at_once, held.offer_fast, held.offer_list, held.offer_column)
    reads = (held.anext, held.anext_at_once, held.hand_out_fast, held.read_fast, held.take)
    lists = (held.read_list, held.count_list)
    steps = (held.drive, held.iterate, held.throw, held.close, held.see, held.drop)
    cells = (held.make_cell, held.use_cell, held.release_cell)
    owners = (held.make_publication, held.make_subscription, held.attach, held.detach)
    odd = (held.collect, held.inherit, held.change_term, held.change_turn)
    found = {
        each.__name__: each for each in (*offers, *reads, *lists, *steps, *cells, *owners, *odd)
    }
    found |= {
        f"{each.__name__} again": each for each in (*offers, *reads, *lists, held.drive, held.drive)
    }
    found["change"] = partial(at_times, values, held.change)
    found["inherit_elsewhere"] = partial(at_times, values, held.inherit_elsewhere)
    return found


def at_times(values: Values, call: Callable[[], object]) -> None:
    """Call it one time out of eight."""
    if not values.rng.randrange(8):
        call()
