"""Datagrams that come at once, from one source: each is what it would be alone."""

from __future__ import annotations

from aeron_async.driver.core.system_counters import SystemCounterId
from tests.driver.fakes import SOURCE, data, heartbeat, setup
from tests.driver.rigs import DispatcherRig
from tests.logbuffer.logs import STREAM_ID


def test_datagrams_that_come_at_once_are_taken_in_their_order_each_for_what_it_is() -> None:
    rig = DispatcherRig()
    rig.dispatcher.add_subscription(STREAM_ID, None)
    rig.feed(setup().encode())
    run = data(0, 64) + data(64, 64) + b"?" * 64 + heartbeat(128)
    rig.dispatcher.on_datagrams(memoryview(run), 64, SOURCE, 7, rig.outbox)
    image = rig.images[0].image
    assert rig.images[0].counters.receiver_hwm.get() == 128
    assert rig.activity == [image] * 2
    assert [len(datagram) for datagram, _, _ in rig.invalid] == [64]
    assert rig.counts[SystemCounterId.HEARTBEATS_RECEIVED] == 1
