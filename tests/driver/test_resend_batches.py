"""NAKs that arrive together, and resends that leave together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest

from aeron_async.driver.core.control_packet_dispatcher import ControlPacketDispatcher
from aeron_async.driver.core.outbox import RESENT_COUNT_MAX, RESENT_LENGTH_MAX, ResendBatch
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.protocol.data import DataHeader
from tests.driver.fakes import SOURCE, nak, send_each
from tests.driver.rigs import PublicationRig
from tests.logbuffer.logs import MTU_LENGTH, STREAM_ID, TERM_LENGTH

if TYPE_CHECKING:
    from aeron_async.logbuffer.placing import SegmentTable
    from aeron_async.protocol.header import Buffer
    from aeron_async.protocol.nak import Nak

INVALID = SystemCounterId.INVALID_PACKETS
NAK_RECEIVED = SystemCounterId.NAK_MESSAGES_RECEIVED
RETRANSMITS = SystemCounterId.RETRANSMITS_SENT


class Calls:
    """Writes down what is sent, and by which calls."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.sent: list[bytes] = []
        self.batch = ResendBatch(self.send, self.send_batches)

    def send(self, datagram: Buffer) -> bool:
        self.calls.append([len(datagram)])
        self.sent.append(bytes(datagram))
        return True

    def send_batches(self, data: memoryview, segments: SegmentTable) -> int:
        lengths: list[int] = []

        def note(datagram: memoryview) -> bool:
            lengths.append(len(datagram))
            self.sent.append(bytes(datagram))
            return True

        self.calls.append(lengths)
        return send_each(note, data, segments)

    def add(self, *lengths: int) -> list[list[int]]:
        added = [bytes([index]) * length for index, length in enumerate(lengths)]
        for datagram in added:
            assert self.batch.add(memoryview(datagram))
        assert self.batch.send() == 0
        assert self.sent == added
        calls, self.calls, self.sent = self.calls, [], []
        return calls


def test_resends_of_one_length_leave_in_one_call_and_the_last_may_be_shorter() -> None:
    calls = Calls()
    assert calls.add() == []
    assert calls.add(96) == [[96]]
    assert calls.add(96, 96, 96) == [[96, 96, 96]]
    assert calls.add(96, 96, 64, 96) == [[96, 96, 64], [96]]
    assert calls.add(64, 96, 96, 32, 32) == [[64], [96, 96, 32], [32]]


def test_a_batch_is_bounded_by_count_and_by_length() -> None:
    calls = Calls()
    whole, rest = divmod(200, RESENT_COUNT_MAX)
    assert calls.add(*[32] * 200) == [[32] * RESENT_COUNT_MAX] * whole + [[32] * rest]
    most = RESENT_LENGTH_MAX // 8_192
    assert calls.add(*[8_192] * (most + 1)) == [[8_192] * most, [8_192]]


def test_what_is_behind_a_datagram_that_did_not_leave_stays_too() -> None:
    calls = Calls()
    left = [2]

    def send(datagram: Buffer) -> bool:
        left[0] -= 1
        return left[0] >= 0

    batch = ResendBatch(send, lambda data, segments: send_each(send, data, segments))
    frame = memoryview(bytes(96))
    # The third of these does not leave, and ends a batch.
    assert [batch.add(each) for each in (frame, frame, frame, frame[:32], frame)] == [True] * 4 + [
        False
    ]
    assert batch.send() == 96 + 32
    left[0] = 9
    assert batch.add(frame)
    assert batch.send() == 0
    assert calls.batch.send() == 0


class Rig:
    """A publication of ten datagrams that have been sent, behind its dispatcher."""

    def __init__(self) -> None:
        self.publication_rig = PublicationRig()
        self.publication = self.publication_rig.publication
        self.counts = self.publication_rig.counts
        self.invalid: list[bytes] = []
        self.active: list[Any] = []
        self.dispatcher = ControlPacketDispatcher(
            self.counts.system, self.active.append, self.on_invalid
        )
        self.dispatcher.add(self.publication)
        self.publication_rig.connect(0)
        for _ in range(10):
            self.publication_rig.offer(bytes(MTU_LENGTH - 32))
            self.publication_rig.poll(1)
        self.outbox = self.publication_rig.outbox

    def on_invalid(self, datagram: memoryview, *_: object) -> None:
        self.invalid.append(bytes(datagram))

    def feed(self, *naks: Any) -> list[int]:
        """Feed NAKs that arrive together; return the offsets of the resends."""
        batch = b"".join(each if isinstance(each, bytes) else each.encode() for each in naks)
        length = len(batch) // len(naks)
        self.dispatcher.on_datagrams(memoryview(batch), length, SOURCE, 5)
        return self.offsets()

    def offsets(self) -> list[int]:
        return [DataHeader.decode(datagram).term_offset for datagram in self.outbox.take()]


