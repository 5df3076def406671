"""Runner of a command: event loop, signals and log, from a coroutine to an exit code."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import contextmanager, suppress
from enum import IntEnum
from importlib.util import find_spec
from typing import IO, TYPE_CHECKING, Any, Final, Self, final

from aeron_async.errors import ConfigurationError

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Callable, Coroutine, Iterator, Mapping, MutableMapping
    from types import FrameType, TracebackType

    from aeron_async.cli.options import RunOptions
    from aeron_async.client.aeron import Aeron

__all__ = [
    "ExitCode",
    "TerminatedError",
    "Watchdog",
    "advising",
    "check_driver",
    "hush_pauses",
    "name_remedy",
    "run",
    "together",
    "why_ended",
]


REMEDIES: Final[Mapping[str, str]] = {
    "driver_closed_before_drained": (
        "let the subscriber keep up, or raise AERON_ASYNC_CLOSE_LINGER_TIMEOUT"
    ),
    "event_loop_lagged": "let this machine do less at once",
}
"""What the user of a command can do, by log event."""
DIRECTORY_REMEDY: Final = (
    "--aeron-dir lets this command use the driver that runs there; without it, the command runs a "
    "driver of its own"
)
"""What the user of a command can do about the variable that only `aeron-async driver` reads."""
LOCAL_REMEDY: Final = (
    "if another process publishes over aeron:udp, record that channel, without aeron-spy: and "
    "--local, or a client of this archive asks for SourceLocation.REMOTE"
)
"""Remedy for a recording that waits for a publication of its own driver."""
PAUSE: Final = "event_loop_lagged"
EXIT_TIMEOUT_S: Final = 1.0
"""How long a process may take to end after it has closed its output."""
HUSHED: Final[set[str]] = set()
"""Log events that are suppressed from now on in this run."""
ADVICE: Final[list[str]] = []
"""Texts that this command adds to remarks about long waits."""
WORDED: Final = frozenset({"remedy", "error", "reason"})
"""Fields of log events that name settings."""


@final
class ExitCode(IntEnum):
    """How a command ended, for the shell."""

    SUCCESS = 0
    FAILURE = 1
    BAD_USAGE = 2
    INTERRUPTED = 130
    TERMINATED = 143


class TerminatedError(Exception):
    """The process received SIGTERM, and everything has been closed."""


def run(main: Coroutine[object, object, int], options: RunOptions) -> int:
    """Run a command on the chosen event loop, and return its exit code.

    Ctrl-C and SIGTERM cancel the command, so that it closes what it has opened; a second Ctrl-C
    does not wait for that.

    Raises:
        ConfigurationError: uvloop was chosen, and is not installed.
        KeyboardInterrupt: Ctrl-C, after closing.
        TerminatedError: SIGTERM, after closing.
    """
    try:
        factory = loop_factory(options.loop)
        configure_logs(is_verbose=options.verbose)
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(_until_terminated(main))
    finally:
        main.close()


def loop_factory(name: str | None) -> Callable[[], asyncio.AbstractEventLoop]:
    """Return a factory of event loops; None selects uvloop if it is installed.

    Raises:
        ConfigurationError: uvloop was chosen, and is not installed.
    """
    is_installed = find_spec("uvloop") is not None
    if name == "asyncio" or (name is None and not is_installed):
        return asyncio.new_event_loop
    if not is_installed:
        message = "--loop uvloop needs uvloop, which is not installed: pip install uvloop"
        raise ConfigurationError(message)
    import uvloop  # noqa: PLC0415 - it is optional

    return uvloop.new_event_loop


def configure_logs(*, is_verbose: bool) -> None:
    """Write log lines to standard error: warnings and worse, or everything."""
    import logging  # noqa: PLC0415 - only commands with a driver need it
    import os  # noqa: PLC0415 - as above

    import structlog  # noqa: PLC0415 - as above

    from aeron_async.cli.output import TOLD  # noqa: PLC0415 - as above

    HUSHED.clear()
    ADVICE.clear()
    TOLD.clear()
    has_colour = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    structlog.configure(
        processors=[
            _say_waits_plainly,
            _name_remedies_of_the_command_line,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S.%f", utc=False),
            structlog.dev.ConsoleRenderer(colors=has_colour),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.DEBUG if is_verbose else logging.WARNING
        ),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def _say_waits_plainly(
    _logger: object, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Write a plain remark instead of an event about a long wait.

    Raises:
        DropEvent: The event was about a long wait.
    """
    import structlog  # noqa: PLC0415 - most commands log nothing

    from aeron_async.cli.output import TOLD, remark, rename_settings_for_cli  # noqa: PLC0415 - as above

    if event["event"] == "wait_lasted_long":
        TOLD.add((event.get("cause", ""), event["why"]))
        what, why = "still waiting", event["why"]
    elif event["event"] == "recording_waits":
        is_local = "SourceLocation" in event["remedy"]
        remedy = LOCAL_REMEDY if is_local else event["remedy"]
        what, why = "no recording yet", f"{event['reason']}; {remedy}"
    else:
        return event
    seconds = round(event["seconds"], 1)
    remark(f"{what} after {seconds:g} s: {'; '.join((rename_settings_for_cli(why), *ADVICE))}")
    raise structlog.DropEvent


