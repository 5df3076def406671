"""`aeron-async top` in a process of its own, on a true terminal, read back from its screen."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from typing import TYPE_CHECKING, Final, Self

import pytest

from tests.tracing import untraced_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytest.importorskip("textual", reason="pip install 'aeron-async[top]'")
pyte = pytest.importorskip("pyte", reason="pip install 'aeron-async[dev]'")
pytestmark = pytest.mark.processes

PATIENCE_S: Final = 60.0
"""Nothing here takes this long; what does has hung."""
PROGRAM: Final = """
import sys
from aeron_async.cli import entry, top
from tests.cli.top_worlds import FakeSource, WORLDS
world = WORLDS["slow reader at a receiver"]
top.open_source = lambda kind, place: FakeSource(world.take, place)
sys.argv = ["aeron-async", "top", "--door", "/run/app.sock", *sys.argv[1:]]
sys.exit(entry.main())
"""
ENDED: Final = "\x1b[?1049l"
"""What gives the screen back that was there before."""


class Terminal:
    """A terminal with a command in it.

    Args:
        arguments: Of the command.
        size: Columns and rows.
        environment: What is added to that of the test.
    """

    def __init__(self, *arguments: str, size: tuple[int, int], **environment: str) -> None:
        columns, rows = size
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.written = bytearray()
        self._fd, inner = pty.openpty()
        self._set_size(columns, rows)
        chosen = untraced_environment() | {"TERM": "xterm-256color"} | environment
        for name in ("COLUMNS", "LINES"):
            chosen.pop(name, None)
        self.process = subprocess.Popen(
            (sys.executable, "-c", PROGRAM, "--interval", "0.05", *arguments),
            stdin=inner,
            stdout=inner,
            stderr=inner,
            env=chosen,
            start_new_session=True,
            preexec_fn=_take_terminal,  # noqa: PLW1509 - one call, before any thread is there
        )
        os.close(inner)

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, columns: int, rows: int) -> None:
        self.screen.resize(rows, columns)
        self._set_size(columns, rows)

    def read(self) -> bool:
        """Show what is written; return whether more may come."""
        if not select.select([self._fd], [], [], PATIENCE_S)[0]:
            pytest.fail(f"nothing more is written; the screen:\n{self.text}")
        try:
            data = os.read(self._fd, 65_536)
        except OSError:  # So ends a terminal.
            return False
        self.written += data
        self._stream.feed(data)
        return bool(data)

    def wait_for(self, *parts: str, until: Callable[[str], bool] | None = None) -> str:
        """Read until all parts are on the screen, and return it."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            text = self.text
            if all(part in text for part in parts) and (until is None or until(text)):
                return text
            if not self.read():
                pytest.fail(f"it ended before {parts}; it wrote {bytes(self.written)[-2_000:]!r}")
        pytest.fail(f"{parts} did not come; the screen:\n{self.text}")

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.screen.display)

    def type(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def finish(self) -> int:
        """Read to the end, and return the exit code."""
        while self.read():
            pass
        return self.process.wait(PATIENCE_S)

    def hang_up(self) -> int:
        """Close the terminal, and return the exit code."""
        os.close(self._fd)
        self._fd = -1
        return self.process.wait(PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self.process:
            self.process.kill()
        if self._fd >= 0:
            os.close(self._fd)


def _take_terminal() -> None:
    """Make standard input the terminal that Ctrl-C and a change of its size come from."""
    # A run under `nohup` ignores it, and so would its children.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.fixture(params=[(80, 24), (200, 50)], ids=str)
def terminal(request: pytest.FixtureRequest) -> Iterator[Terminal]:
    with Terminal(size=request.param) as one:
        yield one


def test_the_screen_shows_the_list_a_page_and_gives_the_terminal_back(terminal: Terminal) -> None:
    width = terminal.screen.columns
    text = terminal.wait_for("sender_limit" if width == 80 else "receiver 0b at", "q:quit", "90%")
    lines = text.splitlines()
    assert lines[0].startswith("driver 42  loop ok  drops 0")
    assert lines[2].startswith("pub     1001")
    assert len(lines) == terminal.screen.lines
    terminal.type("\r")
    terminal.wait_for("receiver  0b  3,000", "remedy")
    terminal.type("\x1b")
    terminal.wait_for("q:quit", until=lambda text: "remedy" not in text)
    terminal.type("q")
    assert terminal.finish() == 0
    assert ENDED.encode() in terminal.written
    assert b"Traceback" not in terminal.written


def test_ctrl_c_is_exit_code_130(terminal: Terminal) -> None:
    terminal.wait_for("q:quit")
    terminal.type("\x03")
    assert terminal.finish() == 130
    assert ENDED.encode() in terminal.written


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_gives_the_terminal_back(number: signal.Signals, code: int) -> None:
    with Terminal(size=(80, 24)) as terminal:
        terminal.wait_for("q:quit")
        terminal.process.send_signal(number)
        assert terminal.finish() == code
        assert ENDED.encode() in terminal.written
        assert b"Traceback" not in terminal.written


def test_a_resize_makes_another_picture() -> None:
    with Terminal(size=(80, 24)) as terminal:
        terminal.wait_for("sender_limit", "90%")
        terminal.resize(200, 50)
        terminal.wait_for("receiver 0b at 10.0.0.2:4000 holds it back", "session channel", "q:quit")
        terminal.resize(60, 12)
        terminal.wait_for("3,000 bytes\nbehind", "?:help q:quit")
        terminal.type("q")
        assert terminal.finish() == 0


def test_a_terminal_that_stops_reading_is_waited_for() -> None:
    with Terminal(size=(200, 50)) as terminal:
        terminal.wait_for("q:quit")
        # Pages by turns write much; nobody reads it.
        for _ in range(200):
            terminal.type("?\x1b[B\x1b[Bd")
        terminal.type("q")
        assert terminal.finish() == 0


def test_a_terminal_that_goes_away_ends_it() -> None:
    with Terminal(size=(80, 24)) as terminal:
        terminal.wait_for("q:quit")
        assert terminal.hang_up() != 0


def test_no_color_writes_no_colour() -> None:
    with Terminal(size=(80, 24), NO_COLOR="1") as terminal:
        terminal.wait_for("sender_limit", "90%", "q:quit")
        colours = {each.fg for line in terminal.screen.buffer.values() for each in line.values()}
        assert all(colour == "default" or is_grey(colour) for colour in colours), colours
        terminal.type("q")
        assert terminal.finish() == 0


def is_grey(colour: str) -> bool:
    return len(colour) == 6 and colour[:2] == colour[2:4] == colour[4:]


@pytest.mark.parametrize("size", [(80, 24), (200, 50)], ids=str)
def test_a_simple_terminal_gets_tables(size: tuple[int, int]) -> None:
    with Terminal(size=size, TERM="dumb") as terminal:
        width = terminal.screen.columns
        behind = "bytes behind" if width == 200 else "bytes\nbehind"
        terminal.wait_for(f"holds it back: 3,000 {behind}", "pub 1001 session -7")
        terminal.type("\x03")
        assert terminal.finish() == 130
        assert b"\x1b" not in terminal.written
        assert b"Traceback" not in terminal.written


def test_a_terminal_gets_a_plain_view_that_is_redrawn() -> None:
    with Terminal("--plain", size=(80, 24)) as terminal:
        text = terminal.wait_for("sender_limit", "90%")
        assert text.splitlines()[0].startswith("driver 42  loop ok")
        terminal.type("\x03")
        assert terminal.finish() == 130
