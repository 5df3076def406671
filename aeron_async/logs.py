"""Log lines: through structlog if the application has configured it, else through `logging`.

An unconfigured structlog would print every line between the application's own output. So until it
is configured, only what `logging` shows is printed: by default warnings and errors, as for asyncio.

Invariant: no text in a field moves a cursor, breaks a line or is longer than its limit, because
fields hold foreign text from remote hosts, files and catalogs.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter, deque
from typing import TYPE_CHECKING, Final, Protocol, final

from aeron_async.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from types import ModuleType

__all__ = ["Log", "LogBudget", "Logger", "get_logger", "within"]

FIELD_LENGTH_MAX: Final = 1_000
"""Longest text of a field, in characters."""
LINES_PER_SECOND: Final = 10
"""Lines a second that remote hosts can cause in one driver or archive."""
LINES_OF_OTHERS: Final = 2
"""Of these, reserved for the line about lines left out, and that about dropped datagrams."""
LINES_OF_AN_EVENT: Final = 5
"""Lines of one event a second, so that one kind of problem does not hide the others."""
INTERVAL_NS: Final = 1_000_000_000
NEVER_NS: Final = 2**63 - 1


class Log(Protocol):
    """Interface of a `Logger`, and of one within the budget of remote hosts."""

    def info(self, event: str, **fields: object) -> None:
        """Log a change."""

    def warning(self, event: str, **fields: object) -> None:
        """Log a problem that needs attention."""

    def error(self, event: str, **fields: object) -> None:
        """Log a failure; `exc_info` may be the exception."""


@final
class Logger:
    """Logs events with fields; each module has one.

    Args:
        name: Name of the module, as `logging` shows it.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def info(self, event: str, **fields: object) -> None:
        """Log a change."""
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Log a problem that needs attention."""
        self._log(logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Log a failure; `exc_info` may be the exception."""
        self._log(logging.ERROR, event, fields)

    def is_enabled_for(self, level: int) -> bool:
        """Return whether lines of a level are shown, according to structlog or `logging`."""
        structlog: ModuleType | None = sys.modules.get("structlog")
        if structlog is not None and structlog.is_configured():
            logger = structlog.get_logger(self._name)
            says = getattr(logger, "is_enabled_for", None) or getattr(logger, "isEnabledFor", None)
            return says is None or bool(says(level))
        return logging.getLogger(self._name).isEnabledFor(level)

    def _log(self, level: int, event: str, fields: dict[str, object]) -> None:
        for name, value in fields.items():
            if isinstance(value, str):
                fields[name] = printable(value, FIELD_LENGTH_MAX)
        # Only an application that has imported structlog can have configured it, and importing it
        # here would take a tenth of a second.
        structlog: ModuleType | None = sys.modules.get("structlog")
        if structlog is not None and structlog.is_configured():
            structlog.get_logger(self._name).log(level, event, **fields)
            return
        logger = logging.getLogger(self._name)
        if not logger.isEnabledFor(level):
            return
        error = fields.pop("exc_info", None)
        text = " ".join(f"{name}={value!r}" for name, value in fields.items())
        logger.log(
            level,
            "%s %s",
            event,
            text,
            exc_info=error if isinstance(error, BaseException) else None,
        )


def get_logger(name: str) -> Logger:
    """Return the logger of a module."""
    return Logger(name)


@final
class LogBudget:
    """Limits the log lines that remote hosts can cause: in all, per event, and per cause.

    Lines left out are counted, and one line a second reports the count. Lines about the program's
    own actions need no budget.

    Args:
        now_ns: Reads the time.
        limit: Most lines in any second.

    Attributes:
        left_out_count: Lines left out so far.
        on_left_out: Called when a report becomes due; see `poll`.
    """

    def __init__(
        self, now_ns: Callable[[], int], *, limit: int = LINES_PER_SECOND - LINES_OF_OTHERS
    ) -> None:
        self._now_ns = now_ns
        self._limit = limit
        # Lines of the last second, oldest first: at most `limit`.
        self._lines: deque[tuple[int, str, Hashable]] = deque()
        # By event: events are named in this package, so their number is limited.
        self._left_out: Counter[str] = Counter()
        self._due_ns = NEVER_NS
        self._said_ns = -INTERVAL_NS
        self.left_out_count: int = 0
        self.on_left_out: Callable[[], object] = lambda: None

    def on(self, log: Logger) -> Log:
        """Return a logger whose lines count against this budget."""
        return _PeerLogger(log, self)

    def allows(self, event: str, cause: Hashable = None, now_ns: int | None = None) -> bool:
        """Return whether a line may be logged now; if so, count it.

        Args:
            event: Event of the line.
            cause: Cause such as a source address: one line per event and cause a second. None has
                no such limit.
            now_ns: The time, if the caller has read it.
        """
        now_ns = self._now_ns() if now_ns is None else now_ns
        lines = self._lines
        while lines and now_ns >= lines[0][0] + INTERVAL_NS:
            lines.popleft()
        if len(lines) < self._limit:
            same = [its_cause for _, its_event, its_cause in lines if its_event == event]
            if len(same) < LINES_OF_AN_EVENT and (cause is None or cause not in same):
                lines.append((now_ns, event, cause))
                return True
        self._left_out[event] += 1
        self.left_out_count += 1
        if self._due_ns == NEVER_NS:
            self._due_ns = max(now_ns, self._said_ns) + INTERVAL_NS
            self.on_left_out()
        return False

    def poll(self, now_ns: int) -> int:
        """Report how many lines were left out, once that is due; return when it is due next."""
        if now_ns >= self._due_ns:
            self._say(now_ns)
        return self._due_ns

    def close(self) -> None:
        """Report how many lines were left out since the last report."""
        if self._left_out:
            self._say(self._now_ns())

    def _say(self, now_ns: int) -> None:
        by_event = ", ".join(f"{event} {count}" for event, count in self._left_out.items())
        count = self._left_out.total()
        self._left_out.clear()
        self._due_ns, self._said_ns = NEVER_NS, now_ns
        _log.warning("log_lines_left_out", count=count, events=by_event)


@final
class _PeerLogger:
    """A logger within a budget; a line below the shown level does not count."""

    __slots__ = ("_budget", "_log")

    def __init__(self, log: Logger, budget: LogBudget) -> None:
        self._log = log
        self._budget = budget

    def info(self, event: str, **fields: object) -> None:
        if self._log.is_enabled_for(logging.INFO) and self._budget.allows(event):
            self._log.info(event, **fields)

    def warning(self, event: str, **fields: object) -> None:
        if self._log.is_enabled_for(logging.WARNING) and self._budget.allows(event):
            self._log.warning(event, **fields)

    def error(self, event: str, **fields: object) -> None:
        if self._log.is_enabled_for(logging.ERROR) and self._budget.allows(event):
            self._log.error(event, **fields)


def within(budget: LogBudget | None, log: Logger) -> Log:
    """Return a logger within a budget, if there is one."""
    return log if budget is None else budget.on(log)


_log: Final = Logger(__name__)
