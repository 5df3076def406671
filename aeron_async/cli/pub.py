"""Command `aeron-async pub`: publishes lines of input, given texts, or generated messages."""

from __future__ import annotations

import asyncio
import sys
import time
from itertools import count as count_from
from typing import TYPE_CHECKING, Annotated, Final, Self, final

from cyclopts import Parameter

from aeron_async.cli.aeron_directories import connected
from aeron_async.cli.figures import format_per_second, format_throughput, per_second, plural
from aeron_async.cli.options import (
    ClientOptions,
    Count,
    Flag,
    MessageSize,
    Positive,
    Quiet,
    RecordingId,
    Stream,
)
from aeron_async.cli.output import complain, print_json, remark
from aeron_async.cli.pauses import Pauses, own_counters
from aeron_async.cli.runner import ExitCode, hush_pauses, run
from aeron_async.cli.stdio import BlockingCalls, read_lines
from aeron_async.client.publication import OfferOutcome
from aeron_async.clock import NS_PER_SECOND
from aeron_async.driver.core.context import DriverContext
from aeron_async.errors import AeronError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aeron_async.client.exclusive_publication import ExclusivePublication
    from aeron_async.counters import CountersReader

__all__ = ["Pace", "pub"]

DEFAULT_SIZE: Final = 32
FILLER: Final = b"abcdefghijklmnopqrstuvwxyz"
# Shorter pauses need no timer: event loops round to a millisecond.
SHORTEST_PAUSE_NS: Final = 1_000_000
# Messages missed because the loop slept too long are sent late, up to this debt; time without input
# adds none.
LONGEST_DEBT_NS: Final = 100_000_000
# How often to check whether the subscriber is connected; a user reads remarks no faster.
WATCH_INTERVAL_S: Final = 0.25
# Offers that find window space never yield to the event loop by themselves.
OFFERS_PER_TURN: Final = 256


def pub(
    channel: str,
    /,
    *,
    stream: Stream,
    message: Annotated[list[str] | None, Parameter(allow_leading_hyphen=True)] = None,
    count: Count | None = None,
    size: MessageSize | None = None,
    rate: Positive | None = None,
    timeout: Positive | None = None,
    extend: RecordingId | None = None,
    archive: str | None = None,
    json: Flag = False,
    quiet: Quiet = False,
    options: ClientOptions | None = None,
) -> int:
    """Publish messages, once a subscriber is connected.

    Args:
        channel: Such as "aeron:udp?endpoint=127.0.0.1:20121"; mind the quotes.
        stream: Stream id within the channel.
        message: Text to publish; may be given several times. Without it, and without --count and
            --size, each line of standard input is a message.
        count: How often to publish the given messages, or how many to generate.
        size: Length in bytes of generated messages; without --count there is no end to them.
        rate: Messages a second at most.
        timeout: Seconds to wait for the driver, for a subscriber, and later for window space,
            before giving up.
        extend: Begin where this recording has stopped, for `archive record --extend`; with
            --archive.
        archive: Directory or control channel of the archive that has it.
        json: Report as JSON, on standard output.
        quiet: Say nothing unless it fails.
        options: How to run.
    """
    if message and size is not None:
        text = "--size is the length of generated messages: leave it out with --message"
        raise ConfigurationError(text)
    if (extend is None) != (archive is None):
        text = "--extend and --archive go together: give the recording to extend, and its archive"
        raise ConfigurationError(text)
    source = Source(message=message, count=count, size=size)
    options = options or ClientOptions()
    report = PubReport(is_json=json, is_quiet=quiet)
    main = _pub(
        options.aeron_dir,
        channel,
        stream,
        source,
        rate=rate,
        timeout=timeout,
        report=report,
        extended=None if extend is None or archive is None else (archive, extend),
    )
    return run(main, options)


