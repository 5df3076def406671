"""Strategies of one's own that fail: they end what they were made for, and nothing else."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

import aeron_async as aa
from aeron_async.congestion_control import CongestionControlParams, StaticWindowCongestionControl
from aeron_async.driver.core.system_counters import DRIVER_COUNTER_TYPE_ID, DriverCounterId
from aeron_async.flow_control import FlowControl, MinMulticastFlowControl, UnicastFlowControl
from aeron_async.logbuffer.log_buffers import LogBuffers
from tests.client.fake_network import FakeNetwork
from tests.client.local import fill
from tests.client.test_refusals import CHANNEL, SETUP, SOURCE, STREAM_ID, records_of
from tests.drivers import STRATEGY, embedded_only
from tests.logs import captured_logs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aeron_async.counters import CountersManager
    from aeron_async.logbuffer.log_buffers import LogSpec


pytestmark = embedded_only(STRATEGY)


class StrategyError(Exception):
    """What the strategies here raise."""


class Failing:
    """Mixed into a strategy: the methods that are named raise."""

    names: frozenset[str] = frozenset()

    def __getattribute__(self, name: str) -> Any:
        if name in object.__getattribute__(self, "names"):
            return partial(fail, name)
        return object.__getattribute__(self, name)


def fail(name: str, *_: object, **__: object) -> NoReturn:
    raise StrategyError(name)


class FailingWindow(Failing, StaticWindowCongestionControl):
    pass


class FailingPace(Failing, UnicastFlowControl):
    pass


@pytest.fixture
def network() -> FakeNetwork:
    return FakeNetwork()


@pytest.fixture
async def driver(network: FakeNetwork, context: aa.DriverContext) -> AsyncIterator[aa.MediaDriver]:
    async with aa.MediaDriver.launch(context, network=network, seed=3) as driver:
        yield driver


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> list[LogBuffers]:
    """Every log that is made from now on."""
    made: list[LogBuffers] = []
    create = LogBuffers.create

    def remember(spec: LogSpec) -> LogBuffers:
        made.append(create(spec))
        return made[-1]

    monkeypatch.setattr(LogBuffers, "create", remember)
    return made


def images_refused(counters: CountersManager) -> int:
    record = counters.find(
        type_id=DRIVER_COUNTER_TYPE_ID, registration_id=DriverCounterId.IMAGES_REFUSED
    )
    assert record is not None
    return record.value


@pytest.mark.parametrize(
    "name", ["bind", "initial_window_length", "max_window_length", "counter_types"]
)
async def test_a_window_that_fails_while_its_image_is_made_leaves_nothing_and_is_a_refusal(
    aeron: aa.Aeron,
    driver: aa.MediaDriver,
    network: FakeNetwork,
    logs: list[LogBuffers],
    name: str,
) -> None:
    def window(params: CongestionControlParams) -> FailingWindow:
        made = FailingWindow(window_length=params.window_length)
        if name != "counter_types":
            made.names = frozenset({name})
        else:
            made.counter_types = ("no such type",)  # type: ignore[assignment,misc] # the point
        return made

    subscription = await aeron.add_subscription(CHANNEL, STREAM_ID, congestion_control=window)
    before = records_of(driver.counters)
    with captured_logs() as lines:
        for _ in range(3):
            network.transports[0].protocol.datagram_received(SETUP.encode(), SOURCE)
    assert [line["event"] for line in lines] == ["image_refused"]
    assert f"congestion control of {CHANNEL}" in lines[0]["reason"]
    assert images_refused(driver.counters) == 3
    assert records_of(driver.counters) == before
    assert all(log.is_closed for log in logs)
    assert subscription.images == ()
    assert not driver.is_closed


@pytest.mark.parametrize(
    ("made", "reason"),
    [(None, "made None, which lacks"), (StaticWindowCongestionControl, "lacks an instance")],
)
async def test_what_is_no_congestion_control_refuses_the_image_and_says_why(
    aeron: aa.Aeron, driver: aa.MediaDriver, network: FakeNetwork, made: Any, reason: str
) -> None:
    def nothing(_: CongestionControlParams) -> Any:
        return made

    await aeron.add_subscription(CHANNEL, STREAM_ID, congestion_control=nothing)
    with captured_logs() as lines:
        network.transports[0].protocol.datagram_received(SETUP.encode(), SOURCE)
    assert reason in lines[0]["reason"]
    assert "nothing" in lines[0]["reason"]
    assert images_refused(driver.counters) == 1


class Halfway:
    """Answers to status messages, and to nothing else."""

    def on_status_message(self, *_: object, **__: object) -> int:
        raise StrategyError


@pytest.mark.parametrize(
    ("strategy", "reason"),
    [
        (None, "made None, which lacks on_status_message"),
        (5, "made 5, which lacks on_status_message"),
        (Halfway(), "which lacks on_trigger_send_setup, on_setup, on_idle"),
        (MinMulticastFlowControl, "lacks an instance"),
    ],
    ids=["nothing", "a number", "half of one", "a class"],
)
async def test_what_is_no_flow_control_is_refused_by_the_name_of_its_factory(
    aeron: aa.Aeron, driver: aa.MediaDriver, logs: list[LogBuffers], strategy: Any, reason: str
) -> None:
    def careless(_: object) -> FlowControl:
        return strategy  # type: ignore[no-any-return] # the point

    before = records_of(driver.counters)
    with pytest.raises(aa.ConfigurationError, match=reason) as caught:
        await aeron.add_publication(CHANNEL, STREAM_ID, flow_control=careless)
    assert "careless" in str(caught.value)
    assert "inherits from FlowControl" in str(caught.value)
    assert records_of(driver.counters) == before
    assert logs == []


async def test_a_flow_control_that_fails_to_count_is_told_to_who_asked_and_leaves_nothing(
    aeron: aa.Aeron, driver: aa.MediaDriver, logs: list[LogBuffers]
) -> None:
    pace = FailingPace(retransmit_receiver_window_multiple=4)
    pace.names = frozenset({"receiver_count"})
    before = records_of(driver.counters)
    with pytest.raises(StrategyError, match="receiver_count"):
        await aeron.add_publication(CHANNEL, STREAM_ID, flow_control=lambda _: pace)
    assert records_of(driver.counters) == before
    assert [log.is_closed for log in logs] == [True]


@pytest.mark.parametrize("free_count", [2, 5, 7])
async def test_a_publication_that_finds_no_counters_closes_its_log(
    aeron: aa.Aeron, driver: aa.MediaDriver, logs: list[LogBuffers], free_count: int
) -> None:
    counters = driver.counters
    fill(counters, free_count)
    with pytest.raises(aa.RegistrationError, match=r"counters\.buffer"):
        await aeron.add_publication(CHANNEL, STREAM_ID)
    assert [log.is_closed for log in logs] == [True]
    assert records_of(counters) == counters.limit - free_count
