"""What services and callbacks raise is told once, by whoever is listened to first."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.testing.host import LINE_LENGTH_MAX, Failures, add_notes
from aeron_async.testing.virtual_clock import DeadlockError, TimeLimitError, VirtualLoop
from aeron_async.testing.world import World, simulate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aeron_async.testing.host import Host


@pytest.fixture
def failures() -> Iterator[Failures]:
    loop = VirtualLoop()
    yield Failures(loop)
    loop.close()


async def boom(host: Host) -> None:
    await asyncio.sleep(3)
    message = "boom\nand a second line"
    raise ValueError(message)


async def bang(host: Host) -> None:
    raise LookupError(host.name)


def test_an_error_carries_who_raised_it_once(failures: Failures) -> None:
    error = LookupError("x")
    failures.add(error, "service 'a' on host 'b'")
    failures.add(error, "service 'c' on host 'd'")
    assert failures.errors == [error, error]
    assert error.__notes__ == ["Raised by service 'a' on host 'b', at 0 virtual seconds."]
    assert failures.describe(error) == "service 'a' on host 'b' failed: LookupError: x"


def test_what_an_error_says_is_cut_to_a_line_of_bounded_length(failures: Failures) -> None:
    error = ValueError("x" * 1_000 + "\ny")
    line = failures.describe(error)
    assert line == f"a callback failed: ValueError: {'x' * LINE_LENGTH_MAX}"


def test_each_error_is_taken_once_and_services_before_callbacks(failures: Failures) -> None:
    first, second, third = (ValueError(number) for number in range(3))
    failures.errors.append(first)
    failures.add(second, "service 'a' on host 'b'")
    assert failures.take() == [second, first]
    failures.errors.append(third)
    assert failures.take() == [third]
    assert failures.take() == []


def test_one_error_is_raised_as_it_is_and_several_in_a_group_that_begins_with_the_first(
    failures: Failures,
) -> None:
    failures.raise_untold()
    alone = ValueError("alone")
    failures.add(alone, "service 'a' on host 'b'")
    with pytest.raises(ValueError, match="alone") as raised:
        failures.raise_untold()
    assert raised.value is alone
    failures.raise_untold()
    for number in range(10):
        failures.add(ValueError(number), f"service '{number}' on host 'b'")
    with pytest.raises(ExceptionGroup) as caught:
        failures.raise_untold()
    assert caught.value.message == (
        "unhandled exceptions: service '0' on host 'b' failed: ValueError: 0"
    )
    assert len(caught.value.exceptions) == 8


def test_a_failure_is_given_notes_of_no_error_that_it_tells_of_already() -> None:
    cause, context, grouped, other = (ValueError(name) for name in ("a", "b", "c", "other"))
    failure = ExceptionGroup("several", [grouped])
    failure.__cause__, failure.__context__ = cause, context
    # A circle is walked once.
    cause.__context__ = failure
    add_notes(failure, [cause, context, grouped, failure, other])
    (note,) = failure.__notes__
    assert note == "Beside that:\nValueError: other\n"


def test_a_failure_is_given_eight_notes_at_most() -> None:
    failure = KeyError()
    add_notes(failure, [ValueError(number) for number in range(20)])
    assert len(failure.__notes__) == 8


def test_a_deadlock_begins_with_who_failed_and_is_caused_by_the_first() -> None:
    async def story(world: World) -> None:
        world.loop.call_soon(lambda: 1 / 0)
        world.host("shop").start(boom)
        world.host("bank").start(bang)
        await asyncio.Event().wait()

    with pytest.raises(DeadlockError) as caught:
        simulate(story)
    assert str(caught.value).startswith(
        "service 'bang' on host 'bank' failed: LookupError: bank; "
        "service 'boom' on host 'shop' failed: ValueError: boom; "
        "a callback failed: ZeroDivisionError: division by zero; "
        "since then, nothing is scheduled, and these wait: "
    )
    assert isinstance(caught.value.__cause__, LookupError)
    boom_note, zero_note = caught.value.__notes__
    assert "ValueError: boom\nand a second line\nRaised by service 'boom' on host" in boom_note
    assert "ZeroDivisionError" in zero_note


def test_a_time_limit_tells_who_failed_too() -> None:
    async def story(world: World) -> None:
        world.host("shop").spawn(boom(world.host("shop")), name="seller")
        while True:
            await world.sleep(1)

    with pytest.raises(TimeLimitError, match=r"^task 'seller' on host 'shop' failed: V") as caught:
        simulate(story, limit_s=10)
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_task_that_nobody_awaits_is_named_where_it_failed() -> None:
    async def story(world: World) -> None:
        asyncio.create_task(boom(world.host("shop")), name="forgotten")  # noqa: RUF006 - it is forgotten
        await world.sleep(10)
        await asyncio.Event().wait()

    with pytest.raises(DeadlockError, match=r"^task 'forgotten' failed: ValueError: boom; since"):
        simulate(story)


def test_a_service_that_failed_fails_a_story_that_does_not_wait_for_it() -> None:
    async def story(world: World) -> None:
        world.host("shop").start(boom)
        await world.sleep(10)

    with pytest.raises(ExceptionGroup, match="service 'boom' on host 'shop' failed: V") as caught:
        simulate(story)
    (error,) = caught.value.exceptions
    assert error.__notes__[0].startswith("Raised by service 'boom' on host 'shop', at 3.0")


def test_a_service_that_fails_after_a_restart_is_named_again() -> None:
    async def story(world: World) -> None:
        shop = world.host("shop")
        shop.start(boom)
        await world.sleep(1)
        await shop.restart()
        await world.sleep(10)

    with pytest.raises(ExceptionGroup, match="service 'boom' on host 'shop' failed"):
        simulate(story)


def test_a_deadlock_without_failures_is_caused_by_nothing() -> None:
    async def story(world: World) -> Any:
        await asyncio.Event().wait()

    with pytest.raises(DeadlockError, match=r"^nothing is scheduled") as caught:
        simulate(story)
    assert caught.value.__cause__ is None
