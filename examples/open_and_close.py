"""Open what you need with `async with`, or await it and close it yourself."""

from __future__ import annotations

import asyncio

import aeron_async as aa


async def with_blocks() -> None:
    """Let blocks close everything, whatever happens in them."""
    async with (
        aa.Aeron.connect() as aeron,
        aeron.add_subscription("aeron:ipc", stream_id=1001) as subscription,
        aeron.add_publication("aeron:ipc", stream_id=1001) as publication,
    ):
        await publication.offer(b"from a block")
        print((await anext(subscription)).data.decode())


class Service:
    """Something that is started in one place, and stopped in another."""

    async def start(self) -> None:
        """Open a client and a publication, which stay open."""
        self.aeron = await aa.Aeron.connect()
        self.publication = await self.aeron.add_publication("aeron:ipc", stream_id=1001)

    async def stop(self) -> None:
        """Close the client, and with it everything that it added."""
        await self.aeron.aclose()


async def main() -> None:
    """Do it both ways."""
    await with_blocks()
    service = Service()
    await service.start()
    async with service.aeron.add_subscription("aeron:ipc", stream_id=1001) as subscription:
        await service.publication.offer(b"from a service")
        print((await anext(subscription)).data.decode())
    await service.stop()
    print("closed:", service.publication.is_closed)


asyncio.run(main())
