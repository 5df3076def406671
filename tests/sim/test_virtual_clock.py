"""Virtual time: order, deadlines, standing still, and what is said of those who wait for ever."""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from aeron_async.clock import NS_PER_SECOND
from aeron_async.testing import virtual_clock
from aeron_async.testing.tasks import describe_task
from aeron_async.testing.virtual_clock import (
    OWNER,
    TURN_NS,
    DeadlockError,
    LivelockError,
    TimeLimitError,
    VirtualLoop,
    VirtualTime,
    run_virtual,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


class VirtualUvLoop(VirtualTime, uvloop.Loop):  # type: ignore[misc]  # the two loops differ in details
    """Virtual time over uvloop."""


@pytest.fixture(params=[VirtualLoop, VirtualUvLoop])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Run a coroutine on a loop of either kind."""

    def run_it(main: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(main)

    return run_it


def virtual_loop() -> VirtualTime:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTime)
    return loop


def test_a_year_passes_at_once(run: Callable[..., Any]) -> None:
    async def main() -> float:
        await asyncio.sleep(365 * 86_400)
        return asyncio.get_running_loop().time()

    assert run(main()) == pytest.approx(365 * 86_400, abs=0.001)


def test_callbacks_run_first_come_first_served(run: Callable[..., Any]) -> None:
    async def main() -> list[int]:
        order: list[int] = []
        loop = virtual_loop()
        when_ns = loop.now_ns + NS_PER_SECOND
        for number in (1, 2, 3):
            loop.call_at_ns(when_ns, order.append, number)
        loop.call_at(when_ns / NS_PER_SECOND, order.append, 4)
        loop.call_later(0.5, order.append, 0)
        for number in (-3, -2, -1):
            loop.call_soon(order.append, number)
        await asyncio.sleep(2)
        return order

    assert run(main()) == [-3, -2, -1, 0, 1, 2, 3, 4]


def test_what_a_callback_asks_for_runs_after_what_was_asked_before(
    run: Callable[..., Any],
) -> None:
    async def main() -> list[str]:
        order: list[str] = []
        loop = virtual_loop()

        def first() -> None:
            order.append("first")
            loop.call_soon(order.append, "third")

        loop.call_soon(first)
        loop.call_soon(order.append, "second")
        await asyncio.sleep(1)
        return order

    assert run(main()) == ["first", "second", "third"]


def test_a_turn_takes_time_so_that_near_deadlines_come(run: Callable[..., Any]) -> None:
    async def main() -> int:
        loop = virtual_loop()
        came = asyncio.Event()
        loop.call_at_ns(loop.now_ns + 10 * TURN_NS, came.set)
        turns = loop.turn_count
        while not came.is_set():
            await asyncio.sleep(0)
        return loop.turn_count - turns

    assert run(main()) == pytest.approx(10, abs=1)


def test_a_cancelled_callback_does_not_run(run: Callable[..., Any]) -> None:
    async def main() -> list[int]:
        ran: list[int] = []
        loop = asyncio.get_running_loop()
        loop.call_soon(ran.append, 1).cancel()
        loop.call_later(1, ran.append, 2).cancel()
        await asyncio.sleep(2)
        return ran

    assert run(main()) == []


def test_cancelled_timers_are_forgotten() -> None:
    async def main() -> list[int]:
        loop = virtual_loop()
        kept = [loop.call_later(500 + number, int) for number in range(10)]
        for number in range(10_000):
            loop.call_later(1_000 + number, int).cancel()
        counts = [len(loop._timers)]
        for timer in kept:
            timer.cancel()
        # They are the first to come, and are passed over.
        await asyncio.sleep(600)
        return [*counts, loop.now_ns // NS_PER_SECOND]

    left, now_s = run_virtual(main())
    assert left < 150
    assert now_s == 600


def test_a_deadlock_names_the_waiting_tasks(run: Callable[..., Any]) -> None:
    async def wait_for_godot() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(10):
                group.create_task(wait_for_godot(), name=f"vladimir-{number}")

    with pytest.raises(DeadlockError, match="nothing is scheduled") as caught:
        run(main())
    assert f"vladimir-1 at {__file__}:" in str(caught.value)
    assert "; and 3 more" in str(caught.value)


def test_a_livelock_names_the_busy_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual_clock, "TURNS_WITHOUT_TIMER_MAX", 1_000)

    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.create_task(spin(), name="dog")

    with pytest.raises(LivelockError, match=r"1001 turns without a pause: .*dog at ") as caught:
        run_virtual(main())
    assert __file__ in str(caught.value)


def test_being_busy_for_long_is_no_livelock_where_there_are_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(virtual_clock, "TURNS_WITHOUT_TIMER_MAX", 100)

    async def main() -> None:
        for _ in range(10):
            for _ in range(80):
                await asyncio.sleep(0)
            await asyncio.sleep(1)

    run_virtual(main())


def test_the_loop_goes_on_after_a_failure() -> None:
    async def stuck() -> None:
        await asyncio.Event().wait()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        for _ in range(2):
            with pytest.raises(DeadlockError, match="nothing is scheduled"):
                runner.run(stuck())
        assert runner.run(asyncio.sleep(1, "well")) == "well"


def test_another_error_of_the_loop_is_its_own(run: Callable[..., Any]) -> None:
    async def main() -> None:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(1)

    with pytest.raises(RuntimeError, match="stopped before Future completed"):
        run(main())


def test_time_stops_at_its_limit_once() -> None:
    async def main() -> None:
        try:
            while True:
                await asyncio.sleep(10)
        finally:
            # Cleaning up takes time too.
            await asyncio.sleep(100)

    async def limited() -> None:
        virtual_loop().limit_ns = 60 * NS_PER_SECOND
        await main()

    with pytest.raises(TimeLimitError, match=r"^60 virtual seconds have passed: ") as caught:
        run_virtual(limited())
    assert f" at {__file__}:" in str(caught.value)


def test_a_timeout_is_of_virtual_time() -> None:
    with pytest.raises(TimeoutError):
        run_virtual(asyncio.sleep(100), timeout_ns=NS_PER_SECOND)
    assert run_virtual(asyncio.sleep(100, "done"), timeout_ns=101 * NS_PER_SECOND) == "done"


def test_who_is_held_stands_still_and_goes_on_in_order() -> None:
    async def main() -> tuple[list[int], list[int], list[int]]:
        loop = virtual_loop()
        context = copy_context()
        context.run(OWNER.set, "bob")
        bobs: list[int] = []
        others: list[int] = []

        async def count() -> None:
            for number in range(3):
                bobs.append(number)
                await asyncio.sleep(1)

        task = loop.create_task(count(), context=context)
        await asyncio.sleep(0.5)
        loop.hold("bob")
        loop.hold("bob")
        for number in (10, 11):
            loop.call_later(number, bobs.append, number, context=context)
            loop.call_later(number, others.append, number)
        await asyncio.sleep(60)
        while_held = list(bobs)
        loop.release("bob")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        at_once = list(bobs)
        await task
        loop.release("bob")
        assert others == [10, 11]
        return while_held, at_once, bobs

    assert run_virtual(main()) == ([0], [0, 10, 11, 1], [0, 10, 11, 1, 2])


def test_tasks_of_a_group_are_cancelled_in_the_same_order_every_time(
    run: Callable[..., Any],
) -> None:
    async def main() -> list[int]:
        order: list[int] = []

        async def wait(number: int) -> None:
            try:
                await asyncio.sleep(100)
            finally:
                order.append(number)

        async def cancel() -> None:
            await asyncio.sleep(1)
            raise LookupError

        async def wait_together() -> None:
            async with asyncio.TaskGroup() as group:
                for number in range(50):
                    group.create_task(wait(number), name=f"waiting {number}")
                group.create_task(cancel())

        with pytest.raises(ExceptionGroup):
            await wait_together()
        return order

    orders = {tuple(run(main())) for _ in range(5)}
    assert len(orders) == 1


def test_a_task_factory_of_the_users_is_used(run: Callable[..., Any]) -> None:
    made: list[str] = []

    class OwnTask(asyncio.Task[Any]):
        pass

    def factory(loop: Any, coro: Any, **options: Any) -> Any:
        made.append("made")
        return OwnTask(coro, loop=loop, **options)

    async def main() -> bool:
        loop = asyncio.get_running_loop()
        loop.set_task_factory(factory)
        task = loop.create_task(asyncio.sleep(1), name="own")
        loop.set_task_factory(None)
        await task
        return isinstance(task, OwnTask)

    assert run(main())
    assert made == ["made"]


def test_a_closed_loop_takes_no_tasks() -> None:
    loop = VirtualLoop()
    loop.close()
    coroutine = asyncio.sleep(1)
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        loop.create_task(coroutine)
    coroutine.close()


def test_threads_and_executors_live_in_virtual_time(run: Callable[..., Any]) -> None:
    async def main() -> tuple[int, list[int]]:
        loop = asyncio.get_running_loop()
        ran: list[int] = []
        loop.call_soon_threadsafe(ran.append, 1)
        answer = await loop.run_in_executor(None, divmod, 7, 2)
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(None, divmod, 7, 0)
        await asyncio.sleep(1)
        return answer[0], ran

    assert run(main()) == (3, [1])


def test_waiting_tasks_are_named_in_the_order_they_were_made() -> None:
    async def main() -> None:
        loop = virtual_loop()
        loop.set_task_factory(
            lambda loop, coro, **options: asyncio.Task(coro, loop=loop, **options)
        )
        foreign = loop.create_task(asyncio.Event().wait(), name="a foreign one")
        loop.set_task_factory(None)
        async with asyncio.TaskGroup() as group:
            for name in ("c", "b", "Task-10", "Task-9"):
                group.create_task(asyncio.Event().wait(), name=name)
        await foreign

    with pytest.raises(DeadlockError) as caught:
        run_virtual(main())
    names = [each.partition(" at ")[0] for each in str(caught.value).split("; ")]
    unnamed = ["Task-10 (Event.wait)", "Task-9 (Event.wait)"]
    assert names[-5:] == ["c", "b", *unnamed, "a foreign one"]


def test_tasks_are_named_wherever_they_are() -> None:
    async def never() -> None:
        raise AssertionError

    async def nothing() -> None:
        return

    async def main() -> tuple[str, str]:
        unborn = asyncio.create_task(never(), name="unborn")
        done = asyncio.create_task(nothing(), name="done")
        told = describe_task(unborn)
        unborn.cancel()
        await done
        return told, describe_task(done)

    unborn, done = run_virtual(main())
    assert unborn.startswith(f"unborn at {__file__}:")
    assert done == "done at its end"


def test_an_interrupt_does_not_make_time_pass_twice() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    loop = VirtualLoop()
    asyncio.SelectorEventLoop.call_soon(loop, interrupt)
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    turns: list[int] = []
    for _ in range(200):
        loop.call_soon(turns.append, 1)
    loop.call_later(1, loop.stop)
    loop.run_forever()
    loop.close()
    assert len(turns) == 200
