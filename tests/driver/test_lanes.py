"""A `ReceiveLane` has the effect of the long way, or none.

Two receivers get the same datagrams, each by itself. One has a lane, as its socket would; the other
has none. The compiled lane works on production's images, the one in Python on those of its twins.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

import attrs
import pytest
from hypothesis import example, given

from aeron_async._speedups import WHY_PURE
from aeron_async.driver.core.lanes import ReceiveLane
from aeron_async.driver.core.publication_image import PublicationImage
from aeron_async.driver.core.system_counters import SystemCounterId
from tests.driver.fakes import MS, SOURCE
from tests.driver.streams import gathered
from tests.driver.test_image_fast_ways import (
    GAP_AFTER_A_HEARTBEAT,
    GROWING,
    IN_ORDER,
    LATE_JOIN,
    LATER_GAPS,
    SCENES,
    Reception,
    Scene,
    Step,
    drive_both,
)
from tests.logbuffer.logs import STREAM_ID, TERM_LENGTH
from tests.twins import pure

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.driver.streams import Chunk

LANES: Final = [
    pytest.param(ReceiveLane, id="of this process"),
    pytest.param(
        pure("driver.core.lanes").ReceiveLane,
        id="pure",
        marks=pytest.mark.skipif(WHY_PURE is not None, reason="the one of this process is pure"),
    ),
]


class ByOne(Reception):
    """A reception of datagrams that arrive one by one, by a lane if there is one."""

    def __init__(self, scene: Scene, lane: Any = None) -> None:
        super().__init__(PublicationImage, scene)
        self.received = self.counts.system[SystemCounterId.BYTES_RECEIVED]
        self.lane = lane and lane(
            self.outbox, self.dispatcher._streams, self, self.clock.now_ns, self.received
        )
        self.taken_count = 0

    def arrive(self, batches_at_once: int, *chunks: Chunk) -> None:
        datagrams = [each for chunk in chunks for each in self.stream.make(*chunk)]
        if batches_at_once:
            self.agent.on_reading(True)
            for batches, segments in gathered(datagrams, batches_at_once):
                self.received.increment(len(batches))
                self.dispatcher.on_batches(batches, segments, SOURCE, self.clock.ns, self.outbox)
            self.agent.on_reading(False)
            return
        for datagram in datagrams:
            if self.lane is not None and self.lane.take(datagram, SOURCE):
                self.taken_count += 1
                continue
            self.agent.on_reading(True)
            self.received.increment(len(datagram))
            self.feed(datagram, self.clock.ns)
            self.agent.on_reading(False)


def drive(lane: Any, scene: Scene) -> int:
    """Let the same happen to a reception with a lane and to one without; return what it took."""
    short, long = ByOne(scene, lane), ByOne(scene)
    drive_both(short, long, scene)
    return short.taken_count


@pytest.mark.untraced
@pytest.mark.parametrize("lane", LANES)
@example(IN_ORDER)
@example(GROWING)
@example(LATER_GAPS)
@example(GAP_AFTER_A_HEARTBEAT)
@example(LATE_JOIN)
@given(SCENES)
def test_what_a_lane_takes_is_what_the_long_way_takes(lane: Any, scene: Scene) -> None:
    drive(lane, scene)


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("join_position", [0, TERM_LENGTH - 4_096, 5 * TERM_LENGTH + 32])
def test_a_lane_takes_all_of_a_stream_that_flows(lane: Any, join_position: int) -> None:
    flow = Step("flow", (0, 1_024, 1, 1_000, 1_000))
    scene = Scene([flow, Step("wait", (MS,))] * 20, join_position=join_position)
    # The agent must have shown the first one, and the ends of terms are padded.
    assert drive(lane, scene) >= 18


# What a lane leaves to the long way.

HEADER: Final = struct.Struct("<iBBHiiiiq")


@attrs.define
class Frame:
    """A frame, of which one thing may be wrong."""

    length: int
    version: int
    flags: int
    kind: int
    term_offset: int
    session_id: int
    stream_id: int
    term_id: int

    @classmethod
    def of(cls, datagram: bytes) -> Frame:
        return cls(*HEADER.unpack_from(datagram)[:-1])

    def encode(self, payload_length: int) -> bytes:
        return HEADER.pack(*attrs.astuple(self), 0) + bytes(payload_length)


@pytest.fixture(params=LANES)
def reception(request: pytest.FixtureRequest) -> ByOne:
    """Return an image in mid-stream, calm, whose next frame a lane would take."""
    found = ByOne(IN_ORDER, request.param)
    for step in IN_ORDER.steps[:3]:
        getattr(found, step.name)(*step.arguments)
        found.agent.work()
    found.stream.position = found.image.rebuild_position
    return found


def next_frame(reception: ByOne) -> Frame:
    return Frame.of(next(reception.stream.make("next", 1_024, 1, 0)))


def test_the_next_frame_is_taken_and_wakes_each_reader(reception: ByOne) -> None:
    progress = reception.rig.progress
    frame = next_frame(reception)
    position = reception.image.rebuild_position
    assert reception.lane.take(frame.encode(1_024 - 32), SOURCE)
    assert reception.image.rebuild_position == reception.image.hwm_position == position + 1_024
    assert reception.rig.progress == progress + 2
    assert not reception.lane.take(frame.encode(1_024 - 32), SOURCE), "a second time"


@pytest.mark.parametrize(
    "change",
    [
        {"version": 1},
        {"kind": 0},
        {"kind": 2},
        {"kind": 0x0101},
        {"length": 0},
        {"length": -1_024},
        {"length": 992},
        {"length": 1_025},
        {"length": 2**31 - 1},
        {"term_offset": -32},
        {"term_offset": 0},
        {"term_offset": 2**31 - 32},
        {"session_id": 99},
        {"stream_id": STREAM_ID + 1},
        {"term_id": 2**31 - 1},
        {"term_id": -(2**31)},
    ],
    ids=str,
)
def test_a_frame_that_is_not_the_next_one_changes_nothing(
    reception: ByOne, change: dict[str, int]
) -> None:
    frame, before = next_frame(reception), reception.facts()
    assert not reception.lane.take(attrs.evolve(frame, **change).encode(1_024 - 32), SOURCE)
    assert reception.facts() == before


@pytest.mark.parametrize("length", [0, 1, 7, 31, 32, 33, 1_023, 1_025, 1_056])
def test_a_datagram_of_another_length_changes_nothing(reception: ByOne, length: int) -> None:
    datagram, before = next_frame(reception).encode(2_048)[:length], reception.facts()
    assert not reception.lane.take(datagram, SOURCE)
    assert reception.facts() == before


def in_the_way(reception: ByOne) -> None:
    log = reception.image.log
    index = reception.image.rebuild_position >> log.position_bits
    log.term_words[index % 3][(reception.image.rebuild_position % TERM_LENGTH) >> 2] = 64


def end_of_stream(reception: ByOne) -> None:
    reception.image.is_end_of_stream = True


def failed(reception: ByOne) -> None:
    reception.image.failure = ValueError("due")


def beyond_the_window(reception: ByOne) -> None:
    reception.image._feedback.overrun_threshold = reception.image.rebuild_position + 1_023


def reported_already(reception: ByOne) -> None:
    reception.image._feedback.last_sm_position = reception.image.rebuild_position + 32


def seen_further(reception: ByOne) -> None:
    reception.image.hwm_position += 32


def due(reception: ByOne) -> None:
    reception.clock.ns = reception.image._calm_until_ns


def woken(reception: ByOne) -> None:
    reception.image.wake_flag.is_set = True


def rejected(reception: ByOne) -> None:
    reception.image.reject("enough")


@pytest.mark.parametrize(
    "hinder",
    [
        in_the_way,
        end_of_stream,
        failed,
        beyond_the_window,
        reported_already,
        seen_further,
        due,
        woken,
        rejected,
    ],
)
def test_what_needs_the_long_way_is_left_to_it(
    reception: ByOne, hinder: Callable[[ByOne], None]
) -> None:
    datagram = next_frame(reception).encode(1_024 - 32)
    hinder(reception)
    before = reception.facts()
    assert not reception.lane.take(datagram, SOURCE)
    assert reception.facts() == before


def test_what_a_new_source_sends_is_left_to_the_long_way(reception: ByOne) -> None:
    for connection in reception.image.connections:
        connection.is_new = True
    assert not reception.lane.take(next_frame(reception).encode(1_024 - 32), SOURCE)


@pytest.mark.parametrize("value", [2**63 - 1, 2**63 - 1_024, -(2**63)])
def test_a_counter_that_another_process_has_filled_begins_again(
    reception: ByOne, value: int
) -> None:
    reception.received.set(value)
    position = reception.image.rebuild_position
    assert reception.lane.take(next_frame(reception).encode(1_024 - 32), SOURCE)
    assert reception.image.rebuild_position == position + 1_024
    assert reception.received.get() == (1_024 if value > 0 else value + 1_024)


@pytest.mark.parametrize("source", [("127.0.0.9", SOURCE[1]), (SOURCE[0], 9), None])
def test_what_comes_from_elsewhere_is_left_to_the_long_way(reception: ByOne, source: Any) -> None:
    before = reception.facts()
    assert not reception.lane.take(next_frame(reception).encode(1_024 - 32), source)
    assert reception.facts() == before


def test_a_reader_that_cannot_be_woken_fails_its_image_at_the_next_poll(
    reception: ByOne,
) -> None:
    def fail() -> None:
        message = "no loop"
        raise RuntimeError(message)

    for subscriber in reception.image.subscribers.active:
        subscriber.on_progress = fail
    assert reception.lane.take(next_frame(reception).encode(1_024 - 32), SOURCE)
    with pytest.raises(RuntimeError, match="no loop"):
        reception.image.poll(reception.clock.ns)
    assert reception.agent._schedule.has_ready


class Client:
    """A reader with a handler, and what it was called for."""

    def __init__(self, reception: ByOne, error: type[BaseException] | None = None) -> None:
        self.is_expecting = False
        self.called: list[str] = []
        self.deliver: Callable[[], object] | None = self.hand_over
        self.reception = reception
        self.error = error

    def on_image_progress(self) -> None:
        assert not self.is_expecting, "the loop is to call it"
        self.called.append("progress")

    def on_progress(self) -> None:
        assert self.is_expecting
        self.called.append("woken")

    def hand_over(self) -> None:
        assert not self.is_expecting
        self.called.append("delivered")
        if self.error is not None:
            raise self.error


def with_clients(reception: ByOne, *clients: Client | None) -> None:
    subscribers = reception.image.subscribers.active
    assert len(subscribers) == len(clients)
    for subscriber, client in zip(subscribers, clients, strict=True):
        subscriber.client = client
        if client is not None:
            subscriber.on_progress = client.on_progress


def take_two(reception: ByOne) -> None:
    for _ in range(2):
        (datagram,) = reception.stream.make("next", 1_024, 1, 0)
        assert reception.lane.take(datagram, SOURCE)


def test_a_handler_is_called_once_for_all_that_a_lane_has_taken(reception: ByOne) -> None:
    client = Client(reception)
    with_clients(reception, client, None)
    take_two(reception)
    assert client.called == ["woken", "woken"]
    reception.lane.deliver()
    reception.lane.deliver()
    assert client.called == ["woken", "woken", "delivered"]


def test_a_handler_that_was_removed_meanwhile_is_not_called(reception: ByOne) -> None:
    clients = Client(reception), Client(reception)
    with_clients(reception, *clients)
    take_two(reception)
    clients[0].deliver = None
    reception.lane.deliver()
    assert [each.called[2:] for each in clients] == [[], ["delivered"]]
    assert not clients[0].is_expecting


def test_what_stops_the_loop_leaves_the_other_handlers_to_it(reception: ByOne) -> None:
    clients = Client(reception, KeyboardInterrupt), Client(reception)
    with_clients(reception, *clients)
    take_two(reception)
    with pytest.raises(KeyboardInterrupt):
        reception.lane.deliver()
    assert [each.called[2:] for each in clients] == [["delivered"], ["progress"]]
    reception.lane.deliver()
    assert clients[1].called[2:] == ["progress"]


def test_a_frame_that_is_not_taken_promises_nothing(reception: ByOne) -> None:
    clients = Client(reception), Client(reception)
    with_clients(reception, *clients)
    reception.image.wake_flag.is_set = True
    assert not reception.lane.take(next_frame(reception).encode(1_024 - 32), SOURCE)
    assert not any(each.is_expecting or each.called for each in clients)
    reception.lane.deliver()
    assert not any(each.called for each in clients)
