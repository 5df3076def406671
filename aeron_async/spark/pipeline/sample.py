"""Sample market-data feed, made from one seed, published and recorded.

A quote has 48 bytes, described by `SPEC`: sequence number, market time, send time, price, size and
symbol. Some numbers are skipped, some messages are cut short, and some are late, so that the
pipeline has something to find.
"""

from __future__ import annotations

import asyncio
import random
import socket
from struct import Struct
from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.archive import ArchiveContext, LocalArchive, RecordingSignal, SourceLocation
from aeron_async.client.aeron import Aeron
from aeron_async.clock import NS_PER_SECOND, SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = [
    "QUOTE_STREAM",
    "SETTINGS",
    "SPEC",
    "Planted",
    "free_endpoint",
    "quotes",
    "record_sample",
]

QUOTE_STREAM: Final = 1001
SPEC: Final = "struct:<sequence:q,market_ns:q,sent_ns:q,price:d,size:q,symbol:8s"
QUOTE: Final = Struct("<qqqdq8s")
SYMBOLS: Final = ("ALPHA", "BRAVO", "CHARLIE", "DELTA", "ECHO")
LONG_DELAY_NS: Final = 5_000_000
USUAL_DELAY_NS: Final = 40_000
GAP_CHANCE: Final = 0.0005
CUT_CHANCE: Final = 0.0004
LATE_CHANCE: Final = 0.0005
CUT_LENGTH: Final = 20
SETTINGS: Final[dict[str, str | list[str]]] = {
    "decode": [f"{QUOTE_STREAM}:quotes={SPEC}"],
    "timestamp_from": "reserved",
    "event_time": ["quotes=market_ns"],
    "sequence": ["quotes=sequence"],
    "latency": ["quotes=market_ns..sent_ns", "quotes=sent_ns..timestamp_ns"],
}
"""Pipeline settings for the feed, if the recorded channel has `media-rcv-ts-offset=reserved`."""


@attrs.define
class Planted:
    """Faults put into the feed, for comparison with those that a pipeline finds.

    Attributes:
        sequence_gaps: Places where sequence numbers are missing.
        cut_messages: Messages that are too short to be decoded.
    """

    sequence_gaps: int = 0
    cut_messages: int = 0


def quotes(
    count: int, epoch_ns: Callable[[], int], planted: Planted, seed: int = 7
) -> Iterator[bytes]:
    """Yield messages; each gets its times when it is taken.

    Args:
        count: Number of messages.
        epoch_ns: Reads the time, in nanoseconds since 1970.
        planted: Counts the faults.
        seed: Seed of everything random.
    """
    source = random.Random(seed)  # noqa: S311 - prices, and not keys
    prices = dict.fromkeys(SYMBOLS, 100.0)
    sequence = 0
    for place in range(count):
        sequence += 1
        # The first and the last message have no fault, so that each fault lies between good
        # messages.
        is_inside = 0 < place < count - 1
        if is_inside and source.random() < GAP_CHANCE:
            sequence += source.randrange(1, 5)
            planted.sequence_gaps += 1
        symbol = source.choice(SYMBOLS)
        prices[symbol] = round(prices[symbol] * (1 + source.gauss(0, 0.0001)), 4)
        delay_ns = int(source.expovariate(1 / USUAL_DELAY_NS))
        delay_ns += LONG_DELAY_NS if source.random() < LATE_CHANCE else 0
        sent_ns = epoch_ns()
        quote = QUOTE.pack(
            sequence,
            sent_ns - delay_ns,
            sent_ns,
            prices[symbol],
            source.randrange(1, 500),
            symbol.encode(),
        )
        if is_inside and source.random() < CUT_CHANCE:
            planted.cut_messages += 1
            yield quote[:CUT_LENGTH]
        else:
            yield quote


TERM_LENGTH: Final = 1 << 20
SEGMENT_LENGTH: Final = 1 << 22
BURST: Final = 64
"""Messages between two checks of the clock."""


async def record_sample(
    directory: Path, *, count: int, rate: int, endpoint: str | None = None
) -> Planted:
    """Publish quotes at a rate and record them into a directory; return the faults among them.

    Args:
        directory: Directory of the archive; created if missing.
        count: Number of messages.
        rate: Messages per second.
        endpoint: Endpoint of the stream; by default a free port of this host.
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
    """Return an endpoint of this host with a free port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{found.getsockname()[1]}"
