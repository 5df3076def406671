"""A client on a driver that it reaches through an Aeron directory, as from another process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import attrs
import pytest

import aeron_async as aa
from aeron_async.errors import ErrorCode
from aeron_async.protocol.control_protocol import ErrorResponse, ImageBuffersReady
from tests.client.local import IPC, STREAM_ID, publications, until
from tests.twins import IS_BUILT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(not IS_BUILT, reason="shared memory needs the compiled code")

FRAGMENTED = bytes(range(256)) * 20


@pytest.fixture
def context(context: aa.DriverContext, tmp_path: Path) -> aa.DriverContext:
    return attrs.evolve(
        context,
        aeron_directory=str(tmp_path / "aeron"),
        counters_buffer_length=1 << 20,
        driver_timeout_ms=2_000,
    )


@pytest.fixture
async def aeron(driver: aa.MediaDriver) -> AsyncIterator[aa.Aeron]:
    async with aa.Aeron.connect(
        directory=driver.context.aeron_directory, context=driver.context
    ) as aeron:
        yield aeron


@pytest.fixture(params=["ipc", "udp"])
def medium(request: pytest.FixtureRequest, channel: str) -> str:
    return IPC if request.param == "ipc" else channel


def cores(driver: aa.MediaDriver) -> int:
    """Return how many publications and images the driver has."""
    conductor = driver.conductor
    return (
        len(conductor.ipc_publications)
        + len(conductor.network_publications)
        + len(conductor.publication_images)
    )


@pytest.mark.parametrize("is_exclusive", [False, True])
async def test_what_one_client_offers_another_receives(
    driver: aa.MediaDriver, aeron: aa.Aeron, medium: str, *, is_exclusive: bool
) -> None:
    async with aa.Aeron.connect(directory=driver.context.aeron_directory) as other:
        subscription = await other.add_subscription(medium, STREAM_ID)
        add = aeron.add_exclusive_publication if is_exclusive else aeron.add_publication
        publication = await add(medium, STREAM_ID)
        await publication.wait_connected(timeout=5)
        messages = [b"%d" % number for number in range(3_000)] + [FRAGMENTED]

        async def send() -> None:
            for message in messages:
                await publication.offer(message, timeout=5)
            await publication.drain(timeout=5)
            await publication.aclose()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(send())
            image = None
            received = []
            async for message in subscription:
                image = message.image
                received.append(message.data)
                if len(received) == len(messages):
                    break
        assert received == messages
        assert image is not None
        assert [message async for message in image] == []
        assert image.end is not None
        assert image.end.reason is aa.ImageEndReason.END_OF_STREAM
        assert image.session_id == publication.session_id
    await until(lambda: not driver.conductor.publication_images)


async def test_publications_of_one_channel_are_shared_and_closed_one_by_one(
    driver: aa.MediaDriver, aeron: aa.Aeron
) -> None:
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    first = await aeron.add_publication(IPC, STREAM_ID)
    embedded = await aa.Aeron.connect(driver)
    second = await embedded.add_publication(IPC, STREAM_ID)
    assert first.session_id == second.session_id
    for number in range(2_000):
        await (first if number % 2 else second).offer(b"%d" % number, timeout=5)
        assert (await anext(subscription)).data == b"%d" % number
    await first.aclose()
    await second.offer(b"alone", timeout=5)
    assert (await anext(subscription)).data == b"alone"
    assert len(publications(embedded)) == 1
    await embedded.aclose()


async def test_a_reader_in_the_drivers_process_is_woken(
    driver: aa.MediaDriver, aeron: aa.Aeron, medium: str
) -> None:
    async with aa.Aeron.connect(driver) as embedded:
        subscription = await embedded.add_subscription(medium, STREAM_ID)
        publication = await aeron.add_exclusive_publication(medium, STREAM_ID)
        await publication.wait_connected(timeout=5)
        for number in range(300):
            waiting = asyncio.ensure_future(anext(subscription))
            await asyncio.sleep(0)
            await publication.offer(b"%d" % number, timeout=5)
            assert (await asyncio.wait_for(waiting, 5)).data == b"%d" % number


async def test_a_claim_and_a_list_of_parts(aeron: aa.Aeron, medium: str) -> None:
    subscription = await aeron.add_subscription(medium, STREAM_ID)
    publication = await aeron.add_publication(medium, STREAM_ID)
    await publication.wait_connected(timeout=5)
    claim = publication.try_claim(5)
    assert isinstance(claim, aa.BufferClaim)
    claim.data[:] = b"claim"
    claim.commit()
    await publication.offer([b"two ", b"parts"], timeout=5)
    assert (await anext(subscription)).data == b"claim"
    assert (await anext(subscription)).data == b"two parts"


async def test_closing_a_client_removes_what_it_has_added(
    driver: aa.MediaDriver, medium: str
) -> None:
    async with aa.Aeron.connect(directory=driver.context.aeron_directory) as aeron:
        await aeron.add_subscription(medium, STREAM_ID)
        publication = await aeron.add_publication(medium, STREAM_ID)
        await publication.wait_connected(timeout=5)
        assert cores(driver) > 0
        assert [each.label for each in driver.counters if "client-heartbeat" in each.label]
    await until(lambda: not [each for each in driver.counters if each.type_id == 11])
    assert publication.is_closed
    await until(lambda: not [each for each in driver.counters if each.type_id == 4])


async def test_a_refusal_of_the_driver_reaches_the_caller(aeron: aa.Aeron, channel: str) -> None:
    first = await aeron.add_exclusive_publication(f"{channel}|session-id=7", STREAM_ID)
    with pytest.raises(aa.RegistrationError, match="session-id=7") as caught:
        await aeron.add_exclusive_publication(f"{channel}|session-id=7", STREAM_ID)
    assert caught.value.code is ErrorCode.INVALID_CHANNEL
    await first.aclose()


async def test_strategies_of_this_process_are_refused(aeron: aa.Aeron, channel: str) -> None:
    with pytest.raises(aa.RegistrationError, match="fc=") as caught:
        await aeron.add_publication(channel, STREAM_ID, flow_control=lambda _: None)  # type: ignore[arg-type, return-value]
    assert caught.value.code is ErrorCode.NOT_SUPPORTED
    with pytest.raises(aa.RegistrationError, match="handshake_length"):
        await aeron.add_exclusive_publication(channel, STREAM_ID, handshake_length=100)


async def test_destinations_come_and_go(aeron: aa.Aeron, channel: str) -> None:
    subscription = await aeron.add_subscription(channel, STREAM_ID)
    publication = await aeron.add_publication("aeron:udp?control-mode=manual", STREAM_ID)
    destination_id = await publication.add_destination(channel)
    await publication.offer(b"arrives", timeout=5)
    assert (await anext(subscription)).data == b"arrives"
    await publication.remove_destination(destination_id)
    await publication.add_destination(channel)
    await publication.remove_destination(channel)
    with pytest.raises(aa.RegistrationError):
        await publication.remove_destination(channel)
    receiver = await aeron.add_subscription("aeron:udp?control-mode=manual", STREAM_ID + 1)
    await receiver.add_destination("aeron:udp?endpoint=127.0.0.1:0")
    await receiver.remove_destination("aeron:udp?endpoint=127.0.0.1:0")


async def test_a_rejected_image_is_reported_to_its_publisher(aeron: aa.Aeron, medium: str) -> None:
    subscription = await aeron.add_subscription(medium, STREAM_ID)
    publication = await aeron.add_publication(medium, STREAM_ID)
    await subscription.wait_connected(timeout=5)
    await subscription.images[0].reject("no more of this")
    await until(lambda: publication.last_error is not None)
    assert "no more of this" in str(publication.last_error)


async def test_a_driver_that_closes_ends_its_clients(
    driver: aa.MediaDriver, aeron: aa.Aeron
) -> None:
    publication = await aeron.add_publication(IPC, STREAM_ID)
    waiting = asyncio.ensure_future(publication.offer(b"nobody reads it"))
    await asyncio.sleep(0)
    await driver.aclose()
    with pytest.raises(aa.ClosedError, match="media driver"):
        await asyncio.wait_for(waiting, 5)
    assert aeron.is_closed


async def test_without_a_driver_connecting_ends_in_time(tmp_path: Path) -> None:
    context = aa.DriverContext(driver_timeout_ms=50)
    with pytest.raises(aa.DriverTimeoutError, match=r"within 50 ms: no driver has made .*cnc\.dat"):
        async with aa.Aeron.connect(directory=tmp_path / "nobody", context=context):
            pytest.fail("there is no driver")


async def test_a_driver_and_a_directory_are_not_given_together(
    driver: aa.MediaDriver, tmp_path: Path
) -> None:
    with pytest.raises(aa.ConfigurationError, match="not both"):
        aa.Aeron.connect(driver, directory=tmp_path)


async def test_a_client_that_the_driver_gave_up_is_told(
    driver: aa.MediaDriver, aeron: aa.Aeron
) -> None:
    publication = await aeron.add_publication(IPC, STREAM_ID)
    adapter = driver.conductor.adapter
    assert adapter is not None
    adapter._proxy.on_client_timeout(aeron.client_id)
    await until(lambda: aeron.is_closed)
    with pytest.raises(aa.ClosedError, match="has not heard this client"):
        await publication.offer(b"late")


async def test_names_are_looked_up_by_this_process(aeron: aa.Aeron) -> None:
    assert await aeron.driver.conductor.look_up("127.0.0.1", 9) == ("127.0.0.1", 9)


async def test_an_error_code_of_a_later_aeron_is_a_refusal_too(
    driver: aa.MediaDriver, aeron: aa.Aeron
) -> None:
    adapter = driver.conductor.adapter
    assert adapter is not None
    waiting = asyncio.ensure_future(aeron.add_publication(f"{IPC}?session-id=3", STREAM_ID))
    await asyncio.sleep(0)
    (correlation_id,) = aeron.driver._waiting  # type: ignore[attr-defined]
    adapter._proxy._transmit(
        ErrorResponse(correlation_id=correlation_id, code=99, message=b"from the future")
    )
    with pytest.raises(aa.RegistrationError, match="from the future") as caught:
        await waiting
    assert caught.value.code is ErrorCode.GENERIC


@pytest.mark.parametrize(
    "message",
    [
        ImageBuffersReady(
            image_id=1,
            session_id=2,
            stream_id=STREAM_ID,
            subscription_registration_id=0,
            subscriber_position_id=3,
            log_file=b"/etc/hostname",
            source_identity=b"",
        ),
        ImageBuffersReady(
            image_id=1,
            session_id=2,
            stream_id=STREAM_ID,
            subscription_registration_id=0,
            subscriber_position_id=3,
            log_file=b"images/no-such.logbuffer",
            source_identity=b"",
        ),
    ],
)
async def test_a_driver_that_names_no_log_of_its_own_ends_its_client(
    driver: aa.MediaDriver, aeron: aa.Aeron, message: ImageBuffersReady
) -> None:
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    adapter = driver.conductor.adapter
    assert adapter is not None
    file = message.log_file
    if not file.startswith(b"/"):
        file = str(driver.context.aeron_directory).encode() + b"/" + file
    adapter._proxy._transmit(
        attrs.evolve(
            message,
            subscription_registration_id=subscription.registration_id,
            log_file=file,
        )
    )
    await until(lambda: aeron.is_closed)
    with pytest.raises(aa.ClosedError, match=r"outside|cannot be opened"):
        await anext(subscription)


async def test_a_client_that_was_too_slow_for_the_answers_ends(
    driver: aa.MediaDriver, aeron: aa.Aeron
) -> None:
    publication = await aeron.add_publication(IPC, STREAM_ID)
    adapter = driver.conductor.adapter
    assert adapter is not None
    # No turn of the loop in between: more than the buffer holds.
    for number in range(20_000):
        adapter._proxy._transmit(ErrorResponse(correlation_id=-number, code=1, message=bytes(64)))
    await until(lambda: aeron.is_closed)
    with pytest.raises(aa.ClosedError, match="had not read"):
        await publication.offer(b"late")
