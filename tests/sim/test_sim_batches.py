"""Segment batches in the simulated network: their receivers, their content and their trace."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.media.endpoint import ReceiveDestinationTransport
from aeron_async.driver.media.sockets import SocketSpec
from aeron_async.testing.fates import Conditions
from aeron_async.testing.trace import Verdict
from aeron_async.testing.virtual_clock import run_virtual
from aeron_async.testing.world import simulate
from tests.sim.fakes import MS, Listener, make_network, opened
from tests.sim.test_world import VirtualUvLoop

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.testing.world import World

ALICE = ("10.0.0.1", 5)
BOB = ("10.0.0.2", 9)
CHANNEL = "aeron:udp?endpoint=bob:40123"


class RunListener(Listener):
    """Keeps batches, too."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[tuple[bytes, int]] = []

    def datagrams_received(self, data: memoryview, segment_length: int, addr: Any) -> None:
        self.batches.append((bytes(data), segment_length))
        for start in range(0, len(data), segment_length):
            self.datagram_received(data[start : start + segment_length], addr)


def run_pair(
    story: Callable[[Any, Any, RunListener], Any],
    *,
    conditions: Conditions | None = None,
    is_batching: bool = True,
    make: type[RunListener] = RunListener,
) -> Any:
    """Tell a story of a socket that sends to another, and of who listens at that."""

    async def main() -> Any:
        network = make_network(conditions)
        alice, bob = network.add_host(ALICE[0]), network.add_host(BOB[0])
        listener = make()
        spec = SocketSpec(local=BOB, remote=None, is_batching=is_batching)
        transport = await bob.open(lambda: listener, spec)
        async with opened(alice, ALICE) as (sending, _):
            result = await story(network, sending, listener)
        transport.close()
        return result

    return run_virtual(main())


async def send_batches(sending: Any) -> None:
    """Send a batch, and wait for it; then another from two calls, and one that is alone."""
    assert sending.send_batch(memoryview(b"aabbccd"), 2, BOB) == 7
    await asyncio.sleep(MS)
    sending.send_batch(memoryview(b"eeff"), 2, BOB)
    sending.sendto(b"gg", BOB)
    await asyncio.sleep(MS)


DATAGRAMS = [b"aa", b"bb", b"cc", b"d", b"ee", b"ff", b"gg"]


def test_what_was_sent_in_one_go_arrives_in_one_and_is_told_one_by_one() -> None:
    async def story(network: Any, sending: Any, listener: RunListener) -> None:
        events: list[tuple[Verdict, bytes]] = []
        network.trace.watch(lambda _, verdict, __, ___, data: events.append((verdict, data)))
        await send_batches(sending)
        assert listener.batches == [(b"aabbccd", 2), (b"eeffgg", 2)]
        assert listener.received == [(each, ALICE) for each in DATAGRAMS]
        for verdict in (Verdict.SENT, Verdict.DELIVERED):
            assert [data for what, data in events if what is verdict] == DATAGRAMS

    run_pair(story)


def test_without_the_setting_there_are_no_batches() -> None:
    async def story(_: Any, sending: Any, listener: RunListener) -> None:
        await send_batches(sending)
        assert (listener.batches, listener.data) == ([], DATAGRAMS)

    run_pair(story, is_batching=False)


def test_a_protocol_that_knows_no_batches_gets_none() -> None:
    async def main() -> None:
        network = make_network()
        alice, bob = network.add_host(ALICE[0]), network.add_host(BOB[0])
        async with (
            opened(alice, ALICE) as (sending, _),
            opened(bob, BOB, is_batching=True) as (_, listener),
        ):
            await send_batches(sending)
            assert listener.data == DATAGRAMS

    run_virtual(main())


