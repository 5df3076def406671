"""Publishes the sample feed over Aeron, and records it: each message stamped where it arrives."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Final

from aeron_async.archive import ArchiveContext, LocalArchive, RecordingSignal, SourceLocation
from aeron_async.client.aeron import Aeron
from aeron_async.clock import NS_PER_SECOND, SystemClock
from aeron_async.spark.pipeline.sample_feed import QUOTE_STREAM, Planted, quotes

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["record_sample"]

TERM_LENGTH: Final = 1 << 20
SEGMENT_LENGTH: Final = 1 << 22
BURST: Final = 64
"""Messages between two looks at the clock."""


async def record_sample(
    directory: Path, *, count: int, rate: int, endpoint: str | None = None
) -> Planted:
    """Publish so many quotes at a rate, recorded into a directory; return what is wrong with them.

    Args:
        directory: Of the archive, made if there is none.
        count: Of messages.
        rate: Messages in a second.
        endpoint: Where the stream goes; at a free port of this host if not given.
    """
    endpoint = endpoint or free_endpoint()
    context = ArchiveContext(directory=str(directory), segment_length=SEGMENT_LENGTH)
    recorded = f"aeron:udp?endpoint={endpoint}|media-rcv-ts-offset=reserved"
    published = f"aeron:udp?endpoint={endpoint}|term-length={TERM_LENGTH}"
    clock, planted = SystemClock(), Planted()
    async with Aeron.connect() as aeron, await LocalArchive.open(aeron, context) as archive:
        signals = archive.signals()
        await archive.start_recording(
            recorded, QUOTE_STREAM, source_location=SourceLocation.REMOTE, auto_stop=True
        )
        async with await aeron.add_exclusive_publication(published, QUOTE_STREAM) as publication:
            began_ns = clock.now_ns()
            for place, quote in enumerate(quotes(count, clock.epoch_ns, planted)):
                await publication.offer(quote)
                if place % BURST == 0:
                    due_ns = began_ns + place * NS_PER_SECOND // rate
                    await asyncio.sleep(max(due_ns - clock.now_ns(), 0) / NS_PER_SECOND)
            await publication.drain()
        async for event in signals:
            if event.signal is RecordingSignal.STOP:
                return planted
    return planted


def free_endpoint() -> str:
    """Return an address of this host at which nothing receives."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{found.getsockname()[1]}"
