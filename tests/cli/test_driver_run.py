"""The command that runs a driver: as a process, as programs that start `aeronmd` start it."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING, Final

import pytest
from structlog.testing import capture_logs

from aeron_async import unused_variables
from aeron_async.aeron_directory import AeronDirectory
from aeron_async.cli.driver_run import DriverOptions, logs
from aeron_async.cli.driver_settings import configure, warn_of_misspelt
from aeron_async.cli.entry import runs_driver
from aeron_async.cli.main import DRIVER_COMMANDS, main
from aeron_async.concurrent.ring_buffer import ManyToOneRingBuffer
from aeron_async.driver.core.context import DriverContext
from aeron_async.logs import get_logger
from aeron_async.protocol.control_protocol import TerminateDriver
from aeron_async.text import printable
from tests.concurrent.shared import needs_shared_memory
from tests.driver.directories import small_directory
from tests.interop.programs import wait_until
from tests.without import without

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from tests.cli.conftest import Running

pytestmark = needs_shared_memory
ENDED: Final = (0, "", "")
AS_AERONMD: Final = {
    "AERON_DIR_DELETE_ON_SHUTDOWN": "true",
    "AERON_DRIVER_TERMINATION_VALIDATOR": "allow",
    "AERON_THREADING_MODE": "DEDICATED",
    "AERON_DRIVER_CONDUCTOR_CYCLE_THRESHOLD": "7200000000000",
    "AERON_DRIVER_SENDER_CYCLE_THRESHOLD": "321000",
    "AERON_DRIVER_RECEIVER_CYCLE_THRESHOLD": "250000000",
    "AERON_DRIVER_NAME_RESOLVER_THRESHOLD": "15000000000",
    "AERON_CONDUCTOR_IDLE_STRATEGY": "yield",
    "AERON_EVENT_LOG": "all",
    "AERON_NAK_UNICAST_DELAY": "0",
    "AERON_TERM_BUFER_LENGTH": "a slip of the pen",
    "AERON_UNICAST_FLOWCONTROL_SUPPLIER": "aeron_unicast_flow_control_strategy_supplier",
    "AERON_MULTICAST_FLOWCONTROL_SUPPLIER": "aeron_min_flow_control_strategy_supplier",
    "AERON_CONGESTIONCONTROL_SUPPLIER": "aeron_cubic_congestion_control_strategy_supplier",
}
"""What the official system tests set, and more of the kind."""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "aeron"


@pytest.fixture
def environment(place: Path) -> dict[str, str]:
    clean = {name: each for name, each in os.environ.items() if not name.startswith("AERON_")}
    return clean | AS_AERONMD | {"AERON_DIR": str(place)}


@pytest.fixture
def drive(start: Callable[..., Running], environment: dict[str, str]) -> Callable[..., Running]:
    def start_driver(*arguments: str, **more: str) -> Running:
        return start("driver", *arguments, environment=environment | more)

    return start_driver


async def attach(place: Path, driver: Running, *, is_writable: bool = False) -> AeronDirectory:
    """Return the directory of a driver once it serves clients."""
    await wait_until(
        lambda: driver.process.poll() is not None or is_served(place, driver), "the driver"
    )
    assert driver.process.poll() is None, driver.finish()
    return AeronDirectory.open(place, is_writable=is_writable)


def is_served(place: Path, driver: Running) -> bool:
    found = AeronDirectory.try_open(place)
    if not isinstance(found, AeronDirectory):
        return False
    with found:
        return found.layout.pid == driver.process.pid and found.heartbeat_ms > 0


def files_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def lines_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, str]:
    assert main(["driver", "--print-config", *arguments]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return dict(line.split("=", 1) for line in out.splitlines())


# Start and end.


async def test_a_driver_is_configured_by_variables_and_ends_by_a_command(
    drive: Callable[..., Running], place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    driver = drive()
    with await attach(place, driver, is_writable=True) as directory:
        labels = {each.counter_id: each.label for each in directory.counter_records()}
        for label, end in (
            (26, ": DEDICATED"),
            (27, ": threshold=7200s DEDICATED"),
            (29, ": threshold=321us DEDICATED"),
            (31, ": threshold=250ms DEDICATED"),
            (33, ": threshold=15s"),
        ):
            assert labels[label].endswith(end)
        assert main(["driver", "ping", "-d", str(place)]) == 0
        assert f"process {driver.process.pid} " in capsys.readouterr().out
        commands = ManyToOneRingBuffer(directory.atomic_buffer(directory.layout.to_driver_buffer))
        command = TerminateDriver(client_id=commands.next_correlation_id(), token=b"")
        assert commands.write(TerminateDriver.TYPE_ID, command.encode())
        assert driver.finish() == ENDED
        assert directory.heartbeat_ms == -1
    assert place not in files_in(place.parent)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_a_signal_ends_it_in_order(
    drive: Callable[..., Running], place: Path, number: int, loop: str
) -> None:
    driver = drive("--loop", loop, AERON_DIR_DELETE_ON_SHUTDOWN="false")
    (await attach(place, driver)).close()
    assert driver.interrupt(number) == ENDED
    with AeronDirectory.open(place) as directory:
        assert directory.heartbeat_ms == -1


async def test_a_directory_in_use_is_refused_and_a_stale_one_is_used_again(
    drive: Callable[..., Running], place: Path
) -> None:
    small_directory(place)
    first = drive()
    with await attach(place, first) as directory:
        code, out, err = drive().finish()
        assert (code, out) == (1, "")
        assert err.startswith(f"error: a driver uses {place} (process {first.process.pid}, ")
        assert err.count("\n") == 1
        assert not directory.is_replaced()
    first.process.kill()
    first.finish()
    second = drive(AERON_DRIVER_TIMEOUT="0", AERON_DIR_DELETE_ON_START="true")
    (await attach(place, second)).close()
    assert second.interrupt() == ENDED


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (["-Daeron.mtu.length=many"], 1, "aeron.mtu.length (AERON_MTU_LENGTH) cannot be read"),
        (["-Daeron.mtu.length=100"], 1, "must be a multiple of 32"),
        (["-Daeron.name.resolver.supplier=gossip"], 1, "must be one of default"),
        (["-Daeron.mtu.length"], 1, "is not name=value"),
        (["-Daeron.mtu.lenght=1408"], 1, "is no setting: did you mean aeron.mtu.length?"),
        (["-Daeron.dri=elsewhere"], 1, "is no setting: did you mean aeron.dir?"),
        (["nowhere.properties"], 1, "error: nowhere.properties: No such file or directory"),
        (["-d", "D", "ping"], 2, "ping must follow driver at once: aeron-async driver ping"),
        (["--bogus"], 2, "(see aeron-async driver --help)"),
        (["--loop", "trio"], 2, "invalid choice"),
    ],
)
def test_what_is_wrong_is_one_line(
    arguments: list[str], code: int, part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["driver", *arguments]) == code
    out, err = capsys.readouterr()
    assert part in err
    assert (out, err.count("\n")) == ("", 1)


def test_the_command_needs_no_extra_package(
    start: Callable[..., Running], environment: dict[str, str]
) -> None:
    program = "from aeron_async.cli.entry import main; sys.exit(main())"
    program = f"{without(['cyclopts', 'rich'])}{program}"
    done = start(
        "driver", "--print-config", program=(sys.executable, "-c", program), environment=environment
    )
    code, out, err = done.finish()
    # Also what it says about a variable that is misspelt.
    assert (code, err.count("did you mean")) == (0, err.count("\n"))
    assert len(out.splitlines()) == len(DriverContext.settings())


def test_only_what_runs_a_driver_takes_the_short_way() -> None:
    assert runs_driver(["driver"])
    assert runs_driver(["driver", "-v"])
    assert not runs_driver([])
    assert not any(runs_driver(["driver", name]) for name, *_ in DRIVER_COMMANDS)


# Settings.


def test_later_settings_override_earlier_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`aeronmd` reads the environment, then `-D`, then the files, in their order."""
    first, second = tmp_path / "first.properties", tmp_path / "second.properties"
    first.write_text(
        "# a comment\n\n! another\n"
        "aeron.mtu.length = 4096\r\n"
        "aeron.ipc.mtu.length: \\\n   20\\\n  48\n"
        "aeron.name.resolver.threshold=2s\n"
        "aeron.spies.simulate.connection=\n"
    )
    second.write_text("aeron.term.buffer.length=1m\naeron.dir=/of/the/file")
    for name in ("MTU_LENGTH", "IPC_MTU_LENGTH", "TERM_BUFFER_LENGTH"):
        monkeypatch.setenv(f"AERON_{name}", "128k")
    monkeypatch.setenv("AERON_SPIES_SIMULATE_CONNECTION", "true")
    monkeypatch.setenv("AERON_IPC_TERM_BUFFER_LENGTH", "256k")
    found = lines_of(
        capsys,
        "-Daeron.mtu.length=2048",
        "-D",
        "aeron.timer.interval=5ms",
        str(first),
        f"file://{second}",
    )
    assert found["aeron.mtu.length"] == f"4k ({first}:4)"
    assert found["aeron.ipc.mtu.length"] == f"2k ({first}:5)"
    assert found["aeron.name.resolver.threshold"] == f"2s ({first}:8)"
    assert found["aeron.term.buffer.length"] == f"1m (file://{second}:1)"
    assert found["aeron.timer.interval"] == "5ms (-Daeron.timer.interval)"
    assert found["aeron.ipc.term.buffer.length"] == "256k (AERON_IPC_TERM_BUFFER_LENGTH)"
    assert found["aeron.spies.simulate.connection"] == "false (default)"
    assert found["aeron.dir"] == f"/of/the/file (file://{second}:2)"
    for option in ("-d", "--directory", "--aeron-dir"):
        given = lines_of(capsys, option, "/of/the/option", str(second))
        assert given["aeron.dir"] == "/of/the/option (--directory)"


