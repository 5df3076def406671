"""Command `aeron-async ping`: the round-trip time of messages.

The first eight bytes of a ping are the time when it was due, in nanoseconds, little endian. A pong,
ours or one of Aeron's own samples, echoes it unchanged.

Source: Aeron samples `cping.c`, `Ping.java`, `SampleConfiguration`.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, Annotated, Final, final

from cyclopts import Parameter, validators

from aeron_async.cli.aeron_directories import connected
from aeron_async.cli.figures import LatencySummary, format_count, plural
from aeron_async.cli.options import ClientOptions, Flag, Int32, MessageSize, Positive, Quiet
from aeron_async.cli.output import make_console, print_json, remark
from aeron_async.cli.pauses import Pauses, own_counters
from aeron_async.cli.runner import ExitCode, Watchdog, advising, hush_pauses, run, together
from aeron_async.clock import NS_PER_SECOND
from aeron_async.errors import AeronTimeoutError, ConfigurationError

if TYPE_CHECKING:
    from aeron_async.client.exclusive_publication import ExclusivePublication
    from aeron_async.client.subscription import Subscription

__all__ = ["PING_CHANNEL", "PING_STREAM_ID", "PONG_CHANNEL", "PONG_STREAM_ID", "Pinger", "ping"]

PING_CHANNEL: Final = "aeron:udp?endpoint=localhost:20123"
PONG_CHANNEL: Final = "aeron:udp?endpoint=localhost:20124"
PING_STREAM_ID: Final = 1002
PONG_STREAM_ID: Final = 1003

START_PONG: Final = "start `aeron-async pong`, with the same channels and stream ids, if none runs"

TIMESTAMP: Final = Struct("<q")
# Event loops round a pause to a millisecond, which would count as latency. The rest of a pause is
# spent in turns of the event loop.
SPIN_NS: Final = 3_000_000
# Every latency is kept, eight bytes each.
COUNT_MAX: Final = 50_000_000

PingCount = Annotated[int, Parameter(validator=validators.Number(gte=1, lte=COUNT_MAX))]
WarmupCount = Annotated[int, Parameter(validator=validators.Number(gte=0, lte=COUNT_MAX))]


def ping(
    *,
    ping_channel: str = PING_CHANNEL,
    ping_stream: Int32 = PING_STREAM_ID,
    pong_channel: str = PONG_CHANNEL,
    pong_stream: Int32 = PONG_STREAM_ID,
    count: PingCount = 10_000,
    size: MessageSize = 32,
    warmup: WarmupCount = 1_000,
    rate: Positive | None = None,
    timeout: Positive = 10.0,
    json: Flag = False,
    quiet: Quiet = False,
    options: ClientOptions | None = None,
) -> int:
    """Measure round trips to a pong.

    Args:
        ping_channel: Where pings go.
        ping_stream: Stream id of pings.
        pong_channel: Where pongs come back.
        pong_stream: Stream id of pongs.
        count: Round trips to measure.
        size: Length of a ping in bytes, at least 8 for its time.
        warmup: Round trips before those that are measured.
        rate: Pings a second, each measured from when it was due; without, the next ping follows
            the last pong.
        timeout: Seconds to wait for the driver, for the pong to be there, and for any answer.
        json: Report as JSON.
        quiet: Do not remark on progress.
        options: How to run.
    """
    if size < TIMESTAMP.size:
        message = f"--size {size} must be at least {TIMESTAMP.size}: a ping begins with its time"
        raise ConfigurationError(message)
    options = options or ClientOptions()
    main = _ping(
        options.aeron_dir,
        (ping_channel, ping_stream),
        (pong_channel, pong_stream),
        counts=(warmup, count),
        size=size,
        rate=rate,
        timeout=timeout,
        report=PingReport(is_json=json, is_quiet=quiet),
    )
    return run(main, options)


async def _ping(
    aeron_dir: str | None,
    there: tuple[str, int],
    back: tuple[str, int],
    *,
    counts: tuple[int, int],
    size: int,
    rate: float | None,
    timeout: float,
    report: PingReport,
) -> int:
    async with connected(aeron_dir, timeout) as aeron:
        subscription = await aeron.add_subscription(*back)
        publication = await aeron.add_exclusive_publication(*there)
        report.say(f"pinging {there[0]} stream {there[1]}, listening on {back[0]} stream {back[1]}")
        if size > publication.max_message_length:
            text = (
                f"a ping of {size} bytes is longer than the {publication.max_message_length} that "
                f"{there[0]} takes: raise term-length"
            )
            raise ConfigurationError(text)
        try:
            with advising(START_PONG):
                await publication.wait_connected(timeout)
                await subscription.wait_connected(timeout)
        except AeronTimeoutError as error:
            hush_pauses()
            text = f"{error}; {START_PONG}"
            raise AeronTimeoutError(text, why=error.why) from None
        pinger = Pinger(publication, subscription, size=size, timeout=timeout)
        warmup, count = counts
        report.say(f"{plural(warmup, 'round trip')} to warm up, {format_count(count)} to measure")
        await pinger.measure(warmup, rate=rate)
        started_ns = time.monotonic_ns()
        latencies = await pinger.measure(count, rate=rate)
        elapsed_ns = time.monotonic_ns() - started_ns
        report.finish(
            latencies,
            elapsed_ns,
            size=size,
            foreign_count=pinger.foreign_count,
            pauses=Pauses.of(own_counters(aeron, aeron_dir)),
        )
    return ExitCode.SUCCESS


@final
class Pinger:
    """Sends pings and measures their round trips.

    Attributes:
        foreign_count: Messages received that were no pong to a ping of this process.
    """

    def __init__(
        self,
        publication: ExclusivePublication,
        subscription: Subscription,
        *,
        size: int,
        timeout: float,
    ) -> None:
        self._publication = publication
        self._subscription = subscription
        self._message = bytearray(size)
        self._timeout = timeout
        self._pending: deque[int] = deque()
        self.foreign_count: int = 0

    async def measure(self, count: int, *, rate: float | None) -> array[int]:
        """Return the round trips of so many pings, in nanoseconds and in order.

        Args:
            count: Pings to send.
            rate: Pings per second. A ping that leaves late counts from when it was due, so that one
                slow answer does not hide the pings it delayed. None sends the next ping when the
                last pong has arrived.

        Raises:
            AeronTimeoutError: No pong came within the timeout.
        """
        latencies: array[int] = array("q")
        async with Watchdog(self._timeout, self._silence) as watchdog:
            if rate is None:
                for _ in range(count):
                    await self._send(time.monotonic_ns())
                    latencies.append(await self._receive())
                    watchdog.mark()
            else:
                await together(
                    self._send_at(rate, count), self._receive_all(count, latencies, watchdog)
                )
        return latencies

    def _silence(self) -> AeronTimeoutError:
        waiting = self._publication if not self._publication.is_connected else self._subscription
        found = waiting._explain()
        back = f"{self._subscription.channel} stream {self._subscription.stream_id}"
        hush_pauses()
        message = f"no pong from {back} for {self._timeout} s: is it still there? {found}"
        return AeronTimeoutError(message, why=found)

    async def _send(self, due_ns: int) -> None:
        TIMESTAMP.pack_into(self._message, 0, due_ns)
        self._pending.append(due_ns)
        await self._publication.offer(self._message)

    async def _receive(self) -> int:
        """Return the round trip of the oldest pending ping; count other messages."""
        async for message in self._subscription:
            now_ns = time.monotonic_ns()
            if len(message.data) == len(self._message):
                due_ns: int = TIMESTAMP.unpack_from(message.data)[0]
                if self._pending and due_ns == self._pending[0]:
                    self._pending.popleft()
                    return now_ns - due_ns
            self.foreign_count += 1
        message_text = f"the subscription on {self._subscription.channel} was closed"
        raise AeronTimeoutError(message_text)

    async def _send_at(self, rate: float, count: int) -> None:
        interval_ns = NS_PER_SECOND / rate
        started_ns = time.monotonic_ns()
        for number in range(count):
            due_ns = started_ns + int(number * interval_ns)
            await sleep_until(due_ns)
            await self._send(due_ns)

    async def _receive_all(self, count: int, latencies: array[int], watchdog: Watchdog) -> None:
        for _ in range(count):
            latencies.append(await self._receive())
            watchdog.mark()


async def sleep_until(due_ns: int) -> None:
    """Wait for a time of the monotonic clock, more exactly than the event loop's timers."""
    pause_ns = due_ns - time.monotonic_ns()
    if pause_ns > 2 * SPIN_NS:
        await asyncio.sleep((pause_ns - SPIN_NS) / NS_PER_SECOND)
    while time.monotonic_ns() < due_ns:  # noqa: ASYNC110 - time sets no event
        await asyncio.sleep(0)


