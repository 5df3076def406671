from __future__ import annotations

import asyncio
import os
import signal
import sys
from importlib.util import find_spec
from typing import Literal, NoReturn

import pytest
import structlog

from aeron_async.cli import runner
from aeron_async.cli.options import RunOptions
from aeron_async.cli.output import remark
from aeron_async.cli.runner import Watchdog, loop_factory, run, together
from aeron_async.errors import AeronTimeoutError, ConfigurationError


class LoopName:
    """A command that says on which loop it ran."""

    def __init__(self) -> None:
        self.name = ""

    async def __call__(self) -> int:
        self.name = type(asyncio.get_running_loop()).__module__.partition(".")[0]
        return 0


def test_uvloop_is_chosen_where_it_is_installed() -> None:
    command = LoopName()
    assert run(command(), RunOptions()) == 0
    assert command.name == ("uvloop" if find_spec("uvloop") else "asyncio")


def test_asyncio_is_chosen_when_asked_for() -> None:
    command = LoopName()
    assert run(command(), RunOptions(loop="asyncio")) == 0
    assert command.name == "asyncio"


def test_without_uvloop_asyncio_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "find_spec", lambda _name: None)
    assert loop_factory(None) is asyncio.new_event_loop
    with pytest.raises(ConfigurationError, match="pip install uvloop"):
        run(LoopName()(), RunOptions(loop="uvloop"))


@pytest.mark.parametrize(("is_verbose", "count"), [(False, 1), (True, 2)])
def test_the_log_goes_to_standard_error(
    is_verbose: bool,  # noqa: FBT001 - one of the cases
    count: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def write_log() -> int:
        log = structlog.get_logger()
        log.info("something_changed", number=1)
        log.warning("something_odd", number=2)
        return 0

    assert run(write_log(), RunOptions(verbose=is_verbose)) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == count
    assert "something_odd" in captured.err
    assert "\x1b" not in captured.err


@pytest.mark.parametrize(("is_terminal", "before"), [(False, ""), (True, "\n")])
@pytest.mark.parametrize("loop", ["asyncio", *(["uvloop"] if find_spec("uvloop") else [])])
def test_ctrl_c_lets_the_command_close_and_say_so_on_a_line_of_its_own(
    loop: Literal["asyncio", "uvloop"],
    before: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    is_terminal: bool,
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    handler = signal.getsignal(signal.SIGINT)

    async def interrupted() -> int:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            remark("closed")
        return 0

    with pytest.raises(KeyboardInterrupt):
        run(interrupted(), RunOptions(loop=loop))
    assert capsys.readouterr().err == f"{before}closed\n"
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_command_that_is_cancelled_from_within_says_so() -> None:
    async def cancelled() -> NoReturn:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run(cancelled(), RunOptions(loop="asyncio"))


async def test_of_several_the_first_error_ends_the_others() -> None:
    ended = []

    async def fail() -> NoReturn:
        message = "broken"
        raise ValueError(message)

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("wait")

    with pytest.raises(ValueError, match="broken"):
        await together(wait(), fail())
    assert ended == ["wait"]


async def test_a_watchdog_ends_a_block_in_which_nothing_happens() -> None:
    with pytest.raises(AeronTimeoutError, match="silence"):
        async with Watchdog(0.01, AeronTimeoutError("silence")):
            await asyncio.Event().wait()


async def test_a_watchdog_waits_on_from_the_last_mark() -> None:
    loop = asyncio.get_running_loop()
    started = loop.time()
    watchdog = Watchdog(0.02, AeronTimeoutError("silence"))
    loop.call_at(started + 0.01, watchdog.mark)
    with pytest.raises(AeronTimeoutError, match="silence"):
        async with watchdog:
            await asyncio.Event().wait()
    assert loop.time() - started >= 0.03


async def test_a_watchdog_without_a_timeout_does_nothing() -> None:
    async with Watchdog(None, AeronTimeoutError("silence")) as watchdog:
        watchdog.mark()
        await asyncio.sleep(0)


async def test_a_watchdog_lets_other_errors_pass() -> None:
    with pytest.raises(KeyError):
        async with Watchdog(5, AeronTimeoutError("silence")):
            raise KeyError


async def test_a_watchdog_may_make_its_error_when_it_is_due() -> None:
    with pytest.raises(AeronTimeoutError, match="silence"):
        async with Watchdog(0.01, lambda: AeronTimeoutError("silence")):
            await asyncio.Event().wait()


def test_a_long_wait_is_remarked_on_in_one_plain_line(capsys: pytest.CaptureFixture[str]) -> None:
    async def write_log() -> int:
        log = structlog.get_logger()
        log.warning("wait_lasted_long", operation="offer", seconds=2.0, why="a: b; raise max_x")
        log.warning("recording_waits", seconds=2.0, reason="c", remedy="give SourceLocation.REMOTE")
        return 0

    assert run(write_log(), RunOptions()) == 0
    offer, recording = capsys.readouterr().err.splitlines()
    assert offer == "still waiting after 2 s: a: b; raise max_x"
    assert recording.startswith("no recording yet after 2 s: c; if another process publishes")
