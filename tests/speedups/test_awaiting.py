"""An offer and the next message are coroutines to their caller, in Python and compiled."""

from __future__ import annotations

import asyncio
import gc
import inspect
import sys
import types
import warnings
import weakref
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aeron_async.logbuffer.appender import SharedAppender
from tests.logbuffer.logs import MAX_PAYLOAD, NO_LIMIT, make_log, read_all
from tests.twins import compiled_twins, needs_compiled, pure_twins

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator


def in_python() -> Any:
    return SimpleNamespace(**vars(pure_twins()), FrameWriter=None)


BOTH = [
    pytest.param(in_python, id="pure"),
    pytest.param(compiled_twins, id="compiled", marks=needs_compiled),
]


@pytest.fixture(params=BOTH)
def twin(request: pytest.FixtureRequest) -> Any:
    return request.param()


@types.coroutine
def pause() -> Iterator[str]:
    """Wait for whoever drives."""
    yield "waits"


class Room:
    """Whether there is any, and what is done just before it is looked at."""

    def __init__(self) -> None:
        self.has_any = True
        self.first: Callable[[], object] | None = None

    def look(self) -> bool:
        if self.first is not None:
            self.first()
        return self.has_any


def make_publication(twin: Any) -> Any:
    """Return a publication of one twin, which waits for room by pausing."""

    class Publication(twin.Offering):  # type: ignore[misc] # chosen at run time
        def __init__(self) -> None:
            self.waiting_count = 0
            self.room = Room()
            self.numbers = count()
            self.log = make_log()
            # One that keeps where it is in the log, where the compiled offer finds it.
            self.appender = SharedAppender(self.log)
            self._is_closed = False
            self._calls_until_check = 2**60
            # Of all that a compiled offer uses, this is looked at first.
            self._home = twin.HomeLoop(SimpleNamespace(is_running=self.room.look))
            if twin.FrameWriter is not None:
                limit = twin.Cell(memoryview(bytearray(8)).cast("q"))
                limit[0] = NO_LIMIT
                lengths = {"max_payload_length": MAX_PAYLOAD, "max_message_length": 8_192}
                writer = twin.FrameWriter(self.log, **lengths)
                self._attach(writer, limit, twin.WakeFlag())

        def _offer(self, data: Any, reserved_value: int) -> int:
            return self.append(data, reserved_value) if self.room.look() else -1

        def append(self, data: Any, reserved_value: int) -> int:
            return self.appender.offer(data, limit=NO_LIMIT, reserved_value=reserved_value)

        async def _offer_waiting(self, data: Any, reserved_value: int, _: float | None) -> int:
            self.waiting_count += 1
            while not self.room.has_any:
                await pause()
            return self.append(data, reserved_value)

        def let_wait(self, *, is_full: bool) -> None:
            self.room.has_any = not is_full

        def ask(self) -> Coroutine[Any, Any, int]:
            return self.offer(b"%d" % next(self.numbers))  # type: ignore[no-any-return]

        def done(self) -> list[bytes]:
            return read_all(self.log)

    return Publication()


def make_subscription(twin: Any) -> Any:
    """Return a subscription of one twin to three messages, which waits for them by pausing."""

    class Source(twin.Taking):  # type: ignore[misc] # chosen at run time
        def __init__(self) -> None:
            self._position = 0
            self._trigger = NO_LIMIT
            self._is_closed = False
            self._attach(twin.Cell(memoryview(bytearray(8)).cast("q")), twin.WakeFlag())

    source = Source()

    class Subscription(twin.Reading):  # type: ignore[misc] # chosen at run time
        _taken: Any

        def __init__(self) -> None:
            self._is_closed = False
            self._calls_until_check = 2**60
            self._home = twin.HomeLoop(SimpleNamespace(is_running=lambda: True))
            messages = [twin.Message(b"%d" % n, 64 * n, 0, source) for n in (1, 2, 3)]
            self.ahead = twin.Batch(messages, source)
            self._batch = self.ahead

        async def _anext_waiting(self) -> Any:
            while self._batch is not self.ahead:
                await pause()
            if self._taken is not None:
                self._taken.image._take(self._taken.position)
            found = self.ahead.following()
            if found is None:
                raise StopAsyncIteration
            self._taken = found
            return found

        def let_wait(self, *, is_full: bool) -> None:
            self._batch = twin.NOTHING if is_full else self.ahead

        def ask(self) -> Coroutine[Any, Any, Any]:
            return self.__anext__()  # type: ignore[no-any-return]

        def done(self) -> int:
            return int(source._position)

    return Subscription()


