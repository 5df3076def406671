"""Counters that are allocated together or not at all.

A counter table that fills up half-way through a stream must not keep the first half for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.driver.core.stream_counters import NO_OWNER_ID, allocate_stream_counter

if TYPE_CHECKING:
    from aeron_async.counters import Counter, CountersManager
    from aeron_async.driver.core.stream_counters import StreamCounterType

__all__ = ["allocate_counter_group"]


def allocate_counter_group(
    manager: CountersManager,
    counter_types: tuple[StreamCounterType, ...],
    *,
    registration_id: int,
    session_id: int,
    stream_id: int,
    channel: str,
    owner_id: int,
    driver_types: tuple[StreamCounterType, ...] = (),
) -> list[Counter]:
    """Return one counter of each type, in order, all of one stream; those of the driver come last.

    Raises:
        RegistrationError: The counter table is full; none of them is left allocated.
    """
    allocated: list[Counter] = []
    try:
        for counter_type in counter_types + driver_types:
            counter = allocate_stream_counter(
                manager,
                counter_type,
                registration_id=registration_id,
                session_id=session_id,
                stream_id=stream_id,
                channel=channel,
                owner_id=owner_id if len(allocated) < len(counter_types) else NO_OWNER_ID,
            )
            allocated.append(counter)
    except BaseException:
        for counter in allocated:
            counter.close()
        raise
    return allocated
