"""Command `aeron-async driver`: a media driver for the clients of this machine.

Programs that start a driver wait until it serves, so this module imports neither the other commands
nor what they need, and a parser only if there are options.

Invariant: nothing is written to standard error but the one error that ends the command. Log lines
are written only if an option asks for them. At a terminal, a line for each `-D` that means nothing
comes before.

Source: Aeron `aeronmd.c`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NoReturn, TextIO, final

import attrs

from aeron_async.aeron_directory import lives
from aeron_async.cli.driver_settings import configure, warn_of_misspelt
from aeron_async.cli.output import complain, discard_output, remark
from aeron_async.cli.runner import ExitCode, loop_factory, name_remedy
from aeron_async.driver.media_driver import MediaDriver
from aeron_async.errors import AeronError, DriverError
from aeron_async.health import SystemdNotifier
from aeron_async.tasks import TaskOwner

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Iterator, Sequence

    from aeron_async.driver.core.context import DriverContext

__all__ = ["main"]

LEVELS: Final = ("debug", "info", "warning", "error")
PID_DIGITS_MAX: Final = 9
ENDING_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@attrs.frozen(kw_only=True)
class DriverOptions:
    """What the command line says."""

    files: Sequence[str] = ()
    define: Sequence[str] = ()
    directory: str | None = None
    idle_strategy: str | None = None
    pidfile: str | None = None
    loop: Literal["asyncio", "uvloop"] | None = None
    print_config: bool = False
    log_level: str | None = None
    log_file: str | None = None
    log_json: bool = False


def main(arguments: Sequence[str]) -> int:
    """Run a driver until it is told to end, and return the exit code.

    The exit code is 0 after SIGINT, SIGTERM or the command of a client that ends the driver; 1 if
    the driver cannot start or fails; 2 for bad usage.

    Args:
        arguments: What follows `driver` on the command line.
    """
    try:
        options = DriverOptions()
        if arguments:
            options = DriverOptions(**vars(parser().parse_args(arguments)))
        check_files(options.files)
        configuration = configure(
            directory=options.directory,
            idle_strategy=options.idle_strategy,
            defines=options.define,
            files=options.files,
        )
        if options.print_config or configuration.is_printed:
            sys.stdout.writelines(f"{line}\n" for line in configuration.lines())
            sys.stdout.flush()
        if options.print_config:
            with logs(attrs.evolve(options, log_level=options.log_level or "warning")):
                warn_of_misspelt(configuration)
            return ExitCode.SUCCESS
        factory = loop_factory(options.loop)
        with (
            logs(options),
            pidfile(options.pidfile),
            asyncio.Runner(loop_factory=factory) as runner,
        ):
            warn_of_misspelt(configuration)
            if not writes_logs(options) and sys.stderr.isatty():
                for name, remedy in configuration.unknown.items():
                    remark(f"warning: -D {name!r}: {remedy}")
            runner.run(serve(configuration.context, SystemdNotifier()))
    except UsageError as error:
        complain(f"{error} (see aeron-async driver --help)")
        return ExitCode.BAD_USAGE
    except BrokenPipeError:
        discard_output()
        return ExitCode.SUCCESS
    except (AeronError, OSError) as error:
        complain(_described(error))
        return ExitCode.FAILURE
    return ExitCode.SUCCESS


async def serve(context: DriverContext, notifier: SystemdNotifier) -> None:
    """Run a driver until a signal or a client ends it.

    The first signal closes the driver in order, and a second one at once.

    Raises:
        AeronError: The driver cannot start, or has failed.
    """
    loop = asyncio.get_running_loop()
    signals: asyncio.Queue[None] = asyncio.Queue()
    for number in ENDING_SIGNALS:
        loop.add_signal_handler(number, signals.put_nowait, None)
    driver = MediaDriver.launch(context)
    await driver.start()
    notifier.ready()
    try:
        async with TaskOwner() as tasks:
            tasks.start(_end_on_signals(driver, signals, notifier, tasks), "aeron-signals")
            await driver.wait_closed()
    finally:
        notifier.close()
        for number in ENDING_SIGNALS:
            loop.remove_signal_handler(number)


async def _end_on_signals(
    driver: MediaDriver, signals: asyncio.Queue[None], notifier: SystemdNotifier, tasks: TaskOwner
) -> None:
    await signals.get()
    notifier.stopping()
    tasks.start(driver.aclose(), "aeron-close")
    await signals.get()
    await driver.abort()


# The command line.


class UsageError(Exception):
    """The command line cannot be understood."""


def check_files(files: Sequence[str]) -> None:
    """Refuse a command that is taken for a properties file because it does not come first.

    Raises:
        UsageError: There is one.
    """
    if "ping" in files and not Path("ping").exists():
        message = "ping must follow driver at once: aeron-async driver ping"
        raise UsageError(message)


def parser() -> ArgumentParser:
    """Return the parser of the command line."""
    from argparse import SUPPRESS, ArgumentParser, RawDescriptionHelpFormatter  # noqa: PLC0415 - most starts have no options
    from importlib.metadata import version  # noqa: PLC0415 - as above

    class Parser(ArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise UsageError(message)

    found = Parser(
        prog="aeron-async driver",
        description="Run a media driver for the clients of this machine, ours and official ones.",
        epilog="Settings are those of aeronmd: AERON_* variables, then -D, then properties files;\n"
        "later ones win. `aeron-async driver ping` says whether a driver is active.",
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
        argument_default=SUPPRESS,
    )
    add = found.add_argument
    add("files", nargs="*", metavar="FILE", help="properties file: a line is name=value")
    add("-D", dest="define", action="append", metavar="NAME=VALUE", help="set a property")
    add("-d", "--directory", "--aeron-dir", metavar="DIR", help="Aeron directory, else AERON_DIR")
    add("--idle-strategy", metavar="NAME", help="spin, yield, backoff, sleep-ns, sleep-ms or noop")
    add("--pidfile", metavar="FILE", help="hold the process id in a file while the driver runs")
    add("--loop", choices=("asyncio", "uvloop"), help="event loop; uvloop where it is installed")
    add("--print-config", action="store_true", help="print each setting and its origin, and end")
    add("--log-level", choices=LEVELS, help="write log lines of this level and above")
    add("--log-file", metavar="FILE", help="append log lines to a file, not to standard error")
    add("--log-json", action="store_true", help="write log lines as JSON")
    add("-v", "--version", action="version", version=version("aeron-async"))
    return found


def _described(error: AeronError | OSError) -> BaseException | str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return error


# Logs.


def writes_logs(options: DriverOptions) -> bool:
    """Return whether an option asks for log lines."""
    return options.log_level is not None or options.log_file is not None or options.log_json


@contextmanager
def logs(options: DriverOptions) -> Iterator[None]:
    """Write log lines where the options ask for them, and otherwise nowhere.

    What `logging` and `warnings` would write takes the same way.

    Raises:
        OSError: The file cannot be written.
    """
    with ExitStack() as stack:
        logging.captureWarnings(True)
        stack.callback(logging.captureWarnings, False)
        if not writes_logs(options):
            logging.disable(logging.CRITICAL)
            stack.callback(logging.disable, logging.NOTSET)
        else:
            file = sys.stderr
            if options.log_file is not None:
                file = stack.enter_context(Path(options.log_file).open("a", buffering=1))
            level = logging.getLevelNamesMapping()[(options.log_level or "warning").upper()]
            _write_logs(file, level, is_json=options.log_json)
            handler = ForwardingHandler(level)
            logging.getLogger().addHandler(handler)
            stack.callback(logging.getLogger().removeHandler, handler)
        yield


def _write_logs(file: TextIO, level: int, *, is_json: bool) -> None:
    import structlog  # noqa: PLC0415 - most drivers log nothing

    renderer = structlog.dev.ConsoleRenderer(colors=False)
    structlog.configure(
        processors=[
            name_remedy,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer() if is_json else renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(file),
    )


@final
class ForwardingHandler(logging.Handler):
    """Passes lines of asyncio and of `warnings` to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log a record under one event."""
        import structlog  # noqa: PLC0415 - it was imported before

        structlog.get_logger(record.name).log(
            record.levelno,
            "python_logged",
            logger=record.name,
            message=record.getMessage(),
            exc_info=record.exc_info,
        )


# The process.


@contextmanager
def pidfile(path: str | None) -> Iterator[None]:
    """Hold the id of this process in a file.

    Raises:
        DriverError: The file names a process that lives.
        OSError: The file cannot be written.
    """
    if path is None:
        yield
        return
    place = Path(path)
    pid = os.getpid()
    other = _pid_in(place)
    # In a container, a process that was killed may have had the id of this one.
    if other is not None and other != pid and lives(other):
        message = f"{path} names process {other}, which is alive: end it, or choose another file"
        raise DriverError(message)
    new = place.with_name(f"{place.name}.{pid}")
    new.write_text(f"{pid}\n")
    new.replace(place)
    try:
        yield
    finally:
        if _pid_in(place) == pid:
            place.unlink(missing_ok=True)


def _pid_in(place: Path) -> int | None:
    """Return the process id in a file; None if there is none."""
    try:
        text = place.read_text().strip()
    except (FileNotFoundError, UnicodeDecodeError):
        return None
    return int(text) if text.isascii() and text.isdigit() and len(text) <= PID_DIGITS_MAX else None
