"""Command `aeron-async driver ping`: whether a driver is active.

Source: Aeron `DriverTool`, `CommonContext.isDriverActive`.
"""

from __future__ import annotations

from typing import Final

from aeron_async.aeron_directory import AeronDirectory, lives
from aeron_async.cli.aeron_directories import (
    DRIVER_TIMEOUT_MS,
    MS_PER_SECOND,
    Directory,
    epoch_ms,
    facts_of,
    format_when,
    located,
)
from aeron_async.cli.options import (
    Flag,  # noqa: TC001 - cyclopts reads annotations at run time
    Positive,  # noqa: TC001 - as above
)
from aeron_async.cli.output import complain, print_json, print_line
from aeron_async.cli.runner import ExitCode
from aeron_async.errors import DriverError, ProtocolError

__all__ = ["ping"]

NOT_HERE: Final = "; there is no such process here: it was killed, or runs in another container"


def ping(
    *,
    directory: Directory = None,
    timeout: Positive = DRIVER_TIMEOUT_MS / MS_PER_SECOND,
    json: Flag = False,
) -> int:
    """Say whether a driver is active; the exit code is 0 if it is, and 1 if not.

    It looks once and waits for nothing, so that it can serve as a probe.

    Args:
        directory: Aeron directory; by default AERON_DIR, or that of this user.
        timeout: How old the heartbeat may be, in seconds; a driver beats once a second.
        json: One JSON object.
    """
    place = located(directory)
    report: dict[str, object] = {"directory": str(place), "is_active": False}
    try:
        with AeronDirectory.open(place) as found:
            layout, now_ms = found.layout, epoch_ms()
            facts = facts_of(found, now_ms)
            age_ms = now_ms - found.heartbeat_ms
            reason = found.why_not_active(now_ms, round(timeout * MS_PER_SECOND))
    except (DriverError, ProtocolError) as error:
        reason = str(error)
    else:
        report |= facts | {"is_active": reason is None}
        if reason is None and not json:
            print_line(
                f"active: process {layout.pid} in {place}, started "
                f"{format_when(layout.start_timestamp_ms)}, heartbeat {age_ms:,} ms ago"
                + ("" if lives(layout.pid) else NOT_HERE)
            )
    if json:
        print_json(report | {"reason": reason})
    elif reason is not None:
        complain(reason)
    return ExitCode.SUCCESS if reason is None else ExitCode.FAILURE
