"""Credit in both directions, deadlines, and what waits for room."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.client.publication import OfferOutcome
from aeron_async.errors import ClosedError, ProtocolError
from aeron_async.rpc.deadlines import Deadlines
from aeron_async.rpc.flows import CHUNK, INITIAL_ITEMS, KIB, WINDOW_BYTES_LEAST, InFlow, OutFlow
from aeron_async.rpc.outbox import Outbox
from aeron_async.rpc.short_ways import SLACK
from aeron_async.tasks import TaskOwner
from aeron_async.testing import simulate

if TYPE_CHECKING:
    from aeron_async.testing import World


@given(
    lengths=st.lists(st.integers(0, CHUNK), max_size=120),
    window_items=st.integers(16, 64),
    reads=st.lists(st.integers(0, 5), min_size=1, max_size=40),
)
def test_a_sender_that_keeps_to_its_credit_is_never_refused_nor_stuck(
    lengths: list[int], window_items: int, reads: list[int]
) -> None:
    async def main() -> None:
        outflow = OutFlow()
        inflow = InFlow(
            outflow.on_credit,
            window_items=window_items,
            window_bytes=WINDOW_BYTES_LEAST,
            payload_max=CHUNK,
        )
        inflow.open()
        kept = most = 0

        async def send() -> None:
            nonlocal kept, most
            for length in lengths:
                sequence = await outflow.reserve(length)
                inflow.on_item(sequence, bytes(length), is_continued=False)
                kept += length
                most = max(most, kept)
            inflow.on_end()

        sending = asyncio.ensure_future(send())
        received = []
        async for payload in inflow:
            received.append(len(payload))
            kept -= len(payload)
            for _ in range(reads[len(received) % len(reads)]):
                await asyncio.sleep(0)
        await sending
        assert received == lengths
        assert most <= WINDOW_BYTES_LEAST

    asyncio.run(main())


def new_inflow(**changes: int) -> InFlow:
    settings = {"window_items": 16, "window_bytes": CHUNK, "payload_max": 2 * CHUNK, **changes}
    return InFlow(lambda _items, _kib: None, **settings)


def test_what_is_beyond_the_credit_or_out_of_sequence_is_refused() -> None:
    flow = new_inflow()
    with pytest.raises(ProtocolError):
        flow.on_item(1, b"", is_continued=False)
    for sequence in range(INITIAL_ITEMS):
        flow.on_item(sequence, b"", is_continued=False)
    with pytest.raises(ProtocolError):
        flow.on_item(INITIAL_ITEMS, b"", is_continued=False)
    flow = new_inflow()
    with pytest.raises(ProtocolError):
        flow.on_item(0, bytes(CHUNK + 1), is_continued=False)
    flow = new_inflow(payload_max=100)
    flow.on_item(0, bytes(60), is_continued=True)
    with pytest.raises(ProtocolError):
        flow.on_item(1, bytes(60), is_continued=True)
    flow = new_inflow()
    flow.on_end()
    with pytest.raises(ProtocolError):
        flow.on_item(0, b"", is_continued=False)


async def test_closing_a_flow_ends_who_waits_on_either_side() -> None:
    outflow, inflow = OutFlow(), new_inflow()
    for _ in range(INITIAL_ITEMS):
        await outflow.reserve(1)
    sending = asyncio.ensure_future(outflow.reserve(1))
    reading = asyncio.ensure_future(anext(inflow))
    await asyncio.sleep(0)
    outflow.close(ClosedError("over"))
    inflow.close(ClosedError("over"))
    for task in (sending, reading):
        with pytest.raises(ClosedError):
            await task
    inflow.discard(ClosedError("left"))
    with pytest.raises(ClosedError, match="left"):
        await anext(inflow)


@attrs.define(eq=False)
class Due:
    at_ns: int
    is_over: bool = False


@pytest.mark.parametrize("seed", range(3))
def test_each_deadline_is_met_once_and_the_heap_stays_small(seed: int) -> None:
    async def story(world: World) -> None:
        met: list[tuple[Due, int]] = []
        clock: Any = world.host("alice").clock
        deadlines: Deadlines[Due] = Deadlines(
            clock, lambda call: met.append((call, clock.now_ns()))
        )
        calls = []
        for number in range(5_000):
            call = Due(clock.now_ns() + 1_000_000 * (1 + (number * 7919 + seed) % 50))
            deadlines.add(call.at_ns, call)
            calls.append(call)
            if number % 10:
                call.is_over = True
            if number % 100 == 0:
                await world.sleep(0.001)
            assert len(deadlines) <= 2 * 600 + SLACK
        await world.sleep(1)
        wanted = [each for each in calls if not each.is_over]
        assert sorted(map(id, wanted)) == sorted(id(call) for call, _ in met)
        assert all(0 <= at_ns - call.at_ns <= 2_000_000 for call, at_ns in met)
        assert len(deadlines) == 0
        deadlines.close()

    simulate(story, seed=seed)


class Narrow:
    """A publication that has room for some frames only."""

    def __init__(self) -> None:
        self.room = asyncio.Semaphore(0)
        self.sent: list[bytes] = []

    def _offer_fast(self, _frame: bytes, _reserved_value: int) -> int:
        return -1

    def try_offer(self, frame: bytes) -> int | OfferOutcome:
        if self.room.locked():
            return OfferOutcome.BACK_PRESSURED
        self.room._value -= 1
        self.sent.append(frame)
        return len(self.sent)

    async def offer(self, frame: bytes, *, timeout: float) -> int:
        async with asyncio.timeout(timeout):
            await self.room.acquire()
        self.sent.append(frame)
        return len(self.sent)


async def test_frames_leave_in_order_and_only_so_many_bytes_wait() -> None:
    stuck: list[str] = []
    narrow = Narrow()
    async with TaskOwner() as owner:
        outbox = Outbox(owner, stuck.append, limit_bytes=40, patience_s=5)
        assert outbox.post(b"before it is attached")
        outbox.attach(narrow)
        frames = [b"%010d" % number for number in range(20)]
        accepted = [frame for frame in frames if outbox.post(frame)]
        assert accepted == frames[:1]
        putting = asyncio.ensure_future(outbox.put(b"x" * 30))
        moot = Due(0)
        for _ in range(3):
            await asyncio.sleep(0)
        assert not putting.done()
        for _ in range(20):
            narrow.room.release()
            await asyncio.sleep(0)
        assert await putting
        await outbox.drain()
        assert narrow.sent == [b"before it is attached", frames[0], b"x" * 30]
        assert outbox.length == len(outbox) == 0
        assert outbox.close() == []
        assert not await outbox.put(b"late")
        assert not outbox.post(b"late", moot)
    assert stuck == []


async def test_a_stream_goes_on_behind_four_tebibytes() -> None:
    outflow = OutFlow()
    told: list[tuple[int, int]] = []

    def grant(items: int, kib: int) -> None:
        told.append((items, kib))
        assert kib < 2**32
        outflow.on_credit(items, kib)

    inflow = InFlow(grant, window_items=16, window_bytes=WINDOW_BYTES_LEAST, payload_max=CHUNK)
    sent = 2**42 - 3 * CHUNK
    inflow._bytes = inflow._taken_bytes = outflow.sent_bytes = sent
    inflow._allowed_kib = sent // KIB
    outflow._allowed_bytes = sent
    inflow.open()
    for _ in range(50):
        sequence = await asyncio.wait_for(outflow.reserve(CHUNK), 1)
        inflow.on_item(sequence, bytes(CHUNK), is_continued=False)
        assert len(await anext(inflow)) == CHUNK
    allowed = outflow._allowed_bytes
    assert allowed == (2**32 + told[-1][1]) * KIB
    for items, kib in told:
        outflow.on_credit(items, kib)
    assert outflow._allowed_bytes == allowed, "what was said before changes nothing"


def test_a_peer_may_allow_all_that_it_can_say() -> None:
    outflow = OutFlow()
    outflow.on_credit(0, 2**32 - 1)
    outflow.on_credit(0, 2**32 - 2)
    assert outflow._allowed_bytes == (2**32 - 1) * KIB
