"""Whole drivers in a bottle."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from aeron_async.clock import NS_PER_SECOND
from aeron_async.errors import ConfigurationError
from aeron_async.testing import world as world_module
from aeron_async.testing.fates import Conditions
from aeron_async.testing.virtual_clock import DeadlockError, VirtualLoop, VirtualTime
from aeron_async.testing.world import World, simulate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ROOT = Path(__file__).parent.parent.parent
CHANNEL = "aeron:udp?endpoint=bob:20121|term-length=64k"
MESSAGES = [bytes([number % 256]) * (number % 300) for number in range(2_000)]


class VirtualUvLoop(VirtualTime, uvloop.Loop):  # type: ignore[misc]  # the two loops differ in details
    """Virtual time over uvloop."""


async def exchange(world: World) -> tuple[list[bytes], str]:
    alice, bob = world.host("alice"), world.host("bob")
    async with alice.aeron() as sending, bob.aeron() as receiving:
        subscription = await receiving.add_subscription(CHANNEL, 1)
        publication = await sending.add_publication(CHANNEL, 1)
        offering = asyncio.create_task(publication.offer_many(MESSAGES))
        received = [bytes((await anext(subscription)).data) for _ in MESSAGES]
        await offering
    return received, world.network.trace.digest()


@pytest.mark.parametrize("loop_factory", [VirtualLoop, VirtualUvLoop])
def test_a_bad_link_loses_no_message(loop_factory: Callable[[], Any]) -> None:
    conditions = Conditions(loss=0.2, duplication=0.1, reordering=0.1)
    received, _ = simulate(exchange, seed=1, conditions=conditions, loop_factory=loop_factory)
    assert received == MESSAGES


def test_a_seed_tells_the_same_story_on_either_loop() -> None:
    conditions = Conditions(loss=0.2)
    digests = {
        simulate(exchange, seed=2, conditions=conditions, loop_factory=factory)[1]
        for factory in (VirtualLoop, VirtualUvLoop, VirtualLoop)
    }
    assert len(digests) == 1
    assert simulate(exchange, seed=3, conditions=conditions)[1] not in digests


def test_nothing_is_kept_of_a_world_that_is_over() -> None:
    """A process that runs a hundred thousand of them needs the memory of one."""
    worlds: list[weakref.ref[World]] = []

    async def story(world: World) -> None:
        worlds.append(weakref.ref(world))
        # A timer is still set when the loop is closed, and holds all that its context holds.
        world.loop.call_at_ns(world.now_ns + 3_600 * NS_PER_SECOND, lambda: world)
        await exchange(world)

    simulate(story)
    gc.collect()
    assert worlds[0]() is None


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_another_process_tells_the_same_story(hash_seed: str) -> None:
    program = (
        "from tests.sim.test_world import *\n"
        "print(simulate(exchange, seed=2, conditions=Conditions(loss=0.2))[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        # Without those of coverage, which imports asyncio twice where a subpackage is measured.
        env={"PATH": os.environ["PATH"], "PYTHONHASHSEED": hash_seed},
    )
    assert done.returncode == 0, done.stderr
    _, digest = simulate(exchange, seed=2, conditions=Conditions(loss=0.2))
    assert done.stdout.splitlines()[-1] == digest


def run(story: Callable[[World], Awaitable[Any]]) -> Any:
    return simulate(story)


def test_a_world_needs_virtual_time() -> None:
    async def main() -> None:
        with pytest.raises(ConfigurationError, match="needs a VirtualLoop, and this is a _Unix"):
            World()

    asyncio.run(main())


def test_a_host_is_made_once_and_its_name_resolves() -> None:
    async def story(world: World) -> None:
        alice = world.host("alice")
        assert world.host("alice") is alice
        assert alice.address == "10.0.0.1"
        carol = world.host("carol", "fd00::1", "10.1.1.1")
        assert carol.address == "fd00::1"
        assert world.host("dave").address == "10.0.0.3"
        assert world.hosts == (alice, carol, world.host("dave"))
        assert await alice.machine.resolve("carol", 1) == ("fd00::1", 1)

    run(story)


def test_a_world_has_room_for_so_many_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world_module, "HOSTS_MAX", 300)

    async def story(world: World) -> None:
        for number in range(300):
            world.host(f"host{number}")
        assert world.host("host299").address == "10.0.1.44"
        with pytest.raises(ConfigurationError, match="a world has 300 hosts at most"):
            world.host("one more")

    run(story)


def ups(world: World) -> set[str]:
    """Return the links that are up, by the initials of their hosts."""
    return {
        f"{source.name}{destination.name}"
        for source in world.hosts
        for destination in world.hosts
        if source is not destination and world.link(source, destination).is_up
    }


def test_a_partition_cuts_some_off_from_the_others() -> None:
    async def story(world: World) -> None:
        a, b, _ = (world.host(name) for name in "abc")
        whole = ups(world)
        world.partition(a, b)
        assert ups(world) == {"ab", "ba"}
        world.heal()
        assert ups(world) == whole
        with world.partitioned(a, is_one_way=True):
            assert ups(world) == whole - {"ab", "ac"}
        assert ups(world) == whole

    run(story)


def test_partitions_nest_and_each_undoes_only_its_own_cuts() -> None:
    async def story(world: World) -> None:
        a, b, c = (world.host(name) for name in "abc")
        whole = ups(world)
        world.partition(a)
        # Another partition switches nothing on, one-way or not.
        world.partition(b, is_one_way=True)
        assert ups(world) == {"cb"}
        with world.partitioned(a), world.partitioned(c):
            assert ups(world) == set()
        assert ups(world) == {"cb"}
        world.heal()
        assert ups(world) == whole

    run(story)


def test_partitions_overlap_and_the_last_to_end_heals() -> None:
    async def story(world: World) -> None:
        a, b, _ = (world.host(name) for name in "abc")
        whole = ups(world)
        first, second = world.partitioned(a), world.partitioned(a, b)
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert ups(world) == {"ab", "ba"}
        second.__exit__(None, None, None)
        assert ups(world) == whole

    run(story)


def test_healing_inside_a_partition_ends_it_for_good() -> None:
    async def story(world: World) -> None:
        a, *_ = (world.host(name) for name in "abc")
        whole = ups(world)
        with world.partitioned(a):
            world.heal()
            assert ups(world) == whole
            world.partition(a)
        assert ups(world) == {"bc", "cb"}
        world.link(a, world.host("b")).is_up = True
        assert ups(world) == {"bc", "cb", "ab"}

    run(story)


def test_conditions_change_for_some_or_for_all() -> None:
    async def story(world: World) -> None:
        a, b, c = (world.host(name) for name in "abc")
        world.set_conditions(Conditions(loss=0.5), a, b)
        assert world.link(a, b).conditions.loss == 0.5
        assert world.link(b, a).conditions.loss == 0.5
        assert world.link(a, c).conditions.loss == 0
        world.set_conditions(Conditions(loss=0.1))
        assert world.link(c, a).conditions.loss == 0.1

    run(story)


def test_what_callbacks_raise_comes_out_at_the_end() -> None:
    def fail() -> None:
        raise LookupError

    async def story(world: World) -> None:
        world.loop.call_soon(fail)
        world.loop.call_exception_handler({"message": "no exception"})
        await world.sleep(1)

    with pytest.raises(ExceptionGroup, match="unhandled exceptions") as caught:
        run(story)
    assert [type(each) for each in caught.value.exceptions] == [RuntimeError, LookupError]


def break_stop(host: Any) -> None:
    """Let the end of a host fail when it is over."""
    stop = host.stop

    async def stop_and_fail() -> None:
        await stop()
        raise LookupError(host.name)

    host.stop = stop_and_fail


def test_every_host_is_stopped_whatever_fails_and_each_error_is_raised_once() -> None:
    async def story(world: World) -> None:
        hosts = [world.host(name) for name in "abc"]
        drivers = [host.driver() for host in hosts]
        for driver in drivers:
            await driver.start()
        break_stop(hosts[0])
        break_stop(hosts[1])
        with pytest.raises(ExceptionGroup, match="unhandled exceptions") as caught:
            await world.aclose()
        assert [str(each) for each in caught.value.exceptions] == ["a", "b"]
        assert all(driver.is_closed for driver in drivers)
        for host in hosts[:2]:
            del host.__dict__["stop"]

    run(story)


def test_what_a_story_raises_is_not_hidden_by_what_else_went_wrong() -> None:
    async def story(world: World) -> None:
        break_stop(world.host("a"))
        error = KeyError("the story's own")
        # It raises what the world knows of already, too.
        world.errors.append(error)
        raise error

    with pytest.raises(KeyError, match="the story's own") as caught:
        run(story)
    (note,) = caught.value.__notes__
    assert note.startswith("Beside that:\nTraceback ")
    assert "LookupError: a\nRaised by the end of host 'a', at " in note


def test_a_cancelled_world_still_stops_every_host() -> None:
    async def story(world: World) -> None:
        first, second = world.host("a"), world.host("b")
        driver = second.driver()
        await driver.start()

        async def linger() -> None:
            await asyncio.shield(asyncio.sleep(5))

        first.stop = linger  # type: ignore[method-assign]
        closing = asyncio.create_task(world.aclose())
        await world.sleep(1)
        closing.cancel()
        await asyncio.wait([closing])
        assert closing.cancelled()
        assert driver.is_closed
        del first.__dict__["stop"]
        await world.sleep(5)

    run(story)


def test_a_story_that_goes_on_and_on_is_stopped() -> None:
    async def story(world: World) -> None:
        while True:
            await world.sleep(1)

    with pytest.raises(TimeoutError, match=r"^10(\.\d+)? virtual seconds have passed"):
        simulate(story, limit_s=10)


def test_a_story_in_which_everybody_waits_is_a_deadlock() -> None:
    async def story(world: World) -> None:
        await asyncio.Event().wait()

    with pytest.raises(DeadlockError, match=f"Task-.* at {__file__}:"):
        simulate(story)
