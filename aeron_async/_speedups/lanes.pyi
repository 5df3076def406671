from collections.abc import Callable
from typing import Any

from aeron_async.counters import Counter
from aeron_async.driver.core.lanes import LaneDestination, LaneListener
from aeron_async.driver.core.outbox import Address
from aeron_async.protocol.header import Buffer

class Reporting:
    last_sm_position: int
    overrun_threshold: int

class Rebuilding: ...

class ReceiveLane:
    def __init__(
        self,
        destination: LaneDestination,
        streams: dict[int, Any],
        listener: LaneListener,
        now_ns: Callable[[], int],
        bytes_received: Counter,
    ) -> None: ...
    def take(self, datagram: Buffer, source: Address) -> bool: ...
    def deliver(self) -> None: ...

class SendLane:
    def __init__(
        self,
        publication: Any,
        agent: Any,
        socket: Any,
        quiet_ns: int,
        is_response: bool = False,
    ) -> None: ...
    def on_offer(self) -> None: ...
