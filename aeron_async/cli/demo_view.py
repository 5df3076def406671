"""Views of the demonstration: a live picture on a terminal, a line a second elsewhere, or JSON."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Final, Protocol, final

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from aeron_async.cli.demo_child import ECHO, PHASES
from aeron_async.cli.figures import (
    format_bytes,
    format_count,
    format_ns,
    format_per_second,
    format_throughput,
    plural,
)
from aeron_async.cli.output import make_console, print_json, print_line
from aeron_async.clock import NS_PER_US

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from aeron_async.cli.demo import DemoSnapshot, DemoState
    from aeron_async.cli.demo_child import Phase

__all__ = ["JsonView", "LineView", "LiveView", "View", "print_summary"]

BARS: Final = "▁▂▃▄▅▆▇█"
BAR_WIDTH: Final = 14
WIDTH_MAX: Final = 88
LINE_INTERVAL_S: Final = 1.0
# A report that comes slightly early counts as the one that was due.
LATENESS_S: Final = 0.1
BY_HAND: Final = "aeron:udp?endpoint=127.0.0.1:20121"


class View(Protocol):
    """Shows snapshots."""

    def update(self, state: DemoState, snapshot: DemoSnapshot) -> None:
        """Show a new snapshot."""
        ...

    def close(self) -> None:
        """Stop showing; may be called before any snapshot was shown."""
        ...


@final
class LiveView:
    """One picture on a terminal, redrawn with every snapshot, and removed at the end."""

    def __init__(self, *, size: int) -> None:
        self._size = size
        console = make_console()
        # Leave room at the right, where a terminal echoes ^C, so that the line does not wrap.
        self._width = min(WIDTH_MAX, console.width - len("^C"))
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()

    def update(self, state: DemoState, snapshot: DemoSnapshot) -> None:
        """Draw the picture."""
        drawn = picture(state, snapshot, size=self._size, width=self._width)
        self._live.update(drawn, refresh=True)

    def close(self) -> None:
        """Remove the picture."""
        self._live.stop()


@final
class LineView:
    """One line a second, and one more at the beginning of each phase."""

    def __init__(self) -> None:
        self._phase: Phase | None = None
        self._due_s = LINE_INTERVAL_S

    def update(self, state: DemoState, snapshot: DemoSnapshot) -> None:  # noqa: ARG002 - see View
        """Write the line if it is due."""
        if snapshot.phase is not self._phase:
            self._phase = snapshot.phase
            print_line(f"{snapshot.phase.title}: {snapshot.phase.lesson}")
            sys.stdout.flush()
        if snapshot.elapsed_s < self._due_s - LATENESS_S:
            return
        self._due_s += LINE_INTERVAL_S
        print_line(
            f"{snapshot.elapsed_s:5.1f} s  {format_per_second(snapshot.received_per_second):>15}  "
            f"{format_throughput(snapshot.bytes_per_second):>10}  "
            f"{latency_text(snapshot.latency)}  waiting {snapshot.waiting_share:.0%}  "
            f"room {format_bytes(snapshot.room)}  retransmits {snapshot.retransmits}"
        )
        sys.stdout.flush()

    def close(self) -> None:
        """Do nothing."""


@final
class JsonView:
    """One line of JSON for each snapshot."""

    def update(self, state: DemoState, snapshot: DemoSnapshot) -> None:  # noqa: ARG002 - see View
        """Write the snapshot."""
        print_json(snapshot.to_json())
        sys.stdout.flush()

    def close(self) -> None:
        """Do nothing."""


def picture(state: DemoState, snapshot: DemoSnapshot, *, size: int, width: int) -> RenderableType:
    """Return the picture of a snapshot."""
    table = Table.grid(padding=(0, 3))
    table.add_column(style="dim")
    table.add_column(justify="right", min_width=BAR_WIDTH)
    table.add_column(style="dim")
    table.add_row(
        "received",
        Text(format_per_second(snapshot.received_per_second), style="bold green"),
        f"{format_count(snapshot.received)} messages so far",
    )
    table.add_row(
        "", sparkline(state), f"{format_throughput(snapshot.bytes_per_second)} of payload"
    )
    is_echo = snapshot.phase is ECHO
    table.add_row(
        "latency",
        Text(percentile_text(snapshot.latency, "50"), style="bold cyan"),
        ("there and back" if is_echo else "one way")
        + f"; 99 % within {percentile_text(snapshot.latency, '99')}",
    )
    table.add_row(
        "room",
        room_bar(snapshot),
        f"{format_bytes(snapshot.room)} of {format_bytes(snapshot.room_limit)} may be offered now",
    )
    is_waiting = snapshot.waiting_share > 1 / 2
    table.add_row(
        "back pressure",
        Text(f"{snapshot.waiting_share:.0%}", style="bold yellow" if is_waiting else "bold"),
        f"of the time spent waiting; {plural(snapshot.waits, 'offer')} waited",
    )
    table.add_row(
        "repair",
        Text(format_count(snapshot.retransmits), style="bold"),
        f"retransmits; {format_count(snapshot.naks)} NAKs sent",
    )
    progress = ProgressBar(
        total=state.duration_s,
        completed=min(snapshot.elapsed_s, state.duration_s),
        complete_style="blue",
    )
    body = Group(
        phase_line(snapshot.phase), progress, Text(), Text(snapshot.phase.lesson), Text(), table
    )
    title = f"aeron-async demo: two processes, UDP over loopback, {size}-byte messages"
    return Panel(body, title=title, title_align="left", border_style="blue", width=width)


def phase_line(current: Phase) -> Text:
    """Return the names of all phases, with the current one highlighted."""
    text = Text()
    for number, phase in enumerate(PHASES, start=1):
        style = "bold reverse" if phase is current else "dim"
        text.append(f" {number} {phase.title} ", style=style).append("  ")
    return text


def sparkline(state: DemoState, width: int = BAR_WIDTH) -> Text:
    """Return recent rates as small bars; the highest rate has a full bar."""
    highest = max(state.history) or 1.0
    recent = list(state.history)[-width:]
    return Text(
        "".join(BARS[min(len(BARS) - 1, int(rate / highest * len(BARS)))] for rate in recent),
        style="green",
    )


def room_bar(snapshot: DemoSnapshot) -> Text:
    """Return the publisher's free window as a bar."""
    filled = round(BAR_WIDTH * snapshot.room / snapshot.room_limit)
    return Text("█" * filled, style="green").append("░" * (BAR_WIDTH - filled), style="yellow")


