from __future__ import annotations

import struct

import attrs
import pytest

from aeron_async.counters import CounterRecord, CountersManager
from aeron_async.driver.core.stream_counters import (
    ChannelCounterType,
    ChannelStatus,
    LocalAddressType,
    StreamCounterType,
    StreamKey,
    allocate_channel_counter,
    allocate_client_heartbeat,
    allocate_local_address,
    allocate_stream_counter,
    allocate_subscription_position,
    channel_counter_label,
)

CHANNEL = "aeron:udp?endpoint=127.0.0.1:20121"
# The sub-pos counter of an official driver, as its files held it.
GOLDEN_VALUE = bytes.fromhex("40010000000000000200000000000000 01000000000000000400000000000000")
GOLDEN_KEY = (
    bytes.fromhex("020000000000000058699e0be903000019000000") + b"aeron:ipc?term-length=64k"
)
GOLDEN_LABEL = b"sub-pos: 2 194931032 1001 aeron:ipc?term-length=64k @0"


class Table:
    def __init__(self) -> None:
        self.values = bytearray(8 * 128)
        self.metadata = bytearray(8 * 512)
        self.manager = CountersManager(
            self.values, self.metadata, free_to_reuse_timeout_ms=0, epoch_ms=lambda: 0
        )

    @property
    def record(self) -> CounterRecord:
        return self.manager.snapshot()[-1]


@pytest.fixture
def table() -> Table:
    return Table()


def allocate(
    table: Table, counter_type: StreamCounterType, channel: str = CHANNEL, suffix: str = ""
) -> CounterRecord:
    allocate_stream_counter(
        table.manager,
        counter_type,
        registration_id=4,
        session_id=-1_205,
        stream_id=1_001,
        channel=channel,
        owner_id=1,
        suffix=suffix,
        reference_id=9,
    )
    return table.record


def test_a_subscription_position_is_byte_for_byte_an_official_one(table: Table) -> None:
    counter = allocate_subscription_position(
        table.manager,
        registration_id=2,
        session_id=194_931_032,
        stream_id=1_001,
        channel="aeron:ipc?term-length=64k",
        owner_id=1,
        join_position=0,
        reference_id=4,
    )
    counter.set(320)
    assert bytes(table.values[:32]) == GOLDEN_VALUE
    assert bytes(table.metadata[:512]) == (
        bytes.fromhex("0100000004000000ffffffffffffff7f")
        + GOLDEN_KEY.ljust(112, b"\0")
        + struct.pack("<i", 54)
        + GOLDEN_LABEL.ljust(380, b"\0")
    )


def test_the_join_position_stays_in_the_label_while_the_value_moves(table: Table) -> None:
    counter = allocate_subscription_position(
        table.manager,
        registration_id=2,
        session_id=7,
        stream_id=10,
        channel="aeron:ipc",
        owner_id=1,
        join_position=4_096,
        reference_id=4,
    )
    assert counter.get() == 4_096
    counter.set(8_192)
    assert counter.label == "sub-pos: 2 7 10 aeron:ipc @4096"


