"""`aeron-async doctor`: whether this machine suits Aeron, and what to change where it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.cli.doctor_findings import findings, worst
from aeron_async.cli.doctor_look import look
from aeron_async.cli.doctor_verdict import Verdict
from aeron_async.cli.options import Flag, Positive, RunOptions
from aeron_async.cli.output import make_console, print_json, safe_text
from aeron_async.cli.runner import ExitCode, run
from aeron_async.driver.core.context import DriverContext

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aeron_async.cli.doctor_verdict import Finding

__all__ = ["doctor", "exit_code"]

STYLES: Final = {Verdict.GOOD: "green", Verdict.SLOW: "yellow", Verdict.BROKEN: "bold red"}


def doctor(
    *,
    seconds: Positive = 1.0,
    strict: Flag = False,
    json: Flag = False,
    options: RunOptions | None = None,
) -> int:
    """Say whether this machine suits Aeron, and what to change.

    The exit code is 0 where streams work, if slowly, and 1 where one with the settings of this
    environment would be refused or could not be reached.

    Args:
        seconds: How long the event loop is watched.
        strict: Exit with 1 for what is merely slow, too.
        json: Report as JSON.
        options: How to run.
    """
    context = DriverContext.from_environment()
    main = _doctor(context, seconds, is_strict=strict, is_json=json)
    return run(main, options or RunOptions())


async def _doctor(context: DriverContext, seconds: float, *, is_strict: bool, is_json: bool) -> int:
    found = findings(await look(context, seconds))
    if is_json:
        report = {"verdict": worst(found), "findings": [attrs.asdict(each) for each in found]}
        print_json(report)
    else:
        print_findings(found)
    return exit_code(worst(found), is_strict=is_strict)


def exit_code(verdict: Verdict, *, is_strict: bool) -> ExitCode:
    """Return what a probe is told: 0 for a machine that will do, 1 for one that will not."""
    refused = {Verdict.BROKEN, Verdict.SLOW} if is_strict else {Verdict.BROKEN}
    return ExitCode.FAILURE if verdict in refused else ExitCode.SUCCESS


def print_findings(found: Sequence[Finding]) -> None:
    """Print what was found for people: a table, and below it what to do."""
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - only this draws
    from rich.table import Table  # noqa: PLC0415 - likewise
    from rich.text import Text  # noqa: PLC0415 - likewise

    console = make_console()
    table = Table(box=SIMPLE_HEAD, show_edge=False)
    for title in ("", "what", "seen", "wanted"):
        table.add_column(title, no_wrap=title in {"", "what"})
    for each in found:
        style = STYLES[each.verdict]
        table.add_row(
            Text(each.verdict, style),
            safe_text(each.what),
            safe_text(each.seen),
            safe_text(each.wanted),
        )
    console.print(table)
    remedies = [each for each in found if each.remedy]
    if not remedies:
        console.print(Text("\nThis machine suits Aeron.", style="bold"))
        return
    console.print(Text("\nWhat to change", style="bold"))
    for each in remedies:
        console.print(safe_text(f"  {each.what}: {each.remedy}", style=STYLES[each.verdict]))