def percentile_text(latency: dict[str, object] | None, name: str) -> str:
    """Return one percentile of a summary as text."""
    if latency is None:
        return "-"
    percentiles = latency["percentiles_us"]
    assert isinstance(percentiles, dict)
    return format_ns(percentiles[name] * NS_PER_US)


def latency_text(latency: dict[str, object] | None) -> str:
    """Return the two percentiles that fit on a line."""
    return f"p50 {percentile_text(latency, '50'):>8}  p99 {percentile_text(latency, '99'):>8}"


def print_summary(state: DemoState, console: Console) -> None:
    """Print the result of each phase, and an explanation."""
    table = Table(
        title="What happened",
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        show_edge=False,
        padding=0,
    )
    table.add_column("phase", no_wrap=True)
    for name in ("messages", "msg/s", "payload", "waiting", "p50", "p99"):
        table.add_column(name, justify="right", no_wrap=True)
    for summary in state.summaries():
        table.add_row(
            summary.phase.title,
            format_count(summary.received),
            format_count(summary.sent_per_second),
            format_throughput(summary.bytes_per_second),
            f"{summary.waiting_share:.0%}",
            percentile_text(summary.latency, "50"),
            percentile_text(summary.latency, "99"),
        )
    console.print(table)
    total = sum(summary.received for summary in state.summaries())
    resent = sum(summary.retransmits for summary in state.summaries())
    verdict = "each once and in order" if state.is_intact else "but not each once and in order"
    console.print()
    console.print(
        Text(f"{format_count(total)} messages arrived, {verdict}", style="bold").append(
            f"; {plural(resent, 'retransmit')} repaired what the network lost. Waiting is the part "
            "of the time in which back pressure held the publisher. Latency is one way in the "
            f"first two phases, and there and back in the last{state.pauses}.",
            style="not bold",
        )
    )
    # A terminal may wrap these lines, but rich must not, because users copy them.
    activate = activation()
    first = f"in each first\n{activate}and then one of these" if activate else ""
    console.print(
        f"\nNow by hand, in two terminals{first and '; '}{first}:\n"
        f"  aeron-async sub '{BY_HAND}' -s 1001\n"
        f"  aeron-async pub '{BY_HAND}' -s 1001 --message hello",
        soft_wrap=True,
    )


def activation() -> str:
    """Return the line that makes the shell find the command; empty if the shell finds it.

    `make demo` starts the command by its path, in an environment that no shell has activated.
    """
    scripts = Path(sys.prefix) / "bin"
    found = which("aeron-async")
    if found is not None and Path(found).parent == scripts:
        return ""
    activate = scripts / "activate"
    if not activate.exists():
        return ""
    here = Path.cwd()
    shown = activate.relative_to(here) if activate.is_relative_to(here) else activate
    return f"  . {shlex.quote(str(shown))}\n"
