"""`pub`, `sub`, `ping` and `pong` as clients of a driver in another process."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

import pytest

from aeron_async.cli.main import main
from tests.cli.conftest import PATIENCE_S
from tests.concurrent.shared import needs_shared_memory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Running

    Start = Callable[..., Running]

pytestmark = needs_shared_memory
IPC = "aeron:ipc"
STREAM = ("--stream", "5")


@pytest.fixture
def use(driver: Running, place: str) -> tuple[str, str]:
    """The option that names the directory of a driver."""
    del driver
    return "--aeron-dir", place


def test_messages_go_from_pub_to_sub_over_ipc(use: tuple[str, str], start: Start) -> None:
    subscriber = start("sub", IPC, *STREAM, "--count", "2", *use)
    assert subscriber.remark("listening on") == "listening on aeron:ipc, stream 5"
    publisher = start("pub", IPC, *STREAM, "--message", "one", "--message", "two", *use)
    assert publisher.finish()[0] == 0
    code, out, _ = subscriber.finish()
    assert (code, out) == (0, "one\ntwo\n")


def test_round_trips_are_measured_over_ipc(
    use: tuple[str, str], start: Start, capfd: pytest.CaptureFixture[str]
) -> None:
    channels = ("--ping-channel", IPC, "--pong-channel", IPC)
    echo = start("pong", *channels, *use)
    echo.remark("echoing aeron:ipc")
    capfd.readouterr()
    rounds = ("--count", "20", "--warmup", "1", "--timeout", str(PATIENCE_S))
    assert main(["ping", *channels, *rounds, "--json", *use]) == 0
    assert json.loads(capfd.readouterr().out)["count"] == 20
    code, _, err = echo.interrupt()
    assert code == 130
    assert "echoed 21 pings" in err


def test_a_publisher_that_is_stopped_leaves_what_it_has_offered_to_the_driver(
    use: tuple[str, str], start: Start
) -> None:
    subscriber = start("sub", IPC, *STREAM, "--count", "1", *use)
    subscriber.remark("listening on")
    publisher = start("pub", IPC, *STREAM, *use)
    publisher.remark("publishing to")
    assert publisher.process.stdin is not None
    publisher.process.stdin.write("one\n")
    publisher.process.stdin.flush()
    assert subscriber.finish()[:2] == (0, "one\n")
    code, _, err = publisher.interrupt()
    assert code == 130
    assert "published 1 message" in err
    assert "closing: up to" not in err


@pytest.mark.parametrize(
    ("number", "last"),
    [
        (signal.SIGTERM, "error: the client is closed: its media driver was closed"),
        (signal.SIGKILL, "error: the subscription"),
    ],
)
def test_a_subscriber_whose_driver_ends_says_what_it_has_received(
    driver: Running,
    use: tuple[str, str],
    start: Start,
    number: signal.Signals,
    last: str,
) -> None:
    soon = os.environ | {"AERON_DRIVER_TIMEOUT": "1500"}
    subscriber = start("sub", IPC, *STREAM, *use, environment=soon)
    subscriber.remark("listening on")
    publisher = start("pub", IPC, *STREAM, "--message", "one", *use)
    assert subscriber.line() == "one"
    assert publisher.finish()[0] == 0
    driver.interrupt(number)
    found, _, err = subscriber.finish()
    assert found == 1
    assert "received 1 message" in err
    assert "the event loop stood still" not in err
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith(last)


def test_an_echo_whose_driver_ends_in_order_says_so(
    driver: Running, use: tuple[str, str], start: Start
) -> None:
    echo = start("pong", "--ping-channel", IPC, "--pong-channel", IPC, *use)
    echo.remark("echoing aeron:ipc")
    driver.interrupt(signal.SIGTERM)
    code, _, err = echo.finish()
    assert code == 1
    assert err.splitlines()[-1] == "error: the client is closed: its media driver was closed"


def test_a_publisher_whose_driver_is_killed_does_not_blame_its_subscriber(
    driver: Running, use: tuple[str, str], start: Start
) -> None:
    soon = os.environ | {"AERON_DRIVER_TIMEOUT": "1500"}
    subscriber = start("sub", IPC, *STREAM, *use)
    subscriber.remark("listening on")
    rate = ("--rate", "100", "--size", "10")
    publisher = start("pub", IPC, *STREAM, *rate, *use, environment=soon)
    subscriber.line()
    driver.interrupt(signal.SIGKILL)
    code, _, err = publisher.finish()
    assert code == 1
    assert "subscriber has gone" not in err
    assert "error: " in err.splitlines()[-1]


def test_a_file_in_place_of_the_directory_is_refused_at_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.touch()
    assert main(["sub", IPC, *STREAM, "--aeron-dir", str(file)]) == 2
    assert f"{file} is a file, and an Aeron directory is needed" in capfd.readouterr().err


@pytest.mark.parametrize(
    "command", [("sub", IPC, *STREAM), ("driver", "ping"), ("stat",), ("driver",)]
)
@pytest.mark.parametrize("option", ["--aeron-dir", "--directory", "-d"])
def test_a_directory_without_a_name_is_refused(
    command: tuple[str, ...], option: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, option, ""]) in {1, 2}
    assert "must name a directory" in capfd.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        ("pub", IPC, *STREAM, "--message", "one"),
        ("sub", IPC, *STREAM),
        ("ping", "--ping-channel", IPC, "--pong-channel", IPC),
    ],
    ids=lambda command: command[0],
)
def test_the_timeout_bounds_the_wait_for_a_driver(
    command: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """It was waited for as long as `AERON_DRIVER_TIMEOUT` says, ten seconds by default."""
    monkeypatch.setenv("AERON_DRIVER_TIMEOUT", str(int(PATIENCE_S * 1_000)))
    assert main([*command, "--timeout", "0.05", "--aeron-dir", str(tmp_path)]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("error: no media driver within 0.05 s, which is --timeout: no driver has")
    assert str(tmp_path) in err
    assert err.count("\n") == 1
