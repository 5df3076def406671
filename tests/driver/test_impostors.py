"""Who else may speak for a session, what comes of it, and what does not."""

from __future__ import annotations

from typing import Any

import pytest

from aeron_async.driver.core.image_state import ImageState
from aeron_async.driver.core.session_states import SessionState
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.protocol.header import wrap_int32
from tests.driver.fakes import EOS, MS, OTHER_SOURCE, SECOND, SOURCE, data, heartbeat, setup
from tests.driver.rigs import DispatcherRig
from tests.logbuffer.logs import INITIAL_TERM_ID, MTU_LENGTH, STREAM_ID, TERM_LENGTH


@pytest.fixture
def rig() -> DispatcherRig:
    """Return a dispatcher with one image."""
    rig = DispatcherRig()
    rig.dispatcher.add_subscription(STREAM_ID, None)
    rig.feed(setup().encode())
    return rig


def test_what_another_address_says_for_a_session_changes_nothing(rig: DispatcherRig) -> None:
    rig.feed(data(0, 64), 1)
    rig.feed(data(64, 64), 2, OTHER_SOURCE)
    rig.feed(heartbeat(64, flags=EOS), 3, OTHER_SOURCE)
    rig.feed(setup().encode(), 4, OTHER_SOURCE)
    image = rig.images[0].image
    image.poll(5)
    assert image.rebuild_position == image.hwm_position == 64
    assert not image.is_end_of_stream
    assert rig.images[0].connection().last_activity_ns == 1
    assert rig.counts[DriverCounterId.FOREIGN_PACKETS] == 2
    assert rig.counts[DriverCounterId.SETUPS_REJECTED] == 1
    assert set(rig.outbox.addresses) == {SOURCE}


@pytest.mark.parametrize(
    "changes",
    [
        {"initial_term_id": INITIAL_TERM_ID + 1, "active_term_id": INITIAL_TERM_ID + 1},
        {"initial_term_id": INITIAL_TERM_ID - 1},
        {"term_length": 2 * TERM_LENGTH},
        {"mtu_length": MTU_LENGTH + 32},
    ],
    ids=["later", "earlier", "longer terms", "longer datagrams"],
)
def test_the_setup_of_another_publisher_makes_nothing_and_keeps_nothing_alive(
    rig: DispatcherRig, changes: dict[str, Any]
) -> None:
    for ms in range(0, 6_000, 100):
        rig.feed(setup(**changes).encode(), ms * MS, OTHER_SOURCE)
    assert len(rig.setups) == 1
    assert rig.counts[DriverCounterId.SETUPS_REJECTED] == 60
    assert not rig.images[0].connection().is_alive(5 * SECOND)


@pytest.mark.parametrize("step", [-(2**30), -1_000, -1, 3, 1_000, 2**30])
def test_a_publisher_that_begins_anew_under_its_old_ids_waits_for_the_old_image_to_end(
    rig: DispatcherRig, step: int
) -> None:
    image_rig = rig.images[0]
    image = image_rig.image
    rig.feed(data(0, 64), 0)
    image.poll(0)
    image_rig.read()
    before = [bytes(term) for term in image.log.terms]
    initial_term_id = wrap_int32(INITIAL_TERM_ID + step)
    terms: dict[str, Any] = {"term_id": initial_term_id, "term_offset": 0}
    setup_frame = setup(initial_term_id=initial_term_id, active_term_id=initial_term_id).encode()
    now_ns = 0
    while image.state is not ImageState.LINGER:
        now_ns += 50 * MS
        rig.feed(setup_frame, now_ns)
        rig.feed(data(0, 64, **terms), now_ns)
        rig.feed(heartbeat(0)[:8] + data(0, 32, **terms)[8:], now_ns)
        image.poll(now_ns)
        assert now_ns < 12 * SECOND, "its data keeps the old image alive"
    assert [bytes(term) for term in image.log.terms] == before, "never interleaved"
    dropped = (
        rig.counts[DriverCounterId.OLD_TERM_PACKETS],
        rig.counts[SystemCounterId.FLOW_CONTROL_OVER_RUNS],
    )
    assert min(dropped) == 0 < max(dropped)
    rig.dispatcher.remove_image(image)
    rig.dispatcher.remove_cool_down(image)
    rig.feed(setup_frame, now_ns)
    rig.feed(data(0, 64, **terms), now_ns)
    anew = rig.images[1].image
    assert anew.hwm_position == 64


def test_replaying_all_that_was_consumed_does_not_keep_an_image_alive(rig: DispatcherRig) -> None:
    image_rig = rig.images[0]
    image = image_rig.image
    recorded = [data(position, 1_024) for position in range(0, TERM_LENGTH, 1_024)]
    for datagram in recorded:
        rig.feed(datagram, 1)
        image.poll(1)
        image_rig.read()
        image.poll(1)
    image.poll(SECOND)
    before = [bytes(term) for term in image.log.terms]
    last_sm_position = image._feedback.last_sm_position
    old = [
        each
        for each, at in zip(recorded, range(0, TERM_LENGTH, 1_024), strict=True)
        if at < last_sm_position
    ]
    for second in range(2, 12):
        for datagram in old:
            rig.feed(datagram, second * SECOND)
        image.poll(second * SECOND)
    assert image.state is ImageState.DRAINING
    assert [bytes(term) for term in image.log.terms] == before
    assert rig.counts[SystemCounterId.FLOW_CONTROL_UNDER_RUNS] == 10 * len(old)


def test_the_end_of_a_stream_that_has_cooled_down_brings_nothing_back(rig: DispatcherRig) -> None:
    rig.dispatcher.remove_image(rig.images[0].image)
    for datagram in (data(0, 64), heartbeat(64, EOS), setup().encode()):
        rig.feed(datagram, 1)
    assert rig.state() is SessionState.COOL_DOWN
    assert len(rig.setups) == 1
