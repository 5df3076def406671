"""What silent streams send and get many at a time is what each of them would send and get.

Two drivers have the same publications, to which the same happens at the same times. In one each
publication is of a derived class, which goes its usual way. After each step both have sent the same
datagrams, and are in the same state. `test_image_fast_ways` does this with images.
"""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aeron_async._speedups import WHY_PURE
from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.core.control_packet_dispatcher import ControlPacketDispatcher
from aeron_async.driver.core.network_publication import NetworkPublication
from aeron_async.driver.core.publication import PublicationState
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.driver.sender import Sender
from aeron_async.driver.stall_clock import StallClock
from aeron_async.protocol.data import encode_heartbeat
from aeron_async.protocol.header import DataFlags, StatusMessageFlags
from tests.driver.agents import SetClock
from tests.driver.fakes import (
    HALF_TERM,
    MS,
    RECEIVER_ID,
    SECOND,
    SOURCE,
    Counts,
    Outbox,
    eliciting_message,
    status_message,
)
from tests.driver.rigs import PublicationRig
from tests.logbuffer.logs import SESSION_ID
from tests.twins import TWINS, compiled_twins, needs_compiled

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTEXT: Final = DriverContext(publication_connection_timeout_ns=2 * SECOND)
COUNT: Final = 4
NO_FLAGS: Final = StatusMessageFlags(0)


class LongPublication(NetworkPublication):
    """A publication of which nothing is known that would shorten its ways."""

    __slots__ = ()


class LongRig(PublicationRig):
    publication_type = LongPublication


