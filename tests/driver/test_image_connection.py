"""The sources of an image, and the counters that go with publications and images."""

from __future__ import annotations

import pytest

from aeron_async.driver.core.image_connection import ImageConnection
from aeron_async.driver.core.outbox import DataOutbox, ReceiveDestination
from aeron_async.driver.core.stream_counters import StreamCounterType
from aeron_async.driver.core.system_counters import DriverCounterId
from aeron_async.errors import ClosedError
from tests.driver.fakes import (
    EOS,
    MS,
    OTHER_SOURCE,
    SECOND,
    SOURCE,
    Outbox,
    data,
    heartbeat,
    setup,
)
from tests.driver.rigs import DispatcherRig, ImageRig, PublicationRig, connect
from tests.logbuffer.logs import STREAM_ID

THIRD_SOURCE = ("10.0.0.9", 40_999)


def test_a_source_is_alive_for_five_seconds_after_it_was_heard() -> None:
    connection = ImageConnection(Outbox(), SOURCE, now_ns=100)
    assert connection.is_alive(100 + 5 * SECOND - 1)
    assert not connection.is_alive(100 + 5 * SECOND)


def test_a_stream_of_two_sources_has_ended_when_both_say_so() -> None:
    rig = ImageRig()
    second = connect(rig.image, Outbox(), OTHER_SOURCE, 0)
    rig.feed(heartbeat(640, EOS), 1)
    assert rig.log.metadata.end_of_stream_position == 2**63 - 1
    second.is_end_of_stream = True
    second.eos_position = 960
    rig.feed(heartbeat(640, EOS), 2)
    assert rig.image.is_end_of_stream
    assert rig.log.metadata.end_of_stream_position == 960


def test_both_sources_are_told_and_asked_while_they_live() -> None:
    rig = ImageRig()
    other = Outbox()
    connect(rig.image, other, OTHER_SOURCE, 0)
    rig.image.poll(0)
    assert rig.outbox.addresses == [SOURCE]
    assert other.addresses == [OTHER_SOURCE]
    assert rig.log.metadata.active_transport_count == 2
    rig.feed(heartbeat(640), 4 * SECOND)
    rig.image.poll(5 * SECOND)
    assert rig.outbox.addresses == [SOURCE, SOURCE, SOURCE]
    assert other.addresses == [OTHER_SOURCE]
    # Not answered any more, it still counts as one of the sources until the image could end.
    assert rig.log.metadata.active_transport_count == 2
    assert rig.counters.naks_sent.get() == 1
    rig.image.poll(6 * SECOND)
    assert rig.counters.naks_sent.get() == 2
    rig.image.poll(11 * SECOND)
    assert rig.log.metadata.active_transport_count == 1


def test_a_destination_added_later_is_waited_for_until_it_has_ended_or_gone() -> None:
    rig = ImageRig()
    late, gone = Outbox(), Outbox()
    for destination in (late, gone, rig.outbox):
        rig.image.connections.expect(destination)
    rig.feed(heartbeat(640, EOS), 1)
    assert not rig.image.is_end_of_stream
    rig.image.remove_destination(gone)
    assert not rig.image.is_end_of_stream
    second = connect(rig.image, late, OTHER_SOURCE, 2)
    second.is_end_of_stream = True
    rig.feed(heartbeat(640, EOS), 3)
    assert rig.image.is_end_of_stream


def two_ways(rig: DispatcherRig) -> Outbox:
    """Return a second way by which the image of a dispatcher hears another source."""
    second = Outbox()
    rig.dispatcher.add_subscription(STREAM_ID, None)
    rig.feed(setup().encode())
    rig.feed(data(0, 64), 1)
    rig.feed(data(0, 64), 1, OTHER_SOURCE, second)
    return second


def test_a_way_is_taken_by_what_is_accepted_and_by_nothing_else() -> None:
    rig = DispatcherRig()
    second = two_ways(rig)
    image = rig.images[0].image
    third = Outbox()
    nonsense = bytearray(data(64, 64))
    nonsense[8:12] = (12).to_bytes(4, "little")
    rig.feed(bytes(nonsense), 2, THIRD_SOURCE, third)
    rig.feed(data(60_000, 64), 2, THIRD_SOURCE, third)
    assert len(image.connections) == 2
    rig.feed(data(64, 64), 3, OTHER_SOURCE, third)
    assert len(image.connections) == 3
    assert second.addresses == []


def test_a_silent_one_of_several_ways_is_free_for_the_next_source() -> None:
    rig = DispatcherRig()
    second = two_ways(rig)
    image = rig.images[0].image
    for ms in range(0, 6_000, 100):
        rig.feed(heartbeat(64), ms * MS)
        rig.feed(data(64, 64), ms * MS, THIRD_SOURCE, second)
        expected = 64 if ms <= 5_000 else 128
        image.poll(ms * MS)
        assert image.rebuild_position == expected, ms
    assert rig.counts[DriverCounterId.FOREIGN_PACKETS] == 51
    # The only way of an image stays with its source until the image ends.
    image.remove_destination(second)
    rig.feed(data(128, 64), 20 * SECOND, THIRD_SOURCE)
    assert image.hwm_position == 128


def test_a_publication_has_aerons_six_counters() -> None:
    for is_exclusive, position_type in (
        (True, StreamCounterType.PUBLISHER_POSITION_EXCLUSIVE),
        (False, StreamCounterType.PUBLISHER_POSITION_CONCURRENT),
    ):
        rig = PublicationRig(is_exclusive=is_exclusive)
        expected = {
            StreamCounterType.PUBLISHER_LIMIT,
            position_type,
            StreamCounterType.SENDER_POSITION,
            StreamCounterType.SENDER_LIMIT,
            StreamCounterType.SENDER_BPE,
            StreamCounterType.SENDER_NAKS_RECEIVED,
        }
        found = [record for record in rig.counts.manager if record.registration_id == 1]
        labels = {record.label.split(":")[0] for record in found if record.type_id > 0}
        assert labels == {each.label_name for each in expected}
        assert {record.type_id for record in found if record.type_id > 0} == {
            each.type_id for each in expected
        }
        rig.counters.close()
        with pytest.raises(ClosedError):
            rig.counters.sender_limit.get()


def test_an_image_has_aerons_three_counters() -> None:
    rig = ImageRig(subscribers=0)
    labels = [record.label.split(":")[0] for record in rig.counts.manager][-3:]
    assert labels == ["rcv-hwm", "rcv-pos", "rcv-naks-sent"]
    rig.counters.close()
    with pytest.raises(ClosedError):
        rig.counters.receiver_hwm.get()


def test_the_outbox_of_these_tests_has_what_cores_ask_for() -> None:
    wanted = {
        name
        for protocol in (DataOutbox, ReceiveDestination)
        for name in vars(protocol)
        if not name.startswith("_")
    }
    assert wanted == {
        "send",
        "send_batch",
        "send_batches",
        "send_to",
        "is_multicast",
        "control_address",
    }
    assert all(hasattr(Outbox(), name) for name in wanted)
