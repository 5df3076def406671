from __future__ import annotations

import mmap
import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.counters import (
    MAX_KEY_LENGTH,
    MAX_LABEL_LENGTH,
    METADATA_LENGTH,
    NOT_FREE_TO_REUSE,
    RECORD_ALLOCATED,
    RECORD_RECLAIMED,
    RECORD_UNUSED,
    VALUE_LENGTH,
    Counter,
    CounterRecord,
    CountersManager,
    CountersReader,
    Position,
)
from aeron_async.errors import ClosedError, ConfigurationError, ErrorCode, RegistrationError

if TYPE_CHECKING:
    from collections.abc import Callable

REUSE_TIMEOUT_MS = 1_000
# The sub-pos counter of an official driver, as its files held it.
GOLDEN_VALUE = bytes.fromhex("40010000000000000200000000000000 01000000000000000400000000000000")
GOLDEN_METADATA_START = bytes.fromhex("0100000004000000ffffffffffffff7f")
GOLDEN_KEY = (
    bytes.fromhex("020000000000000058699e0be903000019000000") + b"aeron:ipc?term-length=64k"
)
GOLDEN_LABEL = "sub-pos: 2 194931032 1001 aeron:ipc?term-length=64k @0"


class Epoch:
    def __init__(self) -> None:
        self.now_ms = 1_795_199_261_234

    def __call__(self) -> int:
        return self.now_ms


class Table:
    def __init__(self, limit: int = 8) -> None:
        self.values = bytearray(limit * VALUE_LENGTH)
        self.metadata = bytearray(limit * METADATA_LENGTH)
        self.epoch = Epoch()
        self.manager = CountersManager(
            self.values,
            self.metadata,
            free_to_reuse_timeout_ms=REUSE_TIMEOUT_MS,
            epoch_ms=self.epoch,
        )

    def allocate(self, label: str = "label", **ids: int) -> Counter:
        return self.manager.allocate(1_000, b"key", label, **ids)

    def metadata_of(self, counter_id: int) -> bytes:
        return bytes(self.metadata[counter_id * METADATA_LENGTH :][:METADATA_LENGTH])

    def value_of(self, counter_id: int) -> bytes:
        return bytes(self.values[counter_id * VALUE_LENGTH :][:VALUE_LENGTH])


@pytest.fixture
def table() -> Table:
    return Table()


def test_a_counter_is_laid_out_as_an_official_driver_does_it(table: Table) -> None:
    table.allocate()
    counter = table.manager.allocate(
        4, GOLDEN_KEY, GOLDEN_LABEL, registration_id=2, owner_id=1, reference_id=4
    )
    counter.set(320)
    assert table.value_of(counter.id) == GOLDEN_VALUE + bytes(96)
    expected = (
        GOLDEN_METADATA_START
        + GOLDEN_KEY.ljust(MAX_KEY_LENGTH, b"\0")
        + struct.pack("<i", 54)
        + GOLDEN_LABEL.encode().ljust(MAX_LABEL_LENGTH, b"\0")
    )
    assert table.metadata_of(counter.id) == expected


def test_an_official_record_reads_back() -> None:
    metadata = (
        GOLDEN_METADATA_START
        + GOLDEN_KEY.ljust(MAX_KEY_LENGTH, b"\0")
        + struct.pack("<i", 54)
        + GOLDEN_LABEL.encode().ljust(MAX_LABEL_LENGTH, b"\0")
    )
    reader = CountersReader(GOLDEN_VALUE + bytes(96), metadata)
    assert reader.snapshot() == [
        CounterRecord(
            counter_id=0,
            type_id=4,
            value=320,
            registration_id=2,
            owner_id=1,
            reference_id=4,
            key=GOLDEN_KEY.ljust(MAX_KEY_LENGTH, b"\0"),
            label=GOLDEN_LABEL,
        )
    ]


def test_ids_count_up_from_zero_and_values_start_at_zero(table: Table) -> None:
    counters = [table.allocate() for _ in range(3)]
    assert [counter.id for counter in counters] == [0, 1, 2]
    assert [counter.get() for counter in counters] == [0, 0, 0]


