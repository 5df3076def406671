"""The tutorial about a first service, followed in a folder of its own, with other ports."""

from __future__ import annotations

import ast
import asyncio
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.examples.pages import DOCS, blocks_of
from tests.examples.programs import EXAMPLES, TIMEOUT_S
from tests.tracing import untraced_environment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PAGE = DOCS / "tutorial" / "first-service.md"
FILES = ("price_service.py", "ask_price.py", "test_price_service.py")
MOST_LINES = 39


def lines_of_code(source: str) -> int:
    """Count the lines that are neither blank nor of a docstring."""
    said: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef) and (
            ast.get_docstring(node) is not None
        ):
            first = node.body[0]
            said.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    lines = enumerate(source.splitlines(), 1)
    return sum(1 for number, line in lines if line.strip() and number not in said)


def free_tcp_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@pytest.fixture(name="folder")
def write_files(tmp_path: Path, unused_udp_port_factory: Callable[[], int]) -> Path:
    """Write the files of the page, which would otherwise meet others at their ports."""
    ports = {"20121": unused_udp_port_factory(), "20122": unused_udp_port_factory()}
    ports["9464"] = free_tcp_port()
    for block in blocks_of(PAGE):
        text = block.text
        for old, new in ports.items():
            text = text.replace(old, str(new))
        if block.language == "python":
            (tmp_path / block.note.removeprefix("examples/")).write_text(text)
        elif block.language == "toml":
            (tmp_path / "pyproject.toml").write_text(text)
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=untraced_environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def test_the_page_has_every_file_whole_and_few_lines() -> None:
    shown = {block.note: block.text for block in blocks_of(PAGE) if block.language == "python"}
    assert shown == {f"examples/{name}": (EXAMPLES / name).read_text() for name in FILES}
    assert sum(map(lines_of_code, shown.values())) <= MOST_LINES


async def test_the_service_answers_and_has_metrics(folder: Path) -> None:
    service = await asyncio.create_subprocess_exec(
        *(sys.executable, "price_service.py"),
        cwd=folder,
        env=untraced_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert service.stdout is not None
        assert await service.stdout.readline() == b"serving\n"
        asked = await asyncio.to_thread(run, folder, "ask_price.py", "ACME")
        assert asked.stdout == "100.25\n", asked.stderr
        asked = await asyncio.to_thread(run, folder, "ask_price.py", "NONE")
        assert asked.stderr.splitlines()[-1].endswith(
            "CallFailedError: price: the handler raised KeyError"
        )
        port = int((folder / "price_service.py").read_text().partition("port=")[2].split(")")[0])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        page = await reader.read()
        assert b"aeron_subscription_messages_total{" in page
        calls = b'aeron_calls_total{service="prices",method="price",outcome="answered"} 1'
        assert calls in page
        writer.close()
        service.send_signal(signal.SIGINT)
        async with asyncio.timeout(TIMEOUT_S):
            await service.wait()
    finally:
        if service.returncode is None:
            service.kill()
    asked = await asyncio.to_thread(run, folder, "ask_price.py", "ACME")
    assert "NoServerError" in asked.stderr.splitlines()[-1]


def test_its_test_passes(folder: Path) -> None:
    done = run(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
