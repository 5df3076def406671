"""What a client that reconnects makes of refusals, of missing answers and of its own errors."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import aeron_async as aa
from aeron_async.aeron_directory import AeronDirectory
from aeron_async.client import attached_driver, attached_streams
from aeron_async.client.attached_destinations import AttachedDestinations
from aeron_async.client.attached_driver import AttachedDriver
from aeron_async.errors import ErrorCode
from aeron_async.logbuffer.log_buffers import LogBuffers, LogSpec
from aeron_async.protocol.control_protocol import ClientTimeout
from tests.client.attached.attaching import say
from tests.client.attached.reconnecting.reconnects import (
    TYPE_ID,
    Events,
    attached,
    prepared,
)
from tests.client.local import IPC, STREAM_ID, fill, until
from tests.logs import captured_logs
from tests.twins import needs_compiled

pytestmark = needs_compiled


async def test_what_the_next_driver_refuses_is_closed_and_reported(
    driver: aa.MediaDriver,
    aeron: aa.Aeron,
    events: Events,
    channel: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mine = await aeron.add_exclusive_publication(f"{channel}|session-id=7", STREAM_ID)
    manual = await aeron.add_publication("aeron:udp?control-mode=manual", STREAM_ID)
    await manual.add_destination("aeron:udp?endpoint=127.0.0.1:9")
    other = await aeron.add_publication(IPC, STREAM_ID)
    destination = next(
        each.destinations for each in attached(aeron).publications.values() if each.destinations
    )
    (key,) = destination
    destination[key].uri = aa.ChannelUri.parse(IPC)
    async with prepared(driver, monkeypatch) as second:
        rival = await aa.Aeron.connect(second)
        await rival.add_exclusive_publication(f"{channel}|session-id=7", STREAM_ID)
    async with second, rival:
        event = await events.next()
        refused, unknown = event.not_added
        assert refused.subject is mine
        assert isinstance(refused.error, aa.RegistrationError)
        assert refused.destination is None
        assert mine.is_closed
        with pytest.raises(aa.ClosedError, match="could not be added to the next media driver"):
            await mine.offer(b"")
        assert unknown.subject is manual
        assert unknown.destination == IPC
        assert not manual.is_closed
        assert not other.is_closed
        await aeron.aclose()


async def test_a_log_that_went_with_its_driver_is_no_error_of_its_own(
    driver: aa.MediaDriver, aeron: aa.Aeron, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    publication = await aeron.add_publication(IPC, STREAM_ID)
    monkeypatch.setattr(attached(aeron)._attachment().logs, "map", lambda _: None)
    with pytest.raises(aa.DriverError, match="removed the log"):
        await aeron.add_publication(IPC, STREAM_ID + 1)
    monkeypatch.setattr(AeronDirectory, "is_replaced", lambda _: True)
    with pytest.raises(aa.DriverTimeoutError, match="has taken its place; the client reconnects"):
        await aeron.add_publication(IPC, STREAM_ID + 1)
    assert (await events.next()).not_added == ()
    assert not publication.is_closed


async def test_a_driver_without_counters_refuses_everything(
    driver: aa.MediaDriver, aeron: aa.Aeron, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    publication = await aeron.add_publication(IPC, STREAM_ID)
    counter = await aeron.add_counter(TYPE_ID, "orders")
    async with prepared(driver, monkeypatch) as second:
        fill(second.counters)
    async with second:
        event = await events.next()
        assert [each.subject for each in event.not_added] == [subscription, publication, counter]
        with pytest.raises(aa.ClosedError, match="no counter is left"):
            await anext(subscription)
        with pytest.raises(aa.ClosedError, match="no counter is left"):
            await publication.offer(b"")
        with pytest.raises(aa.ClosedError, match="no counter is left"):
            counter.get()
        assert not aeron.is_closed
        await aeron.aclose()


@pytest.mark.parametrize("kind", ["publication", "subscription", "counter"])
async def test_an_answer_that_cannot_be_is_a_refusal(
    driver: aa.MediaDriver,
    aeron: aa.Aeron,
    events: Events,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    added: aa.Publication | aa.Subscription | aa.Counter
    if kind == "publication":
        added = await aeron.add_publication(IPC, STREAM_ID)
    elif kind == "subscription":
        added = await aeron.add_subscription(IPC, STREAM_ID)
    else:
        added = await aeron.add_counter(TYPE_ID, "orders")

    def fail(*_: object) -> None:
        message = "there is no such counter"
        raise aa.ProtocolError(message)

    with monkeypatch.context() as broken:
        for module in (attached_streams, attached_driver):
            broken.setattr(module, "CounterCell", type("", (), {"__init__": fail, "of": fail}))
        attached(aeron).lose("as a test wants")
        (refused,) = (await events.next()).not_added
    assert refused.subject is added
    assert isinstance(refused.error, aa.ProtocolError)
    assert added.is_closed
    assert attached(aeron)._proxy()._hold_count == 0
    conductor = driver.conductor
    await until(lambda: not conductor._subscriptions._links and not conductor._table._links)
    await until(lambda: not list(driver.counters.ids_of(TYPE_ID)))


async def test_a_destination_that_is_not_answered_keeps_nothing_away(
    driver: aa.MediaDriver, aeron: aa.Aeron, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    publication = await aeron.add_publication("aeron:udp?control-mode=manual", STREAM_ID)
    await publication.add_destination("aeron:udp?endpoint=127.0.0.1:9")

    async def answer_never(*_: object) -> None:
        message = "it did not answer"
        raise aa.DriverTimeoutError(message)

    monkeypatch.setattr(AttachedDestinations, "add_again", answer_never)
    attached(aeron).lose("as a test wants")
    (refused,) = (await events.next()).not_added
    assert refused.subject is publication
    assert refused.destination == "aeron:udp?endpoint=127.0.0.1:9"
    assert not publication.is_closed


async def test_subscriptions_close_before_they_are_added_again(
    driver: aa.MediaDriver, aeron: aa.Aeron, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscriptions = [await aeron.add_subscription(IPC, STREAM_ID + n) for n in range(5)]
    is_reached, gate = asyncio.Event(), asyncio.Event()
    ask = AttachedDriver.open_subscription

    async def ask_later(self: AttachedDriver, added: Any) -> Any:
        is_reached.set()
        await gate.wait()
        return await ask(self, added)

    with monkeypatch.context() as gated:
        gated.setattr(AttachedDriver, "open_subscription", ask_later)
        attached(aeron).lose("as a test wants")
        await asyncio.wait_for(is_reached.wait(), 5)
        for each in subscriptions[2:]:
            each.close()
        gate.set()
        event = await events.next()
    assert (event.not_added, event.reason) == ((), "as a test wants")
    # Each of those that are left wants to hear at once, and nothing else does.
    assert attached(aeron)._proxy()._hold_count == 2
    another = await aeron.add_subscription(IPC, STREAM_ID)
    publication = await aeron.add_publication(IPC, STREAM_ID)
    await publication.offer(b"there", timeout=5)
    for each in (subscriptions[0], another):
        assert (await anext(each)).data == b"there"


def removals(driver: aa.MediaDriver, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Note from now on whether the driver has found what it is asked to remove: it does not say."""
    found: list[bool] = []
    conductor = driver.conductor
    for holder in (conductor._publications, conductor._subscriptions):

        def remove(*arguments: Any, act: Any = holder._remove_destination) -> bool:
            found.append(act(*arguments))
            return found[-1]

        monkeypatch.setattr(holder, "_remove_destination", remove)
    return found


