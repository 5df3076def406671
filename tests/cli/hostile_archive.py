"""An archive in a process of its own whose every word is meant to do harm; see `test_hostile`."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any, Final

import attrs

import aeron_async as aa
from aeron_async.archive.api import RecordingSubscription
from aeron_async.archive.control import handlers, sbe
from aeron_async.archive.control.server import ControlServer
from aeron_async.archive.control.settings import ControlSettings
from aeron_async.errors import ArchiveError
from tests.archive.control.fake_archive import FakeArchive

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.archive.disk.descriptor import RecordingDescriptor

__all__ = ["BYTES", "MARKUP", "PAYLOAD", "STREAM_ID"]

MARKUP: Final = "[/x][red]"
BYTES: Final = b"\x1b]0;owned\x07\x1b[2J\xff\xfe\xc0\x80\x9b31m\xc2\x9b\xe2\x80\xae\r\n\x7f"
PAYLOAD: Final = MARKUP.encode() + BYTES
STREAM_ID: Final = 7

MARK: Final = "harm".ljust(len(BYTES), "!")
"""Takes the place of these bytes until a message is encoded: an honest archive lets none pass."""
WORDS: Final = f"{MARKUP}{MARK}"


class HostileArchive(FakeArchive):
    """Has recordings, refuses whatever else it is asked, and says so in its own words."""

    def __init__(self) -> None:
        super().__init__()
        for number, channel in enumerate((WORDS, f"aeron:udp?alias={WORDS}", WORDS * 60)):
            each: RecordingDescriptor = self.all[number]
            self.all[number] = attrs.evolve(
                each, original_channel=channel, stripped_channel=WORDS, source_identity=WORDS
            )
        self.subscriptions = [
            RecordingSubscription(subscription_id=1, stream_id=1, channel=WORDS),
        ]

    async def describe(self, recording_id: int) -> RecordingDescriptor:
        if recording_id not in self.all:
            raise ArchiveError(WORDS)
        return self.all[recording_id]

    async def max_recorded_position(self, recording_id: int) -> int:
        return self.all[recording_id].stop_position

    async def start_position(self, recording_id: int) -> int:
        return self.all[recording_id].start_position

    async def stop_position(self, recording_id: int) -> int:
        return self.all[recording_id].stop_position

    def __getattr__(self, name: str) -> Any:
        async def call(*_arguments: Any, **_named: Any) -> Any:
            raise ArchiveError(WORDS)

        return call


def say_bytes() -> None:
    """Let every message have the bytes that no text of ours would let through."""

    def harmful(encode: Callable[..., bytes]) -> Any:
        return lambda *args, **named: encode(*args, **named).replace(MARK.encode(), BYTES)

    sbe.SbeMessageCodec.encode = harmful(sbe.SbeMessageCodec.encode)  # type: ignore[method-assign]
    handlers.encode_descriptor = harmful(handlers.encode_descriptor)


async def main(control: str, published: str) -> None:
    say_bytes()
    archive: Any = HostileArchive()
    async with (
        aa.Aeron.connect() as aeron,
        ControlServer(archive, aeron, ControlSettings(control_channel=control)),
        aeron.add_exclusive_publication(published, STREAM_ID) as publication,
    ):
        sys.stdout.write("serving\n")
        sys.stdout.flush()
        while True:
            await publication.offer(PAYLOAD)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
