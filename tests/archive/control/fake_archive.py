"""An archive that remembers what it was asked, and answers what a test wants."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import attrs

from aeron_async.archive.api import RecordingSignal, RecordingSignalEvent
from aeron_async.archive.disk.descriptor import RecordingDescriptor
from aeron_async.errors import UnknownRecordingError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from aeron_async.archive.api import RecordingSubscription

DESCRIPTOR = RecordingDescriptor(
    recording_id=0,
    start_position=0,
    stop_position=131_104,
    start_timestamp_ms=1,
    stop_timestamp_ms=2,
    initial_term_id=7,
    term_length=65_536,
    segment_length=65_536,
    mtu_length=1_408,
    session_id=5,
    stream_id=1001,
    stripped_channel="aeron:udp?endpoint=localhost:24000",
    original_channel="aeron:udp?endpoint=localhost:24000|term-length=64k",
    source_identity="127.0.0.1:1",
)


class FakeArchive:
    """Has recordings without content.

    Attributes:
        asked: Names and arguments of what was asked.
        answers: What calls return, or raise, by name; 0 where nothing stands.
        held: What a listing waits for before it begins.
    """

    archive_id = 77

    def __init__(self, recording_count: int = 3) -> None:
        self.all = {
            number: attrs.evolve(DESCRIPTOR, recording_id=number, stream_id=1001 + number % 2)
            for number in range(recording_count)
        }
        self.asked: list[tuple[Any, ...]] = []
        self.answers: dict[str, Any] = {}
        self.held = asyncio.Event()
        self.held.set()
        self.events: asyncio.Queue[RecordingSignalEvent | Exception | None] = asyncio.Queue()
        self.subscriptions: list[RecordingSubscription] = []

    def tell(self, signal: RecordingSignal, *, subscription_id: int = -1) -> None:
        self.events.put_nowait(
            RecordingSignalEvent(
                recording_id=0, subscription_id=subscription_id, position=64, signal=signal
            )
        )

    async def signals(self) -> AsyncIterator[RecordingSignalEvent]:
        while (event := await self.events.get()) is not None:
            if isinstance(event, Exception):
                raise event
            yield event

    async def recording_subscriptions(self) -> Sequence[RecordingSubscription]:
        return self.subscriptions

    async def recordings(self, from_recording_id: int = 0) -> AsyncIterator[RecordingDescriptor]:
        await self.held.wait()
        for number, descriptor in self.all.items():
            if number >= from_recording_id:
                yield descriptor

    async def describe(self, recording_id: int) -> RecordingDescriptor:
        await self.held.wait()
        if recording_id not in self.all:
            message = "nobody knows it"
            raise UnknownRecordingError(message)
        return self.all[recording_id]

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any, **named: Any) -> Any:
            self.asked.append((name, *arguments, *named.items()))
            answer = self.answers.get(name, 0)
            if callable(answer):
                return await answer()
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call
