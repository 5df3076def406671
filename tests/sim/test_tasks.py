"""Who waits, and where: in lines of the one who reads them."""

from __future__ import annotations

import asyncio
import os
from types import SimpleNamespace, coroutine
from typing import TYPE_CHECKING, Any, cast

import anyio
import pytest

from aeron_async.testing.tasks import PACKAGES, describe_task, describe_tasks, is_users
from aeron_async.testing.virtual_clock import DeadlockError, run_virtual
from aeron_async.testing.world import World, simulate

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import FrameType

    from aeron_async.testing.host import Host

CHANNEL = "aeron:udp?endpoint=0.0.0.0:20121"


def line_of(text: str) -> int:
    """Return the number of the line of this file that ends with a text."""
    with open(__file__, encoding="utf-8") as file:  # noqa: PTH123 - one line
        return next(number for number, line in enumerate(file, 1) if line.rstrip().endswith(text))


async def listen(host: Host) -> None:
    async with host.aeron() as aeron:
        subscription = await aeron.add_subscription(CHANNEL, 1)
        await anext(subscription)  # listens here


def test_a_task_that_waits_within_the_library_is_shown_where_its_user_called_it() -> None:
    async def story(world: World) -> None:
        listening = world.host("alice").start(listen)
        world.loop.create_task(listen(world.host("bob")))
        await listening

    # Nobody sends anything to anybody.
    with pytest.raises(DeadlockError) as caught:
        simulate(story)
    told = str(caught.value)
    place = f"{__file__}:{line_of('# listens here')}"
    assert f"; alice-listen at {place}; " in told
    assert f" (listen) at {place}; " in told
    assert told.endswith("; and 6 agents of drivers")
    assert "aeron-" not in told


def test_a_task_without_a_line_of_its_users_is_shown_where_it_waits_in_the_library() -> None:
    async def story(world: World) -> str:
        async with world.host("alice").aeron() as aeron:
            publication = await aeron.add_publication("aeron:udp?endpoint=alice:1", 1)
            offering = asyncio.create_task(publication.offer(b""))
            await world.sleep(1)
            told = describe_task(offering)
            offering.cancel()
        return told

    told = simulate(story)
    assert "(Publication.offer) at " in told
    assert f"{os.sep}aeron_async{os.sep}client{os.sep}" in told


def test_a_task_that_waits_for_anyio_is_shown_where_its_user_called_it() -> None:
    async def main() -> str:
        async def sleep() -> None:
            await anyio.sleep(1)  # sleeps here

        task = asyncio.create_task(sleep(), name="sleeper")
        await asyncio.sleep(0)
        told = describe_task(task)
        await task
        return told

    assert run_virtual(main()) == f"sleeper at {__file__}:{line_of('# sleeps here')}"


def test_generators_that_stand_for_coroutines_are_looked_into() -> None:
    @coroutine
    def old() -> Generator[Any, None, None]:
        yield from asyncio.sleep(1).__await__()  # waits here

    async def main() -> str:
        async def new() -> None:
            await old()

        task = asyncio.create_task(new(), name="old and new")
        await asyncio.sleep(0)
        told = describe_task(task)
        await task
        return told

    assert run_virtual(main()) == f"old and new at {__file__}:{line_of('# waits here')}"


def test_a_single_agent_is_counted_and_so_are_agents_alone() -> None:
    async def story(world: World) -> tuple[str, str]:
        async with world.host("alice").aeron():
            agents = [task for task in asyncio.all_tasks() if "aeron-" in task.get_name()]
            return describe_tasks(agents), describe_tasks(agents[:1])

    assert simulate(story) == ("3 agents of drivers", "1 agent of drivers")


def test_agents_are_named_where_everybody_is_busy() -> None:
    async def story(world: World) -> str:
        async with world.host("alice").aeron():
            return describe_tasks(asyncio.all_tasks(), has_agents=True)

    told = simulate(story)
    assert "aeron-sender at " in told
    assert "agents of drivers" not in told


def test_nobody_is_no_task() -> None:
    assert describe_tasks(()) == "no task"


def frame(file: str) -> FrameType:
    return cast("FrameType", SimpleNamespace(f_code=SimpleNamespace(co_filename=file)))


def test_packages_within_the_standard_library_are_users_own() -> None:
    inside = os.path.dirname(os.__file__)  # noqa: PTH120 - paths of frames are text
    assert not is_users(frame(f"{inside}{os.sep}asyncio{os.sep}locks.py"))
    assert not is_users(frame("<frozen runpy>"))
    assert not is_users(frame(anyio.__file__))
    assert is_users(frame(f"{inside}{os.sep}site-packages{os.sep}shop.py"))
    assert is_users(frame("/home/me/shop.py"))
    assert PACKAGES.search(r"C:\Lib\site-packages\shop.py")