@pytest.mark.parametrize("is_sent_to", [True, False])
async def test_destinations_change_before_they_are_added_again(
    driver: aa.MediaDriver,
    aeron: aa.Aeron,
    events: Events,
    monkeypatch: pytest.MonkeyPatch,
    channel: str,
    *,
    is_sent_to: bool,
) -> None:
    manual = "aeron:udp?control-mode=manual"
    add = aeron.add_publication if is_sent_to else aeron.add_subscription
    owner: aa.Publication | aa.Subscription = await add(manual, STREAM_ID)
    first_id = await owner.add_destination(
        "aeron:udp?endpoint=127.0.0.1:0" if not is_sent_to else "aeron:udp?endpoint=127.0.0.1:9"
    )
    await owner.add_destination(channel)
    gate = asyncio.Event()
    name = "open_publication" if is_sent_to else "open_subscription"
    ask = getattr(AttachedDriver, name)

    async def ask_later(self: AttachedDriver, added: Any) -> Any:
        await gate.wait()
        return await ask(self, added)

    monkeypatch.setattr(AttachedDriver, name, ask_later)
    attached(aeron).lose("as a test wants")
    await until(lambda: attached(aeron).is_attached)
    # The driver is there, and does not know them yet.
    with pytest.raises(aa.DriverTimeoutError, match="as a test wants; the client reconnects"):
        await owner.add_destination("aeron:udp?endpoint=127.0.0.1:10")
    with pytest.raises(aa.DriverTimeoutError, match="as a test wants; the client reconnects"):
        await owner.remove_destination("aeron:udp?endpoint=127.0.0.1:10")
    if is_sent_to:
        with pytest.raises(aa.DriverTimeoutError, match="the client reconnects"):
            await owner.remove_destination(first_id + 100)
        await owner.remove_destination(first_id)
    else:
        await owner.remove_destination("aeron:udp?endpoint=127.0.0.1:0")
    gate.set()
    assert (await events.next()).not_added == ()
    # The other one is there again.
    await owner.remove_destination(channel)
    found = removals(driver, monkeypatch)
    await owner.remove_destination(channel)
    assert found == [False]
    assert not owner.is_closed


