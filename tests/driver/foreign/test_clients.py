"""The lives of clients in other processes, and the ring through which they speak."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import pytest

from aeron_async.driver.client_command_adapter import REMOVALS_PER_TURN
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.driver.media_driver import MediaDriver
from aeron_async.errors import ClosedError, ErrorCode
from aeron_async.logs import LINES_OF_AN_EVENT
from aeron_async.protocol.control_protocol import (
    AddCounter,
    AddDestination,
    AddPublication,
    AddSubscription,
    ClientClose,
    ClientKeepalive,
    ClientTimeout,
    CounterReady,
    ErrorResponse,
    GetNextAvailableSessionId,
    NextAvailableSessionId,
    OperationSucceeded,
    PublicationBuffersReady,
    RemovePublication,
    UnavailableCounter,
    UnavailableImage,
)
from tests.driver.foreign.client import (
    BY_NAME,
    IPC,
    STREAM_ID,
    UDP,
    Directory,
    in_directory,
    slow_names,
)
from tests.logs import captured_logs

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.driver.foreign.client import ForeignClient

LIVENESS_S = 10
SECOND: Final = 1_000_000_000
CHANNELS = pytest.mark.parametrize("channel", [IPC, UDP])


async def fill(client: ForeignClient) -> dict[str, int]:
    """Add one thing of each kind; return the ids of its counters."""
    await client.add_publication()
    _, (image,) = await client.add_subscription()
    return {
        "heartbeat": client.heartbeat_id,
        "counter": (await client.add_counter()).counter_id,
        "position": image.ready.subscriber_position_id,
    }


def is_empty(directory: Directory) -> bool:
    """Return whether the driver keeps nothing of any client."""
    conductor = directory.driver.conductor
    logs = [*directory.path.glob("*/*.logbuffer")]
    return not (
        logs
        or conductor.ipc_publications
        or conductor.network_publications
        or conductor.publication_images
        or directory.adapter._clients
        # One word of the ring is always watched.
        or len(directory.watcher.words) != 1
    )


async def end_by_close(directory: Directory, client: ForeignClient) -> None:
    client.send(ClientClose)
    await directory.pass_time(1)


async def end_by_heartbeat(directory: Directory, client: ForeignClient) -> None:
    client.beat(0)
    await directory.pass_time(2)


async def end_by_silence(directory: Directory, client: ForeignClient) -> None:
    del client
    await directory.pass_time(LIVENESS_S + 2)


@pytest.mark.parametrize("end", [end_by_close, end_by_heartbeat, end_by_silence])
@in_directory
async def test_all_that_a_client_has_added_goes_with_it(directory: Directory, end: Any) -> None:
    client = directory.client()
    counter_ids = await fill(client)
    client.received()
    with captured_logs() as lines:
        await end(directory, client)
    messages = client.received()
    is_late = end is end_by_silence
    assert (ClientTimeout(client_id=client.client_id) in messages) is is_late
    assert ("client_timed_out" in {each["event"] for each in lines}) is is_late
    timeouts = directory.driver.counters.value(SystemCounterId.CLIENT_TIMEOUTS)
    assert timeouts == is_late
    freed = {each.counter_id for each in messages if isinstance(each, UnavailableCounter)}
    assert freed == {counter_ids["heartbeat"], counter_ids["counter"]}
    assert {client.counters.state(each) for each in counter_ids.values()} == {-1}
    assert is_empty(directory)


@in_directory
async def test_clients_that_end_together_leave_a_few_at_a_time(directory: Directory) -> None:
    clients = [directory.client() for _ in range(5 * REMOVALS_PER_TURN)]
    survivor = directory.client()
    for client in (*clients, survivor):
        await client.add_counter()
    for client in clients:
        client.beat(0)
    adapter = directory.adapter
    shown = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adapter, "_show_life", lambda: shown.append(len(adapter._clients)))
        now_ns = adapter._timer_ns
        survivor.beat(1)
        # Further turns are due at once, until all have gone.
        turns = 1
        while adapter.poll(now_ns) == now_ns:
            turns += 1
    assert turns == 6
    assert [*adapter._clients] == [survivor.client_id]
    # The driver shows that it lives: for the timer, and after each turn with removals.
    assert shown == [21, 17, 13, 9, 5, 1]


@in_directory
async def test_a_client_that_goes_before_its_turn_is_not_removed_twice(
    directory: Directory,
) -> None:
    clients = [directory.client() for _ in range(3 * REMOVALS_PER_TURN)]
    for client in clients:
        await client.add_counter()
    for client in clients:
        client.beat(0)
    for client in clients:
        client.send(ClientClose)
    with captured_logs() as lines:
        await directory.pass_time(2)
    assert lines == []
    assert is_empty(directory)


@in_directory(counters_buffer_length=1 << 22)
async def test_what_others_have_added_does_not_slow_the_removal_of_a_client(
    directory: Directory,
) -> None:
    conductor, counters = directory.driver.conductor, directory.driver.conductor.client_counters
    client, other = directory.client(), directory.client()
    await fill(client)
    await fill(other)
    for number in range(2_000):
        counters.add(other.client_id, 10**6 + number, 1_001, key=b"", label="")
    seen: list[int] = []
    tables = (counters, conductor._table, conductor._subscriptions)

    def noting(act: Callable[[int], None]) -> Callable[[int], None]:
        def note(registration_id: int) -> None:
            seen.append(registration_id)
            act(registration_id)

        return note

    with pytest.MonkeyPatch.context() as patch:
        for table, name in zip(tables, ("remove", "release", "remove"), strict=True):
            patch.setattr(table, name, noting(getattr(table, name)))
        await client.ask(ClientClose)
    # Only what the client itself had.
    assert len(seen) == 3
    await directory.pass_time(2, other)
    assert counters._client_ids.keys() == {other.client_id}
    assert conductor._table._client_links.keys() == {other.client_id}
    assert conductor._subscriptions._client_links.keys() == {other.client_id}
    other.beat(0)
    await directory.pass_time(3)
    assert is_empty(directory)
    subscriptions, table = conductor._subscriptions, conductor._table
    kept: list[dict[int, Any]] = [counters._client_ids, counters._counters]
    kept += [table._client_links, table._originals, subscriptions._client_links]
    assert kept == [{}] * 5
    assert not subscriptions._link_counts


@in_directory
async def test_clients_do_not_fill_the_log(directory: Directory) -> None:
    clients = [directory.client() for _ in range(20)]
    for client in clients:
        await client.add_counter()

    def fail(_stream_id: int) -> int:
        raise ZeroDivisionError

    conductor = directory.driver.conductor
    with captured_logs() as lines, pytest.MonkeyPatch.context() as patch:
        patch.setattr(conductor, "next_session_id", fail)
        for client in clients:
            client.send(GetNextAvailableSessionId, stream_id=1)
        await directory.settle()
        failed = [each["event"] for each in lines]
        await directory.pass_time(LIVENESS_S + 2)
    assert failed == ["command_failed"] * LINES_OF_AN_EVENT
    events = [each["event"] for each in lines]
    assert events.count("client_timed_out") == LINES_OF_AN_EVENT
    left_out = [each["events"] for each in lines if each["event"] == "log_lines_left_out"]
    assert left_out == ["command_failed 15", "client_timed_out 15"]
    # Every one of them is counted and recorded.
    assert directory.driver.counters.value(SystemCounterId.CLIENT_TIMEOUTS) == 20
    assert directory.driver.counters.value(SystemCounterId.ERRORS) == 20


@in_directory
async def test_failures_of_publications_do_not_fill_the_log(directory: Directory) -> None:
    client = directory.client()
    for _ in range(20):
        await client.add_publication(is_exclusive=True)

    def fail(_publication: object, _now_ns: int) -> int:
        raise ZeroDivisionError

    with captured_logs() as lines, pytest.MonkeyPatch.context() as patch:
        for publication in directory.driver.conductor.ipc_publications:
            patch.setattr(type(publication), "poll", fail)
            publication.wake_flag.set()
        await directory.pass_time(2, client)
    events = [each["event"] for each in lines]
    assert events.count("publication_failed") == LINES_OF_AN_EVENT
    assert "publication_failed 15" in [each.get("events") for each in lines]
    assert directory.driver.counters.value(SystemCounterId.ERRORS) == 20


@in_directory
async def test_a_client_lives_as_long_as_its_heartbeat_changes(directory: Directory) -> None:
    client, silent = directory.client(), directory.client()
    await fill(client)
    await silent.add_counter()
    client.received()
    # A heartbeat of the far future is one change.
    silent.beat(2**62)
    await directory.pass_time(3 * LIVENESS_S, client)
    timeouts = [each for each in client.received() if isinstance(each, ClientTimeout)]
    assert timeouts == [ClientTimeout(client_id=silent.client_id)]
    await client.add_counter()


@pytest.mark.parametrize("kind", [ClientKeepalive, GetNextAvailableSessionId])
@in_directory
async def test_a_command_is_a_sign_of_life(directory: Directory, kind: Any) -> None:
    client = directory.client()
    await client.add_counter()
    for _ in range(5):
        await directory.pass_time(LIVENESS_S - 2)
        await client.ask(kind, **({} if kind is ClientKeepalive else {"stream_id": 1}))
    assert client.counters.state(client.heartbeat_id) == 1


@in_directory
async def test_a_client_that_was_removed_may_begin_again(directory: Directory) -> None:
    client = directory.client()
    await client.add_counter()
    await end_by_silence(directory, client)
    client.received()
    client.send(AddSubscription, channel=IPC, stream_id=STREAM_ID)
    await client.settle()
    heartbeat = client.received()[0]
    assert isinstance(heartbeat, CounterReady)
    assert heartbeat.correlation_id == client.client_id


@in_directory
async def test_nothing_is_left_of_what_a_client_added_just_before_it_closed(
    directory: Directory,
) -> None:
    client = directory.client()
    await client.add_counter()
    for _ in range(5):
        client.send(AddPublication, channel=IPC, stream_id=STREAM_ID)
    client.send(ClientClose)
    client.received()
    await directory.pass_time(1)
    assert is_empty(directory)
    assert [type(each) for each in client.received()] == [
        *(PublicationBuffersReady for _ in range(5)),
        UnavailableCounter,
        UnavailableCounter,
    ]


@in_directory
async def test_what_was_added_while_its_client_left_is_undone(directory: Directory) -> None:
    client = directory.client()
    await client.add_counter()
    client.send(AddPublication, channel=UDP.replace("127.0.0.1", "localhost"), stream_id=1)
    client.send(AddSubscription, channel=UDP, stream_id=1)
    directory.watcher.look()
    for _ in range(3):
        await directory.driver.conductor.do_work(directory.driver.clock.now_ns())
    client.send(ClientClose)
    await directory.pass_time(8)
    assert is_empty(directory)


@pytest.mark.parametrize("kind", [AddPublication, AddSubscription])
@in_directory
async def test_a_client_that_begins_again_gets_nothing_of_its_earlier_life(
    directory: Directory, kind: Any
) -> None:
    client = directory.client()
    await client.add_counter()
    conductor, adapter = directory.driver.conductor, directory.adapter
    with slow_names(directory) as resolve:
        asked = client.send(kind, channel=BY_NAME, stream_id=1)
        await client.settle()
        assert adapter._ids_being_added == {asked}
        client.send(ClientClose)
        await client.add_counter()
        assert not adapter._ids_being_added
        resolve()
        await directory.pass_time(8, client)
    assert asked not in {getattr(each, "correlation_id", None) for each in client.received()}
    assert not conductor.has(asked)
    assert conductor.network_publications == ()
    assert not adapter._ids_being_added
    assert len(directory.watcher.words) == 1
    # The id is free.
    await client.ask(kind, correlation_id=asked, channel=IPC, stream_id=1)
    assert conductor.has(asked)


@in_directory
async def test_a_client_that_has_gone_gets_no_answer(directory: Directory) -> None:
    client = directory.client()
    await client.add_counter()
    is_added = asyncio.Event()

    async def add_slowly(*_: object, **__: object) -> None:
        await is_added.wait()

    with pytest.MonkeyPatch.context() as patch:
        destinations = directory.driver.conductor.destinations
        patch.setattr(destinations, "add_to_publication", add_slowly)
        client.send(AddDestination, registration_id=1, channel=UDP)
        await client.settle()
        # It is silent for longer than the liveness timeout.
        await directory.pass_time(12)
        assert is_empty(directory)
        client.received()
        is_added.set()
        await client.settle()
    assert client.received() == []
    assert is_empty(directory)


@in_directory
async def test_the_clients_of_others_hear_of_images_that_end(directory: Directory) -> None:
    client, other = directory.client(), directory.client()
    publisher = await client.add_publication()
    ready, (image,) = await other.add_subscription()
    other.received()
    await client.ask(RemovePublication, registration_id=publisher.id)
    assert (
        other.received().count(
            UnavailableImage(
                image_id=image.ready.image_id,
                subscription_registration_id=ready.correlation_id,
                stream_id=STREAM_ID,
                channel=IPC.encode(),
            )
        )
        == 1
    )
    # Nothing of the subscription is watched any more.
    assert len(directory.watcher.words) == 1


@in_directory
async def test_one_client_does_not_wait_for_another(directory: Directory) -> None:
    slow, quick = directory.client(), directory.client()
    slow.send(AddPublication, channel=UDP.replace("127.0.0.1", "localhost"), stream_id=1)
    slow.send(GetNextAvailableSessionId, stream_id=1)
    wanted = quick.send(GetNextAvailableSessionId, stream_id=1)
    await quick.settle()
    found = [each for each in quick.received() if isinstance(each, NextAvailableSessionId)]
    assert found[0].correlation_id == wanted


# The ring.


@in_directory
async def test_more_commands_than_one_turn_takes_are_all_executed(directory: Directory) -> None:
    client = directory.client()
    asked = [client.send(GetNextAvailableSessionId, stream_id=1) for _ in range(105)]
    await client.settle()
    answers = [each for each in client.received() if isinstance(each, NextAvailableSessionId)]
    assert [each.correlation_id for each in answers] == asked


@in_directory
async def test_the_ring_goes_round(directory: Directory) -> None:
    client = directory.client()
    text = b"?" * 100_000
    for _ in range(40):
        code = await client.refused(AddPublication, channel=text, stream_id=1)
        assert code == ErrorCode.INVALID_CHANNEL
    assert client.ring.producer_position > 2 * client.ring.capacity


@pytest.mark.parametrize("begun", [0, -64])
@in_directory
async def test_a_command_of_a_dead_producer_is_skipped(directory: Directory, begun: int) -> None:
    client = directory.client()
    await client.add_counter()
    index = client.ring.producer_position & (client.ring.capacity - 1)
    # A client claims a record, writes its length or not, and dies.
    client.ring_buffer.fetch_add_64(client.ring.capacity + 128, 64)
    client.ring_buffer.store_release_32(index, begun)
    wanted = client.send(GetNextAvailableSessionId, stream_id=1)
    await directory.pass_time(LIVENESS_S - 1, client)
    assert client.received() == []
    await directory.pass_time(4, client)
    (answer,) = client.received()
    assert isinstance(answer, NextAvailableSessionId)
    assert answer.correlation_id == wanted
    unblocked = directory.driver.counters.value(SystemCounterId.UNBLOCKED_COMMANDS)
    assert unblocked == 1


@in_directory
async def test_a_producer_has_the_whole_timeout_however_late_the_driver_looks(
    directory: Directory,
) -> None:
    client = directory.client()
    await client.add_counter()
    unblocked = directory.driver.counters
    now_ns = directory.adapter._resources.clock.now_ns()
    # The driver sees an empty ring, and then waits for a disk for longer than the timeout.
    directory.adapter.poll(now_ns + SECOND)
    index = client.ring.producer_position & (client.ring.capacity - 1)
    client.ring_buffer.fetch_add_64(client.ring.capacity + 128, 64)
    client.ring_buffer.store_release_32(index, -64)
    counts = []
    for seconds in (LIVENESS_S + 2, 2 * LIVENESS_S + 2, 2 * LIVENESS_S + 3):
        client.beat(seconds)
        directory.adapter.poll(now_ns + seconds * SECOND)
        counts.append(unblocked.value(SystemCounterId.UNBLOCKED_COMMANDS))
    assert counts == [0, 0, 1]


@in_directory
async def test_a_slow_producer_is_waited_for(directory: Directory) -> None:
    client = directory.client()
    await client.add_counter()
    index = client.ring.producer_position & (client.ring.capacity - 1)
    body = GetNextAvailableSessionId(
        client_id=client.client_id, correlation_id=4_711, stream_id=1
    ).encode()
    client.ring_buffer.fetch_add_64(client.ring.capacity + 128, 32)
    client.ring_buffer.store_release_32(index, -8 - len(body))
    await client.settle()
    client.ring_buffer.put_bytes(index + 8, body)
    client.ring_buffer.store_release_32(index + 4, GetNextAvailableSessionId.TYPE_ID)
    client.ring_buffer.store_release_32(index, 8 + len(body))
    await client.settle()
    (answer,) = client.received()
    assert isinstance(answer, NextAvailableSessionId)


@pytest.mark.parametrize("length", [0, 1, 7, 64, 2**31 - 1, -(2**31), -7])
@pytest.mark.parametrize("claimed", [2**40 + 3, -(2**40), 3, 0, -8])
@in_directory
async def test_a_ring_that_was_destroyed_is_mended(
    directory: Directory, length: int, claimed: int
) -> None:
    client = directory.client()
    await client.add_counter()
    index = client.ring.producer_position & (client.ring.capacity - 1)
    client.ring_buffer.store_release_32(index, length)
    client.ring_buffer.fetch_add_64(client.ring.capacity + 128, claimed)
    # While it is corrupt, nobody runs without a pause: virtual time passes.
    await directory.pass_time(LIVENESS_S + 3, client)
    corrupt_count = directory.adapter._commands.corrupt_count
    found = [each for each in client.errors() if "10s all of it is dropped" in each]
    assert len(found) == bool(corrupt_count)
    assert directory.driver.counters.value(SystemCounterId.ERRORS) == corrupt_count
    if claimed == 0 and length <= 0:
        # A begun record that is not claimed is no record.
        client.ring_buffer.store_release_32(index, 0)
    await client.ask_for(NextAvailableSessionId, GetNextAvailableSessionId, stream_id=1)


# The end of the driver.


@in_directory
async def test_a_driver_closes_with_live_clients(directory: Directory) -> None:
    client, other = directory.client(), directory.client()
    await fill(client)
    await other.add_publication(UDP)
    await other.add_subscription(UDP)
    heartbeat_ms = client.ring.consumer_heartbeat_ms
    assert heartbeat_ms > 0
    await directory.driver.aclose()
    assert client.ring.consumer_heartbeat_ms == -1
    assert [*directory.path.glob("*/*.logbuffer")] == []
    # A command after that is not read, and harms nothing.
    client.send(AddPublication, channel=IPC, stream_id=1)
    await client.settle()


@in_directory
async def test_a_driver_that_drains_leaves_commands_unread(directory: Directory) -> None:
    client, slow, newcomer = (directory.client() for _ in range(3))
    await fill(client)
    driver, conductor, adapter = directory.driver, directory.driver.conductor, directory.adapter
    is_drained = asyncio.Event()
    with pytest.MonkeyPatch.context() as patch, slow_names(directory):
        asked = slow.send(AddPublication, channel=BY_NAME, stream_id=1)
        slow.send(AddCounter, counter_type_id=1_001, key=b"", label="never")
        await slow.settle()
        assert adapter._ids_being_added == {asked}
        patch.setattr(conductor, "drain", is_drained.wait)
        closing = asyncio.ensure_future(driver.aclose())
        await client.settle()
        client.received()
        before, heartbeat_ms = (
            client.ring.stored_consumer_position,
            client.ring.consumer_heartbeat_ms,
        )
        counters = len(driver.counters.snapshot())
        for each in (client, slow, newcomer):
            each.send(AddCounter, counter_type_id=1_001, key=b"", label="never")
            each.send(AddPublication, channel=IPC, stream_id=2)
        await directory.pass_time(2)
        assert client.received() == []
        assert client.errors() == []
        assert client.ring.stored_consumer_position == before
        assert len(driver.counters.snapshot()) == counters
        assert conductor.network_publications == ()
        assert conductor.ipc_publications == ()
        assert not adapter._ids_being_added
        # No other driver takes the directory in the meantime.
        assert client.ring.consumer_heartbeat_ms > heartbeat_ms
        assert directory.watcher.words == []
        is_drained.set()
        await closing
    assert client.ring.consumer_heartbeat_ms == -1


@in_directory
async def test_a_driver_shows_that_it_lives(directory: Directory) -> None:
    client = directory.client()
    before = client.ring.consumer_heartbeat_ms
    await directory.pass_time(3)
    assert client.ring.consumer_heartbeat_ms - before >= 2_000


@in_directory
async def test_a_failure_of_a_command_is_an_answer(directory: Directory) -> None:
    client = directory.client()
    await client.add_counter()

    def fail(_stream_id: int) -> int:
        raise ZeroDivisionError

    with captured_logs() as lines, pytest.MonkeyPatch.context() as patch:
        patch.setattr(directory.driver.conductor, "next_session_id", fail)
        (answer,) = await client.ask(GetNextAvailableSessionId, stream_id=1)
    assert isinstance(answer, ErrorResponse)
    assert answer.code == ErrorCode.GENERIC
    assert [each["event"] for each in lines] == ["command_failed"]
    await client.add_counter()


@in_directory
async def test_what_was_closed_under_a_command_is_an_answer(directory: Directory) -> None:
    client = directory.client()
    await client.add_counter()

    def fail(_stream_id: int) -> int:
        message = "something that the command needs was closed"
        raise ClosedError(message)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(directory.driver.conductor, "next_session_id", fail)
        client.send(GetNextAvailableSessionId, stream_id=1)
        refused, added = await client.ask(AddCounter, counter_type_id=1_001, key=b"", label="next")
    assert isinstance(refused, ErrorResponse)
    assert b"needs was closed" in refused.message
    assert isinstance(added, CounterReady)


@in_directory
async def test_a_command_that_cannot_be_taken_harms_no_other(directory: Directory) -> None:
    client = directory.client()
    await client.add_counter()

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    with captured_logs() as lines, pytest.MonkeyPatch.context() as patch:
        patch.setattr(directory.adapter, "_queue", fail)
        assert await client.ask(GetNextAvailableSessionId, stream_id=1) == []
    assert [each["event"] for each in lines] == ["command_failed"]
    assert "ZeroDivisionError" in client.errors()[0]
    assert not directory.driver.is_closed
    await client.ask_for(NextAvailableSessionId, GetNextAvailableSessionId, stream_id=1)


@pytest.mark.parametrize("is_left", [False, True])
@in_directory
async def test_a_client_that_cannot_be_looked_after_is_removed_alone(
    directory: Directory,
    is_left: bool,  # noqa: FBT001 - one meaning
) -> None:
    client, other = directory.client(), directory.client()
    await fill(client)
    await other.add_counter()
    (watch,) = directory.adapter._clients[client.client_id].publications.values()
    client.received()

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    with captured_logs() as lines, pytest.MonkeyPatch.context() as patch:
        patch.setattr(watch, "act", fail)
        if is_left:
            patch.setattr(directory.driver.conductor, "remove_client", fail)
        await directory.pass_time(2, other)
    events = [each["event"] for each in lines]
    assert events.count("client_failed") == 1 + is_left
    assert ClientTimeout(client_id=client.client_id) in client.received()
    assert [*directory.adapter._clients] == [other.client_id]
    assert "ZeroDivisionError" in client.errors()[0]
    await other.add_counter()


@in_directory
async def test_a_client_whose_refusal_failed_is_served_again(directory: Directory) -> None:
    client = directory.client()
    await client.add_counter()

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    with captured_logs() as lines, pytest.MonkeyPatch.context() as patch:
        patch.setattr(directory.adapter, "_refuse", fail)
        client.send(AddPublication, channel="?", stream_id=1)
        wanted = client.send(GetNextAvailableSessionId, stream_id=1)
        client.received()
        await client.settle()
    assert [each["event"] for each in lines] == ["answer_failed"]
    (answer,) = client.received()
    assert isinstance(answer, NextAvailableSessionId)
    assert answer.correlation_id == wanted


@CHANNELS
@in_directory
async def test_a_publication_that_fails_is_recorded_once(
    directory: Directory, channel: str
) -> None:
    client = directory.client()
    await client.add_publication(channel)
    conductor = directory.driver.conductor
    (publication,) = conductor.network_publications or conductor.ipc_publications

    def fail(_publication: object, _now_ns: int) -> int:
        raise ZeroDivisionError

    with captured_logs() as lines, pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(publication), "poll", fail)
        publication.wake_flag.set()
        await directory.pass_time(1, client)
    assert [each["event"] for each in lines].count("publication_failed") == 1
    (error,) = client.errors()
    assert f"sessionId={publication.session_id}: ZeroDivisionError" in error
    assert directory.driver.counters.value(SystemCounterId.ERRORS) == 1


async def test_a_driver_without_a_directory_serves_no_other_process() -> None:
    async with MediaDriver.launch() as driver:
        assert driver.conductor.adapter is None


@in_directory
async def test_a_removed_publication_leaves_no_watched_word(directory: Directory) -> None:
    client = directory.client()
    publisher = await client.add_publication(UDP)
    await client.add_subscription(UDP)
    await directory.pass_time(1, client)
    await publisher.offer_all([b"a", b"b"])
    answers = await client.ask(RemovePublication, registration_id=publisher.id)
    assert OperationSucceeded in {type(each) for each in answers}
    client.send(ClientClose)
    await directory.pass_time(30)
    assert is_empty(directory)
