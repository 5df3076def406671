from __future__ import annotations

import asyncio
from itertools import pairwise

from aeron_async.driver.media.network import Network, SystemNetwork
from aeron_async.driver.media.sockets import SocketSpec
from tests.io.recorder import LOOPBACK, Recorder, opened

BURST_LIMIT = 8
FLOOD_COUNT = 400
SPEC = SocketSpec(local=LOOPBACK, socket_rcvbuf_length=1024 * 1024)


class Turns:
    """A chain of callbacks: at each turn of the loop it notes how much has arrived."""

    def __init__(self, recorder: Recorder) -> None:
        self.counts: list[int] = []
        self._recorder = recorder
        self._turn()

    def _turn(self) -> None:
        self.counts.append(len(self._recorder.received))
        if self.counts[-1] < FLOOD_COUNT:
            asyncio.get_running_loop().call_soon(self._turn)


async def test_a_burst_takes_no_more_than_its_limit_between_two_turns() -> None:
    network = SystemNetwork("socket", BURST_LIMIT)
    async with opened(network, SPEC) as receiver, opened(network) as sender:
        for number in range(FLOOD_COUNT):
            sender.transport.sendto(b"%d" % number, receiver.address)
        turns = Turns(receiver)
        await receiver.until(lambda: len(receiver.received) == FLOOD_COUNT)
        arrivals = [after - before for before, after in pairwise(turns.counts)]
        assert max(arrivals) == BURST_LIMIT
        assert len(turns.counts) > FLOOD_COUNT // BURST_LIMIT


async def test_a_flood_starves_nobody(network: Network) -> None:
    async with opened(network, SPEC) as receiver, opened(network) as sender:
        for number in range(FLOOD_COUNT):
            sender.transport.sendto(b"%d" % number, receiver.address)
        turns = Turns(receiver)
        await receiver.until(lambda: len(receiver.received) == FLOOD_COUNT)
        # uvloop's own transport takes up to 32 datagrams for each turn.
        assert len(turns.counts) > FLOOD_COUNT // 64


class KeepsViews(Recorder):
    def __init__(self) -> None:
        super().__init__()
        self.views: list[bytes | memoryview] = []

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        super().datagram_received(data, addr)
        self.views.append(data)


async def test_a_view_holds_its_datagram_only_during_the_call() -> None:
    network = SystemNetwork("socket")
    async with opened(network, SPEC, KeepsViews()) as receiver, opened(network) as sender:
        assert isinstance(receiver, KeepsViews)
        sender.transport.sendto(b"early", receiver.address)
        await receiver.until(lambda: receiver.views)
        sender.transport.sendto(b"later", receiver.address)
        await receiver.until(lambda: len(receiver.views) == 2)
        assert receiver.received == [b"early", b"later"]
        assert [bytes(view) for view in receiver.views] == [b"later", b"later"]