def drive(coroutine: Any, value: object = None) -> tuple[object, object]:
    """Send a value; return what comes of it, in words."""
    try:
        return "yielded", coroutine.send(value)
    except StopIteration as stop:
        return "returned", stop.value if isinstance(stop.value, int) else stop.value.data
    except BaseException as error:  # noqa: BLE001 - what it is, is what is compared
        return type(error), str(error)


def call(method: Callable[..., object], *arguments: object) -> object:
    """Call a method; return what comes of it, in words."""
    try:
        return "returned", method(*arguments)
    except BaseException as error:  # noqa: BLE001 - likewise
        return type(error), str(error)


async def awaited(coroutine: Any) -> Any:
    return await coroutine


def await_once(coroutine: Any) -> object:
    """Await it from another coroutine, which is closed if it has to wait."""
    outer = awaited(coroutine)
    found = drive(outer)
    outer.close()
    return found


DEEDS: dict[str, Callable[[Any], object]] = {
    "send": drive,
    "send a value": lambda made: drive(made, "a value"),
    "await": await_once,
    "throw": lambda made: call(made.throw, KeyError("thrown")),
    "close": lambda made: call(made.close),
    "look": inspect.getcoroutinestate,
}
SCRIPTS = st.lists(
    st.tuples(st.sampled_from(["make", "make", "drop", "full", "room", *DEEDS]), st.integers(0, 3)),
    max_size=24,
)


def play(owner: Any, script: list[tuple[str, int]]) -> list[object]:
    """Do with the coroutines of one owner what a script says; return all that comes of it."""
    made: list[Any] = []
    found: list[object] = []
    for deed, which in [*script, *[("close", n) for n in range(len(script))]]:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            if deed == "make":
                made.append(owner.ask())
            elif deed in {"full", "room"}:
                owner.let_wait(is_full=deed == "full")
            elif which < len(made) and deed == "drop":
                del made[which]
            elif which < len(made):
                found.append(DEEDS[deed](made[which]))
        found.append([(w.category, "never awaited" in str(w.message)) for w in warned])
        found.append(owner.done())
    return found


@needs_compiled
@pytest.mark.parametrize("make", [make_publication, make_subscription])
@given(script=SCRIPTS)
@example(script=[("make", 0), ("drop", 0)])
@example(script=[("full", 0), ("make", 0), ("await", 0), ("send", 0)])
@example(script=[("full", 0), ("make", 0), ("send", 0), ("await", 0), ("room", 0), ("send", 0)])
@example(script=[("make", 0), ("look", 0), ("send", 0), ("make", 0), ("look", 1), ("drop", 1)])
@example(script=[("make", 0), ("send", 0), ("drop", 0), ("make", 0), ("drop", 0), ("make", 0)])
@example(script=[("make", 0), ("send a value", 0), ("send", 0), ("send", 0), ("throw", 0)])
def test_whatever_is_done_with_it_the_same_comes_of_it(
    make: Callable[[Any], Any], script: list[tuple[str, int]]
) -> None:
    assert play(make(in_python()), script) == play(make(compiled_twins()), script)


def test_made_and_not_awaited_it_has_done_nothing_and_is_warned_of(twin: Any) -> None:
    publication, subscription = make_publication(twin), make_subscription(twin)
    for owner in (publication, subscription):
        with pytest.warns(RuntimeWarning, match="never awaited"):
            owner.ask()
    assert publication.done() == []
    assert drive(subscription.ask()) == ("returned", b"1")


def test_only_what_has_to_wait_takes_the_long_way(twin: Any) -> None:
    publication = make_publication(twin)
    assert drive(publication.ask()) == ("returned", 64)
    assert publication.waiting_count == 0
    publication.let_wait(is_full=True)
    offer = publication.ask()
    assert drive(offer) == ("yielded", "waits")
    assert publication.done() == [b"0"]
    publication.let_wait(is_full=False)
    assert drive(offer) == ("returned", 128)
    assert publication.waiting_count == 1
    assert publication.done() == [b"0", b"1"]


def test_one_that_is_over_stays_over_when_others_are_made(twin: Any) -> None:
    for owner in (make_publication(twin), make_subscription(twin)):
        first = owner.ask()
        assert drive(first)[0] == "returned"
        second = owner.ask()
        assert second is not first
        assert drive(first)[0] is RuntimeError
        assert inspect.getcoroutinestate(first) == inspect.CORO_CLOSED
        assert inspect.getcoroutinestate(second) == inspect.CORO_CREATED
        assert drive(second)[0] == "returned"


