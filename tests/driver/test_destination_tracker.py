"""Destinations of a channel: who becomes one, who stays one, and which is sent to first."""

from __future__ import annotations

from typing import Any

import pytest

from aeron_async.driver.core.destination_tracker import DestinationTracker
from aeron_async.driver.core.system_counters import DriverCounterId
from aeron_async.errors import ErrorCode, RegistrationError
from aeron_async.protocol.channel_uri import ChannelUri
from tests.driver.fakes import SECOND, Counts

FIRST, SECOND_ONE, THIRD = ("10.0.0.1", 1), ("10.0.0.2", 2), ("10.0.0.3", 3)
URI = ChannelUri.parse("aeron:udp?endpoint=10.0.0.1:1")


class Rig:
    def __init__(self, *, is_manual: bool, limit: int = 3) -> None:
        self.counts = Counts()
        self.count = self.counts.new(0)
        self.tracker = DestinationTracker(
            is_manual=is_manual,
            limit=limit,
            count=self.count,
            refused=self.counts.system[DriverCounterId.DESTINATIONS_REFUSED],
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tracker, name)


@pytest.fixture
def dynamic() -> Rig:
    return Rig(is_manual=False)


@pytest.fixture
def manual() -> Rig:
    return Rig(is_manual=True)


def test_who_speaks_becomes_a_destination_and_is_one_for_five_seconds(dynamic: Rig) -> None:
    assert list(dynamic.addresses(0)) == []
    dynamic.on_status_message(7, FIRST, 0, is_report=True)
    assert list(dynamic.addresses(5 * SECOND)) == [FIRST]
    assert dynamic.count.get() == 1
    assert list(dynamic.addresses(5 * SECOND + 1)) == []
    assert dynamic.count.get() == 0
    dynamic.on_status_message(7, FIRST, 6 * SECOND, is_report=True)
    dynamic.on_status_message(7, FIRST, 9 * SECOND, is_report=True)
    assert list(dynamic.addresses(14 * SECOND)) == [FIRST]
    assert len(dynamic.tracker) == 1


def test_each_datagram_begins_with_another_destination(dynamic: Rig) -> None:
    for receiver_id, address in enumerate((FIRST, SECOND_ONE, THIRD)):
        dynamic.on_status_message(receiver_id, address, 0, is_report=True)
    assert [list(dynamic.addresses(1)) for _ in range(4)] == [
        [FIRST, SECOND_ONE, THIRD],
        [SECOND_ONE, THIRD, FIRST],
        [THIRD, FIRST, SECOND_ONE],
        [FIRST, SECOND_ONE, THIRD],
    ]


def test_a_receiver_is_told_by_its_id_and_port_and_keeps_its_first_address(dynamic: Rig) -> None:
    dynamic.on_status_message(7, FIRST, 0, is_report=True)
    dynamic.on_status_message(7, ("192.0.2.9", FIRST[1]), 4 * SECOND, is_report=True)
    assert list(dynamic.addresses(9 * SECOND)) == [FIRST]
    dynamic.on_status_message(7, ("10.0.0.1", 99), 9 * SECOND, is_report=True)
    assert set(dynamic.addresses(9 * SECOND)) == {FIRST, ("10.0.0.1", 99)}
    dynamic.on_status_message(8, FIRST, 9 * SECOND, is_report=True)
    assert dynamic.count.get() == 3


def test_too_many_are_refused_and_counted_until_one_has_gone(dynamic: Rig) -> None:
    for receiver_id in range(5):
        dynamic.on_status_message(
            receiver_id, ("10.0.0.1", receiver_id + 1), receiver_id, is_report=True
        )
    assert dynamic.count.get() == 3
    assert dynamic.counts[DriverCounterId.DESTINATIONS_REFUSED] == 2
    # The one that has been silent for longest makes way when its time is over, and not before.
    dynamic.on_status_message(5, THIRD, 5 * SECOND + 1, is_report=True)
    assert [each.receiver_id for each in dynamic.destinations] == [1, 2, 5]


