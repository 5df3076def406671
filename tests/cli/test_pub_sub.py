from __future__ import annotations

import json
import os
import re
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from aeron_async.cli.main import main
from aeron_async.cli.sub import json_line, printable_line
from tests.logs import without_lines_of_the_machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cli.conftest import Running

    Start = Callable[..., Running]

ANY_PORT = "aeron:udp?endpoint=127.0.0.1:0"
QUICKLY = ("--timeout", "20")


def subscribe(start: Start, *more: str) -> tuple[Running, str]:
    """Start a subscriber, and return it with the channel that reaches it."""
    subscriber = start("sub", ANY_PORT, "--stream", "7", *more)
    return subscriber, f"aeron:udp?endpoint={subscriber.address()}|linger=500ms"


def publish(channel: str, *more: str) -> int:
    return main(["pub", channel, "--stream", "7", *QUICKLY, *more])


def test_lines_of_standard_input_arrive_as_they_are(start: Start) -> None:
    subscriber, channel = subscribe(start, "--count", "4")
    publisher = start("pub", channel, "--stream", "7", *QUICKLY)
    code, _, err = publisher.finish("one\n\nthree\nlast without newline")
    assert (code, "published 4 messages, 28 bytes" in err) == (0, True)
    code, out, err = subscriber.finish()
    assert (code, out) == (0, "one\n\nthree\nlast without newline\n")
    assert "received 4 messages" in err