def hush_pauses() -> None:
    """Stop logging pauses of the event loop in this run.

    The results have been shown, or the command is about to end; a pause for its last imports and
    writes delays nothing.
    """
    HUSHED.add(PAUSE)


@contextmanager
def advising(text: str) -> Iterator[None]:
    """Add a text to remarks about long waits within the block."""
    ADVICE.append(text)
    try:
        yield
    finally:
        ADVICE.remove(text)


def name_remedy(
    _logger: object, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Replace the remedy of an event where a command has another one."""
    remedy = REMEDIES.get(event["event"])
    if remedy is not None and "remedy" in event:
        event["remedy"] = remedy
    return event


def check_driver(aeron: Aeron) -> None:
    """Refuse to end as a success where the media driver has ended the messages.

    Raises:
        ClosedError: The driver was closed, and the client with it.
    """
    _ = aeron.client_id


def _name_remedies_of_the_command_line(
    _logger: object, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Replace remedies and settings of the Python API by those of the command line."""
    from aeron_async.cli.output import rename_settings_for_cli  # noqa: PLC0415 - most commands log nothing

    if event["event"] in HUSHED:
        import structlog  # noqa: PLC0415 - structlog called this function

        raise structlog.DropEvent
    name_remedy(_logger, _method, event)
    if event.get("variable") == "AERON_DIR":
        event["remedy"] = DIRECTORY_REMEDY
    for key in WORDED & event.keys():
        if isinstance(event[key], str):
            event[key] = rename_settings_for_cli(event[key])
    return event


async def _until_terminated(main: Coroutine[object, object, int]) -> int:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    is_terminated = False

    def terminate() -> None:
        nonlocal is_terminated
        is_terminated = True
        task.cancel()

    loop.add_signal_handler(signal.SIGTERM, terminate)
    try:
        with _own_line_after_interrupt():
            return await main
    except asyncio.CancelledError:
        if is_terminated:
            raise TerminatedError from None
        raise
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


@contextmanager
def _own_line_after_interrupt() -> Iterator[None]:
    """End the line on which the terminal shows `^C`, so that what follows has a line of its own."""
    before = signal.getsignal(signal.SIGINT)
    # The loop's runner has a handler, but outside of the main thread.
    if not sys.stderr.isatty() or not callable(before):
        yield
        return

    from aeron_async.cli.output import remark  # noqa: PLC0415 - as above

    def interrupt(number: int, frame: FrameType | None) -> None:
        remark("")
        before(number, frame)

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


async def together(*coroutines: Coroutine[object, object, object]) -> None:
    """Run coroutines concurrently until all have ended; the first error ends the others.

    The error is raised as it is and not in a group, because a user reads it.
    """
    try:
        async with asyncio.TaskGroup() as group:
            for coroutine in coroutines:
                group.create_task(coroutine)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def why_ended(name: str, process: Process, complaints: IO[bytes]) -> str:
    """Say of a process that has closed its output how it ended, or else its last words.

    Args:
        name: What to call it.
        process: The process.
        complaints: The file that is its standard error.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(EXIT_TIMEOUT_S):
            await process.wait()
    if process.returncode is not None and process.returncode < 0:
        number = -process.returncode
        which = (
            signal.Signals(number).name if number in list(signal.Signals) else f"signal {number}"
        )
        return f"{name} ended early: it was killed by {which}"
    complaints.seek(0)
    said = complaints.read().decode("utf-8", "replace").splitlines()
    last = next((text for text in reversed(said) if text.strip()), "it said nothing")
    return f"{name} ended early: {last.strip()}"


@final
class Watchdog:
    """Ends a block if no progress was marked for too long: `async with Watchdog(5, ...)`.

    A timer for each message would cost more than the message; this timer is rescheduled only when
    it fires.

    Args:
        timeout: Seconds between two marks at most; None for no limit.
        error: Raised after the timeout; or a function that makes it.
    """

    def __init__(self, timeout: float | None, error: Exception | Callable[[], Exception]) -> None:
        self._timeout = timeout
        self._error = error
        self._loop = asyncio.get_running_loop()
        self._scope = asyncio.timeout(None)
        self._timer: asyncio.TimerHandle | None = None
        self._marked_at = self._loop.time()

    def mark(self) -> None:
        """Mark progress."""
        self._marked_at = self._loop.time()

    async def __aenter__(self) -> Self:
        await self._scope.__aenter__()
        self._on_timer()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        try:
            await self._scope.__aexit__(exc_type, exc, traceback)
        except TimeoutError:
            error = self._error
            raise (error if isinstance(error, Exception) else error()) from None

    def _on_timer(self) -> None:
        if self._timeout is None:
            return
        deadline = self._marked_at + self._timeout
        if deadline > self._loop.time():
            self._timer = self._loop.call_at(deadline, self._on_timer)
        else:
            self._scope.reschedule(deadline)