def test_who_only_announced_itself_makes_way_and_who_reported_stays(dynamic: Rig) -> None:
    places = [("10.0.0.9", port) for port in range(1, 9)]
    dynamic.on_status_message(0, places[0], 0, is_report=False)
    dynamic.on_status_message(1, places[1], 1, is_report=True)
    dynamic.on_status_message(2, places[2], 2, is_report=False)
    # Whoever came first of those that sent nothing else, however often it says so.
    dynamic.on_status_message(0, places[0], 3, is_report=False)
    dynamic.on_status_message(3, places[3], 4, is_report=False)
    assert set(dynamic.addresses(5)) == {places[1], places[2], places[3]}
    assert (dynamic.count.get(), dynamic.counts[DriverCounterId.DESTINATIONS_REFUSED]) == (3, 1)
    # A report counts for as long as its receiver is there; what it asks for later changes nothing.
    dynamic.on_status_message(2, places[2], 6, is_report=True)
    dynamic.on_status_message(2, places[2], 7, is_report=False)
    dynamic.on_status_message(4, places[4], 8, is_report=True)
    assert set(dynamic.addresses(9)) == {places[1], places[2], places[4]}
    dynamic.on_status_message(5, places[5], 10, is_report=True)
    assert set(dynamic.addresses(11)) == {places[1], places[2], places[4]}
    assert dynamic.counts[DriverCounterId.DESTINATIONS_REFUSED] == 3


def test_a_newcomer_costs_nobody_its_place_while_there_are_others(dynamic: Rig) -> None:
    dynamic.on_status_message(7, FIRST, 0, is_report=True)
    # After a stall a newcomer may be read before those that are there.
    dynamic.on_status_message(8, SECOND_ONE, 6 * SECOND, is_report=True)
    dynamic.on_status_message(7, FIRST, 6 * SECOND, is_report=True)
    assert [each.receiver_id for each in dynamic.destinations] == [7, 8]


def test_the_applications_destinations_never_time_out(manual: Rig) -> None:
    manual.add(URI, FIRST, 11, 0)
    manual.on_status_message(7, THIRD, 0, is_report=True)
    assert list(manual.addresses(100 * SECOND)) == [FIRST]
    manual.on_status_message(7, FIRST, 50 * SECOND, is_report=True)
    (destination,) = manual.destinations
    assert (destination.receiver_id, destination.last_activity_ns) == (7, 50 * SECOND)
    # Once its id is known, its address may be translated, but not its port.
    assert manual.registration_id_of(7, ("192.0.2.9", 1)) == 11
    assert manual.registration_id_of(7, ("10.0.0.1", 5)) == 0
    assert manual.registration_id_of(8, FIRST) == 0


def test_a_destination_is_removed_by_its_channel_its_address_or_its_id(manual: Rig) -> None:
    other = ChannelUri.parse("aeron:udp?endpoint=localhost:1")
    for how in ({"uri": URI}, {"address": FIRST}, {"registration_id": 11}):
        manual.add(URI, FIRST, 11, 0)
        assert not manual.remove(uri=other, address=THIRD, registration_id=12)
        assert manual.remove(**how)
        assert manual.count.get() == 0
        assert list(manual.addresses(0)) == []
    assert not manual.remove(uri=URI)


def test_no_more_are_added_than_may_be(manual: Rig) -> None:
    for number in range(3):
        manual.add(URI, ("10.0.0.1", number + 1), number + 1, 0)
    with pytest.raises(RegistrationError, match=r"number 4.*limit is 3.*max_dest") as caught:
        manual.add(URI, FIRST, 4, 0)
    assert caught.value.code is ErrorCode.RESOURCE_TEMPORARILY_UNAVAILABLE


def test_a_name_that_leads_nowhere_is_sent_nothing_until_it_does(manual: Rig) -> None:
    manual.add(URI, None, 1, 0)
    manual.add(URI, SECOND_ONE, 2, 0)
    assert [list(manual.addresses(0)) for _ in range(2)] == [[SECOND_ONE], [SECOND_ONE]]
    assert manual.count.get() == 2
    manual.on_status_message(7, SECOND_ONE, 1, is_report=True)
    nowhere = manual.destinations[0]
    assert not nowhere.is_spoken_for(7, SECOND_ONE)
    nowhere.receiver_id = 7
    assert not nowhere.is_spoken_for(7, FIRST)
    manual.move(nowhere, FIRST)
    assert nowhere.receiver_id is None
    assert set(manual.addresses(0)) == {FIRST, SECOND_ONE}
