from __future__ import annotations

import pytest

from aeron_async.counters import CountersManager
from aeron_async.driver.core.stream_counters import ImageCounters, PublicationCounters
from aeron_async.errors import RegistrationError

VALUE_LENGTH = 128


def manager_of(count: int) -> CountersManager:
    return CountersManager(
        bytearray(count * VALUE_LENGTH),
        bytearray(4 * count * VALUE_LENGTH),
        free_to_reuse_timeout_ms=0,
        epoch_ms=lambda: 1,
    )


def allocate_image(manager: CountersManager) -> ImageCounters:
    return ImageCounters.allocate(
        manager,
        registration_id=1,
        session_id=2,
        stream_id=3,
        channel="aeron:udp?endpoint=h:1",
        client_id=4,
    )


def test_a_full_table_keeps_no_half_of_a_stream() -> None:
    manager = manager_of(8)
    allocate_image(manager)
    allocate_image(manager)
    with pytest.raises(RegistrationError, match=r"counters\.buffer"):
        allocate_image(manager)
    assert len(manager.snapshot()) == 6
    with pytest.raises(RegistrationError, match=r"counters\.buffer"):
        PublicationCounters.allocate(
            manager,
            registration_id=1,
            session_id=2,
            stream_id=3,
            channel="aeron:udp?endpoint=h:1",
            client_id=4,
            is_exclusive=False,
        )
    assert len(manager.snapshot()) == 6


def test_a_group_is_freed_together() -> None:
    manager = manager_of(8)
    counters = allocate_image(manager)
    assert {record.owner_id for record in manager.snapshot()} == {4}
    counters.close()
    assert manager.snapshot() == []
