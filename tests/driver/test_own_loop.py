"""A media driver in a thread of its own: its clients, its start, its close, and what ends it."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

import aeron_async as aa
from aeron_async.aeron_directory import default_directory
from aeron_async.driver import media_driver, own_loop
from aeron_async.driver.conductor import Conductor
from aeron_async.driver.storage import DirectoryStorage
from aeron_async.errors import ClosedError, ConfigurationError, DriverError, WrongLoopError
from tests.client.local import take
from tests.conftest import LOOP_FACTORIES
from tests.driver.foreign.client import small_context
from tests.driver.thread_process import STREAM_ID
from tests.tracing import untraced_environment
from tests.twins import needs_compiled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from aeron_async.driver.media_driver import MediaDriver

pytestmark = needs_compiled

IPC = "aeron:ipc"
TIMEOUT_S = 60
THREAD = "aeron-driver"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "aeron"


@pytest.fixture
async def driver(path: Path) -> AsyncIterator[aa.ThreadedMediaDriver]:
    async with aa.MediaDriver.launch(small_context(path), thread=True) as driver:
        yield driver


def is_gone(path: Path) -> bool:
    return not path.exists()


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == THREAD]


def inner(driver: aa.ThreadedMediaDriver) -> MediaDriver:
    """Return the driver that the thread runs."""
    return driver._driver


def call(driver: aa.ThreadedMediaDriver, function: Callable[..., object]) -> None:
    """Call a function in the driver's thread."""
    assert driver._loop is not None
    driver._loop.call_soon_threadsafe(function)


async def happens(event: threading.Event) -> None:
    """Wait until something has happened in another thread."""
    assert await asyncio.to_thread(event.wait, TIMEOUT_S)


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "tests.driver.thread_process", *map(str, arguments)]


async def exchange(reader: aa.Aeron, writer: aa.Aeron, channel: str) -> None:
    subscription = await reader.add_subscription(channel, STREAM_ID)
    publication = await writer.add_publication(channel, STREAM_ID)
    await publication.offer_many([b"one", b"two"])
    assert await take(subscription, 2) == [b"one", b"two"]


class Gate:
    """A place in the driver's thread, or in one of its workers, that waits for the test."""

    def __init__(self) -> None:
        self.is_reached = threading.Event()
        self.may_pass = threading.Event()
        self.is_undone = threading.Event()

    def wait(self) -> None:
        self.is_reached.set()
        assert self.may_pass.wait(TIMEOUT_S)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """The making of the driver's files."""
    gate = Gate()

    def slow(*arguments: Any) -> DirectoryStorage:
        gate.wait()
        return DirectoryStorage(*arguments)

    def discard(storage: DirectoryStorage) -> None:
        storage.close()
        gate.is_undone.set()

    # The class also says how to discard what it has made.
    slow.close = discard  # type: ignore[attr-defined]
    monkeypatch.setattr(media_driver, "DirectoryStorage", slow)
    return gate


# Clients.


@pytest.mark.parametrize("name", LOOP_FACTORIES)
async def test_clients_attach_to_the_driver_and_to_its_directory(path: Path, name: str) -> None:
    async with aa.MediaDriver.launch(
        small_context(path), thread=True, loop_factory=LOOP_FACTORIES[name]
    ) as driver:
        assert driver.directory == path
        assert type(driver._loop).__module__.partition(".")[0] == name
        async with (
            aa.Aeron.connect(driver) as reader,
            aa.Aeron.connect(directory=driver.directory) as writer,
        ):
            assert not isinstance(reader.driver, aa.MediaDriver)
            assert reader.driver.context is driver.context
            await exchange(reader, writer, IPC)
            labels = [each.label for each in reader.counters]
            assert [each.label for each in driver.counters] == labels != []
    assert driver.is_closed
    assert threads() == []
    # The directory of the context is as that of every driver.
    assert not is_gone(path)


