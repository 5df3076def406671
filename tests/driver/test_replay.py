"""What the official driver sent, fed to our receiving side: the same messages, NAKs and windows."""

from __future__ import annotations

import hashlib
import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import pytest

from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.core.image_state import ImageState
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.driver.image_refusals import start_position
from aeron_async.protocol.datagram import DataFrame, frames
from aeron_async.protocol.header import StatusMessageFlags
from aeron_async.protocol.nak import Nak
from aeron_async.protocol.status_message import StatusMessage
from tests.captures import Packet, captures_dir, read_capture
from tests.driver.fakes import MS, SECOND, US, position_of
from tests.driver.rigs import DispatcherRig, ImageRig

if TYPE_CHECKING:
    from aeron_async.driver.core.outbox import Address
    from aeron_async.protocol.setup import Setup

LOSSY: Final = (
    "04-unicast-loss-nak",
    "04a-loss-first-frames",
    "04b-loss-multi-gap",
    "04c-loss-tail",
    "04d-loss-of-control",
)
# One message at a time, read as it comes: here even the status messages are the same ones.
PACED: Final = (
    "01-unicast-basic",
    "03-unicast-term-rotation",
    "03b-term-id-wrap-initial-position",
    "10-back-pressure",
)
ALL: Final = (
    *PACED,
    *LOSSY,
    "02-unicast-fragmented",
    "02b-unicast-fragmented-small-mtu",
    "03c-append-padding",
    "13-batched-frames",
    "13b-batched-mixed-lengths",
    "13c-batched-with-padding",
)
# What the official receiver took off its socket in one turn, as far as times can tell.
BATCH_NS: Final = 50 * US
WINDOWS: Final = {"10-back-pressure": 8_192}
DELAYS: Final = {
    "04d-loss-of-control": DriverContext(
        nak_unicast_delay_ns=1 * MS, nak_unicast_retry_delay_ratio=15
    )
}


class Replay(DispatcherRig):
    """A receive endpoint in the place of the official one, and a subscriber that reads at once."""

    def __init__(self, name: str, *, is_loss_injected: bool) -> None:
        context = DELAYS.get(name, DriverContext())
        super().__init__(context=context)
        self._context = context
        facts: dict[str, Any] = json.loads((captures_dir() / "facts.json").read_text())[name]
        (self.stream,) = facts["streams"]
        (self.flow,) = self.stream["flows"]
        self._window_length = WINDOWS.get(name, context.initial_window_length)
        self.now_ns = 0
        self.messages: list[bytes] = []
        self.status_messages: list[tuple[int, StatusMessage]] = []
        self.naks: list[tuple[int, Nak]] = []
        self.dispatcher.add_subscription(self.stream["stream_id"], None)
        host, port = self.flow["to"].split(":")
        packets = [
            packet for packet in read_capture(name) if packet.destination == (host, int(port))
        ]
        for packet in without_lost(packets) if is_loss_injected else packets:
            if packet.timestamp_ns > self.now_ns + BATCH_NS:
                self.run_until(packet.timestamp_ns)
            self.feed(packet.payload, packet.timestamp_ns, packet.source)
            self.work(packet.timestamp_ns)
        self.run_until(packets[-1].timestamp_ns + 3 * SECOND)

    def on_create_image(self, setup: Setup, source: Address, destination: Any) -> None:
        self.setups.append((setup, source))
        spec = {
            key: getattr(setup, key)
            for key in ("session_id", "stream_id", "initial_term_id", "term_length", "mtu_length")
        }
        self.rig = ImageRig(
            context=self._context,
            now_ns=self.now_ns,
            join_position=start_position(setup),
            spec=spec,
            counts=self.counts,
            outbox=destination,
            window_length=self._window_length,
            source=source,
        )
        self.dispatcher.add_image(self.rig.image)

    def feed(
        self,
        datagram: bytes,
        now_ns: int = 0,
        source: Any = None,
        destination: Any = None,
    ) -> None:
        self.now_ns = now_ns
        super().feed(datagram, now_ns, source, destination)

    def run_until(self, end_ns: int) -> None:
        """Do what is due at its time, up to the next datagram."""
        while self.setups and (self.deadline_ns < end_ns):
            self.work(max(self.deadline_ns, self.now_ns))

    def work(self, now_ns: int) -> None:
        """Let the image work, the subscriber read, and the image see what it has read."""
        self.now_ns = now_ns
        if not self.setups:
            return
        self.rig.image.poll(now_ns)
        self.messages += self.rig.read()
        self.deadline_ns = self.rig.image.poll(now_ns)
        for datagram in self.outbox.take():
            frame = next(frames(datagram))
            if isinstance(frame, StatusMessage):
                self.status_messages.append((now_ns, frame))
            else:
                assert isinstance(frame, Nak)
                self.naks.append((now_ns, frame))

    def positions(self) -> list[int]:
        """Return the distinct positions of the status messages, in order."""
        found = [
            position_of(sm.consumption_term_id, sm.consumption_term_offset, self.rig.log)
            for _, sm in self.status_messages
        ]
        assert found == sorted(found)
        return list(dict.fromkeys(found))

    def nak_ranges(self) -> list[tuple[int, int]]:
        """Return position and length of the distinct gaps that were asked for, in order."""
        ranges = [
            (position_of(nak.term_id, nak.term_offset, self.rig.log), nak.length)
            for _, nak in self.naks
        ]
        return list(dict.fromkeys(ranges))


