"""The newest prices of all instruments, for a reader that draws many at a time."""

import asyncio

import uvloop

import aeron_async as aa


async def draw(prices: list[bytes]) -> None:
    """Take longer than the next prices do."""
    await asyncio.sleep(0.01)
    print(" ".join(price.decode().replace(" ", "=") for price in prices))


async def main() -> None:
    """Publish a thousand prices of three instruments; draw the newest ones of all."""
    async with aa.Aeron.connect() as aeron:
        subscription = await aeron.add_subscription("aeron:ipc", 1001)
        publication = await aeron.add_publication("aeron:ipc", 1001)
        names = ["ACME", "EMCA", "MACE"]
        prices = [f"{names[number % 3]} {number}" for number in range(1000)]
        is_drawn = False
        async with subscription.latest(slice(0, 4)) as latest:
            await publication.offer_many([price.encode() for price in prices])
            while not is_drawn and (messages := await latest.take(256)):
                await draw([message.data for message in messages])
                is_drawn = any(message.data == b"ACME 999" for message in messages)
        print(f"{latest.skipped} prices were replaced by newer ones before they were drawn")


uvloop.run(main())
