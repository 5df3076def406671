"""Command `aeron-async monitor`: serves a web page that shows one or several drivers.

Invariant: the token is in no log line and on no command line. It is printed once, or lies in a file
that only its user can read.
"""

from __future__ import annotations

import os
import re
import socket
import stat
import sys
from importlib.util import find_spec
from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated, Final

import attrs
from cyclopts import Parameter, validators

from aeron_async.aeron_directory import default_directory
from aeron_async.cli.monitor.hub import MonitorHub
from aeron_async.cli.options import Flag, Names, RunOptions
from aeron_async.cli.output import print_line, remark
from aeron_async.cli.runner import ExitCode, run
from aeron_async.cli.stats_sources import open_source
from aeron_async.errors import ConfigurationError
from aeron_async.text import SHORT, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aeron_async.cli.top_model import StatsSource

__all__ = ["monitor"]

PACKAGES: Final = ("starlette", "uvicorn")
SOURCES_MAX: Final = 32
PORT_MAX: Final = 65_535
INTERVAL_MIN_S: Final = 0.25
INTERVAL_MAX_S: Final = 60
OTHERS: Final = 0o077
"""Rights of a file for anybody but its user."""
TOKEN_FILE_MAX: Final = 64
TOKEN: Final = re.compile(r"[0-9a-f]{32}")


@attrs.frozen(kw_only=True)
class MonitorOptions:
    """What a page was asked for."""

    bind: str
    port: int
    interval: float
    names: tuple[str, ...]
    token: bool
    token_file: str | None


def monitor(
    *,
    door: Annotated[Names, Parameter(name="--door")] = (),
    directory: Annotated[Names, Parameter(name=("--directory", "-d", "--aeron-dir"))] = (),
    bind: str = "127.0.0.1",
    port: Annotated[int, Parameter(validator=validators.Number(gte=0, lte=PORT_MAX))] = 0,
    interval: Annotated[
        float, Parameter(validator=validators.Number(gte=INTERVAL_MIN_S, lte=INTERVAL_MAX_S))
    ] = 1.0,
    name: Annotated[Names, Parameter(name="--name")] = (),
    token: Flag = False,
    token_file: str | None = None,
) -> int:
    """Serve a web page that shows drivers: what each stream does, which is in trouble, and why.

    The page is for this machine only, and needs no token, unless you say otherwise. At an address
    of the network it needs a token, and whoever listens on the way can read all: HTTP encrypts
    nothing. It needs the packages of the extra `web`.

    Args:
        door: The Unix socket of a process that serves its statistics; may be repeated.
        directory: The Aeron directory of a driver; may be repeated. Without one and without a door
            that is AERON_DIR, or the one of this user.
        bind: The address at which to listen; 0.0.0.0 for all of this machine.
        port: The port; 0 for one that is free.
        interval: Seconds between two looks.
        name: Another name by which browsers may call this machine; may be repeated.
        token: Ask for a token at a loopback address, too, where other users could look otherwise.
        token_file: Keep the token in this file, which only its user may read, instead of printing
            it; one that is there is used again.
    """
    missing = [each for each in PACKAGES if find_spec(each) is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        names = " and ".join(missing)
        message = f"{names} {verb} not installed: pip install 'aeron-async[web]'"
        raise ConfigurationError(message)
    options = MonitorOptions(
        bind=bind,
        port=port,
        interval=interval,
        names=name,
        token=token,
        token_file=token_file,
    )
    directories = directory if directory or door else (str(default_directory()),)
    return run(serve(sources_of(door, directories), options), RunOptions(loop="asyncio"))


def sources_of(doors: Sequence[str], directories: Sequence[str]) -> list[StatsSource]:
    """Return the sources of snapshots, each of them once.

    Raises:
        ConfigurationError: There are too many, or a path is that of a door and of a directory.
    """
    doors, directories = tuple(dict.fromkeys(doors)), tuple(dict.fromkeys(directories))
    both = set(doors) & set(directories)
    if both:
        message = f"{printable(min(both), SHORT)} cannot be a door and an Aeron directory at once"
        raise ConfigurationError(message)
    if len(doors) + len(directories) > SOURCES_MAX:
        message = (
            f"{len(doors) + len(directories)} sources are more than the {SOURCES_MAX} that a "
            "monitor shows: start a second one"
        )
        raise ConfigurationError(message)
    sources = [open_source("door", each) for each in doors]
    return sources + [open_source("directory", each) for each in directories]


async def serve(sources: Sequence[StatsSource], options: MonitorOptions) -> int:
    """Serve the page until Ctrl-C; return the exit code."""
    from aeron_async.cli.monitor.server import (  # noqa: PLC0415 - its packages are optional
        Guard,
        is_address,
        listening_at,
        new_token,
        serve_monitor,
    )

    token, is_kept = "", False
    is_loopback = is_address(options.bind) and ip_address(options.bind).is_loopback
    if options.token_file is not None:
        token, is_kept = token_of(options.token_file, new_token()), True
    elif options.token or not is_loopback:
        token = new_token()
    listener = listening_at(options.bind, options.port)
    with listener:
        port = listener.getsockname()[1]
        host = socket.gethostname()
        guard = Guard(
            is_loopback=is_loopback,
            names=frozenset(
                each.lower() for each in (*options.names, *(() if is_loopback else (host,)))
            ),
            token=token,
            cookie=f"aeron_async_monitor_{port}",
        )
        hub = MonitorHub(sources, host=host, interval=options.interval)
        async with hub, serve_monitor(hub, listener, guard):
            for place, failure in hub.failures():
                remark(f"{place} does not answer yet: {failure}")
            address = address_of(options.bind, host, port)
            print_line(address if is_kept or not token else f"{address}?token={token}")
            if is_kept:
                remark(f"open it as {address}?token=TOKEN; the token is in {options.token_file}")
            elif token:
                remark("whoever has this address can look: it is shown once, here")
            sys.stdout.flush()
            await hub.wait_stopped()
    return ExitCode.FAILURE


def address_of(bind: str, host: str, port: int) -> str:
    """Return the address of the page."""
    where = ip_address(bind)
    name = host if where.is_unspecified else f"[{bind}]" if ":" in bind else bind
    return f"http://{name}:{port}/"


def token_of(path: str, new: str) -> str:
    """Return the token in a file, which is made if it is not there.

    Raises:
        ConfigurationError: Others may read the file, or it holds something else.
    """
    shown = printable(path)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        number = os.open(path, flags, 0o600)
    except OSError as error:
        message = f"the token file {shown} cannot be opened: {error.strerror}"
        raise ConfigurationError(message) from None
    try:
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            message = f"the token file {shown} is no plain file of this user"
            raise ConfigurationError(message)
        if status.st_mode & OTHERS:
            message = f"others may use the token file {shown}: run chmod 600 on it, or remove it"
            raise ConfigurationError(message)
        found = os.read(number, TOKEN_FILE_MAX).decode("ascii", "replace").strip()
        if TOKEN.fullmatch(found):
            return found
        if found:
            message = (
                f"the token file {shown} holds something else than 32 hexadecimal digits: name "
                "another one"
            )
            raise ConfigurationError(message)
        os.write(number, f"{new}\n".encode())
        return new
    finally:
        os.close(number)
