"""A publication of another process, as its driver watches its log."""

from __future__ import annotations

from typing import Any, cast

import attrs
import pytest

from aeron_async.driver.foreign_streams import PublicationWatch
from tests.driver.fakes import CONTEXT
from tests.driver.foreign.client import FakeWatcher, committed_between_looks
from tests.driver.rigs import PublicationRig

FRAME_LENGTH = 128
MESSAGE_COUNT = 200
"""More than one burst."""
BURST_COUNT = 64


class Bell:
    """Counts how often its client is woken."""

    count = 0

    def ring(self) -> None:
        self.count += 1


class WatchRig(PublicationRig):
    """A publication that sends short bursts of short datagrams, and a watch of its log."""

    def __init__(self, **params: Any) -> None:
        context = attrs.evolve(CONTEXT, network_publication_max_messages_per_send=1)
        super().__init__(
            context=context, spec={"mtu_length": FRAME_LENGTH, "term_length": 1 << 20}, **params
        )
        self.watcher = FakeWatcher()
        self.bell = Bell()
        proxy = cast("Any", None)
        watch = PublicationWatch(proxy, cast("Any", self.watcher), cast("Any", self.bell))
        self.publication.window_listeners.append(watch)
        watch.begin(self.publication)

    def admit(self, message_count: int) -> None:
        """Let a receiver take this many messages."""
        self.publication.poll(0)
        self.hear(0, 0, receiver_window=message_count * FRAME_LENGTH)
        self.poll(0)
        self.bell.count = 0

    def fill(self, count: int = MESSAGE_COUNT) -> None:
        for _ in range(count):
            assert self.offer(bytes(96)) > 0

    @property
    def is_watching(self) -> bool:
        return any(word.is_armed for word in self.watcher.words)


def test_the_log_is_not_watched_while_the_sender_sends_on() -> None:
    """The word would fire at once, and the sender polls in its next turn anyway."""
    rig = WatchRig()
    rig.admit(MESSAGE_COUNT)
    rig.fill()
    rig.watcher.look()
    assert not rig.is_watching
    assert 0 < len(rig.poll(1)) < MESSAGE_COUNT
    assert (rig.publication.is_sending, rig.is_watching) == (True, False)
    while rig.publication.is_sending:
        rig.poll(1)
    assert rig.publication.sender_position == MESSAGE_COUNT * FRAME_LENGTH
    assert rig.is_watching


def test_the_last_burst_wakes_the_client_and_those_before_it_do_not() -> None:
    rig = WatchRig()
    rig.admit(MESSAGE_COUNT)
    rig.fill()
    rings = []
    rig.poll(1)
    while rig.publication.is_sending:
        rings.append(rig.bell.count)
        rig.poll(1)
    assert len(rings) > 1
    assert (set(rings), rig.bell.count) == ({0}, 1)


def test_an_eighth_of_the_window_wakes_the_client_while_the_sender_sends_on() -> None:
    rig = WatchRig()
    window_length = rig.params.publication_window_length
    rig.admit(window_length // FRAME_LENGTH)
    while rig.offer(bytes(96)) > 0:
        pass
    rig.poll(1)
    while rig.publication.is_sending:
        rig.poll(1)
    assert rig.publication.sender_position >= window_length
    # Seven eighths, and the last burst.
    assert 7 <= rig.bell.count <= 9


def test_a_receiver_that_takes_a_little_wakes_the_client_each_time() -> None:
    """A publisher with a timeout must see the room that there is."""
    rig = WatchRig()
    rig.admit(10)
    rig.fill()
    for taken in range(10, MESSAGE_COUNT, 10):
        rig.poll(1)
        while rig.publication.is_sending:
            rig.poll(1)
        assert rig.publication.sender_position == taken * FRAME_LENGTH
        assert rig.bell.count == taken // 10
        rig.hear(taken * FRAME_LENGTH, 1, receiver_window=10 * FRAME_LENGTH)


def test_a_sender_that_finds_no_more_wakes_the_client_whom_it_has_passed_over() -> None:
    """It filled its burst with the last of the data, and says so in its next turn."""
    rig = WatchRig()
    rig.admit(MESSAGE_COUNT)
    rig.fill(BURST_COUNT)
    rig.poll(1)
    assert rig.publication.sender_position == BURST_COUNT * FRAME_LENGTH
    assert (rig.publication.is_sending, rig.bell.count) == (True, 0)
    assert not rig.poll(1)
    assert (rig.publication.is_sending, rig.bell.count) == (False, 1)


def test_a_short_way_to_send_wakes_the_client_as_well() -> None:
    rig = WatchRig()
    rig.admit(MESSAGE_COUNT)
    rig.poll(1)
    rig.publication.is_sending = True
    assert rig.offer(bytes(96)) > 0
    rung = rig.bell.count
    assert rig.publication.send_data_fast(1)
    assert (rig.publication.is_sending, rig.bell.count) == (False, rung + 1)


def test_a_change_of_the_connection_wakes_the_client_while_the_sender_sends_on() -> None:
    rig = WatchRig()
    rig.admit(MESSAGE_COUNT)
    rig.fill()
    rig.poll(1)
    assert (rig.publication.is_sending, rig.bell.count) == (True, 0)
    rig.publication._disconnect()
    rig.publication._on_window_changed()
    assert (rig.publication.is_sending, rig.bell.count) == (True, 1)


def test_a_limit_that_falls_wakes_the_client_while_the_sender_sends_on() -> None:
    rig = WatchRig()
    rig.admit(MESSAGE_COUNT)
    rig.fill()
    rig.poll(1)
    rig.publication._window.retract(rig.publication.sender_position)
    rig.publication._on_window_changed()
    assert (rig.publication.is_sending, rig.bell.count) == (True, 1)


@pytest.mark.parametrize("has_receiver", [False, True])
def test_a_frame_that_is_committed_between_two_looks_is_seen(*, has_receiver: bool) -> None:
    """Without a receiver a spy replaces it, and the sender's limit is always its position."""
    rig = WatchRig(spies_simulate_connection=True)
    rig.spy()
    rig.poll(0)
    if has_receiver:
        rig.admit(MESSAGE_COUNT)
    assert rig.is_watching
    with committed_between_looks():
        assert rig.offer(bytes(96)) > 0
        rig.watcher.look()
        rig.watcher.look()
    assert rig.publication.wake_flag.is_set
