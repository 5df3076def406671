"""A publication of another process, as its driver watches it and wakes its publisher."""

from __future__ import annotations

from typing import Any, cast

import attrs
import pytest

from aeron_async.driver.foreign_streams import PublicationWatch
from tests.driver.fakes import CONTEXT
from tests.driver.foreign.client import FakeWatcher
from tests.driver.rigs import PublicationRig

PAYLOAD = bytes(992)
FRAME_LENGTH = 1024
MESSAGE_COUNT = 16


class Bell:
    """Counts how often the client would have been woken."""

    rings = 0

    def ring(self) -> None:
        self.rings += 1

    def take(self) -> int:
        """Return how often it has rung since the last call."""
        rings, self.rings = self.rings, 0
        return rings


class WatchRig(PublicationRig):
    """A publication that sends short bursts, with a watch; its window is 32 KiB."""

    def __init__(self, **spec: Any) -> None:
        context = attrs.evolve(CONTEXT, network_publication_max_messages_per_send=1)
        super().__init__(context=context, spec=spec, publication_window_length=32 * 1024)
        self.bell, self.watcher = Bell(), FakeWatcher()
        proxy = cast("Any", None)
        watch = PublicationWatch(proxy, cast("Any", self.watcher), cast("Any", self.bell))
        self.publication.window_listeners.append(watch)
        watch.begin(self.publication)

    def begin(self, *, window: int, count: int = MESSAGE_COUNT, payload: bytes = PAYLOAD) -> None:
        """Let a receiver join whose window is so long, and offer messages."""
        self.publication.poll(0)
        self.hear(0, 0, receiver_window=window)
        self.poll(0)
        self.bell.take()
        for _ in range(count):
            assert self.offer(payload) > 0

    @property
    def is_watching(self) -> bool:
        return any(word.is_armed for word in self.watcher.words)


@pytest.fixture
def rig() -> WatchRig:
    return WatchRig()


def test_a_publisher_is_woken_for_an_eighth_of_the_window_while_there_is_more_to_send(
    rig: WatchRig,
) -> None:
    rig.begin(window=0)
    limit = rig.publication.publisher_limit
    assert limit == 32 * 1024
    rings = []
    for sent in range(1, MESSAGE_COUNT + 1):
        # The receiver has room for one more datagram each time.
        rig.hear(0, sent, receiver_window=sent * FRAME_LENGTH)
        assert len(rig.poll(sent)) == 1
        assert rig.publication.publisher_limit == limit + sent * FRAME_LENGTH
        rings.append(rig.bell.take())
    assert rings == [0, 0, 0, 1] * 4


def test_a_publisher_is_woken_when_all_is_sent(rig: WatchRig) -> None:
    """It may wait for that, and nothing else would say it."""
    rig.begin(window=(MESSAGE_COUNT - 1) * FRAME_LENGTH)
    while rig.poll(1):
        pass
    rig.bell.take()
    rig.hear(0, 2, receiver_window=MESSAGE_COUNT * FRAME_LENGTH)
    assert (len(rig.poll(2)), rig.bell.take()) == (1, 1)


def test_a_publisher_is_woken_when_the_connection_changes(rig: WatchRig) -> None:
    rig.publication.poll(0)
    assert rig.bell.take() == 0
    rig.connect(1)
    assert (rig.publication.is_connected, rig.bell.take()) == (True, 1)
    assert rig.offer(PAYLOAD) > 0
    rig.hear(0, 2, receiver_window=0)
    # The receiver is silent for too long, and there is data that nobody has taken.
    rig.poll(CONTEXT.image_liveness_timeout_ns + 10)
    assert (rig.publication.is_connected, rig.bell.take()) == (False, 1)


def test_the_log_is_not_watched_while_the_sender_sends_on() -> None:
    """The word would fire at once, and the sender polls in its next turn anyway."""
    rig = WatchRig(mtu_length=128)
    count, payload = 100, bytes(96)
    rig.begin(window=count * 128, count=count, payload=payload)
    rig.watcher.look()
    assert not rig.is_watching
    assert 0 < len(rig.poll(1)) < count
    assert (rig.publication.is_sending, rig.is_watching) == (True, False)
    while rig.publication.is_sending:
        rig.poll(1)
    assert rig.publication.sender_position == count * 128
    assert rig.is_watching