@final
class PingReport:
    """Prints the measurement, as a table or as JSON."""

    def __init__(self, *, is_json: bool, is_quiet: bool) -> None:
        self._is_json = is_json
        self._is_quiet = is_quiet

    def say(self, text: str) -> None:
        """Write a remark unless quiet."""
        if not self._is_quiet:
            remark(text)

    def finish(
        self,
        latencies: array[int],
        elapsed_ns: int,
        *,
        size: int,
        foreign_count: int,
        pauses: Pauses,
    ) -> None:
        """Print the percentiles."""
        summary = LatencySummary.of(latencies)
        assert summary is not None, "at least one ping is sent"
        rate = summary.count * NS_PER_SECOND / elapsed_ns
        if foreign_count:
            self.say(f"{plural(foreign_count, 'message')} came back that did not leave here")
        if self._is_json:
            print_json(
                summary.to_json()
                | {
                    "size": size,
                    "seconds": round(elapsed_ns / NS_PER_SECOND, 6),
                    "round_trips_per_second": round(rate, 1),
                    "foreign": foreign_count,
                }
                | pauses.to_json()
            )
            return
        from rich.table import Table  # noqa: PLC0415 - only this branch draws a table

        table = Table(
            caption=f"{plural(summary.count, 'round trip')} of {size} bytes, {rate:,.0f}/s{pauses}",
            caption_justify="left",
            min_width=46,
        )
        table.add_column("percentile", justify="right")
        table.add_column("μs", justify="right")
        for name, value_ns in summary.percentiles.items():
            table.add_row(name, f"{value_ns / 1_000:,.1f}")
        table.add_section()
        table.add_row("max", f"{summary.max_ns / 1_000:,.1f}")
        table.add_row("mean", f"{summary.mean_ns / 1_000:,.1f}")
        make_console().print(table)
