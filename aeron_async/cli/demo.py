"""Command `aeron-async demo`: two processes exchange messages, and one picture shows the result.

This process starts both, gives each the other's address, and reads their reports. It carries no
messages itself, so drawing the picture does not slow them down.
"""

from __future__ import annotations

import asyncio
import json as json_codec
import sys
import tempfile
from collections import deque
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Any, Final, Self, final

import attrs

from aeron_async.cli.demo_child import HEADER, PHASES, Configuration, Phase
from aeron_async.cli.figures import per_second
from aeron_async.cli.options import Flag, Positive, RunOptions, sized
from aeron_async.cli.output import make_console, print_json
from aeron_async.cli.pauses import Pauses
from aeron_async.cli.runner import ExitCode, Watchdog, run, together, why_ended
from aeron_async.clock import NS_PER_SECOND
from aeron_async.errors import AeronError

if TYPE_CHECKING:
    from types import TracebackType

    from aeron_async.cli.demo_view import View

__all__ = [
    "DemoSnapshot",
    "DemoState",
    "PhaseSummary",
    "demo",
]

HISTORY_LENGTH: Final = 60
ROLE_COUNT: Final = 2
"""The publisher and the subscriber."""
_PHASES: Final = {phase.key: phase for phase in PHASES}


@final
@attrs.frozen(kw_only=True)
class DemoSnapshot:
    """State of the demonstration, with rates since the reports before, of the same phase.

    Attributes:
        elapsed_s: Seconds since the first report.
        waiting_share: Share of time in which the publisher waited for window space, from 0 to 1.
        room: Bytes that the publisher may offer now; `room_limit` at most.
        latency: Summary of latencies measured since, as JSON; None if there are none.
    """

    phase: Phase
    elapsed_s: float
    sent: int
    received: int
    sent_per_second: float
    received_per_second: float
    bytes_per_second: float
    waits: int
    waits_per_second: float
    waiting_share: float
    room: int
    room_limit: int
    retransmits: int
    naks: int
    latency: dict[str, Any] | None

    def to_json(self) -> dict[str, Any]:
        """Return the snapshot as a JSON object."""
        values = attrs.asdict(self, filter=lambda attribute, _: attribute.name != "phase")
        rounded = {
            name: round(value, 4) if isinstance(value, float) else value
            for name, value in values.items()
        }
        return {"type": "sample", "phase": self.phase.key} | rounded


@final
@attrs.frozen(kw_only=True)
class PhaseSummary:
    """Result of one phase; `latency` is one way, or the round trip if messages are echoed."""

    phase: Phase
    sent: int
    received: int
    sent_per_second: float
    bytes_per_second: float
    waits: int
    waiting_share: float
    retransmits: int
    latency: dict[str, Any] | None

    def to_json(self) -> dict[str, Any]:
        """Return the summary as a JSON object."""
        values = attrs.asdict(self, filter=lambda attribute, _: attribute.name != "phase")
        return {"phase": self.phase.key} | values


@final
class DemoState:
    """Combines the reports of both processes into snapshots.

    Attributes:
        duration_s: Duration of all phases together.
        history: Messages received per second, most recent last.
    """

    def __init__(self, duration_s: float) -> None:
        self.duration_s = duration_s
        self.history: deque[float] = deque(maxlen=HISTORY_LENGTH)
        self._latest: dict[str, dict[str, Any]] = {}
        self._previous: dict[str, dict[str, Any]] = {}
        self._ends: dict[str, dict[str, Any]] = {}
        self._started_ns: int | None = None

    def take(self, role: str, event: dict[str, Any]) -> DemoSnapshot | None:
        """Add one report; return a new snapshot if the report completes one.

        The publisher's reports set the pace; each is combined with the subscriber's latest one. The
        first report of a phase completes none: its rates would be those of the phase before.
        """
        if event["event"] == "end":
            self._ends[role] = event
        if event["event"] != "sample":
            return None
        if role == "publisher" and self._started_ns is None:
            self._started_ns = event["at_ns"]
        if role in self._latest:
            self._previous[role] = self._latest[role]
        self._latest[role] = event
        reports = (*self._previous.values(), *self._latest.values())
        is_complete = len(self._previous) == len(self._latest) == ROLE_COUNT
        is_of_one_phase = len({each["phase"] for each in reports}) == 1
        is_due = role == "publisher" and is_complete and is_of_one_phase
        return self._snapshot() if is_due else None

    def _snapshot(self) -> DemoSnapshot:
        published, received = self._latest["publisher"], self._latest["subscriber"]
        received_rate = self._rate("subscriber", "received")
        self.history.append(received_rate)
        assert self._started_ns is not None
        return DemoSnapshot(
            phase=_PHASES[published["phase"]],
            elapsed_s=(published["at_ns"] - self._started_ns) / NS_PER_SECOND,
            sent=published["sent"],
            received=received["received"],
            sent_per_second=self._rate("publisher", "sent"),
            received_per_second=received_rate,
            bytes_per_second=self._rate("subscriber", "bytes"),
            waits=published["waits"],
            waits_per_second=self._rate("publisher", "waits"),
            waiting_share=min(1.0, self._rate("publisher", "waited_ns") / NS_PER_SECOND),
            room=published["room"],
            room_limit=published["room_limit"],
            retransmits=published["retransmits"],
            naks=received["naks"],
            latency=published["latency"] or received["latency"],
        )

    def _rate(self, role: str, name: str) -> float:
        latest, previous = self._latest[role], self._previous[role]
        return per_second(latest[name] - previous[name], latest["at_ns"] - previous["at_ns"])

    @property
    def is_intact(self) -> bool:
        """Return whether everything arrived, once and in order."""
        return not self._ends["subscriber"]["out_of_order"] and all(
            summary.sent == summary.received for summary in self.summaries()
        )

    @property
    def pauses(self) -> Pauses:
        """Return the event loop pauses of both processes, after they have ended."""
        ends = self._ends.values()
        return Pauses(
            sum(end.get("loop_pauses", 0) for end in ends),
            max(end.get("longest_loop_pause_ns", 0) for end in ends),
        )

    def summaries(self) -> list[PhaseSummary]:
        """Return the result of each phase, after both processes have ended."""
        pairs = zip(
            self._ends["publisher"]["phases"], self._ends["subscriber"]["phases"], strict=True
        )
        return [_summary(sent, received) for sent, received in pairs]