@pytest.mark.parametrize("is_sent_to", [True, False])
async def test_a_destination_that_is_removed_while_it_is_added_again_is_removed(
    driver: aa.MediaDriver,
    aeron: aa.Aeron,
    events: Events,
    monkeypatch: pytest.MonkeyPatch,
    channel: str,
    *,
    is_sent_to: bool,
) -> None:
    manual = "aeron:udp?control-mode=manual"
    add = aeron.add_publication if is_sent_to else aeron.add_subscription
    owner: aa.Publication | aa.Subscription = await add(manual, STREAM_ID)
    await owner.add_destination(channel)
    ask = AttachedDestinations._ask
    asked: list[object] = []

    async def remove_meanwhile(self: AttachedDestinations, *arguments: Any) -> int:
        asked.append(arguments[0])
        if len(asked) == 1:
            await owner.remove_destination(channel)
        return await ask(self, *arguments)

    monkeypatch.setattr(AttachedDestinations, "_ask", remove_meanwhile)
    attached(aeron).lose("as a test wants")
    assert (await events.next()).not_added == ()
    assert len(asked) == 2
    found = removals(driver, monkeypatch)
    await owner.remove_destination(channel)
    assert found == [False]


async def test_one_thing_that_is_not_answered_keeps_no_other_away(
    driver: aa.MediaDriver, aeron: aa.Aeron, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = await aeron.add_publication(IPC, STREAM_ID)
    other = await aeron.add_publication(IPC, STREAM_ID + 1)
    ask = AttachedDriver.open_publication

    async def answer_never(self: AttachedDriver, added: Any) -> None:
        if added.stream_id == STREAM_ID:
            message = "it did not answer"
            raise aa.DriverTimeoutError(message)
        await ask(self, added)

    monkeypatch.setattr(AttachedDriver, "open_publication", answer_never)
    attached(aeron).lose("as a test wants")
    (refused,) = (await events.next()).not_added
    assert refused.subject is slow
    assert isinstance(refused.error, aa.DriverTimeoutError)
    assert slow.is_closed
    assert not other.is_closed


async def test_without_memory_for_the_time_without_a_driver_the_client_ends(
    driver: aa.MediaDriver, aeron: aa.Aeron, monkeypatch: pytest.MonkeyPatch
) -> None:
    publications = [await aeron.add_publication(IPC, STREAM_ID + n) for n in range(3)]
    create = LogBuffers.create
    made: list[LogSpec] = []

    def fail(spec: LogSpec) -> LogBuffers:
        made.append(spec)
        if len(made) == 2:
            raise OSError(12, "Cannot allocate memory")
        return create(spec)

    monkeypatch.setattr(LogBuffers, "create", fail)
    attached(aeron).lose("as a test wants")
    for each in publications:
        with pytest.raises(aa.ClosedError, match="Cannot allocate memory"):
            await each.offer(b"")
    assert aeron.is_closed
    await until(lambda: not driver.conductor._table._links)


async def test_a_driver_that_says_what_none_says_ends_the_client(
    driver: aa.MediaDriver, aeron: aa.Aeron
) -> None:
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    attached(aeron)._fail(aa.ProtocolError("no driver says that"))
    assert aeron.is_closed
    with pytest.raises(aa.ClosedError, match="no driver says that"):
        await anext(subscription)


async def test_a_search_that_fails_ends_the_client(
    driver: aa.MediaDriver, aeron: aa.Aeron, monkeypatch: pytest.MonkeyPatch
) -> None:
    publication = await aeron.add_publication(IPC, STREAM_ID)

    def fail(self: AttachedDriver) -> None:
        raise KeyError

    monkeypatch.setattr(AttachedDriver, "look_for_driver", fail)
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, failure: failures.append(failure))
    attached(aeron).lose("as a test wants")
    await until(lambda: aeron.is_closed)
    with pytest.raises(aa.ClosedError, match="could not reconnect"):
        await publication.offer(b"")