def test_a_counter_sets_adds_and_takes_the_larger(table: Table) -> None:
    table.allocate()
    counter = table.allocate()
    counter.set(-5)
    assert counter.get() == -5
    counter.increment()
    counter.increment(10)
    assert counter.get() == 6
    assert counter.propose_max(7)
    assert not counter.propose_max(7)
    assert not counter.propose_max(-1)
    assert counter.get() == 7
    assert table.manager.value(counter.id) == 7
    assert table.manager.value(0) == 0


def test_a_position_is_a_counter() -> None:
    assert Position is Counter


def test_ids_of_the_registration_are_minus_one_and_zero_unless_given(table: Table) -> None:
    record = table.manager.record(table.allocate().id)
    assert (record.registration_id, record.owner_id, record.reference_id) == (0, -1, 0)


def test_keys_and_labels_are_cut_to_their_fields(table: Table) -> None:
    counter = table.manager.allocate(1_000, b"k" * 113, "é" * 191)
    table.manager.allocate(1_000, b"", "next")
    record = table.manager.record(counter.id)
    assert record.key == b"k" * MAX_KEY_LENGTH
    assert record.label == "é" * 190
    assert table.manager.record(1).label == "next"
    odd = table.manager.allocate(1_000, b"", "a" + "é" * 190)
    # Half a character is left at the cut, and reads as what it is.
    assert odd.label == "a" + "é" * 189 + "\N{REPLACEMENT CHARACTER}"


def test_labels_can_be_replaced_and_lengthened(table: Table) -> None:
    counter = table.allocate("snd-channel: aeron:udp")
    counter.append_to_label(" 127.0.0.1:40123")
    assert counter.label == "snd-channel: aeron:udp 127.0.0.1:40123"
    counter.update_label("short")
    assert counter.label == "short"
    counter.append_to_label("x" * 500)
    assert counter.label == "short" + "x" * 375


def test_a_foreign_label_length_is_never_trusted(table: Table) -> None:
    counter = table.allocate("label")
    for length, seen in ((-1, ""), (2**31 - 1, "label".ljust(MAX_LABEL_LENGTH, "\0"))):
        struct.pack_into("<i", table.metadata, 128, length)
        assert counter.label == seen


def test_a_freed_counter_rests_in_state_minus_one(table: Table) -> None:
    counter = table.allocate("kept", registration_id=7)
    assert table.manager.state(0) == RECORD_ALLOCATED
    assert table.manager.state(1) == RECORD_UNUSED
    counter.set(9)
    table.manager.free(counter.id)
    assert table.manager.state(0) == RECORD_RECLAIMED
    record = table.manager.record(0)
    assert record.key == bytes(MAX_KEY_LENGTH)
    assert (record.label, record.registration_id, record.value) == ("kept", 7, 9)
    deadline_ms = struct.unpack_from("<q", table.metadata, 8)[0]
    assert deadline_ms == table.epoch.now_ms + REUSE_TIMEOUT_MS


def test_an_id_is_reused_only_after_the_timeout(table: Table) -> None:
    first = table.allocate(registration_id=7, owner_id=8, reference_id=9)
    first.set(5)
    first.close()
    table.epoch.now_ms += REUSE_TIMEOUT_MS - 1
    assert table.allocate().id == 1
    table.epoch.now_ms += 1
    again = table.allocate()
    assert again.id == 0
    assert again.get() == 0
    record = table.manager.record(0)
    assert (record.registration_id, record.owner_id, record.reference_id) == (0, -1, 0)
    assert struct.unpack_from("<q", table.metadata, 8)[0] == NOT_FREE_TO_REUSE
    assert table.allocate().id == 2


def test_wall_clock_time_that_steps_back_holds_up_only_what_was_freed_before(table: Table) -> None:
    early, late = table.allocate(), table.allocate()
    early.close()
    table.epoch.now_ms -= 3_600_000
    late.close()
    table.epoch.now_ms += REUSE_TIMEOUT_MS
    assert table.allocate().id == late.id
    assert table.allocate().id == 2