@pytest.fixture
def rig() -> Rig:
    return Rig()


def at(index: int) -> Nak:
    return nak(index * MTU_LENGTH, MTU_LENGTH)


def test_naks_that_arrive_together_are_answered_together(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def send_batches(data: memoryview, segments: SegmentTable) -> int:
        calls.append(len(data))
        return send_each(rig.outbox.send, data, segments)

    monkeypatch.setattr(rig.outbox, "send_batches", send_batches)
    assert rig.feed(at(1), at(3), at(7)) == [MTU_LENGTH, 3 * MTU_LENGTH, 7 * MTU_LENGTH]
    assert calls == [3 * MTU_LENGTH]
    assert rig.active == [rig.publication]
    assert (rig.counts[NAK_RECEIVED], rig.counts[RETRANSMITS]) == (3, 3)
    # All of them are being answered.
    assert rig.feed(at(3), at(1)) == []
    assert (rig.counts[NAK_RECEIVED], rig.counts[RETRANSMITS]) == (5, 3)


def test_what_is_no_plain_nak_of_a_publication_here_is_taken_alone(rig: Rig) -> None:
    stranger = attrs.evolve(at(2), stream_id=STREAM_ID + 1)
    flagged = attrs.evolve(at(5), flags=1)
    beyond = attrs.evolve(at(2), length=TERM_LENGTH)
    odd = attrs.evolve(at(2), term_offset=8)
    negative = attrs.evolve(at(2), length=-32)
    found = rig.feed(at(4), stranger, beyond, flagged, odd, negative, bytes(28), at(6))
    assert sorted(found) == [4 * MTU_LENGTH, 5 * MTU_LENGTH, 6 * MTU_LENGTH]
    assert rig.invalid == [each.encode() for each in (beyond, odd, negative)] + [bytes(28)]
    assert (rig.counts[INVALID], rig.counts[NAK_RECEIVED]) == (4, 3)


def test_a_batch_that_ends_in_less_than_a_nak_gives_what_is_whole(rig: Rig) -> None:
    batch = at(1).encode() + at(2).encode()[:20]
    rig.dispatcher.on_datagrams(memoryview(batch), 28, SOURCE, 5)
    assert rig.offsets() == [MTU_LENGTH]
    assert rig.invalid == [batch[28:]]


def test_an_answer_that_fails_costs_no_other_publication_its_own(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = PublicationRig(spec={"stream_id": STREAM_ID + 1})
    rig.dispatcher.add(other.publication)
    failing = LookupError("not now")

    def fail(*_: object, **__: object) -> None:
        raise failing

    monkeypatch.setattr(type(rig.publication), "on_naks", fail)
    with pytest.raises(ExceptionGroup) as caught:
        rig.feed(at(1), attrs.evolve(at(1), stream_id=STREAM_ID + 1))
    assert caught.value.exceptions == (failing, failing)


def test_what_could_not_be_sent_is_answered_when_it_is_asked_for_again(rig: Rig) -> None:
    rig.outbox.is_full = True
    assert rig.feed(at(1)) == rig.feed(at(2), at(3)) == []
    assert rig.counts[RETRANSMITS] == rig.counts[SystemCounterId.RETRANSMITTED_BYTES] == 0
    # Nor has it been measured how long that takes.
    assert rig.publication._sender.round_trip._count == 0
    rig.outbox.is_full = False
    assert rig.feed(at(1), at(2), at(3)) == [MTU_LENGTH, 2 * MTU_LENGTH, 3 * MTU_LENGTH]
    assert rig.counts[RETRANSMITS] == 3
    assert rig.counts[SystemCounterId.RETRANSMITTED_BYTES] == 3 * MTU_LENGTH
    assert rig.feed(at(2)) == []


def test_of_a_batch_that_left_in_part_only_the_rest_is_answered_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [2]

    def send(datagram: memoryview) -> bool:
        left[0] -= 1
        return left[0] >= 0 and rig.outbox.send(datagram)

    with monkeypatch.context() as patch:
        patch.setattr(rig.outbox, "send_batches", lambda *batches: send_each(send, *batches))
        assert rig.feed(at(1), at(3), at(5)) == [MTU_LENGTH, 3 * MTU_LENGTH]
    assert rig.counts[RETRANSMITS] == 2
    assert rig.feed(at(1), at(3), at(5)) == [5 * MTU_LENGTH]