@pytest.mark.parametrize(
    ("counter_type", "type_id", "name"),
    [
        (StreamCounterType.PUBLISHER_LIMIT, 1, "pub-lmt"),
        (StreamCounterType.SENDER_POSITION, 2, "snd-pos"),
        (StreamCounterType.RECEIVER_HWM, 3, "rcv-hwm"),
        (StreamCounterType.SUBSCRIPTION_POSITION, 4, "sub-pos"),
        (StreamCounterType.RECEIVER_POSITION, 5, "rcv-pos"),
        (StreamCounterType.SENDER_LIMIT, 9, "snd-lmt"),
        (StreamCounterType.CUBIC_RTT, 10, "rcv-cc-cubic-rtt"),
        (StreamCounterType.CUBIC_WINDOW, 10, "rcv-cc-cubic-wnd"),
        (StreamCounterType.AUTO_WINDOW, 10, "rcv-cc-auto-wnd"),
        (StreamCounterType.PUBLISHER_POSITION_CONCURRENT, 12, "pub-pos (concurrent)"),
        (StreamCounterType.PUBLISHER_POSITION_EXCLUSIVE, 12, "pub-pos (exclusive)"),
        (StreamCounterType.SENDER_BPE, 13, "snd-bpe"),
        (StreamCounterType.FLOW_CONTROL_RECEIVERS, 17, "fc-receivers"),
        (StreamCounterType.SENDER_NAKS_RECEIVED, 19, "snd-naks-received"),
        (StreamCounterType.RECEIVER_NAKS_SENT, 20, "rcv-naks-sent"),
    ],
)
def test_stream_counters_have_aerons_types_names_and_keys(
    table: Table, counter_type: StreamCounterType, type_id: int, name: str
) -> None:
    record = allocate(table, counter_type)
    assert record.type_id == type_id
    assert record.label == f"{name}: 4 -1205 1001 {CHANNEL}"
    key = struct.pack("<qiii", 4, -1_205, 1_001, len(CHANNEL)) + CHANNEL.encode()
    assert record.key == key.ljust(112, b"\0")
    assert (record.registration_id, record.owner_id, record.reference_id) == (4, 1, 9)
    assert record.value == 0


def test_every_type_of_stream_counter_is_a_member_of_its_own() -> None:
    assert len(StreamCounterType) == 15


def test_92_bytes_of_a_channel_fit_the_key_and_380_of_the_label(table: Table) -> None:
    channel = "aeron:udp?alias=" + "x" * 400
    record = allocate(table, StreamCounterType.SENDER_POSITION, channel, suffix=" never seen")
    assert struct.unpack_from("<i", record.key, 16)[0] == 92
    assert record.key[20:] == channel[:92].encode()
    assert record.label == f"snd-pos: 4 -1205 1001 {channel}"[:380]


def test_a_channel_of_exactly_92_bytes_is_whole(table: Table) -> None:
    channel = "aeron:udp?alias=".ljust(92, "y")
    record = allocate(table, StreamCounterType.SENDER_POSITION, channel)
    assert struct.unpack_from("<i", record.key, 16)[0] == 92
    assert record.key[20:] == channel.encode()


def test_lengths_are_counted_in_bytes(table: Table) -> None:
    record = allocate(table, StreamCounterType.SENDER_POSITION, "aeron:udp?alias=é")
    assert struct.unpack_from("<i", record.key, 16)[0] == 18


@pytest.mark.parametrize("counter_type", StreamCounterType)
def test_a_key_is_decoded_as_it_was_allocated(
    table: Table, counter_type: StreamCounterType
) -> None:
    assert StreamKey.decode(allocate(table, counter_type)) == StreamKey(
        registration_id=4, session_id=-1_205, stream_id=1_001, channel=CHANNEL
    )


def test_a_counter_of_no_stream_has_no_stream_key(table: Table) -> None:
    allocate_client_heartbeat(table.manager, client_id=7)
    assert StreamKey.decode(table.record) is None


@pytest.mark.parametrize(
    ("length", "channel"),
    [(-1, ""), (0, ""), (5, "aeron"), (92, "ok"), (93, "ok"), (2**31 - 1, "ok")],
)
def test_a_key_of_any_length_is_decoded_within_its_bytes(
    table: Table, length: int, channel: str
) -> None:
    record = allocate(table, StreamCounterType.SENDER_POSITION)
    text = b"aeron\xff".ljust(92, b"z")
    record = attrs.evolve(record, key=struct.pack("<qiii", 4, 5, 6, length) + text)
    found = StreamKey.decode(record)
    assert found is not None
    expected = "aeron\N{REPLACEMENT CHARACTER}".ljust(92, "z") if channel == "ok" else channel
    assert found.channel == expected


