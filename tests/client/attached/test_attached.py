"""A client on a driver that it reaches through an Aeron directory, as from another process."""

from __future__ import annotations

import asyncio
import gc
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest

import aeron_async as aa
from aeron_async import unused_variables
from aeron_async.aeron_directory import AeronDirectory
from aeron_async.client import attached_driver, attached_streams, driver_proxy
from aeron_async.client.attachment import wait_for_driver
from aeron_async.clock import NS_PER_MS, NS_PER_SECOND
from aeron_async.driver import media_driver
from aeron_async.errors import ErrorCode
from aeron_async.idle_strategy import (
    IdleStrategy,
    NoOpIdleStrategy,
    SleepingIdleStrategy,
    idle_strategy_of,
)
from aeron_async.protocol.control_protocol import (
    AddressType,
    ClientTimeout,
    ErrorResponse,
    OperationSucceeded,
    PublicationErrorResponse,
)
from aeron_async.watcher import Watcher
from tests.client.attached.attaching import (
    attached,
    attachment_of,
    proxy_of,
    say,
    write_over,
)
from tests.client.local import IPC, STREAM_ID, publications, until
from tests.logs import captured_logs
from tests.twins import needs_compiled

if TYPE_CHECKING:
    from collections.abc import Callable


pytestmark = needs_compiled

CLIENT_HEARTBEAT = 11
FRAGMENTED = bytes(range(256)) * 20


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
    # No driver says so if there is none.
    await publication.remove_destination(channel)
    receiver = await aeron.add_subscription("aeron:udp?control-mode=manual", STREAM_ID + 1)
    await receiver.add_destination("aeron:udp?endpoint=127.0.0.1:0")
    await receiver.remove_destination("aeron:udp?endpoint=127.0.0.1:0")
    destination_id = await receiver.add_destination(IPC)
    await receiver.remove_destination(destination_id)
    for destination in (destination_id, IPC):
        with pytest.raises(aa.RegistrationError, match=f"{destination} is not a destination of"):
            await receiver.remove_destination(destination)


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
    with pytest.raises(
        aa.DriverTimeoutError, match=r"within 50 ms, .*driver_timeout_ms: .*cnc\.dat"
    ):
        async with aa.Aeron.connect(directory=tmp_path / "nobody", context=context):
            pytest.fail("there is no driver")


async def test_a_client_that_waits_for_a_driver_says_so_once() -> None:
    context = aa.DriverContext(driver_timeout_ms=10_000, waiting_hint_ns=2 * NS_PER_SECOND)
    times = iter([0, 1_999 * NS_PER_MS, 2_000 * NS_PER_MS, 9_999 * NS_PER_MS, 10_000 * NS_PER_MS])
    with captured_logs() as lines, pytest.raises(aa.DriverTimeoutError, match="nobody is there"):
        await wait_for_driver(lambda: "nobody is there", context, now_ns=times.__next__)
    (line,) = [each for each in lines if each["event"] == "wait_lasted_long"]
    assert (line["operation"], line["seconds"], line["why"]) == ("connect", 2.0, "nobody is there")


async def test_a_driver_and_a_directory_are_not_given_together(
    driver: aa.MediaDriver, tmp_path: Path
) -> None:
    with pytest.raises(aa.ConfigurationError, match="not both"):
        aa.Aeron.connect(driver, directory=tmp_path)


async def test_a_client_that_the_driver_gave_up_is_told(
    driver: aa.MediaDriver, aeron: aa.Aeron
) -> None:
    publication = await aeron.add_publication(IPC, STREAM_ID)
    say(driver, ClientTimeout(client_id=aeron.client_id))
    await until(lambda: aeron.is_closed)
    with pytest.raises(aa.ClosedError, match="has not heard this client"):
        await publication.offer(b"late")


async def test_names_are_looked_up_by_this_process(aeron: aa.Aeron) -> None:
    assert await aeron.driver.conductor.look_up("127.0.0.1", 9) == ("127.0.0.1", 9)


