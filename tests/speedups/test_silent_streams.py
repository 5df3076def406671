"""What is compiled for silent streams touches only its arguments, whatever they are."""

from __future__ import annotations

from importlib import import_module
from struct import pack
from types import SimpleNamespace
from typing import Any, Final

import pytest

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.outbox import HeartbeatBatch, ReportBatch
from tests.fuzz.calls.values import SESSION_ID, STREAM_ID, TERM_ID, TERM_LENGTH, Values
from tests.twins import compiled_twins, needs_compiled, pure_twins

pytestmark = needs_compiled

NOW_NS: Final = 1_000_000_000
INTERVAL_NS: Final = 100_000_000
SOURCE: Final = ("127.0.0.1", 9)
ODD: Final[list[Any]] = [(), (0,), [], b"", None, 5]


class Rig:
    """A publication and an image that are silent, and what sends and takes for them."""

    heartbeats: Any
    reports: Any

    def __init__(self) -> None:
        # Without compiled code there is no such module.
        self.parts: Any = import_module("tests.fuzz.calls.streams")
        self.destination = self.parts.Thing(control_address=None)
        self.outbox = self.parts.Thing()
        self.publication = self.parts.make_publication(1, NOW_NS, 64, self.outbox)
        self.image = self.parts.make_image(0, NOW_NS, 64, self.destination)
        self.schedule: Any = compiled_twins().Schedule()
        self.counter = self.parts.Thing(cell=self.parts.make_cell(0))
        self.heartbeats, self.reports = HeartbeatBatch(), ReportBatch()
        interest = self.parts.Thing(images={SESSION_ID: self.image})
        self.streams = {STREAM_ID: interest}
        self.by_ids = {self.publication.id: self.publication}

    def arguments(self, name: str) -> list[Any]:
        kind, counter = self.parts.Publication, self.counter
        every: dict[str, list[Any]] = {
            "HeartbeatsOut": [
                *(kind, self.schedule, self.heartbeats, counter, counter),
                *("active", INTERVAL_NS, 3 * INTERVAL_NS),
            ],
            "ReportsOut": [self.parts.Image, self.schedule, self.reports, 1 << 50],
            "HeartbeatsIn": [self.parts.Image, self.streams, counter],
            "ReportsIn": [kind, self.by_ids, counter],
        }
        return every[name]

    def make(self, name: str) -> Any:
        return getattr(compiled_twins(), name)(*self.arguments(name))

    def send_heartbeat(self, now_ns: int = NOW_NS) -> int:
        """Return 1 if the heartbeat has left, and 0 if the publication is to be asked."""
        sent: int = self.make("HeartbeatsOut").send([self.publication], 0, now_ns, now_ns)
        return sent

    def send_report(self, now_ns: int = NOW_NS) -> int:
        sent: int = self.make("ReportsOut").send([self.image], 0, now_ns, now_ns)
        return sent

    def hide(self, thing: Any, name: str, happens: Any) -> None:
        """Let something happen when an attribute is looked at."""
        fields = vars(thing)
        fields["hidden"] = {name: (fields.pop(name), SimpleNamespace(hook=happens))}


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_what_is_whole_is_sent(rig: Rig) -> None:
    assert rig.send_heartbeat() == rig.send_report() == 1
    assert rig.counter.cell[0] == 1 + 32


@pytest.mark.parametrize("said", ODD)
def test_what_was_said_last_may_be_too_short(rig: Rig, said: object) -> None:
    rig.publication._sender._said = said
    assert rig.send_heartbeat() == 0


@pytest.mark.parametrize("found", ODD)
@pytest.mark.parametrize("name", ["longs", "words"])
def test_a_log_may_have_metadata_that_is_too_short(rig: Rig, name: str, found: object) -> None:
    setattr(rig.publication.log.metadata, name, found)
    assert rig.send_heartbeat() == 0


@pytest.mark.parametrize("name", ["HeartbeatsOut", "HeartbeatsIn", "ReportsIn"])
def test_what_could_not_be_made_does_nothing(rig: Rig, name: str) -> None:
    kind = getattr(compiled_twins(), name)
    made = kind.__new__(kind)
    arguments = rig.arguments(name)
    for at in [at for at, each in enumerate(arguments) if each is rig.counter]:
        wrong = [*arguments]
        wrong[at] = rig.parts.Thing(cell=None)
        with pytest.raises(TypeError):
            made.__init__(*wrong)
    data = bytes(36 * 4)
    if name == "HeartbeatsOut":
        rig.publication._fast_until_ns = NEVER_NS
        assert made.send([rig.publication], 0, NOW_NS, NOW_NS) == 0
    elif name == "HeartbeatsIn":
        with pytest.raises(ValueError, match="no streams"):
            made.take(data, 0, 32, SOURCE, rig.destination, NOW_NS)
    else:
        with pytest.raises(ValueError, match="no publications"):
            made.take(data, 0, NOW_NS)
    made.__init__(*arguments)


