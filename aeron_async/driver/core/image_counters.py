"""The counters of one image.

Source: Aeron counter types 3, 5, 10 and 20.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from aeron_async.driver.core.counter_group import allocate_counter_group
from aeron_async.driver.core.stream_counters import StreamCounterType

if TYPE_CHECKING:
    from aeron_async.counters import Counter, CountersManager

__all__ = ["ImageCounters"]


@attrs.frozen(kw_only=True)
class ImageCounters:
    """What an image shows of itself; positions in bytes.

    Attributes:
        congestion_control: Those that its congestion control asked for.
    """

    receiver_hwm: Counter
    receiver_position: Counter
    naks_sent: Counter
    congestion_control: tuple[Counter, ...] = ()

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
        congestion_control_types: tuple[StreamCounterType, ...] = (),
    ) -> ImageCounters:
        """Allocate every counter of an image, owned by the client of its oldest subscription.

        Raises:
            RegistrationError: The counter table is full.
        """
        counters = allocate_counter_group(
            manager,
            (
                StreamCounterType.RECEIVER_HWM,
                StreamCounterType.RECEIVER_POSITION,
                StreamCounterType.RECEIVER_NAKS_SENT,
            ),
            registration_id=registration_id,
            session_id=session_id,
            stream_id=stream_id,
            channel=channel,
            owner_id=client_id,
            driver_types=congestion_control_types,
        )
        return cls(
            receiver_hwm=counters[0],
            receiver_position=counters[1],
            naks_sent=counters[2],
            congestion_control=tuple(counters[3:]),
        )

    def close(self) -> None:
        """Free every counter."""
        for counter in (
            self.receiver_hwm,
            self.receiver_position,
            self.naks_sent,
            *self.congestion_control,
        ):
            counter.close()
