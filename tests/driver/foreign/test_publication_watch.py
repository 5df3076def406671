"""A publication of another process, as its driver watches its log."""

from __future__ import annotations

from typing import Any, cast

import attrs

from aeron_async.driver.foreign_streams import PublicationWatch
from tests.driver.fakes import CONTEXT
from tests.driver.foreign.client import FakeWatcher
from tests.driver.rigs import PublicationRig

FRAME_LENGTH = 128
MESSAGE_COUNT = 100
"""More than one burst."""


class Bell:
    """Wakes nobody."""

    def ring(self) -> None:
        pass


class WatchRig(PublicationRig):
    """A publication that sends short bursts of short datagrams, and a watch of its log."""

    def __init__(self) -> None:
        context = attrs.evolve(CONTEXT, network_publication_max_messages_per_send=1)
        super().__init__(context=context, spec={"mtu_length": FRAME_LENGTH})
        self.watcher = FakeWatcher()
        proxy = cast("Any", None)
        watch = PublicationWatch(proxy, cast("Any", self.watcher), cast("Any", Bell()))
        self.publication.window_listeners.append(watch)
        watch.begin(self.publication)

    @property
    def is_watching(self) -> bool:
        return any(word.is_armed for word in self.watcher.words)


def test_the_log_is_not_watched_while_the_sender_sends_on() -> None:
    """The word would fire at once, and the sender polls in its next turn anyway."""
    rig = WatchRig()
    rig.publication.poll(0)
    rig.hear(0, 0, receiver_window=MESSAGE_COUNT * FRAME_LENGTH)
    rig.poll(0)
    for _ in range(MESSAGE_COUNT):
        assert rig.offer(bytes(96)) > 0
    rig.watcher.look()
    assert not rig.is_watching
    assert 0 < len(rig.poll(1)) < MESSAGE_COUNT
    assert (rig.publication.is_sending, rig.is_watching) == (True, False)
    while rig.publication.is_sending:
        rig.poll(1)
    assert rig.publication.sender_position == MESSAGE_COUNT * FRAME_LENGTH
    assert rig.is_watching