def places(packet: Packet) -> set[tuple[int, int]]:
    """Return term id and offset of each frame of data in a datagram."""
    return {
        (frame.header.term_id, frame.header.term_offset)
        for frame in frames(packet.payload)
        if isinstance(frame, DataFrame) and not frame.header.is_heartbeat
    }


def without_lost(packets: list[Packet]) -> list[Packet]:
    """Leave out the datagrams with anything that had to be sent again."""
    kept = []
    seen: set[tuple[int, int]] = set()
    for packet in reversed(packets):
        found = places(packet)
        if not found & seen:
            kept.append(packet)
        seen |= found
    return kept[::-1]


def check_messages(replay: Replay) -> None:
    facts = replay.flow
    assert len(replay.messages) == facts["messages"]
    assert sum(map(len, replay.messages)) == facts["message_payload_bytes"]
    assert hashlib.sha256(b"".join(replay.messages)).hexdigest() == facts["messages_sha256"]
    image = replay.rig.image
    assert image.rebuild_position == image.hwm_position == facts["end_position"]
    assert replay.rig.readers[0][0].position == facts["end_position"]
    assert replay.rig.readers[0][0].discarded_fragments == 0
    assert replay.rig.log.metadata.end_of_stream_position == facts["end_position"]
    assert image.state is ImageState.LINGER


def check_status_messages(replay: Replay) -> None:
    times = [now_ns for now_ns, _ in replay.status_messages]
    (receiver,) = replay.stream["receivers"]
    assert {sm.receiver_window for _, sm in replay.status_messages} == set(receiver["windows"])
    assert {sm.frame_length for _, sm in replay.status_messages} == set(receiver["frame_length"])
    assert max(after - before for before, after in pairwise(times)) == 200 * MS
    goodbyes = [sm.flags for _, sm in replay.status_messages if sm.is_end_of_stream]
    assert len(goodbyes) == receiver["flags"]["0x40"] == 5
    assert all(
        sm.flags == StatusMessageFlags.END_OF_STREAM for _, sm in replay.status_messages[-5:]
    )
    assert replay.positions()[0] == replay.stream["setups"][0]["position"]


@pytest.mark.parametrize("name", ALL)
def test_everything_that_was_sent_brings_every_message_and_no_nak(name: str) -> None:
    replay = Replay(name, is_loss_injected=False)
    check_messages(replay)
    check_status_messages(replay)
    assert replay.naks == []
    assert len(replay.setups) == 1
    for counter_id in (
        SystemCounterId.INVALID_PACKETS,
        SystemCounterId.FLOW_CONTROL_OVER_RUNS,
    ):
        assert replay.counts[counter_id] == 0


@pytest.mark.parametrize("name", LOSSY)
def test_what_was_lost_is_asked_for_as_the_official_receiver_asked_for_it(name: str) -> None:
    replay = Replay(name, is_loss_injected=True)
    check_messages(replay)
    check_status_messages(replay)
    expected = [(each["position"], each["length"]) for each in replay.stream["naks"]]
    assert replay.nak_ranges() == expected
    delay_ns = DELAYS.get(name, DriverContext()).nak_unicast_retry_delay_ns
    for (before_ns, before), (after_ns, after) in pairwise(replay.naks):
        if before == after:
            assert after_ns - before_ns == delay_ns


@pytest.mark.parametrize("name", PACED)
def test_a_reader_that_keeps_up_makes_the_same_status_messages(name: str) -> None:
    replay = Replay(name, is_loss_injected=False)
    (receiver,) = replay.stream["receivers"]
    expected = [position for position, *_ in receiver["sequence"]]
    assert replay.positions() == list(dict.fromkeys(expected))


def test_the_first_status_message_answers_the_setup_at_once() -> None:
    replay = Replay("01-unicast-basic", is_loss_injected=False)
    setup_ns = next(read_capture("01-unicast-basic")).timestamp_ns
    assert replay.status_messages[0][0] == setup_ns
