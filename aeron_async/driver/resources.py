"""What the parts of one driver share: settings, time, randomness, network and counters."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import attrs

from aeron_async.driver.media.sockets import WildcardPorts
from aeron_async.logs import LogBudget
from aeron_async.protocol.header import wrap_int32

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from aeron_async.counters import CountersManager
    from aeron_async.driver.core.context import DriverContext
    from aeron_async.driver.core.system_counters import SystemCounters
    from aeron_async.driver.media.network import Network
    from aeron_async.driver.stall_clock import StallClock

__all__ = ["DriverResources"]


@attrs.frozen(kw_only=True, eq=False)
class DriverResources:
    """Handed to every part of a driver, and owned by none.

    Attributes:
        log_budget: For log lines that peers can cause.
        registration_ids: One count for clients, publications, subscriptions and images.
        sender_ports: Where the control port 0 of a publication comes from; None is the system.
        receiver_ports: Where the endpoint port 0 of a subscription comes from; likewise.
    """

    context: DriverContext
    clock: StallClock
    random: Random
    network: Network
    counters_manager: CountersManager
    system_counters: SystemCounters
    log_budget: LogBudget = attrs.field(init=False)
    registration_ids: Iterator[int] = attrs.field(factory=lambda: count(1))
    sender_ports: WildcardPorts | None = attrs.field(init=False)
    receiver_ports: WildcardPorts | None = attrs.field(init=False)

    @log_budget.default
    def _log_budget(self) -> LogBudget:
        return self.system_counters.log_budget or LogBudget(self.clock.now_ns)

    @sender_ports.default
    def _sender_ports(self) -> WildcardPorts | None:
        return WildcardPorts.of(self.context.sender_wildcard_port_range)

    @receiver_ports.default
    def _receiver_ports(self) -> WildcardPorts | None:
        return WildcardPorts.of(self.context.receiver_wildcard_port_range)

    def next_id(self) -> int:
        """Return a registration id that this driver has not used."""
        return next(self.registration_ids)

    def random_int32(self) -> int:
        """Return any signed 32-bit number."""
        return wrap_int32(self.random.getrandbits(32))

    def random_int64(self) -> int:
        """Return any signed 64-bit number."""
        return self.random.getrandbits(64) - 2**63
