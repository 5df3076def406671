"""Services for tests in a world: a service that is called, a durable stream, and market data.

Each runs on hosts of its own, so that a test can crash them, cut them off and slow them down by
their names. The fixtures of the plugin for pytest are made of these.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from aeron_async.archive import ArchiveContext, DurableStream, LocalArchive
from aeron_async.archive.disk_access import InlineDisk
from aeron_async.driver.core.context import DriverContext
from aeron_async.errors import ConfigurationError
from aeron_async.protocol.arguments import check_number
from aeron_async.rpc import Client

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence
    from pathlib import Path

    from aeron_async.client.subscription import Subscription
    from aeron_async.rpc import Server
    from aeron_async.testing.host import Host
    from aeron_async.testing.world import World

__all__ = ["Market", "Tick", "durable_log", "rpc_pair"]

SERVICE_CHANNEL: Final = "aeron:udp?endpoint=server:20121|control=server:20122"
CONNECT_S: Final = 30.0
"""Virtual seconds for a client to find its server."""
TERM_LENGTH: Final = 64 * 1024
LOG_STREAM_ID: Final = 1001
MARKET_CHANNEL: Final = "aeron:udp?endpoint=224.20.30.39:20123|term-length=64k"
MARKET_STREAM_ID: Final = 1001
SYMBOLS: Final = ("ACME", "INIT", "MACE")
TICKS_MOST: Final = 1_000_000
STEP: Final = 0.25
"""By how much a price moves in one step."""


@asynccontextmanager
async def rpc_pair(
    world: World, service: Server, *, channel: str = SERVICE_CHANNEL, **options: Any
) -> AsyncGenerator[Client, None]:
    """Serve on the host `server`, and yield a client on the host `client` that is connected.

    A restart of the host `server` opens the service again. It stays open until the world ends.

    Args:
        world: The world.
        service: What to serve.
        channel: Channel of the service.
        options: Those of `rpc.Client`.

    Raises:
        NoServerError: The client has not found the server in 30 virtual seconds.
    """

    async def serve(host: Host) -> None:
        async with host.aeron() as aeron, service.serve(aeron, channel):
            await asyncio.Event().wait()

    world.host("server").start(serve)
    async with (
        world.host("client").aeron() as aeron,
        Client(aeron, channel, service.service, **options) as client,
    ):
        await client.wait_connected(CONNECT_S)
        yield client


@asynccontextmanager
async def durable_log(world: World, folder: Path) -> AsyncGenerator[DurableStream, None]:
    """Yield a durable stream whose archive is on the host `archive`, in files below a folder.

    Args:
        world: The world.
        folder: Where the recordings go; the archive of an earlier log there is continued.
    """
    context = ArchiveContext(directory=str(folder / "archive"), low_storage_threshold=0)
    driver = DriverContext(ipc_term_buffer_length=TERM_LENGTH, term_buffer_length=TERM_LENGTH)
    async with (
        world.host("archive").aeron(driver) as aeron,
        DurableStream(
            lambda: LocalArchive.open(aeron, context, disk=InlineDisk()),
            aeron,
            "aeron:ipc",
            LOG_STREAM_ID,
        ) as log,
    ):
        yield log


# Market data.


@attrs.frozen
class Tick:
    """One price of a `Market`; the class itself is its codec, for `subscription.typed(Tick)`.

    Attributes:
        sequence: Number of the tick among those of all symbols, from 1.
        symbol: What has the price.
        price: A multiple of 0.25, so that a text has all of it.
    """

    sequence: int
    symbol: str
    price: float

    def encode(self) -> bytes:
        """Return the tick as a text, such as `7 ACME 100.25`."""
        return f"{self.sequence} {self.symbol} {self.price}".encode()

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Tick:
        """Return the tick of such a text.

        Raises:
            ValueError: It is none.
        """
        sequence, symbol, price = bytes(data).decode().split(" ")
        return cls(int(sequence), symbol, float(price))


@final
class Market:
    """Prices of a few symbols, published on the host `exchange` by multicast.

    The exchange waits for no slow reader, because the host `tape` reads everything at once: a slow
    one is run over. The prices are those of the world's seed.

    Args:
        world: The world.
        channel: Where to publish.
        stream_id: Stream within the channel.

    Attributes:
        sent: Every tick that was published, oldest first.
        latest: The last of them of each symbol.
    """

    def __init__(
        self, world: World, channel: str = MARKET_CHANNEL, stream_id: int = MARKET_STREAM_ID
    ) -> None:
        self.channel = channel
        self.stream_id = stream_id
        self.sent: list[Tick] = []
        self.latest: dict[str, Tick] = {}
        self._world = world
        self._subscriptions: list[Subscription] = []
        self._stack = AsyncExitStack()
        self._is_started = False
        self._is_taped = asyncio.Event()
        self._is_over = asyncio.Event()

    def start(
        self,
        *,
        count: int = 1_000,
        rate: float = 1_000.0,
        symbols: Sequence[str] = SYMBOLS,
        encode: Callable[[Tick], bytes] = Tick.encode,
    ) -> None:
        """Begin to publish when all that have subscribed are connected.

        Args:
            count: How many ticks, a million at most.
            rate: How many in a virtual second.
            symbols: Which symbols have prices.
            encode: Makes the message of a tick.

        Raises:
            ConfigurationError: An argument is not valid, or this is the second start.
        """
        count = check_number(count, "count", minimum=1, maximum=TICKS_MOST)
        if not rate > 0:
            message = f"rate={rate} must be above 0: it is how many ticks a virtual second has"
            raise ConfigurationError(message)
        if not symbols:
            message = "symbols is empty: name one at least"
            raise ConfigurationError(message)
        if self._is_started:
            message = "a market starts once: make another with Market(world)"
            raise ConfigurationError(message)
        self._is_started = True

        async def exchange(host: Host) -> None:
            async with (
                host.aeron() as aeron,
                aeron.add_publication(self.channel, self.stream_id) as publication,
            ):
                await self._is_taped.wait()
                for each in tuple(self._subscriptions):
                    if not each.is_closed:
                        await each.wait_connected()
                for tick in self._ticks(count, symbols):
                    await publication.offer(encode(tick))
                    self.sent.append(tick)
                    self.latest[tick.symbol] = tick
                    await asyncio.sleep(1 / rate)
            self._is_over.set()

        async def tape(host: Host) -> None:
            async with (
                host.aeron() as aeron,
                aeron.add_subscription(self.channel, self.stream_id) as subscription,
            ):
                self._subscriptions.append(subscription)
                self._is_taped.set()
                async for _ in subscription:
                    pass

        self._world.host("tape").start(tape)
        self._world.host("exchange").start(exchange)

    def _ticks(self, count: int, symbols: Sequence[str]) -> list[Tick]:
        """Return a random walk of each symbol, in random order."""
        random = self._world.random
        prices = dict.fromkeys(symbols, 100.0)
        ticks = []
        for sequence in range(1, count + 1):
            symbol = random.choice(symbols)
            prices[symbol] = max(STEP, prices[symbol] + random.choice((-STEP, STEP)))
            ticks.append(Tick(sequence, symbol, prices[symbol]))
        return ticks

    async def subscribe(
        self, host: str = "reader", *, context: DriverContext | None = None, **options: Any
    ) -> Subscription:
        """Return a subscription on a host, with a driver of its own; both end with the market.

        Args:
            host: Name of the host.
            context: Settings of the driver, such as `over_run_rejoin_interval_ns`.
            options: Those of `Aeron.add_subscription`.
        """
        aeron = await self._stack.enter_async_context(self._world.host(host).aeron(context))
        opening = aeron.add_subscription(self.channel, self.stream_id, **options)
        self._subscriptions.append(await self._stack.enter_async_context(opening))
        return self._subscriptions[-1]

    async def wait_over(self) -> None:
        """Wait until every tick was published."""
        await self._is_over.wait()

    async def aclose(self) -> None:
        """Close the subscriptions; the exchange and the tape stop with the world."""
        await self._stack.aclose()
