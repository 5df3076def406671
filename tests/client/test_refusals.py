"""What a driver refuses, of peers and of channels, and what it leaves behind: nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import attrs
import pytest

import aeron_async as aa
from aeron_async.driver.core.stream_counters import (
    ChannelCounterType,
    LocalAddressType,
    StreamCounterType,
)
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.logbuffer.log_buffers import LogBuffers
from aeron_async.protocol.setup import Setup
from tests.client.fake_network import FakeNetwork
from tests.client.local import fill
from tests.drivers import caught_up, contradiction
from tests.logs import captured_logs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aeron_async.counters import CounterRecord, CountersManager
    from aeron_async.logbuffer.log_buffers import LogSpec

STREAM_ID = 1001
CHANNEL = "aeron:udp?endpoint=127.0.0.1:40456"
SOURCE = ("127.0.0.1", 40457)
SETUP = Setup(
    session_id=7,
    stream_id=STREAM_ID,
    initial_term_id=5,
    active_term_id=5,
    term_offset=0,
    term_length=64 * 1024,
    mtu_length=1408,
)


@pytest.fixture
def network() -> FakeNetwork:
    return FakeNetwork()


@pytest.fixture
def context() -> aa.DriverContext:
    return aa.DriverContext(
        term_buffer_length=64 * 1024,
        counters_buffer_length=1024 * 1024,
        publication_linger_timeout_ns=1_000,
        close_linger_timeout_ns=1_000_000,
    )


@pytest.fixture
async def driver(network: FakeNetwork, context: aa.DriverContext) -> AsyncIterator[aa.MediaDriver]:
    async with aa.MediaDriver.launch(context, network=network, seed=3) as driver:
        yield driver


def records(counters: CountersManager, *type_ids: int) -> list[CounterRecord]:
    return [record for record in counters.snapshot() if record.type_id in type_ids]


def images_refused(counters: CountersManager) -> int:
    record = counters.find(type_id=20_000, registration_id=DriverCounterId.IMAGES_REFUSED)
    assert record is not None
    return record.value


@pytest.mark.parametrize(
    ("setup", "reason"),
    [
        (attrs.evolve(SETUP, mtu_length=32), "32"),
        (attrs.evolve(SETUP, mtu_length=65_504), "rcv-wnd"),
        (attrs.evolve(SETUP, active_term_id=4), "before the initial term id 5"),
        (
            attrs.evolve(SETUP, initial_term_id=-(2**31), active_term_id=2**31 - 1),
            "before the initial",
        ),
    ],
)
async def test_a_setup_that_no_log_can_be_made_for_is_refused_and_breaks_nothing(
    aeron: aa.Aeron, driver: aa.MediaDriver, network: FakeNetwork, setup: Setup, reason: str
) -> None:
    subscription = await aeron.add_subscription(CHANNEL, STREAM_ID)
    (transport,) = network.transports
    with captured_logs() as lines:
        for _ in range(3):
            transport.protocol.datagram_received(setup.encode(), SOURCE)
    assert [line["event"] for line in lines] == ["image_refused"]
    assert reason in lines[0]["reason"]
    assert images_refused(driver.counters) == 3
    transport.protocol.datagram_received(attrs.evolve(SETUP, session_id=8).encode(), SOURCE)
    while not subscription.images:
        await asyncio.sleep(0)
    assert [image.session_id for image in subscription.images] == [8]


async def test_what_cannot_be_meant_is_counted_and_logged_once_a_second_for_both_ends(
    aeron: aa.Aeron, driver: aa.MediaDriver, network: FakeNetwork
) -> None:
    await aeron.add_subscription(CHANNEL, STREAM_ID)
    await aeron.add_publication(CHANNEL, STREAM_ID)
    with captured_logs() as lines:
        for transport in network.transports:
            for _ in range(5):
                transport.protocol.datagram_received(b"\x01\x02\x03", SOURCE)
    assert driver.counters.value(SystemCounterId.INVALID_PACKETS) == 10
    assert [(line["event"], line["source"]) for line in lines] == [
        ("datagram_invalid", "127.0.0.1:40457")
    ]


@pytest.mark.parametrize("free_count", [0, 1])
@pytest.mark.parametrize("kind", ["add_publication", "add_subscription"])
async def test_an_endpoint_that_finds_no_counters_leaves_no_socket_and_no_counter_behind(
    aeron: aa.Aeron, driver: aa.MediaDriver, network: FakeNetwork, kind: str, free_count: int
) -> None:
    counters = driver.counters
    fill(counters, free_count)
    with pytest.raises(aa.RegistrationError, match=r"counters\.buffer"):
        await getattr(aeron, kind)(CHANNEL, STREAM_ID)
    assert [transport.is_closed for transport in network.transports] == [True]
    status = ChannelCounterType.SEND_CHANNEL_STATUS, ChannelCounterType.RECEIVE_CHANNEL_STATUS
    assert records(driver.counters, *(each.type_id for each in status)) == []
    assert records(driver.counters, LocalAddressType.SEND.type_id) == []


@pytest.mark.parametrize("kind", ["add_publication", "add_subscription"])
async def test_a_channel_that_wants_other_buffers_than_its_socket_has_is_refused(
    aeron: aa.Aeron, network: FakeNetwork, kind: str
) -> None:
    add = getattr(aeron, kind)
    await add(f"{CHANNEL}|so-rcvbuf=256k", 1)
    with pytest.raises(contradiction(aeron), match=r"so-rcvbuf=524288 differs from 262144"):
        await add(f"{CHANNEL}|so-rcvbuf=512k", 2)
    with pytest.raises(contradiction(aeron), match=r"so-sndbuf=65536 differs from the system's"):
        await add(f"{CHANNEL}|so-sndbuf=64k", 2)
    await add(f"{CHANNEL}|so-rcvbuf=256k", 2)
    await add(CHANNEL, 3)
    assert [transport.is_closed for transport in network.transports] == [False]


@pytest.mark.parametrize("length", ["64k", "4m"])
async def test_a_buffer_that_the_socket_has_by_itself_is_not_what_a_channel_may_ask_for(
    aeron: aa.Aeron, network: FakeNetwork, length: str
) -> None:
    """As in Aeron: what counts is the setting, whatever the window has made of it."""
    await aeron.add_subscription(CHANNEL, 1)
    await aeron.add_publication(CHANNEL, 1)
    for add in (aeron.add_subscription, aeron.add_publication):
        with pytest.raises(contradiction(aeron), match=r"so-rcvbuf=\d+ differs from 131072"):
            await add(f"{CHANNEL}|so-rcvbuf={length}", 2)
        await add(f"{CHANNEL}|so-rcvbuf=128k", 2)


async def test_the_counters_of_an_image_belong_to_the_client_that_subscribed_first(
    driver: aa.MediaDriver, network: FakeNetwork
) -> None:
    async with aa.Aeron.connect(driver) as first, aa.Aeron.connect(driver) as second:
        subscription = await first.add_subscription(CHANNEL, STREAM_ID)
        await second.add_subscription(CHANNEL, STREAM_ID)
        network.transports[0].protocol.datagram_received(SETUP.encode(), SOURCE)
        while not subscription.images:
            await asyncio.sleep(0)
        positions = records(driver.counters, StreamCounterType.SUBSCRIPTION_POSITION.type_id)
        owner_ids = [record.owner_id for record in positions]
        assert owner_ids == sorted(set(owner_ids))
        kinds = (
            StreamCounterType.RECEIVER_HWM,
            StreamCounterType.RECEIVER_POSITION,
            StreamCounterType.RECEIVER_NAKS_SENT,
        )
        found = records(driver.counters, *(each.type_id for each in kinds))
        assert [record.owner_id for record in found] == [owner_ids[0]] * 3


def settings_of(log: LogBuffers) -> tuple[int, ...]:
    metadata = log.metadata
    return (
        metadata.socket_sndbuf_length,
        metadata.socket_rcvbuf_length,
        metadata.entity_tag,
        metadata.untethered_window_limit_timeout_ns,
        metadata.untethered_linger_timeout_ns,
        metadata.untethered_resting_timeout_ns,
    )


SECOND = 1_000_000_000
KEYS = (
    "|so-sndbuf=64k|so-rcvbuf=256k|tags=3,9|untethered-window-limit-timeout=6s"
    "|untethered-linger-timeout=7s|untethered-resting-timeout=8s"
)
GIVEN = (65_536, 262_144, 9, 6 * SECOND, 7 * SECOND, 8 * SECOND)
DEFAULT = (0, 131_072, -1, 5 * SECOND, 5 * SECOND, 10 * SECOND)


@pytest.mark.parametrize(("keys", "settings"), [("", DEFAULT), (KEYS, GIVEN)])
async def test_a_log_says_of_its_channel_what_official_logs_say(
    aeron: aa.Aeron,
    driver: aa.MediaDriver,
    network: FakeNetwork,
    keys: str,
    settings: tuple[int, ...],
) -> None:
    await aeron.add_publication(CHANNEL + keys, STREAM_ID)
    conductor = driver._conductor
    assert conductor is not None
    (publication,) = conductor.network_publications
    assert settings_of(publication.log) == settings
    await aeron.add_subscription(CHANNEL + keys, STREAM_ID)
    network.transports[1].protocol.datagram_received(SETUP.encode(), SOURCE)
    (image,) = conductor._subscriptions.images._images
    assert settings_of(image.log) == (*settings[:2], 0, *settings[3:])


async def test_a_lost_socket_ends_its_streams_and_not_the_driver(
    aeron: aa.Aeron, driver: aa.MediaDriver, network: FakeNetwork
) -> None:
    publication = await aeron.add_publication(CHANNEL, STREAM_ID)
    with captured_logs() as lines:
        network.transports[0].protocol.connection_lost(OSError("gone"))
    assert [line["event"] for line in lines] == ["endpoint_lost"]
    assert driver.counters.value(SystemCounterId.ERRORS) == 1
    another = await aeron.add_publication(CHANNEL, STREAM_ID + 1)
    assert another.local_address == publication.local_address
    assert not driver.is_closed


@pytest.mark.parametrize("free_count", [0, 2, 3])
async def test_a_stream_that_finds_no_counters_is_refused_and_leaves_nothing_behind(
    aeron: aa.Aeron, driver: aa.MediaDriver, network: FakeNetwork, free_count: int
) -> None:
    subscription = await aeron.add_subscription(CHANNEL, STREAM_ID)
    counters = driver.counters
    fill(counters, free_count)
    with captured_logs() as lines:
        network.transports[0].protocol.datagram_received(SETUP.encode(), SOURCE)
    (line,) = (line for line in lines if line["event"] == "image_refused")
    assert "counters.buffer" in line["reason"]
    assert images_refused(counters) == 1
    conductor = driver._conductor
    assert conductor is not None
    images = conductor._subscriptions.images
    while len(images._images):
        await asyncio.sleep(0)
    assert images._budget.log_length == 0
    assert subscription.images == ()
    assert len(counters.snapshot()) == counters.limit - free_count


def records_of(counters: CountersManager) -> int:
    return len(counters.snapshot())


async def test_a_flood_of_setups_is_refused_counted_and_logged_once_and_its_budget_comes_back(
    aeron: aa.Aeron, driver: aa.MediaDriver, network: FakeNetwork
) -> None:
    subscription = await aeron.add_subscription(CHANNEL, STREAM_ID)
    (transport,) = network.transports
    before = records_of(driver.counters)
    with captured_logs() as lines:
        for session_id in range(1_000):
            flood = attrs.evolve(SETUP, session_id=session_id, term_length=16 * 1024 * 1024)
            transport.protocol.datagram_received(flood.encode(), SOURCE)
    conductor = driver._conductor
    assert conductor is not None
    images = conductor._subscriptions.images
    assert len(images._images) == 21
    assert images_refused(driver.counters) == 979
    assert [line["event"] for line in lines] == ["image_refused"]
    assert "image_log_budget_length" in lines[0]["reason"]
    await subscription.aclose()
    await caught_up(aeron)
    now_ns = conductor._resources.clock.now_ns()
    for image in list(images._images):
        # Nobody reads it any more: it says goodbye, and is done when that is over.
        image.poll(now_ns)
        image.poll(now_ns + 2 * SECOND)
        conductor.receiver.remove(image)
        conductor.on_image_done(image)
    assert images._budget.log_length == 0
    assert records_of(driver.counters) <= before


async def test_a_log_that_finds_no_memory_leaves_no_counters_behind(
    aeron: aa.Aeron,
    driver: aa.MediaDriver,
    network: FakeNetwork,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def create(spec: LogSpec, *_: object, **__: object) -> LogBuffers:
        raise MemoryError(spec)

    subscription = await aeron.add_subscription(CHANNEL, STREAM_ID)
    before = records_of(driver.counters)
    monkeypatch.setattr(LogBuffers, "create", create)
    with captured_logs() as lines:
        network.transports[0].protocol.datagram_received(SETUP.encode(), SOURCE)
    assert "no memory for a log" in lines[0]["reason"]
    assert records_of(driver.counters) == before
    assert subscription.images == ()


@pytest.mark.parametrize("mode", ["manual", "dynamic"])
@pytest.mark.parametrize("is_refused", [False, True])
async def test_a_channel_with_destinations_leaves_no_counter_behind(
    aeron: aa.Aeron, driver: aa.MediaDriver, network: FakeNetwork, mode: str, *, is_refused: bool
) -> None:
    before = records_of(driver.counters)
    channel = f"aeron:udp?control=127.0.0.1:40456|control-mode={mode}"
    if is_refused:
        network.failure = aa.RegistrationError("the port is taken")
        with pytest.raises(aa.RegistrationError, match="the port is taken"):
            await aeron.add_publication(channel, STREAM_ID)
    else:
        publication = await aeron.add_publication(channel, STREAM_ID)
        assert len(records(driver.counters, ChannelCounterType.MDC_NUM_DESTINATIONS.type_id)) == 1
        await publication.aclose()
        assert driver._conductor is not None
        async with asyncio.timeout(5):
            while driver._conductor.network_publications:
                await asyncio.sleep(0)
    assert records_of(driver.counters) == before
