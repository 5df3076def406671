"""A server of calls that is killed under load: no call hangs, and none runs twice unasked.

AERON_ASYNC_CALL_KILLS is how often it is killed; 2 unless set.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import aeron_async as aa
from aeron_async import rpc
from tests.slow.killed_call_server import SERVICE

if TYPE_CHECKING:
    from collections.abc import Callable

KILLS: Final = int(os.environ.get("AERON_ASYNC_CALL_KILLS", "2"))
ROOT: Final = Path(__file__).parent.parent.parent
CALLERS: Final = 32
ANSWERS_BETWEEN: Final = 300
LIMIT_S: Final = 60


class Load:
    """Callers that call until they are told to end, and what became of each call."""

    def __init__(self, client: rpc.Client) -> None:
        self._client = client
        self.outcomes: dict[int, tuple[str, rpc.RpcError | None]] = {}
        self.answered = 0
        self.is_over = False
        self._more = asyncio.Event()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(CALLERS):
                group.create_task(self._call())

    async def _call(self) -> None:
        while not self.is_over:
            number = len(self.outcomes)
            kind = ("at_once", "later", "idempotent")[number % 3]
            self.outcomes[number] = (kind, None)
            try:
                answer = await self._client.call(
                    "later" if kind == "idempotent" else kind,
                    b"%d" % number,
                    timeout=3,
                    idempotent=kind == "idempotent",
                )
            except rpc.RpcError as error:
                self.outcomes[number] = (kind, error)
                if isinstance(error, rpc.NoServerError):
                    await self._client.wait_connected(LIMIT_S)
            else:
                assert answer == b"%d" % number
                self.answered += 1
                self._more.set()

    async def wait_until(self, is_enough: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not is_enough():
                self._more.clear()
                await self._more.wait()


async def start_server(channel: str, path: Path) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.slow.killed_call_server", channel, str(path),
        cwd=ROOT, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    async with asyncio.timeout(LIMIT_S):
        assert await process.stdout.readline() == b"up\n"
    return process


def check(load: Load, ran: Counter[int]) -> None:
    """Compare what callers were told with what has run."""
    for number, (kind, error) in load.outcomes.items():
        if kind != "idempotent":
            assert ran[number] <= 1, (number, kind, error)
        if error is None:
            assert ran[number] >= 1, (number, kind)
        elif isinstance(error, rpc.CallNotSentError):
            assert ran[number] == 0, (number, kind, error)
        else:
            assert isinstance(error, rpc.CallLostError | rpc.CallTimeoutError | rpc.CallFailedError)
            if isinstance(error, rpc.CallTimeoutError) and not error.was_sent:
                assert ran[number] == 0, (number, kind, error)


async def test_a_server_that_is_killed_runs_nothing_twice(
    tmp_path: Path, unused_udp_port_factory: Callable[[], int]
) -> None:
    requests, answers = unused_udp_port_factory(), unused_udp_port_factory()
    channel = f"aeron:udp?endpoint=127.0.0.1:{requests}|control=127.0.0.1:{answers}"
    runs = tmp_path / "runs"
    server = await start_server(channel, runs)
    try:
        async with (
            aa.Aeron.connect() as aeron,
            rpc.Client(aeron, channel, SERVICE, ping_interval=0.1) as client,
        ):
            await client.wait_connected(LIMIT_S)
            load = Load(client)
            async with asyncio.TaskGroup() as group:
                group.create_task(load.run())
                for _ in range(KILLS):
                    enough = load.answered + ANSWERS_BETWEEN
                    await load.wait_until(lambda enough=enough: load.answered >= enough)  # type: ignore[misc]
                    server.kill()
                    await server.wait()
                    server = await start_server(channel, runs)
                enough = load.answered + ANSWERS_BETWEEN
                await load.wait_until(lambda: load.answered >= enough)
                load.is_over = True
            assert client.counts.under_way == client.counts.queued == 0
            assert client.counts.links_lost >= KILLS
    finally:
        server.kill()
        await server.wait()
    check(load, Counter(int(line) for line in runs.read_bytes().split()))
