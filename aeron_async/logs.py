"""Log lines of a library: structlog's where the application has configured it, quiet where not.

An unconfigured structlog would print every line between the application's own output. So until it
is configured, only warnings and errors go out, through `logging`, as asyncio's own do.

Invariant: no text in a field moves a cursor, breaks a line or is longer than its limit: fields hold
the words of peers, files and catalogs.
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
"""In characters."""
LINES_PER_SECOND: Final = 10
"""That peers can cause in one driver or archive, whatever they send and from wherever."""
LINES_OF_OTHERS: Final = 2
"""Of these: the one that says how many were left out, and the one about datagrams dropped."""
LINES_OF_AN_EVENT: Final = 5
"""In a second, so that one kind of trouble does not hide the others."""
INTERVAL_NS: Final = 1_000_000_000
NEVER_NS: Final = 2**63 - 1


class Log(Protocol):
    """Where a module logs: a `Logger`, or one within the budget of what peers can cause."""

    def info(self, event: str, **fields: object) -> None:
        """Log a change."""

    def warning(self, event: str, **fields: object) -> None:
        """Log what somebody should look at."""

    def error(self, event: str, **fields: object) -> None:
        """Log a failure; `exc_info` may be the exception."""


@final
class Logger:
    """Logs events with fields; made once a module.

    Args:
        name: Of the module, as `logging` shows it.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def info(self, event: str, **fields: object) -> None:
        """Log a change."""
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Log what somebody should look at."""
        self._log(logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Log a failure; `exc_info` may be the exception."""
        self._log(logging.ERROR, event, fields)

    def is_enabled_for(self, level: int) -> bool:
        """Return whether lines of a level are shown, as far as structlog or `logging` says."""
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
        # Who has not imported it has not configured it; importing it takes a tenth of a second.
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
    """Bounds the log lines that peers can cause: in all, of each event, and of each cause.

    What is left out is counted, and one line a second says how much that was. Lines about the
    program's own doing need no budget.

    Args:
        now_ns: Reads the time.
        limit: Lines in any second.

    Attributes:
        left_out_count: Lines left out so far.
        on_left_out: Called when there is something to say at a later time: see `poll`.
    """

    def __init__(
        self, now_ns: Callable[[], int], *, limit: int = LINES_PER_SECOND - LINES_OF_OTHERS
    ) -> None:
        self._now_ns = now_ns
        self._limit = limit
        # Of the last second, oldest first: at most `limit`.
        self._lines: deque[tuple[int, str, Hashable]] = deque()
        # By event: the names are those in this package.
        self._left_out: Counter[str] = Counter()
        self._due_ns = NEVER_NS
        self._said_ns = -INTERVAL_NS
        self.left_out_count: int = 0
        self.on_left_out: Callable[[], object] = lambda: None

    def on(self, log: Logger) -> Log:
        """Return a logger whose lines come out of this budget."""
        return _PeerLogger(log, self)

    def allows(self, event: str, cause: Hashable = None, now_ns: int | None = None) -> bool:
        """Return whether a line may be logged now; if so, it is taken out of the budget.

        Args:
            event: Of the line.
            cause: Such as a source address: it may be in one line of the event a second. None is
                without that limit.
            now_ns: The time, where the caller has read it.
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
        """Say how many lines were left out, once that is due; return when it is due next."""
        if now_ns >= self._due_ns:
            self._say(now_ns)
        return self._due_ns

    def close(self) -> None:
        """Say how many lines were left out since that was last said."""
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
    """A logger within a budget; what nobody would see costs nothing of it."""

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
    """Return a logger within a budget, where there is one."""
    return log if budget is None else budget.on(log)


_log: Final = Logger(__name__)
