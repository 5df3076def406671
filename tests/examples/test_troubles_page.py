"""The pages for those who are called at night: complete, and with names that exist."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import attrs
import pytest

from aeron_async import stats
from aeron_async.cli.doctor_findings import findings
from aeron_async.driver.core.congestion_control.auto_window import WISHED_RCVBUF_LENGTH
from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.driver.driver_stats import LIMIT_NAMES
from aeron_async.metrics.definitions import METRICS
from aeron_async.protocol.parameters import PARAMETERS
from aeron_async.stats import BLOCKED_BY, LOSS_CAUSES
from aeron_async.waits import WaitReason
from tests.cli.test_doctor import WELL
from tests.examples.pages import DOCS, bare, page_id, rows, section
from tests.metrics.shipped import rules

if TYPE_CHECKING:
    from pathlib import Path

PAGE = DOCS / "howto" / "troubles.md"
PRODUCTION = DOCS / "howto" / "production.md"
LOGS = DOCS / "howto" / "logs.md"
SECTIONS = re.findall(r"^## (.*)$", PAGE.read_text(), re.MULTILINE)
LEADS = ["What you see", "What it means", "What to change", "How to prove that it is over"]
# Names of the API, of budgets, and of other programs.
OTHERS = {
    "handshake_length",
    "image_log_bytes",
    "counters_count",
    "losses_per_second",
    "blocked_ratio",
    "slowest_receiver",
    "not_ready",
    "serve_metrics",
    "rmem_max",
    "no_buffer",
    "rp_filter",
    "SO_RCVBUF",
    "CAP_NET_ADMIN",
}
KEYS_OF_OTHERS = {"reason"}


def known_names() -> set[str]:
    """Return settings and their variables, and what statistics, metrics and logs name."""
    settings = DriverContext.settings()
    rows_of = [each for each in vars(stats).values() if isinstance(each, type) and attrs.has(each)]
    return {
        *settings,
        *(each.env_name for each in settings.values()),
        *(field.name for row in rows_of for field in attrs.fields(row)),
        *(each.name.lower() for each in (*SystemCounterId, *DriverCounterId)),
        *(each.name for each in METRICS),
        *LOSS_CAUSES,
        *BLOCKED_BY,
        *(bare(row[0]) for row in rows(LOGS.read_text())),
        *WaitReason.__members__,
        *OTHERS,
    }


@pytest.mark.parametrize("title", SECTIONS)
def test_a_section_says_what_whoever_is_called_needs(title: str) -> None:
    assert re.findall(r"^\*\*(.*?)\.\*\*", section(PAGE, title), re.MULTILINE) == LEADS
    assert re.fullmatch(r"[\w -]+", title), "an anchor has no other characters"


def test_the_checklist_names_what_the_command_finds() -> None:
    seen = [row[2] for row in rows(section(PRODUCTION, "The kernel")) if "`doctor`" in row[2]]
    named = {name for text in seen for name in re.findall(r"`([^`]+)`", text)} - {"doctor"}
    assert named <= {each.what for each in findings(WELL)}
    assert "datagrams in the buffer" in named


def test_the_checklist_has_the_defaults() -> None:
    context = DriverContext()
    assert WISHED_RCVBUF_LENGTH == 4_194_304
    assert f"{WISHED_RCVBUF_LENGTH}: for a window that nobody has chosen" in PRODUCTION.read_text()
    assert 3 * context.term_buffer_length == 48 * 1_024 * 1_024
    assert context.close_linger_timeout_ns == context.publication_linger_timeout_ns == 5 * 10**9
    assert context.untethered_window_limit_timeout_ns == 5 * 10**9
    assert (context.socket_sndbuf_length, context.mtu_length) == (0, 1_408)
    assert context.loop_lag_threshold_ns == 100 * 10**6


def test_every_cause_has_a_section() -> None:
    assert [each for each in SECTIONS if each.startswith("Loss by ")] == [
        f"Loss by {cause}" for cause in LOSS_CAUSES
    ]


def test_every_limit_stands_on_the_page() -> None:
    tables = rows(section(PAGE, "A full budget"))
    assert {bare(row[0]) for row in tables} - {"image_log_bytes", "counters_count"} == {
        *LIMIT_NAMES
    }


def test_every_alert_that_the_page_names_is_shipped() -> None:
    named = set(re.findall(r"`(Aeron[A-Z]\w+)`", PAGE.read_text()))
    assert named <= {each.alert for each in rules()}
    assert named


@pytest.mark.parametrize("page", [PAGE, PRODUCTION], ids=page_id)
def test_the_names_on_the_page_exist(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    named = set(re.findall(r"`([A-Za-z]+(?:_[A-Za-z]+)+)(?:\{[^`]*\})?`", text))
    assert named - known_names() == set()
    keys = set(re.findall(r"`([a-z-]+)=[^`]*`", text))
    assert keys - {each.key for each in PARAMETERS.values()} - KEYS_OF_OTHERS == set()
