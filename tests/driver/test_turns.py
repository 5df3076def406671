"""How much an agent does before the loop has its turn, and that nobody is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aeron_async.clock import SystemClock
from aeron_async.driver.core.image_state import ImageState
from aeron_async.driver.core.publication_state import PublicationState
from aeron_async.driver.receiver import POLLS_PER_CYCLE as IMAGES_PER_CYCLE
from aeron_async.driver.receiver import Receiver
from aeron_async.driver.sender import POLLS_PER_CYCLE, ROUNDS_PER_CYCLE, Sender
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


class Nobody:
    def on_image_drained(self, image: Any) -> None:
        raise AssertionError(image)

    def on_image_done(self, image: Any) -> None:
        raise AssertionError(image)


def counts_of(streams: Iterable[Stream]) -> list[int]:
    return [stream.count for stream in streams]


async def test_a_publication_with_more_to_send_comes_round_a_few_times_in_a_turn() -> None:
    sender = Sender(CONTEXT, SystemClock(), Counts().system, print)
    streams: list[Any] = [Stream(PublicationState.ACTIVE) for _ in range(2)]
    for stream in streams:
        sender.on_activity(stream)
    assert await sender.do_work(1) == 0
    assert counts_of(streams) == [ROUNDS_PER_CYCLE] * 2


async def test_a_thousand_busy_publications_leave_the_loop_its_turn_and_share_theirs() -> None:
    sender = Sender(CONTEXT, SystemClock(), Counts().system, print)
    streams: list[Any] = [Stream(PublicationState.ACTIVE) for _ in range(1_000)]
    for stream in streams:
        sender.on_activity(stream)
    for turn in range(1, 50):
        assert await sender.do_work(1) == 0
        assert sum(counts_of(streams)) == turn * POLLS_PER_CYCLE
        assert max(counts_of(streams)) - min(counts_of(streams)) <= 1


async def test_a_thousand_busy_images_leave_the_loop_its_turn_and_share_theirs() -> None:
    receiver = Receiver(CONTEXT, SystemClock(), Counts().system, Nobody())
    streams: list[Any] = [Stream(ImageState.ACTIVE) for _ in range(1_000)]
    for stream in streams:
        receiver.on_activity(stream)
    for turn in range(1, 10):
        assert await receiver.do_work(1) == 0
        assert sum(counts_of(streams)) == turn * IMAGES_PER_CYCLE
        assert max(counts_of(streams)) - min(counts_of(streams)) <= 1
