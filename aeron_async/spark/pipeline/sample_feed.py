"""A small market-data feed, made up from one seed: what `pipeline demo` publishes and records.

Quotes come as 48 bytes, `SPEC` of them: a number that counts them, when the market said so, when
it was sent, price, size and symbol. Some numbers are left out, some messages are cut short, and now
and then one is late: so that there is something to find.
"""

from __future__ import annotations

import random
from struct import Struct
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["QUOTE_STREAM", "SETTINGS", "SPEC", "Planted", "quotes"]

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
"""What a pipeline is told of it, where the recorded channel has `media-rcv-ts-offset=reserved`."""


@attrs.define
class Planted:
    """What was put into the feed, to be found again.

    Attributes:
        sequence_gaps: Numbers left out, counted by the places.
        cut_messages: Messages too short to be decoded.
    """

    sequence_gaps: int = 0
    cut_messages: int = 0


def quotes(
    count: int, epoch_ns: Callable[[], int], planted: Planted, seed: int = 7
) -> Iterator[bytes]:
    """Yield so many messages, each stamped when it is asked for.

    Args:
        count: Of messages.
        epoch_ns: Reads the time, in nanoseconds since 1970.
        planted: Counts what is wrong with them.
        seed: Of all that is made up.
    """
    source = random.Random(seed)  # noqa: S311 - prices, and not keys
    prices = dict.fromkeys(SYMBOLS, 100.0)
    sequence = 0
    for place in range(count):
        sequence += 1
        # The first and the last stay whole, so that each fault has good neighbours.
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
