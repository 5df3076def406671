from __future__ import annotations

import struct
from importlib.metadata import version

import pytest

from aeron_async.counters import CountersManager
from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.core.system_counters import (
    DRIVER_COUNTER_LABELS,
    DRIVER_COUNTER_TYPE_ID,
    DriverCounterId,
    SystemCounterId,
    SystemCounters,
    packed_version,
)

MS = 1_000_000
# One line each, by id.
LABELS = """
Bytes sent
Bytes received
Failed offers to ReceiverProxy
Failed offers to SenderProxy
Failed offers to DriverConductorProxy
NAKs sent
NAKs received
Status Messages sent
Status Messages received
Heartbeats sent
Heartbeats received
Retransmits sent
Flow control under runs
Flow control over runs
Invalid packets
Errors: version=1.53.2 commit=aeron-async
Short sends
Failed attempts to free log buffers
Sender flow control limits, i.e. back-pressure events
Unblocked Publications
Unblocked Control Commands
Possible TTL Asymmetry
ControllableIdleStrategy status
Loss gap fills
Client liveness timeouts
Resolution changes: driverName=here
Conductor max cycle time doing its work in ns: SHARED
Conductor work cycle exceeded threshold count: threshold=100ms SHARED
Sender max cycle time doing its work in ns: SHARED
Sender work cycle exceeded threshold count: threshold=1500us SHARED
Receiver max cycle time doing its work in ns: SHARED
Receiver work cycle exceeded threshold count: threshold=2s SHARED
NameResolver max time in ns
NameResolver exceeded threshold count: threshold=5s
Aeron software: version=1.53.2 commit=aeron-async
Bytes currently mapped
Retransmitted bytes
Retransmit Pool Overflow count
Error Frames received
Error Frames sent
Publications Revoked
Publication Images Revoked
Images rejected
Control protocol version
Status Messages rejected
Failed offers to NativeResourceAgentProxy
"""


@pytest.fixture
def manager() -> CountersManager:
    return CountersManager.in_memory(128 * 128, free_to_reuse_timeout_ms=1_000, epoch_ms=lambda: 0)


def test_system_counters_have_aerons_ids_keys_and_labels(manager: CountersManager) -> None:
    context = DriverContext(
        sender_cycle_threshold_ns=1_500_000,
        receiver_cycle_threshold_ns=2_000 * MS,
        resolver_name="here",
    )
    SystemCounters(manager, context, version="1.53.2")
    records = [record for record in manager if record.type_id == 0]
    assert [record.label for record in records] == LABELS.strip().split("\n")
    for index, record in enumerate(records):
        assert record.counter_id == record.registration_id == index
        assert record.key == struct.pack("<i", index).ljust(112, b"\0")
        assert (record.owner_id, record.reference_id) == (-1, 0)


def test_every_system_counter_has_the_id_of_its_official_name() -> None:
    assert [counter_id.value for counter_id in SystemCounterId] == list(range(46))
    assert SystemCounterId(14) is SystemCounterId.INVALID_PACKETS
    assert SystemCounterId(26) is SystemCounterId.CONDUCTOR_MAX_CYCLE_TIME
    assert SystemCounterId(44) is SystemCounterId.STATUS_MESSAGES_REJECTED


def test_counters_are_reached_by_their_ids(manager: CountersManager) -> None:
    counters = SystemCounters(manager, DriverContext(), version="0.1.0")
    counters[SystemCounterId.INVALID_PACKETS].increment()
    counters[DriverCounterId.LOOP_LAG_MAX_NS].propose_max(5)
    assert manager.value(14) == 1
    record = manager.find(
        type_id=DRIVER_COUNTER_TYPE_ID, registration_id=DriverCounterId.LOOP_LAG_MAX_NS
    )
    assert record is not None
    assert record.value == 5


def test_our_own_counters_stand_beside_aerons_under_their_own_type(
    manager: CountersManager,
) -> None:
    SystemCounters(manager, DriverContext(loop_lag_threshold_ns=250 * MS), version="0.1.0")
    ours = [record for record in manager if record.type_id != 0]
    assert {record.type_id for record in ours} == {DRIVER_COUNTER_TYPE_ID}
    assert [record.registration_id for record in ours] == list(DriverCounterId)
    assert [struct.unpack_from("<i", record.key)[0] for record in ours] == list(DriverCounterId)
    assert ours[0].label == "Event loop lag events: threshold=250ms"
    assert not any("{" in record.label for record in ours)
    assert list(DRIVER_COUNTER_LABELS) == list(DriverCounterId)
    assert not set(DriverCounterId) & set(SystemCounterId)


def test_versions_are_packed_and_shown(manager: CountersManager) -> None:
    counters = SystemCounters(manager, DriverContext(), version="1.53.0")
    assert counters[SystemCounterId.AERON_VERSION].get() == 79_104
    assert counters[SystemCounterId.CONTROL_PROTOCOL_VERSION].get() == 65_536
    others = set(SystemCounterId) - {
        SystemCounterId.AERON_VERSION,
        SystemCounterId.CONTROL_PROTOCOL_VERSION,
    }
    assert not any(counters[counter_id].get() for counter_id in others)


def test_the_version_is_that_of_the_installed_package(manager: CountersManager) -> None:
    counters = SystemCounters(manager, DriverContext())
    installed = version("aeron-async")
    assert counters[SystemCounterId.AERON_VERSION].get() == packed_version(installed)
    assert f"version={installed} " in counters[SystemCounterId.ERRORS].label


@pytest.mark.parametrize(
    ("text", "packed"),
    [("1.53.0", 79_104), ("0.2.0", 512), ("1.2.3rc4", 66_051), ("2.1", 131_328), ("x", 0)],
)
def test_a_version_packs_into_three_bytes(text: str, packed: int) -> None:
    assert packed_version(text) == packed


def test_closing_frees_every_counter(manager: CountersManager) -> None:
    counters = SystemCounters(manager, DriverContext())
    counters.close()
    counters.close()
    assert manager.snapshot() == []


def test_a_table_that_was_used_before_is_refused(manager: CountersManager) -> None:
    manager.allocate(1_000, b"", "early")
    with pytest.raises(AssertionError, match="not fresh"):
        SystemCounters(manager, DriverContext())
