"""Datagrams that come at once, from one source: each is what it would be alone."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.driver.core import publication_image
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.logbuffer import placing
from tests.driver.fakes import (
    MS,
    OTHER_SOURCE,
    SOURCE,
    data,
    heartbeat,
    setup,
)
from tests.driver.rigs import DispatcherRig, ImageRig
from tests.driver.streams import CHUNKS, Chunk, Stream, gathered
from tests.logbuffer.logs import STREAM_ID, TERM_LENGTH
from tests.twins import pure

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.driver.core.outbox import Address

JOIN_POSITIONS: Final = (0, TERM_LENGTH - 4_096, 3 * TERM_LENGTH - 640, 5 * TERM_LENGTH + 32)
Round = tuple[bool, str, int, list[Chunk]]

ROUNDS = st.lists(
    st.tuples(
        st.booleans(),
        st.sampled_from((*["read"] * 4, "wait", "reject")),
        st.integers(0, 200),
        st.lists(CHUNKS, min_size=1, max_size=8),
    ),
    min_size=1,
    max_size=5,
)


def test_datagrams_that_come_at_once_are_taken_in_their_order_each_for_what_it_is() -> None:
    rig = DispatcherRig()
    rig.dispatcher.add_subscription(STREAM_ID, None)
    rig.feed(setup().encode())
    batch = data(0, 64) + data(64, 64) + b"?" * 64 + heartbeat(128)
    segments = array("i", (len(batch), 64))
    rig.dispatcher.on_batches(memoryview(batch), segments, SOURCE, 7, rig.outbox)
    image = rig.images[0].image
    assert rig.images[0].counters.receiver_hwm.get() == 128
    assert set(rig.activity) == {image}
    assert [len(datagram) for datagram, _, _ in rig.invalid] == [64]
    assert rig.counts[SystemCounterId.HEARTBEATS_RECEIVED] == 1


class Receiver:
    """An image behind a dispatcher, to which datagrams come."""

    def __init__(self, join_position: int) -> None:
        self.rig = DispatcherRig()
        self.rig.dispatcher.add_subscription(STREAM_ID, None)
        self.image = ImageRig(
            counts=self.rig.counts, outbox=self.rig.outbox, join_position=join_position
        )
        self.rig.dispatcher.add_image(self.image.image)

    def take_each(self, datagrams: list[bytes], source: Address, now_ns: int) -> None:
        for datagram in datagrams:
            self.rig.feed(datagram, now_ns, source)

    def take_batches(
        self, datagrams: list[bytes], source: Address, now_ns: int, batches_at_once: int = 1
    ) -> None:
        """Take datagrams as Linux would gather them, some batches at a time."""
        for batches, segments in gathered(datagrams, batches_at_once):
            self.rig.dispatcher.on_batches(batches, segments, source, now_ns, self.rig.outbox)

    def state(self) -> dict[str, Any]:
        """Return all that what has arrived may have changed."""
        image, log = self.image.image, self.image.log
        connection = self.image.connection()
        return {
            "terms": [bytes(term) for term in log.terms],
            "end": (log.metadata.end_of_stream_position, log.metadata.is_publication_revoked),
            "positions": (image.hwm_position, image.rebuild_position),
            "hwm": self.image.counters.receiver_hwm.get(),
            "activity": (connection.last_activity_ns, image.last_packet_ns),
            "source": (connection.is_end_of_stream, connection.eos_position),
            "is_ended": (image.is_end_of_stream, image._is_revoked),
            "state": (image.state, self.image.progress),
            "counts": {
                each: self.rig.counts[each] for each in (*SystemCounterId, *DriverCounterId)
            },
            "invalid": self.rig.invalid,
            "is_active": bool(self.rig.activity),
            "sent": self.rig.outbox.sent,
            "setups": self.rig.setups,
        }


@pytest.mark.untraced
@pytest.mark.parametrize(
    "twin",
    [placing.place_batches, pure("logbuffer.placing").place_batches],
    ids=["at work", "python"],
)
@given(
    join_position=st.sampled_from(JOIN_POSITIONS),
    rounds=ROUNDS,
    batches_at_once=st.sampled_from([1, 2, 5, 64]),
)
def test_a_batch_leaves_what_its_datagrams_leave_one_by_one(
    twin: Callable[..., int], join_position: int, rounds: list[Round], batches_at_once: int
) -> None:
    stream, now_ns = Stream(join_position), 0
    together, apart = Receiver(join_position), Receiver(join_position)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publication_image, "place_batches", twin)
        for is_from_elsewhere, then, wait_ms, chunks in rounds:
            now_ns += wait_ms * MS
            source = OTHER_SOURCE if is_from_elsewhere and wait_ms < 20 else SOURCE
            datagrams = [each for chunk in chunks for each in stream.make(*chunk)]
            together.take_batches(datagrams, source, now_ns, batches_at_once)
            apart.take_each(datagrams, source, now_ns)
            assert together.state() == apart.state()
            if then == "read":
                assert together.image.read() == apart.image.read()
            for each in (together, apart):
                if then == "reject":
                    each.image.image.reject("enough")
                each.image.image.poll(now_ns)
            assert together.state() == apart.state()
            if then == "read":
                # What was lost or refused comes again, and the stream goes on.
                stream.position = apart.image.image.rebuild_position


@pytest.mark.parametrize("count", [1, 2, 63, 64])
def test_a_long_batch_is_placed_at_once_and_told_once(count: int) -> None:
    receiver = Receiver(0)
    receiver.take_batches([data(at * 128, 128) for at in range(count)], SOURCE, 5)
    assert receiver.image.counters.receiver_hwm.get() == count * 128
    assert receiver.rig.activity == [receiver.image.image]


def test_one_datagram_that_fails_does_not_cost_those_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    receiver = Receiver(0)
    heard = [data(0, 64), b"?" * 64, data(64, 64)]
    failure = LookupError("no more")

    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(receiver.rig, "on_invalid_datagram", fail)
    with pytest.raises(LookupError) as caught:
        receiver.take_batches(heard, SOURCE, 5)
    assert caught.value is failure
    assert receiver.image.counters.receiver_hwm.get() == 128
    with pytest.raises(
        ExceptionGroup, match="datagrams of a segment batch could not be handled"
    ) as several:
        receiver.take_batches([b"?" * 64, data(128, 64), b"?" * 64, data(192, 64)], SOURCE, 6)
    assert several.value.exceptions == (failure, failure)
    assert receiver.image.counters.receiver_hwm.get() == 256


def test_what_fails_after_a_batch_was_placed_does_not_cost_what_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    receiver = Receiver(0)
    told = iter([LookupError("no more")])

    def fail_once(image: object) -> None:
        for failure in told:
            raise failure
        receiver.rig.activity.append(receiver.image.image)

    monkeypatch.setattr(receiver.rig, "on_image_activity", fail_once)
    with pytest.raises(LookupError):
        receiver.take_batches([*(data(at * 64, 64) for at in range(9)), data(640, 64)], SOURCE, 5)
    assert receiver.image.counters.receiver_hwm.get() == 704
    assert receiver.rig.activity


@pytest.mark.parametrize("length", [1, 31, 40])
def test_a_datagram_cut_short_ends_its_batch_and_is_refused_alone(length: int) -> None:
    receiver = Receiver(0)
    datagrams = [data(0, 64), data(64, 64), data(128, 64)[:length], data(128, 64)]
    receiver.take_batches(datagrams, SOURCE, 5)
    assert receiver.image.counters.receiver_hwm.get() == 192
    assert [len(datagram) for datagram, _, _ in receiver.rig.invalid] == [length]
    assert receiver.rig.counts[SystemCounterId.INVALID_PACKETS] == 1