@pytest.mark.parametrize("name", ["HeartbeatsOut", "ReportsOut", "HeartbeatsIn", "ReportsIn"])
def test_what_is_made_cannot_be_made_again(rig: Rig, name: str) -> None:
    made = rig.make(name)
    with pytest.raises(ValueError, match="made once"):
        made.__init__(*rig.arguments(name))


def test_the_entries_of_a_schedule_are_its_own(rig: Rig) -> None:
    rig.schedule.at("item", NOW_NS)
    rig.schedule._heap[:] = [(), (1,)]
    rig.schedule._queue.appendleft(())
    assert rig.schedule.due(NOW_NS - 1) == []
    assert rig.schedule.due(NOW_NS) == ["item"]


def test_a_schedule_stays_whole_where_it_is_begun_again_while_items_are_compared(
    rig: Rig,
) -> None:
    values: Any = SimpleNamespace(hook=rig.schedule.__init__)
    for _ in range(3):
        key = rig.parts.Key(values, 5)
        rig.schedule.at(key, NOW_NS)
        rig.schedule.at(5, NOW_NS)
    assert len(rig.schedule.due(NOW_NS)) == len(rig.schedule) == 4


def test_a_deadline_of_minus_one_is_a_time(rig: Rig) -> None:
    rig.publication._sender._last_sent_ns = -1 - INTERVAL_NS
    rig.publication._fast_until_ns = NOW_NS
    assert rig.send_heartbeat(-INTERVAL_NS) == 1
    assert rig.schedule.next_deadline_ns() == -1
    rig.image._report_until_ns = -1
    rig.image._feedback._deadline_ns = NOW_NS
    assert rig.send_report(-INTERVAL_NS) == 1
    assert rig.schedule.next_deadline_ns() == -1


def test_what_is_to_be_done_after_the_end_of_time_is_never_done(rig: Rig) -> None:
    rig.publication._fast_until_ns = NEVER_NS
    arguments = rig.arguments("HeartbeatsOut")
    arguments[6] = NEVER_NS
    made = compiled_twins().HeartbeatsOut(*arguments)
    assert made.send([rig.publication], 0, NOW_NS, NOW_NS) == 1
    assert rig.schedule.next_deadline_ns() == NEVER_NS
    assert not rig.heartbeats._frames


def test_a_source_that_is_alive_for_ever_is_told(rig: Rig) -> None:
    rig.image._feedback._liveness_timeout_ns = NEVER_NS
    arguments = rig.arguments("ReportsOut")
    arguments[3] = NEVER_NS
    made = compiled_twins().ReportsOut(*arguments)
    assert made.send([rig.image], 0, NOW_NS, NOW_NS) == 1
    assert len(rig.reports._frames) == 1


def test_the_feedback_may_be_taken_away_in_the_middle(rig: Rig) -> None:
    feedback = rig.image._feedback
    rig.hide(feedback, "is_enabled", lambda: setattr(rig.image, "_feedback", None))
    assert rig.send_report() == 1
    assert rig.send_report() == 0


def test_frames_may_be_replaced_where_more_are_added(rig: Rig) -> None:
    rig.reports = rig.parts.Thing(_frames={}, add=lambda *_: None)
    made = rig.make("ReportsOut")
    images = [rig.parts.make_image(each, NOW_NS, 64, rig.destination) for each in range(3)]
    values: Any = Values.__new__(Values)
    frames = rig.reports._frames
    values.hook = lambda: frames.clear() or made.send([], 0, NOW_NS, NOW_NS)
    values.flag = lambda: False
    frames[rig.destination, SOURCE, 36] = rig.parts.Frames(values)
    assert made.send(images, 0, NOW_NS, NOW_NS) == 1


@pytest.mark.parametrize("bits", [-1, 64, 1_000])
def test_a_log_may_have_positions_of_any_number_of_bits(rig: Rig, bits: int) -> None:
    rig.publication = rig.parts.make_publication(1, NOW_NS, TERM_LENGTH, rig.outbox)
    rig.publication.log.position_bits = bits
    rig.by_ids = {rig.publication.id: rig.publication}
    ids = *rig.publication.id, TERM_ID + 1_000
    message = pack("<iBBHiiiiiq", 36, 0, 0, 3, *ids, 0, 1_408, 77)
    assert rig.send_heartbeat() == 0
    assert rig.make("ReportsIn").take(message, 0, NOW_NS) == 0


def test_a_long_list_counts_at_most_all_calls() -> None:
    for twins in (pure_twins(), compiled_twins()):
        reading = twins.Reading()
        for calls, left in ((1 << 40, 0), (5, 0), (0, 0), (-(2**63), 0)):
            reading._calls_until_check = calls
            reading._count_list(2**63 - 1, 2**63 - 1)
            assert reading._calls_until_check == left
