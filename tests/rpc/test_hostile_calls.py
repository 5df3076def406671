"""Random bytes and broken envelopes: counted, bounded, and nothing is raised into the loop."""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async import rpc
from aeron_async.rpc.envelope import (
    Extension,
    Template,
    head,
    method_id,
    pack_extensions,
)
from aeron_async.rpc.outbox import Outbox
from aeron_async.rpc.server_session import ServerSession
from aeron_async.testing import simulate
from tests.rpc.test_calls import SERVICE, pair

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from aeron_async.testing import World

FRAMES = int(os.environ.get("AERON_ASYNC_RPC_FORGED", "400"))
METHODS = ["echo", "later", "never", "count", "total", "upper", "describe", "none such"]
EXTENSIONS = [
    b"",
    pack_extensions([(Extension.INSTANCE, bytes(16)), (Extension.NAME, b"\x1b[2J")]),
    pack_extensions([(Extension.TRACEPARENT, bytes(26)), (Extension.KEY, bytes(24))]),
    pack_extensions([(Extension.RETRY_AFTER, b"123"), (Extension.ERROR_TYPE, b"\xff\x00")]),
    pack_extensions([(Extension.SERVICE, b"another")]),
]


def forged(dice: random.Random, count: int, highest: int) -> Iterator[bytes]:
    """Return frames: true ones, some of whose bytes are others, and bytes that are no frame."""
    for _ in range(count):
        frame = bytearray(
            head(
                dice.choice(list(Template)),
                dice.choice([0, dice.randrange(1, highest + 2), highest + 1, 2**64 - 1]),
                amount=dice.choice([0, 1, 16, 10**9, 2**63, 2**64 - 1]),
                number=dice.choice([0, 7, 2**32 - 1, *(method_id(SERVICE, m) for m in METHODS)]),
                flags=dice.choice([0, 1, 1, 1, 3, 8, 32, 0xFFFF]),
                extensions=dice.choice(EXTENSIONS),
            )
            + dice.randbytes(dice.choice([0, 3, 100]))
        )
        highest += 1
        match dice.randrange(4):
            case 0:
                for _ in range(dice.randrange(1, 4)):
                    frame[dice.randrange(len(frame))] = dice.randrange(256)
            case 1:
                del frame[dice.randrange(len(frame)) :]
            case 2 if dice.random() < 0.2:
                frame[:] = dice.randbytes(dice.randrange(200))
        yield bytes(frame)


class Forger:
    """An image of requests."""

    source_identity = "forger"
    is_closed = True
    session_id = correlation_id = 7


class Sink:
    """A publication that takes everything."""

    def _offer_fast(self, _frame: bytes, _reserved_value: int) -> int:
        return 1

    def try_offer(self, _frame: bytes) -> int:
        return 1


@asynccontextmanager
async def watched(world: World) -> AsyncGenerator[tuple[rpc.Serving, rpc.Client], None]:
    """Open both ends; fail if anything was raised into the loop."""
    raised: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))
    async with pair(world, timeout=None, calls_at_once=64) as (serving, client):
        await client.wait_connected(5)
        yield serving, client
        await client.wait_connected(90)
        assert await client.call("echo", b"still", timeout=5) == b"still"
    assert raised == []


@pytest.mark.parametrize("seed", range(3))
def test_a_server_survives_what_is_no_envelope(seed: int) -> None:
    async def story(world: World) -> None:
        dice = random.Random(seed)
        async with watched(world) as (serving, _):
            known = set(serving._sessions)
            for _ in range(0, FRAMES, 50):
                image: Any = Forger()
                outbox = Outbox(serving._tasks, lambda _: None, patience_s=1)
                outbox.attach(Sink())
                serving._sessions[image] = session = ServerSession(
                    image, outbox, serving._aeron.clock, serving._wiring
                )
                for frame in forged(dice, 50, 10):
                    message: Any = SimpleNamespace(data=frame, image=image)
                    if image in serving._sessions:
                        serving._on_message(message)
                    assert len(session.calls) <= 64
                await world.sleep(dice.choice([0, 0.001, 0.02]))
                serving._on_image_gone(image)
                assert not session.calls
            await world.sleep(0.1)
            assert serving.counts.under_way == 0
            assert serving.counts.malformed > FRAMES / 20
            assert set(serving._sessions) == known

    simulate(story, seed=seed)


@pytest.mark.parametrize("seed", range(3))
def test_a_client_survives_what_is_no_envelope(seed: int) -> None:
    async def story(world: World) -> None:
        dice = random.Random(seed)
        async with watched(world) as (_, client):
            link: Any = client._links[0]
            malformed = 0
            for _ in range(0, FRAMES, 50):
                await client.wait_connected(90)
                calls = [asyncio.ensure_future(client.call("never")) for _ in range(20)]
                async with client.stream("count", b"100"):
                    await world.sleep(0.01)
                    for frame in forged(dice, 50, link._next_id - 1):
                        link._on_message(SimpleNamespace(data=frame, image=link._image))
                    await world.sleep(dice.choice([0, 0.001, 0.02]))
                for call in calls:
                    call.cancel()
                for result in await asyncio.gather(*calls, return_exceptions=True):
                    assert isinstance(result, bytes | rpc.RpcError | asyncio.CancelledError)
                assert not link.calls
                malformed = client.counts.malformed
            assert malformed > FRAMES / 20
            await world.sleep(3)

    simulate(story, seed=seed)
