"""Subscriber process of the demonstration: `python -m aeron_async.cli.demo_subscriber`."""

from __future__ import annotations

import asyncio
import sys
import time
from operator import ne
from typing import TYPE_CHECKING, Final, final

import attrs

from aeron_async.cli.demo_child import (
    ECHO,
    END,
    FAST,
    HEADER,
    LOOPBACK,
    PHASES,
    SLOW,
    SLOW_NS_PER_MESSAGE,
    Latencies,
    Sampler,
    run_child,
)
from aeron_async.cli.demo_publisher import ECHO_STREAM_ID, STREAM_ID, counter_value
from aeron_async.cli.pauses import Pauses
from aeron_async.client.aeron import Aeron
from aeron_async.clock import NS_PER_SECOND
from aeron_async.driver.core.system_counters import SystemCounterId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aeron_async.cli.demo_child import Parent
    from aeron_async.client.exclusive_publication import ExclusivePublication
    from aeron_async.client.image import MessageBatch
    from aeron_async.client.subscription import Subscription
    from aeron_async.counters import CountersReader

__all__: Sequence[str] = []

BATCH_LIMIT: Final = 256
# Every message is checked, but only some latencies are kept: there may be millions of messages.
MESSAGES_PER_LATENCY: Final = 16


@final
@attrs.define
class ReceivedPhase:
    """What was received in one phase."""

    key: str
    received: int = 0
    length: int = 0
    first_ns: int = 0
    last_ns: int = 0
    latencies: Latencies = attrs.Factory(Latencies)

    def to_json(self) -> dict[str, object]:
        """Return the result as a JSON object."""
        return {
            "phase": self.key,
            "received": self.received,
            "bytes": self.length,
            "seconds": (self.last_ns - self.first_ns) / NS_PER_SECOND,
            "latency": self.latencies.summary(),
        }


@final
class Subscriber:
    """Receives messages at the pace of each phase, checks that none is missing, and reports."""

    def __init__(
        self,
        parent: Parent,
        *,
        subscription: Subscription,
        echoes: ExclusivePublication,
        counters: CountersReader,
        interval_s: float,
    ) -> None:
        self._parent = parent
        self._subscription = subscription
        self._echoes = echoes
        self._counters = counters
        self._results = {phase.kind: ReceivedPhase(phase.key) for phase in PHASES}
        self._result = self._results[PHASES[0].kind]
        self._received = 0
        self._length = 0
        self._out_of_order = 0
        self._sampler = Sampler(interval_s, self._report)

    async def run(self) -> None:
        """Receive messages until the last one."""
        try:
            async for batch in self._subscription.batches(BATCH_LIMIT):
                kind = await self._take(batch)
                if kind == END:
                    break
                if kind == SLOW.kind:
                    await asyncio.sleep(len(batch) * SLOW_NS_PER_MESSAGE / NS_PER_SECOND)
        finally:
            self._sampler.stop()
        await self._echoes.drain()
        self._parent.report(
            "end",
            out_of_order=self._out_of_order,
            phases=[result.to_json() for result in self._results.values()],
            **Pauses.of(self._counters).to_json(),
        )

    async def _take(self, batch: MessageBatch) -> int:
        """Check and count messages, echo some of them, and return the kind of the last one."""
        payloads, now_ns = batch.payloads(), time.monotonic_ns()
        times_ns, sequences, kinds = zip(*map(HEADER.unpack_from, payloads), strict=True)
        kind: int = kinds[-1]
        if kinds[0] == kind and kind in {FAST.kind, SLOW.kind}:
            self._take_all(kind, payloads, sequences, now_ns)
            latencies = self._result.latencies.all
            first = -sequences[0] % MESSAGES_PER_LATENCY
            latencies.extend(now_ns - each for each in times_ns[first::MESSAGES_PER_LATENCY])
            return kind
        return await self._take_each(batch, now_ns)

    def _take_all(
        self, kind: int, payloads: list[bytes], sequences: tuple[int, ...], now_ns: int
    ) -> None:
        """Check and count messages of one phase, all in one step."""
        result = self._result_of(kind)
        count, length = len(payloads), sum(map(len, payloads))
        wanted = tuple(range(self._received, self._received + count))
        # A message that is missing, doubled or out of order shows as a wrong sequence number.
        if sequences != wanted:
            self._out_of_order += sum(map(ne, sequences, wanted))
        self._received += count
        self._length += length
        result.first_ns = result.first_ns or now_ns
        result.last_ns = now_ns
        result.received += count
        result.length += length

    async def _take_each(self, batch: MessageBatch, now_ns: int) -> int:
        """Check, count and echo messages one by one."""
        kind = END
        for message in batch:
            sent_ns, sequence, kind = HEADER.unpack_from(message.data)
            result = self._result if kind == END else self._result_of(kind)
            # A message that is missing, doubled or out of order shows as a wrong sequence number.
            self._out_of_order += sequence != self._received
            self._received += 1
            self._length += len(message.data)
            if kind == END:
                await self._echoes.offer(message.data)
                break
            result.first_ns = result.first_ns or now_ns
            result.last_ns = now_ns
            result.received += 1
            result.length += len(message.data)
            if kind == ECHO.kind:
                await self._echoes.offer(message.data)
            elif sequence % MESSAGES_PER_LATENCY == 0:
                result.latencies.all.append(now_ns - sent_ns)
        return kind

    def _result_of(self, kind: int) -> ReceivedPhase:
        """Return the result of a phase; with its first message, its rates are counted from here."""
        result = self._results[kind]
        if result is not self._result:
            self._result = result
            self._sampler.restart()
        return result

    def _report(self) -> None:
        self._parent.report(
            "sample",
            phase=self._result.key,
            at_ns=time.monotonic_ns(),
            received=self._received,
            bytes=self._length,
            naks=counter_value(self._counters, SystemCounterId.NAK_MESSAGES_SENT),
            latency=self._result.latencies.take_recent(),
        )


async def main(parent: Parent) -> None:
    """Subscribe to the other process, and echo some messages."""
    async with Aeron.connect() as aeron:
        subscription = await aeron.add_subscription(f"aeron:udp?endpoint={LOOPBACK}", STREAM_ID)
        parent.report("ready", address=subscription.local_address)
        configuration = await parent.configuration()
        echoes = await aeron.add_exclusive_publication(
            f"aeron:udp?endpoint={configuration.peer}|term-length=64k", ECHO_STREAM_ID
        )
        subscriber = Subscriber(
            parent,
            subscription=subscription,
            echoes=echoes,
            counters=aeron.counters,
            interval_s=configuration.interval_s,
        )
        await subscriber.run()


if __name__ == "__main__":
    sys.exit(run_child(main))