def test_a_full_table_names_the_setting_to_change() -> None:
    table = Table(limit=2)
    table.allocate().close()
    table.allocate()
    with pytest.raises(RegistrationError, match=r"1 of 2 .* aeron\.counters\.buffer\.length") as e:
        table.allocate()
    assert e.value.code is ErrorCode.GENERIC
    table.epoch.now_ms += REUSE_TIMEOUT_MS
    assert table.allocate().id == 0


def test_a_closed_counter_refuses_every_access(table: Table) -> None:
    counter = table.allocate("mine")
    assert repr(counter) == "<Counter 0 'mine' = 0>"
    counter.close()
    counter.close()
    assert counter.is_closed
    assert repr(counter) == "<Counter 0 closed>"
    uses: list[Callable[[], object]] = [
        counter.get,
        counter.increment,
        lambda: counter.set(1),
        lambda: counter.propose_max(1),
        lambda: counter.label,
        lambda: counter.update_label("x"),
        lambda: counter.append_to_label("x"),
    ]
    for use in uses:
        with pytest.raises(ClosedError):
            use()
    assert table.manager.record(0).label == "mine"


def test_a_counter_freed_through_the_manager_is_closed_as_well(table: Table) -> None:
    counter, other = table.allocate(), table.allocate()
    table.manager.free(counter.id)
    assert (counter.is_closed, other.is_closed) == (True, False)
    table.epoch.now_ms += REUSE_TIMEOUT_MS
    assert table.allocate().id == counter.id
    # Closing the old handle must not take the id from its new holder.
    counter.close()
    assert table.manager.state(counter.id) == RECORD_ALLOCATED


@pytest.mark.parametrize("counter_id", [-1, 0, 1, 99])
def test_what_is_not_allocated_cannot_be_freed(table: Table, counter_id: int) -> None:
    table.allocate().close()
    with pytest.raises(RegistrationError, match=f"counter {counter_id} cannot be freed"):
        table.manager.free(counter_id)


def test_iteration_skips_what_was_freed_and_ends_at_what_was_never_used(table: Table) -> None:
    for name in ("a", "b", "c"):
        table.allocate(name)
    table.manager.free(1)
    # A record beyond the first unused one does not exist for any reader.
    struct.pack_into("<i", table.metadata, 5 * METADATA_LENGTH, RECORD_ALLOCATED)
    seen: list[str] = []
    table.manager.for_each(lambda record: seen.append(record.label))
    assert seen == ["a", "c"]
    assert [record.counter_id for record in table.manager.snapshot()] == [0, 2]


def test_iteration_of_a_full_table_ends_with_it() -> None:
    table = Table(limit=2)
    table.allocate("a")
    table.allocate("b")
    assert [record.label for record in table.manager] == ["a", "b"]


def test_a_counter_is_found_by_type_and_registration(table: Table) -> None:
    table.manager.allocate(1, b"", "other type", registration_id=7)
    table.manager.allocate(2, b"", "other registration", registration_id=8)
    table.manager.allocate(2, b"", "wanted", registration_id=7)
    reader = CountersReader(bytes(table.values), bytes(table.metadata))
    found = reader.find(type_id=2, registration_id=7)
    assert found is not None
    assert found.label == "wanted"
    assert reader.find(type_id=3, registration_id=7) is None


def test_the_table_of_a_driver_finds_its_oldest_counter_whatever_clients_write(
    table: Table,
) -> None:
    first, second = (
        table.manager.allocate(2, b"", label, registration_id=7) for label in ("first", "second")
    )
    table.metadata[0:4] = bytes(4)
    found = table.manager.find(type_id=2, registration_id=7)
    assert found is not None
    assert found.label == "first"
    first.close()
    found = table.manager.find(type_id=2, registration_id=7)
    assert found is not None
    assert found.counter_id == second.id
    second.close()
    assert table.manager.find(type_id=2, registration_id=7) is None


@pytest.mark.parametrize("counter_id", [-1, 8])
def test_ids_outside_the_table_are_refused(table: Table, counter_id: int) -> None:
    reads: list[Callable[[int], object]] = [
        table.manager.state,
        table.manager.value,
        table.manager.label,
        table.manager.record,
    ]
    for read in reads:
        with pytest.raises(IndexError, match=r"not between 0 and 7"):
            read(counter_id)


