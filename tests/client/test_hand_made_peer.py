"""The other end by hand: refusals, rejections, pauses, and requests that are interrupted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import aeron_async as aa
from aeron_async.driver.core.image_state import ImageState
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.protocol.data import DataHeader, encode_heartbeat
from aeron_async.protocol.datagram import frame_type
from aeron_async.protocol.error import ErrorFrame
from aeron_async.protocol.header import DataFlags, FrameType
from aeron_async.protocol.setup import Setup
from aeron_async.protocol.status_message import StatusMessage
from tests.client.fake_network import FakeNetwork
from tests.client.local import fill, until
from tests.drivers import ERROR, TURNS, embedded_only
from tests.logs import captured_logs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


BY_NAME = "aeron:udp?endpoint=service:40456"
STREAM_ID = 1001
CHANNEL = "aeron:udp?endpoint=127.0.0.1:40456"
SOURCE = ("127.0.0.1", 40457)
RECEIVER_ID = 0x1234


@pytest.fixture
def context() -> aa.DriverContext:
    # This peer never says goodbye, and nobody shall wait for it.
    return aa.DriverContext(
        term_buffer_length=64 * 1024,
        publication_linger_timeout_ns=1_000,
        close_linger_timeout_ns=1_000_000,
    )


@pytest.fixture
def network() -> FakeNetwork:
    return FakeNetwork()


@pytest.fixture
async def driver(network: FakeNetwork, context: aa.DriverContext) -> AsyncIterator[aa.MediaDriver]:
    async with aa.MediaDriver.launch(context, network=network, seed=3) as driver:
        yield driver


async def turn_until(network: FakeNetwork, kind: FrameType, count: int = 1) -> list[bytes]:
    """Let the loop turn until so many frames of a type were sent, and return them."""
    while True:
        found = [
            datagram
            for transport in network.transports
            for datagram, _ in transport.sent
            if frame_type(datagram) == kind
        ]
        if len(found) >= count:
            return found
        await asyncio.sleep(0)


def status_message(setup: Setup, **changes: int) -> bytes:
    fields = {
        "session_id": setup.session_id,
        "stream_id": setup.stream_id,
        "consumption_term_id": setup.active_term_id,
        "consumption_term_offset": setup.term_offset,
        "receiver_window": 32 * 1024,
        "receiver_id": RECEIVER_ID,
    }
    return StatusMessage(**(fields | changes)).encode()  # type: ignore[arg-type]


async def connect(network: FakeNetwork, publication: aa.Publication) -> Setup:
    setup = Setup.decode((await turn_until(network, FrameType.SETUP))[0])
    network.transports[0].protocol.datagram_received(status_message(setup), SOURCE)
    await publication.wait_connected(timeout=5)
    return setup


async def test_a_rejected_stream_is_told_to_its_publishers(
    aeron: aa.Aeron, network: FakeNetwork
) -> None:
    publication = await aeron.add_publication(CHANNEL, STREAM_ID)
    twin = await aeron.add_publication(CHANNEL, STREAM_ID)
    setup = await connect(network, publication)
    error = ErrorFrame(
        session_id=setup.session_id,
        stream_id=setup.stream_id,
        receiver_id=RECEIVER_ID,
        group_tag=0,
        error_code=aa.ErrorCode.IMAGE_REJECTED,
        message=b"not today",
    )
    network.transports[0].protocol.datagram_received(error.encode(), SOURCE)
    await until(lambda: publication.last_error is not None and twin.last_error is not None)
    assert publication.last_error == twin.last_error
    assert publication.last_error is not None
    assert "13" in publication.last_error
    assert "not today" in publication.last_error
    assert not publication.is_connected
    with pytest.raises(aa.OfferTimeoutError, match="no subscriber"):
        await publication.offer(b"x", timeout=0.01)


async def test_a_socket_that_cannot_send_for_now_gets_everything_later_in_order(
    aeron: aa.Aeron, network: FakeNetwork, driver: aa.MediaDriver
) -> None:
    publication = await aeron.add_publication(CHANNEL, STREAM_ID)
    await connect(network, publication)
    (transport,) = network.transports
    transport.protocol.pause_writing()
    await publication.offer_many([b"%d" % number for number in range(5)])
    sent = len(transport.sent)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(transport.sent) == sent
    transport.protocol.resume_writing()
    (datagram,) = (await turn_until(network, FrameType.DATA))[-1:]
    assert [datagram[offset + 32 : offset + 33] for offset in range(0, 5 * 64, 64)] == [
        b"%d" % number for number in range(5)
    ]
    transport.error = ConnectionRefusedError()
    await publication.offer(b"refused")
    short_sends = driver.counters
    while short_sends.value(SystemCounterId.SHORT_SENDS) < 2:
        await asyncio.sleep(0)
    transport.error = None
    await publication.drain(timeout=5)
    assert transport.sent[-1][0][32:39] == b"refused"
    before = short_sends.value(SystemCounterId.SHORT_SENDS)
    transport.protocol.error_received(ConnectionRefusedError())
    assert short_sends.value(SystemCounterId.SHORT_SENDS) == before + 1


async def test_a_claim_waits_for_room_and_crosses_the_end_of_a_term(
    aeron: aa.Aeron, network: FakeNetwork
) -> None:
    publication = await aeron.add_publication(CHANNEL, STREAM_ID)
    waiting = asyncio.create_task(publication.claim(1000, timeout=5))
    await asyncio.sleep(0)
    setup = await connect(network, publication)
    with await waiting as claim:
        claim.data[:] = bytes(1000)
    for number in range(1, 130):
        offset = publication.position % publication.term_length
        term_id = setup.active_term_id + publication.position // publication.term_length
        await publication.drain(timeout=5)
        network.transports[0].protocol.datagram_received(
            status_message(
                setup, consumption_term_id=term_id, consumption_term_offset=offset & ~31
            ),
            SOURCE,
        )
        with await publication.claim(1000, timeout=5) as claim:
            claim.data[:2] = number.to_bytes(2, "little")
    assert publication.position > 2 * publication.term_length


async def test_a_buffer_smaller_than_the_mtu_or_the_window_is_refused(
    context: aa.DriverContext,
) -> None:
    network = FakeNetwork(granted_sndbuf_length=1024, granted_rcvbuf_length=4096)
    driver = aa.MediaDriver.launch(context, network=network)
    async with driver, aa.Aeron.connect(driver) as aeron:
        with pytest.raises(aa.RegistrationError, match=r"send buffer.*1024.*wmem_max"):
            await aeron.add_publication(CHANNEL, STREAM_ID)
        with pytest.raises(aa.RegistrationError, match=r"receive buffer.*4096.*rmem_max"):
            await aeron.add_subscription(f"{CHANNEL}|rcv-wnd=128k", STREAM_ID)
        # A window that nobody has chosen takes what there is, if that is a datagram.
        await (await aeron.add_subscription(CHANNEL, STREAM_ID)).aclose()
        with pytest.raises(aa.RegistrationError, match=r"window of 8192.*receive buffer.*4096"):
            await aeron.add_subscription(f"{CHANNEL}|rcv-wnd=8k", STREAM_ID)
        assert {transport.is_closed for transport in network.transports} == {True}
        await aeron.add_subscription(f"{CHANNEL}|rcv-wnd=4k", STREAM_ID)


@embedded_only(ERROR)
async def test_a_mistake_of_ours_in_one_request_leaves_the_driver_to_the_others(
    aeron: aa.Aeron, network: FakeNetwork
) -> None:
    network.failure = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        await aeron.add_publication(CHANNEL, STREAM_ID)
    network.failure = None
    await aeron.add_publication(CHANNEL, STREAM_ID)


async def test_what_is_being_opened_when_the_driver_closes_is_refused(
    aeron: aa.Aeron, driver: aa.MediaDriver, network: FakeNetwork
) -> None:
    network.gate.clear()
    adding = asyncio.create_task(aeron.add_publication(CHANNEL, STREAM_ID))
    queued = asyncio.create_task(aeron.add_subscription(CHANNEL, STREAM_ID))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await driver.aclose()
    results = await asyncio.gather(adding, queued, return_exceptions=True)
    assert [type(result) for result in results] == [aa.ClosedError, aa.ClosedError]
    assert network.transports == []


async def test_what_was_opened_for_nobody_is_closed_again(
    aeron: aa.Aeron, network: FakeNetwork
) -> None:
    for count in (1, 2):
        network.gate.clear()
        adding: asyncio.Task[object] = asyncio.create_task(
            aeron.add_publication(CHANNEL, STREAM_ID)
            if count == 1
            else aeron.add_subscription(CHANNEL, STREAM_ID)
        )
        for _ in range(5):
            await asyncio.sleep(0)
        adding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await adding
        network.gate.set()
        while len(network.transports) < count or not network.transports[-1].is_closed:
            await asyncio.sleep(0)


@embedded_only(TURNS)
async def test_a_client_that_closes_meanwhile_gets_nothing(
    driver: aa.MediaDriver, network: FakeNetwork
) -> None:
    aeron = aa.Aeron.connect(driver)
    await aeron.start()
    network.gate.clear()
    adding = [
        asyncio.create_task(aeron.add_publication(CHANNEL, STREAM_ID)),
        asyncio.create_task(aeron.add_subscription(CHANNEL, STREAM_ID)),
    ]
    for _ in range(5):
        await asyncio.sleep(0)
    network.gate.set()
    await aeron.aclose()
    results = await asyncio.gather(*adding, return_exceptions=True)
    assert [type(result) for result in results] == [aa.ClosedError, aa.ClosedError]
    while len(network.transports) < 1 or not network.transports[0].is_closed:
        await asyncio.sleep(0)
    assert len(network.transports) == 1


async def test_publications_and_subscriptions_are_context_managers(
    aeron: aa.Aeron, network: FakeNetwork
) -> None:
    async with (
        await aeron.add_publication(CHANNEL, STREAM_ID) as publication,
        await aeron.add_subscription(CHANNEL, STREAM_ID) as subscription,
    ):
        assert "open" in repr(publication)
        assert "0 images" in repr(subscription)
        publication._wake()
    assert publication.is_closed
    assert subscription.is_closed
    publication._wake()
    assert [batch async for batch in subscription.batches()] == []


def setup_frame(session_id: int) -> bytes:
    setup = Setup(
        session_id=session_id,
        stream_id=STREAM_ID,
        initial_term_id=5,
        active_term_id=5,
        term_offset=0,
        term_length=64 * 1024,
        mtu_length=1408,
        ttl=0,
    )
    return setup.encode()


async def test_streams_beyond_any_budget_are_refused_counted_and_logged_once_a_second(
    network: FakeNetwork,
) -> None:
    context = aa.DriverContext(stream_session_limit=2, counters_buffer_length=1024 * 1024)
    driver = aa.MediaDriver.launch(context, network=network)
    async with driver, aa.Aeron.connect(driver) as aeron:
        subscription = await aeron.add_subscription(CHANNEL, STREAM_ID)
        (transport,) = network.transports
        with captured_logs() as lines:
            for session_id in range(5):
                transport.protocol.datagram_received(setup_frame(session_id), SOURCE)
        assert [line["event"] for line in lines] == ["image_refused"]
        assert "stream_session_limit" in lines[0]["reason"]
        while len(subscription.images) < 2:
            await asyncio.sleep(0)
        refused = [each for each in driver.counters.snapshot() if "mages refused" in each.label]
        assert [record.value for record in refused] == [3]


async def test_a_full_counter_table_refuses_streams_and_breaks_nothing(
    network: FakeNetwork,
) -> None:
    context = aa.DriverContext(counters_buffer_length=1024 * 1024)
    driver = aa.MediaDriver.launch(context, network=network)
    async with driver, aa.Aeron.connect(driver) as aeron:
        subscription = await aeron.add_subscription(CHANNEL, STREAM_ID)
        spare = [driver.counters.allocate(1000, b"", "spare") for _ in range(4)]
        fill(driver.counters)
        for counter in spare[:3]:
            counter.close()
        with pytest.raises(aa.RegistrationError, match=r"counters\.buffer"):
            await aeron.add_publication(CHANNEL, STREAM_ID)
        (transport, *_) = network.transports
        transport.protocol.datagram_received(setup_frame(1), SOURCE)
        for _ in range(5):
            await asyncio.sleep(0)
        assert subscription.images == ()


async def test_a_stream_that_goes_on_after_its_end_reaches_its_readers_without_a_counter_for_more(
    network: FakeNetwork,
) -> None:
    context = aa.DriverContext(counters_buffer_length=1024 * 1024)
    driver = aa.MediaDriver.launch(context, network=network)
    async with driver, aa.Aeron.connect(driver) as aeron:
        subscription = await aeron.add_subscription(CHANNEL, STREAM_ID)
        (transport,) = network.transports

        def arrive(*frames: bytes) -> None:
            for frame in frames:
                transport.protocol.datagram_received(frame, SOURCE)

        arrive(setup_frame(1))
        await subscription.wait_connected(timeout=5)
        (image,) = driver.conductor.publication_images
        lengths: list[int] = []

        async def read() -> None:
            async for message in subscription:
                lengths.append(len(message.data))  # noqa: PERF401 - it never ends

        reading = asyncio.create_task(read())
        arrive(data_frame(1, 0))
        await until(lambda: len(lengths) == 1)
        fill(driver.counters)
        arrive(end_frame(1, 96))
        await until(lambda: image.state is ImageState.DRAINING)
        before = driver.counters.value(SystemCounterId.ERRORS)
        late = await aeron.add_subscription(CHANNEL, STREAM_ID)
        arrive(data_frame(1, 96))
        await until(lambda: len(lengths) == 2)
        assert image.state is ImageState.ACTIVE
        assert late.images == ()
        assert driver.counters.value(SystemCounterId.ERRORS) == before + 1
        reading.cancel()


def data_frame(session_id: int, term_offset: int) -> bytes:
    header = DataHeader(
        frame_length=96,
        term_offset=term_offset,
        session_id=session_id,
        stream_id=STREAM_ID,
        term_id=5,
    )
    return header.encode() + bytes(64)


def end_frame(session_id: int, term_offset: int) -> bytes:
    return encode_heartbeat(
        term_id=5,
        term_offset=term_offset,
        session_id=session_id,
        stream_id=STREAM_ID,
        flags=DataFlags.UNFRAGMENTED | DataFlags.END_OF_STREAM,
    )


async def test_another_session_of_an_address_speaks_for_itself(
    aeron: aa.Aeron, network: FakeNetwork
) -> None:
    subscription = await aeron.add_subscription(CHANNEL, STREAM_ID)
    (transport,) = network.transports
    for session_id in (1, 2):
        transport.protocol.datagram_received(setup_frame(session_id), SOURCE)
    await turn_until(network, FrameType.SM, count=2)
    await until(lambda: len(subscription.images) == 2)
    assert [image.session_id for image in subscription.images] == [1, 2]
    assert {address for _, address in transport.sent} == {SOURCE}
    heard = [StatusMessage.decode(datagram).session_id for datagram, _ in transport.sent]
    assert heard[:2] == [1, 2]


async def test_a_numeric_channel_waits_for_no_name(aeron: aa.Aeron, network: FakeNetwork) -> None:
    network.names.clear()
    async with asyncio.timeout(5):
        await aeron.add_subscription(CHANNEL, STREAM_ID)
        await aeron.add_publication(CHANNEL, STREAM_ID)


async def test_a_name_that_takes_for_ever_holds_up_neither_closing_nor_the_caller(
    aeron: aa.Aeron, driver: aa.MediaDriver, network: FakeNetwork
) -> None:
    network.names.clear()
    adding: list[asyncio.Task[object]] = [
        asyncio.create_task(aeron.add_publication(BY_NAME, STREAM_ID)),
        asyncio.create_task(aeron.add_subscription(BY_NAME, STREAM_ID)),
        asyncio.create_task(aeron.add_publication(BY_NAME, STREAM_ID)),
    ]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    adding[2].cancel()
    await driver.aclose()
    results = await asyncio.gather(*adding, return_exceptions=True)
    assert [type(result) for result in results] == [
        aa.ClosedError,
        aa.ClosedError,
        asyncio.CancelledError,
    ]
