"""An image whose last subscriber has left, while its source is still heard."""

from __future__ import annotations

import pytest

from tests.driver.fakes import SECOND, data, heartbeat
from tests.driver.rigs import ImageRig


@pytest.fixture
def rig() -> ImageRig:
    rig = ImageRig()
    rig.image.poll(0)
    rig.outbox.take()
    return rig


def leave(rig: ImageRig) -> None:
    """Let every subscriber leave the image."""
    subscribers = rig.image.subscribers
    for subscriber in list(subscribers):
        subscribers.remove(subscriber.subscription_id)


def test_a_gap_that_nobody_reads_up_to_wakes_nobody(rig: ImageRig) -> None:
    rig.feed(data(128, 64), 0)
    rig.image.poll(0)
    leave(rig)
    rig.feed(heartbeat(192), 2 * SECOND)
    assert rig.image.poll(2 * SECOND) > 2 * SECOND
    assert rig.image.poll(3 * SECOND) > 3 * SECOND


def test_a_doubt_that_nobody_is_left_to_be_told_of_wakes_nobody(rig: ImageRig) -> None:
    rig.feed(data(0, 64), 0)
    rig.image.poll(0)
    rig.feed(data(0, 96), 0)
    rig.image.poll(1)
    leave(rig)
    rig.feed(heartbeat(192), 2 * SECOND)
    assert rig.image.poll(2 * SECOND) > 2 * SECOND
