"""The matching engine: calls in, a durable log in the middle, answers out.

A command is appended to the log, and applied and answered once it is recorded: so whatever was
acknowledged is in the log, and a new engine that replays the log has it. Commands that wait are
appended together and recorded by one wait (group commit).

Invariant: the state is that of the log up to `exchange.sequence`, and no answer runs ahead of it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final

import attrs

from aeron_async import rpc
from aeron_async.errors import CallFailedError, DecodeError
from examples.exchange.matching import Exchange
from examples.exchange.messages import ACK, FILL, PROGRESS, decode_command, encode_command
from examples.exchange.wiring import COMMANDS_STREAM, SERVICE, Wiring, as_program

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aeron_async import Clock
    from aeron_async.archive.durable.producer import Producer
    from aeron_async.archive.durable.stream import DurableStream
    from examples.exchange.messages import Command, Fill

__all__ = ["Engine"]

WAITING_MOST: Final = 4_096
"""Commands that wait to be appended; those beyond are refused."""
BATCH_MOST: Final = 256
"""Commands that are recorded by one wait."""
FILLS_KEPT: Final = 4_096
NUMBER_LENGTH: Final = 8
RETRY_AFTER_MS: Final = 100


@attrs.frozen
class Waiting:
    """A command, when it came, and who waits for its answer."""

    command: Command
    came_ns: int
    answer: asyncio.Future[bytes]


class Engine:
    """Takes commands by calls, and applies them in the order of the log.

    Args:
        producer: Appends to the log; opened before the log is replayed, so that no older engine can
            append behind what this one has read.
        clock: Sets the time of commands, and measures their way.

    Attributes:
        exchange: The state.
        refused_count: Commands that found no room to wait.
    """

    def __init__(self, producer: Producer, clock: Clock) -> None:
        self.exchange = Exchange()
        self.refused_count = 0
        self._producer = producer
        self._clock = clock
        self._queue: asyncio.Queue[Waiting] = asyncio.Queue(WAITING_MOST)
        self._fills: deque[Fill] = deque(maxlen=FILLS_KEPT)
        self._more_fills = asyncio.Event()

    async def replay(self, log: DurableStream) -> None:
        """Apply all commands that earlier engines have recorded."""
        last = self._producer.last_sequence
        if not last:
            return
        async with log.consume() as consumer:
            async for batch in consumer.batches():
                for record in batch.records:
                    assert record.sequence is not None, "no one else publishes on this stream"
                    effects = self.exchange.apply(record.sequence, decode_command(record.data))
                    self._fills.extend(effects.fills)
                if self.exchange.sequence == last:
                    return

    async def run(self) -> None:
        """Append, record, apply and answer, batch after batch."""
        queue = self._queue
        while True:
            batch = [await queue.get()]
            while len(batch) < BATCH_MOST and not queue.empty():
                batch.append(queue.get_nowait())
            await self._carry_out(batch)

    async def _carry_out(self, batch: list[Waiting]) -> None:
        began_ns = self._clock.now_ns()
        commands = [each.command._replace(time_ns=self._clock.epoch_ns()) for each in batch]
        sequences = [await self._producer.append(encode_command(each)) for each in commands]
        await self._producer.flush()
        recorded_ns = self._clock.now_ns()
        for waiting, sequence, command in zip(batch, sequences, commands, strict=True):
            before_ns = self._clock.now_ns()
            effects = self.exchange.apply(sequence, command)
            self._fills.extend(effects.fills)
            # A caller may have gone: its command is applied all the same.
            if not waiting.answer.done():
                ack = effects.ack._replace(
                    queued_ns=began_ns - waiting.came_ns,
                    recorded_ns=recorded_ns - began_ns,
                    matched_ns=self._clock.now_ns() - before_ns,
                )
                waiting.answer.set_result(ACK.encode(ack))
        more, self._more_fills = self._more_fills, asyncio.Event()
        more.set()

    # Calls.

    def server(self) -> rpc.Server:
        """Return the service: `submit`, `fills` and `progress`."""
        server = rpc.Server(SERVICE)
        server.unary(self.submit)
        server.server_streaming(self.fills)
        server.unary(self.progress)
        return server

    async def submit(self, request: bytes) -> bytes:
        """Carry out a command, and answer with its `Ack` when it is recorded."""
        try:
            command = decode_command(request)
        except DecodeError as error:
            raise CallFailedError(str(error), status=rpc.Status.INVALID_ARGUMENT) from None
        if self._queue.full():
            self.refused_count += 1
            what = f"{WAITING_MOST} commands wait: send fewer at once"
            raise CallFailedError(
                what, status=rpc.Status.RESOURCE_EXHAUSTED, retry_after_ms=RETRY_AFTER_MS
            )
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait(Waiting(command, self._clock.now_ns(), answer))
        return await answer

    async def fills(self, request: bytes) -> AsyncIterator[bytes]:
        """Yield each `Fill` behind the number that was given, and those to come.

        The latest 4,096 are kept: the number of the first one tells whether some were missed.
        """
        if len(request) != NUMBER_LENGTH:
            what = f"a request of {len(request)} bytes: give the number of the last fill, 8 bytes"
            raise CallFailedError(what, status=rpc.Status.INVALID_ARGUMENT)
        number = int.from_bytes(request, "little")
        while True:
            more = self._more_fills
            first = self._fills[0].number if self._fills else 1
            # A copy: while one is sent, others come and the oldest go.
            begin = min(max(number + 1 - first, 0), len(self._fills))
            for each in list(islice(self._fills, begin, None)):
                yield FILL.encode(each)
                number = each.number
            await more.wait()

    def progress(self, _request: bytes) -> bytes:
        """Answer with the last checkpoint: a command that was applied, and the digest after it."""
        return PROGRESS.encode(self.exchange.checkpoint)


async def main(wiring: Wiring) -> None:
    """Open the log, replay it, and serve."""
    async with (
        wiring.client("engine") as aeron,
        wiring.log(aeron, wiring.commands, COMMANDS_STREAM) as log,
        log.produce("engine") as producer,
    ):
        engine = Engine(producer, aeron.clock)
        began_ns = aeron.clock.now_ns()
        await engine.replay(log)
        took_ms = (aeron.clock.now_ns() - began_ns) // 1_000_000
        exchange = engine.exchange
        print(
            f"replayed {exchange.sequence} commands in {took_ms} ms, "
            f"state {exchange.digest():016x}",
            flush=True,
        )
        async with engine.server().serve(aeron, wiring.engine):
            print("ready", flush=True)
            await engine.run()


if __name__ == "__main__":
    as_program("engine", main)
