"""The command `aeron-async monitor`: its sources, its token, and how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING
from urllib.request import Request, urlopen

import pytest

pytest.importorskip("starlette", reason="pip install 'aeron-async[web]'")
pytest.importorskip("uvicorn", reason="pip install 'aeron-async[web]'")

from aeron_async.cli.main import main
from aeron_async.cli.monitor.command import SOURCES_MAX, address_of, sources_of, token_of
from aeron_async.cli.stats_sources import DirectorySource, DoorSource
from aeron_async.door import StatsDoor
from aeron_async.errors import AeronError, ConfigurationError, DriverError
from tests.cli.monitors import MadeUp, applied, monitor_of
from tests.cli.top_worlds import healthy
from tests.without import without

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Running

TOKEN = "0123456789abcdef" * 2


def page_at(address: str) -> bytes:
    assert address.startswith("http://127.0.0.1:")
    with urlopen(address) as answer:  # noqa: S310 - http, as asserted
        found: bytes = answer.read()
    return found


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_it_prints_its_address_and_ends_by_a_signal(
    start: Callable[..., Running], tmp_path: Path, number: int, code: int
) -> None:
    running = start("monitor", "--door", str(tmp_path / "door"), "--interval", "0.25")
    address = running.line()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", address)
    assert b"<title>Aeron monitor</title>" in page_at(address)
    # An open page does not hold it up.
    with urlopen(f"{address}events") as events:  # noqa: S310 - http, as above
        assert events.readline() == b"retry: 1000\n"
        ended, out, err = running.interrupt(number)
    assert (ended, out) == (code, "")
    (said,) = err.splitlines()
    assert f"{tmp_path / 'door'} does not answer yet: there is no door" in said


def test_a_token_is_printed_once(start: Callable[..., Running], tmp_path: Path) -> None:
    running = start("monitor", "--door", str(tmp_path / "door"), "--token")
    address, _, token = running.line().partition("?token=")
    assert re.fullmatch("[0-9a-f]{32}", token)
    request = Request(f"{address}api/topology", headers={"Cookie": f"x={token}"})  # noqa: S310 - http
    with pytest.raises(OSError, match="401"):
        urlopen(request)  # noqa: S310 - http
    port = address.rpartition(":")[2].strip("/")
    cookie = f"aeron_async_monitor_{port}={token}"
    request = Request(f"{address}api/topology", headers={"Cookie": cookie})  # noqa: S310 - http
    with urlopen(request) as answer:  # noqa: S310 - http
        assert json.load(answer)["streams"] == []
    _, out, err = running.interrupt()
    assert token not in out + err


def test_a_token_may_lie_in_a_file(start: Callable[..., Running], tmp_path: Path) -> None:
    path = tmp_path / "token"
    running = start("monitor", "--door", str(tmp_path / "door"), "--token-file", str(path))
    address = running.line()
    token = path.read_text().strip()
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(OSError, match="401"):
        page_at(address)
    code, out, err = running.interrupt()
    assert code == 130
    assert str(path) in err
    assert token not in address + out + err


def test_a_token_file_is_used_again(tmp_path: Path) -> None:
    path = tmp_path / "token"
    before = os.umask(0)
    try:
        assert token_of(str(path), TOKEN) == TOKEN
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    assert token_of(str(path), "f" * 32) == TOKEN
    assert path.read_text() == f"{TOKEN}\n"


def test_a_token_file_of_others_or_with_something_else_is_refused(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.write_text(TOKEN)
    shared.chmod(0o640)
    other = tmp_path / "other"
    other.write_text("my diary")
    other.chmod(0o600)
    link = tmp_path / "link"
    link.symlink_to(other)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    for path, why in (
        (shared, "run chmod 600"),
        (other, "something else"),
        (link, "cannot be opened"),
        (pipe, "no plain file"),
        (tmp_path, "cannot be opened"),
        (tmp_path / "none" / "x", "cannot be opened"),
    ):
        with pytest.raises(ConfigurationError, match=why):
            token_of(str(path), "f" * 32)
    assert other.read_text() == "my diary"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--bind", "localhost"], "no address to listen at"),
        (["--bind", "192.0.2.1"], "requested address; --bind must be an address of this machine"),
        (["--door", "@name"], "abstract name"),
        (["--door", "/a", "--directory", "/a"], "a door and an Aeron directory at once"),
        (["--interval", "0.1"], "interval"),
        (["--port", "70000"], "port"),
        (["--door", ""], "is empty"),
    ],
)
def test_bad_usage_is_one_line(
    arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["monitor", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert why in err
    assert len(err.splitlines()) == 1


def test_a_port_in_use_is_bad_usage_too(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert main(["monitor", "--port", str(port)]) == 2
    assert f"127.0.0.1 port {port} cannot be listened at" in (err := capsys.readouterr().err)
    assert "choose another --port, or 0 for one that is free" in err


def test_sources_are_named_once_and_are_not_too_many() -> None:
    found = sources_of(["/a", "/b", "/a"], ["/c", "/c"])
    assert [each.name for each in found] == ["/a", "/b", "/c"]
    with pytest.raises(ConfigurationError, match=f"more than the {SOURCES_MAX} "):
        sources_of([f"/{each}" for each in range(SOURCES_MAX + 1)], [])


@pytest.mark.parametrize(
    ("bind", "address"),
    [
        ("127.0.0.1", "http://127.0.0.1:80/"),
        ("0.0.0.0", "http://box:80/"),
        ("::", "http://box:80/"),
        ("fe80::1", "http://[fe80::1]:80/"),
    ],
)
def test_an_address_is_one_that_a_browser_takes(bind: str, address: str) -> None:
    assert address_of(bind, "box", 80) == address


def test_without_its_packages_it_says_what_to_install() -> None:
    code = (
        "import sys, importlib.util\n" + without(["textual"]) + "known = importlib.util.find_spec\n"
        "import importlib.util as util\n"
        "util.find_spec = lambda name, *rest: None if name in ('starlette', 'uvicorn')"
        " else known(name, *rest)\n"
        "from aeron_async.cli.main import main\n"
        "code = main(['monitor'])\n"
        "assert not {'starlette', 'uvicorn'} & sys.modules.keys()\n"
        "sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    text = "starlette and uvicorn are not installed: pip install 'aeron-async[web]'"
    assert text in done.stderr


# Sources.


async def test_a_door_that_closes_and_opens_again_is_found_again(tmp_path: Path) -> None:
    path = str(tmp_path / "door")
    fake = MadeUp(healthy)
    source = DoorSource(path)
    with pytest.raises(DriverError, match="there is no door"):
        await source.take()
    async with monitor_of(source) as monitor, monitor.watching() as page:
        _, _, state = await page.event()

        async def until_it_is(verdict: str) -> None:
            nonlocal state
            while state["drivers"]["0"]["verdict"] != verdict:
                state = applied(state, (await page.event())[2])

        for _ in range(2):
            async with StatsDoor(path, fake.take, version="1", pid=42):
                await until_it_is("fine")
                assert state["streams"]["0-pub-1"]["stream"] == 1001
            await until_it_is("gone")


async def test_a_directory_without_a_driver_is_a_failure_each_time(tmp_path: Path) -> None:
    source = DirectorySource(str(tmp_path))
    for _ in range(2):
        with pytest.raises(AeronError):
            await source.take()
    await source.aclose()
