"""The short way of status messages: it ends where the long one does, or is not taken at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aeron_async.driver.core.control_packet_dispatcher import ControlPacketDispatcher
from aeron_async.driver.core.destination_tracker import DestinationTracker
from aeron_async.driver.core.flow_control.base import UnicastFlowControl
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.protocol.header import StatusMessageFlags
from tests.driver.fakes import CONTEXT, HALF_TERM, MS, RECEIVER_ID, SECOND, SOURCE, status_message
from tests.driver.rigs import PublicationRig
from tests.logbuffer.logs import TERM_LENGTH

if TYPE_CHECKING:
    from aeron_async.protocol.status_message import StatusMessage

LAST = 2**31 - 1
COUNTED = (
    SystemCounterId.STATUS_MESSAGES_RECEIVED,
    SystemCounterId.STATUS_MESSAGES_REJECTED,
    SystemCounterId.INVALID_PACKETS,
)


class Rig(PublicationRig):
    """A connected publication behind its dispatcher, and which way its status messages took."""

    def __init__(self, *, is_short: bool = True, **options: Any) -> None:
        super().__init__(**options)
        self.long_count = 0
        self.connect(0)
        if not is_short:
            self.publication.reports = None
        self.activity: list[Any] = []
        self.dispatcher = ControlPacketDispatcher(
            self.counts.system, self.activity.append, lambda *_: None
        )
        self.dispatcher.add(self.publication)
        self._take = self.publication.on_status_message
        self.publication.on_status_message = self._take_long  # type: ignore[method-assign] # spied on

    def _take_long(self, sm: StatusMessage, now_ns: int, *, source: Any = None) -> Any:
        self.long_count += 1
        return self._take(sm, now_ns, source=source)

    def feed(self, frame: StatusMessage | bytes, now_ns: int) -> None:
        datagram = frame if isinstance(frame, bytes) else frame.encode()
        self.dispatcher.on_datagram(memoryview(datagram), SOURCE, now_ns)

    def facts(self) -> dict[str, Any]:
        publication = self.publication
        return {
            "sender": (publication.sender_position, publication.sender_limit),
            "limit": publication.publisher_limit,
            "connected": (publication.is_connected, publication.has_receivers),
            "heard": list(publication._receivers._last_heard_ns.items()),
            "slowest": publication.flow_control.slowest_receiver(),
            "window": publication._retransmit_handler.budget.window_length,
            "last_sm_ns": self.dispatcher.last_sm_ns,
            "activity": len(self.activity),
            "counts": [self.counts[each] for each in COUNTED],
            "shown": (self.counters.sender_limit.get(), self.counters.publisher_limit.get()),
        }


def test_a_plain_status_message_of_a_receiver_that_is_known_moves_the_limit_the_short_way() -> None:
    rig = Rig()
    rig.feed(status_message(rig.log, 0, receiver_window=HALF_TERM), 1 * MS)
    assert rig.long_count == 0
    assert rig.publication.sender_limit == HALF_TERM
    assert rig.counters.sender_limit.get() == HALF_TERM
    assert rig.activity == [rig.publication]
    assert rig.dispatcher.last_sm_ns == 1 * MS
    assert rig.counts[SystemCounterId.STATUS_MESSAGES_RECEIVED] == 1


def test_where_there_are_destinations_the_long_way_keeps_them() -> None:
    rig = Rig()
    rig.dispatcher.destinations = tracker = DestinationTracker(
        is_manual=False,
        limit=2,
        count=rig.counts.new(0),
        refused=rig.counts.system[DriverCounterId.DESTINATIONS_REFUSED],
    )
    for now_ns in (4 * SECOND, 8 * SECOND):
        rig.feed(status_message(rig.log, 0, receiver_window=HALF_TERM), now_ns)
    assert rig.long_count == 2
    assert list(tracker.addresses(12 * SECOND)) == [SOURCE]


@pytest.mark.parametrize(
    "changes",
    [
        {"receiver_id": RECEIVER_ID + 1},
        {"flags": StatusMessageFlags.END_OF_STREAM},
        {"flags": StatusMessageFlags.SEND_SETUP},
        {"group_tag": 5},
        {"feedback": b"1234"},
        {"session_id": 1},
        {"receiver_window": -1},
        {"receiver_window": HALF_TERM + 1},
        {"consumption_term_offset": -32},
        {"consumption_term_offset": 16},
        {"consumption_term_offset": TERM_LENGTH},
        {"consumption_term_offset": HALF_TERM + 32},
    ],
    ids=str,
)
def test_whatever_is_out_of_the_ordinary_comes_to_what_the_long_way_makes_of_it(
    changes: dict[str, Any],
) -> None:
    short, long = Rig(), Rig(is_short=False)
    for rig in (short, long):
        rig.feed(attrs.evolve(status_message(rig.log, 0), **changes), 1 * MS)
    assert short.facts() == long.facts()
    assert short.long_count == long.long_count


def test_a_publication_that_is_not_connected_any_more_takes_the_long_way() -> None:
    rig = Rig()
    rig.poll(20 * SECOND)
    assert not rig.publication.is_connected
    rig.feed(status_message(rig.log, 0), 20 * SECOND)
    assert rig.long_count == 1
    assert rig.publication.is_connected


def test_a_strategy_that_is_derived_from_the_one_of_unicast_is_asked() -> None:
    class Half(UnicastFlowControl):
        def on_status_message(
            self, sm: StatusMessage, *, position: int, sender_limit: int, now_ns: int
        ) -> int:
            del now_ns
            return max(sender_limit, position + sm.receiver_window // 2)

    strategy = Half(retransmit_receiver_window_multiple=CONTEXT.max_lingering_ranges)
    rig = Rig(flow_control=strategy)
    assert rig.publication.reports is None
    rig.feed(status_message(rig.log, 0, receiver_window=HALF_TERM), 1 * MS)
    assert rig.long_count == 1
    assert rig.publication.sender_limit == max(HALF_TERM // 2, rig.publication.sender_limit)


STEPS = st.lists(
    st.tuples(
        st.integers(-80_000, 80_000),
        st.sampled_from([0, 1, 1_408, 32_768, HALF_TERM, HALF_TERM + 1]),
        st.sampled_from([RECEIVER_ID, RECEIVER_ID, RECEIVER_ID, 7, -7]),
        st.integers(0, 40),
        st.sampled_from([0, 1, 10 * MS, 6 * SECOND]),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, initial_term_id=st.sampled_from([0, -1, LAST, -LAST - 1]))
def test_both_ways_come_to_the_same_whatever_is_said(
    steps: list[tuple[int, int, int, int, int]], initial_term_id: int
) -> None:
    rigs = [Rig(is_short=each, spec={"initial_term_id": initial_term_id}) for each in (True, False)]
    now_ns = 0
    for distance, window_length, receiver_id, offers, step_ns in steps:
        now_ns += step_ns
        for rig in rigs:
            at = max(0, rig.publication.sender_position + distance // 32 * 32)
            message = status_message(
                rig.log, at, receiver_window=window_length, receiver_id=receiver_id
            )
            rig.feed(message, now_ns)
            for _ in range(offers):
                rig.offer(bytes(1_000))
            rig.poll(now_ns)
        assert rigs[0].facts() == rigs[1].facts()


@given(noise=st.binary(min_size=36, max_size=36))
def test_any_bytes_of_that_length_come_to_the_same(noise: bytes) -> None:
    short, long = Rig(), Rig(is_short=False)
    genuine = status_message(short.log, 0).encode()
    # The header and the names as they should be, so that what follows is looked at.
    for datagram in (noise, genuine[:8] + noise[8:], genuine[:16] + noise[16:]):
        for rig in (short, long):
            rig.feed(datagram, 1 * MS)
        assert short.facts() == long.facts()