@final
class Source:
    """Source of the messages."""

    def __init__(self, *, message: list[str] | None, count: int | None, size: int | None) -> None:
        self._message = message
        self._count = count
        self._size = size

    @property
    def reads_lines(self) -> bool:
        """Whether each line of standard input is a message."""
        return not self._message and self._count is None and self._size is None

    def check(self, max_length: int) -> None:
        """Refuse messages that are known to be too long, before anything waits.

        Raises:
            ConfigurationError: A message is longer than the channel allows.
        """
        given = [len(text.encode("utf-8", "surrogateescape")) for text in self._message or []]
        longest = max([self._size or 0, *given])
        if longest > max_length:
            text = (
                f"a message of {longest} bytes is longer than the "
                f"{max_length} that this channel takes: raise term-length"
            )
            raise ConfigurationError(text)

    async def messages(self, *, max_length: int) -> AsyncIterator[bytes]:
        """Yield the messages; lines of standard input are read in another thread."""
        if self._message:
            given = [text.encode("utf-8", "surrogateescape") for text in self._message]
            for _ in range(self._count or 1):
                for data in given:
                    yield data
        elif not self.reads_lines:
            size = DEFAULT_SIZE if self._size is None else self._size
            filler = FILLER * (size // len(FILLER) + 1)
            numbers = count_from() if self._count is None else range(self._count)
            for number in numbers:
                yield (b"%d " % number + filler)[:size]
        else:
            calls = BlockingCalls()
            try:
                async for line in read_lines(calls, sys.stdin.fileno(), max_length=max_length):
                    yield line
            finally:
                calls.close()


@final
class Pace:
    """Spreads messages evenly over time; slightly late ones follow at once, to keep the rate."""

    def __init__(self, rate: float | None) -> None:
        self._interval_ns = 0 if rate is None else NS_PER_SECOND / rate
        self._due_ns = float(time.monotonic_ns())

    async def wait(self) -> None:
        """Wait until the next message is due."""
        if not self._interval_ns:
            return
        now_ns = time.monotonic_ns()
        self._due_ns = max(self._due_ns, now_ns - LONGEST_DEBT_NS)
        if self._due_ns - now_ns >= SHORTEST_PAUSE_NS:
            await asyncio.sleep((self._due_ns - now_ns) / NS_PER_SECOND)
        self._due_ns += self._interval_ns


@final
class PubReport:
    """Counts what was published, and reports it."""

    def __init__(self, *, is_json: bool, is_quiet: bool) -> None:
        self._is_json = is_json
        self._is_quiet = is_quiet
        self._started_ns = 0
        self.message_count = 0
        self.length = 0
        self.waited_count = 0
        self.own_counters: CountersReader | None = None

    def say(self, text: str) -> None:
        """Write a remark unless quiet."""
        if not self._is_quiet:
            remark(text)

    @property
    def is_started(self) -> bool:
        """Return whether there has been a subscriber."""
        return self._started_ns != 0

    def start(self) -> None:
        """Start measuring the time."""
        self._started_ns = time.monotonic_ns()

    def leave(self, publication: ExclusivePublication) -> None:
        """Report what was published so far, and that closing may take a while."""
        if self.is_started and not publication.is_closed:
            self.finish(publication)
            # The driver of another process sends what is left, and nobody waits for that.
            if self.message_count and self.own_counters is not None:
                limit_s = DriverContext.from_environment().close_linger_timeout_ns / NS_PER_SECOND
                self.say(f"closing: up to {limit_s:g} s for what is left; Ctrl-C again to stop")

    def finish(self, publication: ExclusivePublication) -> None:
        """Report what was published."""
        elapsed_ns = time.monotonic_ns() - self._started_ns
        pauses = Pauses.of(self.own_counters)
        rate = per_second(self.message_count, elapsed_ns)
        bytes_rate = per_second(self.length, elapsed_ns)
        if self._is_json:
            print_json(
                {
                    "channel": publication.channel,
                    "stream_id": publication.stream_id,
                    "session_id": publication.session_id,
                    "messages": self.message_count,
                    "bytes": self.length,
                    "position": publication.position,
                    "seconds": round(elapsed_ns / NS_PER_SECOND, 6),
                    "messages_per_second": round(rate, 1),
                    "back_pressured": self.waited_count,
                }
                | pauses.to_json()
            )
            return
        self.say(
            f"published {plural(self.message_count, 'message')}, "
            f"{plural(self.length, 'byte')} in {elapsed_ns / NS_PER_SECOND:.3f} s: "
            f"{format_per_second(rate)}, {format_throughput(bytes_rate)}; waited "
            f"{plural(self.waited_count, 'time')} for room{pauses}"
        )


@final
class ConnectionWatch:
    """Remarks on a subscriber that goes or comes back: `with ConnectionWatch(...)`."""

    def __init__(self, publication: ExclusivePublication, report: PubReport) -> None:
        self._publication = publication
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._was_connected = True

    def __enter__(self) -> Self:
        self._on_timer()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def look(self) -> None:
        """Remark on a change of the connection; a driver that is lost is no such change."""
        if self._publication.is_closed:
            return
        is_connected = self._publication.is_connected
        if is_connected != self._was_connected:
            self._was_connected = is_connected
            gone = "the subscriber has gone; waiting for another"
            self._report.say("connected" if is_connected else gone)

    def _on_timer(self) -> None:
        self.look()
        self._timer = self._loop.call_later(WATCH_INTERVAL_S, self._on_timer)


async def _pub(
    aeron_dir: str | None,
    channel: str,
    stream: int,
    source: Source,
    *,
    rate: float | None,
    timeout: float | None,
    report: PubReport,
    extended: tuple[str, int] | None,
) -> int:
    if extended is not None:
        channel = await continuing(channel, stream, *extended)
    async with connected(aeron_dir, timeout) as aeron:
        publication = await aeron.add_exclusive_publication(channel, stream)
        report.own_counters = own_counters(aeron, aeron_dir)
        report.say(
            f"publishing to {publication.channel}, stream {publication.stream_id}, session "
            f"{publication.session_id}"
        )
        try:
            await _publish(publication, source, rate=rate, timeout=timeout, report=report)
        except asyncio.CancelledError:
            report.leave(publication)
            raise
        except (AeronError, OSError) as error:
            # Closing may take a while, so report the error first.
            hush_pauses()
            complain(error)
            report.leave(publication)
            return ExitCode.FAILURE
        report.finish(publication)
    return ExitCode.SUCCESS


async def continuing(channel: str, stream: int, archive: str, recording_id: int) -> str:
    """Return a channel whose publication begins where a recording has stopped.

    Raises:
        ConfigurationError: The recording is of another stream.
    """
    from aeron_async.archive.recording_channels import extending_channel  # noqa: PLC0415 - few extend
    from aeron_async.cli.archive_where import described  # noqa: PLC0415 - as above

    descriptor = await described(archive, recording_id)
    if descriptor.stream_id != stream:
        text = (
            f"recording {recording_id} is of stream {descriptor.stream_id}: give that as --stream"
        )
        raise ConfigurationError(text)
    return str(extending_channel(descriptor, channel))


async def _publish(
    publication: ExclusivePublication,
    source: Source,
    *,
    rate: float | None,
    timeout: float | None,
    report: PubReport,
) -> None:
    """Publish everything, and wait until it has been sent."""
    source.check(publication.max_message_length)
    if not publication.is_connected:
        report.say("waiting for a subscriber")
    await publication.wait_connected(timeout)
    if source.reads_lines and sys.stdin.isatty():
        end = "Ctrl-Z and Enter end" if sys.platform == "win32" else "Ctrl-D ends"
        report.say(f"each line that you type is a message; {end}")
    report.start()
    # Created only now, because the time without a subscriber must not count as a debt.
    pace = Pace(rate)
    with ConnectionWatch(publication, report) as watch:
        async for data in source.messages(max_length=publication.max_message_length):
            await pace.wait()
            if isinstance(publication.try_offer(data), OfferOutcome):
                report.waited_count += 1
                await publication.offer(data, timeout=timeout)
                watch.look()
            report.message_count += 1
            report.length += len(data)
            if report.message_count % OFFERS_PER_TURN == 0:
                await asyncio.sleep(0)
        await publication.drain(timeout)