@pytest.mark.parametrize(
    ("counter_type", "type_id", "name"),
    [
        (ChannelCounterType.SEND_CHANNEL_STATUS, 6, "snd-channel"),
        (ChannelCounterType.RECEIVE_CHANNEL_STATUS, 7, "rcv-channel"),
        (ChannelCounterType.MDC_NUM_DESTINATIONS, 18, "mdc-num-dest"),
    ],
)
def test_channel_counters_have_aerons_types_names_and_keys(
    table: Table, counter_type: ChannelCounterType, type_id: int, name: str
) -> None:
    counter = allocate_channel_counter(
        table.manager, counter_type, registration_id=3, channel=CHANNEL
    )
    record = table.record
    assert record.type_id == type_id
    assert record.label == f"{name}: {CHANNEL}"
    assert record.key == (struct.pack("<i", len(CHANNEL)) + CHANNEL.encode()).ljust(112, b"\0")
    assert (record.registration_id, record.owner_id) == (3, 0)
    assert counter.get() == ChannelStatus.INITIALIZING
    counter.update_label(
        channel_counter_label(counter_type, channel=CHANNEL, bound_address="127.0.0.1:20121")
    )
    assert counter.label == f"{name}: {CHANNEL} 127.0.0.1:20121"


def test_108_bytes_of_a_channel_fit_its_own_key(table: Table) -> None:
    channel = "aeron:udp?alias=" + "x" * 400
    allocate_channel_counter(
        table.manager,
        ChannelCounterType.SEND_CHANNEL_STATUS,
        registration_id=3,
        channel=channel,
        bound_address="0.0.0.0:1",
    )
    assert struct.unpack_from("<i", table.record.key)[0] == 108
    assert table.record.key[4:] == channel[:108].encode()
    assert table.record.label == f"snd-channel: {channel}"[:380]


def test_channel_status_has_aerons_values() -> None:
    assert {status.name: status.value for status in ChannelStatus} == {
        "ERRORED": -1,
        "INITIALIZING": 0,
        "ACTIVE": 1,
        "CLOSING": 2,
    }


@pytest.mark.parametrize(
    ("address_type", "name"),
    [
        (LocalAddressType.SEND, "snd-local-sockaddr"),
        (LocalAddressType.RECEIVE, "rcv-local-sockaddr"),
    ],
)
def test_a_bound_address_refers_to_the_status_of_its_channel(
    table: Table, address_type: LocalAddressType, name: str
) -> None:
    allocate_local_address(
        table.manager,
        address_type,
        registration_id=3,
        channel_status_id=46,
        address="127.0.0.1:40456",
    )
    record = table.record
    assert record.type_id == 14
    assert record.label == f"{name}: 46 127.0.0.1:40456"
    assert record.key == (struct.pack("<ii", 46, 15) + b"127.0.0.1:40456").ljust(112, b"\0")
    assert (record.registration_id, record.owner_id, record.value) == (3, 0, 0)


def test_103_bytes_of_an_address_fit_its_key(table: Table) -> None:
    address = "a" * 200
    allocate_local_address(
        table.manager,
        LocalAddressType.SEND,
        registration_id=3,
        channel_status_id=1,
        address=address,
    )
    assert table.record.key == struct.pack("<ii", 1, 103) + b"a" * 103 + b"\0"


def test_a_client_heartbeat_belongs_to_its_client(table: Table) -> None:
    counter = allocate_client_heartbeat(table.manager, client_id=2**62 + 1)
    record = table.record
    assert record.type_id == 11
    assert record.label == "client-heartbeat: id=4611686018427387905"
    assert record.key == struct.pack("<q", 2**62 + 1).ljust(112, b"\0")
    assert record.registration_id == record.owner_id == 2**62 + 1
    counter.append_to_label(" name=test version=0.1.0")
    assert counter.label.endswith("=4611686018427387905 name=test version=0.1.0")
