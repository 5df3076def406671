"""`aeron-async demo`: two processes of this program exchange messages, and one picture shows how.

This process starts both, tells each the other's address, and reads what they report. It carries no
message itself, so that what is shown is not slowed by being shown.
"""

from __future__ import annotations

import asyncio
import json as json_codec
import sys
import tempfile
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Any, Final, Self, final

import attrs

from aeron_async.cli.demo_child import Configuration
from aeron_async.cli.demo_phases import HEADER
from aeron_async.cli.demo_state import DemoState
from aeron_async.cli.options import Flag, Positive, RunOptions, sized
from aeron_async.cli.output import make_console, print_json
from aeron_async.cli.runner import ExitCode, Watchdog, run, together
from aeron_async.errors import AeronError

if TYPE_CHECKING:
    from types import TracebackType

    from aeron_async.cli.demo_view import View

__all__ = ["demo"]

LIVE_INTERVAL_S: Final = 0.2
PLAIN_INTERVAL_S: Final = 0.25
SILENCE_LIMIT_S: Final = 15.0
CLOSE_TIMEOUT_S: Final = 3.0
SIZE_MAX: Final = 16 * 1024

Size = Annotated[int, sized(HEADER.size, SIZE_MAX)]


class DemoError(AeronError):
    """One of the two processes did not do its part."""


def demo(
    *,
    duration: Positive = 10.0,
    size: Size = 100,
    json: Flag = False,
    options: RunOptions | None = None,
) -> int:
    """Watch two processes exchange messages for ten seconds, and what holds them back.

    Args:
        duration: Seconds that all phases take together.
        size: Length of a message in bytes.
        json: Every report as a line of JSON, of "type" sample, and at the end summary.
        options: How to run.
    """
    options = options or RunOptions()
    return run(_demo(duration, size, is_json=json, loop=options.loop), options)


async def _demo(duration_s: float, size: int, *, is_json: bool, loop: str | None) -> int:
    state = DemoState(duration_s)
    is_live = sys.stdout.isatty() and not is_json
    interval_s = min(LIVE_INTERVAL_S if is_live else PLAIN_INTERVAL_S, duration_s / 10)
    async with AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(Child("publisher", loop))
        subscriber = await stack.enter_async_context(Child("subscriber", loop))
        addresses = [(await child.event())["address"] for child in (publisher, subscriber)]
        for child, peer in zip((publisher, subscriber), reversed(addresses), strict=True):
            child.tell(
                Configuration(peer=peer, duration_s=duration_s, size=size, interval_s=interval_s)
            )
        view = make_view(is_json=is_json, is_live=is_live, size=size)
        stack.callback(view.close)
        error = DemoError(f"nothing was heard from the two processes for {SILENCE_LIMIT_S} s")
        async with Watchdog(SILENCE_LIMIT_S, error) as watchdog:
            await together(
                *(follow(child, state, view, watchdog) for child in (publisher, subscriber))
            )
    if is_json:
        phases = [summary.to_json() for summary in state.summaries()]
        print_json(
            {"type": "summary", "is_intact": state.is_intact, "phases": phases}
            | state.pauses.to_json()
        )
    else:
        from aeron_async.cli.demo_view import print_summary  # noqa: PLC0415 - it draws, JSON not

        print_summary(state, make_console())
    return ExitCode.SUCCESS if state.is_intact else ExitCode.FAILURE


def make_view(*, is_json: bool, is_live: bool, size: int) -> View:
    """Return what suits the place where it is shown."""
    from aeron_async.cli import demo_view  # noqa: PLC0415 - rich is not needed before

    if is_json:
        return demo_view.JsonView()
    return demo_view.LiveView(size=size) if is_live else demo_view.LineView()


async def follow(child: Child, state: DemoState, view: View, watchdog: Watchdog) -> None:
    """Show what a process reports, until it has ended."""
    event: dict[str, Any] = {"event": ""}
    while event["event"] != "end":
        event = await child.event()
        watchdog.mark()
        snapshot = state.take(child.role, event)
        if snapshot is not None:
            view.update(state, snapshot)


@final
class Child:
    """One of the two processes: entered to start it, and left to see it end.

    It is in a session of its own, so that Ctrl-C reaches this process alone, which then closes
    both by closing their standard input.
    """

    def __init__(self, role: str, loop: str | None) -> None:
        self.role = role
        self._arguments = ("-m", f"aeron_async.cli.demo_{role}", *([loop] if loop else []))

    async def __aenter__(self) -> Self:
        # A file and not a pipe: nobody reads it, unless something has gone wrong.
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *self._arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._complaints,
            start_new_session=True,
        )
        return self

    def tell(self, configuration: Configuration) -> None:
        """Let the process begin."""
        assert self._process.stdin is not None
        line = json_codec.dumps(attrs.asdict(configuration)) + "\n"
        self._process.stdin.write(line.encode())

    async def event(self) -> dict[str, Any]:
        """Return the next thing it reports.

        Raises:
            DemoError: It has ended instead.
        """
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            self._complaints.seek(0)
            complaints = self._complaints.read().decode("utf-8", "replace").split("\n")
            last = next((text for text in reversed(complaints) if text.strip()), "it said nothing")
            message = f"the {self.role} process ended early: {last.strip()}"
            raise DemoError(message)
        event: dict[str, Any] = json_codec.loads(line)
        return event

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._process.communicate()
        except TimeoutError:
            self._process.kill()
            await self._process.communicate()
        finally:
            self._complaints.close()