async def test_an_error_code_of_a_later_aeron_is_a_refusal_too(
    driver: aa.MediaDriver, aeron: aa.Aeron
) -> None:
    waiting = asyncio.ensure_future(aeron.add_publication(f"{IPC}?session-id=3", STREAM_ID))
    await asyncio.sleep(0)
    (correlation_id,) = proxy_of(aeron)._waiting
    say(driver, ErrorResponse(correlation_id=correlation_id, code=99, message=b"from the future"))
    with pytest.raises(aa.RegistrationError, match="from the future") as caught:
        await waiting
    assert caught.value.code is ErrorCode.GENERIC


async def test_the_error_of_a_channel_is_no_answer(
    driver: aa.MediaDriver, aeron: aa.Aeron, channel: str
) -> None:
    """A driver of an old version puts the id of a counter where a request's id would be."""
    subscription = await aeron.add_subscription(channel, STREAM_ID)
    publication = await aeron.add_publication(channel, STREAM_ID)
    await aeron.add_publication(IPC, STREAM_ID)
    waiting = asyncio.ensure_future(aeron.add_publication(IPC, STREAM_ID + 1))
    await asyncio.sleep(0)
    (correlation_id,) = proxy_of(aeron)._waiting
    status = subscription._ready.channel_status
    assert status is not None
    code = ErrorCode.CHANNEL_ENDPOINT_ERROR
    with captured_logs() as lines:
        for each in (correlation_id, status.id):
            say(driver, ErrorResponse(correlation_id=each, code=code, message=b"it \nis gone"))
        assert not (await waiting).is_closed
    failed = [line for line in lines if line["event"] == "channel_failed"]
    assert [line["channel"] for line in failed] == [channel]
    assert "\n" not in failed[0]["error"]
    assert not publication.is_closed


# What a client may miss.


async def test_a_client_that_was_too_slow_for_the_answers_ends(
    driver: aa.MediaDriver, aeron: aa.Aeron
) -> None:
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    write_over(driver)
    await until(lambda: aeron.is_closed)
    with pytest.raises(aa.ClosedError, match="had not read"):
        await anext(subscription)


async def test_a_client_that_needs_no_answers_may_miss_them(
    driver: aa.MediaDriver, aeron: aa.Aeron
) -> None:
    publication = await aeron.add_publication(IPC, STREAM_ID)
    write_over(driver)
    second = await aeron.add_publication(IPC, STREAM_ID)
    assert second.session_id == publication.session_id
    assert not aeron.is_closed


async def test_a_client_that_missed_that_it_was_given_up_ends(
    driver: aa.MediaDriver, aeron: aa.Aeron, monkeypatch: pytest.MonkeyPatch
) -> None:
    publication = await aeron.add_publication(IPC, STREAM_ID)
    say(driver, ClientTimeout(client_id=aeron.client_id))
    write_over(driver)
    # The driver has given the counter back, and another client has it by now.
    monkeypatch.setattr(attached_streams.CounterCell, "is_of", lambda *_: False)
    with pytest.raises(aa.DriverError, match="has not heard this client"):
        await aeron.add_publication(IPC, STREAM_ID)
    assert publication.is_closed


async def test_a_client_that_closes_with_answers_to_come_reads_no_more(
    driver: aa.MediaDriver, caplog: pytest.LogCaptureFixture
) -> None:
    aeron = await aa.Aeron.connect(directory=driver.context.aeron_directory)
    await aeron.add_subscription(IPC, STREAM_ID)
    proxy = proxy_of(aeron)
    for number in range(3_000):
        say(driver, ErrorResponse(correlation_id=-number, code=1, message=b""))
    proxy._on_answers()
    await aeron.aclose()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not caplog.records


# What is watched.


async def parked(aeron: aa.Aeron) -> None:
    """Wait until the watcher of an attached client looks at nothing."""
    watcher = attachment_of(aeron).watcher
    await until(lambda: watcher.is_parked)


