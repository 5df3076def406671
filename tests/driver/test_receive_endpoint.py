"""What a receiving socket hands on: datagrams that came at once have one time and one count."""

from __future__ import annotations

from array import array

from aeron_async.clock import SystemClock
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.driver.core.timestamps import ReceiveTimestamps
from aeron_async.driver.core.udp_channel import UdpChannel
from aeron_async.driver.media.endpoint import ReceiveChannelEndpoint, ReceiveDestinationTransport
from aeron_async.protocol.channel_uri import ChannelUri
from tests.driver.fakes import SOURCE, data, heartbeat, setup
from tests.driver.rigs import DispatcherRig
from tests.logbuffer.logs import STREAM_ID

EPOCH_NS = 0x1122_3344_5566_7788


class Rig(DispatcherRig):
    """The socket of a subscription, in front of a dispatcher."""

    def __init__(self, channel: str = "aeron:udp?endpoint=127.0.0.1:40456") -> None:
        super().__init__()
        self.dispatcher.add_subscription(STREAM_ID, None)
        self.lengths: list[int] = []
        uri = ChannelUri.parse(channel)
        udp_channel = UdpChannel.for_subscription(uri, endpoint=("127.0.0.1", 40_456))
        self.endpoint = ReceiveChannelEndpoint(
            udp_channel,
            self.counts.system,
            receiver_id=1,
            group_tag=None,
            dispatcher=self.dispatcher,
            on_received=self.lengths.append,
            timestamps=ReceiveTimestamps.of(uri, lambda: EPOCH_NS),
        )
        self.socket = ReceiveDestinationTransport(self.endpoint, udp_channel, SystemClock())
        self.socket.datagram_received(setup().encode(), SOURCE)
        self.lengths.clear()


def test_a_batch_is_counted_once_and_its_datagrams_are_placed() -> None:
    rig = Rig()
    before_ns = rig.socket.last_activity_ns
    batch = bytearray(data(0, 64) + data(64, 64) + heartbeat(128))
    rig.socket.datagrams_received(memoryview(batch), 64, SOURCE)
    assert rig.lengths == [160]
    assert rig.socket.last_activity_ns >= before_ns
    assert rig.images[0].counters.receiver_hwm.get() == 128
    assert rig.counts[SystemCounterId.HEARTBEATS_RECEIVED] == 1


def test_every_datagram_of_a_batch_bears_its_time_of_arrival() -> None:
    rig = Rig("aeron:udp?endpoint=127.0.0.1:40456|channel-rcv-ts-offset=0")
    batch = bytearray(data(0, 64) + data(64, 64))
    rig.socket.datagrams_received(memoryview(batch), 64, SOURCE)
    for start in (32, 96):
        assert int.from_bytes(batch[start : start + 8], "little") == EPOCH_NS


def test_every_datagram_of_several_batches_bears_its_time_of_arrival() -> None:
    rig = Rig("aeron:udp?endpoint=127.0.0.1:40456|channel-rcv-ts-offset=0")
    batch = bytearray(b"".join(data(at, 64) for at in range(0, 320, 64)))
    # A batch of two, one alone, one without a byte, and a batch of two.
    segments = array("i", (128, 64, 192, 64, 192, 0, 320, 64))
    rig.socket.batches_received(memoryview(batch), segments, SOURCE)
    assert rig.lengths == [320]
    assert rig.counts[SystemCounterId.INVALID_PACKETS] == 1
    for start in range(32, 320, 64):
        assert int.from_bytes(batch[start : start + 8], "little") == EPOCH_NS


def test_what_the_system_drops_is_counted() -> None:
    rig = Rig()
    rig.socket.datagrams_dropped(3)
    rig.socket.datagrams_dropped(4)
    assert rig.counts[DriverCounterId.SOCKET_DROPS] == 7
