"""Strategies of one's own that fail while their stream runs: it ends, and the others go on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import attrs
import pytest

import aeron_async as aa
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.protocol.error import ErrorFrame
from aeron_async.protocol.header import RttFlags, StatusMessageFlags
from aeron_async.protocol.nak import Nak
from aeron_async.protocol.rtt import RttMeasurement
from aeron_async.protocol.status_message import StatusMessage
from tests.client.fake_network import FakeNetwork
from tests.client.local import until
from tests.client.test_failing_strategies import FailingPace, FailingWindow, StrategyError
from tests.client.test_refusals import CHANNEL, SETUP, SOURCE, STREAM_ID, records_of
from tests.driver.fakes import data
from tests.drivers import STRATEGY, embedded_only
from tests.logs import captured_logs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = embedded_only(STRATEGY)

MS = 1_000_000
PACE_METHODS = [
    "on_status_message",
    "on_trigger_send_setup",
    "on_setup",
    "on_idle",
    "on_error",
    "deadline_ns",
    "has_required_receivers",
    "max_retransmission_length",
    "receiver_count",
    "refused_count",
]
WINDOW_METHODS = [
    "on_track_rebuild",
    "should_measure_rtt",
    "on_rttm_sent",
    "on_rttm",
    "rtt_deadline_ns",
]


class MeasuringWindow(FailingWindow):
    def should_measure_rtt(self, now_ns: int) -> bool:
        return True


@pytest.fixture
def network() -> FakeNetwork:
    return FakeNetwork()


@pytest.fixture
def context() -> aa.DriverContext:
    return aa.DriverContext(
        term_buffer_length=64 * 1024,
        status_message_timeout_ns=MS,
        publication_linger_timeout_ns=1_000,
        close_linger_timeout_ns=MS,
    )


@pytest.fixture
async def driver(network: FakeNetwork, context: aa.DriverContext) -> AsyncIterator[aa.MediaDriver]:
    async with aa.MediaDriver.launch(context, network=network, seed=3) as driver:
        yield driver


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    with captured_logs() as lines:
        yield lines


def failures(lines: list[Any]) -> list[Any]:
    return [line for line in lines if line["event"] in {"publication_failed", "image_failed"}]


def recording(driver: aa.MediaDriver) -> list[str]:
    """Let a driver record its errors in a list."""
    recorded: list[str] = []
    counters = driver.conductor._resources.system_counters
    counters.record_error = lambda _, text: recorded.append(text)
    return recorded


class Paced:
    """Two connected publications of one endpoint; the first one's strategy can be made to fail."""

    def __init__(self, driver: aa.MediaDriver, network: FakeNetwork) -> None:
        self.driver = driver
        self._network = network
        self.pace = FailingPace(retransmit_receiver_window_multiple=4)
        self.failing: aa.Publication
        self.other: aa.Publication

    async def start(self, aeron: aa.Aeron) -> None:
        self.other = await aeron.add_publication(CHANNEL, STREAM_ID + 1)
        self.hear(self.sm(self.other))
        await self.other.wait_connected(timeout=5)
        self.before = records_of(self.driver.counters)
        self.failing = await aeron.add_publication(
            CHANNEL, STREAM_ID, flow_control=lambda _: self.pace
        )
        self.hear(self.sm(self.failing))
        await self.failing.wait_connected(timeout=5)
        await self.failing.offer(b"sent before")
        await self.failing.drain(timeout=5)

    def hear(self, frame: Any) -> None:
        self._network.transports[0].protocol.datagram_received(frame.encode(), SOURCE)

    def sm(self, publication: aa.Publication, **changes: Any) -> StatusMessage:
        sm = StatusMessage(
            session_id=publication.session_id,
            stream_id=publication.stream_id,
            consumption_term_id=publication.initial_term_id,
            consumption_term_offset=0,
            receiver_window=32 * 1024,
            receiver_id=5,
        )
        return attrs.evolve(sm, **changes)

    def hear_everything(self) -> None:
        """Let every kind of control frame arrive, and time stand still for a while."""
        ids: dict[str, Any] = {"session_id": self.failing.session_id, "stream_id": STREAM_ID}
        self.hear(self.sm(self.failing))
        self.hear(Nak(**ids, term_id=self.failing.initial_term_id, term_offset=0, length=64))
        self.hear(self.sm(self.failing, flags=StatusMessageFlags.SEND_SETUP))
        self.hear(ErrorFrame(**ids, receiver_id=5, error_code=13, message=b"no"))