async def test_errors_of_the_next_directory_are_waited_out(
    driver: aa.MediaDriver, aeron: aa.Aeron, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    await aeron.add_publication(IPC, STREAM_ID)
    errors: list[Exception] = [
        aa.ProtocolError("of another version"),
        OSError(24, "Too many open files"),
        aa.RegistrationError("no counter", code=ErrorCode.GENERIC),
    ]
    look = AttachedDriver._look

    def fail(self: AttachedDriver) -> Any:
        if errors:
            raise errors.pop()
        return look(self)

    monkeypatch.setattr(AttachedDriver, "_look", fail)
    with captured_logs() as lines:
        attached(aeron).lose("as a test wants")
        await events.next()
    assert errors == []
    told = [line["error"] for line in lines if line["event"] == "driver_not_usable"]
    assert told == ["no counter", "[Errno 24] Too many open files", "of another version"]


async def test_why_a_driver_cannot_be_used_is_told_once_and_to_who_asks(
    driver: aa.MediaDriver, aeron: aa.Aeron, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[AttachedDriver] = []

    def fail(self: AttachedDriver) -> Any:
        looks.append(self)
        message = "of another version"
        raise aa.ProtocolError(message)

    monkeypatch.setattr(AttachedDriver, "_look", fail)
    with captured_logs() as lines:
        attached(aeron).lose("as a test wants")
        await until(lambda: len(looks) > 3)
    assert [line["event"] for line in lines].count("driver_not_usable") == 1
    with pytest.raises(aa.DriverTimeoutError, match="of another version"):
        await aeron.add_publication(IPC, STREAM_ID)


async def test_a_driver_that_does_not_answer_is_left(
    driver: aa.MediaDriver, aeron: aa.Aeron, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    publication = await aeron.add_publication(IPC, STREAM_ID)
    asked: list[object] = []
    ask = AttachedDriver.open_publication

    async def answer_late(self: AttachedDriver, added: Any) -> None:
        asked.append(added)
        if len(asked) == 1:
            message = "it did not answer"
            raise aa.DriverTimeoutError(message)
        await ask(self, added)

    monkeypatch.setattr(AttachedDriver, "open_publication", answer_late)
    attached(aeron).lose("as a test wants")
    event = await events.next()
    assert event.reason == "it did not answer"
    assert len(asked) == 2
    assert not publication.is_closed


@pytest.mark.parametrize("is_again", [False, True])
async def test_a_client_that_is_given_up_while_it_adds_a_publication_comes_back(
    driver: aa.MediaDriver,
    aeron: aa.Aeron,
    events: Events,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_again: bool,
) -> None:
    open_log = AttachedDriver._open_log

    def open_and_give_up(self: AttachedDriver, *arguments: Any) -> None:
        open_log(self, *arguments)
        monkeypatch.setattr(AttachedDriver, "_open_log", open_log)
        say(driver, ClientTimeout(client_id=aeron.client_id))

    if not is_again:
        monkeypatch.setattr(AttachedDriver, "_open_log", open_and_give_up)
    publication = await aeron.add_publication(IPC, STREAM_ID, on_error=print)
    if is_again:
        monkeypatch.setattr(AttachedDriver, "_open_log", open_and_give_up)
        attached(aeron).lose("as a test wants")
    assert (await events.next()).not_added == ()
    assert len(driver.conductor._table._links) == 1
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    await publication.offer(b"goes on", timeout=5)
    assert (await anext(subscription)).data == b"goes on"