class Driver:
    """Some publications of one endpoint, with their sender and their dispatcher."""

    def __init__(self, rig_type: type[PublicationRig], *, is_exclusive: bool) -> None:
        self.clock, self.counts, self.outbox = SetClock(), Counts(CONTEXT), Outbox()
        self.polls = 0
        self.done: list[int] = []
        self.invalid: list[bytes] = []
        clock = StallClock(self.clock, threshold_ns=NEVER_NS)
        self.agent = Sender(CONTEXT, clock, self.counts.system, self.on_done)
        self.dispatcher = ControlPacketDispatcher(
            self.counts.system,
            self.agent.on_activity,
            lambda datagram, *_: self.invalid.append(bytes(datagram)),
        )
        self.rigs = [
            rig_type(
                context=CONTEXT,
                counts=self.counts,
                outbox=self.outbox,
                is_exclusive=is_exclusive,
                spec={"session_id": SESSION_ID + number},
                is_unicast=True,
            )
            for number in range(COUNT)
        ]
        for rig in self.rigs:
            self.dispatcher.add(rig.publication)
            rig.publication.wake_flag.callback = lambda each=rig: self.agent.on_activity(
                each.publication
            )
            self.agent.on_activity(rig.publication)
        self.due_ns = self.work()

    def on_done(self, publication: Any) -> None:
        self.dispatcher.remove(publication)
        self.done.append(publication.session_id)

    def work(self) -> int:
        """Do what is due now, and return the next deadline."""
        for _ in range(64):
            work = self.agent.do_work(self.clock.ns).__await__()
            with pytest.raises(StopIteration) as ended:
                next(work)
            self.due_ns = ended.value.value
            if self.due_ns > self.clock.ns:
                return self.due_ns
        pytest.fail("something is always due")

    def report(self, *messages: tuple[int, int, int, int, dict[str, Any]]) -> None:
        """Hear status messages that arrive together."""
        datagrams = []
        for number, distance, window_length, receiver_id, fields in messages:
            rig = self.rigs[number]
            at = max(0, rig.publication.sender_position + distance // 32 * 32)
            changes = {"receiver_window": window_length, "receiver_id": receiver_id} | fields
            datagrams.append(status_message(rig.log, at, **changes).encode())
        data = memoryview(b"".join(datagrams))
        self.dispatcher.on_datagrams(data, 36, SOURCE, self.clock.ns)

    def elicit(self, number: int) -> None:
        message = memoryview(eliciting_message(self.rigs[number].log).encode())
        self.dispatcher.on_datagrams(message, len(message), SOURCE, self.clock.ns)

    def offer(self, number: int, length: int) -> None:
        rig = self.rigs[number]
        rig.offer(bytes(length))
        rig.publication.wake_flag.set()

    def claim(self, number: int) -> None:
        """Claim a place and leave it as it is."""
        rig = self.rigs[number]
        rig.appender.try_claim(64, limit=rig.publication.publisher_limit)

    def spy(self, number: int) -> None:
        publication = self.rigs[number].publication
        if publication.is_accepting_subscriptions and not publication.subscribers.has(1):
            self.rigs[number].spy(1)
            self.agent.on_activity(publication)

    def part(self, number: int) -> None:
        publication = self.rigs[number].publication
        publication.remove_subscriber(1)
        self.agent.on_activity(publication)

    def release(self, number: int) -> None:
        publication = self.rigs[number].publication
        publication.release(self.clock.ns)
        self.agent.on_activity(publication)

    def facts(self) -> Iterator[Any]:
        """Yield all that a step may change."""
        # Those of several streams that are due together may leave in another order.
        yield sorted(self.outbox.take(), key=lambda datagram: datagram[12:16])
        yield self.due_ns, self.dispatcher.last_sm_ns, self.done, self.invalid
        yield [self.counts[each] for each in (*SystemCounterId, *DriverCounterId)]
        for rig in self.rigs:
            publication, sender = rig.publication, rig.publication._sender
            receivers = publication._receivers
            yield publication.state, publication.failure, publication.is_connected
            yield sender.position, sender.limit, sender.heartbeat_deadline_ns, sender.setup_count
            yield list(receivers.heard()), receivers.last_gone, publication.has_unicast_eos
            yield publication._retransmit_handler.budget.window_length, publication.publisher_limit
            yield publication.flow_control.slowest_receiver(), publication.has_new_limit
            yield publication._fast_until_ns, publication._fast_position
            yield publication.wake_flag.is_set, rig.window_changes
            yield [each and each.get() for each in attrs.astuple(rig.counters, recurse=False)]


class Drivers:
    """Both drivers: the same happens to them."""

    def __init__(self, *, is_exclusive: bool) -> None:
        kinds = (PublicationRig, LongRig)
        self.short, self.long = (Driver(kind, is_exclusive=is_exclusive) for kind in kinds)
        self.compare()

    def step(self, name: str, *arguments: Any) -> None:
        if name == "wait":
            self.wait(*arguments)
            return
        for each in (self.short, self.long):
            getattr(each, name)(*arguments)
            each.work()
        self.compare()

    def wait(self, time_ns: int) -> None:
        end_ns = self.short.clock.ns + time_ns
        while (due_ns := min(self.short.due_ns, self.long.due_ns)) <= end_ns:
            for each in (self.short, self.long):
                each.clock.ns = due_ns
                each.work()
            self.compare()
        self.short.clock.ns = self.long.clock.ns = end_ns

    def compare(self) -> None:
        assert list(self.short.facts()) == list(self.long.facts())

    def connect(self) -> None:
        self.step("report", *[(number, 0, HALF_TERM, RECEIVER_ID, {}) for number in range(COUNT)])


NUMBERS: Final = st.integers(0, COUNT - 1)
FIELDS: Final = st.sampled_from(
    [
        *[{}] * 8,
        {"flags": StatusMessageFlags.END_OF_STREAM},
        {"session_id": 1},
        {"stream_id": 1},
        {"consumption_term_id": 2**31 - 1},
        {"consumption_term_offset": 16},
        {"consumption_term_offset": -32},
    ]
)
MESSAGES: Final = st.tuples(
    NUMBERS,
    st.sampled_from([0, 0, 0, -32, 32, -HALF_TERM, HALF_TERM + 32]),
    st.sampled_from([*[HALF_TERM] * 4, 0, 1_408, HALF_TERM + 1, -1]),
    st.sampled_from([*[RECEIVER_ID] * 6, 7]),
    FIELDS,
)
ALL_REPORT: Final[st.SearchStrategy[tuple[Any, ...]]] = st.sampled_from(
    [HALF_TERM, HALF_TERM, 1_408]
).map(lambda length: ("report", *((each, 0, length, RECEIVER_ID, {}) for each in range(COUNT))))
WAITS: Final = st.tuples(
    st.just("wait"), st.sampled_from([1, MS, 99 * MS, 100 * MS, 300 * MS, SECOND, 3 * SECOND])
)
STEPS: Final = st.lists(
    st.one_of(
        WAITS,
        WAITS,
        WAITS,
        ALL_REPORT,
        ALL_REPORT,
        st.lists(MESSAGES, min_size=1, max_size=6).map(lambda each: ("report", *each)),
        st.tuples(st.just("offer"), NUMBERS, st.sampled_from([0, 100, 5_000])),
        st.tuples(st.sampled_from(["elicit", "claim", "spy", "part", "release"]), NUMBERS),
    ),
    max_size=40,
)
SILENT: Final[list[tuple[Any, ...]]] = [
    ("wait", 199 * MS),
    *[
        ("report", *((each, 0, HALF_TERM, RECEIVER_ID, {}) for each in range(COUNT))),
        ("wait", 200 * MS),
    ]
    * 12,
    ("wait", 3 * SECOND),
]


@pytest.mark.untraced
@example(SILENT, True)
@example([("claim", 1), *SILENT, ("wait", 20 * SECOND)], False)
@example([*SILENT[:5], ("offer", 1, 100), ("spy", 2), ("elicit", 3), *SILENT], True)
@given(STEPS, st.booleans())
def test_what_leaves_and_arrives_together_does_what_it_does_alone(
    steps: list[tuple[Any, ...]],
    is_exclusive: bool,  # noqa: FBT001 - drawn
) -> None:
    drivers = Drivers(is_exclusive=is_exclusive)
    drivers.connect()
    for step in steps:
        drivers.step(*step)


@needs_compiled
@pytest.mark.skipif(WHY_PURE is not None, reason=str(WHY_PURE))
def test_silent_publications_are_neither_asked_nor_polled(monkeypatch: pytest.MonkeyPatch) -> None:
    drivers = Drivers(is_exclusive=False)
    drivers.connect()
    drivers.step("wait", 150 * MS)
    driver = drivers.short
    for name in ("heartbeat_fast", "on_status_message_fast", "poll"):
        monkeypatch.setattr(NetworkPublication, name, None)
    for _ in range(30):
        driver.clock.ns += 100 * MS
        driver.report(*[(number, 0, HALF_TERM, RECEIVER_ID, {}) for number in range(COUNT)])
        driver.work()
    assert driver.counts[SystemCounterId.HEARTBEATS_SENT] == 32 * COUNT
    assert driver.counts[SystemCounterId.STATUS_MESSAGES_RECEIVED] == 31 * COUNT


# Arguments that no driver gives.


@pytest.fixture(params=TWINS)
def twins(request: pytest.FixtureRequest) -> Any:
    return request.param()


def counter(twins: Any) -> Any:
    """Return a counter that the twins can write to, whatever this process uses."""
    return SimpleNamespace(cell=twins.Cell(memoryview(array("q", [0]))))


def image_type(twins: Any) -> type[Any]:
    """Return a class of images that lack everything."""

    class Image(twins.Rebuilding):  # type: ignore[misc]
        pass

    return Image


def heartbeats_out(twins: Any, kind: type[Any], batch: Any = None) -> Any:
    return twins.HeartbeatsOut(
        kind,
        twins.Schedule(),
        batch,
        counter(twins),
        counter(twins),
        PublicationState.ACTIVE,
        100 * MS,
        SECOND,
    )


def heartbeat_of(session_id: int, stream_id: int) -> bytes:
    return encode_heartbeat(
        session_id=session_id,
        stream_id=stream_id,
        term_id=0,
        term_offset=0,
        flags=DataFlags.UNFRAGMENTED,
    )


class Bare:
    """A publication that lacks everything."""


def test_what_is_of_another_kind_goes_its_usual_way(twins: Any) -> None:
    streams = [Bare(), Bare()]
    assert heartbeats_out(twins, NetworkPublication).send(streams, 1, 0, 0) == 1
    assert heartbeats_out(twins, NetworkPublication).send(streams, 2, 0, 0) == 2
    assert heartbeats_out(twins, NetworkPublication).send([], 7, 0, 0) == 7
    assert (
        twins.ReportsOut(image_type(twins), twins.Schedule(), None, 1).send(streams, 0, 0, 0) == 0
    )
    streams_by_id = {7: SimpleNamespace(images={SESSION_ID: Bare()})}
    heartbeats = twins.HeartbeatsIn(image_type(twins), streams_by_id, counter(twins))
    assert heartbeats.take(memoryview(heartbeat_of(SESSION_ID, 7)), 0, 32, SOURCE, None, 0) == 0
    reports = twins.ReportsIn(NetworkPublication, {(SESSION_ID, 7): Bare()}, counter(twins))
    message = attrs.evolve(eliciting_message(PublicationRig().log), stream_id=7, flags=NO_FLAGS)
    assert reports.take(memoryview(message.encode() * 3), 36, 0) == 0


def test_one_that_fails_goes_its_usual_way_which_fails_too(twins: Any) -> None:
    assert heartbeats_out(twins, Bare).send([Bare()], 0, 0, 0) == 0


@needs_compiled
def test_places_outside_of_what_is_given_are_refused() -> None:
    twins = compiled_twins()
    reports = twins.ReportsIn(NetworkPublication, {}, counter(twins))
    heartbeats = twins.HeartbeatsIn(image_type(twins), {}, counter(twins))
    for start in (-1, 73, 2**62):
        with pytest.raises(IndexError):
            reports.take(bytes(72), start, 0)
        with pytest.raises(IndexError):
            heartbeats.take(bytes(72), start, 72, SOURCE, None, 0)
    for start, end in ((0, 73), (0, -1), (32, 31)):
        with pytest.raises(IndexError):
            heartbeats.take(bytes(72), start, end, SOURCE, None, 0)
    for length in range(72):
        assert reports.take(bytes(length), 0, 0) == 0
        assert heartbeats.take(bytes(length), 0, length, SOURCE, None, 0) == 0
    for out in (
        heartbeats_out(twins, NetworkPublication),
        twins.ReportsOut(image_type(twins), twins.Schedule(), None, 1),
    ):
        with pytest.raises(IndexError):
            out.send([Bare()], -1, 0, 0)
        with pytest.raises(TypeError):
            out.send((Bare(),), 0, 0, 0)


@needs_compiled
def test_what_was_never_set_up_does_nothing() -> None:
    twins = compiled_twins()
    for kind in (twins.HeartbeatsIn, twins.ReportsIn):
        bare = kind.__new__(kind)
        with pytest.raises(ValueError, match="there are no"):
            bare.take(bytes(36), 0, *[36, SOURCE, None][: 3 * (kind is twins.HeartbeatsIn)], 0)
    for kind in (twins.HeartbeatsOut, twins.ReportsOut):
        assert kind.__new__(kind).send([Bare()], 0, 0, 0) == 0
    with pytest.raises(TypeError, match="only images"):
        twins.HeartbeatsIn(Bare, {}, counter(twins))
    with pytest.raises(TypeError, match="only images"):
        twins.ReportsOut(Bare, twins.Schedule(), None, 1)


@needs_compiled
def test_an_image_that_lacks_everything_goes_its_usual_way() -> None:
    twins = compiled_twins()

    kind = image_type(twins)
    image = kind()
    reports = twins.ReportsOut(kind, twins.Schedule(), None, 1)
    assert reports.send([image], 0, 0, 0) == 0
    image._calm_until_ns, image.wake_flag = 1, twins.WakeFlag()
    assert reports.send([image], 0, 0, 0) == 0
    heartbeats = twins.HeartbeatsIn(kind, {5: SimpleNamespace(images={6: image})}, counter(twins))
    frame = heartbeat_of(6, 5)
    assert heartbeats.take(frame, 0, 32, SOURCE, None, 2) == 0
    # What that lacks, the usual way finds out.
    assert heartbeats.take(frame, 0, 32, SOURCE, None, 0) == 0
