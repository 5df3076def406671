"""Simulated traders: two make the market, the others take from it, by choices from one seed.

They read the newest quote of each symbol only: what they did not read in time is of no use to them.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Final

import attrs

from aeron_async import rpc
from aeron_async.errors import DecodeError, RpcError
from examples.exchange.matching import SYMBOLS
from examples.exchange.messages import (
    ACK,
    CancelOrder,
    NewOrder,
    Quote,
    decode_quote,
    encode_command,
)
from examples.exchange.wiring import QUOTES_STREAM, SERVICE, Wiring, as_program

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import aeron_async as aa
    from examples.exchange.messages import Side

__all__ = ["Prices", "Trader"]

SEED: Final = 7
FIRST_PRICES: Final = {"AERN": 10_000, "BOLT": 4_250, "CRUX": 25_075, "DYNE": 990}
QUOTED_ORDERS: Final = 10
"""Orders that a maker has on each side of each symbol; the oldest are cancelled."""
SPREAD: Final = 0.0004
"""Half the distance of a maker's best prices, as a share of the price."""
ORDER_PATIENCE_S: Final = 15.0


class Prices:
    """What each symbol is believed to be worth: a walk at random around what was traded."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._values = {symbol: float(price) for symbol, price in FIRST_PRICES.items()}
        self.quotes: dict[str, Quote] = {}

    async def follow(self, quotes: aa.Subscription) -> None:
        """Keep the newest quote of each symbol."""
        async with quotes.latest(slice(8, 16)) as latest:
            async for message in latest:
                # Anyone in the group may send anything.
                with suppress(DecodeError):
                    quote = decode_quote(message.data)
                    if quote.symbol in self._values:
                        self.quotes[quote.symbol] = quote

    def next(self, symbol: str) -> float:
        """Return what a symbol is worth now, and let it walk on."""
        value = self._values[symbol] * (1 + self._chance.gauss(0, 0.0004))
        # Back to where it began, slowly: a screen should be worth to look at for hours.
        value += 0.002 * (FIRST_PRICES[symbol] - value)
        self._values[symbol] = value
        return value


@attrs.define
class Trader:
    """One account that sends orders at random times.

    Args:
        account: Its account.
        chance: Where its choices come from.
        submit: Brings an encoded command to the engine.
        next_id: Returns numbers for its commands, never one twice.
        prices: What it believes.
    """

    account: str
    chance: random.Random
    submit: Callable[[bytes], Awaitable[bytes]]
    next_id: Callable[[], int]
    prices: Prices
    resting: dict[tuple[str, Side], list[int]] = attrs.field(factory=dict)

    async def run(self, step: Callable[[], Awaitable[None]], pause_s: float) -> None:
        """Do one step after the other, about as often as told, whatever becomes of them."""
        while True:
            await asyncio.sleep(self.chance.expovariate(1 / pause_s))
            try:
                await step()
            except RpcError:
                # The engine was lost; it comes back with all that it has acknowledged.
                await asyncio.sleep(pause_s)

    async def make(self) -> None:
        """Put an order on each side of what a symbol is worth, and cancel the oldest ones."""
        symbol = self.chance.choice(SYMBOLS)
        value = self.prices.next(symbol)
        below, above = (value * SPREAD * (1 + self.chance.expovariate(0.4)) for _ in range(2))
        await self._order(symbol, "BUY", max(1, round(value - below)))
        await self._order(symbol, "SELL", round(value + above))

    async def _order(self, symbol: str, side: Side, price: int) -> None:
        quantity = self.chance.choice((10, 20, 25, 50, 100, 200))
        order = NewOrder(self.account, self.next_id(), 0, symbol, side, "LIMIT", price, quantity)
        ack = ACK.decode(await self.submit(encode_command(order)))
        mine = self.resting.setdefault((symbol, side), [])
        if ack.status == "RESTING":
            mine.append(ack.order_id)
        while len(mine) > QUOTED_ORDERS:
            cancel = CancelOrder(self.account, self.next_id(), 0, mine.pop(0))
            await self.submit(encode_command(cancel))

    async def take(self) -> None:
        """Buy or sell what the best price offers, or a part of it."""
        quote = self.prices.quotes.get(self.chance.choice(SYMBOLS))
        if quote is None:
            return
        side: Side = self.chance.choice(("BUY", "SELL"))
        offered = quote.ask_quantity if side == "BUY" else quote.bid_quantity
        quantity = max(1, round(offered * self.chance.uniform(0.1, 1.1)))
        order = NewOrder(self.account, self.next_id(), 0, quote.symbol, side, "MARKET", 0, quantity)
        await self.submit(encode_command(order))


async def main(wiring: Wiring) -> None:
    """Trade until told to stop."""
    async with (
        wiring.client("traders") as aeron,
        aeron.add_subscription(wiring.market_reader, QUOTES_STREAM) as quotes,
        rpc.Client(
            aeron,
            wiring.engine,
            SERVICE,
            name="traders",
            timeout=ORDER_PATIENCE_S,
            connect_timeout=ORDER_PATIENCE_S,
            ping_interval=0.25,
        ) as engine,
        asyncio.TaskGroup() as group,
    ):

        async def submit(request: bytes) -> bytes:
            return await engine.call("submit", request, idempotent=True)

        # Behind all numbers of earlier processes, for an account is remembered.
        numbers = count(time.time_ns() // 1_000)
        prices = Prices(random.Random(SEED))  # noqa: S311 - prices, and not keys
        print("ready", flush=True)
        group.create_task(prices.follow(quotes))
        for number in range(5):
            trader = Trader(
                f"sim-{number + 1}",
                random.Random(f"{SEED} {number}"),  # noqa: S311 - likewise
                submit,
                lambda: next(numbers),
                prices,
            )
            step, pause_s = (trader.make, 0.12) if number < 2 else (trader.take, 0.5)  # noqa: PLR2004
            group.create_task(trader.run(step, pause_s))


if __name__ == "__main__":
    as_program("traders", main)
