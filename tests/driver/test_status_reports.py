"""The fast way of status messages: when it is taken; `test_publication_fast_ways` compares both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest

from aeron_async.driver.core.control_packet_dispatcher import ControlPacketDispatcher
from aeron_async.driver.core.destination_tracker import DestinationTracker
from aeron_async.driver.core.flow_control.base import UnicastFlowControl
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.protocol.header import StatusMessageFlags
from tests.driver.fakes import CONTEXT, HALF_TERM, MS, RECEIVER_ID, SECOND, SOURCE, status_message
from tests.driver.rigs import PublicationRig, SpiedPublication
from tests.logbuffer.logs import TERM_LENGTH

if TYPE_CHECKING:
    from aeron_async.protocol.status_message import StatusMessage


class Rig(PublicationRig):
    """A connected publication behind its dispatcher, and which way its status messages took."""

    publication_type = SpiedPublication

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.long_count = self.fast_count = 0
        self.connect(0)
        self.activity: list[Any] = []
        self.dispatcher = ControlPacketDispatcher(
            self.counts.system, self.activity.append, lambda *_: None
        )
        self.dispatcher.add(self.publication)
        self._long, self._fast = (
            self.publication.on_status_message,
            self.publication.on_status_message_fast,
        )
        self.publication.on_status_message = self._take_long  # type: ignore[method-assign] # spied on
        self.publication.on_status_message_fast = self._take_fast  # type: ignore[method-assign, assignment]

    def _take_long(self, sm: StatusMessage, now_ns: int, *, source: Any = None) -> Any:
        self.long_count += 1
        return self._long(sm, now_ns, source=source)

    def _take_fast(self, *fields: int) -> bool:
        is_taken = self._fast(*fields)
        self.fast_count += is_taken
        return is_taken

    def feed(self, frame: StatusMessage | bytes, now_ns: int) -> None:
        datagram = frame if isinstance(frame, bytes) else frame.encode()
        self.dispatcher.on_datagram(memoryview(datagram), SOURCE, now_ns)


def test_a_plain_status_message_of_a_known_receiver_moves_the_limit_the_fast_way() -> None:
    rig = Rig()
    rig.feed(status_message(rig.log, 0, receiver_window=HALF_TERM), 1 * MS)
    assert (rig.fast_count, rig.long_count) == (1, 0)
    assert rig.publication.sender_limit == HALF_TERM
    assert rig.counters.sender_limit.get() == HALF_TERM
    assert rig.dispatcher.last_sm_ns == 1 * MS
    assert rig.counts[SystemCounterId.STATUS_MESSAGES_RECEIVED] == 1


def test_a_poll_follows_only_a_status_message_that_has_raised_the_limit() -> None:
    rig = Rig()
    rig.feed(status_message(rig.log, 0, receiver_window=HALF_TERM // 2), 1 * MS)
    limit = rig.publication.sender_limit
    rig.activity.clear()
    for number in range(2, 5):
        rig.feed(status_message(rig.log, 0, receiver_window=limit), number * MS)
    assert (rig.activity, rig.dispatcher.last_sm_ns) == ([], 4 * MS)
    assert rig.publication.has_receivers
    rig.offer(bytes(960))
    rig.publication.poll(5 * MS)
    rig.feed(status_message(rig.log, 992, receiver_window=limit), 6 * MS)
    assert rig.publication.sender_limit == limit + 992
    assert rig.activity == [rig.publication]


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
def test_an_unusual_status_message_takes_the_long_way(changes: dict[str, Any]) -> None:
    rig = Rig()
    rig.feed(attrs.evolve(status_message(rig.log, 0), **changes), 1 * MS)
    assert rig.fast_count == 0


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
    rig.feed(status_message(rig.log, 0, receiver_window=HALF_TERM), 1 * MS)
    assert (rig.fast_count, rig.long_count) == (0, 1)
    assert rig.publication.sender_limit == max(HALF_TERM // 2, rig.publication.sender_limit)
