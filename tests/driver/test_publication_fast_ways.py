"""The fast ways of a publication: two publications with the same input, one takes no fast way.

The twins act at the same times, as their sender and their dispatcher let them. After each step both
have sent the same datagrams, and their state and counters are the same. By contract one thing may
differ until the next poll: a lone offer that was sent without a poll has not raised the publisher
limit, which then is at most an eighth of the window and one datagram lower.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aeron_async._speedups import SendLane
from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.core.control_packet_dispatcher import ControlPacketDispatcher
from aeron_async.driver.core.flow_control import (
    MaxMulticastFlowControl,
    MinMulticastFlowControl,
    TaggedMulticastFlowControl,
)
from aeron_async.driver.core.flow_control.base import FlowControl, UnicastFlowControl
from aeron_async.driver.core.lanes import Sleeping
from aeron_async.driver.core.publication import PublicationState
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.driver.core.timestamps import SendTimestamps
from aeron_async.protocol.error import ErrorFrame
from aeron_async.protocol.header import RttFlags, StatusMessageFlags
from aeron_async.protocol.rtt import RttMeasurement
from tests.by_hand import NOT_BUILT
from tests.driver.agents import SetClock
from tests.driver.fakes import HALF_TERM, MS, RECEIVER_ID, SECOND, SOURCE, nak, status_message
from tests.driver.rigs import PublicationRig, SpiedPublication
from tests.logbuffer.logs import MTU_LENGTH, SESSION_ID, STREAM_ID

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.protocol.status_message import StatusMessage

SEND_DATA, HEARTBEAT, STATUS_MESSAGE = FAST_WAYS = (
    "send_data_fast",
    "heartbeat_fast",
    "on_status_message_fast",
)
SEND_LANE: Final = "a lane"
TAG: Final = 1_001
RECEIVERS: Final = (RECEIVER_ID, 7, -7)
LAST_TERM_ID: Final = 2**31 - 1
LAG: Final = HALF_TERM // 8 + MTU_LENGTH
"""How far the publisher limit may be behind after lone offers: an eighth, and a datagram."""


class HalfWindow(UnicastFlowControl):
    """A strategy derived from the one that has a fast way."""

    def on_status_message(
        self, sm: StatusMessage, *, position: int, sender_limit: int, now_ns: int
    ) -> int:
        del now_ns
        return max(sender_limit, position + sm.receiver_window // 2)


FLOW_CONTROLS: Final[dict[str, Callable[[], FlowControl]]] = {
    "unicast": partial(UnicastFlowControl, retransmit_receiver_window_multiple=16),
    "derived": partial(HalfWindow, retransmit_receiver_window_multiple=16),
    "max": MaxMulticastFlowControl,
    "min": partial(MinMulticastFlowControl, receiver_timeout_ns=2 * SECOND),
    "min of two": partial(MinMulticastFlowControl, group_min_size=2, max_receivers=2),
    "tagged": partial(TaggedMulticastFlowControl, group_tag=TAG),
}
CONTEXTS: Final[dict[str, DriverContext]] = {
    "default": DriverContext(),
    "hasty": DriverContext(
        publication_connection_timeout_ns=300 * MS, retransmit_unicast_delay_ns=5 * MS
    ),
    "small bursts": DriverContext(network_publication_max_messages_per_send=1),
}


class LaneAgent(Sleeping):
    """The sender of a lane: it sleeps, and lets a twin do what the lane leaves to it."""

    def __init__(self, twin: Twin) -> None:
        self._clock = SetClock()
        self.twin = twin
        self.left_count = 0
        self._waiter, self._sleeps_until_ns = self, NEVER_NS

    def on_offer(self, publication: Any) -> None:
        assert publication is self.twin.publication
        self.left_count += 1
        self.twin.take_turn(self._clock.ns)

    def on_offer_failed(self, publication: Any, error: Exception, now_ns: int) -> None:
        raise AssertionError(publication, now_ns) from error


class Twin(PublicationRig):
    """A connected publication, called by its sender and its dispatcher; it may take one fast way.

    Attributes:
        taken_count: How often it took that way.
        due_ns: When the sender calls it next.
    """

    publication_type = SpiedPublication

    def __init__(
        self,
        fast: str | None,
        *,
        flow_control: str = "unicast",
        context: str = "default",
        has_timestamps: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(
            flow_control=FLOW_CONTROLS[flow_control](),
            context=CONTEXTS[context],
            timestamps=SendTimestamps(0, lambda: 1) if has_timestamps else None,
            is_unicast=flow_control in {"unicast", "derived"},
            has_group_semantics=flow_control not in {"unicast", "derived"},
            **options,
        )
        self.taken_count = 0
        for name in FAST_WAYS:
            way = getattr(self.publication, name)
            setattr(self.publication, name, partial(self._take, way if name == fast else None))
        self.activity: list[Any] = []
        self.dispatcher = ControlPacketDispatcher(
            self.counts.system, self.activity.append, lambda *_: None
        )
        self.dispatcher.add(self.publication)
        self.due_ns = 0
        self.agent = LaneAgent(self)
        self.lane: Any = None
        # A publication with timestamps has none.
        if fast == SEND_LANE and SendLane is not None and not has_timestamps:
            self.lane = SendLane(self.publication, self.agent, None, 0)

    def _take(self, way: Callable[..., int] | None, *args: int) -> int:
        result = 0 if way is None else way(*args)
        self.taken_count += bool(result)
        return result

    # The sender.

    def take_turn(self, now_ns: int) -> None:
        for _ in range(64):
            self.due_ns = self.publication.poll(now_ns)
            if self.due_ns > now_ns:
                return
        pytest.fail("the publication is always due")

    def on_offer(self, now_ns: int) -> None:
        self.publication.wake_flag.is_set = True
        self.agent._clock.ns = now_ns
        if self.lane is not None:
            left_count = self.agent.left_count
            self.lane.on_offer()
            self.taken_count += self.agent.left_count == left_count
        elif not self.publication.send_data_fast(now_ns):
            self.take_turn(now_ns)

    def on_due(self, now_ns: int) -> None:
        deadline_ns = self.publication.heartbeat_fast(now_ns)
        if now_ns < deadline_ns < NEVER_NS:
            self.due_ns = deadline_ns
        else:
            self.take_turn(now_ns)

    # What is compared.

    def state_now(self) -> dict[str, Any]:
        publication, sender = self.publication, self.publication._sender
        receivers, control = publication._receivers, publication.flow_control
        shown = attrs.asdict(self.counters, recurse=False)
        limit = shown.pop("publisher_limit")
        return {
            "life": (publication.state, publication.failure, publication.is_end_of_stream),
            "connection": (publication.is_connected, self.log.metadata.is_connected),
            "sender": (sender.position, sender.limit, sender.heartbeat_deadline_ns),
            "setups": (sender.setup_count, sender.setup_deadline_ns),
            "goodbye": (publication.has_unicast_eos, publication.has_receivers),
            "starts": (bytes(sender._frame_starts._positions), sender._frame_starts.next_position),
            "heard": [(*each, receivers.source_of(each[0])) for each in receivers.heard()],
            "gone": receivers.last_gone,
            "group": (control.receiver_count(), control.slowest_receiver()),
            "window": publication._retransmit_handler.budget.window_length,
            "dispatcher": self.dispatcher.last_sm_ns,
            "spies": (
                self.told,
                self.progress,
                publication.consumption_trigger,
                publication.join_position,
            ),
            "errors": len(self.errors),
            "system": [
                self.counts[each] for kind in (SystemCounterId, DriverCounterId) for each in kind
            ],
            "counters": [each and each.get() for each in shown.values()],
            "shown": limit.get() == publication.publisher_limit,
            "wake_flag": publication.wake_flag.is_set,
        }


class Twins:
    """The one that may take a fast way, the one that takes none, and what happens to both."""

    def __init__(self, fast: str, options: dict[str, Any]) -> None:
        self.fast = Twin(fast, **options)
        self.long = Twin(None, **options)
        self.both = (self.fast, self.long)
        self.now_ns = 0
        self.tag = {"group_tag": TAG} if options["flow_control"] == "tagged" else {}
        self.turn()
        self.report(*self.all_is_consumed())

    def step(self, name: str, *args: Any) -> None:
        """Let something happen to both, and compare what came of it."""
        changes = [twin.window_changes for twin in self.both]
        getattr(self, name)(*args)
        self.compare_sent()
        assert self.fast.state_now() == self.long.state_now(), (name, args)
        lag = self.long.publication.publisher_limit - self.fast.publication.publisher_limit
        assert 0 <= lag <= LAG
        told = [
            twin.window_changes > before for twin, before in zip(self.both, changes, strict=True)
        ]
        assert told[0] >= told[1], "publishers that wait are woken"

    def settle(self) -> None:
        """After a poll of both nothing differs any more."""
        for twin in self.both:
            twin.take_turn(self.now_ns)
        assert self.fast.publication.publisher_limit == self.long.publication.publisher_limit
        assert self.fast.due_ns == self.long.due_ns
        self.step("turn")

    def compare_sent(self) -> None:
        assert self.fast.outbox.take() == self.long.outbox.take()
        assert self.fast.due_ns <= self.long.due_ns

    # Publishers.

    def offer(self, lengths: list[int]) -> None:
        """Offer to both what the lower of the two limits allows."""
        limit = self.fast.publication.publisher_limit
        for length in lengths:
            for twin in self.both:
                if twin.appender.offer(bytes(length), limit=limit) == -3:
                    twin.appender.offer(bytes(length), limit=limit)
        for twin in self.both:
            twin.on_offer(self.now_ns)

    def offer_alone(self, length: int, count: int, gap_ns: int) -> None:
        """Offer one by one to receivers that report nothing."""
        for _ in range(count):
            self.advance(gap_ns)
            self.offer([length])
            self.compare_sent()

    def abort(self, length: int) -> None:
        """Leave padding in the log."""
        limit = self.fast.publication.publisher_limit
        for twin in self.both:
            claim = twin.appender.try_claim(length, limit=limit)
            if not isinstance(claim, int):
                claim.abort()
            twin.on_offer(self.now_ns)

    def stream(self, length: int, count: int) -> None:
        """Offer one by one to receivers that keep up, over the end of a term."""
        for _ in range(count):
            self.offer([length])
            self.compare_sent()
            self.report(*self.all_is_consumed())
            self.advance(1 * MS)

    def fill_socket(self, is_full: bool) -> None:  # noqa: FBT001 - drawn
        for twin in self.both:
            twin.outbox.is_full = is_full

    def close(self, how: str) -> None:
        for twin in self.both:
            getattr(twin.publication, how)(self.now_ns)
        self.turn()

    def skip_linger(self) -> None:
        for twin in self.both:
            twin.publication.skip_linger()
        self.turn()

    # Receivers.

    def feed(self, datagram: bytes) -> None:
        for twin in self.both:
            twin.dispatcher.on_datagram(memoryview(datagram), SOURCE, self.now_ns)

    def hear(self, distance: int, window_length: int, receiver_id: int, **fields: Any) -> None:
        at = max(0, self.long.publication.sender_position + distance // 32 * 32)
        fields = {"receiver_window": window_length, "receiver_id": receiver_id, **fields}
        self.feed(status_message(self.long.log, at, **fields).encode())

    def report(self, *messages: tuple[int, int, int, dict[str, Any]]) -> None:
        """Hear status messages that are read at once, and poll then."""
        for distance, window_length, receiver_id, fields in messages:
            self.hear(distance, window_length, receiver_id, **fields)
        self.turn()

    def all_is_consumed(self) -> list[tuple[int, int, int, dict[str, Any]]]:
        return [(0, HALF_TERM, receiver_id, self.tag) for receiver_id in RECEIVERS[:2]]

    def noise(self, noise: bytes) -> None:
        """Hear what begins like a status message."""
        genuine = status_message(self.long.log, 0).encode()
        for datagram in (noise, genuine[:8] + noise[8:], genuine[:16] + noise[16:]):
            self.feed(datagram)
        self.turn()

    def nak(self, distance: int, length: int) -> None:
        at = max(0, self.long.publication.sender_position - distance)
        self.feed(nak(at, length, self.long.log.initial_term_id).encode())
        self.turn()

    def reject(self, receiver_id: int, code: int) -> None:
        error = ErrorFrame(
            session_id=SESSION_ID,
            stream_id=STREAM_ID,
            receiver_id=receiver_id,
            group_tag=TAG,
            error_code=code,
            message=b"enough",
        )
        self.feed(error.encode())
        self.turn()

    def measure(self, receiver_id: int) -> None:
        request = RttMeasurement(
            session_id=SESSION_ID,
            stream_id=STREAM_ID,
            echo_timestamp_ns=5,
            reception_delta_ns=0,
            receiver_id=receiver_id,
            flags=RttFlags.REPLY,
        )
        self.feed(request.encode())

    # Spies.

    def join(self, subscription_id: int) -> None:
        for twin in self.both:
            publication = twin.publication
            is_there = publication.subscribers.has(subscription_id)
            if publication.is_accepting_subscriptions and not is_there:
                twin.spy(subscription_id)
        self.turn()

    def leave(self, subscription_id: int) -> None:
        for twin in self.both:
            twin.publication.remove_subscriber(subscription_id)
        self.turn()

    def read(self) -> None:
        for twin in self.both:
            for spy in twin.publication.subscribers:
                spy.position.set(twin.publication.producer_position)
        self.turn()

    # Time.

    def turn(self) -> None:
        for twin in self.both:
            twin.take_turn(self.now_ns)

    def advance(self, step_ns: int) -> None:
        """Let time pass; both are called at the deadlines of either."""
        end_ns = self.now_ns + step_ns
        while (due_ns := min(twin.due_ns for twin in self.both)) <= end_ns:
            self.now_ns = max(due_ns, self.now_ns)
            taken_count = self.fast.taken_count
            for twin in self.both:
                twin.on_due(self.now_ns)
            due_ns = self.long.due_ns
            if self.fast.taken_count != taken_count:
                due_ns = min(due_ns, self.fast.publication._fast_until_ns)
            assert self.fast.due_ns == due_ns
            self.compare_sent()
        self.now_ns = end_ns


FIELDS = st.sampled_from(
    [
        *[{}] * 5,
        {"group_tag": TAG},
        {"group_tag": TAG},
        {"group_tag": 5},
        {"feedback": b"1234"},
        {"flags": StatusMessageFlags.END_OF_STREAM},
        {"flags": StatusMessageFlags.END_OF_STREAM, "group_tag": TAG},
        {"flags": StatusMessageFlags.SEND_SETUP},
        {"session_id": 1},
        {"consumption_term_offset": 16},
        {"consumption_term_offset": -32},
    ]
)
DISTANCES = st.one_of(
    st.just(0), st.integers(-2_000, 0), st.integers(0, 2_000), st.integers(-80_000, 80_000)
)
WINDOWS = st.sampled_from([0, 1, 1_408, 8_192, HALF_TERM, HALF_TERM, HALF_TERM + 1, -1])
MESSAGES = st.tuples(DISTANCES, WINDOWS, st.sampled_from([*RECEIVERS[:1] * 3, *RECEIVERS]), FIELDS)
LENGTHS = st.sampled_from([0, 1, 100, 992, 1_376, 1_377, 5_000, 8_192])
SPIES = st.integers(1, 2)


def steps_of(name: str, *args: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(st.just(name), *args)


ALONE = st.one_of(
    steps_of(
        "offer_alone",
        st.sampled_from([0, 100, 992, 1_376]),
        st.integers(1, 8),
        st.sampled_from([0, 0, 1 * MS, 99 * MS, 301 * MS]),
    ),
    steps_of("offer", st.lists(LENGTHS, max_size=12)),
    steps_of("abort", st.sampled_from([0, 100, 1_376])),
)
TIME = steps_of(
    "advance", st.sampled_from([0, 1, 1 * MS, 99 * MS, 100 * MS, 301 * MS, 1 * SECOND, 6 * SECOND])
)
REPORTS = st.lists(MESSAGES, min_size=1, max_size=3).map(lambda each: ("report", *each))
OTHERS = st.one_of(
    steps_of("stream", st.sampled_from([100, 992, 1_376]), st.integers(1, 70)),
    steps_of("fill_socket", st.booleans()),
    steps_of("noise", st.binary(min_size=36, max_size=36)),
    steps_of("nak", st.integers(0, 400).map(lambda each: 32 * each), st.sampled_from([32, 1_408])),
    steps_of("reject", st.sampled_from(RECEIVERS), st.sampled_from([1, 13])),
    steps_of("measure", st.sampled_from(RECEIVERS)),
    steps_of("join", SPIES),
    steps_of("leave", SPIES),
    steps_of("read"),
    steps_of("close", st.sampled_from(["release", "revoke"])),
    steps_of("skip_linger"),
)
# Not `one_of`, which would draw each of the others as often as what is ordinary.
STEPS = st.lists(
    st.sampled_from([ALONE, ALONE, TIME, TIME, REPORTS, REPORTS, OTHERS]).flatmap(
        lambda each: each
    ),
    min_size=5,
    max_size=30,
)
OPTIONS = st.fixed_dictionaries(
    {
        "flow_control": st.sampled_from([*["unicast"] * 4, *FLOW_CONTROLS]),
        "context": st.sampled_from(["default", *CONTEXTS]),
        "is_exclusive": st.booleans(),
        "spies_simulate_connection": st.booleans(),
        "response_correlation_id": st.sampled_from([None, None, 5]),
        "has_timestamps": st.sampled_from([False, False, False, True]),
        "spec": st.sampled_from([0, -1, LAST_TERM_ID, -LAST_TERM_ID - 1]).map(
            lambda each: {"initial_term_id": each}
        ),
    }
)


def drive(fast: str, steps: list[tuple[Any, ...]], options: dict[str, Any]) -> int:
    """Let the same steps happen to both twins; return how often the fast way was taken."""
    twins = Twins(fast, options)
    for name, *args in steps:
        if twins.long.publication.state is PublicationState.DONE:
            break
        twins.step(name, *args)
    twins.settle()
    return twins.fast.taken_count


needs_lanes = pytest.mark.skipif(SendLane is None, reason=NOT_BUILT)
UNICAST: Final = {"flow_control": "unicast"}


@pytest.mark.untraced
@given(steps=STEPS, options=OPTIONS)
@example(steps=[("offer", [1_376, 100])], options=UNICAST).via("more than one datagram")
@example(steps=[("offer", [992] * 31), ("offer_alone", 1_376, 1, 0)], options=UNICAST).via(
    "the sender limit is in the way"
)
def test_send_data_fast_ends_where_a_poll_does(
    steps: list[tuple[Any, ...]], options: dict[str, Any]
) -> None:
    drive(SEND_DATA, steps, options)


@needs_lanes
@pytest.mark.untraced
@given(steps=STEPS, options=OPTIONS)
@example(steps=[("offer", [1_376, 100])], options=UNICAST).via("more than one datagram")
@example(steps=[("offer", [992] * 31), ("offer_alone", 1_376, 1, 0)], options=UNICAST).via(
    "the sender limit is in the way"
)
def test_a_lane_ends_where_a_poll_does(
    steps: list[tuple[Any, ...]], options: dict[str, Any]
) -> None:
    drive(SEND_LANE, steps, options)


@pytest.mark.untraced
@given(steps=STEPS, options=OPTIONS)
@example(steps=[("close", "release"), ("advance", SECOND)], options=UNICAST).via("the end")
def test_heartbeat_fast_ends_where_a_poll_does(
    steps: list[tuple[Any, ...]], options: dict[str, Any]
) -> None:
    drive(HEARTBEAT, steps, options)


@pytest.mark.untraced
@given(steps=STEPS, options=OPTIONS)
@example(
    steps=[("stream", 992, 60), ("report", (-HALF_TERM - 64, 0, RECEIVER_ID, {}))],
    options=UNICAST,
).via("a position too far back")
def test_on_status_message_fast_ends_where_on_status_message_does(
    steps: list[tuple[Any, ...]], options: dict[str, Any]
) -> None:
    drive(STATUS_MESSAGE, steps, options)


@pytest.mark.parametrize(
    ("fast", "flow_control", "count"),
    [
        (SEND_DATA, "unicast", 40),
        (SEND_DATA, "min", 40),
        pytest.param(SEND_LANE, "unicast", 40, marks=needs_lanes),
        pytest.param(SEND_LANE, "min", 40, marks=needs_lanes),
        (HEARTBEAT, "unicast", 18),
        (HEARTBEAT, "max", 18),
        (STATUS_MESSAGE, "unicast", 80),
        (STATUS_MESSAGE, "derived", 0),
        (STATUS_MESSAGE, "tagged", 0),
    ],
)
def test_an_ordinary_stream_takes_the_fast_way(fast: str, flow_control: str, count: int) -> None:
    steps: list[tuple[Any, ...]] = [("stream", 992, 40), ("advance", 2 * SECOND)]
    assert drive(fast, steps, {"flow_control": flow_control}) == count
