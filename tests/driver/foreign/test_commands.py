"""Every command of a client in another process: its answer, its effect and its refusals."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

import aeron_async as aa
from aeron_async.driver import client_command_adapter as adapter_module
from aeron_async.driver.core.stream_counters import NO_OWNER_ID
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.errors import ErrorCode, RegistrationError
from aeron_async.protocol.control_protocol import (
    AddCounter,
    AddDestination,
    AddExclusivePublication,
    AddPublication,
    AddReceiveDestination,
    AddressType,
    AddStaticCounter,
    AddSubscription,
    ClientKeepalive,
    CounterReady,
    ErrorResponse,
    ExclusivePublicationBuffersReady,
    GetNextAvailableSessionId,
    ImageBuffersReady,
    NextAvailableSessionId,
    OperationSucceeded,
    PublicationBuffersReady,
    PublicationErrorResponse,
    RejectImage,
    RemoveCounter,
    RemoveDestination,
    RemoveDestinationById,
    RemovePublication,
    RemovePublicationFlags,
    RemoveReceiveDestination,
    RemoveSubscription,
    StaticCounterReady,
    SubscriptionReadyResponse,
    TerminateDriver,
    UnavailableCounter,
    UnavailableImage,
)
from tests.driver.foreign.client import IPC, STREAM_ID, UDP, Directory, in_directory
from tests.logs import captured_logs

MANUAL = "aeron:udp?control-mode=manual|term-length=64k"
CLIENT_HEARTBEAT = 11
DESTINATION = "aeron:udp?endpoint=127.0.0.1:20122"


def counter(directory: Directory, counter_id: SystemCounterId) -> int:
    return directory.driver.counters.value(counter_id)


def exists(file: Path) -> bool:
    return file.exists()


def mode(file: Path) -> int:
    return file.stat().st_mode & 0o777


# Publications.


@in_directory
async def test_the_heartbeat_of_a_new_client_is_announced_before_its_first_answer(
    directory: Directory,
) -> None:
    client = directory.client()
    added = client.send(AddPublication, channel=IPC, stream_id=STREAM_ID)
    await client.settle()
    heartbeat, ready = client.received()
    assert isinstance(heartbeat, CounterReady)
    assert heartbeat.correlation_id == client.client_id
    assert heartbeat.counter_id == client.heartbeat_id
    assert isinstance(ready, PublicationBuffersReady)
    assert ready.correlation_id == ready.registration_id == added
    assert client.value(client.heartbeat_id) > 0
    client.send(AddSubscription, channel=IPC, stream_id=1)
    await client.settle()
    assert [type(each) for each in client.received()] == [SubscriptionReadyResponse]


@in_directory
async def test_clients_share_a_publication(directory: Directory) -> None:
    first, second = directory.client(), directory.client()
    one, two = (await first.add_publication()).ready, (await second.add_publication()).ready
    assert two.correlation_id != one.correlation_id
    assert two.registration_id == one.registration_id == one.correlation_id
    same = ("session_id", "stream_id", "publisher_limit_id", "channel_status_id", "log_file")
    assert [getattr(one, name) for name in same] == [getattr(two, name) for name in same]
    assert one.channel_status_id == -1
    file = Path(one.log_file.decode())
    assert file == directory.path / "publications" / f"{one.correlation_id}.logbuffer"
    # The log goes with the last of them.
    await first.ask_for(OperationSucceeded, RemovePublication, registration_id=one.correlation_id)
    assert exists(file)
    await second.ask_for(OperationSucceeded, RemovePublication, registration_id=two.correlation_id)
    assert not exists(file)


@in_directory
async def test_each_exclusive_publication_is_another(directory: Directory) -> None:
    client = directory.client()
    one = (await client.add_publication(is_exclusive=True)).ready
    two = (await client.add_publication(is_exclusive=True)).ready
    assert type(one) is type(two) is ExclusivePublicationBuffersReady
    assert one.registration_id == one.correlation_id
    assert two.registration_id == two.correlation_id
    assert one.session_id != two.session_id
    assert one.log_file != two.log_file


@in_directory
async def test_a_network_publication_names_the_status_of_its_channel(directory: Directory) -> None:
    client = directory.client()
    ready = (await client.add_publication(UDP)).ready
    assert client.value(ready.channel_status_id) == 1
    assert client.counters.label(ready.channel_status_id).startswith("snd-channel")


@in_directory
async def test_only_who_added_a_publication_removes_it(directory: Directory) -> None:
    client, other = directory.client(), directory.client()
    publisher = await client.add_publication()
    code = await other.refused(RemovePublication, registration_id=publisher.id)
    assert code == ErrorCode.UNKNOWN_PUBLICATION
    assert exists(Path(publisher.ready.log_file.decode()))
    await client.ask_for(OperationSucceeded, RemovePublication, registration_id=publisher.id)
    code = await client.refused(RemovePublication, registration_id=publisher.id)
    assert code == ErrorCode.UNKNOWN_PUBLICATION


@in_directory
async def test_a_publication_is_removed_without_flags_as_old_clients_do(
    directory: Directory,
) -> None:
    client = directory.client()
    publisher = await client.add_publication()
    body = RemovePublication(
        client_id=client.client_id, correlation_id=77_777, registration_id=publisher.id
    ).encode()
    assert client.ring.write(RemovePublication.TYPE_ID, body[:24])
    await client.settle()
    assert client.received() == [OperationSucceeded(correlation_id=77_777)]


@in_directory
async def test_a_publication_is_revoked(directory: Directory) -> None:
    client, other = directory.client(), directory.client()
    publisher = await client.add_publication(is_exclusive=True)
    _, (reader,) = await other.add_subscription()
    await publisher.offer_all([b"lost"])
    other.received()
    answer, gone = await client.ask(
        RemovePublication, registration_id=publisher.id, flags=RemovePublicationFlags.REVOKE
    )
    taken = {type(answer), type(gone)}
    assert taken == {OperationSucceeded, UnavailableImage}
    assert reader.log.metadata.is_publication_revoked
    assert counter(directory, SystemCounterId.PUBLICATIONS_REVOKED) == 1


# Subscriptions.


@in_directory
async def test_a_subscription_is_answered_before_its_images(directory: Directory) -> None:
    client, other = directory.client(), directory.client()
    publisher = await client.add_publication()
    added = other.send(AddSubscription, channel=IPC, stream_id=STREAM_ID)
    other.received()
    await other.settle()
    heartbeat, ready, image = other.received()
    assert isinstance(heartbeat, CounterReady)
    assert ready == SubscriptionReadyResponse(correlation_id=added, channel_status_id=-1)
    assert isinstance(image, ImageBuffersReady)
    assert image.image_id == publisher.ready.registration_id
    assert image.session_id == publisher.ready.session_id
    assert image.subscription_registration_id == added
    assert image.log_file == publisher.ready.log_file
    assert image.source_identity == b"aeron:ipc"
    label = other.counters.label(image.subscriber_position_id)
    assert label.startswith("sub-pos")


@in_directory
async def test_an_image_joins_where_its_counter_says(directory: Directory) -> None:
    client, late = directory.client(), directory.client()
    publisher = await client.add_publication()
    _, (reader,) = await client.add_subscription()
    await publisher.offer_all([b"x" * 32, b"y" * 32])
    assert await reader.take(2) == [b"x" * 32, b"y" * 32]
    _, (joined,) = await late.add_subscription()
    assert joined.position == reader.position == 128


@in_directory
async def test_an_image_of_a_network_stream_has_a_log_of_its_own(directory: Directory) -> None:
    client, other = directory.client(), directory.client()
    ready, images = await other.add_subscription(UDP)
    assert other.value(ready.channel_status_id) == 1
    assert images == []
    await client.add_publication(UDP)
    await directory.pass_time(1, client, other)
    (image,) = await other.images()
    file = Path(image.ready.log_file.decode())
    assert file == directory.path / "images" / f"{image.ready.image_id}.logbuffer"
    assert mode(file) == 0o600
    host, _, port = image.ready.source_identity.decode().rpartition(":")
    assert host == "127.0.0.1"
    assert 0 < int(port) < 65_536


@in_directory
async def test_only_who_added_a_subscription_removes_it(directory: Directory) -> None:
    client, other = directory.client(), directory.client()
    ready, _ = await client.add_subscription()
    wanted = {"registration_id": ready.correlation_id}
    assert await other.refused(RemoveSubscription, **wanted) == ErrorCode.UNKNOWN_SUBSCRIPTION
    await client.ask_for(OperationSucceeded, RemoveSubscription, **wanted)
    assert await client.refused(RemoveSubscription, **wanted) == ErrorCode.UNKNOWN_SUBSCRIPTION


# What both refuse.


@pytest.mark.parametrize("kind", [AddPublication, AddExclusivePublication, AddSubscription])
@pytest.mark.parametrize(
    ("channel", "code"),
    [
        ("", ErrorCode.INVALID_CHANNEL),
        ("http://example.com", ErrorCode.INVALID_CHANNEL),
        ("aeron:udp", ErrorCode.INVALID_CHANNEL),
        ("aeron:udp?endpoint=nowhere.invalid:20121", ErrorCode.UNKNOWN_HOST),
        ("aeron:ipc?term-length=65537", ErrorCode.INVALID_CHANNEL),
        (b"aeron:ipc?alias=\xff\xfe|mtu=1", ErrorCode.INVALID_CHANNEL),
        ("aeron:udp?endpoint=127.0.0.1:99999999", ErrorCode.INVALID_CHANNEL),
    ],
)
@in_directory
async def test_a_channel_that_is_none_is_refused(
    directory: Directory, kind: type[AddPublication], channel: str | bytes, code: ErrorCode
) -> None:
    client = directory.client()
    assert await client.refused(kind, channel=channel, stream_id=STREAM_ID) == code
    (error,) = client.errors()
    assert error.startswith(f"({-code})")
    assert counter(directory, SystemCounterId.ERRORS) == 1


@in_directory
async def test_parameters_of_later_versions_are_accepted(directory: Directory) -> None:
    client = directory.client()
    await client.add_publication("aeron:ipc?term-length=64k|from-the-future=1")
    await client.add_subscription("aeron:ipc?from-the-future=1")


@in_directory
async def test_a_correlation_id_in_use_is_refused(directory: Directory) -> None:
    client, other = directory.client(), directory.client()
    publisher = await client.add_publication()
    ready, _ = await client.add_subscription()
    added = await client.add_counter()
    ids = (publisher.id, ready.correlation_id, added.correlation_id)
    for taken in ids:
        for who in (client, other):
            for kind in (AddPublication, AddExclusivePublication, AddSubscription):
                code = await who.refused(
                    kind, correlation_id=taken, channel=IPC, stream_id=STREAM_ID
                )
                assert code == ErrorCode.GENERIC
            assert (
                await who.refused(
                    AddCounter, correlation_id=taken, counter_type_id=1_001, key=b"", label=b""
                )
                == ErrorCode.GENERIC
            )
    removals = (RemovePublication, RemoveSubscription, RemoveCounter)
    for removal, registration_id in zip(removals, ids, strict=True):
        answers = await client.ask(removal, registration_id=registration_id)
        assert OperationSucceeded in {type(each) for each in answers}


@pytest.mark.parametrize("kind", [AddPublication, AddExclusivePublication, AddSubscription])
@in_directory
async def test_a_correlation_id_is_taken_while_its_command_waits_for_a_name(
    directory: Directory, kind: type[AddPublication]
) -> None:
    first, second = directory.client(), directory.client()
    fields: dict[str, Any] = {
        "correlation_id": 4_711,
        "channel": "aeron:udp?endpoint=localhost:20121|term-length=64k",
        "stream_id": STREAM_ID,
    }
    first.send(kind, **fields)
    second.send(kind, **fields)
    await directory.settle()
    answers = [each for each in first.received() if not isinstance(each, CounterReady)]
    (error,) = [each for each in answers if isinstance(each, ErrorResponse)]
    assert error.code == ErrorCode.GENERIC
    assert len(answers) == 2


# Destinations.


@in_directory
async def test_destinations_of_a_publication(directory: Directory) -> None:
    client = directory.client()
    publisher = await client.add_publication(MANUAL)
    where = {"registration_id": publisher.id}
    for _ in range(2):
        await client.ask_for(OperationSucceeded, AddDestination, channel=DESTINATION, **where)
        await client.ask_for(OperationSucceeded, RemoveDestination, channel=DESTINATION, **where)
    added = await client.ask_for(OperationSucceeded, AddDestination, channel=DESTINATION, **where)
    await client.ask_for(
        OperationSucceeded,
        RemoveDestinationById,
        destination_registration_id=added.correlation_id,
        **where,
    )
    (core,) = directory.driver.conductor.network_publications
    assert core.session_id == publisher.ready.session_id
    counts = [each for each in client.counters if "mdc-num-dest" in each.label]
    assert [each.value for each in counts] == [0]


@in_directory
async def test_destinations_of_nothing_are_refused(directory: Directory) -> None:
    client = directory.client()
    await client.add_counter()
    where = {"registration_id": 99_999, "channel": DESTINATION}
    for kind in (AddDestination, RemoveDestination):
        assert await client.refused(kind, **where) == ErrorCode.UNKNOWN_PUBLICATION
    for kind in (AddReceiveDestination, RemoveReceiveDestination):
        assert await client.refused(kind, **where) == ErrorCode.UNKNOWN_SUBSCRIPTION
    assert (
        await client.refused(
            RemoveDestinationById, registration_id=99_999, destination_registration_id=1
        )
        == ErrorCode.UNKNOWN_PUBLICATION
    )
    publisher = await client.add_publication(UDP)
    code = await client.refused(AddDestination, registration_id=publisher.id, channel=DESTINATION)
    assert code in {ErrorCode.INVALID_CHANNEL, ErrorCode.GENERIC}


@in_directory
async def test_a_destination_that_is_none_is_removed_in_vain_and_without_an_error(
    directory: Directory,
) -> None:
    client = directory.client()
    where = {"registration_id": (await client.add_publication(MANUAL)).id}
    await client.ask_for(OperationSucceeded, RemoveDestination, channel=DESTINATION, **where)
    by_id = {"destination_registration_id": 1, **where}
    await client.ask_for(OperationSucceeded, RemoveDestinationById, **by_id)
    ready, _ = await client.add_subscription(MANUAL.split("|", maxsplit=1)[0])
    where = {"registration_id": ready.correlation_id}
    await client.ask_for(OperationSucceeded, RemoveReceiveDestination, channel=DESTINATION, **where)
    # Streams of the driver itself are looked up at once, as in Aeron.
    for channel in ("aeron:ipc", f"aeron-spy:{UDP}"):
        code = await client.refused(RemoveReceiveDestination, channel=channel, **where)
        assert code == ErrorCode.UNKNOWN_SUBSCRIPTION


@in_directory
async def test_what_has_no_destinations_is_no_vain_removal(directory: Directory) -> None:
    client = directory.client()
    for channel in (UDP, IPC):
        where = {"registration_id": (await client.add_publication(channel)).id}
        code = await client.refused(RemoveDestination, channel=DESTINATION, **where)
        assert code == ErrorCode.INVALID_CHANNEL
        by_id = {"destination_registration_id": 1, **where}
        assert await client.refused(RemoveDestinationById, **by_id) == ErrorCode.INVALID_CHANNEL
        ready, _ = await client.add_subscription(channel, 2)
        code = await client.refused(
            RemoveReceiveDestination, registration_id=ready.correlation_id, channel=DESTINATION
        )
        assert code == ErrorCode.INVALID_CHANNEL


@in_directory
async def test_who_shares_a_publication_changes_its_destinations(directory: Directory) -> None:
    first, second, stranger = (directory.client() for _ in range(3))
    shared = f"{MANUAL}|control=127.0.0.1:20130"
    publisher = await first.add_publication(shared)
    ready = (await second.add_publication(shared)).ready
    assert ready.registration_id == publisher.id
    # Official clients name a shared publication by its first request.
    where = {"registration_id": publisher.id, "channel": DESTINATION}
    added = await second.ask_for(OperationSucceeded, AddDestination, **where)
    by_id = {"destination_registration_id": added.correlation_id, "registration_id": publisher.id}
    await stranger.add_counter()
    for kind in (AddDestination, RemoveDestination):
        assert await stranger.refused(kind, **where) == ErrorCode.UNKNOWN_PUBLICATION
    assert await stranger.refused(RemoveDestinationById, **by_id) == ErrorCode.UNKNOWN_PUBLICATION
    (count,) = [each.counter_id for each in first.counters if "mdc-num-dest" in each.label]
    assert first.value(count) == 1
    # Also once the first request has gone.
    await first.ask_for(OperationSucceeded, RemovePublication, registration_id=publisher.id)
    assert await first.refused(RemoveDestination, **where) == ErrorCode.UNKNOWN_PUBLICATION
    await second.ask_for(OperationSucceeded, RemoveDestinationById, **by_id)
    assert first.value(count) == 0


@in_directory
async def test_only_who_added_a_subscription_changes_its_destinations(
    directory: Directory,
) -> None:
    client, stranger = directory.client(), directory.client()
    await stranger.add_counter()
    ready, _ = await client.add_subscription(MANUAL.split("|", maxsplit=1)[0])
    where = {"registration_id": ready.correlation_id, "channel": DESTINATION}
    code = await stranger.refused(AddReceiveDestination, **where)
    assert code == ErrorCode.UNKNOWN_SUBSCRIPTION
    await client.ask_for(OperationSucceeded, AddReceiveDestination, **where)
    code = await stranger.refused(RemoveReceiveDestination, **where)
    assert code == ErrorCode.UNKNOWN_SUBSCRIPTION
    locals_ = [each for each in client.counters if "rcv-local" in each.label]
    assert len(locals_) == 1
    await client.ask_for(OperationSucceeded, RemoveReceiveDestination, **where)


@in_directory
async def test_destinations_of_a_subscription(directory: Directory) -> None:
    client = directory.client()
    ready, _ = await client.add_subscription(MANUAL.split("|", maxsplit=1)[0])
    for channel in (DESTINATION, "aeron:ipc", f"aeron-spy:{UDP}"):
        where = {"registration_id": ready.correlation_id, "channel": channel}
        await client.ask_for(OperationSucceeded, AddReceiveDestination, **where)
        await client.ask_for(OperationSucceeded, RemoveReceiveDestination, **where)


# Counters.


@pytest.mark.parametrize("key", [b"", b"k", b"key1", b"x" * 112, b"y" * 200])
@pytest.mark.parametrize("label", [b"", b"label", b"z" * 380, b"w" * 400, b"\xff\xfe"])
@in_directory
async def test_a_counter_is_added_and_removed(
    directory: Directory, key: bytes, label: bytes
) -> None:
    client, other = directory.client(), directory.client()
    ready = await client.ask_for(
        CounterReady, AddCounter, counter_type_id=1_234, key=key, label=label
    )
    record = client.counters.record(ready.counter_id)
    assert record.type_id == 1_234
    assert record.registration_id == ready.correlation_id
    assert record.owner_id == client.client_id
    assert record.key == key[:112].ljust(112, b"\0")
    assert record.label == label.decode("utf-8", "backslashreplace")[:380]
    where = {"registration_id": ready.correlation_id}
    assert await other.refused(RemoveCounter, **where) == ErrorCode.UNKNOWN_COUNTER
    done, gone = await client.ask(RemoveCounter, **where)
    assert isinstance(done, OperationSucceeded)
    assert gone == UnavailableCounter(
        registration_id=ready.correlation_id, counter_id=ready.counter_id
    )
    assert client.counters.state(ready.counter_id) == -1
    assert await client.refused(RemoveCounter, **where) == ErrorCode.UNKNOWN_COUNTER


@in_directory
async def test_a_static_counter_outlives_its_client(directory: Directory) -> None:
    client, other = directory.client(), directory.client()
    fields: dict[str, Any] = {
        "registration_id": 8,
        "counter_type_id": 1_234,
        "key": b"key",
        "label": b"static",
    }
    ready = await client.ask_for(StaticCounterReady, AddStaticCounter, **fields)
    again = await other.ask_for(StaticCounterReady, AddStaticCounter, **fields)
    assert again.counter_id == ready.counter_id
    assert again.correlation_id != ready.correlation_id
    record = client.counters.record(ready.counter_id)
    assert (record.owner_id, record.registration_id) == (NO_OWNER_ID, 8)
    assert await client.refused(RemoveCounter, registration_id=8) == ErrorCode.UNKNOWN_COUNTER
    client.beat(0)
    other.beat(0)
    await directory.pass_time(2)
    assert client.counters.record(ready.counter_id) == record


@in_directory
async def test_a_static_counter_is_no_counter_of_a_client(directory: Directory) -> None:
    client = directory.client()
    ready = await client.add_counter()
    code = await client.refused(
        AddStaticCounter,
        registration_id=ready.correlation_id,
        counter_type_id=1_001,
        key=b"",
        label=b"",
    )
    assert code == ErrorCode.GENERIC


# The rest.


@in_directory
async def test_a_rejected_image_is_taken_away_and_its_publishers_hear_why(
    directory: Directory,
) -> None:
    client, other = directory.client(), directory.client()
    publisher = await client.add_publication()
    ready, (reader,) = await other.add_subscription()
    answers = await other.ask(
        RejectImage, image_id=reader.ready.image_id, position=0, reason="no thanks"
    )
    (error,) = [each for each in answers if isinstance(each, PublicationErrorResponse)]
    assert error.registration_id == publisher.ready.registration_id
    assert (error.code, error.message) == (ErrorCode.IMAGE_REJECTED, b"no thanks")
    assert error.session_id == publisher.ready.session_id
    assert error.destination_registration_id == error.group_tag == -1
    assert error.address_type == AddressType.IPV4
    (gone,) = [each for each in answers if isinstance(each, UnavailableImage)]
    assert gone.image_id == reader.ready.image_id
    assert gone.subscription_registration_id == ready.correlation_id
    assert [type(each) for each in answers].count(OperationSucceeded) == 1
    assert len(answers) == 3


@in_directory
async def test_an_error_of_a_remote_receiver_names_its_address(directory: Directory) -> None:
    client, other = directory.client(), directory.client()
    publisher = await client.add_publication(UDP)
    await other.add_subscription(UDP)
    await directory.pass_time(1, client, other)
    (reader,) = await other.images()
    await other.ask(RejectImage, image_id=reader.ready.image_id, position=0, reason="no")
    await directory.pass_time(1, client, other)
    errors = [each for each in client.received() if isinstance(each, PublicationErrorResponse)]
    assert {each.registration_id for each in errors} == {publisher.id}
    assert {each.address_type for each in errors} == {AddressType.IPV4}
    assert {each.source_address for each in errors} == {bytes([127, 0, 0, 1]).ljust(16, b"\0")}
    assert {each.message for each in errors} == {b"no"}


@in_directory
async def test_only_who_has_an_image_rejects_it(directory: Directory) -> None:
    client, other = directory.client(), directory.client()
    await client.add_publication()
    _, (reader,) = await client.add_subscription()
    for image_id in (99, reader.ready.image_id):
        code = await other.refused(RejectImage, image_id=image_id, position=0, reason="")
        assert code == ErrorCode.GENERIC


@in_directory
async def test_a_rejection_with_too_long_a_reason_is_refused(directory: Directory) -> None:
    client = directory.client()
    publisher = await client.add_publication()
    _, (reader,) = await client.add_subscription()
    wanted = {"image_id": reader.ready.image_id, "position": 0}
    assert await client.refused(RejectImage, **wanted, reason="x" * 1_024) == ErrorCode.GENERIC
    answers = await client.ask(RejectImage, **wanted, reason="x" * 1_023)
    (error,) = [each for each in answers if isinstance(each, PublicationErrorResponse)]
    assert error.registration_id == publisher.ready.registration_id
    assert error.message == b"x" * 1_023


@in_directory
async def test_a_session_id_is_free_and_not_given_twice(directory: Directory) -> None:
    client = directory.client()
    ask = GetNextAvailableSessionId
    found = [
        (await client.ask_for(NextAvailableSessionId, ask, stream_id=STREAM_ID)).session_id
        for _ in range(3)
    ]
    publisher = await client.add_publication()
    assert len({*found, publisher.ready.session_id}) == 4
    assert not any(-1 <= each <= 1_000 for each in found)


@in_directory
async def test_a_keep_alive_of_an_unknown_client_makes_none(directory: Directory) -> None:
    client = directory.client()
    assert await client.ask(ClientKeepalive) == []
    assert client.counters.find(type_id=11, registration_id=client.client_id) is None


MALFORMED = [
    (AddPublication.TYPE_ID, b""),
    (AddPublication.TYPE_ID, bytes(23)),
    (AddPublication.TYPE_ID, struct.pack("<qqii", 1, 2, 3, -1)),
    (AddPublication.TYPE_ID, struct.pack("<qqii", 1, 2, 3, 10) + b"aeron:ipc"),
    (AddCounter.TYPE_ID, struct.pack("<qqii", 1, 2, 3, 2**31 - 1)),
    (AddCounter.TYPE_ID, struct.pack("<qqiiii", 1, 2, 3, 0, -5, 0)),
    (TerminateDriver.TYPE_ID, struct.pack("<qqi", 1, 2, 1)),
]


@pytest.mark.parametrize(("type_id", "body"), MALFORMED)
@in_directory
async def test_a_malformed_command_has_no_answer(
    directory: Directory, type_id: int, body: bytes
) -> None:
    client = directory.client()
    assert client.ring.write(type_id, body)
    await client.settle()
    assert client.received() == []
    (error,) = client.errors()
    assert error.startswith("(-7)")
    assert counter(directory, SystemCounterId.ERRORS) == 1


@in_directory
async def test_an_unknown_command_has_no_answer(directory: Directory) -> None:
    client = directory.client()
    assert client.ring.write(99, bytes(100))
    await client.settle()
    assert client.received() == []
    (error,) = client.errors()
    assert error.startswith("(-6)")


@in_directory
async def test_no_client_ends_a_driver_that_does_not_allow_it(directory: Directory) -> None:
    client = directory.client()
    assert await client.ask(TerminateDriver, token=b"please") == []
    assert not directory.driver.is_closed


@in_directory(termination_validator="allow")
async def test_a_client_ends_a_driver_that_allows_it(directory: Directory) -> None:
    client = directory.client()
    client.send(TerminateDriver, token=b"")
    client.send(TerminateDriver, token=b"")
    await client.settle()
    await directory.driver.wait_closed()
    assert directory.driver.is_closed
    assert client.ring.consumer_heartbeat_ms == -1


# Limits.


@in_directory
async def test_every_counter_may_have_a_watched_word(directory: Directory) -> None:
    assert directory.watcher.word_limit == directory.driver.counters.limit + 2


@pytest.mark.parametrize(
    ("kind", "channel"),
    # An IPC publication is watched only for readers in the process of the driver.
    [(AddExclusivePublication, UDP), (AddSubscription, UDP), (AddSubscription, IPC)],
)
@in_directory
async def test_what_cannot_be_watched_is_refused_and_leaves_nothing(
    directory: Directory, kind: Any, channel: str
) -> None:
    client = directory.client()
    await client.add_counter()
    publication = await client.add_publication(channel)
    _, images = await client.add_subscription(channel)
    await directory.pass_time(1, client)
    assert len(images + await client.images()) == 1
    conductor, watcher = directory.driver.conductor, directory.watcher
    before = len(directory.driver.counters.snapshot())
    watcher.word_limit = len(watcher.words)
    code = await client.refused(kind, channel=channel, stream_id=STREAM_ID)
    assert code == ErrorCode.RESOURCE_TEMPORARILY_UNAVAILABLE
    assert len(conductor._table._links) == len(conductor._subscriptions.links) == 1
    assert len(watcher.words) == watcher.word_limit
    assert "counters_buffer_length sets how many" in client.errors()[-1]
    watcher.word_limit += 2
    # The streams that were there are read as before, and there is room for others.
    await publication.offer_all([b"x"])
    await directory.pass_time(5, client)
    assert len(directory.driver.counters.snapshot()) == before
    _, (reader,) = await client.add_subscription(channel)
    await publication.offer_all([b"y"])
    assert await reader.take(2) == [b"x", b"y"]


@in_directory
async def test_a_publication_that_ends_before_its_answer_is_refused_once(
    directory: Directory,
) -> None:
    client = directory.client()
    await client.add_counter()
    conductor = directory.driver.conductor

    def find_none(registration_id: int) -> None:
        message = f"unknown publication: {registration_id}: it was closed"
        raise RegistrationError(message, code=ErrorCode.UNKNOWN_PUBLICATION)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conductor, "publication", find_none)
        code = await client.refused(AddPublication, channel=IPC, stream_id=STREAM_ID)
    assert code == ErrorCode.UNKNOWN_PUBLICATION
    await directory.pass_time(3, client)
    assert conductor.ipc_publications == ()


NO_CHANNEL = "x"
"""Not a channel: refused for another reason, it must not be parsed for its text."""


@pytest.mark.parametrize("kind", [AddPublication, AddSubscription])
@in_directory
async def test_a_taken_id_is_refused_whatever_its_channel(directory: Directory, kind: Any) -> None:
    client = directory.client()
    taken = (await client.add_publication()).id
    code = await client.refused(kind, correlation_id=taken, channel=NO_CHANNEL, stream_id=STREAM_ID)
    assert code == ErrorCode.GENERIC
    # The next commands of the client are carried out.
    await client.add_publication()


@in_directory
async def test_a_driver_has_a_limited_number_of_clients(directory: Directory) -> None:
    limit = 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adapter_module, "CLIENTS_MAX", limit)
        clients = [directory.client() for _ in range(limit + 1)]
        for client in clients[:limit]:
            await client.add_counter()
        for stream_id in (1, 2):
            code = await clients[limit].refused(AddPublication, channel=IPC, stream_id=stream_id)
            assert code == ErrorCode.RESOURCE_TEMPORARILY_UNAVAILABLE
        (error,) = clients[limit].errors()
        assert "2 clients of other processes use this driver, and 2 is the limit: close" in error
        clients[0].beat(0)
        await directory.pass_time(2, clients[1])
        await clients[limit].add_counter()


@in_directory
async def test_a_client_whose_heartbeat_has_no_counter_is_refused(directory: Directory) -> None:
    client = directory.client()
    counters = directory.driver.counters
    free = counters.limit - len(counters.snapshot())
    fillers = [
        counters.allocate(1_000, b"", "filler", registration_id=-1 - each) for each in range(free)
    ]
    for channel in (IPC, NO_CHANNEL):
        assert await client.refused(AddPublication, channel=channel, stream_id=STREAM_ID) > 0
    fillers[0].close()
    await directory.pass_time(2)
    await client.ask_for(AddedHeartbeat, AddPublication, channel=IPC, stream_id=STREAM_ID)


@in_directory
async def test_a_full_log_of_errors_is_logged_once(directory: Directory) -> None:
    client = directory.client()
    resources = directory.adapter._resources
    with captured_logs() as lines:
        for number in range(1_200):
            resources.record_error(ErrorCode.GENERIC, f"{number} " + "x" * 3_900)
    (line,) = lines
    assert line["event"] == "error_log_full"
    assert line["length"] == resources.context.error_buffer_length
    assert "error_buffer_length" in line["remedy"]
    assert 1_000 < len(client.errors()) == line["error_count"] < 1_200


AddedHeartbeat = ErrorResponse
"""There is a counter for the heartbeat, and none for the publication."""


@in_directory
async def test_no_client_of_another_process_takes_the_place_of_an_embedded_one(
    directory: Directory,
) -> None:
    async with aa.Aeron.connect(directory.driver) as aeron:
        publication = await aeron.add_publication(IPC, STREAM_ID)
        subscription = await aeron.add_subscription(IPC, STREAM_ID)
        thief = directory.client(0)
        for client_id in range(10):
            thief.send(AddSubscription, client_id=client_id, channel=IPC, stream_id=1)
        await thief.settle()
        for each in thief.counters:
            if each.type_id == CLIENT_HEARTBEAT:
                thief.set_value(each.counter_id, 0)
        await directory.pass_time(2)
        await publication.offer(b"still here", timeout=1)
        assert (await anext(subscription)).data == b"still here"