async def test_nothing_is_watched_while_nothing_waits(
    driver: aa.MediaDriver, aeron: aa.Aeron, medium: str
) -> None:
    await parked(aeron)
    publication = await aeron.add_publication(medium, STREAM_ID)
    await parked(aeron)
    async with aa.Aeron.connect(driver) as embedded:
        subscription = await embedded.add_subscription(medium, STREAM_ID)
        await publication.wait_connected(timeout=5)
        await parked(aeron)
        for number in range(100):
            await publication.offer(b"%d" % number, timeout=5)
            assert (await anext(subscription)).data == b"%d" % number
        await publication.drain(timeout=5)
        assert publication.is_connected
        assert publication.available_window > 0
        await parked(aeron)
        while isinstance(publication.try_offer(bytes(1_000)), int):
            await asyncio.sleep(0)
        waiting = [asyncio.ensure_future(publication.offer(b"full")) for _ in range(3)]
        await asyncio.sleep(0)
        assert not attachment_of(aeron).watcher.is_parked
        waiting.pop().cancel()
        await asyncio.sleep(0)
        assert not attachment_of(aeron).watcher.is_parked
        while not all(task.done() for task in waiting):
            await anext(subscription)
        await asyncio.gather(*waiting)
        await parked(aeron)
    await until(lambda: not publication.is_connected)
    await parked(aeron)


async def test_a_wait_that_ends_early_is_watched_no_more(aeron: aa.Aeron) -> None:
    publication = await aeron.add_publication(IPC, STREAM_ID)
    with pytest.raises(aa.OfferTimeoutError):
        await publication.offer(b"nobody reads it", timeout=0)
    await parked(aeron)
    with pytest.raises(aa.AeronTimeoutError):
        await publication.wait_connected(timeout=0)
    await parked(aeron)
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    await publication.wait_connected(timeout=5)
    await subscription.wait_connected(timeout=5)
    waiting = asyncio.ensure_future(anext(subscription))
    await asyncio.sleep(0)
    driver = attached(aeron)
    (image,) = driver.subscriptions[subscription.registration_id].images.values()
    words = (image._word, image._end_word)
    assert all(word is not None and word.is_armed for word in words)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not any(word is None or word.is_armed for word in words)
    await subscription.aclose()
    await parked(aeron)


async def test_a_publication_with_an_error_handler_hears_at_once(
    driver: aa.MediaDriver, aeron: aa.Aeron, medium: str
) -> None:
    errors: list[aa.PublicationErrorFrame] = []
    publication = await aeron.add_publication(medium, STREAM_ID, on_error=errors.append)
    assert proxy_of(aeron)._word.is_armed
    async with aa.Aeron.connect(driver) as embedded:
        subscription = await embedded.add_subscription(medium, STREAM_ID)
        await subscription.wait_connected(timeout=5)
        await subscription.images[0].reject("no more of this")
        await until(lambda: errors)
    await publication.aclose()
    await parked(aeron)


async def test_a_publication_without_one_hears_later(
    driver: aa.MediaDriver, aeron: aa.Aeron, medium: str
) -> None:
    publication = await aeron.add_publication(medium, STREAM_ID)
    async with aa.Aeron.connect(driver) as embedded:
        subscription = await embedded.add_subscription(medium, STREAM_ID)
        await subscription.wait_connected(timeout=5)
        await subscription.images[0].reject("no more of this")
        await until(lambda: publication.last_error is not None)


async def test_a_window_that_opens_just_before_the_wait_is_seen(
    aeron: aa.Aeron, monkeypatch: pytest.MonkeyPatch
) -> None:
    publication = await aeron.add_publication(IPC, STREAM_ID)
    look_around = publication._look_around

    def open_and_look() -> tuple[int, int]:
        # Another process stores between a failed attempt and the wait.
        publication._ready.log.metadata.is_connected = 1
        publication._limit.set(1 << 16)
        return look_around()

    monkeypatch.setattr(publication, "_look_around", open_and_look)
    assert publication.try_offer(b"not yet") is aa.OfferOutcome.NOT_CONNECTED
    assert await publication.offer(b"now", timeout=5) > 0


@pytest.mark.parametrize(
    "given", ["spin", "sleep-ns", "org.agrona.concurrent.YieldingIdleStrategy", NoOpIdleStrategy()]
)
async def test_the_watcher_takes_an_idle_strategy(
    driver: aa.MediaDriver, monkeypatch: pytest.MonkeyPatch, given: IdleStrategy | str
) -> None:
    taken: list[IdleStrategy | None] = []

    def watcher(loop: asyncio.AbstractEventLoop, idle_strategy: IdleStrategy | None) -> Watcher:
        taken.append(idle_strategy)
        return Watcher(loop, idle_strategy)

    monkeypatch.setattr(attached_driver, "Watcher", watcher)
    directory = str(driver.context.aeron_directory)
    async with aa.Aeron.connect(directory=directory, idle_strategy=given) as aeron:
        subscription = await aeron.add_subscription(IPC, STREAM_ID)
        publication = await aeron.add_publication(IPC, STREAM_ID)
        await publication.offer(b"seen", timeout=5)
        assert (await anext(subscription)).data == b"seen"
    assert taken == [idle_strategy_of(given)]


