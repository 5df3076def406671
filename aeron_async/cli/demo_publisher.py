"""Publisher process of the demonstration: `python -m aeron_async.cli.demo_publisher`."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final, final

import attrs

from aeron_async.cli.demo_child import (
    ECHO,
    END,
    HEADER,
    LOOPBACK,
    PHASES,
    Latencies,
    Phase,
    Sampler,
    run_child,
)
from aeron_async.cli.pauses import Pauses
from aeron_async.client.aeron import Aeron
from aeron_async.clock import NS_PER_SECOND
from aeron_async.driver.core.system_counters import SYSTEM_COUNTER_TYPE_ID, SystemCounterId
from aeron_async.logbuffer.position import framed_length

if TYPE_CHECKING:
    from aeron_async.cli.demo_child import Configuration, Parent
    from aeron_async.client.exclusive_publication import ExclusivePublication
    from aeron_async.client.subscription import Subscription
    from aeron_async.counters import CountersReader

__all__ = ["CHANNEL_OPTIONS", "ECHO_STREAM_ID", "STREAM_ID", "counter_value"]

STREAM_ID: Final = 1001
ECHO_STREAM_ID: Final = 1002
# Short terms, so that the log holds only milliseconds of messages and visibly fills up.
CHANNEL_OPTIONS: Final = "term-length=512k"
MESSAGES_PER_LIST: Final = 128
LIST_LENGTH: Final = 64 * 1024
"""Most bytes in a list, unless a single message is longer."""


@final
@attrs.define
class PublishedPhase:
    """What was published in one phase."""

    phase: Phase
    sent: int = 0
    elapsed_ns: int = 0
    waits: int = 0
    waited_ns: int = 0
    retransmits: int = 0
    round_trips: Latencies = attrs.Factory(Latencies)

    def to_json(self) -> dict[str, object]:
        """Return the result as a JSON object."""
        return {
            "phase": self.phase.key,
            "sent": self.sent,
            "seconds": self.elapsed_ns / NS_PER_SECOND,
            "waits": self.waits,
            "waited_seconds": self.waited_ns / NS_PER_SECOND,
            "retransmits": self.retransmits,
            "round_trip": self.round_trips.summary(),
        }


@final
class Publisher:
    """Publishes the messages of each phase, and reports."""

    def __init__(
        self,
        parent: Parent,
        configuration: Configuration,
        *,
        publication: ExclusivePublication,
        echoes: Subscription,
        counters: CountersReader,
    ) -> None:
        self._parent = parent
        self._configuration = configuration
        self._publication = publication
        self._echoes = echoes
        self._counters = counters
        self._message = bytearray(configuration.size)
        self._sequence = 0
        self._result = PublishedPhase(PHASES[0])
        self._results: list[PublishedPhase] = []
        self._phase = PHASES[0]
        self._waiting_since_ns: int | None = None
        self._sampler = Sampler(configuration.interval_s, self._report)

    async def run(self) -> None:
        """Run all phases, and end when everything has arrived."""
        try:
            for phase in PHASES:
                await self._show(phase)
            await self._echo(END)
        finally:
            self._sampler.stop()
        self._parent.report(
            "end",
            phases=[result.to_json() for result in self._results],
            **Pauses.of(self._counters).to_json(),
        )

    async def _show(self, phase: Phase) -> None:
        result = self._result = PublishedPhase(phase)
        retransmits = self._retransmits()
        if phase is ECHO:
            # Messages of the phase before that are still in the log would count as latency of this
            # one.
            await self._echo(phase.kind)
        # Rates of this phase are counted from here.
        self._phase = phase
        self._sampler.restart()
        started_ns = time.monotonic_ns()
        end_ns = started_ns + int(self._configuration.duration_s * phase.share * NS_PER_SECOND)
        if phase is ECHO:
            await self._exchange_until(end_ns)
        else:
            await self._publish_until(end_ns, phase.kind)
        result.elapsed_ns = time.monotonic_ns() - started_ns
        result.retransmits = self._retransmits() - retransmits
        self._results.append(result)

    async def _publish_until(self, end_ns: int, kind: int) -> None:
        """Publish lists of messages without a pause; only back pressure delays it."""
        publication, result, stamp = self._publication, self._result, HEADER.pack
        padding = bytes(self._configuration.size - HEADER.size)
        count = max(1, min(MESSAGES_PER_LIST, LIST_LENGTH // self._configuration.size))
        length = count * framed_length(
            self._configuration.size, max_payload_length=publication.max_payload_length
        )
        while (now_ns := time.monotonic_ns()) < end_ns:
            end = self._sequence + count
            messages = [stamp(now_ns, each, kind) + padding for each in range(self._sequence, end)]
            self._sequence = end
            result.sent += count
            if publication.available_window >= length:
                await publication.offer_many(messages)
            else:
                await self._wait_for_room(messages)

    async def _wait_for_room(self, messages: list[bytes]) -> None:
        started_ns = self._waiting_since_ns = time.monotonic_ns()
        self._result.waits += 1
        await self._publication.offer_many(messages)
        self._result.waited_ns += time.monotonic_ns() - started_ns
        self._waiting_since_ns = None

    async def _exchange_until(self, end_ns: int) -> None:
        """Publish one message at a time: the next one when the last has come back."""
        round_trips = self._result.round_trips.all
        now_ns = time.monotonic_ns()
        while now_ns < end_ns:
            await self._echo(ECHO.kind)
            after_ns = time.monotonic_ns()
            round_trips.append(after_ns - now_ns)
            now_ns = after_ns

    async def _echo(self, kind: int) -> None:
        self._stamp(kind)
        await self._publication.offer(self._message)
        await anext(self._echoes)

    def _stamp(self, kind: int) -> None:
        HEADER.pack_into(self._message, 0, time.monotonic_ns(), self._sequence, kind)
        self._sequence += 1
        self._result.sent += kind != END

    def _report(self) -> None:
        result, now_ns = self._result, time.monotonic_ns()
        waited_ns = result.waited_ns
        if self._waiting_since_ns is not None:
            waited_ns += now_ns - self._waiting_since_ns
        self._parent.report(
            "sample",
            phase=self._phase.key,
            at_ns=now_ns,
            sent=self._sequence,
            waits=sum(earlier.waits for earlier in self._results) + result.waits,
            waited_ns=sum(earlier.waited_ns for earlier in self._results) + waited_ns,
            room=max(0, self._publication.available_window),
            room_limit=self._publication.term_length // 2,
            retransmits=self._retransmits(),
            latency=result.round_trips.take_recent(),
        )

    def _retransmits(self) -> int:
        return counter_value(self._counters, SystemCounterId.RETRANSMITS_SENT)


def counter_value(counters: CountersReader, counter_id: SystemCounterId) -> int:
    """Return the value of one of the driver's own counters."""
    record = counters.find(type_id=SYSTEM_COUNTER_TYPE_ID, registration_id=counter_id)
    return 0 if record is None else record.value


async def main(parent: Parent) -> None:
    """Publish to the other process, which echoes some messages."""
    async with Aeron.connect() as aeron:
        echoes = await aeron.add_subscription(f"aeron:udp?endpoint={LOOPBACK}", ECHO_STREAM_ID)
        parent.report("ready", address=echoes.local_address)
        configuration = await parent.configuration()
        publication = await aeron.add_exclusive_publication(
            f"aeron:udp?endpoint={configuration.peer}|{CHANNEL_OPTIONS}", STREAM_ID
        )
        await publication.wait_connected()
        await echoes.wait_connected()
        await Publisher(
            parent,
            configuration,
            publication=publication,
            echoes=echoes,
            counters=aeron.counters,
        ).run()


if __name__ == "__main__":
    sys.exit(run_child(main))
