"""Variables of the environment that change nothing are named, each once."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from aeron_async import unused_variables
from aeron_async.archive import ArchiveContext
from aeron_async.driver.core.context import DriverContext


@pytest.fixture(autouse=True)
def named(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return what was named, as in a new process."""
    names: set[str] = set()
    monkeypatch.setattr(unused_variables, "_named", names)
    return names


def test_a_slip_of_the_pen_is_named_with_what_was_meant_once() -> None:
    """`AERON_TERM_BUFER_LENGTH` was ignored without a word."""
    environ = {"AERON_TERM_BUFER_LENGTH": "64k", "AERON_ASYNC_LOOP_LAG_TRESHOLD": "1s"}
    with capture_logs() as lines:
        assert DriverContext.from_environment(environ) == DriverContext()
        DriverContext.from_environment(environ)
    assert [(each["event"], each["log_level"], each["variable"]) for each in lines] == [
        ("setting_unknown", "warning", "AERON_ASYNC_LOOP_LAG_TRESHOLD"),
        ("setting_unknown", "warning", "AERON_TERM_BUFER_LENGTH"),
    ]
    assert "did you mean AERON_ASYNC_LOOP_LAG_THRESHOLD?" in lines[0]["remedy"]
    assert "did you mean AERON_TERM_BUFFER_LENGTH?" in lines[1]["remedy"]


def test_a_name_that_lacks_a_word_is_named_with_what_was_meant() -> None:
    environ = {"AERON_TERM_LENGTH": "64k", "AERON_TIMEOUT": "1", "AERON_ASYNC_TIMEOUT": "2"}
    with capture_logs() as lines:
        DriverContext.from_environment(environ)
    assert [each["variable"] for each in lines] == ["AERON_TERM_LENGTH"]
    assert "did you mean AERON_TERM_BUFFER_LENGTH?" in lines[0]["remedy"]


def test_an_official_variable_that_means_nothing_here_is_named_once() -> None:
    """Likewise `AERON_DIR`."""
    with capture_logs() as lines:
        for _ in range(2):
            DriverContext.from_environment({"AERON_DIR": "/dev/shm/aeron"})  # noqa: S108 - a value
    assert [(each["event"], each["variable"]) for each in lines] == [
        ("setting_without_effect", "AERON_DIR")
    ]


def test_an_archive_names_its_own() -> None:
    """A driver passes over an archive's variables, an archive over a driver's."""
    environ = {"AERON_ARCHIVE_DIRR": "x", "AERON_DIR": "y", "AERON_ARCHIVE_THREADING_MODE": "z"}
    with capture_logs() as lines:
        ArchiveContext.from_environment(environ)
    assert [each["variable"] for each in lines] == [
        "AERON_ARCHIVE_DIRR",
        "AERON_ARCHIVE_THREADING_MODE",
    ]
    with capture_logs() as lines:
        DriverContext.from_environment(environ)
    assert [each["variable"] for each in lines] == ["AERON_DIR"]


def test_what_is_known_or_of_other_programs_is_passed_over() -> None:
    """Nothing is said of settings that are read, nor of what nobody could mean."""
    settings = [each.env_name for each in DriverContext.settings().values()]
    known = dict.fromkeys([*settings, "AERON_MULTICAST_FLOW_CONTROL_STRATEGY"], "")
    others = {"AERON_BIN": "/x", "AERON_ASYNC_PURE": "1", "AERON_HOME": "/y", "PATH": "/z"}
    with capture_logs() as lines:
        DriverContext.from_environment(known | others | {"AERON_" + "X" * 5_000: ""})
    assert not lines


def test_a_process_is_warned_of_so_many_and_no_more(named: set[str]) -> None:
    """The log has a bound."""
    environ = {f"AERON_MTU_LENGTH{chr(65 + each // 26)}{chr(65 + each % 26)}" for each in range(99)}
    with capture_logs() as lines:
        DriverContext.from_environment(dict.fromkeys(environ, "1"))
    assert len(lines) == len(named) == unused_variables.NAMED_MAX


def test_no_official_name_without_effect_is_read() -> None:
    for settings in (DriverContext.settings(), ArchiveContext.settings()):
        read = {each.env_name for each in settings.values()}
        assert not read & unused_variables.NO_EFFECT
