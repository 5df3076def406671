"""Streams that are not joined: the log says why, and so does a frame to the publisher.

A SETUP may be forged, so its source hears little: of each stream once a second at most, each time
no more than three bytes for each byte of the SETUP, and no source more than half of all.

Differs: Aeron logs the error in its own driver, and its publisher waits without a word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.driver.core.budgets import ReplyLimiter
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.driver.core.udp_channel import format_address
from aeron_async.logs import get_logger
from aeron_async.protocol.error import ErrorFrame

if TYPE_CHECKING:
    from aeron_async.driver.core.outbox import Address, ReceiveDestination
    from aeron_async.driver.image_budget import Refusal
    from aeron_async.driver.resources import DriverResources
    from aeron_async.protocol.setup import Setup

__all__ = ["MAX_TEXT_LENGTH", "RefusalFrames"]

MAX_TEXT_LENGTH: Final = 80
"""Bytes of a reason on the wire: with the header of its frame three times the length of a SETUP."""
NO_GROUP_TAG: Final = -1

log = get_logger(__name__)


class RefusalFrames:
    """Tells of the streams that one driver does not join.

    Args:
        resources: What the driver's parts share.
    """

    def __init__(self, resources: DriverResources) -> None:
        self._clock = resources.clock
        self._counters = resources.system_counters
        self._log_budget = resources.log_budget
        limit = resources.context.max_elicited_setups_per_second
        # Publications that share a socket share their source: each of them is to hear of its own.
        self._limiter = ReplyLimiter(
            limit=limit, limit_per_asker=1, limit_per_source=max(1, limit // 2)
        )

    def refuse(
        self,
        refusal: Refusal,
        setup: Setup,
        source: Address,
        destination: ReceiveDestination,
        receiver_id: int,
    ) -> None:
        """Count a refused stream, and tell why.

        Args:
            refusal: Why it is not joined.
            setup: What asked for it.
            source: Where that came from.
            destination: By which way; the answer leaves there.
            receiver_id: Names this end to the publisher.
        """
        self._counters[DriverCounterId.IMAGES_REFUSED].increment()
        now_ns = self._clock.now_ns()
        if self._log_budget.allows("image_refused", source, now_ns):
            log.warning(
                "image_refused",
                reason=refusal.reason(),
                source=format_address(source),
                session_id=setup.session_id,
                stream_id=setup.stream_id,
            )
        asker = source, setup.session_id, setup.stream_id
        if not self._limiter.try_take(asker, now_ns, source=source):
            self._counters[DriverCounterId.REFUSALS_WITHHELD].increment()
            return
        frame = ErrorFrame(
            session_id=setup.session_id,
            stream_id=setup.stream_id,
            receiver_id=receiver_id,
            group_tag=NO_GROUP_TAG,
            error_code=refusal.code,
            message=refusal.brief_reason().encode()[:MAX_TEXT_LENGTH],
        ).encode()
        if destination.send_to(frame, source):
            self._counters[SystemCounterId.ERROR_FRAMES_SENT].increment()
        else:
            self._counters[SystemCounterId.SHORT_SENDS].increment()