@pytest.mark.parametrize(
    ("values_length", "metadata_length"), [(0, 512), (127, 512), (128, 511), (1024, 4095)]
)
def test_buffers_that_do_not_belong_together_are_refused(
    values_length: int, metadata_length: int
) -> None:
    with pytest.raises(ConfigurationError, match=f"got {values_length} and {metadata_length}"):
        CountersReader(bytes(values_length), bytes(metadata_length))


def test_what_is_left_over_of_the_buffers_is_not_used() -> None:
    assert CountersReader(bytes(2 * VALUE_LENGTH + 5), bytes(4 * METADATA_LENGTH + 3)).limit == 2


def test_an_anonymous_table_holds_as_many_counters_as_aeron_by_default() -> None:
    manager = CountersManager.in_memory(free_to_reuse_timeout_ms=0, epoch_ms=Epoch())
    assert manager.limit == 65_536
    counter = manager.allocate(1_000, b"", "here")
    counter.set(1)
    assert manager.snapshot()[0].value == 1


def test_a_table_can_lie_in_memory_that_others_map() -> None:
    values, metadata = mmap.mmap(-1, 4096), mmap.mmap(-1, 4 * 4096)
    manager = CountersManager(values, metadata, free_to_reuse_timeout_ms=0, epoch_ms=Epoch())
    counter = manager.allocate(1_000, b"", "shared")
    reader = CountersReader(values, metadata)
    counter.set(-(2**63))
    assert reader.value(counter.id) == -(2**63)
    counter.set(2**63 - 1)
    assert reader.snapshot()[0].value == 2**63 - 1


def test_a_released_reader_holds_no_memory() -> None:
    values, metadata = mmap.mmap(-1, 4096), mmap.mmap(-1, 4 * 4096)
    reader = CountersReader(values, metadata)
    with pytest.raises(BufferError):
        values.close()
    reader.release()
    reader.release()
    values.close()
    metadata.close()
    for use in (reader.snapshot, lambda: reader.value(0), lambda: reader.label(0)):
        with pytest.raises(ValueError, match="released"):
            use()


@given(
    steps=st.lists(
        st.one_of(st.just("allocate"), st.integers(0, 5), st.sampled_from([0.4, 0.6, 1.0])),
        max_size=60,
    )
)
def test_no_two_holders_ever_share_a_counter(steps: list[str | int | float]) -> None:
    table = Table(limit=6)
    held: dict[int, Counter] = {}
    freed_ms: dict[int, int] = {}
    for step in steps:
        if isinstance(step, float):
            table.epoch.now_ms += int(step * REUSE_TIMEOUT_MS)
        elif isinstance(step, int):
            if step in held:
                held.pop(step).close()
                freed_ms[step] = table.epoch.now_ms
        else:
            resting = {
                counter_id
                for counter_id, at_ms in freed_ms.items()
                if table.epoch.now_ms < at_ms + REUSE_TIMEOUT_MS
            }
            if len(held) + len(resting) == table.manager.limit:
                with pytest.raises(RegistrationError):
                    table.allocate()
                continue
            counter = table.allocate()
            assert counter.id not in held
            assert counter.id not in resting
            freed_ms.pop(counter.id, None)
            held[counter.id] = counter
        assert [record.counter_id for record in table.manager] == sorted(held)


def test_a_counter_of_another_process_is_written_and_not_freed() -> None:
    table = Table()
    own = table.manager.allocate(1_000, b"", "theirs")
    reader = CountersReader(table.values, table.metadata)
    value = memoryview(table.values).cast("q")[own.id * VALUE_LENGTH // 8 :][:1]
    theirs = Counter.mapped(reader, own.id, value)
    theirs.set(7)
    assert (own.get(), theirs.label) == (7, "theirs")
    for call in (theirs.close, lambda: theirs.update_label("ours")):
        with pytest.raises(AssertionError, match="another process"):
            call()
    assert (own.get(), own.label, own.is_closed) == (7, "theirs", False)