def test_a_file_arrives_whole(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lines"
    path.write_text("".join(f"{number} {'x' * (number % 3_000)}\n" for number in range(2_000)))
    subscriber, channel = subscribe(start, "--count", "2000")
    with path.open() as opened, ThreadPoolExecutor() as others:
        monkeypatch.setattr(sys, "stdin", opened)
        # Somebody must read what is printed, or flow control stops the publisher.
        finished = others.submit(subscriber.finish)
        assert publish(channel, "--quiet") == 0
        code, out, _ = finished.result()
    assert (code, out == path.read_text()) == (0, True)


@pytest.fixture
def _typed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """At a terminal, somebody has typed a line, and then Ctrl-D."""
    if sys.platform == "win32":
        pytest.skip("Windows has no pseudo terminals")
    keyboard, terminal = os.openpty()
    try:
        with os.fdopen(terminal) as opened:
            monkeypatch.setattr(sys, "stdin", opened)
            os.write(keyboard, b"typed\n\x04")
            yield
    finally:
        os.close(keyboard)


@pytest.mark.usefixtures("_typed")
@pytest.mark.parametrize(
    ("more", "is_told", "sent"),
    [
        ((), True, "typed\n"),
        (("--quiet",), False, "typed\n"),
        (("--message", "given"), False, "given\n"),
    ],
)
def test_who_types_is_told_what_becomes_of_it(
    more: tuple[str, ...],
    sent: str,
    start: Start,
    capsys: pytest.CaptureFixture[str],
    *,
    is_told: bool,
) -> None:
    subscriber, channel = subscribe(start, "--count", "1")
    assert publish(channel, *more) == 0
    told = "each line that you type is a message; Ctrl-D ends" in capsys.readouterr().err
    assert told == is_told
    assert subscriber.finish()[:2] == (0, sent)


def test_an_output_that_nobody_reads_stops_the_publisher(
    start: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AERON_ASYNC_CLOSE_LINGER_TIMEOUT", "100ms")
    _, channel = subscribe(start)
    arguments = ["--stream", "7", "--size", "1000", "--timeout", "3"]
    assert main(["pub", f"{channel}|term-length=64k", *arguments]) == 1
    err = capsys.readouterr().err
    # A timer of uvloop may be a millisecond early: its clock steps by one.
    waited = re.search(r"error: offer waited (2\.999|3\.\d{3}) s", err)
    assert waited is not None, err
    told = (waited.group(), "\npublished ", "\nclosing: up to 0.1 s", "drained")
    places = [err.find(part) for part in told]
    assert places == sorted(places)
    assert places[0] >= 0, err
    assert "raise AERON_ASYNC_CLOSE_LINGER_TIMEOUT" in err
    assert "await" not in err


def test_a_subscriber_that_goes_and_comes_is_remarked_on(
    start: Start, unused_udp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AERON_PUBLICATION_CONNECTION_TIMEOUT", "500ms")
    arguments = (f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}|linger=500ms", "--stream", "7")
    first = start("sub", *arguments, "--count", "1")
    publisher = start("pub", *arguments, "--size", "100", "--rate", "100")
    assert first.finish()[0] == 0
    publisher.remark("the subscriber has gone; waiting for another")
    second = start("sub", *arguments, "--count", "1")
    publisher.remark("connected")
    assert second.finish()[0] == 0
    assert publisher.interrupt()[0] == 130


def test_quiet_is_quiet(
    start: Start,
    unused_udp_port: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # On a busy machine the other process is long in coming, and that is told to the quiet as well.
    monkeypatch.setenv("AERON_ASYNC_WAITING_HINT", "0")
    channel = f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}|linger=500ms"
    subscriber = start("sub", channel, "--stream", "7", "--count", "1", "--quiet")
    assert publish(channel, "--message", "hello", "--quiet") == 0
    out, err = capsys.readouterr()
    assert (out, without_lines_of_the_machine(err)) == ("", "")
    assert subscriber.finish() == (0, "hello\n", "")


def test_messages_given_are_repeated(start: Start) -> None:
    subscriber, channel = subscribe(start, "--count", "4", "--format", "hex")
    assert publish(channel, "--message", "a", "--message", "-b", "--count", "2", "-q") == 0
    code, out, _ = subscriber.finish()
    assert (code, out.split()) == (0, ["61", "2d62", "61", "2d62"])


def test_one_message_is_published_once(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    subscriber, channel = subscribe(start, "--count", "1", "--json")
    assert publish(channel, "--message", "hé", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["messages"], report["bytes"], report["position"]) == (1, 3, 64)
    code, out, _ = subscriber.finish()
    message = json.loads(out)
    assert (code, message["text"], message["length"]) == (0, "hé", 3)
    assert message["session_id"] == report["session_id"]
    assert message["position"] == 64


def test_messages_are_made_up_of_any_size(start: Start) -> None:
    subscriber, channel = subscribe(start, "--count", "300")
    assert publish(channel, "--count", "300", "--size", "40", "-q") == 0
    code, out, _ = subscriber.finish()
    lines = out.splitlines()
    assert (code, len(lines)) == (0, 300)
    assert lines[299].startswith("299 abc")
    assert {len(line) for line in lines} == {40}


def test_a_rate_is_kept(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    subscriber, channel = subscribe(start, "--count", "50", "--format", "none")
    assert publish(channel, "--count", "50", "--rate", "500", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["seconds"] >= 0.09
    assert report["bytes"] == 50 * 32
    code, out, _ = subscriber.finish()
    assert (code, out) == (0, "")


def test_back_pressure_is_waited_for_and_told(
    start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    subscriber, channel = subscribe(start, "--count", "3000", "--format", "none")
    assert publish(f"{channel}|term-length=64k", "--count", "3000", "--size", "1000", "--json") == 0
    assert json.loads(capsys.readouterr().out)["back_pressured"] > 0
    assert subscriber.finish()[0] == 0


def test_a_stream_without_end_ends_with_ctrl_c(start: Start) -> None:
    subscriber, channel = subscribe(start)
    publisher = start("pub", channel, "--stream", "7", "--size", "8")
    assert subscriber.line() == "0 abcdef"
    code, _, told = publisher.interrupt()
    assert code == 130
    assert "published " in told
    assert "closing: up to 5 s for what is left; Ctrl-C again to stop" in told
    code, _, err = subscriber.interrupt(signal.SIGTERM)
    assert code == 143
    assert "Traceback" not in err


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_ctrl_c_while_waiting_ends_cleanly(loop: str, start: Start) -> None:
    publisher = start("pub", "aeron:udp?endpoint=127.0.0.1:9", "--stream", "7", "--loop", loop)
    publisher.remark("waiting for a subscriber")
    code, out, err = publisher.interrupt()
    assert (code, out, err) == (130, "", "")


def test_ctrl_c_while_standard_input_is_silent_ends_cleanly(start: Start) -> None:
    subscriber, channel = subscribe(start)
    publisher = start("pub", channel, "--stream", "7")
    subscriber.remark("joined")
    code, _, err = publisher.interrupt()
    assert (code, "Traceback" in err, "Fatal" in err) == (130, False, False)
    subscriber.remark("gone")
    assert subscriber.interrupt()[0] == 130


def test_a_subscriber_that_hears_nothing_gives_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sub", ANY_PORT, "--stream", "7", "--timeout", "0.05"]) == 1
    assert "no message on" in capsys.readouterr().err


def test_a_subscriber_that_misses_some_gives_up(start: Start) -> None:
    subscriber, channel = subscribe(start, "--count", "3", "--timeout", "2")
    assert publish(channel, "--message", "a", "--count", "2", "-q") == 0
    code, out, err = subscriber.finish()
    assert (code, out) == (1, "a\na\n")
    assert "error: no message" in err


def test_a_subscriber_may_listen_until_it_is_quiet(start: Start) -> None:
    subscriber, channel = subscribe(start, "--timeout", "2")
    assert publish(channel, "--message", "a", "--count", "2", "-q") == 0
    code, out, _ = subscriber.finish()
    assert (code, out) == (0, "a\na\n")


def test_a_reader_that_goes_away_ends_the_subscriber_as_a_success(start: Start) -> None:
    subscriber, channel = subscribe(start)
    publisher = start("pub", channel, "--stream", "7", "--size", "100")
    assert subscriber.line().startswith("0 abc")
    assert subscriber.process.stdout is not None
    subscriber.process.stdout.close()
    assert subscriber.process.wait(60) == 0
    assert subscriber.process.stderr is not None
    assert "Traceback" not in subscriber.process.stderr.read()
    subscriber.process.stdout = None
    assert publisher.interrupt()[0] == 130


def test_a_line_longer_than_any_message_is_refused(
    start: Start,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "long"
    path.write_bytes(b"x" * 20_000)
    _, channel = subscribe(start)
    with path.open() as opened:
        monkeypatch.setattr(sys, "stdin", opened)
        assert publish(f"{channel}|term-length=64k") == 1
    assert "8192 bytes" in capsys.readouterr().err


class Text:
    """As much of a message as a formatter looks at."""

    session_id, stream_id, position, reserved_value = 1, 2, 64, 0

    def __init__(self, data: bytes) -> None:
        self.data = data


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"plain", b"plain\n"),
        ("grüße".encode(), "grüße\n".encode()),
        (b"\x1b[2Jgone\x07", b"\\x1b[2Jgone\\x07\n"),
        (b"\xff\x00", b"\\xff\\x00\n"),
    ],
)
def test_a_terminal_gets_no_commands(data: bytes, line: bytes) -> None:
    assert printable_line(Text(data)) == line  # type: ignore[arg-type]


def test_what_is_no_text_is_hexadecimal_in_json() -> None:
    assert json.loads(json_line(Text(b"\xff\x00")))["hex"] == "ff00"  # type: ignore[arg-type]


def test_commands_that_wait_for_long_say_why_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], unused_udp_port: int
) -> None:
    """What is waited for is said once, and the error points to it."""
    monkeypatch.setenv("AERON_ASYNC_WAITING_HINT", "50ms")
    channel = f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}"
    arguments = [channel, "--stream", "7", "--timeout", "0.3"]
    assert main(["pub", *arguments, "--message", "x"]) == 1
    assert main(["sub", *arguments]) == 1
    err = without_lines_of_the_machine(capsys.readouterr().err)
    waiting = [line for line in err.splitlines() if line.startswith("still waiting after 0.")]
    errors = [line for line in err.splitlines() if line.startswith("error: ")]
    assert len(waiting) == len(errors) == 2
    assert "none answered; start a subscription" in waiting[0]
    assert "hears nothing; start a publication" in waiting[1]
    assert errors[0].endswith(f": no subscriber connected on {channel} stream 7, as said above")
    assert errors[1].endswith(f": no publication on {channel} stream 7, as said above")


def test_an_error_says_why_if_nothing_has_said_it_before(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], unused_udp_port: int
) -> None:
    monkeypatch.setenv("AERON_ASYNC_WAITING_HINT", "10s")
    arguments = [f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}", "--stream", "7"]
    assert main(["pub", *arguments, "--timeout", "0.3", "--message", "x"]) == 1
    assert "none answered; start a subscription" in capsys.readouterr().err
