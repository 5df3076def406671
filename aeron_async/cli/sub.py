"""Command `aeron-async sub`: prints the messages of a stream.

Invariant: the position of an image moves after its messages have been written. So a slow reader of
the output slows the publisher down, and nothing accumulates in between.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, final

from aeron_async.cli.aeron_directories import connected
from aeron_async.cli.figures import format_per_second, format_throughput, per_second, plural
from aeron_async.cli.options import ClientOptions, Count, Flag, Positive, Quiet, Stream
from aeron_async.cli.output import as_json, remark
from aeron_async.cli.pauses import Pauses, own_counters
from aeron_async.cli.runner import ExitCode, Watchdog, check_driver, run
from aeron_async.cli.stdio import BlockingCalls, write_all
from aeron_async.clock import NS_PER_SECOND
from aeron_async.errors import AeronTimeoutError
from aeron_async.text import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aeron_async.client.image import Image, Message
    from aeron_async.counters import CountersReader

__all__ = ["sub"]

BATCH_LIMIT: Final = 256
REMARKS_PER_SECOND: Final = 10
LONGEST_ESCAPE: Final = len(r"\U0010ffff")
MARGIN: Final = 64
"""In characters, so that no message is cut."""

Format = Literal["text", "hex", "json", "none"]
Formatter = Callable[["Message"], bytes]


def sub(
    channel: str,
    /,
    *,
    stream: Stream,
    format: Format = "text",  # noqa: A002 - it is the name of the option
    count: Count | None = None,
    timeout: Positive | None = None,
    quiet: Quiet = False,
    json: Flag = False,
    options: ClientOptions | None = None,
) -> int:
    """Print each message of a stream, until Ctrl-C.

    Args:
        channel: Such as "aeron:udp?endpoint=127.0.0.1:20121"; with port 0 the system chooses one.
        stream: Stream id within the channel.
        format: How a message is printed: as it is, one a line; in hexadecimal; as JSON; not at all.
        count: Stop after so many messages.
        timeout: Stop when no message has come for so many seconds, or no driver; a failure if any
            message is missing.
        quiet: Do not remark on sessions and counts.
        json: The same as --format json.
        options: How to run.
    """
    options = options or ClientOptions()
    main = _sub(
        options.aeron_dir,
        channel,
        stream,
        Printer("json" if json else format, is_quiet=quiet),
        count=count,
        timeout=timeout,
    )
    return run(main, options)


async def _sub(
    aeron_dir: str | None,
    channel: str,
    stream: int,
    printer: Printer,
    *,
    count: int | None,
    timeout: float | None,
) -> int:
    async with connected(aeron_dir, timeout) as aeron:
        subscription = await aeron.add_subscription(
            channel,
            stream,
            on_available_image=printer.on_available_image,
            on_unavailable_image=printer.on_unavailable_image,
        )
        printer.counters = own_counters(aeron, aeron_dir)
        printer.say(f"listening on {subscription.local_address or channel}, stream {stream}")
        calls = BlockingCalls()

        def silence() -> AeronTimeoutError:
            found = subscription._explain()
            message = f"no message on {channel} stream {stream} for {timeout} s: {found}"
            return AeronTimeoutError(message, why=found)

        try:
            async with Watchdog(timeout, silence) as watchdog:
                async for batch in subscription.batches(BATCH_LIMIT):
                    watchdog.mark()
                    wanted = batch if count is None else batch[: count - printer.message_count]
                    data = printer.take(wanted)
                    if data:
                        await calls.call(write_all, sys.stdout.fileno(), data)
                    watchdog.mark()
                    if printer.message_count == count:
                        break
                else:
                    check_driver(aeron)
        except AeronTimeoutError:
            if count is not None or not printer.message_count:
                raise
        finally:
            calls.close()
            printer.finish()
    return ExitCode.SUCCESS


@final
class FewRemarks:
    """Limits remarks caused by peers to ten a second, and counts the others.

    Args:
        say: Writes a remark.
        now_ns: Reads the time.
    """

    def __init__(
        self, say: Callable[[str], object], now_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._say = say
        self._now_ns = now_ns
        self._began_ns = now_ns()
        self._count = self._left_out = 0
        self._timer: asyncio.TimerHandle | None = None

    def say(self, text: str) -> None:
        """Write a remark, or count it; called in the event loop."""
        now_ns = self._now_ns()
        if now_ns >= self._began_ns + NS_PER_SECOND:
            self.finish()
            self._began_ns, self._count = now_ns, 0
        if self._count < REMARKS_PER_SECOND:
            self._count += 1
            self._say(text)
            return
        self._left_out += 1
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(1, self.finish)

    def finish(self) -> None:
        """Report how many remarks were dropped, if any."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._left_out:
            left_out, self._left_out = self._left_out, 0
            self._say(f"{plural(left_out, 'more remark')} on sessions that joined or left")


