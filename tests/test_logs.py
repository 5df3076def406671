from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
import structlog
from structlog.testing import capture_logs

from aeron_async.archive.control.connection import archive_error
from aeron_async.errors import MESSAGE_LENGTH_MAX, AeronError, ArchiveFileError
from aeron_async.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def unconfigured() -> Iterator[None]:
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


@pytest.mark.usefixtures("unconfigured")
def test_without_configuration_changes_are_silent_and_warnings_go_to_logging(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = get_logger("aeron_async.test")
    logger.info("state_changed", before="ACTIVE")
    logger.warning("loop_lagged", late_ms=300)
    logger.error("agent_failed", agent="sender", exc_info=ZeroDivisionError("why"))
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.WARNING, "loop_lagged late_ms=300"),
        (logging.ERROR, "agent_failed agent='sender'"),
    ]
    assert caplog.records[1].exc_info is not None
    assert capsys.readouterr().out == ""


def test_what_the_application_configured_gets_every_line() -> None:
    with capture_logs() as lines:
        get_logger("aeron_async.test").info("state_changed", before="ACTIVE", after="DRAINING")
    assert lines == [
        {
            "event": "state_changed",
            "before": "ACTIVE",
            "after": "DRAINING",
            "log_level": "info",
        }
    ]


def test_no_field_and_no_error_moves_a_cursor_or_breaks_a_line() -> None:
    """Also where a module forgot to ask for it."""
    hostile = "\x1b[2J\n\u202e" + "x" * 65_536
    with capture_logs() as lines:
        get_logger("aeron_async.test").warning("peer_said", reason=hostile, count=3)
    (line,) = lines
    assert line["reason"].startswith(r"\x1b[2J\n\u202exxx")
    assert line["reason"].endswith("more characters)")
    assert line["count"] == 3
    text = str(AeronError(hostile))
    assert text.startswith(r"\x1b[2J\n\u202exxx")
    assert MESSAGE_LENGTH_MAX - 16 < len(text) <= MESSAGE_LENGTH_MAX
    assert str(archive_error(11, hostile)).startswith(r"\x1b[2J\n")
    assert str(ArchiveFileError("no \x1b", file="\x07", offset=3)) == r"\x07, offset 3: no \x1b"
