from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
import structlog
from structlog.testing import capture_logs

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
