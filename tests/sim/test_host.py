"""Hosts: what runs on them stops, crashes, stands still and starts again."""

from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.media_driver import MediaDriver
from aeron_async.protocol.header import DataFlags
from aeron_async.testing.trace import Verdict
from aeron_async.testing.virtual_clock import OWNER, DeadlockError
from aeron_async.testing.world import World, simulate

if TYPE_CHECKING:
    from aeron_async.testing.host import Host

CHANNEL = "aeron:udp?endpoint=bob:20121|term-length=64k"


class Numbers:
    """A service that publishes numbers, and one that keeps them."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self.sessions: list[int] = []
        self.lives = 0

    async def publish(self, host: Host) -> None:
        self.lives += 1
        async with host.aeron() as aeron:
            publication = await aeron.add_publication(CHANNEL, 1)
            for number in range(1_000_000):
                await publication.offer(number.to_bytes(4, "big"))
                await asyncio.sleep(0.1)

    async def subscribe(self, host: Host) -> None:
        async with host.aeron() as aeron:
            subscription = await aeron.add_subscription(CHANNEL, 1)
            async for message in subscription:
                self.received.append(int.from_bytes(message.data, "big"))
                if message.session_id not in self.sessions:
                    self.sessions.append(message.session_id)


def run_numbers(story: Any) -> Any:
    """Tell a story of alice, who publishes, and bob, who subscribes."""

    async def main(world: World) -> Any:
        numbers = Numbers()
        alice, bob = world.host("alice"), world.host("bob")
        bob.start(numbers.subscribe)
        alice.start(numbers.publish)
        await world.sleep(2)
        assert numbers.received
        return await story(world, numbers, alice, bob)

    return simulate(main)


def count_ends(world: World) -> list[bytes]:
    """Collect heartbeats that end a stream, from now on."""
    ends: list[bytes] = []

    def watch(now_ns: int, verdict: Verdict, source: Any, destination: Any, data: bytes) -> None:
        if (
            verdict is Verdict.SENT
            and data[6:8] == b"\x01\x00"
            and data[5] & DataFlags.END_OF_STREAM
        ):
            ends.append(data)

    world.network.trace.watch(watch)
    return ends


def test_a_stop_says_goodbye_and_delivers() -> None:
    async def story(world: World, numbers: Numbers, alice: Host, bob: Host) -> int:
        ends = count_ends(world)
        await alice.stop()
        await world.sleep(1)
        assert numbers.received == list(range(len(numbers.received)))
        assert alice.drivers == []
        assert alice.machine.socket_count == 0
        return len(ends)

    assert run_numbers(story) > 0


def test_a_crash_says_nothing() -> None:
    async def story(world: World, numbers: Numbers, alice: Host, bob: Host) -> None:
        ends = count_ends(world)
        sent = world.network.trace.counts[Verdict.SENT]
        await alice.crash()
        assert alice.is_down
        assert alice.machine.socket_count == 0
        assert world.network.trace.counts[Verdict.SENT] == sent
        await world.sleep(20)
        assert ends == []

    run_numbers(story)


@pytest.mark.parametrize("deed", ["crash", "stop"])
def test_services_start_again_with_a_restart(deed: str) -> None:
    async def story(world: World, numbers: Numbers, alice: Host, bob: Host) -> None:
        await getattr(alice, deed)()
        await world.sleep(1)
        before = len(numbers.received)
        await alice.restart()
        assert not alice.is_down
        await world.sleep(30)
        assert numbers.received[before : before + 3] == [0, 1, 2]
        assert numbers.lives == 2
        assert len(numbers.sessions) == 2

    run_numbers(story)


def test_a_restart_stops_first_what_runs() -> None:
    async def story(world: World, numbers: Numbers, alice: Host, bob: Host) -> None:
        ends = count_ends(world)
        await alice.restart()
        await world.sleep(2)
        assert ends
        assert numbers.lives == 2
        assert len(numbers.sessions) == 2

    run_numbers(story)


def test_whoever_crashes_a_host_amid_its_restart_says_when_it_is_back() -> None:
    async def story(world: World, numbers: Numbers, alice: Host, bob: Host) -> None:
        world.partition(bob)
        restarting = asyncio.create_task(alice.restart())
        await world.sleep(0.01)
        assert not restarting.done()
        await alice.crash()
        await restarting
        assert alice.is_down
        assert numbers.lives == 1

    run_numbers(story)


def test_a_paused_host_stands_still_and_then_goes_on() -> None:
    async def story(world: World, numbers: Numbers, alice: Host, bob: Host) -> None:
        pausing = asyncio.create_task(bob.pause_for(3))
        await world.sleep(1)
        before = len(numbers.received)
        delivered = world.network.trace.counts[Verdict.DELIVERED]
        await world.sleep(1)
        assert len(numbers.received) == before
        is_paused = bob.machine.is_paused
        await pausing
        await world.sleep(1)
        assert (is_paused, bob.machine.is_paused) == (True, False)
        assert numbers.received == list(range(len(numbers.received)))
        assert len(numbers.received) > before + 20
        assert world.network.trace.counts[Verdict.DELIVERED] > delivered

    run_numbers(story)


def test_of_overlapping_pauses_the_last_lets_a_host_go_on() -> None:
    async def story(world: World, numbers: Numbers, alice: Host, bob: Host) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(bob.pause_for(3))
            await world.sleep(1)
            group.create_task(bob.pause_for(3))
            await world.sleep(2.5)
            amid = bob.machine.is_paused
        assert (amid, bob.machine.is_paused) == (True, False)
        before = len(numbers.received)
        await world.sleep(1)
        assert len(numbers.received) > before

    run_numbers(story)


def test_a_pause_without_an_end_outlives_one_with_an_end_and_resume_ends_all() -> None:
    async def story(world: World, numbers: Numbers, alice: Host, bob: Host) -> None:
        bob.pause()
        await bob.pause_for(1)
        states = [bob.machine.is_paused]
        pausing = asyncio.create_task(bob.pause_for(1))
        await world.sleep(0.5)
        bob.resume()
        states.append(bob.machine.is_paused)
        # What was resumed has no say in the next pause.
        bob.pause()
        await pausing
        assert [*states, bob.machine.is_paused] == [True, False, True]

    run_numbers(story)


def test_a_paused_host_goes_on_when_it_is_to_stop_or_crash() -> None:
    async def story(world: World, numbers: Numbers, alice: Host, bob: Host) -> None:
        alice.pause()
        bob.pause()
        await alice.crash()
        await bob.stop()
        assert not alice.machine.is_paused
        assert not bob.machine.is_paused

    run_numbers(story)


def test_a_driver_that_is_closed_while_a_datagram_waits_leaves_its_port_free() -> None:
    async def story(world: World, numbers: Numbers, alice: Host, bob: Host) -> None:
        # Status messages of the goodbye find no room, and the first of them waits.
        bob.machine.send_errors = {errno.EAGAIN: 1.0}
        await bob.stop()
        assert bob.machine.socket_count == 0
        bob.machine.send_errors = {}
        async with bob.aeron() as aeron:
            await aeron.add_subscription(CHANNEL, 1)

    run_numbers(story)


async def fail(host: Host) -> None:
    raise LookupError(host.name)


def test_what_a_service_raises_is_an_error_of_the_world_at_once_and_once() -> None:
    async def story(world: World) -> None:
        alice = world.host("alice")
        task = alice.start(fail)
        with pytest.raises(LookupError, match="alice"):
            await task
        (error,) = world.errors
        assert error is task.exception()
        # However it is forgotten, nobody says it twice.
        alice.spawn(asyncio.sleep(1))
        await alice.stop()
        assert world.errors == [error]

    with pytest.raises(ExceptionGroup) as caught:
        simulate(story)
    assert [str(each) for each in caught.value.exceptions] == ["alice"]


def test_what_a_service_raises_when_it_is_stopped_is_an_error_of_the_world() -> None:
    async def fail_at_the_end(host: Host) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise LookupError(host.name)

    async def story(world: World) -> None:
        alice = world.host("alice")
        alice.start(fail_at_the_end)
        await world.sleep(1)
        await alice.stop()
        assert [type(each) for each in world.errors] == [LookupError]

    with pytest.raises(ExceptionGroup):
        simulate(story)


def test_a_story_that_waits_for_a_dead_service_tells_why_it_died() -> None:
    async def story(world: World) -> None:
        world.host("alice").start(fail)
        await asyncio.Event().wait()

    with pytest.raises(DeadlockError) as caught:
        simulate(story)
    assert str(caught.value).startswith(
        "service 'fail' on host 'alice' failed: LookupError: alice; since then, nothing is sched"
    )
    assert isinstance(caught.value.__cause__, LookupError)
    assert not hasattr(caught.value, "__notes__")


def test_drivers_are_closed_whatever_fails() -> None:
    class Broken(MediaDriver):
        async def aclose(self) -> None:
            await super().aclose()
            raise LookupError

    async def story(world: World) -> None:
        alice = world.host("alice")
        drivers = [alice.driver(), alice.driver(), alice.driver()]
        for driver in drivers:
            await driver.start()
        drivers[0].__class__ = drivers[2].__class__ = Broken
        with pytest.raises(ExceptionGroup, match="drivers of alice could not be") as caught:
            await alice.stop()
        assert len(caught.value.exceptions) == 2
        assert all(driver.is_closed for driver in drivers)
        assert alice.drivers == []

    simulate(story)


def test_drivers_are_closed_where_stopping_is_cancelled() -> None:
    async def story(world: World) -> None:
        async def linger(host: Host) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(10)

        alice = world.host("alice")
        driver = alice.driver()
        await driver.start()
        task = alice.start(linger)
        await world.sleep(1)
        stopping = asyncio.create_task(alice.stop())
        await world.sleep(1)
        stopping.cancel()
        await asyncio.wait([stopping])
        assert stopping.cancelled()
        assert driver.is_closed
        assert not task.done()
        await asyncio.wait([task])

    simulate(story)


def test_what_a_service_raises_when_the_power_goes_is_lost_with_it() -> None:
    async def story(world: World) -> None:
        async def fail_at_the_end(host: Host) -> None:
            async with host.aeron():
                try:
                    await asyncio.Event().wait()
                finally:
                    raise LookupError(host.name)

        alice = world.host("alice")
        task = alice.start(fail_at_the_end)
        await world.sleep(1)
        (driver,) = alice.drivers
        await alice.crash()
        assert isinstance(task.exception(), LookupError)
        assert driver.is_closed

    simulate(story)


def test_all_that_runs_on_a_host_runs_in_its_context() -> None:
    async def story(world: World) -> None:
        alice = world.host("alice")
        owners: list[object] = []

        async def look() -> int:
            owners.append(OWNER.get())
            await asyncio.sleep(0)
            return 7

        async def start(host: Host) -> None:
            await asyncio.create_task(look())

        assert await alice.spawn(look()) == 7
        await alice.start(start)
        assert owners == [alice, alice]
        assert OWNER.get() is None

    simulate(story)


def test_drivers_are_of_the_seed_and_forgotten_when_closed() -> None:
    async def story(world: World) -> tuple[int, int]:
        alice = world.host("alice")
        context = DriverContext(term_buffer_length=128 * 1024)
        async with alice.driver(context) as first:
            assert alice.drivers == [first]
        async with alice.driver() as second:
            assert alice.drivers == [second]
        async with alice.aeron(context) as aeron:
            channel = "aeron:udp?endpoint=10.0.0.9:1"
            publication = await aeron.add_publication(channel, 1)
            assert publication.term_length == 128 * 1024
            return publication.session_id, publication.initial_term_id

    assert simulate(story, seed=1) == simulate(story, seed=1)
    assert simulate(story, seed=1) != simulate(story, seed=2)


def test_a_host_says_who_it_is() -> None:
    async def story(world: World) -> str:
        return repr(world.host("alice", "fd00::1", "10.1.1.1"))

    assert simulate(story) == "<Host alice fd00::1>"


def test_a_service_may_be_any_callable() -> None:
    class Service:
        async def __call__(self, host: Host) -> None:
            await asyncio.sleep(1)

    async def story(world: World) -> str:
        return world.host("alice").start(Service()).get_name()

    assert simulate(story) == "alice-Service"
