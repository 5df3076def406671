"""A name resolver of one's own: channels name services, and a registry knows where they are."""

from __future__ import annotations

import asyncio
import os

import aeron_async as aa

PORT = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121").rpartition(":")[2]
REGISTRY = {"orders": "127.0.0.1"}


class Registry:
    """Knows the services of this system, and nothing else."""

    async def resolve(
        self, host: str, port: int, *, is_re_resolution: bool = False
    ) -> tuple[str, int]:
        """Return the numeric address of a service; whatever is raised says that it has none."""
        del is_re_resolution
        return REGISTRY[host], port


async def talk(context: aa.DriverContext) -> None:
    """Send one message to a service by its name."""
    async with aa.Aeron.connect(context=context) as aeron:
        subscription = await aeron.add_subscription(f"aeron:udp?endpoint=orders:{PORT}", 1001)
        publication = await aeron.add_publication(f"aeron:udp?endpoint=orders:{PORT}", 1001)
        await publication.offer(b"1 3")
        print("service names:", (await anext(subscription)).data.decode())


async def main() -> None:
    """Pass a resolver, then a factory for one per driver, then use an unknown name."""
    await talk(aa.DriverContext(name_resolver_supplier=Registry()))
    context = aa.DriverContext(name_resolver_supplier=Registry)
    await talk(context)

    async with aa.Aeron.connect(context=context) as aeron:
        try:
            await aeron.add_publication(f"aeron:udp?endpoint=billing:{PORT}", 1001)
        except aa.RegistrationError as error:
            print("no such service:", error.code.name)


asyncio.run(main())