@pytest.mark.parametrize(
    "conditions",
    [
        Conditions(loss=0.3, duplication=0.3, corruption=0.3),
        Conditions(reordering=0.4, reorder_delay_ns=100_000, jitter_ns=200_000),
        Conditions(bandwidth=100_000_000, duplication=0.5),
    ],
)
def test_batches_change_no_fate(conditions: Conditions) -> None:
    def tell(*, is_batching: bool) -> tuple[Any, str]:
        async def story(network: Any, sending: Any, listener: RunListener) -> tuple[Any, str]:
            for number in range(100):
                sending.send_batch(memoryview(bytes([number]) * 1_000), 90, BOB)
                await asyncio.sleep(MS)
            await asyncio.sleep(1)
            assert bool(listener.batches) is is_batching
            return listener.received, network.trace.digest()

        told: tuple[Any, str] = run_pair(story, conditions=conditions, is_batching=is_batching)
        return told

    assert tell(is_batching=True) == tell(is_batching=False)


def test_who_keeps_a_slice_of_a_batch_is_found_out() -> None:
    class Keeper(RunListener):
        def datagrams_received(self, data: memoryview, segment_length: int, addr: Any) -> None:
            self.kept = data[1:]

    async def story(network: Any, sending: Any, _: Any) -> list[Any]:
        errors: list[Any] = []
        network.loop.set_exception_handler(lambda _, context: errors.append(context["exception"]))
        sending.send_batch(memoryview(b"aabb"), 2, BOB)
        await asyncio.sleep(MS)
        return errors

    (error,) = run_pair(story, make=Keeper)
    assert isinstance(error, BufferError)


def test_who_closes_in_the_midst_of_a_batch_hears_its_end_and_nothing_after_it() -> None:
    class Closer(RunListener):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def datagram_received(self, data: bytes | Any, addr: Any) -> None:
            super().datagram_received(data, addr)
            self.transport.close()

    async def story(_: Any, sending: Any, listener: RunListener) -> None:
        sending.send_batch(memoryview(b"aabbc"), 2, BOB)
        sending.send_batch(memoryview(b"aabbc"), 2, BOB)
        await asyncio.sleep(MS)
        assert listener.data == [b"aa", b"bb", b"c"]

    run_pair(story, make=Closer)


async def publish(world: World) -> None:
    """Let one host send another what takes many datagrams."""
    sender, receiver = world.host("alice"), world.host("bob")
    async with sender.aeron() as alice, receiver.aeron() as bob:
        subscription = await bob.add_subscription(CHANNEL, stream_id=1)
        publication = await alice.add_publication(CHANNEL, stream_id=1)
        message = bytes(12_000)
        for _ in range(20):
            await publication.offer(message)
        received = 0
        async for each in subscription:
            assert bytes(each.data) == message
            received += 1
            if received == 20:
                return


def test_the_data_of_a_publication_arrives_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    take = ReceiveDestinationTransport.batches_received

    def take_and_count(self: Any, data: memoryview, segments: Any, addr: Any) -> None:
        counts.append(-(-segments[0] // segments[1]))
        take(self, data, segments, addr)

    monkeypatch.setattr(ReceiveDestinationTransport, "batches_received", take_and_count)
    simulate(publish)
    assert max(counts) >= 8
    assert 1 in counts


def test_a_world_with_batches_tells_the_same_story_on_either_loop() -> None:
    async def story(world: World) -> str:
        world.set_conditions(Conditions(loss=0.1, duplication=0.1), *world.hosts)
        await publish(world)
        return world.network.trace.digest()

    digests = {
        simulate(story, seed=3),
        simulate(story, seed=3),
        simulate(story, seed=3, loop_factory=VirtualUvLoop),
    }
    assert len(digests) == 1


def test_a_driver_may_do_without_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: object, *_: object) -> None:
        pytest.fail(f"{self} was given a batch")

    monkeypatch.setattr(ReceiveDestinationTransport, "datagrams_received", refuse)

    async def story(world: World) -> None:
        context = DriverContext(socket_batching=False)
        async with world.host("a").aeron(context) as aeron:
            subscription = await aeron.add_subscription("aeron:udp?endpoint=a:9", stream_id=1)
            publication = await aeron.add_publication("aeron:udp?endpoint=a:9", stream_id=1)
            for _ in range(9):
                await publication.offer(bytes(5_000))
            async for each in subscription:
                if each.position == publication.position:
                    return

    simulate(story)
