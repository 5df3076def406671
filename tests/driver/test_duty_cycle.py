"""A driver that a program steps: its calls, its clients, and where they may not be called."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, NoReturn

import attrs
import pytest

import aeron_async as aa
from aeron_async.driver.conductor import Conductor
from tests.conftest import LOOP_FACTORIES
from tests.twins import needs_compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

STREAM_ID = 1001
COUNT = 1_000
LIMIT_S = 60
IPC = "aeron:ipc?term-length=64k"


class Cycle:
    """What a program does in each turn: it never waits."""

    def __init__(self, publication: aa.Publication, subscription: aa.Subscription) -> None:
        self.publication = publication
        self.subscription = subscription
        self.sent = 0
        self.received: list[bytes] = []

    def on_fragment(self, data: memoryview, _header: aa.FragmentHeader) -> None:
        self.received.append(bytes(data))

    def do_work(self) -> None:
        self.subscription.poll(self.on_fragment)
        if self.sent < COUNT:
            position = self.publication.try_offer(b"%d" % self.sent)
            self.sent += not isinstance(position, aa.OfferOutcome)


@pytest.fixture
def context() -> aa.DriverContext:
    return aa.DriverContext(counters_buffer_length=1 << 20)


@pytest.fixture
def driver(context: aa.DriverContext) -> Iterator[aa.InvokedMediaDriver]:
    with aa.MediaDriver.launch(context, invoker=True) as driver:
        yield driver


def step_until(driver: aa.InvokedMediaDriver, is_so: Callable[[], object]) -> None:
    last = monotonic() + LIMIT_S
    while not is_so():
        assert monotonic() < last, "it does not happen"
        driver.do_work()


@pytest.mark.parametrize("make_loop", LOOP_FACTORIES.values(), ids=LOOP_FACTORIES)
def test_a_stream_over_udp_needs_no_more_than_steps(
    context: aa.DriverContext,
    make_loop: Callable[[], asyncio.AbstractEventLoop],
    unused_udp_port: int,
) -> None:
    channel = f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}|term-length=64k"
    with aa.MediaDriver.launch(context, invoker=True, loop_factory=make_loop) as driver:
        aeron = driver.run(aa.Aeron.connect(driver))
        subscription = driver.run(aeron.add_subscription(channel, STREAM_ID))
        cycle = Cycle(driver.run(aeron.add_publication(channel, STREAM_ID)), subscription)
        worked = 0
        last = monotonic() + LIMIT_S
        while len(cycle.received) < COUNT and monotonic() < last:
            worked += driver.do_work(cycle.do_work)
        assert cycle.received == [b"%d" % number for number in range(COUNT)]
        # What is sent and received is work.
        assert worked > COUNT * 32
        driver.run(aeron.aclose())
    assert driver.is_closed


def test_a_step_without_work_returns_nothing(driver: aa.InvokedMediaDriver) -> None:
    step_until(driver, lambda: driver.do_work() == 0)


def test_what_the_work_raises_is_raised(driver: aa.InvokedMediaDriver) -> None:
    with pytest.raises(ZeroDivisionError):
        driver.do_work(lambda: 1 // 0)
    with pytest.raises(KeyboardInterrupt):
        driver.do_work(interrupt)
    driver.do_work()


def interrupt() -> NoReturn:
    raise KeyboardInterrupt


@needs_compiled
def test_clients_of_other_loops_attach_by_its_directory(
    context: aa.DriverContext, tmp_path: Path
) -> None:
    context = attrs.evolve(context, aeron_directory=str(tmp_path / "aeron"))
    received = []

    async def read() -> None:
        async with (
            aa.Aeron.connect(directory=tmp_path / "aeron") as aeron,
            aeron.add_subscription(IPC, STREAM_ID) as subscription,
        ):
            received.append((await anext(subscription)).data)

    with aa.MediaDriver.launch(context, invoker=True) as driver:
        aeron = driver.run(aa.Aeron.connect(driver))
        publication = driver.run(aeron.add_publication(IPC, STREAM_ID))
        reader = threading.Thread(target=asyncio.run, args=(read(),))
        reader.start()
        step_until(driver, lambda: publication.is_connected)
        driver.run(publication.offer(b"from the program"))
        step_until(driver, lambda: not reader.is_alive())
        reader.join()
        driver.run(aeron.aclose())
    assert received == [b"from the program"]


# Where it may not be called.


def test_it_is_refused_where_an_event_loop_runs(context: aa.DriverContext) -> None:
    made = aa.MediaDriver.launch(context, invoker=True)

    async def refuse(*calls: Callable[[], object]) -> None:
        for call in calls:
            with pytest.raises(aa.WrongLoopError, match="runs in this thread"):
                call()

    asyncio.run(refuse(made.start))
    with made:
        asyncio.run(refuse(made.do_work, made.close))
        assert not made.is_closed
        made.do_work()


def test_it_belongs_to_the_thread_that_started_it(driver: aa.InvokedMediaDriver) -> None:
    refused = []

    def step() -> None:
        for call in (driver.do_work, driver.close):
            with suppress(aa.WrongLoopError):
                call()
                return
            refused.append(call)

    thread = threading.Thread(target=step)
    thread.start()
    thread.join()
    assert len(refused) == 2
    driver.do_work()


def test_it_starts_once(context: aa.DriverContext) -> None:
    driver = aa.MediaDriver.launch(context, invoker=True)
    with pytest.raises(aa.ClosedError, match="has not been started"):
        driver.do_work()
    with driver:
        with pytest.raises(aa.ClosedError, match="starts once"):
            driver.start()
        assert driver.counters.limit
    driver.close()
    for call in (driver.start, driver.do_work):
        with pytest.raises(aa.ClosedError):
            call()
    unused = aa.MediaDriver.launch(context, invoker=True)
    unused.close()
    assert unused.is_closed
    with pytest.raises(aa.ClosedError):
        unused.start()


def test_a_thread_or_an_invoker_and_a_loop_for_one_of_them(context: aa.DriverContext) -> None:
    launch: Callable[..., object] = aa.MediaDriver.launch
    with pytest.raises(aa.ConfigurationError, match="leave out"):
        launch(context, thread=True, invoker=True)
    with pytest.raises(aa.ConfigurationError, match="loop_factory"):
        launch(context, loop_factory=asyncio.new_event_loop)


def test_a_start_that_fails_leaves_no_loop(
    context: aa.DriverContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    def make_loop() -> asyncio.AbstractEventLoop:
        loops.append(asyncio.new_event_loop())
        return loops[0]

    def fail(_: object) -> NoReturn:
        message = "no memory"
        raise OSError(message)

    monkeypatch.setattr("aeron_async.driver.media_driver.Conductor", fail)
    with (
        pytest.raises(OSError, match="no memory"),
        aa.MediaDriver.launch(context, invoker=True, loop_factory=make_loop),
    ):
        pass
    assert loops[0].is_closed()


def test_a_driver_that_has_failed_says_why(
    driver: aa.InvokedMediaDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_conductor: Conductor, _now_ns: int) -> NoReturn:
        message = "broken"
        raise RuntimeError(message)

    monkeypatch.setattr(Conductor, "do_work", fail)
    aeron = driver.run(aa.Aeron.connect(driver))
    with pytest.raises(aa.AeronError):
        driver.run(aeron.add_publication(IPC, STREAM_ID))
    with pytest.raises(aa.DriverError, match="broken"):
        step_until(driver, lambda: False)
