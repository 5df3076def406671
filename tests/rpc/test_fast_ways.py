"""The fast way and the long way of a call send the same bytes, and count the same."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async import rpc
from aeron_async.rpc.client_link import ClientLink
from aeron_async.rpc.envelope import HEAD, Template
from aeron_async.rpc.serving import Serving
from aeron_async.testing import simulate
from tests.rpc.test_calls import pair

if TYPE_CHECKING:
    from aeron_async.testing import World

OF_CALLS = {int(each) for each in (Template.CALL, Template.REPLY, Template.ERROR, Template.CANCEL)}


def record(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bytes]]:
    """Note what either end receives for calls."""
    seen: list[tuple[str, bytes]] = []
    for owner in (Serving, ClientLink):
        take = owner._on_message

        def note(self: Any, message: Any, take: Any = take) -> None:
            template = HEAD.unpack_from(message.data)[1]
            if template in OF_CALLS:
                seen.append((type(self).__name__, message.data))
            take(self, message)

        monkeypatch.setattr(owner, "_on_message", note)
    return seen


def told_by(seed: int, *, is_fast: bool) -> tuple[list[tuple[str, bytes]], list[Any]]:
    """Return what both ends received, and what callers and counters say in the end."""
    results: list[Any] = []
    with pytest.MonkeyPatch.context() as monkeypatch:
        seen = record(monkeypatch)

        async def story(world: World) -> None:
            dice = random.Random(seed)
            async with pair(world, calls_at_once=8) as (serving, client):
                if not is_fast:
                    client._only_link = None
                    serving._simple.clear()
                await client.wait_connected(5)

                async def one(method: str, request: bytes, pause: float) -> None:
                    await asyncio.sleep(pause)
                    try:
                        results.append(await client.call(method, request))
                    except rpc.RpcError as error:
                        results.append((type(error), str(error)))

                lengths = {"echo": [0, 1, 100, 70_000], "later": [5, 70_000]}
                tasks = []
                for _ in range(60):
                    method = dice.choice(["echo", "later", "secret", "refuse", "missing", "echo"])
                    request = bytes(dice.choices(b"abc", k=dice.choice(lengths.get(method, [9]))))
                    pause = dice.choice([0, 0.01, 0.02])
                    tasks.append(asyncio.ensure_future(one(method, request, pause)))
                await world.sleep(0.015)
                tasks[dice.randrange(60)].cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await world.sleep(0.5)
                results.extend((client.counts, serving.counts))
                assert client.counts.under_way == serving.counts.under_way == 0

        simulate(story, seed=seed)
    return seen, results


@pytest.mark.parametrize("seed", range(2))
def test_the_fast_way_is_the_long_way(seed: int) -> None:
    assert told_by(seed, is_fast=True) == told_by(seed, is_fast=False)
