"""The newest price of each instrument, for a reader that draws one in ten milliseconds."""

import asyncio

import uvloop

import aeron_async as aa


async def draw(price: bytes) -> None:
    """Take longer than the next price does."""
    await asyncio.sleep(0.01)
    print(price.decode())


async def main() -> None:
    """Publish a thousand prices of three instruments; draw the newest ones."""
    async with aa.Aeron.connect() as aeron:
        subscription = await aeron.add_subscription("aeron:ipc", 1001)
        publication = await aeron.add_publication("aeron:ipc", 1001)
        names = ["ACME", "EMCA", "MACE"]
        prices = [f"{names[number % 3]} {number}" for number in range(999)]
        publishing = asyncio.create_task(
            publication.offer_many([price.encode() for price in [*prices, "ACME last"]])
        )
        async with subscription.latest(slice(0, 4)) as latest:
            async for message in latest:
                await draw(message.data)
                if message.data.endswith(b"last"):
                    break
        print(f"{latest.skipped} prices were replaced by newer ones before they were drawn")
        await publishing


uvloop.run(main())
