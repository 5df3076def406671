"""A reader that comes late gets a snapshot, and then each change behind it."""

import uvloop

import aeron_async as aa


async def main() -> None:
    """Publish changes of prices, join late, and end with the same prices."""
    kept: dict[str, int] = {}

    def apply(change: bytes) -> None:
        name, price = change.decode().split()
        kept[name] = int(price)

    channel = "aeron:udp?endpoint=127.0.0.1:20121"
    async with aa.Aeron.connect() as aeron:
        publication = await aeron.add_exclusive_publication(f"{channel}|ssc=true", 1001)
        await aeron.add_subscription(f"aeron-spy:{channel}", 1001)
        server = aa.SnapshotServer(publication, apply=apply, dump=lambda: dict(kept))
        await server.publish(b"ACME 10")
        await server.publish(b"EMCA 20")

        async def fetch() -> aa.Snapshot[dict[str, int]]:
            return server.snapshot()

        subscription = await aeron.add_subscription(channel, 1001)
        await subscription.wait_connected(timeout=5)
        prices: dict[str, int] = {}
        async for item in aa.join_with_snapshot(subscription, fetch):
            if isinstance(item, aa.Snapshot):
                prices = item.data
                await server.publish(b"ACME 11")
                await server.publish(b"last 1")
            else:
                name, price = item.data.decode().split()
                prices[name] = int(price)
            if prices.get("last"):
                break
        print(prices == kept, prices)


uvloop.run(main())
