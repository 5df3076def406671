"""A publisher that a receiver does not join hears why, and nobody else hears much."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import aeron_async as aa
from aeron_async.protocol.error import ErrorFrame
from aeron_async.protocol.setup import Setup
from aeron_async.testing.world import simulate
from tests.driver.fakes import setup
from tests.sim.wire import Peer, Wire, until

if TYPE_CHECKING:
    from aeron_async.testing.world import World

CHANNEL = "aeron:udp?endpoint=server:20121|term-length=64k"
MIB = 1 << 20


@pytest.mark.parametrize(
    ("settings", "channel", "words"),
    [
        ({"max_images_per_stream": 1}, CHANNEL, "code 10: the receiver's max_images_per_stream is"),
        (
            {"image_log_budget_length": 6 * 65_536},
            "aeron:udp?endpoint=server:20121|term-length=128k",
            "code 10: the receiver's image_log_budget_length is 393216",
        ),
        (
            {"max_image_term_length": MIB, "image_log_budget_length": 4 * MIB},
            "aeron:udp?endpoint=server:20121|term-length=2m",
            "code 10: max_image_term_length is 1048576, image_log_budget_length is 4194304",
        ),
        (
            {},
            "aeron:udp?endpoint=server:20121|mtu=8k",
            "code 8: mtu 8192 exceeds the receiver's window of 4096",
        ),
    ],
    ids=["sessions", "budget", "two limits", "window"],
)
def test_a_refused_publisher_is_told_why(
    settings: dict[str, Any], channel: str, words: str
) -> None:
    """The client saw "no subscriber connected", and the server alone knew why."""

    async def story(world: World) -> None:
        context = aa.DriverContext(**settings)
        async with (
            world.host("server").aeron(context) as server,
            world.host("client").aeron() as client,
        ):
            await server.add_subscription("aeron:udp?endpoint=server:20121|rcv-wnd=4k", 10)
            first = await client.add_exclusive_publication(CHANNEL, 10)
            await first.wait_connected(5)
            heard: list[aa.PublicationErrorFrame] = []
            second = await client.add_exclusive_publication(channel, 10, on_error=heard.append)
            await until(world, lambda: heard, limit_s=2)
            assert words in str(second.last_error)
            assert second.last_error == (
                f"a receiver refused the stream with code {heard[0].code}: {heard[0].message}"
            )
            assert not second.is_connected
            assert first.is_connected
            assert first.last_error is None
            await world.sleep(10)
            assert len(heard) <= 12

    simulate(story)


def test_one_refusal_a_second_for_each_source_and_three_bytes_for_a_byte() -> None:
    """To be told is worth 120 bytes, and no flood makes it more."""

    async def story(world: World) -> None:
        server, mallory = world.host("server"), world.host("mallory")
        wire = Wire(world)
        async with server.aeron(aa.DriverContext(max_images_per_stream=1)) as aeron:
            await aeron.add_subscription("aeron:udp?endpoint=server:20121", 10)
            peers = [await Peer.open(mallory, 6_000 + number) for number in range(300)]
            start_s = world.now_ns / 1e9
            for session_id in range(1_000, 1_010):
                for peer in peers:
                    frame = setup(session_id=session_id, stream_id=10).encode()
                    peer.say(frame, (server.address, 20_121))
                await world.sleep(0.01)
            await world.sleep(0.1)
            asked, told = wire.of(Setup, start_s), wire.of(ErrorFrame, start_s)
            assert len(told) == 256
            assert len({each.destination for each in told}) == 256
            assert max(each.datagram_length for each in told) <= 3 * 40
            assert sum(each.datagram_length for each in told) < sum(
                each.datagram_length for each in asked
            )
            counts = {each.label.partition(":")[0]: each.value for each in aeron.counters}
            assert counts["Error Frames sent"] == 256
            assert counts["Refused publishers not informed"] == counts["Images refused"] - 256

    simulate(story)


def test_each_of_many_publications_of_one_socket_hears_its_refusal() -> None:
    """One of them heard, and the others took their silence for that of nobody."""

    async def story(world: World) -> None:
        context = aa.DriverContext(max_images_per_stream=1)
        async with (
            world.host("server").aeron(context) as server,
            world.host("client").aeron() as client,
        ):
            await server.add_subscription(CHANNEL, 10)
            first = await client.add_exclusive_publication(CHANNEL, 10)
            await first.wait_connected(5)
            refused = [await client.add_exclusive_publication(CHANNEL, 10) for _ in range(20)]
            await world.sleep(1.5)
            assert {each.local_address for each in refused} == {first.local_address}
            for each in refused:
                assert aa.why(each).reason is aa.WaitReason.REJECTED
                assert "max_images_per_stream" in str(each.last_error)

    simulate(story)


def test_one_source_hears_no_more_than_half_of_what_is_told_in_a_second() -> None:
    """However many sessions a stranger makes up, others are still told."""

    async def story(world: World) -> None:
        server, mallory = world.host("server"), world.host("mallory")
        wire = Wire(world)
        async with (
            server.aeron(aa.DriverContext(max_images_per_stream=1)) as aeron,
            world.host("client").aeron() as client,
        ):
            await aeron.add_subscription(CHANNEL, 10)
            first = await client.add_exclusive_publication(CHANNEL, 10)
            await first.wait_connected(5)
            peer = await Peer.open(mallory, 6_000)
            start_s = world.now_ns / 1e9
            for session_id in range(1_000, 4_000):
                frame = setup(session_id=session_id, stream_id=10).encode()
                peer.say(frame, (server.address, 20_121))
            await world.sleep(0.01)
            second = await client.add_exclusive_publication(CHANNEL, 10)
            await world.sleep(0.3)
            told = wire.of(ErrorFrame, start_s)
            to_mallory = [each for each in told if each.destination[0] == mallory.address]
            assert len(to_mallory) == 128
            assert "max_images_per_stream" in str(second.last_error)

    simulate(story)
