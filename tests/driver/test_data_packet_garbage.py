"""What arrives at a receive endpoint and cannot be meant, or is not data."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.protocol.header import RttFlags
from aeron_async.protocol.rtt import RttMeasurement
from aeron_async.protocol.status_message import StatusMessage
from tests.driver.fakes import EOS, RECEIVER_ID, SECOND, SOURCE, data, heartbeat, setup
from tests.driver.rigs import DispatcherRig, ImageRig
from tests.logbuffer.logs import SESSION_ID, STREAM_ID

DATA = data(0, 64)
LAST_HEARTBEAT = heartbeat(64, EOS)
SETUP = setup().encode()


@pytest.fixture
def rig() -> DispatcherRig:
    rig = DispatcherRig()
    rig.dispatcher.add_subscription(STREAM_ID, None)
    return rig


@pytest.mark.parametrize(
    "datagram",
    [
        b"",
        b"\x01",
        b"\x01\x02\x03",
        DATA[:24],
        DATA[:48],
        DATA[:4] + b"\x01" + DATA[5:],
        SETUP[:39],
        SETUP[:6] + b"\x63\x00" + SETUP[8:],
        setup(term_length=65_537).encode(),
        setup(term_offset=16).encode(),
        setup(mtu_length=100).encode(),
        setup(term_length=2**31 - 1).encode(),
        b"\x01" + data(0, 32)[1:],
        b"\x1f" + data(0, 32)[1:],
        bytes(65_507),
    ],
)
def test_what_cannot_be_meant_is_counted_and_dropped(rig: DispatcherRig, datagram: bytes) -> None:
    rig.feed(datagram, 7)
    assert rig.counts[SystemCounterId.INVALID_PACKETS] == 1
    assert rig.invalid == [(datagram, SOURCE, 7)]
    assert rig.outbox.sent == []
    assert rig.setups == []


def test_what_cannot_be_meant_inside_a_stream_is_told_too(rig: DispatcherRig) -> None:
    rig.feed(SETUP)
    rig.feed(DATA)
    assert rig.invalid == []
    misaligned = data(16, 64)
    rig.feed(misaligned, 7)
    assert rig.counts[SystemCounterId.INVALID_PACKETS] == 1
    assert rig.invalid == [(misaligned, SOURCE, 7)]


def test_a_control_frame_that_is_not_for_receivers_is_dropped_without_a_word(
    rig: DispatcherRig,
) -> None:
    rig.feed(StatusMessage(session_id=1, stream_id=STREAM_ID, receiver_id=1).encode())
    assert rig.counts[SystemCounterId.INVALID_PACKETS] == 0
    assert rig.outbox.sent == []


def rttm(**changes: Any) -> RttMeasurement:
    request = RttMeasurement(
        session_id=SESSION_ID,
        stream_id=STREAM_ID,
        echo_timestamp_ns=1_000,
        reception_delta_ns=30,
        receiver_id=RECEIVER_ID,
        flags=RttFlags.REPLY,
    )
    return attrs.evolve(request, **changes)


@pytest.mark.parametrize(("receiver_id", "is_ours"), [(RECEIVER_ID, True), (0, True), (5, False)])
def test_a_round_trip_that_a_sender_measures_is_echoed_for_our_own_image(
    rig: DispatcherRig,
    receiver_id: int,
    is_ours: bool,  # noqa: FBT001 - a table of cases
) -> None:
    rig.feed(SETUP)
    rig.feed(rttm(receiver_id=receiver_id).encode())
    echo = rttm(receiver_id=receiver_id, flags=RttFlags(0), reception_delta_ns=0)
    assert rig.outbox.take_frames(RttMeasurement) == [echo] * is_ours


def test_the_echo_of_our_own_measurement_goes_to_its_image(
    rig: DispatcherRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.feed(SETUP)
    image = rig.images[0].image
    heard: list[int] = []

    def on_rttm(*, rtt_ns: int, now_ns: int) -> None:
        heard.append(rtt_ns)

    monkeypatch.setattr(image._congestion_control, "on_rttm", on_rttm)
    rig.feed(rttm(flags=RttFlags(0)).encode(), 1_530)
    assert heard == [500]
    assert rig.outbox.sent == []


@pytest.mark.parametrize(
    ("now_ns", "echo_ns", "is_taken"),
    [
        (20 * SECOND, 10 * SECOND, True),
        (20 * SECOND, 10 * SECOND - 1, False),
        (20 * SECOND, 20 * SECOND, True),
        (20 * SECOND, 20 * SECOND + 1, False),
        (0, 0, True),
        (0, 2**63 - 1, False),
        (0, -(2**63), False),
    ],
)
def test_a_round_trip_of_more_than_ten_seconds_or_less_than_none_is_not_believed(
    rig: DispatcherRig,
    monkeypatch: pytest.MonkeyPatch,
    now_ns: int,
    echo_ns: int,
    is_taken: bool,  # noqa: FBT001 - a table of cases
) -> None:
    rig.feed(SETUP)
    heard: list[int] = []
    control = rig.images[0].image._congestion_control
    monkeypatch.setattr(control, "on_rttm", lambda *, rtt_ns, **_: heard.append(rtt_ns))
    rig.feed(
        rttm(flags=RttFlags(0), echo_timestamp_ns=echo_ns, reception_delta_ns=0).encode(), now_ns
    )
    assert len(heard) == is_taken
    assert rig.counts[DriverCounterId.RTT_MEASUREMENTS_REJECTED] == (not is_taken)


def test_no_source_gets_more_answers_than_it_may_and_no_image_gives_more() -> None:
    rig = DispatcherRig(
        context=DriverContext(max_rtt_replies_per_second=5, max_rtt_replies_per_source=2)
    )
    rig.dispatcher.add_subscription(STREAM_ID, None)
    for session_id in (SESSION_ID, SESSION_ID + 1):
        rig.feed(setup(session_id=session_id).encode())
    for port in (1, 1, 1, 2, 3, 3, 4):
        rig.feed(rttm().encode(), 7, ("192.0.2.9", port))
    assert [port for _, port in rig.outbox.addresses] == [1, 1, 2, 3, 3]
    assert rig.counts[DriverCounterId.RTT_REPLIES_SUPPRESSED] == 2
    rig.feed(rttm(session_id=SESSION_ID + 1).encode(), 8, SOURCE)
    assert rig.outbox.addresses[5:] == [SOURCE], "another image has answers of its own"
    rig.feed(rttm().encode(), SECOND + 6)
    rig.feed(rttm().encode(), SECOND + 7)
    assert len(rig.outbox.addresses) == 7


def test_a_thousand_measurements_at_once_bring_fifty_answers(rig: DispatcherRig) -> None:
    rig.feed(SETUP)
    for _ in range(1_000):
        rig.feed(rttm().encode(), 7)
    assert len(rig.outbox.take_frames(RttMeasurement)) == 50
    for port in range(1_000):
        rig.feed(rttm().encode(), 7, ("192.0.2.9", port))
    assert len(rig.outbox.take_frames(RttMeasurement)) == 50
    assert len(rig.images[0].image.rtt_replies._counts) <= 100


@pytest.mark.parametrize("changes", [{"stream_id": 5}, {"session_id": 5}])
def test_a_measurement_of_an_unknown_stream_is_dropped(
    rig: DispatcherRig, changes: dict[str, int]
) -> None:
    rig.feed(SETUP)
    rig.feed(rttm(**changes).encode())
    assert rig.outbox.sent == []


VALID = st.sampled_from([DATA, SETUP, LAST_HEARTBEAT, heartbeat(0), rttm().encode()])


@given(VALID, st.lists(st.tuples(st.integers(0, 80), st.integers(0, 255)), max_size=6))
def test_whatever_arrives_nothing_is_raised(base: bytes, changes: list[tuple[int, int]]) -> None:
    rig = DispatcherRig()
    rig.dispatcher.add_subscription(STREAM_ID, None)
    rig.is_refusing = True
    rig.dispatcher.add_image(ImageRig(counts=rig.counts).image)
    mutated = bytearray(base)
    for index, value in changes:
        mutated[index % len(mutated)] = value
    rig.feed(bytes(mutated))


@given(st.binary(max_size=100))
def test_whatever_bytes_arrive_nothing_is_raised(datagram: bytes) -> None:
    rig = DispatcherRig()
    rig.dispatcher.add_subscription(STREAM_ID, None)
    rig.feed(datagram)
