"""Answer the round-trip measurements of receivers, so many a second.

Source: Aeron `NetworkPublication.onRttMeasurement`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from aeron_async.driver.core.reply_limiter import ReplyLimiter
from aeron_async.driver.core.system_counters import DriverCounterId
from aeron_async.protocol.header import RttFlags

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.driver.core.context import DriverContext
    from aeron_async.driver.core.system_counters import SystemCounters
    from aeron_async.protocol.rtt import RttMeasurement

__all__ = ["RttReplier"]


class RttReplier:
    """What one publication says to those who measure their distance to it.

    Args:
        send: Takes a datagram; one that cannot leave is lost, and the asker asks again.
        context: How many are answered in a second, in all and for each receiver id.
        system_counters: The driver's.
    """

    def __init__(
        self,
        send: Callable[[bytes], bool],
        context: DriverContext,
        system_counters: SystemCounters,
    ) -> None:
        self._send = send
        self._suppressed = system_counters[DriverCounterId.RTT_REPLIES_SUPPRESSED]
        self._limiter = ReplyLimiter(
            limit=context.max_rtt_replies_per_second,
            limit_per_asker=context.max_rtt_replies_per_source,
        )

    def on_rttm(self, rttm: RttMeasurement, now_ns: int) -> None:
        """Answer a request; replies to ours never come this way.

        Differs: Aeron answers every one. CUBIC with its measurements switched on asks again after
        four round trips: fifty answers a second are one to each request where a round trip takes 5
        ms or more. Where it takes less, the measurement is up to a second old, and only TCP mode
        makes any use of it.
        """
        if not rttm.is_reply_requested:
            return
        if not self._limiter.try_take(rttm.receiver_id, now_ns):
            self._suppressed.increment()
            return
        # What lies behind the fields is not carried back: the answer is as short as they are.
        reply = attrs.evolve(rttm, flags=RttFlags(0), reception_delta_ns=0, trailing=b"")
        self._send(reply.encode())
