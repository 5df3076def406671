"""A client that goes on with the next driver of its directory when it has lost one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import attrs
import pytest

import aeron_async as aa
from aeron_async.client import attachment, reconnecting
from aeron_async.client.attached_driver import AttachedDriver
from aeron_async.driver import storage
from aeron_async.protocol.control_protocol import ClientTimeout, ErrorResponse
from tests.client.attached.reconnecting.reconnects import (
    TYPE_ID,
    Events,
    attached,
    comeback_of,
    connect,
    lost,
    read,
    restarted,
)
from tests.client.local import IPC, STREAM_ID, until
from tests.logs import captured_logs
from tests.twins import needs_compiled

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = needs_compiled


@pytest.mark.parametrize("is_exclusive", [False, True])
async def test_streams_go_on_with_the_next_driver(
    driver: aa.MediaDriver, aeron: aa.Aeron, events: Events, medium: str, *, is_exclusive: bool
) -> None:
    seen: list[str] = []
    subscription = await aeron.add_subscription(
        medium,
        STREAM_ID,
        on_available_image=lambda image: seen.append(f"+{image.position}"),
        on_unavailable_image=lambda image: seen.append(f"-{image.end.reason.name}"),  # type: ignore[union-attr]
    )
    add = aeron.add_exclusive_publication if is_exclusive else aeron.add_publication
    publication = await add(medium, STREAM_ID)
    received: list[bytes] = []

    async def consume() -> None:
        async for message in subscription:
            received.append(message.data)  # noqa: PERF401 - it is looked at while it grows

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(consume())
        for number in range(100):
            await publication.offer(b"%d" % number, timeout=5)
        await until(lambda: len(received) == 100)
        async with restarted(driver) as second:
            # What is offered before that goes into the log of the dead driver.
            await lost(aeron)
            for number in range(100, 200):
                await publication.offer(b"%d" % number, timeout=5)
            await until(lambda: len(received) == 200)
            event = await events.next()
            await publication.drain(timeout=5)
            # The positions begin anew.
            assert publication.position == 100 * 64
            assert event.client_id == aeron.client_id
            assert second.counters.find(type_id=11, registration_id=event.client_id) is not None
            assert event.reason == "it was closed"
            assert event.not_added == ()
            assert event.away_ns > 0
            await subscription.aclose()
            await task
            await publication.aclose()
            await aeron.aclose()
    assert received == [b"%d" % number for number in range(200)]
    # A driver that closes ends its own streams.
    assert seen == ["+0", "-END_OF_STREAM" if medium == IPC else "-FAILED", "+0", "-CLOSED"]


async def test_the_log_says_once_that_it_waits_and_once_that_it_is_back(
    driver: aa.MediaDriver, aeron: aa.Aeron, events: Events
) -> None:
    await aeron.add_publication(IPC, STREAM_ID)
    with captured_logs() as lines:
        async with restarted(driver):
            await events.next()
            told = [line for line in lines if line["event"].startswith("driver_")]
            assert [line["event"] for line in told] == ["driver_lost", "driver_found"]
            assert told[0]["directory"] == driver.context.aeron_directory
            assert told[1]["not_added_count"] == 0
            await aeron.aclose()


async def test_calls_that_wait_end_once_and_calls_that_follow_wait(
    driver: aa.MediaDriver, aeron: aa.Aeron, events: Events
) -> None:
    publication = await aeron.add_publication(IPC, STREAM_ID)
    exclusive = await aeron.add_exclusive_publication(IPC, STREAM_ID + 1)
    waiting = [
        asyncio.ensure_future(call)
        for call in (
            publication.offer(b"first in line"),
            publication.offer(b"second in line", timeout=60),
            publication.claim(5),
            publication.wait_connected(),
            exclusive.wait_connected(timeout=60),
        )
    ]
    for _ in range(3):
        await asyncio.sleep(0)
    await driver.abort()
    for each in waiting:
        with pytest.raises(aa.DriverTimeoutError, match=r"it was closed; the client reconnects"):
            await asyncio.wait_for(each, 5)
    with pytest.raises(aa.DriverTimeoutError, match="reconnects"):
        await publication.drain()
    with pytest.raises(aa.DriverTimeoutError, match="reconnects"):
        _ = aeron.counters
    assert not publication.is_connected
    assert publication.try_offer(b"") is aa.OfferOutcome.NOT_CONNECTED
    assert aa.why(publication).reason is aa.WaitReason.DRIVER_LOST
    with pytest.raises(aa.OfferTimeoutError, match="the client looks for the next one"):
        await publication.offer(b"", timeout=0)
    offering = asyncio.ensure_future(publication.offer(b"after", timeout=5))
    connecting = asyncio.ensure_future(publication.wait_connected(timeout=5))
    adding = asyncio.ensure_future(aeron.add_subscription(IPC, STREAM_ID))
    await asyncio.sleep(0.05)
    assert not any(each.done() for each in (offering, connecting, adding))
    async with aa.MediaDriver.launch(driver.context):
        subscription = await adding
        await offering
        await connecting
        assert await read(subscription, 1) == [b"after"]
        await events.next()
        await aeron.aclose()


async def test_a_publication_that_does_not_wait_says_that_nobody_is_connected(
    driver: aa.MediaDriver, aeron: aa.Aeron
) -> None:
    publication = await aeron.add_publication(IPC, STREAM_ID, on_disconnected="raise")
    await driver.abort()
    await lost(aeron)
    with pytest.raises(aa.NotConnectedError):
        await publication.offer(b"")


async def test_a_request_that_waits_ends_with_the_driver(
    driver: aa.MediaDriver, aeron: aa.Aeron, events: Events
) -> None:
    adding = [
        asyncio.ensure_future(each)
        for each in (
            aeron.add_subscription(IPC, STREAM_ID),
            aeron.add_publication(IPC, STREAM_ID),
            aeron.add_counter(TYPE_ID, "orders"),
        )
    ]
    await asyncio.sleep(0)
    attached(aeron).lose("as a test wants")
    for each in adding:
        with pytest.raises(aa.DriverTimeoutError, match="as a test wants; the client reconnects"):
            await each
    assert (await events.next()).not_added == ()
    assert not attached(aeron).subscriptions
    assert (await aeron.add_subscription(IPC, STREAM_ID)).images == ()


async def test_an_offer_that_was_woken_in_the_turn_of_the_loss_hears_of_it(
    driver: aa.MediaDriver, aeron: aa.Aeron, events: Events
) -> None:
    publication = await aeron.add_publication(IPC, STREAM_ID)
    waiting = [
        asyncio.ensure_future(each)
        for each in (publication.offer(b"", timeout=5), publication.wait_connected(timeout=5))
    ]
    await asyncio.sleep(0)
    # As when the window changes in the turn in which the driver is lost.
    publication._listener.on_window_changed()
    attached(aeron).lose("as a test wants")
    for each in waiting:
        with pytest.raises(aa.DriverTimeoutError, match="as a test wants"):
            await each
    await events.next()


async def test_destinations_are_added_again(
    driver: aa.MediaDriver, aeron: aa.Aeron, events: Events, channel: str
) -> None:
    manual = "aeron:udp?control-mode=manual"
    publication = await aeron.add_publication(manual, STREAM_ID)
    subscription = await aeron.add_subscription(manual, STREAM_ID)
    await subscription.add_destination(channel)
    dropped_id = await publication.add_destination("aeron:udp?endpoint=127.0.0.1:9")
    destination_id = await publication.add_destination(channel)
    await publication.remove_destination(dropped_id)
    await publication.offer(b"before", timeout=5)
    assert await read(subscription, 1) == [b"before"]
    async with restarted(driver):
        await events.next()
        await publication.offer(b"after", timeout=5)
        assert await read(subscription, 1) == [b"after"]
        # By the id that it had with the first driver.
        await publication.remove_destination(destination_id)
        await subscription.remove_destination(channel)
        assert not any(each.destinations for each in attached(aeron).publications.values())
        assert not any(each.destinations for each in attached(aeron).subscriptions.values())
        await aeron.aclose()


async def test_counters_keep_their_values(
    driver: aa.MediaDriver, aeron: aa.Aeron, events: Events
) -> None:
    counter = await aeron.add_counter(TYPE_ID, "orders", b"key")
    static = await aeron.add_static_counter(TYPE_ID, "static", registration_id=5)
    counter.set(7)
    static.set(70)
    await driver.abort()
    await lost(aeron)
    counter.increment()
    static.increment()
    assert (counter.get(), static.get()) == (8, 71)
    async with aa.MediaDriver.launch(driver.context) as second:
        await events.next()
        record = second.counters.record(counter.id)
        assert (record.value, record.label, record.key[:3]) == (8, "orders", b"key")
        assert record.registration_id == counter.registration_id
        # Another client may have changed it in the meantime.
        assert static.get() == 0
        assert second.counters.record(static.id).registration_id == 5
        counter.increment()
        assert second.counters.value(counter.id) == 9
        counter.close()
        await until(lambda: len(list(second.counters.ids_of(TYPE_ID))) == 1)
        await aeron.aclose()


async def test_what_is_closed_while_there_is_no_driver_is_not_added_again(
    driver: aa.MediaDriver, aeron: aa.Aeron, events: Events
) -> None:
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    publication = await aeron.add_publication(IPC, STREAM_ID)
    exclusive = await aeron.add_exclusive_publication(IPC, STREAM_ID)
    counter = await aeron.add_counter(TYPE_ID, "orders")
    await driver.abort()
    await lost(aeron)
    for each in (subscription, publication, counter):
        each.close()
    exclusive.revoke()
    async with aa.MediaDriver.launch(driver.context) as second:
        assert (await events.next()).not_added == ()
        conductor = second.conductor
        assert not conductor._subscriptions._links
        assert not conductor._table._links
        assert not list(second.counters.ids_of(TYPE_ID))
        await aeron.aclose()


@pytest.mark.parametrize("kind", ["publication", "subscription", "counter"])
async def test_what_is_closed_while_it_is_added_again_is_removed(
    driver: aa.MediaDriver,
    aeron: aa.Aeron,
    events: Events,
    kind: str,
) -> None:
    added: aa.Publication | aa.Subscription | aa.Counter
    if kind == "publication":
        added = await aeron.add_publication(IPC, STREAM_ID, on_error=print)
    elif kind == "subscription":
        added = await aeron.add_subscription(IPC, STREAM_ID)
    else:
        added = await aeron.add_counter(TYPE_ID, "orders")
    async with restarted(driver) as second:
        await lost(aeron)
        proxy = None
        while proxy is None or not proxy._waiting:
            await asyncio.sleep(0)
            proxy = None if attached(aeron)._attached is None else attached(aeron)._proxy()
        added.close()
        await events.next()
        conductor = second.conductor
        await until(lambda: not conductor._subscriptions._links and not conductor._table._links)
        await until(lambda: not list(second.counters.ids_of(TYPE_ID)))
        # Nothing holds the answers.
        assert proxy._hold_count == 0
        await aeron.aclose()


async def test_a_second_death_while_everything_is_added_again(
    driver: aa.MediaDriver, aeron: aa.Aeron, events: Events
) -> None:
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    publications = [await aeron.add_publication(IPC, STREAM_ID + n) for n in range(5)]
    counter = await aeron.add_counter(TYPE_ID, "orders")
    counter.set(3)
    async with restarted(driver) as second:
        await until(
            lambda: 0 < sum(each.is_attached for each in attached(aeron).publications.values()) < 5
        )
        offering = asyncio.ensure_future(publications[4].offer(b"last", timeout=10))
        await asyncio.sleep(0)
        async with restarted(second) as third:
            event = await events.next()
            assert event.not_added == ()
            await publications[0].offer(b"there", timeout=5)
            assert await read(subscription, 1) == [b"there"]
            reader = await aeron.add_subscription(IPC, STREAM_ID + 4)
            await offering
            assert await read(reader, 1) == [b"last"]
            assert len(third.conductor.ipc_publications) == 5
            assert third.counters.value(counter.id) == 3
            await aeron.aclose()


async def test_a_second_death_while_a_subscription_is_asked_for_leaves_no_request(
    driver: aa.MediaDriver, aeron: aa.Aeron, events: Events
) -> None:
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    (added,) = attached(aeron).subscriptions.values()
    attached(aeron).lose("as a test wants")
    assert subscription.registration_id < -1
    await until(lambda: added.asked_id is not None)
    assert len(attached(aeron).subscriptions) == 2
    attached(aeron).lose("once more")
    assert list(attached(aeron).subscriptions.values()) == [added]
    assert (await events.next()).reason == "once more"
    assert list(attached(aeron).subscriptions) == [subscription.registration_id]
    publication = await aeron.add_publication(IPC, STREAM_ID)
    await publication.offer(b"there", timeout=5)
    assert await read(subscription, 1) == [b"there"]


async def test_closing_ends_the_search_at_once(
    driver: aa.MediaDriver, aeron: aa.Aeron, events: Events
) -> None:
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    publication = await aeron.add_publication(IPC, STREAM_ID)
    counter = await aeron.add_counter(TYPE_ID, "orders")
    await driver.abort()
    await lost(aeron)
    waiting = [
        asyncio.ensure_future(each)
        for each in (
            publication.offer(b""),
            aeron.add_publication(IPC, STREAM_ID),
            subscription.wait_connected(),
        )
    ]

    async def consume() -> list[aa.Message]:
        return [message async for message in subscription]

    reading = asyncio.ensure_future(consume())
    await asyncio.sleep(0.03)
    await asyncio.wait_for(aeron.aclose(), 1)
    for each in waiting:
        with pytest.raises(aa.ClosedError):
            await each
    assert await reading == []
    assert len(comeback_of(aeron)._tasks) == 0
    assert publication.is_closed
    assert counter.is_closed
    assert events == []


async def test_closing_while_everything_is_added_again(
    driver: aa.MediaDriver, aeron: aa.Aeron, events: Events
) -> None:
    for number in range(5):
        await aeron.add_publication(IPC, STREAM_ID + number)
    async with restarted(driver) as second:
        await until(
            lambda: 0 < sum(each.is_attached for each in attached(aeron).publications.values()) < 5
        )
        await asyncio.wait_for(aeron.aclose(), 1)
        assert len(comeback_of(aeron)._tasks) == 0
        await until(lambda: not second.conductor._table._links)
    assert events == []


async def test_a_relative_directory_stays_the_same(
    driver: aa.MediaDriver,
    context: aa.DriverContext,
    events: Events,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    relative = attrs.evolve(context, aeron_directory="aeron")
    async with connect(relative, events) as aeron:
        monkeypatch.chdir("/")
        async with restarted(driver):
            await events.next()
            await aeron.aclose()


async def test_a_driver_that_never_comes_back_is_looked_for_with_naps(
    driver: aa.MediaDriver, aeron: aa.Aeron, monkeypatch: pytest.MonkeyPatch
) -> None:
    naps: list[float] = []
    looks: list[object] = []
    monkeypatch.setattr(reconnecting, "LONGEST_NAP_S", 1.0)
    look = AttachedDriver.look_for_driver

    def note(self: AttachedDriver) -> str | None:
        looks.append(naps)
        return look(self)

    monkeypatch.setattr(AttachedDriver, "look_for_driver", note)
    sleep = asyncio.sleep

    async def nap(delay: float, *more: Any) -> None:
        if delay:
            naps.append(delay)
        await sleep(0, *more)

    monkeypatch.setattr(asyncio, "sleep", nap)
    await driver.abort()
    await until(lambda: len(naps) > 10)
    monkeypatch.undo()
    assert naps[:8] == [0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0, 1.0]
    assert len(looks) <= len(naps) + 1
    context = attached(aeron).context
    attached(aeron).context = attrs.evolve(context, driver_timeout_ms=10)  # type: ignore[misc]
    with pytest.raises(aa.DriverTimeoutError, match=r"within 10 ms, .*driver_timeout_ms; the last"):
        await aeron.add_publication(IPC, STREAM_ID)
    await asyncio.wait_for(aeron.aclose(), 1)


async def test_a_driver_that_is_killed_and_replaced_by_one_that_deletes_its_directory(
    driver: aa.MediaDriver,
    aeron: aa.Aeron,
    events: Events,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publication = await aeron.add_publication(IPC, STREAM_ID)
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    await publication.offer(b"before", timeout=5)
    assert await read(subscription, 1) == [b"before"]
    monkeypatch.setattr(attachment, "SILENCE_MS", 50)
    # A driver that is killed stores nothing more, and leaves its directory.
    monkeypatch.setattr(
        storage, "HEARTBEAT_ENDED", attached(aeron)._attachment().directory.heartbeat_ms
    )
    await driver.abort()
    monkeypatch.setattr(storage, "HEARTBEAT_ENDED", -1)
    eager = attrs.evolve(driver.context, dir_delete_on_start=True)
    async with aa.MediaDriver.launch(eager):
        event = await events.next()
        assert "has gone from" in event.reason
        await publication.offer(b"after", timeout=5)
        assert await read(subscription, 1) == [b"after"]
        await aeron.aclose()


async def test_a_driver_that_was_lost_in_silence_is_taken_again_only_when_it_beats(
    driver: aa.MediaDriver,
    aeron: aa.Aeron,
    events: Events,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publication = await aeron.add_publication(IPC, STREAM_ID)
    adapter = driver.conductor.adapter
    assert adapter is not None
    with monkeypatch.context() as still:
        still.setattr(adapter, "_show_life", lambda: None)
        still.setattr(attached(aeron)._attachment(), "_timeout_ms", 100)
        await lost(aeron)
        # Its heartbeat is young enough for others, who have not seen it stand still.
        assert (
            attached(aeron).look_for_driver() == "the driver that was lost has shown no life since"
        )
        reason = comeback_of(aeron).reason
        assert "has shown no life for" in reason
        assert "ms that driver_timeout_ms allows" in reason
    await events.next()
    assert not publication.is_closed


async def test_a_client_that_its_driver_gave_up_comes_back_to_it(
    driver: aa.MediaDriver, aeron: aa.Aeron, events: Events
) -> None:
    publication = await aeron.add_publication(IPC, STREAM_ID)
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    adapter = driver.conductor.adapter
    assert adapter is not None
    adapter._proxy._transmit(ClientTimeout(client_id=aeron.client_id))
    assert "has not heard this client" in (await events.next()).reason
    await publication.offer(b"again", timeout=5)
    assert await read(subscription, 1) == [b"again"]


async def test_a_client_that_missed_what_its_driver_said_comes_back_to_it(
    driver: aa.MediaDriver, aeron: aa.Aeron, events: Events
) -> None:
    await aeron.add_subscription(IPC, STREAM_ID)
    adapter = driver.conductor.adapter
    assert adapter is not None
    for number in range(20_000):
        adapter._proxy._transmit(
            ErrorResponse(correlation_id=-number - 9, code=1, message=bytes(64))
        )
    assert "had not read" in (await events.next()).reason
    assert not aeron.is_closed


async def test_a_request_names_its_subscription_to_the_next_driver(
    driver: aa.MediaDriver, aeron: aa.Aeron, events: Events, unused_udp_port: int
) -> None:
    # So that the ids of the next driver are others.
    await (await aeron.add_subscription(IPC, STREAM_ID)).aclose()
    responses = await aeron.add_subscription(
        f"aeron:udp?control=127.0.0.1:{unused_udp_port}|control-mode=response", STREAM_ID
    )
    request = await aeron.add_publication(
        f"aeron:udp?endpoint=127.0.0.1:9|response-correlation-id={responses.registration_id}",
        STREAM_ID,
    )
    before_id = responses.registration_id
    async with restarted(driver):
        assert (await events.next()).not_added == ()
        assert responses.registration_id != before_id
        assert not request.is_closed
        await aeron.aclose()


@pytest.mark.parametrize("named", ["closed subscription", "image", "prototype"])
async def test_an_id_of_the_lost_driver_is_not_used_with_the_next_one(
    driver: aa.MediaDriver, aeron: aa.Aeron, events: Events, named: str
) -> None:
    """The next driver may have given it to another client, which would get the responses."""
    responses = await aeron.add_subscription(f"{IPC}?control-mode=response", STREAM_ID + 1)
    requests = await aeron.add_publication(
        f"{IPC}?response-correlation-id={responses.registration_id}", STREAM_ID
    )
    added = requests
    if named == "closed subscription":
        await responses.aclose()
    else:
        server = await aeron.add_subscription(IPC, STREAM_ID)
        await server.wait_connected(timeout=5)
        image_id = server.images[0].correlation_id if named == "image" else named
        added = await aeron.add_publication(
            f"{IPC}?control-mode=response|response-correlation-id={image_id}", STREAM_ID + 1
        )
    async with restarted(driver):
        event = await events.next()
        if named == "prototype":
            assert event.not_added == ()
            assert not requests.is_closed
        else:
            (refused,) = event.not_added
            assert refused.subject is added
            assert named.rsplit(maxsplit=1)[-1] in str(refused.error)
            assert added.is_closed
        await aeron.aclose()


async def test_a_claim_of_a_lost_log_is_refused(driver: aa.MediaDriver, aeron: aa.Aeron) -> None:
    await aeron.add_subscription(IPC, STREAM_ID)
    publication = await aeron.add_publication(IPC, STREAM_ID)
    claims = [await publication.claim(8, timeout=5) for _ in range(3)]
    await driver.abort()
    await lost(aeron)
    with pytest.raises(aa.ClosedError, match="its driver is gone, with the log"):
        claims[0].commit()
    with pytest.raises(aa.ClosedError, match="its driver is gone"):
        claims[1].abort()
    with pytest.raises(KeyError), claims[2]:
        raise KeyError
    assert not publication.is_closed


async def test_a_handler_that_fails_is_reported(
    driver: aa.MediaDriver, context: aa.DriverContext
) -> None:
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, failure: failures.append(failure))

    def fail(event: aa.Reconnected) -> None:
        raise KeyError(event.reason)

    async with aa.Aeron.connect(
        directory=context.aeron_directory, context=context, reconnect=True, on_reconnected=fail
    ) as aeron:
        await aeron.add_publication(IPC, STREAM_ID)
        attached(aeron).lose("as a test wants")
        await until(lambda: failures)
        assert not aeron.is_closed
    assert str(failures[0]["exception"]) == "'as a test wants'"


async def test_cancelled_calls_end_while_there_is_no_driver(
    driver: aa.MediaDriver, aeron: aa.Aeron, events: Events
) -> None:
    publication = await aeron.add_publication(IPC, STREAM_ID)
    await driver.abort()
    await lost(aeron)
    waiting = [
        asyncio.ensure_future(each)
        for each in (publication.offer(b""), aeron.add_subscription(IPC, STREAM_ID))
    ]
    await asyncio.sleep(0.02)
    for each in waiting:
        each.cancel()
        with pytest.raises(asyncio.CancelledError):
            await each
    async with aa.MediaDriver.launch(driver.context) as second:
        await events.next()
        assert not second.conductor._subscriptions._links
        await aeron.aclose()


async def test_without_reconnect_the_client_ends(
    driver: aa.MediaDriver, context: aa.DriverContext
) -> None:
    async with aa.Aeron.connect(directory=context.aeron_directory, context=context) as aeron:
        publication = await aeron.add_publication(IPC, STREAM_ID)
        waiting = asyncio.ensure_future(publication.offer(b""))
        await asyncio.sleep(0)
        await driver.abort()
        with pytest.raises(aa.ClosedError, match="its media driver was closed"):
            await asyncio.wait_for(waiting, 5)
        assert aeron.is_closed


async def _late(event: aa.Reconnected) -> None:
    del event


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"reconnect": True}, "given a directory"),
        ({"directory": "d", "reconnect": 1}, "must be True or False"),
        ({"directory": "d", "on_reconnected": print}, "without reconnect=True"),
        ({"directory": "d", "reconnect": True, "on_reconnected": _late}, "on_reconnected"),
        ({"directory": "d", "reconnect": True, "on_reconnected": 5}, "on_reconnected"),
    ],
)
def test_arguments_without_effect_are_refused(arguments: dict[str, Any], match: str) -> None:
    with pytest.raises(aa.ConfigurationError, match=match):
        aa.Aeron.connect(**arguments)
