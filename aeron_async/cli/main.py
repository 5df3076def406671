"""Command `aeron-async`: selects the subcommand, and turns its result into an exit code.

Invariant: the module of a subcommand is imported only when the subcommand runs. An expected error
is one line on standard error, and never a traceback.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from io import TextIOWrapper
from typing import TYPE_CHECKING, Final

from cyclopts import App, CycloptsError, MissingArgumentError, Parameter

from aeron_async.cli.entry import runs_driver
from aeron_async.cli.output import complain, discard_output
from aeron_async.cli.runner import ExitCode, TerminatedError
from aeron_async.errors import AeronError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

PROGRAM: Final = "aeron-async"

COMMANDS: Final = (
    ("demo", "Watch two processes exchange messages for ten seconds."),
    ("pub", "Publish lines of standard input, given texts, or generated messages."),
    ("sub", "Print the messages of a stream."),
    ("ping", "Measure round trips to a pong, ours or one of Aeron's samples."),
    ("pong", "Send every ping back unchanged."),
    ("bench", "Measure throughput and latency of this machine, and its floor."),
    ("explain", "Explain what a channel would bind, connect, join and send."),
    ("decode", "Show the Aeron frames of a capture, with a summary of each stream."),
    ("doctor", "Check whether this machine suits Aeron, and say what to change."),
    ("stat", "Show the counters of a driver on this machine, ours or an official one."),
    ("streams", "Show the publications and images of a driver: positions, windows, losses."),
    ("top", "Watch drivers: what each stream does, which is in trouble, and what to change."),
    ("backlog", "Show what each part of each stream still has to send, repair or read."),
    ("errors", "Show the errors that a driver has logged."),
    ("loss", "Show what the streams of a driver have lost."),
    ("monitor", "Serve a local web page that shows drivers, and the cause of each trouble."),
)
"""Name and purpose. `cli/NAME.py` has the function `NAME`."""
ARCHIVE_COMMANDS: Final = (
    ("ls", "catalog", "List the recordings of an archive."),
    ("describe", "catalog", "Show the descriptor of one recording."),
    ("record", "record", "Record a stream."),
    ("stop", "record", "Stop a recording, even if its client is gone."),
    ("replay", "replay", "Print the messages of a recording."),
    ("follow", "replay", "Print the messages of a recording, and new ones as they come."),
    ("serve", "record", "Serve an archive to clients, ours and official ones."),
    ("verify", "check", "Check every frame against the catalog."),
    ("repair", "check", "Show what can be repaired, and repair it."),
    ("truncate", "room", "Remove everything recorded from a position on."),
    ("purge", "room", "Remove a recording, or its beginning."),
    ("prune", "room", "Remove files that are too old, or exceed a total size."),
)
"""Name, module and purpose. `cli/archive_MODULE.py` has the function `NAME`."""
DRIVER_COMMANDS: Final = (("ping", "ping", "Say whether a driver is active, by exit code too."),)
"""Name, module and purpose. `cli/driver_MODULE.py` has the function `NAME`.

`aeron-async driver` without one of them runs a driver: `cli/driver_run.py`.
"""
PIPELINE_COMMANDS: Final = (
    ("run", "run", "Load recordings into a lake: bronze, silver and gold."),
    ("report", "run", "Write a report on a lake: one HTML file, without a server."),
    ("query", "query", "Run a query of SQL on a lake, without Spark."),
    ("maintain", "maintain", "Join small files of a lake, and remove old ones."),
    ("ingest", "ingest", "Record live streams and load them into a lake."),
    ("demo", "demo", "Do all of it once, with a small generated feed."),
)
"""Name, module and purpose. `cli/pipeline_MODULE.py` has the function `NAME`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Exit code 0 is success, 1 failure, 2 bad usage, 130 an interrupt and 143 a termination. On the
    last two, the command closes everything first. If the reader of standard output goes away, the
    command ends as a success.

    Args:
        arguments: Command line; by default that of the process.
    """
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    # A terminal that cannot show a character gets a question mark, and not a traceback.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        if runs_driver(tokens):
            from aeron_async.cli import driver_run  # noqa: PLC0415 - only if it runs

            return driver_run.main(tokens[1:])
        code = make_app()(tokens, exit_on_error=False, print_error=False)
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit):  # rich turns the first into the second.
        discard_output()
        return ExitCode.SUCCESS
    except (CycloptsError, AeronError, OSError) as error:
        return _fail(error)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except TerminatedError:
        return ExitCode.TERMINATED
    return int(code or ExitCode.SUCCESS)


def make_app() -> App:
    """Return the tree of commands, which names their modules without importing them."""
    app = App(
        name=PROGRAM,
        help="Aeron for asyncio, at the command line.",
        help_format="plaintext",
        version=lambda: version(PROGRAM),
        default_parameter=Parameter(negative_iterable=()),
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )
    for place, (name, purpose) in enumerate(COMMANDS):
        app.command(f"aeron_async.cli.{name}:{name}", name=name, help=purpose, sort_key=place)
    groups = (
        ("driver", "Run a media driver for the clients of this machine.", DRIVER_COMMANDS),
        ("archive", "Record streams, and replay recordings.", ARCHIVE_COMMANDS),
        (
            "pipeline",
            "Load recordings into a lake with Spark, and report on it.",
            PIPELINE_COMMANDS,
        ),
    )
    for group, (group_name, group_purpose, commands) in enumerate(groups, len(COMMANDS)):
        inner = App(name=group_name, help=group_purpose, sort_key=group)
        for place, (name, module, purpose) in enumerate(commands):
            where = f"aeron_async.cli.{group_name}_{module}:{name}"
            inner.command(where, name=name, help=purpose, sort_key=place)
        app.command(inner)
    return app


def _fail(error: CycloptsError | AeronError | OSError) -> ExitCode:
    """Print an error in one line, and return its exit code."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, MissingArgumentError) and error.argument and error.keyword is None:
        # cyclopts would report a missing value for an argument that was not given at all.
        # What it asks at the end ("Did you mean ...?") names the misspelt option.
        _, _, question = text.partition(" requires an argument.")
        text = f"{error.argument.name} is missing{question and '.'}{question}"
    if isinstance(error, CycloptsError):
        text += f" (see {' '.join((PROGRAM, *(error.command_chain or ())))} --help)"
    complain(error if text == str(error) else text)
    is_usage = isinstance(error, CycloptsError | ConfigurationError)
    return ExitCode.BAD_USAGE if is_usage else ExitCode.FAILURE