def _summary(sent: dict[str, Any], received: dict[str, Any]) -> PhaseSummary:
    elapsed_ns = int(sent["seconds"] * NS_PER_SECOND)
    return PhaseSummary(
        phase=_PHASES[sent["phase"]],
        sent=sent["sent"],
        received=received["received"],
        sent_per_second=per_second(sent["sent"], elapsed_ns),
        bytes_per_second=per_second(received["bytes"], elapsed_ns),
        waits=sent["waits"],
        waiting_share=min(1.0, sent["waited_seconds"] / sent["seconds"]),
        retransmits=sent["retransmits"],
        latency=sent["round_trip"] or received["latency"],
    )


LIVE_INTERVAL_S: Final = 0.2
PLAIN_INTERVAL_S: Final = 0.25
SILENCE_LIMIT_S: Final = 15.0
CLOSE_TIMEOUT_S: Final = 3.0
SIZE_MAX: Final = 16 * 1024

Size = Annotated[int, sized(HEADER.size, SIZE_MAX)]


class DemoError(AeronError):
    """One of the two processes failed or was silent for too long."""


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
        publisher = await stack.enter_async_context(DemoProcess("publisher", loop))
        subscriber = await stack.enter_async_context(DemoProcess("subscriber", loop))
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
        from aeron_async.cli.demo_view import print_summary  # noqa: PLC0415 - only this branch draws

        print_summary(state, make_console())
    return ExitCode.SUCCESS if state.is_intact else ExitCode.FAILURE


def make_view(*, is_json: bool, is_live: bool, size: int) -> View:
    """Return the view that suits the output."""
    from aeron_async.cli import demo_view  # noqa: PLC0415 - rich is not needed before

    if is_json:
        return demo_view.JsonView()
    return demo_view.LiveView(size=size) if is_live else demo_view.LineView()


async def follow(child: DemoProcess, state: DemoState, view: View, watchdog: Watchdog) -> None:
    """Show what a process reports, until it ends."""
    event: dict[str, Any] = {"event": ""}
    while event["event"] != "end":
        event = await child.event()
        watchdog.mark()
        snapshot = state.take(child.role, event)
        if snapshot is not None:
            view.update(state, snapshot)


@final
class DemoProcess:
    """One of the two processes, as a context manager that starts it and waits for its end.

    The process has a session of its own, so that Ctrl-C reaches only this process, which then ends
    both by closing their standard input.
    """

    def __init__(self, role: str, loop: str | None) -> None:
        self.role = role
        self._arguments = ("-m", f"aeron_async.cli.demo_{role}", *([loop] if loop else []))

    async def __aenter__(self) -> Self:
        # A file and not a pipe, because it is read only if something has gone wrong.
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
        """Send the configuration, with which the process begins."""
        assert self._process.stdin is not None
        line = json_codec.dumps(attrs.asdict(configuration)) + "\n"
        self._process.stdin.write(line.encode())

    async def event(self) -> dict[str, Any]:
        """Return the next report of the process.

        Raises:
            DemoError: The process has ended instead.
        """
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            name = f"the {self.role} process"
            message = await why_ended(name, self._process, self._complaints)
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
