"""What a driver records in its log of distinct errors, and what it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import aeron_async as aa
from aeron_async.concurrent.error_log import DistinctErrorLog, read_error_log
from aeron_async.driver import storage
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.testing.world import simulate
from tests.sim.test_names import until

if TYPE_CHECKING:
    from aeron_async.testing.world import World
STREAM_ID = 1001
CHANNEL = "aeron:udp?endpoint=bob:20121|term-length=64k"


class Recorded:
    """The error log that all drivers of a world share."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.buffer = bytearray(64 * 1024)
        shared = DistinctErrorLog(self.buffer)
        monkeypatch.setattr(storage, "DistinctErrorLog", lambda _own: shared)

    def counted(self, *clients: aa.Aeron) -> int:
        """Return how many errors the drivers of these clients have counted."""
        return sum(
            record.value
            for client in clients
            for record in client.counters
            if record.type_id == 0 and record.counter_id == SystemCounterId.ERRORS
        )

    @property
    def texts(self) -> list[str]:
        return [each.text for each in read_error_log(self.buffer)]

    @property
    def observation_count(self) -> int:
        return sum(each.observation_count for each in read_error_log(self.buffer))


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    return Recorded(monkeypatch)


def test_a_stream_whose_datagrams_exceed_the_window_is_an_error_of_the_receiver(
    recorded: Recorded,
) -> None:
    async def story(world: World) -> None:
        alice, bob = world.host("alice"), world.host("bob")
        async with alice.aeron() as sending, bob.aeron() as receiving:
            await receiving.add_subscription(f"{CHANNEL}|rcv-wnd=1376", STREAM_ID)
            publication = await sending.add_publication(f"{CHANNEL}|mtu=1408", STREAM_ID)
            await until(world, lambda: recorded.texts)
            assert recorded.counted(sending, receiving) == recorded.observation_count == 1
            assert recorded.texts[0].startswith(
                "(-8) not supported\nmtuLength=1408 > initialWindowLength=1376: "
            )
            assert recorded.texts[0].endswith(
                f"source={publication.local_address} streamId=1001 "
                f"sessionId={publication.session_id}"
            )

    simulate(story)


def test_a_session_too_many_is_an_error_of_the_receiver(recorded: Recorded) -> None:
    async def story(world: World) -> None:
        alice, bob = world.host("alice"), world.host("bob")
        context = aa.DriverContext(stream_session_limit=1)
        async with alice.aeron() as sending, bob.aeron(context) as receiving:
            await receiving.add_subscription(CHANNEL, STREAM_ID)
            first = await sending.add_exclusive_publication(CHANNEL, STREAM_ID)
            await first.wait_connected(10)
            await sending.add_exclusive_publication(CHANNEL, STREAM_ID)
            await until(world, lambda: recorded.texts)
            (text,) = recorded.texts
            assert "\nexceeded session limit: " in text

    simulate(story)


@pytest.mark.parametrize("channel", ["aeron:udp?endpoint=localhost:20121", "aeron:ipc"])
def test_a_rejection_is_one_error_of_the_publisher(recorded: Recorded, channel: str) -> None:
    async def story(world: World) -> None:
        async with world.host("alice").aeron() as aeron:
            subscription = await aeron.add_subscription(channel, STREAM_ID)
            publication = await aeron.add_publication(channel, STREAM_ID)
            await publication.wait_connected(10)
            (image,) = subscription.images
            await image.reject("not wanted")
            await world.sleep(3)
            assert recorded.counted(aeron) == recorded.observation_count == 1
            (text,) = recorded.texts
            assert text.startswith("(-13) image rejected\nonPublicationError: registrationId=")
            assert f"sessionId={publication.session_id}, streamId=1001" in text
            assert text.endswith(", groupId=-1, errorCode=13, errorMessage=not wanted")

    simulate(story)


def test_a_name_that_no_longer_resolves_is_an_error(recorded: Recorded) -> None:
    async def story(world: World) -> None:
        alice, bob = world.host("alice"), world.host("bob")
        world.network.names["service"] = bob.address
        channel = CHANNEL.replace("bob", "service")
        async with alice.aeron() as sending:
            publication = await sending.add_publication(channel, STREAM_ID)
            async with bob.aeron() as receiving:
                await receiving.add_subscription(channel, STREAM_ID)
                await publication.wait_connected(10)
            del world.network.names["service"]
            await until(world, lambda: recorded.observation_count > 2)
            (text,) = recorded.texts
            assert text.startswith(
                "(-9) unknown host\nUnable to resolve host: endpoint=service:20121: "
            )
            assert recorded.counted(sending) == recorded.observation_count

    simulate(story)


def test_a_destination_whose_name_does_not_resolve_yet_is_none(recorded: Recorded) -> None:
    async def story(world: World) -> None:
        async with world.host("alice").aeron() as sending:
            publication = await sending.add_publication("aeron:udp?control-mode=manual", STREAM_ID)
            await publication.add_destination("aeron:udp?endpoint=service:20121")
            await world.sleep(20)
            assert recorded.texts == []
            assert recorded.counted(sending) == 0

    simulate(story)


def test_streams_that_come_and_go_leave_no_error(recorded: Recorded) -> None:
    async def story(world: World) -> None:
        alice, bob = world.host("alice"), world.host("bob")
        async with alice.aeron() as sending, bob.aeron() as receiving:
            for _ in range(2):
                subscription = await receiving.add_subscription(CHANNEL, STREAM_ID)
                publication = await sending.add_publication(CHANNEL, STREAM_ID)
                await publication.offer(b"hello")
                assert (await anext(subscription)).data == b"hello"
                await publication.aclose()
                await subscription.aclose()
                await world.sleep(20)
            assert recorded.texts == []
            assert recorded.counted(sending, receiving) == 0

    simulate(story)