@pytest.fixture
async def paced(aeron: aa.Aeron, driver: aa.MediaDriver, network: FakeNetwork) -> Paced:
    paced = Paced(driver, network)
    await paced.start(aeron)
    return paced


@pytest.mark.parametrize("name", PACE_METHODS)
async def test_a_flow_control_that_fails_closes_its_publication_and_no_other(
    paced: Paced, driver: aa.MediaDriver, lines: list[Any], name: str
) -> None:
    recorded = recording(driver)
    paced.pace.names = frozenset({name})
    if name == "has_required_receivers":
        # Asked once for all that has come, and not where nobody is left.
        paced.hear(paced.sm(paced.failing))
    else:
        paced.hear_everything()
    await until(lambda: paced.failing.is_closed)
    (line,) = failures(lines)
    assert (line["event"], line["log_level"]) == ("publication_failed", "error")
    assert (line["channel"], line["stream_id"]) == (CHANNEL, STREAM_ID)
    assert isinstance(line["exc_info"], StrategyError)
    # What the receiver has rejected is another error.
    (text,) = (each for each in recorded if "errorMessage=no" not in each)
    ids = f"streamId={STREAM_ID} sessionId={paced.failing.session_id}"
    assert text == f"publication failed: channel={CHANNEL} {ids}: StrategyError({name!r})"
    assert driver.counters.value(SystemCounterId.ERRORS) == len(recorded)
    with pytest.raises(
        aa.ClosedError, match=rf"driver, because its flow control raised StrategyError: {name}$"
    ) as e:
        await paced.failing.offer(b"x")
    assert isinstance(e.value.__cause__, aa.PublicationError)
    assert isinstance(e.value.__cause__.__cause__, StrategyError)
    assert records_of(driver.counters) == paced.before
    await paced.other.offer(b"and on it goes", timeout=5)
    await paced.other.drain(timeout=5)
    await paced.failing.aclose()


async def test_what_is_closed_by_its_failure_wakes_who_waits_and_may_be_added_again(
    paced: Paced, aeron: aa.Aeron
) -> None:
    waiting = asyncio.create_task(paced.failing.offer_many([bytes(1_000)] * 100))
    await asyncio.sleep(0)
    paced.pace.names = frozenset({"on_status_message"})
    paced.hear(paced.sm(paced.failing))
    with pytest.raises(aa.ClosedError, match="failed in its driver"):
        await asyncio.wait_for(waiting, 5)
    again = await aeron.add_publication(CHANNEL, STREAM_ID)
    assert again.session_id != paced.failing.session_id
    paced.hear(paced.sm(again))
    await again.wait_connected(timeout=5)


async def test_who_reads_the_log_of_a_publication_that_fails_loses_its_image(
    paced: Paced, aeron: aa.Aeron
) -> None:
    spy = await aeron.add_subscription(f"aeron-spy:{CHANNEL}", STREAM_ID)
    await until(lambda: spy.images)
    paced.pace.names = frozenset({"on_idle"})
    await until(lambda: paced.failing.is_closed)
    assert spy.images == ()


