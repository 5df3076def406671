"""Commands that wait: in the ring, behind others of their client, or for a name."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.clock import NEVER_NS
from aeron_async.driver import aeron_client
from aeron_async.driver.aeron_client import (
    CLOSED_HEARTBEAT,
    LONG_BACKLOG,
    LOOK_UPS_MAX,
    NAMES_HOLD_NS,
    NAMES_PERIOD_NS,
    WAITING_COMMANDS_MAX,
    AeronClient,
    CommandBacklog,
)
from aeron_async.driver.command_queue import (
    FOREIGN_LOOK_UP_S,
    FOREIGN_LOOK_UPS_MAX,
    CommandQueue,
)
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.errors import ErrorCode, RegistrationError
from aeron_async.protocol.channel_uri import MAX_LENGTH
from aeron_async.protocol.control_protocol import (
    AddCounter,
    AddDestination,
    AddPublication,
    AddReceiveDestination,
    AddStaticCounter,
    AddSubscription,
    ClientClose,
    ClientKeepalive,
    ClientTimeout,
    CounterReady,
    ErrorResponse,
    GetNextAvailableSessionId,
    NextAvailableSessionId,
    RemoveDestinationById,
    RemovePublication,
    RemovePublicationFlags,
    RemoveReceiveDestination,
)
from tests.driver.fakes import Counts
from tests.driver.foreign.client import (
    BY_NAME,
    IPC,
    STREAM_ID,
    UDP,
    Directory,
    in_directory,
    slow_names,
)

if TYPE_CHECKING:
    from tests.driver.foreign.client import ForeignClient

CLIENTS = -(-FOREIGN_LOOK_UPS_MAX // LOOK_UPS_MAX)
"""So many, each with as many look-ups as it may have, take all places."""
MANUAL = "aeron:udp?control-mode=manual|term-length=64k"
A_COUNTER: dict[str, Any] = {"counter_type_id": 1_001, "key": b"", "label": b""}


def refused_count(directory: Directory) -> int:
    return directory.adapter._resources.system_counters[DriverCounterId.COMMANDS_REFUSED].get()


def waiting_count(directory: Directory, client: ForeignClient) -> int:
    return len(directory.adapter._clients[client.client_id].commands)


def waiting_length(directory: Directory) -> int:
    return directory.adapter._backlog._length


async def answers(client: ForeignClient, count: int) -> list[tuple[int, int]]:
    """Return the ids of so many answers, each with its code if it is a refusal, or 0."""
    found: list[tuple[int, int]] = []
    for _ in range(count):
        await client.settle()
        for each in client.received():
            if isinstance(each, ErrorResponse):
                found.append((each.correlation_id, each.code))
            elif hasattr(each, "correlation_id") and each.correlation_id != client.client_id:
                found.append((each.correlation_id, 0))
        if len(found) >= count:
            break
    return found


def wait_for_names(client: ForeignClient) -> list[int]:
    """Ask for so much by name that everything after it waits; return the ids."""
    return [
        client.send(AddSubscription, channel=BY_NAME, stream_id=each)
        for each in range(1, LOOK_UPS_MAX + 1)
    ]


# The ring.


@pytest.mark.parametrize("count", [1_500, 3_000])
@in_directory
async def test_as_many_commands_as_the_ring_takes_are_executed_in_order(
    directory: Directory, count: int
) -> None:
    client = directory.client()
    asked = [client.send(AddSubscription, channel=IPC, stream_id=each) for each in range(count)]
    longest = 0
    for _ in range(20):
        directory.watcher.look()
        await client.settle()
        longest = max(longest, waiting_count(directory, client))
    # The others wait in the ring.
    assert LONG_BACKLOG // 2 < longest < LONG_BACKLOG + 10
    assert await answers(client, count) == [(each, 0) for each in asked]
    assert directory.driver.counters.value(SystemCounterId.ERRORS) == refused_count(directory) == 0
    await client.ask(ClientClose)


@in_directory
async def test_names_that_resolve_soon_do_not_make_a_burst_too_long(directory: Directory) -> None:
    client = directory.client()
    asked = [client.send(AddDestination, channel=BY_NAME, registration_id=1) for _ in range(1_500)]
    found = await answers(client, 1_500)
    assert found == [(each, ErrorCode.UNKNOWN_PUBLICATION) for each in asked]
    assert refused_count(directory) == 0


@in_directory
async def test_other_clients_are_served_between_the_commands_of_a_burst(
    directory: Directory,
) -> None:
    client, other = directory.client(), directory.client()
    for each in range(1_500):
        client.send(AddSubscription, channel=IPC, stream_id=each)
        if each % 500 == 250:
            other.send(GetNextAvailableSessionId, stream_id=1)
    await answers(client, 1_500)
    other.received()
    await other.ask_for(NextAvailableSessionId, GetNextAvailableSessionId, stream_id=1)


@in_directory
async def test_timers_go_on_while_the_ring_waits(directory: Directory) -> None:
    client, silent = directory.client(), directory.client()
    await client.add_counter()
    await silent.add_counter()
    unblocked = directory.driver.counters
    index = client.ring.producer_position & (client.ring.capacity - 1)
    # A slow producer is in the middle of a record that nobody looks at.
    client.ring_buffer.fetch_add_64(client.ring.capacity + 128, 64)
    client.ring_buffer.store_release_32(index, -64)
    client.received()
    heartbeat_ms = client.ring.consumer_heartbeat_ms
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(directory.adapter._backlog, "held_until_ns", lambda _: NEVER_NS)
        await directory.pass_time(20, client)
        assert unblocked.value(SystemCounterId.UNBLOCKED_COMMANDS) == 0
        assert ClientTimeout(client_id=silent.client_id) in client.received()
        assert client.ring.consumer_heartbeat_ms > heartbeat_ms + 18_000
    # It has the whole timeout from now on.
    await directory.pass_time(9, client)
    assert unblocked.value(SystemCounterId.UNBLOCKED_COMMANDS) == 0
    await directory.pass_time(5, client)
    assert unblocked.value(SystemCounterId.UNBLOCKED_COMMANDS) == 1


# Names.


@in_directory
async def test_a_slow_name_holds_up_no_other_client(directory: Directory) -> None:
    slow, quick = directory.client(), directory.client()
    with slow_names(directory) as resolve:
        asked = wait_for_names(slow)
        asked += [slow.send(AddCounter, **A_COUNTER) for _ in range(LONG_BACKLOG - 10)]
        await slow.settle()
        await quick.ask_for(NextAvailableSessionId, GetNextAvailableSessionId, stream_id=1)
        # A longer backlog holds the others up for a second in ten.
        asked += [slow.send(AddCounter, **A_COUNTER) for _ in range(100)]
        wanted = quick.send(GetNextAvailableSessionId, stream_id=1)
        slow.send(ClientKeepalive)
        await quick.settle()
        assert quick.received() == []
        await directory.pass_time(1.25, slow, quick)
        await quick.settle()
        (answer,) = quick.received()
        assert isinstance(answer, NextAvailableSessionId)
        assert answer.correlation_id == wanted
        await quick.ask_for(NextAvailableSessionId, GetNextAvailableSessionId, stream_id=1)
        slow.received()
        resolve()
        found = await answers(slow, len(asked))
    assert sorted(found) == [(each, 0) for each in asked]
    assert refused_count(directory) == 0


@in_directory
async def test_what_has_nothing_to_do_with_a_slow_name_does_not_wait_for_it(
    directory: Directory,
) -> None:
    client = directory.client()
    ready, _ = await client.add_subscription(MANUAL.split("|", maxsplit=1)[0])
    where = {"registration_id": ready.correlation_id}
    by_name = "aeron:udp?endpoint=localhost:20131"
    with slow_names(directory) as resolve:
        added = client.send(AddReceiveDestination, channel=by_name, **where)
        removed = client.send(RemoveReceiveDestination, channel=by_name, **where)
        named = client.send(AddSubscription, channel=BY_NAME, stream_id=1)
        same = client.send(AddSubscription, channel=BY_NAME, stream_id=1)
        free = [client.send(AddPublication, channel=IPC, stream_id=7) for _ in range(3)]
        free.append(client.send(AddCounter, **A_COUNTER))
        assert await answers(client, 4) == [(each, 0) for each in free]
        # What names the same waits, whether it needs the name or not.
        adapter_client = directory.adapter._clients[client.client_id]
        waiting = [command.correlation_id for command, _ in adapter_client.commands]
        assert waiting == [removed, same]
        resolve()
        found = await answers(client, 4)
    assert sorted(found) == sorted((each, 0) for each in (added, removed, named, same))
    assert found.index((added, 0)) < found.index((removed, 0))
    assert found.index((named, 0)) < found.index((same, 0))
    assert adapter_client.looking_up == {}
    assert adapter_client.task is None
    assert directory.adapter._served == {}


@in_directory
async def test_a_client_waits_for_a_limited_number_of_names(directory: Directory) -> None:
    client = directory.client()
    with slow_names(directory) as resolve:
        asked = wait_for_names(client)
        asked.append(client.send(AddCounter, **A_COUNTER))
        await client.settle()
        client.received()
        assert waiting_count(directory, client) == 1
        assert len(directory.adapter._served) == LOOK_UPS_MAX
        resolve()
        assert sorted(await answers(client, len(asked))) == [(each, 0) for each in asked]


@in_directory
async def test_a_client_that_leaves_takes_its_waiting_commands_along(directory: Directory) -> None:
    client, other = directory.client(), directory.client()
    backlog = directory.adapter._backlog
    with slow_names(directory) as resolve:
        wait_for_names(client)
        for _ in range(100):
            client.send(AddCounter, **A_COUNTER)
        await client.settle()
        assert backlog._long
        client.beat(0)
        await directory.pass_time(2)
        assert backlog._long == {}
        assert backlog._length == 0
        await other.ask_for(CounterReady, AddCounter, **A_COUNTER)
        resolve()
        await directory.pass_time(1, other)
    assert directory.adapter._served == {}
    assert directory.driver.conductor._subscriptions.links == ()


@in_directory
async def test_clients_that_have_gone_leave_few_look_ups_behind(directory: Directory) -> None:
    other = directory.client()
    await other.add_counter()
    adapter, queue = directory.adapter, directory.driver.conductor._queue
    with slow_names(directory) as resolve:
        for _ in range(CLIENTS + 1):
            client = directory.client()
            wait_for_names(client)
            await client.settle()
            client.send(ClientClose)
            await client.settle()
        assert adapter._served == {}
        assert adapter._ids_being_added == set()
        # The thread of a look-up cannot be stopped: these are not replaced by others.
        assert len(queue._lookups) == FOREIGN_LOOK_UPS_MAX
        other.received()
        asked = other.send(AddPublication, channel=BY_NAME, stream_id=1)
        await other.settle()
        assert len(queue._lookups) == FOREIGN_LOOK_UPS_MAX
        # The driver's own do not wait.
        assert await CommandQueue.look_up(queue, immediately()) == 7
        resolve()
        assert await answers(other, 1) == [(asked, 0)]
    assert len(queue._lookups) == 0
    assert not queue._foreign_places.locked()


@in_directory
async def test_look_ups_that_never_end_hold_up_others_for_a_minute(directory: Directory) -> None:
    other = directory.client()
    await other.add_counter()
    conductor = directory.driver.conductor
    with slow_names(directory):
        for _ in range(CLIENTS):
            client = directory.client()
            wait_for_names(client)
            await client.settle()
            client.send(ClientClose)
            await client.settle()
    other.received()
    asked = other.send(AddPublication, channel=BY_NAME, stream_id=1)
    await directory.pass_time(FOREIGN_LOOK_UP_S - 1, other)
    assert not conductor.has(asked)
    await directory.pass_time(2, other)
    assert conductor.has(asked)
    # Its own look-up has ended, and the others count no more.
    assert conductor._queue._foreign_lookups == {}


@in_directory
async def test_a_client_that_goes_does_not_wait_for_its_turn(directory: Directory) -> None:
    queue = directory.driver.conductor._queue
    clients = [directory.client() for _ in range(CLIENTS + 1)]
    with slow_names(directory) as resolve:
        for client in clients:
            wait_for_names(client)
        await clients[0].settle()
        assert len(directory.adapter._served) == (CLIENTS + 1) * LOOK_UPS_MAX
        clients[-1].send(ClientClose)
        await directory.settle()
        assert len(directory.adapter._served) == CLIENTS * LOOK_UPS_MAX
        resolve()
        await directory.settle()
    assert len(queue._lookups) == len(queue._foreign_callers) == 0
    assert not queue._foreign_places.locked()


async def immediately() -> int:
    return 7


# Limits.


@in_directory
async def test_a_client_has_a_limited_number_of_waiting_commands(directory: Directory) -> None:
    client, other = directory.client(), directory.client()
    publisher = await client.add_publication(MANUAL)
    where = {"registration_id": publisher.id}
    beyond = 300
    with slow_names(directory) as resolve:
        first = client.send(AddDestination, channel=BY_NAME, **where)
        asked = [
            client.send(RemoveDestinationById, destination_registration_id=first, **where)
            for _ in range(WAITING_COMMANDS_MAX + beyond)
        ]
        client.received()
        await directory.pass_time(2, client)
        await client.settle()
        await client.settle()
        refusals = client.received()
        assert waiting_count(directory, client) == WAITING_COMMANDS_MAX
        await other.add_counter()
        client.received()
        resolve()
        found = await answers(client, WAITING_COMMANDS_MAX + 1)
    assert found == [(each, 0) for each in [first, *asked[:WAITING_COMMANDS_MAX]]]
    errors = [each for each in refusals if isinstance(each, ErrorResponse)]
    assert [each.correlation_id for each in errors] == asked[WAITING_COMMANDS_MAX:]
    for error in errors:
        assert error.code == ErrorCode.RESOURCE_TEMPORARILY_UNAVAILABLE
        assert error.message.startswith(b"1024 commands of client")
        assert b"1024 is the limit: wait for" in error.message
    assert refused_count(directory) == beyond
    # A limit is recorded once, whatever it keeps off.
    (recorded,) = client.errors()
    assert "1024 is the limit: wait for the answers" in recorded


@in_directory
async def test_the_commands_of_all_clients_take_a_limited_length(directory: Directory) -> None:
    clients = [directory.client() for _ in range(3)]
    label = bytes(100_000)
    refused = []
    with pytest.MonkeyPatch.context() as patch, slow_names(directory) as resolve:
        patch.setattr(aeron_client, "WAITING_LENGTH_MAX", 1_000_000)
        for client in clients[:2]:
            wait_for_names(client)
            await client.settle()
            for _ in range(8):
                client.send(AddCounter, **(A_COUNTER | {"label": label}))
            await client.settle()
            refused += [each for each in client.received() if isinstance(each, ErrorResponse)]
        backlog = directory.adapter._backlog
        assert 850_000 < backlog._length < 1_000_000
        assert [each.code for each in refused] == [ErrorCode.RESOURCE_TEMPORARILY_UNAVAILABLE] * 7
        assert b"and 1000000 is the limit: wait for the answers before more" in refused[0].message
        assert refused_count(directory) == 7
        # Who asks for one thing at a time is served, whatever others do.
        for _ in range(3):
            await clients[2].ask_for(CounterReady, AddCounter, **(A_COUNTER | {"label": label}))
        resolve()
        await directory.pass_time(1, *clients)
        assert backlog._length == 0


@pytest.mark.parametrize("kind", [AddPublication, AddSubscription, AddDestination])
@in_directory
async def test_what_is_too_long_for_a_channel_does_not_wait(
    directory: Directory, kind: Any
) -> None:
    client = directory.client()
    where = {"registration_id" if kind is AddDestination else "stream_id": 1}
    with slow_names(directory) as resolve:
        wait_for_names(client)
        await client.settle()
        client.received()
        for channel in (b"?" * (MAX_LENGTH + 1), b"aeron:ipc?alias=" + b"x" * 100_000):
            assert await client.refused(kind, channel=channel, **where) == ErrorCode.INVALID_CHANNEL
        assert directory.adapter._backlog._length == 0
        resolve()
    # This is no limit of what may wait.
    assert refused_count(directory) == 0


# The backlog by itself.


def a_client() -> AeronClient:
    return AeronClient(1, Counts().new(1), 0)


def a_command(number: int) -> AddCounter:
    return AddCounter(client_id=1, correlation_id=number, counter_type_id=1_001, key=b"", label=b"")


class Task:
    """A command that is being executed; only whether there is one matters."""


def test_commands_that_wait_for_names_hold_the_ring_up_for_a_second_in_ten() -> None:
    shorter: list[int] = []
    backlog, client = CommandBacklog(lambda: shorter.append(1), int), a_client()
    now_ns = 5
    for number in range(LONG_BACKLOG):
        assert backlog.held_until_ns(now_ns) == now_ns
        backlog.add(client, a_command(number), 0)
    client.task = Task()  # type: ignore[assignment]
    assert backlog.held_until_ns(now_ns) == NEVER_NS
    client.task = None
    end_ns = now_ns + NAMES_HOLD_NS
    assert backlog.held_until_ns(now_ns) == end_ns
    assert backlog.take(client) == a_command(0)
    assert shorter == [1]
    assert backlog.held_until_ns(now_ns) == now_ns
    # A second long backlog has what is left of the second, and a later one another second.
    backlog.add(client, a_command(0), 0)
    assert backlog.held_until_ns(end_ns - 1) == backlog.held_until_ns(end_ns + 1) == end_ns
    later_ns = now_ns + NAMES_PERIOD_NS
    assert backlog.held_until_ns(later_ns) == later_ns + NAMES_HOLD_NS


def test_a_few_commands_are_searched_for_one_that_may_be_executed() -> None:
    backlog, client = CommandBacklog(lambda: None, int), a_client()
    blocked = a_command(0)
    for _ in range(LONG_BACKLOG):
        backlog.add(client, blocked, 0)
    backlog.add(client, a_command(1), 0)
    waiting: Any = Task()
    client.looking_up[waiting] = frozenset({0})
    assert backlog.take(client) is None
    del client.looking_up[waiting]
    assert backlog.take(client) is blocked
    client.looking_up[waiting] = frozenset({0})
    assert backlog.take(client) == a_command(1)


def test_a_client_at_its_limit_is_refused_before_the_length_counts() -> None:
    backlog, client = CommandBacklog(lambda: None, int), a_client()
    for number in range(WAITING_COMMANDS_MAX):
        backlog.add(client, a_command(number), 0)
    with pytest.raises(RegistrationError, match="1024 commands of client 1 wait"):
        backlog.add(client, a_command(0), 0)
    backlog.clear(client)
    assert backlog._length == 0
    backlog.add(client, a_command(0), aeron_client.WAITING_LENGTH_MAX)
    with pytest.raises(RegistrationError, match="16777216 is the limit"):
        backlog.add(client, a_command(0), 0)
    backlog.add(a_client(), a_command(0), 0)


# The end of a client.


@in_directory
async def test_what_a_client_asked_for_before_it_closed_is_done(directory: Directory) -> None:
    client, other = directory.client(), directory.client()
    await other.add_counter()
    await other.add_subscription(IPC)
    publisher = await client.add_publication(IPC, is_exclusive=True)
    await directory.pass_time(1, client, other)
    other.received()
    client.send(
        RemovePublication, registration_id=publisher.id, flags=RemovePublicationFlags.REVOKE
    )
    client.send(AddStaticCounter, **A_COUNTER, registration_id=77)
    client.send(ClientClose)
    await directory.settle()
    assert publisher.log.metadata.is_publication_revoked
    assert client.client_id not in directory.adapter._clients
    found = other.counters.find(type_id=1_001, registration_id=77)
    assert found is not None
    assert waiting_length(directory) == 0


@in_directory
async def test_a_client_that_closes_waits_for_no_name(directory: Directory) -> None:
    client, other = directory.client(), directory.client()
    await client.add_counter()
    with slow_names(directory):
        wait_for_names(client)
        client.send(AddCounter, **A_COUNTER)
        client.send(ClientClose)
        await directory.settle()
        assert client.client_id not in directory.adapter._clients
        await other.add_counter()
    assert waiting_length(directory) == 0


@in_directory
async def test_a_client_that_has_closed_is_not_counted_as_silent(directory: Directory) -> None:
    client, other = directory.client(), directory.client()
    adapter = directory.adapter
    await client.add_counter()
    await other.add_counter()
    is_added = asyncio.Event()

    async def add_slowly(*_: object, **__: object) -> int:
        await is_added.wait()
        return 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(directory.driver.conductor.destinations, "add_to_publication", add_slowly)
        client.send(AddDestination, registration_id=1, channel=UDP)
        client.send(AddStaticCounter, **A_COUNTER, registration_id=77)
        client.send(ClientClose)
        await directory.settle()
        other.received()
        assert client.value(client.heartbeat_id) == CLOSED_HEARTBEAT
        # It has not gone, and so takes no other client's place among those that go in this turn.
        leaving = adapter._clients[client.client_id]
        assert not adapter._look_after(leaving, adapter._resources.clock.now_ns())
        await directory.pass_time(20, other)
        assert client.client_id in adapter._clients
        is_added.set()
        await directory.settle()
    assert client.client_id not in adapter._clients
    assert other.counters.find(type_id=1_001, registration_id=77) is not None
    assert adapter._client_timeouts.get() == 0
    assert ClientTimeout(client_id=client.client_id) not in other.received()


# The order.


@pytest.mark.parametrize("is_slow", [False, True])
@in_directory
async def test_a_publication_is_not_added_before_the_one_of_its_stream_is_removed(
    directory: Directory, *, is_slow: bool
) -> None:
    client = directory.client()
    channel = f"{MANUAL}|control=127.0.0.1:20139"
    publisher = await client.add_publication(channel)
    client.received()
    with slow_names(directory) as resolve:
        if not is_slow:
            resolve()
        ids = [
            client.send(AddDestination, channel=BY_NAME, registration_id=publisher.id),
            client.send(RemovePublication, registration_id=publisher.id, flags=0),
            client.send(AddPublication, channel=channel, stream_id=STREAM_ID),
        ]
        await client.settle()
        resolve()
        assert await answers(client, 3) == [(each, 0) for each in ids]


@in_directory
async def test_a_publication_of_answers_is_added_after_the_subscription_that_it_answers(
    directory: Directory,
) -> None:
    client = directory.client()
    await client.add_counter()
    client.received()
    with slow_names(directory) as resolve:
        asked = client.send(
            AddSubscription,
            channel=f"{BY_NAME}|control-mode=response|control=localhost:20140",
            stream_id=3,
        )
        answered = client.send(
            AddPublication, channel=f"{IPC}|response-correlation-id={asked}", stream_id=4
        )
        await client.settle()
        assert waiting_count(directory, client) == 1
        resolve()
        found = await answers(client, 2)
        assert [each for each, _ in found] == [asked, answered]


@pytest.mark.parametrize("is_first_ours", [False, True])
@in_directory
async def test_a_shared_publication_is_not_removed_before_its_destination_is_added(
    directory: Directory, *, is_first_ours: bool
) -> None:
    client = directory.client()
    owner = client if is_first_ours else directory.client()
    channel = f"{MANUAL}|control=127.0.0.1:20139"
    first = await owner.add_publication(channel)
    second = await client.add_publication(channel)
    assert second.id != first.id == second.ready.registration_id
    if is_first_ours:
        await client.ask(RemovePublication, registration_id=first.id, flags=0)
    client.received()
    with slow_names(directory) as resolve:
        # A client names a shared publication by the first request for it, and its hold by its own.
        ids = [
            client.send(AddDestination, channel=BY_NAME, registration_id=first.id),
            client.send(RemovePublication, registration_id=second.id, flags=0),
        ]
        await client.settle()
        resolve()
        assert await answers(client, 2) == [(each, 0) for each in ids]


@pytest.mark.parametrize(
    ("tagged", "referring"),
    [
        (f"{BY_NAME}|tags=7", "aeron:udp?tags=7"),
        (f"{BY_NAME}|tags=,8", "aeron:ipc?session-id=tag:8"),
        (f"{BY_NAME}|tags=7,8", "aeron:ipc?alias=tags=1|session-id=tag:8"),
    ],
)
@in_directory
async def test_a_channel_that_refers_to_a_tag_is_added_after_the_one_that_has_it(
    directory: Directory, tagged: str, referring: str
) -> None:
    client = directory.client()
    await client.add_counter()
    client.received()
    with slow_names(directory) as resolve:
        ids = [
            client.send(AddPublication, channel=tagged, stream_id=1),
            client.send(AddPublication, channel=referring, stream_id=2),
        ]
        await client.settle()
        resolve()
        assert await answers(client, 2) == [(each, 0) for each in ids]


@in_directory
async def test_destinations_with_numeric_addresses_wait_for_no_name(directory: Directory) -> None:
    client = directory.client()
    publisher = await client.add_publication(f"{MANUAL}|control=127.0.0.1:20139")
    client.received()
    with slow_names(directory):
        ids = [
            client.send(
                AddDestination,
                channel=f"aeron:udp?endpoint=127.0.0.1:{20_121 + number}",
                registration_id=publisher.id,
            )
            for number in range(2 * LOOK_UPS_MAX)
        ]
        assert await answers(client, len(ids)) == [(each, 0) for each in ids]
