"""Names that come to lead elsewhere: whoever fell silent is looked for where the name leads now."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

import aeron_async as aa
from aeron_async.testing.world import simulate

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.testing.world import World

STREAM_ID = 7
CHANNEL = "aeron:udp?endpoint=service:20121|term-length=64k"


async def until(world: World, condition: Callable[[], Any], limit_s: float = 30) -> None:
    deadline_ns = world.now_ns + round(limit_s * 1e9)
    while not condition():
        assert world.now_ns < deadline_ns, "not within its time"
        await world.sleep(0.01)


def changes(aeron: aa.Aeron) -> int:
    return next(
        record.value
        for record in aeron.counters
        if record.type_id == 0 and record.label.startswith("Resolution changes")
    )


def test_a_publication_follows_its_receiver_to_another_address() -> None:
    async def story(world: World) -> None:
        alice, first, second = (world.host(name) for name in ("alice", "first", "second"))
        names = world.network.names
        names["service"] = first.address
        async with alice.aeron() as sending:
            publication = await sending.add_publication(CHANNEL, STREAM_ID)
            async with first.aeron() as receiving:
                subscription = await receiving.add_subscription(CHANNEL, STREAM_ID)
                await publication.offer(b"to the first")
                assert (await anext(subscription)).data == b"to the first"
                await world.sleep(20)
                assert changes(sending) == 0
                await first.crash()
            names["service"] = second.address
            silent_ns = world.now_ns
            async with second.aeron() as receiving:
                subscription = await receiving.add_subscription(CHANNEL, STREAM_ID)
                await until(world, lambda: not publication.is_connected)
                await publication.wait_connected(10)
                # Five seconds of silence, a second until somebody looks, and a SETUP's way.
                assert world.now_ns - silent_ns <= 6.6e9
                local_address = publication.local_address
                await publication.offer(b"to the second")
                message = await anext(subscription)
                assert message.data == b"to the second"
                assert (
                    message.image.source_identity.rpartition(":")[2]
                    == (local_address.rpartition(":")[2])
                )
            assert changes(sending) == 1

    simulate(story)


def test_a_destination_is_followed_and_one_that_leads_nowhere_yet_is_waited_for() -> None:
    async def story(world: World) -> None:
        alice, first, second = (world.host(name) for name in ("alice", "first", "second"))
        names = world.network.names
        async with alice.aeron() as sending, first.aeron() as receiving:
            publication = await sending.add_publication(
                "aeron:udp?control-mode=manual|term-length=64k", STREAM_ID
            )
            await publication.add_destination("aeron:udp?endpoint=service:20121")
            await world.sleep(10)
            assert not publication.is_connected
            names["service"] = first.address
            subscription = await receiving.add_subscription(CHANNEL, STREAM_ID)
            await publication.wait_connected(2)
            await publication.offer(b"to the first")
            assert (await anext(subscription)).data == b"to the first"
            await first.crash()
            names["service"] = second.address
            async with second.aeron() as moved:
                subscription = await moved.add_subscription(CHANNEL, STREAM_ID)
                await until(world, lambda: subscription.is_connected, 7)
                await publication.offer(b"to the second")
                assert (await anext(subscription)).data == b"to the second"
                await publication.remove_destination("aeron:udp?endpoint=service:20121")
                with pytest.raises(aa.RegistrationError, match="is not a destination of"):
                    await publication.remove_destination("aeron:udp?endpoint=service:20121")
            assert changes(sending) == 2

    simulate(story)


def test_a_subscriber_follows_the_control_address_of_its_publisher() -> None:
    async def story(world: World) -> None:
        bob, first, second = (world.host(name) for name in ("bob", "first", "second"))
        names = world.network.names
        names["exchange"] = first.address
        subscribe = "aeron:udp?endpoint=bob:0|control=exchange:20121|control-mode=dynamic"
        publish = "aeron:udp?control={}:20121|control-mode=dynamic|term-length=64k"
        async with bob.aeron() as receiving:
            subscription = await receiving.add_subscription(subscribe, STREAM_ID)
            async with first.aeron() as sending:
                publication = await sending.add_publication(publish.format("first"), STREAM_ID)
                await publication.offer(b"from the first")
                assert (await anext(subscription)).data == b"from the first"
                await first.crash()
            names["exchange"] = second.address
            async with second.aeron() as sending:
                publication = await sending.add_publication(publish.format("second"), STREAM_ID)
                await publication.wait_connected(8)
                await publication.offer(b"from the second")
                await until(world, lambda: len(subscription.images) == 2)
                assert (await anext(subscription)).data == b"from the second"
            assert changes(receiving) == 1

    simulate(story)


def test_a_name_that_is_lost_is_looked_up_again_until_it_is_back() -> None:
    async def story(world: World) -> None:
        alice, first = (world.host(name) for name in ("alice", "first"))
        names = world.network.names
        names["service"] = first.address
        async with alice.aeron() as sending:
            publication = await sending.add_publication(CHANNEL, STREAM_ID)
            del names["service"]
            await world.sleep(20)
            names["service"] = "fd00::1"
            await world.sleep(20)
            # Of another family, it cannot be followed; that stops nobody.
            names["service"] = first.address
            async with first.aeron() as receiving:
                subscription = await receiving.add_subscription(CHANNEL, STREAM_ID)
                await publication.offer(b"here", timeout=5)
                assert (await anext(subscription)).data == b"here"

    simulate(story)


def test_a_name_is_not_looked_up_while_its_receiver_is_heard() -> None:
    asked: list[str] = []

    class Resolver:
        async def resolve(
            self, host: str, port: int, *, is_re_resolution: bool = False
        ) -> tuple[str, int]:
            asked.append(f"{host} again" if is_re_resolution else host)
            return "10.0.0.2", port

    async def story(world: World) -> None:
        alice, bob = world.host("alice"), world.host("bob")
        context = aa.DriverContext(name_resolver_supplier=Resolver)
        async with alice.aeron(context) as sending, bob.aeron() as receiving:
            await receiving.add_subscription("aeron:udp?endpoint=bob:20121", STREAM_ID)
            publication = await sending.add_publication(CHANNEL, STREAM_ID)
            await publication.wait_connected(5)
            await world.sleep(60)
            assert asked == ["service"]
            world.partition(bob)
            await world.sleep(7.5)
            assert asked == ["service", "service again", "service again", "service again"]
        never = aa.DriverContext(name_resolver_supplier=Resolver, reresolution_check_interval_ns=0)
        asked.clear()
        async with alice.aeron(never) as sending:
            await sending.add_publication(CHANNEL, STREAM_ID)
            await world.sleep(60)
        assert asked == ["service"]

    simulate(story)


@pytest.mark.untraced
def test_whatever_a_resolver_does_nobody_is_harmed_and_it_is_said_once() -> None:
    answers: list[Any] = [("10.0.0.2", 20121)]
    under_way: list[int] = [0, 0]

    class Resolver:
        async def resolve(
            self, host: str, port: int, *, is_re_resolution: bool = False
        ) -> tuple[str, int]:
            under_way[0] += 1
            under_way[1] = max(under_way)
            try:
                if is_re_resolution:
                    await asyncio.sleep(0.3)
                answer: Any = answers[0]
                if isinstance(answer, Exception):
                    raise answer
                return answer  # type: ignore[no-any-return]  # it answers anything
            finally:
                under_way[0] -= 1

    async def story(world: World) -> None:
        alice = world.host("alice")
        context = aa.DriverContext(name_resolver_supplier=Resolver)
        async with alice.aeron(context) as aeron:
            for number in range(40):
                await aeron.add_publication(
                    f"aeron:udp?endpoint=service{number}:20121|term-length=64k", STREAM_ID
                )
            with capture_logs() as lines:
                for answer in (None, ("localhost", 1), KeyError("x"), ("10.0.0.2", 20121)):
                    answers[0] = answer
                    await world.sleep(30)
            unfollowed = [line for line in lines if line["event"] == "name_not_followed"]
            # One line for each, from when its name led nowhere until it led somewhere again.
            assert len(unfollowed) == 40
            assert under_way[1] == 16
            answers[0] = None
            with pytest.raises(aa.RegistrationError, match="TypeError") as caught:
                await aeron.add_publication("aeron:udp?endpoint=nowhere:1", STREAM_ID)
            assert caught.value.code is aa.ErrorCode.UNKNOWN_HOST

    simulate(story)


def test_no_look_up_outlives_its_driver() -> None:
    ended: list[str] = []

    class Resolver:
        async def resolve(
            self, host: str, port: int, *, is_re_resolution: bool = False
        ) -> tuple[str, int]:
            if is_re_resolution:
                try:
                    await asyncio.get_running_loop().create_future()
                finally:
                    await asyncio.sleep(0)
                    ended.append(host)
            return "10.0.0.2", port

    async def story(world: World) -> None:
        context = aa.DriverContext(name_resolver_supplier=Resolver)
        async with world.host("alice").aeron(context) as aeron:
            await aeron.add_publication(CHANNEL, STREAM_ID)
            await world.sleep(10)
            assert ended == []
        assert ended == ["service"]

    simulate(story)
