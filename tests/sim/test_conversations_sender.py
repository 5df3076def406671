"""Our publications in the place of the official ones, answered by captured official receivers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest

from aeron_async.protocol.datagram import DataFrame, frame_type, frames
from aeron_async.protocol.header import DataFlags, FrameType, RttFlags
from aeron_async.protocol.rtt import RttMeasurement
from aeron_async.protocol.setup import Setup
from aeron_async.protocol.status_message import StatusMessage
from aeron_async.testing.world import simulate
from tests.sim import conversation as talk
from tests.sim.conversation import Conversation

if TYPE_CHECKING:
    from collections.abc import Iterable

    import aeron_async as aa
    from aeron_async.testing.world import World
    from tests.captures import Packet
    from tests.sim.conversation import Said

SETUP_INTERVAL_S = 0.1
TIMERS_ARE_LATE_S = 0.002
RECEIVERS_SAY = {FrameType.SM, FrameType.NAK, FrameType.ERR, FrameType.RSP_SETUP}


def is_a_receivers(packet: Packet) -> bool:
    kind = frame_type(memoryview(packet.payload))
    if kind == FrameType.RTTM:
        return bool(RttMeasurement.decode(packet.payload).flags & RttFlags.REPLY)
    return kind in RECEIVERS_SAY


@attrs.frozen(kw_only=True)
class Script:
    """What our application does in the place of the captured one.

    Attributes:
        channel: Of the publication, without what the capture says of the stream.
        destinations: Added when the first datagram went there, and removed after the last.
        is_revoked: Whether the publication is not closed but revoked.
    """

    channel: str
    destinations: tuple[str, ...] = ()
    is_revoked: bool = False


SCRIPTS = {
    "05-flow-control-gtag": Script(
        channel="aeron:udp?control=127.0.0.1:24050|control-mode=dynamic|fc=tagged,g:1001/1"
    ),
    "05b-flow-control-gtag-multicast": Script(
        channel="aeron:udp?endpoint=224.20.30.51:24055|interface=127.0.0.1|fc=tagged,g:1001/1"
    ),
    "06-mdc-dynamic": Script(channel="aeron:udp?control=127.0.0.1:24060|control-mode=dynamic"),
    "07-mdc-manual": Script(
        channel="aeron:udp?control=127.0.0.1:24070|control-mode=manual",
        destinations=("aeron:udp?endpoint=127.0.0.1:24071", "aeron:udp?endpoint=127.0.0.1:24072"),
    ),
    "08-multicast-late-join": Script(
        channel="aeron:udp?endpoint=224.20.30.39:24080|interface=127.0.0.1|ttl=4"
    ),
    "09-cubic-rttm": Script(channel="aeron:udp?endpoint=127.0.0.1:24090"),
    "09b-cubic-loss": Script(channel="aeron:udp?endpoint=127.0.0.1:24095"),
    "10-back-pressure": Script(channel="aeron:udp?endpoint=127.0.0.1:24100"),
    "11a-image-reject-err": Script(channel="aeron:udp?endpoint=127.0.0.1:24110"),
    "11b-image-reject-err-gtag": Script(channel="aeron:udp?endpoint=127.0.0.1:24112"),
    "11c-publication-revoke": Script(channel="aeron:udp?endpoint=127.0.0.1:24115", is_revoked=True),
}


class Sender:
    """Our publication, and what it is to offer when."""

    def __init__(self, world: World, name: str) -> None:
        self.script = SCRIPTS[name]
        self.talk = Conversation(world, name, is_a_receivers)
        setup = next(
            frame
            for each in self.talk.expected
            for frame in frames(each.payload)
            if isinstance(frame, Setup)
        )
        self.stream_id = setup.stream_id
        self.channel = (
            f"{self.script.channel}|session-id={setup.session_id}|term-length={setup.term_length}"
            f"|init-term-id={setup.initial_term_id}|term-id={setup.initial_term_id}|term-offset=0"
        )
        self.messages: dict[tuple[int, int], tuple[float, bytes]] = {}
        self.ends_s = self.talk.expected[-1].at_s
        for each in self.talk.expected:
            for frame in frames(each.payload):
                if not isinstance(frame, DataFrame):
                    continue
                header = frame.header
                if header.is_heartbeat and header.flags & DataFlags.END_OF_STREAM:
                    self.ends_s = min(self.ends_s, each.at_s)
                elif not header.is_heartbeat:
                    place = header.term_id, header.term_offset
                    self.messages.setdefault(place, (each.at_s, bytes(frame.payload)))

    async def run(self) -> None:
        """Publish what was published, when it was, until the capture ends."""
        talk = self.talk
        hears = {each.destination for each in talk.expected}
        await talk.open(*hears)
        playing = talk.host.spawn(talk.play())
        # Where the receivers are known, the first SETUP leaves at once; else they announce
        # themselves, and the next one reaches them.
        has_destinations = "control-mode" in self.script.channel
        lead_s = SETUP_INTERVAL_S + TIMERS_ARE_LATE_S if has_destinations else 0.0
        await talk.until(talk.expected[0].at_s - lead_s)
        async with talk.host.aeron() as aeron:
            publication = await aeron.add_exclusive_publication(self.channel, self.stream_id)
            port = int(publication.local_address.rpartition(":")[2])
            for packet in talk.theirs:
                talk.moved.setdefault(packet.destination, packet.destination)
                if "control" not in self.script.channel and "224." not in self.script.channel:
                    talk.moved[packet.destination] = "127.0.0.1", port
            directing = talk.host.spawn(self._direct(publication))
            for at_s, message in self.messages.values():
                await talk.until(at_s)
                await publication.offer(message, timeout=5)
            await talk.until(self.ends_s - 0.05)
            await publication.aclose(revoke=self.script.is_revoked)
            await playing
            await directing
            await talk.until(talk.expected[-1].at_s + 0.2)

    async def _direct(self, publication: aa.ExclusivePublication) -> None:
        talk = self.talk
        for channel in self.script.destinations:
            port = int(channel.rpartition(":")[2])
            times = [each.at_s for each in talk.expected if each.destination[1] == port]
            talk.host.spawn(self._visit(publication, channel, times[0], times[-1]))

    async def _visit(
        self, publication: aa.ExclusivePublication, channel: str, first_s: float, last_s: float
    ) -> None:
        # The first one is there for the first SETUP; the others come between two messages.
        is_first = first_s == self.talk.expected[0].at_s
        await self.talk.until(first_s - (SETUP_INTERVAL_S / 2 if is_first else 0.0005))
        await publication.add_destination(channel)
        if last_s < self.ends_s:
            await self.talk.until(last_s + 0.001)
            await publication.remove_destination(channel)


def play(name: str) -> Sender:
    async def story(world: World) -> Sender:
        sender = Sender(world, name)
        await sender.run()
        return sender

    sender: Sender = simulate(story)
    return sender


def rtt_replies(said: Iterable[Said]) -> set[tuple[int, int, int]]:
    return {
        (each.echo_timestamp_ns, each.receiver_id, each.reception_delta_ns)
        for each in talk.others(said, RttMeasurement)
    }


def goodbye_s(sender: Sender) -> float:
    """When the first receiver said goodbye."""
    return min(
        (
            sender.talk.time_of(packet)
            for packet in sender.talk.theirs
            if isinstance(sm := next(frames(packet.payload)), StatusMessage) and sm.is_end_of_stream
        ),
        default=float("inf"),
    )


@pytest.mark.parametrize("name", SCRIPTS)
def test_we_send_the_frames_that_the_official_driver_sent(name: str) -> None:
    sender = play(name)
    ours, official = sender.talk.said, sender.talk.expected
    assert talk.setups(ours) == talk.setups(official)
    assert talk.data(ours) == talk.data(official)
    assert talk.heartbeats(ours) == talk.heartbeats(official)
    assert talk.resent(ours) == talk.resent(official)
    # The official conductor looks once a second whether the only receiver has said goodbye, and so
    # answers for as long; ours ends at once.
    ends_s = goodbye_s(sender)
    assert rtt_replies(ours) == rtt_replies(each for each in official if each.at_s < ends_s)