def test_one_that_is_over_holds_nothing(twin: Any) -> None:
    class Data(bytearray):
        """One that can be watched."""

    publication, data = make_publication(twin), Data(b"watched")
    watched = weakref.ref(data), weakref.ref(publication)
    assert drive(publication.offer(data, reserved_value=7, timeout=5)) == ("returned", 64)
    held = publication.ask()
    assert drive(held) == ("returned", 128)
    del data
    assert watched[0]() is None
    del publication
    assert watched[1]() is None
    held.close()


def test_closed_before_its_first_step_it_has_done_nothing_without_a_warning(twin: Any) -> None:
    publication = make_publication(twin)
    for end in ("close", "throw"):
        offer = publication.ask()
        DEEDS[end](offer)
        assert DEEDS["look"](offer) == inspect.CORO_CLOSED
        assert drive(offer)[0] is RuntimeError
        del offer
    assert publication.done() == []


def test_what_is_refused_before_its_first_step_may_still_be_awaited(twin: Any) -> None:
    publication = make_publication(twin)
    offer = publication.ask()
    assert drive(offer, "a value")[0] is TypeError
    assert drive(offer) == ("returned", 64)


def test_it_cannot_be_driven_by_what_it_calls_itself(twin: Any) -> None:
    publication = make_publication(twin)
    offer = publication.ask()
    found: list[object] = []
    busy = (ValueError, "coroutine already executing")

    def drive_again() -> None:
        found.extend(DEEDS[deed](offer) for deed in ("send", "throw", "close", "look"))

    publication.room.first = drive_again
    assert drive(offer) == ("returned", 64)
    assert found == [busy, busy, busy, inspect.CORO_RUNNING]
    assert publication.done() == [b"0"]


def test_what_it_raises_at_once_ends_it(twin: Any) -> None:
    publication = make_publication(twin)

    def fail() -> None:
        message = "no loop"
        raise KeyError(message)

    publication.room.first = fail
    offer = publication.ask()
    assert drive(offer) == (KeyError, "'no loop'")
    assert drive(offer)[0] is RuntimeError
    assert publication.done() == []


async def test_a_task_that_is_cancelled_before_its_first_step_has_offered_nothing(
    twin: Any,
) -> None:
    publication = make_publication(twin)
    task = asyncio.ensure_future(publication.ask())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert publication.done() == []


async def test_offers_are_made_in_the_order_in_which_they_take_their_first_step(
    twin: Any,
) -> None:
    publication = make_publication(twin)
    task = asyncio.ensure_future(publication.ask())
    held = publication.ask()
    assert await publication.ask() == 64
    positions: list[int] = list(await asyncio.gather(publication.ask(), held))
    assert [await task, *positions] == [128, 192, 256]
    async with asyncio.TaskGroup() as group:
        group.create_task(publication.ask())
    async with anyio.create_task_group() as started:
        started.start_soon(publication.ask)
    assert await asyncio.wait_for(publication.ask(), 5) == 448
    assert publication.done() == [b"2", b"0", b"3", b"1", b"4", b"5", b"6"]


def test_a_task_that_waits_in_a_loop_that_is_gone_is_collected(twin: Any) -> None:
    publication = make_publication(twin)
    publication.let_wait(is_full=True)
    reports: list[dict[str, Any]] = []

    async def leave(publication: Any) -> None:
        waits = asyncio.get_running_loop().create_future()

        async def offer_waiting(*_: object) -> None:
            await waits

        publication._offer_waiting = offer_waiting
        # The task is in a cycle of its own: its future knows it, and it awaits the future.
        task = asyncio.ensure_future(publication.ask())
        watched.append(weakref.ref(task))
        await asyncio.sleep(0)

    watched: list[weakref.ref[Any]] = [weakref.ref(publication)]
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda _, context: reports.append(context))
    loop.run_until_complete(leave(publication))
    loop.close()
    del publication, loop
    gc.collect()
    assert [each() for each in watched] == [None, None]
    assert [each["message"] for each in reports] == ["Task was destroyed but it is pending!"]


def test_a_warning_that_is_an_error_is_told_and_ends_nothing(
    twin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    publication = make_publication(twin)
    told: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda each: told.append(str(each.exc_value)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        publication.ask()
    assert len(told) == 1
    assert "never awaited" in told[0]
    assert publication.done() == []
