"""Who gets the responses: who asks for them and answers, first where the requests come from."""

from __future__ import annotations

from array import array

import attrs
import pytest

from aeron_async.driver.core.control_packet_dispatcher import ControlPacketDispatcher
from aeron_async.driver.core.outbox import ResponseOutbox
from aeron_async.driver.core.stream_params import SessionIds, chosen_session_id
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from tests.driver.fakes import (
    OTHER_SOURCE,
    SECOND,
    SOURCE,
    Outbox,
    eliciting_message,
    status_message,
)
from tests.driver.rigs import PublicationRig

OTHER_PORT = (SOURCE[0], SOURCE[1] + 1)


class Rig(PublicationRig):
    def __init__(self, host: str | None = None) -> None:
        super().__init__(is_unicast=False)
        self.network = Outbox()
        self.responses = ResponseOutbox(
            self.network.send_to,
            self.network.send_batches_to,
            self.counts.system[DriverCounterId.HANDSHAKE_SENDS_WITHHELD],
            host,
        )
        self.dispatcher = ControlPacketDispatcher(
            self.counts.system, lambda _: None, lambda *_: pytest.fail("all of it can be meant")
        )
        self.dispatcher.add(self.publication, self.responses)

    def ask(self, source: tuple[str, int], now_ns: int) -> None:
        message = eliciting_message(self.log).encode()
        self.dispatcher.on_datagram(memoryview(message), source, now_ns)

    def answer(self, source: tuple[str, int], now_ns: int) -> None:
        message = status_message(self.log, 0).encode()
        self.dispatcher.on_datagram(memoryview(message), source, now_ns)


def test_nothing_leaves_until_somebody_has_asked() -> None:
    rig = Rig()
    assert not rig.responses.send(b"x")
    assert rig.responses.send_batches(memoryview(b"xyz"), array("i", (3, 1))) == 0
    rig.answer(OTHER_SOURCE, 0)
    assert rig.responses.address is None, "a status message asks for nothing"
    assert rig.responses.answered is None
    assert rig.network.sent == []


def test_until_somebody_is_heard_the_last_to_ask_has_the_responses() -> None:
    rig = Rig()
    rig.ask(OTHER_SOURCE, 0)
    rig.ask(SOURCE, 1)
    assert rig.responses.send(b"x")
    assert rig.responses.send_batches(memoryview(b"abc"), array("i", (3, 2))) == 0
    answered = [rig.responses.answered]
    rig.answer(SOURCE, 2)
    answered.append(rig.responses.answered)
    assert answered == [None, SOURCE]
    assert rig.responses.send_batches(memoryview(b"abc"), array("i", (3, 2))) == 3
    assert rig.network.sent == [b"x", b"ab", b"c"]
    assert rig.network.addresses == [SOURCE, SOURCE]


def test_until_it_has_answered_a_receiver_is_sent_three_times_what_it_sent() -> None:
    """Whose address it is only the answer proves, so nothing is reflected to others."""
    rig = Rig()
    rig.ask(SOURCE, 0)
    for _ in range(100):
        assert rig.responses.send(bytes(40)), "what is withheld is not tried again at once"
    assert len(rig.network.sent) == 2
    assert rig.counts[DriverCounterId.HANDSHAKE_SENDS_WITHHELD] == 98
    rig.ask(SOURCE, 1)
    rig.ask(OTHER_SOURCE, 2)
    for _ in range(100):
        rig.responses.send(bytes(40))
    assert rig.network.addresses == [SOURCE, SOURCE, OTHER_SOURCE, OTHER_SOURCE]
    rig.answer(SOURCE, 3)
    for _ in range(100):
        rig.responses.send(bytes(40))
    assert rig.network.addresses[4:] == [SOURCE] * 100, "the one that answers has the responses"


def test_a_stranger_that_asks_does_not_take_the_responses_of_whoever_is_heard() -> None:
    rig = Rig()
    rig.ask(SOURCE, 0)
    rig.answer(SOURCE, 1)
    for now_ns in range(2, 1_000):
        rig.ask(OTHER_SOURCE, now_ns)
    rig.responses.send(b"x")
    assert rig.network.addresses == [SOURCE]


def test_whoever_is_silent_for_five_seconds_leaves_the_responses_to_the_next() -> None:
    rig = Rig()
    rig.ask(SOURCE, 0)
    rig.answer(SOURCE, 0)
    rig.poll(5 * SECOND)
    rig.ask(OTHER_SOURCE, 5 * SECOND)
    assert rig.responses.address == SOURCE
    rig.poll(5 * SECOND + 1)
    rig.ask(OTHER_SOURCE, 5 * SECOND + 1)
    assert rig.responses.address == OTHER_SOURCE
    assert rig.responses.answered is None, "a lane must not send past the budget"


