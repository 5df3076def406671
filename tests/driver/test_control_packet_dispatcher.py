"""From a control datagram to its publication: what counts, what is invalid, what is nobody's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.driver.core.control_packet_dispatcher import ControlPacketDispatcher
from aeron_async.driver.core.outbox import ResponseOutbox
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.protocol.error import ErrorFrame
from aeron_async.protocol.header import RttFlags, StatusMessageFlags
from aeron_async.protocol.nak import Nak
from aeron_async.protocol.rtt import RttMeasurement
from aeron_async.protocol.setup import ResponseSetup, Setup
from aeron_async.protocol.status_message import StatusMessage
from tests.driver.fakes import (
    HALF_TERM,
    MS,
    OTHER_SOURCE,
    RECEIVER_ID,
    SECOND,
    SOURCE,
    data,
    nak,
    setup,
)
from tests.driver.rigs import PublicationRig
from tests.logbuffer.logs import INITIAL_TERM_ID, SESSION_ID, STREAM_ID, TERM_LENGTH

if TYPE_CHECKING:
    from aeron_async.driver.core.network_publication import NetworkPublication
    from aeron_async.driver.core.outbox import Address

INVALID = SystemCounterId.INVALID_PACKETS
SM_RECEIVED = SystemCounterId.STATUS_MESSAGES_RECEIVED
SM_REJECTED = SystemCounterId.STATUS_MESSAGES_REJECTED
NAK_RECEIVED = SystemCounterId.NAK_MESSAGES_RECEIVED
ERR_RECEIVED = SystemCounterId.ERROR_FRAMES_RECEIVED

SM = StatusMessage(
    session_id=SESSION_ID,
    stream_id=STREAM_ID,
    consumption_term_id=INITIAL_TERM_ID,
    consumption_term_offset=0,
    receiver_window=HALF_TERM,
    receiver_id=RECEIVER_ID,
)
ERROR = ErrorFrame(
    session_id=SESSION_ID,
    stream_id=STREAM_ID,
    receiver_id=RECEIVER_ID,
    error_code=13,
    message=b"not wanted",
)
RTTM = RttMeasurement(
    session_id=SESSION_ID,
    stream_id=STREAM_ID,
    echo_timestamp_ns=1,
    receiver_id=RECEIVER_ID,
    flags=RttFlags.REPLY,
)


class Rig:
    def __init__(self) -> None:
        self.publication_rig = PublicationRig()
        self.counts = self.publication_rig.counts
        self.publication = self.publication_rig.publication
        self.activity: list[NetworkPublication] = []
        self.told: list[tuple[bytes, Address, int]] = []
        self.dispatcher = ControlPacketDispatcher(
            self.counts.system, self.activity.append, self.on_invalid_datagram
        )
        self.dispatcher.add(self.publication)

    def feed(self, frame: Any) -> dict[SystemCounterId, int]:
        """Feed a frame or bytes, and return which of the counters here moved."""
        datagram = frame if isinstance(frame, bytes) else frame.encode()
        before = self._counts()
        self.told.clear()
        self.dispatcher.on_datagram(memoryview(datagram), SOURCE, 5)
        moved = {key: count for key, count in self._counts().items() if count != before[key]}
        assert self.told == ([(datagram, SOURCE, 5)] if INVALID in moved else [])
        return moved

    def on_invalid_datagram(self, datagram: memoryview, source: Address, now_ns: int) -> None:
        self.told.append((bytes(datagram), source, now_ns))

    def _counts(self) -> dict[SystemCounterId, int]:
        return {
            key: self.counts[key]
            for key in (INVALID, SM_RECEIVED, SM_REJECTED, NAK_RECEIVED, ERR_RECEIVED)
        }


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_publications_are_found_by_session_and_stream(rig: Rig) -> None:
    assert len(rig.dispatcher) == 1
    assert rig.dispatcher.publications == (rig.publication,)
    assert rig.dispatcher.is_session_in_use(SESSION_ID, STREAM_ID)
    assert not rig.dispatcher.is_session_in_use(SESSION_ID, STREAM_ID + 1)
    other = PublicationRig().publication
    rig.dispatcher.remove(other)
    assert len(rig.dispatcher) == 1, "another of the same name"
    rig.dispatcher.remove(rig.publication)
    assert len(rig.dispatcher) == 0


def test_a_status_message_reaches_its_publication(rig: Rig) -> None:
    assert rig.feed(SM) == {SM_RECEIVED: 1}
    assert rig.publication.is_connected
    assert rig.activity == [rig.publication]


@pytest.mark.parametrize(
    "changes",
    [{"group_tag": -9}, {"feedback": b"\0\0\0\0"}, {"receiver_window": 0}],
    ids=["group tag", "old feedback", "no window"],
)
def test_a_status_message_may_carry_feedback_or_offer_nothing(
    rig: Rig, changes: dict[str, Any]
) -> None:
    assert rig.feed(attrs.evolve(SM, **changes)) == {SM_RECEIVED: 1}
    assert rig.publication.is_connected


@pytest.mark.parametrize(
    "changes",
    [
        {"receiver_window": HALF_TERM + 1},
        {"receiver_window": -1},
        {"consumption_term_offset": TERM_LENGTH},
        {"consumption_term_offset": -32},
        {"consumption_term_offset": 16},
        {"receiver_window": HALF_TERM + 1, "flags": StatusMessageFlags.SEND_SETUP},
    ],
)
def test_a_status_message_that_cannot_be_meant_is_invalid_and_not_received(
    rig: Rig, changes: dict[str, Any]
) -> None:
    assert rig.feed(attrs.evolve(SM, **changes)) == {INVALID: 1}
    assert not rig.publication.is_connected
    assert rig.activity == [rig.publication]


def test_a_receiver_that_was_given_other_terms_is_sent_the_true_ones(rig: Rig) -> None:
    """A SETUP was forged, and the window of its terms is more than these have."""
    publication = rig.publication
    rig.feed(SM)
    publication.poll(SECOND)
    rig.publication_rig.outbox.take()
    for count in range(1, 4):
        foreign = attrs.evolve(SM, receiver_window=HALF_TERM + 1)
        for _ in range(50):
            assert list(rig.feed(foreign)) == [INVALID]
        assert rig.activity[-1] is publication
        publication.poll(SECOND + count * 100 * MS)
        (answer,) = rig.publication_rig.outbox.take_frames(Setup)
        assert answer.term_length == TERM_LENGTH
    publication.poll(2 * SECOND)
    assert rig.publication_rig.outbox.take_frames(Setup) == []


def test_a_status_message_far_from_what_was_sent_is_received_and_rejected(rig: Rig) -> None:
    far = attrs.evolve(SM, consumption_term_offset=HALF_TERM + 32)
    assert rig.feed(far) == {SM_RECEIVED: 1, SM_REJECTED: 1}
    assert not rig.publication.is_connected


def test_a_status_message_that_asks_for_a_setup_is_not_held_against_its_position(rig: Rig) -> None:
    asking = attrs.evolve(
        SM,
        consumption_term_id=INITIAL_TERM_ID - 99,
        flags=StatusMessageFlags.SEND_SETUP,
    )
    assert rig.feed(asking) == {SM_RECEIVED: 1}
    assert rig.activity == [rig.publication]


@pytest.mark.parametrize(
    ("window", "counts"),
    [(2**29, {SM_RECEIVED: 1}), (2**29 + 1, {INVALID: 1})],
)
def test_a_status_message_for_nobody_is_counted_if_any_stream_could_have_meant_it(
    rig: Rig, window: int, counts: dict[SystemCounterId, int]
) -> None:
    wildcard = attrs.evolve(SM, session_id=0, stream_id=0, receiver_window=window)
    assert rig.feed(wildcard) == counts
    assert rig.activity == []


def test_the_responses_of_a_live_receiver_do_not_go_to_a_stranger_who_asks_for_their_setup(
    rig: Rig,
) -> None:
    withheld = rig.publication_rig.counts.system[DriverCounterId.HANDSHAKE_SENDS_WITHHELD]
    outbox = ResponseOutbox(lambda *_: True, lambda batch, *_: len(batch), withheld)
    rig.dispatcher.add(rig.publication, outbox)
    asking = attrs.evolve(SM, flags=StatusMessageFlags.SEND_SETUP, receiver_window=0)

    def hear(sm: StatusMessage, source: Address, now_ns: int) -> Address | None:
        rig.dispatcher.on_datagram(memoryview(sm.encode()), source, now_ns)
        return outbox.address

    assert hear(SM, SOURCE, 0) is None, "only who asks for the SETUP is sent it"
    rig.publication._receivers.on_goodbye(RECEIVER_ID)
    assert hear(asking, SOURCE, 1) == SOURCE
    assert hear(asking, OTHER_SOURCE, 2) == OTHER_SOURCE, "nobody has reported yet"
    assert hear(asking, SOURCE, 3) == SOURCE
    hear(SM, SOURCE, 4)
    stranger = attrs.evolve(asking, receiver_id=RECEIVER_ID + 1)
    for sm in (asking, stranger):
        assert hear(sm, OTHER_SOURCE, 5) == SOURCE
    # Once the receiver has been silent for the connection timeout they are anybody's again.
    rig.publication.poll(5 * SECOND + 5)
    assert hear(stranger, OTHER_SOURCE, 5 * SECOND + 6) == OTHER_SOURCE


def test_a_nak_reaches_its_publication(rig: Rig) -> None:
    assert rig.feed(nak(0, 64)) == {NAK_RECEIVED: 1}
    assert rig.publication_rig.counters.naks_received.get() == 1
    assert rig.activity == [rig.publication]


@pytest.mark.parametrize(("offset", "length"), [(0, 0), (TERM_LENGTH - 32, 32), (0, TERM_LENGTH)])
def test_a_nak_may_reach_to_the_end_of_its_term(rig: Rig, offset: int, length: int) -> None:
    assert rig.feed(nak(offset, length)) == {NAK_RECEIVED: 1}


@pytest.mark.parametrize(
    "changes",
    [
        {"term_offset": -32},
        {"term_offset": TERM_LENGTH},
        {"term_offset": 16},
        {"length": -1},
        {"length": TERM_LENGTH + 1},
        {"term_offset": TERM_LENGTH - 32, "length": 33},
    ],
)
def test_a_nak_that_cannot_be_meant_is_invalid(rig: Rig, changes: dict[str, Any]) -> None:
    assert rig.feed(attrs.evolve(nak(0, 64), **changes)) == {INVALID: 1}
    assert rig.publication_rig.counters.naks_received.get() == 0


def test_a_nak_for_nobody_is_ignored_whatever_it_says(rig: Rig) -> None:
    stray = Nak(session_id=1, stream_id=1, term_id=0, term_offset=-1, length=-1)
    assert rig.feed(stray) == {}


def test_an_error_reaches_its_publication(rig: Rig) -> None:
    rig.feed(SM)
    assert rig.feed(ERROR) == {ERR_RECEIVED: 1}
    assert not rig.publication.is_connected
    assert [error.message for error in rig.publication_rig.errors] == [b"not wanted"]


@pytest.mark.parametrize("error_length", [-1, 1_024, 11])
def test_an_error_with_a_length_that_cannot_be_is_invalid(rig: Rig, error_length: int) -> None:
    assert rig.feed(attrs.evolve(ERROR, error_length=error_length)) == {INVALID: 1}


def test_an_error_without_a_text_is_an_error(rig: Rig) -> None:
    assert rig.feed(attrs.evolve(ERROR, message=b"", error_length=0)) == {ERR_RECEIVED: 1}


def test_an_error_for_nobody_is_counted(rig: Rig) -> None:
    assert rig.feed(attrs.evolve(ERROR, session_id=1)) == {ERR_RECEIVED: 1}
    assert rig.activity == []


def test_a_round_trip_measurement_is_answered_by_its_publication(rig: Rig) -> None:
    assert rig.feed(RTTM) == {}
    assert rig.feed(attrs.evolve(RTTM, session_id=1)) == {}
    assert len(rig.publication_rig.outbox.sent) == 1


@pytest.mark.parametrize(
    "frame",
    [data(0, 64), setup(), ResponseSetup(session_id=1, stream_id=1, response_session_id=2)],
    ids=["data", "setup", "response setup"],
)
def test_what_is_not_for_senders_is_dropped_without_a_word(rig: Rig, frame: Any) -> None:
    assert rig.feed(frame) == {}


@pytest.mark.parametrize(
    "datagram",
    [
        b"",
        SM.encode()[:35],
        SM.encode()[:4] + b"\x01" + SM.encode()[5:],
        nak(0, 64).encode()[:27],
        ERROR.encode()[:39],
        RTTM.encode()[:39],
        b"\xff\xff\xff\xff" + SM.encode()[4:],
    ],
)
def test_what_is_no_frame_is_invalid(rig: Rig, datagram: bytes) -> None:
    assert rig.feed(datagram) == {INVALID: 1}


FRAMES = st.sampled_from([SM.encode(), nak(0, 64).encode(), ERROR.encode(), RTTM.encode()])


@given(FRAMES, st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=6))
def test_whatever_arrives_nothing_is_raised(base: bytes, changes: list[tuple[int, int]]) -> None:
    rig = Rig()
    mutated = bytearray(base)
    for index, value in changes:
        mutated[index % len(mutated)] = value
    rig.feed(bytes(mutated))
    rig.publication.poll(0)
