"""The owner of background tasks, and what worker threads make."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest

from aeron_async.tasks import (
    TURN_NS,
    EagerStarter,
    Interruption,
    TaskOwner,
    Turns,
    make_in_thread,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable


async def forever(log: list[str], name: str) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        log.append(name)


async def test_an_owner_holds_a_task_until_it_has_ended() -> None:
    owner, may_end = TaskOwner(), asyncio.Event()
    task = owner.start(may_end.wait(), "waits")
    assert task.get_name() == "waits"
    assert len(owner) == 1
    assert owner.names == ["waits"]
    assert not await owner.has_ended(0)
    may_end.set()
    assert await task is True
    assert await owner.has_ended(60)
    await owner.wait()
    assert len(owner) == 0


async def test_closing_cancels_in_the_order_of_the_starts_and_waits() -> None:
    log: list[str] = []
    owner = TaskOwner()
    tasks = [owner.start(forever(log, name), name) for name in "abc"]
    await asyncio.sleep(0)
    await owner.aclose()
    assert log == ["a", "b", "c"]
    assert all(task.cancelled() for task in tasks)


async def test_closing_waits_for_a_task_that_starts_another_while_it_ends() -> None:
    log: list[str] = []
    owner = TaskOwner()

    async def heir() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            owner.start(forever(log, "heir"), "heir")

    owner.start(heir(), "first")
    await asyncio.sleep(0)
    await owner.aclose()
    assert len(owner) == 0


async def test_a_task_that_puts_off_its_cancellation_is_waited_for() -> None:
    done: list[bool] = []
    may_end = asyncio.Event()

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            may_end.set()
            await asyncio.sleep(0)
            done.append(True)

    owner = TaskOwner()
    owner.start(stubborn(), "stubborn")
    await asyncio.sleep(0)
    await owner.aclose()
    assert may_end.is_set()
    assert done == [True]


async def test_an_error_goes_to_the_owner() -> None:
    failed: list[asyncio.Task[Any]] = []
    owner = TaskOwner(failed.append)

    async def fail() -> None:
        message = "lost"
        raise ValueError(message)

    task = owner.start(fail(), "fails")
    cancelled = owner.start(forever([], "x"), "cancelled")
    await owner.start(asyncio.sleep(0), "ends")
    cancelled.cancel()
    await owner.wait()
    assert failed == [task]


async def test_a_block_ends_with_its_tasks_whatever_ends_it() -> None:
    log: list[str] = []

    async def block() -> None:
        async with TaskOwner() as tasks:
            tasks.start(forever(log, "inner"), "inner")
            await asyncio.sleep(0)
            message = "body"
            raise ValueError(message)

    with pytest.raises(ValueError, match="body"):
        await block()
    assert log == ["inner"]


async def test_a_task_neither_waits_for_its_own_owner_nor_closes_it() -> None:
    owner = TaskOwner()
    for method in (owner.wait, owner.aclose):
        with pytest.raises(AssertionError, match="cannot wait for itself"):
            await owner.start(method(), "own")


# Worker threads.


async def test_what_a_thread_makes_is_returned() -> None:
    discarded: list[int] = []
    assert await make_in_thread(threading.get_ident, discarded.append) != threading.get_ident()
    assert discarded == []
    with pytest.raises(ZeroDivisionError):
        await make_in_thread(lambda: 1 // 0, discarded.append)
    assert discarded == []


async def test_what_a_thread_makes_for_a_caller_that_was_cancelled_is_discarded_once() -> None:
    loop = asyncio.get_running_loop()
    is_begun, is_discarded, may_end = asyncio.Event(), asyncio.Event(), threading.Event()
    discarded: list[str] = []

    def make() -> str:
        loop.call_soon_threadsafe(is_begun.set)
        assert may_end.wait(60)
        return "made"

    def discard(thing: str) -> None:
        discarded.append(thing)
        loop.call_soon_threadsafe(is_discarded.set)

    making = asyncio.create_task(make_in_thread(make, discard))
    await is_begun.wait()
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making
    assert discarded == []
    may_end.set()
    await is_discarded.wait()
    assert discarded == ["made"]


async def test_what_a_thread_has_made_when_its_caller_is_cancelled_is_discarded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run_sync(work: Callable[[], Any], **_: object) -> Any:
        work()
        await asyncio.Event().wait()

    monkeypatch.setattr(anyio.to_thread, "run_sync", run_sync)
    discarded: list[str] = []
    making = asyncio.create_task(make_in_thread(lambda: "made", discarded.append))
    await asyncio.sleep(0)
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making
    assert discarded == ["made"]


async def test_steps_share_the_loop_by_time() -> None:
    now_ns = 0
    turns = Turns(lambda: now_ns)
    others = 0

    async def other() -> None:
        nonlocal others
        while True:
            others += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    for _ in range(10):
        await turns.step()
    assert others == 0
    for step in range(1, 4):
        now_ns += TURN_NS
        await turns.step()
        await turns.step()
        assert others == step
    now_ns += TURN_NS - 1
    await turns.step()
    assert others == 3
    task.cancel()


VARIABLE: ContextVar[str] = ContextVar("VARIABLE", default="outer")


@asynccontextmanager
async def eager() -> AsyncGenerator[tuple[EagerStarter, TaskOwner], None]:
    async with TaskOwner() as keeper, TaskOwner() as owner:
        yield EagerStarter(owner, keeper), owner


async def seen_by(story: list[Any], pause: Callable[[], Awaitable[object]] | None) -> str:
    """Note what a coroutine sees before and after it waits."""
    for _ in range(2):
        story.append((asyncio.current_task(), VARIABLE.get()))
        token = VARIABLE.set("inner")
        if pause is not None:
            await pause()
        story.append((asyncio.current_task(), VARIABLE.get()))
        VARIABLE.reset(token)
    return "done"


async def test_what_does_not_wait_is_run_at_once_and_has_no_task_of_its_own() -> None:
    async with eager() as (starter, owner):
        caller = asyncio.current_task()
        stories: list[list[Any]] = [[], []]
        for story in stories:
            assert starter.start(seen_by(story, None), "x") == (None, "done")
            assert [value for _, value in story] == ["outer", "inner"] * 2
        assert {task for story in stories for task, _ in story} == {starter._spare}
        assert asyncio.current_task() is caller
        assert VARIABLE.get() == "outer"
        assert len(owner) == 0


@pytest.mark.parametrize("pause", [lambda: asyncio.sleep(0), lambda: asyncio.sleep(0.001)])
async def test_what_waits_goes_on_in_the_task_that_it_saw_from_the_beginning(pause: Any) -> None:
    async with eager() as (starter, owner):
        stories: list[list[Any]] = [[] for _ in range(5)]
        tasks = [starter.start(seen_by(story, pause), "waits")[0] for story in stories]
        assert len(owner) == 5
        assert VARIABLE.get() == "outer"
        for story, task in zip(stories, tasks, strict=True):
            assert task is not None
            assert await task == "done"
            assert task.get_name() == "waits"
            assert {each for each, _ in story} == {task}
            assert [value for _, value in story] == ["outer", "inner"] * 2
        await asyncio.sleep(0)
        assert len(owner) == 0


async def test_an_error_before_the_first_wait_is_raised_and_one_after_it_ends_the_task() -> None:
    async def fail(pause: float | None) -> None:
        if pause is not None:
            await asyncio.sleep(pause)
        raise LookupError

    async with eager() as (starter, _):
        with pytest.raises(LookupError):
            starter.start(fail(None), "x")
        task, _ = starter.start(fail(0), "x")
        assert task is not None
        with pytest.raises(LookupError):
            await task


@pytest.mark.parametrize("turns", [0, 1, 2])
async def test_a_cancelled_task_ends_what_has_begun(turns: int) -> None:
    log: list[str] = []
    async with eager() as (starter, _):
        for _ in range(turns):
            await asyncio.sleep(0)
        task, _ = starter.start(forever(log, "ended"), "x")
        assert task is not None
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert log == ["ended"]


async def test_a_task_that_cancels_itself_at_once_spoils_no_other() -> None:
    async def cancels_itself() -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return "done"

    async with eager() as (starter, _):
        for _ in range(3):
            assert starter.start(cancels_itself(), "x") == (None, "done")
            task, _ = starter.start(seen_by([], lambda: asyncio.sleep(0)), "x")
            assert task is not None
            assert await task == "done"


async def test_a_timeout_ends_what_waits_within_it() -> None:
    async def slow() -> str:
        try:
            async with asyncio.timeout(0.001):
                await asyncio.Event().wait()
        except TimeoutError:
            return "late"
        return "never"

    async with eager() as (starter, _):
        task, _ = starter.start(slow(), "x")
        assert task is not None
        assert await task == "late"


async def test_one_may_start_another() -> None:
    async with eager() as (starter, owner):
        inner: list[Any] = []

        async def outer() -> str:
            inner.append(starter.start(seen_by([], lambda: asyncio.sleep(0)), "inner")[0])
            await asyncio.sleep(0)
            inner.append(starter.start(seen_by([], None), "inner")[1])
            return "outer"

        task, _ = starter.start(outer(), "outer")
        assert task is not None
        assert task is not inner[0]
        assert await task == "outer"
        assert await inner[0] == inner[1] == "done"
        await asyncio.sleep(0)
        assert len(owner) == 0


async def test_a_starter_goes_on_when_all_tasks_were_cancelled() -> None:
    async with eager() as (starter, _):
        starter._spare.cancel()
        await asyncio.sleep(0)
        task, _ = starter.start(seen_by([], lambda: asyncio.sleep(0)), "x")
        assert task is not None
        assert await task == "done"


@pytest.mark.parametrize("is_gathered", [False, True])
@pytest.mark.parametrize("is_own", [False, True])
@pytest.mark.parametrize("turns", [0, 1])
async def test_a_task_cancelled_before_it_waits_cancels_what_it_awaits(
    turns: int, *, is_own: bool, is_gathered: bool
) -> None:
    log: list[str] = []

    async def child() -> None:
        log.append("began")
        await forever(log, "ended")

    async def parent() -> None:
        children = [asyncio.ensure_future(child()) for _ in range(2)]
        if is_own:
            own = asyncio.current_task()
            assert own is not None
            own.cancel("why")
        for each in [asyncio.gather(*children)] if is_gathered else children[:1]:
            await each

    async with eager() as (starter, _):
        for _ in range(turns):
            await asyncio.sleep(0)
        before = asyncio.all_tasks()
        task, _ = starter.start(parent(), "x")
        assert task is not None
        if not is_own:
            task.cancel("why")
        children = asyncio.all_tasks() - before - {task, starter._spare}
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(children) == 2
        assert sum(each.cancelled() for each in children) == 1 + is_gathered
        for each in children:
            each.cancel()
        await asyncio.wait(children)


@pytest.mark.parametrize("turns", [0, 1])
async def test_a_scope_of_anyio_cancels_the_first_wait(turns: int) -> None:
    async def cancelled() -> bool:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await anyio.lowlevel.checkpoint()
        return scope.cancelled_caught

    async with eager() as (starter, _):
        for _ in range(turns):
            await asyncio.sleep(0)
        for _ in range(2):
            task, _ = starter.start(cancelled(), "x")
            assert task is not None
            assert await task is True
            assert task.cancelling() == 0


class BrokenError(Exception):
    pass


async def interrupted(
    block: Callable[[Interruption], Awaitable[object]], *, also_cancelled: bool = False
) -> asyncio.Task[object]:
    """Run a block in a task of its own, interrupt it once it waits, and return the ended task."""
    entered: asyncio.Future[Interruption] = asyncio.get_running_loop().create_future()

    async def run() -> object:
        async with Interruption() as interruption:
            entered.set_result(interruption)
            return await block(interruption)

    task: asyncio.Task[object] = asyncio.ensure_future(run())
    interruption = await entered
    interruption.interrupt(BrokenError("first"))
    interruption.interrupt(BrokenError("second"))
    if also_cancelled:
        task.cancel()
    await asyncio.wait([task])
    return task


async def test_an_interrupted_block_ends_with_the_error_and_is_not_cancelled() -> None:
    async def sleeps(_: Interruption) -> None:
        await asyncio.sleep(60)

    task = await interrupted(sleeps)
    assert not task.cancelled()
    assert isinstance(task.exception(), BrokenError)
    assert str(task.exception()) == "first"
    assert task.cancelling() == 0


async def test_a_block_that_another_cancels_too_is_cancelled() -> None:
    async def sleeps(_: Interruption) -> None:
        await asyncio.sleep(60)

    task = await interrupted(sleeps, also_cancelled=True)
    assert task.cancelled()


async def test_the_message_of_who_cancels_an_interrupted_block_is_kept() -> None:
    """Libraries tell by it whether a cancelling is theirs."""

    async def run() -> tuple[object, ...]:
        task = asyncio.current_task()
        assert task is not None
        try:
            async with Interruption() as interruption:
                interruption.interrupt(BrokenError())
                task.cancel("theirs")
                await asyncio.sleep(60)
        except asyncio.CancelledError as error:
            return error.args
        raise AssertionError

    assert await asyncio.ensure_future(run()) == ("theirs",)


async def test_an_interrupted_block_may_raise_another_error_and_cannot_go_on() -> None:
    async def fails(_: Interruption) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise LookupError from None

    async def swallows(_: Interruption) -> str:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        return "done"

    task = await interrupted(fails)
    assert isinstance(task.exception(), LookupError)
    task = await interrupted(swallows)
    assert isinstance(task.exception(), BrokenError)
    assert task.cancelling() == 0


@pytest.mark.parametrize("fails", [False, True])
async def test_a_block_that_ends_before_its_task_was_cancelled(*, fails: bool) -> None:
    """Nothing that is left over cancels what comes behind the block."""

    async def run() -> None:
        async with Interruption() as interruption:
            interruption.interrupt(BrokenError())
            if fails:
                raise LookupError

    task = asyncio.ensure_future(run())
    await asyncio.wait([task])
    assert isinstance(task.exception(), LookupError if fails else BrokenError)
    assert task.cancelling() == 0


async def test_behind_its_block_and_in_another_task_nothing_is_interrupted() -> None:
    async with Interruption() as over:
        pass
    over.interrupt(BrokenError())
    await asyncio.sleep(0)
    interruption = Interruption()
    interruption.interrupt(BrokenError())

    async def enter() -> None:
        await interruption.__aenter__()

    await asyncio.ensure_future(enter())
    interruption.interrupt(BrokenError())
    await interruption.__aexit__(None, None, None)
    await asyncio.sleep(0)