@pytest.mark.parametrize("together", [False, True])
def test_who_has_not_asked_cannot_answer(*, together: bool) -> None:
    rig = Rig()
    rig.ask(SOURCE, 0)
    message = status_message(rig.log, 0).encode()
    if together:
        rig.dispatcher.on_datagrams(memoryview(message * 3), len(message), OTHER_SOURCE, 1)
    else:
        rig.answer(OTHER_SOURCE, 1)
    assert (rig.responses.address, [rig.responses.answered]) == (SOURCE, [None])
    assert not rig.publication.has_receivers, "nobody is kept from asking"
    assert rig.counts[SystemCounterId.STATUS_MESSAGES_REJECTED] == (3 if together else 1)
    rig.answer(SOURCE, 2)
    rig.answer(OTHER_SOURCE, 3)
    assert rig.responses.answered == SOURCE
    rig.poll(5 * SECOND + 3)
    assert not rig.publication.has_receivers, "a stranger keeps no receiver alive"


def test_of_many_that_have_asked_the_last_eight_can_answer() -> None:
    rig = Rig()
    for port in range(1, 10):
        rig.ask((SOURCE[0], port), port)
    rig.answer((SOURCE[0], 1), 10)
    assert [rig.responses.answered] == [None]
    rig.answer((SOURCE[0], 2), 11)
    assert rig.responses.answered == (SOURCE[0], 2)


def test_a_receiver_that_is_heard_again_has_the_responses_back() -> None:
    rig = Rig()
    rig.ask(SOURCE, 0)
    rig.answer(SOURCE, 0)
    rig.poll(5 * SECOND + 1)
    rig.ask(OTHER_SOURCE, 5 * SECOND + 1)
    assert rig.responses.address == OTHER_SOURCE
    rig.answer(SOURCE, 5 * SECOND + 2)
    assert rig.responses.answered == SOURCE, "its image has lived all the time: it asks no more"
    rig.answer(OTHER_SOURCE, 5 * SECOND + 3)
    assert rig.responses.answered == SOURCE


def test_a_receiver_where_the_requests_come_from_goes_before_all_others() -> None:
    rig = Rig(SOURCE[0])
    rig.ask(OTHER_SOURCE, 0)
    rig.answer(OTHER_SOURCE, 1)
    assert rig.responses.answered == OTHER_SOURCE, "a client may receive elsewhere"
    rig.ask(OTHER_PORT, 2)
    rig.answer(OTHER_SOURCE, 2)
    assert rig.responses.address == OTHER_PORT, "nobody else answers in the meantime"
    assert [rig.responses.answered] == [None]
    rig.answer(OTHER_PORT, 3)
    assert rig.responses.answered == OTHER_PORT
    for now_ns in range(4, 100):
        rig.ask(OTHER_SOURCE, now_ns)
        rig.answer(OTHER_SOURCE, now_ns)
    assert rig.responses.answered == OTHER_PORT


def test_a_receiver_whose_setup_was_lost_asks_again_before_the_one_elsewhere_is_forgotten() -> None:
    rig = Rig(SOURCE[0])
    rig.ask(OTHER_SOURCE, 0)
    rig.answer(OTHER_SOURCE, 1)
    for now_ns in (2, 3):
        rig.ask(OTHER_PORT, now_ns)
        assert rig.publication.has_receivers, "the one elsewhere"
        for _ in range(100):
            rig.responses.send(bytes(40))
    assert rig.network.addresses == [OTHER_PORT] * 5, "its budget grows with each time it asks"


def test_a_receiver_where_the_requests_come_from_goes_first_for_five_seconds() -> None:
    """Else a forged address there would shut out a client that receives elsewhere."""
    rig = Rig(SOURCE[0])
    rig.ask(SOURCE, 0)
    rig.ask(OTHER_SOURCE, 5 * SECOND - 1)
    assert rig.responses.address == SOURCE
    rig.ask(OTHER_SOURCE, 5 * SECOND)
    assert rig.responses.address == OTHER_SOURCE


def test_session_ids_of_responses_cannot_be_guessed() -> None:
    ids = SessionIds(5_000, reserved_low=-1, reserved_high=1_000)
    drawn = iter([77, -1, 2**31 - 1, 123_456])

    def choose(*, is_response: bool) -> int:
        return chosen_session_id(
            ids,
            attrs.evolve(Rig().publication.params, session_id=None, is_response=is_response),
            {2**31 - 1}.__contains__,
            lambda: next(drawn),
            where="here",
        )

    assert choose(is_response=False) == 5_000
    assert choose(is_response=True) == 123_456, "neither a reserved id nor one in use"
    assert choose(is_response=False) == 5_001


def test_where_most_ids_are_reserved_the_next_one_is_taken() -> None:
    ids = SessionIds(0, reserved_low=-(2**31), reserved_high=2**31 - 2)
    assert ids.draw(lambda _: False, lambda: 7) == 2**31 - 1
