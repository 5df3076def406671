"""What the library calls a setting is what the user of a command can change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import structlog

from aeron_async.cli.archive_where import client_settings
from aeron_async.cli.main import main
from aeron_async.cli.output import rename_settings_for_cli
from aeron_async.cli.runner import configure_logs
from aeron_async.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lower low_storage_threshold", "lower AERON_ARCHIVE_LOW_STORAGE_SPACE_THRESHOLD"),
        (
            "raise max_concurrent_recordings, or stop some",
            "raise AERON_ARCHIVE_MAX_CONCURRENT_RECORDINGS, or stop some",
        ),
        ("raise close_linger_timeout_ns", "raise AERON_ASYNC_CLOSE_LINGER_TIMEOUT"),
        ("from_position 192 is outside", "--begin 192 is outside"),
        ("no answer within 5.0 s: raise timeout", "no answer within 5.0 s: raise AERON_ARCHIVE_"),
        ("publish with `extending_publication`, or on", "publish with `pub --extend`, or on"),
        ("/var/mtu_length/x", "/var/mtu_length/x"),
        ("raise max_destinations.", "raise AERON_ASYNC_MAX_DESTINATIONS."),
        ("mtu_length=1408", "mtu_length=1408"),
        ("path='/x' is no directory: change path", "ARCHIVE='/x' is no directory: change ARCHIVE"),
        ("archive.path='/x' is no directory", "archive.path='/x' is no directory"),
        ("the session is gone: connect again", "the session is gone: run the command again"),
        ("a directory of its own", "a directory of its own"),
        ("some_other_name", "some_other_name"),
    ],
)
def test_names_of_arguments_become_options_and_variables(text: str, said: str) -> None:
    assert rename_settings_for_cli(text).startswith(said)


def test_errors_of_commands_are_worded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = "AERON_ARCHIVE_LOW_STORAGE_SPACE_THRESHOLD"
    monkeypatch.setenv(variable, "1000000g")
    where = str(tmp_path / "archive")
    assert (
        main(["archive", "record", where, "aeron:udp?endpoint=127.0.0.1:0", "--stream", "5"]) == 1
    )
    error = capsys.readouterr().err
    assert f"lower {variable}" in error
    assert "low_storage_threshold" not in error


def test_lines_of_the_log_are_worded(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(is_verbose=False)
    log = structlog.get_logger()
    log.warning("archive_request_failed", error="raise max_destinations", channel="mtu_length")
    error = capsys.readouterr().err
    assert "raise AERON_" in error
    assert "mtu_length" in error


def test_a_client_of_an_archive_is_set_by_the_official_variables() -> None:
    found = client_settings(
        {
            "AERON_ARCHIVE_CONTROL_RESPONSE_CHANNEL": "aeron:udp?endpoint=client.example:0",
            "AERON_ARCHIVE_CONTROL_STREAM_ID": "11",
            "AERON_ARCHIVE_MESSAGE_TIMEOUT": "250ms",
            "AERON_ARCHIVE_CONTROL_RESPONSE_STREAM_ID": " ",
        }
    )
    assert found == {
        "response_channel": "aeron:udp?endpoint=client.example:0",
        "control_stream_id": 11,
        "timeout": 0.25,
    }
    with pytest.raises(
        ConfigurationError, match=r"\(AERON_ARCHIVE_CONTROL_STREAM_ID\) cannot be read"
    ):
        client_settings({"AERON_ARCHIVE_CONTROL_STREAM_ID": "ten"})
    with pytest.raises(ConfigurationError, match=r"CONTROL_STREAM_ID\) must be at most 2147483647"):
        client_settings({"AERON_ARCHIVE_CONTROL_STREAM_ID": "99999999999"})
    with pytest.raises(ConfigurationError, match=r"MESSAGE_TIMEOUT\) must be at least 1"):
        client_settings({"AERON_ARCHIVE_MESSAGE_TIMEOUT": "0"})


def test_nobody_is_waited_for_longer_than_told(
    monkeypatch: pytest.MonkeyPatch, unused_udp_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AERON_ARCHIVE_MESSAGE_TIMEOUT", "50ms")
    where = f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}"
    assert main(["archive", "ls", where]) == 1
    assert f"no archive answers at 127.0.0.1:{unused_udp_port}" in capsys.readouterr().err


def test_whoever_waits_for_an_archive_hears_of_it_before_the_timeout(
    monkeypatch: pytest.MonkeyPatch, unused_udp_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AERON_ARCHIVE_MESSAGE_TIMEOUT", "500ms")
    monkeypatch.setenv("AERON_ASYNC_WAITING_HINT", "100ms")
    monkeypatch.setenv("AERON_ARCHIVE_CONTROL_STREAM_ID", "11")
    where = f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}"
    assert main(["archive", "ls", where]) == 1
    (remark,) = [
        line for line in capsys.readouterr().err.splitlines() if line.startswith("still waiting")
    ]
    assert "or AERON_ARCHIVE_CONTROL_STREAM_ID (11 here, default 10)" in remark


def test_the_variable_of_a_driver_is_told_with_the_option_that_a_command_has(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logs(is_verbose=False)
    log = structlog.get_logger()
    log.warning("setting_without_effect", variable="AERON_DIR", remedy="Aeron.connect(directory=")
    assert "--aeron-dir lets this command use the driver that runs there" in capsys.readouterr().err
