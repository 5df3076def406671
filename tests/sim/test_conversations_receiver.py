"""Our subscriptions in the place of official ones, spoken to by captured official publications."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import attrs
import pytest

import aeron_async as aa
from aeron_async.protocol.datagram import DataFrame, frames
from aeron_async.protocol.error import ErrorFrame
from aeron_async.protocol.header import DataFlags
from aeron_async.protocol.nak import Nak
from aeron_async.protocol.rtt import RttMeasurement
from aeron_async.protocol.setup import Setup
from aeron_async.protocol.status_message import StatusMessage
from aeron_async.testing.world import simulate
from tests.sim import conversation as talk
from tests.sim.conversation import Conversation

if TYPE_CHECKING:
    from aeron_async.testing.world import World
    from tests.captures import Packet
    from tests.sim.conversation import Said

NEVER_S = 1e9


def without_lost(packets: list[Packet]) -> list[Packet]:
    """Leave out what never arrived: whatever had to be sent again.

    The captures were taken where the datagrams left.
    """
    kept = []
    seen: set[tuple[int, int]] = set()
    for packet in reversed(packets):
        found = {
            (frame.header.term_id, frame.header.term_offset)
            for frame in frames(packet.payload)
            if isinstance(frame, DataFrame) and not frame.header.is_heartbeat
        }
        if not found & seen:
            kept.append(packet)
        seen |= found
    return kept[::-1]


@attrs.frozen(kw_only=True)
class Script:
    """What our application does in the place of the captured one.

    Attributes:
        channel: Of the subscription.
        receiver_id: Of the official one.
        message_count: After so many messages it closes; 0 is never. The official conductor looks
            once a second who has closed, so its goodbye does not tell when that was.
        rejection: Why it rejects its image, when the official one did.
        context: Settings of the driver.
    """

    channel: str
    receiver_id: int
    message_count: int = 0
    rejection: str = ""
    context: aa.DriverContext = attrs.field(factory=aa.DriverContext)


CUBIC = aa.DriverContext(
    cubic_congestion_control_measure_rtt=True, cubic_congestion_control_initial_rtt_ns=20_000_000
)
DYNAMIC = "aeron:udp?endpoint=127.0.0.1:{}|control=127.0.0.1:{}|control-mode=dynamic"
MULTICAST = "aeron:udp?endpoint={}|interface=127.0.0.1"
UNICAST = "aeron:udp?endpoint=127.0.0.1:{}"
SCRIPTS = {
    ("05-flow-control-gtag", "tagged"): Script(
        channel=DYNAMIC.format(24051, 24050) + "|gtag=1001", receiver_id=-50753674841859207
    ),
    ("05b-flow-control-gtag-multicast", "tagged"): Script(
        channel=MULTICAST.format("224.20.30.51:24055") + "|gtag=1001",
        receiver_id=-2045100599104209444,
    ),
    ("05b-flow-control-gtag-multicast", "untagged"): Script(
        channel=MULTICAST.format("224.20.30.51:24055"), receiver_id=-3033901170423146402
    ),
    ("06-mdc-dynamic", "first"): Script(
        channel=DYNAMIC.format(24061, 24060), receiver_id=4104561263712565899
    ),
    ("06-mdc-dynamic", "second"): Script(
        channel=DYNAMIC.format(24062, 24060), receiver_id=-3372318969994199820, message_count=29
    ),
    ("07-mdc-manual", "first"): Script(
        channel=UNICAST.format(24071), receiver_id=6101485943537055121
    ),
    ("07-mdc-manual", "second"): Script(
        channel=UNICAST.format(24072), receiver_id=-4142150940970604513
    ),
    ("08-multicast-late-join", "early"): Script(
        channel=MULTICAST.format("224.20.30.39:24080"), receiver_id=8894118146979359003
    ),
    ("08-multicast-late-join", "late"): Script(
        channel=MULTICAST.format("224.20.30.39:24080"), receiver_id=-3463598785378232273
    ),
    ("11a-image-reject-err", "rejecting"): Script(
        channel=UNICAST.format(24110),
        receiver_id=-808807190040492895,
        rejection="rejected by test: bad sequence",
    ),
    ("11b-image-reject-err-gtag", "rejecting"): Script(
        channel=UNICAST.format(24112) + "|gtag=77",
        receiver_id=-865769928057479522,
        rejection="member not allowed here",
    ),
    ("11c-publication-revoke", "reading"): Script(
        channel=UNICAST.format(24115), receiver_id=2108771142587802653
    ),
}


class Receiver:
    """Our subscription, and what it is to do when."""

    def __init__(self, world: World, name: str, script: Script) -> None:
        self.script = script
        packets = Conversation(world, name, lambda _: True).theirs
        self.publishers = {
            packet.source
            for packet in packets
            if isinstance(next(frames(packet.payload)), Setup | DataFrame)
        }
        self.talk = Conversation(world, name, self.is_played)
        if name == "09b-cubic-loss":
            self.talk.theirs = without_lost(self.talk.theirs)
        self._sources = {
            each.source
            for each in self.talk.expected
            if getattr(next(frames(each.payload)), "receiver_id", None) == script.receiver_id
        }
        first_of_ours = next(each for each in self.talk.expected if self.is_ours(each))
        self.first_s = first_of_ours.at_s
        self.official = [each for each in self.talk.expected if self.is_ours(each)]
        self.stream_id = next(
            frame.stream_id
            for packet in self.talk.theirs
            if isinstance(frame := next(frames(packet.payload)), Setup)
        )
        self.messages: list[bytes] = []
        self.said: list[Said] = []

    def is_played(self, packet: Packet) -> bool:
        endpoint = self.script.channel.partition("endpoint=")[2].partition("|")[0]
        host, _, port = endpoint.partition(":")
        return packet.source in self.publishers and packet.destination == (host, int(port))

    def is_ours(self, said: Said) -> bool:
        frame = next(frames(said.payload))
        if isinstance(frame, Nak):
            return said.source in self._sources
        return getattr(frame, "receiver_id", None) == self.script.receiver_id

    @property
    def closes_s(self) -> float:
        """When the official subscription was closed, for it said goodbye before the stream did."""
        ends_s = min(
            (
                self.talk.time_of(packet)
                for packet in self.talk.theirs
                if isinstance(frame := next(frames(packet.payload)), DataFrame)
                and frame.header.flags & DataFlags.END_OF_STREAM
            ),
            default=NEVER_S,
        )
        for each in self.official:
            sm = next(frames(each.payload))
            if isinstance(sm, StatusMessage) and sm.is_end_of_stream and each.at_s < ends_s:
                return each.at_s
        return NEVER_S

    async def run(self) -> None:
        """Subscribe when the official one did, and read until the capture ends."""
        talk = self.talk
        await talk.open(*{each.destination for each in self.official})
        playing = talk.host.spawn(talk.play())
        first = next(frames(self.official[0].payload))
        assert isinstance(first, StatusMessage)
        lead_s = 0.001 if first.is_setup_elicit else 0.5
        await talk.until(self.first_s - lead_s)
        async with talk.host.aeron(self.script.context) as aeron:
            subscription = await aeron.add_subscription(self.script.channel, self.stream_id)
            reading = talk.host.spawn(self._read(subscription))
            if self.script.rejection:
                talk.host.spawn(self._reject(subscription))
            if self.closes_s < NEVER_S:
                await talk.until(self.closes_s - 0.02)
                await subscription.aclose()
            await playing
            await talk.until(talk.expected[-1].at_s + 0.1)
            reading.cancel()
            self.said = list(talk.said)

    async def _read(self, subscription: aa.Subscription) -> None:
        async for message in subscription:
            self.messages.append(bytes(message.data))
            if len(self.messages) == self.script.message_count:
                await subscription.aclose()

    async def _reject(self, subscription: aa.Subscription) -> None:
        at_s = min(
            each.at_s
            for each in self.official
            if isinstance(next(frames(each.payload)), ErrorFrame)
        )
        await self.talk.until(at_s - 0.001)
        (image,) = subscription.images
        await image.reject(self.script.rejection)


def play(name: str, who: str) -> Receiver:
    async def story(world: World) -> Receiver:
        receiver = Receiver(world, name, SCRIPTS[name, who])
        await receiver.run()
        return receiver

    receiver: Receiver = simulate(story)
    return receiver


def errors(said: list[Said]) -> list[ErrorFrame]:
    return [attrs.evolve(each, receiver_id=0) for each in talk.others(said, ErrorFrame)]


@pytest.mark.parametrize(("name", "who"), SCRIPTS)
def test_we_answer_as_the_official_receiver_answered(name: str, who: str) -> None:
    receiver = play(name, who)
    ours, official = receiver.said, receiver.official
    assert talk.status_messages(ours) == talk.status_messages(official)
    assert talk.naks(ours) == talk.naks(official)
    assert set(errors(ours)) == set(errors(official))
    assert abs(len(errors(ours)) - len(errors(official))) <= 1
    announced, expected = talk.announcements(ours), talk.announcements(official)
    assert abs(len(announced) - len(expected)) <= 1
    assert {each[1:] for each in announced} == {each[1:] for each in expected}
    assert {each.destination for each in ours} == {each.destination for each in official}


@pytest.mark.parametrize(
    ("name", "port", "receiver_id"),
    [
        ("09-cubic-rttm", 24090, -2096146978941288191),
        ("09b-cubic-loss", 24095, 1602497014483108656),
    ],
)
def test_cubic_measures_and_opens_its_window_as_the_official_one(
    name: str, port: int, receiver_id: int
) -> None:
    script = Script(
        channel=UNICAST.format(port) + "|cc=cubic", receiver_id=receiver_id, context=CUBIC
    )

    async def story(world: World) -> Receiver:
        receiver = Receiver(world, name, script)
        await receiver.run()
        return receiver

    receiver: Receiver = simulate(story)
    ours, official = receiver.said, receiver.official
    # A window that opened may be told a message sooner or later: each looks when it is awake.
    assert windows(ours) == windows(official)
    assert talk.naks(ours) == talk.naks(official)
    asked, expected = talk.others(ours, RttMeasurement), talk.others(official, RttMeasurement)
    assert {int(each.flags) for each in asked} == {int(each.flags) for each in expected}
    # Every 80 ms; a timer of an event loop is up to a millisecond late.
    assert len(expected) - 3 <= len(asked) <= len(expected)


def windows(said: list[Said]) -> list[int]:
    """The windows in the order in which they changed."""
    told = [window for _, _, window, *_ in talk.status_messages(said)]
    return [window for window, _ in groupby(told)]