def test_numbers_beyond_the_limits_are_moved_to_them_as_in_aeronmd(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = lines_of(
        capsys, "-Daeron.rcv.status.message.timeout=0", "-Daeron.term.buffer.length=2g"
    )
    assert found["aeron.rcv.status.message.timeout"].startswith("1us ")
    assert found["aeron.term.buffer.length"].startswith("1g ")


def test_each_setting_has_its_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in os.environ if name.startswith("AERON_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("USER", "me")
    found = lines_of(capsys)
    defaults = DriverContext()
    expected = {
        setting.name: f"{setting.format(getattr(defaults, field))} (default)"
        for field, setting in DriverContext.settings().items()
    }
    del expected["aeron_async.driver.directory"]
    where = found.pop("aeron.dir")
    assert where.endswith("aeron-me (default)")
    assert found == expected


@pytest.mark.parametrize(
    ("text", "number"),
    [("name", 1), ("= value", 1), ("a=1\nb=\\", 2)],
)
def test_a_file_that_has_no_properties_is_refused(
    text: str, number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "driver.properties"
    file.write_text(text)
    assert main(["driver", "--print-config", str(file)]) == 1
    assert f"is no file of properties: line {number} " in capsys.readouterr().err


def test_a_slip_of_the_pen_in_a_file_of_properties_is_told(tmp_path: Path) -> None:
    file = tmp_path / "driver.properties"
    file.write_text("aeron.term.bufer.length=1m\naeron.archive.dir=x\nother.name=y\n")
    environ = {"AERON_CLIENT_LIVENES_TIMEOUT": "1s", "AERON_SENDER_IDLE_STRATEGY": "noop"}
    configuration = configure(files=[str(file)], environ=environ)
    with capture_logs() as lines:
        warn_of_misspelt(configuration)
    assert [(line["event"], line["variable"]) for line in lines] == [
        ("setting_unknown", "AERON_CLIENT_LIVENES_TIMEOUT"),
        ("setting_unknown", "AERON_TERM_BUFER_LENGTH"),
    ]
    assert "did you mean AERON_TERM_BUFFER_LENGTH?" in lines[1]["remedy"]


UNKNOWN = {
    "aeron.term.length": "did you mean aeron.term.buffer.length?",
    "term.buffer.length": "did you mean aeron.term.buffer.length?",
    "aeron.no.such.thing": "no setting has this name",
    "x" * 5_000: "no setting has this name",
}


def test_an_option_that_no_driver_has_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was ignored without a word, where its name was not nearly that of a setting."""
    monkeypatch.setattr(unused_variables, "_named", set())
    official = ("aeron.sender.idle.strategy=noop", "aeron.archive.dir=x", "aeron.dir=y")
    defines = [*(f"{name}=1" for name in UNKNOWN), *official]
    configuration = configure(defines=defines, environ={})
    assert configuration.unknown.keys() == UNKNOWN.keys()
    with capture_logs() as lines:
        for _ in range(2):
            warn_of_misspelt(configuration)
    assert [line["event"] for line in lines] == ["setting_unknown"] * len(UNKNOWN)
    for line, (name, remedy) in zip(lines, UNKNOWN.items(), strict=True):
        assert line["variable"] == printable(name, 100)
        assert remedy in line["remedy"]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_is_told_of_an_option_without_effect_and_a_pipe_is_not(
    *,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    is_terminal: bool,
) -> None:
    def end(_runner: object, serving: Coroutine[object, object, object]) -> None:
        serving.close()

    monkeypatch.setattr("asyncio.Runner.run", end)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    assert main(["driver", "-d", str(place), "-Daeron.no.such\x1b.thing=1"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("no setting has this name") == err.count("\n") == is_terminal
    assert "\x1b" not in err


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("unicast.FlowControl", "io.aeron.driver.DefaultUnicastFlowControlSupplier", "unicast_max"),
        (
            "multicast.FlowControl",
            "aeron_tagged_flow_control_strategy_supplier",
            "multicast_tagged",
        ),
        (
            "multicast.FlowControl",
            "io.aeron.driver.MinMulticastFlowControlSupplier",
            "multicast_min",
        ),
        ("CongestionControl", "io.aeron.driver.ext.CubicCongestionControlSupplier", "cubic"),
        ("name.resolver", "aeron_default_name_resolver_supplier", "default"),
    ],
)
def test_official_names_mean_ours(
    name: str, text: str, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = lines_of(capsys, f"-Daeron.{name}.supplier={text}")
    assert found[f"aeron.{name}.supplier"].startswith(f"{word} (-D")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("io.aeron.driver.DefaultAllowTerminationValidator", "allow"),
        ("aeron_driver_termination_validator_default_deny", "deny"),
        ("ALLOW", "allow"),
    ],
)
def test_official_validators_mean_ours(
    text: str, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = lines_of(capsys, f"-Daeron.driver.termination.validator={text}")
    assert found["aeron.driver.termination.validator"].startswith(f"{word} (-D")


def test_an_idle_strategy_is_named_by_a_flag_a_property_or_a_variable(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "aeron.conductor.idle.strategy"
    monkeypatch.setenv("AERON_CONDUCTOR_IDLE_STRATEGY", "yield")
    assert lines_of(capsys)[name] == "yield (AERON_CONDUCTOR_IDLE_STRATEGY)"
    java = "org.agrona.concurrent.NoOpIdleStrategy"
    assert lines_of(capsys, f"-D{name}={java}")[name] == f"noop (-D{name})"
    assert lines_of(capsys, "--idle-strategy", "spin")[name] == "spin (--idle-strategy)"
    assert main(["driver", "--print-config", "--idle-strategy", "rest"]) == 1
    assert "possible are backoff, yield, spin" in capsys.readouterr().err


async def test_a_variable_lets_a_driver_print_its_settings_and_run(
    drive: Callable[..., Running], place: Path
) -> None:
    driver = drive(AERON_PRINT_CONFIGURATION="true")
    assert driver.line() == f"aeron.dir={place} (AERON_DIR)"
    rest = [driver.line() for _ in range(len(DriverContext.settings()) - 1)]
    assert all(line.endswith(")") for line in rest)
    (await attach(place, driver)).close()
    assert driver.interrupt() == ENDED


# What watches over it.


async def test_a_pid_file_lasts_as_long_as_the_driver(
    drive: Callable[..., Running], place: Path, tmp_path: Path
) -> None:
    file = tmp_path / "driver.pid"
    file.write_text("not a number\n")
    driver = drive("--pidfile", str(file))
    (await attach(place, driver)).close()
    assert file.read_text() == f"{driver.process.pid}\n"
    code, _, err = drive("--pidfile", str(file), "-d", f"{place}2").finish()
    assert (code, err.count("\n")) == (1, 1)
    assert f"{file} names process {driver.process.pid}, which is alive" in err
    assert driver.interrupt() == ENDED
    assert files_in(tmp_path) == []
    file.write_text(f"{driver.process.pid}\n")
    again = drive("--pidfile", str(file))
    (await attach(place, again)).close()
    assert file.read_text() == f"{again.process.pid}\n"
    assert again.interrupt() == ENDED


@pytest.mark.skipif(sys.platform != "linux", reason="systemd is a part of Linux")
async def test_systemd_hears_that_it_serves_lives_and_ends(
    drive: Callable[..., Running], tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.settimeout(60)
        listener.bind(str(tmp_path / "notify"))
        driver = drive(NOTIFY_SOCKET=str(tmp_path / "notify"), WATCHDOG_USEC="20000")
        assert listener.recv(100) == f"READY=1\nMAINPID={driver.process.pid}".encode()
        assert [listener.recv(100) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        driver.process.send_signal(signal.SIGTERM)
        said = b""
        while said != b"STOPPING=1":
            said = listener.recv(100)
        assert driver.finish() == ENDED


def test_log_lines_go_where_options_say(tmp_path: Path) -> None:
    file = tmp_path / "driver.log"
    options = DriverOptions(log_level="info", log_json=True, log_file=str(file))
    with logs(options):
        get_logger("aeron_async").info("state_changed", stream_id=1)
        logging.getLogger("asyncio").error("task %s", "lost")
        logging.getLogger("asyncio").debug("not shown")
    first, second = (json.loads(line) for line in file.read_text().splitlines())
    assert (first["event"], first["level"], first["stream_id"]) == ("state_changed", "info", 1)
    assert (second["event"], second["logger"]) == ("python_logged", "asyncio")
    assert (second["level"], second["message"]) == ("error", "task lost")
    assert first["timestamp"] <= second["timestamp"]


def test_warnings_go_to_standard_error_if_only_the_level_is_given(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with logs(DriverOptions(log_level="warning")):
        get_logger("aeron_async").info("not_shown")
        get_logger("aeron_async").warning("image_refused", session_id=7)
    (line,) = capsys.readouterr().err.splitlines()
    assert "image_refused" in line
    assert "session_id=7" in line


def test_a_pause_of_the_loop_is_told_with_what_its_user_can_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with logs(DriverOptions(log_level="warning")):
        get_logger("aeron_async").warning("event_loop_lagged", remedy="use asyncio.to_thread")
    assert "remedy='let this machine do less at once'" in capsys.readouterr().err


def test_without_options_nothing_is_logged(capsys: pytest.CaptureFixture[str]) -> None:
    with logs(DriverOptions()):
        get_logger("aeron_async").error("agent_failed")
        logging.getLogger("asyncio").error("task lost")
    assert capsys.readouterr() == ("", "")
