"""No code of the application runs while a core of the driver changes its state."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

import aeron_async as aa
from aeron_async.testing.world import simulate

if TYPE_CHECKING:
    from types import FrameType

    from aeron_async.testing.world import World

STREAM_ID = 7
UDP = "aeron:udp?endpoint=bob:20121|term-length=64k"
IPC = "aeron:ipc?term-length=64k"


def driver_frames() -> list[str]:
    """Return the frames of the driver that are on the stack."""
    frame: FrameType | None = sys._getframe(1)
    found = []
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.startswith("aeron_async.driver"):
            found.append(f"{name}.{frame.f_code.co_name}")
        frame = frame.f_back
    return found


class Application:
    """Handlers which note what is on the stack, and then use the API as far as it goes."""

    def __init__(self) -> None:
        self.inside: dict[str, list[str]] = {}
        self.publication: aa.Publication | None = None

    def note(self, name: str) -> None:
        self.inside.setdefault(name, []).extend(driver_frames())

    def on_available(self, image: aa.Image) -> None:
        self.note("available")
        assert image.position >= 0

    def on_unavailable(self, image: aa.Image) -> None:
        self.note("unavailable")
        assert image.is_closed

    def on_error(self, error: Any) -> None:
        self.note("error")
        publication = self.publication
        if publication is not None:
            # What would re-enter the core that got the error, if it were still at work.
            assert isinstance(publication.try_offer(error.message.encode()), int | aa.OfferOutcome)
            publication.close()


@pytest.mark.parametrize("channel", [UDP, IPC])
@pytest.mark.parametrize("is_rejected", [True, False])
def test_handlers_run_when_the_driver_is_done(
    channel: str,
    is_rejected: bool,  # noqa: FBT001 - a table of cases
) -> None:
    application = Application()

    async def story(world: World) -> None:
        bob = world.host("bob")
        alice = bob if channel is IPC else world.host("alice")
        async with bob.aeron() as receiving, alice.aeron() as sending:
            there = sending if channel is not IPC else receiving
            subscription = await receiving.add_subscription(
                channel,
                STREAM_ID,
                on_available_image=application.on_available,
                on_unavailable_image=application.on_unavailable,
            )
            publication = await there.add_publication(
                channel, STREAM_ID, on_error=application.on_error
            )
            application.publication = publication
            await publication.offer(b"first")
            message = await anext(subscription)
            if is_rejected:
                await message.image.reject("no")
                while not publication.is_closed:
                    await world.sleep(0.1)
            else:
                await publication.aclose()
            while subscription.is_connected:
                # An image leaves once it was read to its end.
                subscription.poll(lambda *_: None)
                await world.sleep(0.1)
            await world.sleep(0.1)

    simulate(story)
    expected = {"available", "unavailable"} | ({"error"} if is_rejected else set())
    assert application.inside == {name: [] for name in expected}


def test_a_task_that_the_driver_wakes_runs_in_a_later_turn() -> None:
    """An offer, a read and a wait that the driver ends: none continues inside of it."""
    inside: list[str] = []

    async def story(world: World) -> None:
        async with world.host("bob").aeron() as receiving, world.host("alice").aeron() as sending:
            publication = await sending.add_publication(UDP, STREAM_ID)

            async def publish() -> None:
                for number in range(200):
                    await publication.offer(bytes([number]) * 1_000)
                    inside.extend(driver_frames())

            world.host("alice").spawn(publish())
            await world.sleep(0.01)
            subscription = await receiving.add_subscription(UDP, STREAM_ID)
            for _ in range(200):
                await anext(subscription)
                inside.extend(driver_frames())
            await publication.drain()
            inside.extend(driver_frames())

    simulate(story)
    assert inside == []
