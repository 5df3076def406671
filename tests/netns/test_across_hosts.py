"""Groups, interfaces and names across hosts that have wires between them."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

import aeron_async as aa

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.netns.hosts import Hosts

STREAM_ID = 7
COUNT = 3_000
MESSAGES = [number.to_bytes(4, "big") * 40 for number in range(COUNT)]
CONTEXT = aa.DriverContext(term_buffer_length=64 * 1024)
TIMEOUT_S = 40


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def client(stack: AsyncExitStack, hosts: Hosts, host: int) -> aa.Aeron:
    driver = aa.MediaDriver.launch(CONTEXT, network=hosts.network(host))
    await stack.enter_async_context(driver)
    return await stack.enter_async_context(aa.Aeron.connect(driver))


async def read_all(subscription: aa.Subscription) -> None:
    for expected in MESSAGES:
        assert (await anext(subscription)).data == expected


async def share(publication: aa.Publication, *subscriptions: aa.Subscription) -> None:
    """Publish every message, and see that every subscription gets all of them in order."""
    async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as group:
        for subscription in subscriptions:
            group.create_task(read_all(subscription))
        for message in MESSAGES:
            await publication.offer(message)


@pytest.mark.parametrize(
    ("group", "interface"), [("224.20.30.39", "10.199.1.0/24"), ("224.20.30.41", "{{eth0}}")]
)
async def test_a_group_across_lossy_wires_gets_every_message(
    hosts: Hosts, stack: AsyncExitStack, group: str, interface: str
) -> None:
    hosts.lose()
    channel = f"aeron:udp?endpoint={group}:20121|interface={interface.format()}"
    clients = [await client(stack, hosts, host) for host in range(3)]
    subscriptions = [await each.add_subscription(channel, STREAM_ID) for each in clients[1:]]
    publication = await clients[0].add_publication(f"{channel}|fc=min,g:/2", STREAM_ID)
    await share(publication, *subscriptions)
    sources = {image.source_identity for each in subscriptions for image in each.images}
    assert {source.rpartition(":")[0] for source in sources} == {hosts.address(0)}


async def test_destinations_across_lossy_wires_get_every_message(
    hosts: Hosts, stack: AsyncExitStack
) -> None:
    hosts.lose()
    hosts.names["exchange"] = hosts.address(0)
    clients = [await client(stack, hosts, host) for host in range(3)]
    subscriptions = [
        await each.add_subscription(
            f"aeron:udp?endpoint={hosts.address(host)}:0|control=exchange:20121"
            "|control-mode=dynamic",
            STREAM_ID,
        )
        for host, each in enumerate(clients[1:], 1)
    ]
    publication = await clients[0].add_publication(
        "aeron:udp?control=exchange:20121|control-mode=dynamic|fc=min,g:/2", STREAM_ID
    )
    await share(publication, *subscriptions)


async def test_a_group_is_heard_at_the_interface_where_it_was_joined_and_at_no_other(
    hosts: Hosts, stack: AsyncExitStack
) -> None:
    endpoint = "aeron:udp?endpoint=224.20.30.39:20121"
    clients = [await client(stack, hosts, host) for host in range(3)]
    there = await clients[1].add_subscription(
        f"{endpoint}|interface={hosts.address(1, 1)}", STREAM_ID
    )
    elsewhere = await clients[2].add_subscription(f"{endpoint}|interface=10.199.1.0/24", STREAM_ID)
    publication = await clients[0].add_publication(f"{endpoint}|interface=10.199.2.0/24", STREAM_ID)
    await share(publication, there)
    assert not elsewhere.images
    (image,) = there.images
    assert image.source_identity.startswith(f"{hosts.address(0, 1)}:")


async def test_a_publication_survives_the_new_address_of_its_peer(
    hosts: Hosts, stack: AsyncExitStack
) -> None:
    hosts.names["service"] = hosts.address(1)
    sending, receiving = [await client(stack, hosts, host) for host in range(2)]
    publication = await sending.add_publication("aeron:udp?endpoint=service:20121", STREAM_ID)
    before = await receiving.add_subscription(
        f"aeron:udp?endpoint={hosts.address(1)}:20121", STREAM_ID
    )
    async with asyncio.timeout(TIMEOUT_S):
        await publication.offer(b"where you were")
        assert (await anext(before)).data == b"where you were"
        moved = hosts.names["service"] = hosts.move(1, 77)
        after = await receiving.add_subscription(f"aeron:udp?endpoint={moved}:20121", STREAM_ID)
        await after.wait_connected()
        await publication.offer(b"where you are")
        assert (await anext(after)).data == b"where you are"
    changes = [each.value for each in sending.counters if each.label.startswith("Resolution ch")]
    assert changes == [1]
