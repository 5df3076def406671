"""What the facts of a machine mean for Aeron: each finding with what is wanted and what to do.

Invariant: nothing is looked at here; facts come in, findings go out, in a fixed order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.cli.doctor_network import network_findings
from aeron_async.cli.doctor_verdict import Finding, Verdict, judge
from aeron_async.cli.figures import format_bytes, format_ns
from aeron_async.clock import NS_PER_MS, NS_PER_US
from aeron_async.kernel import PURE_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aeron_async.cli.doctor_facts import Facts

__all__ = ["findings", "worst"]

TERMS_PER_LOG: Final = 3
LAG_MAX_NS: Final = 20 * NS_PER_MS
"""Later than this a timer is not fired by a machine that has time for it."""
CLOCK_COST_MAX_NS: Final = NS_PER_US // 2
"""Reading the clock takes about 50 ns; ten times that where it is a call of the system."""


def findings(facts: Facts) -> tuple[Finding, ...]:
    """Return everything there is to say, good or bad."""
    return (
        *network_findings(facts),
        _kernel(facts),
        _loop(facts),
        _lag(facts),
        _clock_step(facts),
        _clock_cost(facts),
        _shared_memory(facts),
    )


def worst(found: Iterable[Finding]) -> Verdict:
    """Return the worst verdict of all; GOOD of none."""
    verdicts = {finding.verdict for finding in found}
    return max(verdicts, key=list(Verdict).index, default=Verdict.GOOD)


def _kernel(facts: Facts) -> Finding:
    why = facts.why_pure
    is_chosen = why is not None and PURE_VARIABLE in why
    return judge(
        "kernel",
        seen="compiled" if why is None else f"in Python: {why}",
        wanted="compiled",
        remedy=(
            f"unset {PURE_VARIABLE}"
            if is_chosen
            else "install a C compiler and the headers of Python, then "
            "pip install --force-reinstall --no-deps aeron-async"
        ),
        is_good=why is None,
        otherwise=Verdict.SLOW,
    )


def _loop(facts: Facts) -> Finding:
    return judge(
        "event loop",
        seen=facts.loop_name,
        wanted="uvloop",
        remedy="pip install uvloop, and do not ask for another loop",
        is_good=facts.loop_name == "uvloop",
        otherwise=Verdict.SLOW,
    )


def _lag(facts: Facts) -> Finding:
    limit_ns = min(LAG_MAX_NS, facts.context.loop_lag_threshold_ns or LAG_MAX_NS)
    median, most = format_ns(facts.loop_lag_median_ns), format_ns(facts.loop_lag_max_ns)
    return judge(
        "event loop lag",
        seen=f"timers were late by {most} at most, {median} in the median",
        wanted=f"{format_ns(limit_ns)} at most",
        remedy="let this machine do less at once, or give this process a processor of its own",
        is_good=facts.loop_lag_max_ns <= limit_ns,
        otherwise=Verdict.SLOW,
    )


def _clock_step(facts: Facts) -> Finding:
    return judge(
        "clock resolution",
        seen=format_ns(facts.clock_step_ns),
        wanted=f"{format_ns(NS_PER_US)} or finer, the shortest timeout there is",
        remedy="use a system whose monotonic clock is finer; delays of NAKs are rounded up here",
        is_good=facts.clock_step_ns <= NS_PER_US,
        otherwise=Verdict.SLOW,
    )


def _clock_cost(facts: Facts) -> Finding:
    source = f" from {facts.clock_source}" if facts.clock_source else ""
    path = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
    return judge(
        "clock reading",
        seen=f"{format_ns(facts.clock_cost_ns)}{source}",
        wanted=f"{format_ns(CLOCK_COST_MAX_NS)} at most",
        remedy=(
            f"echo tsc | sudo tee {path}, if this machine offers it"
            if facts.is_linux
            else "use a system that reads its clock without a system call"
        ),
        is_good=facts.clock_cost_ns <= CLOCK_COST_MAX_NS,
        otherwise=Verdict.SLOW,
    )


def _shared_memory(facts: Facts) -> Finding:
    wanted_length = TERMS_PER_LOG * facts.context.term_buffer_length
    free = facts.shared_free_length
    return judge(
        "shared memory",
        seen="no /dev/shm" if free is None else f"{format_bytes(free)} free in /dev/shm",
        wanted=f"{format_bytes(wanted_length)} for a log; the driver in a process needs none",
        remedy=(
            "name a folder in memory with AERON_DIR for Aeron's own drivers"
            if free is None
            else "free some, or sudo mount -o remount,size=1g /dev/shm"
        ),
        is_good=free is not None and free >= wanted_length,
        otherwise=Verdict.SLOW,
    )
