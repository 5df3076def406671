"""Messages, and the gaps between them."""

import uvloop

import aeron_async as aa


async def main() -> None:
    """Skip some messages, and read on."""
    async with aa.Aeron.connect() as aeron:
        subscription = await aeron.add_subscription("aeron:ipc", 1001)
        publication = await aeron.add_publication("aeron:ipc", 1001)
        await publication.offer_many([b"one", b"two", b"three"])
        await subscription.wait_connected(timeout=5)
        reader = subscription.with_gaps()
        subscription.skip_to_newest()
        await publication.offer(b"last")
        async for item in reader:
            if isinstance(item, aa.Gap):
                print(f"{item.cause.name}: {item.from_position} to {item.to_position}")
            else:
                print(item.data.decode())
                if item.data == b"last":
                    break


uvloop.run(main())
