"""Each fast way of an image has the effect of the long way that it shortens.

Two receivers get the same datagrams, at the same times, and have the same readers. One takes a fast
way wherever that is open, and falls back as production does, by the dispatcher and the receiver
agent; for the other the fast way is always closed. After each step both must be in the same state:
the log, the positions, what was sent, what readers got, and every counter.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.congestion_control import AutoWindowCongestionControl
from aeron_async.driver.core.publication_image import PublicationImage
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.driver.receiver import Receiver
from aeron_async.driver.stall_clock import StallClock
from tests.driver.agents import SetClock
from tests.driver.fakes import CONTEXT, MS, SECOND, SOURCE
from tests.driver.rigs import DispatcherRig, ImageRig
from tests.driver.streams import CHUNKS, Chunk, Stream, gathered
from tests.logbuffer.logs import STREAM_ID, TERM_LENGTH

if TYPE_CHECKING:
    from aeron_async.driver.core.outbox import ReportBatch
    from aeron_async.driver.core.subscriber_position import SubscriberPositions


class Step(NamedTuple):
    """A method of `Reception`, and its arguments."""

    name: str
    arguments: tuple[Any, ...] = ()


@attrs.frozen
class Scene:
    """An image, and what happens to it."""

    steps: list[Step]
    join_position: int = 0
    is_reliable: bool = True
    is_window_auto: bool = False


class LongInsert(PublicationImage):
    """An image that places datagrams one by one."""

    __slots__ = ()

    def insert_packets_fast(self, *_: Any) -> int:
        return 0


class LongAdvance(PublicationImage):
    """An image that shows readers what has arrived only when it is polled."""

    __slots__ = ()

    def advance_rebuild_position_fast(self, now_ns: int) -> bool:
        del now_ns
        return False


class LongReport(PublicationImage):
    """An image that sends status messages only when it is polled."""

    __slots__ = ()

    def send_pending_status_message_fast(self, now_ns: int) -> bool:
        del now_ns
        return False


class LongPeriod(PublicationImage):
    """An image whose periodic status messages leave by themselves."""

    __slots__ = ()

    def report_fast(self, now_ns: int, due_ns: int, batch: ReportBatch) -> int:
        del now_ns, due_ns, batch
        return 0


class LongBeat(PublicationImage):
    """An image that takes each heartbeat the long way."""

    __slots__ = ()

    def on_heartbeat_fast(self, *_: Any) -> bool:
        return False


WINDOWS: Final[dict[bool, dict[str, Any]]] = {
    False: {},
    True: {"chosen_control": AutoWindowCongestionControl.of, "window_length": 4_096},
}


class SleepingReceiver(Receiver):
    """A receiver agent that sleeps between the steps of a test, so it may act at once."""

    def may_act(self, now_ns: int) -> bool:
        del now_ns
        return True

    def work(self) -> None:
        """Do what is due; that awaits nothing."""
        for _ in self.do_work(self._clock.now_ns()).__await__():
            raise AssertionError


class Reception(DispatcherRig):
    """An image behind a dispatcher, with a receiver agent, and readers that behave as clients."""

    def __init__(self, kind: type[PublicationImage], scene: Scene) -> None:
        super().__init__()
        self.clock = SetClock()
        self.agent = SleepingReceiver(
            CONTEXT, StallClock(self.clock, threshold_ns=NEVER_NS), self.counts.system, self
        )
        self.dispatcher.add_subscription(STREAM_ID, None)
        self.rig = ImageRig(
            counts=self.counts,
            outbox=self.outbox,
            now_ns=self.clock.ns,
            join_position=scene.join_position,
            subscribers=2,
            is_reliable=scene.is_reliable,
            kind=kind,
            **WINDOWS[scene.is_window_auto],
        )
        self.image = self.rig.image
        self.image.wake_flag.callback = partial(self.agent.on_consumed, self.image)
        self.dispatcher.add_image(self.image)
        self.stream = Stream(scene.join_position)
        self.messages: list[bytes] = []
        self.lifecycle: list[str] = []
        self.agent.on_activity(self.image)
        self.agent.work()

    # Events.

    def on_image_activity(self, image: PublicationImage) -> None:
        self.agent.on_arrival(image)

    def on_image_drained(self, image: PublicationImage) -> None:
        self.lifecycle.append("drained")
        self.dispatcher.remove_image(image)
        for subscriber in image.subscribers:
            image.remove_subscriber(subscriber.subscription_id)

    def on_image_resumed(self, image: PublicationImage) -> None:
        assert image is self.image
        self.lifecycle.append("resumed")

    def on_image_done(self, image: PublicationImage) -> None:
        self.lifecycle.append("done")
        self.dispatcher.remove_image(image)

    # Steps.

    def arrive(self, batches_at_once: int, *chunks: Chunk) -> None:
        """Make the socket readable: `batches_at_once` batches by each read; one datagram if 0."""
        datagrams = [each for chunk in chunks for each in self.stream.make(*chunk)]
        self.agent.on_reading(True)
        if batches_at_once:
            for batches, segments in gathered(datagrams, batches_at_once):
                self.dispatcher.on_batches(batches, segments, SOURCE, self.clock.ns, self.outbox)
        else:
            for datagram in datagrams:
                self.feed(datagram, self.clock.ns)
        self.agent.on_reading(False)

    def flow(self, batches_at_once: int, length: int, count: int, *limits: int) -> None:
        """Let the publisher go on from where the image is complete, and readers read."""
        self.stream.position = self.image.rebuild_position
        self.arrive(batches_at_once, ("next", length, count, 0))
        for index, limit in enumerate(limits):
            self.read(index, limit)

    def read(self, index: int, limit: int) -> None:
        """Let a client read if it has the image, and notify the driver as clients do."""
        subscribers = self.image.subscribers.active
        if any(each.subscription_id == index for each in subscribers):
            position = self.image.rebuild_position
            self.messages += self.rig.read(index, limit=limit, limit_position=position)
            if self.rig.readers[index][1].get() > self.image.consumption_trigger:
                self.image.wake_flag.set()
        # Before the next reader: the fast way reports at once.
        self.agent.work()

    def join(self, is_tether: bool, is_rejoin: bool) -> None:  # noqa: FBT001 - drawn
        """Let one more subscription join."""
        if self.image.is_accepting_subscriptions and len(self.rig.readers) < 4:
            self.rig.subscribe(is_tether=is_tether, is_rejoin=is_rejoin)

    def part(self, index: int) -> None:
        """Let a subscription be closed."""
        if self.image.remove_subscriber(index) is not None:
            self.agent.on_activity(self.image)

    def reject(self) -> None:
        self.image.reject("enough")
        self.agent.on_activity(self.image)

    def wait(self, time_ns: int) -> None:
        self.clock.ns += time_ns

    # Comparison.

    def facts(self) -> dict[str, Any]:
        """Return everything that a step may change, without what only a poll may look at."""
        image, log, connection = self.image, self.image.log, self.rig.connection()
        counters = (
            self.rig.counters.receiver_hwm,
            self.rig.counters.receiver_position,
            self.rig.counters.naks_sent,
            *self.rig.counters.congestion_control,
        )
        feedback = image._feedback
        return {
            "terms": [bytes(term) for term in log.terms],
            "end": (log.metadata.end_of_stream_position, log.metadata.is_publication_revoked),
            "transports": log.metadata.active_transport_count,
            "positions": (image.hwm_position, image.rebuild_position, image._clean_position),
            "counters": [each.get() for each in counters],
            "source": (
                connection.last_activity_ns,
                connection.is_end_of_stream,
                connection.eos_position,
            ),
            "heard": (image.last_packet_ns, image.ahead_ns, image.idle_ns, image.misfit_ns),
            "is_ended": (image.is_end_of_stream, image._is_revoked, image.is_rejected),
            "state": (image.state, image.life.ended, self.lifecycle),
            "reports": (
                feedback.next_sm_position,
                feedback.last_sm_position,
                feedback.overrun_threshold,
                feedback.window_length,
                feedback._deadline_ns,
                image.consumption_trigger,
                image.wake_flag.is_set,
            ),
            "doubts": (image._doubts.deadline_ns, image._doubts.end, image._watch.is_holding),
            "subscribers": readers_of(image.subscribers),
            "told": (self.rig.progress, self.rig.told),
            "messages": self.messages,
            "sent": (self.outbox.sent, self.outbox.addresses),
            "invalid": self.invalid,
            "setups": self.setups,
            "counts": {each: self.counts[each] for each in (*SystemCounterId, *DriverCounterId)},
        }


def readers_of(subscribers: SubscriberPositions) -> list[tuple[Any, ...]]:
    return [
        (each.subscription_id, each.position.get(), each.state, each.since_ns, each.left_count)
        for each in subscribers
    ]


RUNS_AT_ONCE: Final = st.sampled_from([0, 0, 1, 2, 64])
LIMITS: Final = st.sampled_from([0, 1, 10, *[1_000] * 5])
FLOWS: Final = st.builds(
    lambda *how: Step("flow", how),
    RUNS_AT_ONCE,
    st.sampled_from([96, 1_024, 1_408, 1_408]),
    st.integers(1, 12),
    LIMITS,
    LIMITS,
    LIMITS,
)
ARRIVALS: Final = st.builds(
    lambda batches_at_once, chunks: Step("arrive", (batches_at_once, *chunks)),
    RUNS_AT_ONCE,
    st.lists(CHUNKS, min_size=1, max_size=3),
)
LOSSES_AND_ENDS: Final = st.builds(
    lambda batches_at_once, kind, count, seed, end: Step(
        "arrive", (batches_at_once, (kind, 1_024, count, seed), (end, 32, 1, 0))
    ),
    RUNS_AT_ONCE,
    st.sampled_from(["next", "gap"]),
    st.integers(1, 12),
    st.integers(0, 9),
    st.sampled_from(["next", "heartbeat", "end", "end", "revoked"]),
)
READS: Final = st.builds(lambda *how: Step("read", how), st.integers(0, 3), LIMITS)
WAITS: Final = st.sampled_from([1_000, MS // 10, MS, 50 * MS, 200 * MS, 300 * MS, SECOND])
ODD: Final = st.sampled_from(
    [
        Step("join", (True, True)),
        Step("join", (True, False)),
        Step("join", (False, True)),
        Step("join", (False, False)),
        Step("part", (0,)),
        Step("part", (1,)),
        Step("part", (2,)),
        Step("reject"),
    ]
)


def steps(*, is_odd: bool) -> st.SearchStrategy[list[Step]]:
    """Return steps of a stream that mostly flows, with odd ones among them if wanted."""
    waits = WAITS.map(lambda time_ns: Step("wait", (time_ns,)))
    usual = [FLOWS, FLOWS, FLOWS, ARRIVALS, LOSSES_AND_ENDS, READS, waits]
    return st.lists(st.one_of(*usual, *[ODD] * is_odd), max_size=40)


SCENES: Final = st.builds(
    Scene,
    st.one_of(steps(is_odd=False), steps(is_odd=False), steps(is_odd=True)),
    st.sampled_from((0, TERM_LENGTH - 4_096, 5 * TERM_LENGTH + 32)),
    st.sampled_from([True, True, True, False]),
    st.booleans(),
)
SILENCES: Final = st.builds(
    lambda time_ns: Step("wait", (time_ns,)),
    st.sampled_from([MS, 90 * MS, 200 * MS, 200 * MS, SECOND, 11 * SECOND]),
)
HEARTBEATS: Final = st.builds(
    lambda batches_at_once, kinds: Step(
        "arrive", (batches_at_once, *((kind, 32, 1, 0) for kind in kinds))
    ),
    RUNS_AT_ONCE,
    st.lists(st.sampled_from(["heartbeat", "heartbeat", "heartbeat", "end"]), max_size=4),
)
MOSTLY_SILENT: Final = [SILENCES] * 4 + [HEARTBEATS] * 3 + [FLOWS, ARRIVALS, READS, ODD]
SILENT: Final = st.builds(
    Scene,
    st.lists(st.one_of(*MOSTLY_SILENT), max_size=60),
    st.just(0),
    st.booleans(),
    st.booleans(),
)
IN_ORDER: Final = Scene([Step("flow", (0, 1_024, 4, 1_000, 1_000))] * 20)
GROWING: Final = attrs.evolve(IN_ORDER, is_window_auto=True)


LOSSES: Final = Step("arrive", (0, ("gap", 96, 20, 0)))
REPAIR: Final = Step("flow", (0, 96, 80))
LATER_GAPS: Final = Scene([*[LOSSES, REPAIR] * 2, LOSSES, Step("wait", (1_000,))])
"""Gaps that arrive and are closed before the NAKs for the ones before were all sent."""
GAP_AFTER_A_HEARTBEAT: Final = Scene(
    [
        Step("flow", (0, 1_408, 2, 1_000, 1_000)),
        Step("arrive", (0, ("heartbeat", 32, 1, 0))),
        Step("arrive", (0, ("gap", 1_024, 1, 0))),
        *[Step("wait", (50 * MS,))] * 20,
    ]
)
BEAT_AFTER_A_REJECTION: Final = Scene(
    [
        Step("flow", (0, 1_408, 2, 1_000, 1_000)),
        Step("reject"),
        Step("wait", (MS,)),
        Step("arrive", (0, ("heartbeat", 32, 1, 0))),
    ]
)
LATE_JOIN: Final = Scene(
    [
        Step("flow", (0, 1_408, 12, 1_000)),
        Step("flow", (0, 1_408, 10, 1_000)),
        Step("join", (False, True)),
        Step("flow", (0, 96, 1)),
    ]
)
"""A reader that may be left behind joins in the last quarter of the window."""


def expect_same(kind: type[PublicationImage], scene: Scene) -> None:
    """Let an image of production and one of the other kind go through the same steps."""
    drive_both(Reception(PublicationImage, scene), Reception(kind, scene), scene)


def drive_both(fast: Reception, long: Reception, scene: Scene) -> None:
    """Let the same happen to two receptions, and compare them after each step."""
    for step in scene.steps:
        for each in (fast, long):
            getattr(each, step.name)(*step.arguments)
            each.agent.work()
        assert fast.facts() == long.facts()


@pytest.mark.untraced
@example(IN_ORDER)
@example(GROWING)
@given(SCENES)
def test_what_is_inserted_fast_is_what_is_inserted_one_by_one(scene: Scene) -> None:
    expect_same(LongInsert, scene)


@pytest.mark.untraced
@example(IN_ORDER)
@example(GROWING)
@example(LATER_GAPS)
@example(GAP_AFTER_A_HEARTBEAT)
@example(LATE_JOIN)
@given(st.one_of(SCENES, SCENES, SILENT))
def test_what_is_shown_fast_is_what_a_poll_shows(scene: Scene) -> None:
    expect_same(LongAdvance, scene)


@pytest.mark.untraced
@example(IN_ORDER)
@example(GROWING)
@given(SCENES)
def test_what_is_reported_fast_is_what_a_poll_reports(scene: Scene) -> None:
    expect_same(LongReport, scene)


@pytest.mark.untraced
@example(IN_ORDER)
@example(GROWING)
@example(LATER_GAPS)
@example(GAP_AFTER_A_HEARTBEAT)
@example(LATE_JOIN)
@given(st.one_of(SCENES, SILENT, SILENT))
def test_what_leaves_with_a_batch_is_what_a_poll_sends(scene: Scene) -> None:
    expect_same(LongPeriod, scene)


@pytest.mark.untraced
@example(IN_ORDER)
@example(GAP_AFTER_A_HEARTBEAT)
@example(BEAT_AFTER_A_REJECTION)
@given(st.one_of(SCENES, SILENT, SILENT))
def test_a_heartbeat_that_says_nothing_new_does_what_any_does(scene: Scene) -> None:
    expect_same(LongBeat, scene)


def test_most_heartbeats_of_a_silent_stream_take_the_fast_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene([Step("flow", (0, 1_408, 2, 1_000, 1_000)), Step("wait", (MS,))])
    reception = Reception(PublicationImage, scene)
    for step in scene.steps:
        getattr(reception, step.name)(*step.arguments)
        reception.agent.work()
    monkeypatch.setattr(PublicationImage, "insert_packet", None)
    # One that came from further back is old, as this one shows.
    reception.image._doubts.behind_ns = 5
    before_ns = reception.image.last_packet_ns
    for _ in range(20):
        reception.wait(MS)
        reception.arrive(2, ("heartbeat", 32, 3, 0))
    assert reception.image.idle_ns == reception.image.last_packet_ns == before_ns + 21 * MS
    assert reception.counts[SystemCounterId.HEARTBEATS_RECEIVED] == 60
    assert reception.image._doubts.behind_ns == -1


def test_a_window_grows_on_the_fast_way_too() -> None:
    reception = Reception(PublicationImage, GROWING)
    for step in GROWING.steps:
        getattr(reception, step.name)(*step.arguments)
        reception.agent.work()
    assert reception.image._feedback.window_length == TERM_LENGTH // 2
