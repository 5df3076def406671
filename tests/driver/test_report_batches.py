"""Status messages of silent images leave together, in one call for those to one source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.outbox import ReportBatch
from aeron_async.driver.core.publication_image import PublicationImage
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.driver.receiver import EARLY_SHARE, POLLS_PER_CYCLE, Receiver
from aeron_async.driver.stall_clock import StallClock
from aeron_async.protocol.status_message import StatusMessage
from tests.driver.agents import SetClock
from tests.driver.fakes import CONTEXT, MS, SOURCE, Counts, Outbox
from tests.driver.rigs import ImageRig

if TYPE_CHECKING:
    from aeron_async.driver.core.context import DriverContext
    from aeron_async.driver.core.outbox import Address
    from aeron_async.protocol.header import Buffer

INTERVAL_NS = CONTEXT.status_message_timeout_ns
EARLY_NS = INTERVAL_NS // EARLY_SHARE
ELSEWHERE = ("192.0.2.7", 40_000)


class Destination(Outbox):
    """Keeps the lengths of the batches too; refuses datagrams by their number in a turn."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []
        self.failure: Exception | None = None
        self.refused: set[int] = set()

    def send(self, datagram: Buffer) -> bool:
        if self.refused and len(self.sent) in self.refused:
            self.refused.discard(len(self.sent))
            return False
        return super().send(datagram)

    def send_batch(self, batch: memoryview, segment_length: int, address: Address) -> int:
        if self.failure is not None:
            raise self.failure
        self.batches.append(len(batch) // segment_length)
        return super().send_batch(batch, segment_length, address)


class Silence:
    """Some images of one destination, each silent, and the agent that reports for them."""

    def __init__(self, *starts_ns: int, context: DriverContext = CONTEXT, **options: Any) -> None:
        self.counts, self.outbox, self.clock = Counts(context), Destination(), SetClock()
        self.context = context
        self.agent = Receiver(
            context, StallClock(self.clock, threshold_ns=NEVER_NS), self.counts.system, self
        )
        self.rigs: list[ImageRig] = []
        for start_ns in starts_ns:
            self.clock.ns = start_ns
            self.add(**options)

    def add(self, **options: Any) -> ImageRig:
        """Add an image, which sends its first status message at once."""
        options["context"] = self.context
        rig = ImageRig(counts=self.counts, outbox=self.outbox, now_ns=self.clock.ns, **options)
        self.rigs.append(rig)
        self.agent.on_activity(rig.image)
        self.work(self.clock.ns)
        return rig

    def work(self, now_ns: int) -> list[StatusMessage]:
        """Let the agent do what is due, and return what it has sent."""
        self.clock.ns = now_ns
        for rig in self.rigs:
            for each in rig.image.connections:
                each.last_activity_ns = now_ns
            rig.image.last_packet_ns = now_ns
        self.outbox.batches.clear()
        self.outbox.addresses.clear()
        for _ in self.agent.do_work(now_ns).__await__():
            raise AssertionError
        return self.outbox.take_frames(StatusMessage)

    def on_image_drained(self, image: PublicationImage) -> None:
        raise AssertionError(image)

    def on_image_resumed(self, image: PublicationImage) -> None:
        raise AssertionError(image)

    def on_image_done(self, image: PublicationImage) -> None:
        raise AssertionError(image)


def test_those_that_are_due_soon_leave_with_the_one_that_is_due() -> None:
    silence = Silence(0, 5 * MS, EARLY_NS, EARLY_NS + 1)
    assert len(silence.work(INTERVAL_NS)) == 3
    assert (silence.outbox.batches, silence.outbox.addresses) == ([3], [SOURCE])
    assert len(silence.work(INTERVAL_NS + EARLY_NS)) == 0
    assert len(silence.work(INTERVAL_NS + EARLY_NS + 1)) == 1
    assert silence.outbox.batches == []
    assert silence.counts[SystemCounterId.STATUS_MESSAGES_SENT] == 8


def test_what_is_sent_together_says_what_each_would_have_said() -> None:
    silence = Silence(0, 0, 0)
    alone = ImageRig()
    alone.image.poll(0)
    (expected,) = alone.outbox.take_frames(StatusMessage)
    for number in range(1, 4):
        assert silence.work(number * INTERVAL_NS) == [expected] * 3
        assert silence.outbox.batches == [3]
    for rig in silence.rigs:
        assert rig.log.metadata.active_transport_count == 1


def test_each_source_and_each_length_has_its_own_batch() -> None:
    silence = Silence(0, 0)
    for options in ({"group_tag": 5}, {"group_tag": 5}, {"source": ELSEWHERE}):
        silence.add(**options)
    reports = silence.work(INTERVAL_NS)
    assert sorted(each.group_tag or 0 for each in reports) == [0, 0, 0, 5, 5]
    assert silence.outbox.batches == [2, 2]
    assert sorted(silence.outbox.addresses) == sorted([SOURCE, SOURCE, ELSEWHERE])


def test_a_turn_sends_a_limited_number_and_the_next_one_goes_on() -> None:
    silence = Silence(*[0] * (POLLS_PER_CYCLE + 3))
    assert len(silence.work(INTERVAL_NS)) == POLLS_PER_CYCLE
    assert len(silence.work(INTERVAL_NS)) == 3
    assert silence.work(INTERVAL_NS) == []


def test_what_did_not_leave_is_counted_and_sent_again_in_its_time() -> None:
    silence = Silence(0, 0, 0)
    silence.outbox.is_full = True
    assert silence.work(INTERVAL_NS) == []
    assert silence.counts[SystemCounterId.SHORT_SENDS] == 3
    assert silence.counts[SystemCounterId.STATUS_MESSAGES_SENT] == 3
    silence.outbox.is_full = False
    assert silence.work(INTERVAL_NS + 1) == []
    assert len(silence.work(2 * INTERVAL_NS)) == 3


def test_one_that_the_system_refuses_does_not_keep_the_others() -> None:
    silence = Silence(*[0] * 5)
    silence.outbox.refused = {0, 3}
    assert len(silence.work(INTERVAL_NS)) == 3
    assert silence.counts[SystemCounterId.SHORT_SENDS] == 2
    assert silence.counts[SystemCounterId.STATUS_MESSAGES_SENT] == 5 + 3


@pytest.mark.parametrize("timeout_ns", [1_000, MS, 20 * MS])
def test_the_interval_decides_how_early_is_early(timeout_ns: int) -> None:
    """However often the agent works, an image reports once in its interval."""
    context = attrs.evolve(CONTEXT, status_message_timeout_ns=timeout_ns)
    silence = Silence(0, 0, context=context)
    step_ns = timeout_ns // 10
    count = sum(len(silence.work(step_ns * turn)) for turn in range(1, 101))
    assert count <= 2 * 100 // 9


@pytest.mark.parametrize("kind", ["untethered", "response"])
def test_an_image_that_cannot_report_with_others_is_polled_only_when_it_is_due(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    polls: list[int] = []
    poll = PublicationImage.poll

    def count(image: PublicationImage, now_ns: int) -> int:
        polls.append(now_ns)
        return poll(image, now_ns)

    silence = Silence(*[each * MS for each in range(10)])
    for rig in silence.rigs:
        if kind == "response":
            rig.image._feedback.respond_with(77)
        else:
            rig.subscribe(is_tether=False)
    monkeypatch.setattr(PublicationImage, "poll", count)
    for turn in range(200, 400):
        silence.work(turn * MS)
    assert len(polls) <= 2 * len(silence.rigs)


def test_a_question_that_comes_up_in_silence_is_asked_in_its_time() -> None:
    """Its deadline is asked for anew by each status message: a source can be silent, and heard."""
    silence = Silence(0)
    image = silence.rigs[0].image
    assert image.report_fast(INTERVAL_NS, INTERVAL_NS, ReportBatch())
    due_ns = INTERVAL_NS + 30 * MS
    image._gaps.detector.length, image._gaps.detector.deadline_ns = 64, due_ns
    assert image.report_fast(due_ns - 1, due_ns, ReportBatch()) == due_ns
    assert image.report_fast(due_ns, due_ns, ReportBatch()) == 0


def test_a_destination_that_fails_is_counted_and_the_others_send() -> None:
    silence = Silence(0, 0)
    silence.outbox.failure = OSError("no such device")
    assert silence.work(INTERVAL_NS) == []
    assert silence.counts[SystemCounterId.SHORT_SENDS] == 2
    assert silence.counts[SystemCounterId.ERRORS] == 1
    failures: list[Exception] = []
    batch, other = ReportBatch(), Outbox()
    for destination in (silence.outbox, silence.outbox, other):
        batch.add(destination, SOURCE, bytes(36))
    assert batch.send(failures.append) == (1, 2)
    assert failures == [silence.outbox.failure]
    assert other.take() == [bytes(36)]
    assert batch.send(failures.append) == (0, 0)


@pytest.mark.parametrize("change", ["reject", "doubt", "reader", "response"])
def test_an_image_that_has_more_to_say_is_polled(change: str) -> None:
    silence = Silence(0, 0)
    image = silence.rigs[0].image
    if change == "reject":
        image.reject("enough")
    elif change == "doubt":
        image.on_doubt()
    elif change == "reader":
        silence.rigs[0].subscribe()
    else:
        image._feedback.respond_with(77)
    assert image.report_fast(INTERVAL_NS, INTERVAL_NS, ReportBatch()) == 0
    assert silence.rigs[1].image.report_fast(INTERVAL_NS, INTERVAL_NS, ReportBatch())
