"""Log lines of a library: structlog's where the application has configured it, quiet where not.

An unconfigured structlog would print every line between the application's own output. So until it
is configured, only warnings and errors go out, through `logging`, as asyncio's own do.

Invariant: no text in a field moves a cursor, breaks a line or is longer than its limit: fields hold
the words of peers, files and catalogs.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Final, final

from aeron_async.text import printable

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["Logger", "get_logger"]

FIELD_LENGTH_MAX: Final = 1_000
"""In characters."""


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
