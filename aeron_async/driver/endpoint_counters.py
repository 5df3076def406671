"""The counters by which an endpoint shows its state and what it is bound to.

Source: Aeron counter types 6, 7 and 14.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.driver.core.stream_counters import (
    ChannelStatus,
    allocate_channel_counter,
    allocate_local_address,
)

if TYPE_CHECKING:
    from aeron_async.counters import Counter, CountersManager
    from aeron_async.driver.core.stream_counters import ChannelCounterType, LocalAddressType

__all__ = ["allocate_endpoint_counters"]


def allocate_endpoint_counters(
    manager: CountersManager,
    channel_type: ChannelCounterType,
    address_type: LocalAddressType,
    *,
    registration_id: int,
    channel: str,
    address: str,
) -> list[Counter]:
    """Return the channel status, then the local address, both active.

    Raises:
        RegistrationError: The counter table is full.
    """
    status = allocate_channel_counter(
        manager,
        channel_type,
        registration_id=registration_id,
        channel=channel,
        bound_address=address,
    )
    local = allocate_local_address(
        manager,
        address_type,
        registration_id=registration_id,
        channel_status_id=status.id,
        address=address,
    )
    for counter in (status, local):
        counter.set(ChannelStatus.ACTIVE)
    return [status, local]
