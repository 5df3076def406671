"""The counters of one publication, allocated and freed together.

Source: Aeron counter types 1, 2, 9, 12, 13, 17 and 19.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from aeron_async.driver.core.counter_group import allocate_counter_group
from aeron_async.driver.core.stream_counters import StreamCounterType

if TYPE_CHECKING:
    from aeron_async.counters import Counter, CountersManager

__all__ = ["IpcPublicationCounters", "PublicationCounters"]


@attrs.frozen(kw_only=True)
class PublicationCounters:
    """What a network publication shows of itself; positions in bytes.

    Attributes:
        flow_control_receivers: Only where flow control tracks receivers.
    """

    publisher_limit: Counter
    publisher_position: Counter
    sender_position: Counter
    sender_limit: Counter
    back_pressure_events: Counter
    naks_received: Counter
    flow_control_receivers: Counter | None = None

    @classmethod
    def allocate(
        cls,
        manager: CountersManager,
        *,
        registration_id: int,
        session_id: int,
        stream_id: int,
        channel: str,
        client_id: int,
        is_exclusive: bool,
        is_tracking_receivers: bool = False,
    ) -> PublicationCounters:
        """Allocate every counter of a publication.

        Raises:
            RegistrationError: The counter table is full.
        """
        counters = allocate_counter_group(
            manager,
            (
                position_type(is_exclusive=is_exclusive),
                StreamCounterType.PUBLISHER_LIMIT,
                StreamCounterType.SENDER_POSITION,
                StreamCounterType.SENDER_LIMIT,
                StreamCounterType.SENDER_BPE,
                StreamCounterType.SENDER_NAKS_RECEIVED,
            ),
            registration_id=registration_id,
            session_id=session_id,
            stream_id=stream_id,
            channel=channel,
            owner_id=client_id,
            driver_types=(
                (StreamCounterType.FLOW_CONTROL_RECEIVERS,) if is_tracking_receivers else ()
            ),
        )
        return cls(
            publisher_position=counters[0],
            publisher_limit=counters[1],
            sender_position=counters[2],
            sender_limit=counters[3],
            back_pressure_events=counters[4],
            naks_received=counters[5],
            flow_control_receivers=counters[6] if is_tracking_receivers else None,
        )

    def close(self) -> None:
        """Free every counter."""
        for counter in (
            self.publisher_limit,
            self.publisher_position,
            self.sender_position,
            self.sender_limit,
            self.back_pressure_events,
            self.naks_received,
            self.flow_control_receivers,
        ):
            if counter is not None:
                counter.close()


@attrs.frozen(kw_only=True)
class IpcPublicationCounters:
    """What an IPC publication shows of itself; positions in bytes."""

    publisher_limit: Counter
    publisher_position: Counter

    @classmethod
    def allocate(
        cls,
        manager: CountersManager,
        *,
        registration_id: int,
        session_id: int,
        stream_id: int,
        channel: str,
        client_id: int,
        is_exclusive: bool,
    ) -> IpcPublicationCounters:
        """Allocate every counter of a publication.

        Raises:
            RegistrationError: The counter table is full.
        """
        counters = allocate_counter_group(
            manager,
            (position_type(is_exclusive=is_exclusive), StreamCounterType.PUBLISHER_LIMIT),
            registration_id=registration_id,
            session_id=session_id,
            stream_id=stream_id,
            channel=channel,
            owner_id=client_id,
        )
        return cls(publisher_position=counters[0], publisher_limit=counters[1])

    def close(self) -> None:
        """Free every counter."""
        self.publisher_limit.close()
        self.publisher_position.close()


def position_type(*, is_exclusive: bool) -> StreamCounterType:
    """Return the counter that says how far the publishers have come."""
    if is_exclusive:
        return StreamCounterType.PUBLISHER_POSITION_EXCLUSIVE
    return StreamCounterType.PUBLISHER_POSITION_CONCURRENT