@final
class Printer:
    """Formats and counts messages, and remarks on sessions."""

    def __init__(self, name: Format, *, is_quiet: bool) -> None:
        self._format = formatters()[name]
        self._is_quiet = is_quiet
        self._first_ns = 0
        self._last_ns = 0
        self.message_count: int = 0
        self.length: int = 0
        self.counters: CountersReader | None = None
        self._few = FewRemarks(self.say)

    def name_source(self, *, session_id: int, stream_id: int) -> None:
        """Set the session and stream that JSON shows, in place of those of a replay."""
        if self._format is json_line:
            self._format = partial(json_line, session_id=session_id, stream_id=stream_id)

    def say(self, text: str) -> None:
        """Write a remark unless quiet."""
        if not self._is_quiet:
            remark(text)

    def take(self, messages: Sequence[Message]) -> bytes:
        """Count messages, and return their lines."""
        self._last_ns = time.monotonic_ns()
        self._first_ns = self._first_ns or self._last_ns
        self.message_count += len(messages)
        self.length += sum(len(message.data) for message in messages)
        return b"".join(map(self._format, messages))

    def finish(self) -> None:
        """Remark on everything received."""
        elapsed_ns = self._last_ns - self._first_ns
        text = f"received {plural(self.message_count, 'message')}, {plural(self.length, 'byte')}"
        if elapsed_ns:
            rate = per_second(self.message_count, elapsed_ns)
            text += f" in {elapsed_ns / NS_PER_SECOND:.3f} s: {format_per_second(rate)}, "
            text += format_throughput(per_second(self.length, elapsed_ns))
        self._few.finish()
        self.say(f"{text}{Pauses.of(self.counters)}")

    def on_available_image(self, image: Image) -> None:
        """Remark on a session that has joined."""
        self._few.say(
            f"session {image.session_id} from {image.source_identity} joined at position "
            f"{image.join_position}"
        )

    def on_unavailable_image(self, image: Image) -> None:
        """Remark on a session that has gone."""
        self._few.say(f"session {image.session_id} gone")


def formatters() -> Mapping[Format, Formatter]:
    """Return the function that formats a message, by the name of the format."""
    return {
        # A message may hold control characters that move a terminal's cursor, or worse.
        "text": printable_line if sys.stdout.isatty() else raw_line,
        "hex": lambda message: message.data.hex().encode() + b"\n",
        "json": json_line,
        "none": lambda _message: b"",
    }


def raw_line(message: Message) -> bytes:
    """Return the message as it is, and a newline."""
    return message.data + b"\n"


def printable_line(message: Message) -> bytes:
    """Return the whole message with invisible characters escaped, and a newline."""
    data = message.data
    return printable(data, LONGEST_ESCAPE * (len(data) + 1) + MARGIN).encode() + b"\n"


def json_line(
    message: Message, *, session_id: int | None = None, stream_id: int | None = None
) -> bytes:
    """Return the message and its source, as one line of JSON.

    The payload is `text` if it is UTF-8, and `hex` otherwise.
    """
    line: dict[str, object] = {
        "session_id": message.session_id if session_id is None else session_id,
        "stream_id": message.stream_id if stream_id is None else stream_id,
        "position": message.position,
        "reserved_value": message.reserved_value,
        "length": len(message.data),
    }
    try:
        line["text"] = message.data.decode()
    except UnicodeDecodeError:
        line["hex"] = message.data.hex()
    return as_json(line).encode() + b"\n"
