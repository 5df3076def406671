"""The newest price of each instrument, for a reader that draws one in ten milliseconds."""

import asyncio

import uvloop

import aeron_async as aa


async def draw(price: bytes) -> None:
    """Take longer than the next price does."""
    await asyncio.sleep(0.01)
    print(price.decode())


async def publish(publication: aa.Publication) -> None:
    """Publish a thousand prices of three instruments, and the last one while they are drawn."""
    names = ["ACME", "EMCA", "MACE"]
    await publication.offer_many([f"{names[each % 3]} {each}".encode() for each in range(999)])
    await asyncio.sleep(0.015)
    await publication.offer(b"ACME last")


async def main() -> None:
    """Draw the newest prices while others are published."""
    async with aa.Aeron.connect() as aeron:
        subscription = await aeron.add_subscription("aeron:ipc", 1001)
        publication = await aeron.add_publication("aeron:ipc", 1001)
        publishing = asyncio.create_task(publish(publication))
        async with subscription.latest(slice(0, 4)) as latest:
            async for message in latest:
                await draw(message.data)
                if message.data.endswith(b"last"):
                    break
        print(f"{latest.skipped} prices were replaced by newer ones before they were drawn")
        await publishing


uvloop.run(main())
