"""A clock that goes back, or on by much: nothing ends, and no storm follows."""

from __future__ import annotations

import pytest

from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.core.image_state import ImageState
from aeron_async.driver.core.session_states import SessionState
from tests.driver.fakes import CONTEXT, MS, SECOND, data, heartbeat
from tests.driver.rigs import DispatcherRig, ImageRig
from tests.logbuffer.logs import STREAM_ID

HOUR = 3_600 * SECOND
STALLS = [SECOND, 4 * SECOND, 12 * SECOND, HOUR]


def talking_image(context: DriverContext = CONTEXT) -> ImageRig:
    """Return an image with a gap, polled and heard every 50 ms up to two seconds."""
    rig = ImageRig(context=context)
    rig.feed(data(128, 64), 0)
    for ms in range(0, 2_001, 50):
        rig.feed(heartbeat(192), ms * MS)
        rig.image.poll(ms * MS)
    rig.outbox.take()
    return rig


def test_a_clock_that_goes_back_a_second_ends_nothing_and_silences_nobody_for_longer() -> None:
    rig = talking_image(DriverContext(image_gap_timeout_ns=HOUR))
    sent = []
    for ms in range(1_000, 12_000, 50):
        rig.feed(heartbeat(192), ms * MS)
        rig.image.poll(ms * MS)
        sent += [ms] * len(rig.status_messages())
    assert rig.state() is ImageState.ACTIVE
    assert sent[0] <= 2_200
    assert len(sent) >= 45


@pytest.mark.parametrize("stall_ns", STALLS)
def test_every_pending_session_is_asked_once_more_and_no_more(stall_ns: int) -> None:
    rig = DispatcherRig()
    rig.dispatcher.add_subscription(STREAM_ID, None)
    for now_ns in (0, 100 * MS):
        for session_id in range(20):
            rig.feed(data(0, 64, session_id=session_id), now_ns)
    assert len(rig.elicited()) == 20
    for ms in range(0, 1_000, 50):
        for session_id in range(20):
            rig.feed(data(0, 64, session_id=session_id), stall_ns + 100 * MS + ms * MS)
    assert len(rig.elicited()) == 20
    assert rig.state(stall_ns + 200 * MS, session_id=3) is SessionState.PENDING_SETUP