@pytest.mark.parametrize("given", ["rest", "", 5, NoOpIdleStrategy])
def test_another_idle_strategy_is_refused_before_anything_is_opened(
    tmp_path: Path, given: Any
) -> None:
    with pytest.raises(aa.ConfigurationError, match="backoff, yield, spin, noop, sleep-ns"):
        aa.Aeron.connect(directory=tmp_path / "nobody", idle_strategy=given)


def test_an_empty_directory_is_refused() -> None:
    """It would mean the current directory, in which the client would wait for a driver."""
    with pytest.raises(aa.ConfigurationError, match="directory='' must name the Aeron directory"):
        aa.Aeron.connect(directory="")


def test_an_idle_strategy_without_a_directory_is_refused() -> None:
    with pytest.raises(aa.ConfigurationError, match="setting of its DriverContext"):
        aa.Aeron.connect(idle_strategy="spin")


async def test_the_watcher_of_a_driver_takes_an_idle_strategy(
    context: aa.DriverContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[IdleStrategy | None] = []

    def watcher(
        loop: asyncio.AbstractEventLoop, idle_strategy: IdleStrategy | None, *, word_limit: int
    ) -> Watcher:
        taken.append(idle_strategy)
        return Watcher(loop, idle_strategy, word_limit=word_limit)

    monkeypatch.setattr(media_driver, "Watcher", watcher)
    sleeping = attrs.evolve(context, idle_strategy="sleep-ns", idle_strategy_init_args="1ms")
    async with aa.MediaDriver.launch(sleeping):
        assert taken == [SleepingIdleStrategy(1_000_000)]


# What a request leaves behind.


async def links(driver: aa.MediaDriver) -> None:
    """Wait until the driver holds nothing for any client."""
    conductor = driver.conductor
    await until(lambda: not conductor._subscriptions._links and not conductor._table._links)


@pytest.mark.parametrize(
    "add", ["add_publication", "add_exclusive_publication", "add_subscription"]
)
async def test_a_cancelled_request_leaves_nothing_in_the_driver(
    driver: aa.MediaDriver, aeron: aa.Aeron, add: str
) -> None:
    waiting = asyncio.ensure_future(getattr(aeron, add)(IPC, STREAM_ID))
    await asyncio.sleep(0)
    assert proxy_of(aeron)._waiting
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await aeron.add_subscription(f"{IPC}?session-id=1", STREAM_ID + 1)
    assert len(driver.conductor._subscriptions._links) == 1
    assert not driver.conductor._table._links


@pytest.mark.parametrize("add", ["add_publication", "add_subscription"])
async def test_a_cancelled_destination_is_taken_back(
    driver: aa.MediaDriver, aeron: aa.Aeron, channel: str, add: str
) -> None:
    holder = await getattr(aeron, add)("aeron:udp?control-mode=manual", STREAM_ID)
    waiting = asyncio.ensure_future(holder.add_destination(channel))
    await asyncio.sleep(0)
    assert proxy_of(aeron)._waiting
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    # The driver has done all that was asked for when it answers the next request.
    port = 9 if add == "add_publication" else 0
    await holder.add_destination(f"aeron:udp?endpoint=127.0.0.1:{port}")
    if add == "add_subscription":
        # Only the driver knows whether it was a second one, and the first must stay.
        await aeron.add_publication(IPC, STREAM_ID)
    found = [each for each in aeron.counters if each.label.startswith(("mdc-num-", "rcv-local"))]
    assert len(found) == 1
    assert found[0].value == 1


@pytest.mark.parametrize("add", ["add_publication", "add_subscription"])
async def test_a_request_that_is_answered_too_late_leaves_nothing_in_the_driver(
    driver: aa.MediaDriver, aeron: aa.Aeron, monkeypatch: pytest.MonkeyPatch, add: str
) -> None:
    monkeypatch.setattr(proxy_of(aeron), "_timeout_ms", 0)
    with pytest.raises(aa.DriverTimeoutError, match="did not answer within 0 ms: see"):
        await getattr(aeron, add)(IPC, STREAM_ID)
    await links(driver)


async def test_an_answer_of_another_kind_leaves_nothing_in_the_driver(
    driver: aa.MediaDriver, aeron: aa.Aeron
) -> None:
    waiting = asyncio.ensure_future(aeron.add_publication(IPC, STREAM_ID))
    await asyncio.sleep(0)
    (correlation_id,) = proxy_of(aeron)._waiting
    say(driver, OperationSucceeded(correlation_id=correlation_id))
    with pytest.raises(aa.ProtocolError, match="answered AddPublication by OperationSucceeded"):
        await waiting
    await links(driver)


async def test_a_publication_whose_log_cannot_be_used_leaves_nothing_in_the_driver(
    driver: aa.MediaDriver, aeron: aa.Aeron, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = attachment_of(aeron).logs
    monkeypatch.setattr(logs, "map", lambda _: None)
    with pytest.raises(aa.DriverError, match="removed the log"):
        await aeron.add_publication(IPC, STREAM_ID)
    await links(driver)


async def test_a_removal_that_finds_the_ring_full_is_made_up_for(
    driver: aa.MediaDriver, aeron: aa.Aeron, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    publication = await aeron.add_publication(IPC, STREAM_ID)
    proxy = proxy_of(aeron)
    with monkeypatch.context() as full:
        full.setattr(type(proxy._ring), "write", lambda *_: False)
        subscription.close()
        publication.close()
        with pytest.raises(aa.RegistrationError, match="stands still"):
            await aeron.add_publication(IPC, STREAM_ID)
    proxy.flush()
    await links(driver)


@pytest.mark.parametrize("add", ["add_publication", "add_subscription"])
async def test_what_was_never_written_is_not_undone(
    driver: aa.MediaDriver, aeron: aa.Aeron, monkeypatch: pytest.MonkeyPatch, add: str
) -> None:
    proxy = proxy_of(aeron)
    monkeypatch.setattr(type(proxy._ring), "write", lambda *_: False)
    with pytest.raises(aa.RegistrationError, match="conductor_buffer_length"):
        await getattr(aeron, add)(IPC, STREAM_ID)
    waiting = asyncio.ensure_future(getattr(aeron, add)(IPC, STREAM_ID))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    monkeypatch.setattr(proxy, "_timeout_ms", 0)
    with pytest.raises(aa.DriverTimeoutError):
        await getattr(aeron, add)(IPC, STREAM_ID)
    assert not proxy._unwritten


async def test_a_client_that_has_too_much_to_remove_ends(
    driver: aa.MediaDriver, aeron: aa.Aeron, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscriptions = [await aeron.add_subscription(IPC, STREAM_ID) for _ in range(3)]
    with monkeypatch.context() as full:
        full.setattr(type(proxy_of(aeron)._ring), "write", lambda *_: False)
        full.setattr(driver_proxy, "UNWRITTEN_MAX", 2)
        for each in subscriptions:
            assert not aeron.is_closed
            each.close()
    assert aeron.is_closed


async def test_a_driver_that_ends_right_after_its_answer_ends_the_request(
    driver: aa.MediaDriver, aeron: aa.Aeron
) -> None:
    waiting = asyncio.ensure_future(aeron.add_publication(IPC, STREAM_ID))
    await asyncio.sleep(0)
    proxy = proxy_of(aeron)
    await until(lambda: next(iter(proxy._waiting.values())).done())
    attached(aeron)._fail(None)
    with pytest.raises(aa.ClosedError):
        await waiting


async def test_a_start_that_fails_unmaps_the_directory(
    driver: aa.MediaDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[AeronDirectory] = []
    close = AeronDirectory.close

    def note(self: AeronDirectory) -> None:
        closed.append(self)
        close(self)

    monkeypatch.setattr(AeronDirectory, "close", note)

    def refuse(*_: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(attached_driver, "Watcher", refuse)
    aeron = aa.Aeron.connect(directory=driver.context.aeron_directory)
    with pytest.raises(OSError, match="Too many open files"):
        await aeron.start()
    assert len(closed) == 1
    await aeron.aclose()


# A client that is not closed.


async def connect_and_leave(directory: Path) -> None:
    aeron = await aa.Aeron.connect(directory=directory)
    await aeron.add_subscription(IPC, STREAM_ID)


def in_a_loop_that_ends(directory: Path) -> None:
    asyncio.run(connect_and_leave(directory))


def in_a_loop_that_is_closed(directory: Path) -> None:
    loop = asyncio.new_event_loop()
    loop.run_until_complete(connect_and_leave(directory))
    loop.close()
    # An interpreter that ends does it as well.
    gc.collect()


@pytest.mark.parametrize("end", [in_a_loop_that_ends, in_a_loop_that_is_closed])
async def test_a_client_that_is_not_closed_leaves_its_driver(
    driver: aa.MediaDriver, aeron: aa.Aeron, end: Callable[[Path], None]
) -> None:
    publication = await aeron.add_publication(IPC, STREAM_ID)
    with pytest.warns(ResourceWarning, match="unclosed client"):
        await asyncio.to_thread(end, Path(str(driver.context.aeron_directory)))
    # Long before the liveness timeout.
    await until(lambda: len(list(driver.counters.ids_of(CLIENT_HEARTBEAT))) == 1)
    assert not publication.is_connected
    # The thread of the client that is left is one of those.
    watches = [each for each in threading.enumerate() if each.name == "aeron-liveness"]
    await until(lambda: sum(each.is_alive() for each in watches) <= 1)


# What a wait says.


async def test_what_waits_says_that_its_driver_is_elsewhere(
    aeron: aa.Aeron, driver: aa.MediaDriver, medium: str
) -> None:
    publication = await aeron.add_publication(medium, STREAM_ID)
    why = aa.why(publication)
    assert why.reason is aa.WaitReason.DRIVER_ELSEWHERE
    assert "another process" in str(why)
    assert f"--aeron-dir {driver.context.aeron_directory}" in str(why)
    assert "aeron-async streams" in str(why)
    other = await aeron.add_subscription(medium, STREAM_ID + 1)
    assert aa.why(other).reason is aa.WaitReason.DRIVER_ELSEWHERE
    assert why.remedy.startswith("start a subscription of this channel and stream id")
    assert ("let datagrams through" in why.remedy) == medium.startswith("aeron:udp")
    assert ("minimum group size" in why.remedy) == medium.startswith("aeron:udp")
    assert aa.why(other).remedy.startswith("start a publication of this channel and stream id")
    subscription = await aeron.add_subscription(medium, STREAM_ID)
    await publication.wait_connected(timeout=5)
    await subscription.wait_connected(timeout=5)
    assert aa.why(subscription).reason is aa.WaitReason.NO_DATA
    await publication.offer(b"to read", timeout=5)
    await publication.drain(timeout=5)
    await until(lambda: aa.why(subscription).reason is aa.WaitReason.NOTHING)
    assert aa.why(publication).reason is aa.WaitReason.NOTHING
    while isinstance(publication.try_offer(bytes(1_000)), int):
        await asyncio.sleep(0)
    assert aa.why(publication).reason is aa.WaitReason.BACK_PRESSURED
    assert "another process" in str(aa.why(publication))


async def test_a_publication_without_a_destination_says_so(aeron: aa.Aeron) -> None:
    publication = await aeron.add_publication("aeron:udp?control-mode=manual", STREAM_ID)
    assert aa.why(publication).remedy.startswith("add a destination; start a subscription")


async def test_a_client_that_is_given_a_directory_says_nothing_of_aeron_dir(
    driver: aa.MediaDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = str(driver.context.aeron_directory)
    monkeypatch.setenv("AERON_DIR", directory)
    monkeypatch.setenv("AERON_DRIVER_TIMEOUT", "1234")
    monkeypatch.setattr(unused_variables, "_named", set())
    with captured_logs() as lines:
        async with aa.Aeron.connect(directory=directory) as aeron:
            assert aeron.driver.context.driver_timeout_ms == 1_234
    assert "setting_without_effect" not in [line["event"] for line in lines]


async def test_what_is_offered_over_ipc_is_drained_at_once(
    driver: aa.MediaDriver, aeron: aa.Aeron
) -> None:
    async with aa.Aeron.connect(directory=driver.context.aeron_directory) as other:
        subscription = await other.add_subscription(IPC, STREAM_ID)
        publication = await aeron.add_publication(IPC, STREAM_ID)
        await publication.wait_connected(timeout=5)
        for _ in range(3):
            await publication.offer(b"there", timeout=5)
            await publication.drain(timeout=0)
            assert (await anext(subscription)).data == b"there"


async def test_a_publication_that_fails_in_the_driver_is_closed_with_the_reason(
    driver: aa.MediaDriver, aeron: aa.Aeron, channel: str
) -> None:
    await aeron.add_subscription(channel, STREAM_ID)
    publication = await aeron.add_publication(channel, STREAM_ID)
    shared = await aeron.add_publication(channel, STREAM_ID)
    other = await aeron.add_publication(IPC, STREAM_ID)
    await publication.wait_connected(timeout=5)
    (core,) = driver.conductor.network_publications
    driver.conductor.sender._fail(core, ValueError("as if it had a fault"))
    await until(lambda: publication.is_closed and shared.is_closed)
    for each in (publication, shared):
        with pytest.raises(aa.ClosedError, match="as if it had a fault") as caught:
            await each.offer(b"late")
        assert isinstance(caught.value.__cause__, aa.PublicationError)
    assert not other.is_closed
    # The next one is another.
    again = await aeron.add_publication(channel, STREAM_ID)
    await again.wait_connected(timeout=5)
    await again.offer(b"again", timeout=5)


@pytest.mark.parametrize(
    ("window", "most"),
    [("pub-wnd=128k", 32 * 1024), ("pub-wnd=4k", 1024), ("rcv-wnd=64k", 8 * 1024)],
)
async def test_a_reader_wakes_the_driver_within_the_window_of_the_stream(
    aeron: aa.Aeron, unused_udp_port: int, window: str, most: int
) -> None:
    """A receiver whose window is small must report what is read before no datagram fits."""
    is_received = window.startswith("rcv-wnd")
    media = f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}" if is_received else f"{IPC}?alias=a"
    channel = f"{media}|term-length=1m|{window}"
    subscription = await aeron.add_subscription(channel, STREAM_ID)
    publication = await aeron.add_publication(channel, STREAM_ID)
    await publication.wait_connected(timeout=5)
    await subscription.wait_connected(timeout=5)
    (image,) = attached(aeron).subscriptions[subscription.registration_id].images.values()
    assert image._ring_length() == most


async def test_a_reader_that_is_answered_at_once_lets_the_loop_run(
    aeron: aa.Aeron, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    publication = await aeron.add_publication(IPC, STREAM_ID)
    await publication.wait_connected(timeout=5)
    await subscription.wait_connected(timeout=5)
    monkeypatch.setattr(
        attached_streams.AttachedSubscription,
        "_has_spun",
        lambda _: isinstance(publication.try_offer(b"at once"), int),
    )
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        asyncio.get_running_loop().call_soon(turn)

    turn()
    # As after a burst of messages.
    subscription._yield_budget.stride = subscription._calls_until_check = 512
    for _ in range(200):
        await anext(subscription)
    assert turns > 20


async def test_a_reader_asks_nothing_of_a_driver_that_was_left(aeron: aa.Aeron) -> None:
    failures: list[Exception] = []
    attachment = attachment_of(aeron)
    attachment._on_failed = failures.append
    attachment._served_ns -= 10**12
    attachment.check_served()
    assert len(failures) == 1
    await aeron.aclose()
    attachment.check_served()
    assert len(failures) == 1


@pytest.mark.parametrize("receiver_id", [-1, 7])
async def test_what_a_stranger_says_does_not_close_a_publication(
    driver: aa.MediaDriver, aeron: aa.Aeron, channel: str, receiver_id: int
) -> None:
    publication = await aeron.add_publication(channel, STREAM_ID)
    say(
        driver,
        PublicationErrorResponse(
            registration_id=publication._ready.original_registration_id,
            destination_registration_id=-1,
            session_id=publication.session_id,
            stream_id=STREAM_ID,
            receiver_id=receiver_id,
            group_tag=-1,
            address_type=AddressType.IPV4,
            source_port=20_121,
            source_address=bytes(16),
            code=ErrorCode.GENERIC,
            message=b"so says a stranger",
        ),
    )
    await until(lambda: publication.last_error is not None)
    assert (
        publication.last_error == "a receiver refused the stream with code 11: so says a stranger"
    )
    assert not publication.is_closed
