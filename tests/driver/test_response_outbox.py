"""Who gets the responses: whoever asks for them, until somebody has them and is heard."""

from __future__ import annotations

from array import array

import pytest

from aeron_async.driver.core.control_packet_dispatcher import ControlPacketDispatcher
from aeron_async.driver.core.outbox import ResponseOutbox
from aeron_async.driver.core.system_counters import DriverCounterId
from tests.driver.fakes import (
    OTHER_SOURCE,
    SECOND,
    SOURCE,
    Outbox,
    eliciting_message,
    status_message,
)
from tests.driver.rigs import PublicationRig


class Rig(PublicationRig):
    def __init__(self) -> None:
        super().__init__(is_unicast=False)
        self.network = Outbox()
        self.responses = ResponseOutbox(
            self.network.send_to,
            self.network.send_batches_to,
            self.counts.system[DriverCounterId.HANDSHAKE_SENDS_WITHHELD],
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
