"""An official driver and ours tell each other their names, and streams lead to either by name."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aeron_async as aa
from tests.interop.exchange import STREAM_ID, exchange
from tests.interop.libaeron import official_client
from tests.interop.official import official_driver
from tests.interop.programs import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

COUNT = 200


def neighbors(aeron: aa.Aeron) -> int:
    (found,) = (
        each.value for each in aeron.counters if each.label.startswith("Resolver neighbors")
    )
    return found


async def test_each_finds_the_other_by_its_name(
    unused_udp_port_factory: Callable[[], int],
) -> None:
    official_port, our_port, port = (unused_udp_port_factory() for _ in range(3))
    context = aa.DriverContext(
        resolver_name="ours",
        resolver_interface=f"127.0.0.1:{our_port}",
        resolver_bootstrap_neighbor=f"localhost:{official_port}",
    )
    async with (
        official_driver(
            NAME_RESOLVER_SUPPLIER="driver",
            DRIVER_RESOLVER_NAME="official",
            DRIVER_RESOLVER_INTERFACE=f"127.0.0.1:{official_port}",
        ) as driver,
        official_client(driver) as theirs,
        aa.Aeron.connect(context=context) as ours,
    ):
        await wait_until(lambda: neighbors(ours) == 1, "the official driver's name")
        subscription = await theirs.add_subscription(
            f"aeron:udp?endpoint=127.0.0.1:{port}|term-length=64k", STREAM_ID
        )
        publication = await ours.add_publication(
            f"aeron:udp?endpoint=official:{port}|term-length=64k", STREAM_ID
        )
        await publication.wait_connected(timeout=10)
        await exchange(publication, [subscription], range(COUNT))
        port = unused_udp_port_factory()
        back = await ours.add_subscription(
            f"aeron:udp?endpoint=127.0.0.1:{port}|term-length=64k", STREAM_ID
        )
        answering = await theirs.add_publication(
            f"aeron:udp?endpoint=ours:{port}|term-length=64k", STREAM_ID
        )
        await answering.wait_connected()
        await exchange(answering, [back], range(COUNT))


async def test_drivers_that_know_one_other_find_each_other_official_or_not(
    unused_udp_port_factory: Callable[[], int],
) -> None:
    first_port, our_port, second_port, port = (unused_udp_port_factory() for _ in range(4))
    context = aa.DriverContext(
        resolver_name="ours",
        resolver_interface=f"127.0.0.1:{our_port}",
        resolver_bootstrap_neighbor=f"127.0.0.1:{first_port}",
    )
    names = {
        "NAME_RESOLVER_SUPPLIER": "driver",
        "DRIVER_RESOLVER_NAME": "first",
        "DRIVER_RESOLVER_INTERFACE": f"127.0.0.1:{first_port}",
    }
    others = names | {
        "DRIVER_RESOLVER_NAME": "second",
        "DRIVER_RESOLVER_INTERFACE": f"127.0.0.1:{second_port}",
        "DRIVER_RESOLVER_BOOTSTRAP_NEIGHBOR": f"127.0.0.1:{first_port}",
    }
    async with (
        official_driver(**names) as first,
        official_driver(**others) as second,
        official_client(second) as theirs,
        aa.Aeron.connect(context=context) as ours,
    ):
        await wait_until(lambda: neighbors(ours) == 2, "the second driver's name")
        async with asyncio.timeout(10):
            for each in (first, second):
                while (await each.counters())["Resolver neighbors"] < 2:
                    pass
        subscription = await ours.add_subscription(
            f"aeron:udp?endpoint=127.0.0.1:{port}|term-length=64k", STREAM_ID
        )
        publication = await theirs.add_publication(
            f"aeron:udp?endpoint=ours:{port}|term-length=64k", STREAM_ID
        )
        await publication.wait_connected()
        await exchange(publication, [subscription], range(COUNT))
