"""Frames from the publisher's own address, on real sockets: the stream heals, or says so.

`AERON_ASYNC_FORGED_MUTATIONS=200000` runs the long version.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING

import pytest

import aeron_async as aa
from tests.io.forger import TERM_LENGTH, Stream, may_forge
from tests.ports import unused_udp_ports
from tests.support.forgeries import FORGERIES, mutate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.forgeries import Forgery

pytestmark = [
    pytest.mark.skipif(not may_forge(), reason="forged addresses need raw sockets: run as root"),
    pytest.mark.untraced,
]
MUTATIONS = int(os.environ.get("AERON_ASYNC_FORGED_MUTATIONS", "2000"))
LOUD = {"CONTRADICTED", "GAP_UNFILLED", "REVOKED", "END_OF_STREAM"}


@asynccontextmanager
async def streaming(seed: object) -> AsyncIterator[Stream]:
    """Yield a stream under way on loopback."""
    port = next(unused_udp_ports())
    channel = f"aeron:udp?endpoint=127.0.0.1:{port}|term-length={TERM_LENGTH}"
    async with (
        aa.Aeron.connect() as aeron,
        aeron.add_subscription(channel, 1) as subscription,
        aeron.add_exclusive_publication(channel, 1) as publication,
    ):
        stream = Stream(publication, subscription, port, Random(str(seed)))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(stream.consume()), group.create_task(stream.watch())]
            try:
                for _ in range(50):
                    await stream.offer()
                await stream.settle()
                yield stream
            finally:
                stream.close()
                for task in tasks:
                    task.cancel()


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda each: each.__name__)
async def test_one_forged_frame_ends_no_stream_in_silence(forgery: Forgery) -> None:
    """Everything is read in order, or the image ends, and another is there."""
    async with streaming(forgery.__name__) as stream:
        for _ in range(5):
            await stream.forge(forgery)
            for _ in range(30):
                await stream.offer()
            await stream.settle()
        assert set(stream.ends) <= LOUD


async def test_no_mutation_of_genuine_frames_lets_a_stream_stand_still() -> None:
    """Random mutations from the publisher's own address."""
    async with streaming("mutations") as stream:
        random = Random("mutations")
        count = 0
        while count < MUTATIONS:
            for _ in range(20):
                datagram = mutate(stream.genuine().datagram, random)
                if datagram is not None:
                    stream.send_forged(datagram)
                    count += 1
                    # A socket whose buffer is full loses genuine datagrams as well.
                    await asyncio.sleep(0)
            await stream.offer()
            if count % 2_000 < 20:
                await stream.settle()
        await stream.settle()
        print(f"{count} mutations, {stream.sent} messages, images ended: {Counter(stream.ends)}")  # noqa: T201 - the figures of a long run