async def test_a_publication_that_fails_before_anybody_has_it_is_told_of_as_closed(
    aeron: aa.Aeron, driver: aa.MediaDriver, network: FakeNetwork
) -> None:
    pace = FailingPace(retransmit_receiver_window_multiple=4)
    adding = asyncio.create_task(
        aeron.add_publication(CHANNEL, STREAM_ID, flow_control=lambda _: pace)
    )
    await until(lambda: driver.conductor.network_publications)
    pace.names = frozenset({"on_idle", "deadline_ns"})
    (publication,) = driver.conductor.network_publications
    driver.conductor.sender._guard(publication, publication.poll, 0)
    driver.conductor.sender._on_done(publication)
    driver.conductor.sender.remove(publication)
    with pytest.raises(aa.ClosedError, match="failed in its driver"):
        await adding
    assert network.transports[0].is_closed


@pytest.mark.parametrize("name", WINDOW_METHODS)
async def test_a_window_that_fails_lets_its_image_drain_and_no_other(
    aeron: aa.Aeron, driver: aa.MediaDriver, network: FakeNetwork, lines: list[Any], name: str
) -> None:
    window = MeasuringWindow(window_length=32 * 1024)
    subscription = await aeron.add_subscription(
        CHANNEL, STREAM_ID, congestion_control=lambda _: window
    )
    other = await aeron.add_subscription(CHANNEL, STREAM_ID + 1)
    (transport,) = network.transports

    def hear(frame: Any) -> None:
        datagram = frame if isinstance(frame, bytes) else frame.encode()
        transport.protocol.datagram_received(datagram, SOURCE)

    def message(stream_id: int, offset: int) -> bytes:
        ids: dict[str, Any] = {"session_id": SETUP.session_id, "stream_id": stream_id, "term_id": 5}
        return data(offset, 64, initial_term_id=5, **ids)

    for stream_id in (STREAM_ID, STREAM_ID + 1):
        hear(attrs.evolve(SETUP, stream_id=stream_id))
        hear(message(stream_id, 0))
    await until(lambda: subscription.images and other.images)
    (image,) = driver.conductor.publication_images[:1]
    await until(lambda: image.rebuild_position == 64)
    recorded = recording(driver)
    window.names = frozenset({name})
    hear(
        RttMeasurement(
            session_id=SETUP.session_id,
            stream_id=STREAM_ID,
            echo_timestamp_ns=driver.clock.now_ns(),
            reception_delta_ns=0,
            receiver_id=image._feedback._receiver_id,
            flags=RttFlags(0),
        )
    )
    await until(lambda: failures(lines))
    (line,) = failures(lines)
    assert (line["event"], line["stream_id"]) == ("image_failed", STREAM_ID)
    assert line["source"] == "127.0.0.1:40457"
    assert str(line["exc_info"]) == name
    assert driver.counters.value(SystemCounterId.ERRORS) == 1
    ids = f"streamId={STREAM_ID} sessionId={SETUP.session_id}"
    assert recorded == [f"image failed: source=127.0.0.1:40457 {ids}: StrategyError({name!r})"]
    assert len((await anext(subscription)).data) == 32, "what had come may be read"
    subscription._begin_poll()
    await until(lambda: not subscription.images)
    assert len(failures(lines)) == 1
    hear(message(STREAM_ID + 1, 64))
    for _ in range(2):
        await asyncio.wait_for(anext(other), 5)
    assert not driver.is_closed


async def test_a_driver_closes_in_good_order_although_a_window_fails_at_its_goodbye(
    network: FakeNetwork, context: aa.DriverContext, lines: list[Any]
) -> None:
    window = FailingWindow(window_length=32 * 1024)
    driver = aa.MediaDriver.launch(context, network=network, seed=3)
    async with driver, aa.Aeron.connect(driver) as aeron:
        await aeron.add_subscription(CHANNEL, STREAM_ID, congestion_control=lambda _: window)
        network.transports[0].protocol.datagram_received(SETUP.encode(), SOURCE)
        (image,) = driver.conductor.publication_images
        window.names = frozenset({"rtt_deadline_ns"})
    assert [line["event"] for line in failures(lines)] == ["image_failed"]
    assert image.log.is_closed
    assert not [line for line in lines if line["event"] == "closing_failed"]