async def test_uvloop_is_the_default_where_it_is_installed(
    driver: aa.ThreadedMediaDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = "uvloop" if "uvloop" in LOOP_FACTORIES else "asyncio"
    assert type(driver._loop).__module__.partition(".")[0] == expected
    monkeypatch.setattr(own_loop, "find_spec", lambda _name: None)
    assert own_loop.default_loop_factory() is asyncio.new_event_loop


async def test_a_client_takes_the_idle_strategy_of_its_own(
    driver: aa.ThreadedMediaDriver,
) -> None:
    async with aa.Aeron.connect(driver, idle_strategy="sleep-ns") as aeron:
        await exchange(aeron, aeron, IPC)


async def test_without_a_directory_there_is_a_temporary_one() -> None:
    small = aa.DriverContext(counters_buffer_length=1 << 20)
    driver = aa.MediaDriver.launch(small, thread=True)
    assert driver.directory.parent == default_directory({}).parent
    assert is_gone(driver.directory)
    async with driver:
        async with aa.Aeron.connect(driver) as aeron:
            await exchange(aeron, aeron, IPC)
        assert driver.directory.stat().st_mode & 0o777 == 0o700
    assert is_gone(driver.directory)
    assert aa.MediaDriver.launch(small, thread=True).directory != driver.directory


async def test_a_relative_directory_stays_the_same(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    driver = aa.MediaDriver.launch(small_context(Path(path.name)), thread=True)
    monkeypatch.chdir("/")
    async with driver, aa.Aeron.connect(driver) as aeron:
        assert driver.directory == path
        await exchange(aeron, aeron, IPC)


async def test_a_stream_goes_on_while_the_loop_of_the_application_is_blocked(
    driver: aa.ThreadedMediaDriver, unused_udp_port: int
) -> None:
    channel = f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}|term-length=64k"
    # The loop stands still in this call, until the other process has received all.
    done = subprocess.run(  # noqa: ASYNC221 - it is to block the loop
        command("exchange", driver.directory, channel, 2_000),
        env=untraced_environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("exchanged 2000\n", "")
    assert not driver.is_closed


async def test_a_client_needs_a_driver_that_serves(path: Path) -> None:
    driver = aa.MediaDriver.launch(small_context(path), thread=True)
    with pytest.raises(ClosedError, match="has not been started"):
        await aa.Aeron.connect(driver)
    with pytest.raises(ClosedError):
        _ = driver.counters
    async with driver:
        pass
    with pytest.raises(ClosedError, match="is closed"):
        await aa.Aeron.connect(driver)


async def test_a_client_that_is_left_ends_with_the_driver(path: Path) -> None:
    async with aa.MediaDriver.launch(small_context(path), thread=True) as driver:
        aeron = await aa.Aeron.connect(driver)
        subscription = await aeron.add_subscription(IPC, STREAM_ID)
    async with asyncio.timeout(TIMEOUT_S):
        with pytest.raises(StopAsyncIteration):
            await anext(subscription)
    await aeron.aclose()


def test_a_loop_without_a_thread_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="thread=True"):
        aa.MediaDriver.launch(loop_factory=asyncio.new_event_loop)  # type: ignore[call-overload]


# The start.


async def test_it_starts_once(path: Path) -> None:
    driver = await aa.MediaDriver.launch(small_context(path), thread=True)
    async with driver:
        with pytest.raises(ClosedError):
            await driver.start()
    with pytest.raises(ClosedError):
        await driver.start()


@pytest.mark.parametrize("how", ["aclose", "abort"])
async def test_one_that_was_never_started_has_closed(path: Path, how: str) -> None:
    driver = aa.MediaDriver.launch(small_context(path), thread=True)
    await getattr(driver, how)()
    await driver.wait_closed()
    assert driver.is_closed
    assert is_gone(path)
    with pytest.raises(ClosedError):
        await driver.start()


async def test_an_error_of_the_start_reaches_the_caller(
    driver: aa.ThreadedMediaDriver, path: Path
) -> None:
    second = aa.MediaDriver.launch(small_context(path), thread=True)
    with pytest.raises(DriverError, match=f"a driver uses {path}"):
        await second.start()
    assert second.is_closed
    assert threads() == [driver._thread]
    await second.aclose()
    await second.wait_closed()


async def test_a_system_without_a_loop_or_a_thread_is_an_error_of_the_start(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_loop() -> NoReturn:
        raise OSError(errno.EMFILE, "no descriptor")

    driver = aa.MediaDriver.launch(small_context(path), thread=True, loop_factory=no_loop)
    with pytest.raises(OSError, match="no descriptor"):
        await driver.start()
    await driver.aclose()
    await driver.wait_closed()

    def no_thread(_self: object) -> NoReturn:
        message = "can't start new thread"
        raise RuntimeError(message)

    loop = asyncio.new_event_loop()
    driver = aa.MediaDriver.launch(small_context(path), thread=True, loop_factory=lambda: loop)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(OSError, match="no thread") as caught:
            await driver.start()
    assert caught.value.errno == errno.EAGAIN
    assert loop.is_closed()
    await driver.aclose()
    assert is_gone(path)


async def test_a_start_that_is_cancelled_leaves_nothing(path: Path, disk: Gate) -> None:
    driver = aa.MediaDriver.launch(small_context(path), thread=True)
    starting = asyncio.create_task(driver.start())
    await happens(disk.is_reached)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert threads() == []
    assert driver.is_closed
    # The thread that makes the files goes on when its caller has gone.
    disk.may_pass.set()
    await happens(disk.is_undone)
    assert is_gone(path)
    await driver.aclose()


async def test_a_start_that_is_cancelled_before_its_end_is_heard_leaves_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_told = threading.Event()
    tell = aa.ThreadedMediaDriver._tell

    def tell_and_note(self: aa.ThreadedMediaDriver, *arguments: Any) -> None:
        tell(self, *arguments)
        is_told.set()

    monkeypatch.setattr(aa.ThreadedMediaDriver, "_tell", tell_and_note)
    driver = aa.MediaDriver.launch(small_context(path), thread=True)
    starting = asyncio.create_task(driver.start())
    await asyncio.sleep(0)
    # The loop is blocked until the driver has started, and comes to the cancelling first.
    assert is_told.wait(TIMEOUT_S)
    starting.cancel()
    done, _ = await asyncio.wait([starting], timeout=TIMEOUT_S)
    assert done
    assert starting.cancelled()
    assert threads() == []
    assert inner(driver).is_closed


@pytest.mark.parametrize("how", ["aclose", "abort"])
async def test_one_that_is_closed_while_it_starts_does_not_run(
    path: Path, disk: Gate, how: str
) -> None:
    driver = aa.MediaDriver.launch(small_context(path), thread=True)
    starting = asyncio.create_task(driver.start())
    await happens(disk.is_reached)
    closing = asyncio.create_task(getattr(driver, how)())
    await asyncio.sleep(0)
    assert not closing.done()
    disk.may_pass.set()
    with pytest.raises(ClosedError):
        await starting
    await closing
    assert threads() == []
    assert is_gone(path)


async def test_one_that_is_closed_before_its_thread_runs_does_not_start(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    run = aa.ThreadedMediaDriver._run

    def run_later(self: aa.ThreadedMediaDriver, loop: asyncio.AbstractEventLoop) -> None:
        gate.wait()
        run(self, loop)

    monkeypatch.setattr(aa.ThreadedMediaDriver, "_run", run_later)
    driver = aa.MediaDriver.launch(small_context(path), thread=True)
    starting = asyncio.create_task(driver.start())
    await happens(gate.is_reached)
    starting.cancel()
    await asyncio.sleep(0)
    gate.may_pass.set()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert threads() == []
    assert is_gone(path)


async def test_a_thread_that_cannot_run_its_loop_says_so(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[BaseException | None] = []
    monkeypatch.setattr(threading, "excepthook", lambda found: seen.append(found.exc_value))

    async def fail(_self: object) -> NoReturn:
        message = "it cannot serve"
        raise RuntimeError(message)

    monkeypatch.setattr(aa.ThreadedMediaDriver, "_serve", fail)
    driver = aa.MediaDriver.launch(small_context(path), thread=True)
    with pytest.raises(DriverError, match="thread of the media driver ended"):
        await driver.start()
    assert [str(error) for error in seen] == ["it cannot serve"]
    await driver.aclose()


# The close.


class Draining(Gate):
    """The sending of what is left when the driver closes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()

        async def drain(_conductor: Conductor) -> None:
            self.is_reached.set()
            await asyncio.to_thread(self.may_pass.wait, TIMEOUT_S)

        monkeypatch.setattr(Conductor, "drain", drain)


async def test_it_sends_what_is_left_before_it_closes(path: Path, unused_udp_port: int) -> None:
    channel = f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}|term-length=64k"
    sent = [b"%d" % number for number in range(100)]
    async with aa.Aeron.connect() as reader:
        subscription = await reader.add_subscription(channel, STREAM_ID)
        async with (
            aa.MediaDriver.launch(small_context(path), thread=True) as driver,
            aa.Aeron.connect(driver) as aeron,
        ):
            publication = await aeron.add_publication(channel, STREAM_ID)
            await publication.offer_many(sent)
        assert threads() == []
        assert await take(subscription, len(sent)) == sent


async def test_the_loop_runs_while_the_driver_closes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draining = Draining(monkeypatch)
    driver = await aa.MediaDriver.launch(small_context(path), thread=True)
    closing = [asyncio.create_task(driver.aclose()) for _ in range(2)]
    await happens(draining.is_reached)
    assert driver.is_closed
    assert not any(each.done() for each in closing)
    draining.may_pass.set()
    await asyncio.gather(*closing)
    assert threads() == []


@pytest.mark.parametrize("how", ["cancel", "abort"])
async def test_a_close_that_is_cancelled_closes_at_once(
    path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    draining = Draining(monkeypatch)
    context = small_context(path, close_linger_timeout_ns=3_600 * 10**9)
    driver = await aa.MediaDriver.launch(context, thread=True)
    closing = asyncio.create_task(driver.aclose())
    waiting = asyncio.create_task(driver.aclose())
    await happens(draining.is_reached)
    # One that only waits for the close does not hurry it.
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert threads() != []
    if how == "cancel":
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
    else:
        await driver.abort()
        await closing
    assert threads() == []
    draining.may_pass.set()


async def test_a_request_that_comes_too_late_is_left(path: Path) -> None:
    async with aa.MediaDriver.launch(small_context(path), thread=True) as driver:
        pass
    requested: list[object] = []

    async def close() -> None:
        requested.append(driver)

    # Its loop has ended before the call, or between the call and its turn.
    driver._request(close)
    driver._start_request(close)
    assert requested == []


async def test_a_client_may_end_it(driver: aa.ThreadedMediaDriver) -> None:
    call(driver, inner(driver)._terminate)
    async with asyncio.timeout(TIMEOUT_S):
        await driver.wait_closed()
    assert driver.is_closed
    assert threads() == []


async def test_an_agent_that_fails_ends_it_with_its_error(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = aa.MediaDriver.launch(small_context(path), thread=True)

    async def fail(_now_ns: int) -> int:
        message = "it is broken"
        raise ValueError(message)

    def break_sender() -> None:
        sender = inner(driver).conductor.sender
        monkeypatch.setattr(sender, "do_work", fail)
        sender.wake()

    async def serve() -> None:
        async with driver:
            call(driver, break_sender)
            with suppress(DriverError):
                await driver.wait_closed()

    with pytest.raises(DriverError, match="aeron-sender failed") as caught:
        await serve()
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(DriverError, match="aeron-sender failed"):
        await driver.wait_closed()
    with pytest.raises(ClosedError) as refused:
        await aa.Aeron.connect(driver)
    assert refused.value.__cause__ is caught.value
    assert threads() == []


# What ends without closing it.


def test_a_loop_that_ends_without_closing_it_ends_it(path: Path) -> None:
    async def start() -> aa.ThreadedMediaDriver:
        return await aa.MediaDriver.launch(small_context(path), thread=True)

    with pytest.warns(ResourceWarning, match=r"unclosed .*: its event loop ended before"):
        driver = asyncio.run(start())
    assert driver.is_closed
    assert threads() == []


def test_a_loop_that_ends_while_it_is_closed_is_no_fault(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draining = Draining(monkeypatch)
    closing = []

    async def start() -> None:
        driver = await aa.MediaDriver.launch(small_context(path), thread=True)
        closing.append(asyncio.create_task(driver.aclose()))
        await happens(draining.is_reached)

    asyncio.run(start())
    draining.may_pass.set()
    assert closing[0].cancelled()
    assert threads() == []


@pytest.mark.parametrize("what", ["event loop was closed", "thread of its event loop ended"])
def test_it_ends_when_it_can_no_longer_be_closed(
    path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    looking = Gate()
    look = aa.ThreadedMediaDriver._look_home

    def look_later(driver: aa.ThreadedMediaDriver) -> None:
        looking.wait()
        look(driver)

    monkeypatch.setattr(aa.ThreadedMediaDriver, "_look_home", look_later)
    driver = aa.MediaDriver.launch(small_context(path), thread=True)
    loop = asyncio.new_event_loop()
    # Both ways leave the task that watches the driver as it is, of which asyncio would tell.
    loop.set_exception_handler(lambda *_: None)
    home = threading.Thread(target=loop.run_until_complete, args=(driver.start(),))
    home.start()
    home.join(TIMEOUT_S)
    if what == "event loop was closed":
        loop.close()
        with pytest.raises(WrongLoopError, match="now that this loop is closed"):
            asyncio.run(driver.aclose())

    def look_now() -> None:
        looking.may_pass.set()
        for thread in threads():
            thread.join(TIMEOUT_S)

    with pytest.warns(ResourceWarning, match=rf"unclosed .*: (its|the) {what} before"):
        look_now()
    assert driver.is_closed
    assert threads() == []
    loop.close()


async def test_it_looks_again_while_it_can_be_closed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = threading.Semaphore(0)
    look = aa.ThreadedMediaDriver._look_home

    def count(driver: aa.ThreadedMediaDriver) -> None:
        look(driver)
        looks.release()

    monkeypatch.setattr(aa.ThreadedMediaDriver, "_look_home", count)
    monkeypatch.setattr(own_loop, "HOME_INTERVAL_S", 0.001)
    async with aa.MediaDriver.launch(small_context(path), thread=True) as driver:
        for _ in range(3):
            assert await asyncio.to_thread(looks.acquire, timeout=TIMEOUT_S)
        assert not driver.is_closed


@pytest.mark.parametrize("how", ["forget", "daemon"])
def test_an_interpreter_that_ends_closes_it(how: str) -> None:
    done = subprocess.run(
        command(how),
        env=untraced_environment() | {"PYTHONWARNINGS": "always::ResourceWarning"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0
    assert "the thread of its event loop ended before `await aclose()`" in done.stderr
    assert not Path(done.stdout.strip()).exists()


def test_ctrl_c_reaches_the_main_thread_and_closes_it() -> None:
    program = subprocess.Popen(
        command("wait"),
        env=untraced_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    directory = Path(program.stdout.readline().strip())
    assert directory.exists()
    program.send_signal(signal.SIGINT)
    _, complaints = program.communicate(timeout=TIMEOUT_S)
    assert complaints.endswith("KeyboardInterrupt\n")
    assert "unclosed" not in complaints
    assert program.returncode == -signal.SIGINT
    assert not directory.exists()


# Other loops and processes.


async def test_another_loop_neither_waits_nor_closes(driver: aa.ThreadedMediaDriver) -> None:
    for use in (driver.aclose, driver.abort, driver.wait_closed):
        with pytest.raises(WrongLoopError, match="another event loop"):
            await asyncio.to_thread(asyncio.run, use())
    assert not driver.is_closed


async def test_clients_in_other_threads_attach(driver: aa.ThreadedMediaDriver) -> None:
    async def work() -> None:
        async with aa.Aeron.connect(driver) as aeron:
            await exchange(aeron, aeron, IPC)

    await asyncio.to_thread(asyncio.run, work())


def outcome(use: Callable[[], Any]) -> str:
    """Return what a call raises, or a coroutine before it waits."""
    try:
        made = use()
        if asyncio.iscoroutine(made):
            made.send(None)
    except BaseException as error:  # noqa: BLE001 - the parent looks at it
        return type(error).__name__
    return "nothing"


def outcomes_in_child(uses: Sequence[Callable[[], Any]]) -> list[str]:
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write_end, " ".join(map(outcome, uses)).encode())
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    return said.split()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
async def test_a_forked_child_does_not_touch_it(driver: aa.ThreadedMediaDriver) -> None:
    uses = [driver.aclose, driver.abort, driver.wait_closed, lambda: driver.counters]
    assert outcomes_in_child(uses) == ["WrongLoopError"] * len(uses)
    async with aa.Aeron.connect(driver) as aeron:
        await exchange(aeron, aeron, IPC)
