"""Processes of a measurement, and the messages they exchange.

A message begins with its number, eight bytes little endian; the bytes that follow depend on the
number. Numbers repeat after a prime count, of which no batch, datagram or term holds a multiple.
The count in a mark shows whether whole rounds were lost or doubled.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import secrets
import socket
import sys
import tempfile
from contextlib import suppress
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, Self, final

import attrs

from aeron_async.cli.output import remark
from aeron_async.cli.runner import why_ended
from aeron_async.errors import AeronError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

__all__ = [
    "CHILD",
    "PATIENT",
    "BenchError",
    "Child",
    "Patience",
    "check_mark",
    "free_port",
    "make_mark",
    "make_messages",
    "meet",
    "messages_per_datagram",
    "role",
]

NUMBER: Final = Struct("<q")
MARK: Final = Struct("<qq")
"""End of a part: -1, and the number of messages in the part."""
SHORT_LENGTH: Final = 1_000
SHORT_ROUND: Final = 1_021
LONG_ROUND: Final = 251
FRAME_HEADER_LENGTH: Final = 32
FRAME_ALIGNMENT: Final = 32


class BenchError(AeronError):
    """A message was not the expected one, or a measuring process failed."""


def make_messages(length: int) -> tuple[bytes, ...]:
    """Return one round of messages with this length in bytes, at least the 8 of a number.

    Raises:
        BenchError: The length is too short for a number.
    """
    if length < NUMBER.size:
        message = f"messages of {length} bytes must have {NUMBER.size}: they begin with a number"
        raise BenchError(message)
    count = SHORT_ROUND if length <= SHORT_LENGTH else LONG_ROUND
    rest = length - NUMBER.size
    pattern = bytes(range(256)) * (rest // 256 + 2)
    starts = ((number, number % 256) for number in range(count))
    return tuple(NUMBER.pack(number) + pattern[at : at + rest] for number, at in starts)


def make_mark(count: int) -> bytes:
    """Return the mark that ends a part with that many messages."""
    return MARK.pack(-1, count)


def check_mark(data: bytes, count: int) -> None:
    """Check an unexpected message: it must be the mark of a complete part.

    Args:
        data: The message.
        count: Messages of the part that have arrived.

    Raises:
        BenchError: The message is no mark, or messages are missing or duplicated.
    """
    if len(data) != MARK.size or MARK.unpack(data)[0] != -1:
        message = f"message {count} of this part begins with {data[:8].hex()}: not the one due"
        raise BenchError(message)
    offered = MARK.unpack(data)[1]
    if offered != count:
        message = f"{offered} messages were offered and {count} have arrived"
        raise BenchError(message)


def framed_length(length: int) -> int:
    """Return the bytes that a message takes in a datagram, with header and alignment."""
    return -(-(FRAME_HEADER_LENGTH + length) // FRAME_ALIGNMENT) * FRAME_ALIGNMENT


def messages_per_datagram(length: int, mtu_length: int) -> float:
    """Return the messages in a full datagram; less than one if a message takes several."""
    framed = framed_length(length)
    if framed <= mtu_length:
        return float(mtu_length // framed)
    return 1 / -(-length // (mtu_length - FRAME_HEADER_LENGTH))


CHILD: Final = (sys.executable, "-m", "aeron_async.cli.bench_child")
FIGURES: Final = "figures"
CLOSE_TIMEOUT_S: Final = 5.0


PORTS: Final = range(10_000, 32_768)
"""Below the ports that Linux hands out by itself: it could give one of those to another program
before it is bound."""
PORT_TRIES: Final = 1_000
"""Most ports that are tried before the search is given up."""


def free_port() -> int:
    """Return a port of loopback that was free a moment ago, for UDP and for TCP.

    Raises:
        BenchError: None was found.
        OSError: The system refuses sockets on loopback.
    """
    for _ in range(PORT_TRIES):
        port = secrets.choice(PORTS)
        if is_free(port, socket.SOCK_DGRAM) and is_free(port, socket.SOCK_STREAM):
            return port
    message = (
        f"no free port of 127.0.0.1 in {PORT_TRIES} tries from {PORTS.start} to "
        f"{PORTS.stop - 1}: end the programs that hold them"
    )
    raise BenchError(message)


def is_free(port: int, kind: int) -> bool:
    """Return whether nobody has bound a port of loopback for this kind of socket."""
    with socket.socket(socket.AF_INET, kind) as sock:
        try:
            sock.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return False
    return True


def role(name: str, program: Sequence[str] = CHILD, **plan: object) -> tuple[str, ...]:
    """Return the command line for a role with a plan."""
    return (*program, name, json.dumps(plan))


@final
@attrs.frozen(kw_only=True)
class Patience:
    """How long to wait for a process, in addition to the seconds that its plan measures.

    Attributes:
        start_s: Allowance for connecting and warming up before it measures.
        limit_s: When the process counts as failed.
        hint_s: When to remark that it is still waited for.
        say: Prints the remark.
    """

    start_s: float = 3.0
    limit_s: float = 60.0
    hint_s: float = 2.0
    say: Callable[[str], object] = remark


PATIENT: Final = Patience()


@final
class Child:
    """A process with a role, as a context manager that starts it and in the end terminates it.

    Args:
        command: Command line from `role`.
        environ: Variables in addition to those of this process.
        patience: How long the process may be silent.
    """

    def __init__(
        self,
        command: Sequence[str],
        environ: Mapping[str, str] | None = None,
        patience: Patience = PATIENT,
    ) -> None:
        self._command = command
        self._environ = {**os.environ, **(environ or {})}
        self._patience = patience

    async def __aenter__(self) -> Self:
        # A file and not a pipe, because it is read only if something has gone wrong.
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._complaints,
            env=self._environ,
            start_new_session=True,
        )
        return self

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    async def wait_for(self, key: str) -> Any:
        """Return the value that the process prints under a key.

        Raises:
            BenchError: The process has ended, or has not printed the key in time.
        """
        assert self._process.stdout is not None
        name, patience = self._command[-2], self._patience
        expected_s = self._expected_s() if key == FIGURES else 0.0
        limit_s, hint_s = expected_s + patience.limit_s, expected_s + patience.hint_s
        waits = f"still waiting after {hint_s:g} s: {name} says no {key} yet; {limit_s:g} s at most"
        hint = asyncio.get_running_loop().call_later(hint_s, patience.say, waits)
        try:
            async with asyncio.timeout(limit_s):
                while line := await self._process.stdout.readline():
                    said = json.loads(line)
                    if key in said:
                        return said[key]
        except TimeoutError:
            message = f"{name}: no {key} within {limit_s:g} s"
            raise BenchError(message) from None
        finally:
            hint.cancel()
        message = await why_ended(name, self._process, self._complaints)
        raise BenchError(message)

    def _expected_s(self) -> float:
        """Return when its figures should come, in seconds from when it is ready."""
        plan = json.loads(self._command[-1])
        return self._patience.start_s + sum(
            float(plan.get(key, 0)) for key in ("seconds", "settle_s")
        )

    async def end(self) -> None:
        """Wait until the process has ended by itself."""
        await self._process.communicate()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with suppress(ProcessLookupError):
            self._process.terminate()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._process.communicate()
        except TimeoutError:
            self._process.kill()
            await self._process.communicate()
        finally:
            self._complaints.close()


async def meet(
    server: Sequence[str],
    client: Sequence[str],
    *,
    environ: Mapping[str, str] | None = None,
    waits_for_server: bool = True,
    patience: Patience = PATIENT,
) -> dict[str, float]:
    """Start a server process, then a client process that talks to it; return the figures of both.

    Args:
        server: Command line of the server, which reports when it is ready.
        client: Command line of the client.
        environ: Variables in addition to those of this process.
        waits_for_server: Whether the server ends by itself and reports figures.
        patience: How long each of them may be silent.

    Raises:
        BenchError: One of them failed.
    """
    async with Child(server, environ, patience) as first:
        await first.wait_for("ready")
        async with Child(client, environ, patience) as second:
            waited_for = (second, first) if waits_for_server else (second,)
            # Wait for both at once: if the server has failed, the client may never report.
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(each.wait_for(FIGURES)) for each in waited_for]
            except* BenchError as failed:
                raise failed.exceptions[0] from None
    return {key: figure for task in tasks for key, figure in task.result().items()}
