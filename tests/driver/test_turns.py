"""How much an agent does before the loop has its turn, and that nobody is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aeron_async.clock import NS_PER_MS, SystemClock
from aeron_async.driver.core.image_state import ImageState
from aeron_async.driver.core.publication import PublicationState
from aeron_async.driver.receiver import POLLS_PER_CYCLE as IMAGES_PER_CYCLE
from aeron_async.driver.receiver import Receiver
from aeron_async.driver.sender import CYCLE_NS, POLLS_PER_CYCLE, ROUNDS_PER_CYCLE, Sender
from tests.driver.agents import driver_clock
from tests.driver.fakes import CONTEXT, Counts

if TYPE_CHECKING:
    from collections.abc import Iterable


class Stream:
    """A publication or an image that always has more to do."""

    def __init__(self, state: PublicationState | ImageState) -> None:
        self.state = state
        self.count = 0

    def poll(self, now_ns: int) -> int:
        self.count += 1
        return now_ns


class Clock(SystemClock):
    """Stands still, unless somebody takes time."""

    def __init__(self) -> None:
        self.time_ns = 1

    def now_ns(self) -> int:
        return self.time_ns


class SlowStream(Stream):
    """A publication whose every burst takes a while."""

    def __init__(self, clock: Clock, burst_ns: int, polled: list[SlowStream]) -> None:
        super().__init__(PublicationState.ACTIVE)
        self._clock = clock
        self._burst_ns = burst_ns
        self._polled = polled

    def poll(self, now_ns: int) -> int:
        self._clock.time_ns += self._burst_ns
        self._polled.append(self)
        return super().poll(now_ns)


class Nobody:
    def on_image_drained(self, image: Any) -> None:
        raise AssertionError(image)

    def on_image_resumed(self, image: Any) -> None:
        raise AssertionError(image)

    def on_image_done(self, image: Any) -> None:
        raise AssertionError(image)


def counts_of(streams: Iterable[Stream]) -> list[int]:
    return [stream.count for stream in streams]


async def test_a_publication_with_more_to_send_comes_round_a_few_times_in_a_turn() -> None:
    sender = Sender(CONTEXT, driver_clock(Clock()), Counts().system, print)
    streams: list[Any] = [Stream(PublicationState.ACTIVE) for _ in range(2)]
    for stream in streams:
        sender.on_activity(stream)
    assert await sender.do_work(1) == 0
    assert counts_of(streams) == [ROUNDS_PER_CYCLE] * 2


async def test_a_thousand_busy_publications_leave_the_loop_its_turn_and_share_theirs() -> None:
    sender = Sender(CONTEXT, driver_clock(Clock()), Counts().system, print)
    streams: list[Any] = [Stream(PublicationState.ACTIVE) for _ in range(1_000)]
    for stream in streams:
        sender.on_activity(stream)
    for turn in range(1, 50):
        assert await sender.do_work(1) == 0
        assert sum(counts_of(streams)) == turn * POLLS_PER_CYCLE
        assert max(counts_of(streams)) - min(counts_of(streams)) <= 1


async def slow_turns(burst_ns: int, *, stream_count: int, turn_count: int) -> list[list[int]]:
    """Return which of so many publications were polled in each turn, in their order."""
    clock = Clock()
    polled: list[SlowStream] = []
    sender = Sender(CONTEXT, driver_clock(clock), Counts().system, print)
    streams: list[Any] = [SlowStream(clock, burst_ns, polled) for _ in range(stream_count)]
    for stream in streams:
        sender.on_activity(stream)
    turns = []
    for _ in range(turn_count):
        assert await sender.do_work(clock.now_ns()) == 0
        turns.append([streams.index(stream) for stream in polled])
        polled.clear()
    return turns


async def test_long_bursts_leave_the_loop_its_turn_and_those_left_over_come_first() -> None:
    turns = await slow_turns(CYCLE_NS // 4, stream_count=10, turn_count=5)
    assert turns == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1], [2, 3, 4, 5], [6, 7, 8, 9]]


async def test_long_bursts_of_more_publications_than_a_turn_has_polls_keep_their_order() -> None:
    stream_count = POLLS_PER_CYCLE + 10
    turns = await slow_turns(CYCLE_NS // 8, stream_count=stream_count, turn_count=100)
    assert {len(turn) for turn in turns} == {8}
    order = [index for turn in turns for index in turn]
    assert order == [number % stream_count for number in range(len(order))]


async def test_a_burst_longer_than_a_turn_may_be_is_the_only_one_in_it() -> None:
    assert await slow_turns(5 * NS_PER_MS, stream_count=3, turn_count=4) == [[0], [1], [2], [0]]


async def test_a_thousand_busy_images_leave_the_loop_its_turn_and_share_theirs() -> None:
    receiver = Receiver(CONTEXT, driver_clock(SystemClock()), Counts().system, Nobody())
    streams: list[Any] = [Stream(ImageState.ACTIVE) for _ in range(1_000)]
    for stream in streams:
        receiver.on_activity(stream)
    for turn in range(1, 10):
        assert await receiver.do_work(1) == 0
        assert sum(counts_of(streams)) == turn * IMAGES_PER_CYCLE
        assert max(counts_of(streams)) - min(counts_of(streams)) <= 1
